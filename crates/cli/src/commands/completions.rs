use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};
use serde::Serialize;

use super::Done;
use crate::context::Context;

/// Print a script that teaches a shell to complete commands and flags.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  banksman completions bash > ~/.local/share/bash-completion/completions/banksman
  banksman completions zsh > \"${fpath[1]}/_banksman\"
  banksman completions fish > ~/.config/fish/completions/banksman.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Supported,
}

/// The shells that run on Linux and that the tests look at.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Supported {
    Bash,
    Zsh,
    Fish,
}

#[derive(Serialize)]
struct Script<'a> {
    shell: &'static str,
    script: &'a str,
}

impl Completions {
    pub(crate) fn run(self, context: &Context) -> Done {
        let (name, shell) = match self.shell {
            Supported::Bash => ("bash", Shell::Bash),
            Supported::Zsh => ("zsh", Shell::Zsh),
            Supported::Fish => ("fish", Shell::Fish),
        };
        let mut script = Vec::new();
        generate(shell, &mut crate::Cli::command(), "banksman", &mut script);
        let script = String::from_utf8_lossy(&script);
        context.printer.result(&Script { shell: name, script: &script }, &script)
    }
}
