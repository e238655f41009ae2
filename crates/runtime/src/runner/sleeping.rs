//! How a runner sleeps: on the descriptors of everything that may wake it.

use banksman_engine::RunnerInput;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use banksman_adapters::host;
use banksman_adapters::keeper::Session;
use banksman_core::{Liveness, ProcessId, RunId, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Runner, RunnerReport};
use crate::background::JobResult;
use crate::waiting::{STALL, span};

/// Why the sleep has ended.
pub(super) enum Woken {
    Called,
    Cancelled,
    Died(ProcessId),
    Other,
}

/// The events to poll a session for.
pub(super) fn poll_session(session: &Session) -> PollFd<'_> {
    let flags = if session.has_unsent() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    PollFd::from_borrowed_fd(session.as_fd(), flags)
}

impl Runner<'_> {
    /// Sleeps until something happens, and handles the notices of sessions.
    pub(super) fn sleep(
        &mut self,
        cancel: BorrowedFd<'_>,
        watch: &[ProcessId],
        at_most: Span,
        report: &mut dyn FnMut(RunnerReport),
    ) -> Woken {
        let at_most = match self.leaves_at.map(|leaves_at| leaves_at.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return Woken::Cancelled,
            Some(left) => at_most.min(span(left)),
            None => at_most,
        };
        let spare =
            self.keepers.next_deadline().map(|due| span(due.saturating_duration_since(Instant::now())) + Span::from_ms(1));
        let at_most = spare.map_or(at_most, |spare| at_most.min(spare));
        let mut pidfds: Vec<(&ProcessId, OwnedFd)> = Vec::with_capacity(watch.len());
        for process in watch {
            match self.client.host().watch(process) {
                Ok(pidfd) => pidfds.push((process, pidfd)),
                Err(Liveness::Dead | Liveness::OtherBoot) => return Woken::Died(process.clone()),
                // The process cannot be watched, which proves nothing. The regular poll covers it.
                Err(Liveness::Alive | Liveness::Unknown) => {}
            }
        }
        let runs: Vec<RunId> = self.sessions.keys().cloned().collect();
        let mut fds = vec![
            PollFd::new(&self.mailbox, PollFlags::IN),
            PollFd::from_borrowed_fd(cancel, PollFlags::IN),
            PollFd::new(&self.background, PollFlags::IN),
        ];
        fds.extend(self.listener.as_ref().map(|listener| PollFd::new(listener, PollFlags::IN)));
        let fixed = fds.len();
        fds.extend(self.sessions.values().map(poll_session));
        fds.extend(pidfds.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)));
        // A busy runner tends them in passing.
        if runs.is_empty() {
            fds.extend(self.keepers.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let ms = at_most.as_ms();
        let timeout = Timespec { tv_sec: ms / 1_000, tv_nsec: (ms % 1_000) * 1_000_000 };
        let due_ms = host::boot_ms() + ms;
        // An interruption is a reason to check, like any other.
        let timed_out = poll(&mut fds, Some(&timeout)) == Ok(0);
        let late = Duration::from_millis(u64::try_from(host::boot_ms() - due_ms).unwrap_or(0));
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if timed_out && late > STALL {
            self.dispatcher.on(RunnerInput::Stalled(span(late)), self.now());
        }
        self.keepers.tend();
        let died = pidfds
            .iter()
            .zip(&ready[fixed + runs.len()..])
            .find(|(_, ready)| **ready)
            .map(|((process, _), _)| (*process).clone());
        for run in runs.iter().zip(&ready[fixed..]).filter(|(_, ready)| **ready).map(|(run, _)| run) {
            self.listen(run);
        }
        if let Some(listener) = self.listener.as_ref().filter(|_| ready[3]) {
            listener.empty();
            self.dispatcher.on(RunnerInput::NewEvents, self.now());
        }
        if ready[2] {
            for result in self.background.take() {
                match result {
                    JobResult::Swept(run, ended) => self.ended(&run, ended),
                    JobResult::Unproven(run, why) => self.dispatcher.on(RunnerInput::Unproven(run.clone(), why), self.now()),
                    JobResult::Unclear(run, None) => self.dispatcher.on(RunnerInput::Unclear(run.clone()), self.now()),
                    JobResult::Unclear(run, Some(why)) => {
                        self.dispatcher.on(RunnerInput::Unclear(run.clone()), self.now());
                        self.report_silence(&run, why, report);
                    }
                    JobResult::Recovered(run, found) => self.recovered(&run, *found),
                    JobResult::Pulse(run, Ok(vitals)) => {
                        self.silent.remove(&run);
                        self.dispatcher.on(RunnerInput::Pulse(run.clone(), Some(vitals)), self.now());
                    }
                    // A keeper that does not answer proves nothing: the next check is due after the same time.
                    JobResult::Pulse(run, Err(why)) => {
                        self.dispatcher.on(RunnerInput::Pulse(run.clone(), None), self.now());
                        if let Some(why) = why {
                            self.report_silence(&run, why, report);
                        }
                    }
                    JobResult::Silent(run, record, silence) => self.kill_keeper(&run, record, silence, report),
                    JobResult::LandingStands(entry) => self.dispatcher.on(RunnerInput::LandingStands(entry), self.now()),
                    JobResult::Landed(target, result) => self.dispatcher.on(RunnerInput::Landed(target, result), self.now()),
                    JobResult::Done => {}
                    JobResult::Gathered(pipeline, mut inputs, fresh_until) => {
                        inputs.fresh_until = fresh_until.map(|until| self.lease_of(until));
                        self.dispatcher.on(RunnerInput::GuardsChecked(pipeline, inputs), self.now());
                    }
                    JobResult::Delivered(entry, result) => {
                        self.dispatcher.on(RunnerInput::CommandDone(entry, result), self.now());
                    }
                    JobResult::Notified(entry, Ok(())) => self.dispatcher.on(RunnerInput::CommandDone(entry, Ok(())), self.now()),
                    JobResult::Notified(entry, Err(failed)) if failed.is_final => {
                        self.dispatcher.on(RunnerInput::CommandFailed(entry, failed.error), self.now())
                    }
                    JobResult::Notified(entry, Err(failed)) => {
                        self.dispatcher.on(RunnerInput::CommandDone(entry, Err(failed.error)), self.now())
                    }
                }
            }
        }
        match (ready[1], ready[0], died) {
            (true, _, _) => Woken::Cancelled,
            (false, true, _) => Woken::Called,
            (false, false, Some(process)) => Woken::Died(process),
            (false, false, None) => Woken::Other,
        }
    }
}
