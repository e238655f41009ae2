//! The life of a run as the store sees it: claimed, started, adopted, ended; and the runners that look after runs.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::admission::Reason;
use banksman_core::backlog::{ERRAND_ATTEMPTS, Ended, Run, Runner, Session};
use banksman_core::coordination::Command;
use banksman_core::event::{Event, Finished, Resource, TaskFact};
use banksman_core::restart::Marker;
use banksman_core::semaphore::{self, CAPACITY_LIMIT};
use banksman_core::task::{self, Ending, Need, Task, Watch};
use banksman_core::{
    Effect, Epoch, Errand, Name, Notice, NoticeKind, Now, RunId, RunnerId, SectionId, Seq, Span, Status, TaskId, Wall, decision,
    lock,
};
use banksman_store::{Key, Tables, Turn};

use crate::claims::{claim, enter_section};
use crate::facts;
use crate::ledger::{
    Draft, any_runner, carry_out, descendants, drop_errands, emit, give_back, inherit, open_children, step_task, wake_runner,
    wake_runners,
};
use crate::request::Seen;
use crate::tasks;

/// What runners ask.
#[derive(Debug, Clone)]
pub enum RunRequest {
    /// Make itself known.
    Enlist {
        /// Itself.
        runner: Box<Runner>,
        /// How many runs the project allows at a time; 0 for any number.
        limit: u32,
    },
    /// Tell what it waits for.
    Watch {
        /// Itself.
        runner: RunnerId,
        /// What stands in the way of tasks that are ready otherwise.
        resources: Vec<Resource>,
    },
    /// Leave, or clear away a runner that is proven dead.
    Retire {
        /// Who is gone.
        runner: RunnerId,
        /// What was seen of it.
        seen: Seen,
    },
    /// Tell that it lives, and that its sessions have not long to live should it fall silent.
    Renew {
        /// Itself.
        runner: RunnerId,
    },
    /// Clear away another runner that is proven dead, or has been silent for longer than it promised.
    Dismiss {
        /// Who is gone.
        runner: RunnerId,
        /// The sections whose locks it may have left behind.
        sections: Vec<SectionId>,
        /// What was seen of it.
        seen: Seen,
    },
    /// Take tasks, with all that they need.
    Claim {
        /// Itself.
        runner: RunnerId,
        /// How many at most.
        room: usize,
        /// Which ones, best first.
        candidates: Vec<Candidate>,
        /// What was seen of those in the way.
        seen: Seen,
        /// How many roots may be under way; 0 for any number.
        root_limit: u32,
    },
    /// Tell that a session has begun.
    Started {
        /// Of which run.
        run: RunId,
        /// As whose owner.
        owner_epoch: Epoch,
        /// Its processes.
        session: Session,
    },
    /// Tell that the tree of a run was seen dead.
    Finish {
        /// Itself.
        runner: RunnerId,
        /// The run with its task.
        what: Box<Work>,
        /// How it ended.
        ending: Ended,
        /// What was found in the place of the file DONE, if it is a loop.
        marker: Marker,
        /// How it was watched.
        watch: Watch,
    },
    /// Tell that the file DONE of a loop, or something in its place, was found before its next attempt.
    Found {
        /// Of which task.
        task: TaskId,
        /// What.
        marker: Marker,
    },
    /// Make tasks ready whose rest is over, or on which nobody works any more.
    Ripen {
        /// Those that have rested.
        rested: Vec<TaskId>,
        /// Those that were worked on by hand.
        left: Vec<TaskId>,
        /// What was seen of those who worked on them.
        seen: Seen,
    },
    /// Look whether a task is over with its children.
    Settle {
        /// Which one.
        task: TaskId,
    },
    /// Tell that there is nothing left that a runner could do.
    Rest {
        /// Itself.
        runner: RunnerId,
        /// How many tasks stand how.
        counts: BTreeMap<Status, u64>,
    },
    /// Tell what came of an errand.
    Tried {
        /// Itself.
        runner: RunnerId,
        /// Which one.
        errand: Seq,
        /// Why it could not be done, if it could not.
        error: Option<Box<str>>,
        /// Whether there is no use in trying it again.
        is_final: bool,
    },
    /// Look after a run whose owner is gone.
    Adopt {
        /// Itself.
        runner: RunnerId,
        /// The run with its task, as it was seen.
        what: Box<Work>,
        /// What was seen of the owner.
        seen: Seen,
    },
    /// End a run whose machine has been silent for longer than was promised: its keeper has ended it.
    Lose {
        /// Itself.
        runner: RunnerId,
        /// The run with its task, as it was seen.
        what: Box<Work>,
        /// How long it was stalled itself.
        patience: Span,
        /// How its runs are watched.
        watch: Watch,
    },
    /// Give an exclusive section back.
    LeaveSection {
        /// Itself.
        runner: RunnerId,
        /// Which one.
        section: SectionId,
    },
    /// Give the slot of a run back, because it only waits for others.
    Pause {
        /// Which run.
        run: RunId,
        /// Its number.
        epoch: Epoch,
    },
    /// Make sure that a slot which a run has taken again belongs to a live run.
    Resume {
        /// Which run.
        run: RunId,
        /// Its number.
        epoch: Epoch,
    },
}

/// A task that may be taken. What it needs is told along, so that the rows to load are known.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The task.
    pub task: TaskId,
    /// The run that would begin.
    pub run: RunId,
    /// The task's section.
    pub section: Option<SectionId>,
    /// What it needs.
    pub needs: Vec<Need>,
}

/// A run with its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The run.
    pub run: Run,
    /// The task.
    pub task: Task,
}

/// What can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// It is so now.
    Done,
    /// These were taken, and these not.
    Claimed {
        /// The runs to start.
        started: Vec<Work>,
        /// What stands in the way of the others.
        blocked: Vec<(TaskId, Vec<Reason>)>,
    },
    /// Heard. These are its live runs, and all of them are safe again for as long as it has promised.
    Renewed(BTreeSet<RunId>),
    /// The run has ended, and this is what its task makes of it.
    Finished(task::Outcome, Box<Task>),
    /// This is what a task makes of it.
    Stepped(task::Outcome, Box<Task>),
    /// The run is lost, with what is said of it, and this is what its task makes of it.
    Lost(Ended, task::Outcome),
    /// It is looked after by the one who asked.
    Adopted(Box<Work>),
    /// The owner lives, or cannot be seen.
    OwnerLives,
    /// It runs on another machine.
    Elsewhere,
    /// Another runner works in the section of the run.
    SectionHeld,
    /// It has changed since: others were faster, or it has ended.
    Late,
    /// There is no such run.
    Unknown,
}

impl RunRequest {
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            RunRequest::Enlist { .. } => vec![Key::Runners, Key::Semaphore(Name::runs()), Key::Outbox],
            RunRequest::Watch { .. } => vec![Key::Runners],
            RunRequest::Retire { .. } => vec![Key::Runners, Key::Outbox],
            RunRequest::Tried { .. } => vec![Key::Runners, Key::Outbox, Key::OpenDecisions],
            RunRequest::Rest { .. } => vec![Key::Runners, Key::Live, Key::Finish],
            RunRequest::Found { task, .. } => vec![Key::Family(task.clone()), Key::Runners],
            RunRequest::Settle { task } => {
                let own = [Key::Family(task.clone()), Key::ByHand(task.clone())];
                own.into_iter().chain([Key::Runners, Key::Live, Key::Outbox, Key::OpenDecisions]).collect()
            }
            RunRequest::Ripen { rested, left, .. } => {
                let tasks = rested.iter().chain(left).cloned().map(Key::Task);
                tasks.chain(left.iter().cloned().map(Key::ByHand)).chain([Key::Runners]).collect()
            }
            RunRequest::Renew { .. } => vec![Key::Runners, Key::Live],
            RunRequest::Dismiss { sections, .. } => {
                let locks = sections.iter().map(|section| Key::Lock(section.lock()));
                locks.chain([Key::Runners, Key::Live, Key::Outbox]).collect()
            }
            RunRequest::Claim { candidates, root_limit, .. } => {
                let keys = |candidate: &Candidate| facts::keys(&candidate.task, candidate.section.as_ref(), &candidate.needs);
                let roots = (*root_limit > 0).then_some(Key::DueRoots);
                candidates.iter().flat_map(keys).chain(facts::common_keys()).chain(roots).collect()
            }
            RunRequest::Started { run, .. } => vec![Key::Run(run.clone()), Key::Outbox],
            RunRequest::Finish { what, .. } => {
                let Work { run, task } = &**what;
                let holds = run.holds.iter().map(|hold| facts::need_key(&hold.need));
                let own = [Key::Run(run.id.clone()), own_key(task), Key::Runners, Key::Outbox, Key::OpenDecisions];
                holds.chain(own).collect()
            }
            RunRequest::Adopt { what, .. } => {
                let Work { run, task } = &**what;
                let section = task.spec.section.as_ref().map(|section| Key::Lock(section.lock()));
                let own =
                    [Key::Run(run.id.clone()), Key::Task(task.id.clone()), Key::Sections, Key::Live, Key::Runners, Key::Outbox];
                section.into_iter().chain(own).collect()
            }
            RunRequest::Lose { what, .. } => {
                let Work { run, task } = &**what;
                let holds = run.holds.iter().map(|hold| facts::need_key(&hold.need));
                let section = task.spec.section.as_ref().map(|section| Key::Lock(section.lock()));
                let own = [Key::Run(run.id.clone()), own_key(task), Key::Live, Key::Runners, Key::Outbox, Key::OpenDecisions];
                holds.chain(section).chain(own).collect()
            }
            RunRequest::LeaveSection { section, .. } => vec![Key::Lock(section.lock()), Key::Live, Key::Runners],
            RunRequest::Pause { run, .. } | RunRequest::Resume { run, .. } => {
                vec![Key::Run(run.clone()), Key::Semaphore(Name::runs()), Key::Runners]
            }
        }
    }

    pub(crate) fn decide(&self, tables: &mut Tables, turn: &mut Turn) -> RunOutcome {
        match self {
            RunRequest::Enlist { runner, limit } => {
                let now = turn.now(Vec::new(), Default::default());
                let row = Runner { started: now.stamp(), seen: now.lease, ..(**runner).clone() };
                tables.backlog.runners.insert(runner.id.clone(), row);
                // One that takes no tasks has no say in how many runs there may be.
                if runner.max_runs == Some(0) {
                    return RunOutcome::Done;
                }
                inherit(tables, None, Some(&runner.id));
                let capacity = if *limit == 0 { CAPACITY_LIMIT } else { *limit };
                let current = tables.coordination.semaphores.get(&Name::runs()).map(|runs| runs.config.capacity);
                if current != Some(capacity) {
                    let mut draft = Draft::new(&tables.coordination, turn.now(Vec::new(), Default::default()));
                    draft.handle(Command::Semaphore(
                        Name::runs(),
                        semaphore::Input::Define(semaphore::Config { capacity, ttl: None }),
                    ));
                    draft.keep(tables, turn);
                }
                RunOutcome::Done
            }
            RunRequest::Watch { runner, resources } => match tables.backlog.runners.get_mut(runner) {
                None => RunOutcome::Late,
                Some(row) => {
                    row.watching.clone_from(resources);
                    RunOutcome::Done
                }
            },
            RunRequest::Retire { runner, seen } => {
                // Without a look it is the runner itself that leaves.
                let gone = |row: &Runner| seen.probes.is_empty() || seen.now(turn).all_dead(std::slice::from_ref(&row.process));
                if tables.backlog.runners.get(runner).is_some_and(gone) {
                    tables.backlog.runners.remove(runner);
                    let heir = any_runner(tables);
                    inherit(tables, Some(runner), heir.as_ref());
                    wake_runners(tables, turn, None);
                }
                RunOutcome::Done
            }
            RunRequest::Found { task, marker } => {
                let children = open_children(tables, task);
                stepped(task, task::Input::Found { marker: marker.clone(), children }, tables, turn)
            }
            RunRequest::Ripen { rested, left, seen } => {
                rested.iter().chain(left).for_each(|task| ripen(task, seen, tables, turn));
                RunOutcome::Done
            }
            RunRequest::Settle { task } => {
                let children = open_children(tables, task);
                let outcome = stepped(task, task::Input::Settle { children }, tables, turn);
                if matches!(outcome, RunOutcome::Stepped(task::Outcome::EndChildren, _)) {
                    for child in descendants(tables, task) {
                        tasks::stop(&child, task::After::Cancel, tables, turn);
                    }
                }
                outcome
            }
            RunRequest::Rest { runner, counts } => rest(runner, counts, tables, turn),
            RunRequest::Tried { runner, errand, error, is_final } => {
                tried(runner, *errand, error.as_deref(), *is_final, tables, turn)
            }
            RunRequest::Renew { runner } => renew(runner, tables, turn),
            RunRequest::Dismiss { runner, sections, seen } => dismiss(runner, sections, seen, tables, turn),
            RunRequest::Claim { runner, room, candidates, seen, root_limit } => {
                claim(runner, *room, candidates, seen, *root_limit, tables, turn)
            }
            RunRequest::Started { run, owner_epoch, session } => {
                let Some(row) = tables.backlog.runs.get_mut(run) else { return RunOutcome::Late };
                if row.owner_epoch != *owner_epoch || !row.is_live() {
                    return RunOutcome::Late;
                }
                row.session = Some(session.clone());
                let is_spawn = |sent: &banksman_core::backlog::Sent| matches!(&sent.errand, banksman_core::Errand::Spawn { run: spawned } if spawned == run);
                tables.backlog.outbox.retain(|_, sent| !is_spawn(sent));
                RunOutcome::Done
            }
            RunRequest::Finish { runner, what, ending, marker, watch } => {
                finish(runner, what, ending, marker, watch, tables, turn)
            }
            RunRequest::Adopt { runner, what, seen } => adopt(runner, what, seen, tables, turn),
            RunRequest::Lose { runner, what, patience, watch } => lose(runner, what, *patience, watch, tables, turn),
            RunRequest::LeaveSection { runner, section } => leave_section(runner, section, tables, turn),
            RunRequest::Pause { run, epoch } => {
                let outcome = standing(run, *epoch, tables);
                if outcome == RunOutcome::Done {
                    free_slot(run, tables, turn);
                    // Its runner may have room for another run now, whether it waits for a slot or not.
                    let owner = tables.backlog.runs[run].owner.clone();
                    wake_runner(tables, turn, &owner);
                }
                outcome
            }
            RunRequest::Resume { run, epoch } => {
                let outcome = standing(run, *epoch, tables);
                if outcome != RunOutcome::Done {
                    // The run has ended meanwhile, and nobody else would ever give this slot back.
                    free_slot(run, tables, turn);
                }
                outcome
            }
        }
    }
}

fn finish(
    runner: &RunnerId,
    what: &Work,
    ending: &Ended,
    marker: &Marker,
    watch: &Watch,
    tables: &mut Tables,
    turn: &mut Turn,
) -> RunOutcome {
    let Some(run) = tables.backlog.runs.get(&what.run.id).filter(|run| run.is_live()) else { return RunOutcome::Late };
    if (&run.owner, run.owner_epoch) != (runner, what.run.owner_epoch) || run.holds != what.run.holds {
        return RunOutcome::Late;
    }
    let outcome = end(runner, what, ending.clone(), marker, watch, tables, turn);
    RunOutcome::Finished(outcome, Box::new(tables.backlog.tasks[&what.task.id].clone()))
}

/// Ends a live run: all that it holds is free, and its task goes on.
fn end(
    by: &RunnerId,
    what: &Work,
    ending: Ended,
    marker: &Marker,
    watch: &Watch,
    tables: &mut Tables,
    turn: &mut Turn,
) -> task::Outcome {
    let id = &what.run.id;
    let run = tables.backlog.runs.get_mut(id).expect("the caller has seen it");
    run.lease = None;
    let holds = std::mem::take(&mut run.holds);
    let mut draft = Draft::new(&tables.coordination, turn.now(Vec::new(), Default::default()));
    for hold in holds {
        // What was taken away by force is refused, and that is as good.
        draft.handle(match hold.need {
            // A run that has waited for others holds its slot under another number, or none.
            Need::Slots { ref name, .. } if *name == Name::runs() => slot_back(id),
            need => give_back(&need, id.holder(), hold.epoch),
        });
    }
    draft.keep(tables, turn);
    let said = tables.backlog.tasks.get(&what.task.id).and_then(|task| task.live()?.verdict.clone());
    let input = task::Input::End {
        run: id.clone(),
        ending: ending.ending.clone(),
        marker: marker.clone(),
        children: open_children(tables, &what.task.id),
        watch: *watch,
    };
    // What is left to do for the run is done, or pointless.
    drop_errands(tables, turn, |sent| sent.errand.run() == Some(id));
    let outcome = step_task(tables, turn, &what.task.id, input, Some(by));
    let outcome = outcome.expect("a task with a live run is not deleted");
    let setback = match &outcome {
        task::Outcome::Again(setback) => Some(*setback),
        _ => None,
    };
    let error = said.and_then(|verdict| match verdict {
        task::Verdict::Failed { error } => Some(error),
        task::Verdict::Done { .. } => None,
    });
    let run = tables.backlog.runs.get_mut(id).expect("it was just there");
    run.ended = Some(Ended { setback, error, ..ending });
    wake_runners(tables, turn, Some(by));
    outcome
}

fn stepped(id: &TaskId, input: task::Input, tables: &mut Tables, turn: &mut Turn) -> RunOutcome {
    let before = turn.seq;
    let Some(outcome) = step_task(tables, turn, id, input, None) else { return RunOutcome::Late };
    if turn.seq != before {
        wake_runners(tables, turn, None);
    }
    RunOutcome::Stepped(outcome, Box::new(tables.backlog.tasks[id].clone()))
}

/// Makes a task ready if its rest is over, or if who worked on it has lost its lock.
fn ripen(id: &TaskId, seen: &Seen, tables: &mut Tables, turn: &mut Turn) {
    let Some(task) = tables.backlog.tasks.get(id) else { return };
    let input = match &task.state {
        task::State::Resting { .. } => task::Input::Ripen,
        task::State::ByHand { holder, epoch, .. } => {
            let now = seen.now(turn);
            let grant = tables.coordination.locks.get(&id.lock()).and_then(|lock| match &lock.state {
                lock::State::Held(grant) => Some(grant),
                lock::State::Free => None,
            });
            match grant.filter(|grant| grant.epoch == *epoch && grant.over(&now).is_none()) {
                None => task::Input::Return,
                Some(grant) => task::Input::Take { holder: holder.clone(), epoch: *epoch, until: grant.deadline() },
            }
        }
        _ => return,
    };
    step_task(tables, turn, id, input, None);
}

/// People are told once that there is nothing left to do, after something was done.
fn rest(runner: &RunnerId, counts: &BTreeMap<Status, u64>, tables: &mut Tables, turn: &mut Turn) -> RunOutcome {
    if tables.backlog.runs.values().any(Run::is_live) || !tables.backlog.finish.is_news() {
        return RunOutcome::Late;
    }
    tables.backlog.finish.told = turn.seq;
    let words: Vec<String> = counts.iter().map(|(status, number)| format!("{number} {status}")).collect();
    let notice = Notice {
        kind: NoticeKind::BacklogFinished,
        subject: "nothing is left to do".into(),
        text: format!("Tasks: {}.", words.join(", ")).into(),
    };
    let effects = vec![Effect::Emit(Event::Finished(Finished(counts.clone()))), Effect::Send(Errand::Notify(Box::new(notice)))];
    carry_out(tables, turn, effects, Some(runner));
    RunOutcome::Done
}

/// An errand was done, or tried in vain: it is tried again later, and in the end a person is asked.
fn tried(runner: &RunnerId, seq: Seq, error: Option<&str>, is_final: bool, tables: &mut Tables, turn: &mut Turn) -> RunOutcome {
    let sent = tables.backlog.outbox.get_mut(&seq).filter(|sent| sent.executor.as_ref() == Some(runner));
    let Some(sent) = sent else { return RunOutcome::Late };
    let Some(error) = error else {
        drop_errands(tables, turn, |sent| sent.seq == seq);
        return RunOutcome::Done;
    };
    if sent.is_dead() {
        return RunOutcome::Late;
    }
    sent.failed(turn.lease);
    let attempts = sent.attempts;
    if is_final {
        sent.attempts = ERRAND_ATTEMPTS;
    }
    if sent.is_dead() {
        let sent = sent.clone();
        let now = turn.now(Vec::new(), Default::default());
        let step = decision::ask_about(seq, &sent.errand, attempts, error, &now);
        carry_out(tables, turn, step.effects, Some(runner));
    }
    RunOutcome::Done
}

/// The row of a task; for a loop with all its descendants, because it waits for them.
fn own_key(task: &Task) -> Key {
    match task.spec.restart {
        Some(_) => Key::Family(task.id.clone()),
        None => Key::Task(task.id.clone()),
    }
}

fn renew(runner: &RunnerId, tables: &mut Tables, turn: &Turn) -> RunOutcome {
    // One that was taken for dead makes itself known again.
    let Some(row) = tables.backlog.runners.get_mut(runner) else { return RunOutcome::Late };
    row.seen = turn.lease;
    let own = tables.backlog.runs.values_mut().filter(|run| run.is_live() && run.owner == *runner);
    let renewed = own.map(|run| {
        run.renew(row, turn.lease);
        run.id.clone()
    });
    RunOutcome::Renewed(renewed.collect())
}

fn lose(runner: &RunnerId, what: &Work, patience: Span, watch: &Watch, tables: &mut Tables, turn: &mut Turn) -> RunOutcome {
    let now = turn.now(Vec::new(), patience);
    let Some(run) = tables.backlog.runs.get(&what.run.id).filter(|run| run.is_live()) else { return RunOutcome::Late };
    if run.owner_epoch != what.run.owner_epoch || run.holds != what.run.holds || !tables.backlog.runners.contains_key(runner) {
        return RunOutcome::Late;
    }
    if !run.is_lost(&now) {
        return RunOutcome::OwnerLives;
    }
    let owner = run.owner.clone();
    let silence = now.lease - run.lease.as_ref().map_or(now.lease, |lease| lease.renewed);
    let note = format!("its machine was not heard of for {} s", silence.as_ms() / 1_000);
    let ending = ended(Ending::Lost, turn.wall, Some(note));
    // Its files are on another machine: the next attempt looks for DONE where it runs.
    let outcome = end(runner, what, ending.clone(), &Marker::Absent, watch, tables, turn);
    // It cannot come back for the lock of the section: it is gone, or what it had there is.
    if tables.backlog.runners.get(&owner).is_none_or(|owner| owner.is_silent(&now)) {
        free_sections(&owner, what.task.spec.section.as_slice(), tables, turn);
    }
    RunOutcome::Lost(ending, outcome)
}

fn dismiss(runner: &RunnerId, sections: &[SectionId], seen: &Seen, tables: &mut Tables, turn: &mut Turn) -> RunOutcome {
    let now = seen.now(turn);
    let Some(row) = tables.backlog.runners.get(runner) else { return RunOutcome::Late };
    // Its runs come first.
    if tables.backlog.runs.values().any(|run| run.is_live() && run.owner == *runner) {
        return RunOutcome::Late;
    }
    if !row.is_silent(&now) && !now.all_dead(std::slice::from_ref(&row.process)) {
        return RunOutcome::OwnerLives;
    }
    tables.backlog.runners.remove(runner);
    let heir = any_runner(tables);
    inherit(tables, Some(runner), heir.as_ref());
    free_sections(runner, sections, tables, turn);
    wake_runners(tables, turn, None);
    RunOutcome::Done
}

/// Gives back the locks of these sections that a runner has and has no run for. From another machine nobody could see
/// that it is dead.
fn free_sections(runner: &RunnerId, sections: &[SectionId], tables: &mut Tables, turn: &mut Turn) {
    for section in sections {
        leave_section(runner, section, tables, turn);
    }
}

/// Whether this is the number of a live run.
fn standing(run: &RunId, epoch: Epoch, tables: &Tables) -> RunOutcome {
    match tables.backlog.runs.get(run) {
        None => RunOutcome::Unknown,
        Some(run) if run.is_live() && run.epoch == epoch => RunOutcome::Done,
        Some(_) => RunOutcome::Late,
    }
}

/// Gives the slot of a run back, if it has one. Who holds slots of `runs` is written there and nowhere else.
fn free_slot(run: &RunId, tables: &mut Tables, turn: &mut Turn) {
    let mut draft = Draft::new(&tables.coordination, turn.now(Vec::new(), Default::default()));
    draft.handle(slot_back(run));
    draft.keep(tables, turn);
}

fn slot_back(run: &RunId) -> Command {
    Command::Semaphore(Name::runs(), semaphore::Input::Release { holder: run.holder(), epoch: None })
}

fn adopt(runner: &RunnerId, what: &Work, seen: &Seen, tables: &mut Tables, turn: &mut Turn) -> RunOutcome {
    let now = seen.now(turn);
    let Work { run, task } = what;
    let current = tables.backlog.runs.get(&run.id).filter(|current| current.is_live());
    if current.map(|current| current.owner_epoch) != Some(run.owner_epoch) || !tables.backlog.runners.contains_key(runner) {
        return RunOutcome::Late;
    }
    // What became of a session can only be found out where it runs.
    let adopter = tables.backlog.runners[runner].clone();
    if !run.is_within_reach_of(&adopter) {
        return RunOutcome::Elsewhere;
    }
    let owner = tables.backlog.runners.get(&run.owner);
    if owner.is_some_and(|owner| !now.all_dead(std::slice::from_ref(&owner.process))) {
        return RunOutcome::OwnerLives;
    }
    let mut draft = Draft::new(&tables.coordination, now);
    if enter_section(runner, task.spec.section.as_ref(), &tables.coordination, &tables.backlog, &mut draft).is_none() {
        return RunOutcome::SectionHeld;
    }
    draft.keep(tables, turn);
    let fact = TaskFact::Adopted { run: run.id.clone(), runner: runner.clone(), from: run.owner.clone() };
    let epoch = emit(turn, Event::Task { id: task.id.clone(), fact });
    let adopted = tables.backlog.runs.get_mut(&run.id).expect("it was just there");
    (adopted.owner, adopted.owner_epoch) = (runner.clone(), epoch);
    adopted.renew(&adopter, turn.lease);
    let work = Work { run: adopted.clone(), task: tables.backlog.tasks[&task.id].clone() };
    for sent in tables.backlog.outbox.values_mut().filter(|sent| sent.errand.run() == Some(&run.id)) {
        sent.executor = Some(runner.clone());
    }
    let orphans = tables.backlog.runs.values().any(|other| other.is_live() && other.owner == run.owner);
    // One with a lease is dismissed, so that what it holds for itself is free for other machines too.
    if !orphans && tables.backlog.runners.get(&run.owner).is_some_and(|owner| owner.terms.is_none()) {
        tables.backlog.runners.remove(&run.owner);
        inherit(tables, Some(&run.owner), Some(runner));
    }
    RunOutcome::Adopted(Box::new(work))
}

fn leave_section(runner: &RunnerId, section: &SectionId, tables: &mut Tables, turn: &mut Turn) -> RunOutcome {
    if tables.backlog.live_in(section).any(|run| run.owner == *runner) {
        return RunOutcome::Late;
    }
    let name = section.lock();
    let Some(lock::State::Held(grant)) = tables.coordination.locks.get(&name).map(|lock| &lock.state) else {
        return RunOutcome::Done;
    };
    let command = give_back(&Need::Lock(name), runner.holder(), grant.epoch);
    let mut draft = Draft::new(&tables.coordination, turn.now(Vec::new(), Default::default()));
    draft.handle(command);
    draft.keep(tables, turn);
    RunOutcome::Done
}

impl Seen {
    /// The moment of a decision that believes what was seen.
    pub(crate) fn now(&self, turn: &Turn) -> Now {
        let dead = self.probes.iter().filter(|(process, liveness)| match liveness {
            banksman_core::Liveness::Dead => true,
            banksman_core::Liveness::OtherBoot => turn.earlier_boots.contains(&process.boot),
            banksman_core::Liveness::Alive | banksman_core::Liveness::Unknown => false,
        });
        turn.now(dead.map(|(process, _)| process.clone()).collect(), self.patience)
    }
}

/// How a run ended, for the record.
pub fn ended(ending: Ending, at: Wall, note: Option<String>) -> Ended {
    Ended::new(ending, at, note.map(Into::into))
}
