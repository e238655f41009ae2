//! The inputs that a guard needs, and the events that could change its result.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cmd, Condition, Guard, IssueFilter, PipelineFilter, Predicate};
use crate::event::Source;
use crate::pipeline::plan::{Context, Text, env_name};

/// How many tasks a guard listens to by their ids; a guard about more tasks listens to all.
const NAMED_LIMIT: usize = 100;

/// The inputs that conditions need, with variables substituted. A text whose variable has no value is left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wants {
    /// Locks, by name.
    pub locks: BTreeSet<Box<str>>,
    /// Semaphores, by name.
    pub semaphores: BTreeSet<Box<str>>,
    pub issues: BTreeSet<IssueFilter>,
    /// The filters among `issues` of which the guard asks whether the issues are blocked.
    pub blocked: BTreeSet<IssueFilter>,
    /// Branches, by name.
    pub branches: BTreeSet<Box<str>>,
    /// Which branch is merged into which.
    pub merged: BTreeSet<(Box<str>, Box<str>)>,
    /// Files by path, each with the regular expressions to look for in it.
    pub files: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    /// Pipelines, by id.
    pub pipelines: BTreeSet<Box<str>>,
    /// Pipelines that run.
    pub running: BTreeSet<PipelineFilter>,
    pub commands: BTreeSet<Cmd>,
}

impl Wants {
    /// Whether all of it is in a few rows of the store: locks, semaphores and pipelines.
    pub fn is_internal(&self) -> bool {
        self.issues.is_empty() && !self.asks_outside()
    }

    /// Whether it asks about the world outside, which sends no event when it changes.
    pub fn asks_outside(&self) -> bool {
        let all = self.branches.is_empty() && self.merged.is_empty() && self.files.is_empty() && self.commands.is_empty();
        !all || self.issues.iter().any(|filter| filter.from.is_some())
    }

    /// Removes what is in the workspace of the pipeline: files, and commands with their lists of issues. Returns whether
    /// there was anything.
    pub fn remove_workspace(&mut self) -> bool {
        let (files, commands, issues) = (self.files.len(), self.commands.len(), self.issues.len());
        self.files.clear();
        self.commands.clear();
        self.issues.retain(|filter| filter.from.is_none());
        files + commands + (issues - self.issues.len()) > 0
    }

    /// Adds the wants of another guard.
    pub fn extend(&mut self, other: Wants) {
        self.locks.extend(other.locks);
        self.semaphores.extend(other.semaphores);
        self.issues.extend(other.issues);
        self.blocked.extend(other.blocked);
        self.branches.extend(other.branches);
        self.merged.extend(other.merged);
        for (path, patterns) in other.files {
            self.files.entry(path).or_default().extend(patterns);
        }
        self.pipelines.extend(other.pipelines);
        self.running.extend(other.running);
        self.commands.extend(other.commands);
    }

    /// The sources whose events could change an answer that depends on all this; one without an id stands for all of
    /// its kind. The world outside sends no events.
    pub fn sources(&self) -> Vec<Source> {
        let about = |component: &str, id: Option<&str>| Source { component: component.into(), id: id.map(Into::into) };
        let mut all: Vec<Source> = self.locks.iter().map(|name| about("lock", Some(name))).collect();
        all.extend(self.semaphores.iter().map(|name| about("semaphore", Some(name))));
        all.extend(self.pipelines.iter().map(|id| about("pipeline", Some(id))));
        if !self.running.is_empty() {
            all.push(about("pipeline", None));
        }
        let ours: Vec<&IssueFilter> = self.issues.iter().filter(|filter| filter.from.is_none()).collect();
        let named: Option<Vec<BTreeSet<&str>>> = ours.iter().map(|filter| self.named(filter)).collect();
        match named.map(|ids| ids.into_iter().flatten().collect::<BTreeSet<&str>>()) {
            Some(ids) if ids.len() <= NAMED_LIMIT => all.extend(ids.into_iter().map(|id| about("task", Some(id)))),
            Some(_) | None => all.push(about("task", None)),
        }
        if !ours.is_empty() {
            // A finished import makes all its tasks visible at once.
            all.push(about("import", None));
        }
        if ours.iter().any(|filter| filter.section.is_some()) {
            all.push(about("section", None));
        }
        all
    }

    /// The ids of the only tasks whose events can change the answer about these issues, if they are known. A task's own
    /// events show that it is completed; but other tasks decide whether it is blocked, and a filter by status may ask
    /// for that.
    fn named<'a>(&self, filter: &'a IssueFilter) -> Option<BTreeSet<&'a str>> {
        let is_certain = !filter.ids.is_empty() && filter.status.is_none() && !self.blocked.contains(filter);
        is_certain.then(|| filter.ids.iter().filter_map(Text::literal).collect())
    }

    fn collect(&mut self, condition: &Condition, vars: &Context) {
        match condition {
            Condition::All(parts) | Condition::Any(parts) => parts.iter().for_each(|part| self.collect(part, vars)),
            Condition::Not(part) => self.collect(part, vars),
            Condition::Predicate(predicate) => self.add(predicate, vars),
        }
    }

    fn add(&mut self, predicate: &Predicate, vars: &Context) {
        // A variable without a value adds nothing.
        let get = |text: &Text| text.name(vars);
        match predicate {
            Predicate::LockFree { lock } | Predicate::LockHeld { lock, .. } => self.locks.extend(get(lock)),
            Predicate::SemaphoreAvailable { semaphore, .. } => self.semaphores.extend(get(semaphore)),
            Predicate::IssuesComplete { filter } => self.issues.extend(filter.with(vars)),
            Predicate::NoBlockedIssues { filter } => {
                self.issues.extend(filter.with(vars));
                self.blocked.extend(filter.with(vars));
            }
            Predicate::BranchExists { branch } | Predicate::BranchClean { branch } => self.branches.extend(get(branch)),
            Predicate::BranchMerged { branch, into } => self.merged.extend(get(branch).zip(get(into))),
            Predicate::FileExists { path } => self.file(get(path), None),
            Predicate::FileContains { path, pattern } => self.file(get(path), Some(pattern)),
            Predicate::PipelineInPhase { pipeline, .. } | Predicate::PipelineComplete { pipeline } => {
                self.pipelines.extend(get(pipeline))
            }
            Predicate::PipelineRunning { filter } => self.running.extend(filter.with(vars)),
            Predicate::Command { cmd, .. } => self.commands.extend(cmd.with(vars)),
        }
    }

    fn file(&mut self, path: Option<Box<str>>, pattern: Option<&str>) {
        if let Some(path) = path {
            self.files.entry(path).or_default().extend(pattern.map(Into::into));
        }
    }
}

impl Guard {
    /// The inputs that its condition needs, with these variables.
    pub fn wants(&self, vars: &Context) -> Wants {
        let mut wants = Wants::default();
        wants.collect(&self.condition, vars);
        wants
    }

    /// Whether a line for the shell mentions the environment variable of this variable.
    pub fn mentions(&self, var: &str) -> bool {
        self.condition.mentions(&env_name(var))
    }

    /// The variables that its conditions name. Lines for the shell may [mention](Guard::mentions) others.
    pub fn vars<'a>(&'a self) -> BTreeSet<&'a str> {
        let mut texts = Vec::new();
        self.condition.texts(&mut texts);
        let var = |text: &'a Text| match text {
            Text::Literal(_) => None,
            Text::Var { var } => Some(&**var),
        };
        texts.into_iter().filter_map(var).collect()
    }

    /// The sources whose events could change the answer with these variables. The world outside sends no events.
    pub fn sources(&self, vars: &Context) -> Vec<Source> {
        self.wants(vars).sources()
    }
}

impl Condition {
    fn mentions(&self, env_name: &str) -> bool {
        let line = |cmd: &Cmd| matches!(cmd, Cmd::Run(line) if line.contains(env_name));
        match self {
            Condition::All(parts) | Condition::Any(parts) => parts.iter().any(|part| part.mentions(env_name)),
            Condition::Not(part) => part.mentions(env_name),
            Condition::Predicate(Predicate::Command { cmd, .. }) => line(cmd),
            Condition::Predicate(Predicate::IssuesComplete { filter } | Predicate::NoBlockedIssues { filter }) => {
                filter.from.as_ref().is_some_and(line)
            }
            Condition::Predicate(_) => false,
        }
    }

    /// All texts that may be variables.
    fn texts<'a>(&'a self, all: &mut Vec<&'a Text>) {
        match self {
            Condition::All(parts) | Condition::Any(parts) => parts.iter().for_each(|part| part.texts(all)),
            Condition::Not(part) => part.texts(all),
            Condition::Predicate(predicate) => predicate.texts(all),
        }
    }
}

impl Predicate {
    fn texts<'a>(&'a self, all: &mut Vec<&'a Text>) {
        match self {
            Predicate::LockHeld { lock, by } => all.extend(std::iter::once(lock).chain(by)),
            Predicate::BranchMerged { branch, into } => all.extend([branch, into]),
            Predicate::IssuesComplete { filter } | Predicate::NoBlockedIssues { filter } => all.extend(filter.texts()),
            Predicate::Command { cmd, .. } => all.extend(cmd.texts()),
            Predicate::PipelineRunning { filter } => all.extend(filter.texts()),
            Predicate::LockFree { lock: text }
            | Predicate::SemaphoreAvailable { semaphore: text, .. }
            | Predicate::BranchExists { branch: text }
            | Predicate::BranchClean { branch: text }
            | Predicate::FileExists { path: text }
            | Predicate::FileContains { path: text, .. }
            | Predicate::PipelineInPhase { pipeline: text, .. }
            | Predicate::PipelineComplete { pipeline: text } => all.push(text),
        }
    }
}

impl Cmd {
    /// Its arguments.
    pub(super) fn texts(&self) -> &[Text] {
        match self {
            Cmd::Run(_) => &[],
            Cmd::Argv(argv) => argv,
        }
    }
}

impl IssueFilter {
    /// Everything that may be a variable.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Text> {
        let from = self.from.as_ref().map(Cmd::texts).unwrap_or_default();
        self.section.iter().chain(&self.label).chain(&self.ids).chain(from)
    }
}
