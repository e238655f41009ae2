//! The machine that the figures are from.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::bench::{Bench, Result};
use crate::stats;

const PAGE: usize = 4096;
/// Number of flushes of which Fs is the median.
pub(crate) const FLUSHES: usize = 500;

/// Date, machine and Fs, for the head of the report.
pub(crate) fn header(bench: &Bench) -> Result<Vec<(&'static str, String)>> {
    let cores = std::thread::available_parallelism()?;
    let system = rustix::system::uname();
    let (system, release) = (system.sysname().to_string_lossy().into_owned(), system.release().to_string_lossy().into_owned());
    Ok(vec![
        ("date", jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()),
        ("machine", format!("{}, {cores} cores, {system} {release}", cpu()?)),
        ("file system", file_system(bench.dir())?),
        ("Fs (median fdatasync after a write of 4 KiB)", ms(bench.flush)),
        ("load before", fs::read_to_string("/proc/loadavg")?.split_whitespace().take(1).collect()),
    ])
}

/// Fs again, for the end of the report: a different value means that the speed of the disk has changed.
pub(crate) fn flush_again(bench: &Bench) -> Result<(&'static str, String)> {
    Ok(("Fs at the end", ms(flush_time(bench.dir(), FLUSHES)?)))
}

fn ms(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

/// Fs. The pages are written once before, as a write-ahead log overwrites its old pages: the file size does not change,
/// so that only the data is flushed.
pub(crate) fn flush_time(dir: &Path, flushes: usize) -> Result<Duration> {
    let file = File::create(dir.join("flush"))?;
    file.write_all_at(&vec![1; PAGE * flushes], 0)?;
    file.sync_all()?;
    let mut times = Vec::with_capacity(flushes);
    for (index, page) in (0..flushes).zip((0..).step_by(PAGE)) {
        let byte = u8::try_from(index % 200).expect("less than 200");
        file.write_all_at(&[byte; PAGE], page)?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(Duration::from_secs_f64(stats::percentile(&times, 0.5)))
}

fn cpu() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    Ok(model.map_or("unknown processor", |(_, model)| model).into())
}

/// The type of the file system of `dir`: that of the longest mount point above it.
fn file_system(dir: &Path) -> Result<String> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let fields = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, point, kind) = (words.next()?, words.next()?, words.next()?);
        dir.starts_with(point).then_some((point.len(), format!("{kind} on {device}")))
    });
    let kind = fields.max_by_key(|(length, _)| *length).map_or_else(|| "unknown".into(), |(_, kind)| kind);
    if kind.starts_with("tmpfs") {
        return Err(format!("{} is in memory: nothing would be durable there", dir.display()).into());
    }
    Ok(kind)
}
