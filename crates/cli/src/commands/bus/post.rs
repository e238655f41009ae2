use std::io::{BufRead, Read as _};

use banksman_adapters::ids;
use banksman_core::bus::{BODY_LIMIT, Draft, MessageType};
use banksman_core::mailbox::MAILBOX_LIMIT;
use banksman_core::{HolderId, MessageId};
use banksman_engine::PostOutcome;
use banksman_runtime::{Client, PostError, caller};
use clap::Args;
use serde::Serialize;

use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;

/// Post a message.
///
/// The message is durable when the command returns. Posting the same message with the same --id again changes nothing, so a command with an
/// unknown outcome can be repeated. While other processes keep the store busy, the command retries: see bus.lock_timeout, bus.attempts
/// and bus.retry_backoff.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman bus post INFO 'the cache is warm'\n  git log -1 | banksman bus post FACT - --task 'Add login'\n  tail -f build.log | banksman bus post PROGRESS --lines\n  banksman bus post ANSWER 'port 8080' --reply-to m-7k2m9q1a --attach docs/ports.md"
)]
pub(super) struct Post {
    /// FACT, PROGRESS, QUESTION, ANSWER, DECISION, ERROR, INFO, or a type of your own
    #[arg(value_name = "TYPE")]
    kind: MessageType,
    /// The text; - reads it from stdin
    #[arg(default_value = "")]
    body: String,
    /// Post each line of stdin as a separate message as it arrives, and print its number once it is durable
    #[arg(long, conflicts_with_all = ["body", "attachments"])]
    lines: bool,
    /// The task that the message is about [default: $BANKSMAN_TASK]
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// The message to answer
    #[arg(long, value_name = "ID")]
    reply_to: Option<MessageId>,
    /// A file to attach; only its path is stored
    #[arg(long = "attach", value_name = "PATH")]
    attachments: Vec<String>,
    /// The id of the message; the same message with the same id is posted only once. With --lines, the ids are ID-1, ID-2 and so on [default: a new id]
    #[arg(long, value_name = "ID")]
    id: Option<MessageId>,
    /// The author [default: $BANKSMAN_HOLDER, or the user]
    #[arg(long, value_name = "NAME")]
    author: Option<HolderId>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Posted<'a> {
    seq: banksman_core::Seq,
    id: &'a MessageId,
    is_new: bool,
}

impl Post {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let body = if self.body == "-" { stdin()? } else { self.body };
        if body.is_empty() && self.attachments.is_empty() && !self.lines {
            return Err(Failure::usage("a message needs a body").hint("pass a text, or pipe it in: banksman bus post INFO -"));
        }
        let client = context.client()?;
        let calling = caller::run()?;
        let task = match &self.task {
            Some(name) => Some(find::task_id(&mut client.reader()?, name)?),
            None => calling.as_ref().map(|calling| calling.task.clone()),
        };
        let author = match self.author {
            Some(author) => author.to_string(),
            None => caller::holder()?.map_or_else(|| caller::actor().user.to_string(), |caller| caller.holder.to_string()),
        };
        let id = self.id.unwrap_or_else(|| MessageId::new(&format!("m-{}", ids::random(16))).expect("a short plain name"));
        let attachments = self.attachments.into_iter().map(Into::into).collect();
        let (run, parent, body) = (calling.and_then(|calling| calling.run), self.reply_to, body.into());
        let draft = Draft { id: id.clone(), kind: self.kind, task, run, author: author.into(), parent, body, attachments };
        if self.lines {
            return post_lines(context, &client, &draft);
        }
        let (seq, is_new) = match client.post(draft).map_err(|error| failure(error, &id))? {
            PostOutcome::Posted(seq) => (seq, true),
            PostOutcome::AlreadyPosted(seq) => (seq, false),
            refused => return Err(self::refused(refused, &id)),
        };
        let human =
            if is_new { format!("posted {id} as number {seq}") } else { format!("{id} was posted before, as number {seq}") };
        context.printer.result(&Posted { seq, id: &id, is_new }, human)
    }
}

/// Posts each line of stdin as a message with the other fields of `rest`.
fn post_lines(context: &Context, client: &Client, rest: &Draft) -> ExitResult {
    let mut input = std::io::stdin().lock();
    let mut number = 0_u64;
    while let Some(line) = next_line(&mut input)? {
        number += 1;
        let id = MessageId::new(&format!("{}-{number}", rest.id)).map_err(Failure::usage)?;
        // An empty body would be refused.
        let body = if line.is_empty() { " ".into() } else { line.into() };
        let draft = Draft { id: id.clone(), body, ..rest.clone() };
        match client.post(draft).map_err(|error| failure(error, &id))? {
            PostOutcome::Posted(seq) => print_posted(context, seq, &id, true),
            PostOutcome::AlreadyPosted(seq) => print_posted(context, seq, &id, false),
            refused => return Err(self::refused(refused, &id)),
        }
    }
    Ok(exit::OK)
}

fn print_posted(context: &Context, seq: banksman_core::Seq, id: &MessageId, is_new: bool) {
    match context.printer.json {
        true => context.printer.view(&Posted { seq, id, is_new }),
        false => context.printer.line(&seq.to_string()),
    }
}

/// The text of stdin.
pub(crate) fn stdin() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    read(std::io::stdin().lock().take(BODY_LIMIT as u64 + 1).read_to_end(&mut bytes))?;
    text(bytes)
}

/// The next line, without its line ending.
fn next_line(input: &mut impl BufRead) -> Result<Option<String>, Failure> {
    let mut bytes = Vec::new();
    read(input.take(BODY_LIMIT as u64 + 2).read_until(b'\n', &mut bytes))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    text(line.strip_suffix(b"\r").unwrap_or(line).to_vec()).map(Some)
}

fn read(result: std::io::Result<usize>) -> Result<usize, Failure> {
    result.map_err(|error| Failure::system("read the body from stdin", error))
}

fn text(bytes: Vec<u8>) -> Result<String, Failure> {
    // A body that is too long may be truncated within a character.
    if bytes.len() > BODY_LIMIT {
        return Err(Failure::usage(format!("the body of a message may have at most {BODY_LIMIT} bytes, this one has more")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let failure = Failure::usage(format!("the body of a message must be UTF-8 (byte {at} is not)"));
        failure.hint("name the file that it comes from instead: --attach PATH")
    })
}

pub(crate) fn failure(error: PostError, id: &MessageId) -> Failure {
    let message = error.to_string();
    match error {
        PostError::Draft(_) => Failure::usage(message),
        PostError::LockTimeout { attempts, waited } => Failure::new(exit::LOCKED, "BUS_LOCK_TIMEOUT", message)
            .detail("attempts", &attempts)
            .detail("waitedMs", &u64::try_from(waited.as_millis()).unwrap_or(u64::MAX))
            .hint("the message was not posted; retry, or check the store with: banksman doctor"),
        PostError::Shell(error) => {
            let failure = Failure::from(error);
            if failure.code == "STORE_UNKNOWN" {
                failure.hint(format!("retry with --id {id}: the message is not posted twice"))
            } else {
                failure
            }
        }
    }
}

pub(crate) fn refused(outcome: PostOutcome, id: &MessageId) -> Failure {
    match outcome {
        PostOutcome::IdTaken(seq) => {
            Failure::new(exit::USAGE, "MESSAGE_ID_TAKEN", format!("id {id} belongs to another message, number {seq}"))
                .detail("seq", &seq)
                .hint("choose another id, or omit it")
        }
        PostOutcome::UnknownTask(task) => {
            Failure::new(exit::NOT_FOUND, "TASK_NOT_FOUND", format!("there is no task {task}")).detail("task", &task)
        }
        PostOutcome::UnknownParent(parent) => {
            Failure::new(exit::NOT_FOUND, "MESSAGE_NOT_FOUND", format!("there is no message {parent} to answer"))
                .detail("message", &parent)
        }
        PostOutcome::Fenced(run) => Failure::new(exit::FENCED, "FENCED", format!("run {run} has ended and cannot post messages"))
            .detail("run", &run)
            .hint("outside of the run: unset BANKSMAN_RUN BANKSMAN_RUN_EPOCH"),
        PostOutcome::TargetOver(task, status) => {
            Failure::new(exit::USAGE, "TARGET_OVER", format!("task {task} is {status}: no run would read the message"))
                .detail("task", &task)
                .hint(format!("retry it first: banksman tasks retry {task}"))
        }
        PostOutcome::MailboxFull(task) => Failure::new(
            exit::LOCKED,
            "MAILBOX_FULL",
            format!("the mailbox of task {task} is full: it holds {MAILBOX_LIMIT} messages"),
        )
        .detail("task", &task)
        .hint(format!("list them: banksman mailbox list --task {task}")),
        other @ (PostOutcome::Posted(_) | PostOutcome::AlreadyPosted(_)) => Failure::unexpected(&other),
    }
}
