use serde_json::json;

use super::*;
use crate::ids::{Name, SectionId};
use crate::step::Effect;
use crate::test_world::World;

#[path = "task_histories.rs"]
mod histories;
#[path = "task_table.rs"]
mod table;

/// How long a run may be silent here, in seconds.
pub(super) const TIMEOUT: i64 = 60;
/// How many recoveries there are here.
pub(super) const MAX_RECOVERIES: u32 = 1;
/// How many retries the task has here.
pub(super) const RETRIES: u32 = 1;

pub(crate) fn spec(title: &str) -> Spec {
    Spec {
        title: title.parse().unwrap(),
        section: None,
        parent: None,
        labels: Vec::new(),
        priority: 0,
        work: Some(Work::Run("make".into())),
        needs: Vec::new(),
        retries: RETRIES,
        workspace: Workspace::None,
    }
}

pub(super) fn run(number: usize) -> RunId {
    RunId::new(&format!("r-{number}")).unwrap()
}

impl World<Task> {
    /// A task that was just added; its runs are numbered from 1.
    pub(super) fn task() -> World<Task> {
        let id = TaskId::new("t-1").unwrap();
        let mut world = World::new(Task::new(id.clone(), spec("build"), &Now::default()));
        world.machine = Task::new(id.clone(), spec("build"), &world.now);
        let fact = TaskFact::Added { spec: Box::new(spec("build")), depends_on: Vec::new(), import: None };
        world.record(vec![Effect::Emit(Event::Task { id, fact })]);
        world
    }

    pub(super) fn runs(&self) -> usize {
        usize::try_from(self.machine.attempts).unwrap()
    }

    /// Starts the next run.
    pub(super) fn start(&mut self) -> Outcome {
        let run = run(self.runs() + 1);
        self.act(Input::Start { run, runner: RunnerId::new("m").unwrap() })
    }

    /// The epoch of the last run, whether it lives or not; 0 before the first.
    pub(super) fn epoch(&self) -> Epoch {
        let started = |event: &Event| matches!(event, Event::Task { fact: TaskFact::Started { .. }, .. });
        self.log.iter().rev().find(|(_, _, event)| started(event)).map_or(Epoch(0), |(seq, _, _)| Epoch::from(*seq))
    }

    pub(super) fn pulse(&mut self, epoch: Epoch, pulse: Pulse) -> Outcome {
        self.act(Input::Heartbeat { epoch, pulse, timeout: Span::from_secs(TIMEOUT) })
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

    pub(super) fn end(&mut self, number: usize, ending: Ending) -> Outcome {
        self.act(Input::End { run: run(number), ending, max_recoveries: MAX_RECOVERIES })
    }

    /// The last run ends.
    pub(super) fn end_last(&mut self, ending: Ending) -> Outcome {
        self.end(self.runs(), ending)
    }

    fn error(&self) -> &str {
        match &self.machine.state {
            State::Done(Done::Failed { error }) => error,
            other => panic!("it has not failed but is {other:?}"),
        }
    }
}

#[test]
fn a_run_that_prints_is_not_stuck_and_is_not_looked_at_all_the_time() {
    let mut world = World::task();
    world.start();
    let epoch = world.epoch();
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
fn a_run_of_which_nothing_was_ever_seen_makes_no_progress() {
    let mut world = World::task();
    world.start();
    let epoch = world.epoch();
    world.pass(TIMEOUT);
    assert_eq!(world.pulse(epoch, Pulse::Idle(Span::from_secs(1_000))), Outcome::Stuck);
    let reason = Stuck::NoProgress { duration: Span::from_secs(TIMEOUT) };
    assert!(matches!(&world.machine.state, State::Stuck { reason: found, .. } if *found == reason));
}

#[test]
fn one_who_was_stalled_calls_nobody_stuck_for_as_long() {
    let mut world = World::task();
    world.start();
    let (epoch, long) = (world.epoch(), Pulse::Idle(Span::from_secs(1_000)));
    world.now.patience = Span::from_secs(15);
    world.pass(TIMEOUT + 14);
    assert_eq!(world.pulse(epoch, long), Outcome::Seen);
    world.pass(1);
    assert_eq!(world.pulse(epoch, long), Outcome::Stuck);
}

#[test]
fn a_stuck_run_that_speaks_is_watched_again() {
    let mut world = World::task();
    world.start();
    let epoch = world.epoch();
    world.pulse(epoch, Pulse::SessionDead);
    assert_eq!(world.say(Some(epoch), true), Outcome::Noted);
    assert_eq!(world.told(), ["added", "started", "stuck", "recovered"]);
    assert_eq!(world.machine.next_deadline(Span::from_secs(TIMEOUT)), Some(world.now.lease + Span::from_secs(TIMEOUT)));
    assert_eq!(world.end_last(Ending::Lost), Outcome::Ended(Status::Completed), "what the run has said counts");
}

#[test]
fn a_wish_that_says_more_replaces_one_that_says_less() {
    let fail = || After::Fail { error: "too long".into() };
    let then = |wishes: &[After]| {
        let mut world = World::task();
        world.start();
        let epoch = world.epoch();
        wishes.iter().for_each(|wish| assert_eq!(world.stop(wish.clone()), Outcome::Stopping));
        assert_eq!(world.sent.len(), 2, "one spawn and one kill: {:?}", world.sent);
        world.say(Some(epoch), true);
        world.end_last(Ending::Signalled(15))
    };
    assert_eq!(then(&[After::Restart]), Outcome::Ended(Status::Completed));
    assert_eq!(then(&[fail()]), Outcome::Ended(Status::Completed));
    assert_eq!(then(&[After::Cancel]), Outcome::Ended(Status::Cancelled));
    assert_eq!(then(&[fail(), After::Restart, After::Cancel]), Outcome::Ended(Status::Cancelled));
    assert_eq!(then(&[After::Cancel, fail(), After::Restart]), Outcome::Ended(Status::Cancelled));
}

#[test]
fn a_restart_is_a_recovery_and_recoveries_are_bounded() {
    let mut world = World::task();
    for _ in 0..MAX_RECOVERIES {
        world.start();
        world.stop(After::Restart);
        assert_eq!(world.end_last(Ending::Signalled(9)), Outcome::Again);
    }
    world.start();
    world.stop(After::Restart);
    assert_eq!(world.end_last(Ending::Signalled(9)), Outcome::Ended(Status::Failed));
    assert_eq!(world.error(), "it had to be restarted; recoveries before that: 1");

    world.act(Input::Retry);
    world.start();
    assert_eq!(world.end_last(Ending::Lost), Outcome::Again, "a retry by a person gives all of them back");
}

#[test]
fn the_error_is_what_the_run_said_or_else_how_it_ended() {
    for (said, ending, error) in [
        (true, Ending::Exited(3), "bad"),
        (false, Ending::Exited(3), "exit status 3"),
        (false, Ending::Signalled(9), "killed by signal 9"),
        (false, Ending::NotStarted { error: "no such shell".into() }, "no such shell"),
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
fn what_a_failed_run_said_is_in_the_log_though_another_follows() {
    let mut world = World::task();
    world.start();
    let epoch = world.epoch();
    world.say(Some(epoch), false);
    assert_eq!(world.end_last(Ending::Exited(0)), Outcome::Again);
    let (_, _, last) = world.log.last().unwrap();
    assert_eq!((last.kind(), &*last.data()), ("task:restarting", r#"{"ending":{"exited":0},"error":"bad","run":"r-1"}"#));
}

#[test]
fn the_words_for_how_a_task_stands_are_the_same_everywhere() {
    for status in Status::ALL {
        assert_eq!(Status::parse(status.as_str()), Some(status));
        assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
    }
    assert_eq!(Status::parse("done"), None);
}

/// What is in people's files today must be readable for ever.
#[test]
fn the_stored_form_is_frozen() {
    fn frozen<T: serde::de::DeserializeOwned + Serialize>(text: &str) {
        let value: T = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
    }
    let live = r#"{"run":"r-1","epoch":12,"started":{"lease":5,"wall":6},"seen":{"lease":7,"wall":8}}"#;
    let at = r#"{"lease":5,"wall":6}"#;
    frozen::<State>(r#""pending""#);
    frozen::<State>(r#""review""#);
    frozen::<State>(&format!(r#"{{"running":{live}}}"#));
    for verdict in [r#"{"done":{}}"#, r#"{"done":{"output":{"a":1}}}"#, r#"{"failed":{"error":"bad"}}"#] {
        let said = live.replace(r#"8}}"#, &format!(r#"8}},"verdict":{verdict}}}"#));
        frozen::<State>(&format!(r#"{{"running":{said}}}"#));
    }
    for reason in
        [&*format!(r#"{{"noHeartbeat":{{"lastSeen":{at}}}}}"#), r#"{"noProgress":{"duration":900}}"#, r#""sessionDead""#]
    {
        frozen::<State>(&format!(r#"{{"stuck":{{"live":{live},"detected":{at},"reason":{reason}}}}}"#));
    }
    for then in [r#""cancel""#, r#""restart""#, r#"{"fail":{"error":"bad"}}"#] {
        frozen::<State>(&format!(r#"{{"stopping":{{"live":{live},"since":{at},"then":{then}}}}}"#));
    }
    for done in
        [r#"{"success":{}}"#, r#"{"success":{"output":7}}"#, r#"{"failed":{"error":"bad"}}"#, r#""cancelled""#, r#""skipped""#]
    {
        frozen::<State>(&format!(r#"{{"done":{done}}}"#));
    }
    frozen::<Spec>(r#"{"title":"build","priority":0,"retries":0,"workspace":"none"}"#);
    frozen::<Spec>(
        r#"{"title":"build","section":"s-1","parent":"t-0","labels":["x"],"priority":-3,"work":{"run":"make"},"needs":[{"lock":"db"},{"slots":{"name":"gpu","weight":2}}],"retries":2,"workspace":"dir"}"#,
    );
    let spec: Spec = serde_json::from_str(r#"{"title":"build"}"#).unwrap();
    assert_eq!((spec.priority, spec.retries, spec.workspace), (0, 0, Workspace::None));
    let need = |text: &str| serde_json::from_str::<Need>(text).unwrap().name().clone();
    assert_eq!(need(r#"{"slots":{"name":"gpu","weight":2}}"#), Name::new("gpu").unwrap());
}

#[test]
fn the_stored_form_of_its_events_is_frozen() {
    let spec = r#"{"priority":0,"retries":0,"title":"build","workspace":"none"}"#;
    let task = TaskId::new("t-1").unwrap();
    for (kind, data) in [
        ("task:added", &*format!(r#"{{"spec":{spec}}}"#)),
        ("task:updated", &format!(r#"{{"dependsOn":[{{"on":"t-0"}},{{"allowFailed":true,"on":"t-2"}}],"spec":{spec}}}"#)),
        ("task:started", r#"{"attempt":0,"run":"r-1","runner":"m"}"#),
        ("task:adopted", r#"{"from":"m","run":"r-1","runner":"n"}"#),
        ("task:stuck", r#"{"reason":{"noHeartbeat":{"lastSeen":{"lease":5,"wall":6}}},"run":"r-1"}"#),
        ("task:stuck", r#"{"reason":"sessionDead","run":"r-1"}"#),
        ("task:recovered", r#"{"run":"r-1"}"#),
        ("task:stopping", r#"{"run":"r-1","then":"restart"}"#),
        ("task:stopping", r#"{"run":"r-1","then":{"fail":{"error":"bad"}}}"#),
        ("task:restarting", r#"{"ending":{"exited":1},"run":"r-1"}"#),
        ("task:restarting", r#"{"ending":{"signalled":9},"error":"bad","run":"r-1"}"#),
        ("task:restarting", r#"{"ending":{"notStarted":{"error":"no shell"}},"run":"r-1"}"#),
        ("task:restarting", r#"{"ending":"lost","run":"r-1"}"#),
        ("task:restarting", r#"{"ending":"never","run":"r-1"}"#),
        ("task:complete", r#"{"output":{"a":1},"run":"r-1"}"#),
        ("task:complete", "{}"),
        ("task:failed", r#"{"error":"bad","run":"r-1"}"#),
        ("task:cancelled", r#"{"run":"r-1"}"#),
        ("task:retried", "{}"),
        ("task:marked", r#"{"status":"review"}"#),
        ("task:deleted", "{}"),
    ] {
        let event = Event::parse(kind, "task", Some("t-1"), data).unwrap_or_else(|error| panic!("{kind} {data}: {error:?}"));
        assert_eq!((event.kind(), &*event.data(), event.source()), (kind, data, ("task", Some("t-1"))));
        assert!(matches!(event, Event::Task { id, .. } if id == task));
    }
    for (kind, data) in [
        ("section:added", r#"{"exclusive":true,"name":"back end"}"#),
        ("section:updated", r#"{"exclusive":false,"name":"back end"}"#),
        ("section:deleted", "{}"),
    ] {
        let event = Event::parse(kind, "section", Some("s-1"), data).unwrap();
        assert_eq!((event.kind(), &*event.data(), event.source()), (kind, data, ("section", Some("s-1"))));
        assert!(matches!(event, Event::Section { id, .. } if id == SectionId::new("s-1").unwrap()));
    }
    assert!(Event::parse("task:vanished", "task", Some("t-1"), "{}").is_err());
    assert!(Event::parse("task:retried", "task", None, "{}").is_err());
    let old = Event::parse("section:lunch", "user", None, "7").unwrap();
    assert!(matches!(old, Event::Custom { .. }), "users could write this before there were sections: {old:?}");
}
