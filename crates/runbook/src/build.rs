//! The second pass over a runbook: the meaning of its parts together. References, variables, the order of phases.
//!
//! * `build/pipeline.rs`: pipelines and their phases, `build/order.rs`: their order;
//! * `build/condition.rs`: guards; `build/run_command.rs`: commands and strategies;
//! * `build/others.rs`: locks, semaphores, queues, workers, routes.

mod condition;
mod order;
mod others;
mod pipeline;
mod read;
mod run_command;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use banksman_core::Name;
use banksman_core::guard::Guard;
use banksman_core::pipeline::plan::{check_name, env_name};
use banksman_core::pipeline::strategy::Approach;
use banksman_core::suggest::closest;

use crate::diagnostic::{At, Code, Diagnostic, Sink};
use crate::runbook::Runbook;
use crate::template::{TemplateError, check_template};
use crate::{Files, PHASE_VARS};
use read::View;

/// The state of a build.
struct Build<'a, 's> {
    sink: &'s mut Sink<'a>,
    name: &'a str,
    files: Files<'s>,
    agents: BTreeMap<&'a str, Vec<Box<str>>>,
    guards: BTreeMap<&'a str, (Option<Guard>, Uses)>,
    strategies: BTreeMap<&'a str, (Vec<Approach>, Uses)>,
    /// The guards and strategies that were checked with the variables of a pipeline: kind, name, pipeline.
    seen: BTreeSet<(&'static str, &'a str, &'a str)>,
    /// The capacities of the semaphores of this runbook.
    capacities: BTreeMap<&'a str, u32>,
}

/// The variables that a part refers to.
#[derive(Debug, Clone, Default)]
struct Uses {
    vars: Vec<(Box<str>, At)>,
    templates: Vec<Template>,
    /// Shell command lines.
    lines: Vec<Template>,
}

/// A template with its place.
#[derive(Debug, Clone)]
struct Template {
    text: Box<str>,
    at: At,
    /// The name and text of its file, if that is not the runbook.
    file: Option<(Box<str>, Arc<str>)>,
}

/// The scope in which variables are looked up.
#[derive(Debug, Clone, Copy)]
enum VariableScope<'a> {
    Pipeline(&'a str),
    Worker,
}

impl VariableScope<'_> {
    /// How to define or name such a variable.
    fn hint(self, var: &str) -> String {
        match self {
            VariableScope::Pipeline(_) => "declare it in `vars` of the pipeline, with a default if a phase sets it".into(),
            VariableScope::Worker => format!("what is in the item is written {{{{ item.{var} }}}}"),
        }
    }
}

impl fmt::Display for VariableScope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VariableScope::Pipeline(name) => write!(f, "pipeline {name:?}"),
            VariableScope::Worker => f.write_str("a worker"),
        }
    }
}

/// Builds a runbook from a checked table. If there are diagnostics, the result is incomplete.
pub(crate) fn build<'a>(
    sink: &mut Sink<'a>,
    name: &'a str,
    root: &'a toml::Spanned<toml::de::DeValue<'a>>,
    files: Files<'_>,
) -> Runbook {
    let mut runbook = Runbook { name: name.into(), ..Runbook::default() };
    let Some(root) = View::of(root) else { return runbook };
    let mut build = Build {
        sink,
        name,
        files,
        agents: BTreeMap::new(),
        guards: BTreeMap::new(),
        strategies: BTreeMap::new(),
        seen: BTreeSet::new(),
        capacities: BTreeMap::new(),
    };
    runbook.description = root.string("description");
    build.read_shared(root, &mut runbook);
    build.read_agents(root);
    build.read_guards(root, &mut runbook);
    build.read_strategies(root);
    build.read_pipelines(root, &mut runbook);
    build.check_unused();
    build.read_workers(root, &mut runbook);
    build.read_routes(root, &mut runbook);
    runbook
}

impl<'a> Build<'a, '_> {
    /// Reports a reference to an unknown name.
    fn no_such<'n>(&mut self, what: &str, name: &str, at: At, names: impl IntoIterator<Item = &'n str>) {
        let scope = if what == "phase" { "pipeline" } else { "runbook" };
        let message = format!("there is no {what} {name:?} in this {scope}");
        // No suggestions for diagnostics that are not shown: the lists of names may be long.
        let near = if self.sink.is_full() { None } else { closest(name, names) };
        match near {
            Some(near) => self.sink.hint(Code::UnknownReference, at, message, format!("did you mean {near:?}?")),
            None if what == "phase" => self.sink.add(Code::UnknownReference, at, message),
            None => self.sink.hint(Code::UnknownReference, at, message, format!("define it: [{what}.{}]", quoted(name))),
        }
    }

    /// Checks that all variables exist.
    fn check_uses(&mut self, uses: &Uses, vars: &BTreeSet<&str>, scope: VariableScope<'_>) {
        for (var, at) in &uses.vars {
            if !vars.contains(&**var) {
                let near = closest(var, vars.iter().copied()).map(|near| format!("did you mean {near:?}?"));
                let hint = match PHASE_VARS.contains(&&**var) {
                    true => {
                        "only what a phase does can name it; a command of a guard finds the pipeline in $BANKSMAN_PIPELINE".into()
                    }
                    false => near.unwrap_or_else(|| scope.hint(var)),
                };
                self.sink.hint(Code::UnknownVariable, at.clone(), format!("there is no variable {var:?} in {scope}"), hint);
            }
        }
        for template in &uses.templates {
            let wrong = check_template(&template.text, vars).err().unwrap_or_default();
            wrong.into_iter().for_each(|wrong| self.bad_template(template, wrong, scope));
        }
        if let VariableScope::Pipeline(_) = scope {
            uses.lines.iter().for_each(|line| self.check_line(line, vars, scope));
        }
    }

    /// Reports misspelt variables in a shell command line. Other unknown variables may be set by a phase, or by the
    /// line itself.
    fn check_line(&mut self, line: &Template, vars: &BTreeSet<&str>, scope: VariableScope<'_>) {
        let names: BTreeMap<String, &str> =
            vars.iter().filter(|var| !PHASE_VARS.contains(*var)).map(|var| (env_name(var), *var)).collect();
        // A pipeline can have a variable that is called like one of every phase.
        let is_shadowing = |name: &str| PHASE_VARS.iter().any(|var| check_name(var).is_ok() && env_name(var) == name);
        for at in shell_vars(&line.text) {
            let name = &line.text[at.clone()];
            if names.contains_key(name) || is_shadowing(name) || line.text.contains(&format!("{name}=")) {
                continue;
            }
            let Some(near) = closest(name.trim_start_matches(VAR), names.values().copied()) else { continue };
            let message = format!("there is no variable for ${name} in {scope}");
            let hint = format!("did you mean ${}? One that a phase sets is declared in `vars`, with a default", env_name(near));
            self.sink.hint(Code::UnknownVariable, place_in(self.sink.text, line, Some(at)), message, hint);
        }
    }

    /// Checks the syntax of strategies that no pipeline uses: there are no variables to check them against.
    fn check_unused(&mut self) {
        let used: BTreeSet<&str> = self.seen.iter().filter(|(what, ..)| *what == "strategy").map(|(_, name, _)| *name).collect();
        let unused: Vec<Template> = self
            .strategies
            .iter()
            .filter(|(name, _)| !used.contains(*name))
            .flat_map(|(_, (_, uses))| uses.templates.clone())
            .collect();
        for template in unused {
            let wrong = check_template(&template.text, &BTreeSet::new()).err().unwrap_or_default();
            let wrong = wrong.into_iter().filter(|wrong| wrong.variable.is_none());
            wrong.for_each(|wrong| self.bad_template(&template, wrong, VariableScope::Worker));
        }
    }

    fn bad_template(&mut self, template: &Template, wrong: TemplateError, scope: VariableScope<'_>) {
        let inside = wrong.at;
        let (span, elsewhere) = match &template.file {
            Some(file) => (inside.unwrap_or(0..0), Some(file.clone())),
            None => (place_in(self.sink.text, template, inside), None),
        };
        let (code, message, hint) = match wrong.variable {
            Some(var) => {
                let hint = wrong.hint.unwrap_or_else(|| scope.hint(&var).into());
                (Code::UnknownVariable, format!("{} in {scope}", wrong.message).into(), Some(hint))
            }
            None => (Code::Template, wrong.message, wrong.hint),
        };
        self.sink.put(Diagnostic { code, message, hint, elsewhere, span, line: 0, column: 0 });
    }

    /// The names that templates and conditions of a pipeline may use.
    fn known<'v>(vars: impl Iterator<Item = &'v str>) -> BTreeSet<&'v str> {
        vars.chain(PHASE_VARS).collect()
    }
}

/// Prefix of pipeline variables in the environment.
const VAR: &str = "VAR_";

/// The places of such variables in a shell command line: `$VAR_TITLE` or `${VAR_TITLE…`.
fn shell_vars(line: &str) -> Vec<At> {
    let used = |start: &usize| line[..*start].ends_with('$') || line[..*start].ends_with("${");
    let starts = line.match_indices(VAR).map(|(start, _)| start).filter(used);
    let is_name = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    starts.map(|start| start..start + line[start..].find(|letter| !is_name(letter)).unwrap_or(line.len() - start)).collect()
}

/// The place of a part of a template in the runbook. For a text with escapes this is the place of the text.
fn place_in(file: &str, template: &Template, inside: Option<At>) -> At {
    let (Some(inside), Some(raw)) = (inside, file.get(template.at.clone())) else { return template.at.clone() };
    match raw.find(&*template.text) {
        Some(found) => template.at.start + found + inside.start..template.at.start + found + inside.end,
        None => template.at.clone(),
    }
}

/// A name as it is written in a table header.
fn quoted(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if plain && !name.is_empty() { name.to_owned() } else { format!("{name:?}") }
}

/// A name that was checked before.
fn own(text: &str) -> Option<Name> {
    Name::new(text).ok()
}
