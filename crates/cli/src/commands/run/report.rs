//! The lines in which a runner reports events.

use banksman_core::backlog::Run;
use banksman_core::pipeline::State as PipelineState;
use banksman_core::task::{After, Outcome, RetryReason, State, TaskEnd};
use banksman_core::{Status, TaskId, Title};
use banksman_engine::{RunnerEvent, Work};
use banksman_runtime::RunnerReport;

use crate::commands::{landing, pausing, tasks, why};
use crate::format;
use crate::printer::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};

/// The reason for stopping a run.
pub(crate) fn after(then: &After) -> String {
    match then {
        After::Cancel => "cancelled".into(),
        After::Fail { error } | After::Escalate { error } => error.to_string(),
        After::Overtime { max } => format!("the timeout of {max} has passed"),
        After::Restart => "no activity, restarting".into(),
        After::PutBack { .. } => "stopped by a person".into(),
    }
}

/// The last error of the store, so that an error is reported once.
#[derive(Default)]
pub(super) struct Trouble(Option<String>);

impl Trouble {
    /// Drops a report that repeats the last error of the store.
    pub(super) fn filter(&mut self, report: RunnerReport) -> Vec<RunnerReport> {
        match report {
            RunnerReport::Trouble(error) => {
                let is_known = self.0.replace(error.to_string()).is_some_and(|before| before == error.to_string());
                if is_known { Vec::new() } else { vec![RunnerReport::Trouble(error)] }
            }
            other => {
                self.0 = None;
                vec![other]
            }
        }
    }
}

/// A report as a line; `None` if it is not shown.
pub(super) fn line(report: RunnerReport) -> Option<String> {
    let titled = |title: &Title, id: &TaskId| format!("{BOLD}{title}{BOLD:#} {DIM}{id}{DIM:#}");
    let name = |work: &Work| titled(&work.task.spec.title, &work.task.id);
    let text = match report {
        RunnerReport::Event(RunnerEvent::Started(work)) => format!("{GREEN}started{GREEN:#}    {}", name(&work)),
        RunnerReport::Event(RunnerEvent::Adopted(work)) => format!("{YELLOW}adopted{YELLOW:#}    {}", name(&work)),
        RunnerReport::Event(RunnerEvent::Stuck(work)) => format!("{YELLOW}stuck{YELLOW:#}      {}", name(&work)),
        RunnerReport::Event(RunnerEvent::Recovered(work)) => format!("{GREEN}recovered{GREEN:#}  {}", name(&work)),
        RunnerReport::Event(RunnerEvent::Stopping(work)) => {
            let why = match &work.task.state {
                State::Stopping { then, .. } => format!(": {}", after(then)),
                _ => String::new(),
            };
            format!("{YELLOW}stopping{YELLOW:#}   {}{why}", name(&work))
        }
        RunnerReport::Event(RunnerEvent::Settled(task, outcome)) => {
            let title = titled(&task.spec.title, &task.id);
            match outcome {
                Outcome::Ended(Status::Completed) => {
                    let warning = match &task.state {
                        State::Done(TaskEnd::Success { warning: Some(warning), .. }) => format!(": {YELLOW}{warning}{YELLOW:#}"),
                        _ => String::new(),
                    };
                    format!("{GREEN}completed{GREEN:#}  {title}{warning}")
                }
                Outcome::Ended(status) => {
                    let why = tasks::error(&task).map(|error| format!(": {error}")).unwrap_or_default();
                    format!("{RED}{status:<9}{RED:#}  {title}{why}")
                }
                Outcome::Landing => format!("{CYAN}landing{CYAN:#}    {title}"),
                Outcome::Awaiting(children) => format!("{YELLOW}waits{YELLOW:#}      {title} for {}", format::children(children)),
                Outcome::EndChildren => format!("{YELLOW}waits{YELLOW:#}      {title} for its children, which are being ended"),
                _ => return None,
            }
        }
        // A blocked pipeline is reported by an event of its own.
        RunnerReport::Event(RunnerEvent::Ended(_, _, Outcome::Again(RetryReason::Shortage | RetryReason::Guard))) => return None,
        RunnerReport::Event(RunnerEvent::Short(error)) => {
            format!("{YELLOW}waiting{YELLOW:#}    {error}; tasks stay pending and are retried")
        }
        RunnerReport::Event(RunnerEvent::Paused(pause)) => {
            format!("{YELLOW}paused{YELLOW:#}     nothing is started: {}; resume with: banksman resume", pausing::because(&pause))
        }
        RunnerReport::Event(RunnerEvent::Resumed) => format!("{GREEN}resumed{GREEN:#}    tasks are started again"),
        RunnerReport::Event(RunnerEvent::Enough) => format!("{GREEN}resuming{GREEN:#}   resources are available again"),
        RunnerReport::Event(RunnerEvent::Ended(work, ended, outcome)) => {
            let took = format::span(ended.at - work.run.started.wall);
            let how = match outcome {
                Outcome::Ended(Status::Completed) => format!("{GREEN}completed{GREEN:#}"),
                Outcome::Ended(status) => format!("{RED}{status:<9}{RED:#}"),
                Outcome::AwaitingDecision(_) => format!("{RED}needs you{RED:#}"),
                Outcome::Landing => format!("{CYAN}landing{CYAN:#}  "),
                Outcome::Awaiting(_) => format!("{YELLOW}waits{YELLOW:#}    "),
                Outcome::Again(RetryReason::Stopped) => format!("{YELLOW}stopped{YELLOW:#}  "),
                _ => format!("{YELLOW}retrying{YELLOW:#} "),
            };
            let why = match outcome {
                Outcome::Ended(Status::Completed) | Outcome::Landing => String::new(),
                Outcome::Awaiting(children) => format!(": done, waiting for {}", format::children(children)),
                Outcome::AwaitingDecision(decision) => match untrusted(&work.run) {
                    Some(error) => format!(": {error}"),
                    None => format!(": banksman decisions show {decision}"),
                },
                Outcome::Again(RetryReason::Stopped) => ": the task is pending again".into(),
                Outcome::Again(setback) => format!(": {}", setback.describe(&ended.ending)),
                Outcome::Ended(_) if tasks::error(&work.task).is_some() => {
                    format!(": {}", tasks::error(&work.task).unwrap_or_default())
                }
                _ => format!(": {}", ended.ending),
            };
            let note = ended.note.map(|note| format!(" {DIM}({note}){DIM:#}")).unwrap_or_default();
            format!("{how}  {} {DIM}after {took}{DIM:#}{why}{note}", name(&work))
        }
        RunnerReport::Event(RunnerEvent::Begins(pipeline)) => {
            format!("{GREEN}begins{GREEN:#}     {}", titled(&pipeline.title, &pipeline.id))
        }
        RunnerReport::Event(RunnerEvent::Stands(pipeline)) => {
            let name = titled(&pipeline.title, &pipeline.id);
            let why = why::detail(&pipeline, None).unwrap_or_default();
            match &pipeline.state {
                PipelineState::Blocked { phase, when, .. } => {
                    format!("{YELLOW}blocked{YELLOW:#}    {name} {}: {why}", why::side(*when, phase))
                }
                PipelineState::Failed { phase, .. } => format!("{RED}failed{RED:#}     {name} in phase {phase}: {why}"),
                PipelineState::Done => format!("{GREEN}done{GREEN:#}       {name}"),
                PipelineState::Init
                | PipelineState::Checking { .. }
                | PipelineState::Running { .. }
                | PipelineState::Cancelled { .. } => return None,
            }
        }
        RunnerReport::Event(RunnerEvent::Unfit { worker, queue, item, error }) => {
            format!("{RED}unfit{RED:#}      item {BOLD}{item}{BOLD:#} of queue {queue} for worker {worker}: {error}")
        }
        RunnerReport::Event(RunnerEvent::Landing(entry)) => landing::line(&entry)?,
        RunnerReport::Event(RunnerEvent::LandingTrouble(target, error)) => {
            format!("{YELLOW}not landing{YELLOW:#} on {target}: {error}")
        }
        RunnerReport::Event(RunnerEvent::Queued(_)) => return None,
        RunnerReport::Trouble(error) => format!("{RED}the store does not answer{RED:#}: {error}; retrying"),
        RunnerReport::RunTrouble(run, what) => format!("{RED}run {run}{RED:#}: {what}"),
        RunnerReport::NoticeTrouble(notice, what) => {
            format!("{RED}cannot send the notification{RED:#} \"{}\": {what}", notice.subject)
        }
        RunnerReport::Left { sessions, within } => {
            let (within, what) = (format::span(within), if sessions == 1 { "session continues" } else { "sessions continue" });
            format!("{YELLOW}{sessions} {what}{YELLOW:#}, but only for {within} unless banksman run is started here again")
        }
    };
    Some(text)
}

/// The reason why an agent is not trusted, if the run ended because of that.
fn untrusted(run: &Run) -> Option<&str> {
    let ended = run.ended.as_ref().filter(|ended| ended.setback == Some(RetryReason::Untrusted))?;
    ended.error.as_deref()
}
