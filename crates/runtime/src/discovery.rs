//! Finds the project that a directory belongs to, and the store that keeps it. The library and the command use the same
//! functions.
//!
//! The store is, in this order: the one given with `--store` or `BANKSMAN_STORE`, the one in the user's settings, the
//! file `.banksman/store.db`. The root of the project is the nearest directory that has such a file, or a config with a
//! project's id.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use banksman_store::{StoreError, postgres, sqlite};

use crate::config::{Config, Environment, Settings};
use crate::project::{CONFIG_FILE, FOLDER, Project, ProjectError, STORE_FILE, StoreUrl, io_at};

/// The root of a project, with the kind of file that marks it.
enum Located {
    WithStore(PathBuf),
    /// There is only a config.
    WithConfig(PathBuf),
}

impl Located {
    fn root(&self) -> &Path {
        match self {
            Located::WithStore(root) | Located::WithConfig(root) => root,
        }
    }
}

impl Project {
    /// Finds the project that `from` belongs to, in the store that the environment of this process and the user's
    /// settings name: exactly as the command `banksman` does.
    pub fn find(from: &Path) -> Result<Project, ProjectError> {
        Project::discover(from, &Environment::from_process())
    }

    /// The same, with the environment given.
    pub fn discover(from: &Path, environment: &Environment) -> Result<Project, ProjectError> {
        if environment.store.is_some() {
            return Project::find_with(from, Project::named_store(from, environment)?, environment);
        }
        match Project::named_store(from, environment)? {
            None => Project::find_with(from, None, environment),
            Some(place) => Project::find_in_users_store(from, place, environment),
        }
    }

    /// The store given by a flag or its variable, or by the user's settings. If the settings are wrong, the problems of
    /// the settings of the project at `from` are reported as well.
    pub fn named_store(from: &Path, environment: &Environment) -> Result<Option<StoreUrl>, ProjectError> {
        let url = match &environment.store {
            Some(url) => Some(url.clone()),
            None => {
                let settings = Settings::load(environment, None).or_else(|error| {
                    let project_file = Project::config_file(from, None).map_err(|_| error)?;
                    Settings::load(environment, Some(&project_file))
                })?;
                settings.config().store.clone().map(|url| url.0)
            }
        };
        url.map(|url| StoreUrl::parse(&url, |name| environment.variable(name))).transpose()
    }

    /// Finds the project that `from` belongs to, in the store at `place`, whatever the environment says; without a
    /// place, in its own folder. In a database, projects are identified by the id in their config; a SQLite file is a
    /// project by itself.
    pub fn find_at(from: &Path, place: Option<StoreUrl>) -> Result<Project, ProjectError> {
        Project::find_with(from, place, &Environment::default())
    }

    /// The same, with the settings of the user and of the environment.
    pub fn find_with(from: &Path, place: Option<StoreUrl>, environment: &Environment) -> Result<Project, ProjectError> {
        let (root, folder) = match &place {
            Some(StoreUrl::Sqlite(path)) => around(path),
            Some(StoreUrl::Postgres(_)) => {
                let root = nearest(from, |dir| has_config(dir).then(|| dir.to_owned()))?;
                let folder = root.join(FOLDER);
                (root, folder)
            }
            None => {
                let located = locate(from)?;
                refuse_without_store(&located)?;
                (located.root().into(), located.root().join(FOLDER))
            }
        };
        Project::with_folder(&root, &folder, place, environment)
    }

    /// Finds a project in the store that the user's settings name. They apply to every project: one with a store of its
    /// own is an error, because the setting must not hide that store.
    fn find_in_users_store(from: &Path, place: StoreUrl, environment: &Environment) -> Result<Project, ProjectError> {
        let located = locate(from)?;
        let (root, folder) = (located.root(), located.root().join(FOLDER));
        let local = folder.join(STORE_FILE);
        // Opening a retired store reports where the project is now.
        if matches!(located, Located::WithStore(_)) && sqlite::moved_to(&local)?.is_none() {
            return Err(ProjectError::TwoStores { local, other: place.url() });
        }
        Project::with_folder(root, &folder, Some(place), environment)
    }

    /// The file with the settings of the project that `from` belongs to, even if its content is wrong or its store is
    /// missing.
    pub fn config_file(from: &Path, place: Option<&StoreUrl>) -> Result<PathBuf, ProjectError> {
        let folder = match place {
            Some(StoreUrl::Sqlite(path)) => around(path).1,
            Some(StoreUrl::Postgres(_)) => nearest(from, |dir| has_config(dir).then(|| dir.to_owned()))?.join(FOLDER),
            None => locate(from)?.root().join(FOLDER),
        };
        Ok(folder.join(CONFIG_FILE))
    }

    /// The id in the config of a directory that is to become a project: a clone contains it.
    pub fn committed_id(root: &Path) -> Option<String> {
        own_config(root).ok()?.project
    }
}

/// Refuses an `init` that would create a second store for a project that is kept in a database elsewhere.
pub(crate) fn refuse_second_store(root: &Path, place: Option<&StoreUrl>) -> Result<(), ProjectError> {
    let config = own_config(root)?;
    let Some(id) = config.project.filter(|_| config.shared) else { return Ok(()) };
    let Some(StoreUrl::Postgres(server)) = place else {
        return Err(ProjectError::Elsewhere { config: root.join(FOLDER).join(CONFIG_FILE), id });
    };
    match postgres::exists(server, &id) {
        Ok(true) => Err(ProjectError::Exists { root: root.into() }),
        Ok(false) => Err(ProjectError::Elsewhere { config: root.join(FOLDER).join(CONFIG_FILE), id }),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a project that has only a config: it is kept elsewhere, or its store is missing. A project that is kept
/// elsewhere is refused even if there is a store file.
fn refuse_without_store(located: &Located) -> Result<(), ProjectError> {
    let (root, folder) = (located.root(), located.root().join(FOLDER));
    let config = own_config(root)?;
    if let (Located::WithStore(_), true) = (located, config.shared) {
        // The store file knows more than the config: where the project was moved.
        sqlite::moved_to(&folder.join(STORE_FILE))?.map_or(Ok(()), |to| Err(StoreError::Moved { to }))?;
    }
    match (located, config.project) {
        (_, Some(id)) if config.shared => Err(ProjectError::Elsewhere { config: folder.join(CONFIG_FILE), id }),
        (Located::WithConfig(_), Some(id)) => Err(ProjectError::NoStore { store: folder.join(STORE_FILE), id }),
        _ => Ok(()),
    }
}

/// The nearest directory with a store, or with a config that has an id. A linked worktree uses the store of its main
/// worktree.
fn locate(from: &Path) -> Result<Located, ProjectError> {
    let with_store = |dir: &Path| is_project(dir).then(|| Located::WithStore(dir.into()));
    nearest(from, |dir| {
        let here = with_store(dir).or_else(|| with_store(&main_worktree(dir)?));
        // A config that cannot be read must be reported, not skipped.
        let is_named = || has_config(dir) && own_config(dir).map_or(true, |config| config.project.is_some());
        here.or_else(|| is_named().then(|| Located::WithConfig(dir.into())))
    })
}

fn nearest<T>(from: &Path, find: impl Fn(&Path) -> Option<T>) -> Result<T, ProjectError> {
    let from = from.canonicalize().map_err(io_at(from))?;
    from.ancestors().find_map(find).ok_or(ProjectError::NotFound { from })
}

/// The directory and the folder of a project whose store is this file.
fn around(store: &Path) -> (PathBuf, PathBuf) {
    let parent = |path: &Path| path.parent().filter(|parent| !parent.as_os_str().is_empty()).map(Path::to_owned);
    let folder = parent(store).unwrap_or_else(|| ".".into());
    // A relative `.banksman/store.db` is in the current directory.
    let here = || if folder.ends_with(FOLDER) { ".".into() } else { folder.clone() };
    (parent(&folder).unwrap_or_else(here), folder)
}

/// The settings of the project's own file, without those of the user and the environment.
fn own_config(root: &Path) -> Result<Config, ProjectError> {
    Ok(Settings::load(&Environment::default(), Some(&root.join(FOLDER).join(CONFIG_FILE)))?.config().clone())
}

fn has_config(dir: &Path) -> bool {
    dir.join(FOLDER).join(CONFIG_FILE).exists()
}

/// Whether the store of a project is in this directory.
pub(crate) fn is_project(dir: &Path) -> bool {
    dir.join(FOLDER).join(STORE_FILE).exists()
}

/// The main worktree, if `dir` is a linked one: its `.git` is a file that leads to the common directory.
fn main_worktree(dir: &Path) -> Option<PathBuf> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes.strip_suffix(b"\n").unwrap_or(bytes)));
    let link = fs::read(dir.join(".git")).ok()?;
    let git_dir = dir.join(path(link.strip_prefix(b"gitdir:")?.trim_ascii_start()));
    let common = fs::read(git_dir.join("commondir")).ok()?;
    git_dir.join(path(&common)).canonicalize().ok()?.parent().map(Into::into)
}
