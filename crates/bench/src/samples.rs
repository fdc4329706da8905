//! Rounds: the loads of a comparison are measured in turn, again and again, because a machine's
//! speed drifts. A ratio is the median of the ratios of the rounds, each of two measurements that
//! were close in time. Every second round begins with what the others end with: a database that
//! becomes slower from load to load is no one side's disadvantage.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::counters::Window;
use crate::load::Outcome;
use crate::rows::{LatencyPoint, Throughput};

/// The points of a latency curve, in percent.
const PERCENTS: [f64; 14] =
    [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.8, 99.9, 99.95, 99.99];

/// The figures of one phase of a load.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The phase.
    pub outcome: Outcome,
    /// How long payments took to settle after the phase; none for loads that pay nothing.
    pub settled_after: Option<Duration>,
    /// The growth of counters while it was measured, where they were read.
    pub window: Option<Window>,
}

impl Sample {
    /// Payments completed in a second while it was measured; none for loads that pay nothing.
    pub fn settled_per_second(&self) -> Option<f64> {
        self.settled_after?;
        self.window.as_ref().map(Window::completed_per_second)
    }

    /// Operations a second. A payment counts once it is completed.
    fn per_second(&self) -> f64 {
        self.settled_per_second().unwrap_or_else(|| self.outcome.per_second())
    }

    /// One line of progress.
    pub fn line(&self) -> String {
        let outcome = &self.outcome;
        let mut line = format!(
            "{:>9.0}/s   p50 {:>7.2} ms   p99 {:>7.2} ms",
            outcome.per_second(),
            outcome.millis_at(50.0),
            outcome.millis_at(99.0)
        );
        if let Some(rate) = self.settled_per_second() {
            line += &format!("   settled {rate:.0}/s");
        }
        if let Some(after) = self.settled_after {
            line += &format!("   the rest {:.1} s later", after.as_secs_f64());
        }
        line
    }

    /// How latency is distributed.
    pub fn curve(&self) -> Vec<LatencyPoint> {
        let point = |percent| LatencyPoint { percent, millis: self.outcome.millis_at(percent) };
        PERCENTS.map(point).to_vec()
    }
}

/// The samples of some loads, by round.
#[derive(Debug)]
pub struct Samples<L>(BTreeMap<L, Vec<Sample>>);

impl<L: Copy + Ord + std::fmt::Debug> Samples<L> {
    /// Measures each load once in each round, in this order and the other way round by turns.
    pub fn take(
        rounds: usize,
        loads: &[L],
        mut measure: impl FnMut(L) -> Result<Sample>,
    ) -> Result<Self> {
        let mut samples = BTreeMap::<L, Vec<Sample>>::new();
        for round in 0..rounds {
            let mut loads = loads.to_vec();
            if round % 2 == 1 {
                loads.reverse();
            }
            for load in loads {
                let sample = measure(load).with_context(|| format!("{load:?}"))?;
                samples.entry(load).or_default().push(sample);
            }
        }
        Ok(Self(samples))
    }

    fn of(&self, load: L) -> &[Sample] {
        self.0.get(&load).map_or(&[], Vec::as_slice)
    }

    /// Whether the load was measured.
    pub fn has(&self, load: L) -> bool {
        self.0.contains_key(&load)
    }

    /// Throughput of one load, as a multiple of another's.
    pub fn ratio(&self, ours: L, yardstick: L) -> f64 {
        let pairs = self.of(ours).iter().zip(self.of(yardstick));
        median(pairs.map(|(ours, yardstick)| ours.per_second() / yardstick.per_second()))
    }

    /// Operations a second. A payment counts once it is completed.
    pub fn per_second(&self, load: L) -> f64 {
        median(self.of(load).iter().map(Sample::per_second))
    }

    /// The figures of a load, under a name for people.
    pub fn throughput(&self, load: L, name: &str) -> Throughput {
        let samples = self.of(load);
        let at = |percent| median(samples.iter().map(|it| it.outcome.millis_at(percent)));
        let settled: Vec<_> = samples.iter().filter_map(Sample::settled_per_second).collect();
        Throughput {
            load: name.to_owned(),
            per_second: median(samples.iter().map(|sample| sample.outcome.per_second())),
            settled_per_second: (!settled.is_empty()).then(|| median(settled)),
            p50_millis: at(50.0),
            p99_millis: at(99.0),
        }
    }
}

/// The middle value, or the mean of the two in the middle. Not a number if there is none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.as_slice() {
        [] => f64::NAN,
        values if values.len() % 2 == 1 => values[values.len() / 2],
        values => f64::midpoint(values[values.len() / 2 - 1], values[values.len() / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!(median([]).is_nan());
        assert!((median([3.0]) - 3.0).abs() < f64::EPSILON);
        assert!((median([9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median([4.0, 1.0, 2.0, 9.0]) - 3.0).abs() < f64::EPSILON);
    }
}
