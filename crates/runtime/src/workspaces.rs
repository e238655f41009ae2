//! The workspaces of a project: where they are, how a session prepares its own, how they are removed.
//!
//! `preparing` runs inside of the session, under its keeper, before the command; `fitting` puts copied files into a new worktree and runs the
//! setup; `keeping` saves, removes and prunes.

mod fitting;
mod keeping;
mod preparing;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use banksman_adapters::git::{GitError, Repository};
use banksman_core::workspace::Place;
use banksman_core::{RunId, TaskId, Workspace};
use banksman_store::Key;
use thiserror::Error;

use crate::error::Error;
use crate::project::{Project, ProjectError};

pub(crate) use fitting::{Copies, fit};
pub(crate) use keeping::with_lock;
pub use keeping::{Kept, PruneStep, Removed, prune, prune_steps, removal_refusal, removals, remove};
pub(crate) use preparing::{argv, enter, say};

#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// The project is in no repository.
    #[error("{} is in no git repository, and a worktree needs one", .0.display())]
    NoRepository(PathBuf),
    /// There is no commit to begin with.
    #[error("the repository has no commits yet, and a worktree needs one to begin with (make one with: git commit)")]
    NoCommits,
    /// The named base is no commit.
    #[error("there is no commit {0:?} to begin with")]
    NoBase(String),
    /// The branch is in use.
    #[error("the branch {branch} is checked out at {}: name another one with --branch, or switch that checkout", .path.display())]
    CheckedOut { branch: String, path: PathBuf },
    /// A file or directory of another origin is in its place.
    #[error("{} is in the way: it is no worktree of this repository", .0.display())]
    InTheWay(PathBuf),
    /// It is on another machine.
    #[error(
        "the workspace of {owner} is on the machine {host}; only runners there can go on in it (or start afresh with: banksman tasks retry --fresh)"
    )]
    Elsewhere { owner: TaskId, host: String },
    /// Its content could not be saved completely, so nothing was removed.
    #[error("{} was not removed: {reason}", .path.display())]
    NotSaved { path: PathBuf, reason: String },
    /// It is in use, or its task is.
    #[error("the workspace of {owner} is in use by {holder}")]
    InUse { owner: TaskId, holder: String },
    /// Its work is in a merge queue.
    #[error("the work of {0} is landing: take it out of its merge queue first (see: banksman landing list)")]
    Landing(TaskId),
    /// The run no longer holds the lock of the workspace.
    #[error("fenced: this run has lost the lock of its workspace")]
    Fenced,
    /// The path cannot be stored.
    #[error("the path {0:?} is not UTF-8: set workspace.root to one that is")]
    Path(PathBuf),
    /// The setup of a new worktree is not trusted, or failed.
    #[error("{0}")]
    Setup(String),
    /// There is no such workspace.
    #[error("{0} has no workspace")]
    Unknown(TaskId),
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Store(#[from] Error),
}

impl From<banksman_store::StoreError> for WorkspaceError {
    fn from(error: banksman_store::StoreError) -> WorkspaceError {
        WorkspaceError::Store(error.into())
    }
}

/// The repository of a project.
pub fn repository(project: &Project) -> Result<Repository, WorkspaceError> {
    Repository::of(project.root())?.ok_or_else(|| WorkspaceError::NoRepository(project.root().into()))
}

/// The path of a task's plain directory.
pub(crate) fn dir(project: &Project, owner: &TaskId) -> PathBuf {
    project.folder().join("workspaces").join(owner.as_str())
}

/// The directory of the worktrees, and whether it is only the second choice: inside of the project, where tools find
/// the files of the checkout around it.
pub fn root(project: &Project, repository: &Repository) -> Result<(PathBuf, bool), WorkspaceError> {
    let wanted = wanted_root(project, repository);
    if project.config().workspace.root.is_some()
        && let Some(root) = &wanted
    {
        make_dir(root)?;
        return Ok((root.canonicalize().map_err(at(root))?, false));
    }
    let top = repository.top().unwrap_or(project.root());
    let is_fit = |beside: &PathBuf| make_dir(beside).is_ok() && is_same_file_system(beside, top) && is_writable(beside);
    if let Some(beside) = wanted.filter(is_fit) {
        return Ok((beside, false));
    }
    let inside = project.folder().join("workspaces");
    make_dir(&inside)?;
    Ok((inside, true))
}

/// The preferred directory of the worktrees: as the settings say, or beside the checkout.
fn wanted_root(project: &Project, repository: &Repository) -> Option<PathBuf> {
    if let Some(root) = &project.config().workspace.root {
        return Some(project.root().join(root));
    }
    let top = repository.top().unwrap_or(project.root());
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(top.file_name()?);
    hidden.push("-banksman");
    Some(top.parent()?.join(hidden))
}

/// The worktrees in our own directories without a row: made there manually, or left when the store was removed.
pub fn strays(project: &Project, rows: &BTreeMap<TaskId, Workspace>) -> Result<Vec<PathBuf>, WorkspaceError> {
    let Some(repository) = Repository::of(project.root())? else { return Ok(Vec::new()) };
    let roots = [wanted_root(project, &repository), Some(project.folder().join("workspaces"))];
    let real = |path: &Path| path.canonicalize().ok();
    let roots: Vec<PathBuf> = roots.iter().flatten().filter_map(|root| real(root)).collect();
    let known: Vec<PathBuf> = rows.values().filter_map(|row| real(Path::new(row.place.path()))).collect();
    let is_ours = |path: &PathBuf| path.parent().is_some_and(|parent| roots.iter().any(|root| root == parent));
    // The worktree of a merge is removed with the merge.
    let is_scratch = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let found = repository.worktrees().iter().filter_map(|path| real(path)).collect::<Vec<_>>();
    Ok(found.into_iter().filter(|path| is_ours(path) && !is_scratch(path) && !known.contains(path)).collect())
}

/// The directory in which the commands of a pipeline or a task work, if its workspace exists.
pub(crate) fn directory(project: &Project, owner: &TaskId) -> Option<PathBuf> {
    let row =
        project.reader().ok()?.view().load(&[Key::Workspace(owner.clone())].into()).ok()?.backlog.workspaces.remove(owner)?;
    let path = PathBuf::from(row.place.path());
    let inner = match row.place {
        Place::Worktree { .. } => inside(&path, &Repository::of(project.root()).ok()??),
        Place::Dir { .. } => path,
    };
    Some(inner).filter(|path| path.is_dir())
}

/// Whether a pipeline or a task has a workspace of its own that the session of its first run makes, and does not exist yet.
pub(crate) fn is_awaited(project: &Project, owner: &TaskId) -> bool {
    let rows = project.reader().and_then(|mut reader| reader.view().load(&[Key::Task(owner.clone())].into()));
    let task = rows.ok().and_then(|mut rows| rows.backlog.tasks.remove(owner));
    let has_own = task.is_some_and(|task| task.spec.workspace.owner(owner) == Some(owner));
    has_own && directory(project, owner).is_none()
}

/// The directory in a worktree that corresponds to the project's: a project may be only a part of its repository.
pub(crate) fn inside(worktree: &Path, repository: &Repository) -> PathBuf {
    let prefix = repository.prefix();
    let inner = if prefix.as_os_str().is_empty() { worktree.to_owned() } else { worktree.join(prefix) };
    if inner.is_dir() { inner } else { worktree.to_owned() }
}

fn make_dir(path: &Path) -> Result<(), WorkspaceError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))
}

fn is_writable(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
}

fn is_same_file_system(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    device(one) == device(other)
}

/// How many bytes are free where worktrees are made, if that is known.
pub(crate) fn free_space(project: &Project) -> Option<u64> {
    let root = project.config().workspace.root.as_ref().map(|root| project.root().join(root)).filter(|root| root.exists());
    let found = rustix::fs::statvfs(root.as_deref().unwrap_or(project.root())).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> WorkspaceError + use<> {
    let path = path.to_owned();
    move |source| WorkspaceError::Io { path: path.clone(), source }
}

/// The run in the environment of a session.
fn own_run() -> Option<RunId> {
    RunId::new(&std::env::var("BANKSMAN_RUN").ok()?).ok()
}
