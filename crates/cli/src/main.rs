//! The `banksman` command. The only crate that prints.

#[macro_use]
mod subcommands;

mod board;
mod commands;
mod context;
mod exit_codes;
mod failure;
mod format;
mod gate;
#[cfg(test)]
mod hints;
mod merge_branch;
mod output_queue;
mod person_only;
mod printer;
#[cfg(test)]
mod reference;
mod signals;
mod table;
mod terminal;
mod views;

use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser};

use commands::{
    agents, bus, completions, config, decisions, demo, do_tasks, doctor, events, guards, init, landing, locks, mailbox, man,
    notify, pausing, pipelines, queues, recover, report, run, runbooks, sections, semaphores, send, sessions, status, store,
    tasks, timeline, top, trust, why, workers, workspaces,
};
use context::Context;
use printer::Printer;

/// Direct a fleet of coding agents, or any commands, through one repository without collisions.
///
/// Tasks for runners, pipelines with phases and guards, queues with workers, locks and semaphores: durable, shared by any number
/// of processes, and fenced against stale holders.
#[derive(Debug, Parser)]
#[command(name = "banksman", version, propagate_version = true, disable_help_subcommand = true, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  banksman init                                create a project here
  banksman tasks add Test --run 'make test'    add a task
  banksman runbooks new feature                write a runbook from a template
  banksman run                                 run the pending tasks
  banksman why Test                            show what blocks it
  banksman locks run deploy -- ./deploy.sh     run a command while holding a lock
  banksman demo                                run a demonstration";

/// The heading of the global flags, which follow the command's own.
const GLOBAL: &str = "Global options";

#[derive(Debug, clap::Args)]
struct Global {
    /// Act as if started in this directory
    #[arg(short = 'C', long = "directory", global = true, help_heading = GLOBAL, value_name = "DIR", env = "BANKSMAN_PROJECT", hide_env_values = true)]
    directory: Option<PathBuf>,
    /// The store: sqlite:PATH or postgres://USER@HOST/DATABASE
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "URL", env = "BANKSMAN_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Print only errors
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    quiet: bool,
}

subcommands! {
    all enum Command {
        Init(init::Init),
        #[command(name = "do")]
        Do(do_tasks::Do),
        #[command(after_help = "Examples:\n  banksman ls\n  banksman ls --status failed,stuck\n  banksman ls --search login --all")]
        Ls(tasks::List),
        #[command(after_help = "Examples:\n  banksman ps\n  banksman ps --all")]
        Ps(sessions::List),
        Logs(tasks::Logs),
        #[command(visible_alias = "lock")]
        Locks(locks::Locks),
        #[command(visible_alias = "semaphore")]
        Semaphores(semaphores::Semaphores),
        #[command(visible_alias = "queue")]
        Queues(queues::Queues),
        #[command(visible_alias = "pipeline")]
        Pipelines(pipelines::Pipelines),
        #[command(visible_alias = "guard")]
        Guards(guards::Guards),
        #[command(visible_alias = "runbook")]
        Runbooks(runbooks::Runbooks),
        #[command(visible_alias = "worker")]
        Workers(workers::Workers),
        #[command(visible_alias = "event")]
        Events(events::Events),
        Send(send::Send),
        Bus(bus::Bus),
        Mailbox(mailbox::Mailbox),
        #[command(visible_alias = "section")]
        Sections(sections::Sections),
        #[command(visible_alias = "task")]
        Tasks(tasks::Tasks),
        #[command(visible_alias = "workspace")]
        Workspaces(workspaces::Workspaces),
        #[command(visible_alias = "agent")]
        Agents(agents::Agents),
        Recover(recover::Recover),
        Run(run::Run),
        Stop(pausing::Stop),
        Pause(pausing::Pause),
        Resume(pausing::Resume),
        Land(landing::Land),
        Landing(landing::Landing),
        Status(status::Status),
        Top(top::TopCommand),
        Timeline(timeline::TimelineCommand),
        Report(report::Report),
        Why(why::Why),
        #[command(visible_alias = "session")]
        Sessions(sessions::Sessions),
        #[command(visible_alias = "decision")]
        Decisions(decisions::Decisions),
        Doctor(doctor::Doctor),
        Config(config::Config),
        Notify(notify::Notify),
        Trust(trust::Trust),
        Demo(demo::Demo),
        Store(store::Store),
        Completions(completions::Completions),
        Man(man::Man),
    }
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // The program starts itself for internal purposes; these commands are not part of the interface.
    banksman_runtime::enter();
    if let Some(status) = gate::enter(&args).or_else(|| merge_branch::enter(&args)) {
        return status;
    }
    completions::enter();
    let matched = matches_alone(&args).map_or_else(|| Cli::command().try_get_matches_from(&args), Ok);
    let parsed = matched.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return misused(&args, &error),
    };
    let printer = Printer { json: cli.global.json, quiet: cli.global.quiet, command: command_name(&matches) };
    let context = Context { printer: printer.clone(), directory: cli.global.directory, store: cli.global.store };
    // The variable says which project a run belongs to, not where it works: only the flag changes the working directory.
    let moved =
        if matches.value_source("directory") == Some(ValueSource::CommandLine) { context.move_there() } else { Ok(context) };
    let result = moved.and_then(|context| {
        person_only::check(&printer.command, &context)?;
        cli.command.run(&context).map_err(|failure| commands::find::with_titles(&context, failure))
    });
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            printer.failure(&failure);
            ExitCode::from(failure.exit)
        }
    }
}

/// Parses a command line that starts with the name of its command, as most do. `None` if that fails: the full parser
/// then reports the error, and has the help.
fn matches_alone(args: &[OsString]) -> Option<ArgMatches> {
    let command = Command::alone(args.get(1)?.to_str()?, args.get(2).and_then(|verb| verb.to_str()))?;
    let cli = Global::augment_args(clap::Command::new("banksman")).subcommand_required(true).subcommand(command);
    // The parser is used once, and dropping it takes half as long as parsing.
    ManuallyDrop::new(cli).try_get_matches_from_mut(args).ok()
}

/// The command as the JSON envelope names it; an alias is replaced by its command.
fn command_name(matches: &ArgMatches) -> String {
    let verbs = std::iter::successors(matches.subcommand(), |(_, matches)| matches.subcommand());
    let words = verbs.map(|(name, _)| name).collect::<Vec<_>>().join(" ");
    match words.as_str() {
        "ls" => "tasks list".into(),
        "ps" => "sessions list".into(),
        "logs" => "tasks logs".into(),
        _ => words,
    }
}

/// Handles a command line that cannot be parsed; also help and version, which are no errors.
fn misused(args: &[OsString], error: &clap::Error) -> ExitCode {
    let wants_json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    if error.use_stderr() && wants_json {
        let text = error.render().to_string();
        // The first paragraph is the error, the rest is advice for people.
        let what = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        let (command, help) = match named(args) {
            Some(command) => (command.clone(), format!("see banksman {command} --help")),
            None => ("banksman".to_owned(), "list the commands: banksman --help".into()),
        };
        Printer { json: true, quiet: false, command }.failure(&failure::Failure::usage(what).hint(help));
    } else if error.use_stderr() {
        // The error repeats the user's input.
        Printer { json: false, quiet: false, command: "banksman".into() }.misuse(&error.render().to_string());
    } else if error.print().is_err() {
        return ExitCode::from(exit_codes::ERROR);
    }
    ExitCode::from(if error.use_stderr() { exit_codes::USAGE } else { exit_codes::OK })
}

/// The command of an invalid command line, as far as it can be recognised.
fn named(args: &[OsString]) -> Option<String> {
    let mut command = &Cli::command();
    let mut words = Vec::new();
    let mut rest = args.iter().skip(1).map_while(|arg| arg.to_str());
    while let Some(arg) = rest.next() {
        // Only global options precede a command.
        if matches!(arg, "-C" | "--directory" | "--store") {
            rest.next();
        } else if !arg.starts_with('-') {
            let Some(verb) = command.find_subcommand(arg) else { break };
            words.push(verb.get_name());
            command = verb;
        }
    }
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(command: &clap::Command) -> Vec<String> {
        let mut all = Global::augment_args(clap::Command::new("banksman")).subcommand(command.clone());
        all.build();
        let command = all.find_subcommand(command.get_name()).expect("it is there");
        command.get_arguments().map(|argument| format!("{argument:?}")).collect()
    }

    #[test]
    fn a_command_built_alone_equals_the_one_in_the_full_parser() {
        let all = Cli::command();
        let mut verbs = 0;
        for noun in all.get_subcommands() {
            let alone = Command::alone(noun.get_name(), None).expect("every command can be built alone");
            assert_eq!(arguments(&alone), arguments(noun));
            for verb in noun.get_subcommands() {
                let alone = Command::alone(noun.get_name(), Some(verb.get_name())).expect("the noun is known");
                let with_verb = alone.find_subcommand(verb.get_name()).expect("the verb is there");
                assert_eq!(arguments(with_verb), arguments(verb));
                verbs += usize::from(alone.get_subcommands().count() == 1 && noun.get_subcommands().count() > 1);
            }
        }
        assert!(verbs > 50, "{verbs} are built without the others");
        assert!(Command::alone("lock", None).is_none(), "an alias is nothing alone");
    }
}
