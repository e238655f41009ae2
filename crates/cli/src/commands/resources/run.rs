//! `… run NAME -- CMD`: holds a lock or slots while a command runs.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use banksman_adapters::tree;
use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::{Epoch, Grant, HolderId, Name};
use banksman_runtime::Client;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper};

use super::super::ExitResult;
use super::acquire::{AcquireFlags, Wanted, win};
use super::{Dur, lock_refusal, own_name, semaphore_refusal};
use crate::context::{Actor, Context};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::gate::{self, Gate};
use crate::signals::{Arrived, Signals};

/// How long a command may take to end by itself after it has lost its lock.
const GRACE: Duration = Duration::from_secs(10);

/// The delay before a heartbeat is retried that the store did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// Acquires, runs the command, keeps the grant alive, and releases it on every way out.
pub(crate) fn run(
    context: &Context,
    kind: Kind,
    name: &Name,
    weight: u32,
    max_hold: Option<Dur>,
    flags: &AcquireFlags,
    command: &[OsString],
) -> ExitResult {
    let resource = own_name(kind, name)?;
    let starting = |error| Failure::system("start the command", error);
    let client = context.client()?;
    let mut signals = Signals::install()?;
    let actor = Actor::fresh(flags.holder.as_ref(), flags.request_id.as_ref())?;
    let max_hold = max_hold.map(|dur| dur.positive("--max-hold")).transpose()?;
    let mut gate = gate::start(command).map_err(starting)?;
    let won = client.host().identify(gate.pid()).map_err(starting).and_then(|command| {
        let processes = vec![client.this_process().clone(), command];
        let wanted =
            Wanted { resource: resource.clone(), actor: actor.clone(), weight, max_hold, processes, leased: true, epoch: None };
        win(context, &client, wanted, flags, Some(&signals))
    });
    let won = match won {
        Ok(won) => won,
        Err(failure) => {
            gate.abandon();
            return Err(failure);
        }
    };
    let held = Held { client: &client, resource, grant: won.grant };
    let variables = held.variables(&actor, context)?;
    signals.extend_for_child()?;
    let ended = held.supervise(&mut gate, &variables, &mut signals);
    match ended {
        Ok(status) => held.finish(context, status),
        Err(failure) => {
            tree::end_descendants(GRACE);
            // If the store has failed, this is the last attempt; if the lock was lost, there is nothing to release.
            held.release().ok();
            Err(failure)
        }
    }
}

/// The grant that is held while the command runs.
struct Held<'a> {
    client: &'a Client,
    resource: Resource,
    grant: Grant,
}

impl Held<'_> {
    /// Starts the command and waits for its end. Fails if the lock is lost meanwhile.
    fn supervise(&self, gate: &mut Gate, variables: &[(&str, OsString)], signals: &mut Signals) -> Result<ExitStatus, Failure> {
        // Descendants whose parents have died become children of this process, so that it can end them.
        set_child_subreaper(Some(getpid())).map_err(|error| Failure::system("adopt the descendants of the command", error))?;
        let child = Pid::from_raw(gate.pid()).expect("a child has a pid");
        gate.open(variables).map_err(|error| Failure::system("start the command", error))?;
        let beat = self.grant.claim.ttl.map(|ttl| Duration::from_millis(ttl.as_ms().unsigned_abs()) / 3);
        let mut next_beat = beat.map(|beat| Instant::now() + beat);
        loop {
            if let Some(status) = reap(child) {
                return Ok(status);
            }
            wait(signals, next_beat);
            for arrived in signals.take() {
                // A signal from the terminal has reached the command directly: it is in the same process group.
                if let Arrived::Sent(signal) = arrived {
                    forward(child, signal);
                }
            }
            if next_beat.is_some_and(|due| due <= Instant::now()) {
                next_beat = Some(Instant::now() + self.heartbeat(beat.unwrap_or(RETRY))?);
            }
        }
    }

    /// Sends a heartbeat, and returns the delay before the next one.
    fn heartbeat(&self, beat: Duration) -> Result<Duration, Failure> {
        let (name, holder, epoch) = self.key();
        match self.client.ask(Command::heartbeat(self.resource.clone(), holder, epoch), Vec::new()) {
            Ok((outcome, _)) if outcome.extended().is_some() => Ok(beat),
            Ok((outcome, _)) => Err(refusal(&name, outcome)),
            // An expired lease is revived as long as no other holder has taken it, so there is no reason to give up.
            Err(_) => Ok(RETRY.min(beat)),
        }
    }

    fn release(&self) -> Result<(), Failure> {
        let (name, holder, epoch) = self.key();
        let (outcome, _) = self.client.ask(Command::release(self.resource.clone(), holder, epoch), Vec::new())?;
        if outcome.is_released() { Ok(()) } else { Err(refusal(&name, outcome)) }
    }

    /// Releases the lock after the command has ended by itself, and returns its status.
    fn finish(&self, context: &Context, status: ExitStatus) -> ExitResult {
        match self.release() {
            Ok(()) => {}
            Err(failure) if failure.exit == exit::FENCED => return Err(failure),
            // The end of this process frees it, too.
            Err(failure) => context.printer.note(&format!("{} could not be released: {}", self.resource, failure.message)),
        }
        let signal = status.signal().map(|signal| 128 + signal);
        let code = status.code().or(signal).unwrap_or(i32::from(exit::ERROR));
        Ok(u8::try_from(code).unwrap_or(exit::ERROR))
    }

    fn key(&self) -> (Name, HolderId, Epoch) {
        (self.resource.name.clone(), self.grant.claim.holder.clone(), self.grant.epoch)
    }

    /// The environment variables of the command.
    fn variables(&self, actor: &Actor, context: &Context) -> Result<Vec<(&'static str, OsString)>, Failure> {
        let (name, epoch) = match self.resource.kind {
            Kind::Lock => ("BANKSMAN_LOCK", "BANKSMAN_LOCK_EPOCH"),
            Kind::Semaphore => ("BANKSMAN_SEMAPHORE", "BANKSMAN_SEMAPHORE_EPOCH"),
        };
        let mut variables: Vec<(&'static str, OsString)> = vec![
            ("BANKSMAN_PROJECT", context.project()?.root().into()),
            ("BANKSMAN_HOLDER", actor.holder.to_string().into()),
            ("BANKSMAN_ANCESTORS", actor.ancestors_variable().into()),
            (name, self.resource.name.to_string().into()),
            (epoch, self.grant.epoch.to_string().into()),
        ];
        variables.extend(context.store.clone().map(|url| ("BANKSMAN_STORE", url.into())));
        Ok(variables)
    }
}

fn refusal(name: &Name, outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Lock(outcome) => lock_refusal(name, &outcome),
        Outcome::Semaphore(outcome) => semaphore_refusal(name, &outcome),
        Outcome::Deadlock(_) | Outcome::Undefined => super::undefined(name),
    }
}

/// Reaps all dead children, and returns the status of the command if it is one of them.
fn reap(child: Pid) -> Option<ExitStatus> {
    let mut ended = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == child {
            ended = Some(ExitStatus::from_raw(status.as_raw()));
        }
    }
    ended
}

/// Sleeps until a signal arrives or a heartbeat is due.
fn wait(signals: &Signals, due: Option<Instant>) {
    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
    let timeout = left.map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    });
    // A signal interrupts the poll; the caller reads it next.
    poll(&mut [PollFd::new(signals, PollFlags::IN)], timeout.as_ref()).ok();
}

fn forward(child: Pid, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The command may have ended just now; its status is read next.
        kill_process(child, signal).ok();
    }
}
