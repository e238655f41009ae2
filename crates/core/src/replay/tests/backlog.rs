//! The replay of tasks and sections.

use proptest::prelude::*;

use super::{apply, assert_every_cut};
use crate::backlog::{Backlog, Edge, Run, Section};
use crate::decision::{self, Decision};
use crate::event::{DecisionFact, Event, Finished, ImportFact, SectionFact, TaskFact};
use crate::ids::{Epoch, HolderId, RunId, SectionId, Seq, TaskId};
use crate::replay::Replay;
use crate::resource::coordination::Coordination;
use crate::step::{Effect, Notice, NoticeKind, Now, OutboxCommand};
use crate::task::retry::{Marker, Policy};
use crate::task::tests::{POLICY, spec};
use crate::task::{After, Input, Mark, OnExhausted, Pulse, RunEnd, Spec, State, Stuck, Task, TaskEnd, Verdict, Watch};
use crate::test_world::runner;
use crate::time::{Lease, Span, Wall};

/// A shorter silence than a few operations take.
const WATCH: Watch = Watch { timeout: Span::from_secs(20), max_recoveries: 2, on_exhausted: OnExhausted::Escalate };

/// A random operation. There are three tasks and two sections; an operation on one that does not exist is skipped.
#[derive(Debug, Clone)]
enum Op {
    Add {
        task: usize,
        on: Vec<usize>,
    },
    Update {
        task: usize,
        on: Vec<usize>,
    },
    Delete(usize),
    Start(usize),
    Step(usize, Box<Move>),
    Adopt(usize),
    Section {
        section: usize,
        exclusive: bool,
    },
    DropSection(usize),
    /// The newest decision, or an earlier one, is answered, or withdrawn without an answer.
    Decide {
        back: usize,
        option: Option<u32>,
    },
    /// A command that has used all its attempts raises a question.
    Dead {
        notice: bool,
    },
    Finish,
}

/// An input for the live run, if there is one.
#[derive(Debug, Clone)]
enum Move {
    Pulse(Pulse),
    Say(Verdict),
    Manual(Verdict),
    Checkpoint(u64),
    Overtime,
    End(RunEnd, Marker, u32),
    Take,
    Other(Input),
}

fn step() -> impl Strategy<Value = Move> {
    let verdict = || {
        prop_oneof![
            Just(Verdict::Done { output: Some(serde_json::json!({ "a": 1 })) }),
            Just(Verdict::Failed { error: "bad".into() }),
        ]
    };
    let pulses = vec![Pulse::Active, Pulse::Idle(Span::from_secs(5)), Pulse::Idle(Span::from_secs(90)), Pulse::SessionDead];
    let endings = vec![
        RunEnd::Exited(0),
        RunEnd::Exited(1),
        RunEnd::Signalled(9),
        RunEnd::NotStarted { error: "no shell".into() },
        RunEnd::Lost,
        RunEnd::Never,
    ];
    let wishes = vec![
        After::Cancel,
        After::Fail { error: "too long".into() },
        After::Escalate { error: "hopeless".into() },
        After::Overtime { max: Span::from_secs(7) },
        After::Restart,
        After::Restart,
    ];
    let marker =
        || prop_oneof![8 => Just(Marker::Absent), 3 => Just(Marker::Done), 1 => Just(Marker::Broken("a directory".into()))];
    let others = vec![
        Input::Retry,
        Input::Retry,
        Input::Set(Mark::Skipped),
        Input::Set(Mark::Review),
        Input::MakeReady,
        Input::Settle { children: 0 },
        Input::Settle { children: 1 },
        Input::Return,
    ];
    prop_oneof![
        6 => prop::sample::select(pulses).prop_map(Move::Pulse),
        2 => verdict().prop_map(Move::Say),
        1 => verdict().prop_map(Move::Manual),
        1 => any::<u64>().prop_map(Move::Checkpoint),
        1 => Just(Move::Overtime),
        6 => (prop::sample::select(endings), marker(), 0..3_u32)
            .prop_map(|(ending, marker, children)| Move::End(ending, marker, children)),
        1 => Just(Move::Take),
        1 => (marker(), 0..3_u32).prop_map(|(marker, children)| Move::Other(Input::Found { marker, children })),
        2 => prop::sample::select(wishes).prop_map(|after| Move::Other(Input::Stop(after))),
        5 => prop::sample::select(others).prop_map(Move::Other),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let on = || prop::collection::vec(0..3_usize, 0..4);
    prop_oneof![
        2 => (0..3_usize, on()).prop_map(|(task, on)| Op::Add { task, on }),
        1 => (0..3_usize, on()).prop_map(|(task, on)| Op::Update { task, on }),
        1 => (0..3_usize).prop_map(Op::Delete),
        8 => (0..3_usize).prop_map(Op::Start),
        16 => (0..3_usize, step()).prop_map(|(task, step)| Op::Step(task, Box::new(step))),
        1 => (0..3_usize).prop_map(Op::Adopt),
        1 => (0..2_usize, any::<bool>()).prop_map(|(section, exclusive)| Op::Section { section, exclusive }),
        1 => (0..2_usize).prop_map(Op::DropSection),
        2 => (0..3_usize, prop::option::of(0..6_u32)).prop_map(|(back, option)| Op::Decide { back, option }),
        1 => any::<bool>().prop_map(|notice| Op::Dead { notice }),
        1 => Just(Op::Finish),
    ]
}

fn task(number: usize) -> TaskId {
    TaskId::new(&format!("t-{number}")).unwrap()
}

/// A backlog that changes as the engine changes it: every change of a row with its event.
#[derive(Default)]
struct Site {
    rows: Backlog,
    now: Now,
    log: Vec<(Seq, Wall, Event)>,
}

impl Site {
    fn record(&mut self, event: Event) {
        if let Event::Decision { id, fact: DecisionFact::Raised(question) } = &event {
            self.rows.decisions.insert(id.clone(), Decision::new(id.clone(), (**question).clone(), self.now.wall));
        }
        self.log.push((self.now.seq, self.now.wall, event));
        self.now.seq.0 += 1;
    }

    fn record_task(&mut self, number: usize, fact: TaskFact) {
        self.record(Event::Task { id: task(number), fact });
    }

    /// The first two of the three tasks are loops, one of them without a delay.
    fn spec(&self, number: usize) -> Spec {
        let policy = Policy { delay: Span::from_secs(if number == 0 { 0 } else { 20 }), ..POLICY };
        Spec { restart: (number < 2).then_some(policy), ..spec(&format!("title {}", self.now.seq)) }
    }

    fn add(&mut self, number: usize, on: &[usize]) {
        let (edges, spec) = (edges(on), self.spec(number));
        self.rows.tasks.insert(task(number), Task::new(task(number), spec.clone(), &self.now));
        self.rows.edges.insert(task(number), edges.iter().cloned().rev().collect());
        self.record_task(number, TaskFact::Added { spec: Box::new(spec), depends_on: edges, import: None });
    }

    fn update(&mut self, number: usize, on: &[usize]) {
        let (edges, spec) = (edges(on), self.spec(number));
        self.rows.tasks.get_mut(&task(number)).unwrap().spec = spec.clone();
        self.rows.edges.insert(task(number), edges.clone());
        self.record_task(number, TaskFact::Updated { spec: Box::new(spec), depends_on: edges });
    }

    fn input(&mut self, number: usize, input: Input) {
        let step = self.rows.tasks[&task(number)].clone().step(input, &self.now);
        step.state.check();
        self.rows.tasks.insert(task(number), step.state);
        self.do_all(step.effects);
    }

    fn do_all(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Emit(event) => self.record(event),
                Effect::Send(_) => {}
                Effect::Wake(_) => unreachable!("a task has no waiters"),
            }
        }
    }

    fn decide(&mut self, back: usize, option: Option<u32>) {
        let Some(decision) = self.rows.decisions.values().rev().nth(back).cloned() else { return };
        let input = match option {
            Some(option) => decision::Input::Resolve { option, by: "ann".into(), note: (option == 1).then(|| "so be it".into()) },
            None => decision::Input::Withdraw,
        };
        let step = decision.step(input, &self.now);
        step.state.check();
        self.rows.decisions.insert(step.state.id.clone(), step.state);
        self.do_all(step.effects);
    }

    fn start(&mut self, number: usize) {
        let (id, epoch, owner) = (RunId::new(&format!("r-{}", self.now.seq)).unwrap(), Epoch::from(self.now.seq), runner("m"));
        self.input(number, Input::Start { run: id.clone(), runner: owner.clone(), recheck: false });
        let (task, started) = (task(number), self.now.stamp());
        let run = Run {
            id: id.clone(),
            task,
            attempt: 0,
            epoch,
            owner,
            owner_epoch: epoch,
            host: "h".into(),
            boot: "b".into(),
            holds: Vec::new(),
            agent: None,
            session: None,
            started,
            lease: None,
            ended: None,
        };
        if self.live(number) == Some((id.clone(), epoch)) {
            self.rows.runs.insert(id, run);
        }
    }

    fn live(&self, number: usize) -> Option<(RunId, Epoch)> {
        self.rows.tasks[&task(number)].live().map(|live| (live.run.clone(), live.epoch))
    }

    fn play(&mut self, op: Op) {
        self.now.lease = self.now.lease + Span::from_secs(7);
        self.now.wall.0 += 7_000;
        let is_there = |number: &usize| self.rows.tasks.contains_key(&task(*number));
        match op {
            Op::Add { task, on } if !is_there(&task) => self.add(task, &on),
            Op::Update { task, on } if is_there(&task) => self.update(task, &on),
            Op::Delete(number) if is_there(&number) => {
                self.rows.tasks.remove(&task(number));
                self.rows.edges.remove(&task(number));
                self.record_task(number, TaskFact::Deleted {});
            }
            Op::Start(number) if is_there(&number) => self.start(number),
            Op::Step(number, step) if is_there(&number) => {
                let (run, epoch) = self.live(number).unwrap_or((RunId::new("none").unwrap(), Epoch(0)));
                let holder = HolderId::new("ann").unwrap();
                let input = match *step {
                    Move::Pulse(pulse) => Input::Heartbeat { epoch, pulse, watch: WATCH },
                    Move::Say(verdict) => Input::Conclude { epoch: Some(epoch), verdict },
                    Move::Manual(verdict) => Input::Conclude { epoch: None, verdict },
                    Move::Checkpoint(output_bytes) => Input::Checkpoint { epoch, output_bytes, quiet: Span::from_secs(3) },
                    Move::Overtime => Input::Overtime { run, max: Span::from_secs(30) },
                    Move::End(ending, marker, children) => Input::End { run, ending, ran: None, marker, children, watch: WATCH },
                    Move::Take => Input::Take { holder, epoch: Epoch::from(self.now.seq), until: Some(self.now.lease) },
                    Move::Other(input) => input,
                };
                self.input(number, input);
            }
            Op::Adopt(number) if is_there(&number) => {
                let Some((id, _)) = self.live(number) else { return };
                let next = runner(&format!("m{}", self.now.seq));
                let row = self.rows.runs.get_mut(&id).unwrap();
                let from = std::mem::replace(&mut row.owner, next.clone());
                row.owner_epoch = Epoch::from(self.now.seq);
                self.record_task(number, TaskFact::Adopted { run: id, runner: next, from });
            }
            Op::Section { section, exclusive } => self.section(section, exclusive),
            Op::DropSection(number) => {
                let id = SectionId::new(&format!("s-{number}")).unwrap();
                if self.rows.sections.remove(&id).is_some() {
                    self.record(Event::Section { id, fact: SectionFact::Deleted {} });
                }
            }
            Op::Decide { back, option } => self.decide(back, option),
            Op::Dead { notice } => {
                let run = RunId::new("r-1").unwrap();
                let telling = Notice { kind: NoticeKind::TaskFailed, subject: "x".into(), text: "y".into() };
                let command =
                    if notice { OutboxCommand::Notify(Box::new(telling)) } else { OutboxCommand::Kill { run, now: false } };
                let step = decision::ask_about(Seq(1), &command, 5, "no answer", &self.now);
                self.do_all(step.effects);
            }
            Op::Finish => self.record(Event::Finished(Finished::default())),
            Op::Add { .. } | Op::Update { .. } | Op::Delete(_) => {}
            Op::Start(_) | Op::Step(..) | Op::Adopt(_) => {}
        }
    }

    fn section(&mut self, number: usize, exclusive: bool) {
        let id = SectionId::new(&format!("s-{number}")).unwrap();
        let name = format!("name {}", self.now.seq).parse::<crate::ids::Title>().unwrap();
        let fact = match self.rows.sections.get_mut(&id) {
            Some(section) => {
                (section.name, section.exclusive) = (name.clone(), exclusive);
                SectionFact::Updated { name, exclusive }
            }
            None => {
                let section = Section { id: id.clone(), name: name.clone(), exclusive, position: self.now.seq };
                self.rows.sections.insert(id.clone(), section);
                SectionFact::Added { name, exclusive }
            }
        };
        self.record(Event::Section { id, fact });
    }

    fn replay(&self) -> Replay {
        let mut replay = Replay::default();
        self.log.iter().for_each(|entry| apply(&mut replay, entry));
        replay
    }

    fn view(&self) -> Replay {
        Replay::default().with_backlog(&self.rows)
    }
}

fn edges(on: &[usize]) -> Vec<Edge> {
    let distinct: std::collections::BTreeSet<_> = on.iter().collect();
    distinct.into_iter().map(|number| Edge { on: task(*number), allow_failed: *number == 1 }).collect()
}

proptest! {
    #[test]
    fn replaying_the_log_gives_the_tasks_after_every_step(ops in prop::collection::vec(op(), 1..120)) {
        let (mut site, mut replay, mut read) = (Site::default(), Replay::default(), 0);
        (0..3).for_each(|number| site.play(Op::Add { task: number, on: Vec::new() }));
        for op in ops {
            site.play(op);
            site.log[read..].iter().for_each(|entry| apply(&mut replay, entry));
            read = site.log.len();
            prop_assert_eq!(replay.differences(&site.view()), Vec::<String>::new());
            prop_assert_eq!(&replay, &site.view());
        }
        [1, 4].into_iter().for_each(|stride| assert_every_cut(&site.log, stride));
    }
}

#[test]
fn a_difference_has_the_task_the_field_and_both_sides() {
    let mut site = Site::default();
    site.add(1, &[]);
    site.add(2, &[]);
    site.start(2);
    site.section(1, true);
    let replay = site.replay();
    assert_eq!(replay.differences(&site.view()), Vec::<String>::new());

    let rows = std::mem::take(&mut site.rows);
    let mut differences = |change: &dyn Fn(&mut Backlog)| {
        site.rows = rows.clone();
        change(&mut site.rows);
        replay.differences(&site.view())
    };
    let second = |rows: &mut Backlog, change: &dyn Fn(&mut Task)| change(rows.tasks.get_mut(&task(2)).unwrap());
    assert_eq!(differences(&|rows| drop(rows.tasks.remove(&task(1)))), ["task t-1: the log has it, the tables do not"]);
    assert_eq!(
        differences(&|rows| {
            let mut extra = rows.tasks[&task(1)].clone();
            extra.id = task(3);
            rows.tasks.insert(task(3), extra);
        }),
        ["task t-3: the tables have it, the log does not"]
    );
    assert_eq!(
        differences(&|rows| second(rows, &|task| (task.attempts, task.recoveries) = (2, 1))),
        ["task t-2, attempts: the log says 1, the tables say 2", "task t-2, recoveries: the log says 0, the tables say 1"]
    );
    let state = differences(&|rows| second(rows, &|task| task.state = State::Done(TaskEnd::Cancelled)));
    assert_eq!(state.len(), 1);
    assert!(state[0].starts_with(r#"task t-2, standing: the log says {"live":{"epoch":2,"#), "{}", state[0]);
    let owner = differences(&|rows| rows.runs.values_mut().for_each(|run| run.owner = runner("thief")));
    assert!(owner[0].contains("thief"), "{owner:?}");
    let edge = differences(&|rows| drop(rows.edges.insert(task(1), edges(&[2]))));
    assert!(edge[0].starts_with("task t-1, dependsOn: the log says []"), "{edge:?}");
    let long = differences(&|rows| {
        second(rows, &|task| task.state = State::Done(TaskEnd::Failed { error: "é".repeat(100_000).into() }));
    });
    assert!(long[0].len() < 1_000, "a long text is cut");
    assert_eq!(
        differences(&|rows| rows.sections.values_mut().for_each(|section| section.exclusive = false)),
        ["section s-1, exclusive: the log says true, the tables say false"]
    );
    assert_eq!(replay.differences(&Replay::of(&Coordination::default())).len(), 3, "two tasks and a section are missing");
}

#[test]
fn replay_does_not_depend_on_the_lease_clock() {
    let mut site = Site::default();
    site.add(1, &[]);
    site.start(1);
    let (_, epoch) = site.live(1).unwrap();
    site.now.lease = Lease(10_000);
    site.input(1, Input::Heartbeat { epoch, pulse: Pulse::Active, watch: WATCH });
    site.now.lease = Lease(40_000);
    site.input(1, Input::Heartbeat { epoch, pulse: Pulse::Idle(Span::from_secs(30)), watch: WATCH });
    let Some(State::Stuck { reason: Stuck::NoHeartbeat { last_seen }, live, detected }) =
        site.rows.tasks.get_mut(&task(1)).map(|task| &mut task.state)
    else {
        panic!("it is not stuck")
    };
    // As if the store was copied to another machine.
    for stamp in [last_seen, &mut live.seen, &mut live.started, detected] {
        stamp.lease.0 += 1_000_000;
    }
    assert_eq!(site.replay(), site.view());
}

#[test]
fn tasks_of_an_import_are_visible_after_its_end() {
    let import = |name: &str| crate::ids::ImportId::new(name).unwrap();
    let check = |site: &Site| assert_eq!(site.replay().differences(&site.view()), Vec::<String>::new());
    let mut site = Site::default();
    let add = |site: &mut Site, number: usize, name: &str| {
        let spec = spec("imported");
        let row = Task::new(task(number), spec.clone(), &site.now);
        let fact = TaskFact::Added { spec: Box::new(spec), depends_on: Vec::new(), import: Some(import(name)) };
        site.record_task(number, fact);
        row
    };
    site.add(0, &[]);
    let first = add(&mut site, 1, "i-1");
    add(&mut site, 2, "i-2");
    let second = add(&mut site, 3, "i-1");
    check(&site);
    site.record(Event::Import { id: import("i-2"), fact: ImportFact::Dropped {} });
    check(&site);
    site.record(Event::Import { id: import("i-1"), fact: ImportFact::Finished { tasks: 2 } });
    for row in [first, second] {
        site.rows.edges.insert(row.id.clone(), Vec::new());
        site.rows.tasks.insert(row.id.clone(), row);
    }
    check(&site);
    site.start(1);
    check(&site);
}

/// In stores of version 2 the event did not have the counts.
#[test]
fn counts_of_an_old_log_follow_from_the_ends_of_its_runs() {
    let mut site = Site::default();
    site.add(2, &[]);
    let end = |ending, run| Input::End { run, ending, ran: None, marker: Marker::Absent, children: 0, watch: WATCH };
    let mut play = |stop: bool, says: bool, ending: RunEnd| {
        site.start(2);
        let (run, epoch) = site.live(2).unwrap();
        if stop {
            site.input(2, Input::Stop(After::Restart));
        }
        if says {
            site.input(2, Input::Conclude { epoch: Some(epoch), verdict: Verdict::Failed { error: "bad".into() } });
        }
        site.input(2, end(ending, run));
        for (_, _, event) in &mut site.log {
            if let Event::Task { fact: TaskFact::Restarting { why, failures, recoveries, .. }, .. } = event {
                (*why, *failures, *recoveries) = (None, None, None);
            }
        }
        assert_eq!(site.replay(), site.view());
        let task = &site.rows.tasks[&task(2)];
        (task.failures, task.recoveries)
    };
    assert_eq!(play(false, false, RunEnd::Never), (0, 0));
    assert_eq!(play(false, false, RunEnd::Lost), (0, 1));
    assert_eq!(play(true, false, RunEnd::Signalled(9)), (0, 2));
    assert_eq!(play(false, true, RunEnd::Exited(0)), (1, 2));
}
