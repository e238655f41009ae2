//! The number of branches that land in a second, without a check, on a checked-out branch; next to plain git.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use banksman_runtime::Project;

use crate::bench::{Bench, Result};
use crate::clock;
use crate::program;
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;

const BRANCHES: usize = 200;

/// Number of files in the repository that the branches do not change.
const FILES: usize = 1_000;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let place = bench.place("landing")?;
    let ours = repository(&place.join("ours"))?;
    let project = Project::init_at(&ours, None)?;
    let names: Vec<String> = (0..BRANCHES).map(|n| format!("b{n}")).collect();
    let mut args = vec!["land", "--unchecked"];
    args.extend(names.iter().map(String::as_str));
    let start = clock::now();
    program::succeed(&project, &args)?;
    let per_second = rate(start);
    check(&ours)?;
    let theirs = repository(&place.join("plain"))?;
    let start = clock::now();
    for name in &names {
        land_plainly(&theirs, name)?;
    }
    let plain = rate(start);
    check(&theirs)?;
    Ok(vec![
        Row::new("branches landed, unchecked, with the checkout", Unit::LandingsPerSecond, Sample::once(per_second))
            .peer(
                "plain git: merge-tree, commit-tree, read-tree -m -u, update-ref",
                Sample::once(plain),
                Sample::once(per_second / plain),
            )
            .target(Target::AtLeast(15.0)),
    ])
}

fn rate(start: u64) -> f64 {
    BRANCHES as f64 * 1e9 / (clock::now() - start) as f64
}

/// The minimum that git needs for the same result, without any protection of the checkout.
fn land_plainly(root: &Path, branch: &str) -> Result<()> {
    let tip = git(root, &["rev-parse", "main"])?;
    let tree = git(root, &["merge-tree", "--write-tree", &tip, branch])?;
    let commit = git(root, &["commit-tree", "-p", &tip, "-m", branch, &tree])?;
    git(root, &["read-tree", "-m", "-u", &tip, &commit])?;
    git(root, &["update-ref", "refs/heads/main", &commit, &tip]).map(drop)
}

fn check(root: &Path) -> Result<()> {
    let landed: usize = git(root, &["rev-list", "--count", "base..main"])?.parse()?;
    let changes = git(root, &["status", "--porcelain", "--untracked-files=no"])?;
    if landed == BRANCHES && changes.is_empty() {
        return Ok(());
    }
    Err(format!("{landed} of {BRANCHES} branches have landed, with these changes: {changes:?}").into())
}

pub(crate) fn git(root: &Path, args: &[&str]) -> Result<String> {
    let done = Command::new("git").current_dir(root).args(args).stdin(Stdio::null()).output()?;
    if !done.status.success() {
        return Err(format!("git {args:?}: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(String::from_utf8(done.stdout)?.trim_end().to_owned())
}

/// A repository with a branch `main` and branches that each change a file of their own.
fn repository(root: &Path) -> Result<std::path::PathBuf> {
    let file = |path: String, text: &str| format!("M 644 inline {path}\ndata {}\n{text}\n", text.len());
    let who = "committer bench <bench@example.invalid> 0 +0000";
    let mut script = format!("commit refs/heads/base\nmark :1\n{who}\ndata 4\nbase\n");
    script.push_str(&file(".gitignore".into(), ".banksman/\n"));
    (0..FILES).for_each(|n| script.push_str(&file(format!("d{}/{n}", n % 20), "before\n")));
    for n in 0..BRANCHES {
        script.push_str(&format!("\ncommit refs/heads/b{n}\n{who}\ndata 2\nb\n\nfrom :1\n"));
        script.push_str(&file(format!("d{}/{n}", n % 20), "after\n"));
    }
    let root = import(root, &script)?;
    git(&root, &["reset", "-q", "--hard", "base"])?;
    Ok(root)
}

/// A repository from a script for `git fast-import`.
pub(crate) fn import(root: &Path, script: &str) -> Result<std::path::PathBuf> {
    std::fs::create_dir(root)?;
    git(root, &["init", "-q", "-b", "main"])?;
    git(root, &["config", "user.name", "bench"])?;
    git(root, &["config", "user.email", "bench@example.invalid"])?;
    let mut import = Command::new("git").args(["fast-import", "--quiet"]).current_dir(root).stdin(Stdio::piped()).spawn()?;
    import.stdin.take().ok_or("no stdin")?.write_all(script.as_bytes())?;
    if !import.wait()?.success() {
        return Err("git fast-import has failed".into());
    }
    Ok(root.into())
}
