//! Time of one decision with its counting, and of its end.
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use evenkeel_policies::config::InnerPolicy;
use evenkeel_policies::scheduler::{Arrival, InstanceId, Observation, Scheduler, Ticket};
use evenkeel_policies::shape::{Api, RequestShape};
use evenkeel_policies::{LaneConfig, LanesConfig, PolicyConfig};

fn lanes() -> PolicyConfig {
    let lane = |name: &str, max_tokens, reserve| LaneConfig {
        name: name.into(),
        max_tokens,
        reserve,
    };
    PolicyConfig::Lanes(LanesConfig {
        inner: InnerPolicy::LeastOutstandingTokens,
        slots_per_instance: Some(64),
        lanes: vec![lane("short", Some(1024), 0.25), lane("long", None, 0.0)],
        queue: None,
    })
}

fn decide(criterion: &mut Criterion) {
    let configs = [
        PolicyConfig::Random {},
        PolicyConfig::RoundRobin {},
        PolicyConfig::LeastRequests {},
        PolicyConfig::LeastOutstandingTokens {},
        lanes(),
    ];
    let shape = RequestShape {
        api: Api::Chat,
        model: 0,
        prompt_tokens: 500,
        cached_tokens: 0,
        max_output_tokens: None,
        predicted_output_tokens: 200,
        choices: 1,
        stream: true,
        body_bytes: 2000,
        session: None,
    };
    for config in configs {
        for instances in [64, 1000] {
            let Ok(mut scheduler) = Scheduler::new(&config, 1) else {
                continue;
            };
            let mut out = Vec::new();
            for id in 0..instances {
                scheduler.add_instance(0, InstanceId(id), 1.0, &mut out);
            }
            let mut ticket = 0;
            criterion.bench_function(&format!("{}/{instances}", config.kind()), |bencher| {
                bencher.iter(|| {
                    ticket += 1;
                    let arrival = scheduler.arrive(ticket, Ticket(ticket), &shape, &[], &mut out);
                    if let Arrival::Send(grant) = arrival {
                        scheduler.finish(ticket, grant.lease, &Observation::default(), &mut out);
                    }
                });
            });
        }
    }
}

criterion_group!(benches, decide);
criterion_main!(benches);
