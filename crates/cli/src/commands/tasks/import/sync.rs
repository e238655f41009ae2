//! Syncs a file that was imported before: new tasks are added and changed ones are edited, in one transaction.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use banksman_adapters::ids;
use banksman_core::backlog::Edge;
use banksman_core::task::{SourceEntry, Spec};
use banksman_core::{ImportId, Seq, Task, TaskId};
use banksman_engine::{Edit, ImportOutcome, ImportRequest, SYNC_ROWS, can_sync};
use banksman_runtime::Client;
use banksman_store::{Key, Reader, TaskFilter};
use serde::Serialize;

use super::plan::Plan;
use super::problem::{Problem, Problems};
use super::source::{self, Parsed};
use crate::commands::tasks::view;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, YELLOW};

/// The number of tasks of each kind that the output names.
const NAMED: usize = 20;

/// The name that identifies the file in later syncs: the given one, or its path relative to the project.
pub(super) fn source_name(file: &Path, given: Option<&str>, root: &Path) -> String {
    if let Some(given) = given {
        return given.into();
    }
    if source::is_stdin(file) {
        return "stdin".into();
    }
    let (file, root) = (file.canonicalize().unwrap_or_else(|_| file.into()), root.canonicalize().unwrap_or_else(|_| root.into()));
    file.strip_prefix(&root).unwrap_or(&file).display().to_string()
}

/// The changes that make the tasks match the file.
pub(super) struct Sync {
    add: Vec<(TaskId, Spec, Vec<Edge>)>,
    edit: Vec<(TaskId, Edit)>,
    pub(super) summary: SyncSummary,
}

/// The JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SyncSummary {
    source: String,
    dry_run: bool,
    added: Vec<Entry>,
    edited: Vec<Entry>,
    /// Tasks that differ from the file and are not changed, because they are in progress or over.
    left: Vec<Entry>,
    /// Tasks that were imported from the file and are no longer in it.
    missing: Vec<Entry>,
    unchanged: usize,
    sections_created: Vec<String>,
    skipped: usize,
}

/// A task of the file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    key: String,
    id: TaskId,
    title: String,
    /// The current status, if the task existed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<banksman_core::Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<&'static str>,
}

impl Entry {
    fn of(key: &str, task: &Task, fields: Vec<&'static str>) -> Entry {
        Entry { key: key.into(), id: task.id.clone(), title: task.spec.title.to_string(), status: Some(task.status()), fields }
    }
}

/// Reports entries that a later import could not recognise.
fn check_keys(plan: &Plan, parsed: &Parsed, problems: &mut Problems) {
    for ((spec, _), record) in plan.tasks.iter().zip(&parsed.records).filter(|((spec, _), _)| spec.source.is_none()) {
        let what = format!("duplicate title {:?} in the file", spec.title.as_str());
        problems.push(Problem::new(record.line, what).field("key").hint("with --sync every task needs a key or a unique title"));
    }
}

/// Compares the plan with the tasks that were imported from the same source before.
pub(super) fn compare(
    plan: &Plan,
    parsed: &Parsed,
    import: &ImportId,
    source: &str,
    reader: &mut Reader,
    problems: &mut Problems,
) -> Result<Sync, Failure> {
    check_keys(plan, parsed, problems);
    let mut known = known(source, reader)?;
    let mut found: Vec<Option<Task>> = Vec::with_capacity(plan.tasks.len());
    for (key, record) in plan.keys.iter().zip(&parsed.records) {
        found.push(known.remove(key.as_str()).and_then(|tasks| imported_task(key, record.line, tasks, problems)));
    }
    let ids: Vec<TaskId> = found
        .iter()
        .map(|task| match task {
            Some(task) => task.id.clone(),
            None => TaskId::new(&ids::short("t")).expect("a short id is valid"),
        })
        .collect();
    let real: BTreeMap<TaskId, &TaskId> = (0..).map(|number| import.task(number)).zip(&ids).collect();
    let edges_of = |edges: &[Edge]| {
        let real = |edge: &Edge| Edge { on: real.get(&edge.on).map_or(&edge.on, |id| *id).clone(), ..edge.clone() };
        let mut edges: Vec<Edge> = edges.iter().map(real).collect();
        edges.sort();
        edges
    };
    let keys = found.iter().flatten().map(|task| Key::Dependencies(task.id.clone())).collect();
    let mut edges_before = reader.view().load(&keys)?.tables.backlog.edges;
    let mut summary = SyncSummary {
        source: source.into(),
        dry_run: false,
        added: Vec::new(),
        edited: Vec::new(),
        left: Vec::new(),
        missing: Vec::new(),
        unchanged: 0,
        sections_created: plan.sections.iter().map(|section| section.name.to_string()).collect(),
        skipped: parsed.done.len(),
    };
    let (mut add, mut edit) = (Vec::new(), Vec::new());
    for (((task, id), (spec, edges)), key) in found.iter().zip(&ids).zip(&plan.tasks).zip(&plan.keys) {
        let edges = edges_of(edges);
        let Some(task) = task else {
            summary.added.push(Entry {
                key: key.clone(),
                id: id.clone(),
                title: spec.title.to_string(),
                status: None,
                fields: Vec::new(),
            });
            add.push((id.clone(), spec.clone(), edges));
            continue;
        };
        let mut before = edges_before.remove(id).unwrap_or_default();
        before.sort();
        let (change, fields) = difference(task, spec, (edges != before).then_some(edges));
        if fields.is_empty() {
            summary.unchanged += 1;
        } else if can_sync(task) {
            summary.edited.push(Entry::of(key, task, fields));
            edit.push((id.clone(), change));
        } else {
            summary.left.push(Entry::of(key, task, fields));
        }
    }
    let done: HashSet<&str> = parsed.done.iter().map(String::as_str).collect();
    let missing = known.iter().filter(|(key, _)| !done.contains(key.as_str()));
    let missing = missing.flat_map(|(key, tasks)| tasks.iter().map(move |task| (key, task)));
    summary.missing =
        missing.filter(|(_, task)| !task.status().is_over()).map(|(key, task)| Entry::of(key, task, Vec::new())).collect();
    Ok(Sync { add: in_order(add), edit, summary })
}

/// The tasks that were imported from this source, by key.
fn known(source: &str, reader: &mut Reader) -> Result<BTreeMap<String, Vec<Task>>, Failure> {
    let mut known: BTreeMap<String, Vec<Task>> = BTreeMap::new();
    let filter = TaskFilter { hide_phases: true, ..TaskFilter::default() };
    let mut next = Some(Seq(0));
    while let Some(after) = next {
        let (page, more) = reader.view().tasks(&filter, after)?;
        for task in page.into_iter().map(|listed| listed.task) {
            if let Some(entry) = task.spec.source.as_ref().filter(|entry| *entry.file == *source) {
                known.entry(entry.key.to_string()).or_default().push(task);
            }
        }
        next = more;
    }
    Ok(known)
}

/// Whether the first entry of a file was imported before and is not over. Only tasks with the same title are read:
/// reading all of them would take longer than the import.
pub(super) fn has_imported(spec: &Spec, key: &str, source: &str, reader: &mut Reader) -> Result<bool, Failure> {
    let same = reader.view().tasks_titled(spec.title.as_str())?;
    let keys = same.into_iter().map(Key::Task).collect();
    let tasks = reader.view().load(&keys)?.tables.backlog.tasks;
    let is_same_entry = |entry: &SourceEntry| *entry.file == *source && *entry.key == *key;
    Ok(tasks.values().any(|task| !task.status().is_over() && task.spec.source.as_deref().is_some_and(is_same_entry)))
}

/// The task of an entry. A file that was imported twice without --sync has several: the one that is not over counts, or
/// else the last.
fn imported_task(key: &str, line: usize, tasks: Vec<Task>, problems: &mut Problems) -> Option<Task> {
    let (over, mut open): (Vec<Task>, Vec<Task>) = tasks.into_iter().partition(|task| task.status().is_over());
    if let [first, second, ..] = &open[..] {
        let what = format!("{key:?} was imported more than once: {} and {}", first.id, second.id);
        problems
            .push(Problem::new(line, what).field("key").hint(format!("keep one of them: banksman tasks cancel {}", second.id)));
    }
    open.pop().or_else(|| over.into_iter().next_back())
}

/// The edit that makes a task match the file, and the names of the fields that differ.
fn difference(task: &Task, wanted: &Spec, edges: Option<Vec<Edge>>) -> (Edit, Vec<&'static str>) {
    let before = &task.spec;
    let mut wanted = wanted.clone();
    if let Some(policy) = &mut wanted.restart {
        // A change of the limit counts the attempts that were made before.
        policy.max_attempts = policy.max_attempts.max(std::num::NonZeroU32::new(task.failures).unwrap_or(policy.max_attempts));
    }
    let mut fields = Vec::new();
    let mut note = |name: &'static str, is_different: bool| {
        if is_different {
            fields.push(name);
        }
        is_different
    };
    // The file sets the kind of the workspace only.
    let moves = note("workspace", wanted.workspace.as_str() != before.workspace.as_str());
    let needs = wanted.clone().with_workspace(&task.id).needs;
    let edit = Edit {
        title: note("title", wanted.title != before.title).then(|| wanted.title.clone()),
        section: note("section", wanted.section != before.section).then(|| wanted.section.clone()),
        priority: note("priority", wanted.priority != before.priority).then_some(wanted.priority),
        labels: note("labels", wanted.labels != before.labels).then(|| wanted.labels.clone()),
        depends_on: note("dependsOn", edges.is_some()).then_some(edges).flatten(),
        work: note("run", wanted.work != before.work).then(|| wanted.work.clone()),
        needs: (note("needs", !moves && needs != before.needs) || moves).then(|| wanted.needs.clone()),
        retries: note("retries", wanted.retries != before.retries).then_some(wanted.retries),
        restart: note("loop", wanted.restart != before.restart).then(|| wanted.restart.clone()),
        timeout: note("maxDuration", wanted.timeout != before.timeout).then_some(wanted.timeout),
        silence: note("silenceTimeout", wanted.silence != before.silence).then_some(wanted.silence),
        workspace: moves.then(|| wanted.workspace.clone()),
    };
    (edit, fields)
}

/// Orders new tasks so that each comes after its dependencies. The plan has no cycles.
fn in_order(add: Vec<(TaskId, Spec, Vec<Edge>)>) -> Vec<(TaskId, Spec, Vec<Edge>)> {
    let index: BTreeMap<TaskId, usize> = add.iter().enumerate().map(|(index, (id, ..))| (id.clone(), index)).collect();
    let mut waits: Vec<usize> = vec![0; add.len()];
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); add.len()];
    for (number, (_, _, edges)) in add.iter().enumerate() {
        for on in edges.iter().filter_map(|edge| index.get(&edge.on)) {
            waits[number] += 1;
            dependents[*on].push(number);
        }
    }
    // The smallest index first keeps the order of the file where possible.
    let mut ready: BTreeSet<usize> = (0..add.len()).filter(|number| waits[*number] == 0).collect();
    let mut add: Vec<Option<(TaskId, Spec, Vec<Edge>)>> = add.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(add.len());
    while let Some(number) = ready.pop_first() {
        ordered.extend(add[number].take());
        for dependent in &dependents[number] {
            waits[*dependent] -= 1;
            if waits[*dependent] == 0 {
                ready.insert(*dependent);
            }
        }
    }
    ordered
}

impl Sync {
    /// Whether none of the tasks exists yet: then it is an ordinary import, of any size.
    pub(super) fn is_first(&self) -> bool {
        let SyncSummary { edited, left, unchanged, .. } = &self.summary;
        edited.is_empty() && left.is_empty() && *unchanged == 0
    }

    /// Applies all changes in one transaction.
    pub(super) fn carry_out(self, client: &Client, plan: Plan) -> Result<SyncSummary, Failure> {
        if self.add.is_empty() && self.edit.is_empty() {
            return Ok(self.summary);
        }
        let new_rows = self.add.iter().map(|(_, _, edges)| 1 + edges.len());
        let edited_rows = self.edit.iter().map(|(_, edit)| 1 + edit.depends_on.as_ref().map_or(0, Vec::len));
        let rows: usize = new_rows.chain(edited_rows).sum();
        if rows > SYNC_ROWS {
            let (tasks, rows, limit) =
                (format::tasks(self.add.len() + self.edit.len()), format::thousands(rows), format::thousands(SYNC_ROWS));
            let message =
                format!("--sync would write {rows} rows for {tasks} and their dependencies; the limit of one sync is {limit}");
            return Err(Failure::usage(message).hint("nothing was changed; divide the changes of the file between several syncs"));
        }
        // A section that none of the changed tasks uses is not created.
        let used = |id: &banksman_core::SectionId| {
            self.add.iter().any(|(_, spec, _)| spec.section.as_ref() == Some(id))
                || self.edit.iter().any(|(_, edit)| edit.section.as_ref().is_some_and(|section| section.as_ref() == Some(id)))
        };
        let sections: Vec<_> = plan.sections.into_iter().filter(|section| used(&section.id)).collect();
        let sections_created = sections.iter().map(|section| section.name.to_string()).collect();
        match client.request(ImportRequest::Sync { sections, add: self.add, edit: self.edit })? {
            ImportOutcome::Synced => Ok(SyncSummary { sections_created, ..self.summary }),
            outcome => Err(super::refused(&outcome)),
        }
    }
}

impl SyncSummary {
    pub(super) fn of_dry_run(self) -> SyncSummary {
        SyncSummary { dry_run: true, ..self }
    }

    /// Replaces the ids by those that the import gives to its tasks, in their order.
    pub(super) fn with_ids(mut self, id: &ImportId) -> SyncSummary {
        for (number, entry) in (0..).zip(&mut self.added) {
            entry.id = id.task(number);
        }
        self
    }

    pub(super) fn describe(&self) -> String {
        let begin = if self.dry_run { "would sync" } else { "synced" };
        let mut counts = vec![
            format!("{} added", format::thousands(self.added.len())),
            format!("{} edited", format::thousands(self.edited.len())),
            format!("{} unchanged", format::thousands(self.unchanged)),
        ];
        let others =
            [(self.left.len(), "not applied"), (self.missing.len(), "no longer in the file"), (self.skipped, "skipped as done")];
        counts.extend(
            others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{} {what}", format::thousands(*count))),
        );
        let mut lines = vec![format!("{begin} {BOLD}{}{BOLD:#}: {}", self.source, counts.join(", "))];
        let name = |entry: &Entry| format!("{} {DIM}{}{DIM:#}", format::one_line(&entry.title), entry.id);
        let fields = |entry: &Entry| entry.fields.join(", ");
        let status = |entry: &Entry| entry.status.map_or_else(String::new, |status| view::coloured(status).to_string());
        list(&mut lines, &self.added, |entry| format!("{GREEN}added{GREEN:#} {}", name(entry)));
        list(&mut lines, &self.edited, |entry| format!("{YELLOW}edited{YELLOW:#} {}: {}", name(entry), fields(entry)));
        list(&mut lines, &self.left, |entry| {
            format!("not applied to {}, which is {}: {}", name(entry), status(entry), fields(entry))
        });
        list(&mut lines, &self.missing, |entry| format!("no longer in the file: {}, which is {}", name(entry), status(entry)));
        lines.join("\n")
    }
}

fn list(lines: &mut Vec<String>, entries: &[Entry], words: impl Fn(&Entry) -> String) {
    lines.extend(entries.iter().take(NAMED).map(|entry| format!("  {}", words(entry))));
    if entries.len() > NAMED {
        lines.push(format!("  … and {} more", format::thousands(entries.len() - NAMED)));
    }
}

/// The stored entry of a task. The caller makes sure that its key is unique in the file.
pub(super) fn entry(source: &str, key: &str) -> Box<SourceEntry> {
    Box::new(SourceEntry { file: source.into(), key: key.into() })
}
