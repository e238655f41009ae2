//! The effect of the compacted events: one row for each entity that they were about.

use banksman_core::replay::stored::Entity;

use crate::columns::{Codec, Text};
use crate::error::StoreError;
use crate::table::statements;
use crate::value::{Query, Row};

statements! {
    One => "SELECT component, id, data FROM baseline WHERE project = $1 AND component = $2 AND id = $3".to_owned(),
    All => "SELECT component, id, data FROM baseline WHERE project = $1 ORDER BY component, id".to_owned(),
    Upsert => "INSERT INTO baseline (project, component, id, data) VALUES ($1, $2, $3, $4) \
               ON CONFLICT (project, component, id) DO UPDATE SET data = $4".to_owned(),
    Delete => "DELETE FROM baseline WHERE project = $1 AND component = $2 AND id = $3".to_owned(),
}

/// The statement that stores the state of an entity, or deletes it.
pub(crate) fn keep<'a>(project: i64, entity: &'a Entity, data: Option<&'a str>) -> Query<'a> {
    let (component, id) = (entity.component.as_ref().into(), entity.id.as_ref().into());
    match data {
        Some(data) => Query::new(Statement::Upsert, [project.into(), component, id, data.into()]),
        None => Query::new(Statement::Delete, [project.into(), component, id]),
    }
}

pub(crate) fn read(mut row: Row) -> Result<(Entity, String), StoreError> {
    let entity = Entity { component: Text::read(&mut row)?, id: Text::read(&mut row)? };
    Ok((entity, row.text()?))
}
