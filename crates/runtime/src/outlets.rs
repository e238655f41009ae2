//! Where the notices of a project go: what the settings name, as far as it may be used.

use std::path::Path;

use banksman_adapters::notify::{Channel, Channels, Desktop, Secret, SecretError, Webhook};
use thiserror::Error;

use crate::config::{Foreign, Notify, Settings};
use crate::trust::Trust;

/// The channels that may be used, and those that may not.
#[derive(Debug)]
pub struct Outlets {
    /// Where notices go.
    pub channels: Channels,
    /// Where they do not go, although the settings say so.
    pub refused: Vec<(Channel, Refusal)>,
}

/// Why a channel is not used.
#[derive(Debug, Error)]
pub enum Refusal {
    /// It comes with the repository, and the user has not said that it is fine.
    #[error("{key} comes with the project and is not trusted")]
    Untrusted { key: &'static str },
    /// Its notices cannot be signed, and unsigned they must not go.
    #[error("the secret cannot be used: {0}")]
    Secret(#[from] SecretError),
    /// The URL makes no sense.
    #[error("the URL cannot be used: {what}")]
    Url { what: String },
}

impl Outlets {
    /// What the settings name. A value that comes with the project needs to be covered by `trust`. The secret is read
    /// now, so that a change of it counts.
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
