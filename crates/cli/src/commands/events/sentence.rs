//! Events as sentences, with titles instead of ids.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::decision::Question;
use banksman_core::event::{DecisionFact, Event, Fact, Resource, SectionFact, TaskFact};
use banksman_core::pipeline::Fact as PipelineFact;
use banksman_core::queue::Fact as QueueFact;
use banksman_core::task::RetryReason;
use banksman_core::workspace::Fact as WorkspaceFact;
use banksman_core::{Name, TaskId, Title};
use banksman_store::{EventRow, Key, Reader};

use crate::commands::pausing;
use crate::commands::run::after;
use crate::commands::why::side;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::terminal::Style;

/// The titles of tasks.
pub(crate) type Titles = BTreeMap<TaskId, Title>;

/// The titles of the tasks of these events. A deleted task has none.
pub(crate) fn titles(reader: &mut Reader, events: &[EventRow]) -> Result<Titles, Failure> {
    let keys: BTreeSet<Key> = events.iter().filter_map(task).map(Key::Task).collect();
    let tasks = if keys.is_empty() { BTreeMap::new() } else { reader.view().load(&keys)?.tables.backlog.tasks };
    Ok(tasks.into_iter().map(|(id, task)| (id, task.spec.title)).collect())
}

fn task(event: &EventRow) -> Option<TaskId> {
    let is_of_task = matches!(&*event.source.component, "task" | "pipeline" | "workspace");
    TaskId::new(event.source.id.as_deref().filter(|_| is_of_task)?).ok()
}

/// Whether the event is shown by default: the locks and slots of tasks follow from events of the tasks.
pub(crate) fn is_notable(event: &EventRow) -> bool {
    let is_resource = matches!(&*event.source.component, "lock" | "semaphore");
    let is_own = |name: &str| Name::new(name).is_ok_and(|name| name.is_reserved());
    let is_mirror = matches!(
        &*event.kind,
        "task:in_phases"
            | "task:checkpoint"
            | "pipeline:created"
            | "pipeline:checking"
            | "workspace:begun"
            | "workspace:removing"
    );
    let is_part = is_resource && event.source.id.as_deref().is_some_and(is_own);
    !is_part && !is_mirror
}

/// `22:14:07  Build started  by ada`.
pub(crate) fn line(event: &EventRow, titles: &Titles) -> String {
    let by = event.by.as_ref().map(|by| format!("  {DIM}by {}{DIM:#}", format::one_line(&by.to_string()))).unwrap_or_default();
    format!("{DIM}{}{DIM:#}  {}{by}", format::local(event.wall), sentence(event, titles))
}

/// The sentence without time and author.
fn sentence(event: &EventRow, titles: &Titles) -> String {
    let source = event.source.id.as_deref().unwrap_or(&event.source.component);
    let title = task(event).and_then(|id| titles.get(&id));
    let name = format!("{BOLD}{}{BOLD:#}", format::one_line(title.map_or(source, Title::as_str)));
    let parsed = Event::parse(&event.kind, &event.source.component, event.source.id.as_deref(), &event.data.to_string());
    let (style, words) = match parsed {
        Ok(Event::Task { fact, .. }) => of_task(&fact),
        Ok(Event::Pipeline { fact, .. }) => of_pipeline(&fact),
        Ok(Event::Queue { name: queue, fact }) => return of_queue(&format!("{BOLD}{queue}{BOLD:#}"), &fact),
        Ok(Event::Resource { resource, fact }) => return of_resource(&resource, &fact),
        Ok(Event::Section { fact: SectionFact::Added { name, .. }, .. }) => {
            return format!("section {BOLD}{name}{BOLD:#} was added");
        }
        Ok(Event::Workspace { fact: WorkspaceFact::Made {}, .. }) => return format!("the workspace of {name} was made"),
        Ok(Event::Workspace { fact: WorkspaceFact::Kept {}, .. }) => return format!("the workspace of {name} was not removed"),
        Ok(Event::Workspace { fact: WorkspaceFact::Removed {}, .. }) => return format!("the workspace of {name} was removed"),
        Ok(Event::Decision { id, fact }) => return of_decision(id.as_str(), &fact),
        Ok(Event::Finished(_)) => return format!("{GREEN}nothing is left to do{GREEN:#}"),
        Ok(Event::Paused(pause)) => return format!("{YELLOW}the project was paused{YELLOW:#} ({})", pausing::verb(pause.verb)),
        Ok(Event::Resumed(_)) => return format!("{GREEN}the project was resumed{GREEN:#}"),
        Ok(Event::Limits(limits)) => {
            return format!("the limits were set: {} runs, {} roots at a time (0 is any number)", limits.runs, limits.roots);
        }
        Ok(Event::Custom { .. }) => {
            return format!(
                "{}: {name} {DIM}{}{DIM:#}",
                event.kind,
                format::one_line(&super::cut(&event.data.to_string(), super::SHOWN))
            );
        }
        _ => (Style::PLAIN, String::new()),
    };
    if !words.is_empty() {
        return format!("{name} {style}{}{style:#}", format::one_line(&words));
    }
    // `landing e-7: check passed`.
    let (component, action) = event.kind.split_once(':').unwrap_or(("", &event.kind));
    let component = if title.is_some() || component == source { "" } else { &format!("{} ", component.replace('_', " ")) };
    format!("{component}{name}: {}", action.replace('_', " "))
}

fn of_task(fact: &TaskFact) -> (Style, String) {
    let plain = |words: &str| (Style::PLAIN, words.to_owned());
    match fact {
        TaskFact::Added { .. } => plain("was added"),
        TaskFact::Updated { .. } => plain("was updated"),
        TaskFact::Started { attempt: 0, .. } => plain("started"),
        TaskFact::Started { attempt, .. } => plain(&format!("started, attempt {}", attempt + 1)),
        TaskFact::Adopted { runner, .. } => (YELLOW, format!("was adopted by runner {runner}")),
        TaskFact::Stuck { .. } => (YELLOW, "shows no activity".into()),
        TaskFact::Nudged { .. } => (YELLOW, "was nudged".into()),
        TaskFact::Recovered { .. } => (GREEN, "shows activity again".into()),
        TaskFact::Stopping { then, .. } => (YELLOW, format!("is being stopped: {}", after(then))),
        TaskFact::Restarting { why: Some(RetryReason::Stopped), .. } => (YELLOW, "was stopped, and is pending again".into()),
        TaskFact::Paused(_) => (YELLOW, "is not started until it is resumed".into()),
        TaskFact::Resumed(_) => (GREEN, "may be started again".into()),
        TaskFact::Restarting { ending, why: Some(why), .. } => (YELLOW, format!("is queued for retry: {}", why.describe(ending))),
        TaskFact::Restarting { ending, .. } => (YELLOW, format!("is queued for retry: {ending}")),
        TaskFact::Awaiting { children, .. } => plain(&format!("waits for {}", format::children(*children))),
        TaskFact::Asked { .. } => (YELLOW, "asks a person, and waits for the answer".into()),
        TaskFact::Escalated { error, decision, .. } => (RED, format!("needs you: {error} (decision {decision})")),
        TaskFact::Taken { holder, .. } => plain(&format!("was taken by {holder}")),
        TaskFact::Returned {} => plain("was released"),
        TaskFact::Complete { warning: Some(warning), .. } => (YELLOW, format!("completed: {warning}")),
        TaskFact::Complete { .. } => (GREEN, "completed".into()),
        TaskFact::Failed { error, .. } => (RED, format!("failed: {error}")),
        TaskFact::Cancelled { .. } => (YELLOW, "was cancelled".into()),
        TaskFact::Retried {} => plain("is retried"),
        TaskFact::Marked { status } => plain(&format!("was marked: {status}")),
        TaskFact::Deleted {} => plain("was deleted"),
        _ => (Style::PLAIN, String::new()),
    }
}

fn of_pipeline(fact: &PipelineFact) -> (Style, String) {
    match fact {
        PipelineFact::Created { .. } => (Style::PLAIN, "was created".into()),
        PipelineFact::Started {} => (Style::PLAIN, "began".into()),
        PipelineFact::Phase { phase, .. } => (Style::PLAIN, format!("entered phase {phase}")),
        PipelineFact::Blocked { phase, when, .. } => (YELLOW, format!("is blocked {}", side(*when, phase))),
        PipelineFact::Unblocked { phase, .. } => (YELLOW, format!("was unblocked in phase {phase}")),
        PipelineFact::PhaseFailed { phase, error } => (YELLOW, format!("continues after phase {phase} failed: {error}")),
        PipelineFact::Warned { guard, part } => (YELLOW, format!("was warned by guard {guard}: {part}")),
        PipelineFact::Checkpoint(note) => (Style::PLAIN, format!("noted: {}", note.message)),
        PipelineFact::Complete {} => (GREEN, "completed all phases".into()),
        PipelineFact::Failed { phase, error, .. } => (RED, format!("failed in phase {phase}: {error}")),
        _ => (Style::PLAIN, String::new()),
    }
}

fn of_queue(queue: &str, fact: &QueueFact) -> String {
    match fact {
        QueueFact::Push { item, .. } => format!("item {item} was pushed to {queue}"),
        QueueFact::Take { item, holder, .. } => format!("item {item} of {queue} was taken by {}", format::holder(holder)),
        QueueFact::Complete { item, .. } => format!("item {item} of {queue} {GREEN}is done{GREEN:#}"),
        QueueFact::Fail { item, error, .. } => {
            format!("item {item} of {queue} {YELLOW}failed: {}{YELLOW:#}", format::one_line(error))
        }
        QueueFact::Dead { item, reason, .. } => {
            format!("item {item} of {queue} {RED}is dead: {}{RED:#}", format::one_line(reason))
        }
        QueueFact::Requeue { item, .. } => format!("item {item} of {queue} was requeued"),
        QueueFact::Purged { item } => format!("item {item} of {queue} was removed"),
        QueueFact::Paused {} => format!("queue {queue} was paused"),
        QueueFact::Resumed {} => format!("queue {queue} was resumed"),
        QueueFact::Defined(_) => format!("queue {queue} was defined"),
    }
}

fn of_resource(resource: &Resource, fact: &Fact) -> String {
    let name = format!("{} {BOLD}{}{BOLD:#}", resource.kind.as_str(), format::one_line(resource.name.as_str()));
    match fact {
        Fact::Defined(_) => format!("{name} was defined"),
        Fact::Acquired(request) => format!("{} acquired {name}", format::holder(&request.holder)),
        Fact::Increased(_) => format!("a holder of {name} got more slots"),
        Fact::Reclaimed(end) => format!("{name} {YELLOW}was taken from {}{YELLOW:#}", format::holder(&end.holder)),
        Fact::Released(end) => format!("{} released {name}", format::holder(&end.holder)),
        Fact::OfferLapsed(end) => format!("{} did not take {name} in time", format::holder(&end.holder)),
    }
}

fn of_decision(id: &str, fact: &DecisionFact) -> String {
    match fact {
        DecisionFact::Raised(question) => {
            let Question { text, .. } = &**question;
            format!("{RED}decision {id} needs you{RED:#}: {}", format::one_line(&super::cut(text, super::SHOWN)))
        }
        DecisionFact::Resolved { option, .. } => format!("decision {id} was answered: {option}"),
        DecisionFact::Withdrawn {} => format!("decision {id} was withdrawn"),
    }
}
