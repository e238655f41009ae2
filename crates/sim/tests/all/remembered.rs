//! Bugs that a history has found, as short tests: after the next change a seed means another history.

use std::sync::Arc;

use banksman_core::backlog::{Edge, RunEndRecord, Runner};
use banksman_core::guard::{Condition, Guard, GuardAction, Predicate};
use banksman_core::pipeline::plan::{Action, Context, Phase, Plan, RunCommand, Text};
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::grant::{Address, Ask, GrantRequest, WaitingProcess};
use banksman_core::resource::lock;
use banksman_core::task::retry::{Marker, OnTimeout, Policy};
use banksman_core::task::{OnExhausted, Outcome as Refused, RunEnd, Spec, Watch, Work};
use banksman_core::{
    Epoch, HolderId, Lease, Liveness, Name, NoticeKind, ProcessId, RequestId, RunId, RunnerId, SectionId, Span, Stamp, TaskId,
    Ticket, Title, Wall,
};
use banksman_engine::{
    Dispatcher, Options, PipelineRequest, Reply, Request, RunnerAction, RunnerInput, SectionRequest, Start, TaskOutcome,
    TaskRequest,
};
use banksman_store::test_support::ManualMachine;
use banksman_store::{Store, sqlite};

fn ask(store: &mut Store, input: lock::Input) -> lock::Outcome {
    let request = Request::plain(Command::Lock(Name::new("a").expect("a good name"), input));
    let committed = store.begin(&[request]).and_then(banksman_store::Open::commit).expect("the store works");
    match committed.replies.into_iter().next() {
        Some(Reply::Coordinate { outcome: Outcome::Lock(outcome), .. }) => outcome,
        other => unreachable!("a lock was asked, and {other:?} was the answer"),
    }
}

/// How long a place among the waiters lasts without a poll.
const PLACE: Span = Span::from_secs(15);

/// A request that waits if necessary, bound to the process that makes it.
fn acquire(holder: &str, request: &str, pid: i32) -> lock::Input {
    let process = ProcessId { host: "host".into(), boot: "boot".into(), pid_ns: 1, pid, start: 1 };
    let claim = GrantRequest {
        processes: vec![process.clone()],
        request: Some(RequestId::new(request).expect("a good name")),
        ..GrantRequest::new(HolderId::new(holder).expect("a good name"))
    };
    let wait = Some(WaitingProcess { process, address: None, lease: Some(PLACE) });
    lock::Input::Acquire(Box::new(Ask { wait, ..Ask::new(claim) }))
}

/// A process died while it waited, and its successor repeated the request: the successor got the place, but the row was
/// still bound to the dead process, so that the next waiter would have taken the lock from the living one.
#[test]
fn a_place_taken_over_is_bound_to_the_new_process() {
    let mut store = sqlite::memory(Box::new(ManualMachine::default())).expect("a store in memory");
    let first = ask(&mut store, acquire("first", "r1", 1));
    let epoch = if let lock::Outcome::Acquired(grant) = first { grant.epoch } else { Epoch(0) };
    ask(&mut store, acquire("second", "r2", 2));
    ask(&mut store, acquire("second", "r2", 3));
    ask(&mut store, lock::Input::Release { holder: HolderId::new("first").expect("a good name"), epoch });
    let snapshot = store.view().snapshot().expect("the store works");
    let pids = |lock: &lock::Lock| match &lock.state {
        lock::State::Held(grant) => grant.claim.processes.iter().map(|process| process.pid).collect(),
        lock::State::Free => Vec::new(),
    };
    assert_eq!(snapshot.coordination.locks.values().flat_map(pids).collect::<Vec<_>>(), [3]);
}

/// A waiter whose place has a lease polled and learnt that it waits; but the poll was not recorded, so that its place
/// was gone as soon as the lease was over, however often it had polled.
#[test]
fn a_place_lasts_as_long_as_its_waiter_polls() {
    let clock = ManualMachine::default();
    let mut store = sqlite::memory(Box::new(clock.clone())).expect("a store in memory");
    ask(&mut store, acquire("first", "r1", 1));
    ask(&mut store, acquire("second", "r2", 2));
    for _ in 0..5 {
        clock.advance(PLACE.as_ms() / 2);
        let outcome = ask(&mut store, lock::Input::Poll { ticket: Ticket(1) });
        assert!(matches!(outcome, lock::Outcome::Waiting(_)), "{outcome:?}");
    }
}

fn commit(store: &mut Store, requests: &[Request]) -> Vec<Reply> {
    store.begin(requests).and_then(banksman_store::Open::commit).expect("the store works").replies
}

fn process(pid: i32) -> ProcessId {
    ProcessId { host: "host".into(), boot: "boot".into(), pid_ns: 1, pid, start: 1 }
}

/// How runs are watched: with a long timeout.
const WATCH: Watch = Watch { timeout: Span::from_secs(600), max_recoveries: 3, on_exhausted: OnExhausted::Escalate };

/// A runner with a limit of one run.
fn runner(name: &str, pid: i32) -> Dispatcher {
    runner_with(name, pid, |_| {})
}

fn runner_with(name: &str, pid: i32, change: impl FnOnce(&mut Options)) -> Dispatcher {
    let id = RunnerId::new(name).expect("a good id");
    let row = Runner { max_runs: Some(1), ..Runner::new(id, process(pid), Address(name.into()), Stamp::default()) };
    let mut options =
        Options { max_runs: Some(1), kill_patience: Span::from_secs(3), poll: Span::from_secs(30), ..Options::new(WATCH) };
    change(&mut options);
    Dispatcher::new(row, options)
}

fn is_kill(action: &RunnerAction, run: &RunId) -> bool {
    matches!(action, RunnerAction::Kill(killed, _) if killed == run)
}

/// How many steps a runner may take before it sleeps.
const STEPS: usize = 100;

/// Drives a runner until it sleeps. Returns the runs that it starts or recovers. All processes are alive.
fn drive(store: &mut Store, runner: &mut Dispatcher) -> Vec<RunId> {
    let actions = drive_at(store, runner, Lease(0));
    let started = actions.into_iter().filter_map(|actions| match actions {
        RunnerAction::Spawn(work) | RunnerAction::Recover(work) => Some(work.run.id),
        _ => None,
    });
    started.collect()
}

/// Drives a runner until it sleeps, at this moment. Returns its actions, including the sleep.
fn drive_at(store: &mut Store, runner: &mut Dispatcher, now: Lease) -> Vec<RunnerAction> {
    let mut actions = Vec::new();
    for _ in 0..STEPS {
        let (mut count, id) = (0, runner.id().to_string());
        let at = store.view().last_event().expect("the store works");
        runner.give_ids(|| {
            count += 1;
            RunId::new(&format!("{id}-{at}-{count}")).expect("a good id")
        });
        match runner.next(now) {
            RunnerAction::Load(keys) => {
                runner.on(RunnerInput::Rows(Box::new(store.view().load(&keys).expect("the store works"))), now)
            }
            RunnerAction::Probe(who) => {
                runner.on(RunnerInput::Probed(who.into_iter().map(|process| (process, Liveness::Alive)).collect()), now)
            }
            RunnerAction::Check(tasks) => {
                actions.push(RunnerAction::Check(tasks.clone()));
                runner.on(RunnerInput::Checked(tasks.into_iter().map(|task| (task, Marker::Absent)).collect()), now);
            }
            RunnerAction::Call(requests) => {
                let replies = commit(store, &requests);
                runner.on(RunnerInput::Replies(replies), now);
            }
            other => {
                actions.push(other);
                if let Some(RunnerAction::Sleep { .. } | RunnerAction::Done) = actions.last() {
                    return actions;
                }
            }
        }
    }
    unreachable!("it never sleeps: {actions:?}")
}

fn add_task(store: &mut Store, id: &str, section: Option<&str>, priority: i32) {
    add(store, id, spec(id, section, priority), &[]);
}

fn spec(id: &str, section: Option<&str>, priority: i32) -> Spec {
    Spec {
        section: section.map(|section| SectionId::new(section).expect("a good id")),
        priority,
        work: Some(Work::Run("true".into())),
        ..Spec::new(Title::new(id).expect("a good title"))
    }
}

fn task(id: &str) -> TaskId {
    TaskId::new(id).expect("a good id")
}

fn add(store: &mut Store, id: &str, spec: Spec, on: &[&str]) {
    let depends_on = on.iter().map(|on| Edge { on: task(on), allow_failed: false }).collect();
    commit(store, &[Request::Task(TaskRequest::Add { id: task(id), spec: Box::new(spec), depends_on, by: None })]);
}

fn is_free(store: &mut Store, name: &str) -> bool {
    let locks = store.view().everything().expect("the store works").tables.coordination.locks;
    let lock = locks.get(&Name::new(name).expect("a good name"));
    lock.is_none_or(|lock| lock.state == lock::State::Free)
}

fn exited(code: i32) -> RunEndRecord {
    RunEndRecord::new(RunEnd::Exited(code), Wall(0), None)
}

/// A store with an exclusive section and two tasks in it.
fn store_with_section() -> Store {
    let mut store = sqlite::memory(Box::new(ManualMachine::default())).expect("a store in memory");
    let (id, name) = (SectionId::new("s").expect("a good id"), Title::new("s").expect("a good title"));
    commit(&mut store, &[Request::Section(SectionRequest::Add { id, name, exclusive: true })]);
    add_task(&mut store, "first", Some("s"), 0);
    add_task(&mut store, "second", Some("s"), 0);
    store
}

/// A runner without capacity kept the lock of an exclusive section in which it had no run any more, so that runners
/// with capacity could not work there.
#[test]
fn a_runner_without_capacity_leaves_a_section() {
    let mut store = store_with_section();
    drive(&mut store, &mut runner("one", 1));
    add_task(&mut store, "urgent", None, 9);
    let mut two = runner("two", 2);
    assert_eq!(drive(&mut store, &mut two).len(), 1, "it starts the urgent task");
    two.on(RunnerInput::Died(process(1)), Lease(0));
    let adopted = drive(&mut store, &mut two);
    two.on(RunnerInput::Ended(adopted[0].clone(), exited(0)), Lease(0));
    assert_eq!(drive(&mut store, &mut two).len(), 0, "it has no capacity");
    assert!(is_free(&mut store, "section:s"));
    assert_eq!(drive(&mut store, &mut runner("three", 3)).len(), 1, "another runner works in the section");
}

/// A claim was committed and its reply lost. The runner found its run again, but not the section that it had entered
/// with it.
#[test]
fn a_section_entered_by_a_lost_claim_is_left_again() {
    let mut store = store_with_section();
    let mut one = runner("one", 1);
    while !store.view().everything().expect("the store works").backlog.runs.values().any(|_| true) {
        match one.next(Lease(0)) {
            RunnerAction::Load(keys) => {
                one.on(RunnerInput::Rows(Box::new(store.view().load(&keys).expect("the store works"))), Lease(0))
            }
            RunnerAction::Probe(who) => {
                one.on(RunnerInput::Probed(who.into_iter().map(|process| (process, Liveness::Alive)).collect()), Lease(0))
            }
            RunnerAction::Call(requests) => {
                let replies = commit(&mut store, &requests);
                let claimed = store.view().everything().expect("the store works").backlog.runs.len() == 1;
                if claimed {
                    one.on(RunnerInput::NoReply, Lease(-1_000))
                } else {
                    one.on(RunnerInput::Replies(replies), Lease(0))
                }
            }
            other => unreachable!("{other:?} before the first claim"),
        }
        one.give_ids(|| RunId::new("r").expect("a good id"));
    }
    drive(&mut store, &mut one);
    let run = store.view().everything().expect("the store works").tables.backlog.runs.into_keys().next().expect("one run");
    add_task(&mut store, "urgent", None, 9);
    one.on(RunnerInput::Ended(run.clone(), exited(0)), Lease(0));
    assert_eq!(drive(&mut store, &mut one).len(), 1, "it starts the urgent task");
    assert!(is_free(&mut store, "section:s"));
}

/// A runner that was asked to exit while it gave the store time to recover slept on, and woke at once, again and again.
#[test]
fn a_cancelled_runner_does_not_sleep() {
    let mut store = store_with_section();
    let mut one = runner("one", 1);
    drive(&mut store, &mut one);
    one.on(RunnerInput::NoReply, Lease(0));
    one.on(RunnerInput::Leave, Lease(0));
    assert!(matches!(one.next(Lease(0)), RunnerAction::Call(_)));
}

/// A runner that found a run over its time limit asked the store to end it, again and again, and never ended it.
#[test]
fn a_run_that_takes_too_long_is_ended() {
    let (clock, mut one) =
        (ManualMachine::default(), runner_with("one", 1, |options| options.max_duration = Some(Span::from_secs(5))));
    let mut store = sqlite::memory(Box::new(clock.clone())).expect("a store in memory");
    add_task(&mut store, "long", None, 0);
    let begun = drive(&mut store, &mut one);
    clock.advance(5_000);
    let actions = drive_at(&mut store, &mut one, Lease(5_000));
    assert!(actions.iter().any(|action| is_kill(action, &begun[0])), "{actions:?}");
    one.on(RunnerInput::KeeperGone(begun[0].clone()), Lease(0));
    assert_eq!(drive_at(&mut store, &mut one, Lease(5_000)).len(), 2, "its keeper was killed: the session is recovered");
}

/// A runner whose outbox command had failed did not sleep until its retry was due, but woke at once and did nothing
/// until the next poll; and a runner that exits when idle exited meanwhile, without the notification.
#[test]
fn a_failed_notification_is_retried_when_due() {
    let (clock, mut one) = (ManualMachine::default(), runner_with("one", 1, |options| options.until_idle = true));
    let mut store = sqlite::memory(Box::new(clock.clone())).expect("a store in memory");
    add_task(&mut store, "bad", None, 0);
    let begun = drive(&mut store, &mut one);
    one.on(RunnerInput::Ended(begun[0].clone(), exited(1)), Lease(0));
    let actions = drive_at(&mut store, &mut one, Lease(0));
    let mut notices = actions.into_iter().filter_map(|actions| match actions {
        RunnerAction::Notify(command, notice) => Some((command, notice.kind)),
        _ => None,
    });
    let (command, _) = notices.find(|(_, kind)| *kind == NoticeKind::TaskFailed).expect("there is a notice about the failure");
    // The notice that no work is left is sent, too, and succeeds.
    notices.for_each(|(other, _)| one.on(RunnerInput::CommandDone(other, Ok(())), Lease(0)));
    one.on(RunnerInput::CommandDone(command, Err("nobody answers".into())), Lease(0));
    let actions = drive_at(&mut store, &mut one, Lease(0));
    assert!(matches!(actions.last(), Some(RunnerAction::Sleep { .. })), "it waits: {actions:?}");
    clock.advance(1_000);
    let actions = drive_at(&mut store, &mut one, Lease(1_000));
    assert!(matches!(actions.first(), Some(RunnerAction::Notify(again, _)) if *again == command), "{actions:?}");
    one.on(RunnerInput::CommandDone(command, Ok(())), Lease(0));
    assert!(matches!(drive_at(&mut store, &mut one, Lease(1_000))[..], [RunnerAction::Done]));
}

/// A loop with a delay.
fn policy() -> Policy {
    Policy {
        max_attempts: std::num::NonZeroU32::new(9).expect("not zero"),
        delay: Span::from_secs(9),
        child_wait: Span::ZERO,
        on_children_timeout: OnTimeout::Warn,
    }
}

/// Files of loops that wait for something else were only checked in a poll, which never comes for a runner that is
/// woken again and again.
#[test]
fn a_busy_runner_checks_for_done_files() {
    let (clock, mut one) = (ManualMachine::default(), runner("one", 1));
    let mut store = sqlite::memory(Box::new(clock.clone())).expect("a store in memory");
    add(&mut store, "first", Spec { work: None, ..spec("first", None, 0) }, &[]);
    add(&mut store, "loop", Spec { restart: Some(policy()), ..spec("loop", None, 0) }, &["first"]);
    let mut checks = 0;
    for second in 0..60 {
        one.on(RunnerInput::Woken, Lease(0));
        checks += drive_at(&mut store, &mut one, Lease(second * 1_000)).len() - 1;
        clock.advance(1_000);
    }
    assert_eq!(checks, 2, "once when it begins, and once after half a minute");
}

/// A session could not be ended and a person was asked what to do. When it had ended after all, the question stayed.
#[test]
fn a_question_about_a_run_is_withdrawn_when_the_run_ends() {
    let clock = ManualMachine::default();
    let mut store = sqlite::memory(Box::new(clock.clone())).expect("a store in memory");
    let mut one = runner("one", 1);
    add_task(&mut store, "stubborn", None, 0);
    let begun = drive(&mut store, &mut one);
    commit(&mut store, &[Request::Task(TaskRequest::Cancel { id: task("stubborn") })]);
    one.on(RunnerInput::Woken, Lease(0));
    let mut kills = 0;
    for second in 0..120 {
        let actions = drive_at(&mut store, &mut one, Lease(second * 1_000));
        kills += actions.iter().filter(|action| is_kill(action, &begun[0])).count();
        clock.advance(1_000);
    }
    let open = |store: &mut Store| {
        let decisions = store.view().everything().expect("the store works").tables.backlog.decisions;
        decisions.values().filter(|decision| decision.is_open()).count()
    };
    assert_eq!((kills, open(&mut store)), (5, 1));
    one.on(RunnerInput::Ended(begun[0].clone(), exited(0)), Lease(0));
    drive_at(&mut store, &mut one, Lease(120_000));
    assert_eq!(open(&mut store), 0);
}

/// A root was refused because a loop that had just ended kept its place during its delay. When another root ended, the
/// refused one was not considered, and a later one was started before it.
#[test]
fn a_refused_root_starts_before_later_roots() {
    let mut store = sqlite::memory(Box::new(ManualMachine::default())).expect("a store in memory");
    let mut one = runner_with("one", 1, |options| (options.max_runs, options.limits.roots) = (Some(2), 2));
    add_task(&mut store, "first", None, 0);
    add(&mut store, "loop", Spec { restart: Some(policy()), ..spec("loop", None, 0) }, &[]);
    let begun = drive(&mut store, &mut one);
    add_task(&mut store, "next", None, 0);
    add_task(&mut store, "later", None, 9);
    let task_of = |store: &mut Store, run: &RunId| {
        let runs = store.view().everything().expect("the store works").tables.backlog.runs;
        runs[run].task.clone()
    };
    let (first, looping) = if task_of(&mut store, &begun[0]) == task("loop") { (1, 0) } else { (0, 1) };
    one.on(RunnerInput::Ended(begun[looping].clone(), exited(0)), Lease(0));
    assert_eq!(drive(&mut store, &mut one), [], "the loop is in its delay, and keeps its place");
    one.on(RunnerInput::Ended(begun[first].clone(), exited(0)), Lease(0));
    let begun = drive(&mut store, &mut one);
    assert_eq!(begun.iter().map(|run| task_of(&mut store, run)).collect::<Vec<_>>(), [task("next")]);
}

/// Starts a pipeline with two phases. The guard is before the second.
fn start_pipeline(store: &mut Store, id: &str, guard: Option<Condition>) {
    let phase = |name: &str, pre: Vec<Guard>| Phase {
        pre,
        ..Phase::new(Name::new(name).expect("a good name"), Action::Do(RunCommand::Run("true".into())))
    };
    let guard = guard.map(|condition| Guard {
        name: Name::new("free").expect("a good name"),
        condition,
        on_failure: GuardAction::Block,
        fresh_for: Span::from_secs(30),
        timeout: Span::from_secs(60),
    });
    let phases = vec![phase("first", Vec::new()), phase("second", guard.into_iter().collect())];
    let vars = [("lock".into(), Some("a".into()))].into();
    let plan = Plan { runbook: "book".into(), name: Name::new("way").expect("a good name"), vars, phases, land: None };
    let vars = plan.bind(Context::new()).expect("it has a default");
    let spec = Spec { work: Some(Work::Pipeline(Arc::new(plan))), ..spec(id, None, 0) };
    let start = Start { id: task(id), spec, depends_on: Vec::new(), vars, by: None };
    commit(store, &[Request::Pipeline(PipelineRequest::Start(Box::new(start)))]);
}

fn pipeline(store: &mut Store, id: &str) -> &'static str {
    store.view().everything().expect("the store works").backlog.pipelines[&task(id)].word()
}

/// Holds the lock `a`, with or without a lease.
fn hold(store: &mut Store, ttl: Option<Span>) {
    let lock::Input::Acquire(mut asked) = acquire("somebody", "r1", 9) else { unreachable!("it is an acquisition") };
    (asked.claim.ttl, asked.claim.processes, asked.wait) = (ttl, Vec::new(), None);
    ask(store, lock::Input::Acquire(asked));
}

/// A phase that was over was retried by itself, beside the phase to which its pipeline had advanced.
#[test]
fn a_phase_that_is_over_cannot_be_retried() {
    let (mut store, mut one) = (sqlite::memory(Box::new(ManualMachine::default())).expect("a store in memory"), runner("one", 1));
    start_pipeline(&mut store, "p", None);
    let begun = drive(&mut store, &mut one);
    one.on(RunnerInput::Ended(begun[0].clone(), exited(0)), Lease(0));
    drive(&mut store, &mut one);
    let replies = commit(&mut store, &[Request::Task(TaskRequest::Retry { id: task("p.1") })]);
    assert!(matches!(&replies[..], [Reply::Task(TaskOutcome::Stepped(Refused::HasPhases, _))]), "{replies:?}");
}

/// A pipeline needs no slot to begin, but was hidden behind tasks that waited for one.
#[test]
fn a_pipeline_starts_before_tasks_that_wait_for_a_slot() {
    let mut store = sqlite::memory(Box::new(ManualMachine::default())).expect("a store in memory");
    let mut one = runner_with("one", 1, |options| (options.max_runs, options.limits.runs) = (Some(2), 1));
    ["first", "second", "third", "fourth"].into_iter().for_each(|id| add_task(&mut store, id, None, 0));
    start_pipeline(&mut store, "p", None);
    drive(&mut store, &mut one);
    assert_eq!(pipeline(&mut store, "p"), "running");
}

/// A guard waited for a lock that expired: no event reports that, so the guard was not checked.
#[test]
fn a_guard_is_checked_when_a_lock_expires() {
    let (clock, mut one) = (ManualMachine::default(), runner("one", 1));
    let mut store = sqlite::memory(Box::new(clock.clone())).expect("a store in memory");
    hold(&mut store, Some(Span::from_secs(5)));
    start_pipeline(&mut store, "p", Some(Condition::Predicate(Predicate::LockFree { lock: Text::Literal("a".into()) })));
    let begun = drive(&mut store, &mut one);
    one.on(RunnerInput::Ended(begun[0].clone(), exited(0)), Lease(0));
    let actions = drive_at(&mut store, &mut one, Lease(0));
    let Some(RunnerAction::Sleep { at_most, .. }) = actions.last() else { unreachable!("it sleeps") };
    assert_eq!((pipeline(&mut store, "p"), *at_most), ("blocked", Span::from_secs(5)));
    clock.advance(5_000);
    drive_at(&mut store, &mut one, Lease(5_000));
    assert_eq!(pipeline(&mut store, "p"), "running");
}

/// A guard asked about the lock that a variable names. When the variable was set to another, the guard was not checked.
#[test]
fn a_guard_is_checked_when_a_variable_is_set() {
    let (mut store, mut one) = (sqlite::memory(Box::new(ManualMachine::default())).expect("a store in memory"), runner("one", 1));
    hold(&mut store, None);
    start_pipeline(&mut store, "p", Some(Condition::Predicate(Predicate::LockFree { lock: Text::Var { var: "lock".into() } })));
    let begun = drive(&mut store, &mut one);
    one.on(RunnerInput::Ended(begun[0].clone(), exited(0)), Lease(0));
    drive(&mut store, &mut one);
    assert_eq!(pipeline(&mut store, "p"), "blocked");
    let vars = Context::from([("lock".into(), "b".into())]);
    commit(&mut store, &[Request::Pipeline(PipelineRequest::Set { id: task("p"), vars, by: None })]);
    one.on(RunnerInput::Woken, Lease(0));
    drive(&mut store, &mut one);
    assert_eq!(pipeline(&mut store, "p"), "running");
}
