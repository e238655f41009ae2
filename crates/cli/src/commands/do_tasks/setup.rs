//! The setup before the tasks: the project, trust, and notes for the user.

use std::io::{BufRead, IsTerminal};
use std::path::Path;
use std::time::Duration;

use banksman_adapters::git::{Git, Repository};
use banksman_adapters::notify::Program;
use banksman_runtime::agents::{self, Exposure, Login};
use banksman_runtime::config::{Foreign, Settings};
use banksman_runtime::{Project, ProjectError, Trust};

use super::adding::Place;
use crate::commands::trust::trust_also;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, YELLOW};

/// The timeout of git commands that read the checkout.
const GIT_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn is_on_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Asks a yes/no question; without a terminal the answer is no.
pub(crate) fn asks(context: &Context, question: &str) -> bool {
    if !is_on_terminal() {
        return false;
    }
    context.printer.ask(&format!("{question} [y/N]"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// The project; created here if there is none.
pub(super) fn project(context: &Context) -> Result<Project, Failure> {
    match Project::discover(&context.directory(), &context.environment()) {
        Err(ProjectError::NotFound { .. }) => {
            let here = context.directory();
            let top = Repository::of(&here).ok().flatten().and_then(|repository| repository.top().map(Path::to_owned));
            let project = Project::init_at(&top.unwrap_or(here), context.store_url()?)?;
            context.printer.note(&format!("{DIM}created a project in {}{DIM:#}", project.root().display()));
            Ok(context.project()?)
        }
        found => Ok(found?),
    }
}

fn settings(context: &Context, project: &Project) -> Result<Settings, Failure> {
    Ok(Settings::load(&context.environment(), Some(&project.folder().join("config.toml")))?)
}

/// Asks once whether to trust what the agents may do and execute.
pub(super) fn trust(context: &Context, project: &Project, agents: &str) -> Result<(), Failure> {
    project.require_trust()?;
    let names = || agents.split(',').map(str::trim);
    let untrusted: Vec<Exposure> = names().flat_map(|name| project.untrusted_exposures(name)).collect();
    let trust = Trust::of_user().ok_or(ProjectError::Homeless)?;
    let settings = settings(context, project)?;
    // No other commands of the settings run for a task.
    let is_used = |foreign: &&Foreign| ["landing.", "workspace."].iter().any(|part| foreign.key.name.starts_with(part));
    let foreign = settings.foreign().iter().filter(is_used).filter(|foreign| !trust.covers(project.root(), foreign));
    let foreign: Vec<&Foreign> = foreign.collect();
    if untrusted.is_empty() && foreign.is_empty() {
        return Ok(());
    }
    let labels = untrusted.iter().map(|exposure| exposure.label());
    let keys = foreign.iter().map(|foreign| format!("{} = {}", foreign.key.name, foreign.value));
    for label in labels.chain(keys) {
        context.printer.note(&format!("{YELLOW}not trusted{YELLOW:#}  {}", label.escape_debug()));
    }
    if !asks(context, "An agent acts with your rights, in this repository. Trust this?") {
        return Err(Failure::new(exit::NOT_PERMITTED, "AGENT_UNTRUSTED", format!("{agents} is not trusted in this project"))
            .detail("agents", &agents)
            .hint(format!("banksman trust --agent {agents}")));
    }
    let keys: Vec<&str> = foreign.iter().map(|foreign| foreign.key.name).collect();
    trust_also(context, project, |foreign| keys.contains(&foreign.key.name), untrusted)
}

/// Prints the agents with their permissions and accounts, the target, and what may block landings.
pub(super) fn announce(context: &Context, project: &Project, agents: &str, place: &Place) {
    let config = project.config();
    let note = |text: String| context.printer.note(&text);
    for name in agents.split(',').map(str::trim) {
        let Some((name, profile)) = config.agents.profiles.get(name) else { continue };
        let (login, pays) = agents::login(profile, project.root());
        let pays = pays.map(|pays| format!(", paid by {pays}")).unwrap_or_default();
        note(format!("agent   {BOLD}{name}{BOLD:#}, permission level {}{pays}", profile.level.as_str()));
        if let (Login::No, Some(fix)) = (login, &profile.login) {
            note(format!("{YELLOW}note:{YELLOW:#}   {name} is not logged in: {fix}"));
        }
    }
    let Place::Worktrees { target } = place else {
        note(format!(
            "{YELLOW}note:{YELLOW:#}   there is no git repository with a commit here: all agents work in this directory at the same time"
        ));
        return;
    };
    note(format!("target  {BOLD}{target}{BOLD:#}"));
    note(match &config.landing.check {
        Some(check) => format!("check   {BOLD}{}{BOLD:#}", format::one_line(&display(check))),
        None => "check   none: work waits in review until you land it (--check CMD sets one)".into(),
    });
    let git = Git::new(project.root(), GIT_WITHIN);
    let branch = Repository::of(project.root()).ok().flatten().and_then(|repository| repository.branch().ok().flatten());
    let changes = branch.and_then(|branch| git.branch_changes(&branch).ok().flatten());
    if let Some((_, files)) = changes.filter(|(_, files)| !files.is_empty()) {
        let what = match files.len() {
            1 => "1 file has uncommitted changes".into(),
            several => format!("{several} files have uncommitted changes"),
        };
        note(format!("{YELLOW}note:{YELLOW:#}   {what}: agents do not see them, and landings that touch them wait"));
    }
}

fn display(program: &Program) -> String {
    match program {
        Program::Shell(line) => line.clone(),
        Program::Argv(words) => words.join(" "),
    }
}
