//! Runbooks: what is written in them, and what of it is in force.

mod apply;

use clap::{Args, Subcommand};

use super::Done;
use crate::context::Context;

/// Runbooks: files that say what pipelines, workers and routes do.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman runbooks apply\n  banksman runbooks drop nightly")]
pub(crate) struct Runbooks {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Apply(apply::Apply),
    Drop(apply::Drop),
}

impl Runbooks {
    pub(crate) fn name(&self) -> &'static str {
        match self.verb {
            Verb::Apply(_) => "runbooks apply",
            Verb::Drop(_) => "runbooks drop",
        }
    }

    pub(crate) fn run(self, context: &Context) -> Done {
        match self.verb {
            Verb::Apply(apply) => apply.run(context),
            Verb::Drop(drop) => drop.run(context),
        }
    }
}
