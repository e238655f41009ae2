//! `banksman status`, and the reports of a runner about the queue.

use banksman_adapters as adapters;
use banksman_core::backlog::{RunEndRecord, Runner};
use banksman_core::resource::grant::Address;
use banksman_core::task::RunEnd;
use banksman_core::{Lease, Limits, RunId, RunnerId, Span, Stamp, Wall};
use banksman_engine::{Dispatcher, Options, RunnerAction, RunnerEvent, RunnerInput};
use banksman_runtime::Client;
use rustix::process::Signal;

use crate::world::{World, until};

#[test]
fn status_counts_tasks_names_failures_and_suggests_the_next_step() {
    let world = World::new();
    let next = || world.data(&["status"])["next"].as_str().unwrap().to_owned();
    assert!(next().starts_with("add a task"), "{}", next());
    world.ok(&["tasks", "add", "Compile", "--run", "exit 1"]);
    world.ok(&["tasks", "add", "Test", "--run", "true", "--depends-on", "Compile"]);
    world.ok(&["tasks", "add", "Tell people"]);
    assert_eq!(next(), "no runner is running; start one: banksman run");
    world.run(&["run", "--until-idle"]);
    let status = world.data(&["status"]);
    let counts = &status["byStatus"];
    assert_eq!(
        (&counts["failed"], &counts["blocked"], &counts["pending"], &counts["completed"]),
        (&1.into(), &1.into(), &1.into(), &0.into())
    );
    assert_eq!((&status["tasks"], &status["byHand"], &status["heldByFailed"]), (&3.into(), &1.into(), &1.into()));
    assert_eq!((&status["failures"][0]["title"], &status["failures"][0]["error"]), (&"Compile".into(), &"exit status 1".into()));
    assert!(next().starts_with("1 task waits for tasks that failed, were cancelled or skipped: banksman why t-"), "{}", next());
    world.ok(&["tasks", "cancel", "Test"]);
    assert!(next().starts_with("1 task failed: banksman why t-"), "{}", next());
}

#[test]
fn runs_and_runners_are_listed_dead_or_alive() {
    let world = World::new();
    world.ok(&["tasks", "add", "Long", "--run", "while [ ! -e open ]; do sleep 0.01; done"]);
    let runner = world.start(&["run", "--max-runs", "3"]);
    until("a run", || world.data(&["status"])["runs"].as_array().unwrap().len() == 1);
    let status = world.data(&["status"]);
    let (run, row) = (&status["runs"][0], &status["runners"][0]);
    assert_eq!((&run["title"], &run["runnerState"], &run["runner"]), (&"Long".into(), &"alive".into(), &row["id"]));
    assert_eq!((&row["pid"], &row["runs"], &row["maxRuns"]), (&runner.pid().into(), &1.into(), &3.into()));
    assert_eq!((&row["state"], &status["slots"]["used"], &status["queuedRuns"]), (&"alive".into(), &1.into(), &0.into()));
    runner.signal(Signal::KILL);
    until("it is gone", || world.data(&["status"])["runners"][0]["state"] == "gone");
    let status = world.data(&["status"]);
    assert_eq!(
        (&status["runs"][0]["runnerState"], &status["next"]),
        (&"gone".into(), &"no runner is running; start one: banksman run".into())
    );
    world.touch("open");
    assert_eq!(world.run(&["run", "--until-idle"]).code, 0);
    assert_eq!(world.data(&["status"])["next"], "nothing to do: all tasks are done");
}

/// A runner without sessions: it records the runs that it would start, and the test ends them.
struct Puppet<'a> {
    client: &'a Client,
    dispatcher: Dispatcher,
    live: Vec<RunId>,
    deltas: Vec<i64>,
}

impl Puppet<'_> {
    fn new(client: &Client, limit: u32) -> Puppet<'_> {
        let id = RunnerId::new(&adapters::ids::short("n")).unwrap();
        let address = Address(id.as_str().into());
        let row = Runner::new(id, client.this_process().clone(), address, Stamp { lease: Lease(0), wall: Wall(0) });
        let options = Options {
            limits: Limits { runs: limit, roots: 0 },
            until_idle: true,
            poll: Span::from_secs(3_600),
            ..Options::new(client.config().watch())
        };
        Puppet { client, dispatcher: Dispatcher::new(row, options), live: Vec::new(), deltas: Vec::new() }
    }

    /// Runs the dispatcher until it sleeps or is done. Returns whether it is done.
    fn settle(&mut self) -> bool {
        let mut reader = self.client.reader().unwrap();
        loop {
            self.dispatcher.give_ids(|| RunId::new(&adapters::ids::short("r")).unwrap());
            let now = reader.view().load(&Default::default()).unwrap().lease;
            match self.dispatcher.next(now) {
                RunnerAction::Load(keys) => {
                    self.dispatcher.on(RunnerInput::Rows(Box::new(reader.view().load(&keys).unwrap())), now)
                }
                RunnerAction::Probe(processes) => {
                    let host = self.client.host();
                    self.dispatcher.on(
                        RunnerInput::Probed(
                            processes.into_iter().map(|process| (process.clone(), host.probe(&process))).collect(),
                        ),
                        now,
                    );
                }
                RunnerAction::Call(requests) => {
                    let replies = requests.into_iter().map(|request| self.client.call(request).unwrap()).collect();
                    self.dispatcher.on(RunnerInput::Replies(replies), now);
                }
                RunnerAction::Spawn(work) => self.live.push(work.run.id),
                RunnerAction::Sleep { .. } => return false,
                RunnerAction::Done => return true,
                RunnerAction::Notify(entry, _) => self.dispatcher.on(RunnerInput::CommandDone(entry, Ok(())), now),
                RunnerAction::Check(_) => unreachable!("there are no loops here"),
                RunnerAction::CheckGuards(_) | RunnerAction::StopGuards(_) | RunnerAction::Land(_) => {
                    unreachable!("there are no pipelines here, and nothing lands")
                }
                RunnerAction::Recover(_)
                | RunnerAction::Pulse(..)
                | RunnerAction::Kill(..)
                | RunnerAction::Nudge(..)
                | RunnerAction::Deliver(..)
                | RunnerAction::Acknowledge(_)
                | RunnerAction::Forget(_) => {}
            }
            self.deltas.extend(self.dispatcher.events().into_iter().filter_map(|deltas| match deltas {
                RunnerEvent::Queued(delta) => Some(delta),
                _ => None,
            }));
        }
    }

    fn end_one(&mut self) {
        let run = self.live.remove(0);
        self.dispatcher.on(RunnerInput::Ended(run.clone(), RunEndRecord::new(RunEnd::Exited(0), Wall(0), None)), Lease(0));
    }
}

#[test]
fn a_runner_reports_how_many_tasks_join_and_leave_the_queue() {
    let world = World::new();
    let client = world.project().open().unwrap();
    for title in ["one", "two", "three", "four", "five"] {
        crate::crashes::add(&client, title, "true", |_| {});
    }
    let mut puppet = Puppet::new(&client, 2);
    assert!(!puppet.settle());
    assert_eq!((puppet.live.len(), puppet.deltas.iter().sum::<i64>()), (2, 3), "{:?}", puppet.deltas);
    // A task that also needs a lock does not wait for a slot alone, so it is not queued.
    let db = banksman_core::Name::new("db").unwrap();
    let held = world.library().lock("db").holder("somebody").try_acquire().unwrap();
    crate::crashes::add(&client, "six", "true", |spec| spec.needs = vec![banksman_core::task::Need::Lock(db)]);
    puppet.dispatcher.on(RunnerInput::Woken, Lease(0));
    puppet.settle();
    assert_eq!(puppet.deltas.iter().sum::<i64>(), 3, "{:?}", puppet.deltas);
    held.release().unwrap();
    puppet.dispatcher.on(RunnerInput::Woken, Lease(0));
    puppet.settle();
    assert_eq!(puppet.deltas.iter().sum::<i64>(), 4, "{:?}", puppet.deltas);
    while !puppet.live.is_empty() {
        puppet.end_one();
        puppet.settle();
        let queued = puppet.deltas.iter().sum::<i64>();
        assert!(queued >= 0 && (queued == 0 || puppet.live.len() == 2), "{:?}", puppet.deltas);
    }
    assert!(puppet.settle());
    assert_eq!(puppet.deltas.iter().sum::<i64>(), 0, "{:?}", puppet.deltas);
}

#[test]
fn a_runner_that_leaves_subtracts_its_queue_from_the_count() {
    let world = World::new();
    let client = world.project().open().unwrap();
    for title in ["one", "two", "three"] {
        crate::crashes::add(&client, title, "true", |_| {});
    }
    let mut puppet = Puppet::new(&client, 1);
    puppet.settle();
    assert_eq!(puppet.deltas.iter().sum::<i64>(), 2);
    puppet.dispatcher.on(RunnerInput::Leave, Lease(0));
    assert!(puppet.settle());
    assert_eq!(puppet.deltas.iter().sum::<i64>(), 0);
}

/// Manual work is neither forgotten nor counted as done, and text for people has no ids and no UTC times.
#[test]
fn manual_work_is_named_with_titles_and_relative_times() {
    let world = World::new();
    let next = || world.data(&["status"])["next"].as_str().unwrap().to_owned();
    world.ok(&["sections", "add", "Backend", "--exclusive"]);
    let added = world.ok(&["tasks", "add", "Decide", "--section", "Backend"]);
    world.ok(&["tasks", "add", "Review", "--section", "Backend"]);
    assert!(added.trim_end().ends_with("manual"), "{added}");
    assert_eq!(next(), "2 manual tasks are pending: banksman tasks list --status pending");
    assert!(world.ok(&["status"]).contains("2 pending (2 manual)"));
    world.ok(&["tasks", "take", "Decide", "--holder", "ann"]);
    let again = world.ok(&["tasks", "take", "Decide", "--holder", "ann"]);
    assert!(again.contains("is already yours, taken ") && again.contains("s ago: holder ann"), "{again}");
    let refused = world.run(&["tasks", "done", "Decide", "--holder", "bob"]).stderr;
    assert!(refused.contains("is locked by ann for ") && refused.contains("; the lock expires in "), "{refused}");
    assert!(!refused.contains('Z'), "a time for programs: {refused}");
    let bob = world.start(&["tasks", "take", "Review", "--holder", "bob"]);
    crate::claims::until_waiting(&world, 1);
    let said = bob.interrupt().stderr;
    assert!(said.contains("waiting for Review: section Backend is held by ann for "), "{said}");
    let late = world.run(&["tasks", "take", "Review", "--holder", "bob", "--timeout", "50ms"]).stderr;
    assert!(late.contains("): section Backend is held by ann for "), "{late}");
    world.ok(&["tasks", "done", "Review", "--holder", "ann"]);
    assert_eq!(next(), "1 task in progress, taken manually: banksman tasks list --status in_progress");
    world.ok(&["tasks", "done", "Decide", "--holder", "ann"]);
    assert_eq!(next(), "nothing to do: all tasks are done");
}

#[test]
fn an_unobserved_session_is_reported_as_holder_of_the_dispatch_lock() {
    let world = World::new();
    crate::agents::trusted(&world, "first", "exit 1");
    let task = world.data(&["tasks", "add", "Job", "--agent", "first"])["id"].as_str().unwrap().to_owned();
    world.ok(&["send", "Job", "use port 8080", "--id", "m-port"]);
    let client = world.project().open().unwrap();
    let mut puppet = Puppet::new(&client, 2);
    assert!(!puppet.settle());
    let run = puppet.live[0].clone();
    assert!(world.grant(&format!("dispatch:{task}")).is_some());
    let why = world.ok(&["why", "Job"]);
    assert!(why.contains("its session has not been seen yet, and message m-port in its prompt holds the dispatch lock"), "{why}");
    let doctor = world.ok(&["doctor"]);
    let said = format!("message m-port is in the prompt of run {run}, which was claimed ");
    assert!(doctor.contains(&said) && doctor.contains(&format!("the message holds dispatch:{task}")), "{doctor}");
    // Another message waits in the mailbox.
    assert_eq!(world.data(&["send", "Job", "and TLS"])["receipt"], "queued");
    puppet.end_one();
    puppet.settle();
    assert!(world.grant(&format!("dispatch:{task}")).is_none());
}
