//! Backups of a store that is in use.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::open::{connect, explain, parent, remove};
use crate::error::StoreError;

/// The number of virtual machine steps between two progress reports.
const STEPS: i32 = 100_000;

/// A finished backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    pub bytes: u64,
    /// The number of the last event in the file.
    pub last_event: i64,
}

/// Writes the current content of the store to a new file that only its owner can read. Writers are not blocked. The
/// file appears complete or not at all; an existing file is not replaced. `progress` receives the size written so far.
pub fn backup(store: &Path, file: &Path, progress: Box<dyn FnMut(u64) + Send>) -> Result<Backup, StoreError> {
    let exists = || StoreError::Exists { place: file.display().to_string() };
    if file.symlink_metadata().is_ok() {
        return Err(exists());
    }
    let mut source = connect(store)?;
    let mut draft = file.as_os_str().to_owned();
    draft.push(format!(".draft-{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let made = fill(&mut source, &draft, progress).map_err(|error| explain(file, error)).and_then(|last_event| {
        match fs::hard_link(&draft, file) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(exists()),
            Err(error) => return Err(StoreError::io(error)),
        }
        fs::File::open(parent(file)).and_then(|dir| dir.sync_all()).map_err(StoreError::io)?;
        let bytes = fs::metadata(file).map_err(StoreError::io)?.len();
        Ok(Backup { bytes, last_event })
    });
    remove(&draft).and(made)
}

/// Copies the rows and verifies the copy. Returns the number of the last event.
fn fill(source: &mut Connection, draft: &Path, mut progress: Box<dyn FnMut(u64) + Send>) -> Result<i64, StoreError> {
    // SQLite writes into an empty file, and keeps its mode.
    fs::File::options().write(true).create_new(true).mode(0o600).open(draft).map_err(StoreError::io)?;
    let name = draft.to_str().ok_or_else(|| StoreError::Failed {
        source: std::sync::Arc::new(std::io::Error::other("the path of a backup must be UTF-8")),
    })?;
    let watched = draft.to_owned();
    source.progress_handler(
        STEPS,
        Some(move || {
            progress(fs::metadata(&watched).map_or(0, |file| file.len()));
            false
        }),
    )?;
    let copied = source.execute("VACUUM INTO ?1", [name]);
    source.progress_handler(0, None::<fn() -> bool>)?;
    copied?;
    let copy = Connection::open(draft)?;
    // WAL mode lets readers and a writer use a store at the same time.
    copy.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    let state: String = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if state != "ok" {
        return Err(StoreError::corrupt(state));
    }
    let last_event = copy.query_row("SELECT seq FROM projects", [], |row| row.get(0))?;
    copy.close().map_err(|(_, error)| StoreError::from(error))?;
    fs::File::open(draft).and_then(|file| file.sync_all()).map_err(StoreError::io)?;
    Ok(last_event)
}
