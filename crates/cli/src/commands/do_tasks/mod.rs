//! Does everything with one command: a project, trust, tasks, a runner, a report. It creates only ordinary tasks.

mod adding;
mod check;
mod plan;
mod report;
mod setup;

use banksman_runtime::agents;
use banksman_runtime::config::Config;
use clap::Args;

pub(crate) use setup::asks;

use super::run::Run;
use super::{ExitResult, tasks};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use std::path::Path;

/// The agents that are tried in this order if none is named.
const KNOWN: [&str; 4] = ["claude", "codex", "gemini", "opencode"];

/// Have agents do tasks: add the tasks, run them until nothing is left to do, and report.
///
/// Each TASK is a title; a single Markdown file stands for its open boxes, `- [ ] TITLE`, with the indented text below as the prompt. Creates
/// a project if none exists, and asks before agents are trusted. Every task has its own git worktree; with a check its work lands
/// through the merge queue, without one it waits in review. Run again with the same titles, the command continues: unfinished tasks without a
/// run in progress take over an edited prompt and another --agent.
///
/// Exits with 0 if all these tasks are completed, else with 7.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman do 'Add login' 'Fix rounding' --agent claude --check 'make test'\n  banksman do plan.md --agent codex --max-runs 4"
)]
pub(crate) struct Do {
    /// The titles of the tasks, or one Markdown file
    #[arg(required = true, value_name = "TASK|FILE")]
    tasks: Vec<String>,
    /// The agent [default: agents.default, or the first installed agent]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// The command that work must pass before it lands; stored as landing.check
    #[arg(long, value_name = "CMD")]
    check: Option<String>,
    /// The maximum number of tasks that run at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_runs: Option<u32>,
}

impl Do {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let items = plan::read(&self.tasks)?;
        let project = setup::project(context)?;
        let agents = self.agents(project.config(), project.root())?;
        let project = check::store(context, project, self.check.as_deref())?;
        setup::trust(context, &project, &agents)?;
        let client = context.client()?;
        let place = adding::Place::find(&client)?;
        setup::announce(context, &project, &agents, &place);
        let ids = adding::add_all(context, &client, &agents, self.agent.as_deref(), &items, &place)?;
        let ended = Run::for_others(self.max_runs).run(context);
        let is_complete = report::print(context, &client, &ids)?;
        ended?;
        Ok(if is_complete { exit::OK } else { exit::UNHEALTHY })
    }

    /// The named agents, or the first one that is installed.
    fn agents(&self, config: &Config, here: &Path) -> Result<String, Failure> {
        let is_there =
            |name: &str| config.agents.profiles.get(name).is_some_and(|(_, found)| agents::find(&found.program, here).is_some());
        let Some(named) = self.agent.clone().or_else(|| config.agents.default.clone()) else {
            let found = KNOWN.iter().find(|name| is_there(name)).map(|name| (*name).to_owned());
            return found.ok_or_else(|| {
                Failure::new(exit::NOT_FOUND, "NO_AGENT", "no agent program is installed")
                    .hint("to install one: banksman agents check claude")
            });
        };
        tasks::agents::work(config, &named, String::new())?;
        match named.split(',').map(str::trim).find(|name| !is_there(name)) {
            Some(missing) => Err(not_installed(config, missing)),
            None => Ok(named),
        }
    }
}

fn not_installed(config: &Config, name: &str) -> Failure {
    let profile = config.agents.profiles.get(name).map(|(_, profile)| profile);
    let program = profile.map_or(name, |profile| &profile.program);
    let install = profile.and_then(|profile| profile.install.clone());
    Failure::new(exit::NOT_FOUND, "AGENT_NOT_INSTALLED", format!("the program of agent {name} is not installed: {program}"))
        .detail("agent", &name)
        .hint(install.unwrap_or_else(|| format!("set program in [agent.{name}] to its path")))
}
