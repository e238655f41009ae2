//! The end of runs and the change of their owners: reported, lost, adopted; and the cleanup after their runners.

use banksman_core::agent::AgentVerdict;
use banksman_core::backlog::{Backlog, RunEndRecord};
use banksman_core::decision::{self, About};
use banksman_core::event::{Event, TaskFact};
use banksman_core::resource::coordination::{Command, Coordination};
use banksman_core::resource::semaphore;
use banksman_core::task::retry::Marker;
use banksman_core::task::{self, Need, RetryReason, RunEnd, State, Watch};
use banksman_core::{Decision, DecisionId, Name, Pipeline, RunId, RunnerId, Span, Task, TaskId};
use banksman_store::{FAN_OUT, Tables, Tx};

use crate::calls::accounts;
use crate::calls::mailbox;
use crate::calls::manual::end_claims;
use crate::calls::pipelines::phases::printed;
use crate::calls::runs::{RunOutcome, Work, ended};
use crate::calls::sections;
use crate::calls::steps::{Draft, carry_out, drop_commands, emit, open_children, step_task, step_task_after, withdraw};
use crate::request::Seen;
use crate::wakeups;

pub(crate) fn finish(
    runner: &RunnerId,
    what: &Work,
    ending: &RunEndRecord,
    marker: &Marker,
    watch: &Watch,
    tx: &mut Tx,
) -> RunOutcome {
    let Some(run) = tx.tables.backlog.runs.get(&what.run.id).filter(|run| run.is_live()) else { return RunOutcome::Late };
    if (&run.owner, run.owner_epoch) != (runner, what.run.owner_epoch) || run.holds != what.run.holds {
        return RunOutcome::Late;
    }
    let outcome = end(Some(runner), what, ending.clone(), marker, watch, tx);
    let (run, task) = (tx.tables.backlog.runs[&what.run.id].clone(), tx.tables.backlog.tasks[&what.task.id].clone());
    RunOutcome::Finished(outcome, Box::new(Work { run, task }), stopped_pipeline(&what.task, &tx.tables))
}

/// The pipeline of a phase's task, unless another task continues it.
fn stopped_pipeline(task: &Task, tables: &Tables) -> Option<Box<Pipeline>> {
    let pipeline = tables.backlog.pipelines.get(task.spec.parent.as_ref()?)?;
    let goes_on = matches!(&pipeline.state, banksman_core::pipeline::State::Running { task: Some(_), .. });
    (!goes_on).then(|| Box::new(pipeline.clone()))
}

/// Ends a live run: frees its resources, and steps its task. Without a runner it is ended by a person.
pub(crate) fn end(
    by: Option<&RunnerId>,
    what: &Work,
    ending: RunEndRecord,
    marker: &Marker,
    watch: &Watch,
    tx: &mut Tx,
) -> task::Outcome {
    let id = &what.run.id;
    let run = tx.tables.backlog.runs.get_mut(id).expect("the caller has seen it");
    run.lease = None;
    let holds = std::mem::take(&mut run.holds);
    let mut draft = Draft::new(&tx.tables.coordination, tx.now(Vec::new(), Default::default()));
    for hold in holds {
        // The release of a resource that was taken away by force is refused, which is fine.
        draft.handle(match hold.need {
            // A run that has waited for others may hold its slot and its workspace under another epoch, or not at all.
            Need::Slots { ref name, .. } if *name == Name::runs() => slot_back(id),
            Need::Lock(ref name) if name.is_workspace() => match workspace_back(name, id, &tx.tables.coordination) {
                Some(command) => command,
                None => continue,
            },
            need => Command::release(need.resource(), id.holder(), hold.epoch),
        });
    }
    draft.keep(tx);
    tx.tables.coordination.claims.retain(|_, claim| claim.task.is_some() || claim.holder != id.holder());
    end_claims(&id.holder(), tx);
    if let Some(section) = &what.task.spec.section {
        sections::leave(section, id, tx);
    }
    wait_for_answer(what, tx);
    let ending = without_agent_if_untrusted(what, ending, tx);
    note_agent(what, &ending, tx);
    accounts::note_end(&what.task, &what.run, &ending, tx);
    let verdict = tx.tables.backlog.tasks.get(&what.task.id).and_then(|task| task.live()?.verdict.clone());
    mailbox::note_written(what.run.epoch, &ending.written, tx);
    if verdict.as_ref().is_some_and(has_read_prompt) {
        mailbox::acknowledge(&what.task.id, id, what.run.epoch, tx);
    }
    mailbox::observe(id, &mailbox::seen_end(&ending.ending), tx);
    let input = task::Input::End {
        run: id.clone(),
        ending: ending.ending.clone(),
        ran: ending.ran,
        marker: marker.clone(),
        children: open_children(&tx.tables.backlog, &what.task.id),
        watch: *watch,
    };
    // The remaining outbox commands of the run have been executed, or are pointless.
    drop_commands(tx, |entry| entry.command.run() == Some(id));
    let tail = ending.tail.clone().unwrap_or_default();
    note_printed(what, &ending.ending, &tail, tx);
    let outcome = step_task_after(tx, &what.task.id, input, by, &tail);
    let outcome = outcome.expect("a task with a live run is not deleted");
    let setback = match (&outcome, &verdict) {
        (task::Outcome::Again(setback), _) => Some(*setback),
        (task::Outcome::AwaitingDecision(_), Some(task::Verdict::Untrusted { .. })) => Some(RetryReason::Untrusted),
        _ => None,
    };
    let asked = match (&verdict, &outcome) {
        (Some(task::Verdict::Ask { .. }), task::Outcome::AwaitingDecision(decision)) => Some(decision.clone()),
        _ => None,
    };
    let error = verdict.and_then(|verdict| match verdict {
        task::Verdict::Failed { error } | task::Verdict::Untrusted { error } => Some(error),
        task::Verdict::Done { .. } | task::Verdict::NoChange { .. } => None,
        task::Verdict::Ask { question, .. } => Some(question),
        task::Verdict::Refused(refused) => Some(refused.reason().into()),
        task::Verdict::Agent(end) => Some(end.text).filter(|text| !text.is_empty()),
    });
    let run = tx.tables.backlog.runs.get_mut(id).expect("it was just there");
    run.ended =
        Some(RunEndRecord { setback, error, asked, budget_micros: None, day: None, written: Vec::new(), tail: None, ..ending });
    // The question whether the run may be ended needs no answer any more.
    if let Some(asked) = open_question(id, &tx.tables.backlog) {
        withdraw(tx, &asked);
    }
    note_end(&what.task.id, tx);
    outcome
}

/// Whether a verdict proves that its run has read its prompt. An agent that crashed, or whose account is limited, may not have.
fn has_read_prompt(verdict: &task::Verdict) -> bool {
    match verdict {
        task::Verdict::Agent(end) => matches!(end.verdict, AgentVerdict::Ok | AgentVerdict::Failed | AgentVerdict::Refused),
        task::Verdict::Done { .. }
        | task::Verdict::NoChange { .. }
        | task::Verdict::Ask { .. }
        | task::Verdict::Failed { .. } => true,
        task::Verdict::Refused(_) | task::Verdict::Untrusted { .. } => false,
    }
}

/// Records the possible consequences of the end of a run: its task or the dependents may be ready, a pipeline may continue, and
/// another run may start.
fn note_end(id: &TaskId, tx: &mut Tx) {
    tx.tables.live_runs = tx.tables.live_runs.saturating_sub(1);
    tx.changed.limits = true;
    tx.changed.has_ended_run = true;
    let Some(task) = tx.tables.backlog.tasks.get(id) else { return };
    let (is_over, is_ready) = (task.status().is_over(), task.state == task::State::Pending);
    let dependents = tx.tables.dependents.get(id).map_or(0, |count| *count as usize);
    tx.changed.frees_dependents |= is_over && dependents > 0;
    // The runner on duty handles the remaining dependents.
    tx.changed.duty |= is_over && dependents > FAN_OUT;
    tx.changed.duty |= !(is_over || is_ready) || task.spec.parent.is_some() || task.spec.item.is_some();
    if is_ready {
        tx.changed.takeable.insert(id.clone());
        tx.changed.ready.insert(id.clone());
    }
}

/// The open question whether a run may be ended, if there is one.
pub(crate) fn open_question(run: &RunId, backlog: &Backlog) -> Option<DecisionId> {
    questions(run, backlog).find(|decision| !decision.question.is_of_run()).map(|decision| decision.id.clone())
}

/// The unanswered question of a live run.
pub(crate) fn unanswered<'a>(run: &RunId, backlog: &'a Backlog) -> Option<&'a Decision> {
    questions(run, backlog).find(|decision| decision.question.is_of_run())
}

/// The open questions about a run.
fn questions<'a>(run: &RunId, backlog: &'a Backlog) -> impl Iterator<Item = &'a Decision> {
    let is_about = move |decision: &&Decision| matches!(&decision.question.about, About::Run { run: about, .. } if about == run);
    backlog.decisions.values().filter(|decision| decision.is_open()).filter(is_about)
}

/// Turns the unanswered question of a run that ends into its verdict: its task waits for the answer.
fn wait_for_answer(what: &Work, tx: &mut Tx) {
    let Some(asked) = unanswered(&what.run.id, &tx.tables.backlog) else { return };
    let (id, question) = (asked.id.clone(), asked.question.text.clone());
    let options = asked.question.offered().map(Into::into).collect();
    if let Some(State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. }) =
        tx.tables.backlog.tasks.get_mut(&what.task.id).map(|task| &mut task.state)
    {
        live.verdict.get_or_insert(task::Verdict::Ask { question, options });
    }
    withdraw(tx, &id);
}

/// Asks a person, once, whether a run may be ended although it cannot be proven dead.
pub(crate) fn unproven(runner: &RunnerId, what: &Work, why: &str, tx: &mut Tx) -> RunOutcome {
    let Some(run) = tx.tables.backlog.runs.get(&what.run.id).filter(|run| run.is_live()) else { return RunOutcome::Late };
    if (&run.owner, run.owner_epoch) != (runner, what.run.owner_epoch) {
        return RunOutcome::Late;
    }
    if open_question(&what.run.id, &tx.tables.backlog).is_none() {
        let now = tx.now(Vec::new(), Default::default());
        let step = decision::ask_about_run(&what.run.id, &what.task.id, &what.task.spec.title, why, &now);
        carry_out(tx, step.effects, Some(runner));
    }
    RunOutcome::Done
}

/// Ends a run on a person's word that none of its processes live. `None` if the run has changed since the rows were read.
pub(crate) fn end_unproven(what: &Work, tx: &mut Tx) -> Option<task::Outcome> {
    let run = tx.tables.backlog.runs.get(&what.run.id).filter(|run| run.is_live())?;
    if run.owner_epoch != what.run.owner_epoch || run.holds != what.run.holds {
        return None;
    }
    let ending = ended(RunEnd::Lost, tx.wall, Some("a person has said that nothing of it lives".into()));
    // This does not count as a recovery, so no limit applies.
    let watch = Watch { timeout: Span::ZERO, max_recoveries: u32::MAX, on_exhausted: task::OnExhausted::Escalate };
    // Its folder is checked for DONE before the next attempt.
    let outcome = end(None, what, ending, &Marker::Absent, &watch, tx);
    Some(outcome)
}

/// Takes the result that a phase has printed as its verdict, if it ended well and has reported no other.
fn note_printed(what: &Work, ending: &RunEnd, tail: &str, tx: &mut Tx) {
    let Some(task::State::Running(live) | task::State::Stuck { live, .. }) =
        tx.tables.backlog.tasks.get(&what.task.id).map(|task| &task.state)
    else {
        return;
    };
    if *ending == RunEnd::Exited(0)
        && live.verdict.is_none()
        && let Some(verdict) = printed(tail, &what.task)
    {
        let epoch = Some(live.epoch);
        step_task(tx, &what.task.id, task::Input::Conclude { epoch, verdict }, None);
    }
}

/// Removes the agent from the end of a run whose agent was not started because it is untrusted.
fn without_agent_if_untrusted(what: &Work, ending: RunEndRecord, tx: &Tx) -> RunEndRecord {
    let live = tx.tables.backlog.tasks.get(&what.task.id).and_then(|task| task.live());
    let is_untrusted = live.is_some_and(|live| matches!(live.verdict, Some(task::Verdict::Untrusted { .. })));
    RunEndRecord { agent: ending.agent.filter(|_| !is_untrusted), ..ending }
}

/// Takes the result of the agent program as the verdict of a run, if the program has ended and the run has reported none.
fn note_agent(what: &Work, ending: &RunEndRecord, tx: &mut Tx) {
    let Some(agent) = &ending.agent else { return };
    let live = tx.tables.backlog.tasks.get(&what.task.id).and_then(|task| task.live());
    let is_silent = live.is_some_and(|live| live.run == what.run.id && live.verdict.is_none());
    let (true, RunEnd::Exited(_) | RunEnd::Signalled(_)) = (is_silent, &ending.ending) else { return };
    if let Some(State::Running(live) | State::Stuck { live, .. } | State::Stopping { live, .. }) =
        tx.tables.backlog.tasks.get_mut(&what.task.id).map(|task| &mut task.state)
    {
        live.verdict = Some(task::Verdict::Agent(agent.clone()));
    }
}

pub(crate) fn lose(runner: &RunnerId, what: &Work, patience: Span, watch: &Watch, tx: &mut Tx) -> RunOutcome {
    let now = tx.now(Vec::new(), patience);
    let Some(run) = tx.tables.backlog.runs.get(&what.run.id).filter(|run| run.is_live()) else { return RunOutcome::Late };
    if run.owner_epoch != what.run.owner_epoch || run.holds != what.run.holds || !tx.tables.backlog.runners.contains_key(runner) {
        return RunOutcome::Late;
    }
    if !run.is_lost(&now) {
        return RunOutcome::OwnerLives;
    }
    let silence = now.lease - run.lease.as_ref().map_or(now.lease, |lease| lease.renewed);
    let note = format!("its machine was not heard of for {} s", silence.as_ms() / 1_000);
    let ending = ended(RunEnd::Lost, tx.wall, Some(note));
    // Its files are on another machine: the next attempt checks for DONE where it runs.
    let outcome = end(Some(runner), what, ending.clone(), &Marker::Absent, watch, tx);
    RunOutcome::Lost(ending, outcome, stopped_pipeline(&what.task, &tx.tables))
}

pub(crate) fn adopt(runner: &RunnerId, what: &Work, seen: &Seen, tx: &mut Tx) -> RunOutcome {
    let now = seen.now(tx);
    let Work { run, task } = what;
    let current = tx.tables.backlog.runs.get(&run.id).filter(|current| current.is_live());
    if current.map(|current| current.owner_epoch) != Some(run.owner_epoch) || !tx.tables.backlog.runners.contains_key(runner) {
        return RunOutcome::Late;
    }
    // The state of a session can only be observed on its machine.
    let adopter = tx.tables.backlog.runners[runner].clone();
    if !run.is_within_reach_of(&adopter) {
        return RunOutcome::Elsewhere;
    }
    let owner = tx.tables.backlog.runners.get(&run.owner);
    if owner.is_some_and(|owner| !now.all_dead(std::slice::from_ref(&owner.process))) {
        return RunOutcome::OwnerLives;
    }
    let fact = TaskFact::Adopted { run: run.id.clone(), runner: runner.clone(), from: run.owner.clone() };
    let epoch = emit(tx, Event::Task { id: task.id.clone(), fact });
    let adopted = tx.tables.backlog.runs.get_mut(&run.id).expect("it was just there");
    (adopted.owner, adopted.owner_epoch) = (runner.clone(), epoch);
    adopted.renew(&adopter, tx.lease);
    let work = Work { run: adopted.clone(), task: tx.tables.backlog.tasks[&task.id].clone() };
    for entry in tx.tables.backlog.outbox.values_mut().filter(|entry| entry.command.run() == Some(&run.id)) {
        entry.executor = Some(runner.clone());
    }
    let orphans = tx.tables.backlog.runs.values().any(|other| other.is_live() && other.owner == run.owner);
    // A runner with a lease is dismissed instead, which also frees its own resources for other machines.
    let owner = tx.tables.backlog.runners.get(&run.owner).filter(|owner| !orphans && owner.terms.is_none()).cloned();
    if let Some(owner) = owner {
        tx.tables.backlog.runners.remove(&owner.id);
        wakeups::hand_over(&owner, Some(runner), tx);
    }
    RunOutcome::Adopted(Box::new(work))
}

pub(crate) fn dismiss(runner: &RunnerId, seen: &Seen, tx: &mut Tx) -> RunOutcome {
    let now = seen.now(tx);
    let Some(row) = tx.tables.backlog.runners.get(runner).cloned() else { return RunOutcome::Late };
    // Its live runs must be ended or adopted first.
    if tx.tables.backlog.runs.values().any(|run| run.is_live() && run.owner == *runner) {
        return RunOutcome::Late;
    }
    if !row.is_silent(&now) && !now.all_dead(std::slice::from_ref(&row.process)) {
        return RunOutcome::OwnerLives;
    }
    tx.tables.backlog.runners.remove(runner);
    wakeups::hand_over(&row, None, tx);
    RunOutcome::Done
}

/// Frees the slot of a run, if it has one. Only the semaphore `runs` records which runs have slots.
pub(crate) fn free_slot(run: &RunId, tx: &mut Tx) {
    let mut draft = Draft::new(&tx.tables.coordination, tx.now(Vec::new(), Default::default()));
    draft.handle(slot_back(run));
    draft.keep(tx);
    tx.changed.limits = true;
}

/// Releases the lock of a workspace, if the run has it.
pub(crate) fn free_workspace(run: &RunId, owner: &TaskId, tx: &mut Tx) {
    if let Some(command) = workspace_back(&owner.workspace_lock(), run, &tx.tables.coordination) {
        let mut draft = Draft::new(&tx.tables.coordination, tx.now(Vec::new(), Default::default()));
        draft.handle(command);
        draft.keep(tx);
    }
}

fn workspace_back(lock: &Name, run: &RunId, coordination: &Coordination) -> Option<Command> {
    let need = Need::Lock(lock.clone());
    let epoch = coordination.grant_of(&need.resource(), &run.holder())?.epoch;
    Some(Command::release(need.resource(), run.holder(), epoch))
}

fn slot_back(run: &RunId) -> Command {
    Command::Semaphore(Name::runs(), semaphore::Input::Release { holder: run.holder(), epoch: None })
}

pub(crate) fn renew(runner: &RunnerId, tx: &mut Tx) -> RunOutcome {
    // A runner that was dismissed as dead must enlist again.
    let Some(row) = tx.tables.backlog.runners.get_mut(runner) else { return RunOutcome::Late };
    row.seen = tx.lease;
    let own = tx.tables.backlog.runs.values_mut().filter(|run| run.is_live() && run.owner == *runner);
    let renewed = own.map(|run| {
        run.renew(row, tx.lease);
        run.id.clone()
    });
    RunOutcome::Renewed(renewed.collect())
}
