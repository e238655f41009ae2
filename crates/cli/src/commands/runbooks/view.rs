//! Runbooks for people and for programs.

use banksman_core::pipeline::plan::{After, OnFail, Phase, Plan};
use banksman_core::task::Need;
use banksman_runbook::{PipelineDef, Runbook};
use banksman_runtime::{RunbookError, load_all, load_runbook};
use clap::Args;
use serde_json::{Value, json};

use super::check::contents;
use super::force::{Force, in_force};
use super::{guard, picture};
use crate::commands::Done;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::{DIM, RED};
use crate::table;
use crate::words;

/// Show all runbooks of the project, and whether what they say is in force.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman runbooks list")]
pub(super) struct List {}

/// Show one runbook: its pipelines with their phases, its guards, workers and routes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman runbooks show feature\n  banksman runbooks show drafts/triage.toml")]
pub(super) struct Show {
    /// The runbook, by name or file
    name: String,
}

impl List {
    pub(super) fn run(self, context: &Context) -> Done {
        let project = context.project()?;
        let loaded = load_all(&project)?;
        let keys = Force::keys(loaded.iter().filter_map(|(_, found)| found.as_ref().ok()));
        let snapshot = project.reader()?.view().load(&keys)?;
        let force = |runbook: &Runbook| Force::of(runbook, &snapshot, project.config());
        let data: Vec<Value> = loaded
            .iter()
            .map(|(file, found)| {
                let runbook = found.as_ref().ok();
                json!({
                    "name": file.name,
                    "file": file.path.display().to_string(),
                    "valid": runbook.is_some(),
                    "inForce": runbook.map(force).filter(|force| *force != Force::Nothing).map(Force::as_str),
                    "description": runbook.and_then(|runbook| runbook.description.as_ref()),
                    "pipelines": runbook.map(|runbook| runbook.pipelines.keys().collect::<Vec<_>>()).unwrap_or_default(),
                    "workers": runbook.map(|runbook| runbook.workers.keys().collect::<Vec<_>>()).unwrap_or_default(),
                    "routes": runbook.map_or(0, |runbook| runbook.routes.len()),
                })
            })
            .collect();
        let lost: Vec<Box<str>> =
            in_force(&snapshot).into_iter().filter(|name| loaded.iter().all(|(file, _)| *file.name != **name)).collect();
        let mut human = if loaded.is_empty() {
            format!("no runbooks yet\n{DIM}one to start from: banksman runbooks new triage{DIM:#}")
        } else {
            let rows = loaded.iter().map(|(file, found)| match found {
                Ok(runbook) => {
                    let description = runbook.description.as_deref().unwrap_or("-").to_owned();
                    vec![file.name.clone(), force(runbook).coloured(), contents(runbook), description]
                }
                Err(error) => vec![file.name.clone(), "?".into(), format!("{RED}wrong{RED:#}"), mistakes(error)],
            });
            table::render(&["NAME", "IN FORCE", "CONTENTS", "DESCRIPTION"], rows.collect())
        };
        for (file, _) in loaded.iter().filter(|(_, found)| found.as_ref().is_ok_and(|runbook| force(runbook) == Force::Differs)) {
            let name = words::last(&file.name);
            human += &format!("\n{DIM}{} differs from what is in force: banksman runbooks apply {name}{DIM:#}", file.name);
        }
        for name in &lost {
            human += &format!("\n{DIM}{name} is in force and has no file: banksman runbooks drop {}{DIM:#}", words::last(name));
        }
        context.printer.result(json!({ "runbooks": data, "withoutFile": lost }), human);
        Ok(exit::OK)
    }
}

fn mistakes(error: &RunbookError) -> String {
    match error {
        RunbookError::Wrong(wrong) => {
            let more = wrong.list.len() + wrong.more - 1;
            let rest = if more == 0 { String::new() } else { format!(" (and {more} more)") };
            wrong.list.first().map_or_else(String::new, |first| format!("line {}: {}{rest}", first.line, first.message))
        }
        RunbookError::NotFound { .. } | RunbookError::Io { .. } => error.to_string(),
    }
}

impl Show {
    pub(super) fn run(self, context: &Context) -> Done {
        let runbook = load_runbook(&context.project()?, &self.name)?;
        context.printer.result(runbook_json(&runbook), picture::runbook(&runbook));
        Ok(exit::OK)
    }
}

fn runbook_json(runbook: &Runbook) -> Value {
    let terms = |ttl: Option<banksman_core::Span>| ttl.map(|ttl| ttl.to_string());
    json!({
        "name": runbook.name,
        "description": runbook.description,
        "pipelines": runbook.pipelines.values().map(pipeline_json).collect::<Vec<_>>(),
        "guards": runbook.guards.values().map(guard::json).collect::<Vec<_>>(),
        "locks": runbook.locks.iter().map(|(name, lock)| {
            json!({ "name": name, "ttl": terms(lock.ttl), "maxHold": terms(lock.max_hold) })
        }).collect::<Vec<_>>(),
        "semaphores": runbook.semaphores.iter().map(|(name, semaphore)| {
            json!({ "name": name, "capacity": semaphore.capacity, "ttl": terms(semaphore.ttl) })
        }).collect::<Vec<_>>(),
        "queues": runbook.queues.iter().map(|(name, queue)| json!({
            "name": name,
            "visibilityTimeout": terms(queue.visibility_timeout),
            "maxAttempts": queue.max_attempts,
            "deadLetter": queue.dead_letter,
            "maxLength": queue.max_length,
        })).collect::<Vec<_>>(),
        "workers": runbook.workers.values().map(|worker| json!({
            "name": worker.name,
            "queue": worker.queue,
            "job": picture::job(&worker.job),
            "concurrency": worker.concurrency,
            "wakeOn": worker.wake_on.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "retryDelay": worker.retry_delay.to_string(),
        })).collect::<Vec<_>>(),
        "routes": runbook.routes.iter().map(|route| json!({
            "on": route.on.to_string(),
            "then": route.then.iter().map(picture::then).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn pipeline_json(def: &PipelineDef) -> Value {
    let vars =
        def.plan.vars.iter().map(|(name, default)| json!({ "name": name, "required": default.is_none(), "default": default }));
    json!({
        "name": def.plan.name,
        "description": def.description,
        "vars": vars.collect::<Vec<_>>(),
        "phases": def.plan.phases.iter().enumerate().map(|(index, phase)| phase_json(&def.plan, index, phase)).collect::<Vec<_>>(),
    })
}

fn phase_json(plan: &Plan, index: usize, phase: &Phase) -> Value {
    let next = match &phase.then {
        After::Next => plan.phases.get(index + 1).map(|below| below.name.to_string()),
        After::Phase(name) => Some(name.to_string()),
        After::Done => None,
    };
    let on_fail = match &phase.on_fail {
        OnFail::Fail => json!({ "do": "fail" }),
        OnFail::Retry { times } => json!({ "do": "retry", "times": times }),
        OnFail::Phase { to, times } => json!({ "do": "phase", "phase": to, "times": times }),
    };
    let slots = phase.needs.iter().filter_map(|need| match need {
        Need::Slots { name, weight } => Some(json!({ "name": name, "weight": weight })),
        Need::Lock(_) | Need::Kept { .. } => None,
    });
    let locks = phase.needs.iter().filter(|need| matches!(need, Need::Lock(_))).map(Need::name);
    json!({
        "name": phase.name,
        "action": picture::action(&phase.action),
        "pre": phase.pre.iter().map(|guard| &guard.name).collect::<Vec<_>>(),
        "post": phase.post.iter().map(|guard| &guard.name).collect::<Vec<_>>(),
        "locks": locks.collect::<Vec<_>>(),
        "hold": if phase.keeps { "pipeline" } else { "phase" },
        "semaphores": slots.collect::<Vec<_>>(),
        "timeout": phase.timeout.map(|timeout| timeout.to_string()),
        "retries": phase.retries,
        "next": next,
        "onFail": on_fail,
    })
}
