//! The library as a dependency: whatever its arguments are, it neither panics nor harms the program that uses it.

#![expect(clippy::unwrap_used, reason = "a failing test should report the error at once")]

mod arguments;
mod holding;
mod new_user;
mod reentry;

use banksman::{Client, Project};

/// A temporary project.
pub(crate) struct World {
    dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> World {
        let dir = tempfile::Builder::new().prefix("banksman-library-").tempdir().unwrap();
        Project::init(dir.path()).unwrap();
        World { dir }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub(crate) fn client(&self) -> Client {
        Project::find(self.path()).unwrap().open().unwrap()
    }

    /// The internal client, to inspect what the library leaves behind.
    pub(crate) fn runtime(&self) -> banksman_runtime::Client {
        banksman_runtime::Project::find(self.path()).unwrap().open().unwrap()
    }
}
