//! Checks whether an agent program can be started, without spending anything.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use banksman_adapters::command_supervisor::{self, CommandEnd, Task};
use banksman_adapters::program::Kept;
use banksman_agents::profile::Call;
use banksman_agents::{Family, Profile};

/// How long a program may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much of an answer is read.
const ANSWER: usize = 256 * 1024;

/// The state of an agent program on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkup {
    pub path: Option<PathBuf>,
    pub version: Option<String>,
    pub login: Login,
    /// Who pays, as far as the program or the environment shows it.
    pub pays: Option<String>,
    /// The options of its profile that the program does not know.
    pub unknown_options: Vec<String>,
}

/// Whether a program is logged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    Yes,
    No,
    /// The program cannot report it without spending.
    Unknown,
}

/// Finds a program, and asks it about itself unless `may_ask` forbids it: the name of the program may come from an
/// untrusted file.
pub fn check(profile: &Profile, directory: &Path, may_ask: bool) -> Checkup {
    let found = find(&profile.program, directory);
    let Some(path) = found.clone().filter(|_| may_ask) else {
        return Checkup { path: found, version: None, login: Login::Unknown, pays: None, unknown_options: Vec::new() };
    };
    let ask = |words: &[String]| ask(profile, directory, words);
    let version = ask(&["--version".into()]).and_then(|answer| version(&answer.text));
    let (login, pays) = login(profile, directory);
    Checkup { path: Some(path), version, login, pays, unknown_options: unknown_options(profile, ask) }
}

/// Asks a program whether it is logged in, and who pays.
pub fn login(profile: &Profile, directory: &Path) -> (Login, Option<String>) {
    let by_variable = paying_variable(profile).map(payer);
    let (login, pays) = match profile.check_login.as_slice() {
        [] => (Login::Unknown, None),
        words => ask(profile, directory, words).map_or((Login::Unknown, None), |answer| understood(profile.output, &answer)),
    };
    match by_variable {
        Some(pays) => (Login::Yes, Some(pays)),
        // The answer of codex is only about its own provider.
        None if login == Login::No && has_other_provider(profile) => (Login::Unknown, None),
        None => (login, pays),
    }
}

/// The variable, if one is set, by which the program charges its cost to an account other than its login.
pub(super) fn paying_variable(profile: &Profile) -> Option<&'static str> {
    let names: &[&'static str] = match profile.output {
        // The first of them counts, and the program does not say which.
        Family::Claude => &[
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "CLAUDE_CODE_USE_FOUNDRY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_API_KEY",
        ],
        Family::Codex => &["CODEX_API_KEY"],
        Family::Gemini => &["GEMINI_API_KEY"],
        Family::Opencode | Family::Text => &[],
    };
    let is_set = |name: &&&str| variable(profile, name).is_some_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
    names.iter().find(is_set).copied()
}

fn payer(variable: &str) -> String {
    match variable {
        "CLAUDE_CODE_USE_BEDROCK" => "Amazon Bedrock".into(),
        "CLAUDE_CODE_USE_VERTEX" => "Google Vertex AI".into(),
        "CLAUDE_CODE_USE_FOUNDRY" => "Microsoft Foundry".into(),
        token if token.ends_with("_TOKEN") => format!("the token in {token}"),
        key => format!("the key in {key}"),
    }
}

/// A variable as the program sees it.
pub(super) fn variable(profile: &Profile, name: &str) -> Option<String> {
    profile.env.get(name).cloned().or_else(|| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
}

/// Whether the settings of codex name a provider that has a key of its own.
fn has_other_provider(profile: &Profile) -> bool {
    if profile.output != Family::Codex {
        return false;
    }
    let home = variable(profile, "CODEX_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(variable(profile, "HOME")?).join(".codex")));
    let text = home.and_then(|home| std::fs::read_to_string(home.join("config.toml")).ok()).unwrap_or_default();
    names_other_provider(&text)
}

fn names_other_provider(settings: &str) -> bool {
    let top = settings.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    let provider = top.filter_map(|line| line.strip_prefix("model_provider")?.trim_start().strip_prefix('=')).next();
    provider.is_some_and(|name| !name.trim_start().trim_start_matches(['"', '\'']).starts_with("openai"))
}

/// An answer of a program: whether it ended well, and what it printed.
struct Answer {
    is_success: bool,
    text: String,
}

/// Asks a program of the machine about itself, outside of any repository: the files there that it would execute may be
/// untrusted.
fn ask(profile: &Profile, directory: &Path, words: &[String]) -> Option<Answer> {
    let program = find(&profile.program, directory)?.into_os_string();
    let argv = std::iter::once(program).chain(words.iter().map(OsString::from)).collect();
    let directory = Path::new("/");
    let env = profile.env.iter().map(|(name, value)| (name.clone(), value.into())).chain([("CI".into(), "1".into())]).collect();
    let task = Task { argv, directory, env, env_remove: &super::OUTER_AGENT, limit: PATIENCE, stop: None, keep: ANSWER };
    let report = command_supervisor::run(task).ok()?;
    let text = |kept: &Kept| String::from_utf8_lossy(&kept.bytes).into_owned();
    let text = format!("{}\n{}", text(&report.stdout), text(&report.stderr));
    match report.end {
        CommandEnd::Exited(code) => Some(Answer { is_success: code == 0, text }),
        _ => None,
    }
}

/// The first word that looks like a version.
fn version(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.starts_with(|letter: char| letter.is_ascii_digit());
    text.split_whitespace().find(is_version).map(str::to_owned)
}

fn understood(family: Family, answer: &Answer) -> (Login, Option<String>) {
    let text = answer.text.to_lowercase();
    match family {
        Family::Claude => {
            let text = text.replace(' ', "");
            if !text.contains("\"loggedin\":true") {
                return (Login::No, None);
            }
            let by_key = text.contains("\"authmethod\":\"api_key");
            (Login::Yes, Some(if by_key { "a key" } else { "a subscription" }.into()))
        }
        Family::Codex => {
            let pays = match text.contains("chatgpt") {
                true => Some("a subscription".into()),
                false => text.contains("api key").then(|| "a key".into()),
            };
            (if answer.is_success { Login::Yes } else { Login::No }, pays)
        }
        Family::Opencode => {
            let is_none = text.contains("0 credentials") && !text.contains("environment variable");
            (if is_none { Login::Unknown } else { Login::Yes }, None)
        }
        Family::Gemini | Family::Text => (Login::Unknown, None),
    }
}

/// The options of the command line that the program's help does not name.
fn unknown_options(profile: &Profile, ask: impl Fn(&[String]) -> Option<Answer>) -> Vec<String> {
    if profile.output == Family::Text {
        return Vec::new();
    }
    let call = Call { session: "S", model: profile.model.as_deref(), ..Call::default() };
    let argv = profile.argv(&call);
    let verbs = argv[1..].iter().take_while(|word| !word.starts_with('-') && *word != "S");
    let words: Vec<String> = verbs.cloned().chain(["--help".into()]).collect();
    let Some(help) = ask(&words) else { return Vec::new() };
    let known = |option: &str| help.text.contains(option);
    let options = argv.iter().filter(|word| word.starts_with("--")).map(|word| word.split('=').next().unwrap_or(word));
    options.filter(|option| !known(option)).map(str::to_owned).collect()
}

/// Where a program is, as a shell would find it.
pub fn find(program: &str, directory: &Path) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(directory.join(program)).filter(|path| is_program(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_finds_the_versions_of_real_programs() {
        assert_eq!(version("2.1.197 (Claude Code)").as_deref(), Some("2.1.197"));
        assert_eq!(version("codex-cli 0.166.0").as_deref(), Some("0.166.0"));
        assert_eq!(version("no version"), None);
    }

    #[test]
    fn login_answers_of_real_programs_are_parsed() {
        let answer = |is_success, text: &str| Answer { is_success, text: text.into() };
        let claude = answer(true, "{\n  \"loggedIn\": true,\n  \"authMethod\": \"oauth_token\"\n}");
        assert_eq!(understood(Family::Claude, &claude), (Login::Yes, Some("a subscription".into())));
        let helper = answer(true, "{\"loggedIn\": true, \"authMethod\": \"api_key_helper\"}");
        assert_eq!(understood(Family::Claude, &helper), (Login::Yes, Some("a key".into())));
        assert_eq!(understood(Family::Claude, &answer(true, "{\"loggedIn\": false}")), (Login::No, None));
        assert_eq!(understood(Family::Codex, &answer(false, "Not logged in")), (Login::No, None));
        assert_eq!(understood(Family::Codex, &answer(true, "Logged in using ChatGPT")).1.as_deref(), Some("a subscription"));
        assert_eq!(understood(Family::Opencode, &answer(true, "0 credentials")).0, Login::Unknown);
    }

    #[test]
    fn payer_comes_from_the_variables_of_the_program() {
        let profiles = banksman_agents::Profiles::default();
        let with = |agent: &str, name: &str, value: &str| {
            let (_, profile) = profiles.get(agent).unwrap();
            let profile = Profile { env: [(name.to_owned(), value.to_owned())].into(), ..profile.clone() };
            paying_variable(&profile).map(payer)
        };
        assert_eq!(with("claude", "CLAUDE_CODE_USE_BEDROCK", "1").as_deref(), Some("Amazon Bedrock"));
        assert_ne!(with("claude", "CLAUDE_CODE_USE_BEDROCK", "0").as_deref(), Some("Amazon Bedrock"));
        assert_eq!(with("codex", "CODEX_API_KEY", "x").as_deref(), Some("the key in CODEX_API_KEY"));
    }

    #[test]
    fn codex_settings_with_another_provider_are_recognized() {
        assert!(names_other_provider("model = \"m\"\nmodel_provider = \"azure\"\n[model_providers.azure]\n"));
        assert!(!names_other_provider("model_provider = \"openai\"\n"));
        assert!(!names_other_provider("model = \"m\"\n[profiles.x]\nmodel_provider = \"azure\"\n"));
    }
}
