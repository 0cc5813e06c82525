//! A pool's `[health]` table: from the file to the rules as used.

use super::check::Checker;
use super::checked::Health;
use super::place::Step::{self, Key};
use super::raw;

/// Checks the table of the pool at `at`.
pub fn check(checker: &mut Checker<'_>, at: &[Step<'_>], path: &str, raw: raw::Health) -> Health {
    let mut seconds = |key: &str, value: f64| {
        let place = [at, &[Key("health"), Key(key)]].concat();
        checker.seconds_at(&place, &format!("{path}.health.{key}"), value)
    };
    let health = Health {
        check_path: (!raw.check_path.is_empty()).then(|| raw.check_path.clone()),
        check_interval: seconds("check_interval_s", raw.check_interval_s),
        check_timeout: seconds("check_timeout_s", raw.check_timeout_s),
        check_failures: raw.check_failures,
        failures_in_a_row: raw.failures_in_a_row,
        failure_share: raw.failure_share,
        window: seconds("window_s", raw.window_s),
        window_requests: raw.window_requests,
        ejected_share_max: raw.ejected_share_max,
        probe_interval: seconds("probe_interval_s", raw.probe_interval_s),
        when_none_left: raw.when_none_left,
        retry_after_max: seconds("retry_after_max_s", raw.retry_after_max_s),
        slow_start: seconds("slow_start_s", raw.slow_start_s.max(f64::MIN_POSITIVE)),
    };
    shares(checker, at, path, &raw);
    if !(raw.check_path.is_empty() || raw.check_path.starts_with('/')) {
        let help = "write a path such as \"/health\", or \"\" for no checks".to_owned();
        fault(checker, at, path, "check_path", "must begin with /", help);
    }
    if raw.check_failures == 0 || raw.window_requests == 0 {
        let key = if raw.check_failures == 0 {
            "check_failures"
        } else {
            "window_requests"
        };
        let help = "write a whole number of 1 or more".to_owned();
        fault(checker, at, path, key, "must be at least 1", help);
    }
    health
}

fn shares(checker: &mut Checker<'_>, at: &[Step<'_>], path: &str, raw: &raw::Health) {
    let within = |value: f64| (0.0..=1.0).contains(&value);
    if !(within(raw.failure_share) && raw.failure_share > 0.0) {
        let help =
            "write a share above 0 and up to 1; 1 takes out only what fails always".to_owned();
        fault(
            checker,
            at,
            path,
            "failure_share",
            "must be above 0 and at most 1",
            help,
        );
    }
    if !within(raw.ejected_share_max) {
        let help = "write a share from 0 (never) to 1 (all of them)".to_owned();
        fault(
            checker,
            at,
            path,
            "ejected_share_max",
            "must be 0 to 1",
            help,
        );
    }
    if raw.slow_start_s < 0.0 {
        let help = "write seconds; 0 is no slow start".to_owned();
        fault(
            checker,
            at,
            path,
            "slow_start_s",
            "must not be below 0",
            help,
        );
    }
}

fn fault(
    checker: &mut Checker<'_>,
    at: &[Step<'_>],
    path: &str,
    key: &str,
    rule: &str,
    help: String,
) {
    let place = [at, &[Key("health"), Key(key)]].concat();
    checker.fault(
        &place,
        format!("`{path}.health.{key}` {rule}"),
        "cannot be used",
        help,
    );
}
