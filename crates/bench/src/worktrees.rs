//! The time until the worktree of a task is ready, one after the other and sixteen at once; next to `git worktree add`.

use std::path::{Path, PathBuf};

use banksman_adapters::git::Repository;

use crate::bench::{Bench, Result};
use crate::clock;
use crate::landing::{git, import};
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;

const FILES: usize = 10_000;
const ROUNDS: usize = 5;
const AT_ONCE: usize = 16;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let place = bench.place("worktrees")?;
    let root = repository(&place.join("repository"))?;
    let repository = Repository::of(&root)?.ok_or("there is no repository")?;
    let base = git(&root, &["rev-parse", "main"])?;
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let plain = timed(|| add_plainly(&root, &place.join(format!("plain-{round}")), &format!("p{round}")))?;
        let path = place.join(format!("ours-{round}"));
        let own = timed(|| Ok(repository.make(&path, &format!("o{round}"), &base)?))?;
        check(&path)?;
        ours.push(own);
        theirs.push(plain);
        ratios.push(own / plain);
    }
    let one = Row::new("a worktree of 10,000 files is ready", Unit::Milliseconds, Sample::of(&ours))
        .peer("git worktree add", Sample::of(&theirs), Sample::of(&ratios))
        .target(Target::RatioAtMost(1.3));
    let serial =
        timed(|| (0..AT_ONCE).try_for_each(|n| add_plainly(&root, &place.join(format!("serial-{n}")), &format!("s{n}"))))?;
    let at_once = timed(|| {
        std::thread::scope(|scope| {
            let make = |n: usize| {
                let (repository, base, path) = (&repository, &base, place.join(format!("at-once-{n}")));
                scope.spawn(move || repository.make(&path, &format!("a{n}"), base))
            };
            let all: Vec<_> = (0..AT_ONCE).map(make).collect();
            all.into_iter().try_for_each(|one| one.join().map_err(|_| "a thread has panicked")?.map_err(Into::into))
        })
    })?;
    for n in 0..AT_ONCE {
        check(&place.join(format!("at-once-{n}")))?;
    }
    let sixteen = Row::new("16 worktrees at once, none fails", Unit::Milliseconds, Sample::once(at_once))
        .peer("git worktree add, 16 times", Sample::once(serial), Sample::once(at_once / serial))
        .target(Target::RatioAtMost(1.3));
    Ok(vec![one, sixteen])
}

/// The duration in milliseconds.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = clock::now();
    work()?;
    Ok((clock::now() - start) as f64 / 1e6)
}

fn add_plainly(root: &Path, path: &Path, branch: &str) -> Result<()> {
    let path = path.to_str().ok_or("a path that is no text")?;
    git(root, &["worktree", "add", "--quiet", "-b", branch, path, "main"]).map(drop)
}

fn check(path: &Path) -> Result<()> {
    let changes = git(path, &["status", "--porcelain"])?;
    if changes.is_empty() { Ok(()) } else { Err(format!("{} has changes: {changes}", path.display()).into()) }
}

fn repository(root: &Path) -> Result<PathBuf> {
    let mut script = String::from("commit refs/heads/main\ncommitter bench <bench@example.invalid> 0 +0000\ndata 4\nbase\n");
    let text = "a line of some length, so that the files are not quite empty\n".repeat(10);
    for n in 0..FILES {
        script.push_str(&format!("M 644 inline d{}/{n}\ndata {}\n{text}\n", n % 100, text.len()));
    }
    import(root, &script)
}
