//! From one ended request to its figures: both TTFTs, the time between them by stage, TPOT, E2E.
//!
//! Pure. A figure whose stamps are not all there is absent, never 0.

use super::clock::{Ns, ms_between};
use super::summary::{Answer, Exchange, Stamps};

/// Client TTFT minus server TTFT, by stage. The parts add up exactly, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutsideEngine {
    /// first to last byte of the request from the client (to its routing, if routed before)
    pub client_send_ns: u64,
    /// in a lane's queue
    pub queue_ns: u64,
    /// in attempts that failed
    pub retry_ns: u64,
    /// the proxy's own work before an instance was chosen
    pub choose_ns: u64,
    /// getting a connection
    pub connect_ns: u64,
    /// writing the request to the instance
    pub upstream_send_ns: u64,
    /// the proxy's own work from the first output chunk's arrival to its hand-over; where the kernel stamps
    /// arrivals, the wait for the read is within
    pub relay_ns: u64,
    /// writes of the first output chunk held up by the client
    pub client_blocked_ns: u64,
}

impl OutsideEngine {
    /// The whole, nanoseconds.
    pub fn total_ns(&self) -> u64 {
        [
            self.client_send_ns,
            self.queue_ns,
            self.retry_ns,
            self.choose_ns,
            self.connect_ns,
            self.upstream_send_ns,
            self.relay_ns,
            self.client_blocked_ns,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// The proxy's own cost, nanoseconds: choose + relay.
    pub fn proxy_own_ns(&self) -> u64 {
        self.choose_ns.saturating_add(self.relay_ns)
    }

    /// Absent if a stamp is missing or out of order.
    fn of(stamps: &Stamps, first_output_ns: Ns) -> Option<OutsideEngine> {
        let begin = stamps.request_first_ns?;
        let arrive = stamps.arrive_ns?;
        let received = stamps
            .request_last_ns
            .map_or(arrive, |last| last.min(arrive));
        let chosen = stamps.chosen_ns?;
        let connected = stamps.connected_ns?;
        let sent = stamps.sent_ns?;
        let handed = stamps.client_first_output_ns?;
        let path = [
            begin,
            received,
            chosen,
            connected,
            sent,
            first_output_ns,
            handed,
        ];
        if !path.is_sorted() {
            return None;
        }
        let deciding = chosen - received;
        let queue_ns = stamps.queue_ns.min(deciding);
        let retry_ns = stamps.retry_ns.min(deciding - queue_ns);
        let handing = handed - first_output_ns;
        let client_blocked_ns = stamps.client_blocked_first_ns.min(handing);
        Some(OutsideEngine {
            client_send_ns: received - begin,
            queue_ns,
            retry_ns,
            choose_ns: deciding - queue_ns - retry_ns,
            connect_ns: connected - chosen,
            upstream_send_ns: sent - connected,
            relay_ns: handing - client_blocked_ns,
            client_blocked_ns,
        })
    }
}

/// The figures of one request. Times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// first byte of the request from the client to the first output chunk at the client's socket
    pub client_ttft_ms: Option<f64>,
    /// last byte of the request to the instance to the arrival of the first output chunk; absent
    /// if the answer came before the request's last byte
    pub server_ttft_ms: Option<f64>,
    /// as server TTFT, to the first output that is not reasoning
    pub ttft_answer_ms: Option<f64>,
    /// client TTFT - server TTFT
    pub outside_engine_ms: Option<f64>,
    /// its parts
    pub outside_engine: Option<OutsideEngine>,
    /// choose + relay
    pub proxy_own_ms: Option<f64>,
    /// of relay: from the kernel's stamp on the first output chunk to its read; absent without such a stamp
    pub read_wait_ms: Option<f64>,
    /// time in a lane's queue; absent if the request was never handed to the scheduler
    pub queue_ms: Option<f64>,
    /// (last output - first) / (output tokens - 1); one choice, 2 tokens or more, count from `usage`
    pub tpot_ms: Option<f64>,
    /// the variant (E2E - client TTFT) / output tokens
    pub tpot_e2e_ms: Option<f64>,
    /// first byte of the request to the last byte of the answer at the client's socket
    pub e2e_ms: Option<f64>,
    /// last output chunk, from the request's last byte to the instance
    pub last_output_ms: Option<f64>,
    /// last byte of the answer, from the request's last byte to the instance
    pub end_ms: Option<f64>,
    /// prompt tokens from `usage`
    pub prompt_tokens: Option<u64>,
    /// output tokens from `usage`
    pub output_tokens: Option<u64>,
    /// output chunks, over all choices
    pub output_chunks: Option<u64>,
    /// output tokens estimated from chunks; only where `usage` gave none
    pub output_tokens_est: Option<f64>,
}

/// Milliseconds between two stamps; absent if one is missing or they are out of order.
fn between(from: Option<Ns>, to: Option<Ns>) -> Option<f64> {
    let (from, to) = (from?, to?);
    (to >= from).then(|| ms_between(from, to))
}

fn tpot_ms(answer: &Answer, choices: usize) -> Option<f64> {
    let tokens = answer.usage.output_tokens.filter(|&tokens| tokens >= 2)?;
    if choices != 1 || !answer.streamed {
        return None;
    }
    let span = between(answer.first_output_ns, answer.last_output_ns)?;
    Some(span / (tokens - 1) as f64)
}

/// Choices asked for or seen, whichever is more.
fn choices(exchange: &Exchange, answer: &Answer) -> usize {
    let asked = exchange.shape.map_or(1, |shape| shape.choices as usize);
    asked.max(answer.choices.len()).max(1)
}

impl Figures {
    /// The figures of an ended request.
    pub fn of(exchange: &Exchange) -> Figures {
        let stamps = &exchange.stamps;
        let mut figures = Figures {
            e2e_ms: between(stamps.request_first_ns, stamps.client_end_ns),
            end_ms: between(stamps.sent_ns, stamps.end_ns),
            queue_ms: stamps.arrive_ns.map(|_| stamps.queue_ns as f64 / 1e6),
            ..Figures::default()
        };
        if let Some(answer) = &exchange.answer {
            figures.read_answer(exchange, answer);
        }
        figures
    }

    fn read_answer(&mut self, exchange: &Exchange, answer: &Answer) {
        let stamps = &exchange.stamps;
        self.server_ttft_ms = between(stamps.sent_ns, answer.first_output_ns);
        self.ttft_answer_ms = between(stamps.sent_ns, answer.first_answer_ns);
        self.last_output_ms = between(stamps.sent_ns, answer.last_output_ns);
        if answer.first_output_ns.is_some() {
            self.client_ttft_ms = between(stamps.request_first_ns, stamps.client_first_output_ns);
        }
        self.outside_engine = answer
            .first_output_ns
            .and_then(|first| OutsideEngine::of(stamps, first));
        self.outside_engine_ms = match (self.client_ttft_ms, self.server_ttft_ms) {
            (Some(client), Some(server)) if client >= server => Some(client - server),
            _ => None,
        };
        self.proxy_own_ms = self
            .outside_engine
            .map(|parts| parts.proxy_own_ns() as f64 / 1e6);
        self.read_wait_ms = between(answer.first_output_ns, stamps.first_output_read_ns);
        self.tpot_ms = tpot_ms(answer, choices(exchange, answer));
        self.tpot_e2e_ms = self.variant(answer);
        self.prompt_tokens = answer.usage.prompt_tokens;
        self.output_tokens = answer.usage.output_tokens;
        self.output_chunks =
            (!answer.unmeasured && answer.streamed).then_some(answer.content_chunks);
        if self.output_tokens.is_none() {
            self.output_tokens_est = exchange.output_tokens_est;
        }
    }

    fn variant(&self, answer: &Answer) -> Option<f64> {
        let tokens = answer.usage.output_tokens.filter(|&tokens| tokens > 0)?;
        let (e2e, ttft) = (self.e2e_ms?, self.client_ttft_ms?);
        (answer.streamed && e2e >= ttft).then(|| (e2e - ttft) / tokens as f64)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::outcome::Outcome;
    use super::super::summary::{Choice, Usage};
    use super::*;
    use evenkeel_policies::shape::Api;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A complete request: client TTFT 110 ms, server TTFT 80 ms, 5 output tokens over 40 ms.
    pub(crate) fn exchange(pool: &str, instance: &str) -> Exchange {
        Exchange {
            request_id: "r-1".into(),
            wall_ns: 1_700_000_000_000_000_000,
            pool: Some(pool.into()),
            instance: Some(instance.into()),
            key: None,
            arm: None,
            lane: Some("short".into()),
            policy: Some("round_robin".into()),
            model: Some("m".into()),
            path: "/v1/chat/completions".into(),
            api: Api::Chat,
            shape: None,
            status: Some(200),
            outcome: Outcome::Ok,
            cause: None,
            attempts: 1,
            outstanding_requests: Some(3),
            outstanding_tokens: Some(400),
            mean_batch: Some(4.0),
            failed_attempts: Vec::new(),
            retry_after: None,
            output_tokens_est: None,
            request_bytes: 500,
            response_bytes: 900,
            stamp: "socket",
            stamps: Stamps {
                request_first_ns: Some(1000 * MS),
                request_last_ns: Some(1003 * MS),
                arrive_ns: Some(1004 * MS),
                chosen_ns: Some(1020 * MS),
                connected_ns: Some(1022 * MS),
                sent_ns: Some(1025 * MS),
                head_ns: Some(1030 * MS),
                first_output_read_ns: None,
                end_ns: Some(1150 * MS),
                client_first_output_ns: Some(1110 * MS),
                client_end_ns: Some(1160 * MS),
                retry_ns: 4 * MS,
                queue_ns: 10 * MS,
                client_blocked_first_ns: 2 * MS,
                client_blocked_ns: 2 * MS,
            },
            answer: Some(Answer {
                streamed: true,
                events: 7,
                content_chunks: 3,
                first_output_event: Some(1),
                last_output_event: Some(3),
                first_output_ns: Some(1105 * MS),
                first_answer_ns: Some(1105 * MS),
                last_output_ns: Some(1145 * MS),
                choices: vec![Choice {
                    chunks: 3,
                    first_ns: Some(1105 * MS),
                    last_ns: Some(1145 * MS),
                    finish: Some("stop".into()),
                    seen: true,
                }],
                usage: Usage {
                    prompt_tokens: Some(20),
                    output_tokens: Some(5),
                    cached_tokens: None,
                },
                done_marker: true,
                complete: true,
                transport_clean: true,
                reads: 6,
                body_bytes: 900,
                ..Answer::default()
            }),
            chunks: None,
        }
    }

    #[test]
    fn figures_of_a_complete_request_are_those_of_its_stamps() {
        let figures = Figures::of(&exchange("p", "i"));
        assert_eq!(figures.client_ttft_ms, Some(110.0));
        assert_eq!(figures.server_ttft_ms, Some(80.0));
        assert_eq!(figures.outside_engine_ms, Some(30.0));
        assert_eq!(figures.tpot_ms, Some(10.0));
        assert_eq!(figures.e2e_ms, Some(160.0));
        assert_eq!(figures.tpot_e2e_ms, Some(10.0));
        assert_eq!(figures.last_output_ms, Some(120.0));
        assert_eq!(figures.end_ms, Some(125.0));
        // choose: 1003 to 1020 less 10 queue and 4 retry; relay: 1105 to 1110 less 2 blocked
        assert_eq!(figures.proxy_own_ms, Some(6.0));
    }

    #[test]
    fn the_wait_for_the_read_is_told_where_the_kernel_stamped_the_arrival() {
        let mut read = exchange("p", "i");
        assert_eq!(Figures::of(&read).read_wait_ms, None);
        let parts = Figures::of(&read).outside_engine;
        read.stamps.first_output_read_ns = Some(1107 * MS);
        let figures = Figures::of(&read);
        assert_eq!(figures.read_wait_ms, Some(2.0));
        assert_eq!(
            figures.outside_engine, parts,
            "it is a share of relay, no part of its own"
        );
    }

    #[test]
    fn output_before_the_requests_last_byte_has_no_server_ttft() {
        let mut early = exchange("p", "i");
        early.stamps.sent_ns = Some(1106 * MS);
        let figures = Figures::of(&early);
        assert_eq!(figures.server_ttft_ms, None);
        assert_eq!(figures.outside_engine_ms, None);
        assert_eq!(figures.outside_engine, None);
        assert_eq!(figures.client_ttft_ms, Some(110.0));
    }

    #[test]
    fn tpot_needs_one_choice_and_two_counted_tokens() {
        let mut one = exchange("p", "i");
        one.answer.as_mut().unwrap().usage.output_tokens = Some(1);
        assert_eq!(Figures::of(&one).tpot_ms, None);
        let mut uncounted = exchange("p", "i");
        uncounted.answer.as_mut().unwrap().usage = Usage::default();
        uncounted.output_tokens_est = Some(4.5);
        let figures = Figures::of(&uncounted);
        assert_eq!((figures.tpot_ms, figures.output_tokens), (None, None));
        assert_eq!(figures.output_tokens_est, Some(4.5));
        let mut two = exchange("p", "i");
        two.answer.as_mut().unwrap().choices.push(Choice::default());
        assert_eq!(Figures::of(&two).tpot_ms, None);
    }

    #[test]
    fn a_request_that_was_never_sent_has_no_figures() {
        let mut shed = exchange("p", "i");
        shed.stamps = Stamps {
            request_first_ns: Some(5),
            ..Stamps::default()
        };
        shed.answer = None;
        assert_eq!(Figures::of(&shed), Figures::default());
    }

    proptest! {
        #[test]
        fn parts_add_up_to_client_less_server_ttft(
            steps in prop::array::uniform7(0u64..5_000_000_000),
            queue in 0u64..6_000_000_000, retry in 0u64..6_000_000_000,
            blocked in 0u64..6_000_000_000,
        ) {
            let mut at = 1;
            let path = steps.map(|step| { at += step; at });
            let mut request = exchange("p", "i");
            request.stamps = Stamps {
                request_first_ns: Some(path[0]), request_last_ns: Some(path[1]),
                arrive_ns: Some(path[1]), chosen_ns: Some(path[2]), connected_ns: Some(path[3]),
                sent_ns: Some(path[4]), client_first_output_ns: Some(path[6]),
                queue_ns: queue, retry_ns: retry, client_blocked_first_ns: blocked,
                ..Stamps::default()
            };
            request.answer.as_mut().unwrap().first_output_ns = Some(path[5]);
            let figures = Figures::of(&request);
            let parts = figures.outside_engine.unwrap();
            prop_assert_eq!(parts.total_ns(), (path[6] - path[0]) - (path[5] - path[4]));
            prop_assert!((figures.outside_engine_ms.unwrap() - parts.total_ns() as f64 / 1e6).abs() < 1e-6);
        }

        #[test]
        fn stamps_in_any_order_give_whole_splits_or_none(path in prop::array::uniform8(1u64..1000)) {
            let mut request = exchange("p", "i");
            request.stamps = Stamps {
                request_first_ns: Some(path[0]), request_last_ns: Some(path[1]),
                arrive_ns: Some(path[2]), chosen_ns: Some(path[3]), connected_ns: Some(path[4]),
                sent_ns: Some(path[5]), client_first_output_ns: Some(path[7]),
                ..Stamps::default()
            };
            request.answer.as_mut().unwrap().first_output_ns = Some(path[6]);
            let figures = Figures::of(&request);
            if let Some(parts) = figures.outside_engine {
                let ms = figures.outside_engine_ms.unwrap();
                prop_assert!((ms - parts.total_ns() as f64 / 1e6).abs() < 1e-9);
            }
        }
    }
}
