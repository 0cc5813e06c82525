//! Counts this thread's allocations, so that "allocates nothing" is a figure beside the times.
// a global allocator cannot be written without; it hands everything on to the system's
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // a thread that ends has no count any more
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(old, layout, bytes) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        unsafe { System.dealloc(old, layout) }
    }
}

/// Allocations (and re-allocations) of `work` on this thread.
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

/// Prints the allocations of one step of `work`, after a first that may warm up, over many.
pub fn print_per_step(name: &str, steps: u32, mut work: impl FnMut()) {
    work();
    let all = allocations(|| (0..steps).for_each(|_| work()));
    println!("{name}: {:.3} allocations", all as f64 / f64::from(steps));
}
