//! Locks and slots whose holder is dead or whose lease has expired, and claims of dead processes that still wait. The
//! next request skips them, so they are no fault.

use super::{Entry, Examination, Finding};
use crate::commands::resources;
use crate::failure::Failure;
use crate::format;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let resources::Grants { checked, stale, waits, unanswered } =
        resources::stale_grants(&mut examination.reader, examination.project.host())?;
    let client =
        if examination.fix && !(stale.is_empty() && waits.is_empty()) { Some(examination.context.client()?) } else { None };
    let mut entries = Vec::new();
    for grant in &stale {
        let entry = Entry::new(format!("{}: {} is {}", grant.resource, grant.grant.claim.holder, grant.state));
        entries.push(match &client {
            None => entry.fixable(),
            Some(client) if resources::reap(client, grant)? => entry.fixed("released"),
            // The holder came back in between.
            Some(_) => entry,
        });
    }
    for wait in &waits {
        let entry = Entry::new(format!("{} of {}: its process is dead", resources::claim_words(wait), wait.holder));
        entries.push(match &client {
            None => entry.fixable(),
            Some(client) if resources::drop_wait(client, wait)? => entry.fixed("removed"),
            Some(_) => entry,
        });
    }
    // An unanswered wait keeps its place; a person decides whether its process continues.
    for (wait, silent) in &unanswered {
        let (what, silent) = (resources::claim_words(wait), format::span(*silent));
        let entry = Entry::new(format!("{what} of {}: its process was woken and has not answered for {silent}", wait.holder));
        entries.push(match wait.waits().map(|terms| terms.standing.process.pid) {
            Some(pid) => entry.solved_by(format!("kill -CONT {pid}, or end it: kill -KILL {pid}")),
            None => entry,
        });
    }
    Ok(Finding::notes("holders", &checked.describe(), entries))
}
