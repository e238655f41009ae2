//! The tasks of phases: their work, and the meaning of their end.

use std::collections::BTreeMap;
use std::fmt;

use banksman_core::event::{Event, TaskFact};
use banksman_core::output::telling_line;
use banksman_core::pipeline::plan::{self, Action, Context, Merge, Phase, Plan, RunCommand};
use banksman_core::pipeline::strategy::Fallback;
use banksman_core::pipeline::{PhaseEnd, Pipeline, State};
use banksman_core::resource::coordination::Coordination;
use banksman_core::task::{self, After, Need, PHASE_ENV, PIPELINE_ENV, REASON_ENV, Spec, TaskEnd, Verdict, Work};
use banksman_core::{Name, Span, Task, TaskId, Title, json};
use banksman_runbook::{TemplateError, render};
use banksman_store::{Key, Tx};
use serde_json::Value;

use crate::calls::steps::emit;

/// The most characters of the last line of output in the error of a failed phase.
const LAST_LINE: usize = 200;

/// Slots that a phase needs and will never get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// The first phase that needs them.
    pub phase: Name,
    pub semaphore: Name,
    pub wanted: u32,
    /// The capacity; `None` if the semaphore does not exist.
    pub capacity: Option<u32>,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lack { phase, semaphore, wanted, capacity } = self;
        match capacity {
            None => write!(f, "phase {phase} needs the semaphore {semaphore}, which is not there"),
            Some(capacity) => write!(f, "phase {phase} needs {wanted} slots of the semaphore {semaphore}, which has {capacity}"),
        }
    }
}

/// The slots that the phases of a plan would wait for in vain, by semaphore. The rows of [`slot_keys`] must be loaded. Semaphores
/// are never deleted, so one that exists when a pipeline is started exists when the pipeline comes to its phase.
pub fn lacks(plan: &Plan, coordination: &Coordination) -> Vec<Lack> {
    let mut lacks = BTreeMap::new();
    for (phase, name, wanted) in slots(plan) {
        let capacity = coordination.semaphores.get(name).map(|semaphore| semaphore.config.capacity);
        if capacity.is_none_or(|capacity| wanted > capacity) {
            let lack = || Lack { phase: phase.clone(), semaphore: name.clone(), wanted, capacity };
            lacks.entry(name).or_insert_with(lack);
        }
    }
    lacks.into_values().collect()
}

/// The rows that [`lacks`] reads.
pub fn slot_keys(plan: &Plan) -> impl Iterator<Item = Key> {
    slots(plan).map(|(_, name, _)| Key::Semaphore(name.clone()))
}

fn slots(plan: &Plan) -> impl Iterator<Item = (&Name, &Name, u32)> {
    let needs = plan.phases.iter().flat_map(|phase| phase.needs.iter().map(|need| (&phase.name, need)));
    needs.filter_map(|(phase, need)| match need {
        Need::Slots { name, weight } => Some((phase, name, *weight)),
        Need::Lock(_) | Need::Kept { .. } => None,
    })
}

/// Adds the task that a pipeline has named for its phase. The error says why its work cannot be rendered.
pub(crate) fn add(id: &TaskId, task: &TaskId, tx: &mut Tx) -> Result<(), String> {
    let (pipeline, parent) = (&tx.tables.backlog.pipelines[id], &tx.tables.backlog.tasks[id]);
    let spec = spec(pipeline, parent)?.with_workspace(task);
    let row = Task::new(task.clone(), spec.clone(), &tx.now(Vec::new(), Span::ZERO));
    tx.tables.backlog.tasks.insert(task.clone(), row);
    let fact = TaskFact::Added { spec: Box::new(spec), depends_on: Vec::new(), import: None };
    emit(tx, Event::Task { id: task.clone(), fact });
    Ok(())
}

fn spec(pipeline: &Pipeline, parent: &Task) -> Result<Spec, String> {
    let State::Running { phase, approach, .. } = &pipeline.state else { unreachable!("only a running pipeline has a task") };
    let phase = pipeline.plan.phase(phase).expect("it is in a phase of its plan");
    let (run_command, name, timeout, fallback_on) = match &phase.action {
        Action::Do(run_command) => (run_command, phase.name.to_string(), None, &[][..]),
        Action::Strategy { approaches, .. } => {
            let approach = &approaches[*approach as usize];
            (&approach.run_command, format!("{} ({})", phase.name, approach.name), approach.timeout, &approach.fallback_on[..])
        }
        Action::Push(_) => unreachable!("a push has no task"),
    };
    let context = known(pipeline, phase);
    let title: String = format!("{}: {name}", parent.spec.title).chars().take(100).collect();
    Ok(Spec {
        section: parent.spec.section.clone(),
        parent: Some(pipeline.id.clone()),
        priority: parent.spec.priority,
        work: Some(work(run_command, &context)?),
        needs: pipeline.plan.needs(phase, pipeline.is_keeping, &pipeline.id),
        retries: phase.retries,
        first_attempt: pipeline.attempt.saturating_sub(1),
        guarded: pipeline.recheck.is_some(),
        env: env(pipeline, phase),
        timeout: timeout.or(phase.timeout),
        // A phase that falls back on any failure also falls back when its run hangs.
        fails_when_stuck: fallback_on.contains(&Fallback::Any),
        workspace: parent.spec.workspace.of_part(&pipeline.id),
        depth: parent.spec.depth,
        paused: parent.spec.paused.clone(),
        ..Spec::new(Title::new(title.trim()).map_err(|error| error.to_string())?)
    })
}

/// The variables that templates of a phase can use.
fn known(pipeline: &Pipeline, phase: &Phase) -> Context {
    let own = [
        ("pipeline", Value::from(pipeline.id.as_str())),
        ("phase", Value::from(phase.name.as_str())),
        ("attempt", Value::from(pipeline.attempt)),
    ];
    let mut context = pipeline.context.clone();
    context.extend(own.map(|(name, value)| (name.into(), value)));
    // A variable of the pipeline can have this name.
    context.entry("reason".into()).or_insert_with(|| reason(pipeline).unwrap_or_default().into());
    context
}

fn env(pipeline: &Pipeline, phase: &Phase) -> BTreeMap<Box<str>, Box<str>> {
    let mut env = plan::environment(&pipeline.context);
    env.insert(PIPELINE_ENV.into(), pipeline.id.as_str().into());
    env.insert(PHASE_ENV.into(), phase.name.as_str().into());
    env.extend(reason(pipeline).map(|reason| (REASON_ENV.into(), reason.into())));
    env
}

/// The failure that the phase follows, as a command can take it: an error may contain zero bytes.
fn reason(pipeline: &Pipeline) -> Option<String> {
    pipeline.reason().map(|reason| reason.replace('\0', " "))
}

/// Renders the work of a phase with its variables.
pub(crate) fn work(run_command: &RunCommand, context: &Context) -> Result<Work, String> {
    let put = |what: String, text: &str| {
        let placed = |error: TemplateError| match error.line(text) {
            Some(line) if text.contains('\n') => format!("{what}, line {line}: {error}"),
            _ => format!("{what}: {error}"),
        };
        render(text, context).map(Box::<str>::from).map_err(placed)
    };
    Ok(match run_command {
        RunCommand::Run(line) => Work::Run(line.clone()),
        RunCommand::Argv(argv) => {
            let words = argv.iter().enumerate().map(|(index, text)| put(format!("argv, element {}", index + 1), text));
            Work::Exec { argv: words.collect::<Result<_, _>>()?, input: None }
        }
        RunCommand::Agent { command, prompt, .. } => {
            Work::Exec { argv: command.clone(), input: Some(put("prompt".into(), prompt)?) }
        }
        RunCommand::Merge(Merge { branch, into, how }) => {
            let get =
                |text: &plan::Text| text.name(context).ok_or_else(|| "the branch has no name: a variable is not set".to_owned());
            Work::Merge { branch: get(branch)?, into: get(into)?, how: *how }
        }
    })
}

/// The end of a phase that follows from the end of its task.
pub(crate) fn end(before: &task::State, done: &TaskEnd, tail: &str) -> PhaseEnd {
    match done {
        TaskEnd::Success { output, .. } => PhaseEnd::Success { output: output.clone() },
        TaskEnd::Failed { error } if is_refused(before) => PhaseEnd::Refused { error: error.clone() },
        TaskEnd::Failed { error } => {
            let timed_out = matches!(before, task::State::Stopping { then: After::Overtime { .. }, .. });
            PhaseEnd::Failed { error: explained(error, tail), tail: tail.into(), timed_out }
        }
        TaskEnd::Cancelled => PhaseEnd::Dropped { how: "cancelled".into() },
        TaskEnd::Skipped => PhaseEnd::Dropped { how: "skipped".into() },
    }
}

/// Whether a guard has refused the run of the task, or held the task.
fn is_refused(before: &task::State) -> bool {
    match before {
        task::State::Running(live) | task::State::Stuck { live, .. } | task::State::Stopping { live, .. } => {
            matches!(live.verdict, Some(Verdict::Refused(_)))
        }
        task::State::Held => true,
        _ => false,
    }
}

/// The error with the last line of the output, which often says more.
fn explained(error: &str, tail: &str) -> Box<str> {
    let line: String = telling_line(tail).chars().filter(|letter| !letter.is_control()).take(LAST_LINE).collect();
    if error.contains(&line) { error.into() } else { format!("{error}: {line}").into() }
}

/// The verdict that a phase has printed: the last line of its output that is a JSON object. The output of a merge is for people.
pub(crate) fn printed(tail: &str, task: &Task) -> Option<Verdict> {
    if matches!(task.spec.work, Some(Work::Merge { .. })) {
        return None;
    }
    let mut lines = tail.lines().rev().map(str::trim).filter(|line| line.starts_with('{') && line.ends_with('}'));
    let line = lines.find(|line| serde_json::from_str::<Value>(line).is_ok_and(|value| value.is_object()))?;
    json::parse_exact(line).ok().map(|output| Verdict::Done { output: Some(output) })
}
