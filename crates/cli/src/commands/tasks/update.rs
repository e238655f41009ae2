use banksman::core::task::{Mark, Outcome, Verdict};
use banksman::core::{Label, Status, TaskId, Title};
use banksman::engine::{Edit, TaskOutcome, TaskRequest};
use banksman::store::Reader;
use clap::Args;

use super::refused::refused;
use super::{add, list, spec, view};
use crate::commands::{Done, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, YELLOW};

/// What is kept of a task that a person calls failed without a word.
const BY_HAND: &str = "said to have failed, by hand";

/// Change a task.
///
/// A task that a run is at keeps its section and its dependencies, and only that run says how it ends.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks update 'Release' --priority 5 --depends-on 'Run the tests,Write the notes'\n  banksman tasks update t-7k2m9q1a --status skipped\n  banksman tasks update t-7k2m9q1a --depends-on ''"
)]
pub(super) struct Update {
    /// The task
    task: String,
    /// What people call it
    #[arg(long, value_name = "TITLE")]
    title: Option<Title>,
    /// The section it belongs to
    #[arg(long, value_name = "SECTION")]
    section: Option<String>,
    /// It belongs to no section
    #[arg(long, conflicts_with = "section")]
    no_section: bool,
    /// Higher comes first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// All that must be completed first, separated by commas; '' for nothing
    #[arg(long, value_name = "TASKS")]
    depends_on: Option<Vec<String>>,
    /// It is enough that those are over, however they ended
    #[arg(long, requires = "depends_on")]
    allow_failed: bool,
    /// All its labels; may be given more than once
    #[arg(long = "label", value_name = "LABEL")]
    labels: Option<Vec<Label>>,
    /// It has no labels
    #[arg(long, conflicts_with = "labels")]
    no_labels: bool,
    /// How it stands: completed, failed, review, skipped, pending or cancelled
    #[arg(long, value_name = "STATUS", value_parser = list::status)]
    status: Option<Status>,
}

impl Update {
    pub(super) fn run(self, context: &Context) -> Done {
        let wish = self.status.map(wish).transpose()?;
        let client = context.client()?;
        let mut reader = client.reader()?;
        let id = find::task_id(&mut reader, &self.task)?;
        let edit = self.edit(&mut reader)?;
        if edit.is_none() && wish.is_none() {
            return Err(Failure::usage("nothing to change").hint("banksman tasks update --help lists what can be changed"));
        }
        if let Some(edit) = edit {
            match super::ask(&client, TaskRequest::Update { id: id.clone(), edit: Box::new(edit) })? {
                TaskOutcome::Kept(_) => {}
                outcome => return Err(refused(&id, &outcome)),
            }
        }
        if let Some(wish) = wish {
            match super::ask(&client, wish(id.clone()))? {
                TaskOutcome::Stepped(
                    Outcome::Ended(_)
                    | Outcome::Marked(_)
                    | Outcome::Again
                    | Outcome::Stopping
                    | Outcome::NotPending(Status::Pending),
                    _,
                ) => {}
                // What is asked for is so already.
                TaskOutcome::Stepped(Outcome::Over(status), _) if Some(status) == self.status => {}
                outcome => return Err(refused(&id, &outcome)),
            }
        }
        let (listed, sections) = view::listed(&mut reader, &id)?;
        let data = view::task_json(&listed, &sections);
        let stopping = if data["stopping"] == true { format!(", {YELLOW}being stopped{YELLOW:#}") } else { String::new() };
        let (title, status) = (&listed.task.spec.title, view::coloured(listed.status()));
        context.printer.result(data, format!("updated {BOLD}{title}{BOLD:#} {DIM}{id}{DIM:#}: {status}{stopping}"));
        Ok(exit::OK)
    }

    /// What is different, if anything is.
    fn edit(&self, reader: &mut Reader) -> Result<Option<Edit>, Failure> {
        let section = match (&self.section, self.no_section) {
            (Some(name), _) => Some(Some(find::section(reader, name)?.id)),
            (None, true) => Some(None),
            (None, false) => None,
        };
        let labels = if self.no_labels { Some(Vec::new()) } else { self.labels.clone().map(spec::labels).transpose()? };
        let depends_on = self.depends_on.as_deref().map(|lists| add::edges(reader, lists, self.allow_failed)).transpose()?;
        let edit = Edit { title: self.title.clone(), section, priority: self.priority, labels, depends_on };
        let Edit { title, section, priority, labels, depends_on } = &edit;
        let any = title.is_some() || section.is_some() || priority.is_some() || labels.is_some() || depends_on.is_some();
        Ok(any.then_some(edit))
    }
}

/// What to ask of a task so that it stands so.
fn wish(status: Status) -> Result<fn(TaskId) -> TaskRequest, Failure> {
    Ok(match status {
        Status::Completed => |id| TaskRequest::Conclude { id, epoch: None, verdict: Verdict::Done { output: None } },
        Status::Failed => |id| TaskRequest::Conclude { id, epoch: None, verdict: Verdict::Failed { error: BY_HAND.into() } },
        Status::Review => |id| TaskRequest::Set { id, mark: Mark::Review },
        Status::Skipped => |id| TaskRequest::Set { id, mark: Mark::Skipped },
        Status::Pending => |id| TaskRequest::Retry { id },
        Status::Cancelled => |id| TaskRequest::Cancel { id },
        Status::InProgress => {
            return Err(
                Failure::usage("--status in_progress: work by hand is not there yet").hint("a runner starts tasks: banksman run")
            );
        }
        Status::Blocked | Status::Stuck => {
            return Err(Failure::usage(format!("--status {status}: that follows from how things are, and cannot be set")));
        }
    })
}
