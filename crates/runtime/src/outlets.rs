//! The channels of a project's notices: those that the settings name and the user trusts.

use std::path::Path;

use banksman_adapters::notify::{Channel, Channels, Desktop, Secret, SecretError, Webhook};
use thiserror::Error;

use crate::config::{Foreign, Notify, Settings};
use crate::trust::Trust;

/// The channels that may be used, and those that may not.
#[derive(Debug)]
pub struct Outlets {
    /// The channels over which notices are sent.
    pub channels: Channels,
    /// The channels that the settings name, but that are not used.
    pub refused: Vec<(Channel, Refusal)>,
}

#[derive(Debug, Error)]
pub enum Refusal {
    /// The channel comes with the repository, and the user has not trusted it.
    #[error("{key} comes with the project and is not trusted")]
    Untrusted { key: &'static str },
    /// Its notices cannot be signed, and must not be sent unsigned.
    #[error("the secret cannot be used: {0}")]
    Secret(#[from] SecretError),
    /// The URL is invalid.
    #[error("the URL cannot be used: {what}")]
    Url { what: String },
}

impl Outlets {
    /// The channels that the settings name. A value that comes with the project needs to be covered by `trust`. The
    /// secret is read now, so that a later change of it counts.
    pub fn new(settings: &Settings, root: &Path, trust: Option<&Trust>) -> Outlets {
        let notify = &settings.config().notify;
        let mut outlets = Outlets { channels: Channels::none(root.into()), refused: Vec::new() };
        let untrusted = |keys: &[&str]| {
            let covered = |foreign: &Foreign| trust.is_some_and(|trust| trust.covers(root, foreign));
            let mut foreign = settings.foreign().iter().filter(|foreign| keys.contains(&foreign.key.name));
            foreign.find(|foreign| !covered(foreign)).map(|foreign| Refusal::Untrusted { key: foreign.key.name })
        };
        outlets.channels.desktop = notify.desktop.then(|| Desktop::new(notify.sound));
        if let Some(program) = &notify.command {
            match untrusted(&["notify.command"]) {
                None => outlets.channels.command = Some(program.clone()),
                Some(refusal) => outlets.refused.push((Channel::Command, refusal)),
            }
        }
        if let Some(url) = &notify.webhook {
            let refusal = untrusted(&["notify.webhook", "notify.webhook_secret_file"]);
            match refusal.map_or_else(|| webhook(notify, url), Err) {
                Ok(webhook) => outlets.channels.webhook = Some(webhook),
                Err(refusal) => outlets.refused.push((Channel::Webhook, refusal)),
            }
        }
        outlets
    }

    /// Whether the settings name no channel at all.
    pub fn is_empty(&self) -> bool {
        self.channels.list().is_empty() && self.refused.is_empty()
    }
}

fn webhook(notify: &Notify, url: &str) -> Result<Webhook, Refusal> {
    let secret = notify.webhook_secret_file.as_deref().map(Secret::read).transpose()?;
    Webhook::new(url, secret).map_err(|what| Refusal::Url { what })
}
