//! The watch over a live run: activity, and the escalation without it.

use super::*;

impl Task {
    pub(super) fn heartbeat(
        &mut self,
        epoch: Epoch,
        pulse: Pulse,
        watch: &Watch,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let current = self.live().map(|live| live.epoch);
        if current != Some(epoch) {
            return Outcome::Fenced(current);
        }
        let watch = &watch.of(self.spec.silence);
        match (&mut self.state, pulse) {
            (State::Running(live) | State::Stopping { live, .. }, Pulse::Active) => {
                live.seen = now.stamp();
                Outcome::Seen
            }
            (State::Running(live), Pulse::Steady) => {
                live.seen = now.stamp();
                if self.recoveries > 0 {
                    self.recover(true, now, buffer);
                }
                Outcome::Seen
            }
            (State::Stuck { live, .. }, Pulse::Active | Pulse::Steady) => {
                live.seen = now.stamp();
                self.recover(true, now, buffer);
                Outcome::Recovered
            }
            // It works again; whether it recovers is not known yet.
            (State::Stuck { reason, .. }, Pulse::Busy(_)) if *reason != Stuck::SessionDead => {
                self.recover(false, now, buffer);
                Outcome::Recovered
            }
            (State::Stopping { live, .. }, Pulse::Steady) => {
                live.seen = now.stamp();
                Outcome::Seen
            }
            (State::Running(_) | State::Stuck { .. } | State::Stopping { .. }, Pulse::Busy(_)) => Outcome::Seen,
            (State::Running(live), Pulse::Idle(quiet)) => {
                // There was activity before the silence: the deadline counts from there, or the next check would be due
                // at once, again and again.
                live.seen = live.seen.later(now.stamp().before(quiet));
                if !now.is_past(live.seen.lease + watch.timeout) {
                    return Outcome::Seen;
                }
                let reason = if live.seen.lease > live.started.lease {
                    Stuck::NoHeartbeat { last_seen: live.seen }
                } else {
                    Stuck::NoProgress { duration: now.lease - live.started.lease }
                };
                self.mark_stuck(reason, now, buffer);
                self.nudge(watch, now, buffer)
            }
            (State::Running(_), Pulse::SessionDead) => {
                self.mark_stuck(Stuck::SessionDead, now, buffer);
                Outcome::Stuck
            }
            // The nudge did not help. A run whose session is dead is recovered, not restarted.
            (State::Stuck { detected, reason, .. }, Pulse::Idle(_))
                if *reason != Stuck::SessionDead && now.is_past(detected.lease + watch.timeout) =>
            {
                if self.recoveries < watch.max_recoveries {
                    self.stop(After::Restart, now, buffer)
                } else {
                    self.give_up(watch, now, buffer)
                }
            }
            (State::Stuck { .. } | State::Stopping { .. }, Pulse::Idle(_) | Pulse::SessionDead) => Outcome::Seen,
            (
                State::Pending
                | State::Backoff { .. }
                | State::Held
                | State::Awaiting { .. }
                | State::AwaitingDecision { .. }
                | State::Manual { .. }
                | State::InPhases { .. }
                | State::Landing { .. }
                | State::Review
                | State::Done(_),
                Pulse::Active | Pulse::Steady | Pulse::Busy(_) | Pulse::Idle(_) | Pulse::SessionDead,
            ) => unreachable!("a state without a run has no epoch"),
        }
    }

    fn mark_stuck(&mut self, reason: Stuck, now: &Now, buffer: &mut EffectBuffer) {
        let live = self.live().expect("only a run gets stuck").clone();
        self.emit(TaskFact::Stuck { run: live.run.clone(), reason }, buffer);
        self.set_state(State::Stuck { live, detected: now.stamp(), reason }, now);
    }

    /// The first step of the escalation: a nudge, if there are recoveries left.
    fn nudge(&mut self, watch: &Watch, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        if self.recoveries >= watch.max_recoveries {
            return self.give_up(watch, now, buffer);
        }
        self.recoveries += 1;
        let run = self.live().expect("only a run is nudged").run.clone();
        self.emit(TaskFact::Nudged { run: run.clone(), recoveries: self.recoveries }, buffer);
        buffer.send(OutboxCommand::Nudge { run });
        Outcome::Stuck
    }

    /// The last step of the escalation: no recoveries are left.
    fn give_up(&mut self, watch: &Watch, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let recovered = match self.recoveries {
            0 => String::new(),
            1 => "; recovered once".into(),
            times => format!("; recovered {times} times"),
        };
        let error = format!("no activity for {}{recovered}", watch.timeout);
        let after = match self.on_exhausted(watch) {
            OnExhausted::Escalate => After::Escalate { error: error.into() },
            OnExhausted::Fail => After::Fail { error: error.into() },
        };
        self.stop(after, now, buffer)
    }

    /// A run that was stuck is active again. If it is `well`, its recoveries start again from zero.
    pub(super) fn recover(&mut self, well: bool, now: &Now, buffer: &mut EffectBuffer) {
        let live = self.live().expect("only a run recovers").clone();
        let recoveries = (well && self.recoveries > 0).then_some(0);
        self.recoveries = recoveries.unwrap_or(self.recoveries);
        self.emit(TaskFact::Recovered { run: live.run.clone(), recoveries }, buffer);
        if let State::Stuck { .. } = self.state {
            self.set_state(State::Running(live), now);
        }
    }

    /// What happens to it without recoveries left.
    pub(super) fn on_exhausted(&self, watch: &Watch) -> OnExhausted {
        if self.spec.fails_when_stuck { OnExhausted::Fail } else { watch.on_exhausted }
    }

    pub(super) fn checkpoint(
        &mut self,
        epoch: Epoch,
        output_bytes: u64,
        quiet: Span,
        now: &Now,
        buffer: &mut EffectBuffer,
    ) -> Outcome {
        let current = self.live().map(|live| live.epoch);
        let Some(live) = self.live_mut().filter(|live| live.epoch == epoch) else { return Outcome::Fenced(current) };
        live.seen = live.seen.later(now.stamp().before(quiet));
        let run = live.run.clone();
        self.emit(TaskFact::Checkpoint { run, output_bytes, quiet }, buffer);
        Outcome::Seen
    }

    pub(super) fn overtime(&mut self, run: &RunId, max: Span, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        let Some(live) = self.live().filter(|live| live.run == *run) else { return Outcome::Late };
        if let State::Stopping { .. } = self.state {
            Outcome::Stopping
        } else if now.is_past(live.started.lease + max) {
            self.stop(After::Overtime { max }, now, buffer)
        } else {
            Outcome::Seen
        }
    }
}
