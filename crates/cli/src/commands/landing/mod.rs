//! Merge queues.

mod land;

use banksman_adapters::git::{GitError, Lander};
use banksman_core::landing::{Entry, Input, LandingEnd, LandingQueue, Outcome, State};
use banksman_core::{LandingId, Name};
use banksman_engine::{LandingOutcome, LandingRequest};
use banksman_runtime::Client;
use banksman_runtime::inspect;
use banksman_runtime::landing::{self as driver, LandingError};
use banksman_store::{Key, Reader};
use clap::Args;

use super::{ExitResult, resources};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::table;
use crate::views::Named;
use crate::views::landing::{EntryView, QueueView, TargetView};

pub(crate) use land::Land;

/// The number of entries that `--all` shows.
const ALL: i64 = 100;

subcommands! {
    /// Show and control the merge queues.
    #[command(after_help = "Examples:\n  banksman landing list\n  banksman landing pause\n  banksman landing remove l-120")]
    pub(crate) noun Landing {
        List(List),
        Show(Show),
        Pause(Pause),
        Resume(Resume),
        Remove(Remove),
    }
}

/// List the entries of the merge queues.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman landing list\n  banksman landing list --all")]
struct List {
    /// Also list the last entries that have left a queue
    #[arg(long)]
    all: bool,
}

/// Show one entry.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman landing show l-120")]
struct Show {
    /// The entry, or its task or branch
    landing: String,
}

/// Pause a merge queue: nothing lands until it is resumed.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman landing pause")]
struct Pause {
    /// The branch whose queue is paused [default: landing.target, or the branch of the main checkout]
    target: Option<String>,
}

/// Resume a merge queue.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman landing resume")]
struct Resume {
    /// The branch whose queue is resumed [default: landing.target, or the branch of the main checkout]
    target: Option<String>,
}

/// Remove an entry from its queue. Its branch and its commits stay.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman landing remove l-120")]
struct Remove {
    /// The entry, or its task or branch
    landing: String,
}

impl List {
    fn run(self, context: &Context) -> ExitResult {
        let mut reader = context.reader()?;
        if self.all {
            let entries = reader.view().last_landings(ALL)?;
            let human = table::render(&HEADERS, entries.iter().map(row).collect());
            let views: Vec<_> = entries.iter().map(EntryView::from).collect();
            return context.printer.result(&Named("landings", views), human);
        }
        let queues = queues(&mut reader)?;
        let views: Vec<_> = queues.iter().map(QueueView::from).collect();
        context.printer.result(&Named("queues", views), listing(&queues))
    }
}

impl Show {
    fn run(self, context: &Context) -> ExitResult {
        let entry = find(&mut context.reader()?, &self.landing)?;
        context.printer.result(&EntryView::from(&entry), sentence(&entry))
    }
}

impl Pause {
    fn run(self, context: &Context) -> ExitResult {
        switch(context, self.target.as_deref(), true)
    }
}

impl Resume {
    fn run(self, context: &Context) -> ExitResult {
        switch(context, self.target.as_deref(), false)
    }
}

impl Remove {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let entry = find(&mut client.reader()?, &self.landing)?;
        let by = resources::forced(&client).user;
        match ask(&client, &entry.target, Input::Remove { entry: entry.id.clone(), by })? {
            Outcome::Stands(entry) => context.printer.result(&EntryView::from(&*entry), sentence(&entry)),
            Outcome::Late => Err(Failure::new(exit::LOCKED, "LANDING_MOVES", format!("{} is landing at this moment", entry.id))
                .details(&EntryView::from(&entry))
                .hint("if the process that lands it was killed, a runner finishes it, or land it again")),
            Outcome::Unknown => {
                Err(Failure::new(exit::USAGE, "LANDING_OVER", sentence(&entry)).details(&EntryView::from(&entry)))
            }
            other => Err(Failure::unexpected(&other)),
        }
    }
}

fn switch(context: &Context, target: Option<&str>, is_paused: bool) -> ExitResult {
    let client = context.client()?;
    let target = match target {
        Some(target) => Name::new(target).map_err(Failure::usage)?,
        None => target_of(&client, &driver::lander(client.project()).map_err(git_failure)?, None)?,
    };
    let by = resources::forced(&client).user;
    let input = if is_paused { Input::Pause { by } } else { Input::Resume { by } };
    let word = if is_paused { "paused" } else { "resumed" };
    let human = match ask(&client, &target, input)? {
        Outcome::Paused | Outcome::Resumed => format!("{word} the merge queue of {BOLD}{target}{BOLD:#}"),
        Outcome::Unchanged => format!("the merge queue of {BOLD}{target}{BOLD:#} is {word} already"),
        other => return Err(Failure::unexpected(&other)),
    };
    context.printer.result(&TargetView { target: &target, paused: is_paused }, human)
}

fn ask(client: &Client, target: &Name, input: Input) -> Result<Outcome, Failure> {
    match client.request(LandingRequest::new(target.clone(), input))? {
        LandingOutcome::Stepped(outcome) => Ok(outcome),
        other @ LandingOutcome::Fenced => Err(Failure::unexpected(&other)),
    }
}

/// The queues that have entries or are paused.
fn queues(reader: &mut Reader) -> Result<Vec<LandingQueue>, Failure> {
    Ok(inspect::landing_queues(&reader.view().load(&[Key::OpenLandings].into())?.backlog))
}

/// The entries of all merge queues, in their order.
pub(crate) fn board(reader: &mut Reader) -> Result<Vec<crate::board::Landing>, Failure> {
    let queues = queues(reader)?;
    let mut landings = Vec::new();
    for queue in &queues {
        let mut entries: Vec<&Entry> = queue.entries.values().collect();
        entries.sort_by_key(|entry| entry.place());
        landings.extend(entries.into_iter().map(|entry| crate::board::Landing {
            task: entry.spec.task.clone(),
            title: entry.spec.title.to_string(),
            state: entry.state.as_str().replace('_', " "),
            target: entry.target.to_string(),
        }));
    }
    Ok(landings)
}

const HEADERS: [&str; 5] = ["ID?", "TARGET~?", "STATE~", "TASK??", "TITLE~"];

fn row(entry: &Entry) -> Vec<String> {
    let task = entry.spec.task.as_ref().map(ToString::to_string).unwrap_or_default();
    vec![
        format!("{BOLD}{}{BOLD:#}", entry.id),
        entry.target.to_string(),
        entry.state.as_str().replace('_', " "),
        task,
        entry.spec.title.to_string(),
    ]
}

fn listing(queues: &[LandingQueue]) -> String {
    if queues.is_empty() {
        return format!("{DIM}the merge queues are empty{DIM:#}");
    }
    let mut parts = Vec::new();
    let mut entries: Vec<&Entry> = Vec::new();
    for queue in queues {
        parts.extend(paused(queue));
        let mut own: Vec<&Entry> = queue.entries.values().collect();
        own.sort_by_key(|entry| entry.place());
        entries.extend(own);
    }
    if !entries.is_empty() {
        parts.push(table::render(&HEADERS, entries.into_iter().map(row).collect()));
    }
    parts.join("\n")
}

/// The reason why nothing lands on a branch.
pub(crate) fn paused(queue: &LandingQueue) -> Option<String> {
    let pause = queue.target.paused.as_ref()?;
    let target = &queue.target.name;
    Some(match (&pause.red, &pause.by) {
        (Some(red), _) => format!(
            "{YELLOW}paused{YELLOW:#}: the check fails on {target} itself, at {} (output: {}); decision {}",
            red.tip.short(),
            red.log,
            red.decision
        ),
        (None, Some(by)) => format!("{YELLOW}paused{YELLOW:#}: {target}, by {by} (banksman landing resume {target})"),
        (None, None) => format!("{YELLOW}paused{YELLOW:#}: {target}"),
    })
}

/// A runner's line about an entry that cannot progress further.
pub(crate) fn line(entry: &Entry) -> Option<String> {
    let name = format!("{BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", entry.spec.title, entry.id);
    let target = &entry.target;
    Some(match &entry.state {
        State::Over(LandingEnd::Landed { commit, .. }) => {
            format!("{GREEN}landed{GREEN:#}     {name} on {target} as {}", commit.short())
        }
        State::Over(LandingEnd::NoChange { .. }) => {
            format!("{GREEN}landed{GREEN:#}     {name}: {target} already had all changes")
        }
        State::Over(LandingEnd::Returned(why)) => format!("{YELLOW}returned{YELLOW:#}   {name}: {why}"),
        State::Over(LandingEnd::Shelved { reason }) => format!("{YELLOW}review{YELLOW:#}     {name}: {reason}"),
        State::Waiting { obstacle } => format!("{YELLOW}waiting{YELLOW:#}    {name} to land on {target}: {obstacle}"),
        State::Asking { decision, because } => {
            format!("{RED}needs you{RED:#}  {name}: {because}: banksman decisions show {decision}")
        }
        State::Over(LandingEnd::Removed { .. })
        | State::Queued
        | State::Candidate { .. }
        | State::Suspect { .. }
        | State::Passed { .. } => return None,
    })
}

/// The state of an entry as a sentence.
pub(crate) fn sentence(entry: &Entry) -> String {
    let (id, target, title) = (&entry.id, &entry.target, &entry.spec.title);
    let name = format!("{BOLD}{title}{BOLD:#} {DIM}{id}{DIM:#}");
    match &entry.state {
        State::Queued if entry.is_uncollected() => format!("queued to land on {target}, to be collected: {name}"),
        State::Queued => format!("queued to land on {target}: {name}"),
        State::Candidate { commit, .. } => format!("checking {} for {target} (lock landing:{target}): {name}", commit.short()),
        State::Suspect { tip, .. } => {
            format!("the check failed; checking {target} itself at {} (lock landing:{target}): {name}", tip.short())
        }
        State::Passed { commit, .. } => format!("moving {target} to {}: {name}", commit.short()),
        State::Waiting { obstacle } => format!("{YELLOW}waiting{YELLOW:#} to land on {target}: {name}: {obstacle}"),
        State::Asking { decision, because } => format!("{YELLOW}needs you{YELLOW:#} ({decision}): {name}: {because}"),
        State::Over(LandingEnd::Landed { commit, checked, flaky, .. }) => {
            let how = match (checked, flaky) {
                (true, false) => "checked",
                (true, true) => "checked; the check failed once and passed on the same commit",
                (false, _) => "unchecked",
            };
            format!("{GREEN}landed{GREEN:#} on {target} as {} ({how}): {name}", commit.short())
        }
        State::Over(LandingEnd::NoChange { .. }) => {
            format!("{GREEN}nothing to land{GREEN:#}: {target} already has all changes of {name}")
        }
        State::Over(LandingEnd::Returned(why)) => format!("{RED}not landed{RED:#} on {target}: {name}: {why}"),
        State::Over(LandingEnd::Shelved { reason }) => format!("{YELLOW}in review{YELLOW:#}: {name}: {reason}"),
        State::Over(LandingEnd::Removed { by }) => format!("removed from the queue of {target} by {by}: {name}"),
    }
}

/// The branch to land on.
pub(crate) fn target_of(client: &Client, lander: &Lander, given: Option<&str>) -> Result<Name, Failure> {
    let set = given.map(str::to_owned).or_else(|| client.config().landing.target.clone());
    let branch = match set {
        Some(branch) => branch,
        None => lander.current_branch().map_err(git_failure)?.ok_or_else(|| {
            Failure::usage("HEAD is detached, so there is no branch to land on")
                .hint("name one: --into BRANCH, or banksman config set landing.target BRANCH")
        })?,
    };
    if lander.branch_tip(&branch).map_err(git_failure)?.is_none() {
        return Err(Failure::new(exit::NOT_FOUND, "BRANCH_NOT_FOUND", format!("there is no branch {branch:?} to land on"))
            .detail("branch", &branch)
            .hint("a branch needs at least one commit; list the branches: git branch"));
    }
    if let Some(other) = lander.alias_of(&branch).map_err(git_failure)? {
        return Err(Failure::usage(format!("{branch} is another name of {other}")).hint(format!("--into {other}")));
    }
    Name::new(&branch).map_err(Failure::usage)
}

/// The entry with this id, or the last one of a branch or a task.
fn find(reader: &mut Reader, name: &str) -> Result<Entry, Failure> {
    if let Ok(id) = LandingId::new(name)
        && let Some(entry) = reader.view().load(&[Key::Landing(id.clone())].into())?.backlog.landings.remove(&id)
    {
        return Ok(entry);
    }
    let open = reader.view().load(&[Key::OpenLandings].into())?.tables.backlog.landings.into_values();
    let of_branch = open.filter(|entry| entry.spec.task.is_none() && entry.spec.branch.as_deref() == Some(name));
    if let Some(entry) = of_branch.max_by_key(|entry| entry.id.seq()) {
        return Ok(entry);
    }
    let task = match &super::find::tasks_named(reader, name)?[..] {
        [] => return Err(unknown(name)),
        _ => super::find::task_id(reader, name)?,
    };
    let entries = reader.view().load(&[Key::LandingOf(task)].into())?.tables.backlog.landings.into_values();
    entries.max_by_key(|entry| entry.id.seq()).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Failure {
    Failure::new(exit::NOT_FOUND, "LANDING_NOT_FOUND", format!("there is no landing {name:?}"))
        .detail("landing", &name)
        .hint("list the last landings: banksman landing list --all")
}

pub(crate) fn git_failure(error: GitError) -> Failure {
    landing_failure(LandingError::Git(error))
}

fn landing_failure(error: LandingError) -> Failure {
    let message = error.to_string();
    match error {
        LandingError::Shell(error) => error.into(),
        LandingError::Git(GitError::NoBranch(_)) => Failure::new(exit::NOT_FOUND, "BRANCH_NOT_FOUND", message),
        LandingError::Git(GitError::Name(_)) | LandingError::LongName(_) => Failure::usage(message),
        LandingError::Git(_) => Failure::new(exit::ERROR, "GIT", message),
        LandingError::NoCheck => Failure::new(exit::CONFIG, "NO_CHECK", message)
            .hint("set one: banksman config set landing.check 'make test'; or land without a check: --unchecked"),
        LandingError::Untrusted => Failure::new(exit::NOT_PERMITTED, "UNTRUSTED", message)
            .hint("show it with: banksman config get landing.check; then: banksman trust"),
    }
}
