//! How imports stand in columns, and what a batch has changed of them.

use banksman_core::backlog::{Backlog, Edge};
use banksman_core::ids::{ImportId, TaskId};
use banksman_core::import::Import;
use banksman_core::task::Spec;
use banksman_core::task::dependencies;
use banksman_core::{Seq, Wall};

use crate::error::StoreError;
use crate::rows::{json, list, parsed};
use crate::sql::Statement;
use crate::value::{Query, Row, Value};

impl Row {
    pub(crate) fn import(&mut self) -> Result<Import, StoreError> {
        Ok(Import {
            id: parsed(&self.text()?, ImportId::new)?,
            process: self.json()?.ok_or_else(|| StoreError::corrupt("an import without a process"))?,
            position: Seq(self.int()?),
            started: Wall(self.int()?),
            total: self.int()?.try_into().map_err(StoreError::corrupt)?,
            added: self.int()?.try_into().map_err(StoreError::corrupt)?,
            sections: self.json()?.unwrap_or_default(),
        })
    }
}

/// The statements that turn the imports of `before` into those of `after`.
pub(crate) fn between<'a>(project: i64, before: &'a Backlog, after: &'a Backlog, queries: &mut Vec<Query<'a>>) {
    for (id, import) in &after.imports {
        match before.imports.get(id) {
            Some(was) if was == import => {}
            Some(_) => {
                let params: [Value<'a>; 3] = [project.into(), id.as_str().into(), i64::from(import.added).into()];
                queries.push(Query::new(Statement::UpdateImport, params));
            }
            None => queries.push(insert(project, import)),
        }
    }
    for id in before.imports.keys().filter(|id| !after.imports.contains_key(*id)) {
        queries.push(Query::new(Statement::DeleteImport, [project.into(), id.as_str().into()]));
    }
}

fn insert(project: i64, import: &Import) -> Query<'_> {
    let params: [Value<'_>; 8] = [
        project.into(),
        import.id.as_str().into(),
        json(&import.process),
        import.position.0.into(),
        import.started.0.into(),
        i64::from(import.total).into(),
        i64::from(import.added).into(),
        list(&import.sections),
    ];
    Query::new(Statement::InsertImport, params)
}

/// The lane of a new task. That of an imported one begins with the import, so that a look can pass over a whole lane of
/// tasks that are not there yet. It may stay so when they are.
pub(crate) fn lane(spec: &Spec, id: &TaskId, backlog: &Backlog) -> Option<String> {
    let lane = crate::backlog::lane(spec)?;
    Some(match backlog.imported.get(id) {
        Some(import) => format!("{import}{lane}"),
        None => lane,
    })
}

/// How many dependencies hold a new task of an import back. Those of the same import all do; the others were loaded. Asking the
/// database instead would look up every one of them, wherever they are, which is most of the work of a large import.
pub(crate) fn unmet(id: &TaskId, backlog: &Backlog) -> i64 {
    if !backlog.imported.contains_key(id) {
        return 0;
    }
    let is_met =
        |edge: &&Edge| backlog.tasks.get(&edge.on).is_some_and(|on| dependencies::is_met(on.status(), edge.allow_failed));
    let edges = backlog.edges.get(id).map_or(&[][..], Vec::as_slice);
    edges.iter().filter(|edge| !is_met(edge)).count() as i64
}
