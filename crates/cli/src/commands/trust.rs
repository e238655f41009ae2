use std::path::Path;

use banksman::config::{Foreign, Settings};
use banksman::{ProjectError, Trust as Trusted};
use clap::Args;
use serde_json::json;

use super::{Done, config};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, GREEN, YELLOW};

/// Trust the commands and URLs that come with this project.
///
/// The settings of a project may be committed, so a command in them may come from anybody. It does nothing until you
/// have trusted it. This is about the values as they are now: a changed one needs to be trusted again. A script of the
/// project that such a command starts may change without that.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman trust --show\n  banksman trust\n  banksman trust --revoke")]
pub(crate) struct Trust {
    /// Only show what there is to trust, and what is trusted
    #[arg(long, conflicts_with = "revoke")]
    show: bool,
    /// Trust nothing of this project any more
    #[arg(long)]
    revoke: bool,
}

impl Trust {
    pub(crate) fn run(self, context: &Context) -> Done {
        let missing = || Failure::from(ProjectError::NotFound { from: context.directory() });
        let project_file = config::project_file(context)?.ok_or_else(missing)?;
        let settings = Settings::load(&context.surroundings(), Some(&project_file))?;
        let root = project_file.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        let root = root.canonicalize().unwrap_or_else(|_| root.into());
        let homeless = || {
            Failure::new(exit::CONFIG, "CONFIG", "trust has no place: HOME is not set")
                .hint("set HOME, or XDG_STATE_HOME to an absolute path")
        };
        let trust = Trusted::of(&root).ok_or_else(homeless)?;
        let foreign = settings.foreign();
        match (self.show, self.revoke) {
            (true, _) => {}
            (false, true) => trust.revoke()?,
            (false, false) => trust.grant(foreign)?,
        }
        let keys: Vec<_> = foreign
            .iter()
            .map(|foreign| json!({ "key": foreign.key.name, "value": foreign.value, "trusted": trust.covers(foreign) }))
            .collect();
        let human = if foreign.is_empty() {
            "nothing in the settings of this project needs trust".into()
        } else {
            foreign.iter().map(|foreign| line(foreign, trust.covers(foreign))).collect::<Vec<_>>().join("\n")
        };
        let file = format!("{DIM}in {}{DIM:#}", project_file.display());
        context.printer.result(json!({ "project": root.display().to_string(), "keys": keys }), format!("{human}\n{file}"));
        Ok(exit::OK)
    }
}

/// The value is shown to the letter, because it is what a person judges; but it must not act on the terminal.
fn line(foreign: &Foreign, trusted: bool) -> String {
    let value: String = foreign.value.chars().map(harmless).collect();
    let (style, word) = if trusted { (GREEN, "trusted") } else { (YELLOW, "not trusted") };
    format!("{style}{word:<13}{style:#}{BOLD}{}{BOLD:#} = {value}", foreign.key.name)
}

fn harmless(letter: char) -> String {
    if letter == '"' || letter == '\'' { letter.into() } else { letter.escape_debug().to_string() }
}
