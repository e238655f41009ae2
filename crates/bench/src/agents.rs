//! The output of agent programs: the speed of parsing recorded streams of real ones on one core.

use std::hint::black_box;
use std::time::Duration;

use banksman_agents::{Family, Reader};

use crate::bench::{Bench, Result};
use crate::clock;
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;

/// The size of one read from a pipe.
const CHUNK: usize = 64 * 1024;
/// The recorded streams are repeated up to this size.
const SIZE: usize = 8 << 20;
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 5;

const STREAMS: [(Family, &[u8]); 4] = [
    (Family::Claude, include_bytes!("../../agents/tests/streams/claude-over.jsonl")),
    (Family::Codex, include_bytes!("../../agents/tests/streams/codex-over.jsonl")),
    (Family::Gemini, include_bytes!("../../agents/tests/streams/gemini-over.jsonl")),
    (Family::Opencode, include_bytes!("../../agents/tests/streams/opencode-over.jsonl")),
];

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let row = |(family, stream): (Family, &[u8])| {
        let stream = stream.repeat(SIZE / stream.len() + 1);
        let rates: Vec<f64> = (0..bench.rounds(ROUNDS)).map(|_| rate(family, &stream, bench.span(ROUND))).collect();
        let row = Row::new(format!("output of {} understood", family.as_str()), Unit::MegabytesPerSecond, Sample::of(&rates));
        row.beside("a recorded stream of the real program; one core").target(Target::AtLeast(200.0))
    };
    Ok(STREAMS.into_iter().map(row).collect())
}

/// Megabytes per second.
fn rate(family: Family, stream: &[u8], span: Duration) -> f64 {
    let (mut bytes, mut spent) = (0.0, 0);
    while spent < clock::nanos(span) {
        let start = clock::now();
        let mut reader = Reader::new(family);
        for chunk in stream.chunks(CHUNK) {
            reader.output(chunk, 0);
        }
        black_box(reader.report());
        spent += clock::now() - start;
        bytes += stream.len() as f64;
    }
    bytes * 1e3 / spent as f64
}
