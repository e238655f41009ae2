//! Commands of guards, run in parallel.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;

use banksman_adapters::command_supervisor::{self, CommandEnd, CommandReport, Task};
use banksman_core::TaskId;
use banksman_core::guard::{Cmd, CommandResult, GuardInputs, Topic, Wants};
use banksman_core::pipeline::plan::{Context, Text, environment};
use banksman_core::task::PIPELINE_ENV;

use super::{Limits, mark_unknown};
use crate::project::Project;
use crate::sessions::FOREIGN;

/// How many commands run at the same time.
const AT_ONCE: usize = 8;

/// How much of the output of a command is read: a long list of issues.
const OUTPUT: usize = 16 * 1_024 * 1_024;

/// The report of every command, or why it could not run.
pub(super) type Results = BTreeMap<Cmd, Result<CommandReport, String>>;

/// The commands that are still to run, and the results of the others.
pub(super) struct Commands {
    todo: Mutex<BTreeSet<Cmd>>,
    results: Mutex<Results>,
}

impl Commands {
    pub(super) fn wanted(wants: &Wants) -> Commands {
        let lists = wants.issues.iter().filter_map(|filter| filter.from.clone());
        let todo = wants.commands.iter().cloned().chain(lists).collect();
        Commands { todo: Mutex::new(todo), results: Mutex::default() }
    }

    /// Whether there are no commands.
    pub(super) fn is_empty(&self) -> bool {
        self.todo.lock().is_ok_and(|todo| todo.is_empty())
    }

    /// How many threads can help the calling one.
    pub(super) fn helpers(&self) -> usize {
        self.todo.lock().map_or(0, |todo| todo.len().min(AT_ONCE - 1))
    }

    /// Runs one command after the other until none is left.
    pub(super) fn run(&self, project: &Project, directory: &Path, pipeline: Option<&TaskId>, vars: &Context, limits: Limits<'_>) {
        while let Some(cmd) = self.todo.lock().ok().and_then(|mut todo| todo.pop_first()) {
            let result = run(project, directory, pipeline, &cmd, vars, limits);
            if let Ok(mut results) = self.results.lock() {
                results.insert(cmd, result);
            }
        }
    }

    pub(super) fn results(self) -> Results {
        self.results.into_inner().unwrap_or_default()
    }
}

fn run(
    project: &Project,
    directory: &Path,
    pipeline: Option<&TaskId>,
    cmd: &Cmd,
    vars: &Context,
    limits: Limits<'_>,
) -> Result<CommandReport, String> {
    let argv = match cmd {
        Cmd::Run(line) => vec!["/bin/sh".into(), "-c".into(), (&**line).into()],
        // Every text is a literal by now: the variables are filled in.
        Cmd::Argv(argv) => argv.iter().filter_map(Text::literal).map(Into::into).collect(),
    };
    let mut env: Vec<(String, OsString)> =
        environment(vars).into_iter().map(|(name, value)| (name.into(), String::from(value).into())).collect();
    env.push(("BANKSMAN_PROJECT".into(), project.root().into()));
    env.extend(pipeline.map(|id| (PIPELINE_ENV.into(), id.as_str().into())));
    // The command acts neither for the holder in this environment nor for the run that this process may be part of.
    let env_remove = &[&FOREIGN[..], &["BANKSMAN_HOLDER", "BANKSMAN_TASK", "BANKSMAN_RUN_EPOCH"]].concat();
    let task = Task { argv, directory, env, env_remove, limit: limits.command, stop: limits.stop, keep: OUTPUT };
    command_supervisor::run(task).map_err(|error| format!("could not be started: {error}"))
}

/// Adds the results of the commands of conditions to the inputs.
pub(super) fn take(wants: &Wants, results: Results, inputs: &mut GuardInputs) {
    for (cmd, result) in results.into_iter().filter(|(cmd, _)| wants.commands.contains(cmd)) {
        let result = match ended(&result) {
            Ok(0) => CommandResult::Success,
            Ok(status) => {
                let words = result.as_ref().map_or_else(String::clone, |report| failure(status, report));
                mark_unknown(inputs, Topic::Command(cmd.clone()), words);
                CommandResult::Failure
            }
            Err(words) => {
                mark_unknown(inputs, Topic::Command(cmd.clone()), words);
                CommandResult::Unknown
            }
        };
        inputs.command_results.insert(cmd, result);
    }
}

/// How a command failed: its status, and its last line of output, which often has the reason.
fn failure(status: i32, report: &CommandReport) -> String {
    let said = [&report.stderr, &report.stdout].map(|kept| kept.last_line()).into_iter().find(|line| !line.is_empty());
    said.map_or_else(|| format!("with status {status}"), |line| format!("with status {status}: {line}"))
}

/// The status with which a command exited, as in a shell; or why there is none.
pub(super) fn ended(result: &Result<CommandReport, String>) -> Result<i32, String> {
    match result.as_ref().map(|report| &report.end) {
        Ok(CommandEnd::Exited(status)) => Ok(*status),
        Ok(CommandEnd::Signalled(signal)) => Ok(128 + signal),
        Ok(CommandEnd::TimedOut) => Err("took too long".into()),
        Ok(CommandEnd::Unwanted) => Err("was ended: nobody waited for it any more".into()),
        Ok(CommandEnd::NotStarted(error)) => Err(format!("could not be started: {error}")),
        Ok(CommandEnd::Lost) => Err("was killed together with its supervisor".into()),
        Err(words) => Err(words.clone()),
    }
}
