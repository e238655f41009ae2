//! The environment that all figures share: their directory, their duration, and the speed of the disk.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use banksman_runtime::{Client, Project};
use tempfile::TempDir;

use crate::machine;

/// An error while taking a figure ends the program; its text is for people.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// One run of the bench.
pub(crate) struct Bench {
    dir: TempDir,
    quick: bool,
    /// Fs: the time that this disk takes to make a page durable.
    pub(crate) flush: Duration,
}

impl Bench {
    /// Creates the directory beside this program, so that it is on the disk of `target/` and not in memory.
    pub(crate) fn open(quick: bool) -> Result<Bench> {
        let program = std::env::current_exe()?;
        let beside = program.parent().ok_or("this program is in no directory")?;
        let dir = tempfile::Builder::new().prefix("bench-").tempdir_in(beside)?;
        let flush = machine::flush_time(dir.path(), machine::FLUSHES)?;
        Ok(Bench { dir, quick, flush })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The duration of one round of a figure.
    pub(crate) fn span(&self, full: Duration) -> Duration {
        if self.quick { full / 4 } else { full }
    }

    /// The number of rounds of a figure; for an odd number the median is one of the measured values.
    pub(crate) fn rounds(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(4) | 1 } else { full }
    }

    /// A fresh directory for one figure.
    pub(crate) fn place(&self, name: &str) -> Result<PathBuf> {
        let place = self.dir().join(name);
        std::fs::create_dir(&place)?;
        Ok(place)
    }

    /// A fresh directory. Several calls may use the same name.
    pub(crate) fn fresh(&self, name: &str) -> Result<PathBuf> {
        Ok(tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(self.dir())?.keep())
    }

    /// The public library, on the project of a figure.
    pub(crate) fn library(project: &Project) -> Result<banksman::Client> {
        let store = format!("sqlite:{}", project.folder().join("store.db").display());
        Ok(banksman::Project::find_in(project.root(), &store)?.open()?)
    }

    /// A fresh project for one figure, and its directory.
    pub(crate) fn project(&self, name: &str) -> Result<(Project, Client)> {
        let project = Project::init_at(&self.place(name)?, None)?;
        let client = project.open()?;
        Ok((project, client))
    }
}
