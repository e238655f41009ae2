//! Where a new task stands in the backlog: what all ways to hand one over have in common.

use banksman_core::backlog::{Edge, Section};
use banksman_core::task::dependencies::{self, EDGE_LIMIT};
use banksman_core::task::{Spec, Workspace};
use banksman_core::{Epoch, Label, TaskId, Title};
use banksman_store::Reader;
use clap::{Args, ValueEnum};

use super::spec;
use crate::commands::find;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The section it belongs to
    #[arg(long, value_name = "SECTION")]
    section: Option<String>,
    /// A mark to find it by; may be given more than once
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<Label>,
    /// What must be completed first, separated by commas; may be given more than once
    #[arg(long, value_name = "TASKS")]
    depends_on: Vec<String>,
    /// It is enough that those are over, however they ended
    #[arg(long, requires = "depends_on")]
    allow_failed: bool,
    /// Higher comes first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// It is part of the task whose run calls this: cancelled with it, listed below it
    #[arg(long)]
    child: bool,
    /// Where it works: in the project, or in a directory of its own
    #[arg(long, value_name = "WHERE", default_value = "none")]
    workspace: Where,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Where {
    /// In the project's directory
    None,
    /// In a directory of its own
    Dir,
}

/// A task that has its place, and no work yet.
pub(crate) struct Placed {
    pub(crate) spec: Spec,
    pub(crate) section: Option<Section>,
    pub(crate) depends_on: Vec<Edge>,
    /// The run that hands it over, if it is a child.
    pub(crate) by: Option<Epoch>,
}

impl Place {
    /// Finds all that was named.
    pub(crate) fn find(self, title: Title, reader: &mut Reader) -> Result<Placed, Failure> {
        let (parent, by) = if self.child { parent()? } else { (None, None) };
        let labels = spec::labels(self.labels)?;
        let section = self.section.as_deref().map(|name| find::section(reader, name)).transpose()?;
        let depends_on = edges(reader, &self.depends_on, self.allow_failed)?;
        let spec = Spec {
            section: section.as_ref().map(|section| section.id.clone()),
            parent,
            labels,
            priority: self.priority,
            workspace: match self.workspace {
                Where::None => Workspace::None,
                Where::Dir => Workspace::Dir,
            },
            ..Spec::new(title)
        };
        Ok(Placed { spec, section, depends_on, by })
    }
}

/// The task that creates another, with the number of the run that speaks for it.
fn parent() -> Result<(Option<TaskId>, Option<Epoch>), Failure> {
    let (task, epoch) = super::inherited()?.ok_or_else(|| {
        Failure::usage("--child only makes sense inside of a run: BANKSMAN_TASK and BANKSMAN_RUN_EPOCH are not set")
            .hint("leave out --child to add a task of its own")
    })?;
    Ok((Some(task), Some(epoch)))
}

/// The dependencies that these lists name.
pub(super) fn edges(reader: &mut Reader, lists: &[String], allow_failed: bool) -> Result<Vec<Edge>, Failure> {
    let names = dependencies::names(lists.iter().map(String::as_str));
    // Before each of them is looked for.
    if names.len() > EDGE_LIMIT {
        return Err(Failure::usage(dependencies::DagError::TooMany(names.len())));
    }
    let ids = find::task_ids(reader, names)?;
    Ok(ids.into_iter().map(|on| Edge { on, allow_failed }).collect())
}
