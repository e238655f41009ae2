//! Keepers that do not answer. Their sessions continue without supervision.

use banksman_adapters::keeper::Silence;
use banksman_runtime::inspect;

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let (asked, silent) = inspect::silent_keepers(&mut examination.reader, &examination.project)?;
    let entries = silent.into_iter().map(|(run, silence)| {
        let keeper = run.session.as_ref().map_or_else(String::new, |session| format!(" (process {})", session.keeper));
        let entry = Entry::new(format!("the keeper{keeper} of run {} of task {} does not answer: {silence}", run.id, run.task));
        // A person decides whether the work continues or ends.
        match (&run.session, silence) {
            (Some(session), Silence::Stopped) => {
                entry.solved_by(format!("kill -CONT {}, or end it: banksman sessions kill {}", session.keeper, run.id))
            }
            _ => entry.solved_by(format!("banksman sessions kill {}", run.id)),
        }
    });
    let fine = match asked {
        0 => "no live run on this machine".to_owned(),
        1 => "the keeper of 1 run on this machine answers".into(),
        several => format!("the keepers of {several} runs on this machine answer"),
    };
    Ok(Finding::faults("keepers", &fine, entries.collect()))
}
