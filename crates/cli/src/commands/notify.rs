use std::path::Path;

use banksman_adapters::ids;
use banksman_adapters::notify::{self, Channel, Delivery, Notice, NotifyError, SecretError};
use banksman_core::NoticeKind;
use banksman_runtime::config::Settings;
use banksman_runtime::{Outlets, Refusal, Trust};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::{Serialize, Serializer};

use super::{ExitResult, config};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::views::{self, Named};

subcommands! {
    /// Test notifications.
    ///
    /// Channels are configured with notify.desktop, notify.command and notify.webhook.
    #[command(after_help = "Example:\n  banksman notify test")]
    pub(crate) noun Notify {
        Test(Test),
    }
}

/// Send a test notification through every channel, and report which channels work.
///
/// Each channel is tried once, for at most ten seconds. Exits with 1 if a channel fails, with 3 if none is configured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman notify test\n  banksman notify test --kind escalate")]
struct Test {
    /// The kind of the test notification
    #[arg(long, value_name = "KIND", default_value = "test", value_parser = kinds())]
    kind: NoticeKind,
}

fn kinds() -> impl TypedValueParser<Value = NoticeKind> {
    PossibleValuesParser::new(NoticeKind::ALL.map(NoticeKind::as_str))
        .map(|name| NoticeKind::find(&name).expect("only kinds are possible"))
}

/// The result of one channel.
#[derive(Serialize)]
struct Attempt {
    #[serde(serialize_with = "channel_name")]
    channel: Channel,
    outcome: Outcome,
    error: Option<String>,
    hint: Option<String>,
}

fn channel_name<S: Serializer>(channel: &Channel, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(channel.as_str())
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Sent,
    Failed,
    Unknown,
    Refused,
}

/// The JSON output.
#[derive(Serialize)]
struct Tested<'a> {
    kind: &'static str,
    delivery: &'a str,
    delivered: bool,
    channels: &'a [Attempt],
}

impl Test {
    fn run(self, context: &Context) -> ExitResult {
        let project_file = config::project_file(context)?;
        let settings = Settings::load(&context.environment(), project_file.as_deref())?;
        let directory = context.directory();
        let root = project_file.as_deref().and_then(Path::parent).and_then(Path::parent).unwrap_or(&directory);
        let root = root.canonicalize().unwrap_or_else(|_| root.into());
        let outlets = Outlets::new(&settings, &root, Trust::of_user().as_ref());
        if outlets.is_empty() {
            return Err(no_channel());
        }
        if self.kind != NoticeKind::Test && !settings.config().notify.on.contains(&self.kind) {
            context.printer.note(&format!("note: notify.on does not include {}: only this test is sent", self.kind.as_str()));
        }
        let delivery = ids::short("d");
        let notice = notice(self.kind, &root);
        let mut attempts: Vec<Attempt> = outlets.refused.iter().map(|(channel, why)| refused(*channel, why)).collect();
        attempts.extend(notify::send(&outlets.channels, &notice, &delivery).into_iter().map(tried));
        attempts.sort_by_key(|attempt| attempt.channel);
        let delivered = attempts.iter().all(|attempt| attempt.outcome == Outcome::Sent);
        let view = Tested { kind: self.kind.as_str(), delivery: &delivery, delivered, channels: &attempts };
        context.printer.print(&view, attempts.iter().map(Attempt::lines).collect::<Vec<_>>().join("\n"));
        Ok(if delivered { exit::OK } else { exit::ERROR })
    }
}

fn notice(kind: NoticeKind, root: &Path) -> Notice {
    let name = root.file_name().map_or_else(|| root.display().to_string(), |name| name.to_string_lossy().into_owned());
    Notice {
        kind,
        subject: format!("Banksman: test notification from {name}"),
        text: "Notifications arrive here. No action is needed.".into(),
        project: root.into(),
        data: views::value(&Named("test", true)),
    }
}

fn no_channel() -> Failure {
    Failure::new(exit::CONFIG, "NO_CHANNEL", "no notification channel is configured")
        .detail("keys", &["notify.desktop", "notify.command", "notify.webhook"])
        .hint(
            "configure at least one channel:\n  \
             banksman config set --user notify.desktop on\n  \
             banksman config set --user notify.command 'mail -s \"$BANKSMAN_NOTICE_SUBJECT\" me'\n  \
             banksman config set --user notify.webhook https://hooks.example.org/banksman",
        )
}

fn refused(channel: Channel, refusal: &Refusal) -> Attempt {
    let hint = match refusal {
        Refusal::Untrusted { .. } => "inspect it with: banksman trust --show; then: banksman trust".into(),
        Refusal::Secret(SecretError::Open { path, .. }) => format!("chmod 600 {}", crate::format::quoted(path)),
        Refusal::Secret(SecretError::Read { .. } | SecretError::NoFile { .. } | SecretError::Length { .. }) => {
            "notify.webhook_secret_file must name a file that you own and that contains only the secret".into()
        }
        Refusal::Url { .. } => "set it again with: banksman config set --user notify.webhook URL".into(),
    };
    Attempt { channel, outcome: Outcome::Refused, error: Some(refusal.to_string()), hint: Some(hint) }
}

fn tried((channel, result): (Channel, Result<(), NotifyError>)) -> Attempt {
    match result {
        Ok(()) => Attempt { channel, outcome: Outcome::Sent, error: None, hint: None },
        Err(error) => {
            let outcome = match error.delivery() {
                Delivery::Again | Delivery::Final => Outcome::Failed,
                Delivery::Unknown => Outcome::Unknown,
            };
            Attempt { channel, outcome, error: Some(error.to_string()), hint: Some(hint(channel, &error).into()) }
        }
    }
}

fn hint(channel: Channel, error: &NotifyError) -> &'static str {
    match (error, channel) {
        (NotifyError::NoProgram { .. }, Channel::Desktop) => "install it: the package is libnotify-bin or libnotify",
        (NotifyError::Exit { .. }, Channel::Desktop) => "check that this is a desktop session with a notification service",
        (NotifyError::NoProgram { .. } | NotifyError::Start { .. } | NotifyError::Exit { .. }, _) => {
            "the command runs in the directory of the project; try it there manually"
        }
        (NotifyError::Overdue { .. }, _) => "run long commands in the background",
        (NotifyError::Unusable { .. }, _) => "check notify.webhook and the certificate of the server",
        (NotifyError::Unreachable { .. }, _) => "check the host name, and that the server is running; notifications are retried",
        (NotifyError::Busy { .. }, _) => "the server is overloaded or failing; notifications are retried",
        (NotifyError::Refused { status: 300..=399, .. }, _) => "redirects are not followed; set notify.webhook to the final URL",
        (NotifyError::Refused { .. }, _) => "check notify.webhook and the secret; notifications are not retried",
        (NotifyError::NoAnswer { .. }, _) => "the notification may have arrived, so it is not retried",
    }
}

impl Attempt {
    fn lines(&self) -> String {
        let (style, word) = match self.outcome {
            Outcome::Sent => (GREEN, "sent"),
            Outcome::Failed => (RED, "failed"),
            Outcome::Unknown => (YELLOW, "unknown"),
            Outcome::Refused => (YELLOW, "refused"),
        };
        let why = self.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        let hint = self.hint.as_ref().map(|hint| format!("\n         {DIM}hint: {hint}{DIM:#}")).unwrap_or_default();
        format!("{BOLD}{:<9}{BOLD:#}{style}{word}{style:#}{why}{hint}", self.channel.as_str())
    }
}
