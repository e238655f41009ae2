//! What keeps an agent program from working, by a status or by a text.

use serde::{Deserialize, Serialize};

/// What keeps an agent program from working.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    Quota,
    Auth,
    Overloaded,
    Network,
    ContextFull,
    Other,
}

/// The meaning of phrases, in the order of the search. The programs quote the status and the kind of the provider's
/// error, so these come first.
const WORDS: &[(&str, Trouble)] = &[
    ("prompt is too long", Trouble::ContextFull),
    ("context_length_exceeded", Trouble::ContextFull),
    ("context window", Trouble::ContextFull),
    ("maximum context length", Trouble::ContextFull),
    ("input token count exceeds", Trouble::ContextFull),
    ("authentication_error", Trouble::Auth),
    ("401 unauthorized", Trouble::Auth),
    ("\"code\":401", Trouble::Auth),
    ("status 401", Trouble::Auth),
    ("not logged in", Trouble::Auth),
    ("please run /login", Trouble::Auth),
    ("invalid api key", Trouble::Auth),
    ("invalid auth method", Trouble::Auth),
    ("set an auth method", Trouble::Auth),
    ("api_key_invalid", Trouble::Auth),
    ("codex login", Trouble::Auth),
    ("refresh token", Trouble::Auth),
    ("overloaded", Trouble::Overloaded),
    ("status 529", Trouble::Overloaded),
    ("status 503", Trouble::Overloaded),
    ("503 service unavailable", Trouble::Overloaded),
    ("\"code\":503", Trouble::Overloaded),
    ("at capacity", Trouble::Overloaded),
    ("rate_limit", Trouble::Quota),
    ("429 too many requests", Trouble::Quota),
    ("status 429", Trouble::Quota),
    ("status: 429", Trouble::Quota),
    ("\"code\":429", Trouble::Quota),
    ("resource_exhausted", Trouble::Quota),
    ("usage limit", Trouble::Quota),
    ("session limit", Trouble::Quota),
    ("weekly limit", Trouble::Quota),
    ("quota", Trouble::Quota),
    ("rate limit", Trouble::Quota),
    ("econnrefused", Trouble::Network),
    ("econnreset", Trouble::Network),
    ("enotfound", Trouble::Network),
    ("etimedout", Trouble::Network),
    ("connection refused", Trouble::Network),
    ("connection error", Trouble::Network),
    ("error sending request", Trouble::Network),
    ("stream disconnected", Trouble::Network),
    ("waiting for network", Trouble::Network),
    ("fetch failed", Trouble::Network),
    ("unable to connect", Trouble::Network),
    // The texts of Node for a connection that is cut in the middle of an answer.
    ("api error: terminated", Trouble::Network),
    ("other side closed", Trouble::Network),
    ("socket hang up", Trouble::Network),
    ("network", Trouble::Network),
];

impl Trouble {
    /// The trouble for the status of a provider's answer. Without a status, the connection has failed.
    pub fn of_status(status: Option<u16>) -> Trouble {
        match status {
            None => Trouble::Network,
            Some(401 | 403) => Trouble::Auth,
            Some(429) => Trouble::Quota,
            Some(500..=599) => Trouble::Overloaded,
            Some(_) => Trouble::Other,
        }
    }

    /// The trouble of an error with a text and maybe a status. The status decides, unless the text shows that the
    /// context is full.
    pub(crate) fn of_error(status: Option<u16>, text: &str) -> Option<Trouble> {
        let by_text = Trouble::of_words(text);
        match status {
            Some(_) if by_text != Some(Trouble::ContextFull) => Some(Trouble::of_status(status)),
            _ => by_text,
        }
    }

    /// The trouble in the text of an error, if it is known.
    pub fn of_words(text: &str) -> Option<Trouble> {
        let text = text.to_lowercase().replace("\": ", "\":").replace('\\', "");
        WORDS.iter().find(|(words, _)| text.contains(words)).map(|(_, trouble)| *trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_real_programs_are_classified() {
        for (text, expected) in [
            ("Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)", Some(Trouble::Quota)),
            ("Reconnecting... 5/5 (unexpected status 401 Unauthorized: invalid x-api-key, url: http://h)", Some(Trouble::Auth)),
            ("You’ve hit your usage limit. Upgrade to Pro or try again at 2:15 AM.", Some(Trouble::Quota)),
            ("[API Error: {\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"code\":401}}]", Some(Trouble::Auth)),
            ("Not logged in · Please run /login", Some(Trouble::Auth)),
            ("Prompt is too long", Some(Trouble::ContextFull)),
            ("stream disconnected before completion: error sending request", Some(Trouble::Network)),
            ("[API Error: terminated]", Some(Trouble::Network)),
            ("the tests fail", None),
        ] {
            assert_eq!(Trouble::of_words(text), expected, "{text}");
        }
    }
}
