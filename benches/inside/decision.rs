//! A decision with its counting, and its end.

use criterion::Criterion;
use evenkeel_policies::PolicyConfig;
use evenkeel_policies::scheduler::{Arrival, InstanceId, Observation, Scheduler, Ticket};
use evenkeel_policies::shape::{Api, RequestShape};

use crate::allocations::print_per_step;

const INSTANCES: [u32; 2] = [64, 1000];
const LANES: &str = r#"
kind = "lanes"
slots_per_instance = 64
inner = "least_outstanding_tokens"
lanes = [{ name = "short", max_tokens = 1024, reserve = 0.25 }, { name = "long" }]
"#;

fn configs() -> Vec<PolicyConfig> {
    let read = |text: &str| toml::from_str(text).unwrap();
    let simple = |kind: &str| read(&format!("kind = \"{kind}\""));
    let mut configs: Vec<PolicyConfig> = [
        "random",
        "round_robin",
        "least_requests",
        "least_outstanding_tokens",
    ]
    .map(simple)
    .into();
    configs.push(read(LANES));
    configs
}

pub fn benches(criterion: &mut Criterion) {
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
    for config in configs() {
        for instances in INSTANCES {
            decide(criterion, &config, instances, &shape);
        }
    }
}

fn decide(criterion: &mut Criterion, config: &PolicyConfig, instances: u32, shape: &RequestShape) {
    let mut scheduler = Scheduler::new(config, 1).unwrap();
    let mut out = Vec::new();
    for id in 0..instances {
        scheduler.add_instance(0, InstanceId(id), 1.0, &mut out);
    }
    let mut ticket = 0;
    let mut step = || {
        ticket += 1;
        let arrival = scheduler.arrive(ticket, Ticket(ticket), shape, &[], &mut out);
        if let Arrival::Send(grant) = arrival {
            scheduler.finish(ticket, grant.lease, &Observation::default(), &mut out);
        }
    };
    let name = format!("decision/{}/{instances}", config.kind());
    print_per_step(&name, 1000, &mut step);
    criterion.bench_function(&name, |bencher| bencher.iter(&mut step));
}
