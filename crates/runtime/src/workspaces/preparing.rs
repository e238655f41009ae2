//! Prepares a workspace, inside of the session and before its command. Then this process becomes the command.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use banksman_adapters::git::{Found, LOCAL_VARIABLES, Removal, Repository, Saving};
use banksman_adapters::private;
use banksman_core::landing::{self, LandingEnd, Return};
use banksman_core::task::{WorkspaceSpec, WorktreeSpec};
use banksman_core::workspace::{Input, Outcome, Place, branch_name};
use banksman_core::{RunId, Task, TaskId, Workspace};
use banksman_engine::{WorkspaceOutcome, WorkspaceRequest};
use banksman_store::Key;
use rustix::fs::OFlags;

use super::fitting::{Copies, fit};
use super::{WorkspaceError, at, dir, inside, own_run, repository, root};
use crate::agents::{self, StartCheck};
use crate::client::Client;
use crate::project::Project;

/// The hidden first argument.
const MARK: &str = "__workspace";

/// How often a store that does not answer is asked again, and how long to wait in between.
const TRIES: u32 = 60;
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The command line that prepares the workspace of `owner` and then becomes `argv`.
pub(crate) fn argv(project: &Project, owner: &TaskId, argv: Vec<OsString>) -> Vec<OsString> {
    let words: [&OsStr; 4] = ["/proc/self/exe".as_ref(), MARK.as_ref(), project.root().as_os_str(), owner.as_str().as_ref()];
    words.into_iter().map(OsStr::to_owned).chain(argv).collect()
}

/// Prepares a workspace, if the command line of this process asks for that.
pub(crate) fn enter(args: &[OsString]) -> Option<ExitCode> {
    let [_, mark, root, owner, argv @ ..] = args else { return None };
    if mark != MARK {
        return None;
    }
    let owner = TaskId::new(&owner.to_string_lossy()).ok()?;
    let said = match prepare(Path::new(root), &owner) {
        Ok(prepared) => prepared.become_command(argv),
        Err(error) => format!("the workspace cannot be prepared: {error}"),
    };
    say(&said);
    Some(ExitCode::FAILURE)
}

/// Writes a line to the log of the run.
pub(crate) fn say(line: &str) {
    // If stderr cannot be written, the exit status remains.
    writeln!(std::io::stderr(), "banksman: {line}").ok();
}

/// The directory of the command, and the variables that are added to those of every run.
struct Prepared {
    directory: PathBuf,
    env: Vec<(&'static str, OsString)>,
    env_remove: &'static [&'static str],
}

impl Prepared {
    /// Becomes the command. Returns only if that fails, with the reason.
    fn become_command(self, argv: &[OsString]) -> String {
        let argv = match StartCheck::take(argv) {
            // Check in this process: it would otherwise start the same executable for that.
            Some((check, argv)) => match check.refusal(&self.directory) {
                Some(refusal) => return refusal,
                None => argv,
            },
            None => argv,
        };
        let Some((program, arguments)) = argv.split_first() else { return "there is no program to start".into() };
        let mut command = Command::new(program);
        command
            .args(arguments.iter().map(|word| self.fill(word)))
            .current_dir(&self.directory)
            .envs(self.env)
            .env("PWD", &self.directory);
        for name in self.env_remove {
            command.env_remove(name);
        }
        let error = command.exec();
        format!("cannot start {} in {}: {error}", program.to_string_lossy(), self.directory.display())
    }

    /// Fills the directories of git, which exist by now, into an argument that names them.
    fn fill(&self, word: &OsStr) -> OsString {
        let top =
            self.env.iter().find(|(name, _)| *name == "BANKSMAN_WORKSPACE").map_or(&*self.directory, |(_, path)| Path::new(path));
        match word.to_str() {
            Some(text) if text.contains(agents::GIT_DIRS) => text.replace(agents::GIT_DIRS, &agents::git_dirs(top)).into(),
            _ => word.to_owned(),
        }
    }
}

/// The session that prepares a workspace.
struct Session {
    client: Client,
    owner: TaskId,
    run: RunId,
}

fn prepare(root: &Path, owner: &TaskId) -> Result<Prepared, WorkspaceError> {
    let run = own_run().ok_or(WorkspaceError::Fenced)?;
    let client = patiently(|| Ok(Project::find(root)?.open()?))?;
    let session = Session { client, owner: owner.clone(), run };
    let rows =
        patiently(|| Ok(session.client.load(&[Key::Task(owner.clone()), Key::Workspace(owner.clone())].into())?.tables.backlog))?;
    let task = rows.tasks.get(owner);
    let row = rows.workspaces.get(owner).cloned();
    match (&row.as_ref().map(|row| &row.place), task.map(|task| &task.spec.workspace)) {
        (Some(Place::Worktree { .. }), _) => session.worktree(task, row, &WorktreeSpec::default()),
        (None, Some(WorkspaceSpec::Worktree(spec))) => session.worktree(task, row, spec),
        (Some(Place::Dir { .. }), _) | (None, Some(WorkspaceSpec::Dir)) => session.dir(row),
        (None, _) => Err(WorkspaceError::Unknown(owner.clone())),
    }
}

/// Asks the store until it answers: an unknown state must not be guessed.
fn patiently<T>(mut ask: impl FnMut() -> Result<T, WorkspaceError>) -> Result<T, WorkspaceError> {
    let mut tries = 0;
    loop {
        match ask() {
            Err(WorkspaceError::Store(_) | WorkspaceError::Project(_)) if tries < TRIES => std::thread::sleep(TRY_AGAIN),
            done => return done,
        }
        tries += 1;
    }
}

impl Session {
    fn project(&self) -> &Project {
        self.client.project()
    }

    /// The machine of this session, as the row names it. A SQLite store has one machine, whatever id its users give it.
    fn host(&self, row: Option<&Workspace>) -> Box<str> {
        match row.filter(|_| !self.project().is_shared()) {
            Some(row) => row.host.clone(),
            None => self.client.this_process().host.clone(),
        }
    }

    fn step(&self, input: Input) -> Result<(Outcome, Option<Workspace>), WorkspaceError> {
        let request = WorkspaceRequest { owner: self.owner.clone(), holder: self.run.holder(), input };
        match patiently(|| Ok(self.client.request(request.clone())?))? {
            WorkspaceOutcome::Fenced => Err(WorkspaceError::Fenced),
            WorkspaceOutcome::Stepped(Outcome::Elsewhere { host }, _) => {
                Err(WorkspaceError::Elsewhere { owner: self.owner.clone(), host: host.into() })
            }
            WorkspaceOutcome::Stepped(outcome, workspace) => Ok((outcome, workspace.map(|workspace| *workspace))),
        }
    }

    /// Prepares a plain directory, in which git finds no repository.
    fn dir(&self, row: Option<Workspace>) -> Result<Prepared, WorkspaceError> {
        let path = dir(self.project(), &self.owner);
        let fence = self.project().folder().join("workspaces");
        private::make_dir(&path).map_err(at(&path))?;
        fence_off_git(&fence).map_err(at(&fence))?;
        let text = path.to_str().ok_or_else(|| WorkspaceError::Path(path.clone()));
        // The row is for people: a directory works even if its path is not UTF-8.
        if let Ok(text) = text {
            let place = Place::Dir { path: text.into() };
            if self.step(Input::Begin { host: self.host(row.as_ref()), place })?.0 != Outcome::Use {
                self.step(Input::Made)?;
            }
        }
        let env = vec![("BANKSMAN_WORKSPACE", path.clone().into()), ("GIT_CEILING_DIRECTORIES", fence.into())];
        Ok(Prepared { directory: path, env, env_remove: &LOCAL_VARIABLES })
    }

    fn worktree(&self, task: Option<&Task>, row: Option<Workspace>, spec: &WorktreeSpec) -> Result<Prepared, WorkspaceError> {
        let repository = repository(self.project())?;
        let mut row = row;
        let (path, branch) = loop {
            let place = match &row {
                Some(row) => row.place.clone(),
                None => self.place(&repository, task, spec)?,
            };
            let (outcome, now) = self.step(Input::Begin { host: self.host(row.as_ref()), place })?;
            let now = now.ok_or_else(|| WorkspaceError::Unknown(self.owner.clone()))?;
            let Place::Worktree { path, branch, base } = now.place else {
                return Err(WorkspaceError::Unknown(self.owner.clone()));
            };
            let path = PathBuf::from(&*path);
            match outcome {
                Outcome::Create | Outcome::Resume => self.make(&repository, &path, &branch, &base)?,
                Outcome::Use => {
                    self.reuse(&repository, &path, &branch, &base)?;
                    self.take_back(&repository, &path, task)?;
                }
                Outcome::HalfRemoved => {
                    self.clear(&repository, &path, &branch)?;
                    self.step(Input::Removed)?;
                    row = None;
                    continue;
                }
                other => unreachable!("a workspace that begins is {other:?}"),
            }
            break (path, branch);
        };
        fit(self.project(), &repository, &path, &branch, Copies::Keep)?;
        self.step(Input::Made)?;
        let (_, branch) = repository.head(&path).map(|(head, now)| (head, now.unwrap_or_else(|| branch.to_string())))?;
        let directory = inside(&path, &repository);
        let env = vec![("BANKSMAN_WORKSPACE", path.into()), ("BANKSMAN_BRANCH", branch.into())];
        Ok(Prepared { directory, env, env_remove: &LOCAL_VARIABLES })
    }

    /// The place of a new worktree.
    fn place(&self, repository: &Repository, task: Option<&Task>, spec: &WorktreeSpec) -> Result<Place, WorkspaceError> {
        // Work that is to land is based on its target.
        let target = task.and_then(|task| task.spec.land.as_ref()).map(|land| format!("refs/heads/{}", land.target));
        let revision = spec.base.as_deref().or(target.as_deref()).unwrap_or("HEAD");
        let base = match repository.commit(revision)? {
            Some(base) => base,
            None if repository.commit("HEAD")?.is_none() => return Err(WorkspaceError::NoCommits),
            None => return Err(WorkspaceError::NoBase(revision.into())),
        };
        let title = task.map_or("", |task| task.spec.title.as_str());
        let branch = spec.branch.as_deref().map_or_else(|| branch_name(&self.owner, title), Into::into);
        repository.check_branch(&branch)?;
        let (root, is_inside) = root(self.project(), repository)?;
        if is_inside {
            say(&format!(
                "worktrees are inside of the project, at {}, because the directory beside the checkout cannot be written: \
                 tools may find the files of the checkout around them (set workspace.root)",
                root.display()
            ));
        }
        let path = root.join(self.owner.as_str());
        let path = path.to_str().ok_or_else(|| WorkspaceError::Path(path.clone()))?;
        Ok(Place::Worktree { path: path.into(), branch: branch.into(), base: base.into() })
    }

    /// Creates the worktree, also where one is missing or half made.
    fn make(&self, repository: &Repository, path: &Path, branch: &str, base: &str) -> Result<(), WorkspaceError> {
        if repository.find(path)? != Found::Nothing {
            self.clear(repository, path, branch)?;
        }
        if let Some(elsewhere) = repository.checked_out(branch, path)? {
            return Err(WorkspaceError::CheckedOut { branch: branch.into(), path: elsewhere });
        }
        repository.make(path, branch, base)?;
        say(&format!("made the worktree {} on branch {branch}", path.display()));
        if let Some(said) = repository.run_checkout_hook(path)? {
            say(&format!("the hook post-checkout failed: {said}"));
        }
        Ok(())
    }

    /// Reuses the existing worktree. What the last run has left uncommitted is saved first, so that whatever this run
    /// does with it can be undone.
    fn reuse(&self, repository: &Repository, path: &Path, branch: &str, base: &str) -> Result<(), WorkspaceError> {
        match repository.find(path)? {
            Found::Worktree => {}
            Found::Other => return Err(WorkspaceError::InTheWay(path.into())),
            Found::Nothing | Found::Unfinished | Found::Deleted => {
                say(&format!("the worktree {} was gone; it is made again, without what was not committed", path.display()));
                return self.make(repository, path, branch, base);
            }
        }
        for lock in repository.unlock(path)? {
            say(&format!("removed {}, which a killed git has left", lock.display()));
        }
        let ignored = &self.project().config().workspace.save_ignored;
        let result = repository.save(path, Saving { id: self.owner.as_str(), reason: "before the next run", ignored })?;
        if let Some(saved) = result.saved {
            say(&format!("saved what the last run has left as {} (see: banksman recover list {})", saved.name(), self.owner));
        }
        Ok(())
    }

    /// If the work of the task was returned from the merge queue, shows why in the worktree: merges with the conflict,
    /// or checks out the commit on which the check fails. Only once, so that the changes of later attempts are not
    /// undone.
    fn take_back(&self, repository: &Repository, path: &Path, task: Option<&Task>) -> Result<(), WorkspaceError> {
        let rows = patiently(|| Ok(self.client.load(&[Key::LandingOf(self.owner.clone())].into())?.tables.backlog))?;
        let Some(entry) = rows.landings.values().find(|entry| entry.spec.task.as_ref() == Some(&self.owner)) else {
            return Ok(());
        };
        let landing::State::Over(LandingEnd::Returned(why)) = &entry.state else { return Ok(()) };
        let stamp = repository.own_dir(path)?.join("banksman-returned");
        if std::fs::read_to_string(&stamp).is_ok_and(|last| last == entry.id.as_str()) {
            return Ok(());
        }
        let ignored = &self.project().config().workspace.save_ignored;
        let saving = Saving { id: self.owner.as_str(), reason: "before its work came back", ignored };
        match why {
            Return::Conflict { tip, .. } => {
                let title = task.map_or("", |task| task.spec.title.as_str());
                let files = repository.take_back_conflict(path, tip.as_str(), title, saving)?;
                let list = if files.is_empty() { "none are left".into() } else { files.join(", ") };
                say(&format!("merged {} of {} into the worktree; conflicts: {list}", tip.short(), entry.target));
            }
            Return::CheckFailed { commit, log } if repository.commit(commit.as_str())?.is_some() => {
                repository.put_onto(path, commit.as_str(), saving)?;
                say(&format!("put the worktree onto {}, on which the check fails (its output: {log})", commit.short()));
            }
            Return::CheckFailed { .. }
            | Return::NoChange
            | Return::Unfinished { .. }
            | Return::TargetMoves
            | Return::Failure { .. } => say(&format!("the work came back: {why}")),
        }
        std::fs::write(&stamp, entry.id.as_str()).map_err(at(&stamp))
    }

    /// Removes a half made or half removed worktree after saving it. The branch stays.
    fn clear(&self, repository: &Repository, path: &Path, branch: &str) -> Result<(), WorkspaceError> {
        let ignored = &self.project().config().workspace.save_ignored;
        let saving = Saving { id: self.owner.as_str(), reason: "before it was made again", ignored };
        match repository.remove(path, branch, false, saving)? {
            Removal::Removed(_) => Ok(()),
            removal => Err(super::keeping::refused(path, removal)),
        }
    }
}

/// Keeps git from finding the project's repository from inside of a task's directory: a `.git` file that is no link to
/// a repository ends its search. A variable would do that only for commands that keep their environment.
fn fence_off_git(workspaces: &Path) -> std::io::Result<()> {
    match private::open(&workspaces.join(".git"), OFlags::WRONLY | OFlags::CREATE) {
        // A repository was made there: then git finds that one.
        Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => Ok(()),
        made => made.map(drop),
    }
}
