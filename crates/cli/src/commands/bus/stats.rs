use banksman_core::Span;
use clap::Args;

use crate::commands::ExitResult;
use crate::context::Context;
use crate::format;
use crate::printer::{BOLD, DIM};
use crate::table;
use crate::views::bus::{BusStats, TypeView};

/// Count the messages, and show how long their senders waited for the store.
///
/// Every attempt after the first is a retry: another process held the store for longer than bus.lock_timeout. Messages that could not be
/// posted are not on the bus and are not counted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman bus stats\n  banksman bus stats --json")]
pub(super) struct Stats {}

impl Stats {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let counts = context.reader()?.view().message_counts()?;
        let view = BusStats::from(&counts[..]);
        let row = |of: &TypeView| {
            let numbers = [of.messages, of.attempts - of.messages].map(|number| number.to_string());
            let [messages, retries] = numbers;
            let wait = |ms: u64| format::span(Span::from_ms(i64::try_from(ms).unwrap_or(i64::MAX)));
            vec![
                format!("{BOLD}{}{BOLD:#}", of.kind),
                messages,
                retries,
                wait(of.waited_ms),
                wait(of.longest_wait_ms),
                format::bytes(of.bytes),
            ]
        };
        let human = match view.types.is_empty() {
            true => format!("{DIM}no messages{DIM:#}"),
            false => {
                table::render(&["TYPE", "MESSAGES", "RETRIES", "WAITED", "LONGEST", "SIZE"], view.types.iter().map(row).collect())
            }
        };
        context.printer.result(&view, human)
    }
}
