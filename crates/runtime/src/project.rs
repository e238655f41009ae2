//! A project: a directory with a `.banksman/` folder that holds a store.

mod error;
mod init;
mod store_url;

use std::path::{Path, PathBuf};

use banksman_adapters::host::Host;
use banksman_adapters::notify::Program;
use banksman_adapters::private;
use banksman_adapters::user::User;
use banksman_core::Seq;
use banksman_store::postgres;
use banksman_store::sqlite::{self, Occupant};
use banksman_store::{Copied, Reader, Store, StoreError};

use crate::client::Client;
use crate::config::{Config, ConfigError, Environment, Problem, Settings, Source};
use crate::error::Error;
use crate::follow::Follower;
use crate::machine::RealMachine;
use crate::outlets::{Outlets, Refusal};
use crate::trust::{Trust, TrustedStore, new_store_id};

pub use error::ProjectError;
pub(crate) use error::io_at;
pub(crate) use store_url::Location;
pub use store_url::StoreUrl;

pub(crate) const FOLDER: &str = private::FOLDER;

/// The settings in the folder.
pub(crate) const CONFIG_FILE: &str = "config.toml";

/// The store in the folder, unless the project is kept in a database.
pub(crate) const STORE_FILE: &str = "store.db";

/// Sockets, the change notifier, and the life files of runners.
pub(crate) const RUN_DIR: &str = "run";

/// The place of a project, and its settings.
#[derive(Debug, Clone)]
pub struct Project {
    root: PathBuf,
    folder: PathBuf,
    store: Location,
    settings: Settings,
    host: Host,
}

impl Project {
    pub(crate) fn with_folder(
        root: &Path,
        folder: &Path,
        place: Option<StoreUrl>,
        environment: &Environment,
    ) -> Result<Project, ProjectError> {
        let settings = Settings::load(environment, Some(&folder.join(CONFIG_FILE)))?;
        let store = match place {
            Some(StoreUrl::Postgres(server)) => Location::Postgres { server, id: id_of(settings.config(), folder)? },
            Some(StoreUrl::Sqlite(path)) => Location::Sqlite(path),
            None => Location::Sqlite(folder.join(STORE_FILE)),
        };
        let host = match store {
            Location::Sqlite(_) => detect()?.with_one_kernel(folder.join(RUN_DIR)),
            Location::Postgres { .. } => detect()?,
        };
        Ok(Project { root: root.into(), folder: folder.into(), store, settings, host })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder `.banksman`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn config(&self) -> &Config {
        self.settings.config()
    }

    /// The settings, with the origin of each.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The channels of its notices, as far as the user trusts them.
    pub fn outlets(&self) -> Outlets {
        Outlets::new(&self.settings, &self.root, Trust::of_user().as_ref())
    }

    /// The command that commits must pass before they land, if one is set. A command that comes with the project must
    /// be trusted.
    pub fn landing_check(&self) -> Result<Option<Program>, Refusal> {
        let key = "landing.check";
        if !self.trusts_setting(key) {
            return Err(Refusal::Untrusted { key });
        }
        Ok(self.config().landing.check.clone())
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The place of the rows, as text.
    pub fn store(&self) -> String {
        match &self.store {
            Location::Sqlite(path) => path.display().to_string(),
            Location::Postgres { server, id } => format!("{} (project {id})", server.place()),
        }
    }

    /// Whether its rows are in a database that other machines can reach: they cannot see whether a process of this
    /// machine is alive.
    pub fn is_shared(&self) -> bool {
        matches!(self.store, Location::Postgres { .. })
    }

    /// The id of the project in a database.
    pub(crate) fn database_id(&self) -> Result<String, ProjectError> {
        id_of(self.config(), &self.folder)
    }

    pub(crate) fn location(&self) -> &Location {
        &self.store
    }

    /// The file that the writers of a SQLite store lock.
    pub fn writer_lock(&self) -> PathBuf {
        match &self.store {
            Location::Sqlite(path) => sqlite::writer_lock_path(path),
            Location::Postgres { .. } => self.folder.join("turn"),
        }
    }

    /// The folder of the sockets and the change notifier.
    pub fn run_dir(&self) -> PathBuf {
        self.folder.join(RUN_DIR)
    }

    /// Copies the project, with everything that is held and all events, to a place that does not have it, and retires
    /// its present store. If that fails, both are as they were before.
    pub fn copy_to(&self, place: StoreUrl) -> Result<Copied, ProjectError> {
        self.reader()?;
        let is_trusted = self.is_trusted()?;
        self.clear_leftover(&place)?;
        let id = id_of(self.config(), &self.folder)?;
        let store_id = new_store_id();
        let host = self.host_at(&place);
        let machine = || Box::new(RealMachine(host.clone()));
        let copy_of_it = TrustedStore { id: store_id.clone(), clone: place.clone_of(&self.root), place: place.describe(&id) };
        // The copy of a trusted store belongs to the user too; the copy of any other is not trusted either. Trust is
        // recorded first, so that a copy which is completed after a kill is trusted too; trust in an id that no store
        // has does nothing.
        if is_trusted && let Some(trust) = Trust::of_user() {
            trust.grant_store(&copy_of_it)?;
        }
        let copied = match &place {
            StoreUrl::Sqlite(path) => {
                sqlite::create(path, &id, &store_id, &*machine())?;
                let writer_lock = sqlite::writer_lock_path(path);
                self.relocate(sqlite::open(path, &writer_lock, machine()), &place)?
            }
            StoreUrl::Postgres(server) => {
                postgres::create(server, &id, &store_id)?;
                self.relocate(postgres::open(server, &id, machine()), &place)?
            }
        };
        Ok(copied)
    }

    /// Opens the store itself, for its driver.
    pub fn open_store(&self) -> Result<Store, StoreError> {
        let machine = Box::new(RealMachine(self.host.clone()));
        self.secure()?;
        let store = match &self.store {
            Location::Sqlite(path) => sqlite::open(path, &self.writer_lock(), machine),
            Location::Postgres { server, id } => postgres::open(server, id, machine),
        }?;
        // Files that were just created under sudo must belong to the owner of the project.
        if rustix::process::geteuid().is_root() {
            self.secure()?;
        }
        Ok(store)
    }

    /// Makes sure that the files of the project are its owner's, for its owner only, and no links.
    fn secure(&self) -> Result<(), StoreError> {
        secure(&self.folder)
    }

    /// The process that holds the writer lock right now.
    pub fn occupant(&self) -> Option<Occupant> {
        match &self.store {
            Location::Sqlite(_) => sqlite::occupant(&self.writer_lock()),
            Location::Postgres { server, id } => postgres::occupant(server, id),
        }
    }

    /// Opens the project for all calls.
    pub fn open(&self) -> Result<Client, Error> {
        Client::open(self)
    }

    /// Follows the event log from `after` on.
    pub fn follow(&self, after: Seq) -> Result<Follower, Error> {
        Follower::open(self, after)
    }

    /// Opens the project for reading only.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        match self.open_reader() {
            // Opening for writing migrates tables of an earlier version.
            Err(StoreError::Newer { found, known }) if found < known => {
                self.open_store()?;
                self.open_reader()
            }
            other => other,
        }
    }

    fn open_reader(&self) -> Result<Reader, StoreError> {
        let machine = Box::new(RealMachine(self.host.clone()));
        self.secure()?;
        match &self.store {
            Location::Sqlite(path) => sqlite::open_reader(path, machine),
            Location::Postgres { server, id } => postgres::open_reader(server, id, machine),
        }
    }
}

/// The id of the project in a database.
fn id_of(config: &Config, folder: &Path) -> Result<String, ProjectError> {
    config.project.clone().ok_or_else(|| {
        let source = Some(Source::Project(folder.join(CONFIG_FILE)));
        let what = "it is missing: the database knows the project by this id".into();
        ConfigError::from(Problem { source, line: None, key: Some("project".into()), what }).into()
    })
}

fn secure(folder: &Path) -> Result<(), StoreError> {
    private::secure(folder).map_err(|private::Unsafe { path, what }| StoreError::Unsafe { path, what })
}

/// The directory of this user's state, which belongs to no project.
pub(crate) fn state_dir() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    // A path that is not absolute could lead into a repository.
    let home = var("HOME").filter(|home| home.is_absolute()).or_else(|| User::current().home);
    Host::state_dir(var("XDG_STATE_HOME"), home)
}

fn detect() -> Result<Host, ProjectError> {
    Host::detect(state_dir().as_deref()).map_err(io_at(Path::new("/proc")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn git(cwd: &Path, args: &[&str]) -> String {
        let id = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
        let done = std::process::Command::new("git").current_dir(cwd).args(id).args(args).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    #[test]
    fn git_ignores_the_store_on_every_branch() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        git(root, &["init", "-q", "-b", "main"]);
        git(root, &["commit", "-q", "--allow-empty", "-m", "x"]);
        let project = Project::init(root).unwrap();
        git(root, &["switch", "-q", "-c", "topic"]);
        let all_committed = || {
            git(root, &["add", "-A"]);
            git(root, &["commit", "-q", "--allow-empty", "-m", "y"]);
            git(root, &["ls-files"])
        };
        assert_eq!(all_committed(), ".banksman/config.toml\n");
        git(root, &["switch", "-q", "main"]);
        assert_eq!(all_committed(), "", "the config belongs to the other branch");
        fs::remove_file(root.join(".banksman/.gitignore")).unwrap();
        Client::open(&project).unwrap();
        assert_eq!(all_committed(), "", "as in a clone");
    }

    #[test]
    fn a_project_is_found_from_below_and_from_a_linked_worktree() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("main");
        fs::create_dir_all(main.join("src/deep")).unwrap();
        assert!(matches!(Project::find(&main), Err(ProjectError::NotFound { .. })));
        let root = Project::init(&main).unwrap().root().to_owned();
        assert!(matches!(Project::init(&main), Err(ProjectError::Exists { .. })));
        assert_eq!(Project::find(&main.join("src/deep")).unwrap().root(), root);
        assert!(main.join(".banksman/runbooks").is_dir());

        git(&main, &["init", "-q"]);
        git(&main, &["add", "-A"]);
        git(&main, &["commit", "-qm", "x"]);
        git(&main, &["worktree", "add", "-q", "../linked"]);
        let linked = dir.path().join("linked");
        assert!(linked.join(".banksman/config.toml").exists(), "the config is committed");
        assert_eq!(Project::find(&linked).unwrap().root(), root);
    }
}
