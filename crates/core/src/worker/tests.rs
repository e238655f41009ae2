use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::replay::Replay;
use crate::replay::tests::stored::assert_every_cut;
use crate::step::Effect;
use crate::test_world::name;
use crate::time::Wall;

fn task(number: i64) -> TaskId {
    TaskId::new(&format!("q-{number}.{number}")).unwrap()
}

fn taken(number: i64) -> Taken {
    Taken { queue: name("q"), item: ItemId(Seq(number)), epoch: Epoch(number) }
}

fn definition(concurrency: u32, sleeps: bool) -> Arc<Definition> {
    Arc::new(Definition {
        runbook: "nightly".into(),
        name: name("w"),
        queue: name("q"),
        job: Job::Task { run_command: RunCommand::Run("true".into()), timeout: None },
        concurrency,
        wake_on: if sleeps { vec![Pattern::new("deploy:done").unwrap()] } else { Vec::new() },
        retry_delay: Span::ZERO,
    })
}

/// All workers, and their log.
#[derive(Default)]
struct Site {
    workers: Workers,
    log: Vec<(Seq, Wall, Event)>,
}

impl Site {
    fn ask(&mut self, input: Input) -> Outcome {
        self.ask_of("w", input)
    }

    fn ask_of(&mut self, worker: &str, input: Input) -> Outcome {
        let now = Now { seq: Seq(i64::try_from(self.log.len()).unwrap() + 1), ..Now::default() };
        let step = std::mem::take(&mut self.workers).step(&name(worker), input, &now);
        self.workers = step.state;
        self.workers.check();
        for effect in step.effects {
            let Effect::Emit(event) = effect else { panic!("a worker has no other effects than events") };
            let event = Event::parse(event.kind(), event.source().0, event.source().1, &event.data()).unwrap();
            self.log.push((Seq(i64::try_from(self.log.len()).unwrap() + 1), Wall(0), event));
        }
        step.outcome
    }

    fn worker(&self) -> &Worker {
        &self.workers.workers[&name("w")]
    }

    /// Asserts that the workers are the replay of the log, also if any part of the log is compacted.
    fn compare(&self) {
        let mut replay = Replay::default();
        self.log.iter().for_each(|(seq, wall, event)| replay.apply(*seq, *wall, event.clone()));
        let tables = Replay::default().with_workers(&self.workers, &Default::default());
        assert_eq!(replay.differences(&tables), Vec::<String>::new());
        assert_eq!(replay, tables);
        assert_every_cut(&self.log, 3);
    }
}

/// The inputs that lead a worker to each of its states.
fn states() -> Vec<(&'static str, Vec<Input>)> {
    let define = |concurrency, sleeps| Input::Define(definition(concurrency, sleeps));
    let take = |number| Input::Take { task: task(number), taken: taken(number) };
    vec![
        ("nothing", vec![]),
        ("awake", vec![define(2, false)]),
        ("asleep", vec![define(2, true)]),
        ("woken", vec![define(2, true), Input::Wake]),
        ("paused", vec![define(2, false), Input::Pause]),
        ("paused asleep", vec![define(2, true), Input::Pause]),
        ("busy", vec![define(2, false), take(1)]),
        ("woken busy", vec![define(2, true), Input::Wake, take(1)]),
        ("full", vec![define(1, false), take(1)]),
        ("paused busy", vec![define(2, false), take(1), Input::Pause]),
        ("finishing", vec![define(2, false), take(1), Input::Remove]),
    ]
}

#[test]
fn every_state_answers_every_input() {
    let (gone, leaving) = (Outcome::Removed { jobs: 0 }, Outcome::Removed { jobs: 1 });
    let (woken, awake, asleep) = (Outcome::Woken, Outcome::Awake, Outcome::Asleep);
    let (paused, resumed, full) = (Outcome::Paused, Outcome::Resumed, Outcome::Full);
    let (unknown, no_job, took, ended) = (Outcome::Unknown, Outcome::NoJob, Outcome::Taken, Outcome::Ended(taken(1)));
    let (same, changed, created) = (Outcome::Same, Outcome::Changed, Outcome::Created);
    // Define as with concurrency 2 and no sleep; Remove, Wake, Pause, Resume, Take 9, Ended 1, Drained.
    let table: BTreeMap<&str, [&Outcome; 8]> = [
        ("nothing", [&created, &unknown, &unknown, &unknown, &unknown, &unknown, &unknown, &unknown]),
        ("awake", [&same, &gone, &awake, &paused, &resumed, &took, &no_job, &awake]),
        ("asleep", [&changed, &gone, &woken, &paused, &resumed, &asleep, &no_job, &asleep]),
        ("woken", [&changed, &gone, &awake, &paused, &resumed, &took, &no_job, &asleep]),
        ("paused", [&same, &gone, &awake, &paused, &resumed, &paused, &no_job, &awake]),
        ("paused asleep", [&changed, &gone, &woken, &paused, &resumed, &paused, &no_job, &asleep]),
        ("busy", [&same, &leaving, &awake, &paused, &resumed, &took, &ended, &awake]),
        ("woken busy", [&changed, &leaving, &awake, &paused, &resumed, &took, &ended, &awake]),
        ("full", [&changed, &leaving, &awake, &paused, &resumed, &full, &ended, &awake]),
        ("paused busy", [&same, &leaving, &awake, &paused, &resumed, &paused, &ended, &awake]),
        ("finishing", [&created, &unknown, &unknown, &unknown, &unknown, &unknown, &ended, &unknown]),
    ]
    .into();
    let inputs = [
        Input::Define(definition(2, false)),
        Input::Remove,
        Input::Wake,
        Input::Pause,
        Input::Resume,
        Input::Take { task: task(9), taken: taken(9) },
        Input::Ended { task: task(1), how: JobEnd::Completed },
        Input::Drained,
    ];
    assert_eq!(table.len(), states().len());
    for (state, way) in states() {
        for (input, wanted) in inputs.iter().zip(table[state]) {
            let mut site = Site::default();
            way.iter().for_each(|input| drop(site.ask(input.clone())));
            let before = (site.workers.clone(), site.log.len());
            let outcome = site.ask(input.clone());
            assert_eq!(&outcome, wanted, "{state}: {input:?}");
            // An input has an event exactly if it changes something.
            assert_eq!(before.0 == site.workers, before.1 == site.log.len(), "{state}: {input:?}");
            site.compare();
        }
    }
}

#[test]
fn workers_of_other_runbooks_and_long_names_are_refused() {
    let mut site = Site::default();
    site.ask(Input::Define(definition(1, false)));
    let other = Definition { runbook: "other".into(), ..(*definition(1, false)).clone() };
    assert_eq!(site.ask(Input::Define(Arc::new(other))), Outcome::Foreign { runbook: "nightly".into() });
    assert_eq!(site.ask_of(&"w".repeat(194), Input::Define(definition(1, false))), Outcome::BadName);
    assert_eq!(site.ask_of(&"w".repeat(193), Input::Define(definition(1, false))), Outcome::Created);
    for number in 2..WORKERS_LIMIT {
        site.ask_of(&number.to_string(), Input::Define(definition(1, false)));
    }
    assert_eq!(site.ask_of("one too many", Input::Define(definition(1, false))), Outcome::TooMany);
}

#[test]
fn a_removed_worker_finishes_its_jobs_and_can_be_defined_again() {
    let mut site = Site::default();
    site.ask(Input::Define(definition(2, true)));
    site.ask(Input::Wake);
    site.ask(Input::Take { task: task(1), taken: taken(1) });
    site.ask(Input::Pause);
    site.ask(Input::Remove);
    assert_eq!(site.worker().state(), "finishing");
    assert_eq!(site.ask(Input::Define(definition(2, true))), Outcome::Created);
    assert_eq!(site.worker().state(), "busy", "it is a new worker with the job of the old one");
    site.ask(Input::Remove);
    site.ask(Input::Ended { task: task(1), how: JobEnd::Failed });
    assert!(site.workers.workers.is_empty());
    site.compare();
}

#[derive(Debug, Clone)]
enum Move {
    Define(u32, bool),
    Remove,
    Wake,
    Pause,
    Resume,
    Take,
    End(usize),
    Drained,
}

fn operation() -> impl Strategy<Value = Move> {
    prop_oneof![
        2 => (1u32..4, any::<bool>()).prop_map(|(concurrency, sleeps)| Move::Define(concurrency, sleeps)),
        1 => Just(Move::Remove),
        2 => Just(Move::Wake),
        1 => Just(Move::Pause),
        2 => Just(Move::Resume),
        6 => Just(Move::Take),
        4 => (0usize..5).prop_map(Move::End),
        3 => Just(Move::Drained),
    ]
}

/// The naive model of a worker.
#[derive(Default)]
struct WorkerModel {
    there: bool,
    limit: usize,
    sleeps: bool,
    paused: bool,
    asleep: bool,
    jobs: Vec<i64>,
}

proptest! {
    #[test]
    fn random_histories_agree_with_a_naive_worker(operations in prop::collection::vec(operation(), 1..60)) {
        let (mut site, mut model, mut number) = (Site::default(), WorkerModel::default(), 0);
        for operation in operations {
            match operation {
                Move::Define(concurrency, sleeps) => {
                    site.ask(Input::Define(definition(concurrency, sleeps)));
                    if !model.there {
                        (model.paused, model.asleep) = (false, true);
                    }
                    model.asleep &= sleeps && model.jobs.is_empty();
                    (model.there, model.limit, model.sleeps) = (true, concurrency as usize, sleeps);
                }
                Move::Remove => {
                    site.ask(Input::Remove);
                    model.there = false;
                }
                Move::Wake => {
                    site.ask(Input::Wake);
                    model.asleep &= !model.there;
                }
                Move::Pause => {
                    site.ask(Input::Pause);
                    model.paused |= model.there;
                }
                Move::Resume => {
                    site.ask(Input::Resume);
                    model.paused &= !model.there;
                }
                Move::Take => {
                    number += 1;
                    let may = model.there && !model.paused && !model.asleep && model.jobs.len() < model.limit;
                    let outcome = site.ask(Input::Take { task: task(number), taken: taken(number) });
                    prop_assert_eq!(outcome == Outcome::Taken, may, "{:?}", outcome);
                    if may {
                        model.jobs.push(number);
                    }
                }
                Move::End(at) => {
                    let job = model.jobs.get(at).copied();
                    let outcome = site.ask(Input::Ended { task: task(job.unwrap_or(-1)), how: JobEnd::Completed });
                    prop_assert_eq!(matches!(outcome, Outcome::Ended(_)), job.is_some());
                    model.jobs.retain(|other| Some(*other) != job);
                }
                Move::Drained => {
                    site.ask(Input::Drained);
                    model.asleep |= model.there && model.sleeps && model.jobs.is_empty();
                }
            }
            let jobs = site.workers.workers.get(&name("w")).map_or(0, |worker| worker.jobs.len());
            prop_assert_eq!(jobs, model.jobs.len());
        }
        site.compare();
    }
}

#[test]
fn events_before_it_fell_asleep_do_not_wake_a_worker() {
    let mut site = Site::default();
    site.ask(Input::Define(definition(1, true)));
    assert_eq!(site.worker().since, Seq(1));
    site.ask(Input::Wake);
    site.ask(Input::Drained);
    assert_eq!((site.worker().since, site.log.len()), (Seq(3), 3));
    site.compare();
}

/// Stored data must be readable for ever.
#[test]
fn the_stored_form_is_frozen() {
    let data = r#"{"concurrency":2,"job":{"task":{"deed":{"run":"true"}}},"name":"w","queue":"q","runbook":"nightly","wakeOn":["deploy:done"]}"#;
    let event = Event::parse("worker:defined", "worker", Some("w"), data).unwrap();
    assert_eq!(event, Event::Worker { name: name("w"), fact: Fact::Defined(definition(2, true)) });
    assert_eq!(event.data(), data);
    let facts = [
        ("worker:removed", "{}"),
        ("worker:paused", "{}"),
        ("worker:resumed", "{}"),
        ("worker:woken", "{}"),
        ("worker:asleep", "{}"),
        ("worker:take", r#"{"epoch":9,"item":"q-7","queue":"q","task":"q-7.9"}"#),
        ("worker:end", r#"{"how":"completed","task":"q-7.9"}"#),
    ];
    for (kind, data) in facts {
        let event = Event::parse(kind, "worker", Some("w"), data).unwrap();
        assert_eq!((event.kind(), event.data().as_str()), (kind, data));
    }
    let row = r#"{"definition":{"runbook":"nightly","name":"w","queue":"q","job":{"task":{"deed":{"run":"true"}}},"concurrency":2},"paused":false,"awake":true,"removed":false,"since":3,"jobs":{"q-7.9":{"queue":"q","item":"q-7","epoch":9}}}"#;
    let worker: Worker = serde_json::from_str(row).unwrap();
    assert_eq!(serde_json::to_string(&worker).unwrap(), row);
}

#[test]
fn the_delay_after_failed_attempts_doubles() {
    let after = |delay: i64, attempt: u32| {
        let definition = Definition { retry_delay: Span::from_secs(delay), ..(*definition(1, false)).clone() };
        definition.retry_after(attempt).as_ms() / 1_000
    };
    assert_eq!([1, 2, 3, 4, 20, 1_000].map(|attempt| after(10, attempt)), [10, 20, 40, 80, 3_600, 3_600]);
    assert_eq!([after(0, 9), after(7_200, 9)], [0, 7_200], "no delay; a delay above the limit is kept");
}
