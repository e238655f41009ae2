//! The workspace of a new task.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use banksman_adapters::git::Repository;
use banksman_core::TaskId;
use banksman_core::task::{Work, WorkspaceSpec, WorktreeSpec};
use banksman_runtime::config::WorkspaceDefault;
use banksman_runtime::workspaces::{self, WorkspaceError};
use banksman_runtime::{Client, Project};
use banksman_store::{Key, Reader};
use clap::{Args, ValueEnum};

use crate::commands::workspaces::git_failed;
use crate::context::variable;
use crate::exit_codes as exit;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct WhereArgs {
    /// Where the task works: in the project's checkout, or in a directory or a git worktree of its own [default: workspace.default; of an agent
    /// in a git repository: worktree; inside of another worktree: there]
    #[arg(long, value_name = "WHERE")]
    workspace: Option<Where>,
    /// The same as --workspace worktree
    #[arg(long, conflicts_with_all = ["workspace", "cwd"])]
    worktree: bool,
    /// The branch of its worktree; created if it is missing [default: banksman/ID-TITLE]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// The start point of a new branch [default: the HEAD of the project's checkout when the task starts; of a child: the parent's HEAD]
    #[arg(long, value_name = "REF")]
    base: Option<String>,
    /// The directory in which the task works
    #[arg(long, value_name = "DIR", conflicts_with_all = ["workspace", "branch", "base"])]
    cwd: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Where {
    /// In the project's checkout
    #[value(alias = "none")]
    Checkout,
    /// In a directory of its own
    Dir,
    /// In a worktree of its own
    Worktree,
}

impl WhereArgs {
    /// Selects a worktree, unless another workspace was given.
    pub(super) fn or_worktree(&mut self, branch: Option<String>) {
        if self.workspace.is_none() && self.cwd.is_none() {
            self.worktree = true;
            self.branch = self.branch.take().or(branch);
        }
    }

    /// The workspace that was given, or that follows from the current directory. A manual task has no directory.
    pub(super) fn choose(
        self,
        client: &Client,
        reader: &mut Reader,
        is_child: bool,
        work: Option<&Work>,
    ) -> Result<WorkspaceSpec, Failure> {
        let project = client.project();
        if let Some(cwd) = &self.cwd {
            return directory(cwd).map(WorkspaceSpec::Cwd);
        }
        let wants_branch = self.branch.is_some() || self.base.is_some();
        let asked = if self.worktree || wants_branch { Some(Where::Worktree) } else { None };
        match (self.workspace, asked) {
            (Some(Where::Checkout | Where::Dir), Some(_)) => {
                Err(Failure::usage("--branch and --base need a worktree")
                    .hint("leave out --workspace, or use --workspace worktree"))
            }
            (Some(Where::Checkout), None) => Ok(WorkspaceSpec::Checkout),
            (Some(Where::Dir), None) => Ok(WorkspaceSpec::Dir),
            (Some(Where::Worktree), _) | (None, Some(_)) => self.worktree(project, is_child),
            (None, None) => match around(project, reader)? {
                Some(found) => Ok(found),
                None if work.is_none() => Ok(WorkspaceSpec::Checkout),
                // Agents in the same checkout would overwrite each other's files.
                None if matches!(work, Some(Work::Agent(_))) && has_commits(project) => self.worktree(project, is_child),
                None => match client.config().workspace.default {
                    WorkspaceDefault::Checkout => Ok(WorkspaceSpec::Checkout),
                    WorkspaceDefault::Dir => Ok(WorkspaceSpec::Dir),
                    WorkspaceDefault::Worktree => self.worktree(project, is_child),
                },
            },
        }
    }

    /// A worktree. Errors that can be found now are not left to the first run.
    fn worktree(self, project: &Project, is_child: bool) -> Result<WorkspaceSpec, Failure> {
        let repository = workspaces::repository(project)?;
        if let Some(branch) = &self.branch {
            repository.check_branch(branch).map_err(Failure::usage)?;
        }
        if repository.commit("HEAD").map_err(git_failed)?.is_none() {
            return Err(WorkspaceError::NoCommits.into());
        }
        let base = match (self.base, variable("BANKSMAN_WORKSPACE").filter(|_| is_child)) {
            (Some(base), _) => {
                repository.commit(&base).map_err(git_failed)?.ok_or_else(|| WorkspaceError::NoBase(base.clone()))?;
                Some(base)
            }
            // A child starts from the commit of its parent at the time of the call.
            (None, Some(parent)) => match Repository::of(Path::new(&parent)).map_err(git_failed)? {
                Some(parent) => parent.commit("HEAD").map_err(git_failed)?,
                None => None,
            },
            (None, None) => None,
        };
        let (branch, base) = (self.branch.map(Into::into), base.map(Into::into));
        Ok(WorkspaceSpec::Worktree(Box::new(WorktreeSpec { branch, base })))
    }
}

/// Whether the project is a git repository with a commit.
fn has_commits(project: &Project) -> bool {
    workspaces::repository(project).is_ok_and(|repository| repository.commit("HEAD").is_ok_and(|head| head.is_some()))
}

/// The workspace, or another worktree of the project's repository, that contains the current directory.
fn around(project: &Project, reader: &mut Reader) -> Result<Option<WorkspaceSpec>, Failure> {
    let Ok(here) = std::env::current_dir() else { return Ok(None) };
    if let Some(workspace) = variable("BANKSMAN_WORKSPACE").filter(|workspace| here.starts_with(workspace))
        && let Some((task, _)) = super::inherited()?
    {
        let rows = reader.view().load(&[Key::Task(task.clone())].into())?.tables.backlog;
        let owner = rows.tasks.get(&task).and_then(|found| found.spec.workspace.owner(&task).cloned());
        if let Some(owner) = owner.filter(|_| here.starts_with(&workspace)) {
            return Ok(Some(WorkspaceSpec::Shared { owner }));
        }
    }
    let Some(top) = linked_worktree(&here, project.root()) else { return Ok(None) };
    if let Some(owner) = managed(reader, &top)? {
        return Ok(Some(WorkspaceSpec::Shared { owner }));
    }
    let own = workspaces::repository(project)?;
    let inner = top.join(own.prefix());
    directory(if inner.is_dir() { &inner } else { &top }).map(|path| Some(WorkspaceSpec::Cwd(path)))
}

/// The task that owns the workspace in this directory.
fn managed(reader: &mut Reader, top: &Path) -> Result<Option<TaskId>, Failure> {
    let rows = reader.view().load(&[Key::Workspaces].into())?.tables.backlog.workspaces;
    let is_same_path = |path: &str| Path::new(path).canonicalize().is_ok_and(|path| path == top);
    Ok(rows.into_values().find(|row| is_same_path(row.place.path())).map(|row| row.owner))
}

/// The top of the linked worktree of the project's repository that contains a directory. Checked without git, because
/// nearly every task is added in the project itself.
fn linked_worktree(here: &Path, root: &Path) -> Option<PathBuf> {
    let top = here.ancestors().take_while(|dir| *dir != root).find(|dir| dir.join(".git").exists())?;
    let link = fs::read_to_string(top.join(".git")).ok()?;
    let admin = top.join(link.strip_prefix("gitdir: ")?.trim_end()).canonicalize().ok()?;
    let worktrees = admin.parent().filter(|parent| parent.file_name() == Some(OsStr::new("worktrees")))?;
    let own = match root.join(".git").canonicalize() {
        Ok(own) if own.is_dir() => own,
        _ => Repository::of(root).ok()??.common_dir().canonicalize().ok()?,
    };
    (worktrees.parent() == Some(&own)).then(|| top.canonicalize().ok()).flatten()
}

fn directory(path: &Path) -> Result<Box<str>, Failure> {
    let cannot = |what: &str| Failure::new(exit::USAGE, "USAGE", format!("cannot work in {}: {what}", path.display()));
    let found = path.canonicalize().map_err(|error| cannot(&error.to_string()))?;
    if !found.is_dir() {
        return Err(cannot("it is not a directory"));
    }
    found.to_str().map(Into::into).ok_or_else(|| cannot("its path is not UTF-8"))
}
