//! The terms of a queue, and whether it is paused.

use banksman_core::Name;
use banksman_core::queue::{ATTEMPTS_LIMIT, Config, Input, LENGTH_LIMIT, Outcome};
use banksman_runbook::QueueTerms;
use banksman_store::Key;
use clap::Args;

use super::refusal;
use crate::commands::ExitResult;
use crate::commands::resources::Dur;
use crate::context::Context;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, YELLOW};
use crate::views::queues::{Defined, Paused};

/// Create a queue, or change its terms: options that are not given keep their values.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman queues define triage\n  banksman queues define builds --visibility-timeout 30m --max-attempts 5 --dead-letter broken"
)]
pub(super) struct Define {
    /// The queue
    name: Name,
    /// How long a taken item is reserved for its holder [default: queue.visibility_timeout, 5m]
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    visibility_timeout: Option<Dur>,
    /// Maximum attempts per item [default: queue.max_attempts, 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(ATTEMPTS_LIMIT)))]
    max_attempts: Option<u32>,
    /// The queue for dead items; without it, they stay in this queue
    #[arg(long, value_name = "QUEUE", conflicts_with = "no_dead_letter")]
    dead_letter: Option<Name>,
    /// Keep dead items in this queue
    #[arg(long)]
    no_dead_letter: bool,
    /// Maximum number of items [default: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(LENGTH_LIMIT)))]
    max_length: Option<u32>,
}

/// Pause a queue until it is resumed. Items that were taken can be completed.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman queues pause triage")]
pub(super) struct Pause {
    /// The queue
    queue: Name,
}

/// Resume a queue.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman queues resume triage")]
pub(super) struct Resume {
    /// The queue
    queue: Name,
}

impl Define {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let there = client.reader()?.view().load(&[Key::NamedQueue(self.name.clone())].into())?.queues.queues.remove(&self.name);
        let before = there.map_or_else(|| client.config().queue(&QueueTerms::default()), |queue| queue.config);
        let visibility = self.visibility_timeout.map(|visibility| visibility.positive("--visibility-timeout")).transpose()?;
        let config = Config {
            visibility_timeout: visibility.unwrap_or(before.visibility_timeout),
            max_attempts: self.max_attempts.unwrap_or(before.max_attempts),
            dead_letter: self.dead_letter.or(before.dead_letter).filter(|_| !self.no_dead_letter),
            max_length: self.max_length.unwrap_or(before.max_length),
        };
        match client.ask_queue(&self.name, Input::Define(config.clone()))?.0 {
            Outcome::Defined => {}
            Outcome::BadDeadLetter(name) if name == self.name => {
                return Err(Failure::usage("--dead-letter: a queue cannot be its own dead-letter queue")
                    .hint("omit it: dead items then stay in the queue, and are not taken again"));
            }
            Outcome::BadDeadLetter(name) => return Err(super::no_queue(&name).at("--dead-letter")),
            other => return Err(refusal(&self.name, None, &other)),
        }
        let to = config.dead_letter.as_ref().map_or_else(String::new, |name| format!(", dead items go to {name}"));
        let human = format!(
            "defined {BOLD}{}{BOLD:#}: visibility timeout {}, max attempts {}, at most {} items{to}",
            self.name,
            config.visibility_timeout,
            config.max_attempts,
            format::thousands(config.max_length as usize)
        );
        context.printer.result(&Defined { queue: &self.name, terms: (&config).into() }, human)
    }
}

impl Pause {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        match context.client()?.ask_queue(&self.queue, Input::Pause)?.0 {
            Outcome::Paused => {}
            other => return Err(refusal(&self.queue, None, &other)),
        }
        let human = format!("{YELLOW}paused{YELLOW:#} {BOLD}{}{BOLD:#}", self.queue);
        context.printer.result(&Paused { queue: &self.queue, paused: true }, human)
    }
}

impl Resume {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        match context.client()?.ask_queue(&self.queue, Input::Resume)?.0 {
            Outcome::Resumed => {}
            other => return Err(refusal(&self.queue, None, &other)),
        }
        context.printer.result(&Paused { queue: &self.queue, paused: false }, format!("resumed {BOLD}{}{BOLD:#}", self.queue))
    }
}
