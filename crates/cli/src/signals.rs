//! Signals as things to read: what arrived, and whether a process sent it or the terminal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use banksman_runtime::Client;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals as Blocking;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

use crate::failure::Failure;

/// What asks a command to end.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// The signals that this process takes note of instead of dying.
pub(crate) struct Signals(SignalDelivery<UnixStream, WithOrigin>);

/// A signal that arrived.
pub(crate) enum Arrived {
    /// A child changed its state.
    Child,
    /// Another process sent this.
    Sent(i32),
    /// The terminal sent it, to every process in the foreground.
    Terminal,
}

impl Signals {
    /// Starts to take note of whatever asks the command to end.
    pub(crate) fn install() -> Result<Signals, Failure> {
        let delivery = UnixStream::pair().and_then(|(read, write)| {
            read.set_nonblocking(true)?;
            SignalDelivery::with_pipe(read, write, WithOrigin::default(), ENDING)
        });
        delivery.map(Signals).map_err(not_noted)
    }

    /// Takes note of all that a wrapper must act on or pass on.
    pub(crate) fn extend_for_child(&self) -> Result<(), Failure> {
        let handle = self.0.handle();
        [SIGCHLD, SIGUSR1, SIGUSR2].into_iter().try_for_each(|signal| handle.add_signal(signal)).map_err(not_noted)
    }

    /// What has arrived since the last look.
    pub(crate) fn take(&mut self) -> Vec<Arrived> {
        let arrived = self.0.pending().map(|origin| match (origin.signal, origin.cause) {
            (SIGCHLD, _) => Arrived::Child,
            (signal, Cause::Sent(_)) => Arrived::Sent(signal),
            _ => Arrived::Terminal,
        });
        arrived.collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}

fn not_noted(error: io::Error) -> Failure {
    Failure::system("take note of signals", error)
}

/// Ctrl-Z as a wish that this process grants when it holds nobody up.
pub(crate) struct Stops(Arc<AtomicBool>);

impl Stops {
    /// Starts to take note of it.
    pub(crate) fn install() -> io::Result<Stops> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGTSTP, SIGTTIN, SIGTTOU] {
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Stops(asked))
    }

    /// Stops this process if that was asked for.
    pub(crate) fn obey(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            stop();
        }
    }
}

fn stop() {
    kill_process(getpid(), Signal::STOP).expect("a process may stop itself");
}

/// Lets Ctrl-Z stop this process only when it does not hold up all others: a process that is stopped in the middle
/// of its turn would.
pub(crate) fn stop_without_writer_lock(client: &Arc<Client>) -> io::Result<()> {
    let client: Weak<Client> = Arc::downgrade(client);
    let mut signals = Blocking::new([SIGTSTP, SIGTTIN, SIGTTOU])?;
    std::thread::Builder::new().name("banksman-stop".into()).spawn(move || {
        for _ in signals.forever() {
            match client.upgrade() {
                Some(client) => client.without_writer_lock(stop),
                None => stop(),
            }
        }
    })?;
    Ok(())
}
