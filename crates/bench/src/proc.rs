//! Facts about processes from `/proc`.

use std::fs;
use std::path::Path;

use crate::bench::Result;

/// Ticks per second in `/proc/<pid>/stat`.
const TICKS: f64 = 100.0;

/// Resources that a process and its awaited children have used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spent {
    /// Processor time of the process itself, in milliseconds.
    pub(crate) own_ms: f64,
    /// Processor time of all its awaited children, and of theirs.
    pub(crate) children_ms: f64,
    /// Page faults of these children: every process has some.
    pub(crate) children_faults: u64,
}

impl Spent {
    /// Processor time of the process and its awaited children, in milliseconds.
    pub(crate) fn all_ms(self) -> f64 {
        self.own_ms + self.children_ms
    }
}

/// The memory of a process, in megabytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Memory {
    /// The peak, including shared pages.
    pub(crate) peak: f64,
    /// Its share: memory that processes have in common is divided among them.
    pub(crate) share: f64,
    /// Memory that no file backs.
    pub(crate) anonymous: f64,
}

/// The resources that a process has used. It may have exited, as long as its parent has not waited for it.
pub(crate) fn spent(pid: u32) -> Result<Spent> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_stat(&stat).ok_or_else(|| format!("/proc/{pid}/stat cannot be understood: {stat}").into())
}

/// The name may contain anything, including brackets, so the numbers begin after the last bracket.
fn parse_stat(stat: &str) -> Option<Spent> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ms = |ticks: u64| ticks as f64 / TICKS * 1e3;
    Some(Spent {
        own_ms: ms(field(11)? + field(12)?),
        children_ms: ms(field(13)? + field(14)?),
        children_faults: field(8)? + field(10)?,
    })
}

/// The nanoseconds that all threads of a process have run, and the number of their voluntary context switches.
/// `/proc/<pid>/stat` counts in hundredths of a second, which is as much as an idle waiter may use in total: too
/// coarse.
pub(crate) fn used(pid: u32) -> Result<(u64, u64)> {
    let (mut ran, mut switches) = (0, 0);
    for thread in threads(pid)? {
        ran += number(&thread.join("schedstat"), |text| text.split(' ').next())?;
        switches += number(&thread.join("status"), |text| line(text, "voluntary_ctxt_switches:"))?;
    }
    Ok((ran, switches))
}

pub(crate) fn children(pid: u32) -> Result<usize> {
    Ok(child_pids(pid)?.len())
}

pub(crate) fn child_pids(pid: u32) -> Result<Vec<u32>> {
    let mut pids = Vec::new();
    for thread in threads(pid)? {
        let children = fs::read_to_string(thread.join("children"))?;
        pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(pids)
}

pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let dir = format!("/proc/{pid}");
    let kib = |file: &str, name: &str| {
        let value = |text: &str| line(text, name).map(|rest| rest.trim().trim_end_matches(" kB").to_owned());
        let text = fs::read_to_string(Path::new(&dir).join(file))?;
        let value = value(&text).ok_or_else(|| format!("{dir}/{file} has no {name}"))?;
        Ok::<f64, Box<dyn std::error::Error + Send + Sync>>(value.parse::<f64>()? * 1_024.0 / 1e6)
    };
    Ok(Memory { peak: kib("status", "VmHWM:")?, share: kib("smaps_rollup", "Pss:")?, anonymous: kib("status", "RssAnon:")? })
}

fn threads(pid: u32) -> Result<Vec<std::path::PathBuf>> {
    Ok(fs::read_dir(format!("/proc/{pid}/task"))?.map(|thread| Ok(thread?.path())).collect::<std::io::Result<_>>()?)
}

fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

fn number(path: &Path, find: impl Fn(&str) -> Option<&str>) -> Result<u64> {
    let text = fs::read_to_string(path)?;
    let word = find(&text).ok_or_else(|| format!("{} cannot be understood", path.display()))?;
    Ok(word.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_look_like_fields() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 500 7000 1 2 30 20 300 100 20 0 3 0 99 1 1";
        let spent = Spent { own_ms: 500.0, children_ms: 4_000.0, children_faults: 7_002 };
        assert_eq!(parse_stat(stat), Some(spent));
    }

    #[test]
    fn facts_of_this_process_can_be_read() {
        let pid = std::process::id();
        assert!(memory(pid).is_ok_and(|memory| memory.peak > 0.0 && memory.share > 0.0 && memory.anonymous > 0.0));
        assert!(used(pid).is_ok_and(|(ran, _)| ran > 0));
        assert!(children(pid).is_ok() && spent(pid).is_ok());
    }
}
