//! `guards check`.

use std::collections::{BTreeMap, BTreeSet};

use banksman_core::Name;
use banksman_core::guard::{Guard, GuardResult};
use banksman_core::pipeline::plan::{Context as Vars, Plan};
use banksman_core::suggest::closest;
use banksman_runbook::Runbook;
use banksman_runtime::guards::{Limits, gather};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::LoadedRunbooks;
use crate::commands::ExitResult;
use crate::commands::pipelines::variables;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::GREEN;

/// Check whether a guard holds now, and name the part that fails.
///
/// Exits with 0 if the guard holds, else with 6. A condition that cannot be evaluated fails, and is reported as unknown. Nothing
/// is changed, but the commands of the guard run.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman guards check may-deploy\n  banksman guards check reviewed --runbook feature --var branch=topic --json"
)]
pub(super) struct Check {
    /// The guard
    name: String,
    /// The runbook of the guard, by name or file; needed if several runbooks have a guard of this name
    #[arg(long, value_name = "RUNBOOK")]
    runbook: Option<String>,
    /// A variable: NAME=TEXT or NAME:=JSON; variables of the pipelines that use the guard have defaults
    #[arg(long = "var", value_name = "NAME=VALUE")]
    vars: Vec<String>,
}

#[derive(Serialize)]
struct Checked<'a> {
    guard: &'a Name,
    runbook: &'a str,
    passed: bool,
}

impl Check {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let loaded = LoadedRunbooks::load(context, self.runbook.as_deref())?;
        let (runbook, guard) = self.find(loaded, context)?;
        let vars = self.bind(&runbook, &guard)?;
        let inputs = gather(&context.project()?, &guard.wants(&vars), &vars, Limits::of(&guard))?;
        match guard.evaluate(&inputs) {
            GuardResult::Passed => {
                let human = format!("guard {} of runbook {} {GREEN}holds{GREEN:#}", guard.name, runbook.name);
                context.printer.result(&Checked { guard: &guard.name, runbook: &runbook.name, passed: true }, human)
            }
            GuardResult::Failed { guard, action, part } => {
                Err(Failure::new(exit::LOCKED, "GUARD_FAILED", format!("guard {guard} does not pass: {part}"))
                    .detail("guard", &guard)
                    .detail("runbook", &runbook.name)
                    .detail("part", &part)
                    .detail("action", &action.as_str()))
            }
        }
    }

    /// The only guard with this name.
    fn find(&self, loaded: LoadedRunbooks, context: &Context) -> Result<(Runbook, Guard), Failure> {
        let names: BTreeSet<String> =
            loaded.runbooks.iter().flat_map(|runbook| runbook.guards.keys().map(ToString::to_string)).collect();
        let mut having: Vec<&Runbook> =
            loaded.runbooks.iter().filter(|runbook| runbook.guards.contains_key(self.name.as_str())).collect();
        match (having.pop(), having.is_empty()) {
            (Some(runbook), true) => {
                loaded.note_wrong(context);
                Ok((runbook.clone(), runbook.guards[self.name.as_str()].clone()))
            }
            (Some(last), false) => {
                let runbooks: Vec<&str> = having.iter().chain([&last]).map(|runbook| &*runbook.name).collect();
                let message = format!("more than one runbook has a guard {:?}: {}", self.name, runbooks.join(", "));
                Err(Failure::new(exit::USAGE, "AMBIGUOUS_NAME", message)
                    .detail("name", &self.name)
                    .detail("runbooks", &runbooks)
                    .hint("select one with --runbook"))
            }
            // The guard may be in the runbook that cannot be read.
            (None, _) => Err(match loaded.wrong {
                Some((_, error)) => error.into(),
                None => self.no_guard(&names),
            }),
        }
    }

    fn no_guard(&self, names: &BTreeSet<String>) -> Failure {
        let near = closest(&self.name, names.iter().map(String::as_str));
        Failure::new(exit::NOT_FOUND, "GUARD_NOT_FOUND", format!("there is no guard {:?}", self.name))
            .detail("guard", &self.name)
            .hint(near.map_or("list all guards: banksman guards list".into(), |near| format!("did you mean {near}?")))
    }

    /// The values that were given, and the defaults of the pipelines that use the guard.
    fn bind(&self, runbook: &Runbook, guard: &Guard) -> Result<Vars, Failure> {
        let users: Vec<&Plan> = runbook.pipelines.values().map(|def| &*def.plan).filter(|plan| uses(plan, guard)).collect();
        let mut known: BTreeSet<&str> = guard.vars();
        known.extend(users.iter().flat_map(|plan| plan.vars.keys()).map(|name| &**name));
        let mut vars = defaults(&users);
        for (name, value) in variables(&self.vars)? {
            if !known.contains(&*name) && !guard.mentions(&name) {
                return Err(self.no_var(&name, &known));
            }
            vars.insert(name, value);
        }
        Ok(vars)
    }

    fn no_var(&self, name: &str, known: &BTreeSet<&str>) -> Failure {
        let all = known.iter().copied().collect::<Vec<_>>().join(", ");
        let hint = match closest(name, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None if known.is_empty() => format!("guard {} has no variables", self.name),
            None => format!("variables of guard {}: {all}", self.name),
        };
        Failure::new(exit::NOT_FOUND, "VAR_NOT_FOUND", format!("guard {} has no variable {}", self.name, format::quoted(name)))
            .detail("guard", &self.name)
            .detail("var", &name)
            .hint(hint)
    }
}

/// Whether a phase of a pipeline names the guard.
fn uses(plan: &Plan, guard: &Guard) -> bool {
    plan.phases.iter().flat_map(|phase| phase.pre.iter().chain(&phase.post)).any(|other| other.name == guard.name)
}

/// The defaults on which all pipelines agree.
fn defaults(plans: &[&Plan]) -> Vars {
    let mut all: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut vars = Vars::new();
    for (name, default) in plans.iter().flat_map(|plan| &plan.vars) {
        all.entry(name).or_default().insert(default.as_ref().map(Value::to_string).unwrap_or_default());
        vars.extend(default.clone().map(|default| (name.clone(), default)));
    }
    vars.retain(|name, _| all.get(&**name).is_some_and(|values| values.len() == 1));
    vars
}
