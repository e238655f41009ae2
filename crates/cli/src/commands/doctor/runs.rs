//! Runs whose keeper is dead, and runs that ended without a runner. The next runner ends their remaining processes;
//! where it cannot prove that there are none, it asks a person.

use banksman_adapters::keeper::Found;
use banksman_runtime::inspect;

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let files = examination.context.sessions(&examination.project);
    let (_, live) = inspect::sessions(&mut examination.reader, &examination.project)?;
    let entry = |live: &inspect::LiveRun| {
        let (run, title) = (&live.run.id, &live.title);
        let is_dead = matches!(files.read_record(run), Ok(Found::Dead(_)));
        match &live.attended.asked {
            Some(decision) => {
                let text = format!("run {run} of {title}: its keeper is dead, and its processes may still be alive");
                Some(Entry::new(text).solved_by(format!("banksman decisions resolve {decision} --recommended")))
            }
            None if is_dead => {
                Some(Entry::new(format!("run {run} of {title}: its keeper is dead; a runner ends it")).solved_by("banksman run"))
            }
            None => None,
        }
    };
    let mut entries: Vec<Entry> = live.iter().filter_map(entry).collect();
    match live.iter().filter(|live| live.attended.is_unrecorded()).count() {
        0 => {}
        1 => entries.push(Entry::new("1 run has ended and is not recorded yet").solved_by("banksman status")),
        several => {
            entries.push(Entry::new(format!("{several} runs have ended and are not recorded yet")).solved_by("banksman status"))
        }
    }
    let finding = if live.iter().any(|live| live.attended.asked.is_some()) { Finding::faults } else { Finding::notes };
    let fine = match live.len() {
        0 => "no live runs".to_owned(),
        1 => "1 live run; its keeper was not found dead".into(),
        several => format!("{several} live runs; none of their keepers was found dead"),
    };
    Ok(finding("runs", &fine, entries))
}
