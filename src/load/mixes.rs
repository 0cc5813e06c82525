//! The request sets Evenkeel brings along: short, medium and long requests, and a mix of them.
//!
//! Pure. The shares and lengths are assumptions, not measurements; who has
//! a trace should replay that instead.

use super::lengths::Lengths;
use super::workload::Class;

/// Percent of short, medium and long requests where nothing else is asked for.
pub const DEFAULT_PERCENT: [f64; 3] = [20.0, 60.0, 20.0];

/// A set of requests alike in length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSet {
    /// a turn of a chat
    Short,
    /// a question with some context
    Medium,
    /// a document to be read
    Long,
}

impl RequestSet {
    /// All three.
    pub const ALL: [RequestSet; 3] = [RequestSet::Short, RequestSet::Medium, RequestSet::Long];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            RequestSet::Short => "short",
            RequestSet::Medium => "medium",
            RequestSet::Long => "long",
        }
    }

    /// The set of this name.
    pub fn by_name(name: &str) -> Option<RequestSet> {
        RequestSet::ALL.into_iter().find(|set| set.name() == name)
    }

    /// Its lengths, as a class of this share.
    pub fn class(self, share: f64) -> Class {
        let lengths = |median_tokens, sigma, min_tokens, max_tokens| Lengths::LogNormal {
            median_tokens,
            sigma,
            min_tokens,
            max_tokens,
        };
        let (prompt, output) = match self {
            RequestSet::Short => (lengths(128, 0.6, 16, 511), lengths(100, 0.6, 8, 400)),
            RequestSet::Medium => (lengths(1_024, 0.5, 512, 4_095), lengths(200, 0.6, 16, 800)),
            RequestSet::Long => (
                lengths(8_192, 0.5, 4_096, 32_768),
                lengths(300, 0.7, 16, 1_200),
            ),
        };
        Class {
            name: self.name().to_owned(),
            share,
            prompt,
            output,
        }
    }
}

/// The three sets mixed, their shares relative to each other; a set without a share is left out.
pub fn mix(shares: [f64; 3]) -> Vec<Class> {
    let sets = RequestSet::ALL.into_iter().zip(shares);
    sets.filter(|(_, share)| *share != 0.0)
        .map(|(set, share)| set.class(share))
        .collect()
}

/// What is wrong with a mix of which every prompt, or every answer, has one length.
pub fn warning(classes: &[Class]) -> Option<String> {
    let single = |of: fn(&Class) -> &Lengths| {
        let mut lengths = classes.iter().map(|class| of(class).single_tokens());
        let first = lengths.next()??;
        lengths.all(|tokens| tokens == Some(first)).then_some(first)
    };
    let prompt = single(|class| &class.prompt).map(|tokens| format!("prompt has {tokens} tokens"));
    let output = single(|class| &class.output).map(|tokens| format!("answer has {tokens} tokens"));
    let both = prompt.into_iter().chain(output).collect::<Vec<_>>();
    (!both.is_empty()).then(|| {
        format!(
            "warning: every {}: real traffic is mixed, and a fixed length hides how long requests hold up short ones",
            both.join(" and every ")
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::super::arrivals::Arrivals;
    use super::super::workload::Workload;
    use super::*;

    #[test]
    fn the_default_mix_is_20_60_20_and_no_two_sets_overlap_in_prompt_length() {
        let workload = Workload {
            arrivals: Arrivals::Constant { rate_per_s: 1000.0 },
            classes: mix(DEFAULT_PERCENT),
        };
        let plan = workload.plan(4, 60_000_000_000).unwrap();
        let share = |class| {
            let of_class = plan.iter().filter(|request| request.class == class);
            of_class.count() as f64 / plan.len() as f64
        };
        for (class, right) in [(0, 0.2), (1, 0.6), (2, 0.2)] {
            assert!(
                (share(class) - right).abs() < 0.01,
                "class {class}: {}",
                share(class)
            );
        }
        let ends = |class| {
            let of_class = plan.iter().filter(|request| request.class == class);
            let tokens: Vec<u32> = of_class.map(|request| request.prompt_tokens).collect();
            (*tokens.iter().min().unwrap(), *tokens.iter().max().unwrap())
        };
        assert!(ends(0).1 < ends(1).0 && ends(1).1 < ends(2).0);
    }

    #[test]
    fn a_set_has_a_name_and_a_class_says_its_lengths() {
        let class = RequestSet::Short.class(1.0);
        assert_eq!(class.prompt.to_string(), "about 128 tokens, 16 to 511");
        assert_eq!(RequestSet::by_name("long"), Some(RequestSet::Long));
        assert_eq!(RequestSet::by_name("huge"), None);
    }

    #[test]
    fn one_fixed_length_is_warned_of_and_a_mix_is_not() {
        assert_eq!(warning(&mix(DEFAULT_PERCENT)), None);
        let class = |tokens| Class {
            output: Lengths::Fixed { tokens },
            ..RequestSet::Short.class(1.0)
        };
        assert_eq!(warning(&[class(5), class(6)]), None);
        let words = warning(&[class(5), class(5)]).unwrap();
        assert!(
            words.starts_with("warning: every answer has 5 tokens"),
            "{words}"
        );
    }
}
