//! The second look at a runbook: what its parts mean together. References, variables, what follows what.
//!
//! * `build/pipeline.rs`: pipelines and their phases, `build/order.rs`: what follows what;
//! * `build/condition.rs`: guards; `build/run_command.rs`: what is done, and strategies;
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
use banksman_core::pipeline::plan::env_name;
use banksman_core::pipeline::strategy::Approach;
use banksman_core::suggest::closest;

use crate::diagnostic::{At, Code, Diagnostic, Sink};
use crate::runbook::Runbook;
use crate::template::{TemplateError, check_template};
use crate::{Files, PHASE_VARS};
use read::View;

/// What the parts of a runbook are made from.
struct Build<'a, 's> {
    sink: &'s mut Sink<'a>,
    name: &'a str,
    files: Files<'s>,
    agents: BTreeMap<&'a str, Vec<Box<str>>>,
    guards: BTreeMap<&'a str, (Option<Guard>, Uses)>,
    strategies: BTreeMap<&'a str, (Vec<Approach>, Uses)>,
    /// Which guards and strategies were looked at with the variables of which pipeline.
    seen: BTreeSet<(&'static str, &'a str, &'a str)>,
    /// How many slots the semaphores of this runbook have.
    capacities: BTreeMap<&'a str, u32>,
}

/// The variables that something needs.
#[derive(Debug, Clone, Default)]
struct Uses {
    vars: Vec<(Box<str>, At)>,
    templates: Vec<Template>,
    /// Lines for the shell.
    lines: Vec<Template>,
}

/// A template, and where it stands.
#[derive(Debug, Clone)]
struct Template {
    text: Box<str>,
    at: At,
    /// The file that it is in, if it is not the runbook.
    file: Option<(Box<str>, Arc<str>)>,
}

/// Where variables were looked for.
#[derive(Debug, Clone, Copy)]
enum VariableScope<'a> {
    Pipeline(&'a str),
    Worker,
}

impl VariableScope<'_> {
    /// How there can be such a variable.
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

/// Makes a runbook of a table that was looked at already. If anything is wrong, what comes out is not complete.
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
    /// There is no such thing in this runbook.
    fn no_such<'n>(&mut self, what: &str, name: &str, at: At, names: impl IntoIterator<Item = &'n str>) {
        let whole = if what == "phase" { "pipeline" } else { "runbook" };
        let message = format!("there is no {what} {name:?} in this {whole}");
        // Long lists are not searched for mistakes that nobody is shown.
        let near = if self.sink.is_full() { None } else { closest(name, names) };
        match near {
            Some(near) => self.sink.hint(Code::UnknownReference, at, message, format!("did you mean {near:?}?")),
            None if what == "phase" => self.sink.add(Code::UnknownReference, at, message),
            None => self.sink.hint(Code::UnknownReference, at, message, format!("define it: [{what}.{}]", quoted(name))),
        }
    }

    /// Whether all variables are there.
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

    /// Whether the variables in a line for the shell are misspelt. Others may be set by a phase, or by the line itself.
    fn check_line(&mut self, line: &Template, vars: &BTreeSet<&str>, scope: VariableScope<'_>) {
        let names: BTreeMap<String, &str> =
            vars.iter().filter(|var| !PHASE_VARS.contains(*var)).map(|var| (env_name(var), *var)).collect();
        for at in shell_vars(&line.text) {
            let name = &line.text[at.clone()];
            if names.contains_key(name) || line.text.contains(&format!("{name}=")) {
                continue;
            }
            let Some(near) = closest(name.trim_start_matches(VAR), names.values().copied()) else { continue };
            let message = format!("there is no variable for ${name} in {scope}");
            let hint = format!("did you mean ${}? One that a phase sets is declared in `vars`, with a default", env_name(near));
            self.sink.hint(Code::UnknownVariable, place_in(self.sink.text, line, Some(at)), message, hint);
        }
    }

    /// What no pipeline uses has no variables to be compared with, but must be written in the right way.
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

    /// The names that templates and conditions of a pipeline know.
    fn known<'v>(vars: impl Iterator<Item = &'v str>) -> BTreeSet<&'v str> {
        vars.chain(PHASE_VARS).collect()
    }
}

/// How the variables of a pipeline begin in the environment.
const VAR: &str = "VAR_";

/// Where a line for the shell uses such a variable: `$VAR_TITLE` or `${VAR_TITLE…`.
fn shell_vars(line: &str) -> Vec<At> {
    let used = |start: &usize| line[..*start].ends_with('$') || line[..*start].ends_with("${");
    let starts = line.match_indices(VAR).map(|(start, _)| start).filter(used);
    let is_name = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    starts.map(|start| start..start + line[start..].find(|letter| !is_name(letter)).unwrap_or(line.len() - start)).collect()
}

/// Where a part of a template stands in the runbook. Of a text with escapes only the whole is known.
fn place_in(file: &str, template: &Template, inside: Option<At>) -> At {
    let (Some(inside), Some(raw)) = (inside, file.get(template.at.clone())) else { return template.at.clone() };
    match raw.find(&*template.text) {
        Some(found) => template.at.start + found + inside.start..template.at.start + found + inside.end,
        None => template.at.clone(),
    }
}

/// A name as a part of a header.
fn quoted(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if plain && !name.is_empty() { name.to_owned() } else { format!("{name:?}") }
}

/// A name that was found to be one.
fn own(text: &str) -> Option<Name> {
    Name::new(text).ok()
}
