//! Signals as a readable descriptor, with their origin: a process or the terminal.

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

/// The signals that ask a command to end.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// The signals that this process handles instead of dying.
pub(crate) struct Signals(SignalDelivery<UnixStream, WithOrigin>);

pub(crate) enum Arrived {
    /// A child changed its state.
    Child,
    /// Sent by another process.
    Sent(i32),
    /// Sent by the terminal to every process in the foreground.
    Terminal,
}

impl Signals {
    /// Starts to handle the signals that ask a command to end.
    pub(crate) fn install() -> Result<Signals, Failure> {
        let delivery = UnixStream::pair().and_then(|(read, write)| {
            read.set_nonblocking(true)?;
            SignalDelivery::with_pipe(read, write, WithOrigin::default(), ENDING)
        });
        delivery.map(Signals).map_err(signal_failure)
    }

    /// Also handles the signals that a wrapper must act on or forward.
    pub(crate) fn extend_for_child(&self) -> Result<(), Failure> {
        let handle = self.0.handle();
        [SIGCHLD, SIGUSR1, SIGUSR2].into_iter().try_for_each(|signal| handle.add_signal(signal)).map_err(signal_failure)
    }

    /// The signals that have arrived since the last call.
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

fn signal_failure(error: io::Error) -> Failure {
    Failure::system("install signal handlers", error)
}

/// A deferred Ctrl-Z: this process stops when it holds no resource that others wait for.
pub(crate) struct Stops(Arc<AtomicBool>);

impl Stops {
    /// Starts to defer the signals that stop a process.
    pub(crate) fn install() -> io::Result<Stops> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGTSTP, SIGTTIN, SIGTTOU] {
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Stops(asked))
    }

    /// Stops this process if a signal has asked for it.
    pub(crate) fn obey(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            stop();
        }
    }
}

fn stop() {
    kill_process(getpid(), Signal::STOP).expect("a process may stop itself");
}

/// Lets Ctrl-Z stop this process only outside of a write transaction: a process stopped within one would block all
/// others.
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
