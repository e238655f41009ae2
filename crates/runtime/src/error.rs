//! Errors between a caller and the store.

use std::io;
use std::path::{Path, PathBuf};

use banksman_adapters::anchor::Gone;
use banksman_adapters::reentry::NotEntered;
use banksman_core::ids::NameError;
use banksman_store::StoreError;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This program must not start itself, and no other program was named.
    #[error(transparent)]
    NotEntered(#[from] NotEntered),
    /// The project's folder is no longer where it was when it was opened.
    #[error("the project was {}: {} is not its folder any more", gone_where(.gone), path.display())]
    Moved { path: PathBuf, gone: Gone },
    /// The user has neither made the store nor trusted it, so nothing in it is started.
    #[error(
        "the store {store} is not trusted: {}, so nothing of it is started",
        if *has_id { "you have not made it" } else { "an earlier version of banksman made it, and it has no id" }
    )]
    Untrusted {
        store: String,
        /// Whether it has an id. Earlier versions made none.
        has_id: bool,
    },
    /// The name is invalid or reserved.
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        source: io::Error,
    },
}

fn gone_where(gone: &Gone) -> String {
    match gone {
        Gone::Moved(folder) => format!("moved to {}", folder.parent().unwrap_or(Path::new("/")).display()),
        Gone::Removed => "removed".into(),
    }
}

impl Error {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { what, source }
    }
}
