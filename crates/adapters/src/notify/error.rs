//! Why an attempt failed, and whether it can be repeated.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// Why a notice did not arrive, or may not have.
#[derive(Debug, Error)]
pub enum NotifyError {
    /// The program does not exist.
    #[error("{program} is not there")]
    NoProgram { program: String },
    /// The program cannot be started.
    #[error("{program} cannot be started: {source}")]
    Start { program: String, source: io::Error },
    /// The program reported a failure.
    #[error("{program} ended with {how}{}", after_colon(said))]
    Exit {
        program: String,
        /// Its exit status or its signal, in words.
        how: String,
        /// The last line that it printed.
        said: String,
    },
    /// The program took too long and was killed.
    #[error("{program} was ended after {}", seconds(limit))]
    Overdue { program: String, limit: Duration },
    /// The URL is invalid, or its server cannot be trusted.
    #[error("{host}: {what}")]
    Unusable { host: String, what: String },
    /// The server was not reached.
    #[error("{host} was not reached: {what}")]
    Unreachable { host: String, what: String },
    /// The server failed, or asks to try again later.
    #[error("{host} answered {status}")]
    Busy { host: String, status: u16 },
    /// The server refused the notice.
    #[error("{host} answered {status}")]
    Refused { host: String, status: u16 },
    /// The server was reached, but did not say whether it accepted the notice.
    #[error("{host} gave no answer: {what}")]
    NoAnswer {
        host: String,
        /// What happened instead.
        what: String,
    },
}

/// What a failed attempt means for the notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The notice did not arrive, and may be sent again.
    Again,
    /// The notice did not arrive, and another attempt would fail in the same way.
    Final,
    /// The notice may have arrived.
    Unknown,
}

impl NotifyError {
    pub fn delivery(&self) -> Delivery {
        match self {
            NotifyError::Unreachable { .. } | NotifyError::Busy { .. } => Delivery::Again,
            NotifyError::NoProgram { .. }
            | NotifyError::Start { .. }
            | NotifyError::Exit { .. }
            | NotifyError::Unusable { .. }
            | NotifyError::Refused { .. } => Delivery::Final,
            NotifyError::Overdue { .. } | NotifyError::NoAnswer { .. } => Delivery::Unknown,
        }
    }
}

fn after_colon(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

fn seconds(limit: &Duration) -> String {
    format!("{} s", limit.as_secs_f32())
}
