//! The place of a project's rows: as a URL, and as it is used.

use std::path::{Path, PathBuf};

use banksman_store::postgres::Server;

use super::ProjectError;
use crate::config::masked;
use crate::trust::real;

#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// In this file.
    Sqlite(PathBuf),
    /// In this database, under this id.
    Postgres { server: Server, id: String },
}

/// A store given by its URL.
#[derive(Debug, Clone)]
pub enum StoreUrl {
    /// `sqlite:PATH`
    Sqlite(PathBuf),
    /// `postgres://…`
    Postgres(Server),
}

impl StoreUrl {
    /// Parses a URL. `variable` looks up what a PostgreSQL URL leaves out, such as `PGPASSWORD`.
    pub fn parse(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<StoreUrl, ProjectError> {
        let bad = |what: String| ProjectError::Url { url: masked(url), what };
        if let Some(path) = url.strip_prefix("sqlite:") {
            return if path.is_empty() { Err(bad("a path is missing".into())) } else { Ok(StoreUrl::Sqlite(path.into())) };
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let client = format!("banksman {}", std::process::id());
            return Server::parse(url, variable, &client).map(StoreUrl::Postgres).map_err(bad);
        }
        Err(bad("it must begin with sqlite: or postgres://".into()))
    }

    /// The place as text, as a project with this id reports it.
    pub(super) fn describe(&self, id: &str) -> String {
        match self {
            StoreUrl::Sqlite(path) => path.display().to_string(),
            StoreUrl::Postgres(server) => format!("{} (project {id})", server.place()),
        }
    }

    /// The folder to which trust in a store there is bound. The file that names the database project of a folder comes
    /// with the repository, so a hostile clone could name a project that the user trusts, to have its tasks started
    /// there.
    pub(super) fn clone_of(&self, root: &Path) -> Option<PathBuf> {
        match self {
            StoreUrl::Sqlite(_) => None,
            StoreUrl::Postgres(_) => Some(real(root)),
        }
    }
}
