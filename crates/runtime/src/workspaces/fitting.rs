//! Adds to a worktree what git does not: copies of ignored files, and the setup of the project.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use banksman_adapters::digest::sha256;
use banksman_adapters::git::Repository;
use banksman_adapters::notify::Program;

use super::preparing::say;
use super::{WorkspaceError, at};
use crate::project::Project;
use crate::trust::Trust;

const SETUP: &str = "workspace.setup";

/// What happens to a copy that already exists in the worktree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// It stays: the task may have changed it.
    Keep,
    /// It is replaced if the file of the checkout is newer: no task works in the worktree of the checks.
    Refresh,
}

/// Copies missing files, and runs the setup unless it has run with the same inputs.
pub(crate) fn fit(
    project: &Project,
    repository: &Repository,
    path: &Path,
    branch: &str,
    copies: Copies,
) -> Result<(), WorkspaceError> {
    let settings = &project.config().workspace;
    if let Some(top) = repository.top() {
        for name in &settings.copy {
            copy_ignored(repository, top, path, name, copies)?;
        }
    }
    let Some(setup) = &settings.setup else { return Ok(()) };
    if !project.trusts_setting(SETUP) {
        return Err(WorkspaceError::Setup(format!(
            "{SETUP} comes with the project and is not trusted (trust it with: banksman trust)"
        )));
    }
    let inputs = fingerprint(setup, &settings.setup_inputs, path);
    let stamp = repository.own_dir(path)?.join("banksman-setup");
    if fs::read_to_string(&stamp).is_ok_and(|last| last == inputs) {
        return Ok(());
    }
    say(&format!("runs {SETUP}"));
    let mut command = match setup {
        Program::Shell(line) => {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", line]);
            command
        }
        Program::Argv(words) => {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        }
    };
    command.current_dir(path).stdin(Stdio::null()).env("BANKSMAN_WORKSPACE", path).env("BANKSMAN_BRANCH", branch);
    let status = command.status().map_err(at(path))?;
    if !status.success() {
        return Err(WorkspaceError::Setup(format!("{SETUP} failed: {status}")));
    }
    // Changes of the setup to its own inputs, such as a lock file, are no reason to run it again.
    let inputs = fingerprint(setup, &settings.setup_inputs, path);
    fs::write(&stamp, inputs).map_err(at(&stamp))
}

/// A hash of what the setup depends on: its command and its input files.
fn fingerprint(setup: &Program, inputs: &[String], path: &Path) -> String {
    let mut parts = vec![format!("{setup:?}").into_bytes()];
    for name in inputs {
        parts.push(name.clone().into_bytes());
        parts.push(fs::read(path.join(name)).map_or_else(|_| b"missing".to_vec(), |text| sha256(&[&text]).into_bytes()));
    }
    sha256(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Copies a file or directory of the checkout that git ignores. Tracked files come from git, and files that are neither
/// tracked nor ignored could end up in a commit.
fn copy_ignored(repository: &Repository, top: &Path, path: &Path, name: &str, copies: Copies) -> Result<(), WorkspaceError> {
    let (from, to) = (top.join(name), path.join(name));
    if !from.exists() || (to.exists() && copies == Copies::Keep) {
        return Ok(());
    }
    if !repository.at_top(top).is_ignored(Path::new(name))? {
        say(&format!("workspace.copy: {name} is not copied, because git does not ignore it"));
        return Ok(());
    }
    copy(&from, &to)
}

/// Copies with the system call for that, which shares the blocks where the file system can.
fn copy(from: &Path, to: &Path) -> Result<(), WorkspaceError> {
    let mut open: Vec<(PathBuf, PathBuf)> = vec![(from.into(), to.into())];
    while let Some((from, to)) = open.pop() {
        let kind = fs::symlink_metadata(&from).map_err(at(&from))?.file_type();
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(at(parent))?;
        }
        if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(at(&from))?;
            if fs::read_link(&to).is_ok_and(|now| now == target) {
                continue;
            }
            std::os::unix::fs::symlink(target, &to).map_err(at(&to))?;
        } else if kind.is_dir() {
            fs::create_dir_all(&to).map_err(at(&to))?;
            for entry in fs::read_dir(&from).map_err(at(&from))? {
                let entry = entry.map_err(at(&from))?;
                open.push((entry.path(), to.join(entry.file_name())));
            }
        } else if kind.is_file() && !is_newer(&to, &from) {
            fs::copy(&from, &to).map_err(at(&to))?;
        }
    }
    Ok(())
}

/// Whether a copy was made after the last change of its original.
fn is_newer(copy: &Path, original: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    changed(copy).zip(changed(original)).is_some_and(|(copy, original)| copy > original)
}

impl Project {
    /// Whether a setting that is executed may be used: it does not come with the project, or the user trusts it.
    pub(crate) fn trusts_setting(&self, key: &str) -> bool {
        let trust = Trust::of_user();
        let covers = |foreign: &crate::config::Foreign| trust.as_ref().is_some_and(|trust| trust.covers(self.root(), foreign));
        self.settings().foreign().iter().filter(|foreign| foreign.key.name == key).all(covers)
    }
}
