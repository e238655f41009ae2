//! The merge queue: a table of all pairs, all short orders, random histories against a naive model, and the stored
//! form.

mod collecting;
mod conflicts;
mod histories;
mod table;

use super::*;
use crate::step::Effect;

pub(super) fn commit(number: u8) -> CommitId {
    CommitId::new(&format!("{number:02x}").repeat(20)).unwrap()
}

pub(super) fn spec(number: u8) -> EntrySpec {
    EntrySpec {
        source: Some(commit(number)),
        title: format!("work {number}").into(),
        branch: None,
        task: None,
        priority: 0,
        unchecked: false,
        host: "here".into(),
        round: 0,
        rounds: 0,
        ask_on_conflict: false,
        of_child: false,
    }
}

/// A queue with its clock and its log.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) queue: LandingQueue,
    pub(super) now: Now,
    pub(super) log: Vec<Event>,
    pub(super) notices: usize,
    /// All entries ever added, in the states of the outcomes.
    pub(super) entries: BTreeMap<LandingId, Entry>,
}

impl Scene {
    pub(super) fn new() -> Scene {
        let queue = LandingQueue::new(Name::new("main").unwrap());
        let now = Now { seq: Seq(1), ..Now::default() };
        Scene { queue, now, log: Vec::new(), notices: 0, entries: BTreeMap::new() }
    }

    pub(super) fn step(&mut self, input: Input) -> Outcome {
        let step = self.queue.clone().step(input, &self.now);
        step.state.check();
        for effect in step.effects {
            match effect {
                Effect::Emit(event) => {
                    self.log.push(event);
                    self.now.seq.0 += 1;
                }
                Effect::Send(_) => self.notices += 1,
                Effect::Wake(_) => {}
            }
        }
        self.queue = step.state;
        self.entries.extend(self.queue.entries.clone());
        if let Outcome::Stands(entry) = &step.outcome {
            self.entries.insert(entry.id.clone(), (**entry).clone());
        }
        step.outcome
    }

    pub(super) fn add(&mut self, spec: EntrySpec) -> LandingId {
        match self.step(Input::Add(Box::new(spec))) {
            Outcome::Added(id) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn report(&mut self, id: &LandingId, report: Report) -> Outcome {
        self.step(Input::Report(id.clone(), report))
    }

    pub(super) fn word(&self, id: &LandingId) -> &'static str {
        self.entries[id].state.as_str()
    }

    /// Checks that the rows are the replay of the log.
    pub(super) fn check_replay(&self) {
        let mut target = Target::new(self.queue.target.name.clone());
        let mut entries: BTreeMap<LandingId, Entry> = BTreeMap::new();
        for event in &self.log {
            match event.clone() {
                Event::Landing { id, fact: EntryFact::Added { target, spec } } => {
                    entries.insert(id.clone(), Entry::new(id, target, *spec, Wall(0)));
                }
                Event::Landing { id, fact } => entries.get_mut(&id).unwrap().apply(fact),
                Event::LandingTarget { fact, .. } => target.apply(fact, Wall(0)),
                Event::Decision { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(target, self.queue.target);
        let timeless: BTreeMap<_, _> =
            self.entries.iter().map(|(id, entry)| (id.clone(), Entry { again: None, ..entry.clone() })).collect();
        assert_eq!(entries, timeless);
    }
}

fn built() -> Report {
    Report::Built { tip: commit(0xa0), commit: commit(0xb0) }
}

fn checked(passed: bool) -> Report {
    Report::Checked { commit: commit(0xb0), passed, log: "log".into() }
}

#[test]
fn entries_land_in_the_order_of_priority_and_arrival() {
    let mut scene = Scene::new();
    let first = scene.add(spec(1));
    let urgent = scene.add(EntrySpec { priority: 5, ..spec(2) });
    let elsewhere = scene.add(EntrySpec { priority: 9, host: "there".into(), ..spec(3) });
    let next = |scene: &Scene| match scene.queue.next("here", Lease(0)) {
        Work::Build(entry) => entry.id,
        other => panic!("{other:?}"),
    };
    assert_eq!(next(&scene), urgent);
    assert_eq!(scene.queue.ahead_of(&first), Some(2));
    scene.step(Input::Remove { entry: urgent, by: "ann".into() });
    assert_eq!(next(&scene), first);
    scene.step(Input::Remove { entry: first, by: "ann".into() });
    assert_eq!(scene.queue.next("here", Lease(0)), Work::Nothing, "{elsewhere} is for another machine");
}

#[test]
fn a_commit_is_queued_once_and_a_full_queue_refuses() {
    let mut scene = Scene::new();
    let first = scene.add(spec(1));
    assert_eq!(scene.step(Input::Add(Box::new(spec(1)))), Outcome::Duplicate(first));
    for number in 1..QUEUE_LIMIT {
        let source = CommitId::new(&format!("{number:040x}")).unwrap();
        scene.add(EntrySpec { source: Some(source), ..spec(2) });
    }
    assert_eq!(scene.step(Input::Add(Box::new(spec(3)))), Outcome::Full);
}

#[test]
fn waits_double_and_people_are_notified_once() {
    let mut scene = Scene::new();
    let id = scene.add(EntrySpec { unchecked: true, ..spec(1) });
    let obstacle = Obstacle::Checkout { path: "/repo".into(), reason: "it has changes".into(), files: vec!["a".into()] };
    let mut waits = Vec::new();
    for _ in 0..8 {
        scene.report(&id, built());
        scene.report(&id, Report::Obstructed(obstacle.clone()));
        let Work::Sleep(until) = scene.queue.next("here", scene.now.lease) else { panic!() };
        waits.push(until.0 - scene.now.lease.0);
        scene.now.lease = until;
        assert!(matches!(scene.queue.next("here", until), Work::Build(_)));
    }
    assert_eq!(waits, [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]);
    assert_eq!(scene.notices, 1);
    scene.check_replay();
}

#[test]
fn lasting_failures_and_a_moving_target_need_a_person() {
    let mut scene = Scene::new();
    let id = scene.add(spec(1));
    for _ in 1..FAILURE_LIMIT {
        scene.report(&id, Report::Obstructed(Obstacle::Failure { error: "no space".into() }));
        assert_eq!(scene.word(&id), "waiting");
    }
    scene.report(&id, Report::Obstructed(Obstacle::Failure { error: "no space".into() }));
    assert_eq!(scene.word(&id), "needs_you");
    scene.step(Input::Answer { entry: id.clone(), again: true });
    for _ in 1..REBUILD_LIMIT {
        scene.report(&id, built());
        scene.report(&id, Report::TipMoved);
        assert_eq!(scene.word(&id), "queued");
    }
    scene.report(&id, built());
    scene.report(&id, Report::TipMoved);
    assert_eq!(scene.word(&id), "needs_you");
    scene.step(Input::Answer { entry: id.clone(), again: false });
    assert_eq!(scene.word(&id), "returned");
    scene.check_replay();
}

#[test]
fn after_the_last_round_of_an_author_a_person_is_asked() {
    let task = Some(crate::ids::TaskId::new("t-1").unwrap());
    for (round, asks, word) in [(0, false, "returned"), (1, false, "returned"), (2, false, "needs_you"), (0, true, "needs_you")] {
        let mut scene = Scene::new();
        let id = scene.add(EntrySpec { task: task.clone(), round, rounds: 2, ask_on_conflict: asks, ..spec(1) });
        scene.report(&id, Report::Conflict { tip: commit(0xa0), files: vec!["a".into()] });
        assert_eq!(scene.word(&id), word, "round {round}");
    }
}

#[test]
fn a_red_target_pauses_the_queue_and_a_green_one_is_not_checked_again() {
    let mut scene = Scene::new();
    let id = scene.add(spec(1));
    for report in [built(), checked(false), checked(false)] {
        scene.report(&id, report);
    }
    assert!(matches!(scene.queue.next("here", Lease(0)), Work::CheckTip { .. }));
    scene.report(&id, Report::TipChecked { tip: commit(0xa0), passed: false, log: "red".into() });
    assert_eq!((scene.word(&id), scene.queue.next("here", Lease(0))), ("queued", Work::Nothing));
    scene.step(Input::Resume { by: "ann".into() });
    for report in [built(), checked(false), checked(false)] {
        scene.report(&id, report);
    }
    scene.report(&id, Report::TipChecked { tip: commit(0xa0), passed: true, log: "green".into() });
    assert_eq!(scene.word(&id), "returned");
    let second = scene.add(spec(2));
    for report in [built(), checked(false), checked(false)] {
        scene.report(&second, report);
    }
    assert_eq!(scene.word(&second), "returned", "the tip is known to be green");
    scene.check_replay();
}

#[test]
fn the_stored_form_is_frozen() {
    let hex = "ab".repeat(20);
    let text = format!(
        r#"{{"id":"l-3","target":"main","spec":{{"source":"{hex}","title":"Fix","task":"t-1","unchecked":true,"host":"h","rounds":2}},"added":5,"state":{{"waiting":{{"obstacle":{{"checkout":{{"path":"/r","reason":"it has changes","files":["a"]}}}}}}}},"rebuilds":1,"tries":2}}"#
    );
    let entry: Entry = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&entry).unwrap(), text);
    for (state, text) in [
        (State::Queued, r#""queued""#.to_owned()),
        (
            State::Passed { tip: commit(0xab), commit: commit(0xab), flaky: true },
            format!(r#"{{"passed":{{"tip":"{hex}","commit":"{hex}","flaky":true}}}}"#),
        ),
        (State::Over(LandingEnd::Removed { by: "ann".into() }), r#"{"over":{"removed":{"by":"ann"}}}"#.to_owned()),
        (
            State::Over(LandingEnd::Returned(Return::Conflict { tip: commit(0xab), files: vec!["a".into()] })),
            format!(r#"{{"over":{{"returned":{{"conflict":{{"tip":"{hex}","files":["a"]}}}}}}}}"#),
        ),
    ] {
        assert_eq!(serde_json::to_string(&state).unwrap(), text);
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
    }
    let target: Target = serde_json::from_str(r#"{"name":"main","paused":{"at":7,"by":"ann"}}"#).unwrap();
    assert_eq!(target.paused, Some(Pause { at: Wall(7), by: Some("ann".into()), red: None }));
}
