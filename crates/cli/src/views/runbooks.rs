//! Runbooks as in their files.

use banksman_core::guard::Guard;
use banksman_core::pipeline::plan::{After, OnFail, Phase, Plan};
use banksman_core::task::Need;
use banksman_core::{Name, Span};
use banksman_engine::{Change, How};
use banksman_runbook::{PipelineDef, Runbook};
use banksman_runtime::RunbookFile;
use serde::Serialize;
use serde_json::Value;

use super::Text;
use super::queues::TermsView;
use super::resources::{LockDefinition, SemaphoreDefinition};
use super::workers::{DefinitionView, RouteView};
use crate::commands::runbooks::{guard, picture};

#[derive(Debug, Serialize)]
pub(crate) struct RunbookView<'a> {
    name: &'a str,
    description: &'a Option<Box<str>>,
    pipelines: Vec<PipelineView<'a>>,
    guards: Vec<GuardView<'a>>,
    locks: Vec<LockDefinition<'a>>,
    semaphores: Vec<SemaphoreDefinition<'a>>,
    queues: Vec<QueueView<'a>>,
    workers: Vec<WorkerView<'a>>,
    routes: Vec<RouteView<'a>>,
}

impl<'a> From<&'a Runbook> for RunbookView<'a> {
    fn from(runbook: &'a Runbook) -> RunbookView<'a> {
        let locks = runbook.locks.iter().map(|(name, terms)| LockDefinition { name, terms: terms.config().into() });
        let semaphores = runbook.semaphores.iter().map(|(name, terms)| SemaphoreDefinition {
            name,
            capacity: Some(terms.capacity),
            ttl: terms.ttl.map(Text),
        });
        let workers = runbook.workers.values();
        RunbookView {
            name: &runbook.name,
            description: &runbook.description,
            pipelines: runbook.pipelines.values().map(PipelineView::from).collect(),
            guards: runbook.guards.values().map(GuardView::from).collect(),
            locks: locks.collect(),
            semaphores: semaphores.collect(),
            queues: runbook.queues.iter().map(|(name, terms)| QueueView { name, terms: terms.into() }).collect(),
            workers: workers.map(|one| WorkerView { definition: one.into(), job: picture::job(&one.job) }).collect(),
            routes: runbook.routes.iter().map(RouteView::from).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct QueueView<'a> {
    name: &'a Name,
    #[serde(flatten)]
    terms: TermsView<'a>,
}

#[derive(Debug, Serialize)]
struct WorkerView<'a> {
    #[serde(flatten)]
    definition: DefinitionView<'a>,
    job: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GuardView<'a> {
    name: &'a Name,
    condition: String,
    on_failure: String,
    fresh_for: Text<Span>,
    timeout: Text<Span>,
    /// Set where guards of several runbooks are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    runbook: Option<&'a str>,
}

impl<'a> GuardView<'a> {
    /// A guard with the name of its runbook.
    pub(crate) fn of(runbook: &'a Runbook, guard: &'a Guard) -> GuardView<'a> {
        GuardView { runbook: Some(&runbook.name), ..guard.into() }
    }
}

impl<'a> From<&'a Guard> for GuardView<'a> {
    fn from(guard: &'a Guard) -> GuardView<'a> {
        GuardView {
            name: &guard.name,
            condition: guard::describe(&guard.condition),
            on_failure: guard::action(&guard.on_failure),
            fresh_for: Text(guard.fresh_for),
            timeout: Text(guard.timeout),
            runbook: None,
        }
    }
}

#[derive(Debug, Serialize)]
struct PipelineView<'a> {
    name: &'a Name,
    description: &'a Option<Box<str>>,
    vars: Vec<VarView<'a>>,
    phases: Vec<PhaseView<'a>>,
}

#[derive(Debug, Serialize)]
struct VarView<'a> {
    name: &'a str,
    required: bool,
    default: &'a Option<Value>,
}

impl<'a> From<&'a PipelineDef> for PipelineView<'a> {
    fn from(def: &'a PipelineDef) -> PipelineView<'a> {
        let vars = def.plan.vars.iter().map(|(name, default)| VarView { name, required: default.is_none(), default });
        PipelineView {
            name: &def.plan.name,
            description: &def.description,
            vars: vars.collect(),
            phases: (0..).zip(&def.plan.phases).map(|(index, phase)| PhaseView::new(&def.plan, index, phase)).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PhaseView<'a> {
    name: &'a Name,
    action: String,
    pre: Vec<&'a Name>,
    post: Vec<&'a Name>,
    locks: Vec<&'a Name>,
    hold: &'static str,
    semaphores: Vec<SlotsView<'a>>,
    timeout: Option<Text<Span>>,
    retries: u32,
    next: Option<&'a Name>,
    on_fail: OnFailView<'a>,
}

#[derive(Debug, Serialize)]
struct SlotsView<'a> {
    name: &'a Name,
    weight: u32,
}

#[derive(Debug, Serialize)]
#[serde(tag = "do", rename_all = "camelCase")]
enum OnFailView<'a> {
    Fail,
    Retry { times: u32 },
    Phase { phase: &'a Name, times: u32 },
}

impl<'a> PhaseView<'a> {
    fn new(plan: &'a Plan, index: usize, phase: &'a Phase) -> PhaseView<'a> {
        let slots = phase.needs.iter().filter_map(|need| match need {
            Need::Slots { name, weight } => Some(SlotsView { name, weight: *weight }),
            Need::Lock(_) | Need::Kept { .. } => None,
        });
        PhaseView {
            name: &phase.name,
            action: picture::action(&phase.action),
            pre: phase.pre.iter().map(|guard| &guard.name).collect(),
            post: phase.post.iter().map(|guard| &guard.name).collect(),
            locks: phase.needs.iter().filter(|need| matches!(need, Need::Lock(_))).map(Need::name).collect(),
            hold: if phase.keeps { "pipeline" } else { "phase" },
            semaphores: slots.collect(),
            timeout: phase.timeout.map(Text),
            retries: phase.retries,
            next: match &phase.then {
                After::Next => plan.phases.get(index + 1).map(|below| &below.name),
                After::Phase(name) => Some(name),
                After::Done => None,
            },
            on_fail: match &phase.on_fail {
                OnFail::Fail => OnFailView::Fail,
                OnFail::Retry { times } => OnFailView::Retry { times: *times },
                OnFail::Phase { to, times } => OnFailView::Phase { phase: to, times: *times },
            },
        }
    }
}

/// All runbooks of the project.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Runbooks<'a> {
    pub(crate) runbooks: Vec<Listed<'a>>,
    /// Applied runbooks without a file.
    pub(crate) without_file: &'a [Box<str>],
}

/// A runbook in a list; for an invalid one only the file is known.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed<'a> {
    name: &'a str,
    file: Text<std::path::Display<'a>>,
    valid: bool,
    in_force: Option<&'static str>,
    description: Option<&'a str>,
    pipelines: Vec<&'a Name>,
    workers: Vec<&'a Name>,
    routes: usize,
}

impl<'a> Listed<'a> {
    pub(crate) fn new(file: &'a RunbookFile, runbook: Option<&'a Runbook>, in_force: Option<&'static str>) -> Listed<'a> {
        Listed {
            name: &file.name,
            file: Text(file.path.display()),
            valid: runbook.is_some(),
            in_force,
            description: runbook.and_then(|runbook| runbook.description.as_deref()),
            pipelines: runbook.map(|runbook| runbook.pipelines.keys().collect()).unwrap_or_default(),
            workers: runbook.map(|runbook| runbook.workers.keys().collect()).unwrap_or_default(),
            routes: runbook.map_or(0, |runbook| runbook.routes.len()),
        }
    }
}

/// The contents of a valid runbook, as numbers.
#[derive(Debug, Serialize)]
pub(crate) struct Sizes<'a> {
    pub(crate) name: &'a str,
    pub(crate) file: Text<std::path::Display<'a>>,
    pub(crate) pipelines: usize,
    pub(crate) phases: usize,
    pub(crate) guards: usize,
    pub(crate) workers: usize,
    pub(crate) routes: usize,
}

/// The changes of applying or removing a runbook.
#[derive(Debug, Serialize)]
pub(crate) struct Applied<'a> {
    name: &'a str,
    changes: Vec<ChangeView<'a>>,
}

#[derive(Debug, Serialize)]
struct ChangeView<'a> {
    kind: &'static str,
    name: &'a str,
    outcome: &'static str,
    /// The remaining jobs of a removed worker.
    jobs: Option<usize>,
}

impl<'a> Applied<'a> {
    pub(crate) fn new(name: &'a str, changes: &'a [Change]) -> Applied<'a> {
        let change = |Change { sort, name, how }: &'a Change| {
            let jobs = match how {
                How::Finishing { jobs } => Some(*jobs),
                How::Created | How::Changed | How::Same | How::Removed => None,
            };
            ChangeView { kind: sort, name, outcome: how.as_str(), jobs }
        };
        Applied { name, changes: changes.iter().map(change).collect() }
    }
}
