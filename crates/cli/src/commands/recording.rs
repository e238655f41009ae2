//! Runs whose session has ended while no runner was there: whoever looks at them records their end.

use std::os::fd::AsFd;
use std::time::Duration;

use banksman_runtime::{Project, inspect, recover_run};
use banksman_store::Reader;

use crate::context::Context;
use crate::failure::Failure;

/// How long the record of one end may take: another process may be at it.
const RECORD_WITHIN: Duration = Duration::from_secs(5);

/// Records the ends that nobody has recorded. Whoever cannot write only looks: such runs are then shown as ended, not recorded
/// yet.
pub(crate) fn record_ended(context: &Context, project: &Project, reader: &mut Reader) -> Result<(), Failure> {
    let ended = inspect::unrecorded(reader, project)?;
    if ended.is_empty() {
        return Ok(());
    }
    let Ok(client) = context.client_of_nobody() else { return Ok(()) };
    // Nothing cancels it, but it does not take long.
    let (never, _open) = std::io::pipe().map_err(|error| Failure::system("make a pipe", error))?;
    for run in ended {
        recover_run(&client, context.sessions(project), run, never.as_fd(), RECORD_WITHIN, &mut |_| {}).ok();
    }
    Ok(())
}
