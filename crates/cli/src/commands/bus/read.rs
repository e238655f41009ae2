use std::os::fd::AsFd;

use banksman_core::Seq;
use banksman_core::bus::MessageType;
use banksman_runtime::{BusFollower, BusReader};
use banksman_store::MessageFilter;
use clap::Args;
use serde::Serialize;

use super::message_line;
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::DIM;
use crate::signals::Signals;
use crate::views::bus::MessageView;

/// Read messages, oldest first.
///
/// Includes messages that are derived from the event log, with `banksman` as their author: what a task waits for (PROGRESS), the end of
/// the wait and the end of the task (FACT). `bus stats` does not count them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman bus read --last 20\n  banksman bus read --follow --type QUESTION --type ERROR\n  banksman bus read --since 1234 --task 'Add login' --json"
)]
pub(super) struct Read {
    /// Follow: also print new messages as they are posted
    #[arg(short, long)]
    follow: bool,
    /// Only messages after this number
    #[arg(long, value_name = "SEQ")]
    since: Option<i64>,
    /// Only the last N messages
    #[arg(long, value_name = "N", conflicts_with_all = ["since", "limit"])]
    last: Option<usize>,
    /// Only the first N messages
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    limit: Option<usize>,
    #[command(flatten)]
    which: Which,
}

/// Which messages.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Only messages of this type; may be given several times
    #[arg(long = "type", value_name = "TYPE")]
    kinds: Vec<MessageType>,
    /// Only messages about this task
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
}

impl Which {
    pub(super) fn filter(&self, context: &Context) -> Result<MessageFilter, Failure> {
        let task = self.task.as_deref().map(|name| find::task_id(&mut context.reader()?, name)).transpose()?;
        Ok(MessageFilter { kinds: self.kinds.clone(), task })
    }
}

/// A part of the bus.
#[derive(Serialize)]
struct Messages<'a> {
    messages: Vec<MessageView<'a>>,
}

impl Read {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let filter = self.which.filter(context)?;
        let mut bus = BusReader::new(project.reader()?, filter, Seq(self.since.unwrap_or(0)));
        let mut messages = match self.last {
            Some(last) => bus.last(last)?,
            None => Vec::new(),
        };
        if self.follow {
            let signals = Signals::install()?;
            let mut follower = BusFollower::open(&project, bus)?;
            loop {
                for message in &messages {
                    match context.printer.json {
                        true => context.printer.view(&MessageView::from(message)),
                        false => context.printer.line(&message_line(message)),
                    }
                }
                messages = follower.next(signals.as_fd())?.ok_or_else(Failure::interrupted)?;
            }
        }
        while self.last.is_none() && self.limit.is_none_or(|limit| messages.len() < limit) {
            let page = bus.next_page()?;
            if page.is_empty() {
                break;
            }
            messages.extend(page);
        }
        messages.truncate(self.limit.unwrap_or(usize::MAX));
        let human = match messages.is_empty() {
            true => format!("{DIM}no messages{DIM:#}"),
            false => messages.iter().map(message_line).collect::<Vec<_>>().join("\n"),
        };
        context.printer.result(&Messages { messages: messages.iter().map(MessageView::from).collect() }, human)
    }
}
