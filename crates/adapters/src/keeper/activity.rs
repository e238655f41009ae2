//! Whether a session works while it prints nothing.
//!
//! The session is sampled only on request, and compared with the previous sample. The first sample since the last
//! output covers the second half of the time since then. A newer process or file is proof at once; the use of the
//! processor needs two samples.

use std::fs::{self, Metadata, ReadDir};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{io, iter};

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

/// Whether anything below a directory was changed after this time of the wall clock.
fn has_newer(root: &Path, after_ms: u64) -> bool {
    let changed_ms = |file: &Metadata| file.ctime().saturating_mul(1_000).saturating_add(file.ctime_nsec() / 1_000_000);
    walk(root).take(FILES).flatten().any(|file| u64::try_from(changed_ms(&file)).is_ok_and(|changed| changed > after_ms))
}

/// Everything below a directory. Links are not followed. An entry that has vanished meanwhile is an error.
fn walk(root: &Path) -> impl Iterator<Item = io::Result<Metadata>> {
    let (mut todo, mut directory) = (vec![root.to_owned()], None::<ReadDir>);
    iter::from_fn(move || {
        loop {
            if let Some(entry) = directory.as_mut().and_then(Iterator::next) {
                return Some(entry.and_then(|entry| {
                    let file = entry.metadata()?;
                    if file.is_dir() {
                        todo.push(entry.path());
                    }
                    Ok(file)
                }));
            }
            directory = fs::read_dir(todo.pop()?).ok();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vanished_file_counts_towards_the_limit() {
        let root = tempfile::tempdir().unwrap();
        for name in ["one", "two", "three"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        assert!(has_newer(root.path(), 0));
        let mut files = walk(root.path());
        assert!(files.next().is_some_and(|file| file.is_ok()));
        for name in ["one", "two", "three"] {
            fs::remove_file(root.path().join(name)).unwrap();
        }
        assert_eq!(files.map(|file| file.is_ok()).collect::<Vec<_>>(), [false, false]);
    }
}
