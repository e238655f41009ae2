//! Whether a session works while it prints nothing.
//!
//! The session is sampled only on request, and compared with the previous sample. The first sample since the last
//! output covers the second half of the time since then. A newer process or file is proof at once; the use of the
//! processor needs two samples.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::getpid;

use super::protocol::Activity;
use crate::process::stat;
use crate::{host, tree};

/// The length of a tick of the processor clock, in milliseconds: Linux reports a hundred ticks a second on every machine.
const TICK_MS: u64 = 10;

/// A session works if it uses more than one hundredth of a core.
const PART_OF_CORE: u32 = 100;

/// The maximum number of files to check: a silent session that works on more files uses the processor, too.
const FILES: usize = 20_000;

/// Samples a session, and remembers the previous sample.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    last: Option<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    cpu: Duration,
}

impl Sampler {
    /// Samples the session, whose last output came at `heard`.
    pub(super) fn sample(&mut self, heard: Instant, workspace: Option<&Path>) -> Activity {
        let now = Instant::now();
        let last = self.last.filter(|seen| seen.at > heard);
        // Work long before the first sample, such as at the start, says nothing about the present.
        let since = last.map_or(heard + now.saturating_duration_since(heard) / 2, |seen| seen.at);
        let ago = now.saturating_duration_since(since);
        let mut cpu = Duration::ZERO;
        let mut has_new_child = false;
        let born_after = u64::try_from(host::boot_ms()).unwrap_or_default().saturating_sub(millis(ago));
        for process in tree::descendants(getpid().as_raw_nonzero().get()).into_iter().filter_map(|pid| stat(pid).ok()) {
            cpu += Duration::from_millis(process.cpu * TICK_MS);
            // The start is exact to one tick.
            has_new_child |= process.start * TICK_MS > born_after + TICK_MS;
        }
        self.last = Some(Sample { at: now, cpu });
        let changed_after = u64::try_from(host::wall_ms()).unwrap_or_default().saturating_sub(millis(ago));
        let used = last.map(|seen| cpu.saturating_sub(seen.cpu) > ago / PART_OF_CORE);
        match used {
            _ if has_new_child || workspace.is_some_and(|path| has_newer(path, changed_after)) => Activity::Busy,
            Some(true) => Activity::Busy,
            Some(false) => Activity::Idle,
            None => Activity::Unclear,
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Whether anything below a directory was changed after this time of the wall clock. Links are not followed.
fn has_newer(root: &Path, after_ms: u64) -> bool {
    let (mut todo, mut left) = (vec![root.to_owned()], FILES);
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            left -= 1;
            let Ok(found) = entry.metadata() else { continue };
            let changed_ms = found.ctime().saturating_mul(1_000).saturating_add(found.ctime_nsec() / 1_000_000);
            if u64::try_from(changed_ms).is_ok_and(|changed| changed > after_ms) {
                return true;
            }
            if left == 0 {
                return false;
            }
            if found.is_dir() {
                todo.push(entry.path());
            }
        }
    }
    false
}
