//! Pipelines as an outsider sees them: one thing at a time, in an order that the plan allows, and never left hanging.

use banksman_core::event::TaskFact;
use banksman_core::guard::Guard;
use banksman_core::pipeline::{Fact, Reason, When};
use banksman_core::task::After;
use banksman_core::{Name, Status, TaskId};
use banksman_engine::{PipelineOutcome, PipelineRequest};

use super::book::{Job, Standing};
use super::loops::Looked;
use super::verdicts::asks_outside;
use super::way::{Owes, Stand, Way};
use super::world::World;
use crate::report::Checker;

impl World<'_> {
    pub(crate) fn take_in_pipeline(&mut self, id: &TaskId, fact: &Fact) {
        self.tally.count(fact.kind());
        if let Fact::Created { context } = fact {
            let Some(plan) = self.book.jobs.get(id).and_then(|job| job.plan()) else {
                return self.verdict.report(Checker::Phases, || format!("{id} begins without a task"));
            };
            self.book.ways.insert(id.clone(), Way::new(plan.clone(), context.clone()));
            return;
        }
        let Some(way) = self.book.ways.get(id) else {
            return self.verdict.report(Checker::Phases, || format!("{id} is no pipeline: {fact:?}"));
        };
        // Whoever goes on from the guards behind a phase leaves it.
        let goes_on = matches!(fact, Fact::Complete {} | Fact::Checking { .. } | Fact::Phase { .. });
        if let (Stand::Post(at), true) = (&way.stand, goes_on) {
            let owes = way.after(*at);
            self.check_passed(id);
            self.stand(id, Stand::Owes(owes));
        }
        self.follow_way(id, fact);
    }

    fn stand(&mut self, id: &TaskId, stand: Stand) {
        if let Some(way) = self.book.ways.get_mut(id) {
            if let Stand::Owes(Owes::Enter(at)) = stand {
                let attempts = way.attempts.entry(at).or_default();
                *attempts += 1 + way.retried.remove(&at).unwrap_or_default();
                (way.attempt, way.waived) = (*attempts, false);
            }
            (way.stand, way.blocked, way.again, way.looker) = (stand, None, None, None);
            way.overdue = None;
            way.is_keeping &= !way.is_over();
        }
    }

    fn follow_way(&mut self, id: &TaskId, fact: &Fact) {
        let way = &self.book.ways[id];
        let stand = way.stand.clone();
        let right = match fact {
            Fact::Created { .. } => true,
            Fact::Started {} => {
                let is_first = stand == Stand::Init;
                self.check_beginning(id);
                self.stand(id, Stand::Owes(Owes::Enter(0)));
                is_first
            }
            Fact::Checking { phase, when, attempt } => return self.take_in_checking(id, phase, *when, *attempt),
            Fact::Blocked { phase, when, reason } => return self.take_in_block(id, phase, *when, reason),
            Fact::Phase { phase, attempt, approach, task, .. } => {
                return self.take_in_phase(id, phase, *attempt, *approach, task.as_ref());
            }
            Fact::Resumed {} => {
                let was_asked = way.blocked.as_ref().is_some_and(|reason| match reason {
                    Reason::Decision { .. } => true,
                    reason => reason.held().is_some(),
                });
                self.check_resumed(id);
                self.book.ways.get_mut(id).into_iter().for_each(|way| way.blocked = None);
                was_asked
            }
            Fact::PhaseFailed { phase, .. } => return self.take_in_failure(id, phase),
            Fact::Failed { phase, recoverable, .. } => return self.take_in_end_by_failure(id, phase, *recoverable),
            Fact::Fallback { .. } => {
                let Stand::Owes(Owes::Failure { at, approach, error, timed_out }) = &stand else {
                    return self.astray(id, fact);
                };
                let Some(next) = way.next_approach(*at, *approach, error, *timed_out) else { return self.astray(id, fact) };
                self.stand(id, Stand::Owes(Owes::Approach(*at, next)));
                true
            }
            Fact::Exhausted { .. } => {
                let Stand::Owes(Owes::Failure { at, approach, error, timed_out }) = &stand else {
                    return self.astray(id, fact);
                };
                let is_right = way.next_approach(*at, *approach, error, *timed_out).is_none();
                self.stand(id, Stand::Owes(Owes::GivenUp(*at)));
                is_right
            }
            Fact::Complete {} => {
                self.stand(id, Stand::Done);
                stand == Stand::Owes(Owes::Complete)
            }
            Fact::Retry { phase } => {
                self.book.crew.retried.insert(id.clone());
                let way = &self.book.ways[id];
                let Stand::Failed { at, recoverable: true } = stand else { return self.astray(id, fact) };
                let is_same = way.at(phase) == Some(at);
                self.stand(id, Stand::Owes(Owes::Enter(at)));
                let way = self.book.ways.get_mut(id).expect("it is there");
                way.failures.clear();
                is_same
            }
            Fact::Cancelled { .. } => {
                let was_open = !way.is_over();
                self.stand(id, Stand::Cancelled);
                was_open
            }
            Fact::Set { vars } => {
                self.book.ways.get_mut(id).into_iter().for_each(|way| way.context.extend(vars.clone()));
                true
            }
            Fact::Unblocked { .. } => {
                self.book.ways.get_mut(id).into_iter().for_each(|way| way.waived = true);
                self.said.about == Looked::Unblock
            }
            Fact::Warned { .. } | Fact::Checkpoint(_) => true,
            Fact::Deleted {} => {
                self.book.ways.remove(id);
                true
            }
        };
        self.verdict.expect(Checker::Phases, right, || format!("{id} stood at {stand:?}, and then came {fact:?}"));
    }

    fn astray(&mut self, id: &TaskId, fact: &Fact) {
        let stand = self.book.ways.get(id).map(|way| way.stand.clone());
        self.verdict.report(Checker::Phases, || format!("{id} stood at {stand:?}, and then came {fact:?}"));
    }

    /// A pipeline begins: what it depends on is there, and its place among the roots too, unless a person wants it to.
    fn check_beginning(&mut self, id: &TaskId) {
        if self.said.about == Looked::Unblock {
            return;
        }
        let Some(job) = self.book.jobs.get(id) else { return };
        let unmet: Vec<TaskId> = self.book.unmet(job).cloned().collect();
        self.verdict.expect(Checker::Early, unmet.is_empty(), || format!("{id} begins before {unmet:?}"));
        if let Some(runner) = self.said.by.clone() {
            self.check_root(id, &runner);
        }
    }

    fn take_in_checking(&mut self, id: &TaskId, phase: &Name, when: When, attempt: u32) {
        let way = self.book.ways.get_mut(id).expect("it was looked at");
        let at = way.at(phase).unwrap_or(usize::MAX);
        let owed = match when {
            When::Pre => Stand::Owes(Owes::Enter(at)),
            When::Post => Stand::Owes(Owes::Post(at)),
        };
        // An item that is not pushed yet is held up by a guard that has changed its mind.
        let is_again = when == When::Pre && matches!(&way.stand, Stand::In { at: stood, task: None, .. } if *stood == at);
        let right = (way.stand == owed || is_again) && way.attempt == attempt;
        let stand = std::mem::replace(&mut way.stand, if when == When::Pre { Stand::Pre(at) } else { Stand::Post(at) });
        (way.visit, way.looker) = (way.visit + 1, None);
        let has_guards = at < way.plan.phases.len() && !way.guards().is_empty();
        self.verdict.expect(Checker::Phases, right && has_guards, || {
            format!("{id} stood at {stand:?}, and then the guards of {phase} ({when:?}, attempt {attempt}) were looked at")
        });
    }

    fn take_in_block(&mut self, id: &TaskId, phase: &Name, when: When, reason: &Reason) {
        let way = &self.book.ways[id];
        let right = match reason {
            Reason::Dependencies => {
                let waits = self.book.jobs.get(id).is_some_and(|job| self.book.unmet(job).next().is_some());
                way.stand == Stand::Init && waits
            }
            Reason::Guard { .. } => way.holds_back(phase, when, reason),
            // Only who was blocked before is blocked for too long, and somebody is asked what now.
            Reason::Overdue { decision, .. } => {
                let is_asked = self.book.decisions.get(decision).is_some_and(|asked| asked.open);
                way.is_held_up() && way.holds_back(phase, when, reason) && is_asked
            }
            Reason::Decision { decision, task, .. } => {
                let standing = self.book.jobs.get(task).map(|job| &job.standing);
                way.task() == Some(task) && standing == Some(&Standing::AwaitingDecision(decision.clone()))
            }
        };
        self.verdict.expect(Checker::Phases, right, || format!("{id} stands at {:?}, and is blocked: {reason:?}", way.stand));
        match reason {
            Reason::Guard { guard, held: Some(_), .. } if !way.is_held_up() => self.check_refuted(id, guard),
            Reason::Guard { guard, .. } => self.check_held_up(id, guard),
            Reason::Overdue { .. } | Reason::Dependencies | Reason::Decision { .. } => {}
        }
        let lease = self.said.lease;
        let way = self.book.ways.get_mut(id).expect("it was looked at");
        let limit = way.plan.phase(phase).map(banksman_core::pipeline::plan::Phase::blocked_timeout);
        match reason {
            Reason::Guard { .. } if way.is_held_up() => {}
            Reason::Guard { .. } => way.overdue = limit.map(|limit| lease + limit),
            Reason::Overdue { .. } | Reason::Dependencies | Reason::Decision { .. } => way.overdue = None,
        }
        (way.blocked, way.looker) = (Some(reason.clone()), None);
    }

    fn take_in_phase(&mut self, id: &TaskId, phase: &Name, attempt: u32, approach: u32, task: Option<&TaskId>) {
        if let Stand::Pre(_) = self.book.ways[id].stand {
            self.check_passed(id);
        }
        let way = &self.book.ways[id];
        let at = way.at(phase).unwrap_or(usize::MAX);
        let may = match &way.stand {
            Stand::Owes(Owes::Enter(next)) => *next == at && approach == 0 && way.plan.phases[at].pre.is_empty(),
            Stand::Pre(next) => *next == at && approach == 0,
            Stand::Owes(Owes::Approach(next, tried)) => (*next, *tried) == (at, approach),
            _ => false,
        };
        let is_new = task.is_none_or(|task| !self.book.jobs.contains_key(task));
        let right = may && is_new && way.attempt == attempt && way.is_push(at) == task.is_none();
        self.verdict.expect(Checker::Phases, right, || {
            format!("{id} stood at {:?}, and then {phase} began: attempt {attempt}, approach {approach}, by {task:?}", way.stand)
        });
        self.stand(id, Stand::In { at, approach, task: task.cloned() });
        self.book.ways.get_mut(id).into_iter().for_each(|way| way.begun += 1);
    }

    /// A phase has failed, and the pipeline goes on elsewhere.
    fn take_in_failure(&mut self, id: &TaskId, phase: &Name) {
        self.fail_push(id);
        let way = self.book.ways.get_mut(id).expect("it was looked at");
        let at = way.at(phase).unwrap_or(usize::MAX);
        let is_guarded = matches!(way.stand, Stand::Pre(here) | Stand::Post(here) | Stand::In { at: here, .. } if here == at);
        let next = (way.has_failed(at) || is_guarded).then(|| way.after_failure(at)).flatten();
        let stand = way.stand.clone();
        if let Some(next) = next {
            *way.failures.entry(at).or_default() += 1;
            self.stand(id, Stand::Owes(Owes::Enter(next)));
        }
        self.verdict.expect(Checker::Phases, next.is_some(), || format!("{id} stood at {stand:?}, and goes on after {phase}"));
    }

    fn take_in_end_by_failure(&mut self, id: &TaskId, phase: &Name, recoverable: bool) {
        self.fail_push(id);
        let way = &self.book.ways[id];
        let at = way.at(phase).unwrap_or(usize::MAX);
        let right = match &way.stand {
            Stand::Owes(Owes::Dropped(here)) => recoverable && *here == at,
            // Who waited for too long may be tried again; what a guard has failed may not.
            Stand::Pre(here) | Stand::Post(here) | Stand::In { at: here, .. } if *here == at => {
                let is_given_up = matches!(way.blocked, Some(Reason::Overdue { .. }));
                recoverable == is_given_up && (is_given_up || way.after_failure(at).is_none())
            }
            _ => recoverable && way.has_failed(at) && way.after_failure(at).is_none(),
        };
        self.verdict.expect(Checker::Phases, right, || {
            format!("{id} stood at {:?}, and has failed in {phase}, recoverable: {recoverable}", way.stand)
        });
        if matches!(way.stand, Stand::Pre(_) | Stand::Post(_)) && !recoverable {
            self.check_failed_by_guard(id);
        }
        self.stand(id, Stand::Failed { at, recoverable });
    }

    /// What fails while an item is being pushed is the push. There is no queue, or it would not.
    fn fail_push(&mut self, id: &TaskId) {
        let way = &self.book.ways[id];
        if let (Stand::In { at, task: None, .. }, Looked::Push) = (&way.stand, &self.said.about) {
            let at = *at;
            self.stand(id, Stand::Owes(Owes::GivenUp(at)));
        }
    }

    /// An item is in the queue: what a push has to do is done.
    pub(crate) fn take_in_push(&mut self) {
        let Some(id) = self.said.pushes.clone() else { return };
        let Some(way) = self.book.ways.get(&id) else { return };
        let Stand::In { at, task: None, .. } = way.stand else {
            let stand = way.stand.clone();
            return self.verdict.report(Checker::Phases, || format!("{id} pushes an item, and stands at {stand:?}"));
        };
        self.tally.count("items pushed by phases");
        let owes = way.after_success(at);
        self.stand(&id, Stand::Owes(owes));
    }

    /// The task of a phase is over, or gone: its pipeline has to go on.
    pub(crate) fn end_phase(&mut self, task: &TaskId, fact: Option<&TaskFact>, timed_out: bool) {
        let Some((id, way)) = self.book.ways.iter().find(|(_, way)| way.task() == Some(task)) else { return };
        let Stand::In { at, approach, .. } = way.stand else { return };
        let owes = match fact {
            Some(TaskFact::Complete { .. }) => way.after_success(at),
            Some(TaskFact::Failed { error, .. }) if way.has_strategy(at) => {
                Owes::Failure { at, approach, error: error.clone(), timed_out }
            }
            Some(TaskFact::Failed { .. }) => Owes::GivenUp(at),
            _ => Owes::Dropped(at),
        };
        let id = id.clone();
        let more = self.book.jobs.get(task).map_or(0, |job| job.attempts.saturating_sub(1));
        self.book.ways.get_mut(&id).into_iter().for_each(|way| *way.retried.entry(at).or_default() += more);
        self.stand(&id, Stand::Owes(owes));
    }

    /// Whether the run of a task was stopped because it took too long.
    pub(crate) fn took_too_long(&self, task: &TaskId) -> bool {
        self.book.live(task).is_some_and(|(_, entry)| matches!(entry.stopping, Some(After::Overtime { .. })))
    }

    /// What answers about pipelines tell that no event does.
    pub(crate) fn after_pipeline(&mut self, request: &PipelineRequest, reply: &PipelineOutcome) {
        let PipelineOutcome::Stepped(outcome, pipeline) = reply else { return };
        match (request, outcome) {
            (PipelineRequest::Examine { id, by, .. }, banksman_core::pipeline::Outcome::Check) => {
                self.take_in_examination(id, by)
            }
            (PipelineRequest::Judge(_), _) => {
                let again = match &pipeline.state {
                    banksman_core::pipeline::State::Blocked { reason: Reason::Guard { again, .. }, .. } => Some(*again),
                    _ => None,
                };
                if let Some(way) = self.book.ways.get_mut(&pipeline.id) {
                    (way.again, way.looker) = (again, pipeline.looker.clone());
                }
            }
            _ => {}
        }
    }

    /// After every commit: no pipeline owes anything, its own task stands as it does, and it has one task at most.
    pub(crate) fn check_ways(&mut self) {
        let wrong = self.book.ways.iter().find_map(|(id, way)| self.fault_of(id, way)).or_else(|| self.wrongly_kept());
        self.verdict.expect(Checker::Phases, wrong.is_none(), || wrong.unwrap_or_default());
    }

    fn fault_of(&self, id: &TaskId, way: &Way) -> Option<String> {
        let host = self.book.jobs.get(id).map(|job| &job.standing);
        let should = match &way.stand {
            Stand::Owes(owes) => return Some(format!("{id} is left hanging: {owes:?}")),
            Stand::Init => Standing::Pending,
            Stand::Pre(_) | Stand::In { .. } | Stand::Post(_) => Standing::InPhases(way.blocked.is_some()),
            Stand::Done => Standing::Over(Status::Completed),
            Stand::Failed { .. } => Standing::Over(Status::Failed),
            Stand::Cancelled => Standing::Over(Status::Cancelled),
        };
        if host != Some(&should) {
            return Some(format!("{id} stands at {:?}, and its task is {host:?}", way.stand));
        }
        let parked = way.task().and_then(|task| self.book.jobs.get(task)).map(|job| &job.standing);
        let is_asked = matches!(way.blocked, Some(Reason::Decision { .. }));
        if is_asked != matches!(parked, Some(Standing::AwaitingDecision(_))) {
            return Some(format!("{id} is blocked: {:?}, and its phase is {parked:?}", way.blocked));
        }
        let is_open = |job: &Job| !matches!(job.standing, Standing::Over(_));
        let tasks = self.book.jobs.iter().filter(|(_, job)| job.is_phase_of(id) && is_open(job)).map(|(task, _)| task);
        // One that was cancelled has to be ended first.
        let mut others = tasks.filter(|task| way.task() != Some(task) && way.stand != Stand::Cancelled);
        if let Some(other) = others.next() {
            return Some(format!("{id} stands at {:?}, and {other} is open", way.stand));
        }
        let missing = way.task().filter(|task| !self.book.jobs.get(*task).is_some_and(is_open));
        missing.map(|task| format!("{id} stands at {:?}, and {task} is over or not there", way.stand))
    }

    /// Whether a runner could do something for a pipeline right now.
    pub(crate) fn could_go_on(&self, id: &TaskId, way: &Way) -> bool {
        let Some(lease) = self.lease() else { return false };
        let able = |runner: &super::runner::Runner| runner.is_awake() && !runner.cancelled;
        if !self.runners.iter().any(able) {
            return false;
        }
        match way.stand {
            Stand::In { task: None, .. } => true,
            // Only a person can say how it goes on.
            _ if matches!(way.blocked, Some(Reason::Overdue { .. })) => false,
            Stand::In { .. } if !way.is_held_up() => false,
            Stand::Pre(_) | Stand::Post(_) | Stand::In { .. } => {
                let is_due = !way.is_held_up() || way.again.is_some_and(|again| again <= lease) || self.would_pass(way, lease);
                let is_outside = way.guards().iter().any(|guard| asks_outside(&guard.condition));
                // The world outside tells nobody when it changes.
                let waits = is_outside && way.is_held_up() && way.again.is_some_and(|again| again > lease);
                // Nothing waits for too long without a person who is asked.
                let asks = |guard: &&Guard| way.blocking_guard() == Some(&guard.name) && asks_outside(&guard.condition);
                let is_late = matches!(way.stand, Stand::Post(_)) || way.guards().iter().any(|guard| asks(&guard));
                let is_overdue = is_late && way.is_held_up() && way.overdue.is_some_and(|overdue| overdue <= lease);
                (is_due && !waits || is_overdue) && !self.is_taken(id, way)
            }
            _ => false,
        }
    }

    /// Whether somebody is at the guards of a pipeline, or has left something behind that comes first.
    fn is_taken(&self, id: &TaskId, way: &Way) -> bool {
        // Also if what it looks at is not asked about any more: it looks on until it has told.
        if self.is_looked_at(id) {
            return true;
        }
        let Some(looker) = &way.looker else { return false };
        let known = self.book.runners.get(looker);
        let lives = known.is_some_and(|known| !known.left && self.machine.lives(&known.process));
        let has_runs = self.book.runs.values().any(|entry| !entry.ended && entry.owner == *looker);
        let is_stalled = self.runners.iter().any(|runner| runner.id == *looker && runner.alive && runner.paused_until.is_some());
        has_runs && !lives || is_stalled
    }

    /// Whether a pipeline keeps runners that shall end when they are idle.
    pub(crate) fn is_awaited(&self, way: &Way) -> bool {
        match &way.stand {
            Stand::In { task: None, .. } => true,
            Stand::Pre(_) if way.blocked.is_none() => true,
            // It ends by time.
            Stand::Post(_) if way.blocked.is_none() || way.is_held_up() => true,
            Stand::Pre(_) | Stand::In { .. } if way.is_held_up() => {
                way.guards().iter().any(|guard| asks_outside(&guard.condition) || self.asks_about_held(&guard.condition, way))
            }
            _ => false,
        }
    }

    /// Whether nothing can be done for a pipeline any more, but by people.
    pub(crate) fn is_at_rest(&self, id: &TaskId, way: &Way) -> bool {
        match &way.stand {
            Stand::Done | Stand::Failed { .. } | Stand::Cancelled => true,
            Stand::Init => self.book.jobs.get(id).is_some_and(|job| self.is_rightly_blocked(job)),
            _ if matches!(way.blocked, Some(Reason::Overdue { .. })) => true,
            Stand::In { .. } | Stand::Pre(_) | Stand::Post(_) if way.is_held_up() => {
                self.lease().is_some_and(|lease| self.is_rightly_held_up(way, lease))
            }
            Stand::In { task: Some(task), .. } => {
                let waits = |job: &Job| match job.standing {
                    Standing::AwaitingDecision(_) | Standing::Review => true,
                    Standing::Pending => self.is_rightly_blocked(job),
                    Standing::Live(_) | Standing::Awaiting(_) | Standing::InPhases(_) | Standing::Over(_) => false,
                };
                self.book.jobs.get(task).is_some_and(waits)
            }
            Stand::Pre(_) | Stand::Post(_) | Stand::In { task: None, .. } | Stand::Owes(_) => false,
        }
    }

    /// In the end every pipeline is over, or blocked for a reason that is true.
    pub(crate) fn check_rest(&mut self) {
        let stuck = self.book.ways.iter().filter(|(id, way)| !self.is_at_rest(id, way));
        let stuck: Vec<String> = stuck.map(|(id, way)| format!("{id} at {:?}, blocked: {:?}", way.stand, way.blocked)).collect();
        self.verdict.expect(Checker::Idle, stuck.is_empty(), || format!("nothing moves, and these could: {}", stuck.join(", ")));
        let over = self.book.ways.values().filter(|way| way.is_over()).count();
        self.tally.count_many("pipelines over at the end", over as u64);
    }
}

impl Way {
    /// Whether what is owed is the failure of this phase.
    fn has_failed(&self, at: usize) -> bool {
        match &self.stand {
            Stand::Owes(Owes::GivenUp(here)) => *here == at,
            _ => false,
        }
    }
}
