//! Notifications for people: on the desktop, through a command of theirs, or through a webhook.
//!
//! This module makes single attempts. The caller counts them, waits between them, and gives all attempts of one notice the same
//! delivery id, so that a receiver can tell a repetition from a second notice.

mod child;
mod command;
mod desktop;
mod error;
mod notice;
mod webhook;

use std::path::PathBuf;
use std::time::Duration;

pub use command::Program;
pub use desktop::Desktop;
pub use error::{Delivery, NotifyError};
pub use notice::Notice;
pub use webhook::{Secret, SecretError, Webhook};

/// How long one attempt on one channel may take.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Where notices go.
#[derive(Debug, Clone)]
pub struct Channels {
    /// The notification service of the desktop.
    pub desktop: Option<Desktop>,
    pub command: Option<Program>,
    pub webhook: Option<Webhook>,
    /// Where the command runs.
    pub directory: PathBuf,
    /// How long one attempt on one channel may take; [`LIMIT`] outside of tests.
    pub limit: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    Desktop,
    Command,
    Webhook,
}

impl Channel {
    pub fn as_str(self) -> &'static str {
        match self {
            Channel::Desktop => "desktop",
            Channel::Command => "command",
            Channel::Webhook => "webhook",
        }
    }
}

impl Channels {
    pub fn none(directory: PathBuf) -> Channels {
        Channels { desktop: None, command: None, webhook: None, directory, limit: LIMIT }
    }

    /// The configured channels, the fastest first.
    pub fn list(&self) -> Vec<Channel> {
        let desktop = self.desktop.is_some().then_some(Channel::Desktop);
        let command = self.command.is_some().then_some(Channel::Command);
        let webhook = self.webhook.is_some().then_some(Channel::Webhook);
        [desktop, command, webhook].into_iter().flatten().collect()
    }
}

/// Makes one attempt on every channel. Blocks until each has answered or timed out.
pub fn send(channels: &Channels, notice: &Notice, delivery: &str) -> Vec<(Channel, Result<(), NotifyError>)> {
    let attempt = |channel| (channel, send_to(channels, channel, notice, delivery));
    channels.list().into_iter().map(attempt).collect()
}

/// Makes one attempt on one channel. A channel that is not configured succeeds.
pub fn send_to(channels: &Channels, channel: Channel, notice: &Notice, delivery: &str) -> Result<(), NotifyError> {
    let Channels { desktop, command, webhook, directory, limit } = channels;
    let done = match channel {
        Channel::Desktop => desktop.as_ref().map(|desktop| desktop.send(notice, *limit)),
        Channel::Command => command.as_ref().map(|program| program.send(notice, delivery, directory, *limit)),
        Channel::Webhook => webhook.as_ref().map(|webhook| webhook.send(notice, delivery, *limit)),
    };
    done.unwrap_or(Ok(()))
}
