//! The hidden command `merge-branch`: merges a branch as a session does. A runbook calls it; it can also be called
//! manually.

use std::ffi::OsString;
use std::process::ExitCode;

use banksman_core::pipeline::plan::MergeHow;
use clap::Parser;

use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::Printer;

const VERB: &str = "merge-branch";

/// Merges a branch into another of the project's repository.
#[derive(Debug, Parser)]
#[command(name = "banksman merge-branch")]
struct MergeBranch {
    /// The method: fast_forward, rebase or merge_commit
    #[arg(long, value_parser = how)]
    how: MergeHow,
    /// The branch to merge
    branch: String,
    /// The branch to merge into
    into: String,
}

fn how(word: &str) -> Result<MergeHow, String> {
    let words = || MergeHow::ALL.map(MergeHow::as_str).join(", ");
    MergeHow::ALL.into_iter().find(|how| how.as_str() == word).ok_or_else(|| format!("possible values: {}", words()))
}

/// Runs the command if this process was started for it.
pub(crate) fn enter(args: &[OsString]) -> Option<ExitCode> {
    let rest = args.get(1..).filter(|rest| rest.first().is_some_and(|verb| verb == VERB))?;
    let printer = Printer { json: false, quiet: false, command: VERB.into() };
    let order = match MergeBranch::try_parse_from(rest) {
        Ok(order) => order,
        Err(error) => {
            printer.note(error.render().to_string().trim_end());
            return Some(ExitCode::from(exit::USAGE));
        }
    };
    let directory = std::env::var_os("BANKSMAN_PROJECT").map(Into::into);
    let store = crate::context::variable("BANKSMAN_STORE");
    let context = Context { printer: printer.clone(), directory, store };
    Some(ExitCode::from(match order.run(&context) {
        Ok(()) => exit::OK,
        Err(message) => {
            // Without a prefix: a strategy compares the start of the line.
            printer.note(&message);
            exit::ERROR
        }
    }))
}

impl MergeBranch {
    fn run(&self, context: &Context) -> Result<(), String> {
        let project = context.project().map_err(|failure| failure.message)?;
        let lines = banksman_runtime::merge_branch(project.root(), project.folder(), &self.branch, &self.into, self.how);
        lines.map_err(|error| error.to_string())?.iter().for_each(|line| context.printer.line(line));
        Ok(())
    }
}
