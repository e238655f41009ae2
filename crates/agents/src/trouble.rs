//! What keeps an agent program from working, told from a status or from words.

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

/// What words mean, in the order in which they are looked for. The programs quote the status and the kind of the error that the
/// provider has sent, so these come first.
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
    // A connection that is cut in the middle of an answer, as Node says it.
    ("api error: terminated", Trouble::Network),
    ("other side closed", Trouble::Network),
    ("socket hang up", Trouble::Network),
    ("network", Trouble::Network),
];

impl Trouble {
    /// What the status of a provider's answer means; without one the connection has failed.
    pub fn of_status(status: Option<u16>) -> Trouble {
        match status {
            None => Trouble::Network,
            Some(401 | 403) => Trouble::Auth,
            Some(429) => Trouble::Quota,
            Some(500..=599) => Trouble::Overloaded,
            Some(_) => Trouble::Other,
        }
    }

    /// What an error in words means, if that can be told.
    pub fn of_words(text: &str) -> Option<Trouble> {
        let text = text.to_lowercase().replace("\": ", "\":").replace('\\', "");
        WORDS.iter().find(|(words, _)| text.contains(words)).map(|(_, trouble)| *trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_real_programs_are_understood() {
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
