//! A project: a directory with a `.banksman/` folder that holds a store.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use banksman_adapters::host::Host;
use banksman_adapters::user::User;
use banksman_adapters::{ids, private};
use banksman_core::Seq;
use banksman_store::postgres::{self, Server};
use banksman_store::sqlite::{self, Occupant};
use banksman_store::{Copied, Reader, Store, StoreError};
use thiserror::Error;

use crate::client::Client;
use crate::config::{self, Config, ConfigError, Problem, Settings, Source, Surroundings, masked};
use crate::discovery::{self, is_project};
use crate::error::Error;
use crate::follow::Follower;
use crate::machine::RealMachine;
use crate::outlets::Outlets;
use crate::trust::{Trust, TrustedStore, new_store_id, real};

/// The folder's name.
pub(crate) const FOLDER: &str = private::FOLDER;

/// The settings in it.
pub(crate) const CONFIG_FILE: &str = "config.toml";

/// The store in it, unless the project is kept in a database.
pub(crate) const STORE_FILE: &str = "store.db";

/// Sockets, the bell, and the life files of runners.
pub(crate) const RUN_DIR: &str = "run";

/// What tells git which of it to leave alone.
const IGNORE_FILE: &str = ".gitignore";

/// Config and runbooks belong to the repository, everything else to this machine. So does this file itself: one that is committed
/// on one branch is gone on the others, and the next `git add` there would commit the store, for git to remove it again.
const IGNORED: &str = "*\n!config.toml\n!runbooks/\n!runbooks/**\n";

/// Where a project is, and what applies there.
#[derive(Debug, Clone)]
pub struct Project {
    root: PathBuf,
    folder: PathBuf,
    store: Location,
    settings: Settings,
    host: Host,
}

/// Where the rows of a project are.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// In this file.
    Sqlite(PathBuf),
    /// In this database, under this id.
    Postgres { server: Server, id: String },
}

/// A store that was named by its URL.
#[derive(Debug, Clone)]
pub enum Place {
    /// `sqlite:PATH`
    Sqlite(PathBuf),
    /// `postgres://…`
    Postgres(Server),
}

impl Place {
    /// Reads a URL. `variable` looks up what a PostgreSQL URL leaves out, such as `PGPASSWORD`.
    pub fn parse(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Place, ProjectError> {
        let bad = |what: String| ProjectError::Url { url: masked(url), what };
        if let Some(path) = url.strip_prefix("sqlite:") {
            return if path.is_empty() { Err(bad("a path is missing".into())) } else { Ok(Place::Sqlite(path.into())) };
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let client = format!("banksman {}", std::process::id());
            return Server::parse(url, variable, &client).map(Place::Postgres).map_err(bad);
        }
        Err(bad("it must begin with sqlite: or postgres://".into()))
    }

    /// The place in words, as a project with this id says where its rows are.
    fn shown(&self, id: &str) -> String {
        match self {
            Place::Sqlite(path) => path.display().to_string(),
            Place::Postgres(server) => format!("{} (project {id})", server.shown()),
        }
    }

    /// The folder that trust in a store there is bound to. Which database project a folder belongs to is said by a file that
    /// comes with the repository, so that a hostile clone could name a project that the user trusts, to have its tasks
    /// started there.
    fn clone_of(&self, root: &Path) -> Option<PathBuf> {
        match self {
            Place::Sqlite(_) => None,
            Place::Postgres(_) => Some(real(root)),
        }
    }
}

/// Why a project cannot be used.
#[derive(Debug, Error)]
pub enum ProjectError {
    /// There is none here or above.
    #[error("there is no banksman project in {} or above it", from.display())]
    NotFound {
        /// Where the search began.
        from: PathBuf,
    },
    /// There is one already.
    #[error("{} is a banksman project already", root.display())]
    Exists {
        /// Where.
        root: PathBuf,
    },
    /// The config names a project, but there is no store.
    #[error("the store of project {id} is missing: there is no file {}", store.display())]
    NoStore {
        /// The file that is missing.
        store: PathBuf,
        /// The project's id.
        id: String,
    },
    /// The config says that the project is kept in a database, and nobody says in which.
    #[error("this project ({id}) is kept in a store elsewhere: {} says shared = true", config.display())]
    Elsewhere {
        /// The file that says so.
        config: PathBuf,
        /// The project's id.
        id: String,
    },
    /// The database server has a program of its own for that.
    #[error("the project is kept in PostgreSQL, which is backed up with pg_dump")]
    NoBackup {
        /// The database, without a password.
        url: String,
    },
    /// The one store was not copied to the other.
    #[error("the project in {from} was not copied to {to}")]
    NotCopied {
        /// The store that should be retired.
        from: String,
        /// The store that it should name.
        to: String,
    },
    /// A copy cannot be undone any more.
    #[error("the project has changed since it was copied to {to}")]
    ChangedSince {
        /// Where the project is.
        to: String,
    },
    /// The user's settings name a database, and the project has a store of its own.
    #[error("this project has two stores: {}, and {other} by the setting `store` of the user", local.display())]
    TwoStores {
        /// The file in the project.
        local: PathBuf,
        /// The database, without a password.
        other: String,
    },
    /// Its settings cannot be understood.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The place of the store is not written in a way that is understood.
    #[error("{url:?} is not the place of a store: {what}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong.
        what: String,
    },
    /// The store cannot be made.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no place for what the user trusts.
    #[error("trust has no place: HOME is not set")]
    Homeless,
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl Project {
    /// Makes a project in `root`, which must exist, in the store that [`Project::find`] will look in: the one that the
    /// environment or the user's settings name, else a SQLite file in the project's folder.
    pub fn init(root: &Path) -> Result<Project, ProjectError> {
        Project::init_at(root, Project::named_store(root, &Surroundings::from_process())?)
    }

    /// Makes a project in `root` whose rows are at `place`, or in its own folder. A config that is there keeps its id.
    pub fn init_at(root: &Path, place: Option<Place>) -> Result<Project, ProjectError> {
        let root = root.canonicalize().map_err(io_at(root))?;
        discovery::refuse_second_store(&root, place.as_ref())?;
        Project::make(root, place, Made::default())
    }

    /// The same, but as a project of its own also if the config that is there names another: it gets a new id.
    pub fn init_with_new_id(root: &Path, place: Option<Place>) -> Result<Project, ProjectError> {
        let root = root.canonicalize().map_err(io_at(root))?;
        let mut made = Made::default();
        if Project::committed_id(&root).is_some() && !is_project(&root) {
            let config = root.join(FOLDER).join(CONFIG_FILE);
            made.save(&config)?;
            config::record(&config, "project", Some(ids::short("p").into()))?;
            config::record(&config, "shared", None)?;
        }
        Project::make(root, place, made)
    }

    fn make(root: PathBuf, place: Option<Place>, mut made: Made) -> Result<Project, ProjectError> {
        let folder = root.join(FOLDER);
        if is_project(&root) {
            return Err(ProjectError::Exists { root });
        }
        let shared = matches!(place, Some(Place::Postgres(_)));
        secure(&folder)?;
        made.folder(&folder)?;
        // For people to write into.
        made.folder(&folder.join("runbooks"))?;
        made.file(&folder.join(IGNORE_FILE), IGNORED)?;
        let config =
            format!("# The settings of this Banksman project. It may be committed.\nproject = \"{}\"\n", ids::short("p"));
        let config_file = folder.join(CONFIG_FILE);
        made.file(&config_file, &config)?;
        if shared {
            // So that a clone without the store's URL knows that the store is elsewhere.
            made.save(&config_file)?;
            config::record(&config_file, "shared", Some(true.into()))?;
        }
        // A clone of the repository brings the id with it: all its machines share one project.
        let project = Project::with_folder(&root, &folder, place, &Surroundings::default())?;
        let store_id = new_store_id();
        let created = match &project.store {
            Location::Sqlite(path) => {
                sqlite::create(path, &id_of(project.config(), &folder)?, &store_id, &RealMachine(project.host.clone()))
            }
            Location::Postgres { server, id } => postgres::create(server, id, &store_id),
        };
        match created {
            Err(StoreError::Exists { .. }) => return Err(ProjectError::Exists { root }),
            other => other?,
        }
        secure(&folder)?;
        made.keep();
        // Without a place for trust the project can be used, but nothing of it starts: `trust` says why.
        if let Some(trust) = Trust::of_user() {
            trust.grant_store(&project.trusted_store(store_id)).ok();
        }
        Ok(project)
    }

    pub(crate) fn with_folder(
        root: &Path,
        folder: &Path,
        place: Option<Place>,
        surroundings: &Surroundings,
    ) -> Result<Project, ProjectError> {
        let settings = Settings::load(surroundings, Some(&folder.join(CONFIG_FILE)))?;
        let store = match place {
            Some(Place::Postgres(server)) => Location::Postgres { server, id: id_of(settings.config(), folder)? },
            Some(Place::Sqlite(path)) => Location::Sqlite(path),
            None => Location::Sqlite(folder.join(STORE_FILE)),
        };
        let host = match store {
            Location::Sqlite(_) => detect()?.with_one_kernel(folder.join(RUN_DIR)),
            Location::Postgres { .. } => detect()?,
        };
        Ok(Project { root: root.into(), folder: folder.into(), store, settings, host })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder `.banksman`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        self.settings.config()
    }

    /// Where its notices go, as far as the user trusts that.
    pub fn outlets(&self) -> Outlets {
        Outlets::new(&self.settings, &self.root, Trust::of_user().as_ref())
    }

    /// This machine.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Where its rows are, in words.
    pub fn store(&self) -> String {
        match &self.store {
            Location::Sqlite(path) => path.display().to_string(),
            Location::Postgres { server, id } => format!("{} (project {id})", server.shown()),
        }
    }

    /// The id that a database knows it by.
    pub(crate) fn database_id(&self) -> Result<String, ProjectError> {
        id_of(self.config(), &self.folder)
    }

    pub(crate) fn location(&self) -> &Location {
        &self.store
    }

    /// The file at which writers of a SQLite store take turns.
    pub fn turnstile(&self) -> PathBuf {
        match &self.store {
            Location::Sqlite(path) => sqlite::turnstile_of(path),
            Location::Postgres { .. } => self.folder.join("turn"),
        }
    }

    /// Keeps the store out of the repository also where nobody has said `init`, as in a clone, and where git has taken away the
    /// file that does so.
    pub(crate) fn ignore_ours(&self) {
        if self.folder.ends_with(FOLDER) {
            let mut made = Made::default();
            // Who cannot write there cannot commit what is there either.
            if made.file(&self.folder.join(IGNORE_FILE), IGNORED).is_ok() {
                made.keep();
            }
        }
    }

    /// The folder of sockets and bell.
    pub fn run_dir(&self) -> PathBuf {
        self.folder.join(RUN_DIR)
    }

    /// Copies the project, with all that is held and all that happened, to a place that does not have it, and retires the store
    /// that it was in. If that fails, both are as they were before.
    pub fn copy_to(&self, place: Place) -> Result<Copied, ProjectError> {
        self.reader()?;
        let is_trusted = self.is_trusted()?;
        self.clear_leftover(&place)?;
        let id = id_of(self.config(), &self.folder)?;
        let store_id = new_store_id();
        let host = self.host_at(&place);
        let machine = || Box::new(RealMachine(host.clone()));
        let copy_of_it = TrustedStore { id: store_id.clone(), clone: place.clone_of(&self.root), place: place.shown(&id) };
        // The copy of what the user trusts is the user's own; a copy of anything else is trusted as little as that. It is recorded
        // first, so that a copy which is completed after a kill is trusted too; trust in an id that no store has does nothing.
        if is_trusted && let Some(trust) = Trust::of_user() {
            trust.grant_store(&copy_of_it)?;
        }
        let copied = match &place {
            Place::Sqlite(path) => {
                sqlite::create(path, &id, &store_id, &*machine())?;
                let turnstile = sqlite::turnstile_of(path);
                self.relocate(sqlite::open(path, &turnstile, machine()), &place)?
            }
            Place::Postgres(server) => {
                postgres::create(server, &id, &store_id)?;
                self.relocate(postgres::open(server, &id, machine()), &place)?
            }
        };
        Ok(copied)
    }

    /// Opens the store itself, for whoever drives it.
    pub fn open_store(&self) -> Result<Store, StoreError> {
        let machine = Box::new(RealMachine(self.host.clone()));
        self.secure()?;
        let store = match &self.store {
            Location::Sqlite(path) => sqlite::open(path, &self.turnstile(), machine),
            Location::Postgres { server, id } => postgres::open(server, id, machine),
        }?;
        // What was made just now under sudo is for the owner of the project.
        if rustix::process::geteuid().is_root() {
            self.secure()?;
        }
        Ok(store)
    }

    /// Makes sure that the files of the project are its owner's, for its owner only, and no links.
    fn secure(&self) -> Result<(), StoreError> {
        secure(&self.folder)
    }

    /// Who has its turn to write right now.
    pub fn occupant(&self) -> Option<Occupant> {
        match &self.store {
            Location::Sqlite(_) => sqlite::occupant(&self.turnstile()),
            Location::Postgres { server, id } => postgres::occupant(server, id),
        }
    }

    /// Opens it for all calls.
    pub fn open(&self) -> Result<Client, Error> {
        Client::open(self)
    }

    /// Follows the event log from `after` on.
    pub fn follow(&self, after: Seq) -> Result<Follower, Error> {
        Follower::open(self, after)
    }

    /// Opens it for reading only.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        match self.open_reader() {
            // Tables of an earlier version are brought up to date by whoever opens them for writing.
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

/// The id that a database knows the project by.
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

/// Where this user's state is, which belongs to no project.
pub(crate) fn state_dir() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    // A path that is not absolute could lead into a repository.
    let home = var("HOME").filter(|home| home.is_absolute()).or_else(|| User::current().home);
    Host::state_dir(var("XDG_STATE_HOME"), home)
}

fn detect() -> Result<Host, ProjectError> {
    Host::detect(state_dir().as_deref()).map_err(io_at(Path::new("/proc")))
}

/// What `init` has made and changed so far. Unless it is kept, it is undone: nothing is left half done.
#[derive(Default)]
struct Made {
    new: Vec<PathBuf>,
    /// Files that were there, with their content.
    changed: Vec<(PathBuf, Vec<u8>)>,
}

impl Made {
    fn folder(&mut self, path: &Path) -> Result<(), ProjectError> {
        if !path.is_dir() {
            fs::DirBuilder::new().mode(0o700).create(path).map_err(io_at(path))?;
            self.new.push(path.into());
        }
        Ok(())
    }

    /// Writes a file unless it is there already.
    fn file(&mut self, path: &Path, text: &str) -> Result<(), ProjectError> {
        match fs::File::options().write(true).create_new(true).mode(0o644).open(path) {
            Ok(mut file) => {
                self.new.push(path.into());
                file.write_all(text.as_bytes()).map_err(io_at(path))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(io_at(path)(error)),
        }
    }

    /// Remembers the content of a file that is about to be changed.
    fn save(&mut self, path: &Path) -> Result<(), ProjectError> {
        if !self.new.iter().any(|new| new == path) {
            self.changed.push((path.into(), fs::read(path).map_err(io_at(path))?));
        }
        Ok(())
    }

    fn keep(mut self) {
        self.new.clear();
        self.changed.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // The error that led here is the one to report.
        for (path, content) in self.changed.drain(..).rev() {
            fs::write(path, content).ok();
        }
        for path in self.new.drain(..).rev() {
            if path.is_dir() {
                fs::remove_dir(&path).ok()
            } else {
                fs::remove_file(&path).ok()
            };
        }
    }
}

pub(crate) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> ProjectError {
    move |source| ProjectError::Io { path: path.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(cwd: &Path, args: &[&str]) -> String {
        let id = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
        let done = std::process::Command::new("git").current_dir(cwd).args(id).args(args).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    #[test]
    fn git_leaves_the_store_alone_on_whichever_branch() {
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
