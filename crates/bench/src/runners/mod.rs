//! Many runners in one project, on both databases: the cost of a task must depend on the work, not on the number of
//! runners.
//!
//! Every figure sets `limits.max_concurrent_runs` first, and is a ratio of two measurements of the same run where
//! possible.
//!
//! * [`sleeping`]: tasks that only take time, next to that time. [`rates`]: tasks that take no time.
//! * [`mod@costs`]: transactions, rows and wakeups for each task, counted at the connections.
//! * [`idle`]: idle runners. [`interference`]: the effect of a large task and a long snapshot on others.
//! * [`fleet`]: the runners, and the times of their work.

mod costs;
mod fleet;
pub(crate) mod idle;
pub(crate) mod interference;
pub(crate) mod rates;
pub(crate) mod sleeping;

pub(crate) use costs::measure as costs;

use banksman_runtime::{Project, StoreUrl};

use crate::bench::{Bench, Result};
use crate::postgres::{self, Server};
use crate::report::Row;
use crate::{program, tasks};

/// Run slots of each runner.
const SLOTS: usize = 4;

/// The database of a project.
pub(crate) enum Database {
    Sqlite,
    Postgres(Server),
}

/// A project of a figure.
pub(crate) struct Site {
    pub(crate) project: Project,
    /// The store's URL, unless it is in the project's folder.
    url: Option<String>,
}

/// Takes a figure on SQLite, and on PostgreSQL if that is installed.
fn on_both(bench: &Bench, figure: impl Fn(&Bench, &Database) -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    let mut rows = figure(bench, &Database::Sqlite)?;
    if let Some(server) = Server::installed(bench)? {
        rows.extend(figure(bench, &Database::Postgres(server))?);
    }
    Ok(rows)
}

impl Database {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Database::Sqlite => "SQLite",
            Database::Postgres(_) => "PostgreSQL",
        }
    }

    /// One of two values, by database.
    fn pick<T>(&self, sqlite: T, postgres: T) -> T {
        match self {
            Database::Sqlite => sqlite,
            Database::Postgres(_) => postgres,
        }
    }

    /// A fresh project with this many run slots.
    pub(crate) fn site(&self, bench: &Bench, name: &str, slots: usize) -> Result<Site> {
        match self {
            Database::Sqlite => Ok(Site { project: tasks::project(bench, name, slots)?, url: None }),
            Database::Postgres(server) => {
                let place = bench.place(&format!("{name}-postgres"))?;
                let url = server.url();
                let store = || StoreUrl::parse(&url, |_| None);
                let project = Project::init_at(&place, Some(store()?))?;
                let site = Site { project, url: Some(url.clone()) };
                program::done(&mut site.command(&["config", "set", "limits.max_concurrent_runs", &slots.to_string()])?)?;
                Ok(Site { project: Project::find_at(&place, Some(store()?))?, ..site })
            }
        }
    }
}

impl Site {
    /// The binary in this project.
    pub(crate) fn command(&self, args: &[&str]) -> Result<std::process::Command> {
        let mut command = program::command(&self.project, args)?;
        command.envs(self.url.iter().map(|url| (postgres::STORE_VARIABLE, url)));
        Ok(command)
    }

    /// A runner in this project with this many run slots. Its output is discarded.
    fn runner(&self, slots: usize, args: &[&str]) -> Result<std::process::Command> {
        let mut command = self.command(&[&["run", "--max-runs", &slots.to_string()], args].concat())?;
        command.stderr(std::process::Stdio::null());
        Ok(command)
    }
}
