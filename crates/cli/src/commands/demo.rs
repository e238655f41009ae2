use clap::Args;

use super::Done;
use crate::context::Context;

/// See it at work.
#[derive(Debug, Args)]
pub(crate) struct Demo {}

impl Demo {
    pub(crate) fn run(self, _context: &Context) -> Done {
        Ok(0)
    }
}
