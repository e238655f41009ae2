//! Removes workspaces: one that a person names, or all that are no longer needed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use banksman_adapters::git::{Removal, Repository, Saved, Saving};
use banksman_adapters::{host, ids};
use banksman_core::event::{Kind, Resource};
use banksman_core::landing::{self, LandingEnd};
use banksman_core::resource::coordination::{Command, Outcome as Answer};
use banksman_core::resource::grant::{Ask, GrantRequest, Term};
use banksman_core::resource::lock;
use banksman_core::workspace::{Input, Place, State};
use banksman_core::{HolderId, Status, Task, TaskId, Wall, Workspace};
use banksman_engine::{Request, WorkspaceOutcome, WorkspaceRequest};
use banksman_store::Key;

use super::{WorkspaceError, at, repository};
use crate::client::Client;
use crate::waiting::{Acquisition, WaitOptions};

/// For how long saved states are kept.
const SAVED_FOR: Duration = Duration::from_secs(90 * 86_400);

/// A workspace with its task.
#[derive(Debug, Clone)]
pub struct Kept {
    pub workspace: Workspace,
    /// `None` if the task was deleted.
    pub task: Option<Task>,
    /// The holder of its lock.
    pub holder: Option<HolderId>,
    /// Whether the work of the task has landed.
    pub has_landed: bool,
}

impl Kept {
    /// All workspaces of a project.
    pub fn all(client: &Client) -> Result<Vec<Kept>, WorkspaceError> {
        let workspaces = client.load(&[Key::Workspaces].into())?.tables.backlog.workspaces;
        let keys_of =
            |owner: &TaskId| [Key::Task(owner.clone()), Key::Lock(owner.workspace_lock()), Key::LandingOf(owner.clone())];
        let owners = workspaces.keys().flat_map(keys_of);
        let mut rows = client.load(&owners.collect())?;
        let with_owner = |(owner, workspace): (TaskId, Workspace)| {
            let holder = match rows.coordination.locks.get(&owner.workspace_lock()).map(|lock| &lock.state) {
                Some(lock::State::Held(grant)) => Some(grant.claim.holder.clone()),
                Some(lock::State::Free) | None => None,
            };
            let own = rows.backlog.landings.values().filter(|entry| entry.spec.task.as_ref() == Some(&owner));
            let last = own.max_by_key(|entry| entry.id.seq()).map(|entry| &entry.state);
            let has_landed = matches!(last, Some(landing::State::Over(LandingEnd::Landed { .. } | LandingEnd::NoChange { .. })));
            Kept { workspace, task: rows.backlog.tasks.remove(&owner), holder, has_landed }
        };
        Ok(workspaces.into_iter().map(with_owner).collect())
    }

    /// The state of the workspace in one word: creating, ready, in use, kept or removing.
    pub fn state(&self) -> &'static str {
        match self.workspace.state {
            State::Ready if self.holder.is_some() => "in_use",
            State::Ready if self.is_over() => "kept",
            state => state.as_str(),
        }
    }

    fn is_over(&self) -> bool {
        self.task.as_ref().is_none_or(|task| task.status().is_over())
    }

    /// Why it is no longer needed, if it is not.
    fn unneeded(&self, keep_for: Duration, now: Wall) -> Option<&'static str> {
        if self.holder.is_some() || !matches!(self.workspace.place, Place::Worktree { .. }) {
            return None;
        }
        if self.workspace.state == State::Removing {
            return Some("its removal was not finished");
        }
        let Some(task) = &self.task else { return Some("its task was deleted") };
        let age = now.0.saturating_sub(task.changed.wall.0);
        let is_old = age >= i64::try_from(keep_for.as_millis()).unwrap_or(i64::MAX);
        match task.status() {
            Status::Completed if self.has_landed => Some("its work has landed"),
            status if status.is_over() && is_old => Some("its task has been over for longer than workspace.keep_for"),
            _ => None,
        }
    }
}

/// A workspace that was removed.
#[derive(Debug, Clone)]
pub struct Removed {
    pub owner: TaskId,
    pub path: PathBuf,
    /// Its saved state, if it had changes.
    pub saved: Option<Saved>,
}

/// One step of pruning.
#[derive(Debug, Clone)]
pub enum PruneStep {
    /// Save and remove a workspace.
    Remove { kept: Box<Kept>, reason: &'static str },
    /// Forget a state that was saved long ago.
    Forget(Saved),
}

/// The steps that pruning would take now.
pub fn prune_steps(client: &Client) -> Result<Vec<PruneStep>, WorkspaceError> {
    let mut steps = removals(client)?;
    if let Some(repository) = Repository::of(client.project().root())? {
        let oldest = host::wall_ms() / 1_000 - i64::try_from(SAVED_FOR.as_secs()).unwrap_or(i64::MAX);
        steps.extend(repository.saved(None)?.into_iter().filter(|saved| saved.at < oldest).map(PruneStep::Forget));
    }
    Ok(steps)
}

/// The workspaces on this machine that are no longer needed.
pub fn removals(client: &Client) -> Result<Vec<PruneStep>, WorkspaceError> {
    let now = Wall(host::wall_ms());
    let keep_for = client.config().workspace.keep_for;
    let here = client.this_process().host.clone();
    let is_here = |kept: &Kept| !client.project().is_shared() || kept.workspace.host == here;
    let mut steps = Vec::new();
    for kept in Kept::all(client)?.into_iter().filter(is_here) {
        if let Some(reason) = kept.unneeded(keep_for, now) {
            steps.push(PruneStep::Remove { kept: Box::new(kept), reason });
        }
    }
    Ok(steps)
}

/// Why a workspace would not be removed, as far as that is known without saving it.
pub fn removal_refusal(client: &Client, kept: &Kept) -> Result<Option<WorkspaceError>, WorkspaceError> {
    let path = Path::new(kept.workspace.place.path());
    let embedded = repository(client.project())?.embedded_work(path)?;
    Ok((!embedded.is_empty()).then(|| refused(path, Removal::Embedded(embedded))))
}

/// Carries out the steps of [`prune_steps`], and reports each result at once.
pub fn prune(
    client: &Client,
    steps: Vec<PruneStep>,
    mut report: impl FnMut(&PruneStep, Result<Option<Removed>, WorkspaceError>),
) {
    for step in steps {
        let result = match &step {
            PruneStep::Remove { kept, .. } => remove(client, &kept.workspace.owner, false).map(Some),
            PruneStep::Forget(saved) => {
                repository(client.project()).and_then(|repository| Ok(repository.forget_saved(saved)?)).map(|()| None)
            }
        };
        report(&step, result);
    }
}

/// Saves and removes the workspace of a task, unless it is in use; with `with_branch`, also a branch that the user has
/// named. If the process is killed meanwhile, the next removal completes it.
pub fn remove(client: &Client, owner: &TaskId, with_branch: bool) -> Result<Removed, WorkspaceError> {
    with_lock(client, owner, |holder| remove_locked(client, owner, with_branch, holder))
}

/// Calls `act` under the lock of a workspace.
pub(crate) fn with_lock<T>(
    client: &Client,
    owner: &TaskId,
    act: impl FnOnce(&HolderId) -> Result<T, WorkspaceError>,
) -> Result<T, WorkspaceError> {
    let holder = HolderId::new(&ids::short("keep")).expect("a short id is a valid name");
    let lock = Resource { kind: Kind::Lock, name: owner.workspace_lock() };
    // Bound to this process: if it is killed, its death frees the lock.
    let claim = GrantRequest { processes: vec![client.this_process().clone()], ..GrantRequest::new(holder.clone()) };
    let epoch = match client.acquire_any(lock.clone(), Ask { term: Term::Open, ..Ask::new(claim) }, WaitOptions::default())? {
        Acquisition::Answered {
            outcome: Answer::Lock(lock::Outcome::Acquired(grant) | lock::Outcome::Reclaimed { grant, .. }),
            ..
        } => grant.epoch,
        other => return Err(WorkspaceError::InUse { owner: owner.clone(), holder: holder_of(&other) }),
    };
    let result = act(&holder);
    let release = lock::Input::Release { holder, epoch };
    client.call(Request::plain(Command::Lock(lock.name, release)))?;
    result
}

fn holder_of(answer: &Acquisition) -> String {
    match answer {
        Acquisition::Answered { outcome: Answer::Lock(lock::Outcome::Busy(busy)), .. } => {
            busy.holders.first().map_or("a claim that waits for it".into(), |grant| grant.claim.holder.to_string())
        }
        Acquisition::Answered { .. } | Acquisition::RequestReused | Acquisition::TimedOut(_) | Acquisition::Cancelled => {
            "another process".into()
        }
    }
}

fn remove_locked(client: &Client, owner: &TaskId, with_branch: bool, holder: &HolderId) -> Result<Removed, WorkspaceError> {
    let mut rows = client.load(&[Key::Workspace(owner.clone()), Key::Task(owner.clone())].into())?.tables.backlog;
    let row = rows.workspaces.remove(owner).ok_or_else(|| WorkspaceError::Unknown(owner.clone()))?;
    // Work begins to land under the lock that is held now, so none begins meanwhile.
    if rows.tasks.get(owner).is_some_and(|task| task.status() == Status::Landing) {
        return Err(WorkspaceError::Landing(owner.clone()));
    }
    let step = |input: Input| match client.request(WorkspaceRequest { owner: owner.clone(), holder: holder.clone(), input })? {
        WorkspaceOutcome::Stepped(..) => Ok(()),
        WorkspaceOutcome::Fenced => Err(WorkspaceError::Fenced),
    };
    if client.project().is_shared() && row.host != client.this_process().host {
        return Err(WorkspaceError::Elsewhere { owner: owner.clone(), host: row.host.to_string() });
    }
    step(Input::Remove)?;
    let path = PathBuf::from(row.place.path());
    let saved = match &row.place {
        Place::Worktree { branch, .. } => {
            let ignored = &client.config().workspace.save_ignored;
            let saving = Saving { id: owner.as_str(), reason: "before it was removed", ignored };
            // A branch with a name of the user's belongs to the user.
            let drops_branch = with_branch || branch.starts_with("banksman/");
            match repository(client.project())?.remove(&path, branch, drops_branch, saving)? {
                Removal::Removed(saved) => saved,
                removal => {
                    // Nothing of it is removed, unless an earlier removal was killed.
                    if row.state == State::Ready {
                        step(Input::Keep)?;
                    }
                    return Err(refused(&path, removal));
                }
            }
        }
        Place::Dir { .. } => {
            // Its content cannot be saved, so only a person removes it.
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(at(&path)(error)),
                _ => None,
            }
        }
    };
    step(Input::Removed)?;
    Ok(Removed { owner: owner.clone(), path, saved })
}

/// Why a worktree was not removed.
pub(super) fn refused(path: &Path, removal: Removal) -> WorkspaceError {
    let reason = match removal {
        Removal::NotOurs => return WorkspaceError::InTheWay(path.into()),
        Removal::Removed(_) => unreachable!("it is removed"),
        Removal::Incomplete(why) => format!("not everything in it could be saved: {why}"),
        Removal::Embedded(paths) => {
            let list: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            format!("repositories in it have work that is nowhere else: {}", list.join(", "))
        }
    };
    WorkspaceError::NotSaved { path: path.into(), reason }
}
