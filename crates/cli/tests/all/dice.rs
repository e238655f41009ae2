//! A small random number generator: the same seed gives the same history.

use std::time::Duration;

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Consecutive seeds give unrelated histories.
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    pub(crate) fn chance(&mut self, one_in: u64) -> bool {
        self.roll(one_in) == 0
    }

    /// A time of the order of microseconds, milliseconds, or tens of milliseconds.
    pub(crate) fn moment(&mut self) -> Duration {
        let bits = self.roll(17);
        Duration::from_micros(1 + self.roll(1 << bits))
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.roll(length as u64)).unwrap()
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())].clone()
    }
}
