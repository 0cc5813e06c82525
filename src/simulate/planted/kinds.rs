//! The kinds of planted fleets, one function each. Pure.

use super::draw::{Dice, Each, Scene, Source, Wanted};
use super::{Fault, Kind, PlantedStudy};
use crate::engine::cost::CpuCost;
use crate::simulate::{PointSpec, SimulateError};
use crate::study::Scaling::{self, Horizontal, Vertical};

/// Lengths of chats, and room for the knee.
const CHAT: Wanted = Wanted {
    prompt: (80.0, 600.0),
    output: (80.0, 250.0),
    knees: 1.0,
};
/// Room for loads beyond the knee on a hot instance too.
const CHAT_WITH_ROOM: Wanted = Wanted {
    prompt: (80.0, 600.0),
    output: (60.0, 200.0),
    knees: 3.0,
};
/// Long prompts and short answers reach the GPU's limit with few sequences.
const COMPUTE: Wanted = Wanted {
    prompt: (300.0, 2_500.0),
    output: (12.0, 60.0),
    knees: 8.0,
};
/// Answers that grow after they were admitted.
const GROWING: Wanted = Wanted {
    prompt: (80.0, 250.0),
    output: (250.0, 500.0),
    knees: 0.2,
};

/// Loads of five points that double, the last one `most`.
fn doubling(most: f64) -> Vec<Each> {
    let mut loads: Vec<u32> = [16.0, 8.0, 4.0, 2.0, 1.0]
        .map(|part| (most / part).round().max(1.0) as u32)
        .to_vec();
    loads.dedup();
    loads.into_iter().map(Each::Closed).collect()
}

/// Rates of five points up to `most`, requests a second.
fn rates(most_per_s: f64) -> Vec<Each> {
    [0.2, 0.4, 0.6, 0.8, 1.0]
        .map(|share| Each::Poisson((most_per_s * share * 100.0).round().max(1.0) / 100.0))
        .to_vec()
}

fn curve(scene: &Scene, scaling: Scaling, units: &[u32], loads: &[Each]) -> Vec<PointSpec> {
    let of_size = |size: &u32| {
        let point = |load: &Each| scene.point(scaling, *size, *load);
        loads.iter().map(point).collect::<Vec<_>>()
    };
    units.iter().flat_map(of_size).collect()
}

pub(super) fn study(kind: Kind, number: u32, seed: u64) -> Result<PlantedStudy, SimulateError> {
    let mut dice = Dice::new(seed);
    let source = Source { number, seed };
    let (scene, points, truth) = match kind {
        Kind::Healthy => healthy(&mut dice, source)?,
        Kind::One(fault) => one(&mut dice, source, fault)?,
        Kind::Two => two(&mut dice, source)?,
    };
    Ok(PlantedStudy {
        truth,
        ..scene.study(kind, number, points)
    })
}

type Drawn = (Scene, Vec<PointSpec>, Vec<Fault>);

fn one(dice: &mut Dice, source: Source, fault: Fault) -> Result<Drawn, SimulateError> {
    let (scene, points) = match fault {
        Fault::ComputeBound => compute_bound(dice, source)?,
        Fault::MaxNumSeqs => max_num_seqs(dice, source, None)?,
        Fault::SkewedBalancer => skewed(dice, source)?,
        Fault::KvPreemption => kv_preemption(dice, source, None)?,
        Fault::CpuBound => cpu_bound(dice, source, None)?,
        Fault::Communication => communication(dice, source)?,
        Fault::SlowClient => slow_client(dice, source)?,
    };
    Ok((scene, points, vec![fault]))
}

/// Two faults that do not hide each other: one of every instance, and a balancer that gives one of them most of the load.
fn two(dice: &mut Dice, source: Source) -> Result<Drawn, SimulateError> {
    let skew = Some(hot_share(dice));
    let firsts = [Fault::MaxNumSeqs, Fault::KvPreemption, Fault::CpuBound];
    let first = firsts[source.number as usize / 3 % 3];
    let (scene, points) = match first {
        Fault::MaxNumSeqs => max_num_seqs(dice, source, skew)?,
        Fault::KvPreemption => kv_preemption(dice, source, skew)?,
        _ => cpu_bound(dice, source, skew)?,
    };
    Ok((scene, points, vec![first, Fault::SkewedBalancer]))
}

/// Sizes of a fleet that one generator can send to with more than half of its core to spare.
fn sizes(dice: &mut Dice, scene: &Scene, most: f64) -> Vec<u32> {
    let sizes = dice.one_of(&[&[1, 2, 4][..], &[1, 2, 4, 8]]);
    let cores = |size: &u32| {
        let events_per_s = f64::from(*size) * scene.tokens_per_s(most);
        events_per_s * scene.fleet.generator.event_us / 1e6
    };
    sizes
        .iter()
        .copied()
        .filter(|size| cores(size) < 0.4)
        .collect()
}

/// A load for each GPU of which four times as much is still within the instance's `max_num_seqs`.
fn within_four_gpus(scene: &Scene, most: f64) -> f64 {
    most.min(0.2 * f64::from(scene.fleet.profile.max_num_seqs))
}

fn healthy(dice: &mut Dice, source: Source) -> Result<Drawn, SimulateError> {
    let mut scene = Scene::draw(dice, source, &CHAT)?;
    let scaling = dice.one_of(&[Horizontal, Horizontal, Vertical]);
    let most = scene.knee()
        * match scaling {
            Horizontal => dice.between(0.8, 1.1),
            // sampling and the link are not divided among GPUs, so at equal load each the batch is theirs to carry
            Vertical => dice.between(0.4, 0.6),
        };
    let most = match scaling {
        Horizontal => most,
        Vertical => within_four_gpus(&scene, most),
    };
    let loads = match dice.one_of(&[true, true, false]) {
        true => doubling(most),
        false => {
            // by chance more or fewer requests come than the rate says: the less so the longer it goes on
            scene.seconds *= 2.0;
            rates(0.9 * scene.tokens_per_s(most) / scene.output_tokens)
        }
    };
    let units = match scaling {
        Horizontal => sizes(dice, &scene, most),
        Vertical => vec![1, 2, 4],
    };
    let points = curve(&scene, scaling, &units, &loads);
    Ok((scene, points, Vec::new()))
}

fn compute_bound(
    dice: &mut Dice,
    source: Source,
) -> Result<(Scene, Vec<PointSpec>), SimulateError> {
    let scene = Scene::draw(dice, source, &COMPUTE)?;
    let most = dice.between(7.0, 8.0) * scene.knee();
    let points = curve(&scene, Horizontal, &[1, 2, 4], &doubling(most));
    Ok((scene, points))
}

fn max_num_seqs(
    dice: &mut Dice,
    source: Source,
    hot: Option<f64>,
) -> Result<(Scene, Vec<PointSpec>), SimulateError> {
    let mut scene = Scene::draw(dice, source, &CHAT)?;
    let places = (dice.between(0.06, 0.15) * scene.knee()).round().max(2.0);
    scene.fleet.profile.max_num_seqs = places as u32;
    skew(&mut scene, hot);
    let points = curve(&scene, Horizontal, &[1, 2, 4], &doubling(8.0 * places));
    Ok((scene, points))
}

/// Share of the connections that one of four instances gets.
fn hot_share(dice: &mut Dice) -> f64 {
    dice.between(0.8, 0.95)
}

fn skew(scene: &mut Scene, hot: Option<f64>) {
    let other = |hot: f64| (1.0 - hot) / 3.0;
    scene.fleet.connection_shares = hot.map(|hot| vec![hot, other(hot), other(hot), other(hot)]);
}

fn skewed(dice: &mut Dice, source: Source) -> Result<(Scene, Vec<PointSpec>), SimulateError> {
    let mut scene = Scene::draw(dice, source, &CHAT_WITH_ROOM)?;
    let hot = hot_share(dice);
    skew(&mut scene, Some(hot));
    let most = dice.between(0.9, 1.1) * scene.knee();
    let points = curve(&scene, Horizontal, &[1, 2, 4], &doubling(most));
    Ok((scene, points))
}

fn kv_preemption(
    dice: &mut Dice,
    source: Source,
    hot: Option<f64>,
) -> Result<(Scene, Vec<PointSpec>), SimulateError> {
    let mut scene = Scene::draw(dice, source, &GROWING)?;
    let longest = scene.prompt_tokens + scene.output_tokens;
    let fitting = dice.between(8.0, 14.0);
    let profile = &mut scene.fleet.profile;
    // the longest drawn sequence must fit alone
    profile.max_model_len_tokens = (longest * 2.5) as u32 + 16;
    profile.kv_blocks = (fitting * longest) as u32 / profile.block_size_tokens;
    skew(&mut scene, hot);
    let points = curve(&scene, Horizontal, &[1, 2, 4], &doubling(4.0 * fitting));
    Ok((scene, points))
}

fn cpu_bound(
    dice: &mut Dice,
    source: Source,
    hot: Option<f64>,
) -> Result<(Scene, Vec<PointSpec>), SimulateError> {
    let mut scene = Scene::draw(dice, source, &CHAT)?;
    let fixed_us = scene.fleet.profile.step.fixed_us;
    // The loop plans each step for longer than the GPU computes it ...
    let step_us = fixed_us * dice.between(1.3, 1.8);
    let running = dice.between(0.06, 0.15) * scene.knee();
    let cores = dice.one_of(&[1_u32, 2]);
    // ... and what is left of the cores prepares requests no faster than `running` sequences use them up.
    let whole_us = fixed_us + step_us + running * scene.sequence_us();
    let left = f64::from(cores) - (step_us + scene.fleet.profile.step.host_us) / whole_us;
    let prepare_us = left * whole_us * scene.output_tokens / running;
    scene.fleet.profile.cpu = Some(CpuCost {
        cores,
        request_us: prepare_us / 2.0,
        prompt_token_us: prepare_us / 2.0 / scene.prompt_tokens,
        step_us,
        step_sequence_us: 0.0,
    });
    skew(&mut scene, hot);
    // a step lasts more than twice as long as the scene thinks
    scene.seconds *= 2.5;
    let points = curve(&scene, Horizontal, &[1, 2, 4], &doubling(8.0 * running));
    Ok((scene, points))
}

fn communication(
    dice: &mut Dice,
    source: Source,
) -> Result<(Scene, Vec<PointSpec>), SimulateError> {
    let mut scene = Scene::draw(dice, source, &CHAT)?;
    let most = within_four_gpus(&scene, dice.between(0.5, 0.9) * scene.knee());
    let one_us = scene.fleet.profile.step.fixed_us + most * scene.sequence_us();
    // Four GPUs wait for each other so many times as long as one alone takes, half of it for latency.
    let half_us = dice.between(1.6, 3.0) * one_us / 2.0;
    let tokens = 4.0 * most * (1.0 + scene.prompt_tokens / scene.output_tokens);
    if let Some(link) = &mut scene.fleet.profile.link {
        let all_reduces = 2.0 * f64::from(link.layers);
        link.latency_us = half_us / (all_reduces * 6.0);
        link.gb_per_s = all_reduces * tokens * link.hidden_bytes * 1.5 / half_us / 1e3;
    }
    let loads = doubling(most);
    let mut points = curve(&scene, Vertical, &[1, 2, 4], &loads);
    if dice.one_of(&[true, false]) {
        points.extend(curve(&scene, Horizontal, &[2, 4], &loads));
    }
    Ok((scene, points))
}

fn slow_client(dice: &mut Dice, source: Source) -> Result<(Scene, Vec<PointSpec>), SimulateError> {
    let mut scene = Scene::draw(dice, source, &CHAT)?;
    let most = dice.between(0.8, 1.1) * scene.knee();
    // Its core reads what one instance says at its highest load, and no more.
    let tokens_per_s = scene.tokens_per_s(most) * dice.between(0.7, 1.1);
    scene.fleet.generator.event_us = 1e6 / tokens_per_s;
    let loads = match dice.one_of(&[true, false]) {
        true => {
            // four instances' answers take four times as long to read
            scene.seconds *= 4.0;
            doubling(most)
        }
        false => rates(0.9 * scene.tokens_per_s(most) / scene.output_tokens),
    };
    let points = curve(&scene, Horizontal, &[1, 2, 4], &loads);
    Ok((scene, points))
}

pub(super) fn stretched(efficiency: f64, seed: u64) -> Result<PlantedStudy, SimulateError> {
    let mut dice = Dice::new(seed);
    let source = Source { number: 0, seed };
    let mut scene = Scene::draw(&mut dice, source, &CHAT)?;
    // Requests in all: the draw of lengths is to matter less than a point.
    scene.seconds *= 2.0;
    let loads = doubling(scene.knee());
    let mut points = curve(&scene, Horizontal, &[1, 2, 4], &loads);
    for point in &mut points {
        if point.setting.instances == 4 {
            point.fleet.slow_factors = vec![1.0 / efficiency; 4];
        }
        // its connections are spread evenly, each of them stays
        point.fleet.connection_shares = Some(vec![1.0]);
    }
    Ok(PlantedStudy {
        efficiency: Some(efficiency),
        ..scene.study(Kind::Healthy, 0, points)
    })
}
