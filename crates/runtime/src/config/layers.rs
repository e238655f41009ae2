//! Reading the layers, one over the other.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toml_edit::{Document, Item, TableLike};

use super::problem::unknown;
use super::{Config, ConfigError, Home, KEYS, Key, Kind, Problem, VARIABLE_PREFIX};

/// The settings besides the project's own file: the user's file and the environment.
///
/// The default has neither. [`Environment::from_process`] is the only place that reads the environment for settings.
#[derive(Clone, Default)]
pub struct Environment {
    /// The user's file, which need not exist.
    pub user_file: Option<PathBuf>,
    /// Variables of the environment; those that set no key are ignored.
    pub variables: Vec<(String, String)>,
    /// The URL of the store, if a flag or the variable `BANKSMAN_STORE` names one.
    pub store: Option<String>,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Variables may carry passwords.
        let names: Vec<&str> = self.variables.iter().map(|(name, _)| name.as_str()).collect();
        let store = self.store.as_deref().map(super::masked);
        f.debug_struct("Environment")
            .field("user_file", &self.user_file)
            .field("variables", &names)
            .field("store", &store)
            .finish()
    }
}

/// The place of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The user's file.
    User,
    /// The project's file.
    Project,
    Environment,
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// No layer has set it.
    Default,
    /// The user's file.
    User(PathBuf),
    /// The project's file.
    Project(PathBuf),
    /// The variable of this name.
    Environment(String),
}

/// One key with the value that applies.
#[derive(Debug, Clone)]
pub struct Setting {
    pub key: &'static Key,
    /// The value as it was written, without a password.
    pub value: Option<String>,
    pub source: Source,
}

/// A value that applies, comes with the project, and is used only if the user trusts it.
#[derive(Clone)]
pub struct Foreign {
    pub key: &'static Key,
    /// The value as it is in the file.
    pub value: String,
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {:?}", self.key.name, self.key.masked(&self.value))
    }
}

/// All keys with the values that apply.
#[derive(Debug, Clone)]
pub struct Settings {
    config: Config,
    list: Vec<Setting>,
    foreign: Vec<Foreign>,
    project_agents: Vec<(String, String)>,
}

impl Environment {
    /// The environment of this process: the variables `BANKSMAN_CONFIG_*`, `BANKSMAN_STORE` and `PG*`, and the file of
    /// its user. Empty variables count as unset.
    pub fn from_process() -> Environment {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with(VARIABLE_PREFIX) || name.starts_with("PG"))?;
            Some((name, value.to_string_lossy().into_owned())).filter(|(_, value)| !value.is_empty())
        });
        Environment {
            user_file: Environment::user_file(path("XDG_CONFIG_HOME"), path("HOME")),
            variables: variables.collect(),
            store: std::env::var("BANKSMAN_STORE").ok().filter(|url| !url.is_empty()),
        }
    }

    pub fn variable(&self, name: &str) -> Option<String> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// The path of the user's file: `$XDG_CONFIG_HOME/banksman/config.toml` or `~/.config/banksman/config.toml`.
    pub fn user_file(xdg_config_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
        let base = xdg_config_home.filter(|path| path.is_absolute());
        Some(base.or_else(|| home.map(|home| home.join(".config")))?.join("banksman/config.toml"))
    }
}

impl Source {
    pub fn as_str(&self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::User(_) => "user",
            Source::Project(_) => "project",
            Source::Environment(_) => "environment",
        }
    }

    /// The file or the variable.
    pub fn place(&self) -> Option<String> {
        match self {
            Source::Default => None,
            Source::User(path) | Source::Project(path) => Some(path.display().to_string()),
            Source::Environment(variable) => Some(variable.clone()),
        }
    }

    pub(super) fn layer(&self) -> Layer {
        match self {
            Source::User(_) => Layer::User,
            Source::Default | Source::Project(_) => Layer::Project,
            Source::Environment(_) => Layer::Environment,
        }
    }
}

impl Settings {
    /// Reads the environment, and the file of a project if there is one. A missing file sets nothing.
    pub fn load(environment: &Environment, project_file: Option<&Path>) -> Result<Settings, ConfigError> {
        let nothing = |key| Setting { key, value: key.default.map(str::to_owned), source: Source::Default };
        let list = KEYS.iter().map(nothing).collect();
        let settings = Settings { config: Config::default(), list, foreign: Vec::new(), project_agents: Vec::new() };
        let mut reading = Reading { settings, problems: Vec::new() };
        if let Some(path) = &environment.user_file {
            reading.file(path, &Source::User(path.clone()));
        }
        if let Some(path) = project_file {
            reading.file(path, &Source::Project(path.into()));
        }
        for (variable, value) in &environment.variables {
            reading.variable(variable, value);
        }
        match reading.problems.is_empty() {
            true => Ok(reading.settings),
            false => Err(ConfigError { problems: reading.problems }),
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.list.iter().find(|setting| setting.key.name == name)
    }

    /// The values that apply, come with the project, and need the trust of the user.
    pub fn foreign(&self) -> &[Foreign] {
        &self.foreign
    }

    /// The sections about agents that come with the project, as JSON: they need the trust of the user.
    pub fn project_agents(&self) -> &[(String, String)] {
        &self.project_agents
    }

    /// All settings, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.list.iter()
    }
}

/// The layers read so far, and their problems.
struct Reading {
    settings: Settings,
    problems: Vec<Problem>,
}

impl Reading {
    fn file(&mut self, path: &Path, source: &Source) {
        let file_problem = |line, what| Problem { source: Some(source.clone()), line, key: None, what };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.problems.push(file_problem(None, format!("it cannot be read: {error}"))),
        };
        let document = match Document::parse(&text) {
            Ok(document) => document,
            Err(error) => {
                let line = error.span().map(|span| line_of(&text, span.start));
                return self.problems.push(file_problem(line, not_toml(&error)));
            }
        };
        self.agents(&document, &text, source);
        self.sections(&document, &text, source);
        let mut leaves = Vec::new();
        collect(document.as_table(), "", &mut leaves);
        for Leaf { name, at, item } in leaves {
            self.take(source, at.map(|at| line_of(&text, at)), &name, text_of(&name, item).as_deref());
        }
    }

    /// Reads the sections `[agent.NAME]`, which have their own shape.
    fn agents(&mut self, document: &Document<&String>, text: &str, source: &Source) {
        for (name, applied) in self.settings.config.agents.profiles.apply_file(text) {
            match applied {
                Ok(section) if matches!(source, Source::Project(_)) => self.settings.project_agents.push((name, section)),
                Ok(_) => {}
                Err(error) => {
                    let table = document.as_table().get("agent").and_then(Item::as_table_like);
                    let at = table.and_then(|table| table.get_key_value(&name)).and_then(|(key, _)| key.span());
                    let (line, key) = (at.map(|at| line_of(text, at.start)), Some(format!("agent.{name}")));
                    self.problems.push(Problem { source: Some(source.clone()), line, key, what: error.to_string() });
                }
            }
        }
    }

    /// Reads the sections `[section.NAME]`: the rules for agents that work there. They execute nothing, so they need no
    /// trust.
    fn sections(&mut self, document: &Document<&String>, text: &str, source: &Source) {
        let Some(item) = document.as_table().get("section") else { return };
        let Some(sections) = item.as_table_like() else {
            let what = "this is a section: [section.NAME]".into();
            return self.problems.push(Problem { source: Some(source.clone()), line: None, key: Some("section".into()), what });
        };
        for (name, section) in sections.iter() {
            let keys = || section.as_table_like().into_iter().flat_map(TableLike::iter);
            let (key, what) = match keys().find(|(key, _)| *key != "rules") {
                Some((key, _)) => (format!("section.{name}.{key}"), "there is no such key; a section has rules"),
                None => match keys().next().and_then(|(_, rules)| rules.as_str()) {
                    Some(rules) => {
                        self.settings.config.agents.rules.insert(name.to_lowercase(), rules.to_owned());
                        continue;
                    }
                    None => (format!("section.{name}.rules"), "it must be text in quotes"),
                },
            };
            let at = sections.get_key_value(name).and_then(|(key, _)| key.span()).map(|at| line_of(text, at.start));
            self.problems.push(Problem { source: Some(source.clone()), line: at, key: Some(key), what: what.into() });
        }
    }

    fn variable(&mut self, variable: &str, value: &str) {
        if let Some(name) = variable.strip_prefix(VARIABLE_PREFIX) {
            let name = name.replace("__", ".").to_lowercase();
            self.take(&Source::Environment(variable.into()), None, &name, Some(value));
        }
    }

    /// Takes one value of one layer; `None` if the value is not text.
    fn take(&mut self, source: &Source, line: Option<usize>, name: &str, value: Option<&str>) {
        let taken = match (Key::find(name), value) {
            (None, _) => Err(unknown(name, source.layer())),
            (Some(key), None) => Err(format!("it must be text in quotes, such as {:?}", key.example())),
            (Some(key), Some(value)) => {
                key.admit(source.layer()).and_then(|()| key.assign(&mut self.settings.config, value)).map(|()| (key, value))
            }
        };
        match taken {
            Ok((key, value)) => {
                let setting = self.settings.list.iter_mut().find(|setting| setting.key.name == key.name);
                let setting = setting.expect("the list has every key of the table");
                *setting = Setting { key, value: Some(key.masked(value)), source: source.clone() };
                self.settings.foreign.retain(|foreign| foreign.key.name != key.name);
                if key.home == Home::Trusted && matches!(source, Source::Project(_)) {
                    self.settings.foreign.push(Foreign { key, value: value.into() });
                }
            }
            Err(what) => self.problems.push(Problem { source: Some(source.clone()), line, key: Some(name.into()), what }),
        }
    }
}

/// A value in a file as text. Lists and switches may also be written as TOML arrays and booleans.
fn text_of(name: &str, item: &Item) -> Option<String> {
    if let Some(text) = item.as_str() {
        return Some(text.to_owned());
    }
    match Key::find(name)?.kind {
        Kind::Switch(_) => item.as_bool().map(|on| on.to_string()),
        Kind::Notices(_) | Kind::List(_) => {
            let words: Option<Vec<&str>> = item.as_array()?.iter().map(toml_edit::Value::as_str).collect();
            words.map(|words| words.join(","))
        }
        Kind::Program(_) => item.is_array().then(|| item.to_string().trim().to_owned()),
        Kind::Duration(_) | Kind::Period(_) | Kind::Span(_) | Kind::Limit(_) => None,
        Kind::Count(_) | Kind::Number(_) | Kind::Word(..) | Kind::Id(_) => None,
        Kind::Url(_) | Kind::Webhook(_) | Kind::File(_) | Kind::Directory(_) | Kind::Size(_) => None,
    }
}

pub(super) fn not_toml(error: &toml_edit::TomlError) -> String {
    format!("this is not valid TOML: {}", error.message().lines().next().unwrap_or_default())
}

pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// A value in a file, with the offset of its key.
struct Leaf<'a> {
    name: String,
    at: Option<usize>,
    item: &'a Item,
}

/// Collects everything in a file that is not a section. An empty section counts if it is not one of the table.
fn collect<'a>(table: &'a dyn TableLike, prefix: &str, leaves: &mut Vec<Leaf<'a>>) {
    // Agents and sections are read separately.
    for (name, item) in table.iter().filter(|(name, _)| !(prefix.is_empty() && matches!(*name, "agent" | "section"))) {
        let at = table.get_key_value(name).and_then(|(key, _)| key.span()).map(|span| span.start);
        let name = format!("{prefix}{name}");
        let ours = KEYS.iter().any(|key| key.name.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.')));
        match item.as_table_like() {
            Some(section) if ours || !section.is_empty() => collect(section, &format!("{name}."), leaves),
            _ => leaves.push(Leaf { name, at, item }),
        }
    }
}

#[cfg(test)]
mod tests {
    use banksman_adapters::notify::Program;

    use super::*;

    fn load(user: &str, project: &str, variables: &[(&str, &str)]) -> Result<Settings, Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let (user_file, project_file) = (dir.path().join("user"), dir.path().join("project"));
        fs::write(&user_file, user).unwrap();
        fs::write(&project_file, project).unwrap();
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let environment = Environment { user_file: Some(user_file), variables, store: None };
        let prefix = format!("{}/", dir.path().display());
        Settings::load(&environment, Some(&project_file))
            .map_err(|error| error.problems.iter().map(|problem| problem.to_string().replace(&prefix, "")).collect())
    }

    #[test]
    fn a_later_layer_wins_and_durations_stay_as_written() {
        let locking = |text: &str| format!("[locking]\nwait_timeout = \"{text}\"\n");
        let wait = |settings: &Settings| {
            let setting = settings.get("locking.wait_timeout").unwrap();
            (setting.value.clone().unwrap(), setting.source.as_str(), settings.config().wait_timeout.as_secs())
        };
        let variable = "BANKSMAN_CONFIG_LOCKING__WAIT_TIMEOUT";
        assert_eq!(wait(&load("", "", &[]).unwrap()), ("30m".into(), "default", 1_800));
        assert_eq!(wait(&load(&locking("60s"), "", &[]).unwrap()), ("60s".into(), "user", 60));
        assert_eq!(wait(&load(&locking("60s"), &locking("1m1s"), &[]).unwrap()), ("1m1s".into(), "project", 61));
        let all = load(&locking("60s"), &locking("1m1s"), &[("HOME", "/"), (variable, "0s")]).unwrap();
        assert_eq!(wait(&all), ("0s".into(), "environment", 0));
        assert_eq!(wait(&load("locking.wait_timeout = '2m'", "", &[]).unwrap()).0, "2m");
        assert_eq!(wait(&load("locking = { wait_timeout = '2m' }", "", &[]).unwrap()).0, "2m");
    }

    #[test]
    fn all_problems_are_reported_at_once_with_their_places() {
        let user = "project = 'p'\n[locking]\nwait_timeout = '5'\n";
        let project = "store = 'postgres://me:secret@db/x'\n# a comment\n[locking]\npoll_interval = 5\nheartbeat = '5s'\n";
        let problems = load(user, project, &[("BANKSMAN_CONFIG_LOCKING__WAIT", "5s")]).unwrap_err();
        let expected = [
            "user:1: project: it belongs to one project",
            "user:3: locking.wait_timeout: \"5\" has no unit",
            "project:1: store: it may carry a password",
            "project:4: locking.poll_interval: it must be text in quotes, such as \"5s\"",
            "project:5: locking.heartbeat: there is no such key; did you mean locking.heartbeat_timeout?",
            "BANKSMAN_CONFIG_LOCKING__WAIT: locking.wait: there is no such key; did you mean BANKSMAN_CONFIG_LOCKING__WAIT_TIMEOUT?",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem:?} is not {expected:?}");
        }
        assert!(!format!("{problems:?}").contains("secret"));
    }

    #[test]
    fn lists_and_switches_may_be_written_as_in_toml() {
        let text = "[notify]\non = ['decision', 'escalate']\ndesktop = true\ncommand = ['tell', \"it's\"] # me\n";
        let settings = load(text, "", &[("BANKSMAN_CONFIG_NOTIFY__SOUND", "on")]).unwrap();
        let notify = &settings.config().notify;
        assert_eq!((notify.on.len(), notify.desktop, notify.sound), (2, true, true));
        assert_eq!(notify.command, Some(Program::Argv(vec!["tell".into(), "it's".into()])));
        let problems = load("", "[notify]\non = ['decison']\ndesktop = 1\nwebhook = ['x']\n", &[]).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:#?}");
        assert!(problems[0].ends_with("project:2: notify.on: there is no notice of \"decison\"; did you mean decision?"));
    }

    #[test]
    fn values_of_the_project_are_foreign_while_they_apply() {
        let text = "[notify]\ncommand = 'x'\nwebhook = 'https://h/secret'\ndesktop = 'on'\n";
        let names = |settings: &Settings| settings.foreign().iter().map(|foreign| foreign.key.name).collect::<Vec<_>>();
        assert_eq!(names(&load(text, "", &[]).unwrap()), [""; 0]);
        let settings = load(text, text, &[]).unwrap();
        assert_eq!(names(&settings), ["notify.command", "notify.webhook"]);
        assert_eq!(settings.foreign()[1].value, "https://h/secret", "to the letter");
        assert!(!format!("{settings:?}").contains("secret\""), "{settings:?}");
        let settings = load("", text, &[("BANKSMAN_CONFIG_NOTIFY__COMMAND", "x")]).unwrap();
        assert_eq!(names(&settings), ["notify.webhook"]);
    }

    #[test]
    fn sections_have_rules_and_the_project_overrides_the_user() {
        let settings =
            load("[section.Web]\nrules = 'a'\n", "[section.web]\nrules = 'b'\n[section.\"the db\"]\nrules = 'c'\n", &[]);
        let rules = settings.unwrap().config().agents.rules.clone();
        assert_eq!(rules.into_iter().collect::<Vec<_>>(), [("the db".into(), "c".into()), ("web".into(), "b".into())]);
        for (text, expected) in [
            ("[section.db]\nrule = 'x'", "project:1: section.db.rule: there is no such key"),
            ("[section.db]\nrules = 5", "project:1: section.db.rules: it must be text"),
            ("section = 5", "project: section: this is a section"),
        ] {
            let problems = load("", text, &[]).unwrap_err();
            assert!(problems.len() == 1 && problems[0].starts_with(expected), "{text:?}: {problems:?}");
        }
    }

    #[test]
    fn invalid_settings_files_are_refused() {
        for (text, expected) in [
            ("a = 1\nb =\n", "project:2: this is not valid TOML"),
            ("[locking]\n[locking]\n", "project:2: this is not valid TOML"),
            ("[[locking]]\n", "project:1: locking: this is a section"),
            ("locking = 5\n", "project:1: locking: this is a section"),
            ("\n[lock]\n", "project:2: lock: there is no such key"),
            ("locking.poll_interval = '0s'", "project:1: locking.poll_interval: it must be greater than zero"),
        ] {
            let problems = load("", text, &[]).unwrap_err();
            assert!(problems.len() == 1 && problems[0].starts_with(expected), "{text:?}: {problems:?}");
        }
    }

    #[test]
    fn the_user_file_follows_the_xdg_standard() {
        let at = |xdg: Option<&str>, home: Option<&str>| Environment::user_file(xdg.map(Into::into), home.map(Into::into));
        assert_eq!(at(Some("/x"), Some("/h")), Some("/x/banksman/config.toml".into()));
        assert_eq!(at(Some("relative"), Some("/h")), Some("/h/.config/banksman/config.toml".into()));
        assert_eq!(at(None, None), None);
    }
}
