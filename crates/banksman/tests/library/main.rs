//! The library as a dependency: whatever it is given, it neither panics nor hurts the program that uses it.

#![expect(clippy::unwrap_used, reason = "a test that fails shall say so at once")]

mod arguments;
mod holding;
mod new_user;
mod reentry;

use banksman::{Client, Project};

/// A project that is removed in the end.
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

    /// What the library is built on, to see what it leaves behind.
    pub(crate) fn runtime(&self) -> banksman_runtime::Client {
        banksman_runtime::Project::find(self.path()).unwrap().open().unwrap()
    }
}
