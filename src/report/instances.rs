//! What each instance got: requests, tokens, work outstanding; and how uneven that is, beside chance. Pure.
//!
//! A request lays its uncached prompt tokens on its instance until its first output, and its output tokens, shrinking
//! evenly, until its last. Averaged over the window this is an instance's load; all instances weigh the same.

use std::collections::BTreeMap;

use serde::Serialize;

use super::latency::output_tokens;
use super::quantiles::Quantiles;
use super::window::Window;
use crate::measure::clock::Ns;
use crate::measure::skew::{InstanceLoad, Spread, load_skew, shares};
use crate::study::point::{Point, PointRequest, Served};

/// One instance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstanceView {
    /// as records and the monitor name it
    pub name: String,
    /// requests that began in the window
    pub requests: u64,
    /// of these, failed
    pub failed: u64,
    /// its share of them
    pub request_share: Option<f64>,
    /// prompt and output tokens of these
    pub tokens: u64,
    /// its share of them
    pub token_share: Option<f64>,
    /// outstanding tokens, averaged over the window
    pub mean_outstanding_tokens: f64,
    /// open requests, averaged over the window
    pub mean_open_requests: f64,
    /// server TTFT of its requests, ms
    pub server_ttft: Option<Quantiles>,
}

/// How uneven the load is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SkewView {
    /// greatest over mean of the instances' mean outstanding tokens; 1 is even
    pub measured: f64,
    /// what random placement would give on average
    pub by_chance: f64,
}

/// All instances of a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Instances {
    /// by name; empty without records
    pub each: Vec<InstanceView>,
    /// absent for one instance, without records, or with too few requests
    pub load_skew: Option<SkewView>,
    /// greatest over mean of the numbers of requests
    pub request_imbalance: Option<f64>,
    /// greatest over mean of the mean numbers of open requests: connections, where each carries one at a time
    pub open_imbalance: Option<f64>,
}

/// A request as load.
struct Laid<'a> {
    instance: &'a str,
    from_ns: Ns,
    first_ns: Ns,
    end_ns: Ns,
    prompt_tokens: f64,
    output_tokens: f64,
    failed: bool,
    server_ttft_ms: Option<f64>,
}

#[derive(Default)]
struct Sum {
    requests: u64,
    failed: u64,
    tokens: f64,
    token_ns: f64,
    open_ns: f64,
    server_ttft_ms: Vec<f64>,
}

impl Instances {
    /// Those of a point; instances that got nothing are known from the monitor.
    pub fn of(point: &Point) -> Option<Instances> {
        let window = point.window?;
        let length_ns = window.until_ns.saturating_sub(window.from_ns) as f64;
        let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
        let mut spread = Spread::default();
        let load = point.requests.iter().filter_map(of_load);
        let others = point.others.iter().filter_map(of_other);
        for laid in load.chain(others) {
            let sum = sums.entry(laid.instance).or_default();
            if (window.from_ns..=window.until_ns).contains(&laid.end_ns) {
                spread.add(token_ns(&laid, 0, Ns::MAX));
            }
            add(sum, &laid, &window);
        }
        if sums.is_empty() || length_ns <= 0.0 {
            return None;
        }
        for name in point
            .monitor
            .iter()
            .filter_map(|look| look.instance.as_deref())
        {
            sums.entry(name).or_default();
        }
        let unseen = (point.file.setting.instances as usize).saturating_sub(sums.len());
        let each = views(sums, length_ns);
        Some(Instances {
            load_skew: skew(&each, unseen, &spread),
            request_imbalance: imbalance(&each, unseen, |view| view.requests as f64),
            open_imbalance: imbalance(&each, unseen, |view| view.mean_open_requests),
            each,
        })
    }
}

fn of_load(request: &PointRequest) -> Option<Laid<'_>> {
    let served = request.served.as_ref()?;
    let sample = &request.sample;
    let cached = served.cached_tokens.unwrap_or(0);
    let prompt = served.prompt_tokens.or(sample.prompt_tokens);
    let prompt = prompt.unwrap_or(u64::from(sample.planned_prompt_tokens));
    Some(Laid {
        instance: served.instance.as_deref()?,
        from_ns: sample.issued_ns?,
        first_ns: sample.first_output_ns.unwrap_or(sample.end_ns),
        end_ns: sample.end_ns,
        prompt_tokens: prompt.saturating_sub(cached) as f64,
        output_tokens: output_tokens(sample).unwrap_or(0) as f64,
        failed: sample.failure.is_some(),
        server_ttft_ms: served.server_ttft_ms,
    })
}

fn of_other(served: &Served) -> Option<Laid<'_>> {
    let after = |ms: f64| served.start_ns + (ms * 1e6) as Ns;
    let end_ns = after(served.e2e_ms?);
    let cached = served.cached_tokens.unwrap_or(0);
    Some(Laid {
        instance: served.instance.as_deref()?,
        from_ns: served.start_ns,
        first_ns: served.client_ttft_ms.map_or(end_ns, after),
        end_ns,
        prompt_tokens: served.prompt_tokens?.saturating_sub(cached) as f64,
        output_tokens: served.output_tokens.unwrap_or(0) as f64,
        failed: served.outcome.is_failed(),
        server_ttft_ms: served.server_ttft_ms,
    })
}

fn add(sum: &mut Sum, laid: &Laid<'_>, window: &Window) {
    let (from_ns, until_ns) = (window.from_ns, window.until_ns);
    sum.token_ns += token_ns(laid, from_ns, until_ns);
    let open_ns = laid
        .end_ns
        .min(until_ns)
        .saturating_sub(laid.from_ns.max(from_ns));
    sum.open_ns += open_ns as f64;
    if (from_ns..=window.to_ns).contains(&laid.from_ns) {
        sum.requests += 1;
        sum.failed += u64::from(laid.failed);
        sum.tokens += laid.prompt_tokens + laid.output_tokens;
        sum.server_ttft_ms
            .extend(laid.server_ttft_ms.filter(|_| !laid.failed));
    }
}

/// Tokens × nanoseconds that a request lays on its instance between two times.
fn token_ns(laid: &Laid<'_>, from_ns: Ns, until_ns: Ns) -> f64 {
    let inside = |from: Ns, to: Ns| {
        let (from, to) = (from.max(from_ns), to.min(until_ns));
        (from < to).then_some((from, to))
    };
    let flat = |from: Ns, to: Ns| inside(from, to).map_or(0.0, |(from, to)| (to - from) as f64);
    let waiting = flat(laid.from_ns, laid.first_ns) * (laid.prompt_tokens + laid.output_tokens);
    let decode_ns = laid.end_ns.saturating_sub(laid.first_ns) as f64;
    let decoding = inside(laid.first_ns, laid.end_ns).map_or(0.0, |(from, to)| {
        let middle_ns = (from as f64 + to as f64) / 2.0 - laid.first_ns as f64;
        (to - from) as f64 * laid.output_tokens * (1.0 - middle_ns / decode_ns)
    });
    waiting + decoding
}

fn views(sums: BTreeMap<&str, Sum>, length_ns: f64) -> Vec<InstanceView> {
    let of = |value: fn(&Sum) -> f64| shares(&sums.values().map(value).collect::<Vec<f64>>());
    let request_shares = of(|sum| sum.requests as f64);
    let token_shares = of(|sum| sum.tokens);
    let view = |(at, (name, sum)): (usize, (&str, Sum))| InstanceView {
        name: name.to_owned(),
        requests: sum.requests,
        failed: sum.failed,
        request_share: request_shares[at],
        tokens: sum.tokens as u64,
        token_share: token_shares[at],
        mean_outstanding_tokens: sum.token_ns / length_ns,
        mean_open_requests: sum.open_ns / length_ns,
        server_ttft: Quantiles::over(sum.server_ttft_ms),
    };
    sums.into_iter().enumerate().map(view).collect()
}

fn skew(each: &[InstanceView], unseen: usize, requests: &Spread) -> Option<SkewView> {
    let load = |mean_tokens| InstanceLoad {
        mean_tokens,
        weight: 1.0,
    };
    let seen = each.iter().map(|view| load(view.mean_outstanding_tokens));
    let loads: Vec<InstanceLoad> = seen.chain(std::iter::repeat_n(load(0.0), unseen)).collect();
    let skew = load_skew(&loads, requests)?;
    Some(SkewView {
        measured: skew.measured,
        by_chance: skew.by_chance,
    })
}

fn imbalance(
    each: &[InstanceView],
    unseen: usize,
    of: impl Fn(&InstanceView) -> f64,
) -> Option<f64> {
    let count = each.len() + unseen;
    let mean = each.iter().map(&of).sum::<f64>() / count as f64;
    let greatest = each.iter().map(&of).fold(0.0, f64::max);
    (count > 1 && mean > 0.0).then(|| greatest / mean)
}
