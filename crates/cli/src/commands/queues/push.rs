//! Pushes items to a queue: one, or a stream of them.

use std::io::{BufRead, BufReader, Read};

use banksman_core::queue::{DATA_LIMIT, Data, DataError, Input, New, Outcome, Pushed};
use banksman_core::{DedupeKey, ItemId, Name, Span};
use banksman_runtime::Client;
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::refusal;
use crate::commands::ExitResult;
use crate::commands::resources::Dur;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, GREEN};
use crate::views::queues::Pushed as PushedView;

/// The number of lines in one transaction: each is a row and an event.
const CHUNK: usize = 500;

/// The size of a read: large enough that the buffer inside of `std::io::stdin` stays empty, which `is_quiet` cannot see.
const BUFFER: usize = 64 * 1_024;

/// The longest line: the input may have more spaces than the stored item.
const LINE: u64 = 4 * DATA_LIMIT as u64;

const TOO_LARGE: &str = "put it into a file, and the path of the file into the item";

/// Push an item to a queue, or one for each line of JSON on stdin.
///
/// Lines from stdin are pushed in chunks as they arrive, so that an endless stream can be piped in. If a line is invalid, the
/// error names it, and the lines before it have been pushed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman queues push triage '{\"issue\": 17}'\n  banksman queues push triage '\"urgent\"' --priority 10\n  banksman queues push triage '{\"issue\": 17}' --dedupe issue-17 --delay 10m\n  jq -c '.[]' issues.json | banksman queues push triage -"
)]
pub(super) struct Push {
    /// The queue
    queue: Name,
    /// The data of the item, as JSON; - reads one item from each line of stdin
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    data: String,
    /// Higher priorities are taken first; one step equals an hour of waiting
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Delay before the item can be taken
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    delay: Option<Dur>,
    /// Do not push a duplicate: if an unfinished item with this key is in the queue, print that item
    #[arg(long, value_name = "KEY")]
    dedupe: Option<DedupeKey>,
}

/// The counters of a push.
#[derive(Default)]
struct Sum {
    pushed: usize,
    duplicates: usize,
    last: Option<ItemId>,
}

impl Push {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        if self.data == "-" {
            return self.stream(context);
        }
        let new = self.item(&self.data)?;
        let mut sum = Sum::default();
        send(&*context.client()?, &self.queue, vec![new], &mut sum)?;
        let id = sum.last.map(|id| id.to_string()).unwrap_or_default();
        let human = match sum.pushed {
            1 => format!("{GREEN}pushed{GREEN:#} {BOLD}{id}{BOLD:#} to {}", self.queue),
            _ => format!("{BOLD}{id}{BOLD:#} with the same key is already in {}", self.queue),
        };
        self.print(context, &sum, human)
    }

    fn stream(self, context: &Context) -> ExitResult {
        if self.dedupe.is_some() {
            return Err(Failure::usage("--dedupe is for a single item, not for stdin"));
        }
        let client = context.client()?;
        let (mut sum, mut chunk, mut number) = (Sum::default(), Vec::new(), 0);
        let mut stdin = BufReader::with_capacity(BUFFER, std::io::stdin().lock());
        loop {
            let line = match line(&mut stdin) {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(failure) => {
                    send(&client, &self.queue, std::mem::take(&mut chunk), &mut sum)?;
                    return Err(stopped(failure, number + 1, &sum));
                }
            };
            number += 1;
            if line.trim().is_empty() {
                continue;
            }
            match self.item(&line) {
                Ok(new) => chunk.push(new),
                Err(failure) => {
                    send(&client, &self.queue, std::mem::take(&mut chunk), &mut sum)?;
                    return Err(stopped(failure, number, &sum));
                }
            }
            // Push what there is before waiting for more.
            if chunk.len() >= CHUNK || is_quiet(&stdin) {
                send(&client, &self.queue, std::mem::take(&mut chunk), &mut sum)?;
            }
        }
        send(&client, &self.queue, chunk, &mut sum)?;
        sum.last = None;
        let human = format!("{GREEN}pushed{GREEN:#} {} to {BOLD}{}{BOLD:#}", items(sum.pushed), self.queue);
        self.print(context, &sum, human)
    }

    fn item(&self, text: &str) -> Result<New, Failure> {
        let data = Data::parse(text).map_err(|error| match error {
            DataError::TooLarge { bytes } => Failure::new(exit::USAGE, "ITEM_TOO_LARGE", error.to_string())
                .detail("bytes", &bytes)
                .detail("limit", &DATA_LIMIT)
                .hint(TOO_LARGE),
            DataError::Json(_) => Failure::usage(error).hint(r#"for example: '{"issue": 17}', or '"text in quotes of its own"'"#),
        })?;
        let delay = self.delay.map_or(Span::ZERO, Dur::span);
        Ok(New { data, priority: self.priority, delay, dedupe: self.dedupe.clone() })
    }

    fn print(&self, context: &Context, sum: &Sum, human: String) -> ExitResult {
        let outcome = if sum.pushed == 0 && sum.duplicates > 0 { "duplicate" } else { "pushed" };
        let Sum { last: id, pushed, duplicates } = *sum;
        let view = PushedView { queue: &self.queue, id, outcome, pushed, duplicates };
        context.printer.result(&view, human)
    }
}

/// Whether the next line is not available yet.
fn is_quiet<R: Read>(input: &BufReader<R>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let stdin = std::io::stdin();
    input.buffer().is_empty() && matches!(poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&now)), Ok(0))
}

/// The next line, of limited length.
fn line(input: &mut impl BufRead) -> Result<Option<String>, Failure> {
    let mut bytes = Vec::new();
    let read = input.by_ref().take(LINE).read_until(b'\n', &mut bytes).map_err(|error| Failure::system("read stdin", error))?;
    if read as u64 == LINE && bytes.last() != Some(&b'\n') {
        let message = format!("an item may have at most {DATA_LIMIT} bytes, and this line is longer than {LINE}");
        return Err(Failure::new(exit::USAGE, "ITEM_TOO_LARGE", message).hint(TOO_LARGE));
    }
    let text = String::from_utf8(bytes).map_err(|_| Failure::usage("the line is not valid UTF-8"))?;
    Ok((read > 0).then_some(text))
}

fn send(client: &Client, queue: &Name, chunk: Vec<New>, sum: &mut Sum) -> Result<(), Failure> {
    if chunk.is_empty() {
        return Ok(());
    }
    let pushed = match client.ask_queue(queue, Input::Push(chunk))?.0 {
        Outcome::Pushed(pushed) => pushed,
        other => return Err(refusal(queue, None, &other)),
    };
    for one in pushed {
        match one {
            Pushed::Added(id) => (sum.pushed, sum.last) = (sum.pushed + 1, Some(id)),
            Pushed::Duplicate(id) => (sum.duplicates, sum.last) = (sum.duplicates + 1, Some(id)),
            Pushed::Full => {
                return Err(Failure::new(
                    exit::LOCKED,
                    "QUEUE_FULL",
                    format!("{queue} is full: it has reached its maximum length"),
                )
                .detail("queue", &queue)
                .detail("pushed", &sum.pushed)
                .hint(with_sum(sum, format!("list its items: banksman queues show {}", format::last(queue)))));
            }
        }
    }
    Ok(())
}

/// The failure for an invalid line; the lines before it were pushed.
fn stopped(failure: Failure, line: usize, sum: &Sum) -> Failure {
    let hint = with_sum(sum, failure.hint.clone().unwrap_or_default());
    let failure = Failure { details: Default::default(), ..failure }
        .at(&format!("line {line}"))
        .detail("line", &line)
        .detail("pushed", &sum.pushed);
    if hint.is_empty() { failure } else { failure.hint(hint) }
}

/// A hint that begins with the number of pushed items, if there are any.
fn with_sum(sum: &Sum, advice: String) -> String {
    let so_far = (sum.pushed > 0).then(|| format!("{} pushed before", items(sum.pushed)));
    so_far.into_iter().chain(Some(advice).filter(|advice| !advice.is_empty())).collect::<Vec<_>>().join("; ")
}

fn items(number: usize) -> String {
    if number == 1 { "1 item".into() } else { format!("{} items", format::thousands(number)) }
}
