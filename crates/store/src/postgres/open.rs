//! Creating and opening projects in a PostgreSQL database.

use tokio_postgres::Client;

use super::connect::{self, Server};
use super::session::{LOCK_SPACE, Session};
use super::{Postgres, classify};
use crate::dialect;
use crate::error::StoreError;
use crate::identity::StoreId;
use crate::machine::Machine;
use crate::reader::Reader;
use crate::schema::{MIGRATIONS, VERSION};
use crate::sqlite::Occupant;
use crate::store::Store;

/// The advisory lock for creating and migrating tables. No project has the number zero.
const MIGRATION: i64 = LOCK_SPACE;

/// Creates the schema if it is missing, and the project `id` in it.
pub fn create(server: &Server, id: &str, store_id: &StoreId) -> Result<(), StoreError> {
    with_session(server, async |session| {
        let client = session.client();
        require_version(client).await?;
        client.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({MIGRATION})")).await.map_err(classify)?;
        if version(client).await?.is_none() {
            client.batch_execute("CREATE SCHEMA IF NOT EXISTS banksman").await.map_err(classify)?;
        }
        migrate(client).await?;
        let known = client.query_opt("SELECT project FROM projects WHERE id = $1", &[&id]).await.map_err(classify)?;
        if known.is_some() {
            return Err(StoreError::Exists { place: server.place().to_owned() });
        }
        // Lease time is the server's clock; it needs no base and no boot.
        let insert = "INSERT INTO projects (project, id, seq, ticket, lease, lease_base, boot, store_id) \
                      SELECT coalesce(max(project), 0) + 1, $1, 0, 0, 0, 0, '', $2 FROM projects";
        client.execute(insert, &[&id, &store_id.as_str()]).await.map_err(classify)?;
        client.batch_execute("COMMIT").await.map_err(classify)
    })
}

/// Whether the database has the project `id`.
pub fn exists(server: &Server, id: &str) -> Result<bool, StoreError> {
    with_session(server, async |session| {
        let client = session.client();
        match version(client).await? {
            None => return Ok(false),
            Some(found) if found > VERSION => return Err(StoreError::Newer { found, known: VERSION }),
            Some(_) => {}
        }
        let row = client.query_opt("SELECT 1 FROM projects WHERE id = $1", &[&id]).await.map_err(classify)?;
        Ok(row.is_some())
    })
}

/// Removes a project that is not in use: a new one without events, or one that has moved to another store.
pub fn remove(server: &Server, id: &str) -> Result<(), StoreError> {
    with_session(server, async |session| {
        let client = session.client();
        let unused = "SELECT project FROM projects WHERE id = $1 AND (seq = 0 OR moved_to IS NOT NULL) FOR UPDATE";
        client.batch_execute("BEGIN").await.map_err(classify)?;
        if let Some(row) = client.query_opt(unused, &[&id]).await.map_err(classify)? {
            delete_rows(client, row.get(0)).await?;
        }
        client.batch_execute("COMMIT").await.map_err(classify)
    })
}

/// Deletes all rows of a project. Tables that others refer to come last.
async fn delete_rows(client: &Client, project: i64) -> Result<(), StoreError> {
    let tables = "SELECT table_name::text FROM information_schema.columns WHERE table_schema = 'banksman' AND column_name = 'project' \
                  ORDER BY table_name IN ('projects', 'semaphores'), table_name = 'projects'";
    for table in client.query(tables, &[]).await.map_err(classify)? {
        let delete = format!("DELETE FROM {} WHERE project = $1", table.get::<_, String>(0));
        client.execute(&delete, &[&project]).await.map_err(classify)?;
    }
    Ok(())
}

/// Removes all rows of a project except its own, which is reset.
pub(super) async fn clear(client: &Client, project: i64, lease: i64, boot: &str) -> Result<(), StoreError> {
    client.batch_execute("BEGIN").await.map_err(classify)?;
    let own = client.query_one("SELECT id, store_id FROM projects WHERE project = $1", &[&project]).await.map_err(classify)?;
    delete_rows(client, project).await?;
    let insert =
        "INSERT INTO projects (project, id, seq, ticket, lease, lease_base, boot, store_id) VALUES ($1, $2, 0, 0, $3, 0, $4, $5)";
    let (id, store_id): (String, Option<String>) = (own.get(0), own.get(1));
    client.execute(insert, &[&project, &id, &lease, &boot, &store_id]).await.map_err(classify)?;
    client.batch_execute("COMMIT").await.map_err(classify)
}

/// Opens the project `id` for writing.
pub fn open(server: &Server, id: &str, machine: Box<dyn Machine>) -> Result<Store, StoreError> {
    let found = in_use(find(server, id, true)?)?;
    let project = found.project;
    Ok(Store::new(Box::new(found), project, machine))
}

/// The same for a store that may be retired.
pub fn open_retired(server: &Server, id: &str, machine: Box<dyn Machine>) -> Result<Store, StoreError> {
    let (found, _) = find(server, id, true)?;
    let project = found.project;
    Ok(Store::new(Box::new(found), project, machine))
}

/// Opens the project `id` for reading.
pub fn open_reader(server: &Server, id: &str, machine: Box<dyn Machine>) -> Result<Reader, StoreError> {
    let found = in_use(find(server, id, false)?)?;
    Ok(Reader { project: found.project, backend: Box::new(found), machine })
}

/// The session that holds the writer lock of this project, according to the server.
pub fn occupant(server: &Server, id: &str) -> Option<Occupant> {
    let question = "SELECT a.pid, coalesce(a.application_name, ''), coalesce(a.state, '') FROM pg_locks l \
                    JOIN pg_stat_activity a ON a.pid = l.pid JOIN projects p ON p.id = $1 \
                    WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database() AND l.classid::bigint = $2 AND l.objid::bigint = p.project";
    let row = with_session(server, async |session| {
        session.client().query_opt(question, &[&id, &(LOCK_SPACE >> 32)]).await.map_err(classify)
    });
    let row = row.ok().flatten()?;
    let state = match row.get::<_, String>(2).as_str() {
        "active" => "running",
        "idle in transaction" => "idle in the middle of it",
        _ => "waiting",
    };
    Some(Occupant { pid: row.get(0), command: row.get(1), state })
}

/// Refuses a retired project.
fn in_use((found, moved_to): (Postgres, Option<String>)) -> Result<Postgres, StoreError> {
    moved_to.map_or(Ok(found), |to| Err(StoreError::Moved { to }))
}

/// Connects to a project. Returns its new place too, if it has moved. Migrates older tables if that is allowed.
fn find(server: &Server, id: &str, may_migrate: bool) -> Result<(Postgres, Option<String>), StoreError> {
    let runtime = connect::runtime()?;
    let (project, moved_to, session) = runtime.block_on(async {
        let session = Session::connect(server).await?;
        let client = session.client();
        require_version(client).await?;
        let missing = || StoreError::Missing { place: format!("{} (project {id})", server.place()) };
        match version(client).await? {
            None => return Err(missing()),
            Some(VERSION) => {}
            Some(found) if found > VERSION || !may_migrate => return Err(StoreError::Newer { found, known: VERSION }),
            Some(_) => {
                client.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({MIGRATION})")).await.map_err(classify)?;
                migrate(client).await?;
                client.batch_execute("COMMIT").await.map_err(classify)?;
            }
        }
        let row = client.query_opt("SELECT project, moved_to FROM projects WHERE id = $1", &[&id]).await.map_err(classify)?;
        let row = row.ok_or_else(missing)?;
        Ok((row.get(0), row.get(1), session))
    })?;
    Ok((Postgres::new(runtime, server.clone(), project, session), moved_to))
}

/// The schema number; `None` if our tables do not exist.
async fn version(client: &Client) -> Result<Option<i64>, StoreError> {
    let there = client.query_one("SELECT to_regclass('banksman.store') IS NOT NULL", &[]).await.map_err(classify)?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_one("SELECT max(version) FROM store", &[]).await.map_err(classify)?;
    Ok(row.get(0))
}

/// Applies the missing migrations inside the caller's transaction.
async fn migrate(client: &Client) -> Result<(), StoreError> {
    let found = version(client).await?.unwrap_or(0);
    if found > VERSION {
        return Err(StoreError::Newer { found, known: VERSION });
    }
    let done = usize::try_from(found).map_err(StoreError::corrupt)?;
    for migration in &MIGRATIONS[done..] {
        client.batch_execute(&dialect::postgres(migration)).await.map_err(classify)?;
    }
    Ok(())
}

async fn require_version(client: &Client) -> Result<(), StoreError> {
    let row = client.query_one("SELECT current_setting('server_version_num')::int, current_setting('server_version')", &[]).await;
    let row = row.map_err(classify)?;
    if row.get::<_, i32>(0) >= 130_000 { Ok(()) } else { Err(StoreError::TooOld { found: row.get(1) }) }
}

fn with_session<T>(server: &Server, work: impl AsyncFnOnce(&Session) -> Result<T, StoreError>) -> Result<T, StoreError> {
    connect::runtime()?.block_on(async {
        let session = Session::connect(server).await?;
        work(&session).await
    })
}
