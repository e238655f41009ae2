//! Runs whose session has ended while no runner was there: whoever looks at them records their end.

use banksman_runtime::Project;
use banksman_store::Reader;

use crate::context::Context;
use crate::failure::Failure;

/// Records the ends that nobody has recorded.
pub(crate) fn record_ended(context: &Context, project: &Project, reader: &mut Reader) -> Result<(), Failure> {
    let open = || context.client_of_nobody().ok();
    Ok(banksman_runtime::record_ended(project, &context.sessions(project), reader, &open)?)
}
