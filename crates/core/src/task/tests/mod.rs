use std::num::NonZeroU32;

use serde_json::json;

use super::*;
use crate::step::Effect;
use crate::task::retry::{OnTimeout, Policy};
use crate::test_world::World;

mod asking;
mod escalation;
mod frozen;
mod histories;
mod landing;
mod loops;
mod model;
mod putting_back;
mod table;

/// How long a run may be silent, in seconds.
pub(super) const TIMEOUT: i64 = 60;
/// How many recoveries a task has.
pub(super) const MAX_RECOVERIES: u32 = 2;
/// How many retries a task has.
pub(super) const RETRIES: u32 = 1;
/// How many attempts a loop has.
pub(super) const MAX_ATTEMPTS: u32 = 3;
/// The backoff of a loop, and the time of its children, in seconds: longer than the time-out above.
pub(super) const REST: i64 = 90;
/// How long a run may take, in seconds.
pub(super) const MAX_DURATION: i64 = 200;

pub(super) const WATCH: Watch =
    Watch { timeout: Span::from_secs(TIMEOUT), max_recoveries: MAX_RECOVERIES, on_exhausted: OnExhausted::Escalate };

pub(crate) const POLICY: Policy = Policy {
    max_attempts: NonZeroU32::new(MAX_ATTEMPTS).unwrap(),
    delay: Span::from_secs(REST),
    child_wait: Span::from_secs(REST),
    on_children_timeout: OnTimeout::Kill,
};

pub(crate) fn spec(title: &str) -> Spec {
    Spec { work: Some(Work::Run("make".into())), retries: RETRIES, ..Spec::new(title.parse().unwrap()) }
}

/// A session that could not begin, because of a shortage or for another reason.
pub(super) fn not_begun(is_shortage: bool) -> RunEnd {
    RunEnd::NotBegun { error: "no room".into(), is_shortage }
}

pub(super) fn run(number: usize) -> RunId {
    RunId::new(&format!("r-{number}")).unwrap()
}

impl World<Task> {
    /// A task that was just added; its runs are numbered from 1.
    pub(super) fn task() -> World<Task> {
        World::of(spec("build"))
    }

    /// A task whose first run has begun, with the epoch of the run.
    pub(super) fn running() -> (World<Task>, Epoch) {
        let mut world = World::task();
        world.start();
        let epoch = world.epoch();
        (world, epoch)
    }

    /// A loop that was just added.
    pub(super) fn looping() -> World<Task> {
        World::of(Spec { retries: 0, restart: Some(POLICY), ..spec("build") })
    }

    pub(super) fn of(spec: Spec) -> World<Task> {
        let id = TaskId::new("t-1").unwrap();
        let mut world = World::new(Task::new(id.clone(), spec.clone(), &Now::default()));
        world.machine = Task::new(id.clone(), spec.clone(), &world.now);
        let fact = TaskFact::Added { spec: Box::new(spec), depends_on: Vec::new(), import: None };
        world.record(vec![Effect::Emit(Event::Task { id, fact })]);
        world
    }

    pub(super) fn runs(&self) -> usize {
        let started = |event: &Event| matches!(event, Event::Task { fact: TaskFact::Started { .. }, .. });
        self.log.iter().filter(|(_, _, event)| started(event)).count()
    }

    /// Starts the next run.
    pub(super) fn start(&mut self) -> Outcome {
        let run = run(self.runs() + 1);
        self.act(Input::Start { run, runner: RunnerId::new("m").unwrap(), recheck: false })
    }

    /// The epoch of the last run, whether it lives or not; 0 before the first.
    pub(super) fn epoch(&self) -> Epoch {
        let started = |event: &Event| matches!(event, Event::Task { fact: TaskFact::Started { .. }, .. });
        self.log.iter().rev().find(|(_, _, event)| started(event)).map_or(Epoch(0), |(seq, _, _)| Epoch::from(*seq))
    }

    pub(super) fn pulse(&mut self, epoch: Epoch, pulse: Pulse) -> Outcome {
        self.act(Input::Heartbeat { epoch, pulse, watch: WATCH })
    }

    pub(super) fn say(&mut self, epoch: Option<Epoch>, is_done: bool) -> Outcome {
        let verdict = if is_done { Verdict::Done { output: Some(json!(7)) } } else { Verdict::Failed { error: "bad".into() } };
        self.act(Input::Conclude { epoch, verdict })
    }

    pub(super) fn stop(&mut self, after: After) -> Outcome {
        self.act(Input::Stop(after))
    }

    pub(super) fn fail(&mut self) -> Outcome {
        self.stop(After::Fail { error: "too long".into() })
    }

    pub(super) fn end(&mut self, number: usize, ending: RunEnd) -> Outcome {
        self.end_with(number, ending, Marker::Absent, 0)
    }

    pub(super) fn end_with(&mut self, number: usize, ending: RunEnd, marker: Marker, children: u32) -> Outcome {
        self.act(Input::End { run: run(number), ending, ran: None, marker, children, watch: WATCH })
    }

    /// Ends the last run, which has left DONE behind.
    pub(super) fn end_done(&mut self, children: u32) -> Outcome {
        self.end_with(self.runs(), RunEnd::Exited(0), Marker::Done, children)
    }

    /// The last run shows no activity for longer than the time-out.
    pub(super) fn fall_silent(&mut self) -> Outcome {
        self.pass(TIMEOUT);
        self.pulse(self.epoch(), Pulse::Idle(Span::from_secs(1_000)))
    }

    pub(super) fn overtime(&mut self) -> Outcome {
        self.act(Input::Overtime { run: run(self.runs()), max: Span::from_secs(MAX_DURATION) })
    }

    /// Takes the task under this epoch, for a while.
    pub(super) fn take(&mut self, epoch: Epoch) -> Outcome {
        let until = Some(self.now.lease + Span::from_secs(REST));
        self.act(Input::Take { holder: HolderId::new("ann").unwrap(), epoch, until })
    }

    /// The last run ends by itself, after this time.
    pub(super) fn end_after(&mut self, ending: RunEnd, secs: i64) -> Outcome {
        let (run, ran) = (run(self.runs()), Some(Span::from_secs(secs)));
        self.act(Input::End { run, ending, ran, marker: Marker::Absent, children: 0, watch: WATCH })
    }

    /// The last run ends.
    pub(super) fn end_last(&mut self, ending: RunEnd) -> Outcome {
        self.end(self.runs(), ending)
    }

    pub(super) fn error(&self) -> &str {
        match &self.machine.state {
            State::Done(TaskEnd::Failed { error }) => error,
            other => panic!("it has not failed but is {other:?}"),
        }
    }
}

#[test]
fn output_moves_the_deadline_of_the_next_check() {
    let (mut world, epoch) = World::running();
    world.pass(TIMEOUT);
    let timeout = Span::from_secs(TIMEOUT);
    assert_eq!(world.machine.next_deadline(timeout), Some(world.now.lease));
    assert_eq!(world.pulse(epoch, Pulse::Idle(Span::from_secs(20))), Outcome::Seen);
    assert_eq!(world.machine.next_deadline(timeout), Some(world.now.lease + Span::from_secs(TIMEOUT - 20)));
    world.pass(TIMEOUT - 20);
    assert_eq!(world.pulse(epoch, Pulse::Idle(timeout)), Outcome::Stuck);
    let last_seen = world.now.stamp().before(timeout).lease;
    assert!(
        matches!(&world.machine.state, State::Stuck { reason: Stuck::NoHeartbeat { last_seen: at }, .. } if at.lease == last_seen)
    );
}

#[test]
fn a_run_without_any_activity_makes_no_progress() {
    let (mut world, epoch) = World::running();
    world.pass(TIMEOUT);
    assert_eq!(world.pulse(epoch, Pulse::Idle(Span::from_secs(1_000))), Outcome::Stuck);
    let reason = Stuck::NoProgress { duration: Span::from_secs(TIMEOUT) };
    assert!(matches!(&world.machine.state, State::Stuck { reason: found, .. } if *found == reason));
}

#[test]
fn a_stall_of_the_runner_delays_the_detection_of_stuck_runs() {
    let (mut world, _) = World::running();
    let (epoch, long) = (world.epoch(), Pulse::Idle(Span::from_secs(1_000)));
    world.now.patience = Span::from_secs(15);
    world.pass(TIMEOUT + 14);
    assert_eq!(world.pulse(epoch, long), Outcome::Seen);
    world.pass(1);
    assert_eq!(world.pulse(epoch, long), Outcome::Stuck);
}

#[test]
fn a_stuck_run_that_reports_a_verdict_is_watched_again() {
    let (mut world, epoch) = World::running();
    world.pulse(epoch, Pulse::SessionDead);
    assert_eq!(world.say(Some(epoch), true), Outcome::Noted);
    assert_eq!(world.kinds(), ["added", "started", "stuck", "recovered"]);
    assert_eq!(world.machine.next_deadline(Span::from_secs(TIMEOUT)), Some(world.now.lease + Span::from_secs(TIMEOUT)));
    assert_eq!(world.end_last(RunEnd::Lost), Outcome::Ended(Status::Completed), "the verdict of the run counts");
}

#[test]
fn a_stronger_stop_request_replaces_a_weaker_one() {
    let fail = || After::Fail { error: "too long".into() };
    let then = |wishes: &[After]| {
        let (mut world, epoch) = World::running();
        wishes.iter().for_each(|wish| assert_eq!(world.stop(wish.clone()), Outcome::Stopping));
        assert_eq!(world.outbox.len(), 2, "one spawn and one kill: {:?}", world.outbox);
        world.say(Some(epoch), true);
        world.end_last(RunEnd::Signalled(15))
    };
    assert_eq!(then(&[After::Restart]), Outcome::Ended(Status::Completed));
    assert_eq!(then(&[After::Overtime { max: Span::ZERO }]), Outcome::Ended(Status::Completed));
    assert_eq!(then(&[After::Escalate { error: "x".into() }]), Outcome::Ended(Status::Completed));
    assert_eq!(then(&[fail()]), Outcome::Ended(Status::Completed));
    assert_eq!(then(&[After::Cancel]), Outcome::Ended(Status::Cancelled));
    assert_eq!(then(&[fail(), After::Restart, After::Cancel]), Outcome::Ended(Status::Cancelled));
    assert_eq!(then(&[After::Cancel, fail(), After::Restart]), Outcome::Ended(Status::Cancelled));
}

#[test]
fn restarts_are_recoveries_and_have_a_limit() {
    let mut world = World::task();
    for _ in 0..MAX_RECOVERIES {
        world.start();
        world.stop(After::Restart);
        assert_eq!(world.end_last(RunEnd::Signalled(9)), Outcome::Again(RetryReason::Stuck));
    }
    world.start();
    world.stop(After::Restart);
    let mut strict = world.clone();
    assert!(matches!(world.end_last(RunEnd::Signalled(9)), Outcome::AwaitingDecision(_)));

    let watch = Watch { on_exhausted: OnExhausted::Fail, ..WATCH };
    let run = run(strict.runs());
    let end = Input::End { run, ending: RunEnd::Signalled(9), ran: None, marker: Marker::Absent, children: 0, watch };
    assert_eq!(strict.act(end), Outcome::Ended(Status::Failed));
    assert_eq!(strict.error(), "it had to be restarted; recoveries before that: 2");

    for mut world in [world, strict] {
        assert_eq!(world.act(Input::Retry), Outcome::Clear);
        world.start();
        let again = Outcome::Again(RetryReason::Lost);
        assert_eq!(world.end_last(RunEnd::Lost), again, "a retry by a person resets the recoveries");
    }
}

#[test]
fn the_error_is_the_one_of_the_run_or_else_its_end() {
    for (said, ending, error) in [
        (true, RunEnd::Exited(3), "bad"),
        (false, RunEnd::Exited(3), "exit status 3"),
        (false, RunEnd::Signalled(9), "killed by signal 9"),
        (false, RunEnd::NotStarted { error: "no such shell".into() }, "no such shell"),
    ] {
        let mut world = World::task();
        world.machine.spec.retries = 0;
        world.start();
        let epoch = world.epoch();
        if said {
            world.say(Some(epoch), false);
        }
        assert_eq!(world.end_last(ending), Outcome::Ended(Status::Failed));
        assert_eq!(world.error(), error);
    }
}

#[test]
fn the_error_of_a_failed_run_is_logged_though_another_follows() {
    let (mut world, epoch) = World::running();
    world.say(Some(epoch), false);
    assert_eq!(world.end_last(RunEnd::Exited(0)), Outcome::Again(RetryReason::Failed));
    let (_, _, last) = world.log.last().unwrap();
    let data = r#"{"ending":{"exited":0},"error":"bad","failures":1,"recoveries":0,"run":"r-1","why":"failed"}"#;
    assert_eq!((last.kind(), &*last.data()), ("task:restarting", data));
}

#[test]
fn status_words_are_the_same_everywhere() {
    for status in Status::ALL {
        assert_eq!(Status::parse(status.as_str()), Some(status));
        assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
    }
    assert_eq!(Status::parse("done"), None);
}
