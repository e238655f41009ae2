mod worktrees;

use std::collections::BTreeSet;
use std::path::Path;

use banksman_core::task::Work;
use banksman_core::{Seq, Status, TaskId, Title};
use banksman_runtime::agents::Exposure;
use banksman_runtime::config::{Foreign, Settings};
use banksman_runtime::{Project, ProjectError, Trust as Trusted};
use banksman_store::{Key, StoreError, TaskFilter};
use clap::Args;
use serde::Serialize;

use super::{ExitResult, config, tasks};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, YELLOW};
use crate::views::Text;

/// The number of commands of the store shown, and of characters of each.
const COMMANDS_SHOWN: usize = 5;
const COMMAND_SHOWN: usize = 100;

/// Trust the store of this project, and the commands and URLs in its settings.
///
/// A store may come with a repository, in an archive, or be in a database that other people write to. Unless you created it, it can
/// be read, but nothing in it is started until you trust it: no task, no command of a guard, no merge. The settings of a project may
/// be committed, so a command in them may come from another person, too. Trust applies to the current values: a changed value must be
/// trusted again. A script of the project that a trusted command starts may change without that.
///
/// The files that an agent reads are checked where it runs, before each start: in the worktree of its task, whose settings may differ
/// from those of the checkout. If they are not trusted, the task waits, and continues when you trust them with --task.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman trust --show\n  banksman trust\n  banksman trust --agent claude --task 'Add login'\n  banksman trust --revoke"
)]
pub(crate) struct Trust {
    /// Only show what can be trusted, and what is trusted
    #[arg(long, conflicts_with = "revoke")]
    show: bool,
    /// Revoke all trust in this project. Live sessions continue; runners start nothing more, and exit
    #[arg(long)]
    revoke: bool,
    /// Also trust these agents, separated by commas: what they read of this repository, and what they may do [default: the agents of
    /// unfinished tasks, and agents.default]
    #[arg(long, value_name = "AGENTS", conflicts_with = "revoke")]
    agent: Option<String>,
    /// Only trust what these agents, or the agents of the task, execute where this task runs; may be given more than once
    #[arg(long = "task", value_name = "TASK", conflicts_with = "revoke")]
    tasks: Vec<String>,
}

/// The JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TrustView<'a> {
    project: Text<std::path::Display<'a>>,
    store: Option<Contents>,
    keys: Vec<KeyView<'a>>,
    agents: Vec<ExposureView>,
    /// The tasks that waited for this trust and continue now.
    goes_on: Vec<String>,
}

/// A file or setting that an agent reads or executes.
#[derive(Serialize)]
struct ExposureView {
    label: String,
    trusted: bool,
    /// Its directory, if not the checkout.
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
}

#[derive(Serialize)]
struct KeyView<'a> {
    key: &'static str,
    value: &'a str,
    trusted: bool,
}

/// Trusts these keys and exposures in addition to those that are trusted already.
pub(crate) fn trust_also(
    context: &Context,
    project: &Project,
    also: impl Fn(&Foreign) -> bool,
    exposures: Vec<Exposure>,
) -> Result<(), Failure> {
    let trust = Trusted::of_user().ok_or(ProjectError::Homeless)?;
    let settings = Settings::load(&context.environment(), Some(&project.folder().join("config.toml")))?;
    let foreign = settings.foreign().iter().filter(|foreign| also(foreign) || trust.covers(project.root(), foreign));
    let foreign: Vec<Foreign> = foreign.cloned().collect();
    let known = project.config().agents.profiles.names().flat_map(|name| project.exposures(name));
    let known = known.filter(|exposure| trust.covers_exposure(project.root(), exposure));
    Ok(trust.grant(project.root(), &foreign, &known.chain(exposures).collect::<Vec<_>>())?)
}

impl Trust {
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let missing = || Failure::from(ProjectError::NotFound { from: context.directory() });
        let project_file = config::project_file(context)?.ok_or_else(missing)?;
        let settings = Settings::load(&context.environment(), Some(&project_file))?;
        let root = project_file.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        let root = root.canonicalize().unwrap_or_else(|_| root.into());
        let trust = Trusted::of_user().ok_or(ProjectError::Homeless)?;
        let foreign = settings.foreign();
        let project = with_store(context)?;
        if !self.tasks.is_empty() {
            let project = project.map_or_else(|| context.project(), Ok)?;
            return self.run_for_tasks(context, &project, &trust);
        }
        let exposures = self.exposures(project.as_ref(), &trust)?;
        match (self.show, self.revoke) {
            (true, _) => {}
            (false, true) => {
                trust.revoke(&root)?;
                project.as_ref().map_or(Ok(()), Project::distrust_store)?;
            }
            (false, false) => {
                project.as_ref().map(Project::trust_store).transpose()?;
                trust.grant(&root, foreign, &exposures)?;
            }
        }
        let store = project.as_ref().map(Contents::of).transpose()?;
        let keys = foreign.iter().map(|foreign| KeyView {
            key: foreign.key.name,
            value: &foreign.value,
            trusted: trust.covers(&root, foreign),
        });
        let mut human: Vec<String> = store.iter().map(Contents::page).collect();
        if foreign.is_empty() {
            human.push("no setting of this project needs trust".into());
        }
        human.extend(foreign.iter().map(|foreign| line(foreign, trust.covers(&root, foreign))));
        let agents: Vec<ExposureView> = exposures.iter().map(|exposure| view(&root, &trust, exposure, None)).collect();
        human.extend(agents.iter().map(row));
        human.push(format!("{DIM}in {}{DIM:#}", project_file.display()));
        let mut goes_on = Vec::new();
        if let Some(project) = project.as_ref().filter(|_| !self.show && !self.revoke) {
            goes_on = resume(context, project, &trust, &mut human)?;
        }
        let view = TrustView { project: Text(root.display()), store, keys: keys.collect(), agents, goes_on };
        context.printer.print(&view, human.join("\n"));
        Ok(self.exit_code(exposures.iter()))
    }

    /// Shows or trusts what agents execute where these tasks run, and nothing else.
    fn run_for_tasks(&self, context: &Context, project: &Project, trust: &Trusted) -> ExitResult {
        let root = project.root();
        let names = named(project, self.agent.iter())?;
        let places = worktrees::places(project, &names, &self.tasks)?;
        let exposures = || places.iter().flat_map(|place| &place.exposures);
        if !self.show {
            trust_also(context, project, |_| false, exposures().cloned().collect())?;
        }
        let (mut human, mut agents) = (Vec::new(), Vec::new());
        for place in &places {
            let views: Vec<ExposureView> =
                place.exposures.iter().map(|exposure| view(root, trust, exposure, Some(&place.directory))).collect();
            human.extend(views.iter().map(row));
            human.push(format!("{DIM}in {}{DIM:#}", place.directory.display()));
            agents.extend(views);
        }
        let goes_on = if self.show { Vec::new() } else { resume(context, project, trust, &mut human)? };
        let view = TrustView { project: Text(root.display()), store: None, keys: Vec::new(), agents, goes_on };
        context.printer.print(&view, human.join("\n"));
        Ok(self.exit_code(exposures()))
    }

    /// Exit 5 if an exposure could not be read, and so not trusted.
    fn exit_code<'a>(&self, mut exposures: impl Iterator<Item = &'a Exposure>) -> u8 {
        if !self.show && !self.revoke && exposures.any(Exposure::is_unreadable) { exit::NOT_PERMITTED } else { exit::OK }
    }
}

/// The agents in these comma-separated lists.
fn named<'a>(project: &Project, lists: impl Iterator<Item = &'a String>) -> Result<Vec<String>, Failure> {
    let names = lists.flat_map(|names| names.split(','));
    let names: Vec<String> = names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    match names.iter().find(|name| project.config().agents.profiles.get(name).is_none()) {
        Some(unknown) => Err(tasks::agents::unknown(project.config(), unknown)),
        None => Ok(names),
    }
}

fn view(root: &Path, trust: &Trusted, exposure: &Exposure, directory: Option<&Path>) -> ExposureView {
    ExposureView {
        label: exposure.label(),
        trusted: trust.covers_exposure(root, exposure),
        directory: directory.map(|directory| directory.display().to_string()),
    }
}

fn row(found: &ExposureView) -> String {
    format!("{}{}", word(found.trusted), found.label.escape_debug())
}

/// Continues the tasks that waited for this trust, and adds lines about them and about tasks that wait for more.
fn resume(context: &Context, project: &Project, trust: &Trusted, human: &mut Vec<String>) -> Result<Vec<String>, Failure> {
    let (gone_on, commands) = worktrees::resume(context, project, trust)?;
    human.extend(gone_on.iter().map(|title| format!("{GREEN}{}{GREEN:#} continues", format::one_line(title))));
    human.extend(commands.iter().map(|command| format!("{YELLOW}a task waits for{YELLOW:#}  {command}")));
    Ok(gone_on)
}

impl Trust {
    /// The exposures of the agents that are named, used or trusted here.
    fn exposures(&self, project: Option<&Project>, trust: &Trusted) -> Result<Vec<Exposure>, Failure> {
        let Some(project) = project else { return Ok(Vec::new()) };
        let config = &project.config().agents;
        let mut names: BTreeSet<String> = named(project, self.agent.iter().chain(&config.default))?.into_iter().collect();
        // Agents that are trusted already stay trusted.
        let is_trusted = |name: &str| project.exposures(name).iter().any(|found| trust.covers_exposure(project.root(), found));
        names.extend(config.profiles.names().filter(|name| is_trusted(name)).map(str::to_owned));
        names.extend(used_agents(project)?);
        Ok(names.iter().flat_map(|name| project.exposures(name)).collect())
    }
}

fn used_agents(project: &Project) -> Result<BTreeSet<String>, Failure> {
    let (mut reader, mut used, mut next) = (project.reader()?, BTreeSet::new(), Some(Seq(0)));
    while let Some(after) = next {
        let (page, more) = reader.view().tasks(&unfinished(), after)?;
        for task in page.into_iter().map(|listed| listed.task) {
            if let Some(Work::Agent(work)) = &task.spec.work {
                used.extend(work.agents.iter().map(|choice| choice.agent.to_string()));
            }
        }
        next = more;
    }
    Ok(used)
}

fn unfinished() -> TaskFilter {
    let over = [Status::Completed, Status::Failed, Status::Cancelled, Status::Skipped];
    let statuses = Status::ALL.into_iter().filter(|status| !over.contains(status)).collect();
    TaskFilter { statuses, ..TaskFilter::default() }
}

/// The project, if it has a store: a clone may have only the settings.
fn with_store(context: &Context) -> Result<Option<Project>, Failure> {
    let project = match Project::discover(&context.directory(), &context.environment()) {
        Ok(project) => project,
        Err(ProjectError::NotFound { .. } | ProjectError::NoStore { .. } | ProjectError::Elsewhere { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match project.store_id() {
        Ok(_) => Ok(Some(project)),
        Err(StoreError::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What the store would start, for the user's decision.
#[derive(Serialize)]
struct Contents {
    place: String,
    id: Option<String>,
    trusted: bool,
    tasks: usize,
    /// The first few tasks with their commands.
    commands: Vec<StoredCommand>,
    workers: usize,
    routes: usize,
}

/// A task and its command.
#[derive(Serialize)]
struct StoredCommand {
    task: TaskId,
    title: Title,
    command: String,
}

impl Contents {
    fn of(project: &Project) -> Result<Contents, Failure> {
        let mut reader = project.reader()?;
        let filter = unfinished();
        let (mut tasks, mut commands, mut next) = (0, Vec::new(), Some(Seq(0)));
        while let Some(after) = next {
            let (page, more) = reader.view().tasks(&filter, after)?;
            for task in page.into_iter().map(|listed| listed.task) {
                let Some(command) = task.spec.work.as_ref().map(|work| work.describe()) else { continue };
                tasks += 1;
                if commands.len() < COMMANDS_SHOWN {
                    commands.push(StoredCommand { task: task.id, title: task.spec.title, command });
                }
            }
            next = more;
        }
        let automation = reader.view().load(&[Key::Automation].into())?.tables.automation;
        let id = project.store_id()?.map(|id| id.short().to_owned());
        let (workers, routes) = (automation.workers.workers.len(), automation.routes.routes.len());
        Ok(Contents { place: project.store(), id, trusted: project.is_trusted()?, tasks, commands, workers, routes })
    }

    fn page(&self) -> String {
        let id = self.id.as_ref().map_or_else(|| "no id yet".into(), |id| format!("id {id}…"));
        let mut page = format!("{}{BOLD}store{BOLD:#} {} {DIM}({id}){DIM:#}", word(self.trusted), self.place);
        let indent = " ".repeat(13);
        let count = |number: usize, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
        let tasks = format!("{} with a command", count(self.tasks, "unfinished task"));
        page.push_str(&format!("\n{indent}{tasks}, {}, {}", count(self.workers, "worker"), count(self.routes, "route")));
        for StoredCommand { task, command, .. } in &self.commands {
            let command: String = command.chars().take(COMMAND_SHOWN).map(harmless).collect();
            page.push_str(&format!("\n{indent}{DIM}{task}{DIM:#} {command}"));
        }
        if self.tasks > self.commands.len() {
            page.push_str(&format!("\n{indent}{DIM}… list all: banksman tasks list{DIM:#}"));
        }
        page
    }
}

fn word(trusted: bool) -> String {
    let (style, word) = if trusted { (GREEN, "trusted") } else { (YELLOW, "not trusted") };
    format!("{style}{word:<13}{style:#}")
}

/// The value is shown exactly, because the user decides about it, but control characters are escaped.
fn line(foreign: &Foreign, trusted: bool) -> String {
    let value: String = foreign.value.chars().map(harmless).collect();
    format!("{}{BOLD}{}{BOLD:#} = {value}", word(trusted), foreign.key.name)
}

fn harmless(letter: char) -> String {
    if letter == '"' || letter == '\'' { letter.into() } else { letter.escape_debug().to_string() }
}
