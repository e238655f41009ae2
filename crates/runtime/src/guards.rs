//! Gathers the inputs of guards. It changes nothing and prints nothing; an input that cannot be read stays unknown,
//! with the reason.

mod commands;
mod files;
mod issues;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use banksman_adapters::git::{Git, GitError};
use banksman_adapters::host;
use banksman_core::guard::{BranchInfo, Cmd, CommandResult, Guard, GuardAction, GuardInputs, Issue, IssueFilter, Topic, Wants};
use banksman_core::pipeline::When;
use banksman_core::pipeline::plan::{Action, Context};
use banksman_core::resource::lock::State;
use banksman_core::{Liveness, Now, Pipeline, Span, TaskId};
use banksman_engine::{know, store_keys};
use banksman_store::{Reader, StoreError};

use self::commands::Commands;
use crate::error::Error;
use crate::project::Project;
use crate::workspaces;

/// How many changed files of a checkout are named; the others are counted.
const FILES_NAMED: usize = 3;

/// How long gathering may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    pub command: Duration,
    /// For each call of git.
    pub git: Duration,
    /// Commands are ended as soon as this is readable, or its other end is closed.
    pub stop: Option<BorrowedFd<'a>>,
}

impl Limits<'_> {
    /// The timeout of a guard, and half a minute for git.
    pub fn of(guard: &Guard) -> Limits<'static> {
        Limits { command: Limits::span(guard.timeout), git: Duration::from_secs(30), stop: None }
    }

    fn span(span: Span) -> Duration {
        Duration::from_millis(u64::try_from(span.as_ms()).unwrap_or_default())
    }
}

/// The results of commands, as long as they are fresh: an event that causes a new check of a guard is no reason to
/// repeat its commands. A phase that has run since is one.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<BTreeMap<Asked, Answer>>);

/// The result of a command, its explanation, and until when it is fresh.
#[derive(Debug, Clone)]
struct Answer {
    result: CommandResult,
    words: Option<Box<str>>,
    until: Instant,
}

/// A command, with the pipeline that asks, how many tasks that has had, and the variables in the environment of the
/// command.
type Asked = (Cmd, TaskId, u32, String);

impl Answers {
    /// Gathers all inputs of the guards of a pipeline, each with its own limits, or until `stop`. Returns also until
    /// when all of them are fresh.
    pub(crate) fn gather(
        &self,
        project: &Project,
        pipeline: &Pipeline,
        stop: Option<BorrowedFd<'_>>,
    ) -> (GuardInputs, Option<Instant>) {
        let vars = &pipeline.context;
        let mut inputs = GuardInputs { vars: vars.clone(), ..GuardInputs::default() };
        let mut fresh_until: Option<Instant> = None;
        let awaits_workspace = awaits_workspace(project, pipeline);
        for guard in pipeline.guards() {
            let mut wants = guard.wants(vars);
            inputs.awaits_workspace |= awaits_workspace && wants.remove_workspace();
            let (fresh, until) = self.fresh(&wants, pipeline);
            wants.commands.retain(|command| !fresh.command_results.contains_key(command));
            let found = gather_trusted(project, Some(&pipeline.id), &wants, vars, Limits { stop, ..Limits::of(guard) });
            // Freshness counts from the end of the check, however long that took.
            let own = host::deadline(Limits::span(guard.fresh_for));
            fresh_until = [fresh_until, until, Some(own)].into_iter().flatten().min();
            // A guard that is retried needs a new result by then.
            let good_for = match guard.on_failure {
                GuardAction::Retry { delay } => guard.fresh_for.min(delay),
                GuardAction::Block | GuardAction::Warn | GuardAction::Fail { .. } => guard.fresh_for,
            };
            self.remember(&found, pipeline, Limits::span(good_for));
            inputs.extend(fresh);
            inputs.extend(found);
        }
        (inputs, fresh_until)
    }

    /// The fresh results of commands, with the explanations from when they ran: otherwise the same result would look
    /// like another one.
    fn fresh(&self, wants: &Wants, pipeline: &Pipeline) -> (GuardInputs, Option<Instant>) {
        let mut answers = self.lock();
        answers.retain(|_, answer| Instant::now() < answer.until);
        let (mut inputs, mut earliest) = (GuardInputs::default(), None::<Instant>);
        for command in &wants.commands {
            let Some(Answer { result, words, until }) = answers.get(&asked(command, pipeline)).cloned() else { continue };
            inputs.command_results.insert(command.clone(), result);
            inputs.unknown.extend(words.map(|words| (Topic::Command(command.clone()), words)));
            earliest = Some(earliest.map_or(until, |earliest| earliest.min(until)));
        }
        (inputs, earliest)
    }

    /// Keeps the known results: commands with an unknown one run again.
    fn remember(&self, found: &GuardInputs, pipeline: &Pipeline, fresh_for: Duration) {
        let known = found.command_results.iter().filter(|(_, result)| **result != CommandResult::Unknown);
        let until = host::deadline(fresh_for);
        let words = |command: &Cmd| found.unknown.get(&Topic::Command(command.clone())).cloned();
        let answer = |(command, result): (&Cmd, &CommandResult)| {
            (asked(command, pipeline), Answer { result: *result, words: words(command), until })
        };
        self.lock().extend(known.map(answer));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Asked, Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the files and commands that the guards of a phase ask for are left to its session, which makes the workspace of the
/// pipeline.
fn awaits_workspace(project: &Project, pipeline: &Pipeline) -> bool {
    let Some((phase, When::Pre)) = pipeline.gate() else { return false };
    let has_session = pipeline.plan.phase(phase).is_some_and(|phase| !matches!(phase.action, Action::Push(_)));
    let asks = |guard: &Guard| guard.wants(&pipeline.context).remove_workspace();
    has_session && pipeline.guards().iter().any(asks) && workspaces::is_awaited(project, &pipeline.id)
}

fn asked(command: &Cmd, pipeline: &Pipeline) -> Asked {
    (command.clone(), pipeline.id.clone(), pipeline.tasks, format!("{:?}", pipeline.context))
}

/// Gathers everything that is wanted. This takes as long as the slowest command, so it is for a thread that has nothing
/// else to do. In a program that has not called [`enter`](crate::enter), the result of every command is that it could
/// not be started.
///
/// Commands of guards come with the repository or the store, so these must be trusted; otherwise this is
/// [`Error::Untrusted`].
pub fn gather(project: &Project, wants: &Wants, vars: &Context, limits: Limits<'_>) -> Result<GuardInputs, Error> {
    if !Commands::wanted(wants).is_empty() {
        project.require_trust()?;
    }
    Ok(gather_trusted(project, None, wants, vars, limits))
}

/// The same for a runner, or a session of one: a runner refuses to start if the store is not trusted.
pub(crate) fn gather_trusted(
    project: &Project,
    pipeline: Option<&TaskId>,
    wants: &Wants,
    vars: &Context,
    limits: Limits<'_>,
) -> GuardInputs {
    let mut inputs = GuardInputs { vars: vars.clone(), ..GuardInputs::default() };
    let commands = Commands::wanted(wants);
    // A pipeline with its own workspace checks its guards there.
    let is_local = commands.is_empty() && wants.files.is_empty();
    let own = pipeline.filter(|_| !is_local).and_then(|id| workspaces::directory(project, id));
    let directory = own.as_deref().unwrap_or(project.root());
    let run = || commands.run(project, directory, pipeline, vars, limits);
    std::thread::scope(|scope| {
        // The commands, which take longest, begin first. Without helper threads they run in this one.
        for _ in 0..commands.helpers() {
            Builder::new().spawn_scoped(scope, run).ok();
        }
        read_inputs(project, directory, pipeline, wants, limits, &mut inputs);
        run();
    });
    let results = commands.results();
    issues::foreign(wants, &results, &mut inputs);
    commands::take(wants, results, &mut inputs);
    inputs
}

/// The inputs of the guards of a pipeline if nothing could be read.
pub(crate) fn nothing_known(pipeline: &Pipeline, why: &str) -> GuardInputs {
    let mut inputs = GuardInputs { vars: pipeline.context.clone(), ..GuardInputs::default() };
    for guard in pipeline.guards() {
        let wants = guard.wants(&pipeline.context);
        doubt_all(&wants, &mut inputs, why);
        let foreign = wants.issues.into_iter().map(Topic::Issues);
        let branches = wants.branches.into_iter().map(Topic::Branch);
        let merged = wants.merged.into_iter().map(|(branch, into)| Topic::Merged(branch, into));
        let files = wants.files.into_keys().map(Topic::File);
        let commands = wants.commands.into_iter().map(Topic::Command);
        for topic in foreign.chain(branches).chain(merged).chain(files).chain(commands) {
            mark_unknown(&mut inputs, topic, format!("cannot be checked ({why})"));
        }
    }
    inputs
}

/// The tasks of the project that guards ask about; filters that cannot be answered are left out.
pub(crate) fn issues(reader: &mut Reader, issues: BTreeSet<IssueFilter>) -> BTreeMap<IssueFilter, Vec<Issue>> {
    let mut inputs = GuardInputs::default();
    issues::ours(reader, &Wants { issues, ..Wants::default() }, &mut inputs);
    inputs.issues
}

/// Reads every input that takes no command of a guard.
fn read_inputs(
    project: &Project,
    directory: &Path,
    pipeline: Option<&TaskId>,
    wants: &Wants,
    limits: Limits<'_>,
    inputs: &mut GuardInputs,
) {
    match project.reader() {
        Ok(mut reader) => {
            if let Err(error) = held(&mut reader, project, pipeline, wants, inputs) {
                doubt_all(wants, inputs, &error.to_string());
            }
            issues::ours(&mut reader, wants, inputs);
        }
        Err(error) => doubt_all(wants, inputs, &error.to_string()),
    }
    let git = Git::new(project.root(), limits.git);
    wants.branches.iter().for_each(|branch| read_branch(&git, branch, inputs));
    for pair in &wants.merged {
        match git.is_merged(&pair.0, &pair.1) {
            Ok(yes) => drop(inputs.merged.insert(pair.clone(), yes)),
            Err(error) => mark_unknown(inputs, Topic::Merged(pair.0.clone(), pair.1.clone()), format!("({error})")),
        }
    }
    for (path, patterns) in &wants.files {
        files::read_file(directory, path, patterns, inputs);
    }
}

/// Reads locks, semaphores and pipelines. Holders whose processes are dead do not count, as in every list of holders.
fn held(
    reader: &mut Reader,
    project: &Project,
    pipeline: Option<&TaskId>,
    wants: &Wants,
    inputs: &mut GuardInputs,
) -> Result<(), StoreError> {
    let rows = reader.view().load(&store_keys(wants))?;
    let of_locks = rows.coordination.locks.values().filter_map(|lock| match &lock.state {
        State::Free => None,
        State::Held(grant) => Some(&**grant),
    });
    let of_semaphores = rows.coordination.semaphores.values().flat_map(|semaphore| semaphore.holders.values());
    let processes = of_locks.chain(of_semaphores).flat_map(|grant| grant.watch());
    let dead = processes.filter(|process| project.host().probe(process) == Liveness::Dead).collect();
    let now = Now { lease: rows.lease, wall: rows.wall, dead, ..Now::default() };
    know(pipeline, wants, &rows.coordination, &rows.backlog, &now, inputs);
    Ok(())
}

fn read_branch(git: &Git, branch: &str, inputs: &mut GuardInputs) {
    let topic = || Topic::Branch(branch.into());
    match git.branch_exists(branch) {
        Ok(false) => {
            inputs.branches.insert(branch.into(), BranchInfo { exists: false, clean: None });
            mark_unknown(inputs, topic(), "is not there".into());
        }
        Ok(true) => {
            let changes = git.branch_changes(branch);
            match &changes {
                Ok(None) => {}
                Ok(Some((checkout, files))) => mark_unknown(inputs, topic(), changed(checkout, files)),
                Err(error) => mark_unknown(inputs, topic(), format!("cannot be checked ({error})")),
            }
            let clean = changes.ok().map(|changes| changes.is_none());
            inputs.branches.insert(branch.into(), BranchInfo { exists: true, clean });
        }
        Err(error @ GitError::Name(_)) => mark_unknown(inputs, topic(), format!("cannot be there: {error}")),
        Err(error) => mark_unknown(inputs, topic(), format!("cannot be checked ({error})")),
    }
}

/// The checkout in which a branch has changes, and the first changed files.
fn changed(checkout: &Path, files: &[String]) -> String {
    let mut named: Vec<String> = files.iter().take(FILES_NAMED).cloned().collect();
    if files.len() > FILES_NAMED {
        named.push(format!("{} more", files.len() - FILES_NAMED));
    }
    let files = if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
    format!("{}{files}", checkout.display())
}

/// Marks everything unknown that is read from the store.
fn doubt_all(wants: &Wants, inputs: &mut GuardInputs, why: &str) {
    let words = format!("cannot be checked ({why})");
    let locks = wants.locks.iter().cloned().map(Topic::Lock);
    let semaphores = wants.semaphores.iter().cloned().map(Topic::Semaphore);
    let issues = wants.issues.iter().filter(|filter| filter.from.is_none()).cloned().map(Topic::Issues);
    for topic in locks.chain(semaphores).chain(issues) {
        mark_unknown(inputs, topic, words.clone());
    }
}

fn mark_unknown(inputs: &mut GuardInputs, topic: Topic, words: String) {
    inputs.unknown.insert(topic, words.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use banksman_core::pipeline::plan::{Bound, Plan};
    use banksman_core::{Name, Title};

    #[test]
    fn results_of_commands_are_remembered_with_their_explanations() {
        let plan =
            Plan { runbook: "r".into(), name: Name::new("p").unwrap(), vars: BTreeMap::new(), phases: Vec::new(), land: None };
        let id = TaskId::new("p-1").unwrap();
        let pipeline = Pipeline::new(id, Title::new("p").unwrap(), plan.into(), Bound::default(), &Now::default());
        let [good, bad, slow] = ["true", "false", "sleep 9"].map(|line| Cmd::Run(line.into()));
        let mut found = GuardInputs::default();
        found.command_results.insert(good.clone(), CommandResult::Success);
        found.command_results.insert(bad.clone(), CommandResult::Failure);
        found.command_results.insert(slow.clone(), CommandResult::Unknown);
        mark_unknown(&mut found, Topic::Command(bad.clone()), "with status 1: no".into());
        mark_unknown(&mut found, Topic::Command(slow.clone()), "took too long".into());
        let wants = Wants { commands: [good, bad, slow.clone()].into(), ..Wants::default() };
        let answers = Answers::default();
        answers.remember(&found, &pipeline, Duration::from_secs(600));
        // Commands with an unknown result run again.
        found.command_results.remove(&slow);
        found.unknown.remove(&Topic::Command(slow));
        assert_eq!(answers.fresh(&wants, &pipeline).0, found);
        // A phase has run since.
        let later = Pipeline { tasks: 1, ..pipeline };
        assert_eq!(answers.fresh(&wants, &later), (GuardInputs::default(), None));
    }
}
