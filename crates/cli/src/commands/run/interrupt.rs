//! Leaving: an interrupted runner leaves its sessions running, unless it is interrupted again.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use banksman_core::RunnerId;
use banksman_core::backlog::Run;
use banksman_runtime::Client;
use banksman_store::Key;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::commands::pausing;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::output_queue::OutputQueue;
use crate::printer::{BOLD, YELLOW};
use crate::signals::{Arrived, Signals};

/// How long this process may take to leave after a signal.
const LEAVE_WITHIN: Duration = Duration::from_secs(15);

/// How long the runner waits for a second Ctrl-C.
const AGAIN_WITHIN: Duration = Duration::from_secs(5);

/// The number of sessions that the message names.
const NAMED: usize = 5;

/// Whether this process still exits by itself some time after a signal.
pub(super) struct Exit(Arc<AtomicBool>);

/// Ends this process some time after a signal, whatever it is doing: its sessions live on, and the next runner adopts
/// them. For example, it may wait for a reader of its last output.
pub(super) fn exit_after_signal(signals: BorrowedFd<'_>) -> std::io::Result<Exit> {
    let signals = signals.try_clone_to_owned()?;
    let is_due = Arc::new(AtomicBool::new(true));
    let exit = Exit(Arc::clone(&is_due));
    let wait = move || {
        while poll(&mut [PollFd::new(&signals, PollFlags::IN)], None) != Ok(1) {}
        std::thread::sleep(LEAVE_WITHIN);
        if is_due.load(Ordering::Relaxed) {
            std::process::exit(i32::from(exit::INTERRUPTED));
        }
    };
    std::thread::Builder::new().name("banksman-exit".into()).spawn(wait)?;
    Ok(exit)
}

/// Reports the sessions that continue, and stops them if the user interrupts again. Returns the last line of output.
pub(super) fn leave(
    context: &Context,
    client: &Client,
    id: &RunnerId,
    output: &OutputQueue,
    signals: &mut Signals,
    arrived: &[Arrived],
    exit: &Exit,
) -> Result<String, Failure> {
    let titles = live(client, id)?;
    let is_from_terminal = context.printer.is_watched() && arrived.iter().any(|signal| matches!(signal, Arrived::Terminal));
    if titles.is_empty() {
        return Ok(format!("runner {id} has left"));
    }
    let continues = match &titles[..] {
        [title] => format!("1 session continues: {BOLD}{title}{BOLD:#}. Stop it: banksman stop."),
        all => {
            let more = if all.len() > NAMED { format!(" and {} more", all.len() - NAMED) } else { String::new() };
            let named = all[..all.len().min(NAMED)].join(", ");
            format!("{} sessions continue: {BOLD}{named}{BOLD:#}{more}. Stop them: banksman stop.", all.len())
        }
    };
    if !is_from_terminal {
        return Ok(format!("runner {id} has left. {continues}"));
    }
    let them = if titles.len() == 1 { "it" } else { "them" };
    output.note(format!("{YELLOW}{continues}{YELLOW:#} Press Ctrl-C again to stop {them} now."));
    if !arrives_again(signals) {
        return Ok(format!("runner {id} has left"));
    }
    // From here on this process may take longer than the timeout.
    exit.0.store(false, Ordering::Relaxed);
    signals.take();
    output.note(format!(
        "{YELLOW}stopping{YELLOW:#}   {} …",
        if titles.len() == 1 { "1 session".into() } else { format!("{} sessions", titles.len()) }
    ));
    for line in pausing::stop_all(context, signals)? {
        output.note(line);
    }
    Ok(format!("runner {id} has left"))
}

/// Whether another signal arrives within the time for a second Ctrl-C.
fn arrives_again(signals: &Signals) -> bool {
    let until = Instant::now() + AGAIN_WITHIN;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&timeout)) {
            // The signal itself interrupts the poll.
            Err(Errno::INTR) => {}
            arrived => return arrived == Ok(1),
        }
    }
}

/// The titles of the live sessions of this runner.
fn live(client: &Client, id: &RunnerId) -> Result<Vec<String>, Failure> {
    let rows = client.load(&[Key::Live].into())?.tables.backlog;
    let mut own: Vec<&Run> = rows.runs.values().filter(|run| run.is_live() && run.owner == *id).collect();
    own.sort_by_key(|run| run.epoch);
    Ok(own.into_iter().filter_map(|run| rows.tasks.get(&run.task)).map(|task| task.spec.title.to_string()).collect())
}
