//! Checks the guards of a phase inside of its session, before its command: the result from before the claim is too old.
//! The session holds everything that the phase needs, so no other holder can make the result untrue by taking it.
//!
//! If the guards pass, this process becomes the command. If not, the run reports that to the store and exits without
//! starting the command.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use banksman_core::guard::GuardInputs;
use banksman_core::pipeline::{GuardsResult, State};
use banksman_core::task::{self, Need, Refused};
use banksman_core::{Epoch, Lease, Name, Now, Pipeline, Seq, Span, Task, TaskId};
use banksman_engine::{TaskRequest, verdict};
use banksman_store::Key;

use crate::client::Client;
use crate::guards::{Limits, gather_trusted};
use crate::project::Project;
use crate::workspaces;

/// The hidden first argument.
const MARK: &str = "__guarded";

/// How often a store that does not answer is asked again, and how long to wait in between. Until it answers, it is
/// unknown whether the guards pass.
const TRIES: u32 = 60;
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The command line that checks the guards of a phase and then becomes `argv`.
pub(crate) fn argv(project: &Project, task: &Task, epoch: Epoch, argv: Vec<OsString>) -> Vec<OsString> {
    let epoch = epoch.to_string();
    let words: [&OsStr; 5] =
        ["/proc/self/exe".as_ref(), MARK.as_ref(), project.root().as_os_str(), task.id.as_str().as_ref(), epoch.as_ref()];
    words.into_iter().map(OsStr::to_owned).chain(argv).collect()
}

/// Checks the guards of a phase, if the command line of this process asks for that.
pub(crate) fn enter(args: &[OsString]) -> Option<ExitCode> {
    let [_, mark, root, task, epoch, argv @ ..] = args else { return None };
    if mark != MARK {
        return None;
    }
    let (task, epoch) = (TaskId::new(&task.to_string_lossy()).ok()?, Epoch(epoch.to_string_lossy().parse().ok()?));
    let said = match patiently(|| check(Path::new(root), &task, epoch)) {
        Ok(None) => become_program(argv),
        Ok(Some(refused)) => refused.reason(),
        Err(error) => format!("the guards of this phase cannot be checked: {error}"),
    };
    // If stderr cannot be written, the store has the reason all the same.
    writeln!(std::io::stderr(), "{said}").ok();
    Some(ExitCode::FAILURE)
}

/// Becomes the program. Returns only if that fails, with the reason.
pub(crate) fn become_program(argv: &[OsString]) -> String {
    let Some((program, arguments)) = argv.split_first() else { return "there is no program to start".into() };
    let error = Command::new(program).args(arguments).exec();
    format!("cannot start {}: {error}", program.to_string_lossy())
}

/// Asks a store until it answers.
pub(crate) fn patiently<T>(mut ask: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let mut tries = 0;
    loop {
        match ask() {
            Err(error) if tries >= TRIES => return Err(error),
            Err(_) => std::thread::sleep(TRY_AGAIN),
            done => return done,
        }
        tries += 1;
    }
}

/// Checks the guards of the phase that a task is, and reports a refusal to the store.
fn check(root: &Path, task: &TaskId, epoch: Epoch) -> Result<Option<Refused>, String> {
    let message = |error: &dyn std::fmt::Display| error.to_string();
    let project = Project::find(root).map_err(|error| message(&error))?;
    let client = project.open().map_err(|error| message(&error))?;
    let rows = client.load(&[Key::Pipeline(task.clone())].into()).map_err(|error| message(&error))?;
    let pipeline = rows.backlog.pipelines.values().find(|pipeline| pipeline.task() == Some(task));
    // The process that has advanced the pipeline also ends this session.
    let Some(pipeline) = pipeline else { return Err("the pipeline has left this phase".into()) };
    let now = Now { lease: rows.lease, wall: rows.wall, ..Now::default() };
    let Some(refused) = evaluate(&project, pipeline, &now, rows.seq) else { return Ok(None) };
    let verdict = task::Verdict::Refused(Box::new(refused.clone()));
    report(&client, TaskRequest::Conclude { id: task.clone(), epoch: Some(epoch), by: None, verdict })?;
    Ok(Some(refused))
}

pub(crate) fn report(client: &Client, request: TaskRequest) -> Result<(), String> {
    client.request(request).map(drop).map_err(|error| error.to_string())
}

/// Gathers the inputs of the guards before a phase, and evaluates them.
fn evaluate(project: &Project, pipeline: &Pipeline, now: &Now, at: Seq) -> Option<Refused> {
    let State::Running { phase, .. } = &pipeline.state else { return None };
    let guards = &pipeline.plan.phase(phase)?.pre;
    let mut inputs = GuardInputs { vars: pipeline.context.clone(), ..GuardInputs::default() };
    for guard in guards {
        let wants = guard.wants(&pipeline.context);
        inputs.extend(gather_trusted(project, Some(&pipeline.id), &wants, &pipeline.context, Limits::of(guard)));
    }
    disregard_own(pipeline, phase, &mut inputs);
    let span = |again: Lease| Span::from_ms(again.0 - now.lease.0);
    match verdict(guards, &inputs, now) {
        // A guard that only warns has warned before, unless the workspace in which it is checked did not exist.
        GuardsResult::Pass { warnings, .. } => {
            for (guard, part) in warnings {
                workspaces::say(&format!("warning: guard {guard}: {part}"));
            }
            None
        }
        GuardsResult::Block { guard, part, again, .. } => Some(Refused { guard, part, again: span(again), fails: None, at }),
        GuardsResult::Fail { guard, message, part } => Some(Refused { guard, part, again: Span::ZERO, fails: Some(message), at }),
    }
}

/// Removes the locks and slots that this very run holds from the inputs: they do not block it.
fn disregard_own(pipeline: &Pipeline, phase: &Name, inputs: &mut GuardInputs) {
    for need in pipeline.plan.phase(phase).into_iter().flat_map(|phase| &phase.needs) {
        match need {
            Need::Lock(name) | Need::Kept { name, .. } => {
                inputs.locks.get_mut(name.as_str()).into_iter().for_each(|holder| *holder = None)
            }
            Need::Slots { name, weight } => {
                inputs.semaphores.get_mut(name.as_str()).into_iter().for_each(|free| *free = free.saturating_add(*weight));
            }
        }
    }
}
