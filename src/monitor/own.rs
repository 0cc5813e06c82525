//! What the load generator itself uses: CPU time of the threads that send the load.

/// Name of the threads that send, as [`crate::load::runner`] gives it.
#[cfg(target_os = "linux")]
const THREAD: &str = "load";

/// CPU time of all of them so far, in seconds; `None` where the system does not tell, or none runs.
#[cfg(target_os = "linux")]
pub fn generator_cpu_s() -> Option<f64> {
    let mut total_ns: Option<u64> = None;
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let path = task.path();
        let is_sender =
            std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == THREAD);
        if !is_sender {
            continue;
        }
        // nanoseconds on a CPU, nanoseconds in the queue for one, slices
        let stat = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        let on_cpu_ns: Option<u64> = stat.split(' ').next().and_then(|ns| ns.parse().ok());
        total_ns = Some(total_ns.unwrap_or(0) + on_cpu_ns?);
    }
    total_ns.map(|ns| ns as f64 / 1e9)
}

/// CPU time of all of them so far, in seconds; `None` where the system does not tell, or none runs.
#[cfg(not(target_os = "linux"))]
pub fn generator_cpu_s() -> Option<f64> {
    None
}
