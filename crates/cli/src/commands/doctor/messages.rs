//! Messages in delivery. Their locks belong to no process, so the finding says what each message waits for.

use banksman_core::Liveness;
use banksman_core::decision::About;
use banksman_core::mailbox::Delivery;
use banksman_store::Key;

use super::{Entry, Examination, Finding};
use crate::failure::Failure;
use crate::format;

/// The upper bound on deliveries checked.
const LIMIT: u32 = 100;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let rows = examination.reader.view().load(&[Key::UnsettledDeliveries { limit: LIMIT }, Key::OpenDecisions].into())?;
    let host = examination.project.host();
    let entry = |delivery: &Delivery| {
        let dispatch = delivery.dispatch.as_ref()?;
        let (id, run, lock) = (&delivery.id, &dispatch.run, delivery.target.dispatch_lock());
        let text = match &dispatch.dispatcher {
            None => {
                let since = format::span(rows.lease - dispatch.began.lease);
                let asked = rows
                    .backlog
                    .decisions
                    .values()
                    .filter(|decision| decision.is_open())
                    .find(|decision| matches!(&decision.question.about, About::Run { run: about, .. } if about == run));
                let asked = asked.map(|asked| format!("; answer with: banksman decisions resolve {} N", asked.id));
                format!(
                    "message {id} is in the prompt of run {run}, which was claimed {since} ago and whose session has not been seen yet: the message holds \
                     {lock}{}",
                    asked.unwrap_or_default()
                )
            }
            Some(process) => match host.probe(process) {
                Liveness::Dead | Liveness::OtherBoot => {
                    format!(
                        "the process {} that sent message {id} to run {run} is dead: a runner, or the next send, frees {lock}",
                        process.pid
                    )
                }
                Liveness::Alive => format!("process {} sends message {id} to run {run}, and holds {lock}", process.pid),
                Liveness::Unknown => format!("a process on another machine sends message {id} to run {run}, and holds {lock}"),
            },
        };
        Some(Entry::new(text))
    };
    Ok(Finding::notes("messages", "no message is being sent", rows.deliveries.values().filter_map(entry).collect()))
}
