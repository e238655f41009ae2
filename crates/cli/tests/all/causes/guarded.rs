//! Guards: `why` names the first guard that blocks a phase. The test makes it hold; then `why` names the next one, or the phase starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use banksman_core::event::{Kind, Resource};
use banksman_core::guard::{Condition, FileInfo, Guard, GuardAction, GuardInputs, GuardResult, Predicate};
use banksman_core::pipeline::plan::{Action, After, Bound, OnFail, Phase, Plan, RunCommand, Text};
use banksman_core::pipeline::{Pipeline, Reason, State};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::semaphore;
use banksman_core::task::{Spec, Work};
use banksman_core::{RunnerId, Span, TaskId, Title};
use banksman_engine::why::Answer;
use banksman_engine::{GuardCheck, PipelineRequest, Request, Start};
use banksman_store::Key;

use super::scene::{Scene, name};
use crate::dice::Dice;

const LOCKS: [&str; 2] = ["db", "deploy"];
const FILES: [&str; 2] = ["built", "tested"];
const SLOTS: u32 = 2;

/// How long guards may block the phase, and how long their results are valid: far longer than a test.
const PATIENCE: Span = Span::from_secs(30 * 24 * 3_600);

/// A pipeline of one phase with guards before it, and the state that they check.
struct Gate {
    scene: Scene,
    runner: RunnerId,
    id: TaskId,
    guards: Vec<Guard>,
    files: BTreeSet<&'static str>,
}

fn literal(text: &str) -> Text {
    Text::Literal(text.into())
}

/// A random condition; `outside` if it may check files.
fn condition(dice: &mut Dice, depth: u32, outside: bool) -> Condition {
    let parts = |dice: &mut Dice| (0..1 + dice.roll(2)).map(|_| condition(dice, depth + 1, outside)).collect();
    match dice.roll(if depth < 2 { 8 } else { 5 }) {
        0 | 1 => Condition::Predicate(Predicate::LockFree { lock: literal(LOCKS[dice.index(2)]) }),
        2 => Condition::Predicate(Predicate::LockHeld { lock: literal(LOCKS[dice.index(2)]), by: None }),
        3 if outside => Condition::Predicate(Predicate::FileExists { path: literal(FILES[dice.index(2)]) }),
        3 | 4 => Condition::Predicate(Predicate::SemaphoreAvailable {
            semaphore: literal("gpu"),
            slots: 1 + u32::try_from(dice.roll(2)).unwrap(),
        }),
        5 => Condition::All(parts(dice)),
        6 => Condition::Any(parts(dice)),
        _ => Condition::Not(Box::new(condition(dice, depth + 1, outside))),
    }
}

fn text(text: &Text) -> &str {
    match text {
        Text::Literal(text) => text,
        Text::Var { .. } => unreachable!("there are no variables here"),
    }
}

impl Gate {
    fn new(seed: u64) -> Gate {
        let mut scene = Scene::new(seed);
        let runner = scene.enlist(true, None, Vec::new());
        let define = semaphore::Input::Define(semaphore::Config { capacity: SLOTS, ttl: None });
        scene.command(Command::Semaphore(name("gpu"), define));
        let outside = scene.dice.chance(2);
        let number = 1 + scene.dice.roll(2);
        let guards = (0..number).map(|number| Guard {
            name: name(&format!("g{number}")),
            condition: condition(&mut scene.dice, 0, outside),
            on_failure: GuardAction::Block,
            fresh_for: PATIENCE,
            timeout: Span::from_secs(60),
        });
        let guards: Vec<Guard> = guards.collect();
        let id = TaskId::new("p-1").unwrap();
        let files = FILES.into_iter().filter(|_| scene.dice.chance(2)).collect();
        let mut gate = Gate { scene, runner, id, guards, files };
        for lock in LOCKS {
            let is_held = gate.scene.dice.chance(2);
            gate.set_lock(lock, is_held);
        }
        let used = u32::try_from(gate.scene.dice.roll(3)).unwrap();
        gate.set_used(used);
        gate.start();
        gate
    }

    fn start(&mut self) {
        let phase = Phase {
            name: name("deploy"),
            action: Action::Do(RunCommand::Run("true".into())),
            pre: self.guards.clone(),
            post: Vec::new(),
            needs: Vec::new(),
            keeps: false,
            timeout: None,
            retries: 0,
            blocked_timeout: Some(PATIENCE),
            output: Vec::new(),
            then: After::Next,
            on_fail: OnFail::Fail,
        };
        let plan = Plan { runbook: "book".into(), name: name("way"), vars: BTreeMap::new(), phases: vec![phase], land: None };
        let spec = Spec { work: Some(Work::Pipeline(Arc::new(plan))), ..Spec::new(Title::new("a pipeline").unwrap()) };
        let start = Start { id: self.id.clone(), spec, depends_on: Vec::new(), vars: Bound::default(), by: None };
        self.ask(PipelineRequest::Start(Box::new(start)));
        assert_eq!(self.why(), Answer::Starting(self.runner.clone()));
        let runner = self.runner.clone();
        self.scene.begin_pipelines(&runner);
    }

    fn ask(&mut self, request: PipelineRequest) {
        self.scene.call(Request::Pipeline(request));
    }

    fn why(&mut self) -> Answer {
        let id = self.id.clone();
        self.scene.why(&id)
    }

    fn pipeline(&mut self) -> Pipeline {
        let id = self.id.clone();
        self.scene.rows([Key::Task(id.clone()), Key::Pipeline(id.clone())]).backlog.pipelines.remove(&id).unwrap()
    }

    fn holders(&mut self, kind: Kind, of: &str) -> usize {
        let rows = self.scene.rows([Key::Lock(name(of)), Key::Semaphore(name(of))]).tables.coordination;
        match kind {
            Kind::Lock => usize::from(
                rows.locks.get(&name(of)).is_some_and(|lock| lock.state != banksman_core::resource::lock::State::Free),
            ),
            Kind::Semaphore => rows.semaphores[&name(of)].holders.len(),
        }
    }

    fn set_lock(&mut self, lock: &str, is_held: bool) {
        let resource = Resource { kind: Kind::Lock, name: name(lock) };
        match (self.holders(Kind::Lock, lock) > 0, is_held) {
            (false, true) => self.scene.ask(&resource, 1, None, None, None),
            (true, false) => self.scene.vacate_first(&resource),
            _ => {}
        }
    }

    /// Sets the number of slots that people hold.
    fn set_used(&mut self, used: u32) {
        let resource = Resource { kind: Kind::Semaphore, name: name("gpu") };
        while self.holders(Kind::Semaphore, "gpu") < used as usize {
            self.scene.ask(&resource, 1, None, None, None);
        }
        while self.holders(Kind::Semaphore, "gpu") > used as usize {
            self.scene.vacate_first(&resource);
        }
    }

    /// Whether a condition holds, computed without the code under test.
    fn holds(&mut self, condition: &Condition) -> bool {
        match condition {
            Condition::Predicate(Predicate::LockFree { lock }) => self.holders(Kind::Lock, text(lock)) == 0,
            Condition::Predicate(Predicate::LockHeld { lock, .. }) => self.holders(Kind::Lock, text(lock)) > 0,
            Condition::Predicate(Predicate::SemaphoreAvailable { slots, .. }) => {
                self.holders(Kind::Semaphore, "gpu") + *slots as usize <= SLOTS as usize
            }
            Condition::Predicate(Predicate::FileExists { path }) => self.files.contains(text(path)),
            Condition::All(parts) => parts.iter().all(|part| self.holds(part)),
            Condition::Any(parts) => parts.iter().any(|part| self.holds(part)),
            Condition::Not(part) => !self.holds(part),
            other => unreachable!("{other:?} is not asked here"),
        }
    }

    /// Changes the world so that a condition holds, or does not.
    fn make(&mut self, condition: &Condition, wanted: bool) {
        match condition {
            Condition::Predicate(Predicate::LockFree { lock }) => self.set_lock(text(lock), !wanted),
            Condition::Predicate(Predicate::LockHeld { lock, .. }) => self.set_lock(text(lock), wanted),
            Condition::Predicate(Predicate::SemaphoreAvailable { slots, .. }) => {
                self.set_used(if wanted { SLOTS - slots } else { SLOTS })
            }
            Condition::Predicate(Predicate::FileExists { path }) => {
                let file = FILES.into_iter().find(|file| *file == text(path)).unwrap();
                if wanted {
                    self.files.insert(file)
                } else {
                    self.files.remove(file)
                };
            }
            Condition::Not(part) => self.make(part, !wanted),
            Condition::All(parts) if wanted => parts.iter().for_each(|part| self.make(part, true)),
            Condition::Any(parts) if !wanted => parts.iter().for_each(|part| self.make(part, false)),
            Condition::All(parts) | Condition::Any(parts) => self.make(&parts[0], wanted),
            other => unreachable!("{other:?} is not asked here"),
        }
    }

    /// A runner checks the guards and reports the result.
    fn check_guards(&mut self) {
        self.scene.advance(600_000);
        let (id, by, seen) = (self.id.clone(), self.runner.clone(), self.scene.seen());
        let at = self.scene.everything().seq;
        self.ask(PipelineRequest::BeginCheck { id: id.clone(), by: by.clone(), at, heard: true, seen: seen.clone() });
        let pipeline = self.pipeline();
        let Some((phase, when)) = pipeline.gate() else { panic!("nothing is asked: {:?}", pipeline.state) };
        let file = |file: &str| (file.into(), FileInfo { exists: self.files.contains(file), matches: BTreeMap::new() });
        let fresh_until = Some(self.scene.everything().lease + PATIENCE);
        let inputs = GuardInputs { files: FILES.iter().map(|name| file(name)).collect(), fresh_until, ..GuardInputs::default() };
        let (tasks, held, guards) = (pipeline.tasks, pipeline.task().cloned(), pipeline.guards().to_vec());
        let (phase, by, is_moot) = (phase.clone(), Some(by), false);
        let guard_check = GuardCheck { id, phase, when, by, tasks, held, guards, inputs, seen, at, is_moot };
        self.ask(PipelineRequest::CheckGuards(Box::new(guard_check)));
    }

    /// The guard that `why` names, if the phase is blocked.
    fn named(&mut self) -> Option<Guard> {
        let Answer::InPhases(phases) = self.why() else { panic!("it has begun, and is in its phase") };
        let State::Blocked { reason: Reason::Guard { guard, .. }, .. } = &phases.pipeline.state else { return None };
        // `why` evaluates conditions about the store at once.
        assert!(phases.guard.is_none_or(|now| matches!(now, GuardResult::Failed { .. })), "{guard} holds by now");
        self.guards.iter().find(|known| known.name == *guard).cloned()
    }

    /// The first guard that does not hold.
    fn first_false(&mut self) -> Option<Guard> {
        let guards = self.guards.clone();
        guards.into_iter().find(|guard| !self.holds(&guard.condition))
    }

    fn claim(&mut self) -> bool {
        let Some(task) = self.pipeline().task().cloned() else { return false };
        let runner = self.runner.clone();
        self.scene.claim(&runner, &task)
    }
}

/// Plays one pipeline until its phase has begun. Returns what came up.
fn play(seed: u64) -> BTreeSet<&'static str> {
    let mut gate = Gate::new(seed);
    let mut kinds = BTreeSet::new();
    let mut changes_mind = gate.scene.dice.chance(2);
    loop {
        gate.check_guards();
        let (named, expected) = (gate.named(), gate.first_false());
        assert_eq!(named, expected, "seed {seed}: the first guard that does not hold is named");
        if let Some(guard) = named {
            kinds.insert("blocked");
            assert!(!gate.claim(), "seed {seed}: {guard:?} does not hold, and its phase begins");
            gate.make(&guard.condition, true);
            // Some guards can never hold, such as one that requires a lock to be both free and held.
            match gate.holds(&guard.condition) {
                true if gate.first_false().is_none_or(|next| next.name >= guard.name) => continue,
                // Two guards contradict each other.
                _ => return kinds,
            }
        }
        let guard = gate.guards[0].clone();
        if std::mem::take(&mut changes_mind) && !banksman_engine::asked_at_claim(&gate.pipeline()).locks.is_empty() {
            let files = gate.files.clone();
            gate.make(&guard.condition, false);
            if gate.files == files && !gate.holds(&guard.condition) {
                kinds.insert("not true any more at the claim");
                assert!(!gate.claim(), "seed {seed}: {guard:?} does not hold any more, and its phase begins");
                assert_eq!(gate.named().as_ref(), Some(&guard), "seed {seed}");
                gate.make(&guard.condition, true);
                if !gate.holds(&guard.condition) || gate.first_false().is_some() {
                    return kinds;
                }
                continue;
            }
            return kinds;
        }
        assert!(gate.claim(), "seed {seed}: all guards hold, and the phase does not start");
        kinds.insert("started");
        return kinds;
    }
}

#[test]
fn a_phase_starts_when_each_named_guard_is_made_true() {
    let kinds: BTreeSet<&str> = (0..200).flat_map(play).collect();
    assert_eq!(kinds, BTreeSet::from(["blocked", "not true any more at the claim", "started"]));
}
