//! Statistics of the figures.

/// A value with the minimum and the maximum of its rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Sample {
    /// Summarizes rounds. There must be at least one.
    pub(crate) fn of(rounds: &[f64]) -> Sample {
        let sorted = sorted(rounds.to_vec());
        Sample { median: at(&sorted, 0.5), least: at(&sorted, 0.0), most: at(&sorted, 1.0) }
    }

    /// A value that was measured once.
    pub(crate) fn once(value: f64) -> Sample {
        Sample { median: value, least: value, most: value }
    }
}

/// The ratios of two series, round by round: noise that lasts longer than a round affects both values.
pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs.max(f64::MIN_POSITIVE)).collect()
}

/// The ratio of the best rounds of both series, which were disturbed the least.
pub(crate) fn ratio_of_best(ours: &[f64], theirs: &[f64]) -> f64 {
    Sample::of(ours).most / Sample::of(theirs).most
}

/// The value below which this share of the values lies.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    at(&sorted(values.to_vec()), share)
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn at(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    // Rounded up, so that a high percentile of a few values is their maximum.
    let index = (share * last as f64).ceil() as usize;
    sorted.get(index.min(last)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_round_up() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), 51.0);
        assert_eq!(percentile(&values, 0.999), 100.0);
        assert_eq!(Sample::of(&[3.0, 1.0, 2.0]), Sample { median: 2.0, least: 1.0, most: 3.0 });
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn rounds_are_compared_in_pairs() {
        assert_eq!(ratios(&[10.0, 40.0], &[20.0, 40.0]), [0.5, 1.0]);
    }
}
