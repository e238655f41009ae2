//! Sends a message to a task or a run.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use banksman_adapters::ids;
use banksman_core::backlog::Run;
use banksman_core::bus::{Draft, Message, MessageType, derived};
use banksman_core::dispatch::{Mode, Plan, Refused};
use banksman_core::mailbox::{Delivery, Receipt};
use banksman_core::{HolderId, MessageId, Seq, Task, TaskId};
use banksman_engine::PostOutcome;
use banksman_runtime::{Client, SendError, caller};
use banksman_store::{Key, Reader};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::bus::{message_line, post_failure, post_refused, stdin};
use super::resources::Dur;
use super::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM};
use crate::signals::Signals;
use crate::views::bus::MessageView;

/// The default time to wait for a reply.
const REPLY: Duration = Duration::from_secs(600);

/// Send a message to a task: into its running session if that takes input, otherwise into its mailbox.
///
/// The message is durable when the command returns, and no run sees it twice. Show its delivery status: banksman mailbox show ID.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman send 'Add login' 'use port 8080, not 80'\n  banksman send r-7k2m9q1a 'stop after the first test'\n  git diff | banksman send 'Add login' - --mode follow-up\n  banksman send 'Add login' 'which port do you use?' --wants-reply --timeout 5m"
)]
pub(crate) struct Send {
    /// The task, or a live run
    target: String,
    #[command(flatten)]
    message: Body,
}

/// What is sent, and how.
#[derive(Debug, Args)]
pub(crate) struct Body {
    /// The text; - reads it from stdin
    text: String,
    /// When to deliver it: as soon as the session takes input, or with the next turn of an agent that takes messages, else to the next run
    #[arg(long, value_enum, default_value = "steer")]
    mode: ModeFlag,
    /// Wait for a reply: banksman bus post ANSWER … --reply-to ID
    #[arg(long)]
    wants_reply: bool,
    /// Maximum time to wait for the reply; then exit code 6 [default: 10m]
    #[arg(long, value_name = "DUR", requires = "wants_reply")]
    timeout: Option<Dur>,
    /// The id of the message; a message whose id was sent before is not sent again [default: a new id]
    #[arg(long, value_name = "ID")]
    id: Option<MessageId>,
    /// The author [default: $BANKSMAN_HOLDER, or the user]
    #[arg(long, value_name = "NAME")]
    author: Option<HolderId>,
    /// A file to attach; only its path is stored
    #[arg(long = "attach", value_name = "PATH")]
    attachments: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeFlag {
    Steer,
    FollowUp,
}

/// The JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SentView<'a> {
    seq: Seq,
    id: &'a MessageId,
    is_new: bool,
    task: &'a TaskId,
    plan: &'static str,
    receipt: Receipt,
    reply: Option<MessageView<'a>>,
}

impl Send {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let mut reader = client.reader()?;
        // Only ids of runs start with `r-`.
        let runs = if self.target.starts_with("r-") { reader.view().find_runs(&self.target)? } else { Vec::new() };
        let target = match runs.is_empty() {
            true => find::task_id(&mut reader, &self.target)?,
            false => return self.message.send_to_run(context, &client, &self.target),
        };
        self.message.send(context, &client, &mut reader, &target)
    }
}

impl Body {
    /// Sends the message to the task of a live run.
    pub(crate) fn send_to_run(self, context: &Context, client: &Client, name: &str) -> ExitResult {
        let mut reader = client.reader()?;
        let run = find::run(&mut reader, name)?;
        if !run.is_live() {
            let failure =
                Failure::new(exit::NOT_FOUND, "SESSION_ENDED", format!("run {} has ended", run.id)).detail("run", &run.id);
            return Err(failure.hint(format!("send it to the task: banksman send {} …", run.task)));
        }
        self.send(context, client, &mut reader, &run.task)
    }

    fn send(self, context: &Context, client: &Client, reader: &mut Reader, target: &TaskId) -> ExitResult {
        let signals = Signals::install()?;
        let until = Instant::now() + self.timeout.map_or(REPLY, |timeout| timeout.0);
        let (wants_reply, mode) = (self.wants_reply, self.mode);
        let draft = self.draft(target)?;
        let id = draft.id.clone();
        let mode = match mode {
            ModeFlag::Steer => Mode::Steer,
            ModeFlag::FollowUp => Mode::FollowUp,
        };
        let sent = client.send(draft.clone(), target, mode).map_err(|error| failure(error, target, &id))?;
        let (seq, is_new) = match sent.post {
            PostOutcome::Posted(seq) => (seq, true),
            PostOutcome::AlreadyPosted(seq) => (seq, false),
            refused => return Err(post_refused(refused, &id)),
        };
        let (receipt, delivery, task) = receipt(reader, &id, target)?;
        let mut human = said(receipt, &id, delivery.as_ref(), task.as_ref());
        let mut reply: Option<Message> = None;
        if wants_reply {
            reply = client.wait_for_reply(&draft, seq, Some(until), Some(signals.as_fd()))?;
            let no_reply = |message: String, receipt: Receipt| {
                let failure = Failure::new(exit::LOCKED, "NO_REPLY", message).detail("message", &id).detail("receipt", &receipt);
                failure.hint(format!("delivery status: banksman mailbox show {id}"))
            };
            let Some(reply) = &reply else {
                if Instant::now() < until {
                    return Err(Failure::interrupted());
                }
                return Err(no_reply(format!("message {id} was not answered in time"), receipt));
            };
            // A reply from the bus itself says that the message could not be delivered.
            if is_returned(reply) {
                return Err(no_reply(format!("no reply to {id}: {}", reply.draft.body), Receipt::Undelivered));
            }
            human.push_str(&format!("\n{}", message_line(reply)));
        }
        let plan = match sent.plan {
            Plan::ControlSocket { .. } => "control_socket",
            Plan::Spawn => "spawn",
            Plan::Mailbox => "mailbox",
        };
        let reply = reply.as_ref().map(MessageView::from);
        context.printer.result(&SentView { seq, id: &id, is_new, task: target, plan, receipt, reply }, human)
    }

    fn draft(self, target: &TaskId) -> Result<Draft, Failure> {
        let body = if self.text == "-" { stdin()? } else { self.text };
        let author = match self.author {
            Some(author) => author.to_string(),
            None => caller::holder()?.map_or_else(|| caller::actor().user.to_string(), |caller| caller.holder.to_string()),
        };
        let id = self.id.unwrap_or_else(|| MessageId::new(&format!("m-{}", ids::random(16))).expect("a short plain name"));
        let kind = MessageType::new(if self.wants_reply { "QUESTION" } else { "INFO" }).expect("a known word");
        let run = caller::run()?.and_then(|calling| calling.run);
        let attachments = self.attachments.into_iter().map(Into::into).collect();
        Ok(Draft {
            id,
            kind,
            task: Some(target.clone()),
            run,
            author: author.into(),
            parent: None,
            body: body.into(),
            attachments,
        })
    }
}

/// The receipt of a message, with its delivery and its task.
fn receipt(reader: &mut Reader, id: &MessageId, target: &TaskId) -> Result<(Receipt, Option<Delivery>, Option<Task>), Failure> {
    let mut tasks = reader.view().load(&[Key::Task(target.clone())].into())?.tables.backlog.tasks;
    let task = tasks.remove(target);
    let delivery = reader.view().delivery(id)?;
    let status = task.as_ref().map(Task::status);
    let receipt = match &delivery {
        Some(delivery) => delivery.receipt(status, has_ended_well(reader, delivery)?),
        None => Receipt::Queued,
    };
    Ok((receipt, delivery, task))
}

/// Whether the run that has the message has ended well.
pub(crate) fn has_ended_well(reader: &mut Reader, delivery: &Delivery) -> Result<bool, Failure> {
    let Some(run) = delivery.run() else { return Ok(false) };
    Ok(reader.view().load(&[Key::Run(run.clone())].into())?.backlog.runs.get(run).is_some_and(Run::has_ended_well))
}

/// Whether a reply says that the message could not be delivered.
fn is_returned(reply: &Message) -> bool {
    reply.draft.id.as_str().starts_with("undelivered-") && &*reply.draft.author == derived::AUTHOR
}

fn said(receipt: Receipt, id: &MessageId, delivery: Option<&Delivery>, task: Option<&Task>) -> String {
    let to = task.map(|task| task.spec.title.to_string()).unwrap_or_default();
    let run = delivery.and_then(Delivery::run).map(|run| format!(" {DIM}(run {run}){DIM:#}")).unwrap_or_default();
    let what = match receipt {
        Receipt::Queued => "queued: the next run reads it, or the current run with `banksman mailbox read`",
        Receipt::Sent => "sent: the session has not read all of it yet",
        Receipt::Delivered => "delivered: written into the session",
        Receipt::Read => "read",
        Receipt::Undelivered => "undelivered: the task has ended",
        Receipt::Unknown => "unknown: the session may or may not have received it; it is not sent again",
    };
    format!("{BOLD}{id}{BOLD:#} to {to}{run}\n{what}")
}

fn failure(error: SendError, target: &TaskId, id: &MessageId) -> Failure {
    let refused = |exit, code, message: String| Failure::new(exit, code, message).detail("task", target);
    match error {
        SendError::Refused(Refused::UnknownTarget) => {
            refused(exit::NOT_FOUND, "TASK_NOT_FOUND", format!("there is no task {target}"))
        }
        SendError::Refused(Refused::Over) => {
            refused(exit::USAGE, "TARGET_OVER", format!("task {target} has ended: no run would read the message"))
                .hint(format!("retry it first: banksman tasks retry {target}"))
        }
        SendError::Refused(Refused::Typing) => {
            refused(exit::LOCKED, "SESSION_BUSY", format!("a person is typing in the session of task {target}"))
                .hint("send it to the next run with: --mode follow-up")
        }
        SendError::Post(error) => post_failure(error, id),
        SendError::Shell(error) => Failure::from(error),
    }
}
