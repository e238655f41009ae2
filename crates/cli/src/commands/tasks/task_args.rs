//! The place of a new task in the backlog: the arguments that all commands share that create one.

use banksman_core::backlog::{Edge, Section};
use banksman_core::pipeline::plan::{Context as Vars, PlanLand, Text};
use banksman_core::task::dependencies::{self, EDGE_LIMIT};
use banksman_core::task::{Spec, Work};
use banksman_core::{Epoch, Label, TaskId, Title};
use banksman_runtime::Client;
use banksman_store::Reader;
use clap::Args;

use super::land_args::LandArgs;
use super::spec;
use super::workspace::WhereArgs;
use crate::commands::find;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    /// The section of the task
    #[arg(long, value_name = "SECTION")]
    section: Option<String>,
    /// A label; may be given more than once
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<Label>,
    /// Tasks that must be completed first, separated by commas; may be given more than once
    #[arg(long, value_name = "TASKS")]
    depends_on: Vec<String>,
    /// The dependencies only have to end, in any status
    #[arg(long, requires = "depends_on")]
    allow_failed: bool,
    /// Tasks with a higher priority start first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Add it as a child of the task of the calling run: cancelled and listed with it
    #[arg(long)]
    child: bool,
    #[command(flatten)]
    place: WhereArgs,
    #[command(flatten)]
    landing: LandArgs,
}

/// A task with its place in the backlog, and without work.
pub(crate) struct FoundTask {
    pub(crate) spec: Spec,
    pub(crate) section: Option<Section>,
    pub(crate) depends_on: Vec<Edge>,
    /// The epoch of the run that creates it, for a child.
    pub(crate) by: Option<Epoch>,
}

impl TaskArgs {
    /// Applies the worktree and landing of a plan. The arguments of the command line have precedence.
    pub(crate) fn with_landing(mut self, land: &PlanLand, vars: &Vars) -> TaskArgs {
        let name = |text: &Option<Text>| text.as_ref().and_then(|text| text.name(vars)).map(String::from);
        self.place.or_worktree(name(&land.branch));
        self.landing.or_into(name(&land.into));
        self
    }

    /// Resolves the names in the arguments.
    pub(crate) fn find(
        self,
        title: Title,
        work: Option<&Work>,
        client: &Client,
        reader: &mut Reader,
    ) -> Result<FoundTask, Failure> {
        let (parent, by) = if self.child { parent()? } else { (None, None) };
        let labels = spec::labels(self.labels)?;
        let section = self.section.as_deref().map(|name| find::section(reader, name)).transpose()?;
        let depends_on = edges(reader, &self.depends_on, self.allow_failed)?;
        let workspace = self.place.choose(client, reader, by.is_some(), work)?;
        let land = self.landing.choose(client, reader, parent.as_ref(), &workspace, work.is_some())?;
        let spec = Spec {
            section: section.as_ref().map(|section| section.id.clone()),
            parent,
            labels,
            priority: self.priority,
            workspace,
            land,
            ..Spec::new(title)
        };
        Ok(FoundTask { spec, section, depends_on, by })
    }
}

/// The task that creates a child, with the epoch of its calling run.
fn parent() -> Result<(Option<TaskId>, Option<Epoch>), Failure> {
    let (task, epoch) = super::inherited()?.ok_or_else(|| {
        Failure::usage("--child needs a run: BANKSMAN_TASK and BANKSMAN_RUN_EPOCH are not set")
            .hint("leave out --child to add a root task")
    })?;
    Ok((Some(task), Some(epoch)))
}

/// The dependencies in these lists of names.
pub(super) fn edges(reader: &mut Reader, lists: &[String], allow_failed: bool) -> Result<Vec<Edge>, Failure> {
    let mut names: Vec<&str> = Vec::new();
    for list in lists {
        // A title may contain commas.
        if list.contains(',') && find::is_title(reader, list)? {
            names.push(list);
        } else {
            names.extend(dependencies::names([list.as_str()]));
        }
    }
    // Checked before the lookups.
    if names.len() > EDGE_LIMIT {
        return Err(Failure::usage(dependencies::DagError::TooMany(names.len())));
    }
    let ids = find::task_ids(reader, names)?;
    Ok(ids.into_iter().map(|on| Edge { on, allow_failed }).collect())
}
