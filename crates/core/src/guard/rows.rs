//! Guard inputs from the rows of locks and semaphores.

use super::{GuardInputs, Topic, Wants};
use crate::resource::coordination::Coordination;
use crate::resource::grant::Grant;
use crate::resource::lock::State;
use crate::step::Now;
use crate::time::Lease;

impl Wants {
    /// The next instant at which time alone could change an answer: a wanted resource becomes free. No event reports
    /// that before the next holder takes it.
    pub fn next_deadline(&self, rows: &Coordination, now: &Now) -> Option<Lease> {
        let locks = self.locks.iter().filter_map(|name| rows.locks.get(&**name)).filter_map(|lock| match &lock.state {
            State::Free => None,
            State::Held(grant) => grant.deadline(),
        });
        let semaphores = self.semaphores.iter().filter_map(|name| rows.semaphores.get(&**name));
        let slots = semaphores.flat_map(|semaphore| semaphore.holders.values()).filter_map(Grant::deadline);
        locks.chain(slots).map(|end| end + now.patience).filter(|end| *end > now.lease).min()
    }
}

impl GuardInputs {
    /// Adds the inputs of others.
    pub fn extend(&mut self, other: GuardInputs) {
        self.locks.extend(other.locks);
        self.semaphores.extend(other.semaphores);
        self.issues.extend(other.issues);
        self.branches.extend(other.branches);
        self.merged.extend(other.merged);
        for (path, file) in other.files {
            let known = self.files.entry(path).or_default();
            known.exists = file.exists;
            known.matches.extend(file.matches);
        }
        self.pipelines.extend(other.pipelines);
        self.running.extend(other.running);
        self.command_results.extend(other.command_results);
        self.unknown.extend(other.unknown);
        self.fresh_until = [self.fresh_until, other.fresh_until].into_iter().flatten().min();
        self.awaits_workspace |= other.awaits_workspace;
    }

    /// Adds the wanted locks and semaphores. A grant whose holder is dead or whose time is over counts as free: the
    /// next to ask gets the resource. A lock without a row is free, a semaphore without one is unknown.
    pub fn add_held(&mut self, wants: &Wants, rows: &Coordination, now: &Now) {
        for name in &wants.locks {
            let grant = rows.locks.get(&**name).and_then(|lock| match &lock.state {
                State::Free => None,
                State::Held(grant) => Some(grant),
            });
            let holder = grant.filter(|grant| grant.over(now).is_none()).map(|grant| grant.claim.holder.clone());
            self.locks.insert(name.clone(), holder);
        }
        for name in &wants.semaphores {
            let Some(semaphore) = rows.semaphores.get(&**name) else {
                self.unknown.insert(Topic::Semaphore(name.clone()), "is not there".into());
                continue;
            };
            let held = semaphore.holders.values().filter(|grant| grant.over(now).is_none());
            let used: u64 = held.map(|grant| u64::from(grant.claim.weight)).sum();
            let free = u64::from(semaphore.config.capacity).saturating_sub(used);
            self.semaphores.insert(name.clone(), u32::try_from(free).unwrap_or(u32::MAX));
        }
    }
}
