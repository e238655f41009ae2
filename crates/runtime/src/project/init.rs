//! Creates a project: all of it, or nothing.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use banksman_adapters::ids;
use banksman_store::{StoreError, postgres, sqlite};

use super::{CONFIG_FILE, FOLDER, Location, Project, ProjectError, StoreUrl, id_of, io_at, secure};
use crate::config::{self, Environment};
use crate::discovery::{self, is_project};
use crate::machine::RealMachine;
use crate::trust::{Trust, new_store_id};

/// The file that tells git what to ignore in the folder.
const IGNORE_FILE: &str = ".gitignore";

/// Config and runbooks belong to the repository, everything else to this machine. So does this file itself: a file that
/// is committed on one branch is missing on the others, and the next `git add` there would commit the store, which git
/// would then remove on a switch of branches.
const IGNORED: &str = "*\n!config.toml\n!runbooks/\n!runbooks/**\n";

impl Project {
    /// Creates a project in `root`, which must exist, in the store that [`Project::find`] will search: the one that the
    /// environment or the user's settings name, else a SQLite file in the project's folder.
    pub fn init(root: &Path) -> Result<Project, ProjectError> {
        Project::init_at(root, Project::named_store(root, &Environment::from_process())?)
    }

    /// Creates a project in `root` whose rows are at `place`, or in its own folder. An existing config keeps its id.
    pub fn init_at(root: &Path, place: Option<StoreUrl>) -> Result<Project, ProjectError> {
        let root = root.canonicalize().map_err(io_at(root))?;
        discovery::refuse_second_store(&root, place.as_ref())?;
        Project::make(root, place, Made::default())
    }

    /// The same, but always creates a separate project: if the existing config names another, it gets a new id.
    pub fn init_with_new_id(root: &Path, place: Option<StoreUrl>) -> Result<Project, ProjectError> {
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

    fn make(root: PathBuf, place: Option<StoreUrl>, mut made: Made) -> Result<Project, ProjectError> {
        let folder = root.join(FOLDER);
        if is_project(&root) {
            return Err(ProjectError::Exists { root });
        }
        let shared = matches!(place, Some(StoreUrl::Postgres(_)));
        secure(&folder)?;
        made.folder(&folder)?;
        // For the runbooks that people write.
        made.folder(&folder.join("runbooks"))?;
        made.file(&folder.join(IGNORE_FILE), IGNORED)?;
        let config =
            format!("# The settings of this Banksman project. It may be committed.\nproject = \"{}\"\n", ids::short("p"));
        let config_file = folder.join(CONFIG_FILE);
        made.file(&config_file, &config)?;
        if shared {
            // So that a clone without the store's URL shows that the store is elsewhere.
            made.save(&config_file)?;
            config::record(&config_file, "shared", Some(true.into()))?;
        }
        // A clone of the repository contains the id: all its machines share one project.
        let project = Project::with_folder(&root, &folder, place, &Environment::default())?;
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
        // Without a place for trust the project can be used, but nothing in it starts: `trust` reports why.
        if let Some(trust) = Trust::of_user() {
            trust.grant_store(&project.trusted_store(store_id)).ok();
        }
        Ok(project)
    }

    /// Keeps the store out of the repository also where `init` has not run, as in a clone, and where git has removed
    /// the ignore file.
    pub(crate) fn ignore_ours(&self) {
        if self.folder.ends_with(FOLDER) {
            let mut made = Made::default();
            // A user who cannot write there cannot commit the store either.
            if made.file(&self.folder.join(IGNORE_FILE), IGNORED).is_ok() {
                made.keep();
            }
        }
    }
}

/// What `init` has created and changed so far. A drop without `keep` undoes it, so that nothing is left half done.
#[derive(Default)]
struct Made {
    new: Vec<PathBuf>,
    /// Changed files, with their former content.
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

    /// Writes a file unless it exists.
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

    /// Saves the content of a file that is about to be changed.
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
        // The error that caused the drop is the one to report.
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
