//! Runs of agent programs: their command line, environment and prompt, and the result of a run.

mod check;
mod limits;
pub(crate) mod start_check;
mod trust;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use banksman_adapters::digest;
use banksman_adapters::keeper::{AgentReport, AgentSpec, SessionEnd};
use banksman_agents::profile::{Call, PromptBy, SessionBy};
use banksman_agents::prompt::{self, Last, Mail, Parts};
use banksman_agents::{Exit, Family, Profile, Reader, judge};
use banksman_core::agent::{AgentChoice, AgentEnd, AgentWork};
use banksman_core::backlog::{Run, RunEndRecord, Section};
use banksman_core::decision::{Decision, OPEN_ANSWER, State};
use banksman_core::landing::{self, Entry, LandingEnd, Return};
use banksman_core::task::{LiveInput, RetryReason, Work as What, WorkspaceSpec};
use banksman_core::{RunId, SectionId, Seq, Status, Task, TaskId, Title, Wall};
use banksman_engine::Work;
use banksman_store::{Key, Reader as StoreReader, StoreError};
use serde::Serialize;
use thiserror::Error;

use crate::config::OnConflict;
use crate::dispatch::Letter;
use crate::project::Project;

pub use check::{Checkup, Login, check, find, login};
pub(crate) use start_check::StartCheck;
use start_check::Terms;
pub(crate) use trust::Value;
pub use trust::{Exposure, choices};

/// How long a program may take to end after its result, in milliseconds.
const AFTER_RESULT_MS: u64 = 10_000;

/// How much of the log of the last run goes into the prompt of the next, in bytes.
const LOG_TAIL: u64 = 4_000;

/// Variables of an agent that Banksman itself may run in.
const OUTER_AGENT: [&str; 6] =
    ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CODEX_SANDBOX", "CODEX_THREAD_ID", "GEMINI_CLI"];

/// Why the agent of a task cannot be started.
#[derive(Debug, Error)]
pub enum AgentError {
    #[error("there is no agent {name}: the settings have no [agent.{name}]")]
    Unknown { name: String },
}

/// How the agent of a run is started.
#[derive(Debug, Clone)]
pub(crate) struct AgentCall {
    pub(crate) argv: Vec<OsString>,
    /// What must be trusted in the directory where the agent starts.
    pub(crate) terms: Terms,
    pub(crate) env: Vec<(String, OsString)>,
    pub(crate) env_remove: Vec<String>,
    pub(crate) prompt: String,
    /// Whether the program reads the prompt.
    pub(crate) reads_prompt: bool,
    /// The input that the program takes after the prompt.
    pub(crate) input: Option<LiveInput>,
    pub(crate) spec: AgentSpec,
}

/// The work of a task, if an agent does it.
pub(crate) fn work_of(task: &Task) -> Option<&AgentWork> {
    match &task.spec.work {
        Some(What::Agent(work)) => Some(work),
        _ => None,
    }
}

/// The agent that a run was started with.
fn choice_of(work: &Work) -> Option<&AgentChoice> {
    work_of(&work.task)?.choice(work.run.agent.as_ref().map(|agent| &agent.agent))
}

/// What has happened to a task before a run of it.
#[derive(Debug, Clone, Default)]
pub struct Past {
    /// The runs that are over.
    pub runs: Vec<Run>,
    /// The decision that the last of these runs has asked for.
    pub answer: Option<Decision>,
    /// The last entry of its work in a merge queue.
    pub landing: Option<Entry>,
    /// The sections of the project.
    pub sections: BTreeMap<SectionId, Section>,
}

impl Past {
    pub fn load(reader: &mut StoreReader, task: &TaskId) -> Result<Past, StoreError> {
        let rows =
            reader.view().load(&[Key::RunsOf(task.clone()), Key::LandingOf(task.clone()), Key::Sections].into())?.tables.backlog;
        let runs = rows.runs.into_values().filter(|run| !run.is_live()).collect();
        let landing = rows.landings.into_values().max_by_key(|entry| entry.id.seq());
        let mut past = Past { runs, answer: None, landing, sections: rows.sections };
        if let Some(asked) = past.last().and_then(|run| run.ended.as_ref()).and_then(|ended| ended.asked.clone()) {
            past.answer = reader.view().load(&[Key::Decision(asked.clone())].into())?.backlog.decisions.remove(&asked);
        }
        Ok(past)
    }

    /// The last run that is over and has begun. A run whose agent was never started has changed nothing and has no session.
    pub(crate) fn last(&self) -> Option<&Run> {
        self.runs.iter().filter(|run| run.ended.as_ref().is_none_or(|ended| !is_not_begun(ended))).max_by_key(|run| run.epoch)
    }

    /// Why the work came back from the merge queue, if that was the last result of it.
    fn returned(&self) -> Option<(&Entry, &Return)> {
        self.landing.as_ref().and_then(|entry| Some((entry, returned(entry)?)))
    }
}

/// Whether the command of the run was never started.
fn is_not_begun(ended: &RunEndRecord) -> bool {
    ended.ending.is_not_begun() || matches!(ended.setback, Some(RetryReason::Guard | RetryReason::Untrusted))
}

/// Why the work of an entry was returned, if it was.
pub(crate) fn returned(entry: &Entry) -> Option<&Return> {
    match &entry.state {
        landing::State::Over(LandingEnd::Returned(why)) => Some(why),
        _ => None,
    }
}

/// Whether an entry holds the work of a run: the transaction that ends a run adds the entry.
pub(crate) fn is_after(entry: &Entry, run: &Run) -> bool {
    entry.id.seq() > Seq(run.epoch.0)
}

/// Plans how the agent of a run is started.
pub(crate) fn plan(project: &Project, work: &Work, past: &Past, letters: &[Letter]) -> Result<Option<AgentCall>, AgentError> {
    let Some(agent_work) = work_of(&work.task) else { return Ok(None) };
    let Some(choice) = choice_of(work) else { return Ok(None) };
    let (name, profile) = profile(project, choice.agent.as_str())?;
    let prompt = Prompt::of(project, &work.task, agent_work, choice, profile, past);
    let session = prompt.resumes.clone().unwrap_or_else(|| session_of(&work.run.id));
    let text = prompt.text(letters);
    let has_workspace = work.task.spec.workspace.owner(&work.task.id).is_some();
    let git_dirs = if has_workspace { GIT_DIRS.into() } else { git_dirs(project.root()) };
    let call = Call {
        resumes: prompt.resumes.is_some(),
        session: &session,
        model: choice.model.as_deref().or(profile.model.as_deref()),
        prompt: if profile.prompt == PromptBy::Argument { &text } else { "" },
        git_dirs: &git_dirs,
    };
    let argv = profile.argv(&call).into_iter().map(OsString::from).collect();
    let mut env: Vec<(String, OsString)> = vec![("GIT_TERMINAL_PROMPT".into(), "0".into()), ("CI".into(), "1".into())];
    env.extend(profile.env.iter().map(|(name, value)| (name.clone(), value.into())));
    let patience = project.config().agents.retry_patience;
    let spec = AgentSpec {
        family: profile.output,
        after_result_ms: AFTER_RESULT_MS,
        patience_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
    };
    let env_remove = OUTER_AGENT.map(String::from).into();
    let reads_prompt = profile.prompt == PromptBy::Stdin;
    let input = match profile {
        Profile { pty: true, .. } => Some(LiveInput::Terminal),
        Profile { input: true, .. } => Some(LiveInput::Pipe),
        _ => None,
    };
    // Where messages follow, the prompt is the first of them.
    let text = match encoding(profile) {
        Some(encode) if reads_prompt => encode(&text) + "\n",
        _ => text,
    };
    let terms = Terms::new(project, work, name, profile);
    Ok(Some(AgentCall { argv, terms, env, env_remove, prompt: text, reads_prompt, input, spec }))
}

/// How a message is encoded for the agent of a live run; `None` for programs that take plain text.
pub(crate) fn steering(project: &Project, work: &Work) -> Option<fn(&str) -> String> {
    let choice = choice_of(work)?;
    encoding(profile(project, choice.agent.as_str()).ok()?.1)
}

/// How messages to a working agent are encoded, if its program takes them but not as plain text.
fn encoding(profile: &Profile) -> Option<fn(&str) -> String> {
    match profile.output {
        Family::Claude if profile.input => Some(banksman_agents::steer::claude),
        _ => None,
    }
}

/// The output format of the agent of a run.
pub fn family(project: &Project, task: &Task, run: &Run) -> Option<Family> {
    let choice = work_of(task)?.choice(run.agent.as_ref().map(|agent| &agent.agent))?;
    Some(profile(project, choice.agent.as_str()).ok()?.1.output)
}

fn profile<'a>(project: &'a Project, name: &'a str) -> Result<(&'a str, &'a Profile), AgentError> {
    let found = project.config().agents.profiles.get(name);
    found.map(|(name, profile)| (name.as_str(), profile)).ok_or_else(|| AgentError::Unknown { name: name.into() })
}

/// The prompt of the next run of a task.
pub fn next_prompt(project: &Project, task: &Task, past: &Past) -> Result<Option<String>, AgentError> {
    let Some(work) = work_of(task) else { return Ok(None) };
    let Some(choice) = work.agents.first() else { return Ok(None) };
    let (_, profile) = profile(project, choice.agent.as_str())?;
    Ok(Some(Prompt::of(project, task, work, choice, profile, past).text(&[])))
}

/// The parts of the prompt of a run.
struct Prompt<'a> {
    task: &'a Task,
    work: &'a AgentWork,
    /// The session that the run resumes.
    resumes: Option<String>,
    /// Why the last run did not count, and the end of its log.
    last: Option<(String, String)>,
    /// Why the work came back from the merge queue, and the end of the log of its check.
    returned: Option<(String, String)>,
    /// What a person has answered to the question of the last run.
    answer: Option<Answered>,
    /// The section of the task, and the rules for it.
    rules: Option<(Title, &'a str)>,
    in_git: bool,
}

impl<'a> Prompt<'a> {
    fn of(
        project: &'a Project,
        task: &'a Task,
        work: &'a AgentWork,
        choice: &AgentChoice,
        profile: &Profile,
        past: &Past,
    ) -> Prompt<'a> {
        // A successful run leaves nothing to report, nor does a person's request to repeat it.
        let last = past.last().filter(|run| run.ended.is_some() && task.status() != Status::Completed);
        let ended = last.and_then(|run| run.ended.as_ref());
        let answer = past.answer.as_ref().and_then(Answered::of);
        let came_back = last.and(past.returned());
        // No run has seen yet why the work came back.
        let is_news = came_back.zip(last).is_some_and(|((entry, _), last)| is_after(entry, last));
        let goes_on = match came_back {
            Some((_, Return::Conflict { .. })) if is_news => project.config().landing.on_conflict != OnConflict::Agent,
            Some(_) if is_news => true,
            _ => ended.is_some_and(was_interrupted),
        };
        let agent = ended.and_then(|ended| ended.agent.as_ref());
        let is_same = agent.is_some_and(|agent| agent.agent == choice.agent);
        let session = agent.filter(|_| goes_on && is_same && profile.can_resume()).and_then(|agent| agent.session.clone());
        let why = ended.filter(|_| answer.is_none() && !is_news).map(|ended| {
            let why = ended.error.as_deref().map(str::to_owned);
            why.unwrap_or_else(|| {
                ended.setback.map_or_else(|| ended.ending.to_string(), |why| why.describe(&ended.ending).into())
            })
        });
        let log = last.filter(|_| session.is_none() && why.is_some()).map(|run| {
            let family = family(project, task, run).unwrap_or(profile.output);
            rendered_tail(project, family, &run.id)
        });
        // A session that was only interrupted has already seen the reason.
        let returned = came_back.filter(|_| is_news || session.is_none()).map(|(entry, why)| did_not_land(entry, why));
        let section = task.spec.section.as_ref().and_then(|id| past.sections.get(id));
        let rules = section.and_then(|section| {
            let rules = project.config().agents.rules.get(&section.name.as_str().to_lowercase())?;
            Some((section.name.clone(), rules.as_str()))
        });
        let in_git = matches!(task.spec.workspace, WorkspaceSpec::Worktree(_) | WorkspaceSpec::Shared { .. })
            || project.root().join(".git").exists();
        Prompt {
            task,
            work,
            resumes: session.map(Into::into),
            last: why.map(|why| (why, log.unwrap_or_default())),
            returned,
            answer,
            rules,
            in_git,
        }
    }

    fn text(&self, letters: &[Letter]) -> String {
        let mail = letters.iter().map(|Letter { message, is_redelivered }| Mail {
            id: message.draft.id.as_str(),
            author: &message.draft.author,
            kind: message.draft.kind.as_str(),
            body: &message.draft.body,
            is_redelivered: *is_redelivered,
        });
        prompt::compose(&Parts {
            messages: &mail.collect::<Vec<_>>(),
            title: self.task.spec.title.as_str(),
            prompt: &self.work.prompt,
            rules: self.rules.as_ref().map(|(section, rules)| (section.as_str(), *rules)),
            resumes: self.resumes.is_some(),
            is_revised: self.work.is_revised,
            last: self.last.as_ref().map(|(why, log)| Last { why, log }),
            returned: self.returned.as_ref().map(|(why, log)| Last { why, log }),
            answer: self.answer.as_ref().map(|answer| (&*answer.question, &*answer.text)),
            in_git: self.in_git,
            is_loop: self.task.spec.restart.is_some(),
            lands: self.task.spec.land.is_some(),
        })
    }
}

/// Whether a run ended before the agent was done, so that its session is resumed.
fn was_interrupted(ended: &RunEndRecord) -> bool {
    let by_us = |why| matches!(why, RetryReason::Lost | RetryReason::Stuck | RetryReason::Overtime | RetryReason::Stopped);
    ended.asked.is_some() || ended.setback.is_some_and(by_us) || ended.agent.as_ref().is_some_and(|agent| agent.verdict.resumes())
}

/// Why work did not land and how its worktree shows it, with the end of the log of a check.
fn did_not_land(entry: &Entry, why: &Return) -> (String, String) {
    match why {
        Return::Conflict { tip, .. } => {
            let text = format!(
                "{why}. {target} has changed since you began; {tip} of it is merged into this worktree, with the conflict in these \
                 files. Resolve it so that both changes keep their meaning, and commit.",
                target = entry.target,
                tip = tip.short()
            );
            (text, String::new())
        }
        Return::CheckFailed { commit, log } => {
            let text = format!(
                "the check fails on {}, which is your work on top of {}, and is checked out here. Repair it, and commit.",
                commit.short(),
                entry.target
            );
            (text, crate::sessions::tail(Path::new(&**log), LOG_TAIL))
        }
        Return::NoChange => (format!("{why}. Do what the task asks for, and commit it. {}", prompt::NO_CHANGE), String::new()),
        Return::Unfinished { .. } | Return::TargetMoves | Return::Failure { .. } => (why.to_string(), String::new()),
    }
}

/// The answer of a person to the question of a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Answered {
    question: Box<str>,
    #[serde(rename = "answer")]
    text: String,
    by: Box<str>,
}

impl Answered {
    /// The answer of a decision, if it has one.
    pub(crate) fn of(decision: &Decision) -> Option<Answered> {
        let State::Resolved(answer) = &decision.state else { return None };
        let chosen = decision.question.option(answer.option).map(|choice| &*choice.text);
        let text = match (chosen, answer.note.as_deref()) {
            (Some(chosen), None) => chosen.to_owned(),
            (Some(chosen), Some(note)) if chosen != OPEN_ANSWER => format!("{chosen}: {note}"),
            (_, note) => note.unwrap_or_default().to_owned(),
        };
        Some(Answered { question: decision.question.text.clone(), text, by: answer.by.clone() })
    }
}

/// The end of a log, rendered for people.
fn rendered_tail(project: &Project, family: Family, run: &RunId) -> String {
    let log = project.folder().join("logs").join(format!("{run}.log"));
    let text = crate::sessions::tail(&log, LOG_TAIL * 8);
    let mut rendered = String::new();
    text.lines().for_each(|line| banksman_agents::render::line(family, line.as_bytes(), &mut rendered));
    let from = rendered.len().saturating_sub(usize::try_from(LOG_TAIL).unwrap_or(usize::MAX));
    let from = (from..=rendered.len()).find(|at| rendered.is_char_boundary(*at)).unwrap_or(0);
    rendered.split_off(from)
}

/// The id of the session of a run, for programs that take one: it has the form of a random UUID, and is the same each time.
fn session_of(run: &RunId) -> String {
    let hash = digest::sha256(&[b"agent session", run.as_str().as_bytes()]);
    let variant = ["8", "9", "a", "b"][usize::from(hash.as_bytes()[16]) % 4];
    format!("{}-{}-4{}-{variant}{}-{}", &hash[..8], &hash[8..12], &hash[13..16], &hash[17..20], &hash[20..32])
}

/// Placeholder for the directories of git in the arguments of an agent whose worktree is only created in its session.
pub(crate) const GIT_DIRS: &str = "\u{1}git-dirs\u{1}";

/// The directories of git that a commit in a checkout writes to, as a list in JSON.
pub(crate) fn git_dirs(checkout: &Path) -> String {
    let dot_git = checkout.join(".git");
    // In a linked worktree, `.git` is a file that names the worktree's own directory, which lies below the shared one.
    let linked = std::fs::read_to_string(&dot_git).ok();
    let own = linked.as_deref().and_then(|text| text.trim().strip_prefix("gitdir: ")).map(PathBuf::from);
    let shared = own.as_ref().and_then(|own| Some(own.parent()?.parent()?.to_owned()));
    let dirs: Vec<String> = match (shared, own) {
        (Some(shared), Some(own)) => vec![shared.display().to_string(), own.display().to_string()],
        _ => vec![dot_git.display().to_string()],
    };
    serde_json::to_string(&dirs).expect("a list of texts has a JSON form")
}

/// The result of a session of an agent.
pub(crate) fn end_of(project: &Project, work: &Work, agent: &AgentReport, ended: &SessionEnd) -> Option<AgentEnd> {
    let choice = choice_of(work)?;
    let (_, profile) = profile(project, choice.agent.as_str()).ok()?;
    let exit = Exit { code: ended.code, signal: ended.signal };
    let end = paid_by(profile, judge(&choice.agent, profile.output, &agent.report, exit, agent.stop));
    let end = limits::until(end, agent.report.reset, Wall(ended.ended_at_ms), &limits::zone(profile));
    // Gemini keeps a session from its first answer on: before that there is nothing to resume.
    let is_begun = end.session.as_deref() == Some(&session_of(&work.run.id));
    let is_kept = profile.output != Family::Gemini || end.answers > 0 || !is_begun;
    Some(AgentEnd { session: end.session.filter(|_| is_kept), ..end })
}

/// Adds the variable that pays: Claude reports no key even where no subscription covers the cost.
fn paid_by(profile: &Profile, end: AgentEnd) -> AgentEnd {
    let key_source = if end.is_paid() { None } else { check::paying_variable(profile) };
    AgentEnd { key_source: key_source.map(Into::into).or(end.key_source), ..end }
}

/// The result of a session whose keeper was killed, read from its log.
pub(crate) fn end_of_lost(project: &Project, work: &Work, log: &Path) -> Option<AgentEnd> {
    let choice = choice_of(work)?;
    let (_, profile) = profile(project, choice.agent.as_str()).ok()?;
    let mut reader = Reader::new(profile.output);
    let mut chunk = vec![0; 64 * 1024];
    let mut file = File::open(log).ok()?;
    while let Ok(n @ 1..) = file.read(&mut chunk) {
        reader.output(&chunk[..n], 0);
    }
    // The keeper was killed, so a result in the log does not count.
    reader.close();
    let mut report = reader.finish(0);
    report.ending = None;
    let judged = paid_by(profile, judge(&choice.agent, profile.output, &report, Exit::default(), None));
    // A session id that we chose is known even if the program has printed none.
    let given = (profile.session == SessionBy::Given && report.answers > 0).then(|| session_of(&work.run.id).into());
    Some(AgentEnd { session: judged.session.clone().or(given), ..judged })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_have_the_form_of_a_random_uuid_and_are_stable_per_run() {
        let id = session_of(&RunId::new("r-1").unwrap());
        assert_eq!(id, session_of(&RunId::new("r-1").unwrap()));
        assert_ne!(id, session_of(&RunId::new("r-2").unwrap()));
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!((lengths, &id[14..15]), (vec![8, 4, 4, 4, 12], "4"));
        assert!("89ab".contains(&id[19..20]), "{id}");
    }
}
