//! The rules for the claims of people, checked after every commit.

use std::collections::BTreeSet;

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::grant::Grant;
use banksman_core::resource::lock;
use banksman_core::resource::work_claim::{Part, WorkClaim};
use banksman_core::task::State;
use banksman_core::{HolderId, Lease, Span, TaskId};
use banksman_engine::{Reply, Request, RunOutcome, RunRequest, TaskOutcome, TaskRequest};
use banksman_store::Snapshot;

use crate::clock::Ms;
use crate::commit::CommittedCall;
use crate::report::Checker;
use crate::world::World;

/// How long a runner needs at most to adopt a run, or to end an expired claim: one runner dies, the next one starts,
/// its transactions are lost, and the others are busy.
const GRACE: Ms = 15_000;

/// The grants of a resource.
pub(super) fn grants<'a>(coordination: &'a Coordination, resource: &Resource) -> Vec<&'a Grant> {
    match resource.kind {
        Kind::Lock => match coordination.locks.get(&resource.name).map(|lock| &lock.state) {
            Some(lock::State::Held(grant)) => vec![grant],
            Some(lock::State::Free) | None => Vec::new(),
        },
        Kind::Semaphore => coordination.semaphores.get(&resource.name).into_iter().flat_map(|one| one.holders.values()).collect(),
    }
}

fn grant_of<'a>(coordination: &'a Coordination, part: &Part) -> Option<&'a Grant> {
    grants(coordination, &part.resource).into_iter().find(|grant| Some(grant.epoch) == part.epoch)
}

/// All resources that can be held.
fn resources(rows: &Snapshot) -> Vec<Resource> {
    let locks = rows.coordination.locks.keys().map(|name| Resource { kind: Kind::Lock, name: name.clone() });
    let semaphores = rows.coordination.semaphores.keys().map(|name| Resource { kind: Kind::Semaphore, name: name.clone() });
    locks.chain(semaphores).collect()
}

impl World<'_> {
    /// Compares the rows before and after a commit.
    pub(super) fn check_rows(&mut self, before: &Snapshot, after: &Snapshot, calls: &[CommittedCall<'_>]) {
        let at = calls.first().map_or(before.lease, |call| call.note.lease);
        self.check_owners(after);
        self.check_claims(after, at);
        self.check_sections(after);
        self.check_overtaking(before, after, calls, at);
        self.check_refusals(before, calls);
        self.check_adoption(after, calls);
        if let [call] = calls {
            self.check_lost(before, call.request, call.reply);
        }
    }

    /// No lock without a live owner: a live run, a claim that is held, or a person who requested that lock alone.
    fn check_owners(&mut self, rows: &Snapshot) {
        let runs: BTreeSet<HolderId> =
            rows.backlog.runs.values().filter(|run| run.is_live()).map(|run| run.id.holder()).collect();
        for resource in resources(rows) {
            for grant in grants(&rows.coordination, &resource) {
                let has = |part: &Part| part.resource == resource && part.epoch == Some(grant.epoch);
                let is_claimed = rows.coordination.claims.values().any(|claim| claim.parts.iter().any(has));
                let is_person = !resource.name.is_work() && grant.claim.holder.as_str().starts_with('q');
                let is_owned = is_person || is_claimed || runs.contains(&grant.claim.holder);
                self.verdict
                    .expect(Checker::Owners, is_owned, || format!("{resource} of {} has no live owner", grant.claim.holder));
            }
        }
        for run in rows.backlog.runs.values().filter(|run| run.is_live()) {
            for hold in &run.holds {
                let kind =
                    if matches!(hold.need, banksman_core::task::Need::Slots { .. }) { Kind::Semaphore } else { Kind::Lock };
                let resource = Resource { kind, name: hold.need.name().clone() };
                let is_held = grants(&rows.coordination, &resource).iter().any(|grant| grant.epoch == hold.epoch);
                self.verdict.expect(Checker::Owners, is_held, || format!("{} lives without {resource}", run.id));
            }
        }
    }

    /// No manual task without a live claim: a claim that has all its parts, renews them together, and has not expired
    /// long ago.
    fn check_claims(&mut self, rows: &Snapshot, at: Lease) {
        for task in rows.backlog.tasks.values() {
            let mut held = rows.coordination.claims.values().filter(|claim| claim.task.as_ref() == Some(&task.id));
            let claim = held.find(|claim| claim.waits().is_none());
            let own = claim.and_then(|claim| claim.parts.iter().find(|part| part.resource.name == task.id.lock())?.epoch);
            let recorded = match &task.state {
                State::Manual { epoch, .. } => Some(*epoch),
                _ => None,
            };
            self.verdict.expect(Checker::Claims, own == recorded, || {
                format!("{}: the task says {recorded:?}, its claim {own:?}", task.id)
            });
            if let State::Manual { until: Some(until), .. } = &task.state {
                let is_timely = at < *until + Span::from_ms(GRACE) || self.time_since_late() < GRACE;
                self.verdict.expect(Checker::Claims, is_timely, || format!("the claim on {} ended long ago", task.id));
            }
            // An expired claim may lose its parts to others, until the task is requested.
            let is_up = matches!(&task.state, State::Manual { until: Some(until), .. } if at >= *until);
            let claim = claim.filter(|_| !is_up);
            claim.into_iter().for_each(|claim| self.check_parts(claim, &task.id, &rows.coordination));
        }
    }

    fn check_parts(&mut self, claim: &WorkClaim, task: &TaskId, coordination: &Coordination) {
        let missing = claim.parts.iter().find(|part| grant_of(coordination, part).is_none());
        self.verdict.expect(Checker::Claims, missing.is_none(), || format!("the claim on {task} is without {missing:?}"));
        // A section is held without a lease.
        let leased = claim.parts.iter().filter(|part| !part.resource.name.is_section());
        let ends: BTreeSet<_> = leased.filter_map(|part| grant_of(coordination, part)).map(|grant| grant.deadline()).collect();
        self.verdict.expect(Checker::Claims, ends.len() <= 1, || format!("parts of the claim on {task} end at {ends:?}"));
    }

    /// A person who works in an exclusive section is alone there.
    fn check_sections(&mut self, rows: &Snapshot) {
        for section in rows.backlog.sections.values() {
            let is_here =
                |task: &TaskId| rows.backlog.tasks.get(task).is_some_and(|task| task.spec.section.as_ref() == Some(&section.id));
            let manual = rows.backlog.tasks.values().filter(|task| is_here(&task.id));
            let manual: BTreeSet<&HolderId> = manual
                .filter_map(|task| match &task.state {
                    State::Manual { holder, .. } => Some(holder),
                    _ => None,
                })
                .collect();
            let runs = rows.backlog.runs.values().filter(|run| run.is_live() && is_here(&run.task));
            let runs: Vec<_> = runs.map(|run| &run.id).collect();
            let is_alone = manual.len() + runs.len().min(1) <= 1;
            self.verdict
                .expect(Checker::Sections, is_alone, || format!("{} has {runs:?}, and is worked in by {manual:?}", section.id));
        }
    }

    /// Every orphaned run can be adopted: a runner that tries is not refused, and no run stays without a runner.
    fn check_adoption(&mut self, rows: &Snapshot, calls: &[CommittedCall<'_>]) {
        for call in calls {
            if let (Request::Run(RunRequest::Adopt { what, .. }), Reply::Run(outcome)) = (call.request, call.reply) {
                // Another runner may have been faster.
                let is_orphan =
                    rows.backlog.runs.get(&what.run.id).is_some_and(|run| run.is_live() && self.is_gone(rows, &run.owner));
                let is_refused = is_orphan && matches!(outcome, RunOutcome::OwnerLives | RunOutcome::Elsewhere);
                self.verdict
                    .expect(Checker::Adoption, !is_refused, || format!("{} may not be adopted: {outcome:?}", what.run.id));
            }
        }
        let now = self.clock.now();
        let live = rows.backlog.runs.values().filter(|run| run.is_live() && self.is_gone(rows, &run.owner));
        let live: BTreeSet<_> = live.map(|run| run.id.clone()).collect();
        self.people.orphans.retain(|run, _| live.contains(run));
        for run in live {
            self.people.orphans.entry(run).or_insert(now);
        }
        let is_timely = self.time_since_late() < GRACE;
        let mut long = self.people.orphans.iter().filter(|(_, since)| !is_timely && now - **since > GRACE);
        let long = long.next().map(|(run, _)| run.clone());
        self.verdict.expect(Checker::Adoption, long.is_none(), || format!("no runner adopts {long:?}"));
    }

    /// A claim that has lost a part learns that at its next call.
    fn check_lost(&mut self, before: &Snapshot, request: &Request, reply: &Reply) {
        let Request::Task(request) = request else { return };
        let (TaskRequest::Renew { id, .. } | TaskRequest::GiveBack { id, .. } | TaskRequest::Finish { id, .. }) = request else {
            return;
        };
        let mut claims = before.coordination.claims.values().filter(|claim| claim.waits().is_none());
        let Some(claim) = claims.find(|claim| claim.task.as_ref() == Some(id)) else { return };
        let is_complete = claim.parts.iter().all(|part| grant_of(&before.coordination, part).is_some());
        let is_accepted = matches!(reply, Reply::Task(TaskOutcome::Renewed(_) | TaskOutcome::Stepped(..)));
        self.verdict.expect(Checker::Claims, is_complete || !is_accepted, || {
            format!("{} has lost a part of its claim on {id}, and is told {reply:?}", claim.holder)
        });
    }

    /// In the end nothing is held, no claim waits, and no run is live.
    pub(crate) fn check_people_at_the_end(&mut self) {
        let Some(rows) = self.claim_rows() else { return };
        let held = rows.coordination.locks.values().filter(|lock| lock.state != lock::State::Free || !lock.waiters.is_empty());
        let held: Vec<String> = held.map(|lock| lock.name.to_string()).collect();
        self.verdict.expect(Checker::Left, held.is_empty(), || format!("still held or waited for: {}", held.join(", ")));
        let slots = rows.coordination.semaphores.values().flat_map(|one| one.holders.keys()).count();
        self.verdict.expect(Checker::Left, slots == 0, || format!("{slots} still hold slots"));
        let claims: Vec<_> = rows.coordination.claims.values().collect();
        self.verdict.expect(Checker::Left, claims.is_empty(), || format!("claims are left: {claims:?}"));
        let live = rows.backlog.runs.values().filter(|run| run.is_live()).count();
        self.verdict.expect(Checker::Left, live == 0, || format!("{live} runs are left"));
    }
}
