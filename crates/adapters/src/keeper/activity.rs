//! Whether a session works while it puts nothing out.
//!
//! It is looked at only when somebody asks, and compared with the last time. The first time since its last output counts what it did in
//! the second half of the time since then. A process or a file that is newer tells at once; how much the processor was used can only be told from two looks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::getpid;

use super::protocol::Activity;
use crate::process::stat;
use crate::{host, tree};

/// The length of a tick of the processor clock, in milliseconds: Linux tells programs a hundred a second on every machine.
const TICK_MS: u64 = 10;

/// A session works if it uses more than this part of a core.
const PART_OF_CORE: u32 = 100;

/// How many files are looked at, at most: whoever has more of them and is silent uses the processor, too.
const FILES: usize = 20_000;

/// What was seen when it was looked at last.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    last: Option<Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    cpu: Duration,
}

impl Sampler {
    /// Looks at the session, whose last output came at `heard`.
    pub(super) fn sample(&mut self, heard: Instant, workspace: Option<&Path>) -> Activity {
        let now = Instant::now();
        let last = self.last.filter(|seen| seen.at > heard);
        // What it did long before it was asked about for the first time, as when it began, says nothing of now.
        let since = last.map_or(heard + now.saturating_duration_since(heard) / 2, |seen| seen.at);
        let ago = now.saturating_duration_since(since);
        let mut cpu = Duration::ZERO;
        let mut has_new_child = false;
        let born_after = u64::try_from(host::boot_ms()).unwrap_or_default().saturating_sub(millis(ago));
        for process in tree::descendants(getpid().as_raw_nonzero().get()).into_iter().filter_map(|pid| stat(pid).ok()) {
            cpu += Duration::from_millis(process.cpu * TICK_MS);
            // A tick is what the start is known to.
            has_new_child |= process.start * TICK_MS > born_after + TICK_MS;
        }
        self.last = Some(Seen { at: now, cpu });
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

/// Whether something below a directory was changed after this moment of the wall clock. Links are not followed.
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
