//! Rows of a backlog survive a round trip, and their keys find them.

use std::num::NonZeroU32;

use banksman_core::backlog::{Backlog, OutboxEntry};
use banksman_core::decision::{self, About, Act, Choice, Question};
use banksman_core::ids::{DecisionId, Epoch, HolderId, RunId, RunnerId, TaskId};
use banksman_core::task::retry::{OnTimeout, Policy};
use banksman_core::task::{Spec, State, Task, TaskEnd, Work};
use banksman_core::{Decision, Lease, Notice, NoticeKind, Now, OutboxCommand, Seq, Span, Wall};

use crate::call::{Call, Tx};
use crate::key::Key;
use crate::sqlite::memory;
use crate::store::Store;
use crate::test_support::ManualMachine;

/// Changes the loaded rows directly.
struct Edit<F>(Vec<Key>, F);

impl<F: Fn(&mut Backlog)> Call for Edit<F> {
    type Reply = ();

    fn keys(&self) -> Vec<Key> {
        self.0.clone()
    }

    fn decide(&self, tx: &mut Tx) {
        (self.1)(&mut tx.tables.backlog);
    }
}

fn edit(store: &mut Store, keys: &[Key], change: impl Fn(&mut Backlog)) {
    store.begin(&[Edit(keys.to_vec(), change)]).and_then(crate::store::Open::commit).unwrap();
}

fn id(number: i64) -> TaskId {
    TaskId::new(&format!("t-{number}")).unwrap()
}

/// A root, or a child of the first task. Tasks with odd numbers are loops.
fn task(number: i64, parent: Option<i64>, state: State) -> Task {
    let policy = Policy {
        max_attempts: NonZeroU32::new(3).unwrap(),
        delay: Span::from_secs(1),
        child_wait: Span::from_secs(300),
        on_children_timeout: OnTimeout::Kill,
    };
    let spec = Spec {
        section: None,
        parent: parent.map(id),
        labels: Vec::new(),
        priority: i32::try_from(number).unwrap(),
        work: Some(Work::Run("true".into())),
        needs: Vec::new(),
        retries: 0,
        restart: (number % 2 == 1).then_some(policy),
        ..Spec::new(format!("task {number}").parse().unwrap())
    };
    Task { state, ..Task::new(id(number), spec, &Now { seq: Seq(number), ..Now::default() }) }
}

fn manual(until: Option<i64>) -> State {
    State::Manual { holder: HolderId::new("ann").unwrap(), epoch: Epoch(7), until: until.map(Lease) }
}

/// Tasks in every state that waits for something, by number.
fn waiting() -> Vec<Task> {
    let backoff = |until| State::Backoff { until: Lease(until) };
    let awaiting = |until: Option<i64>| State::Awaiting { output: Some(7.into()), until: until.map(Lease), no_change: false };
    vec![
        task(1, None, backoff(500)),
        task(2, Some(1), manual(Some(300))),
        task(3, None, awaiting(Some(400))),
        task(4, None, manual(None)),
        task(5, Some(1), awaiting(None)),
        task(6, None, State::AwaitingDecision { decision: DecisionId::from(Seq(9)) }),
        task(7, None, State::Pending),
        task(8, None, State::Pending),
        task(9, Some(1), State::Pending),
        task(11, None, State::Done(TaskEnd::Skipped)),
        task(13, Some(1), backoff(500)),
    ]
}

/// The tasks that a key loads.
fn found(store: &mut Store, key: Key) -> Vec<String> {
    let rows = store.view().load(&[key].into()).unwrap();
    rows.tables.backlog.tasks.into_keys().map(|id| id.to_string()).collect()
}

fn filled() -> Store {
    let mut store = memory(Box::new(ManualMachine::at(1_000))).unwrap();
    edit(&mut store, &[], |rows| rows.tasks.extend(waiting().into_iter().map(|task| (task.id.clone(), task))));
    store
}

#[test]
fn every_task_state_survives_a_round_trip() {
    let mut store = filled();
    let rows = store.view().everything().unwrap().tables.backlog.tasks;
    let written: std::collections::BTreeMap<_, _> = waiting().into_iter().map(|task| (task.id.clone(), task)).collect();
    assert_eq!(rows, written);
}

#[test]
fn due_keys_find_exactly_the_tasks_that_wait_for_time() {
    let mut store = filled();
    assert_eq!(found(&mut store, Key::Due), ["t-1", "t-13", "t-2", "t-3", "t-4", "t-5"]);
    assert_eq!(found(&mut store, Key::DueRoots), ["t-1", "t-3", "t-4"]);
    // A task that no longer waits leaves the index with the same change, and a task that begins to wait enters it.
    edit(&mut store, &[Key::Task(id(1)), Key::Task(id(8))], |rows| {
        rows.tasks.get_mut(&id(1)).unwrap().state = State::Pending;
        rows.tasks.get_mut(&id(8)).unwrap().state = State::Backoff { until: Lease(1) };
    });
    assert_eq!(found(&mut store, Key::DueRoots), ["t-3", "t-4", "t-8"]);
}

#[test]
fn waiting_loops_are_read_in_pages_by_position() {
    let mut store = filled();
    let loops = |store: &mut Store, after, limit| found(store, Key::Loops { after: Seq(after), limit });
    assert_eq!(loops(&mut store, 0, 9), ["t-1", "t-13", "t-7", "t-9"]);
    assert_eq!(loops(&mut store, 0, 2), ["t-1", "t-7"]);
    assert_eq!(loops(&mut store, 7, 2), ["t-13", "t-9"]);
}

#[test]
fn limited_roots_are_ordered_by_arrival_and_ready_tasks_by_priority() {
    let mut store = filled();
    let ready = Key::Ready { of_each: 1, sections: Vec::new() };
    let roots = Key::ReadyRoots { of_each: 1, sections: Vec::new() };
    assert_eq!(found(&mut store, ready), ["t-8", "t-9"], "roots and children have lanes of their own");
    assert_eq!(found(&mut store, roots.clone()), Vec::<String>::new());
    edit(&mut store, &[], |rows| rows.limits = Some(banksman_core::Limits { runs: 0, roots: 1 }));
    assert_eq!(found(&mut store, roots), ["t-7"], "the root that came first, where roots are limited");
}

fn question(about: About) -> Question {
    let options = vec![Choice { text: "again".into(), act: Act::Retry }, Choice { text: "leave it".into(), act: Act::Drop }];
    Question { about, text: "What now?".into(), options, recommended: 2 }
}

#[test]
fn decisions_survive_a_round_trip_and_open_ones_are_found() {
    let mut store = memory(Box::new(ManualMachine::at(1_000))).unwrap();
    let key = |seq| DecisionId::from(Seq(seq));
    // Ten comes after nine, though not as a text.
    let first = Decision::new(key(9), question(About::Task(id(1))), Wall(5));
    let second = Decision::new(key(10), question(About::OutboxCommand(Seq(3))), Wall(6));
    edit(&mut store, &[], |rows| {
        rows.decisions.extend([&first, &second].map(|decision| (decision.id.clone(), decision.clone())));
    });
    let open = |store: &mut Store| store.view().load(&[Key::OpenDecisions].into()).unwrap().tables.backlog.decisions;
    assert_eq!(open(&mut store).into_values().collect::<Vec<_>>(), [second.clone(), first.clone()]);

    let now = Now { wall: Wall(7), ..Now::default() };
    let input = decision::Input::Resolve { option: 2, by: "ann".into(), note: Some("fine".into()) };
    let resolved = first.clone().step(input, &now).state;
    let withdrawn = second.clone().step(decision::Input::Withdraw, &now).state;
    for (state, left) in [(&resolved, 1), (&withdrawn, 0)] {
        edit(&mut store, &[Key::Decision(state.id.clone())], |rows| drop(rows.decisions.insert(state.id.clone(), state.clone())));
        assert_eq!(open(&mut store).len(), left);
        let one = store.view().load(&[Key::Decision(state.id.clone())].into()).unwrap().tables.backlog.decisions;
        assert_eq!(one.get(&state.id), Some(state));
    }
    assert_eq!(store.view().everything().unwrap().backlog.decisions.len(), 2, "they are kept");
}

#[test]
fn outbox_entries_keep_their_attempts_due_time_and_executor() {
    let mut store = memory(Box::new(ManualMachine::at(1_000))).unwrap();
    let (run, runner) = (RunId::new("r-1").unwrap(), RunnerId::new("n-1").unwrap());
    let notice = Notice { kind: NoticeKind::BacklogFinished, subject: "x".into(), text: "y".into() };
    let commands = [
        OutboxCommand::Nudge { run: run.clone() },
        OutboxCommand::Kill { run, now: false },
        OutboxCommand::Notify(Box::new(notice)),
    ];
    let mut entry: Vec<OutboxEntry> = (0..)
        .zip(commands)
        .map(|(seq, command)| OutboxEntry::new(Seq(seq), command, (seq == 1).then(|| runner.clone()), Lease(40)))
        .collect();
    let put = |store: &mut Store, entry: &[OutboxEntry]| {
        edit(store, &[Key::Outbox], |rows| rows.outbox = entry.iter().map(|entry| (entry.seq, entry.clone())).collect());
        let rows = store.view().load(&[Key::Outbox].into()).unwrap().tables.backlog.outbox;
        assert_eq!(rows.into_values().collect::<Vec<_>>(), entry);
    };
    put(&mut store, &entry);
    entry[0].failed(Lease(100));
    entry[1].executor = None;
    entry[2].executor = Some(runner);
    put(&mut store, &entry);
    entry.remove(1);
    put(&mut store, &entry);
}
