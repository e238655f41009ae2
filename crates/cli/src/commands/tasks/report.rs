//! Reports from runs about themselves, and from people about tasks without a run in progress.

use std::io::Read;

use banksman_core::task::{ERROR_LIMIT, OUTPUT_LIMIT, Outcome, Pulse, Task, Verdict};
use banksman_core::{Epoch, HolderId, Status, TaskId};
use banksman_engine::{TaskOutcome, TaskRequest};
use banksman_runtime::{Client, caller};
use banksman_store::{Key, Reader};
use clap::Args;
use serde_json::Value;

use super::refused::refused;
use super::{claim, view};
use crate::commands::find;
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM};
use crate::views::{Time, tasks as views};

/// Send a heartbeat for a run.
///
/// A run without heartbeats and without output for task.silence_timeout counts as stuck. A manual claim is renewed with everything
/// that was claimed with it; if a part of it was lost, the claim has ended and the exit status is 8.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman tasks heartbeat\n  banksman tasks heartbeat t-7k2m9q1a --epoch 42")]
pub(super) struct Heartbeat {
    #[command(flatten)]
    of: Of,
}

/// Report that a task is done, with an optional result.
///
/// Inside of a run the report takes effect when the run ends, whatever its exit status. Outside, for a task without a run in
/// progress, it takes effect at once: your claim ends with it, and an unclaimed task is claimed and ended in one step.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks done --output '{\"version\": \"1.2\"}'\n  jq . report.json | banksman tasks done --output -\n  banksman tasks done 'Decide about the name' --output '\"banksman\"'"
)]
pub(super) struct Done {
    #[command(flatten)]
    of: Of,
    /// The result, as JSON; - reads it from stdin
    #[arg(long, value_name = "JSON")]
    output: Option<String>,
    /// Even if its dependencies are not completed
    #[arg(long)]
    anyway: bool,
    /// Complete it without landing anything
    #[arg(long)]
    no_change: bool,
}

/// Report that a task has failed.
///
/// Inside of a run the report takes effect when the run ends, whatever its exit status; if the task has retries left, it is
/// retried. Outside, for a task without a run in progress, it takes effect at once.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman tasks fail --error 'the branch does not merge'")]
pub(super) struct Fail {
    #[command(flatten)]
    of: Of,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    error: String,
}

/// Ask a person a question, inside of a run.
///
/// The question is raised when the run ends, so end the run next: the task waits for the answer without a slot, and uses none of its
/// retries. The answer is in the prompt of the next run, whose agent continues its session, and in the file that BANKSMAN_LAST_RESULT
/// names. An agent that receives messages while it works only ends its turn: its session waits, and the answer starts its next turn.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks ask 'Which database?' --option SQLite --option PostgreSQL\n  banksman tasks ask 'What is the new address of the service?'"
)]
pub(super) struct Ask {
    /// The question
    question: String,
    /// A possible answer; without this option, any text is an answer
    #[arg(long = "option", value_name = "TEXT")]
    options: Vec<String>,
    /// The task [default: $BANKSMAN_TASK]
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// The epoch of the run [default: $BANKSMAN_RUN_EPOCH of $BANKSMAN_TASK]
    #[arg(long, value_name = "N")]
    epoch: Option<i64>,
}

const OPTIONS_LIMIT: usize = 20;

/// Which task, and which run of it.
#[derive(Debug, Args)]
struct Of {
    /// The task [default: $BANKSMAN_TASK]
    task: Option<String>,
    /// The epoch of the claim or of the run [default: your own claim, or $BANKSMAN_RUN_EPOCH of $BANKSMAN_TASK]
    #[arg(long, value_name = "N")]
    epoch: Option<i64>,
    /// The holder of the claim [default: $BANKSMAN_HOLDER, or USER@TERMINAL]
    #[arg(long, value_name = "NAME")]
    holder: Option<HolderId>,
}

impl Of {
    fn find(&self, reader: &mut Reader) -> Result<(TaskId, Option<Epoch>), Failure> {
        let inherited = super::inherited()?;
        let given = self.task.as_deref().map(|name| find::task_id(reader, name)).transpose()?;
        let missing =
            || Failure::usage("no task is given, and BANKSMAN_TASK is not set").hint("list all tasks: banksman tasks list");
        let id = given.or_else(|| inherited.as_ref().map(|(id, _)| id.clone())).ok_or_else(missing)?;
        let own = inherited.filter(|(own, _)| *own == id).map(|(_, epoch)| epoch);
        Ok((id, self.epoch.map(Epoch).or(own)))
    }
}

impl Heartbeat {
    pub(super) fn run(self, context: &Context) -> crate::commands::ExitResult {
        let client = context.client()?;
        let (id, epoch) = self.of.find(&mut client.reader()?)?;
        let given = self.of.epoch.map(Epoch);
        if let Some(done) = claim::heartbeat(context, &client, &id, self.of.holder.as_ref(), given)? {
            return Ok(done);
        }
        let epoch = epoch.map_or_else(|| Err(no_epoch(&client, &id)?), Ok::<_, Failure>)?;
        let watch = client.config().watch();
        let timeout = watch.timeout;
        let request = TaskRequest::Heartbeat { id: id.clone(), epoch, pulse: Pulse::Active, watch };
        let (outcome, task) = match client.request(request)? {
            TaskOutcome::Stepped(Outcome::Seen, task) => ("seen", task),
            TaskOutcome::Stepped(Outcome::Recovered, task) => ("recovered", task),
            outcome => return Err(refused(&id, &outcome)),
        };
        let expires_at = task.live().map(|live| Time(format::wall_of(live.seen.lease + timeout, live.seen)));
        let view = views::Heartbeat { id: &id, outcome, epoch, expires_at };
        context
            .printer
            .result(&view, format!("heartbeat recorded for {}: the next one is due in {}", name(&task), format::span(timeout)))
    }
}

/// The failure for a heartbeat without an epoch: the task may have no run.
fn no_epoch(client: &Client, id: &TaskId) -> Result<Failure, Failure> {
    let rows = client.reader()?.view().load(&[Key::Task(id.clone())].into())?;
    let is_live = rows.backlog.tasks.get(id).is_some_and(|task| task.live().is_some());
    Ok(match is_live {
        true => Failure::usage("--epoch is missing").hint(format!("the epoch of the run: banksman tasks show {id}")),
        false => Failure::usage(format!("{id} has no run and no claim")).hint(format!("to work on it: banksman tasks take {id}")),
    })
}

impl Done {
    pub(super) fn run(self, context: &Context) -> crate::commands::ExitResult {
        let output = self.output.as_deref().map(result).transpose()?;
        let verdict = if self.no_change { Verdict::NoChange { output } } else { Verdict::Done { output } };
        conclude(context, &self.of, self.anyway, verdict)
    }
}

impl Fail {
    pub(super) fn run(self, context: &Context) -> crate::commands::ExitResult {
        if self.error.trim().is_empty() {
            return Err(Failure::usage("--error must not be empty"));
        }
        if self.error.len() > ERROR_LIMIT {
            let bytes = self.error.len();
            return Err(Failure::usage(format!("--error may have at most {ERROR_LIMIT} bytes, this one has {bytes}")));
        }
        conclude(context, &self.of, true, Verdict::Failed { error: self.error.clone().into() })
    }
}

impl Ask {
    pub(super) fn run(self, context: &Context) -> crate::commands::ExitResult {
        let texts = || std::iter::once(&self.question).chain(&self.options);
        if texts().any(|text| text.trim().is_empty()) {
            return Err(Failure::usage("a question, and each of its answers, must not be empty"));
        }
        if let Some(long) = texts().find(|text| text.len() > ERROR_LIMIT) {
            let bytes = long.len();
            return Err(Failure::usage(format!(
                "a question, and each of its answers, may have at most {ERROR_LIMIT} bytes, not {bytes}"
            )));
        }
        if self.options.len() > OPTIONS_LIMIT {
            return Err(Failure::usage(format!("a question may offer at most {OPTIONS_LIMIT} answers")));
        }
        let of = Of { task: self.task, epoch: self.epoch, holder: None };
        let client = context.client()?;
        let (id, epoch) = of.find(&mut client.reader()?)?;
        let Some(number) = epoch else {
            return Err(Failure::usage(format!("only a run of {id} can ask"))
                .hint("inside of a run, BANKSMAN_TASK and BANKSMAN_RUN_EPOCH are set"));
        };
        let options: Vec<Box<str>> = self.options.iter().map(|option| option.as_str().into()).collect();
        let run = caller::run()?.and_then(|calling| calling.run);
        if let Some(run) = run
            && client.ask_live(&id, &run, number, &self.question, options.clone())?
        {
            let human = "asked: end your turn, the answer comes as your next message";
            return context.printer.result(&views::Concluded { id: &id, outcome: "noted", status: Status::InProgress }, human);
        }
        conclude(context, &of, true, Verdict::Ask { question: self.question.as_str().into(), options })
    }
}

/// A result from the command line, or from stdin, which has room for a large one.
fn result(text: &str) -> Result<Value, Failure> {
    let mut read = String::new();
    let text = if text == "-" {
        let limit = OUTPUT_LIMIT as u64 + 1;
        let reading = std::io::stdin().lock().take(limit).read_to_string(&mut read);
        reading.map_err(|error| Failure::system("read the result from stdin", error))?;
        read.trim_end()
    } else {
        text
    };
    if text.len() > OUTPUT_LIMIT {
        return Err(Failure::usage(format!("--output may have at most {OUTPUT_LIMIT} bytes, and this one has more"))
            .hint("put it into a file in $BANKSMAN_TASK_DIR, and pass its name"));
    }
    banksman_core::json::parse(text)
        .map_err(|error| Failure::usage(format!("--output: {error}")).hint(r#"for example: --output '{"version": "1.2"}'"#))
}

fn conclude(context: &Context, of: &Of, anyway: bool, verdict: Verdict) -> crate::commands::ExitResult {
    let client = context.client()?;
    let (id, epoch) = of.find(&mut client.reader()?)?;
    let what = match &verdict {
        Verdict::Done { .. } | Verdict::NoChange { .. } => "done",
        Verdict::Failed { .. } => "failed",
        Verdict::Ask { .. } => "asked",
        Verdict::Refused(_) => "refused",
        Verdict::Untrusted { .. } => "untrusted",
        Verdict::Agent(end) => end.verdict.as_str(),
    };
    let by = claim::speaker(of.holder.as_ref())?;
    let request = TaskRequest::Finish { id: id.clone(), by, epoch, anyway, verdict };
    let (outcome, task) = match client.request(request)? {
        TaskOutcome::Stepped(Outcome::Noted, task) => ("noted", task),
        TaskOutcome::Stepped(Outcome::Ended(_), task) => ("ended", task),
        outcome => return Err(refused(&id, &outcome)),
    };
    let human = if what == "asked" {
        format!("noted: {} waits for the answer when its run ends", name(&task))
    } else if outcome == "noted" {
        format!("noted: {} will be {what} when its run has ended", name(&task))
    } else {
        format!("{} is {}", name(&task), view::coloured(task.status()))
    };
    context.printer.result(&views::Concluded { id: &id, outcome, status: task.status() }, human)
}

fn name(task: &Task) -> String {
    format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", task.spec.title, task.id)
}
