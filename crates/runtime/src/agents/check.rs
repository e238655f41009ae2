//! Whether an agent program could be started, found out without spending anything.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use banksman_adapters::command_supervisor::{self, CommandEnd, Task};
use banksman_adapters::program::Kept;
use banksman_agents::profile::Call;
use banksman_agents::{Family, Profile};

/// How long a program may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much of an answer is looked at.
const ANSWER: usize = 256 * 1024;

/// What is known of an agent program on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkup {
    /// Where the program is.
    pub path: Option<PathBuf>,
    pub version: Option<String>,
    pub login: Login,
    /// Who pays, as far as the program or the environment tells.
    pub pays: Option<String>,
    /// The options of its profile that the program does not know.
    pub unknown_options: Vec<String>,
}

/// Whether a program is logged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    Yes,
    No,
    /// The program has no way to tell without spending.
    Unknown,
}

/// Looks for a program, and asks it about itself.
pub fn check(profile: &Profile, directory: &Path) -> Checkup {
    let Some(path) = find(&profile.program, directory) else {
        return Checkup { path: None, version: None, login: Login::Unknown, pays: None, unknown_options: Vec::new() };
    };
    let ask = |words: &[String]| ask(profile, directory, words);
    let version = ask(&["--version".into()]).and_then(|answer| version(&answer.text));
    let (login, pays) = login(profile, directory);
    Checkup { path: Some(path), version, login, pays, unknown_options: unknown_options(profile, ask) }
}

/// Asks a program whether it is logged in, and who pays.
pub fn login(profile: &Profile, directory: &Path) -> (Login, Option<String>) {
    match (profile.check_login.as_slice(), profile.output) {
        ([], Family::Gemini) => key_in_environment("GEMINI_API_KEY"),
        ([], _) => (Login::Unknown, None),
        (words, family) => ask(profile, directory, words).map_or((Login::Unknown, None), |answer| understood(family, &answer)),
    }
}

/// An answer of a program: whether it ended well, and what it printed.
struct Answer {
    is_success: bool,
    text: String,
}

fn ask(profile: &Profile, directory: &Path, words: &[String]) -> Option<Answer> {
    let argv = std::iter::once(&profile.program).chain(words).map(OsString::from).collect();
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

fn key_in_environment(name: &str) -> (Login, Option<String>) {
    match std::env::var_os(name).filter(|value| !value.is_empty()) {
        Some(_) => (Login::Yes, Some(format!("the key in {name}"))),
        None => (Login::Unknown, None),
    }
}

fn understood(family: Family, answer: &Answer) -> (Login, Option<String>) {
    let text = answer.text.to_lowercase();
    match family {
        Family::Claude => {
            // With both, the program uses the key and does not say so.
            let (by_key, pays) = key_in_environment("ANTHROPIC_API_KEY");
            let is_in = by_key == Login::Yes || text.replace(' ', "").contains("\"loggedin\":true");
            (if is_in { Login::Yes } else { Login::No }, pays.or_else(|| is_in.then(|| "a subscription".into())))
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
    fn versions_of_real_programs_are_found() {
        assert_eq!(version("2.1.197 (Claude Code)").as_deref(), Some("2.1.197"));
        assert_eq!(version("codex-cli 0.166.0").as_deref(), Some("0.166.0"));
        assert_eq!(version("no version"), None);
    }

    #[test]
    fn what_programs_say_about_their_login_is_understood() {
        let answer = |is_success, text: &str| Answer { is_success, text: text.into() };
        let claude = answer(true, "{\n  \"loggedIn\": true,\n  \"authMethod\": \"oauth_token\"\n}");
        assert_eq!(understood(Family::Claude, &claude).0, Login::Yes);
        assert_eq!(understood(Family::Codex, &answer(false, "Not logged in")), (Login::No, None));
        assert_eq!(understood(Family::Codex, &answer(true, "Logged in using ChatGPT")).1.as_deref(), Some("a subscription"));
        assert_eq!(understood(Family::Opencode, &answer(true, "0 credentials")).0, Login::Unknown);
    }
}
