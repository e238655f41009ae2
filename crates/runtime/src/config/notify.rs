//! The settings of notices, and how their values are read.

use std::fmt;
use std::path::PathBuf;

use banksman_adapters::notify::{Program, Webhook};
use banksman_core::NoticeKind;
use banksman_core::suggest::distance;
use toml_edit::Value;

/// Which notifications are sent, and where to.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Notify {
    /// The kinds that are sent.
    pub on: Vec<NoticeKind>,
    /// Whether notices appear on the desktop.
    pub desktop: bool,
    /// Whether they make a sound there.
    pub sound: bool,
    /// The command that runs for every notice.
    pub command: Option<Program>,
    /// The URL to which every notice is posted. It may contain a token, so only its host is printed.
    pub webhook: Option<String>,
    /// The file with the secret for signing posted notices.
    pub webhook_secret_file: Option<PathBuf>,
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify")
            .field("on", &self.on)
            .field("desktop", &self.desktop)
            .field("sound", &self.sound)
            .field("command", &self.command)
            .field("webhook", &self.webhook.as_deref().map(masked))
            .field("webhook_secret_file", &self.webhook_secret_file)
            .finish()
    }
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.trim() {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(format!("it must be on or off, not {text:?}")),
    }
}

/// Kinds with commas between them, or `all`. An empty text means none.
pub(super) fn kinds(text: &str) -> Result<Vec<NoticeKind>, String> {
    if text.trim() == "all" {
        return Ok(known().collect());
    }
    let mut kinds = text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(kind).collect::<Result<Vec<_>, _>>()?;
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

/// The kinds that settings can name. A test is sent on request only, whatever the settings are.
fn known() -> impl Iterator<Item = NoticeKind> {
    NoticeKind::ALL.into_iter().filter(|kind| *kind != NoticeKind::Test)
}

fn kind(word: &str) -> Result<NoticeKind, String> {
    if let Some(kind) = known().find(|kind| kind.as_str() == word) {
        return Ok(kind);
    }
    let score = |kind: &NoticeKind| if kind.as_str().starts_with(word) { 1 } else { distance(word, kind.as_str()) };
    let near = known().filter(|kind| score(kind) <= 2.max(word.len() / 4)).min_by_key(score);
    Err(match near {
        Some(kind) => format!("there is no notice of {word:?}; did you mean {}?", kind.as_str()),
        None => {
            let all: Vec<&str> = known().map(NoticeKind::as_str).collect();
            format!("there is no notice of {word:?}, only of {}", all.join(", "))
        }
    })
}

/// A shell command line; or, if it begins with a bracket, a program with its arguments.
pub(super) fn program(text: &str) -> Result<Program, String> {
    let text = text.trim();
    if text.is_empty() || text.contains('\0') {
        return Err("it must be a command".into());
    }
    if !text.starts_with('[') {
        return Ok(Program::Shell(text.into()));
    }
    let words = text
        .parse::<Value>()
        .ok()
        .and_then(|value| value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>());
    match words {
        Some(words) if words.first().is_some_and(|program| !program.is_empty()) && !words.concat().contains('\0') => {
            Ok(Program::Argv(words))
        }
        _ => Err(r#"what begins with [ must be a list of words, such as ["tell-me", "--loud"]"#.into()),
    }
}

pub(super) fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("it must be an absolute path".into()) }
}

/// Escapes a value from an untrusted author, so that it cannot act on the terminal that prints it.
pub(super) fn harmless(text: &str) -> String {
    let letter = |letter: char| match letter {
        '"' | '\'' | '\\' => letter.into(),
        _ => letter.escape_debug().to_string(),
    };
    text.chars().map(letter).collect()
}

/// A webhook URL without what may be a token: everything but its host.
pub(super) fn masked(url: &str) -> String {
    match Webhook::new(url, None) {
        Ok(webhook) => format!("{}://{}/***", url.split("://").next().unwrap_or_default(), webhook.host()),
        Err(_) => "***".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_in_any_order_and_typos_get_suggestions() {
        assert_eq!(kinds(" task_failed, escalate,escalate"), Ok(vec![NoticeKind::Escalate, NoticeKind::TaskFailed]));
        assert_eq!(kinds(""), Ok(Vec::new()));
        assert_eq!(kinds("all").unwrap(), &NoticeKind::ALL[..5]);
        assert_eq!(kinds("escalate,decison").unwrap_err(), "there is no notice of \"decison\"; did you mean decision?");
        assert_eq!(kinds("backlog").unwrap_err(), "there is no notice of \"backlog\"; did you mean backlog_finished?");
        for word in ["test", "weather"] {
            assert!(kinds(word).unwrap_err().ends_with("only of escalate, decision, task_failed, backlog_finished, route"));
        }
    }

    #[test]
    fn a_command_is_a_shell_line_or_a_list() {
        assert_eq!(program(" say hi | cat "), Ok(Program::Shell("say hi | cat".into())));
        let words = vec!["say".to_owned(), "it's \"x\"".to_owned()];
        assert_eq!(program(r#"["say", 'it''s "x"']"#).ok(), None, "TOML does not double quotes");
        assert_eq!(program(r#"["say", "it's \"x\""]"#), Ok(Program::Argv(words)));
        for text in ["", "[]", "[\"\"]", "[1]", "[ -f x ] && y"] {
            assert!(program(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_value_cannot_act_on_a_terminal() {
        assert_eq!(harmless("tell \"me\" \\ größe\u{1b}[2K\u{202e}\n"), "tell \"me\" \\ größe\\u{1b}[2K\\u{202e}\\n");
    }

    #[test]
    fn only_the_host_of_a_webhook_is_shown() {
        assert_eq!(masked("https://me:pw@hooks.example/T0/secret?x=1"), "https://hooks.example/***");
        let notify = Notify { webhook: Some("https://hooks.example/secret".into()), ..Notify::default() };
        assert!(!format!("{notify:?}").contains("secret\""));
    }
}
