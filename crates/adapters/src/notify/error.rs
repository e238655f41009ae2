//! How an attempt can fail, and what follows from it.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// Why a notice did not arrive, or may not have.
#[derive(Debug, Error)]
pub enum NotifyError {
    /// There is no such program.
    #[error("{program} is not there")]
    NoProgram { program: String },
    /// The program cannot be started.
    #[error("{program} cannot be started: {source}")]
    Start { program: String, source: io::Error },
    /// The program says that it failed.
    #[error("{program} ended with {how}{}", after_colon(said))]
    Exit {
        program: String,
        /// Its exit status or its signal, in words.
        how: String,
        /// The last line that it printed.
        said: String,
    },
    /// The program was ended because it took too long.
    #[error("{program} was ended after {}", seconds(limit))]
    Overdue { program: String, limit: Duration },
    /// The URL makes no sense, or its server cannot be trusted.
    #[error("{host}: {what}")]
    Unusable { host: String, what: String },
    /// The server was not reached.
    #[error("{host} was not reached: {what}")]
    Unreachable { host: String, what: String },
    /// The server is in trouble, or asks for patience.
    #[error("{host} answered {status}")]
    Busy { host: String, status: u16 },
    /// The server does not want it.
    #[error("{host} answered {status}")]
    Refused { host: String, status: u16 },
    /// The server was reached, but how it took the notice is not known.
    #[error("{host} gave no answer: {what}")]
    NoAnswer {
        host: String,
        /// What happened instead.
        what: String,
    },
}

/// What is known about a notice after an attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It did not arrive, and may be tried again.
    Again,
    /// It did not arrive, and another attempt would end the same way.
    Final,
    /// It may have arrived.
    Unknown,
}

impl NotifyError {
    /// What is known about the notice.
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
