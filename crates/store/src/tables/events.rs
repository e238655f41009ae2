//! The event log.

use banksman_core::bus::derived::KINDS;
use banksman_core::event::{Actor, Event, Fact, Source};
use banksman_core::route::{Definition, Heard};
use banksman_core::task::{Spec, Work};
use banksman_core::{RequestId, Seq, Wall};

use crate::columns::Type::{self, Int as Number, Text as Words};
use crate::columns::{Codec, Int, Json, Text};
use crate::error::StoreError;
use crate::reader::EventRow;
use crate::sql;
use crate::table::statements;
use crate::tables::Granted;
use crate::tables::items::Depth;
use crate::value::{Query, Row, Value};

/// The columns, in the order of [`insert`].
pub(crate) const COLUMNS: [(&str, Type); 9] = [
    ("seq", Number),
    ("wall", Number),
    ("kind", Words),
    ("component", Words),
    ("id", Words),
    ("request", Words),
    ("data", Words),
    ("actor", Words),
    ("depth", Number),
];

statements! {
    /// PostgreSQL writes all events of a batch at once: see `postgres/session.rs`.
    Insert => {
        let names = COLUMNS.map(|(name, _)| name).join(", ");
        format!("INSERT INTO events (project, {names}) VALUES ({})", sql::params(1..=COLUMNS.len() + 1).join(", "))
    },
    After => "SELECT seq, wall, kind, component, id, data, actor, depth FROM events WHERE project = $1 AND seq > $2 \
              AND wall >= $4 ORDER BY seq LIMIT $3".to_owned(),
    Last => "SELECT seq, wall, kind, component, id, data, actor, depth FROM events WHERE project = $1 AND seq > $2 \
             AND component = $3 AND id = $4 ORDER BY seq DESC LIMIT $5".to_owned(),
    /// Includes the spec of the pipeline that an event is about: it names the pipeline and its runbook.
    Heard => "SELECT e.seq, e.wall, e.kind, e.component, e.id, e.data, CASE WHEN e.component = 'pipeline' THEN \
              (SELECT t.spec FROM tasks t WHERE t.project = $1 AND t.id = e.id) END, e.depth FROM events e \
              WHERE e.project = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3".to_owned(),
    CountAfter => "SELECT count(*) FROM events WHERE project = $1 AND seq > $2".to_owned(),
    /// The last event before the last $2.
    BeforeLast => "SELECT seq FROM events WHERE project = $1 ORDER BY seq DESC LIMIT 1 OFFSET $2".to_owned(),
    OfRequest => "SELECT seq, kind, component, id, data FROM events WHERE project = $1 AND request = $2 ORDER BY seq DESC LIMIT 1".to_owned(),
    /// The events that messages are derived from.
    OfTasks => format!(
        "SELECT seq, wall, kind, component, id, data, actor, depth FROM events WHERE project = $1 AND seq > $2 \
         AND kind IN ('{}') ORDER BY seq LIMIT $3",
        KINDS.join("', '")
    ),
    DeleteThrough => "DELETE FROM events WHERE project = $1 AND seq <= $2".to_owned(),
}

pub(crate) fn insert<'a>(project: i64, seq: Seq, wall: Wall, event: &'a Event, actor: Value<'a>, depth: u32) -> Query<'a> {
    let (component, id) = event.source();
    let params: [Value<'a>; COLUMNS.len() + 1] = [
        project.into(),
        seq.0.into(),
        wall.0.into(),
        event.kind().into(),
        component.into(),
        id.into(),
        event.request().into(),
        event.data().into(),
        actor,
        (depth > 0).then_some(i64::from(depth)).into(),
    ];
    Query::new(Statement::Insert, params)
}

pub(crate) fn read(mut row: Row) -> Result<EventRow, StoreError> {
    let (id, wall, kind) = (Int::read(&mut row)?, Int::read(&mut row)?, row.text()?);
    let source = Source { component: Text::read(&mut row)?, id: Text::read(&mut row)? };
    let data = serde_json::from_str(&row.text()?).map_err(StoreError::corrupt)?;
    let by = row.maybe_text()?.map(|text| Actor::from_json(&text).map_err(StoreError::corrupt)).transpose()?;
    Ok(EventRow { id, kind, wall, source, data, by, depth: Depth::read(&mut row)? })
}

pub(crate) fn heard(row: &mut Row) -> Result<Heard, StoreError> {
    let (seq, wall, event) = (Int::read(row)?, Int::read(row)?, event(row)?);
    let pipeline = <Json as Codec<Option<Spec>>>::read(row)?.and_then(|spec| match spec.work {
        Some(Work::Pipeline(plan)) => Some(Definition { runbook: plan.runbook.clone(), name: plan.name.as_str().into() }),
        _ => None,
    });
    Ok(Heard { seq, wall, event, depth: Depth::read(row)?, pipeline })
}

/// The grant of a request.
pub(crate) fn granted(row: &mut Row) -> Result<(RequestId, Granted), StoreError> {
    let epoch = Int::read(row)?;
    match event(row)? {
        Event::Resource { resource, fact: Fact::Acquired(claim) } if claim.request.is_some() => {
            let request = claim.request.expect("checked by the guard");
            Ok((request, Granted { resource, holder: claim.holder, epoch }))
        }
        _ => Err(StoreError::corrupt(format_args!("event {epoch} carries a request but grants nothing"))),
    }
}

fn event(row: &mut Row) -> Result<Event, StoreError> {
    let (kind, component, id, data) = (row.text()?, row.text()?, row.maybe_text()?, row.text()?);
    Event::parse(&kind, &component, id.as_deref(), &data).map_err(StoreError::corrupt)
}
