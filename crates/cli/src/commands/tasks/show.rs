use std::collections::{BTreeMap, BTreeSet};

use banksman_core::agent::{AgentEnd, AgentVerdict};
use banksman_core::backlog::{Edge, Run, Section};
use banksman_core::landing::Entry;
use banksman_core::task::{RetryReason, State, TaskEnd, Work, WorkspaceSpec};
use banksman_core::{Stamp, Task, TaskId, Workspace};
use banksman_runtime::agents::{self, Past};
use banksman_runtime::{Project, Sessions};
use banksman_store::{EventRow, Key, Listed, Reader, TaskFilter};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::view;
use crate::commands::recording::record_ended;
use crate::commands::tail::LogEnd;
use crate::commands::{ExitResult, events, find};
use crate::context::Context;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM};
use crate::views::events::WithEvents;
use crate::views::landing::EntryView;
use crate::views::tasks::{Brief, Dependency, RunView, TaskPage, TaskView};
use crate::views::{Text, spend};
use crate::{format, table};

/// The number of lines of the log shown.
const LOG_LINES: usize = 10;

/// Show one task with its dependencies, its runs and the end of its log.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman tasks show 'Run the tests'\n  banksman tasks show t-7k2m9q1a --json")]
pub(super) struct Show {
    /// The task
    task: String,
    /// Only print the prompt of the next run
    #[arg(long)]
    prompt: bool,
}

/// The prompt of the next run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PromptView<'a> {
    task_id: &'a TaskId,
    prompt: &'a str,
}

/// The data of one task.
struct Page {
    listed: Listed,
    section: Option<Section>,
    dependencies: Vec<(TaskId, bool, Option<Listed>)>,
    dependents: Vec<Listed>,
    children: Vec<Listed>,
    /// Newest last.
    runs: Vec<Run>,
    log: Vec<String>,
    events: Vec<EventRow>,
    workspace: Option<Workspace>,
    landing: Option<Entry>,
    at: Stamp,
}

impl Show {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let id = find::task_id(&mut reader, &self.task)?;
        record_ended(context, &project, &mut reader)?;
        if self.prompt {
            return print_prompt(context, &project, &mut reader, &id);
        }
        let sessions = Sessions::new(&project);
        let page = Page::load(&mut reader, &id, |run, task| LogEnd::new(&project, Some(task), run).lines(LOG_LINES))?;
        context.printer.result(&WithEvents::new(page.view(&sessions), &page.events), page.human(&sessions))
    }
}

fn print_prompt(context: &Context, project: &Project, reader: &mut Reader, id: &TaskId) -> ExitResult {
    let rows = reader.view().load(&[Key::Task(id.clone())].into())?.tables.backlog;
    let task = rows.tasks.get(id).ok_or_else(|| find::no_task(id.as_str()))?;
    let prompt = agents::next_prompt(project, task, &Past::load(reader, id)?).map_err(Failure::usage)?;
    let prompt = prompt.ok_or_else(|| Failure::usage(format!("{id} has no agent, so it has no prompt")))?;
    context.printer.result(&PromptView { task_id: id, prompt: &prompt }, prompt.trim_end())
}

impl Page {
    fn load(reader: &mut Reader, id: &TaskId, log: impl Fn(&Run, &Task) -> Vec<String>) -> Result<Page, Failure> {
        let keys = [
            Key::Task(id.clone()),
            Key::Dependencies(id.clone()),
            Key::Dependents(id.clone()),
            Key::RunsOf(id.clone()),
            Key::LandingOf(id.clone()),
            Key::Sections,
        ];
        let rows = reader.view().load(&keys.into())?;
        let (at, mut backlog) = (rows.at(), rows.tables.backlog);
        let unmet = backlog.unmet(id);
        let task = backlog.tasks.remove(id).ok_or_else(|| find::no_task(id.as_str()))?;
        let edges = backlog.edges.remove(id).unwrap_or_default();
        let workspace = match task.spec.workspace.owner(id) {
            Some(owner) => reader.view().load(&[Key::Workspace(owner.clone())].into())?.backlog.workspaces.remove(owner),
            None => None,
        };
        let waiting = backlog.edges.into_iter().filter(|(_, edges)| edges.iter().any(|edge| edge.on == *id));
        let waiting: Vec<TaskId> = waiting.map(|(task, _)| task).collect();
        let mut others = others(reader, edges.iter().map(|edge| &edge.on).chain(&waiting))?;
        let dependents = waiting.iter().filter_map(|task| others.remove(task)).collect();
        let dependency = |edge: &Edge| (edge.on.clone(), edge.allow_failed, others.remove(&edge.on));
        let dependencies = edges.iter().map(dependency).collect();
        let children = find::all_tasks(reader, &TaskFilter { parent: Some(id.clone()), ..TaskFilter::default() })?;
        let mut runs: Vec<Run> = backlog.runs.into_values().collect();
        runs.sort_by_key(|run| run.epoch);
        Ok(Page {
            section: task.spec.section.as_ref().and_then(|id| backlog.sections.remove(id)),
            log: runs.last().map(|run| log(run, &task)).unwrap_or_default(),
            listed: Listed { task, unmet },
            dependencies,
            dependents,
            children,
            runs,
            events: reader.view().recent("task", id.as_str(), 5)?,
            workspace,
            landing: backlog.landings.into_values().next(),
            at,
        })
    }

    fn view<'a>(&'a self, sessions: &Sessions) -> TaskPage<'a> {
        let task = &self.listed.task;
        let run = |run: &'a Run| RunView::new(run, &sessions.log(&run.id));
        TaskPage {
            task: TaskView::in_section(&self.listed, self.section.as_ref()),
            command: command(task),
            workspace: match &task.spec.workspace {
                WorkspaceSpec::Checkout => "none",
                other => other.as_str(),
            },
            workspace_path: self.workspace.as_ref().map(|workspace| workspace.place.path()),
            branch: self.workspace.as_ref().and_then(|workspace| workspace.place.branch()),
            landing: self.landing.as_ref().map(EntryView::from),
            max_duration: task.spec.timeout.map(Text),
            silence_timeout: task.spec.silence.map(Text),
            retries: task.spec.retries,
            needs: task.spec.needs.iter().map(Into::into).collect(),
            epoch: task.live().map(|live| live.epoch),
            output: output(task),
            depends_on: self
                .dependencies
                .iter()
                .map(|(id, allow_failed, other)| Dependency {
                    id,
                    title: other.as_ref().map(|other| &other.task.spec.title),
                    status: other.as_ref().map(Listed::status),
                    allow_failed: *allow_failed,
                    output: other.as_ref().and_then(|other| output(&other.task)),
                })
                .collect(),
            dependents: self.dependents.iter().map(Brief::from).collect(),
            children: self.children.iter().map(Brief::from).collect(),
            runs: self.runs.iter().map(run).collect(),
            spend: spend::of_runs(self.runs.iter()),
            last_lines: &self.log,
        }
    }

    fn human(&self, sessions: &Sessions) -> String {
        let task = &self.listed.task;
        let since = format::span(self.at.lease - task.changed.lease);
        let remark = view::remark(&self.listed, self.at);
        let remark = if remark.is_empty() { remark } else { format!(": {remark}") };
        let mut text = format!("{BOLD}{}{BOLD:#} is {}{remark}", task.spec.title, view::coloured(self.listed.status()));
        for (name, value) in self.fields(&since, sessions) {
            text.push_str(&format!("\n  {DIM}{name:<11}{DIM:#} {value}"));
        }
        let row = |other: &Listed, note: &str| {
            let title = view::brief(other.task.spec.title.as_str(), 60);
            vec![other.task.id.to_string(), view::coloured(other.status()), title, note.to_owned()]
        };
        let dependencies = self.dependencies.iter().map(|(id, allow_failed, other)| match other {
            None => vec![id.to_string(), "gone".into(), String::new(), String::new()],
            Some(other) => row(other, if *allow_failed { "may fail" } else { "" }),
        });
        block(&mut text, "DEPENDS ON", dependencies.collect());
        block(&mut text, "DEPENDENTS", self.dependents.iter().map(|other| row(other, "")).collect());
        block(&mut text, "CHILDREN", self.children.iter().map(|other| row(other, "")).collect());
        if !self.runs.is_empty() {
            let rows = self.runs.iter().map(|run| self.run_row(run)).collect();
            text.push_str(&format!("\n\n{}", table::render(&["RUN", "#>", "STARTED>?", "TOOK>", "ENDED WITH~"], rows)));
        }
        for spent in spend::of_runs(self.runs.iter()).iter().filter(|_| self.runs.len() > 1) {
            text.push_str(&format!("\n{DIM}total{DIM:#} {}", spend::summary(spent)));
        }
        if !self.log.is_empty() {
            text.push_str(&format!("\n\n{DIM}LOG{DIM:#}"));
            self.log.iter().for_each(|line| text.push_str(&format!("\n  {line}")));
        }
        let titles = [(self.listed.task.id.clone(), self.listed.task.spec.title.clone())].into();
        text + &events::recent(&self.events, &titles)
    }

    fn fields(&self, since: &str, sessions: &Sessions) -> Vec<(&'static str, String)> {
        let task = &self.listed.task;
        let spec = &task.spec;
        let join = |words: Vec<String>| words.join(", ");
        let mut fields = vec![("id", task.id.to_string())];
        fields.extend(command(task).map(|command| ("command", view::brief(&command, 100))));
        fields.extend(self.section.as_ref().map(|section| ("section", section.name.to_string())));
        fields.extend((spec.priority != 0).then(|| ("priority", spec.priority.to_string())));
        fields.extend((!spec.labels.is_empty()).then(|| ("labels", join(spec.labels.iter().map(ToString::to_string).collect()))));
        fields.extend((!spec.needs.is_empty()).then(|| ("needs", join(spec.needs.iter().map(view::need_words).collect()))));
        fields.extend(spec.parent.as_ref().map(|parent| ("child of", parent.to_string())));
        if let Some(policy) = &spec.restart {
            let made = format!("{} of at most {} attempts made", self.attempts_made(), policy.max_attempts);
            fields.push(("loop", format!("until it is done; {made}, {} between attempts", policy.delay)));
        }
        fields.extend((spec.retries > 0).then(|| ("retries", format!("{} of {} used", task.failures, spec.retries))));
        fields.extend(spec.timeout.map(|max| ("duration", format!("at most {max}"))));
        fields.extend(spec.silence.map(|silence| ("silence", format!("at most {silence}"))));
        match (&self.landing, &spec.land) {
            (Some(entry), _) => fields.push(("landing", crate::commands::landing::sentence(entry))),
            (None, Some(land)) => fields.push(("lands on", land.target.to_string())),
            (None, None) => {}
        }
        match (&self.workspace, &spec.workspace) {
            (Some(workspace), _) => fields.push(("workspace", workspace.place.path().to_owned())),
            (None, WorkspaceSpec::Checkout) => {}
            (None, WorkspaceSpec::Dir) => fields.push(("workspace", sessions.workspace(&task.id).display().to_string())),
            (None, WorkspaceSpec::Cwd(directory)) => fields.push(("works in", directory.to_string())),
            (None, WorkspaceSpec::Shared { owner }) => fields.push(("workspace", format!("that of {owner}"))),
            (None, WorkspaceSpec::Worktree(_)) if self.runs.is_empty() => {
                fields.push(("workspace", "a worktree, not created yet".into()));
            }
            (None, WorkspaceSpec::Worktree(_)) => {
                fields.push(("workspace", format!("removed; its content is saved: banksman recover list {}", task.id)));
            }
        }
        fields.extend(
            self.workspace.as_ref().and_then(|workspace| workspace.place.branch()).map(|name| ("branch", name.to_owned())),
        );
        fields.push(("added", format::ago(task.created)));
        fields.push(("since", format!("{since} ago")));
        fields.extend(task.live().map(|live| ("run", format!("{}, epoch {}", live.run, live.epoch))));
        // A short error is in the first line already.
        let error = view::error(task).filter(|error| *error != view::remark(&self.listed, self.at));
        fields.extend(error.map(|error| ("error", error.replace('\n', "\n              "))));
        fields.extend(output(task).map(|output| ("output", view::brief(&output.to_string(), 200))));
        fields
    }

    /// The number of attempts of a loop, including the current or last one: `failures` counts only attempts that were
    /// followed by another.
    fn attempts_made(&self) -> u32 {
        let task = &self.listed.task;
        let has_last = match &task.state {
            State::Done(TaskEnd::Success { .. } | TaskEnd::Failed { .. }) | State::Awaiting { .. } => {
                self.runs.last().and_then(|run| run.ended.as_ref()).is_some_and(|ended| ended.setback.is_none())
            }
            _ => task.live().is_some(),
        };
        task.failures + u32::from(has_last)
    }

    fn run_row(&self, run: &Run) -> Vec<String> {
        let (took, how) = match &run.ended {
            None => (self.at.wall - run.started.wall, format!("{DIM}in progress{DIM:#}")),
            Some(ended) => {
                let note = ended.note.as_ref().map(|note| format!(" {DIM}({note}){DIM:#}")).unwrap_or_default();
                let setback = ended.setback.filter(|setback| {
                    !matches!(setback, RetryReason::Failed | RetryReason::Lost | RetryReason::Never | RetryReason::Shortage)
                });
                let why = setback.map(|setback| format!(", {}", setback.as_str().replace('_', " "))).unwrap_or_default();
                let how = match &ended.agent {
                    Some(agent) => agent_end(agent),
                    None => format!("{}{why}", ended.ending),
                };
                (ended.at - run.started.wall, format!("{how}{note}"))
            }
        };
        let number = (run.attempt + 1).to_string();
        vec![run.id.to_string(), number, format::ago(run.started.wall), format::span(took), how]
    }
}

/// The end of an agent's run in one line.
fn agent_end(end: &AgentEnd) -> String {
    let verdict = end.verdict.as_str().replace('_', " ");
    let cost = spend::price(&spend::of_ends([end].into_iter())).map(|price| format!(", {price}")).unwrap_or_default();
    let turns = if end.turns == 1 { "1 turn".into() } else { format!("{} turns", end.turns) };
    let text = match end.verdict {
        AgentVerdict::Ok => String::new(),
        _ => format!(": {}", format::one_line(&end.text)),
    };
    format!("{}: {verdict}{text} {DIM}({turns}, {} tokens{cost}){DIM:#}", end.agent, end.usage.input + end.usage.output)
}

/// Other tasks, each with its unmet dependencies.
fn others<'a>(reader: &mut Reader, ids: impl Iterator<Item = &'a TaskId>) -> Result<BTreeMap<TaskId, Listed>, Failure> {
    let ids: BTreeSet<&TaskId> = ids.collect();
    let keys = ids.iter().flat_map(|id| [Key::Task((*id).clone()), Key::Dependencies((*id).clone())]).collect();
    let backlog = reader.view().load(&keys)?.tables.backlog;
    let listed = |id: &TaskId| Some((id.clone(), Listed { task: backlog.tasks.get(id)?.clone(), unmet: backlog.unmet(id) }));
    Ok(ids.into_iter().filter_map(listed).collect())
}

/// Appends a table whose header is only a title.
fn block(text: &mut String, title: &str, rows: Vec<Vec<String>>) {
    if !rows.is_empty() {
        text.push_str(&format!("\n\n{}", table::render(&[title, "~", "", "~"], rows)));
    }
}

fn command(task: &Task) -> Option<String> {
    task.spec.work.as_ref().map(Work::describe)
}

fn output(task: &Task) -> Option<&Value> {
    let State::Done(TaskEnd::Success { output, .. }) = &task.state else { return None };
    output.as_ref()
}
