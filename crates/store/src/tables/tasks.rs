//! Tasks. Title, section, parent, priority and others are in the spec, and in columns of their own for the indexes.
//!
//! A `lane` contains tasks that are equal for a runner; NULL is a task that no runner takes. `parked` names the lock or
//! semaphore that a ready task waits for; until then the task is out of its lane, like a task that a person has paused.
//! `unmet` is the number of unmet dependencies; the database maintains it, as it follows from `edges`.

use std::collections::BTreeMap;

use banksman_core::Name;
use banksman_core::backlog::{Backlog, Edge};
use banksman_core::event::{Kind, Resource};
use banksman_core::task::dependencies;
use banksman_core::ids::{ImportId, SectionId, TaskId};
use banksman_core::task::{Spec, State, Task, Work};

use crate::columns::{Codec, Columns, Int, Json, Moment, NeededJson, Text, Type, to_json};
use crate::error::StoreError;
use crate::table::{self, table};
use crate::tables::{edges, fan_outs, runs};
use crate::value::{Query, Row, Value};

/// The word for a state, for indexes and counts, and the state itself unless the word is enough.
pub(crate) struct OfState;

impl Columns for OfState {
    fn list(_: &str, out: &mut Vec<(String, Type)>) {
        out.extend(["state", "detail"].map(|name| (name.to_owned(), Type::Text)));
    }
}

impl Codec<State> for OfState {
    fn bind<'a>(state: &'a State, params: &mut Vec<Value<'a>>) {
        params.push(word(state).into());
        params.push(if *state == State::Pending { Value::Null } else { to_json(state).into() });
    }

    fn read(row: &mut Row) -> Result<State, StoreError> {
        let word = row.text()?;
        match Json::read(row)? {
            Some(state) => Ok(state),
            None if word == "pending" => Ok(State::Pending),
            None => Err(StoreError::corrupt(format_args!("a task is {word:?}"))),
        }
    }
}

pub(crate) fn word(state: &State) -> &'static str {
    match state {
        State::Running(_) => "running",
        State::Stopping { .. } => "stopping",
        State::Backoff { .. } => "resting",
        State::Held => "held",
        State::Awaiting { .. } => "awaiting",
        State::AwaitingDecision { .. } => "parked",
        State::Manual { .. } => "by_hand",
        State::InPhases { is_blocked: false } => "phases",
        State::InPhases { is_blocked: true } => "phases_blocked",
        State::Pending => "pending",
        State::Stuck { .. } => "stuck",
        State::Landing { .. } => "landing",
        State::Review => "review",
        State::Done(done) => done.status().as_str(),
    }
}

/// The import that adds a task, if any, and the number of its unmet dependencies then.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    import: Option<&'a ImportId>,
    unmet: i64,
}

table! {
    Tasks "tasks" of Origin<'a> => Task, |origin, task|
    by ["id"] = [Text &task.id]; inserts
    fixed { id: Text, position: Int, created("created_wall"): Int, spec: NeededJson } + {
        "title": Text = task.spec.title.as_str(),
        "section": Text = task.spec.section.as_ref().map(SectionId::as_str),
        "parent": Text = task.spec.parent.as_ref().map(TaskId::as_str),
        "priority": Int = i64::from(task.spec.priority),
        "lane": Text = lane(&task.spec, origin.import),
        "loops": Int = task.spec.restart.as_ref().map(|_| 1),
        "part": Int = task.spec.is_part().then_some(1),
        "import": Text = origin.import.map(ImportId::as_str),
        "unmet": Int = origin.unmet,
    }
    changing { state: OfState, changed: Moment, attempts: Int, failures: Int, recoveries: Int } + { "due": Int = due(&task.state), "parked": Text = off_lane(&task.spec), "parked_weight": Int = None::<i64> }
    read Task = Task { id, spec, position, created, state, changed, attempts, failures, recoveries };
    statements {
        ById => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.id = $2 AND {visible t}",
        IdById => "SELECT t.id FROM tasks t WHERE t.project = $1 AND t.id = $2 AND {visible t}",
        /// The plus keeps SQLite from scanning all positions instead of the few rows of a title.
        IdByTitle => "SELECT t.id FROM tasks t WHERE t.project = $1 AND t.title = $2 AND {visible t} ORDER BY +t.position LIMIT 20",
        IdByPrefix => "SELECT t.id FROM tasks t WHERE t.project = $1 AND t.id >= $2 AND t.id < $3 AND {visible t} ORDER BY t.id LIMIT 20",
        /// Titles without regard to case, and parts of titles: only of top-level tasks. Both scan all tasks, and run
        /// when nothing else was found.
        IdByFold => "SELECT t.id FROM tasks t WHERE t.project = $1 AND lower(t.title) = lower($2) AND {visible t} \
            ORDER BY t.position LIMIT 20",
        IdByPart => "SELECT t.id FROM tasks t WHERE t.project = $1 AND lower(t.title) LIKE lower($2) ESCAPE '\\' AND {top_level t} \
            AND {visible t} ORDER BY t.position LIMIT 20",
        Page => "SELECT {tasks t}, t.unmet FROM tasks t WHERE t.project = $1 AND t.position > $2 \
            AND (CAST($4 AS TEXT) IS NULL OR $4 LIKE '%|' || t.state || '|%') AND (CAST($5 AS TEXT) IS NULL OR t.section = $5) \
            AND (CAST($6 AS TEXT) IS NULL OR t.parent = $6) AND (CAST($7 AS TEXT) IS NULL OR t.spec LIKE $7) AND {visible t} \
            ORDER BY t.position LIMIT $3",
        All => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND {visible t} ORDER BY t.id",
        Family => "{family} SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.id IN (SELECT id FROM family) ORDER BY t.id",
        Dependencies => "SELECT {tasks t} FROM edges e CROSS JOIN tasks t \
            WHERE e.project = $1 AND e.task = $2 AND t.project = $1 AND t.id = e.on_task",
        Chain => "{chain} SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.id IN (SELECT task FROM chain LIMIT 10000) ORDER BY t.id",
        /// Includes tasks that are not visible yet: a section that an import needs is not empty.
        InSection => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.section = $2 ORDER BY t.position",
        /// The first few tasks of every lane, with their locks.
        Ready => "{lanes} SELECT {tasks t}, {locks k} FROM {first_of_lanes} AND {in_sections t}",
        /// The first few roots of every lane by arrival, where roots are limited.
        ReadyRoots => "{lanes} SELECT {tasks t}, {locks k} FROM {first_roots} AND {in_sections t}",
        /// The first tasks that are parked on the lock or semaphore $2.
        ParkedOn => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.parked = $2 AND t.unmet = 0 ORDER BY t.priority DESC, t.position LIMIT $3",
        /// The parked tasks that want the least of a semaphore: if none of them fits, no other task does.
        LightestParkedOn => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.parked = $2 AND t.parked_weight IS NOT NULL AND t.unmet = 0 \
            ORDER BY t.parked_weight, t.priority DESC, t.position LIMIT $3",
        /// The first task that is parked on each of the first $2 resources after $3. Paused tasks wait for no resource.
        Parked => "{parked} SELECT {tasks t}, p.name FROM parked p CROSS JOIN tasks t WHERE t.project = $1 AND p.name <> 'person' \
            AND t.id = (SELECT i.id FROM tasks i WHERE i.project = $1 AND i.parked = p.name ORDER BY i.priority DESC, i.position LIMIT 1) \
            ORDER BY p.name",
        /// Skips a task that another call of the batch has made wait for a person or another task.
        SetParked => "UPDATE tasks SET parked = $3, parked_weight = $4 WHERE project = $1 AND id = $2 AND unmet = 0 \
            AND (parked IS NULL OR parked <> 'person')",
        ReadyCounts => "{lanes} SELECT {example}, (SELECT count(*) FROM tasks i WHERE {ready i} AND i.lane = l.lane) \
            FROM lanes l WHERE {visible_lane}",
        /// Tasks of a higher priority, or of the same priority and earlier. Counted in the index alone; one task of
        /// each lane is looked up as its example.
        ReadyBefore => "{lanes} SELECT {example}, (SELECT count(*) FROM tasks i WHERE {ready i} AND i.lane = l.lane \
            AND (i.priority > $2 OR (i.priority = $2 AND i.position < $3))) FROM lanes l WHERE {visible_lane}",
        /// The same for earlier roots.
        RootsBefore => "{lanes} SELECT (SELECT i.id FROM tasks i WHERE {ready i} AND i.parent IS NULL AND i.lane = l.lane \
            ORDER BY i.position LIMIT 1), (SELECT count(*) FROM tasks i WHERE {ready i} AND i.parent IS NULL AND i.lane = l.lane \
            AND i.position < $2) FROM lanes l WHERE {visible_lane}",
        SectionCounts => "SELECT section, state, CAST(CASE WHEN unmet > 0 THEN 1 ELSE 0 END AS BIGINT), count(*) \
            FROM tasks t WHERE project = $1 AND section IS NOT NULL AND {visible t} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        /// Paused tasks that have not ended.
        Stopped => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.parked = 'person' \
            AND t.state NOT IN ('completed', 'failed', 'cancelled', 'skipped') AND {top_level t} AND {visible t} \
            ORDER BY t.priority DESC, t.position LIMIT $2",
        LastFailed => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.state IN ('failed', 'cancelled', 'skipped') \
            AND t.state = 'failed' AND {top_level t} ORDER BY t.changed_lease DESC, t.position DESC LIMIT $2",
        /// Pending tasks that wait for a task that will not complete by itself. The bound on changed_lease selects the
        /// small index `tasks_ended`, and CROSS JOIN fixes the order for SQLite.
        HeldByEnded => "SELECT count(DISTINCT t.id), min(t.id) FROM tasks d CROSS JOIN edges e CROSS JOIN tasks t WHERE d.project = $1 \
            AND d.state IN ('failed', 'cancelled', 'skipped') AND d.changed_lease > -1 \
            AND e.project = $1 AND e.on_task = d.id AND e.allow_failed = 0 \
            AND t.project = $1 AND t.id = e.task AND t.state = 'pending' AND {visible t}",
        /// A few of these tasks, each with a task that it waits for.
        HeldFirst => "SELECT t.id, d.id FROM tasks d CROSS JOIN edges e CROSS JOIN tasks t WHERE d.project = $1 \
            AND d.state IN ('failed', 'cancelled', 'skipped') AND d.changed_lease > -1 \
            AND e.project = $1 AND e.on_task = d.id AND e.allow_failed = 0 \
            AND t.project = $1 AND t.id = e.task AND t.state = 'pending' AND {visible t} LIMIT $2",
        /// The first tasks that are parked on a lock or a semaphore, each with its resource.
        ParkedFirst => "SELECT t.id, t.parked FROM tasks t WHERE t.project = $1 AND t.parked IS NOT NULL AND t.parked <> 'person' \
            AND t.state = 'pending' AND t.unmet = 0 AND {visible t} ORDER BY t.parked, t.priority DESC, t.position LIMIT $2",
        /// The tasks that are worked on manually in the sections of a task and its descendants.
        Manual => "{family} SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.due IS NOT NULL AND t.state = 'by_hand' \
            AND t.section IN (SELECT s.section FROM tasks s WHERE s.project = $1 AND s.id IN (SELECT id FROM family))",
        /// The tasks of the claims of the holder $2, or of claims that include $3.
        Claimed => "SELECT {tasks t} FROM claims c CROSS JOIN tasks t WHERE {claims_of} AND t.project = $1 AND t.id = c.task",
        /// The tasks that time alone may change, most urgent first.
        Due => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.due IS NOT NULL ORDER BY t.due, t.id LIMIT $2",
        DueRoots => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.due IS NOT NULL AND t.parent IS NULL \
            UNION ALL SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.state = 'phases' AND t.parent IS NULL",
        /// The same and the roots of live runs, where roots are limited. CROSS JOIN fixes the order for SQLite.
        LimitedRoots => "SELECT {tasks t} FROM projects p CROSS JOIN tasks t WHERE p.project = $1 AND p.max_roots > 0 AND t.project = $1 \
            AND t.due IS NOT NULL AND t.parent IS NULL \
            UNION ALL SELECT {tasks t} FROM projects p CROSS JOIN tasks t WHERE p.project = $1 AND p.max_roots > 0 AND t.project = $1 \
            AND t.state = 'phases' AND t.parent IS NULL \
            UNION ALL SELECT {tasks t} FROM projects p CROSS JOIN runs r CROSS JOIN tasks t WHERE p.project = $1 AND p.max_roots > 0 \
            AND r.project = $1 AND r.live = 1 AND t.project = $1 AND t.id = r.task AND t.parent IS NULL",
        /// Loops that wait for their next attempt, by position.
        Loops => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 AND t.loops = 1 AND t.state IN ('pending', 'resting') \
            AND t.position > $3 AND {visible t} ORDER BY t.position LIMIT $2",
        /// The tasks of live runs.
        Live => "SELECT {tasks t} FROM runs r CROSS JOIN tasks t WHERE r.project = $1 AND r.live = 1 AND t.project = $1 AND t.id = r.task",
        LiveExclusive => "SELECT {tasks t} FROM {live_exclusive}",
        /// The tasks of the live runs of a runner.
        OfRunner => "SELECT {tasks t} FROM runs r CROSS JOIN tasks t WHERE r.project = $1 AND r.live = 1 AND r.owner = $2 \
            AND t.project = $1 AND t.id = r.task",
        /// The first tasks of an unfinished import. They come after the import was opened, so no separate index is
        /// needed.
        Imported => "SELECT {tasks t} FROM tasks t WHERE t.project = $1 \
            AND t.position > (SELECT m.position FROM imports m WHERE m.project = $1 AND m.id = $2) \
            AND t.import = $2 ORDER BY t.position LIMIT $3",
        UpdateSpec => "UPDATE tasks SET title = $3, section = $4, parent = $5, priority = $6, lane = $7, spec = $8, parked = $9, loops = $10 \
            WHERE project = $1 AND id = $2",
        /// Unparks a task whose dependencies change: the next claim that reaches it decides again. A paused task stays
        /// paused.
        CountUnmet => "UPDATE tasks SET unmet = {unmet $2}, parked = CASE WHEN parked = 'person' THEN parked END WHERE project = $1 AND id = $2",
        CountUnmetOfDependents => "UPDATE tasks SET unmet = {unmet tasks.id}, parked = CASE WHEN parked = 'person' THEN parked END \
            WHERE project = $1 AND id IN (SELECT task FROM edges WHERE project = $1 AND on_task = $2)",
        /// The same for the next page of a fan-out.
        CountUnmetOfPage => "UPDATE tasks SET unmet = {unmet tasks.id}, parked = CASE WHEN parked = 'person' THEN parked END WHERE project = $1 AND id IN (SELECT e.task FROM edges e \
            WHERE e.project = $1 AND e.on_task = $2 AND e.task > (SELECT f.after_task FROM fan_outs f WHERE f.project = $1 AND f.task = $2) \
            ORDER BY e.task LIMIT 500)",
    }
}

/// The lane of a task. A pipeline needs no slot, so it must not wait behind tasks that do; roots are ordered by arrival
/// where they are limited; and the tasks of an unfinished import are skipped together. They may keep their lane when
/// the import is finished.
pub(crate) fn lane(spec: &Spec, import: Option<&ImportId>) -> Option<String> {
    let kind = match spec.work.as_ref()? {
        Work::Pipeline(_) => "/pipeline",
        Work::Run(_) | Work::Exec { .. } | Work::Agent(_) | Work::Merge { .. } => "",
    };
    let import = import.map_or("", ImportId::as_str);
    let section = spec.section.as_ref().map_or("", SectionId::as_str);
    let generation = if spec.parent.is_none() { "root" } else { "child" };
    Some(format!("{import}/{section}/{generation}{kind}"))
}

/// The value of `parked` for a task that a person has paused, until it is resumed: no resource has this name.
const PAUSED: &str = "person";

/// The value of `parked` after a change of the task: the resource that it waits for is not known.
fn off_lane(spec: &Spec) -> Option<&'static str> {
    spec.paused.as_ref().map(|_| PAUSED)
}

/// The value of `parked` for a task that waits for this resource.
pub(crate) fn parked_on(resource: &Resource) -> String {
    format!("{}:{}", resource.kind.as_str(), resource.name)
}

/// The resource that a value of `parked` names.
pub(crate) fn parked_resource(text: &str) -> Result<Resource, StoreError> {
    let (kind, name) = text.split_once(':').unwrap_or_default();
    let kind = Kind::parse(kind).ok_or_else(|| StoreError::corrupt(format_args!("a task is parked on {text:?}")))?;
    Ok(Resource { kind, name: Name::new(name).map_err(StoreError::corrupt)? })
}

/// When time alone may change the state of a task. A task whose children are being ended is always due.
fn due(state: &State) -> Option<i64> {
    match state {
        State::Backoff { until } => Some(until.0),
        State::Awaiting { until, .. } => Some(until.map_or(0, |until| until.0)),
        State::Manual { until, .. } => Some(until.map_or(i64::MAX, |until| until.0)),
        State::Pending
        | State::Held
        | State::Running(_)
        | State::Stuck { .. }
        | State::Stopping { .. }
        | State::AwaitingDecision { .. }
        | State::InPhases { .. }
        | State::Landing { .. }
        | State::Review
        | State::Done(_) => None,
    }
}

impl<'a> Origin<'a> {
    const NONE: Origin<'static> = Origin { import: None, unmet: 0 };

    /// The database counts the unmet dependencies of a task that is not imported. For an import, all dependencies
    /// within the same import are unmet, and the others were loaded: a lookup of each of them in the database would be
    /// most of the work of a large import.
    fn of(id: &TaskId, backlog: &'a Backlog) -> Origin<'a> {
        let Some(import) = backlog.imported.get(id) else { return Origin::NONE };
        let is_met = |edge: &&Edge| backlog.tasks.get(&edge.on).is_some_and(|on| dependencies::is_met(on.status(), edge.allow_failed));
        let edges = backlog.edges.get(id).map_or(&[][..], Vec::as_slice);
        Origin { import: Some(import), unmet: edges.iter().filter(|edge| !is_met(edge)).count() as i64 }
    }
}

/// The statements that turn the tasks of `before` and their dependencies into those of `after`.
pub(crate) fn changes<'a>(
    project: i64,
    before: &'a Backlog,
    after: &'a Backlog,
    dependents: &BTreeMap<TaskId, u32>,
    queries: &mut Vec<Query<'a>>,
) {
    let id = |id: &'a TaskId| -> [Value<'a>; 2] { [project.into(), id.as_str().into()] };
    let mut counts = Vec::new();
    for (key, task) in before.tasks.iter().filter(|(key, _)| !after.tasks.contains_key(*key)) {
        queries.push(table::delete::<Tasks>(project, Origin::of(key, before), task));
        queries.push(Query::new(edges::Statement::DeleteOfTask, id(key)));
        queries.push(Query::new(runs::Statement::DeleteOfTask, id(key)));
        counts.push(Query::new(Statement::CountUnmetOfDependents, id(key)));
    }
    for (key, task) in &after.tasks {
        let Some(was) = before.tasks.get(key) else {
            queries.push(table::insert::<Tasks>(project, Origin::of(key, after), task));
            continue;
        };
        if was.spec != task.spec {
            queries.push(update_spec(project, task));
        }
        if changing(was) != changing(task) {
            queries.push(table::update::<Tasks>(project, Origin::NONE, task));
        }
        // Only an ended task meets dependencies, or blocks them for ever. A task that is open again must block at once.
        if was.status() != task.status() && (was.status().is_over() || task.status().is_over()) {
            match dependents.get(key) {
                // Dependents that this batch adds are counted separately.
                Some(0) => {}
                Some(many) if !was.status().is_over() && *many as usize > fan_outs::FAN_OUT => {
                    counts.extend(fan_outs::begin(project, key));
                }
                Some(_) | None => counts.push(Query::new(Statement::CountUnmetOfDependents, id(key))),
            }
        }
    }
    for (task, edges) in after.edges.iter().filter(|(task, _)| after.tasks.contains_key(*task)) {
        let was = before.edges.get(task).map_or(&[][..], Vec::as_slice);
        if edges::changes(project, task, was, edges, queries) && !after.imported.contains_key(task) {
            counts.push(Query::new(Statement::CountUnmet, id(task)));
        }
    }
    // The unmet dependencies are counted after all other writes.
    queries.extend(counts);
}

/// The columns that change during the life of a task without an edit.
fn changing(task: &Task) -> (&State, banksman_core::Stamp, [u32; 3]) {
    (&task.state, task.changed, [task.attempts, task.failures, task.recoveries])
}

fn update_spec(project: i64, task: &Task) -> Query<'_> {
    let spec = &task.spec;
    let params: [Value<'_>; 10] = [
        project.into(),
        task.id.as_str().into(),
        spec.title.as_str().into(),
        spec.section.as_ref().map(SectionId::as_str).into(),
        spec.parent.as_ref().map(TaskId::as_str).into(),
        i64::from(spec.priority).into(),
        lane(spec, None).into(),
        to_json(spec).into(),
        off_lane(spec).into(),
        spec.restart.as_ref().map(|_| 1_i64).into(),
    ];
    Query::new(Statement::UpdateSpec, params)
}
