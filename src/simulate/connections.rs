//! A balancer that hashes connections to instances and looks at no load: what a skew is planted with. Pure.

use super::job::Job;

/// Fractional part of the golden ratio: multiples of it fill [0, 1) evenly, in any number.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Which share of the connections each instance gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Connections {
    ends: Vec<f64>,
}

impl Connections {
    /// Shares relative to each other, one an instance.
    pub fn new(shares: &[f64]) -> Connections {
        let total: f64 = shares.iter().sum();
        let mut end = 0.0;
        let ends = shares.iter().map(|share| {
            end += share / total;
            end
        });
        Connections {
            ends: ends.collect(),
        }
    }

    /// Where a request goes: by its place in a closed loop, whose connection stays; by its number where each has a
    /// connection of its own.
    pub(super) fn instance(&self, job: &Job, scheduled: bool) -> u32 {
        match scheduled {
            true => self.of(job.client.index),
            false => self.of(job.sender.place),
        }
    }

    fn of(&self, connection: u32) -> u32 {
        let point = (f64::from(connection) + 0.5) * GOLDEN % 1.0;
        let at = self.ends.partition_point(|end| *end <= point);
        at.min(self.ends.len().saturating_sub(1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instance_gets_its_share_of_few_and_of_many_connections() {
        let connections = Connections::new(&[2.0, 1.0, 1.0]);
        for count in [16, 64, 1000] {
            let mut got = [0.0; 3];
            (0..count).for_each(|one| got[connections.of(one) as usize] += 1.0);
            for (got, share) in got.iter().zip([0.5, 0.25, 0.25]) {
                let right = share * f64::from(count);
                assert!((got - right).abs() <= 2.0, "{got} of {right}");
            }
        }
    }

    #[test]
    fn an_instance_without_a_share_gets_nothing() {
        let connections = Connections::new(&[1.0, 0.0]);
        assert!((0..1000).all(|one| connections.of(one) == 0));
    }
}
