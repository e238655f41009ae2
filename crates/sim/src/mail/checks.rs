//! The rules for messages, after every step and in the end.

use super::*;

impl World<'_> {
    /// A start that is unobserved for too long has a decision.
    pub(super) fn check_asked(&mut self) -> Result<(), String> {
        let rows = self.ground.load([Key::UnsettledDeliveries { limit: 10 }, Key::OpenDecisions, Key::Live])?;
        for delivery in rows.deliveries.values() {
            let Some(dispatch) = delivery.dispatch.as_ref().filter(|dispatch| dispatch.plan == Plan::Spawn) else { continue };
            let is_asked = rows.backlog.decisions.values().any(|decision| match &decision.question.about {
                About::Run { run, .. } => *run == dispatch.run,
                _ => false,
            });
            let is_overdue = rows.lease >= dispatch.began.lease + OBSERVE_WITHIN;
            self.tally.asked += usize::from(is_asked);
            if is_overdue != is_asked {
                return Err(format!("no decision asks about {}", delivery.id));
            }
        }
        Ok(())
    }

    pub(super) fn deliveries(&mut self) -> Result<Vec<Delivery>, String> {
        self.ground.store.view().deliveries(banksman_core::Seq(0), 10_000).map_err(|error| error.to_string())
    }

    /// The rules that hold after every step.
    pub(super) fn check(&mut self) -> Result<(), String> {
        for session in self.sessions.values() {
            let mut seen = session.seen.clone();
            seen.sort();
            if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("run {} has seen {} twice", session.work.run.id, pair[0]));
            }
        }
        let deliveries = self.deliveries()?;
        for delivery in &deliveries {
            delivery.check();
            if let State::Fetched { run, way: DeliveryPath::Written, .. } = &delivery.state
                && !self.sessions.get(run).is_some_and(|session| session.seen.contains(&delivery.id))
            {
                return Err(format!("{} is reported as delivered, and {run} has not got it", delivery.id));
            }
        }
        self.check_locks(&deliveries)
    }

    /// Every lock of a dispatch belongs to a delivery that will be settled: by its sender, or by the run that was
    /// started with it.
    fn check_locks(&mut self, deliveries: &[Delivery]) -> Result<(), String> {
        let rows = self.ground.load(self.targets.iter().map(|target| Key::Lock(target.dispatch_lock())))?;
        for lock in rows.coordination.locks.values() {
            let lock::State::Held(grant) = &lock.state else { continue };
            let is_its = |delivery: &&Delivery| {
                delivery.claim().is_some_and(|claim| claim.lock == lock.name && claim.epoch == grant.epoch)
            };
            let Some(dispatch) = deliveries.iter().find(is_its).and_then(|delivery| delivery.dispatch.as_ref()) else {
                return Err(format!("{} is held by no dispatch", lock.name));
            };
            let is_run_live = self.sessions.get(&dispatch.run).is_none_or(|session| session.work.run.ended.is_none());
            if dispatch.plan == Plan::Spawn && !is_run_live {
                return Err(format!("{} is held for a start whose run is over", lock.name));
            }
        }
        Ok(())
    }

    /// Whether all tasks are over, and no sender is active.
    pub(super) fn is_over(&mut self) -> Result<bool, String> {
        for id in self.targets.clone() {
            if !self.status(&id)?.is_over() {
                return Ok(false);
            }
        }
        let is_idle = self.senders.iter().all(|sender| matches!(sender.stage, Stage::Idle));
        let rows = self.ground.load([Key::UnsettledDeliveries { limit: 10 }])?;
        let is_left = !rows.over_targets.is_empty() || !rows.deliveries.is_empty();
        // A lock that no runner recovers is never settled.
        let is_left = is_left && self.mutation != Some(MailMutation::LeavesLock);
        Ok(is_idle && !is_left)
    }

    /// The rules that hold in the end: every message has a final receipt, and a true one.
    pub(super) fn check_ends(&mut self) -> Result<(), String> {
        let deliveries = self.deliveries()?;
        if deliveries.len() != self.posted.len() {
            return Err(format!("{} messages were posted, and {} are there", self.posted.len(), deliveries.len()));
        }
        if let Some(held) = deliveries.iter().find(|delivery| delivery.claim().is_some()) {
            return Err(format!("nothing releases the lock of {}", held.id));
        }
        for delivery in &deliveries {
            let seen = self.sessions.values().filter(|session| session.seen.contains(&delivery.id)).count();
            self.tally.redelivered += usize::from(seen > 1);
            let status = self.status(&delivery.target)?;
            // What the keeper of the last run has reported is known.
            let is_reported = delivery
                .run()
                .and_then(|run| self.sessions.get(run))
                .is_some_and(|session| session.written.contains(&delivery.id));
            let is_acknowledged = delivery.run().and_then(|run| self.sessions.get(run)).is_some_and(|session| {
                session.acknowledged.contains(&delivery.id) || session.has_result && session.seen.contains(&delivery.id)
            });
            let rows = self.ground.load(delivery.run().map(|run| Key::Run(run.clone())))?;
            let has_ended_well = rows.backlog.runs.values().any(Run::has_ended_well);
            match delivery.receipt(Some(status), has_ended_well) {
                Receipt::Undelivered if is_reported && status == Status::Completed => {
                    return Err(format!(
                        "{} was written into the session that completed its task, and counts as undelivered",
                        delivery.id
                    ));
                }
                Receipt::Read if seen == 0 => {
                    return Err(format!("{} is lost: nobody has seen it, and it counts as read", delivery.id));
                }
                Receipt::Read if !is_acknowledged => {
                    return Err(format!("{} counts as read, and the run that had it has not said so", delivery.id));
                }
                Receipt::Read => self.tally.read += 1,
                Receipt::Undelivered => self.tally.undelivered += 1,
                Receipt::Unknown => self.tally.unknown += 1,
                other => return Err(format!("{} is still {}", delivery.id, other.as_str())),
            }
        }
        Ok(())
    }
}
