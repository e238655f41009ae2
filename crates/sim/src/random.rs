//! The one source of randomness: a small generator of our own, so that a seed means the same for ever.

/// SplitMix64: tiny, fast, and good enough to choose what happens next.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`. The bias of the remainder is far below anything that matters here.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).expect("a usize fits");
        usize::try_from(self.next() % limit).expect("below a usize")
    }

    /// A number of milliseconds from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + i64::try_from(self.below(usize::try_from(high - low + 1).expect("low is not above high"))).expect("small")
    }

    /// True in `share` of a thousand cases.
    pub(crate) fn in_thousand(&mut self, share: usize) -> bool {
        self.below(1_000) < share
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that was written down must replay the same history next year.
    #[test]
    fn the_generator_is_frozen() {
        let mut random = Random::new(0);
        assert_eq!((random.next(), random.next()), (0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4));
    }
}
