//! A project: a directory with a `.banksman/` folder that holds a store.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use banksman_adapters::host::Host;
use banksman_adapters::ids;
use banksman_core::Seq;
use banksman_store::postgres::{self, Server};
use banksman_store::sqlite::{self, Occupant};
use banksman_store::{Copied, Reader, Store, StoreError, StoreId, copy};
use thiserror::Error;

use crate::client::Client;
use crate::config::{Config, ConfigError, Problem, Settings, Source, Surroundings, masked};
use crate::error::Error;
use crate::follow::Follower;
use crate::machine::RealMachine;
use crate::outlets::Outlets;
use crate::trust::Trust;

/// The folder's name.
const FOLDER: &str = ".banksman";

/// The settings in it.
const CONFIG_FILE: &str = "config.toml";

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
    /// Makes a project in `root`, which must exist, with a SQLite store in it.
    pub fn init(root: &Path) -> Result<Project, ProjectError> {
        Project::init_at(root, None)
    }

    /// Makes a project in `root` whose rows are at `place`.
    pub fn init_at(root: &Path, place: Option<Place>) -> Result<Project, ProjectError> {
        let root = root.canonicalize().map_err(io_at(root))?;
        let folder = root.join(FOLDER);
        if is_project(&root) && !matches!(place, Some(Place::Postgres(_))) {
            return Err(ProjectError::Exists { root });
        }
        let mut made = Made::default();
        made.folder(&folder)?;
        // For people to write into.
        made.folder(&folder.join("runbooks"))?;
        made.file(&folder.join(IGNORE_FILE), IGNORED)?;
        let config =
            format!("# The settings of this Banksman project. It may be committed.\nproject = \"{}\"\n", ids::short("p"));
        made.file(&folder.join(CONFIG_FILE), &config)?;
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
        made.keep();
        Ok(project)
    }

    /// Finds the project that `from` belongs to: there, in the main worktree of its git repository, or above.
    pub fn find(from: &Path) -> Result<Project, ProjectError> {
        Project::find_at(from, None)
    }

    /// Finds the project that `from` belongs to, with its rows at `place`. In a database, projects are known by the id
    /// in their config; a SQLite file is a project by itself.
    pub fn find_at(from: &Path, place: Option<Place>) -> Result<Project, ProjectError> {
        Project::find_with(from, place, &Surroundings::default())
    }

    /// The same, with the settings of the user and of the environment.
    pub fn find_with(from: &Path, place: Option<Place>, surroundings: &Surroundings) -> Result<Project, ProjectError> {
        let (root, folder) = Project::locate(from, place.as_ref())?;
        Project::with_folder(&root, &folder, place, surroundings)
    }

    /// The file with the settings of the project that `from` belongs to, also when its content is wrong.
    pub fn config_file(from: &Path, place: Option<&Place>) -> Result<PathBuf, ProjectError> {
        Ok(Project::locate(from, place)?.1.join(CONFIG_FILE))
    }

    /// The directory of a project, and its folder.
    fn locate(from: &Path, place: Option<&Place>) -> Result<(PathBuf, PathBuf), ProjectError> {
        if let Some(Place::Sqlite(path)) = place {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
            let root = folder.parent().filter(|root| !root.as_os_str().is_empty()).unwrap_or(&folder).to_owned();
            return Ok((root, folder));
        }
        let from = from.canonicalize().map_err(io_at(from))?;
        let is_here = |dir: &Path| if place.is_some() { dir.join(FOLDER).join(CONFIG_FILE).exists() } else { is_project(dir) };
        for dir in from.ancestors() {
            let main = main_worktree(dir);
            if let Some(root) = [Some(dir), main.as_deref()].into_iter().flatten().find(|dir| is_here(dir)) {
                return Ok((root.into(), root.join(FOLDER)));
            }
        }
        Err(ProjectError::NotFound { from })
    }

    fn with_folder(
        root: &Path,
        folder: &Path,
        place: Option<Place>,
        surroundings: &Surroundings,
    ) -> Result<Project, ProjectError> {
        let settings = Settings::load(surroundings, Some(&folder.join(CONFIG_FILE)))?;
        let store = match place {
            Some(Place::Postgres(server)) => Location::Postgres { server, id: id_of(settings.config(), folder)? },
            Some(Place::Sqlite(path)) => Location::Sqlite(path),
            None => Location::Sqlite(folder.join("store.db")),
        };
        Ok(Project { root: root.into(), folder: folder.into(), store, settings, host: detect()? })
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
        Outlets::new(&self.settings, &self.root, Trust::of(&self.root).as_ref())
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

    pub(crate) fn location(&self) -> &Location {
        &self.store
    }

    /// The file at which writers of a SQLite store take turns.
    pub fn turnstile(&self) -> PathBuf {
        self.folder.join("turn")
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
        self.folder.join("run")
    }

    /// Copies the project, with all that is held and all that happened, to a place that does not have it. If that
    /// fails, the place is as it was before.
    pub fn copy_to(&self, place: Place) -> Result<Copied, ProjectError> {
        let mut from = self.reader()?;
        let id = id_of(self.config(), &self.folder)?;
        let store_id = new_store_id();
        let machine = || Box::new(RealMachine(self.host.clone()));
        match place {
            Place::Sqlite(path) => {
                sqlite::create(&path, &id, &store_id, &*machine())?;
                let turnstile = path.with_file_name("turn");
                let copied = sqlite::open(&path, &turnstile, machine()).and_then(|mut to| copy(&mut from, &mut to));
                if copied.is_err() {
                    sqlite::remove(&path)?;
                }
                Ok(copied?)
            }
            Place::Postgres(server) => {
                postgres::create(&server, &id, &store_id)?;
                let copied = postgres::open(&server, &id, machine()).and_then(|mut to| copy(&mut from, &mut to));
                if copied.is_err() {
                    postgres::remove(&server, &id)?;
                }
                Ok(copied?)
            }
        }
    }

    /// Opens the store itself, for whoever drives it.
    pub fn open_store(&self) -> Result<Store, StoreError> {
        let machine = Box::new(RealMachine(self.host.clone()));
        match &self.store {
            Location::Sqlite(path) => sqlite::open(path, &self.turnstile(), machine),
            Location::Postgres { server, id } => postgres::open(server, id, machine),
        }
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
        match &self.store {
            Location::Sqlite(path) => sqlite::open_reader(path, machine),
            Location::Postgres { server, id } => postgres::open_reader(server, id, machine),
        }
    }
}

/// A store id that nobody can guess: 160 random bits.
fn new_store_id() -> StoreId {
    StoreId::new(ids::random(32))
}

/// The id that a database knows the project by.
fn id_of(config: &Config, folder: &Path) -> Result<String, ProjectError> {
    config.project.clone().ok_or_else(|| {
        let source = Some(Source::Project(folder.join(CONFIG_FILE)));
        let what = "it is missing: the database knows the project by this id".into();
        ConfigError::from(Problem { source, line: None, key: Some("project".into()), what }).into()
    })
}

/// A folder with only config and runbooks, as in a fresh worktree, is not a project.
fn is_project(dir: &Path) -> bool {
    dir.join(FOLDER).join("store.db").exists()
}

/// The main worktree, if `dir` is a linked one: its `.git` is a file that leads to the common directory.
fn main_worktree(dir: &Path) -> Option<PathBuf> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes.strip_suffix(b"\n").unwrap_or(bytes)));
    let link = fs::read(dir.join(".git")).ok()?;
    let git_dir = dir.join(path(link.strip_prefix(b"gitdir:")?.trim_ascii_start()));
    let common = fs::read(git_dir.join("commondir")).ok()?;
    git_dir.join(path(&common)).canonicalize().ok()?.parent().map(Into::into)
}

/// Where this user's state is, which belongs to no project.
pub(crate) fn state_dir() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    Host::state_dir(var("XDG_STATE_HOME"), var("HOME"))
}

fn detect() -> Result<Host, ProjectError> {
    Host::detect(state_dir().as_deref()).map_err(io_at(Path::new("/proc")))
}

/// What `init` has made so far. Unless it is kept, it is removed again: nothing is left half done.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    fn folder(&mut self, path: &Path) -> Result<(), ProjectError> {
        if !path.is_dir() {
            fs::DirBuilder::new().mode(0o700).create(path).map_err(io_at(path))?;
            self.0.push(path.into());
        }
        Ok(())
    }

    /// Writes a file unless it is there already.
    fn file(&mut self, path: &Path, text: &str) -> Result<(), ProjectError> {
        match fs::File::options().write(true).create_new(true).mode(0o644).open(path) {
            Ok(mut file) => {
                self.0.push(path.into());
                file.write_all(text.as_bytes()).map_err(io_at(path))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(io_at(path)(error)),
        }
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.0.drain(..).rev() {
            // The error that led here is the one to report.
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
