//! What can be asked of a project, one noun per file or folder: which rows a request needs, and what it decides inside of its
//! transaction. What they share is in `steps`.

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
