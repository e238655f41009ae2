//! Why a condition does not hold: the smallest part that explains it, with the fact.

use super::{Cmd, CommandResult, Condition, GuardInputs, Issue, IssueFilter, PipelineFilter, Predicate, Topic, Truth};
use crate::pipeline::plan::Text;
use crate::task::Status;

/// How many parts of an "any" are named; the others are counted.
const NAMED: usize = 5;

/// The longest explanation, in characters.
const PART_LIMIT: usize = 1_000;

impl Condition {
    /// The smallest part that explains why it does not hold, as far as is known.
    pub fn part(&self, inputs: &GuardInputs) -> Box<str> {
        shorten(&self.explain(inputs, Truth::True), PART_LIMIT).into()
    }

    /// Why its truth differs from the wanted one.
    fn explain(&self, inputs: &GuardInputs, wanted: Truth) -> String {
        match self {
            Condition::Not(part) => part.explain(inputs, !wanted),
            // One part is enough to break an `all` that is to hold, and an `any` that is not to.
            Condition::All(parts) if wanted == Truth::True => explain_breaking(parts, inputs, wanted, "an empty `all` holds"),
            Condition::Any(parts) if wanted == Truth::False => {
                explain_breaking(parts, inputs, wanted, "an empty `any` does not hold")
            }
            Condition::All(parts) => explain_all(parts, inputs, wanted, "an empty `all` holds"),
            Condition::Any(parts) => explain_all(parts, inputs, wanted, "an empty `any` does not hold"),
            Condition::Predicate(predicate) => predicate.fact(inputs),
        }
    }
}

impl Predicate {
    /// The fact, whether it was wanted or not.
    fn fact(&self, inputs: &GuardInputs) -> String {
        let facts = match self.topic(inputs) {
            Ok(topic) => Facts { inputs, topic },
            Err(var) => return format!("not known: the variable {var} has no value"),
        };
        let yes = match self.truth(inputs) {
            Truth::Unknown => return facts.unknown(),
            known => known == Truth::True,
        };
        match self {
            Predicate::LockFree { .. } | Predicate::LockHeld { .. } => facts.lock(),
            Predicate::SemaphoreAvailable { slots, .. } => facts.semaphore(*slots),
            Predicate::IssuesComplete { filter } => completed(filter.noun(), inputs.found(filter).unwrap_or_default()),
            Predicate::NoBlockedIssues { filter } => blocked(filter.noun(), inputs.found(filter).unwrap_or_default()),
            Predicate::BranchExists { .. } | Predicate::FileExists { .. } => {
                facts.say(if yes { "is there" } else { "is not there" })
            }
            Predicate::BranchClean { .. } if yes => facts.say("is clean"),
            Predicate::BranchClean { .. } => facts.say(&format!("has changes in its checkout{}", facts.reason())),
            Predicate::BranchMerged { .. } => facts.merged(yes),
            Predicate::FileContains { pattern, .. } => facts.file(pattern, yes),
            Predicate::PipelineInPhase { .. } => facts.phase(),
            Predicate::PipelineComplete { .. } => facts.say(if yes { "is done" } else { "is not done" }),
            Predicate::PipelineRunning { .. } => facts.running(),
            Predicate::Command { cmd, .. } => facts.command(cmd),
        }
    }

    /// Its subject, or the variable that has no value.
    fn topic(&self, inputs: &GuardInputs) -> Result<Topic, Box<str>> {
        let get = |text: &Text| match text {
            Text::Literal(text) => Ok(text.clone()),
            Text::Var { var } => text.name(&inputs.vars).ok_or_else(|| var.clone()),
        };
        let given = |text: &Text| text.get(&inputs.vars).map_or_else(|| get(text).map(drop), |_| Ok(()));
        Ok(match self {
            Predicate::LockFree { lock } => Topic::Lock(get(lock)?),
            Predicate::LockHeld { lock, by } => {
                by.as_ref().map(get).transpose()?;
                Topic::Lock(get(lock)?)
            }
            Predicate::SemaphoreAvailable { semaphore, .. } => Topic::Semaphore(get(semaphore)?),
            Predicate::IssuesComplete { filter } | Predicate::NoBlockedIssues { filter } => {
                filter.texts().try_for_each(|text| get(text).map(drop))?;
                Topic::Issues(filter.with(&inputs.vars).unwrap_or_default())
            }
            Predicate::BranchExists { branch } | Predicate::BranchClean { branch } => Topic::Branch(get(branch)?),
            Predicate::BranchMerged { branch, into } => Topic::Merged(get(branch)?, get(into)?),
            Predicate::FileExists { path } | Predicate::FileContains { path, .. } => Topic::File(get(path)?),
            Predicate::PipelineInPhase { pipeline, .. } | Predicate::PipelineComplete { pipeline } => {
                Topic::Pipeline(get(pipeline)?)
            }
            Predicate::PipelineRunning { filter } => {
                filter.texts().try_for_each(|text| get(text).map(drop))?;
                Topic::Running(filter.with(&inputs.vars).unwrap_or_default())
            }
            Predicate::Command { cmd, .. } => {
                cmd.texts().iter().try_for_each(given)?;
                Topic::Command(cmd.with(&inputs.vars).unwrap_or_else(|| cmd.clone()))
            }
        })
    }
}

/// Explains the first part that breaks it: one that is known to, or else one that is unknown.
fn explain_breaking(parts: &[Condition], inputs: &GuardInputs, wanted: Truth, empty: &str) -> String {
    let with = |truth: Truth| parts.iter().find(|part| part.truth(inputs) == truth);
    match with(!wanted).or_else(|| with(Truth::Unknown)) {
        Some(part) => part.explain(inputs, wanted),
        None => empty.to_owned(),
    }
}

/// Explains a condition that any part alone could have decided: the first unknown part, or else all parts.
fn explain_all(parts: &[Condition], inputs: &GuardInputs, wanted: Truth, empty: &str) -> String {
    if let Some(part) = parts.iter().find(|part| part.truth(inputs) == Truth::Unknown) {
        return part.explain(inputs, wanted);
    }
    let mut words: Vec<String> = parts.iter().take(NAMED).map(|part| part.explain(inputs, wanted)).collect();
    words.dedup();
    if words.is_empty() {
        return empty.to_owned();
    }
    if parts.len() > NAMED {
        words.push(format!("{} more", parts.len() - NAMED));
    }
    words.join(", and ")
}

/// The known facts about one topic.
struct Facts<'a> {
    inputs: &'a GuardInputs,
    topic: Topic,
}

impl Facts<'_> {
    fn say(&self, words: &str) -> String {
        format!("{} {words}", self.topic)
    }

    fn unknown(&self) -> String {
        format!("not known: {}{}", self.topic, self.reason())
    }

    fn reason(&self) -> String {
        self.inputs.unknown.get(&self.topic).map(|reason| format!(" {reason}")).unwrap_or_default()
    }

    fn lock(&self) -> String {
        let Topic::Lock(name) = &self.topic else { return self.unknown() };
        match self.inputs.locks.get(name).and_then(Option::as_ref) {
            Some(holder) => self.say(&format!("is held by {holder}")),
            None => self.say("is free"),
        }
    }

    fn semaphore(&self, slots: u32) -> String {
        let Topic::Semaphore(name) = &self.topic else { return self.unknown() };
        let free = self.inputs.semaphores.get(name).copied().unwrap_or_default();
        let (noun, verb) = (if free == 1 { "slot" } else { "slots" }, if slots == 1 { "is" } else { "are" });
        self.say(&format!("has {free} free {noun} ({slots} {verb} asked for)"))
    }

    fn merged(&self, yes: bool) -> String {
        let Topic::Merged(branch, into) = &self.topic else { return self.unknown() };
        format!("branch {branch} is {}merged into {into}", if yes { "" } else { "not " })
    }

    fn file(&self, pattern: &str, yes: bool) -> String {
        let Topic::File(path) = &self.topic else { return self.unknown() };
        if self.inputs.files.get(path).is_some_and(|info| info.exists) {
            self.say(&format!("has {} line that /{pattern}/ matches", if yes { "a" } else { "no" }))
        } else {
            self.say("is not there")
        }
    }

    fn phase(&self) -> String {
        let Topic::Pipeline(id) = &self.topic else { return self.unknown() };
        match self.inputs.pipelines.get(id).and_then(|info| info.phase.as_ref()) {
            Some(phase) => self.say(&format!("is in phase {phase}")),
            None => self.say("is in no phase"),
        }
    }

    fn running(&self) -> String {
        let Topic::Running(filter) = &self.topic else { return self.unknown() };
        match self.inputs.running.get(filter).map(Vec::as_slice).unwrap_or_default() {
            [] => format!("no other pipeline{filter} is running"),
            [one] => format!("pipeline {one}{filter} is running"),
            [one, others @ ..] => format!("pipeline {one}{filter} is running, and {} more", others.len()),
        }
    }

    fn command(&self, cmd: &Cmd) -> String {
        let result = cmd.with(&self.inputs.vars).and_then(|cmd| self.inputs.command_results.get(&cmd).copied());
        match result {
            Some(CommandResult::Success) => self.say("succeeded"),
            Some(CommandResult::Failure) => self.say(&format!("failed{}", self.reason())),
            Some(CommandResult::Unknown) | None => self.unknown(),
        }
    }
}

fn completed(noun: &str, issues: &[Issue]) -> String {
    let open: Vec<&Issue> = issues.iter().filter(|issue| issue.status != Status::Completed).collect();
    match (open.first(), issues.len()) {
        (Some(issue), all) => format!("{noun} {} is {} ({} of {all} not completed)", issue.id, issue.status, open.len()),
        (None, 0) => format!("there are no such {noun}s"),
        (None, all) => format!("all {all} {noun}s are completed"),
    }
}

fn blocked(noun: &str, issues: &[Issue]) -> String {
    let stopped: Vec<&Issue> = issues.iter().filter(|issue| issue.status == Status::Blocked).collect();
    match stopped.first() {
        Some(issue) => format!("{noun} {} is blocked ({} of {} are blocked)", issue.id, stopped.len(), issues.len()),
        None => format!("none of {} {noun}s is blocked", issues.len()),
    }
}

impl std::fmt::Display for Topic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Topic::Lock(name) => write!(f, "lock {name}"),
            Topic::Semaphore(name) => write!(f, "semaphore {name}"),
            Topic::Issues(filter) => write!(f, "{}s{filter}", filter.noun()),
            Topic::Branch(branch) => write!(f, "branch {branch}"),
            Topic::Merged(branch, into) => write!(f, "whether branch {branch} is merged into {into}"),
            Topic::File(path) => write!(f, "file {path}"),
            Topic::Pipeline(id) => write!(f, "pipeline {id}"),
            Topic::Running(filter) => write!(f, "whether another pipeline{filter} is running"),
            Topic::Command(cmd) => write!(f, "command `{cmd}`"),
        }
    }
}

impl std::fmt::Display for PipelineFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if let Some(runbook) = &self.runbook {
            write!(f, " of runbook {runbook}")?;
        }
        self.phase.as_ref().map_or(Ok(()), |phase| write!(f, " in phase {phase}"))
    }
}

impl IssueFilter {
    /// The noun for what it selects.
    pub fn noun(&self) -> &'static str {
        if self.from.is_some() { "issue" } else { "task" }
    }
}

impl std::fmt::Display for IssueFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(section) = &self.section {
            write!(f, " of section {section}")?;
        }
        if let Some(label) = &self.label {
            write!(f, " with label {label}")?;
        }
        if let Some(status) = self.status {
            write!(f, " that are {status}")?;
        }
        if !self.ids.is_empty() {
            write!(f, " {}", self.ids.iter().map(Text::to_string).collect::<Vec<_>>().join(", "))?;
        }
        self.from.as_ref().map_or(Ok(()), |from| write!(f, " from `{from}`"))
    }
}

impl std::fmt::Display for Cmd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Cmd::Run(line) => line.to_string(),
            Cmd::Argv(argv) => argv.iter().map(Text::to_string).collect::<Vec<_>>().join(" "),
        };
        f.write_str(&shorten(text.trim(), 100))
    }
}

/// A text cut to one line of limited length.
fn shorten(text: &str, limit: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(limit + 1).collect();
    match line.char_indices().nth(limit) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
