//! `… cleanup`: frees grants that are dead or stale.

use banksman_adapters::host::Host;
use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::{Command, Coordination};
use banksman_core::resource::lock;
use banksman_core::{Epoch, Grant, HolderId, Liveness, Name, Now, Span, Stamp, TaskId, Ticket, WorkClaim};
use banksman_engine::{Seen, TaskRequest};
use banksman_runtime::Client;
use banksman_store::Reader;
use serde::Serialize;

use super::super::ExitResult;
use super::{holder_state, is_over};
use crate::context::Context;
use crate::failure::Failure;
use crate::table;

/// A grant that is over, with its state.
pub(crate) struct Stale {
    pub(crate) resource: Resource,
    pub(crate) grant: Grant,
    pub(crate) state: &'static str,
}

/// The JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cleaned<'a> {
    dry_run: bool,
    released: Vec<ReleasedGrant<'a>>,
    removed_waits: Vec<RemovedWait<'a>>,
}

#[derive(Serialize)]
struct ReleasedGrant<'a> {
    name: &'a Name,
    holder: &'a HolderId,
    epoch: Epoch,
    reason: &'a str,
}

#[derive(Serialize)]
struct RemovedWait<'a> {
    task: &'a Option<TaskId>,
    holder: &'a HolderId,
    ticket: Ticket,
    reason: &'a str,
}

/// Finds grants that are over and releases them, unless this is a dry run. The store checks each one again, so a holder
/// that comes back in between keeps its grant.
pub(crate) fn cleanup(context: &Context, kind: Kind, dry_run: bool) -> ExitResult {
    let client = context.client()?;
    let Grants { checked, stale, waits, .. } = stale_grants(&mut client.reader()?, client.host())?;
    let checked = checked.only(kind);
    let mut freed = Vec::new();
    for entry in stale.into_iter().filter(|entry| entry.resource.kind == kind) {
        if dry_run || reap(&client, &entry)? {
            freed.push(entry);
        }
    }
    let mut removed = Vec::new();
    for wait in waits.into_iter().filter(|_| kind == Kind::Lock) {
        if dry_run || drop_wait(&client, &wait)? {
            removed.push(wait);
        }
    }
    let released = freed.iter().map(|Stale { resource, grant, state }| ReleasedGrant {
        name: &resource.name,
        holder: &grant.claim.holder,
        epoch: grant.epoch,
        reason: state,
    });
    let waits =
        removed.iter().map(|wait| RemovedWait { task: &wait.task, holder: &wait.holder, ticket: wait.ticket, reason: "dead" });
    let view = Cleaned { dry_run, released: released.collect(), removed_waits: waits.collect() };
    let human = if freed.is_empty() && removed.is_empty() {
        format!("nothing to clean up: {}", checked.describe())
    } else {
        let title = if dry_run { "WOULD RELEASE" } else { "RELEASED" };
        let row = |entry: &Stale| {
            vec![
                entry.resource.name.to_string(),
                entry.grant.claim.holder.to_string(),
                entry.state.to_owned(),
                entry.grant.epoch.to_string(),
            ]
        };
        let wait = |wait: &WorkClaim| vec![claim_words(wait), wait.holder.to_string(), "dead".into(), "-".into()];
        let rows = freed.iter().map(row).chain(removed.iter().map(wait)).collect();
        table::render(&[title, "HOLDER~", "REASON~", "EPOCH>?"], rows)
    };
    context.printer.result(&view, human)
}

/// The result of checking all grants.
pub(crate) struct Grants {
    pub(crate) checked: Checked,
    /// The grants that are over and that no later request has replaced.
    pub(crate) stale: Vec<Stale>,
    /// The waiting claims whose process is dead, or was not seen for too long.
    pub(crate) waits: Vec<WorkClaim>,
    /// The claims whose process was woken and has not answered, with the time since then.
    pub(crate) unanswered: Vec<(WorkClaim, Span)>,
}

/// The number of grants checked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Checked {
    locks: Option<usize>,
    slots: Option<usize>,
    /// The waiting claims.
    waits: Option<usize>,
    /// The grants without a time limit whose processes cannot be probed from this machine.
    unseen: usize,
}

impl Checked {
    fn only(self, kind: Kind) -> Checked {
        match kind {
            Kind::Lock => Checked { slots: None, ..self },
            Kind::Semaphore => Checked { locks: None, waits: None, ..self },
        }
    }

    /// `2 locks are held, 1 holder has slots; all holders are alive and within their leases`.
    pub(crate) fn describe(self) -> String {
        let number = |count: usize, one: &str, several: &str| match count {
            0 => format!("no {one}"),
            1 => format!("1 {one}"),
            count => format!("{count} {several}"),
        };
        let locks = self.locks.map(|count| number(count, "lock is held", "locks are held"));
        let slots = self.slots.map(|count| number(count, "holder has slots", "holders have slots"));
        let waits = self.waits.filter(|count| *count > 0).map(|count| number(count, "claim waits", "claims wait"));
        let any_wait = waits.is_some();
        let said: Vec<String> = locks.into_iter().chain(slots).chain(waits).collect();
        let any = self.locks.unwrap_or(0) + self.slots.unwrap_or(0) > 0;
        let none = match (any, any_wait) {
            (true, true) => "; all holders are alive and within their leases, and all waiting processes are alive",
            (true, false) => "; all holders are alive and within their leases",
            (false, true) => "; all waiting processes are alive",
            (false, false) => "",
        };
        let unseen = match self.unseen {
            0 => String::new(),
            1 => " (the processes of 1 holder cannot be checked from this machine)".into(),
            several => format!(" (the processes of {several} holders cannot be checked from this machine)"),
        };
        format!("{}{none}{unseen}", said.join(", "))
    }
}

/// Checks every lock and every slot that is held, and every waiting claim.
pub(crate) fn stale_grants(reader: &mut Reader, host: &Host) -> Result<Grants, Failure> {
    let snapshot = reader.view().snapshot()?;
    let at = snapshot.at();
    let states = grants(&snapshot.coordination).map(|(resource, grant)| {
        let state = holder_state(grant, at, host);
        Stale { resource, grant: grant.clone(), state }
    });
    let states: Vec<Stale> = states.collect();
    let count = |kind: Kind| states.iter().filter(|entry| entry.resource.kind == kind).count();
    let is_unseen = |entry: &&Stale| {
        let processes = entry.grant.watch();
        entry.grant.deadline().is_none() && processes.iter().any(|process| host.probe(process) == Liveness::Unknown)
    };
    let unseen = states.iter().filter(is_unseen).count();
    let waiting = || snapshot.coordination.claims.values().filter(|claim| claim.waits().is_some());
    let (locks, slots, waits) = (count(Kind::Lock), count(Kind::Semaphore), waiting().count());
    let checked = Checked { locks: Some(locks), slots: Some(slots), waits: Some(waits), unseen };
    let waits = waiting().filter(|claim| is_abandoned(claim, at, host)).cloned().collect();
    let stale = states.into_iter().filter(|entry| is_over(entry.state)).collect();
    let now = Now { lease: at.lease, wall: at.wall, ..Now::default() };
    let others = waiting().filter(|claim| !is_abandoned(claim, at, host));
    let unanswered = others.filter_map(|claim| Some((claim.clone(), at.lease - claim.unanswered(&now)?))).collect();
    Ok(Grants { checked, stale, waits, unanswered })
}

/// Whether the process of a waiting claim is dead, or was not seen for too long.
fn is_abandoned(claim: &WorkClaim, at: Stamp, host: &Host) -> bool {
    let Some(terms) = claim.waits() else { return false };
    let is_dead = matches!(host.probe(&terms.standing.process), Liveness::Dead | Liveness::OtherBoot);
    let dead = is_dead.then(|| terms.standing.process.clone()).into_iter().collect();
    claim.is_over(&Now { lease: at.lease, wall: at.wall, dead, ..Now::default() })
}

/// The purpose of a waiting claim.
pub(crate) fn claim_words(claim: &WorkClaim) -> String {
    match &claim.task {
        Some(task) => format!("wait for task {task}"),
        None => "wait for the end of tasks".into(),
    }
}

/// Removes a waiting claim if the store agrees that it is abandoned. Returns whether the claim is gone.
pub(crate) fn drop_wait(client: &Client, claim: &WorkClaim) -> Result<bool, Failure> {
    let probes =
        claim.waits().map(|terms| &terms.standing.process).map(|process| (process.clone(), client.host().probe(process)));
    let seen = Seen { probes: probes.into_iter().collect(), ..Seen::default() };
    let resources = claim.parts.iter().map(|part| part.resource.clone()).collect();
    client.request(TaskRequest::Leave { ticket: claim.ticket, resources, seen: Some(seen) })?;
    Ok(!client.reader()?.view().snapshot()?.coordination.claims.contains_key(&claim.ticket))
}

/// Every grant of every lock and semaphore.
fn grants(coordination: &Coordination) -> impl Iterator<Item = (Resource, &Grant)> {
    let locks = coordination.locks.values().filter_map(|lock| match &lock.state {
        lock::State::Free => None,
        lock::State::Held(grant) => Some((Resource { kind: Kind::Lock, name: lock.name.clone() }, &**grant)),
    });
    let slots = coordination.semaphores.values().flat_map(|semaphore| {
        let resource = Resource { kind: Kind::Semaphore, name: semaphore.name.clone() };
        semaphore.holders.values().map(move |grant| (resource.clone(), grant))
    });
    locks.chain(slots)
}

/// Releases a grant if the store agrees that it is over. Returns whether the grant is gone.
pub(crate) fn reap(client: &Client, entry: &Stale) -> Result<bool, Failure> {
    let probes = entry.grant.watch().into_iter().map(|process| (client.host().probe(&process), process));
    let probes = probes.map(|(liveness, process)| (process, liveness)).collect();
    client.ask(Command::reap(entry.resource.clone()), probes)?;
    // The store removes dead holders before the state machine steps, so the outcome does not say it; the rows do.
    let snapshot = client.reader()?.view().snapshot()?;
    Ok(!grants(&snapshot.coordination).any(|(resource, grant)| resource == entry.resource && grant.epoch == entry.grant.epoch))
}
