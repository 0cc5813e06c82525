//! Health on a virtual clock: cases C22, C23 and C26, and the rules around them.

use super::*;

const S: Ns = 1_000_000_000;
const B: InstanceId = InstanceId(1);

fn rules() -> Rules {
    Rules {
        check_path: Some("/health".into()),
        check_interval: Duration::from_secs(5),
        check_timeout: Duration::from_secs(2),
        check_failures: 3,
        failures_in_a_row: 5,
        failure_share: 0.5,
        window: Duration::from_secs(10),
        window_requests: 20,
        ejected_share_max: 0.5,
        probe_interval: Duration::from_secs(1),
        when_none_left: WhenNoneLeft::Try,
        retry_after_max: Duration::from_secs(60),
        slow_start: Duration::from_secs(30),
    }
}

/// Three instances; what the scheduler was told of each.
struct Pool {
    health: Health,
    heard_ns: [Option<Ns>; 3],
    states: [InstanceState; 3],
    back: u32,
}

impl Pool {
    fn new(rules: &Rules) -> Pool {
        Pool {
            health: Health::new(rules, 3),
            heard_ns: [None; 3],
            states: [InstanceState::Up; 3],
            back: 0,
        }
    }

    fn at(&mut self, now_ns: Ns) -> [InstanceState; 3] {
        for change in self.health.changes(now_ns) {
            self.states[change.id.0 as usize] = change.state;
            self.back += u32::from(change.back);
        }
        self.states
    }

    fn heard(&mut self, id: InstanceId, at_ns: Ns) {
        self.heard_ns[id.0 as usize] = Some(at_ns);
    }

    fn checked(&mut self, id: InstanceId, checked: Checked, now_ns: Ns) {
        let heard_ns = self.heard_ns[id.0 as usize];
        self.health.checked(id, checked, heard_ns, now_ns);
    }

    fn end(&mut self, id: InstanceId, verdict: Verdict, now_ns: Ns) -> InstanceState {
        self.health.ended(id, verdict, false, now_ns);
        self.at(now_ns)[id.0 as usize]
    }

    fn out(&mut self, now_ns: Ns) {
        for _ in 0..5 {
            self.end(B, Verdict::Failure, now_ns);
        }
        assert_eq!(self.states[1], InstanceState::Down);
    }

    fn probe(&mut self, verdict: Verdict, now_ns: Ns) {
        assert_eq!(self.at(now_ns)[1], InstanceState::Probing);
        self.health.probe_sent(B);
        self.states[1] = InstanceState::Down;
        assert_eq!(
            self.at(now_ns)[1],
            InstanceState::Down,
            "one probe at a time"
        );
        self.health.ended(B, verdict, true, now_ns);
        self.at(now_ns);
    }
}

#[test]
fn five_failures_in_a_row_take_an_instance_out_and_a_good_probe_brings_it_back_slowly() {
    let mut pool = Pool::new(&rules());
    for _ in 0..4 {
        assert_eq!(pool.end(B, Verdict::Failure, S), InstanceState::Up);
    }
    pool.end(B, Verdict::Success, S);
    pool.out(2 * S);
    assert_eq!(pool.health.cause(B), Some(Cause::InARow));
    assert_eq!(pool.health.next_due_ns(2 * S), Some(3 * S));
    assert_eq!(pool.at(3 * S - 1)[1], InstanceState::Down);
    pool.probe(Verdict::Failure, 3 * S);
    pool.probe(Verdict::Success, 4 * S);
    assert_eq!((pool.states[1], pool.back), (InstanceState::Up, 1));
    assert_eq!(pool.health.ejections(B)[Cause::InARow as usize], 1);
}

#[test]
fn ten_seconds_of_a_broken_instance_cost_it_fifteen_requests_at_most() {
    let mut pool = Pool::new(&rules());
    let mut sent = 0;
    for ms in (0..10_000_u64).step_by(2) {
        let now = S + ms * 1_000_000;
        match pool.at(now)[1] {
            InstanceState::Up => {
                sent += 1;
                pool.end(B, Verdict::Failure, now);
            }
            InstanceState::Probing => {
                sent += 1;
                pool.probe(Verdict::Failure, now);
            }
            _ => {}
        }
    }
    assert!((6..=15).contains(&sent), "{sent} requests");
}

#[test]
fn failures_that_were_on_their_way_spare_it_as_many_probes_up_to_five() {
    let due_after = |late: usize| {
        let mut pool = Pool::new(&rules());
        pool.out(S);
        for _ in 0..late {
            pool.end(B, Verdict::Failure, S);
        }
        pool.health.next_due_ns(S).map(|due| due / S - 1)
    };
    assert_eq!([0, 1, 3, 100].map(due_after), [1, 2, 4, 5].map(Some));
}

#[test]
fn a_probe_without_a_verdict_frees_its_place() {
    let mut pool = Pool::new(&rules());
    pool.out(S);
    pool.probe(Verdict::Neutral, 2 * S);
    pool.probe(Verdict::Success, 3 * S);
    assert_eq!(pool.states[1], InstanceState::Up);
}

#[test]
fn what_was_sent_before_it_was_taken_out_does_not_bring_it_back() {
    let mut pool = Pool::new(&rules());
    pool.out(S);
    assert_eq!(pool.end(B, Verdict::Success, S + 1), InstanceState::Down);
}

#[test]
fn a_share_of_failures_takes_an_instance_out_where_enough_were_seen() {
    let mut pool = Pool::new(&rules());
    for n in 0..19 {
        let verdict = if n % 2 == 0 {
            Verdict::Failure
        } else {
            Verdict::Success
        };
        assert_eq!(pool.end(B, verdict, S), InstanceState::Up, "{n}");
    }
    assert_eq!(pool.end(B, Verdict::Failure, S), InstanceState::Down);
    assert_eq!(pool.health.cause(B), Some(Cause::Share));
}

#[test]
fn failures_of_an_earlier_window_are_forgotten() {
    let mut pool = Pool::new(&rules());
    for n in 0..40_u64 {
        let verdict = if n % 2 == 0 {
            Verdict::Failure
        } else {
            Verdict::Success
        };
        assert_eq!(pool.end(B, verdict, n * S), InstanceState::Up);
    }
}

#[test]
fn answers_alone_take_out_no_more_than_the_share_of_instances_allowed() {
    let mut pool = Pool::new(&rules());
    for id in 0..3 {
        for _ in 0..50 {
            pool.end(InstanceId(id), Verdict::Failure, S);
        }
    }
    let out = pool
        .states
        .iter()
        .filter(|state| **state == InstanceState::Down);
    assert_eq!(out.count(), 1, "half of three, cut to a whole number");
}

#[test]
fn a_busy_instance_is_left_alone_as_long_as_it_asks_and_no_longer_than_allowed() {
    let mut pool = Pool::new(&rules());
    let busy = |seconds| Verdict::Busy(Duration::from_secs(seconds));
    assert_eq!(pool.end(B, busy(7), S), InstanceState::Down);
    assert_eq!(pool.at(8 * S - 1)[1], InstanceState::Down);
    assert_eq!(pool.at(8 * S)[1], InstanceState::Up);
    assert_eq!(pool.health.cause(B), None, "busy is not broken");
    pool.end(B, busy(86_400), 9 * S);
    assert_eq!(pool.at(69 * S)[1], InstanceState::Up);
}

#[test]
fn if_none_is_left_all_are_tried_or_all_refuse() {
    for (when, state) in [
        (WhenNoneLeft::Try, InstanceState::Up),
        (WhenNoneLeft::Refuse, InstanceState::Down),
    ] {
        let mut pool = Pool::new(&Rules {
            when_none_left: when,
            ..rules()
        });
        for id in (0..3).map(InstanceId) {
            for n in 0..3 {
                pool.checked(id, Checked::Failed, (n + 1) * S);
            }
        }
        assert_eq!(pool.at(4 * S), [state; 3]);
    }
    // one that answers while all are tried is in again, and the others are out again
    let mut pool = Pool::new(&rules());
    for id in (0..3).map(InstanceId) {
        for n in 0..3 {
            pool.checked(id, Checked::Failed, (n + 1) * S);
        }
    }
    pool.end(B, Verdict::Success, 5 * S);
    assert_eq!(
        pool.states,
        [InstanceState::Down, InstanceState::Up, InstanceState::Down]
    );
}

#[test]
fn checks_that_time_out_while_bytes_flow_mean_nothing() {
    let mut pool = Pool::new(&rules());
    for n in 1..20 {
        pool.heard(B, n * 5 * S + S);
        pool.checked(B, Checked::TimedOut, n * 5 * S + 2 * S);
        pool.heard(B, n * 5 * S + 3 * S);
        assert_eq!(pool.at(n * 5 * S + 4 * S)[1], InstanceState::Up);
    }
}

#[test]
fn a_byte_after_a_refused_check_counts_for_the_next_check_and_no_longer() {
    let mut pool = Pool::new(&rules());
    pool.checked(B, Checked::Failed, 5 * S);
    pool.heard(B, 6 * S);
    for (n, state) in [
        (2, InstanceState::Up),
        (3, InstanceState::Up),
        (4, InstanceState::Down),
    ] {
        pool.checked(B, Checked::Failed, n * 5 * S);
        assert_eq!(pool.at(n * 5 * S)[1], state, "check {n}");
    }
}

#[test]
fn checks_that_are_refused_while_bytes_flow_take_nothing_out() {
    let mut pool = Pool::new(&rules());
    for n in 1..20 {
        pool.heard(B, n * 5 * S - S);
        pool.checked(B, Checked::Failed, n * 5 * S);
        assert_eq!(pool.at(n * 5 * S)[1], InstanceState::Up);
    }
}

#[test]
fn three_failed_checks_in_a_row_and_no_byte_take_out_and_one_good_brings_back() {
    let mut pool = Pool::new(&rules());
    pool.checked(B, Checked::Failed, S);
    pool.checked(B, Checked::TimedOut, 6 * S);
    assert_eq!(pool.at(6 * S)[1], InstanceState::Up);
    pool.checked(B, Checked::TimedOut, 11 * S);
    assert_eq!(pool.at(11 * S)[1], InstanceState::Down);
    assert_eq!(
        pool.at(600 * S)[1],
        InstanceState::Down,
        "no request is a probe while checks fail"
    );
    pool.checked(B, Checked::Answered, 601 * S);
    assert_eq!((pool.at(601 * S)[1], pool.back), (InstanceState::Up, 1));
}

#[test]
fn one_failed_check_in_ten_changes_nothing() {
    let mut pool = Pool::new(&rules());
    for n in 0..100 {
        let checked = if n % 10 == 0 {
            Checked::Failed
        } else {
            Checked::Answered
        };
        pool.checked(B, checked, n * 5 * S);
        assert_eq!(pool.at(n * 5 * S)[1], InstanceState::Up);
    }
}

#[test]
fn a_good_check_does_not_bring_back_what_fails_requests() {
    let mut pool = Pool::new(&rules());
    pool.out(S);
    pool.checked(B, Checked::Answered, S);
    assert_eq!(pool.at(S)[1], InstanceState::Down);
}

#[test]
fn a_drained_instance_takes_nothing_whatever_it_answers_and_comes_back_into_its_slow_start() {
    let mut pool = Pool::new(&rules());
    pool.health.drain(B, true);
    assert_eq!(pool.at(S)[1], InstanceState::Draining);
    assert_eq!(pool.end(B, Verdict::Success, S), InstanceState::Draining);
    for _ in 0..5 {
        pool.end(B, Verdict::Failure, S);
    }
    assert_eq!(pool.at(5 * S)[1], InstanceState::Draining);
    pool.health.drain(B, false);
    // what it did meanwhile counts
    assert_eq!(pool.at(5 * S)[1], InstanceState::Probing);
    pool.health.probe_sent(B);
    pool.health.ended(B, Verdict::Success, true, 6 * S);
    assert_eq!((pool.at(6 * S)[1], pool.back), (InstanceState::Up, 1));
    pool.health.drain(B, true);
    pool.at(7 * S);
    pool.health.drain(B, false);
    assert_eq!((pool.at(7 * S)[1], pool.back), (InstanceState::Up, 2));
}

#[test]
fn drained_instances_are_not_what_is_left() {
    let mut pool = Pool::new(&rules());
    for id in [0, 2] {
        pool.health.drain(InstanceId(id), true);
    }
    // the only one that serves: it is tried though its checks fail, and the drained ones are left alone
    for now in [S, 2 * S, 3 * S] {
        pool.checked(B, Checked::Failed, now);
    }
    let draining = InstanceState::Draining;
    assert_eq!(pool.at(4 * S), [draining, InstanceState::Up, draining]);
}

#[test]
fn an_instance_that_joins_is_in_and_one_that_left_is_forgotten() {
    let mut pool = Pool::new(&rules());
    pool.out(S);
    pool.health.remove(B);
    pool.health.ended(B, Verdict::Success, true, 2 * S);
    assert_eq!(pool.health.changes(2 * S), []);
    pool.health.add(B);
    assert_eq!(pool.health.changes(3 * S), []);
    assert_eq!(pool.health.cause(B), None);
}
