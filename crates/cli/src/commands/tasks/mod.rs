//! One file per subcommand; `view` formats tasks.

mod add;
pub(crate) mod agents;
mod claim;
mod end;
mod import;
mod land_args;
mod list;
mod logs;
mod logs_many;
mod refused;
mod report;
mod show;
mod spec;
mod task_args;
mod update;
mod view;
mod visit;
mod wait;
mod workspace;

use banksman_core::backlog::Runner;
use banksman_core::{Epoch, Liveness, TaskId};
use banksman_runtime::{Client, caller};
use banksman_store::{Key, Reader};

pub(crate) use claim::speaker;
pub(crate) use end::{cancel_all, delete_all, remove_done};
pub(crate) use list::List;
pub(crate) use logs::Logs;
pub(crate) use refused::refused;
pub(crate) use task_args::{FoundTask, TaskArgs};
pub(crate) use view::{brief, coloured, error};

use crate::failure::Failure;

subcommands! {
    /// Add and manage tasks.
    ///
    /// A task is named by its id, by its title, or by the beginning of its id.
    #[command(
        after_help = "Examples:\n  banksman tasks add 'Run the tests' --run 'make test'\n  banksman tasks add 'Release' --run ./release.sh --depends-on 'Run the tests'\n  banksman tasks list"
    )]
    pub(crate) noun Tasks {
        Add(Box<add::Add>),
        Import(import::Import),
        List(list::List),
        Show(show::Show),
        Update(Box<update::Update>),
        Take(claim::Take),
        Release(claim::Release),
        Wait(wait::Wait),
        Heartbeat(report::Heartbeat),
        Done(report::Done),
        Fail(report::Fail),
        Ask(report::Ask),
        Cancel(end::Cancel),
        Retry(end::Retry),
        Delete(end::Delete),
        Open(visit::Open),
        Diff(visit::Diff),
        Logs(logs::Logs),
    }
}

/// Whether a runner lives. A runner on another machine cannot be probed, and counts as alive.
fn is_alive(client: &Client, runner: &Runner) -> bool {
    match client.host().probe(&runner.process) {
        Liveness::Alive | Liveness::Unknown => true,
        Liveness::Dead | Liveness::OtherBoot => false,
    }
}

/// The note that no runner is running.
pub(crate) fn runner_note(client: &Client, reader: &mut Reader) -> Result<Option<&'static str>, Failure> {
    let runners = reader.view().load(&[Key::Runners].into())?.tables.backlog.runners;
    Ok((!runners.values().any(|runner| is_alive(client, runner))).then_some(NO_RUNNER))
}

const NO_RUNNER: &str = "no runner is running; start one with: banksman run";

/// The task whose run this command is part of, with the epoch of that run.
pub(crate) fn inherited() -> Result<Option<(TaskId, Epoch)>, Failure> {
    Ok(caller::run()?.map(|caller| (caller.task, caller.epoch)))
}
