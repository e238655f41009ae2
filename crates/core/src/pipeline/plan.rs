//! The definition of a pipeline, phase by phase, as the runbook has it when the pipeline starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::IntoStaticStr;
use thiserror::Error;

use crate::guard::Guard;
use crate::ids::{Name, TaskId, Title};
use crate::json::{self, TooDeep};
use crate::pipeline::BLOCKED_TIMEOUT;
use crate::pipeline::strategy::Approach;
use crate::task::{LandSpec, Need, WorkspaceSpec, WorktreeSpec};
use crate::time::Span;

/// How many phases a pipeline can have.
pub const PHASE_LIMIT: usize = 10_000;

/// The largest context of a pipeline, as JSON, in bytes.
pub const CONTEXT_LIMIT: usize = 64 * 1_024;

/// The longest name of a variable, in bytes.
pub const VARIABLE_LIMIT: usize = 64;

/// How much of the variable `title` becomes the title of a pipeline, in characters.
const CALLED_LIMIT: usize = 80;

/// Names with a meaning in every template, which no variable can have.
pub const TAKEN: [&str; 8] = ["pipeline", "phase", "attempt", "loop", "true", "false", "none", "not"];

/// How often a failed phase is retried, or left for another, unless the runbook says otherwise.
pub const DEFAULT_TIMES: u32 = 3;

/// Variables that phases share.
pub type Context = BTreeMap<Box<str>, Value>;

/// The variables that a pipeline begins with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bound {
    pub context: Context,
    /// The names of the variables that were given; the others have their defaults.
    pub given: BTreeSet<Box<str>>,
}

/// The definition of a pipeline. It is self-contained: nothing in it refers to the runbook that it came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub runbook: Box<str>,
    /// The name of the pipeline in the runbook.
    pub name: Name,
    /// Its variables, each with its default; a variable without one must be given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<Box<str>, Option<Value>>,
    /// Its phases. The pipeline begins with the first.
    pub phases: Vec<Phase>,
    /// The worktree that it works in, and where its work lands; without it, both are chosen at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub land: Option<Box<PlanLand>>,
}

/// The worktree of a pipeline, and where its work lands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanLand {
    /// The branch of the worktree; by default one that is named after the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Text>,
    /// The branch that its work lands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<Text>,
    /// The phase to continue with when the work comes back. Without it a person reviews the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Name>,
}

impl Plan {
    /// A placeholder where only the log is known, or where the plan is set afterwards.
    pub fn unknown() -> Arc<Plan> {
        static UNKNOWN: LazyLock<Arc<Plan>> = LazyLock::new(|| {
            let name = Name::new("unknown").expect("a valid name");
            Arc::new(Plan { runbook: "".into(), name, vars: BTreeMap::new(), phases: Vec::new(), land: None })
        });
        Arc::clone(&UNKNOWN)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    pub name: Name,
    pub action: Action,
    /// Guards that must hold before it begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pre: Vec<Guard>,
    /// Guards that must hold before it is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post: Vec<Guard>,
    /// The resources that are held while it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// Whether its locks are held until the end of the pipeline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps: bool,
    /// How long a run of it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How many runs may follow a failed one before the phase has failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// How long a guard may block it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_timeout: Option<Span>,
    /// The fields of its result that others can read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<Box<str>>,
    #[serde(default, skip_serializing_if = "After::is_next")]
    pub then: After,
    /// What follows if it fails.
    #[serde(default, skip_serializing_if = "OnFail::is_fail")]
    pub on_fail: OnFail,
}

/// What follows a phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum After {
    /// The next phase in the list, or the end.
    #[default]
    Next,
    Phase(Name),
    Done,
}

/// What follows the failure of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnFail {
    #[default]
    Fail,
    /// The phase is retried this many times; then the pipeline has failed.
    Retry { times: u32 },
    /// Another phase follows, this many times; then the pipeline has failed.
    Phase { to: Name, times: u32 },
}

/// The work of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    Do(RunCommand),
    /// One approach after the other, until one succeeds.
    Strategy {
        name: Name,
        approaches: Vec<Approach>,
    },
    /// An item is put into a queue.
    Push(Push),
}

/// The work of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunCommand {
    /// A line for the shell. Nothing is ever inserted: it finds the variables in its environment.
    Run(Box<str>),
    /// A program with its arguments, each of which is a template.
    Argv(Vec<Box<str>>),
    /// An agent: a program that receives a prompt, which is a template.
    Agent {
        /// Its name in the runbook.
        name: Name,
        /// The program with its arguments, which are not templates.
        command: Vec<Box<str>>,
        prompt: Box<str>,
    },
    Merge(Merge),
}

/// The merge of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    pub branch: Text,
    pub into: Text,
    pub how: MergeHow,
}

/// How a branch is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum MergeHow {
    /// Only if no commit has to be made.
    FastForward,
    /// Its commits are made again on top.
    Rebase,
    /// By a commit with two parents.
    MergeCommit,
}

/// An item that a phase puts into a queue: an object with the variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Push {
    pub queue: Name,
    /// Items with a higher priority come first.
    #[serde(default)]
    pub priority: i32,
    /// The variables in the item; all if the list is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vars: Vec<Box<str>>,
}

/// A literal text, or the value of a variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    Literal(Box<str>),
    /// The value of this variable at the time of use.
    Var {
        var: Box<str>,
    },
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Text::Literal(text) => f.write_str(text),
            Text::Var { var } => write!(f, "${var}"),
        }
    }
}

/// Why variables are not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BindError {
    #[error("the variable {0:?} has no value")]
    Missing(Box<str>),
    #[error("there is no variable {0:?}")]
    Unknown(Box<str>),
    #[error("{0:?} cannot be a variable: names are up to {VARIABLE_LIMIT} letters, digits, `-` and `_`, and begin with a letter")]
    BadName(Box<str>),
    #[error("{0:?} has a meaning already, and cannot be a variable")]
    Taken(Box<str>),
    #[error("the variable {0:?} was given when the pipeline was started, and a phase cannot change it")]
    Given(Box<str>),
    #[error("the variable {0:?}: {1}")]
    TooDeep(Box<str>, TooDeep),
    #[error("the variables of a pipeline may have at most {CONTEXT_LIMIT} bytes, these have {0}")]
    TooLarge(usize),
}

impl Phase {
    /// A phase without conditions, followed by the next one.
    pub fn new(name: Name, action: Action) -> Phase {
        let (pre, post, needs) = (Vec::new(), Vec::new(), Vec::new());
        let (keeps, timeout, blocked_timeout, output) = (false, None, None, Vec::new());
        let (retries, then, on_fail) = (0, After::Next, OnFail::Fail);
        Phase { name, action, pre, post, needs, keeps, timeout, retries, blocked_timeout, output, then, on_fail }
    }

    /// The locks that its runs need.
    pub fn locks(&self) -> impl Iterator<Item = &Name> {
        self.needs.iter().filter(|need| matches!(need, Need::Lock(_))).map(Need::name)
    }

    /// How long a guard may block it.
    pub fn blocked_timeout(&self) -> Span {
        self.blocked_timeout.unwrap_or(BLOCKED_TIMEOUT)
    }
}

impl MergeHow {
    pub const ALL: [MergeHow; 3] = [MergeHow::FastForward, MergeHow::Rebase, MergeHow::MergeCommit];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl After {
    fn is_next(&self) -> bool {
        *self == After::Next
    }
}

impl OnFail {
    fn is_fail(&self) -> bool {
        *self == OnFail::Fail
    }
}

impl Text {
    /// The text, if it is literal.
    pub fn literal(&self) -> Option<&str> {
        match self {
            Text::Literal(text) => Some(text),
            Text::Var { .. } => None,
        }
    }

    /// The text with these variables; `None` if its variable has no value.
    pub fn get(&self, context: &Context) -> Option<Box<str>> {
        match self {
            Text::Literal(text) => Some(text.clone()),
            Text::Var { var } => value(var, context).map(plain),
        }
    }

    /// As above, for a name: an empty text names nothing.
    pub fn name(&self, context: &Context) -> Option<Box<str>> {
        self.get(context).filter(|text| !text.is_empty())
    }
}

impl Plan {
    /// Where a pipeline works that no person has started, and where its work lands, if the plan names that branch.
    pub fn place(&self, context: &Context) -> (WorkspaceSpec, Option<Box<LandSpec>>) {
        let Some(land) = &self.land else { return (WorkspaceSpec::Checkout, None) };
        let branch = land.branch.as_ref().and_then(|branch| branch.name(context));
        let into = land.into.as_ref().and_then(|into| Name::new(&into.name(context)?).ok());
        let to = into.map(|target| Box::new(LandSpec { target, unchecked: false, of_child: false }));
        (WorkspaceSpec::Worktree(Box::new(WorktreeSpec { branch, base: None })), to)
    }

    /// The variables that a pipeline begins with.
    pub fn bind(&self, given: Context) -> Result<Bound, BindError> {
        if let Some(unknown) = given.keys().find(|name| !self.vars.contains_key(*name)) {
            return Err(if is_taken(unknown) { BindError::Taken(unknown.clone()) } else { BindError::Unknown(unknown.clone()) });
        }
        let (names, mut context) = (given.keys().cloned().collect(), given);
        for (name, default) in &self.vars {
            if !context.contains_key(name) {
                let default = default.clone().ok_or_else(|| BindError::Missing(name.clone()))?;
                context.insert(name.clone(), default);
            }
        }
        fits(&context)?;
        Ok(Bound { context, given: names })
    }

    /// As above, for variables that come from elsewhere, as from an item: unknown ones are ignored.
    pub fn bind_known(&self, mut given: Context) -> Result<Bound, BindError> {
        given.retain(|name, _| self.vars.contains_key(name));
        self.bind(given)
    }

    /// The title of a pipeline that was given none: its variable `title`, or else its name.
    pub fn title(&self, context: &Context) -> Title {
        self.called(context).unwrap_or_else(|| Title::new(self.name.as_str()).expect("a name is a title"))
    }

    /// The value of its variable `title`, if that can be a title.
    pub fn called(&self, context: &Context) -> Option<Title> {
        let text = context.get("title")?.as_str()?.trim();
        // The titles of its phases begin with it, and must have room for their names.
        let end = text.char_indices().nth(CALLED_LIMIT).map_or(text.len(), |(end, _)| end);
        Title::new(text[..end].trim_end()).ok()
    }

    /// The locks that are held until its end: the locks of the phases that keep theirs, and of all that may follow. The
    /// first phase that keeps a lock takes all of them: two pipelines that took them one by one could wait for each
    /// other.
    pub fn kept(&self) -> BTreeSet<&Name> {
        let mut reached: BTreeSet<usize> = (0..self.phases.len()).filter(|index| self.phases[*index].keeps).collect();
        let mut open: Vec<usize> = reached.iter().copied().collect();
        while let Some(index) = open.pop() {
            open.extend(self.followers(index).filter(|next| reached.insert(*next)));
        }
        reached.into_iter().flat_map(|index| self.phases[index].locks()).collect()
    }

    /// The phases that may come after one.
    fn followers(&self, index: usize) -> impl Iterator<Item = usize> {
        let phase = &self.phases[index];
        let then = match &phase.then {
            After::Next => Some(index + 1).filter(|next| *next < self.phases.len()),
            After::Phase(name) => self.index(name),
            After::Done => None,
        };
        let on_fail = match &phase.on_fail {
            OnFail::Phase { to, .. } => self.index(to),
            OnFail::Fail | OnFail::Retry { .. } => None,
        };
        then.into_iter().chain(on_fail)
    }

    /// The resources of the runs of a phase in this pipeline, which may keep its locks by then.
    pub fn needs(&self, phase: &Phase, is_keeping: bool, pipeline: &TaskId) -> Vec<Need> {
        let kept = self.kept_in(phase, phase.keeps || is_keeping, pipeline);
        let is_kept = |need: &Need| kept.contains(&need.kept_by(pipeline));
        let own: Vec<Need> = phase.needs.iter().filter(|need| !is_kept(need)).cloned().collect();
        own.into_iter().chain(kept).collect()
    }

    /// The resources that a pipeline holds under its own name in a phase, depending on whether it keeps its locks. The
    /// guards after the phase are covered by everything that the phase needs, and its run is over by then.
    pub fn kept_in(&self, phase: &Phase, is_keeping: bool, pipeline: &TaskId) -> BTreeSet<Need> {
        let locks = self.kept().into_iter().filter(|_| is_keeping).map(|name| Need::Lock(name.clone()));
        let guarded = phase.needs.iter().filter(|_| !phase.post.is_empty()).cloned();
        locks.chain(guarded).map(|need| need.kept_by(pipeline)).collect()
    }

    /// The index of a phase.
    pub fn index(&self, phase: &Name) -> Option<usize> {
        self.phases.iter().position(|other| other.name == *phase)
    }

    pub fn phase(&self, name: &Name) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == *name)
    }
}

/// Whether a pipeline can have a variable of this name. A runbook declares some; phases can set others beside them.
pub fn check_name(name: &str) -> Result<(), BindError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if is_taken(name) {
        Err(BindError::Taken(name.into()))
    } else if name.len() > VARIABLE_LIMIT || !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(plain) {
        Err(BindError::BadName(name.into()))
    } else {
        Ok(())
    }
}

fn is_taken(name: &str) -> bool {
    TAKEN.contains(&name)
}

/// Whether a context can be stored: it is neither too large, nor nested too deeply.
pub fn fits(context: &Context) -> Result<(), BindError> {
    for (name, value) in context {
        json::keepable(value).map_err(|error| BindError::TooDeep(name.clone(), error))?;
    }
    let bytes = serde_json::to_string(context).map_or(0, |text| text.len());
    if bytes > CONTEXT_LIMIT { Err(BindError::TooLarge(bytes)) } else { Ok(()) }
}

/// A value as a command sees it: a text without quotes, everything else as JSON.
pub fn plain(value: &Value) -> Box<str> {
    match value {
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

/// The value of a variable, or of a field of one: `build.version`.
fn value<'a>(var: &str, context: &'a Context) -> Option<&'a Value> {
    let field = || var.split_once('.').and_then(|(var, field)| context.get(var)?.get(field));
    context.get(var).or_else(field)
}

/// The variable with the output of a phase: the name of the phase, in characters that a template can name.
pub fn output_var(phase: &Name) -> Box<str> {
    phase.as_str().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect::<String>().into()
}

/// Variables as a command finds them: `title` in `VAR_TITLE`, and a field of an object in `VAR_BUILD_VERSION`.
pub fn environment(context: &Context) -> BTreeMap<Box<str>, Box<str>> {
    let fields = context.iter().filter_map(|(name, value)| Some((name, value.as_object()?)));
    let fields = fields.flat_map(|(name, fields)| fields.iter().map(move |(field, value)| (format!("{name}.{field}"), value)));
    let mut env: BTreeMap<Box<str>, Box<str>> = fields.map(|(name, value)| (env_name(&name).into(), plain(value))).collect();
    // A field of another variable never hides a variable.
    env.extend(context.iter().map(|(name, value)| (env_name(name).into(), plain(value))));
    env
}

/// The environment variable in which a command finds a variable: `title` is in `VAR_TITLE`.
pub fn env_name(var: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("VAR_{}", var.chars().map(plain).collect::<String>())
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
