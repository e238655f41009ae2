//! A project: a directory with a `.banksman/` folder.

use std::fmt;
use std::path::Path;

use banksman_runtime::StoreUrl;

use crate::client::Client;
use crate::error::{OrPublic, Result};

/// A project: a directory with a `.banksman/` folder, and the store that keeps its data.
///
/// ```
/// use banksman::{Error, Project};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// let project = match Project::find(path) {
///     Err(Error::NoProject { .. }) => Project::init(path)?,
///     found => found?,
/// };
/// assert_eq!(project.root(), path.canonicalize()?);
/// let client = project.open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Project(pub(crate) banksman_runtime::Project);

impl Project {
    /// Creates a project in an existing directory, in the store that the environment and the user's settings name, or
    /// else in the directory itself. `banksman init` does the same.
    ///
    /// # Errors
    ///
    /// [`Error::ProjectExists`](crate::Error::ProjectExists) if the directory is a project already.
    pub fn init(root: impl AsRef<Path>) -> Result<Project> {
        banksman_runtime::Project::init(root.as_ref()).or_public().map(Project)
    }

    /// Creates a project whose data is in the store with this URL: `sqlite:PATH` or `postgres://…`.
    pub fn init_in(root: impl AsRef<Path>, store: &str) -> Result<Project> {
        banksman_runtime::Project::init_at(root.as_ref(), Some(place(store)?)).or_public().map(Project)
    }

    /// Finds the project of a directory: the nearest one at or above it. The store is the one that the command
    /// `banksman` uses there, by `BANKSMAN_STORE`, the user's settings, or the project's folder.
    ///
    /// # Errors
    ///
    /// [`Error::NoProject`](crate::Error::NoProject) if there is none.
    pub fn find(from: impl AsRef<Path>) -> Result<Project> {
        banksman_runtime::Project::find(from.as_ref()).or_public().map(Project)
    }

    /// Finds the project of a directory in the store with this URL: `sqlite:PATH` or `postgres://…`.
    pub fn find_in(from: impl AsRef<Path>, store: &str) -> Result<Project> {
        banksman_runtime::Project::find_at(from.as_ref(), Some(place(store)?)).or_public().map(Project)
    }

    /// Opens the project. One [`Client`] per process is enough: its clones share a connection, and calls that arrive at the same
    /// time share a transaction.
    pub fn open(&self) -> Result<Client> {
        Client::open(self)
    }

    /// The directory of the project.
    pub fn root(&self) -> &Path {
        self.0.root()
    }

    /// The place of the project's data, for messages. It contains no password.
    pub fn store(&self) -> String {
        self.0.store()
    }
}

impl fmt::Debug for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Project").field("root", &self.root()).field("store", &self.store()).finish()
    }
}

fn place(url: &str) -> Result<StoreUrl> {
    StoreUrl::parse(url, |name| std::env::var(name).ok()).or_public()
}
