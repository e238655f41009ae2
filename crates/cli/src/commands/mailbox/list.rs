use banksman_core::mailbox::{Delivery, Receipt};
use banksman_core::{MessageId, Status, Task};
use banksman_store::{Key, Reader};
use clap::Args;

use crate::commands::send::has_ended_well;
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::table::TableFlags;
use crate::terminal::{Style, cut};
use crate::views::Named;
use crate::views::bus::DeliveryView;

/// The columns of a list of messages.
const COLUMNS: [&str; 6] = ["ID??", "RECEIPT", "TO~", "RUN???", "FROM????", "TEXT~?"];

/// The number of deliveries shown without `--task`.
const LAST: i64 = 50;

/// The width of a text, also if the output is not a terminal.
const TEXT: usize = 200;

/// List messages that were sent to tasks, newest first, with their receipts.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman mailbox list\n  banksman mailbox list --task 'Add login' --json")]
pub(super) struct List {
    /// Only unacknowledged messages to this task
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    #[command(flatten)]
    table: TableFlags,
}

/// Show the delivery status of a message.
///
/// queued: in the mailbox. sent: passed to a run. delivered: written into the session. read: acknowledged by the run. undelivered: the task
/// ended before a run acknowledged the message. unknown: the sending process died; the message is not sent again.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman mailbox show m-7k2m9q1a --json")]
pub(super) struct Show {
    /// The id of the message
    id: MessageId,
}

impl List {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let mut reader = context.reader()?;
        let deliveries = match &self.task {
            Some(name) => {
                let task = find::task_id(&mut reader, name)?;
                let mut open = reader.view().mailbox(&task)?;
                open.reverse();
                open
            }
            None => reader.view().last_deliveries(LAST)?,
        };
        let seen = deliveries.into_iter().map(|delivery| Entry::read(delivery, &mut reader)).collect::<Result<Vec<_>, _>>()?;
        let human = match seen.is_empty() {
            true => format!("no messages\n{DIM}send one with: banksman send TASK TEXT{DIM:#}"),
            false => self.table.render(&COLUMNS, seen.iter().map(Entry::row).collect())?,
        };
        context.printer.result(&Named("messages", seen.iter().map(Entry::view).collect::<Vec<_>>()), human)
    }
}

impl Show {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let mut reader = context.reader()?;
        let Some(delivery) = reader.view().delivery(&self.id)? else {
            let failure =
                Failure::new(exit::NOT_FOUND, "MESSAGE_NOT_FOUND", format!("there is no message {} to a task", self.id));
            return Err(failure.detail("message", &self.id).hint("list the latest messages: banksman mailbox list"));
        };
        let seen = Entry::read(delivery, &mut reader)?;
        let style = style(seen.receipt);
        let to = seen.title.as_deref().unwrap_or(seen.delivery.target.as_str());
        let run = seen.delivery.run().map(|run| format!(", run {run}")).unwrap_or_default();
        let human = format!("{style}{}{style:#}: {BOLD}{}{BOLD:#} to {to}{run}", seen.receipt.as_str(), self.id);
        context.printer.result(&seen.view(), human)
    }
}

/// A delivery with its receipt and its message.
struct Entry {
    delivery: Delivery,
    receipt: Receipt,
    title: Option<String>,
    author: String,
    body: String,
}

impl Entry {
    fn read(delivery: Delivery, reader: &mut Reader) -> Result<Entry, Failure> {
        let mut rows = reader.view().load(&[Key::Task(delivery.target.clone())].into())?.tables.backlog.tasks;
        let task: Option<Task> = rows.remove(&delivery.target);
        let status: Option<Status> = task.as_ref().map(Task::status);
        let draft = reader.view().message(&delivery.id)?.map(|message| message.draft);
        Ok(Entry {
            receipt: delivery.receipt(status, has_ended_well(reader, &delivery)?),
            title: task.map(|task| task.spec.title.to_string()),
            author: draft.as_ref().map(|draft| draft.author.to_string()).unwrap_or_default(),
            body: draft.map(|draft| draft.body.to_string()).unwrap_or_default(),
            delivery,
        })
    }

    fn view(&self) -> DeliveryView<'_> {
        DeliveryView::new(&self.delivery, self.receipt, &self.author)
    }

    fn row(&self) -> Vec<String> {
        let style = style(self.receipt);
        vec![
            self.delivery.id.to_string(),
            format!("{style}{}{style:#}", self.receipt.as_str()),
            self.title.clone().unwrap_or_else(|| self.delivery.target.to_string()),
            self.delivery.run().map(ToString::to_string).unwrap_or_default(),
            self.author.clone(),
            cut(self.body.lines().next().unwrap_or_default(), TEXT),
        ]
    }
}

fn style(receipt: Receipt) -> Style {
    match receipt {
        Receipt::Queued | Receipt::Sent => YELLOW,
        Receipt::Delivered | Receipt::Read => GREEN,
        Receipt::Undelivered | Receipt::Unknown => RED,
    }
}
