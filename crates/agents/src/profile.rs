//! Profiles: how an agent program is started, as data.
//!
//! The built-in profiles come first, then the user's settings, then the project's. A section `[agent.NAME]` changes
//! single keys of the profile of that name or of the profile that it `extends`, or makes a new profile.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use banksman_core::Name;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::family::Family;

/// The profiles that come with Banksman.
const BUILT_IN: &str = include_str!("builtin.toml");

/// The permissions of a run of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Read files.
    Read,
    /// Change files and commit.
    Edit,
    /// Run any command.
    Full,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Read => "read",
            Level::Edit => "edit",
            Level::Full => "full",
        }
    }
}

/// How the prompt reaches the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptBy {
    Stdin,
    /// As the argument `{prompt}`.
    Argument,
}

/// Where the id of a session comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionBy {
    /// Banksman passes it to the program as `{session}`.
    Given,
    /// The program reports it.
    Reported,
}

/// An agent program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Profile {
    pub program: String,
    pub start: Vec<String>,
    /// The arguments that resume a session; if empty, every run begins a new session.
    pub resume: Vec<String>,
    pub output: Family,
    pub prompt: PromptBy,
    /// Whether the program runs in a terminal, which `sessions attach` shows.
    pub pty: bool,
    /// Whether its stdin stays open, so that the program gets messages while it works.
    pub input: bool,
    /// The arguments that make the program read messages from its stdin.
    pub input_args: Vec<String>,
    pub session: SessionBy,
    pub env: BTreeMap<String, String>,
    pub level: Level,
    pub model: Option<String>,
    pub model_args: Vec<String>,
    /// Further arguments.
    pub args: Vec<String>,
    /// The account that shares one limit and one login.
    pub account: String,
    /// Whether the program ignores the project's own settings for it.
    pub isolated: bool,
    pub isolated_args: Vec<String>,
    pub read_args: Vec<String>,
    pub edit_args: Vec<String>,
    pub full_args: Vec<String>,
    /// The arguments that make the program report whether it is logged in, at no cost.
    pub check_login: Vec<String>,
    /// The command that logs in.
    pub login: Option<String>,
    /// The command that installs the program.
    pub install: Option<String>,
    /// The files of a project that may make the program execute commands.
    pub reads: Vec<String>,
}

/// A section of a settings file. Missing keys change nothing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    extends: Option<String>,
    program: Option<String>,
    start: Option<Vec<String>>,
    resume: Option<Vec<String>>,
    output: Option<Family>,
    prompt: Option<PromptBy>,
    pty: Option<bool>,
    input: Option<bool>,
    input_args: Option<Vec<String>>,
    session: Option<SessionBy>,
    env: Option<BTreeMap<String, String>>,
    level: Option<Level>,
    model: Option<String>,
    model_args: Option<Vec<String>>,
    args: Option<Vec<String>>,
    account: Option<String>,
    isolated: Option<bool>,
    isolated_args: Option<Vec<String>>,
    read_args: Option<Vec<String>>,
    edit_args: Option<Vec<String>>,
    full_args: Option<Vec<String>>,
    check_login: Option<Vec<String>>,
    login: Option<String>,
    install: Option<String>,
    reads: Option<Vec<String>>,
}

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProfileError {
    #[error("{0}")]
    Toml(String),
    #[error("{0:?} is not a name: letters, digits, '-' and '_'")]
    Name(String),
    #[error("it extends {0:?}, and there is no agent of that name")]
    Extends(String),
    #[error("it names no program")]
    NoProgram,
    #[error("an agent in a terminal (pty = true) gets its prompt as an argument: prompt = \"argument\", and {{prompt}} in start")]
    TerminalPrompt,
    #[error("pty and input exclude each other: messages to an agent in a terminal are typed")]
    TerminalInput,
}

/// All profiles, by name. The default is the built-in profiles.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    /// All profiles, if any differs from the built-in ones. Otherwise the built-in profiles are parsed on first use:
    /// most commands do not need them.
    changed: Option<BTreeMap<Name, Profile>>,
}

/// The profiles that come with Banksman.
static BUILT_IN_PROFILES: LazyLock<BTreeMap<Name, Profile>> = LazyLock::new(|| {
    let table: BTreeMap<String, toml::Table> = toml::from_str(BUILT_IN).expect("the built-in profiles are valid");
    let mut profiles = Profiles { changed: Some(BTreeMap::new()) };
    for (name, section) in table {
        profiles.apply(&name, section).expect("the built-in profiles are valid");
    }
    profiles.changed.unwrap_or_default()
});

impl PartialEq for Profiles {
    fn eq(&self, other: &Profiles) -> bool {
        self.all() == other.all()
    }
}

impl Eq for Profiles {}

impl Profiles {
    fn all(&self) -> &BTreeMap<Name, Profile> {
        self.changed.as_ref().unwrap_or_else(|| &BUILT_IN_PROFILES)
    }

    pub fn get(&self, name: &str) -> Option<(&Name, &Profile)> {
        self.all().iter().find(|(known, _)| known.as_str() == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Profile)> {
        self.all().iter()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all().keys().map(Name::as_str)
    }

    /// Applies all sections `[agent.NAME]` of a settings file. Returns each as JSON, which is what the user trusts, or
    /// with its error.
    pub fn apply_file(&mut self, text: &str) -> Vec<(String, Result<String, ProfileError>)> {
        // An invalid file is reported elsewhere.
        let table = toml::from_str::<toml::Table>(text).unwrap_or_default();
        let Some(toml::Value::Table(agents)) = table.get("agent") else { return Vec::new() };
        let each = agents.iter().map(|(name, section)| {
            let applied = match section {
                toml::Value::Table(section) => self.apply(name, section.clone()),
                _ => Err(ProfileError::Toml("this is a section".into())),
            };
            let json = || serde_json::to_string(section).expect("a section has a JSON form");
            (name.clone(), applied.map(|()| json()))
        });
        each.collect()
    }

    /// Applies a section `[agent.NAME]`, given as the text of its keys.
    pub fn apply_text(&mut self, name: &str, keys: &str) -> Result<(), ProfileError> {
        let section = toml::from_str(keys).map_err(|error| ProfileError::Toml(error.message().into()))?;
        self.apply(name, section)
    }

    fn apply(&mut self, name: &str, section: toml::Table) -> Result<(), ProfileError> {
        let section: Section = section.try_into().map_err(|error: toml::de::Error| ProfileError::Toml(error.message().into()))?;
        let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
        let name = Name::new(name).ok().filter(|_| is_plain).ok_or_else(|| ProfileError::Name(name.into()))?;
        let base = match &section.extends {
            Some(base) => Some(self.get(base).ok_or_else(|| ProfileError::Extends(base.clone()))?.1.clone()),
            None => self.all().get(&name).cloned(),
        };
        let base = match (base, &section.program) {
            (Some(base), _) => base,
            (None, Some(program)) => Profile::new(program, &name),
            (None, None) => return Err(ProfileError::NoProgram),
        };
        let profile = base.with(section);
        match &profile {
            Profile { pty: true, prompt: PromptBy::Stdin, .. } => Err(ProfileError::TerminalPrompt),
            Profile { pty: true, input: true, .. } => Err(ProfileError::TerminalInput),
            _ => {
                self.changed.get_or_insert_with(|| BUILT_IN_PROFILES.clone()).insert(name, profile);
                Ok(())
            }
        }
    }
}

impl Profile {
    /// A profile for any program: it gets the prompt on stdin, and its exit status decides.
    fn new(program: &str, name: &Name) -> Profile {
        Profile {
            program: program.into(),
            start: vec!["{options}".into()],
            resume: Vec::new(),
            output: Family::Text,
            prompt: PromptBy::Stdin,
            pty: false,
            input: false,
            input_args: Vec::new(),
            session: SessionBy::Reported,
            env: BTreeMap::new(),
            level: Level::Full,
            model: None,
            model_args: Vec::new(),
            args: Vec::new(),
            account: name.as_str().into(),
            isolated: false,
            isolated_args: Vec::new(),
            read_args: Vec::new(),
            edit_args: Vec::new(),
            full_args: Vec::new(),
            check_login: Vec::new(),
            login: None,
            install: None,
            reads: Vec::new(),
        }
    }

    fn with(self, section: Section) -> Profile {
        let Section { extends: _, program, start, resume, output, prompt, session, env, level, model, model_args, .. } = section;
        let Section { args, account, isolated, isolated_args, read_args, edit_args, full_args, check_login, .. } = section;
        let mut all_env = self.env;
        all_env.extend(env.unwrap_or_default());
        Profile {
            program: program.unwrap_or(self.program),
            start: start.unwrap_or(self.start),
            resume: resume.unwrap_or(self.resume),
            output: output.unwrap_or(self.output),
            prompt: prompt.unwrap_or(self.prompt),
            pty: section.pty.unwrap_or(self.pty),
            input: section.input.unwrap_or(self.input),
            input_args: section.input_args.unwrap_or(self.input_args),
            session: session.unwrap_or(self.session),
            env: all_env,
            level: level.unwrap_or(self.level),
            model: model.or(self.model),
            model_args: model_args.unwrap_or(self.model_args),
            args: args.unwrap_or(self.args),
            account: account.unwrap_or(self.account),
            isolated: isolated.unwrap_or(self.isolated),
            isolated_args: isolated_args.unwrap_or(self.isolated_args),
            read_args: read_args.unwrap_or(self.read_args),
            edit_args: edit_args.unwrap_or(self.edit_args),
            full_args: full_args.unwrap_or(self.full_args),
            check_login: check_login.unwrap_or(self.check_login),
            login: section.login.or(self.login),
            install: section.install.or(self.install),
            reads: section.reads.unwrap_or(self.reads),
        }
    }

    pub fn can_resume(&self) -> bool {
        !self.resume.is_empty()
    }

    /// The program with its arguments.
    pub fn argv(&self, call: &Call<'_>) -> Vec<String> {
        let words = if call.resumes { &self.resume } else { &self.start };
        let mut argv = vec![self.program.clone()];
        for word in words {
            match word.as_str() {
                "{options}" => argv.extend(self.options(call)),
                word => argv.push(call.fill(word)),
            }
        }
        argv
    }

    fn options(&self, call: &Call<'_>) -> Vec<String> {
        let level = match self.level {
            Level::Read => &self.read_args,
            Level::Edit => &self.edit_args,
            Level::Full => &self.full_args,
        };
        let model: &[String] = if call.model.is_some() { &self.model_args } else { &[] };
        let isolated: &[String] = if self.isolated { &self.isolated_args } else { &[] };
        let input: &[String] = if self.input { &self.input_args } else { &[] };
        [level, model, isolated, input, &self.args].into_iter().flatten().map(|word| call.fill(word)).collect()
    }
}

/// The values in a command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call<'a> {
    /// Whether the session is resumed.
    pub resumes: bool,
    pub session: &'a str,
    pub model: Option<&'a str>,
    pub prompt: &'a str,
    /// The git directories that a commit writes to, as a JSON list.
    pub git_dirs: &'a str,
}

impl Call<'_> {
    /// Replaces the placeholder of a word, if it has one. Placeholders in the value are not replaced.
    fn fill(&self, word: &str) -> String {
        for (mark, value) in [
            ("{session}", &(|| self.session.to_owned()) as &dyn Fn() -> String),
            ("{model}", &|| self.model.unwrap_or_default().to_owned()),
            ("{prompt}", &|| self.prompt.to_owned()),
            ("{git_dirs}", &|| self.git_dirs.to_owned()),
        ] {
            if let Some((before, after)) = word.split_once(mark) {
                return format!("{before}{}{after}", value());
            }
        }
        word.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(name: &str, keys: &str, call: Call<'_>) -> String {
        let mut profiles = Profiles::default();
        profiles.apply_text(name, keys).unwrap();
        profiles.get(name).unwrap().1.argv(&call).join(" ")
    }

    #[test]
    fn the_built_in_agents_are_started_and_resumed() {
        let new = Call { session: "S", ..Call::default() };
        assert_eq!(
            argv("claude", "model = 'opus'\nlevel = 'full'\nisolated = true", Call { model: Some("opus"), ..new }),
            "claude -p --verbose --output-format stream-json --session-id S --permission-mode bypassPermissions --model opus \
             --setting-sources user --strict-mcp-config"
        );
        let again = Call { resumes: true, git_dirs: "[\"/r/.git\"]", ..new };
        assert_eq!(
            argv("codex", "level = 'edit'\nargs = ['--x']", again),
            "codex exec resume --json --skip-git-repo-check -c sandbox_mode=\"workspace-write\" -c \
             sandbox_workspace_write.writable_roots=[\"/r/.git\"] --x S -"
        );
    }

    #[test]
    fn a_section_changes_an_agent_or_makes_a_new_one() {
        let mut profiles = Profiles::default();
        profiles.apply_text("work", "extends = 'claude'\naccount = 'work'\nenv = { CLAUDE_CONFIG_DIR = '/w' }").unwrap();
        profiles.apply_text("mine", "program = './mine.sh'").unwrap();
        let (_, work) = profiles.get("work").unwrap();
        assert_eq!((work.account.as_str(), work.output, work.env.len()), ("work", Family::Claude, 1));
        let (_, mine) = profiles.get("mine").unwrap();
        assert_eq!((mine.output, mine.account.as_str(), mine.can_resume()), (Family::Text, "mine", false));
    }

    #[test]
    fn an_invalid_section_is_refused_with_a_reason() {
        let mut profiles = Profiles::default();
        let mut error = |name: &str, keys: &str| profiles.apply_text(name, keys).unwrap_err().to_string();
        assert_eq!(error("new", "model = 'x'"), "it names no program");
        assert_eq!(error("new", "extends = 'cloud'"), "it extends \"cloud\", and there is no agent of that name");
        assert!(error("claude", "modell = 'x'").contains("unknown field `modell`"));
        assert!(error("claude", "level = 'all'").contains("unknown variant `all`"));
        assert!(error("claude", "pty = true").contains("prompt = \"argument\""));
        assert!(error("new", "program = 'x'\nprompt = 'argument'\npty = true\ninput = true").contains("exclude each other"));
    }

    #[test]
    fn placeholders_in_values_are_not_replaced() {
        let call = Call { session: "{model}", model: Some("m"), ..Call::default() };
        assert_eq!(call.fill("--session={session}"), "--session={model}");
    }
}
