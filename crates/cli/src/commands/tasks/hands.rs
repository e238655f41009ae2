//! Work by hand: a person takes a task with its lock.

use banksman::Client;
use banksman::core::coordination::{Command, Outcome as Held};
use banksman::core::event::{Kind, Resource};
use banksman::core::task::{Outcome, State};
use banksman::core::{Epoch, HolderId, Task, TaskId, lock};
use banksman::engine::{Lockout, Taking, TaskOutcome, TaskRequest};
use banksman::store::{Key, Reader};
use clap::Args;
use serde_json::json;

use super::refused::refused;
use crate::commands::hold::{self, AcquireFlags, Dur};
use crate::context::{Actor, Context};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::words;

/// Who works on a task, and how long to wait for it.
#[derive(Debug, Args)]
pub(super) struct HandFlags {
    /// Who works on it, or did [default: $BANKSMAN_HOLDER, or USER@HOST]
    #[arg(long, value_name = "NAME")]
    holder: Option<HolderId>,
    /// Do not wait: exit 6 if somebody else works on it
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// How long to wait at most [default: locking.wait_timeout, 30m]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    timeout: Option<Dur>,
}

impl HandFlags {
    /// Who speaks.
    pub(crate) fn who(&self, client: &Client) -> Result<HolderId, Failure> {
        who(self.holder.as_ref(), client)
    }

    /// Takes a task, after everybody who works on it or in its section.
    pub(super) fn take(&self, context: &Context, client: &Client, reader: &mut Reader, id: &TaskId) -> Result<Task, Failure> {
        let holder = self.who(client)?;
        let signals = Signals::install().map_err(|error| Failure::system("take note of signals", error))?;
        let mut epoch = None;
        loop {
            let rows = reader.view().load(&[Key::Task(id.clone())].into())?;
            let Some(task) = rows.backlog.tasks.get(id) else { return Err(refused(id, &TaskOutcome::Unknown)) };
            let config = client.config();
            let taking = Taking {
                holder: holder.clone(),
                section: task.spec.section.clone(),
                ttl: Dur(config.task_timeout).span(),
                section_ttl: Dur(config.section_timeout).span(),
                epoch,
                seen: Default::default(),
            };
            match super::ask(client, TaskRequest::Take { id: id.clone(), taking: Box::new(taking) })? {
                TaskOutcome::Stepped(Outcome::Taken, task) => return Ok(*task),
                TaskOutcome::Locked(lockout) if self.no_wait => {
                    return Err(locked(id, &lockout).hint("leave out --no-wait to stand in line for it"));
                }
                TaskOutcome::Locked(lockout) => {
                    let is_task = lockout.lock.task().is_some();
                    let grant = self.wait(context, client, &holder, lockout, &signals)?;
                    epoch = if is_task { Some(grant) } else { epoch };
                }
                TaskOutcome::Changed => {}
                outcome => {
                    // What was waited for is of no use then.
                    self.drop_lock(client, id, &holder)?;
                    return Err(refused(id, &outcome));
                }
            }
        }
    }

    /// Stands in line for a lock. Who has it then takes the task with it.
    fn wait(
        &self,
        context: &Context,
        client: &Client,
        holder: &HolderId,
        lockout: Lockout,
        signals: &Signals,
    ) -> Result<Epoch, Failure> {
        let is_section = lockout.lock.task().is_none();
        let config = client.config();
        let ttl = if is_section { config.section_timeout } else { config.task_timeout };
        let flags = AcquireFlags {
            holder: None,
            pid: None,
            ttl: Some(Dur(ttl)),
            metadata: None,
            request_id: None,
            epoch: None,
            no_wait: false,
            timeout: self.timeout,
        };
        let wanted = hold::Wanted {
            resource: Resource { kind: Kind::Lock, name: lockout.lock },
            actor: Actor { holder: holder.clone(), ancestors: Vec::new() },
            weight: 1,
            max_hold: None,
            processes: Vec::new(),
            leased: true,
            epoch: None,
        };
        hold::win(&context.printer, client, wanted, &flags, Some(signals)).map(|won| won.grant.epoch)
    }

    /// Gives the lock of a task back that cannot be taken after all.
    fn drop_lock(&self, client: &Client, id: &TaskId, holder: &HolderId) -> Result<(), Failure> {
        let mut reader = client.reader()?;
        let rows = reader.view().load(&[Key::Lock(id.lock())].into())?;
        let Some(lock::State::Held(grant)) = rows.coordination.locks.get(&id.lock()).map(|lock| &lock.state) else {
            return Ok(());
        };
        if grant.claim.holder == *holder {
            let input = lock::Input::Release { holder: holder.clone(), epoch: grant.epoch };
            client.ask(Command::Lock(id.lock(), input), Vec::new())?;
        }
        Ok(())
    }
}

/// Renews the lock of a task that is worked on by hand. Nothing is done for others.
pub(super) fn heartbeat(
    context: &Context,
    client: &Client,
    id: &TaskId,
    given: Option<&HolderId>,
) -> Result<Option<u8>, Failure> {
    let rows = client.reader()?.view().load(&[Key::Task(id.clone())].into())?;
    let Some(State::ByHand { epoch, .. }) = rows.backlog.tasks.get(id).map(|task| &task.state) else { return Ok(None) };
    let input = lock::Input::Heartbeat { holder: who(given, client)?, epoch: *epoch };
    match client.ask(Command::Lock(id.lock(), input), Vec::new())? {
        (Held::Lock(lock::Outcome::Extended(grant)), at) => {
            let expires = grant.expires().map(words::rfc3339);
            let lasts =
                grant.deadline().map_or_else(String::new, |deadline| format!(", for {} more", words::span(deadline - at.lease)));
            let data = json!({ "id": id, "outcome": "seen", "epoch": epoch, "expiresAt": expires });
            context.printer.result(data, format!("{id} is still yours{lasts}"));
            Ok(Some(exit::OK))
        }
        (Held::Lock(outcome), _) => Err(hold::lock_refusal(&id.lock(), &outcome)),
        (outcome, _) => Err(Failure::unexpected(&outcome)),
    }
}

/// Who speaks for a task that no run is at: the name given, or the inherited one, or the user on this machine.
pub(crate) fn who(given: Option<&HolderId>, client: &Client) -> Result<HolderId, Failure> {
    match Actor::existing(given, "acquire") {
        Ok(holder) => Ok(holder),
        Err(_) => {
            let user = hold::forced(client);
            HolderId::new(&format!("{}@{}", user.user, user.host)).map_err(Failure::usage)
        }
    }
}

/// Somebody else works on a task, or in its section.
pub(super) fn locked(task: &TaskId, lockout: &Lockout) -> Failure {
    let until = lockout.until.map(words::rfc3339);
    let expires = until.as_ref().map(|until| format!("; that lock expires at {until}")).unwrap_or_default();
    let by = format!("locked by {}{expires}", lockout.holder);
    let failure = match lockout.lock.task() {
        Some(_) => Failure::new(exit::LOCKED, "TASK_LOCKED", format!("{task} is {by}")),
        None => Failure::new(exit::LOCKED, "SECTION_LOCKED", format!("the section of {task} is {by}")),
    };
    failure.details(json!({ "taskId": task, "lockedBy": lockout.holder, "expiresAt": until, "lock": lockout.lock }))
}

/// The grant of somebody who works on a task, for people.
pub(super) fn grant_words(task: &Task) -> String {
    match &task.state {
        State::ByHand { holder, epoch, .. } => format!(" by {holder}, epoch {epoch}"),
        _ => String::new(),
    }
}
