//! Checks every committed event, one by one, against the model and against the actions of the processes.

use banksman_core::backlog::Edge;
use banksman_core::event::{Event, Fact, Kind, Resource, SectionFact, TaskFact};
use banksman_core::resource::grant::OFFER;
use banksman_core::task::Outcome;
use banksman_core::task::dependencies::DagError;
use banksman_core::task::{Need, Spec};
use banksman_core::{HolderId, Lease, Name, RunId, RunnerId, Seq, Span, Status, TaskId, queue};
use banksman_engine::{Reply, Request, RunOutcome, RunRequest, TaskOutcome, TaskRequest};

use super::keeper::Keeper;
use super::loop_checks::CallContext;
use super::model::{Holding, RunModel, TaskModel, TaskState};
use super::pause::runs;
use super::run_end_checks::Made;
use crate::commit::Logged;
use crate::commit::{CommittedCall, Sender};
use crate::format::{Answer, Line, answer};
use crate::queues::is_of_takers;
use crate::report::Checker;
use crate::world::World;

impl World<'_> {
    /// Feeds a committed call to the model.
    pub(crate) fn observe_backlog(&mut self, call: &CommittedCall<'_>) {
        let by = match call.from {
            Sender::Runner(slot) | Sender::Thread(slot) => Some(self.runners[slot].id.clone()),
            _ => None,
        };
        self.call = CallContext { lease: call.note.lease, by, ..CallContext::of(call.request, call.reply) };
        self.before(call);
        for logged in call.events {
            self.say(format_args!("    {} at {}", Line(logged), logged.wall.0));
            self.observe(logged, call.note.lease);
        }
        self.after(call);
        self.check_answer(call, call.events);
    }

    /// Checks the rules that hold after every commit.
    pub(crate) fn check_backlog(&mut self) {
        self.check_questions();
        self.check_pipelines();
        self.check_items();
        self.check_passed_over();
    }

    /// Feeds one event of the log to the model.
    pub(crate) fn observe(&mut self, logged: &Logged, lease: Lease) {
        self.call.seq = logged.seq;
        self.model.lease = Some((self.clock.boot_number(), lease.0 - self.clock.monotonic()));
        match &logged.event {
            Event::Resource { resource, fact } => self.observe_resource(resource, fact, lease),
            Event::Section { id, fact } => match fact {
                SectionFact::Added { exclusive, .. } | SectionFact::Updated { exclusive, .. } => {
                    self.model.sections.insert(id.clone(), *exclusive);
                }
                SectionFact::Deleted {} => drop(self.model.sections.remove(id)),
            },
            Event::Task { id, fact } => self.observe_task(id, fact, logged.seq),
            Event::Decision { id, fact } => self.observe_decision(id, fact),
            Event::Pipeline { id, fact } => self.observe_pipeline(id, fact),
            Event::Queue { name, .. } if is_of_takers(name) => {}
            Event::Queue { name, fact } => {
                if let queue::Fact::Push { .. } = fact {
                    self.observe_push();
                }
                self.observe_queue(name, fact, logged.seq);
            }
            Event::Worker { name, fact } => self.observe_worker(name, fact, logged.seq),
            Event::Limits(limits) => self.model.limits = Some(*limits),
            Event::Paused(pause) => {
                self.tally.count("pauses");
                self.model.pause = Some(pause.clone());
            }
            Event::Resumed(_) => self.model.pause = None,
            // No process imports or lands here, or works in a workspace.
            Event::Import { .. } | Event::Workspace { .. } | Event::Route { .. } | Event::Finished(_) | Event::Custom { .. } => {}
            Event::Landing { .. } | Event::LandingTarget { .. } | Event::AccountLimit { .. } => {}
        }
        self.observe_reactions(logged);
    }

    fn observe_resource(&mut self, resource: &Resource, fact: &Fact, lease: Lease) {
        match fact {
            Fact::Defined(defined) => {
                if let Some(capacity) = defined.capacity {
                    self.model.capacity.insert(resource.name.clone(), capacity);
                }
            }
            Fact::Acquired(claim) => {
                let until = claim.ttl.map(|ttl| lease + ttl);
                let offered = !claim.holder.as_str().starts_with("run:") && self.call.asks.as_ref() != Some(&claim.holder);
                let holding = Holding { weight: claim.weight, processes: claim.processes.clone(), until, ends: until, offered };
                let holders = self.model.held.entry(resource.clone()).or_default();
                holders.insert(claim.holder.clone(), holding);
                let used: u32 = holders.values().map(|holding| holding.weight).sum();
                let capacity = match resource.kind {
                    Kind::Lock => 1,
                    Kind::Semaphore => self.model.capacity.get(&resource.name).copied().unwrap_or(0),
                };
                self.verdict.expect(Checker::Slots, used <= capacity, || {
                    format!("{resource} is given out {used} times, there are {capacity}")
                });
            }
            Fact::Increased(_) => {}
            Fact::Released(ended) | Fact::Reclaimed(ended) | Fact::OfferLapsed(ended) => {
                let holding = self.model.held.entry(resource.clone()).or_default().remove(&ended.holder);
                if let Some(run) = ended.holder.as_str().strip_prefix("run:") {
                    let run = RunId::new(run).expect("a good id");
                    let pauses = *resource == runs() && self.model.runs.get(&run).is_some_and(|entry| entry.paused);
                    let lives = !pauses && self.lives(&run);
                    self.verdict
                        .expect(Checker::Slots, !lives, || format!("{resource} of run {run} is freed while its session lives"));
                }
                if ended.reason == Some(banksman_core::resource::grant::Reason::Dead) {
                    let alive = holding.iter().flat_map(|holding| &holding.processes).any(|process| self.machine.lives(process));
                    self.verdict
                        .expect(Checker::Living, !alive, || format!("{resource} is taken from {}, which lives", ended.holder));
                }
            }
        }
    }

    fn observe_task(&mut self, id: &TaskId, fact: &TaskFact, seq: Seq) {
        match fact {
            TaskFact::Added { spec, depends_on, .. } => {
                self.model.jobs.insert(id.clone(), TaskModel::new((**spec).clone(), depends_on.clone(), seq));
                self.tally.count("tasks");
            }
            TaskFact::Updated { spec, depends_on } => self.change(id, spec, depends_on),
            TaskFact::Started { run, attempt, runner, restart } => {
                self.check_root(id, runner);
                self.check_begins(id);
                self.check_attempt(id, runner, *restart);
                self.observe_start(id, run, *attempt, runner, seq);
            }
            TaskFact::Adopted { run, runner, from } => self.observe_adoption(run, runner, from),
            TaskFact::Stuck { run, .. } | TaskFact::Nudged { run, .. } | TaskFact::Recovered { run, .. } => {
                self.must_be_live(id, run);
                self.observe_rung(id, fact);
            }
            TaskFact::Checkpoint { run, .. } => {
                self.tally.count("checkpoints");
                self.must_be_live(id, run);
            }
            TaskFact::Stopping { run, then } => {
                self.must_be_live(id, run);
                self.check_stop(id, run, then);
                self.model.runs.get_mut(run).into_iter().for_each(|entry| entry.stopping = Some(then.clone()));
            }
            TaskFact::Restarting { run, ending, why, failures, recoveries, .. } => {
                self.observe_end(id, Some(run), Made::Again(why.expect("logs are new here"), ending.clone()));
                self.check_counters(id, failures.unwrap_or_default(), recoveries.unwrap_or_default());
            }
            TaskFact::Awaiting { run, .. } => self.observe_end(id, run.as_ref(), Made::Awaiting),
            TaskFact::EndingChildren {} => self.observe_ending_children(id),
            TaskFact::Escalated { run, decision, attempts, .. } => {
                self.observe_end(id, Some(run), Made::AwaitingDecision(decision.clone()));
                // Its agent was not started, so the attempt does not count.
                if let (Some(_), Some(job)) = (attempts, self.model.jobs.get_mut(id)) {
                    (job.tried, job.attempts) = (job.tried - 1, job.attempts - 1);
                    self.tally.count("not begun for want of trust");
                }
            }
            TaskFact::Asked { run, decision, .. } => self.observe_end(id, Some(run), Made::AwaitingDecision(decision.clone())),
            TaskFact::Answered { .. } => {
                self.model.jobs.get_mut(id).into_iter().for_each(|job| job.state = TaskState::Pending);
            }
            TaskFact::InPhases { is_blocked } => {
                let state = TaskState::InPhases(*is_blocked);
                self.model.jobs.get_mut(id).into_iter().for_each(|job| job.state = state.clone());
            }
            TaskFact::Taken { .. } | TaskFact::Returned {} => {
                let is_taken = matches!(fact, TaskFact::Taken { .. });
                let (was, now) =
                    if is_taken { (TaskState::Pending, TaskState::Manual) } else { (TaskState::Manual, TaskState::Pending) };
                let state = self.model.jobs.get_mut(id).map(|job| std::mem::replace(&mut job.state, now));
                self.verdict.expect(Checker::Model, state == Some(was), || format!("{id} was {state:?}, and then came {fact:?}"));
            }
            TaskFact::Complete { run, .. } => self.observe_over(id, run.as_ref(), Status::Completed, fact),
            TaskFact::Failed { run, .. } => self.observe_over(id, run.as_ref(), Status::Failed, fact),
            TaskFact::Cancelled { run } => self.observe_over(id, run.as_ref(), Status::Cancelled, fact),
            TaskFact::Landing { run, .. } => self.observe_end(id, run.as_ref(), Made::Landing),
            TaskFact::SentBack { .. } => {
                self.tally.count("sent back");
                let state = self.model.jobs.get_mut(id).map(|job| std::mem::replace(&mut job.state, TaskState::Pending));
                let was_landing = state == Some(TaskState::Landing);
                self.verdict.expect(Checker::Model, was_landing, || format!("{id} was {state:?}, and then came {fact:?}"));
            }
            TaskFact::Retried {} => {
                self.model.automation.retried.insert(id.clone());
                if let Some(job) = self.model.jobs.get_mut(id) {
                    job.spec.paused = None;
                    (job.state, job.failures, job.recoveries, job.tried) = (TaskState::Pending, 0, 0, 0);
                }
            }
            TaskFact::Paused(pause) => {
                self.tally.count("tasks stopped");
                self.model.jobs.get_mut(id).into_iter().for_each(|job| job.spec.paused = Some(pause.clone()));
            }
            TaskFact::Resumed(_) => self.model.jobs.get_mut(id).into_iter().for_each(|job| job.spec.paused = None),
            TaskFact::Marked { status } => {
                let state = if *status == Status::Review { TaskState::Review } else { TaskState::Over(*status) };
                self.model.jobs.get_mut(id).into_iter().for_each(|job| (job.state, job.rests) = (state.clone(), None));
                if *status != Status::Review {
                    self.end_phase(id, None, false);
                }
            }
            TaskFact::Deleted {} => {
                let live = self.model.live(id).is_some();
                self.verdict.expect(Checker::Ends, !live, || format!("{id} is deleted while a run is at it"));
                self.end_phase(id, None, false);
                self.model.jobs.remove(id);
            }
        }
    }

    fn observe_over(&mut self, id: &TaskId, run: Option<&RunId>, status: Status, fact: &TaskFact) {
        let timed_out = self.took_too_long(id);
        self.observe_end(id, run, Made::Over(status));
        self.end_phase(id, Some(fact), timed_out);
    }

    fn change(&mut self, id: &TaskId, spec: &Spec, deps: &[Edge]) {
        let circle = self.model.closes_circle(id, deps);
        self.verdict.expect(Checker::Early, !circle, || format!("{id} waits for itself"));
        let live = self.model.live(id).is_some();
        let Some(job) = self.model.jobs.get_mut(id) else { return };
        let same = job.spec.section == spec.section && job.deps == deps;
        self.verdict.expect(Checker::Early, !live || same, || format!("{id} changes its conditions under its run"));
        (job.spec, job.deps) = (spec.clone(), deps.to_vec());
    }

    fn observe_start(&mut self, id: &TaskId, run: &RunId, attempt: u32, runner: &RunnerId, seq: Seq) {
        self.tally.count("runs");
        let Some(job) = self.model.jobs.get_mut(id) else {
            return self.verdict.report(Checker::Model, || format!("{id} is started and does not exist"));
        };
        let paused = self.model.pause.as_ref().or(job.spec.paused.as_deref()).cloned();
        self.verdict.expect(Checker::Paused, paused.is_none(), || format!("{run} starts {id} though {paused:?}"));
        let (pending, counted) = (job.state == TaskState::Pending, job.attempts == attempt);
        self.verdict.expect(Checker::Twice, pending && counted, || format!("{run} starts {id} for the {attempt}th time"));
        (job.state, job.attempts) = (TaskState::Live(run.clone()), attempt + 1);
        let (section, needs) = (job.spec.section.clone(), job.spec.needs.clone());
        let unmet: Vec<TaskId> = self.model.unmet(&self.model.jobs[id]).cloned().collect();
        self.verdict.expect(Checker::Early, unmet.is_empty(), || format!("{id} starts before {unmet:?}"));
        if let Some(section) = section.filter(|section| self.model.sections.get(section) == Some(&true)) {
            let foreign = self.model.owners_in(&section).find(|owner| *owner != runner).cloned();
            self.verdict.expect(Checker::Sections, foreign.is_none(), || {
                format!("{runner} starts {id} in {section}, where {foreign:?} works")
            });
        }
        let entry = RunModel {
            task: id.clone(),
            owner: runner.clone(),
            epoch: seq.into(),
            stopping: None,
            stuck: None,
            verdict: None,
            ended: false,
            paused: false,
            has_paused: false,
        };
        let known = self.model.runs.insert(run.clone(), entry).is_some();
        self.verdict.expect(Checker::Twice, !known, || format!("{run} starts twice"));
        self.note_kept(&needs);
        let lacks = self.book_lacks(run, id, &needs);
        self.verdict.expect(Checker::Slots, lacks.is_none(), || format!("{run} starts without {lacks:?}"));
        // Runs from before the limit was lowered continue; no other run begins beside them.
        let limit = self.model.limits.map_or(0, |limits| limits.runs);
        let live = self.model.holders(&runs()).count();
        self.verdict.expect(Checker::Limits, limit == 0 || live <= limit as usize, || {
            format!("{run} starts as one of {live}, and the project allows {limit} runs")
        });
        let max = self.model.runners.get(runner).and_then(|known| known.max_runs);
        let own = self.model.steady(runner);
        self.verdict.expect(Checker::Slots, max.is_none_or(|max| own <= max as usize), || {
            format!("{runner} has {own} runs, and at most {max:?} are allowed")
        });
    }

    /// The first resource that a run should hold and does not.
    fn book_lacks(&self, run: &RunId, task: &TaskId, needs: &[Need]) -> Option<Resource> {
        let lock = |name: Name| Resource { kind: Kind::Lock, name };
        let slots = |name: Name| Resource { kind: Kind::Semaphore, name };
        let own = [slots(Name::runs()), lock(task.lock())].map(|resource| (resource, run.holder())).into_iter();
        let mut all = own.chain(needs.iter().map(|need| match need {
            Need::Lock(_) | Need::Slots { .. } => (need.resource(), run.holder()),
            Need::Kept { pipeline, .. } => (need.resource(), pipeline.pipeline_holder()),
        }));
        let is_held = |resource: &Resource, by: &HolderId| self.model.holders(resource).any(|(holder, _)| holder == by);
        all.find(|(resource, holder)| !is_held(resource, holder)).map(|(resource, _)| resource)
    }

    fn observe_adoption(&mut self, run: &RunId, runner: &RunnerId, from: &RunnerId) {
        self.tally.count("adoptions");
        let known = self.model.runners.get(from);
        let alive = known.is_some_and(|known| !known.left && self.machine.lives(&known.process));
        self.verdict.expect(Checker::Living, !alive, || format!("{runner} takes {run} from {from}, which lives"));
        match self.model.runs.get_mut(run).filter(|entry| !entry.ended && entry.owner == *from) {
            Some(entry) => entry.owner = runner.clone(),
            None => self.verdict.report(Checker::Ends, || format!("{runner} adopts {run}, which is not {from}'s")),
        }
    }

    pub(crate) fn must_be_live(&mut self, id: &TaskId, run: &RunId) {
        let live = self.model.live(id).map(|(live, _)| live.clone());
        self.verdict.expect(Checker::Ends, live.as_ref() == Some(run), || format!("{run} is spoken of, {live:?} is at {id}"));
    }

    /// Whether a process of the run's session is alive.
    pub(crate) fn lives(&self, run: &RunId) -> bool {
        self.keepers.values().any(|keeper| keeper.run == *run && keeper.tree_lives())
    }

    /// Checks the start of a program: its run must be the live run of the task, with everything that it needs, and no
    /// session of an earlier run may be alive.
    pub(crate) fn check_start(&mut self, keeper: &Keeper) {
        let (run, task) = (&keeper.run, &keeper.task);
        let again = self.run_facts.get(run).is_some_and(|facts| facts.spawned);
        self.verdict.expect(Checker::Twice, !again, || format!("the session of {run} is started a second time"));
        let other = self.keepers.values().find(|other| other.task == *task && other.tree_lives()).map(|other| other.run.clone());
        self.verdict.expect(Checker::Twice, other.is_none(), || format!("{run} and {other:?} of {task} both live"));
        let live = self.model.live(task).map(|(live, _)| live.clone());
        self.verdict.expect(Checker::Twice, live.as_ref() == Some(run), || {
            format!("the session of {run} begins, but {live:?} is at {task}")
        });
        let needs = self.model.jobs.get(task).map(|job| job.spec.needs.clone()).unwrap_or_default();
        let lacks = self.book_lacks(run, task, &needs);
        self.verdict.expect(Checker::Slots, lacks.is_none(), || format!("the session of {run} begins without {lacks:?}"));
    }

    /// Checks an answer before its events are fed to the model.
    pub(crate) fn before(&mut self, call: &CommittedCall<'_>) {
        if let (Request::Run(RunRequest::Pause { run, .. }), Reply::Run(RunOutcome::Done)) = (call.request, call.reply) {
            let entry = self.model.runs.get_mut(run);
            entry.into_iter().for_each(|entry| (entry.paused, entry.has_paused) = (true, true));
        }
        let (Request::Task(request), Reply::Task(outcome)) = (call.request, call.reply) else { return };
        match request {
            TaskRequest::Conclude { id, epoch: Some(epoch), .. } | TaskRequest::Heartbeat { id, epoch, .. } => {
                let is_own = self.model.live(id).is_some_and(|(_, entry)| entry.epoch == *epoch);
                let fenced = matches!(outcome, TaskOutcome::Unknown | TaskOutcome::Stepped(Outcome::Fenced(_), _));
                self.verdict
                    .expect(Checker::Fencing, is_own != fenced, || format!("{epoch} of {id}, own: {is_own}: {outcome:?}"));
            }
            TaskRequest::Add { spec, by: Some(epoch), .. } => {
                let parent = spec.parent.as_ref().and_then(|parent| self.model.live(parent));
                let is_own = parent.is_some_and(|(_, entry)| entry.epoch == *epoch);
                let kept = matches!(outcome, TaskOutcome::Kept(_));
                self.verdict.expect(Checker::Fencing, is_own || !kept, || format!("a child is added with the old epoch {epoch}"));
            }
            TaskRequest::Update { id, edit } => {
                let circle = edit.depends_on.as_ref().is_some_and(|deps| self.model.closes_circle(id, deps));
                let refused = matches!(outcome, TaskOutcome::Dependencies(DagError::Cycle(_) | DagError::Own));
                self.tally.count_many("circles refused", u64::from(refused));
                self.verdict.expect(Checker::Early, !refused || circle, || format!("{id} is refused, and there is no circle"));
            }
            _ => {}
        }
    }

    /// Feeds the results that have no event to the model.
    pub(crate) fn after(&mut self, call: &CommittedCall<'_>) {
        self.after_routing(call);
        match (call.request, call.reply) {
            (
                Request::Task(TaskRequest::Conclude { id, epoch: Some(_), verdict, .. }),
                Reply::Task(TaskOutcome::Stepped(Outcome::Noted, _)),
            ) => {
                let run = self.model.live(id).map(|(run, _)| run.clone());
                let entry = run.and_then(|run| self.model.runs.get_mut(&run));
                entry.into_iter().for_each(|entry| entry.verdict = Some(verdict.clone()));
                self.tally.count("results told by sessions");
            }
            // Taking up an offer proves that the holder is alive, and restarts its lease. No runner hears of that:
            // runners that know the offer check again when it would have lapsed.
            (Request::Coordinate { command, .. }, Reply::Coordinate { outcome, at }) => {
                if let Answer::Acquired(grant) | Answer::Extended(grant) = answer(outcome)
                    && let Some(holders) = self.model.held.get_mut(&command.resource())
                    && let Some(holding) = holders.get_mut(&grant.claim.holder)
                {
                    let offered = grant.acquired.lease + if grant.ticket.is_some() { OFFER } else { Span::ZERO };
                    holding.offered = false;
                    holding.ends = grant.claim.ttl.map(|ttl| at.lease + ttl);
                    holding.until = grant.claim.ttl.map(|ttl| (at.lease + ttl).max(offered));
                }
            }
            (Request::Pipeline(request), Reply::Pipeline(outcome)) => self.after_pipeline(request, outcome),
            (Request::Run(RunRequest::Resume { run, .. }), Reply::Run(RunOutcome::Done)) => {
                self.model.runs.get_mut(run).into_iter().for_each(|entry| entry.paused = false);
            }
            (Request::Run(RunRequest::MakeReady { rested, .. }), Reply::Run(RunOutcome::Done)) => self.observe_rested(rested),
            (Request::Run(RunRequest::Claim(claim)), Reply::Run(RunOutcome::Claimed(claimed))) => {
                let claimant = self.runners.iter_mut().find(|claimant| claimant.id == claim.runner);
                let refused = claimed.blocked.iter().map(|(task, _)| task.id.clone());
                claimant.into_iter().for_each(|claimant| claimant.passed_over.extend(refused.clone()));
            }
            (Request::Run(RunRequest::Short { runner, shortage }), _) => {
                let short = self.runners.iter_mut().find(|short| short.id == *runner);
                short.into_iter().for_each(|short| short.is_short = shortage.is_some());
            }
            (Request::Run(RunRequest::Retire { runner, seen }), _) if seen.probes.is_empty() => {
                self.model.runners.get_mut(runner).into_iter().for_each(|known| known.left = true);
            }
            _ => {}
        }
    }
}
