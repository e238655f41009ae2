use std::path::{Path, PathBuf};

use banksman_adapters::host;
use banksman_core::{LimitsChange, Wall};
use banksman_engine::{AccountRequest, Reply, Request};
use banksman_runtime::config::{self, KEYS, Key, Layer, Settings, Source};
use banksman_runtime::{Client, Project, ProjectError, local_day};
use banksman_store::Key as Rows;
use clap::Args;
use serde::Serialize;

use super::ExitResult;
use super::trust::trust_also;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, CYAN, DIM};
use crate::table;
use crate::views::Text;

subcommands! {
    /// Show and change settings.
    ///
    /// Flags override variables such as BANKSMAN_CONFIG_LOCKING__WAIT_TIMEOUT, which override the project's file, which
    /// overrides the user's file.
    #[command(
        after_help = "Examples:\n  banksman config list\n  banksman config get locking.wait_timeout\n  banksman config set locking.wait_timeout 10m"
    )]
    pub(crate) noun Config {
        List(List),
        Get(Get),
        Set(Set),
        Unset(Unset),
    }
}

/// List all settings with their values, their defaults and where they come from.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman config list\n  banksman config list --json")]
struct List {
    /// Ignore the project's file
    #[arg(long)]
    user: bool,
}

/// Show the value of one setting.
///
/// Exits with 4 if the setting has no value. A password in a URL is masked.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman config get locking.wait_timeout")]
struct Get {
    /// The setting, such as locking.wait_timeout
    key: String,
    /// Ignore the project's file
    #[arg(long)]
    user: bool,
}

/// Change a setting in the project's file, or in the user's.
///
/// Everything else in the file stays as it is, comments included. A limit (limits.*) changes at once for all runners of the project.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman config set locking.wait_timeout 10m\n  banksman config set --user store postgres://me@db.example/banksman"
)]
struct Set {
    /// The setting, such as locking.wait_timeout
    key: String,
    /// Its value
    #[arg(allow_hyphen_values = true)]
    value: String,
    /// In the user's file, for all projects
    #[arg(long)]
    user: bool,
}

/// Remove a setting from the project's file, or from the user's, so that its default applies.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman config unset locking.wait_timeout")]
struct Unset {
    /// The setting, such as locking.wait_timeout
    key: String,
    /// From the user's file
    #[arg(long)]
    user: bool,
}

#[derive(Serialize)]
struct Removed<'a> {
    key: &'static str,
    value: Option<&'a str>,
    source: &'static str,
    file: Text<std::path::Display<'a>>,
}

/// A setting as it is shown, including the values of flags, which the library does not know.
#[derive(Serialize)]
struct Setting {
    key: &'static str,
    value: Option<String>,
    default: Option<&'static str>,
    source: &'static str,
    place: Option<String>,
    description: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    settings: &'a [Setting],
    user_file: Option<Text<std::path::Display<'a>>>,
    project_file: Option<Text<std::path::Display<'a>>>,
}

#[derive(Serialize)]
struct Changed<'a> {
    key: &'static str,
    value: &'a str,
    file: Text<std::path::Display<'a>>,
}

impl List {
    fn run(self, context: &Context) -> ExitResult {
        let project_file = if self.user { None } else { project_file(context)? };
        let user_file = context.environment().user_file;
        let settings = all_settings(context, project_file.as_deref())?;
        let view = Listed {
            settings: &settings,
            user_file: user_file.as_deref().map(|path| Text(path.display())),
            project_file: project_file.as_deref().map(|path| Text(path.display())),
        };
        let columns = ["KEY", "VALUE~", "DEFAULT~??", "SOURCE?", "MEANING~???"];
        let mut human = table::render(&columns, settings.iter().map(Setting::row).collect());
        human.push('\n');
        for (title, file) in [("user", &user_file), ("project", &project_file)] {
            if let Some(path) = file {
                let missing = if path.exists() { "" } else { " (missing)" };
                human.push_str(&format!("\n{DIM}{title:<8} {}{missing}{DIM:#}", path.display()));
            }
        }
        context.printer.result(&view, human)
    }
}

impl Get {
    fn run(self, context: &Context) -> ExitResult {
        let project_file = if self.user { None } else { project_file(context)? };
        let settings = all_settings(context, project_file.as_deref())?;
        note_former(context, &self.key);
        let name = Key::find(&self.key).map_or(self.key.as_str(), |key| key.name);
        let setting = settings.iter().find(|setting| setting.key == name);
        let setting = setting.ok_or_else(|| ProjectError::from(config::unknown_key(&self.key)))?;
        let value = setting.value.as_deref().ok_or_else(|| {
            Failure::new(exit::NOT_FOUND, "NOT_SET", format!("{} is not set", self.key))
                .detail("key", &self.key)
                .hint("list all settings: banksman config list")
        })?;
        context.printer.result(setting, value)
    }
}

/// Prints a note if the setting has another name now.
fn note_former(context: &Context, name: &str) {
    if let Some(key) = Key::find(name).filter(|key| key.name != name) {
        context.printer.note(&format!("{DIM}{name} was renamed to {}; the old name keeps working{DIM:#}", key.name));
    }
}

impl Set {
    fn run(self, context: &Context) -> ExitResult {
        note_former(context, &self.key);
        let (layer, file) = place(context, self.user)?;
        let key = config::set(layer, &file, &self.key, &self.value)?;
        let value = key.masked(&self.value);
        let applies = self.applies(context, layer);
        if applies.is_none() {
            update_limits(context, key.name)?;
        }
        let view = Changed { key: key.name, value: &value, file: Text(file.display()) };
        context.printer.print(&view, format!("{BOLD}{}{BOLD:#} is {value} now\n{DIM}in {}{DIM:#}", key.name, file.display()));
        if key.name == "locking.section_timeout" {
            context.printer.note(
                "note: this setting has no effect: an exclusive section is held exactly as long as a run or a claim is in it",
            );
        }
        if layer == Layer::Project && trust_own(context, key.name)? {
            context.printer.note(&format!("{DIM}trusted, because you set it{DIM:#}"));
        }
        applies.iter().for_each(|note| context.printer.note(note));
        Ok(exit::OK)
    }

    /// Why the new value has no effect: a later layer sets the key too, or the settings have another error.
    fn applies(&self, context: &Context, layer: Layer) -> Option<String> {
        let applying = project_file(context).and_then(|file| Ok(Settings::load(&context.environment(), file.as_deref())?));
        match applying {
            Ok(settings) => {
                let winner = settings.get(&self.key).map(|setting| &setting.source);
                let wins = match layer {
                    Layer::User => matches!(winner, Some(Source::User(_))),
                    Layer::Project => matches!(winner, Some(Source::Project(_))),
                    Layer::Environment => false,
                };
                let place = winner.and_then(Source::place).filter(|_| !wins)?;
                Some(format!("note: {place} overrides this value here"))
            }
            Err(failure) => Some(format!("note: the settings have another error: {}", failure.message)),
        }
    }
}

/// Trusts a command or URL that the user has just set. Returns whether the key is one, in a usable project.
fn trust_own(context: &Context, key: &str) -> Result<bool, Failure> {
    let Ok(project) = context.project() else { return Ok(false) };
    let file = project.folder().join("config.toml");
    // Other commands report errors in the settings.
    let Ok(settings) = Settings::load(&context.environment(), Some(&file)) else { return Ok(false) };
    let is_foreign = settings.foreign().iter().any(|foreign| foreign.key.name == key);
    if is_foreign {
        trust_also(context, &project, |foreign| foreign.key.name == key, Vec::new())?;
    }
    Ok(is_foreign)
}

/// Updates the limits in the store, which apply to all runners of the project at once.
fn update_limits(context: &Context, key: &str) -> Result<(), Failure> {
    if !key.starts_with("limits.") && key != "budget.day" {
        return Ok(());
    }
    let client = match context.client() {
        Ok(client) => client,
        // With --user a project is optional.
        Err(failure) if failure.exit == exit::NOT_FOUND => return Ok(()),
        Err(failure) => return Err(failure),
    };
    if key == "budget.day" {
        return lift_budget(&client);
    }
    let seed = client.config().limits();
    let runs = Some(seed.runs).filter(|_| key == "limits.max_concurrent_runs");
    let roots = Some(seed.roots).filter(|_| key == "limits.max_concurrent_root_tasks");
    match client.call(Request::SetLimits { change: LimitsChange { runs, roots }, seed })? {
        Reply::Limits(_) => Ok(()),
        reply => Err(Failure::unexpected(&reply)),
    }
}

/// Lets agents start again if today's spend is below the new budget.
fn lift_budget(client: &Client) -> Result<(), Failure> {
    let today = local_day(Wall(host::wall_ms())).date;
    let rows = client.reader()?.view().load(&[Rows::Spend { since: today }].into())?.tables.backlog;
    let paid: u64 = rows.spend.values().filter(|spend| spend.day == today).map(|spend| spend.paid_micros).sum();
    if client.config().budget_micros().is_none_or(|budget| paid < budget) {
        client.request(AccountRequest::LiftBudget)?;
    }
    Ok(())
}

/// The layer and the file to change.
fn place(context: &Context, is_user: bool) -> Result<(Layer, PathBuf), Failure> {
    if is_user {
        let missing = || Failure::new(exit::CONFIG, "CONFIG", "cannot locate the user's settings: HOME is not set");
        return Ok((Layer::User, context.environment().user_file.ok_or_else(missing)?));
    }
    let missing = |from: PathBuf| {
        let failure = Failure::from(ProjectError::NotFound { from });
        failure.hint("create a project with: banksman init; or set it for all projects with --user")
    };
    Ok((Layer::Project, project_file(context)?.ok_or_else(|| missing(context.directory()))?))
}

impl Unset {
    fn run(self, context: &Context) -> ExitResult {
        note_former(context, &self.key);
        let (layer, file) = place(context, self.user)?;
        let key = config::unset(layer, &file, &self.key)?;
        let settings = all_settings(context, project_file(context)?.as_deref())?;
        let setting = settings.iter().find(|setting| setting.key == key.name).expect("the settings have every key");
        let value = setting.value.as_deref();
        let view = Removed { key: key.name, value, source: setting.source, file: Text(file.display()) };
        let said = value.map_or_else(|| "has no value now".into(), |value| format!("is {value} now"));
        update_limits(context, key.name)?;
        context.printer.result(&view, format!("{BOLD}{}{BOLD:#} {said}, by {}", key.name, setting.source))
    }
}

impl Setting {
    fn row(&self) -> Vec<String> {
        let or_dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
        // Settings without their default value stand out.
        let style = if self.source == "default" { DIM } else { CYAN };
        let (value, default) = (or_dash(self.value.as_deref()), or_dash(self.default));
        let source = format!("{style}{}{style:#}", self.source);
        vec![self.key.into(), format!("{BOLD}{value}{BOLD:#}"), default, source, self.description.into()]
    }
}

/// All settings, including a store that a flag or its variable names.
fn all_settings(context: &Context, project_file: Option<&Path>) -> Result<Vec<Setting>, Failure> {
    let settings = Settings::load(&context.environment(), project_file)?;
    let from_variable = std::env::var("BANKSMAN_STORE").ok();
    let show = |key: &'static Key| {
        let setting = settings.get(key.name).expect("the settings have every key");
        let (value, source, place) = match &context.store {
            Some(url) if key.name == "store" => {
                let (source, place) = url_source(url, from_variable.as_deref());
                (Some(key.masked(url)), source, Some(place.into()))
            }
            _ => (setting.value.clone(), setting.source.as_str(), setting.source.place()),
        };
        Setting { key: key.name, value, default: key.default, source, place, description: key.description }
    };
    Ok(KEYS.iter().map(show).collect())
}

/// The parser of the command line does not distinguish the flag from the variable.
fn url_source(url: &str, variable: Option<&str>) -> (&'static str, &'static str) {
    if variable == Some(url) { ("environment", "BANKSMAN_STORE") } else { ("flag", "--store") }
}

/// The file of the project, if there is one, even if its content is invalid: this command repairs it.
pub(super) fn project_file(context: &Context) -> Result<Option<PathBuf>, Failure> {
    // This command also repairs a store URL that cannot be parsed.
    let place = context.store_url().ok().flatten();
    match Project::config_file(&context.directory(), place.as_ref()) {
        Ok(file) => Ok(Some(file)),
        Err(ProjectError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
