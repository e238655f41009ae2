use std::path::Path;

use banksman_agents::Profile;
use banksman_agents::profile::Call;
use banksman_core::Name;
use banksman_core::agent::limit::AccountLimit;
use banksman_engine::{AccountOutcome, AccountRequest};
use banksman_runtime::Project;
use banksman_runtime::agents::{self, Login};
use banksman_runtime::config::{Config, Settings};
use banksman_runtime::inspect;
use banksman_store::Key;
use clap::Args;
use serde::Serialize;

use super::{ExitResult, tasks};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::table;
use crate::views::accounts::{self, LimitView};

subcommands! {
    /// List and check agents: the programs that do the work of tasks.
    ///
    /// Banksman knows claude, codex, gemini and opencode. A section [agent.NAME] in the user's or the project's settings changes an
    /// agent, or adds another program.
    #[command(after_help = "Examples:\n  banksman agents list\n  banksman agents check claude\n  banksman agents show codex")]
    pub(crate) noun Agents {
        List(List),
        Show(Show),
        Check(Check),
        Retry(Retry),
    }
}

/// List the agents.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman agents list")]
struct List {}

/// Show the profile of an agent, and the command line that starts it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman agents show claude")]
struct Show {
    /// The agent
    agent: String,
}

/// Check whether agents can be started: installed, logged in, trusted. Makes no paid requests.
///
/// Exits with 7 if a checked agent cannot be started, or if none is installed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman agents check\n  banksman agents check claude codex")]
struct Check {
    /// The agents [default: all installed agents]
    agents: Vec<String>,
}

/// Retry the account of an agent before its limit ends: after a login, or if the reported time was wrong.
///
/// The next run of a waiting task tests the account; the other waiting tasks follow its result.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman agents retry claude")]
struct Retry {
    /// The agent
    agent: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RetryView<'a> {
    agent: &'a Name,
    account: &'a Name,
    limits: Vec<LimitView<'a>>,
}

#[derive(Serialize)]
struct ListView<'a> {
    agents: Vec<AgentView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentView<'a> {
    agent: &'a Name,
    program: &'a str,
    installed: bool,
    level: &'static str,
    model: Option<&'a str>,
    account: &'a str,
    /// The limits that keep the account from working.
    limits: Vec<LimitView<'a>>,
    output: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShowView<'a> {
    agent: &'a Name,
    profile: &'a Profile,
    start: Vec<String>,
    resume: Vec<String>,
}

#[derive(Serialize)]
struct CheckView<'a> {
    agents: Vec<CheckedView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckedView<'a> {
    agent: &'a Name,
    ready: bool,
    path: Option<String>,
    version: Option<String>,
    logged_in: Option<bool>,
    pays: Option<String>,
    level: &'static str,
    trusted: Option<bool>,
    unknown_options: Vec<String>,
    /// The commands that fix the problems.
    fix: Vec<String>,
}

/// The settings that apply here, with or without a project.
fn config(context: &Context) -> Result<(Config, Option<Project>), Failure> {
    match context.project() {
        Ok(project) => Ok((project.config().clone(), Some(project))),
        Err(_) => Ok((Settings::load(&context.environment(), None)?.config().clone(), None)),
    }
}

impl List {
    fn run(self, context: &Context) -> ExitResult {
        let (config, project) = config(context)?;
        let limits = project.map_or(Ok(Vec::new()), |project| limits(&project))?;
        let here = context.directory();
        let installed = |profile: &Profile| agents::find(&profile.program, &here).is_some();
        let profiles = config.agents.profiles.iter();
        let agents: Vec<AgentView<'_>> =
            profiles.map(|(agent, profile)| view_of(agent, profile, installed(profile), &limits)).collect();
        let row = |view: &AgentView<'_>| {
            let installed = if view.installed { format!("{GREEN}yes{GREEN:#}") } else { format!("{DIM}no{DIM:#}") };
            let model = view.model.unwrap_or("default").to_owned();
            vec![view.agent.to_string(), installed, view.level.into(), model, view.account.into(), view.program.into()]
        };
        let rows = agents.iter().map(row).collect();
        let mut human = table::render(&["AGENT", "INSTALLED", "LEVEL", "MODEL", "ACCOUNT", "PROGRAM"], rows);
        for limit in &limits {
            human.push_str(&format!("\n{YELLOW}{}{YELLOW:#}", accounts::sentence(limit)));
        }
        context.printer.result(&ListView { agents }, human)
    }
}

/// The account limits that keep tasks of a project from starting.
fn limits(project: &Project) -> Result<Vec<AccountLimit>, Failure> {
    Ok(inspect::closed_limits(&project.reader()?.view().load(&[Key::AccountLimits].into())?.backlog))
}

fn view_of<'a>(agent: &'a Name, profile: &'a Profile, installed: bool, limits: &'a [AccountLimit]) -> AgentView<'a> {
    let is_own = |limit: &&AccountLimit| limit.scope.account.as_ref().is_none_or(|account| account.as_str() == profile.account);
    AgentView {
        agent,
        program: &profile.program,
        installed,
        level: profile.level.as_str(),
        model: profile.model.as_deref(),
        account: &profile.account,
        limits: limits.iter().filter(is_own).map(Into::into).collect(),
        output: profile.output.as_str(),
    }
}

impl Show {
    fn run(self, context: &Context) -> ExitResult {
        let (config, _) = config(context)?;
        let found = config.agents.profiles.get(&self.agent);
        let (agent, profile) = found.ok_or_else(|| tasks::agents::unknown(&config, &self.agent))?;
        let call = Call { session: "SESSION", model: profile.model.as_deref(), prompt: "PROMPT", ..Call::default() };
        let start = profile.argv(&call);
        let resume = if profile.can_resume() { profile.argv(&Call { resumes: true, ..call }) } else { Vec::new() };
        let line = |argv: &[String]| argv.iter().map(format::quoted).collect::<Vec<_>>().join(" ");
        let mut human = vec![format!("{BOLD}{agent}{BOLD:#}"), format!("start:   {}", line(&start))];
        if !resume.is_empty() {
            human.push(format!("resume:  {}", line(&resume)));
        }
        human.push(format!("level:   {}", profile.level.as_str()));
        human.push(format!("model:   {}", profile.model.as_deref().unwrap_or("the program's default")));
        human.push(format!("account: {}", profile.account));
        human.push(format!("output:  {}", profile.output.as_str()));
        human.extend((!profile.reads.is_empty()).then(|| format!("reads:   {}", profile.reads.join(", "))));
        human.extend(profile.isolated.then(|| "isolated: ignores the project's own settings for this program".into()));
        human.extend(profile.env.iter().map(|(name, value)| format!("env:     {name}={value}")));
        context.printer.result(&ShowView { agent, profile, start, resume }, human.join("\n"))
    }
}

impl Retry {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let config = project.config();
        let found = config.agents.profiles.get(&self.agent);
        let (agent, profile) = found.ok_or_else(|| tasks::agents::unknown(config, &self.agent))?;
        let account = tasks::agents::account(agent.as_str(), profile)?;
        let client = context.client()?;
        let limits = match client.request(AccountRequest::Retry { account: account.clone() })? {
            AccountOutcome::Retried(limits) => limits,
            AccountOutcome::Done | AccountOutcome::Late => Vec::new(),
        };
        let human = match limits.is_empty() {
            true => format!("{agent} is not limited"),
            false => format!("the next run of {agent} checks whether the account works again"),
        };
        context.printer.result(&RetryView { agent, account: &account, limits: limits.iter().map(Into::into).collect() }, human)
    }
}

impl Check {
    fn run(self, context: &Context) -> ExitResult {
        let (config, project) = config(context)?;
        let here = context.directory();
        let profiles = &config.agents.profiles;
        if let Some(unknown) = self.agents.iter().find(|name| profiles.get(name).is_none()) {
            return Err(tasks::agents::unknown(&config, unknown));
        }
        let is_selected = |name: &Name, profile: &Profile| match self.agents.is_empty() {
            true => agents::find(&profile.program, &here).is_some(),
            false => self.agents.iter().any(|agent| agent == name.as_str()),
        };
        let selected = profiles.iter().filter(|(name, profile)| is_selected(name, profile));
        let checked: Vec<CheckedView<'_>> =
            selected.map(|(name, profile)| checked(name, profile, &here, project.as_ref())).collect();
        let human = match checked.is_empty() {
            true => format!(
                "{YELLOW}no agent program is installed{YELLOW:#}\n{DIM}list the known agents: banksman agents list{DIM:#}"
            ),
            false => checked.iter().map(page).collect::<Vec<_>>().join("\n"),
        };
        let is_ready = !checked.is_empty() && checked.iter().all(|view| view.ready);
        context.printer.print(&CheckView { agents: checked }, human);
        Ok(if is_ready { exit::OK } else { exit::UNHEALTHY })
    }
}

fn checked<'a>(agent: &'a Name, profile: &'a Profile, here: &Path, project: Option<&Project>) -> CheckedView<'a> {
    let may_ask = project.is_none_or(|project| project.trusts_agent_section(agent.as_str()));
    let found = agents::check(profile, here, may_ask);
    let untrusted = project.map(|project| !project.untrusted_exposures(agent.as_str()).is_empty());
    let mut fix = Vec::new();
    if found.path.is_none() || !found.unknown_options.is_empty() {
        fix.extend(profile.install.clone());
    }
    if found.login == Login::No {
        fix.extend(profile.login.clone());
    }
    if untrusted == Some(true) {
        fix.push(format!("banksman trust --agent {agent}"));
    }
    let ready = found.path.is_some() && found.login != Login::No && untrusted != Some(true) && found.unknown_options.is_empty();
    CheckedView {
        agent,
        ready,
        path: found.path.map(|path| path.display().to_string()),
        version: found.version,
        logged_in: match found.login {
            Login::Yes => Some(true),
            Login::No => Some(false),
            Login::Unknown => None,
        },
        pays: found.pays,
        level: profile.level.as_str(),
        trusted: untrusted.map(|untrusted| !untrusted),
        unknown_options: found.unknown_options,
        fix,
    }
}

fn page(view: &CheckedView<'_>) -> String {
    let mark = if view.ready { format!("{GREEN}✓{GREEN:#}") } else { format!("{RED}✗{RED:#}") };
    let mut parts = Vec::new();
    parts.push(match (&view.path, &view.version) {
        (None, _) => "not installed".into(),
        (Some(_), Some(version)) => format!("version {version}"),
        (Some(_), None) => "version unknown".into(),
    });
    if view.path.is_some() {
        parts.push(match (view.logged_in, &view.pays) {
            (Some(true), Some(pays)) => format!("logged in, paid by {pays}"),
            (Some(true), None) => "logged in".into(),
            (Some(false), _) => "not logged in".into(),
            (None, _) => "login unknown (checking it would cost money)".into(),
        });
    }
    parts.push(format!("level {}", view.level));
    parts.extend(view.trusted.map(|trusted| if trusted { "trusted here".into() } else { "not trusted here".to_owned() }));
    if !view.unknown_options.is_empty() {
        parts.push(format!("this version does not know {}", view.unknown_options.join(" ")));
    }
    let fixes = view.fix.iter().map(|fix| format!("\n  {DIM}fix: {fix}{DIM:#}"));
    format!("{mark} {BOLD}{}{BOLD:#}  {}{}", view.agent, parts.join(" · "), fixes.collect::<String>())
}
