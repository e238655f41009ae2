use std::num::NonZeroU32;

use banksman_core::task::retry::Policy;
use banksman_core::task::{Mark, Need, Outcome, State, Verdict};
use banksman_core::{Epoch, HolderId, Label, Name, Status, TaskId, Title};
use banksman_engine::{Edit, TaskOutcome, TaskRequest};
use banksman_runtime::Client;
use banksman_runtime::config::Config;
use banksman_store::{Key, Reader};
use clap::Args;

use super::claim::{ClaimFlags, Taken};
use super::refused::refused;
use super::{claim, list, spec, task_args, view};
use crate::commands::resources::Dur;
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, YELLOW};
use crate::views::tasks::{TaskView, Updated};

/// The error of a task that a person marks as failed without a reason.
const DEFAULT_ERROR: &str = "marked as failed";

/// Change a task.
///
/// A task with a run in progress keeps its section, its dependencies, its command and its needs, and only that run reports how it ends.
/// --status in_progress is `tasks take`, pending is `tasks release` for a task that you have claimed, completed and failed are
/// `tasks done` and `tasks fail`. All changes of one command are applied together, or none.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks update 'Release' --priority 5 --depends-on 'Run the tests,Write the notes'\n  banksman tasks update t-7k2m9q1a --status skipped\n  banksman tasks update 'Fix the login' --status in_progress\n  banksman tasks update t-7k2m9q1a --depends-on ''"
)]
pub(super) struct Update {
    /// The task
    task: String,
    /// The new title
    #[arg(long, value_name = "TITLE")]
    title: Option<Title>,
    /// The section of the task
    #[arg(long, value_name = "SECTION")]
    section: Option<String>,
    /// Remove it from its section
    #[arg(long, conflicts_with = "section")]
    no_section: bool,
    /// Tasks with a higher priority start first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// All tasks that must be completed first, separated by commas; '' for none
    #[arg(long, value_name = "TASKS")]
    depends_on: Option<Vec<String>>,
    /// The dependencies only have to end, in any status
    #[arg(long, requires = "depends_on")]
    allow_failed: bool,
    /// All its labels; may be given more than once
    #[arg(long = "label", value_name = "LABEL")]
    labels: Option<Vec<Label>>,
    /// Remove all labels
    #[arg(long, conflicts_with = "labels")]
    no_labels: bool,
    /// The command line to run, in a shell
    #[arg(long, value_name = "CMD")]
    run: Option<String>,
    /// All locks that its runs hold, with --semaphore; may be given more than once
    #[arg(long = "lock", value_name = "NAME")]
    locks: Vec<Name>,
    /// All slots that its runs hold, with --lock; may be given more than once
    #[arg(long = "semaphore", value_name = "NAME[=WEIGHT]")]
    semaphores: Vec<String>,
    /// Remove all locks and slots
    #[arg(long, conflicts_with_all = ["locks", "semaphores"])]
    no_needs: bool,
    /// How many times a failed run is retried
    #[arg(long, value_name = "N", conflicts_with = "looped")]
    retries: Option<u32>,
    /// Retry until the task reports that it is done
    #[arg(long = "loop")]
    looped: bool,
    /// Remove the loop: one attempt, and --retries
    #[arg(long, conflicts_with = "looped")]
    no_loop: bool,
    /// Maximum number of attempts of a loop [default: loop.max_attempts]
    #[arg(long, value_name = "N", requires = "looped")]
    max_attempts: Option<NonZeroU32>,
    /// Delay between two attempts of a loop [default: loop.restart_delay]
    #[arg(long, value_name = "DUR", requires = "looped")]
    restart_delay: Option<Dur>,
    /// The status: in_progress (you work on it), completed, failed, review, skipped, pending or cancelled
    #[arg(long, value_name = "STATUS", value_parser = list::status)]
    status: Option<Status>,
    /// Even if its dependencies are not completed
    #[arg(long, requires = "status")]
    anyway: bool,
    /// The epoch of the claim that ends [default: your own claim]
    #[arg(long, value_name = "N", requires = "status")]
    epoch: Option<i64>,
    #[command(flatten)]
    claim: ClaimFlags,
}

impl Update {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        if let Some(status @ (Status::Blocked | Status::Stuck)) = self.status {
            return Err(Failure::usage(format!("--status {status}: this status is derived, and cannot be set")));
        }
        if self.status == Some(Status::Landing) {
            let hint = format!("to land its work: banksman land {}", self.task);
            return Err(Failure::usage("--status landing: the merge queue sets this status").hint(hint));
        }
        if let (Some(_), Some(status @ (Status::InProgress | Status::Cancelled))) = (self.epoch, self.status) {
            return Err(Failure::usage(format!("--epoch does not apply to --status {status}"))
                .hint("it names the claim that completed, failed, review, skipped or pending ends"));
        }
        let client = context.client()?;
        let mut reader = client.reader()?;
        let id = find::task_id(&mut reader, &self.task)?;
        let edit = self.edit(client.config(), &mut reader)?;
        if self.retries.is_some_and(|retries| retries > 0) && !self.no_loop && is_loop(&mut reader, &id)? {
            return Err(Failure::usage("--retries: a loop has no retries, only attempts")
                .hint("add --no-loop, or use --loop --max-attempts N"));
        }
        if edit.is_none() && self.status.is_none() {
            return Err(Failure::usage("nothing to change").hint("list the possible changes: banksman tasks update --help"));
        }
        let (status, is_edited, mut taken) = (self.status, edit.is_some(), None);
        match (edit, status) {
            (edit, Some(Status::InProgress)) => {
                taken = Some(self.claim.take(context, &client, &mut reader, &id, self.anyway, edit.as_ref())?);
            }
            (Some(edit), None) => change(&client, &id, edit)?,
            (edit, Some(status)) => {
                let by = claim::speaker(self.claim.holder.as_ref())?;
                let epoch = self.epoch.map(Epoch);
                if let Some(request) = status_request(status, &mut reader, id.clone(), by, epoch, self.anyway)? {
                    if let TaskRequest::Retry { .. } = request {
                        super::remove_done(&context.sessions(client.project()), &view::listed(&mut reader, &id)?.0.task)?;
                    }
                    // One command is one transaction.
                    let request = match edit {
                        Some(edit) => TaskRequest::Edited { edit: Box::new(edit), status, then: Box::new(request) },
                        None => request,
                    };
                    conclude(&client, &id, status, request)?;
                }
            }
            (None, None) => {}
        }
        let (listed, sections) = view::listed(&mut reader, &id)?;
        let view = TaskView::new(&listed, &sections);
        let stopping = if view.stopping { format!(", {YELLOW}being stopped{YELLOW:#}") } else { String::new() };
        let (title, status) = (&listed.task.spec.title, view::coloured(listed.status()));
        let by = claim::grant_words(&listed.task);
        let name = format!("{BOLD}{title}{BOLD:#} {DIM}{id}{DIM:#}");
        let what = match taken.as_ref().and_then(Taken::already_yours) {
            Some(already_yours) if is_edited => format!("updated {name}, which {already_yours}"),
            Some(already_yours) => format!("{name} {already_yours}"),
            None => format!("updated {name}"),
        };
        let human = format!("{what}: {status}{by}{stopping}");
        let outcome = taken.as_ref().map_or("updated", Taken::outcome);
        context.printer.result(&Updated { task: view, outcome }, human)
    }

    /// The edit from the arguments, if there is one.
    fn edit(&self, config: &Config, reader: &mut Reader) -> Result<Option<Edit>, Failure> {
        let section = match (&self.section, self.no_section) {
            (Some(name), _) => Some(Some(find::section(reader, name)?.id)),
            (None, true) => Some(None),
            (None, false) => None,
        };
        let labels = if self.no_labels { Some(Vec::new()) } else { self.labels.clone().map(spec::labels).transpose()? };
        let depends_on =
            self.depends_on.as_deref().map(|lists| task_args::edges(reader, lists, self.allow_failed)).transpose()?;
        let edit = Edit {
            title: self.title.clone(),
            section,
            priority: self.priority,
            labels,
            depends_on,
            work: self.run.as_deref().map(|run| spec::work(run).map(Some).map_err(|error| error.at("--run"))).transpose()?,
            needs: self.needs()?,
            retries: self.retries,
            restart: self.restart(config),
            ..Edit::default()
        };
        Ok((edit != Edit::default()).then_some(edit))
    }

    /// The new needs, if they change.
    fn needs(&self) -> Result<Option<Vec<Need>>, Failure> {
        if self.locks.is_empty() && self.semaphores.is_empty() {
            return Ok(self.no_needs.then(Vec::new));
        }
        spec::named_needs(&self.locks, &self.semaphores).map(Some)
    }

    /// The new retry policy, if it changes.
    fn restart(&self, config: &Config) -> Option<Option<Policy>> {
        let policy = || Policy {
            max_attempts: self.max_attempts.unwrap_or(config.restart.max_attempts),
            delay: self.restart_delay.map_or(config.restart.delay, Dur::span),
            ..config.restart.clone()
        };
        match (self.looped, self.no_loop) {
            (true, _) => Some(Some(policy())),
            (false, true) => Some(None),
            (false, false) => None,
        }
    }
}

fn is_loop(reader: &mut Reader, id: &TaskId) -> Result<bool, Failure> {
    Ok(view::listed(reader, id)?.0.task.spec.restart.is_some())
}

/// Applies an edit.
fn change(client: &Client, id: &TaskId, edit: Edit) -> Result<(), Failure> {
    match client.request(TaskRequest::Update { id: id.clone(), edit: Box::new(edit) })? {
        TaskOutcome::Kept(_) => Ok(()),
        TaskOutcome::Locked(locked_by) => {
            let hint = format!("to change its section or its needs, release it first: banksman tasks release {id}");
            Err(claim::locked(id, &locked_by).hint(hint))
        }
        outcome => Err(refused(id, &outcome)),
    }
}

/// Sends a request that changes the status.
fn conclude(client: &Client, id: &TaskId, status: Status, request: TaskRequest) -> Result<(), Failure> {
    match client.request(request)? {
        TaskOutcome::Stepped(
            Outcome::Ended(_)
            | Outcome::Marked(_)
            | Outcome::Clear
            | Outcome::Returned
            | Outcome::Stopping
            | Outcome::NotPending(Status::Pending),
            _,
        ) => Ok(()),
        // The task has this status already.
        TaskOutcome::Stepped(Outcome::Over(found), _) if found == status => Ok(()),
        outcome => Err(refused(id, &outcome)),
    }
}

/// The request that leads to a status.
fn status_request(
    status: Status,
    reader: &mut Reader,
    id: TaskId,
    by: Option<HolderId>,
    epoch: Option<Epoch>,
    anyway: bool,
) -> Result<Option<TaskRequest>, Failure> {
    let finish = |id, verdict| TaskRequest::Finish { id, by: by.clone(), epoch, anyway, verdict };
    Ok(Some(match status {
        Status::Completed => finish(id, Verdict::Done { output: None }),
        Status::Failed => finish(id, Verdict::Failed { error: DEFAULT_ERROR.into() }),
        Status::Review => TaskRequest::Set { id, by, epoch, mark: Mark::Review },
        Status::Skipped => TaskRequest::Set { id, by, epoch, mark: Mark::Skipped },
        Status::Pending => {
            let rows = reader.view().load(&[Key::Task(id.clone())].into())?;
            let state = rows.backlog.tasks.get(&id).map(|task| &task.state);
            // An epoch names a claim, even if that is over.
            if epoch.is_some() || matches!(state, Some(State::Manual { .. })) {
                TaskRequest::GiveBack { id, by, epoch }
            } else {
                TaskRequest::Retry { id }
            }
        }
        Status::Cancelled => TaskRequest::Cancel { id },
        Status::InProgress | Status::Blocked | Status::Stuck | Status::Landing => return Ok(None),
    }))
}
