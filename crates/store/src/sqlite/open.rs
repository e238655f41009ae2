//! Creating and opening a SQLite store, with all checks before the first use.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::Access;
use rustix::io::Errno;

use super::{Sqlite, WriterLock, writer_lock};
use crate::backend::Backend as _;
use crate::dialect;
use crate::error::StoreError;
use crate::identity::StoreId;
use crate::machine::Machine;
use crate::reader::Reader;
use crate::schema::{MIGRATIONS, VERSION};
use crate::store::Store;
use crate::tables::projects::Statement;

/// The first schema version with a column for the new place of a project.
const MOVED_SINCE: i64 = 6;

/// SQLite opens no file whose path is longer than 512 bytes; the names of its other files are longer.
const LONGEST_PATH: usize = 480;

/// "BKSM": identifies our files.
const APPLICATION_ID: i64 = 0x424b_534d;

/// The number of the one project in a SQLite file.
const PROJECT: i64 = 1;

/// SQLite's own busy timeout, for the rare moments in which a reader recovers the log.
const BUSY: Duration = Duration::from_secs(5);

/// Creates a store for the project `id`. The file appears complete or not at all.
pub fn create(path: &Path, id: &str, store_id: &StoreId, machine: &dyn Machine) -> Result<(), StoreError> {
    let parent = parent(path);
    refuse_network_file_system(&parent)?;
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    let made = fill(&draft, id, store_id, machine).map_err(|error| explain(path, error)).and_then(|()| {
        match fs::hard_link(&draft, path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(StoreError::Exists { place: path.display().to_string() });
            }
            Err(error) => return Err(StoreError::io(error)),
        }
        fs::File::open(&parent).and_then(|dir| dir.sync_all()).map_err(StoreError::io)
    });
    remove(&draft).and(made)
}

/// Removes a store with all its files. It must not be in use.
pub fn remove(path: &Path) -> Result<(), StoreError> {
    for leftover in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(leftover);
        match fs::remove_file(PathBuf::from(name)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::io(error)),
        }
    }
    Ok(())
}

/// Opens a store for writing. `writer_lock` is the path of the lock file beside it.
pub fn open(path: &Path, writer_lock: &Path, machine: Box<dyn Machine>) -> Result<Store, StoreError> {
    let backend = open_backend(path, writer_lock)?;
    refuse_moved(&backend.connection)?;
    Ok(Store::new(Box::new(backend), PROJECT, machine))
}

/// The same for a store that may be retired.
pub fn open_retired(path: &Path, writer_lock: &Path, machine: Box<dyn Machine>) -> Result<Store, StoreError> {
    Ok(Store::new(Box::new(open_backend(path, writer_lock)?), PROJECT, machine))
}

fn open_backend(path: &Path, writer_lock: &Path) -> Result<Sqlite, StoreError> {
    let connection = connect(path)?;
    let mut backend = Sqlite::new(connection, Some(WriterLock::open(writer_lock)?), Some(path.into()))?;
    migrate(&mut backend)?;
    backend.store_id = refuse_gone_back(&backend.connection, writer_lock)?;
    Ok(backend)
}

/// Refuses a store that has lost committed events. The record is read first, because the store only goes forward.
/// Returns the id of the store; without an id it is not known whether the record is about this store.
fn refuse_gone_back(connection: &Connection, writer_lock: &Path) -> Result<Option<String>, StoreError> {
    let id: Option<String> = connection.query_row("SELECT store_id FROM projects", [], |row| row.get(0))?;
    let Some(store) = &id else { return Ok(None) };
    let Some(recorded) = writer_lock::recorded(writer_lock, store) else { return Ok(id) };
    let found: i64 = connection.query_row("SELECT seq FROM projects", [], |row| row.get(0))?;
    if found < recorded { Err(StoreError::WentBack { recorded, found }) } else { Ok(id) }
}

/// Opens a store for reading only. Needs no writer lock.
pub fn open_reader(path: &Path, machine: Box<dyn Machine>) -> Result<Reader, StoreError> {
    let connection = connect(path)?;
    connection.pragma_update(None, "query_only", true)?;
    let version = version(&connection)?;
    if version != VERSION {
        return Err(StoreError::Newer { found: version, known: VERSION });
    }
    refuse_moved(&connection)?;
    refuse_gone_back(&connection, &writer_lock::writer_lock_path(path))?;
    Ok(Reader { backend: Box::new(Sqlite::new(connection, None, Some(path.into()))?), project: PROJECT, machine })
}

/// The new place of the project, if the store is retired.
pub fn moved_to(path: &Path) -> Result<Option<String>, StoreError> {
    let connection = connect(path)?;
    // Stores of earlier versions were never retired.
    if version(&connection)? < MOVED_SINCE { Ok(None) } else { place_of(&connection) }
}

fn refuse_moved(connection: &Connection) -> Result<(), StoreError> {
    place_of(connection)?.map_or(Ok(()), |to| Err(StoreError::Moved { to }))
}

fn place_of(connection: &Connection) -> Result<Option<String>, StoreError> {
    Ok(connection.query_row("SELECT moved_to FROM projects", [], |row| row.get(0))?)
}

/// A store in memory with one connection, for unit tests and the simulator.
pub fn memory(machine: Box<dyn Machine>) -> Result<Store, StoreError> {
    let mut connection = Connection::open_in_memory()?;
    connection.pragma_update(None, "foreign_keys", true)?;
    initialize(&mut connection, "memory", None, &*machine)?;
    Ok(Store::new(Box::new(Sqlite::new(connection, None, None)?), PROJECT, machine))
}

/// Opens the file and verifies that it is a store.
pub(super) fn connect(path: &Path) -> Result<Connection, StoreError> {
    if !path.exists() {
        return Err(StoreError::Missing { place: path.display().to_string() });
    }
    refuse_network_file_system(&parent(path))?;
    checked(path).map_err(|error| explain(path, error))
}

/// SQLite does not report why it cannot open or write a file. The common reasons are visible from outside.
pub(super) fn explain(path: &Path, error: StoreError) -> StoreError {
    const LITTLE: u64 = 256 * 1_024;
    let StoreError::Failed { source } = error else { return error };
    let bytes = std::path::absolute(path).map_or(0, |path| path.as_os_str().len());
    if bytes > LONGEST_PATH {
        return StoreError::PathTooLong { bytes };
    }
    let dir = parent(path);
    if rustix::fs::statvfs(&dir).is_ok_and(|stat| stat.f_bavail * stat.f_frsize < LITTLE) {
        return StoreError::Full { source };
    }
    match rustix::fs::access(&dir, Access::WRITE_OK) {
        Err(error @ (Errno::ROFS | Errno::ACCESS)) => StoreError::io(error.into()),
        _ => StoreError::Failed { source },
    }
}

fn checked(path: &Path) -> Result<Connection, StoreError> {
    let plain = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // The user controls the path of the folder, which may contain links; the file itself must not be a link.
    let real = parent(path).canonicalize().map_err(StoreError::io)?.join(path.file_name().unwrap_or_default());
    let connection = Connection::open_with_flags(&real, OpenFlags::SQLITE_OPEN_READ_WRITE | plain)?;
    connection.busy_timeout(BUSY)?;
    let foreign = |what: &str| StoreError::Foreign { path: path.into(), what: what.into() };
    let id = connection.pragma_query_value(None, "application_id", |row| row.get::<_, i64>(0)).map_err(|error| {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => foreign("it is not a SQLite database"),
            _ => error.into(),
        }
    })?;
    if id != APPLICATION_ID {
        let empty = fs::metadata(path).is_ok_and(|file| file.len() == 0);
        return Err(foreign(if empty { "it is an empty file" } else { "it is the SQLite database of another program" }));
    }
    // Closing the last connection must not wait for a checkpoint, unless the log is long: see `Sqlite::drop`.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // The file may have come with a repository: its schema is data, and must not change how SQLite works.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

fn fill(path: &Path, id: &str, store_id: &StoreId, machine: &dyn Machine) -> Result<(), StoreError> {
    // SQLite gives its other files the mode of this one.
    fs::File::options().write(true).create_new(true).mode(0o600).open(path).map_err(StoreError::io)?;
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    initialize(&mut connection, id, Some(store_id), machine)?;
    connection.close().map_err(|(_, error)| error.into())
}

/// Creates the tables and the project.
fn initialize(
    connection: &mut Connection,
    id: &str,
    store_id: Option<&StoreId>,
    machine: &dyn Machine,
) -> Result<(), StoreError> {
    let transaction = connection.transaction()?;
    for migration in MIGRATIONS {
        transaction.execute_batch(&dialect::sqlite_schema(migration))?;
    }
    let lease = machine.read().monotonic_ms;
    let insert = dialect::sqlite(Statement::Insert.erased().text());
    transaction.execute(&insert, (PROJECT, id, lease, machine.boot()))?;
    let identify = dialect::sqlite(Statement::SetStoreId.erased().text());
    transaction.execute(&identify, (PROJECT, store_id.map(StoreId::as_str)))?;
    Ok(transaction.commit()?)
}

/// Removes all rows of the project except its own, which is reset.
pub(super) fn clear(connection: &mut Connection, project: i64, lease: i64, boot: &str) -> Result<(), StoreError> {
    let transaction = connection.transaction()?;
    transaction.pragma_update(None, "defer_foreign_keys", true)?;
    let (id, store_id): (String, Option<String>) =
        transaction
            .query_row("SELECT id, store_id FROM projects WHERE project = ?1", [project], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let tables = "SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = 'project'";
    let tables: Vec<String> = transaction.prepare(tables)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for table in tables {
        transaction.execute(&format!("DELETE FROM {table}"), [])?;
    }
    let insert = dialect::sqlite(Statement::Insert.erased().text());
    transaction.execute(&insert, (project, id, lease, boot))?;
    let identify = dialect::sqlite(Statement::SetStoreId.erased().text());
    transaction.execute(&identify, (project, store_id))?;
    Ok(transaction.commit()?)
}

/// Migrates an older store, one transaction per step.
fn migrate(backend: &mut Sqlite) -> Result<(), StoreError> {
    loop {
        let found = version(&backend.connection)?;
        let index = usize::try_from(found).map_err(StoreError::corrupt)?;
        match found.cmp(&VERSION) {
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Greater => return Err(StoreError::Newer { found, known: VERSION }),
            std::cmp::Ordering::Less => {
                backend.begin(&[])?;
                // Another process may have been faster while this one waited for the writer lock.
                let result = if version(&backend.connection)? == found {
                    backend.connection.execute_batch(&dialect::sqlite_schema(MIGRATIONS[index])).map_err(StoreError::from)
                } else {
                    Ok(())
                };
                match result {
                    Ok(()) => backend.commit(&[])?,
                    Err(error) => {
                        backend.roll_back();
                        return Err(error);
                    }
                }
            }
        }
    }
}

fn version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.query_row("SELECT version FROM store", [], |row| row.get(0))?)
}

pub(super) fn parent(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or_else(|| ".".into(), Into::into)
}

fn refuse_network_file_system(dir: &Path) -> Result<(), StoreError> {
    let stat = rustix::fs::statfs(dir).map_err(|error| StoreError::io(error.into()))?;
    // The type is signed on some machines; only its low 32 bits carry the number.
    match network_file_system((stat.f_type as u64) & 0xffff_ffff) {
        Some(kind) => Err(StoreError::NetworkFileSystem { path: dir.into(), kind }),
        None => Ok(()),
    }
}

/// File systems that several kernels may have open at the same time, by their magic number: locks of other machines are
/// invisible or not kept, and the boot id does not identify the only machine. A FUSE file system may be anything, so
/// none is trusted (virtiofs and folders shared with a virtual machine are FUSE).
fn network_file_system(magic: u64) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517b => Some("SMB"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB2"),
        0x0102_1997 => Some("9P"),
        0x6573_5546 => Some("FUSE"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x564c => Some("NCP"),
        0x00c3_6400 => Some("Ceph"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        0x4750_4653 => Some("GPFS"),
        0x1983_0326 => Some("BeeGFS"),
        0x2003_0528 => Some("OrangeFS"),
        0xaad7_aaea => Some("PanFS"),
        0x786f_4256 => Some("a folder shared by VirtualBox"),
        0xbacb_acbc => Some("a folder shared by VMware"),
        0x7c7c_6673 => Some("a folder shared by Parallels"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        assert_eq!(network_file_system(0x6969), Some("NFS"));
        assert_eq!(network_file_system(0xff53_4d42), Some("CIFS"));
        assert_eq!(network_file_system(0x6573_5546), Some("FUSE"), "virtiofs has the same number");
        let (ext4, tmpfs, overlay, btrfs, xfs, zfs) = (0xef53, 0x0102_1994, 0x794c_7630, 0x9123_683e, 0x5846_5342, 0x2fc1_2fc1);
        assert_eq!([ext4, tmpfs, overlay, btrfs, xfs, zfs].map(network_file_system), [None; 6]);
        assert!(refuse_network_file_system(Path::new("/tmp")).is_ok());
    }
}
