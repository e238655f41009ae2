//! Moves a project to another store, and back. The old store is retired: it names the new one and has no other use.

use std::path::Path;

use banksman_adapters::host::Host;
use banksman_store::{Copied, RelocateError, Route, Store, StoreError, postgres, relocate, sqlite};

use crate::config;
use crate::machine::RealMachine;
use crate::project::{CONFIG_FILE, Location, Project, ProjectError, RUN_DIR, STORE_FILE, StoreUrl};

impl StoreUrl {
    /// Its URL, without a password.
    pub fn url(&self) -> String {
        match self {
            StoreUrl::Sqlite(path) => sqlite_url(path),
            StoreUrl::Postgres(server) => server.url(),
        }
    }
}

impl Project {
    /// The URL of its store, without a password.
    pub fn store_url(&self) -> String {
        match self.location() {
            Location::Sqlite(path) => sqlite_url(path),
            Location::Postgres { server, .. } => server.url(),
        }
    }

    /// Writes everything that is in its store at this moment to a new file, while the store is in use. `progress` is
    /// called with the number of bytes written so far.
    pub fn backup(&self, file: &Path, progress: Box<dyn FnMut(u64) + Send>) -> Result<sqlite::Backup, ProjectError> {
        match self.location() {
            Location::Sqlite(path) => {
                self.reader()?;
                Ok(sqlite::backup(path, file, progress)?)
            }
            Location::Postgres { server, .. } => Err(ProjectError::NoBackup { url: server.url() }),
        }
    }

    /// Completes a copy whose process was killed after it had retired this store and before the other one was in use.
    /// Returns whether there was one.
    pub fn finish_copy(&self, place: &StoreUrl) -> Result<bool, ProjectError> {
        let mut target = self.open_other(place)?;
        let is_unfinished = target.moved_to()?.as_ref() == Some(&self.store_url());
        if is_unfinished && self.open_retired()?.moved_to()?.as_ref() == Some(&place.url()) {
            target.set_moved_to(None)?;
            self.note_place(place)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Puts this store, from which the project was copied to `place`, into use again, and retires the copy. Refused if
    /// any event has been written there since.
    pub fn undo_copy(&self, place: &StoreUrl) -> Result<(), ProjectError> {
        let mut source = self.open_retired()?;
        if source.moved_to()?.as_ref() != Some(&place.url()) {
            return Err(ProjectError::NotCopied { from: self.store_url(), to: place.url() });
        }
        match self.open_other(place) {
            // The copy was removed, so no event can have been written there.
            Err(ProjectError::Store(StoreError::Missing { .. })) => {}
            target => {
                let events = source.last_event()?;
                if !target?.retire_after(events, &self.store_url())? {
                    return Err(ProjectError::ChangedSince { to: place.url() });
                }
            }
        }
        source.set_moved_to(None)?;
        let here = match self.location() {
            Location::Sqlite(path) => StoreUrl::Sqlite(path.clone()),
            Location::Postgres { server, .. } => StoreUrl::Postgres(server.clone()),
        };
        self.note_place(&here)
    }

    /// Removes what is left at `place` of an earlier copy of this very store: it was never in use, or everything in it
    /// has been copied back since.
    pub(crate) fn clear_leftover(&self, place: &StoreUrl) -> Result<(), ProjectError> {
        let leftover = match self.open_other(place) {
            Err(ProjectError::Store(StoreError::Missing { .. })) => false,
            target => target?.moved_to()? == Some(self.store_url()),
        };
        match place {
            _ if !leftover => Ok(()),
            StoreUrl::Sqlite(path) => Ok(sqlite::remove(path)?),
            StoreUrl::Postgres(server) => Ok(postgres::remove(server, &self.database_id()?)?),
        }
    }

    /// Moves the rows to a new, empty store, and retires this one. If that fails, removes the new one.
    pub(crate) fn relocate(&self, to: Result<Store, StoreError>, place: &StoreUrl) -> Result<Copied, ProjectError> {
        let (from_url, to_url) = (self.store_url(), place.url());
        let route = Route { from: &from_url, to: &to_url };
        let moved = to.and_then(|to| Ok((to, self.open_store()?, self.reader()?)));
        let moved = moved.map_err(RelocateError::NotMoved);
        match moved.and_then(|(mut to, mut source, mut from)| relocate(&mut source, &mut from, &mut to, route)) {
            Ok(copied) => {
                self.note_place(place)?;
                Ok(copied)
            }
            Err(RelocateError::Unfinished(error)) => Err(error.into()),
            Err(RelocateError::NotMoved(error)) => {
                match place {
                    StoreUrl::Sqlite(path) => sqlite::remove(path)?,
                    StoreUrl::Postgres(server) => postgres::remove(server, &self.database_id()?)?,
                }
                Err(error.into())
            }
        }
    }

    /// Records in the config whether the project is kept in a database, for clones that have only the config.
    fn note_place(&self, place: &StoreUrl) -> Result<(), ProjectError> {
        let config = self.folder().join(CONFIG_FILE);
        match place {
            _ if !config.exists() => Ok(()),
            StoreUrl::Postgres(_) => config::record(&config, "shared", Some(true.into())),
            StoreUrl::Sqlite(path) if sqlite_url(path) == sqlite_url(&self.folder().join(STORE_FILE)) => {
                config::record(&config, "shared", None)
            }
            StoreUrl::Sqlite(_) => Ok(()),
        }
    }

    /// This machine, as a store in another place identifies it.
    pub(crate) fn host_at(&self, place: &StoreUrl) -> Host {
        match place {
            StoreUrl::Sqlite(path) => self.host().clone().with_one_kernel(path.with_file_name(RUN_DIR)),
            StoreUrl::Postgres(_) => self.host().clone().among_others(),
        }
    }

    fn open_retired(&self) -> Result<Store, ProjectError> {
        let machine = Box::new(RealMachine(self.host().clone()));
        Ok(match self.location() {
            Location::Sqlite(path) => sqlite::open_retired(path, &self.writer_lock(), machine)?,
            Location::Postgres { server, id } => postgres::open_retired(server, id, machine)?,
        })
    }

    /// The same project in another store, whether that is in use or not.
    fn open_other(&self, place: &StoreUrl) -> Result<Store, ProjectError> {
        let machine = Box::new(RealMachine(self.host_at(place)));
        Ok(match place {
            StoreUrl::Sqlite(path) => sqlite::open_retired(path, &sqlite::writer_lock_path(path), machine)?,
            StoreUrl::Postgres(server) => postgres::open_retired(server, &self.database_id()?, machine)?,
        })
    }
}

/// The URL of a SQLite file; the same for every way to write its path.
fn sqlite_url(path: &Path) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real = folder.canonicalize().map(|folder| folder.join(path.file_name().unwrap_or_default()));
    format!("sqlite:{}", real.unwrap_or_else(|_| path.into()).display())
}
