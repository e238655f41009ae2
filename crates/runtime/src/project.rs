//! A project: a directory with a `.banksman/` folder that holds a store.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use banksman_adapters::host::Host;
use banksman_adapters::ids;
use banksman_core::Seq;
use banksman_store::{Reader, StoreError, sqlite};
use thiserror::Error;

use crate::client::Client;
use crate::config::Config;
use crate::error::Error;
use crate::follow::Follower;
use crate::machine::RealMachine;

/// The folder's name.
const FOLDER: &str = ".banksman";

/// Where a project is, and what applies there.
#[derive(Debug, Clone)]
pub struct Project {
    root: PathBuf,
    store: PathBuf,
    config: Config,
    host: Host,
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
    #[error("{}: {what}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
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
    /// Makes a project in `root`, which must exist.
    pub fn init(root: &Path) -> Result<Project, ProjectError> {
        let root = root.canonicalize().map_err(io_at(root))?;
        let folder = root.join(FOLDER);
        let store = folder.join("store.db");
        if store.exists() {
            return Err(ProjectError::Exists { root });
        }
        let host = detect()?;
        let mut made = Made::default();
        made.folder(&folder)?;
        // Config and runbooks belong to the repository, everything else to this machine.
        made.file(&folder.join(".gitignore"), "*\n!.gitignore\n!config.toml\n!runbooks/\n!runbooks/**\n")?;
        let id = ids::short("p");
        let config = format!("# The settings of this Banksman project. It may be committed.\nproject = \"{id}\"\n");
        made.file(&folder.join("config.toml"), &config)?;
        match sqlite::create(&store, &id, &RealMachine(host)) {
            Err(StoreError::Exists { .. }) => return Err(ProjectError::Exists { root }),
            other => other?,
        }
        made.keep();
        Project::at(&root)
    }

    /// Finds the project that `from` belongs to: there, in the main worktree of its git repository, or above.
    pub fn find(from: &Path) -> Result<Project, ProjectError> {
        let from = from.canonicalize().map_err(io_at(from))?;
        for dir in from.ancestors() {
            if is_project(dir) {
                return Project::at(dir);
            }
            if let Some(main) = main_worktree(dir)
                && is_project(&main)
            {
                return Project::at(&main);
            }
        }
        Err(ProjectError::NotFound { from })
    }

    /// The project whose store is at `url`, such as `sqlite:/srv/app/.banksman/store.db`.
    pub fn at_url(url: &str) -> Result<Project, ProjectError> {
        let bad = |what: &str| ProjectError::Url { url: url.into(), what: what.into() };
        let path = url.strip_prefix("sqlite:").ok_or_else(|| bad("this version knows sqlite:PATH only"))?;
        let store = Path::new(path);
        let folder = store.parent().filter(|_| !path.is_empty()).ok_or_else(|| bad("a path is missing"))?;
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let root = folder.parent().unwrap_or(folder);
        Ok(Project { store: store.into(), ..Project::with_folder(root, folder)? })
    }

    /// The project in exactly this directory.
    pub fn at(root: &Path) -> Result<Project, ProjectError> {
        Project::with_folder(root, &root.join(FOLDER))
    }

    fn with_folder(root: &Path, folder: &Path) -> Result<Project, ProjectError> {
        let path = folder.join("config.toml");
        let config = match fs::read_to_string(&path) {
            Ok(text) => Config::parse(&text).map_err(|what| ProjectError::Config { path, what })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Config::default(),
            Err(error) => return Err(io_at(&path)(error)),
        };
        Ok(Project { root: root.into(), store: folder.join("store.db"), config, host: detect()? })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// This machine.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The database file.
    pub fn store_path(&self) -> &Path {
        &self.store
    }

    /// The file at which writers take turns.
    pub fn turnstile(&self) -> PathBuf {
        self.store.with_file_name("turn")
    }

    /// The folder of sockets and bell.
    pub fn run_dir(&self) -> PathBuf {
        self.store.with_file_name("run")
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
        sqlite::open_reader(&self.store, Box::new(RealMachine(self.host.clone())))
    }
}

/// A folder with only config and runbooks, as in a fresh worktree, is not a project.
fn is_project(dir: &Path) -> bool {
    dir.join(FOLDER).join("store.db").exists()
}

/// The main worktree, if `dir` is a linked one: its `.git` is a file that leads to the common directory.
fn main_worktree(dir: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join(".git")).ok()?;
    let git_dir = dir.join(text.strip_prefix("gitdir:")?.trim());
    let common = fs::read_to_string(git_dir.join("commondir")).ok()?;
    git_dir.join(common.trim()).canonicalize().ok()?.parent().map(Into::into)
}

fn detect() -> Result<Host, ProjectError> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    let state = Host::state_dir(var("XDG_STATE_HOME"), var("HOME"));
    Host::detect(state.as_deref()).map_err(io_at(Path::new("/proc")))
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

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> ProjectError {
    move |source| ProjectError::Io { path: path.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_found_from_below_and_from_a_linked_worktree() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("main");
        fs::create_dir_all(main.join("src/deep")).unwrap();
        assert!(matches!(Project::find(&main), Err(ProjectError::NotFound { .. })));
        let root = Project::init(&main).unwrap().root().to_owned();
        assert!(matches!(Project::init(&main), Err(ProjectError::Exists { .. })));
        assert_eq!(Project::find(&main.join("src/deep")).unwrap().root(), root);

        let git = |cwd: &Path, args: &[&str]| {
            let id = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
            let done = std::process::Command::new("git").current_dir(cwd).args(id).args(args).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        };
        git(&main, &["init", "-q"]);
        git(&main, &["add", "-A"]);
        git(&main, &["commit", "-qm", "x"]);
        git(&main, &["worktree", "add", "-q", "../linked"]);
        let linked = dir.path().join("linked");
        assert!(linked.join(".banksman/config.toml").exists(), "the config is committed");
        assert_eq!(Project::find(&linked).unwrap().root(), root);
    }
}
