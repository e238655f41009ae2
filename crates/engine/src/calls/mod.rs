//! The requests to a project, one noun per file or folder: the rows that a request needs, and its decision inside of the
//! transaction. Shared helpers are in `steps`.

pub(crate) mod accounts;
pub(crate) mod bus;
pub(crate) mod decisions;
pub(crate) mod imports;
pub(crate) mod landings;
pub(crate) mod limits;
pub(crate) mod mailbox;
pub(crate) mod manual;
pub(crate) mod pause;
pub(crate) mod pipelines;
pub(crate) mod queues;
pub(crate) mod routes;
pub(crate) mod runbooks;
pub(crate) mod runs;
pub(crate) mod sections;
pub(crate) mod steps;
pub(crate) mod tasks;
pub(crate) mod workers;
pub(crate) mod workspaces;
