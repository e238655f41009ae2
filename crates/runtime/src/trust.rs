//! What a user trusts: stores, and commands in the settings of projects.
//!
//! A store may come with a repository, in an archive, or lie in a database that others write to; `.banksman/config.toml` may be
//! committed. So the commands in either may be written by anybody. Nothing of a store starts, and no command of a setting runs,
//! until the user has trusted that very store, or that very value for the project at that very path.
//!
//! Trust is kept with the user's state, where no repository can put it: one file for each store and for the settings of each
//! project, named by a hash, with a line for each trusted thing, as a hash.

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

/// The words for what an agent is given by its profile, and for what it reads. Earlier versions knew one word for both.
const GIVEN: &str = "agent";
const READ: &str = "reads";

/// How many files stay trusted that are not trusted anew.
const KEPT_LIMIT: usize = 1_000;

/// What one user trusts.
#[derive(Debug, Clone)]
pub struct Trust {
    folder: PathBuf,
}

/// A store that is, or may be, trusted.
#[derive(Debug, Clone)]
pub struct TrustedStore {
    pub id: StoreId,
    /// The one folder that it is trusted in; none if wherever the store lies.
    pub clone: Option<PathBuf>,
    /// For people: where it is.
    pub place: String,
}

/// The file about one store, or about the settings of one project.
struct Record {
    file: PathBuf,
    /// For people: what the file is about.
    label: String,
}

impl Trust {
    /// Trust of the user that this process runs as; `None` if there is no place for the user's state, and so no trust.
    pub fn of_user() -> Option<Trust> {
        state_dir().map(|dir| Trust::at(&dir))
    }

    /// The folder that it is kept in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Trust that is kept in this very folder.
    pub(crate) fn in_folder(folder: &Path) -> Trust {
        Trust { folder: folder.into() }
    }

    /// Trust that is kept in this folder of the user's state.
    pub fn at(state_dir: &Path) -> Trust {
        Trust { folder: state_dir.join("trust") }
    }

    /// Whether the user trusts this store. What cannot be read is not trusted.
    pub fn covers_store(&self, store: &TrustedStore) -> bool {
        self.store(store).has(&store.line())
    }

    /// Trusts this store.
    pub fn grant_store(&self, store: &TrustedStore) -> Result<(), ProjectError> {
        self.store(store).replace(&[store.line()])
    }

    /// Does not trust this store any more.
    pub fn revoke_store(&self, store: &TrustedStore) -> Result<(), ProjectError> {
        self.store(store).remove()
    }

    /// Whether the user trusts this value for the project at `root`. What cannot be read is not trusted.
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

    /// Trusts these values for the project at `root`. Others are not trusted any more, but for files: a worktree may have what the
    /// checkout has no more.
    pub fn grant(&self, root: &Path, all: &[Foreign], exposures: &[Exposure]) -> Result<(), ProjectError> {
        let root = real(root);
        let record = self.settings(&root);
        let settings = all.iter().map(|foreign| setting_line(&root, foreign));
        let mut lines: Vec<String> = settings.chain(exposures.iter().filter_map(|one| exposure_line(&root, one))).collect();
        let kept: Vec<String> = record.lines().into_iter().filter(|line| line.ends_with(READ) && !lines.contains(line)).collect();
        lines.extend(kept.into_iter().take(KEPT_LIMIT));
        record.replace(&lines)
    }

    /// Trusts no value for the project at `root` any more.
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
    /// The line that says that it is trusted.
    fn line(&self) -> String {
        format!("{} store", self.hash("trusted store"))
    }

    /// The settings of a project are hashed as one part, so nothing of theirs has the hash of a store.
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

    /// Writes the whole file at once or not at all.
    fn replace(&self, lines: &[String]) -> Result<(), ProjectError> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io_at(folder))?;
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let write = || {
            // It is made for its owner only.
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

/// The path by which a folder is known, however it was named.
pub(crate) fn real(root: &Path) -> PathBuf {
    root.canonicalize().unwrap_or_else(|_| root.into())
}

/// The path is a part of it, so that a line means nothing in another file.
fn setting_line(root: &Path, foreign: &Foreign) -> String {
    let name = foreign.key.name;
    format!("{} {name}", digest::sha256(&[root.as_os_str().as_bytes(), name.as_bytes(), foreign.value.as_bytes()]))
}

fn exposure_line(root: &Path, exposure: &Exposure) -> Option<String> {
    let kind = if matches!(exposure.value, Value::Read(_)) { READ } else { GIVEN };
    Some(format!("{} {kind}", exposure_hash(root, exposure)?))
}

/// The hash by which an exposure is trusted in the project at this real path; none of what cannot be.
pub(crate) fn exposure_hash(root: &Path, exposure: &Exposure) -> Option<String> {
    let (Value::Given(value) | Value::Read(value)) = &exposure.value else { return None };
    let parts = [root.as_os_str().as_bytes(), b"agent", exposure.key.as_bytes(), value.as_bytes()];
    Some(digest::sha256(&parts))
}

/// A store id that nobody can guess: 160 random bits.
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

    /// The same, for an id that was read already.
    pub(crate) fn require_trust_in(&self, id: Option<StoreId>) -> Result<(), Error> {
        let has_id = id.is_some();
        if self.trusts(id) { Ok(()) } else { Err(Error::Untrusted { store: self.store(), has_id }) }
    }

    fn trusts(&self, id: Option<StoreId>) -> bool {
        id.zip(Trust::of_user()).is_some_and(|(id, trust)| trust.covers_store(&self.trusted_store(id)))
    }

    /// Trusts its store for this user. A store without an id is given one.
    pub fn trust_store(&self) -> Result<StoreId, ProjectError> {
        let trust = Trust::of_user().ok_or(ProjectError::Homeless)?;
        let id = match self.store_id()? {
            Some(id) => id,
            None => self.open_store()?.identify(&new_store_id())?,
        };
        trust.grant_store(&self.trusted_store(id.clone()))?;
        Ok(id)
    }

    /// Does not trust its store any more. Runs that live go on.
    pub fn distrust_store(&self) -> Result<(), ProjectError> {
        match (self.store_id()?, Trust::of_user()) {
            (Some(id), Some(trust)) => trust.revoke_store(&self.trusted_store(id)),
            _ => Ok(()),
        }
    }

    /// Its store under this id, as trust knows it.
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
        assert!(!trust.covers(&here, &command("make tea ")), "every letter counts");
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
    fn a_project_is_known_by_its_real_path() {
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
        // The file of one store says nothing about another.
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
