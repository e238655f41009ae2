//! The stores, and the commands in settings of projects, that a user trusts.
//!
//! A store may come with a repository, in an archive, or be in a database that others write to; `.banksman/config.toml`
//! may be committed. So anyone may have written the commands in either. Nothing in a store starts, and no command of a
//! setting runs, until the user has trusted that very store, or that very value for the project at that very path.
//!
//! Trust is kept with the user's state, where no repository can put it: one file for each store and for the settings of
//! each project, named by a hash, with one hashed line for each trusted value.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use banksman_adapters::{digest, ids};
use banksman_store::{StoreError, StoreId};

use crate::agents::{Exposure, Value};
use crate::config::Foreign;
use crate::error::Error;
use crate::project::{Location, Project, ProjectError, io_at, state_dir};

/// Marks a value that an agent gets from its profile, and a file that it reads. Earlier versions used the first mark
/// for both.
const GIVEN: &str = "agent";
const READ: &str = "reads";

/// How many files stay trusted that a new grant does not name.
const KEPT_LIMIT: usize = 1_000;

#[derive(Debug, Clone)]
pub struct Trust {
    folder: PathBuf,
}

/// A store that is, or may be, trusted.
#[derive(Debug, Clone)]
pub struct TrustedStore {
    pub id: StoreId,
    /// The one folder in which it is trusted; `None` if it is trusted wherever it is.
    pub clone: Option<PathBuf>,
    /// The place, for people.
    pub place: String,
}

/// The file about one store, or about the settings of one project.
struct Record {
    file: PathBuf,
    /// The subject of the file, for people.
    label: String,
}

impl Trust {
    /// The trust of the user that this process runs as; `None` if there is no place for the user's state, and so no trust.
    pub fn of_user() -> Option<Trust> {
        state_dir().map(|dir| Trust::at(&dir))
    }

    /// The folder of the records.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Trust with its records in this very folder.
    pub(crate) fn in_folder(folder: &Path) -> Trust {
        Trust { folder: folder.into() }
    }

    /// Trust with its records below this folder of the user's state.
    pub fn at(state_dir: &Path) -> Trust {
        Trust { folder: state_dir.join("trust") }
    }

    /// Whether the user trusts this store. An unreadable record grants nothing.
    pub fn covers_store(&self, store: &TrustedStore) -> bool {
        self.store(store).has(&store.line())
    }

    /// Trusts this store.
    pub fn grant_store(&self, store: &TrustedStore) -> Result<(), ProjectError> {
        self.store(store).replace(&[store.line()])
    }

    /// Revokes the trust in this store.
    pub fn revoke_store(&self, store: &TrustedStore) -> Result<(), ProjectError> {
        self.store(store).remove()
    }

    /// Whether the user trusts this value for the project at `root`. An unreadable record grants nothing.
    pub fn covers(&self, root: &Path, foreign: &Foreign) -> bool {
        let root = real(root);
        self.settings(&root).has(&setting_line(&root, foreign))
    }

    /// Whether the user trusts what an agent executes in the project at `root`.
    pub fn covers_exposure(&self, root: &Path, exposure: &Exposure) -> bool {
        let root = real(root);
        exposure_hash(&root, exposure).is_some_and(|hash| self.covers_hash(&root, &hash))
    }

    /// The same, by the hash of an exposure in the project at this real path.
    pub(crate) fn covers_hash(&self, root: &Path, hash: &str) -> bool {
        let record = self.settings(root);
        record.has(&format!("{hash} {GIVEN}")) || record.has(&format!("{hash} {READ}"))
    }

    /// Trusts these values for the project at `root`, and revokes all others except files: a worktree may contain files
    /// that the checkout no longer has.
    pub fn grant(&self, root: &Path, all: &[Foreign], exposures: &[Exposure]) -> Result<(), ProjectError> {
        let root = real(root);
        let record = self.settings(&root);
        let settings = all.iter().map(|foreign| setting_line(&root, foreign));
        let mut lines: Vec<String> = settings.chain(exposures.iter().filter_map(|one| exposure_line(&root, one))).collect();
        let kept: Vec<String> = record.lines().into_iter().filter(|line| line.ends_with(READ) && !lines.contains(line)).collect();
        lines.extend(kept.into_iter().take(KEPT_LIMIT));
        record.replace(&lines)
    }

    /// Revokes all values for the project at `root`.
    pub fn revoke(&self, root: &Path) -> Result<(), ProjectError> {
        self.settings(&real(root)).remove()
    }

    fn settings(&self, root: &Path) -> Record {
        let file = self.folder.join(digest::sha256(&[root.as_os_str().as_bytes()]));
        Record { file, label: format!("{root:?}") }
    }

    fn store(&self, store: &TrustedStore) -> Record {
        Record { file: self.folder.join(store.hash("store")), label: format!("{:?}", store.place) }
    }
}

impl TrustedStore {
    /// The line in its record.
    fn line(&self) -> String {
        format!("{} store", self.hash("trusted store"))
    }

    /// The settings of a project are hashed as one part, so none of their records has the name of a store's.
    fn hash(&self, word: &str) -> String {
        let clone = self.clone.as_deref().unwrap_or(Path::new(""));
        digest::sha256(&[word.as_bytes(), self.id.as_str().as_bytes(), clone.as_os_str().as_bytes()])
    }
}

impl Record {
    fn has(&self, line: &str) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|text| text.lines().any(|known| known == line))
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.file).unwrap_or_default().lines().filter(|line| !line.starts_with('#')).map(Into::into).collect()
    }

    /// Replaces the file at once or not at all.
    fn replace(&self, lines: &[String]) -> Result<(), ProjectError> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io_at(folder))?;
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let write = || {
            // A temporary file is readable by its owner only.
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            write!(file, "# {}\n{lines}", self.label)?;
            file.as_file().sync_all()?;
            file.persist(&self.file).map(drop).map_err(|error| error.error)
        };
        write().map_err(io_at(&self.file))
    }

    fn remove(&self) -> Result<(), ProjectError> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_at(&self.file)(error)),
            _ => Ok(()),
        }
    }
}

/// The real path of a folder, by which it is known however it was named.
pub(crate) fn real(root: &Path) -> PathBuf {
    root.canonicalize().unwrap_or_else(|_| root.into())
}

/// The path is part of the hash, so that a line means nothing in the file of another project.
fn setting_line(root: &Path, foreign: &Foreign) -> String {
    let name = foreign.key.name;
    format!("{} {name}", digest::sha256(&[root.as_os_str().as_bytes(), name.as_bytes(), foreign.value.as_bytes()]))
}

fn exposure_line(root: &Path, exposure: &Exposure) -> Option<String> {
    let kind = if matches!(exposure.value, Value::Read(_)) { READ } else { GIVEN };
    Some(format!("{} {kind}", exposure_hash(root, exposure)?))
}

/// The hash by which an exposure is trusted in the project at this real path; `None` if it cannot be trusted.
pub(crate) fn exposure_hash(root: &Path, exposure: &Exposure) -> Option<String> {
    let (Value::Given(value) | Value::Read(value)) = &exposure.value else { return None };
    let parts = [root.as_os_str().as_bytes(), b"agent", exposure.key.as_bytes(), value.as_bytes()];
    Some(digest::sha256(&parts))
}

/// A store id that cannot be guessed: 160 random bits.
pub(crate) fn new_store_id() -> StoreId {
    StoreId::new(ids::random(32))
}

impl Project {
    /// The id of its store; `None` if an earlier version made the store and no user has trusted it since.
    pub fn store_id(&self) -> Result<Option<StoreId>, StoreError> {
        Ok(self.reader()?.view().identity()?.store)
    }

    /// Whether this user made its store or has trusted it.
    pub fn is_trusted(&self) -> Result<bool, StoreError> {
        Ok(self.trusts(self.store_id()?))
    }

    /// Refuses a store that this user has neither made nor trusted.
    pub fn require_trust(&self) -> Result<(), Error> {
        self.require_trust_in(self.store_id()?)
    }

    /// The same, for an id that is already known.
    pub(crate) fn require_trust_in(&self, id: Option<StoreId>) -> Result<(), Error> {
        let has_id = id.is_some();
        if self.trusts(id) { Ok(()) } else { Err(Error::Untrusted { store: self.store(), has_id }) }
    }

    fn trusts(&self, id: Option<StoreId>) -> bool {
        id.zip(Trust::of_user()).is_some_and(|(id, trust)| trust.covers_store(&self.trusted_store(id)))
    }

    /// Trusts its store for this user. A store without an id gets one.
    pub fn trust_store(&self) -> Result<StoreId, ProjectError> {
        let trust = Trust::of_user().ok_or(ProjectError::Homeless)?;
        let id = match self.store_id()? {
            Some(id) => id,
            None => self.open_store()?.identify(&new_store_id())?,
        };
        trust.grant_store(&self.trusted_store(id.clone()))?;
        Ok(id)
    }

    /// Revokes the trust in its store. Live runs continue.
    pub fn distrust_store(&self) -> Result<(), ProjectError> {
        match (self.store_id()?, Trust::of_user()) {
            (Some(id), Some(trust)) => trust.revoke_store(&self.trusted_store(id)),
            _ => Ok(()),
        }
    }

    /// Its store under this id, as trust identifies it.
    pub(crate) fn trusted_store(&self, id: StoreId) -> TrustedStore {
        let clone = match self.location() {
            Location::Sqlite(_) => None,
            Location::Postgres { .. } => Some(real(self.root())),
        };
        TrustedStore { id, clone, place: self.store() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::Key;

    fn command(value: &str) -> Foreign {
        Foreign { key: Key::find("notify.command").unwrap(), value: value.into() }
    }

    #[test]
    fn only_this_value_of_this_project_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let (state, here, there) = (dir.path().join("state"), dir.path().join("here"), dir.path().join("there"));
        fs::create_dir(&here).unwrap();
        let trust = Trust::at(&state);
        assert!(!trust.covers(&here, &command("make tea")));
        trust.grant(&here, &[command("make tea")], &[]).unwrap();
        assert!(trust.covers(&here, &command("make tea")));
        assert!(!trust.covers(&here, &command("make tea ")), "one space more");
        let same = Foreign { key: Key::find("notify.webhook").unwrap(), value: "make tea".into() };
        assert!(!trust.covers(&here, &same), "another key");
        let (file, other) = (trust.settings(&here).file, trust.settings(&there).file);
        fs::copy(&file, other).unwrap();
        assert!(!trust.covers(&there, &command("make tea")), "another project");

        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        assert!(!fs::read_to_string(&file).unwrap().contains("tea"), "only hashes are kept");

        trust.grant(&here, &[command("make coffee")], &[]).unwrap();
        assert!(!trust.covers(&here, &command("make tea")));
        trust.revoke(&here).unwrap();
        trust.revoke(&here).unwrap();
        assert!(!trust.covers(&here, &command("make coffee")));
    }

    #[test]
    fn trust_identifies_a_project_by_its_real_path() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let trust = Trust::at(dir.path());
        trust.grant(&link, &[command("x")], &[]).unwrap();
        assert!(trust.covers(&real, &command("x")));
    }

    #[test]
    fn a_store_is_trusted_by_its_id_and_no_other_store_is() {
        let dir = tempfile::tempdir().unwrap();
        let trust = Trust::at(dir.path());
        let store = |id: &StoreId, clone: Option<&str>| TrustedStore {
            id: id.clone(),
            clone: clone.map(Into::into),
            place: "/a/store.db".into(),
        };
        let (id, other) = (new_store_id(), new_store_id());
        let (one, another) = (store(&id, None), store(&other, None));
        trust.grant_store(&one).unwrap();
        assert_eq!([&one, &another].map(|store| trust.covers_store(store)), [true, false]);
        let text = fs::read_to_string(trust.store(&one).file).unwrap();
        assert!(text.contains("/a/store.db") && !text.contains(id.as_str()), "{text}");
        // The record of one store is useless for another.
        fs::copy(trust.store(&one).file, trust.store(&another).file).unwrap();
        assert!(!trust.covers_store(&another));
        trust.revoke_store(&one).unwrap();
        assert!(!trust.covers_store(&one));

        // A store in a database is trusted in one clone.
        trust.grant_store(&store(&id, Some("/mine"))).unwrap();
        assert_eq!(
            [Some("/mine"), Some("/theirs"), None].map(|clone| trust.covers_store(&store(&id, clone))),
            [true, false, false]
        );
    }
}
