//! The decisions of a runner. Nothing here reads, writes, starts or sleeps: the driver does.
//!
//! ```text
//!   next(now) --> Action    the driver's next action: read rows, probe processes, send requests, act on a session, sleep
//!   on(input) <-- Input     its result, or an event in the meantime
//! ```
//!
//! The [`Dispatcher`] is a loop over its parts. Each keeps its own state, and returns the rows that it needs, its requests and its
//! next deadline. The requests of one pass are one batch, so a run that has ended is reported in the transaction that claims the
//! next task. A claim that finds nothing more registers the runner as idle in the same transaction, so that no wake-up is lost before
//! it sleeps.
//!
//! | part | its concern |
//! |---|---|
//! | [`sessions`] | the runs of this runner, and their sessions |
//! | [`outbox`] | outbox commands |
//! | [`guard_checks`] | guards of pipelines |
//! | [`landings`] | merge queues |
//! | [`routing`] | workers, routes, and the cursor in the log |
//! | [`lease`] | the lease that other machines observe |
//! | [`loops`] | deadlines of tasks, files DONE |
//! | [`shortage`] | a machine that lacks resources to start sessions |
//! | [`selection`] | tasks to start, runs to adopt |
//! | [`context`] | the identity of the runner, and the liveness of processes |

mod context;
mod guard_checks;
mod landings;
mod lease;
mod loops;
mod mail;
mod outbox;
mod pass;
mod protocol;
mod replies;
mod routing;
mod selection;
mod sessions;
mod shortage;
#[cfg(test)]
mod tests;

pub use protocol::{Action, Input, Options, RunnerEvent};
pub use sessions::{Activity, Vitals};

use std::collections::BTreeSet;

use banksman_core::backlog::{RunEndRecord, Runner};
use banksman_core::task::retry::Marker;
use banksman_core::{Lease, Liveness, Pause, RunId, RunnerId, Span};

use context::Context;
use guard_checks::GuardChecks;
use landings::Landings;
use lease::Renewal;
use loops::Loops;
use outbox::Outbox;
use pass::{Pass, Rest};
use protocol::Output;
use routing::Routing;
use selection::Selection;
use sessions::Sessions;
use shortage::Shortage;

use crate::calls::runs::{RunRequest, Work};
use crate::request::{Request, Seen};

/// The most tasks that one claim takes.
const CLAIM_LIMIT: usize = 16;

/// How long to wait after the store did not reply.
const RETRY_AFTER: Span = Span::from_secs(1);

#[derive(Debug)]
pub struct Dispatcher {
    context: Context,
    pass: Pass,
    sessions: Sessions,
    outbox: Outbox,
    guard_checks: GuardChecks,
    landings: Landings,
    routing: Routing,
    renewal: Renewal,
    loops: Loops,
    shortage: Shortage,
    selection: Selection,
    out: Output,
    /// The requests of the last call.
    sent: Vec<Request>,
    is_enlisted: bool,
    is_leaving: bool,
    /// Whether the report that nothing is left to do was made, or is not needed.
    is_finish_reported: bool,
    /// Whether this runner has ended a run or a task, and has seen no run of another runner since.
    has_ended_last: bool,
    /// The reported pause of the project.
    pause: Option<Pause>,
    not_before: Option<Lease>,
}

impl Dispatcher {
    pub fn new(me: Runner, options: Options) -> Dispatcher {
        Dispatcher {
            renewal: Renewal::new(options.lease),
            context: Context::new(me, options),
            pass: Pass::Due,
            sessions: Sessions::default(),
            outbox: Outbox::default(),
            guard_checks: GuardChecks::default(),
            landings: Landings::default(),
            routing: Routing::default(),
            loops: Loops::default(),
            shortage: Shortage::default(),
            selection: Selection::default(),
            out: Output::default(),
            sent: Vec::new(),
            is_enlisted: false,
            is_leaving: false,
            is_finish_reported: false,
            has_ended_last: false,
            pause: None,
            not_before: None,
        }
    }

    /// Makes the runner serve one run and take no tasks: it waits for the end of this run, adopts the run if its owner is gone, and ends
    /// with it. Its `max_runs` must be 0, by which other runners recognize it.
    pub fn only(mut self, run: RunId) -> Dispatcher {
        self.context.only = Some(run);
        self
    }

    pub fn id(&self) -> &RunnerId {
        &self.context.me.id
    }

    /// A run of this runner, with its task.
    pub fn work(&self, run: &RunId) -> Option<&Work> {
        self.sessions.work(run)
    }

    /// Whether the session of a run is being ended, and was not seen dead.
    pub fn is_being_killed(&self, run: &RunId) -> bool {
        self.sessions.is_being_killed(run)
    }

    /// Whether the session of a run is being ended without a grace period.
    pub fn is_killed_at_once(&self, run: &RunId) -> bool {
        self.sessions.is_killed_at_once(run)
    }

    /// The request that reports the session of a run as dead, although its process tree may not be.
    pub fn session_dead(&self, run: &RunId) -> Option<Request> {
        self.sessions.session_dead(run, self.context.options.watch)
    }

    /// Whether the runner must be notified of every event: it may cause a reaction, or end the only run of this runner, whose end
    /// another runner records.
    pub fn listens(&self) -> bool {
        self.routing.listens || self.context.only.is_some()
    }

    /// Takes the events since the last call, for people.
    pub fn events(&mut self) -> Vec<RunnerEvent> {
        std::mem::take(&mut self.out.events)
    }

    /// The runs whose keepers must be notified that the last call with a reply has renewed the lease. The renewal counts from the
    /// time when that call was sent.
    pub fn renewed(&mut self) -> Option<BTreeSet<RunId>> {
        self.renewal.take_renewed()
    }

    /// Provides ids for the runs of the next claim.
    pub fn give_ids(&mut self, fresh: impl FnMut() -> RunId) {
        self.selection.give_ids(fresh);
    }

    pub fn on(&mut self, input: Input, now: Lease) {
        let (context, out) = (&mut self.context, &mut self.out);
        match input {
            Input::Rows(snapshot) => self.loaded(*snapshot),
            Input::Probed(found) => {
                context.learn(found);
                self.probed();
            }
            Input::Checked(found) if matches!(self.pass, Pass::Checking(_) | Pass::Scanned(_)) => {
                self.loops.checked(found);
                self.checked();
            }
            Input::Checked(found) => self.selection.on_checked(found),
            Input::Replies(replies) => self.on_replies(replies),
            Input::NoReply => {
                let sent = std::mem::take(&mut self.sent);
                self.guard_checks.on_no_reply(&sent);
                self.sessions.on_no_reply(&sent, now);
                self.selection.freed();
                self.pass = Pass::Due;
                self.not_before = Some(now + RETRY_AFTER);
            }
            Input::Woken => self.woken(),
            Input::NewEvents => self.pass = Pass::Due,
            Input::Died(process) => {
                context.learn([(process, Liveness::Dead)]);
                self.woken();
            }
            Input::Stalled(late) => context.stalled(late, now),
            Input::Leave => self.is_leaving = true,
            Input::Started(run, session) => {
                self.sessions.started(&run, session, now);
                self.session_begun(&run, now);
            }
            Input::Ended(run, ended) => {
                self.session_begun(&run, now);
                self.session_ended(&run, ended);
            }
            Input::Shortage(run, ended) => {
                let error = ended.ending.to_string().into();
                if self.session_ended(&run, ended) {
                    self.shortage.found(error, self.sessions.begun(), &self.context, now, &mut self.out);
                }
            }
            Input::Answered(run) => self.sessions.answered(&run),
            Input::KeeperGone(run) => self.sessions.keeper_gone(&run, out),
            Input::Unclear(run) => self.sessions.unclear(&run, now),
            Input::Unproven(run, why) => self.sessions.unproven(&run, why, context, now),
            Input::Pulse(run, Some(vitals)) => self.sessions.pulse(&run, vitals, context, now),
            Input::Pulse(run, None) => self.sessions.no_pulse(&run, context, now),
            Input::CommandDone(command, result) => self.outbox.done(command, result.err(), false, context),
            Input::CommandFailed(command, error) => self.outbox.done(command, Some(error), true, context),
            Input::LandingStands(entry) => out.report(RunnerEvent::Landing(entry)),
            Input::Landed(target, result) => {
                self.landings.ended(&target, result.is_err(), now);
                if let Err(error) = result {
                    out.report(RunnerEvent::LandingTrouble(target, error));
                }
                self.pass = Pass::Due;
            }
            Input::GuardsChecked(pipeline, inputs) => self.guard_checks.checked(&pipeline, *inputs, context),
        }
    }

    /// Whether the last call can be [amended](Dispatcher::amend).
    pub fn may_amend(&self) -> bool {
        let is_plain = |request: &Request| {
            matches!(request, Request::Run(RunRequest::Started { .. } | RunRequest::Finish { .. } | RunRequest::Claim(_)))
        };
        matches!(self.pass, Pass::Done(_)) && self.context.only.is_none() && self.sent.iter().all(is_plain)
    }

    /// Adds the runs that have ended since a call was made to the call, and enlarges its claim accordingly: while the call waits for
    /// other writers, more runs end. Must not be called after the call has begun to be carried out.
    pub fn amend(&mut self, requests: &mut Vec<Request>) {
        let is_reported = |run: &RunId| {
            requests.iter().any(|request| matches!(request, Request::Run(RunRequest::Finish { what, .. }) if what.run.id == *run))
        };
        // The file DONE of a loop must be checked first. Until then the ended run keeps its place.
        if !self.may_amend() || self.sessions.ended_tasks().any(|task| task.spec.restart.is_some()) {
            return;
        }
        let mut ended = self.sessions.finishes(&self.context, |_| Some(Marker::Absent));
        ended.retain(|request| !matches!(request, Request::Run(RunRequest::Finish { what, .. }) if is_reported(&what.run.id)));
        if ended.is_empty() {
            return;
        }
        if let Some(Request::Run(RunRequest::Claim(claim))) =
            requests.pop_if(|last| matches!(last, Request::Run(RunRequest::Claim(_))))
        {
            self.selection.take_back(*claim);
        }
        requests.extend(ended);
        let room = self.room();
        requests.extend(self.selection.requests(room, &self.context));
        self.sent.clone_from(requests);
    }

    pub fn next(&mut self, now: Lease) -> Action {
        let action = self.next_action(now);
        if let Action::Call(requests) = &action {
            self.sent.clone_from(requests);
            self.renewal.sent(now);
        }
        action
    }

    fn next_action(&mut self, now: Lease) -> Action {
        if let Some(action) = self.out.actions.pop_front() {
            return action;
        }
        // A runner that leaves does not sleep any more: the signal to leave would end every sleep at once.
        if self.is_leaving {
            return self.retire();
        }
        if let Some(wait) = self.not_before.map(|until| until - now).filter(|wait| *wait > Span::ZERO) {
            return Action::Sleep { watch: Vec::new(), at_most: wait };
        }
        self.not_before = None;
        let renewal = self.renewal.request(self.context.id()).map(Request::from);
        if !self.is_enlisted {
            let (runner, limits) = (Box::new(self.context.me.clone()), self.context.options.limits);
            let enlist = RunRequest::Enlist { runner, limits }.into();
            return Action::Call(std::iter::once(enlist).chain(renewal).collect());
        }
        if self.renewal.next_deadline().is_some_and(|due| due <= now) {
            return Action::Call(renewal.into_iter().collect());
        }
        if let Some(recovery) = self.sessions.next_recovery(now) {
            return recovery;
        }
        if self.shortage.begin_try(now) {
            self.selection.freed();
            if self.room() == 0 {
                self.shortage.nothing_to_start(&self.context, &mut self.out);
            }
        }
        if let Some(requests) = self.claim_at_once(now) {
            return Action::Call(requests);
        }
        match &self.pass {
            Pass::Due => self.begin_pass(now),
            Pass::Done(rest) => {
                let rest = rest.clone();
                self.rest(rest, now)
            }
            // The driver came back without a result: the pass is repeated.
            Pass::First
            | Pass::Second(_)
            | Pass::Probing(_)
            | Pass::Checking(_)
            | Pass::Scan(_)
            | Pass::Scanned(_)
            | Pass::Count(_) => {
                self.pass = Pass::Due;
                Action::Sleep { watch: Vec::new(), at_most: RETRY_AFTER }
            }
        }
    }

    fn rest(&mut self, rest: Rest, now: Lease) -> Action {
        let requests = self.due_requests(false, now);
        if !requests.is_empty() {
            return Action::Call(requests);
        }
        if let Some(pulse) = self.sessions.next_pulse(&self.context, now) {
            return pulse;
        }
        // Notifications in the outbox are sent before the runner retires.
        let ends = self.context.options.until_idle || self.context.only.is_some();
        if rest.idle && ends && self.sessions.only_unproven() && self.outbox.is_empty() {
            self.is_leaving = true;
            return self.retire();
        }
        if self.outbox.take_due(now) {
            self.pass = Pass::Due;
            return self.next_action(now);
        }
        if rest.until <= now {
            self.context.forget_living();
            self.context.is_slow_pass = true;
            self.woken();
            return self.next_action(now);
        }
        let parts = [
            self.sessions.next_deadline(&self.context),
            self.outbox.next_deadline(),
            self.shortage.next_deadline(),
            self.renewal.next_deadline(),
        ];
        let until = parts.into_iter().flatten().fold(rest.until, Lease::min);
        Action::Sleep { watch: rest.watch, at_most: until - now }
    }

    /// Reports the runs that have ended, and claims others in their place, without reading anything first: the last pass has decided
    /// everything else, and every relevant change since wakes this runner.
    fn claim_at_once(&mut self, now: Lease) -> Option<Vec<Request>> {
        let Pass::Done(_) = self.pass else { return None };
        let room = self.room();
        if !self.sessions.has_ended() && !self.selection.is_due(room, &self.context) {
            return None;
        }
        // The file DONE of a loop must be checked first.
        if self.context.only.is_some() || self.sessions.ended_tasks().any(|task| task.spec.restart.is_some()) {
            self.pass = Pass::Due;
            return None;
        }
        let mut requests = self.sessions.finishes(&self.context, |_| Some(Marker::Absent));
        requests.extend(self.due_requests(true, now));
        requests.extend(self.selection.requests(room, &self.context));
        Some(requests)
    }

    /// The requests of the parts that are due; `is_written_anyway` if there are other requests.
    fn due_requests(&mut self, is_written_anyway: bool, now: Lease) -> Vec<Request> {
        let mut requests = self.sessions.requests(is_written_anyway, &self.context, now);
        requests.extend(self.outbox.requests(&self.context, now));
        requests.extend(self.shortage.requests());
        requests.extend(self.guard_checks.requests());
        requests
    }

    /// Sends these requests next, if there are any.
    fn call(&mut self, requests: Vec<Request>) {
        if !requests.is_empty() {
            self.out.act(Action::Call(requests));
        }
    }

    fn woken(&mut self) {
        self.selection.woken();
        self.pass = Pass::Due;
    }

    fn session_begun(&mut self, run: &RunId, now: Lease) {
        if self.sessions.has_begun(run, &mut self.out) {
            self.shortage.session_begun(self.sessions.begun(), &self.context, now, &mut self.out);
        }
    }

    fn session_ended(&mut self, run: &RunId, ended: RunEndRecord) -> bool {
        let is_own = self.sessions.ended(run, ended);
        if is_own {
            self.selection.freed();
        }
        is_own
    }

    /// How many more runs the runner may have once the ended ones are reported.
    fn room(&self) -> usize {
        let living = self.sessions.living();
        self.shortage.room(self.context.room(living), living)
    }

    fn retire(&mut self) -> Action {
        if !std::mem::replace(&mut self.is_enlisted, false) {
            return Action::Done;
        }
        self.selection.report_queued(0, &mut self.out);
        // The renewal gives other runners as much time as possible to adopt the remaining sessions.
        let renewal = self.renewal.request(self.context.id()).filter(|_| !self.sessions.is_empty());
        let retire = RunRequest::Retire { runner: self.context.id(), seen: Seen::default() };
        Action::Call(renewal.into_iter().chain([retire]).map(Request::from).collect())
    }
}
