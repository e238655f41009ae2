//! The check of a commit before it lands: one command, in a worktree used only for checks.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use banksman_adapters::command_supervisor::{self, CommandEnd, Task};
use banksman_adapters::git::Lander;
use banksman_adapters::notify::Program;
use banksman_adapters::private;
use banksman_core::landing::CommitId;
use banksman_core::{LandingId, Name};

use crate::client::Cancel;
use crate::project::Project;
use crate::sessions::FOREIGN;
use crate::workspaces::{self, Copies, WorkspaceError};

/// The hidden first argument.
const MARK: &str = "__check";

/// How much of the command's output is kept.
const OUTPUT: usize = 10 << 20;

/// How many logs are kept.
const LOGS: usize = 100;

/// Whether the check passes, and where its output is; or why it could not run. `None` if it was cancelled.
pub(super) type Checked = Option<Result<(bool, Box<str>), String>>;

/// Runs the check on a commit.
pub(super) fn run(
    project: &Project,
    lander: &Lander,
    target: &Name,
    entry: &LandingId,
    commit: &CommitId,
    program: &Program,
    cancel: Cancel<'_>,
) -> Checked {
    let directory = match directory(project, target) {
        Ok(directory) => directory,
        Err(error) => return Some(Err(format!("the worktree for checks: {error}"))),
    };
    if let Err(error) = lander.check_out(&directory, commit.as_str(), project.config().landing.fresh) {
        return Some(Err(format!("the worktree for checks at {}: {}", directory.display(), super::git_message(&error))));
    }
    let env: Vec<(String, OsString)> = vec![
        ("BANKSMAN_PROJECT".into(), project.root().into()),
        ("BANKSMAN_LANDING".into(), entry.as_str().into()),
        ("BANKSMAN_TARGET".into(), target.as_str().into()),
        ("BANKSMAN_COMMIT".into(), commit.as_str().into()),
    ];
    // The check does not act for the process that lands.
    let mut env_remove = FOREIGN.to_vec();
    env_remove.extend(["BANKSMAN_HOLDER", "BANKSMAN_TASK", "BANKSMAN_RUN", "BANKSMAN_RUN_EPOCH"]);
    env_remove.extend(banksman_adapters::git::LOCAL_VARIABLES);
    let limit = project.config().landing.timeout;
    let task = Task {
        argv: argv(project, target, &directory, program),
        directory: &directory,
        env,
        env_remove: &env_remove,
        limit,
        stop: cancel,
        keep: OUTPUT,
    };
    let ended = match command_supervisor::run(task) {
        Ok(ended) => ended,
        Err(error) => return Some(Err(format!("the check could not be started: {error}"))),
    };
    let (passed, note) = match &ended.end {
        CommandEnd::Unwanted => return None,
        CommandEnd::Lost => return Some(Err("the check was killed".into())),
        CommandEnd::NotStarted(error) => return Some(Err(format!("the check could not be started: {error}"))),
        CommandEnd::Exited(0) => (true, "passed".to_owned()),
        CommandEnd::Exited(status) => (false, format!("failed with status {status}")),
        CommandEnd::Signalled(signal) => (false, format!("killed by signal {signal}")),
        CommandEnd::TimedOut => (false, format!("took longer than landing.timeout ({} s) and was ended", limit.as_secs())),
    };
    let mut text = format!("check of {commit} on {target}\n").into_bytes();
    text.extend(&ended.stdout.bytes);
    text.extend(format!("\nbanksman: {note}\n").into_bytes());
    Some(write_log(project, entry, commit, &text).map(|path| (passed, path.display().to_string().into())))
}

/// The command line that prepares the worktree and then becomes the check.
fn argv(project: &Project, target: &Name, directory: &Path, program: &Program) -> Vec<OsString> {
    let own: [&OsStr; 5] =
        ["/proc/self/exe".as_ref(), MARK.as_ref(), project.root().as_os_str(), directory.as_os_str(), target.as_str().as_ref()];
    let mut argv = own.map(OsStr::to_owned).to_vec();
    match program {
        Program::Shell(line) => argv.extend(["/bin/sh", "-c", line].map(OsString::from)),
        Program::Argv(words) => argv.extend(words.iter().map(OsString::from)),
    }
    argv
}

/// Prepares the worktree and becomes the check, if the command line of this process asks for that. So the setup is
/// limited, ended and logged with the check, and a commit whose setup fails does not pass.
pub(crate) fn enter(args: &[OsString]) -> Option<ExitCode> {
    let [_, mark, root, directory, target, program, arguments @ ..] = args else { return None };
    if mark != MARK {
        return None;
    }
    let become_check = || -> Result<Infallible, WorkspaceError> {
        // Write both streams to one file, to keep their order.
        rustix::stdio::dup2_stderr(rustix::stdio::stdout())
            .map_err(|error| WorkspaceError::Io { path: "stderr".into(), source: error.into() })?;
        let project = Project::find(Path::new(root))?;
        let repository = workspaces::repository(&project)?;
        let path = Path::new(directory);
        workspaces::fit(&project, &repository, path, &target.to_string_lossy(), Copies::Refresh)?;
        let inner = workspaces::inside(path, &repository);
        let source = Command::new(program).args(arguments).current_dir(&inner).env("PWD", &inner).exec();
        Err(WorkspaceError::Io { path: program.into(), source })
    };
    let Err(error) = become_check();
    workspaces::say(&error.to_string());
    Some(ExitCode::FAILURE)
}

fn write_log(project: &Project, entry: &LandingId, commit: &CommitId, text: &[u8]) -> Result<PathBuf, String> {
    let folder = project.folder().join("landing");
    let write = || -> std::io::Result<PathBuf> {
        private::make_dir(&folder)?;
        prune(&folder)?;
        let number = (1..).find(|number| !log(&folder, entry, commit, *number).exists()).unwrap_or(1);
        let path = log(&folder, entry, commit, number);
        std::fs::write(&path, text)?;
        Ok(path)
    };
    write().map_err(|error| format!("the output of the check cannot be kept in {}: {error}", folder.display()))
}

fn log(folder: &Path, entry: &LandingId, commit: &CommitId, number: u32) -> PathBuf {
    folder.join(format!("{entry}-{}-{number}.log", commit.short()))
}

/// Removes the oldest logs.
fn prune(folder: &Path) -> std::io::Result<()> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        logs.push((entry.metadata()?.modified()?, entry.path()));
    }
    logs.sort();
    for (_, path) in logs.iter().rev().skip(LOGS) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// The worktree for the checks of a branch. It is among the worktrees of tasks, so that a program that looks for files
/// in the directories above does not find those of the user's checkout.
fn directory(project: &Project, target: &Name) -> Result<PathBuf, WorkspaceError> {
    let name: String = target.as_str().chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let digest = banksman_adapters::digest::sha256(&[target.as_str().as_bytes()]);
    let (root, _) = workspaces::root(project, &workspaces::repository(project)?)?;
    Ok(root.join("checks").join(format!("{name}-{}", &digest[..8])))
}
