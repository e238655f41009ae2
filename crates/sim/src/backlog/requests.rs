//! Requests of people: tasks with all sorts of conditions, and every later change.

use std::num::NonZeroU32;

use banksman_core::backlog::Edge;
use banksman_core::event::Kind;
use banksman_core::task::retry::{OnTimeout, Policy};
use banksman_core::task::{Mark, Need, Spec, Verdict, Work};
use banksman_core::{Epoch, Label, Limits, LimitsChange, PauseVerb, SectionId, Span, TaskId, Title};
use banksman_engine::{Edit, PauseRequest, Request, SectionRequest, TaskRequest};

use super::model::TaskState;
use super::plans::PIPELINE_LIMIT;
use super::users::{TOP_CAPACITY, define, resources};
use crate::machine::Placed;
use crate::random::Random;
use crate::world::World;

/// The most tasks that people add.
const TASK_LIMIT: u32 = 40;

impl World<'_> {
    /// A random request of a person.
    pub(crate) fn some_request(&mut self) -> Option<Request> {
        if self.has_workers && self.random.in_thousand(350) {
            return self.some_worker_request();
        }
        let tasks: Vec<TaskId> = self.model.jobs.keys().cloned().collect();
        let parked = |id: &&TaskId| matches!(self.model.jobs[*id].state, TaskState::AwaitingDecision(_));
        let parked: Vec<TaskId> = tasks.iter().filter(parked).cloned().collect();
        let tasks = if parked.is_empty() || self.random.in_thousand(700) { tasks } else { parked };
        let task = (!tasks.is_empty()).then(|| self.random.pick(&tasks).clone());
        let request = match self.random.below(140) {
            0..30 => return (self.counts.tasks < TASK_LIMIT).then(|| self.add_task()),
            110..118 => return (self.counts.pipelines < PIPELINE_LIMIT).then(|| self.start_pipeline(None)),
            118..132 => return self.change_pipeline(),
            132..140 => {
                self.change_outside();
                return None;
            }
            30..34 => return Some(self.add_section()),
            34..42 => return self.change_section(),
            42..47 => {
                let resource = resources()[2 + self.random.below(2)].clone();
                return Some(define(&resource, u32::try_from(self.random.between(1, i64::from(TOP_CAPACITY))).expect("small")));
            }
            47..62 => self.update(task?),
            62..70 => TaskRequest::Cancel { id: task? },
            70..80 => {
                let id = task?;
                // The file that marks it as done would end it again at once.
                self.machine.files.remove(&id);
                TaskRequest::Retry { id }
            }
            80..84 => {
                let mark = if self.random.in_thousand(500) { Mark::Skipped } else { Mark::Review };
                TaskRequest::Set { id: task?, by: None, epoch: None, mark }
            }
            84..89 => TaskRequest::Delete { id: task?, force: self.random.in_thousand(300) },
            89..93 => {
                let (id, run) = self.model.live_runs().next().map(|run| (self.model.runs[run].task.clone(), run.clone()))?;
                TaskRequest::Kill { id, run, error: "killed by hand".into() }
            }
            93..103 => {
                let loops = self.model.jobs.iter().filter(|(_, job)| job.spec.restart.is_some()).map(|(id, _)| id.clone());
                let loops: Vec<TaskId> = loops.collect();
                if !loops.is_empty() {
                    let id = self.random.pick(&loops).clone();
                    let placed = if self.random.in_thousand(850) { Placed::File } else { Placed::Directory };
                    self.make_done(&id, placed);
                }
                return None;
            }
            // Manual; or with the epoch of some run, which may have ended long ago.
            _ => {
                let epochs: Vec<Epoch> = self.model.runs.values().map(|entry| entry.epoch).collect();
                let epoch = (!epochs.is_empty() && self.random.in_thousand(700)).then(|| *self.random.pick(&epochs));
                let owner = self.model.runs.values().find(|entry| Some(entry.epoch) == epoch).map(|entry| entry.task.clone());
                let verdict = match self.random.in_thousand(700) {
                    true => Verdict::Done { output: None },
                    false => Verdict::Failed { error: "by hand".into() },
                };
                TaskRequest::Conclude { id: owner.or(task)?, epoch, by: None, verdict }
            }
        };
        Some(Request::Task(request))
    }

    /// A person changes the limits of the project, for all runners at once.
    pub(crate) fn set_limits(&mut self) -> Option<Request> {
        let random = self.changes_limits.as_mut()?;
        if !random.in_thousand(60) {
            return None;
        }
        let runs = random.in_thousand(600).then(|| *random.pick(&[0, 1, 1, 2, 3, 4]));
        let roots = random.in_thousand(600).then(|| *random.pick(&[0, 1, 2, 2, 3]));
        let seed = Limits { runs: self.limit, roots: self.root_limit };
        Some(Request::SetLimits { change: LimitsChange { runs, roots }, seed })
    }

    /// A person stops a task, or resumes one.
    fn some_pause_of_tasks(&mut self) -> Option<PauseRequest> {
        let jobs = &self.model.jobs;
        let stopped = jobs.iter().filter(|(_, job)| job.spec.paused.is_some()).map(|(id, _)| id.clone());
        let (all, stopped): (Vec<TaskId>, Vec<TaskId>) = (jobs.keys().cloned().collect(), stopped.collect());
        let (random, by) = (self.pauses.as_mut()?, Box::from("ann"));
        if !stopped.is_empty() && random.in_thousand(650) {
            return Some(PauseRequest::ResumeTasks { by, tasks: vec![random.pick(&stopped).clone()] });
        }
        let tasks = (!all.is_empty()).then(|| vec![random.pick(&all).clone()])?;
        Some(PauseRequest::StopTasks { by, tasks, now: random.in_thousand(300) })
    }

    /// A person pauses, stops or resumes the project.
    pub(crate) fn some_pause(&mut self) -> Option<Request> {
        let is_paused = self.model.pause.is_some();
        let random = self.pauses.as_mut()?;
        if !random.in_thousand(if is_paused { 200 } else { 60 }) {
            return None;
        }
        let (by, now) = (Box::from("ann"), random.in_thousand(300));
        let request = match random.below(10) {
            0..6 if is_paused => PauseRequest::Resume { by, only_stopped: random.in_thousand(400) },
            0..2 => PauseRequest::Pause { by },
            2..4 => PauseRequest::Stop { by, verb: PauseVerb::Stop, now },
            4 => PauseRequest::Stop { by, verb: PauseVerb::Interrupt, now },
            _ => self.some_pause_of_tasks()?,
        };
        Some(Request::Pause(request))
    }

    /// Resumes the project and all stopped tasks.
    pub(crate) fn resume_all(&mut self) {
        if self.model.pause.is_some() {
            self.operate(Request::Pause(PauseRequest::Resume { by: "ann".into(), only_stopped: false }));
        }
        let stopped = self.model.jobs.iter().filter(|(_, job)| job.spec.paused.is_some()).map(|(id, _)| id.clone());
        let stopped: Vec<TaskId> = stopped.collect();
        if !stopped.is_empty() {
            self.operate(Request::Pause(PauseRequest::ResumeTasks { by: "ann".into(), tasks: stopped }));
        }
    }

    pub(crate) fn add_section(&mut self) -> Request {
        self.counts.sections += 1;
        let name = format!("s{}", self.counts.sections);
        let id = SectionId::new(&name).expect("a good id");
        Request::Section(SectionRequest::Add { id, name: title(&name), exclusive: self.random.in_thousand(650) })
    }

    fn change_section(&mut self) -> Option<Request> {
        let id = self.some_section()?;
        Some(Request::Section(match self.random.in_thousand(700) {
            true => {
                let exclusive = Some(self.random.in_thousand(600));
                SectionRequest::Update { id, name: None, exclusive }
            }
            false => SectionRequest::Delete { id, force: self.random.in_thousand(300) },
        }))
    }

    pub(crate) fn some_section(&mut self) -> Option<SectionId> {
        let sections: Vec<SectionId> = self.model.sections.keys().cloned().collect();
        (!sections.is_empty()).then(|| self.random.pick(&sections).clone())
    }

    pub(crate) fn add_task(&mut self) -> Request {
        let spec = self.spec(None);
        let depends_on = self.dependencies(700);
        Request::Task(TaskRequest::Add { id: self.new_task(), spec: Box::new(spec), depends_on, by: None })
    }

    /// A child that a session adds.
    pub(crate) fn child_task(&mut self, parent: &TaskId, by: Epoch) -> TaskRequest {
        let spec = self.spec(Some(parent.clone()));
        TaskRequest::Add { id: self.new_task(), spec: Box::new(spec), depends_on: Vec::new(), by: Some(by) }
    }

    fn new_task(&mut self) -> TaskId {
        self.counts.tasks += 1;
        TaskId::new(&format!("t{}", self.counts.tasks)).expect("a good id")
    }

    fn spec(&mut self, parent: Option<TaskId>) -> Spec {
        let in_section = self.random.in_thousand(500);
        let section = if in_section { self.some_section() } else { None };
        let random = &mut self.random;
        let mut needs = Vec::new();
        let all = resources();
        for (resource, share) in all.iter().zip([130, 80, 150, 80, 8]) {
            if random.in_thousand(share) {
                let name = resource.name.clone();
                let weight = u32::try_from(random.between(1, i64::from(TOP_CAPACITY))).expect("small");
                needs.push(match resource.kind {
                    Kind::Lock => Need::Lock(name),
                    Kind::Semaphore => Need::Slots { name, weight },
                });
            }
        }
        let restart = random.in_thousand(350).then(|| policy(random));
        Spec {
            section,
            parent,
            labels: if random.in_thousand(100) { vec![Label::new("l").expect("a good label")] } else { Vec::new() },
            priority: i32::from(random.in_thousand(300)) - i32::from(random.in_thousand(200)),
            work: random.in_thousand(960).then(|| Work::Run("true".into())),
            needs,
            retries: if restart.is_some() { 0 } else { u32::from(random.in_thousand(400)) + u32::from(random.in_thousand(300)) },
            restart,
            ..Spec::new(title("some work"))
        }
    }

    /// No dependencies in `none` of a thousand cases, else a few existing tasks.
    pub(crate) fn dependencies(&mut self, none: usize) -> Vec<Edge> {
        let tasks: Vec<TaskId> = self.model.jobs.keys().cloned().collect();
        if tasks.is_empty() || self.random.in_thousand(none) {
            return Vec::new();
        }
        let mut on: Vec<TaskId> = (0..1 + self.random.below(3)).map(|_| self.random.pick(&tasks).clone()).collect();
        on.sort();
        on.dedup();
        on.into_iter().map(|on| Edge { on, allow_failed: self.random.in_thousand(350) }).collect()
    }

    fn update(&mut self, id: TaskId) -> TaskRequest {
        let mut edit = Edit::default();
        match self.random.below(10) {
            0..2 => edit.priority = Some(i32::try_from(self.random.between(-2, 2)).expect("small")),
            2..5 => edit.section = Some(self.some_section().filter(|_| self.random.in_thousand(600))),
            _ => {
                // A phase that depends on a root would keep the place for which that root waits, if all places are taken.
                let is_phase = self.model.jobs.get(&id).is_some_and(|job| job.spec.phase().is_some());
                edit.depends_on = Some(self.dependencies(250)).filter(|_| !is_phase);
            }
        }
        TaskRequest::Update { id, edit: Box::new(edit) }
    }
}

/// A loop with few attempts and short delays.
fn policy(random: &mut Random) -> Policy {
    Policy {
        max_attempts: NonZeroU32::new(1 + u32::try_from(random.below(4)).expect("small")).expect("at least one"),
        delay: Span::from_ms(if random.in_thousand(200) { 0 } else { random.between(1, 4_000) }),
        child_wait: Span::from_ms(random.between(100, 12_000)),
        on_children_timeout: *random.pick(&[OnTimeout::Warn, OnTimeout::Fail, OnTimeout::Kill]),
    }
}

fn title(text: &str) -> Title {
    Title::new(text).expect("a good title")
}
