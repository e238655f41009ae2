use std::ffi::OsString;

use banksman_core::{Seq, Status};
use banksman_runtime::Project;
use banksman_runtime::config::{Environment, KEYS};
use banksman_store::{Key, Reader, TaskFilter};
use clap::{Arg, Args, Command, CommandFactory, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use serde::Serialize;

use super::ExitResult;
use crate::context::Context;
use crate::failure::Failure;

/// The environment variable with which a shell asks for candidates.
const VARIABLE: &str = "COMPLETE";

/// The script for bash. The library's script inserts names unquoted, which breaks at every blank.
const BASH: &str = include_str!("completions.bash");

/// The upper bound on titles that a shell is offered.
const TITLES: usize = 500;

/// Print a shell completion script for commands, flags, and the names of tasks, sections, queues and so on.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mkdir -p ~/.local/share/bash-completion/completions
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
    pub(crate) fn run(self, context: &Context) -> ExitResult {
        let name = match self.shell {
            Supported::Bash => "bash",
            Supported::Zsh => "zsh",
            Supported::Fish => "fish",
        };
        let mut script = Vec::new();
        if let Supported::Bash = self.shell {
            script.extend_from_slice(BASH.as_bytes());
        } else {
            let shells = Shells::builtins();
            let shell = shells.completer(name).ok_or_else(|| Failure::unexpected(&name))?;
            let written = shell.write_registration(VARIABLE, "banksman", "banksman", "banksman", &mut script);
            written.map_err(|error| Failure::system("write the script", error))?;
        }
        let script = String::from_utf8_lossy(&script);
        context.printer.result(&Script { shell: name, script: &script }, &script)
    }
}

/// Answers a shell that asks for candidates and ends the process; returns otherwise.
pub(crate) fn enter() {
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(|| with_candidates(crate::Cli::command(), &[])).var(VARIABLE).complete();
    }
}

/// Adds candidates to every argument, chosen by its value name and by the command that `words` name.
fn with_candidates(command: Command, words: &[&str]) -> Command {
    let command = command.mut_args(|argument| match candidates(&argument, words) {
        Some(candidates) => argument.add(ArgValueCandidates::new(candidates)),
        None => argument,
    });
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let words: Vec<&str> = words.iter().copied().chain([name.as_str()]).collect();
        command.mut_subcommand(&name, |sub| with_candidates(sub, &words))
    })
}

fn candidates(argument: &Arg, words: &[&str]) -> Option<fn() -> Vec<CompletionCandidate>> {
    let named = argument.get_value_names().and_then(|names| names.first()).map(|name| name.as_str().to_uppercase());
    let name = named.unwrap_or_else(|| argument.get_id().as_str().to_uppercase());
    match (words, name.as_str()) {
        (["locks", ..], "NAME") => return Some(locks),
        (["semaphores", ..], "NAME") => return Some(semaphores),
        (["sessions", ..], "RUN") => return Some(tasks),
        (["runbooks", "new", ..], _) => return None,
        (["runbooks", ..], "NAME" | "NAME|FILE" | "FILE") | (["pipelines", "start"], "PIPELINE") => return Some(runbooks),
        _ => {}
    }
    Some(match name.as_str() {
        "TASK" | "TASKS" | "TASK|BRANCH" => tasks,
        "PIPELINE" => pipelines,
        "SECTION" => sections,
        "QUEUE" => queues,
        "LOCK" => locks,
        "RUNBOOK" => runbooks,
        "DECISION" => decisions,
        "STATUS" => statuses,
        "KEY" if argument.get_id() == "key" => keys,
        _ => return None,
    })
}

/// Reads the project of the shell's current directory; without a project there are no candidates.
fn read(names: impl FnOnce(&mut Reader) -> Option<Vec<String>>) -> Vec<CompletionCandidate> {
    let project = Project::discover(std::path::Path::new("."), &Environment::from_process()).ok();
    let names = project.and_then(|project| project.reader().ok()).and_then(|mut reader| names(&mut reader));
    names.unwrap_or_default().into_iter().map(|name| CompletionCandidate::new(OsString::from(name))).collect()
}

fn titles(reader: &mut Reader, is_wanted: impl Fn(&banksman_core::Task) -> bool) -> Option<Vec<String>> {
    let filter = TaskFilter { hide_phases: true, ..TaskFilter::default() };
    let (mut titles, mut next): (Vec<String>, _) = (Vec::new(), Some(Seq(0)));
    while let Some(after) = next.filter(|_| titles.len() < TITLES) {
        let (page, more) = reader.view().tasks(&filter, after).ok()?;
        titles.extend(page.into_iter().filter(|row| is_wanted(&row.task)).map(|row| row.task.spec.title.to_string()));
        next = more;
    }
    Some(titles)
}

fn tasks() -> Vec<CompletionCandidate> {
    read(|reader| titles(reader, |_| true))
}

fn pipelines() -> Vec<CompletionCandidate> {
    read(|reader| titles(reader, banksman_core::Task::has_phases))
}

fn sections() -> Vec<CompletionCandidate> {
    read(|reader| {
        let sections = reader.view().load(&[Key::Sections].into()).ok()?.tables.backlog.sections;
        Some(sections.into_values().map(|section| section.name.to_string()).collect())
    })
}

fn queues() -> Vec<CompletionCandidate> {
    read(|reader| {
        let queues = reader.view().load(&[Key::Queues].into()).ok()?.tables.queues.queues;
        Some(queues.into_keys().map(|name| name.to_string()).collect())
    })
}

fn locks() -> Vec<CompletionCandidate> {
    read(|reader| {
        let locks = reader.view().snapshot().ok()?.tables.coordination.locks;
        Some(locks.into_keys().map(|name| name.to_string()).filter(|name| !name.contains(':')).collect())
    })
}

fn semaphores() -> Vec<CompletionCandidate> {
    read(|reader| {
        let semaphores = reader.view().snapshot().ok()?.tables.coordination.semaphores;
        Some(semaphores.into_keys().map(|name| name.to_string()).filter(|name| !name.contains(':')).collect())
    })
}

fn decisions() -> Vec<CompletionCandidate> {
    read(|reader| {
        let decisions = reader.view().load(&[Key::OpenDecisions].into()).ok()?.tables.backlog.decisions;
        Some(decisions.into_keys().map(|id| id.to_string()).collect())
    })
}

fn runbooks() -> Vec<CompletionCandidate> {
    let project = Project::discover(std::path::Path::new("."), &Environment::from_process()).ok();
    let files = project.and_then(|project| std::fs::read_dir(project.folder().join("runbooks")).ok());
    let names = files.into_iter().flatten().flatten().map(|file| file.path());
    let names = names.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    names.filter_map(|path| path.file_stem().map(|stem| CompletionCandidate::new(stem.to_owned()))).collect()
}

fn statuses() -> Vec<CompletionCandidate> {
    Status::ALL.into_iter().map(|status| CompletionCandidate::new(status.as_str())).collect()
}

fn keys() -> Vec<CompletionCandidate> {
    KEYS.iter().map(|key| CompletionCandidate::new(key.name)).collect()
}
