//! The trace: every line of a history goes into a hash, and to a listener if there is one.

use std::fmt;

use crate::clock::Ms;

/// Called with every line.
pub type Listener<'a> = &'a mut dyn FnMut(&str);

/// FNV-1a over all lines; the lines themselves are not kept.
pub(crate) struct Trace<'a> {
    hash: u64,
    line: String,
    listener: Option<Listener<'a>>,
}

impl<'a> Trace<'a> {
    pub(crate) fn new(listener: Option<Listener<'a>>) -> Trace<'a> {
        Trace { hash: 0xcbf2_9ce4_8422_2325, line: String::new(), listener }
    }

    pub(crate) fn write(&mut self, at: Ms, text: fmt::Arguments<'_>) {
        use fmt::Write as _;
        self.line.clear();
        write!(self.line, "t={}.{:03}s {text}", at / 1_000, at % 1_000).expect("a String takes everything");
        for byte in self.line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if let Some(listener) = &mut self.listener {
            listener(&self.line);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}
