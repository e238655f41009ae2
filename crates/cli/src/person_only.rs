//! Commands that only a person may use. The command of a task must not answer the question about the task, nor trust or
//! configure what it is started by. This prevents accidents, not malice: a run has the rights of the same user.

use banksman_core::RunId;
use banksman_store::Key;

use crate::context::{Context, variable};
use crate::exit_codes as exit;
use crate::failure::Failure;

/// The commands that are refused inside of a run.
const COMMANDS: [&str; 8] =
    ["config set", "decisions resolve", "decisions review", "pause", "pipelines unblock", "resume", "stop", "trust"];

/// Refuses a person's command inside of a run.
pub(crate) fn check(command: &str, context: &Context) -> Result<(), Failure> {
    if COMMANDS.contains(&command) { require_person(command, context) } else { Ok(()) }
}

/// Fails inside of a run.
pub(crate) fn require_person(command: &str, context: &Context) -> Result<(), Failure> {
    let Some(run) = variable("BANKSMAN_RUN").filter(|run| !is_over(run, context)) else { return Ok(()) };
    let message = format!("banksman {command} cannot be used inside of run {run}");
    Err(Failure::new(exit::NOT_PERMITTED, "INSIDE_RUN", message)
        .detail("command", &command)
        .detail("run", &run)
        .hint("only a person may use it, outside of runs; to see who did what: banksman events --json"))
}

/// Whether the run is known to have ended: a terminal opened inside of it may live on. An unknown run counts as live.
fn is_over(run: &str, context: &Context) -> bool {
    let Ok(run) = RunId::new(run) else { return false };
    let rows = context.reader().and_then(|mut reader| Ok(reader.view().load(&[Key::Run(run.clone())].into())?));
    rows.is_ok_and(|rows| rows.backlog.runs.get(&run).is_some_and(|run| !run.is_live()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn person_only_commands_exist() {
        for command in super::COMMANDS {
            let found = command.split(' ').try_fold(crate::Cli::command(), |found, verb| found.find_subcommand(verb).cloned());
            assert!(found.is_some(), "{command}");
        }
    }
}
