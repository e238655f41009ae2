//! Actions of runs: commands, agents, merges; and strategies, which consist of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use banksman_core::pipeline::plan::{Merge, MergeHow, Push, RunCommand, Text};
use banksman_core::pipeline::strategy::{APPROACH_LIMIT, Approach, Fallback};
use toml::de::DeValue;

use super::read::{Spot, View, text};
use super::{Build, Template, Uses, own};
use crate::diagnostic::{At, Code};

impl<'a> Build<'a, '_> {
    pub(super) fn read_agents(&mut self, root: View<'a>) {
        for (name, _, value) in root.view("agent").map(|all| all.entries()).unwrap_or_default() {
            let words = View::of(value).map(|agent| agent.many("command")).unwrap_or_default();
            self.agents.insert(name, words.iter().filter_map(|word| word.get_ref().as_str()).map(Into::into).collect());
        }
    }

    /// The action of a phase, an approach or a worker, if a run carries it out.
    pub(super) fn run_command(&mut self, view: View<'a>, uses: &mut Uses) -> Option<RunCommand> {
        if let Some(run) = view.str("run") {
            uses.lines.push(Template { text: run.into(), at: view.value_at("run"), file: None });
            return Some(RunCommand::Run(run.into()));
        }
        if view.get("argv").is_some() {
            let words = view.many("argv").into_iter().filter_map(|word| Some((word.get_ref().as_str()?, word.span())));
            let argv: Vec<(&str, At)> = words.collect();
            uses.templates.extend(argv.iter().map(|(text, at)| Template { text: (*text).into(), at: at.clone(), file: None }));
            return Some(RunCommand::Argv(argv.into_iter().map(|(text, _)| text.into()).collect()));
        }
        if view.get("agent").is_some() {
            return self.agent(view, uses);
        }
        view.view("merge").and_then(|merge| merge_of(merge, uses)).map(RunCommand::Merge)
    }

    fn agent(&mut self, view: View<'a>, uses: &mut Uses) -> Option<RunCommand> {
        let prompt = self.prompt(view);
        let name = view.str("agent")?;
        let Some(command) = self.agents.get(name).cloned() else {
            let names: Vec<&str> = self.agents.keys().copied().collect();
            self.no_such("agent", name, view.value_at("agent"), names);
            return None;
        };
        let prompt = prompt?;
        uses.templates.push(prompt.clone());
        Some(RunCommand::Agent { name: own(name)?, command, prompt: prompt.text })
    }

    /// The prompt, from the runbook or from its file.
    fn prompt(&mut self, view: View<'a>) -> Option<Template> {
        let (here, file) = (view.get("prompt"), view.get("prompt_file"));
        match (here, file) {
            (Some(_), Some(_)) => {
                let (later, other) = if view.key_at("prompt").start > view.key_at("prompt_file").start {
                    ("prompt", "prompt_file")
                } else {
                    ("prompt_file", "prompt")
                };
                let message = format!("`{later}` beside `{other}`: an agent has one prompt");
                self.sink.add(Code::Conflict, view.key_at(later), message);
                None
            }
            (None, None) => {
                let hint = "add `prompt = …` or `prompt_file = …`";
                self.sink.hint(Code::MissingKey, view.key_at("agent"), "the agent has no prompt", hint);
                None
            }
            (Some(prompt), None) => {
                let text = prompt.get_ref().as_str()?;
                if text.trim().is_empty() {
                    self.sink.add(Code::OutOfRange, prompt.span(), "the prompt is empty");
                }
                Some(Template { text: text.into(), at: prompt.span(), file: None })
            }
            (None, Some(path)) => self.prompt_file(path.get_ref().as_str()?, path.span()),
        }
    }

    fn prompt_file(&mut self, path: &str, at: At) -> Option<Template> {
        if path.starts_with('/') {
            self.sink.hint(
                Code::File,
                at,
                "the path of a prompt cannot be absolute",
                "write it as seen from the runbook's folder",
            );
            return None;
        }
        match (self.files)(path) {
            Ok(text) => {
                let text: Arc<str> = text.into();
                Some(Template { text: (&*text).into(), at, file: Some((path.into(), text)) })
            }
            Err(why) => {
                self.sink.add(Code::File, at, format!("{path:?} cannot be read: {why}"));
                None
            }
        }
    }

    pub(super) fn read_strategies(&mut self, root: View<'a>) {
        for (name, _, value) in root.view("strategy").map(|all| all.entries()).unwrap_or_default() {
            let Some(view) = View::of(value) else {
                self.strategies.insert(name, Default::default());
                continue;
            };
            let mut uses = Uses::default();
            let views = view.views("approach");
            let mut names = BTreeSet::new();
            for approach in &views {
                if let Some(name) = approach.str("name").filter(|name| !names.insert(*name)) {
                    self.sink.add(Code::Duplicate, approach.value_at("name"), format!("there are two approaches {name:?}"));
                }
            }
            if let Some(extra) = views.get(APPROACH_LIMIT) {
                self.sink.add(Code::OutOfRange, extra.at(), format!("a strategy can have at most {APPROACH_LIMIT} approaches"));
            }
            let approaches = views.into_iter().filter_map(|approach| self.approach(approach, &mut uses)).collect();
            self.strategies.insert(name, (approaches, uses));
        }
    }

    fn approach(&mut self, view: View<'a>, uses: &mut Uses) -> Option<Approach> {
        let run_command = self.run_command(view, uses)?;
        let fallback_on = view.many("fallback_on").into_iter().filter_map(fallback).collect();
        Some(Approach { name: view.name("name")?, run_command, fallback_on, timeout: view.span("timeout") })
    }
}

fn fallback(value: Spot<'_>) -> Option<Fallback> {
    match value.get_ref() {
        DeValue::String(word) if word == "any" => Some(Fallback::Any),
        DeValue::String(word) if word == "timeout" => Some(Fallback::Timeout),
        DeValue::Table(table) => Some(Fallback::Error(table.get("error")?.get_ref().as_str()?.into())),
        _ => None,
    }
}

fn merge_of(view: View<'_>, uses: &mut Uses) -> Option<Merge> {
    let how = match view.str("how") {
        Some(word) => MergeHow::ALL.into_iter().find(|how| how.as_str() == word)?,
        None => MergeHow::FastForward,
    };
    Some(Merge { branch: text_of(view, "branch", uses)?, into: text_of(view, "into", uses)?, how })
}

/// A text of a table. Records its variable.
pub(super) fn text_of(view: View<'_>, key: &str, uses: &mut Uses) -> Option<Text> {
    used(view.get(key)?, uses)
}

/// A text. Records its variable.
pub(super) fn used(value: Spot<'_>, uses: &mut Uses) -> Option<Text> {
    let text = text(value)?;
    if let Text::Var { var } = &text {
        uses.vars.push((var.clone(), value.span()));
    }
    Some(text)
}

/// An item to push into a queue.
pub(super) fn push_of(value: Spot<'_>, uses: &mut Uses) -> Option<Push> {
    let Some(view) = View::of(value) else {
        return Some(Push { queue: own(value.get_ref().as_str()?)?, priority: 0, vars: Vec::new() });
    };
    let vars = view.many("vars").into_iter().filter_map(|var| Some((var.get_ref().as_str()?.into(), var.span())));
    let vars: Vec<(Box<str>, At)> = vars.collect();
    uses.vars.extend(vars.iter().cloned());
    let vars = vars.into_iter().map(|(var, _)| var).collect();
    Some(Push { queue: view.name("queue")?, priority: view.number("priority").unwrap_or(0), vars })
}
