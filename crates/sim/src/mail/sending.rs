//! Processes that send messages, one step at a time: each may be killed between any two of them.

use super::*;

/// A process that sends a message.
pub(super) struct Sender {
    pub(super) process: ProcessId,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    Idle,
    /// The facts were read, and the message is in the mailbox.
    Posted(TaskId, Plan, u32),
    /// It holds the lock.
    Began(Box<Delivery>, Plan, u32),
    /// The facts are the same under the lock.
    Confirmed(Box<Delivery>),
    /// The message is sent, and the result not recorded yet.
    Sent(Box<Delivery>, SendOutcome),
}

impl World<'_> {
    /// The facts about a target, as a sender reads them.
    fn presence(&mut self, id: &TaskId) -> Result<Presence, String> {
        let rows = self.ground.load([Key::Task(id.clone())])?;
        let task = &rows.backlog.tasks[id];
        if task.status().is_over() {
            return Ok(Presence::Over);
        }
        Ok(match task.live() {
            None => Presence::Dormant { may_start: true },
            Some(live) => {
                // A keeper that hangs, or whose session has not begun or has ended, does not answer.
                let session = self.sessions.get(&live.run).filter(|session| session.ended.is_none());
                let hangs = self.ground.random.in_thousand(if self.ground.is_quiescing { 0 } else { 100 });
                Presence::Live { run: live.run.clone(), input: session.filter(|_| !hangs).map(|session| session.input) }
            }
        })
    }

    /// One step of a sender.
    pub(super) fn send(&mut self, slot: usize) -> Result<(), String> {
        let stage = std::mem::replace(&mut self.senders[slot].stage, Stage::Idle);
        self.senders[slot].stage = match stage {
            Stage::Idle if self.ground.is_quiescing => Stage::Idle,
            Stage::Idle => self.post()?,
            Stage::Posted(target, plan, round) => self.begin(slot, target, plan, round)?,
            Stage::Began(delivery, plan, round) => {
                let target = delivery.target.clone();
                let again = decide(&self.presence(&target)?, Mode::Steer);
                match (confirm(&plan, &again, round), again) {
                    (Confirmation::Proceed, _) => Stage::Confirmed(delivery),
                    (Confirmation::DecideAnew, Ok(plan)) => {
                        self.settle(&delivery, SendOutcome::FallbackSent)?;
                        Stage::Posted(target, plan, round + 1)
                    }
                    (Confirmation::DecideAnew | Confirmation::GiveUp, _) => {
                        self.settle(&delivery, SendOutcome::FallbackSent)?;
                        Stage::Idle
                    }
                }
            }
            Stage::Confirmed(delivery) => {
                let outcome = self.carry(&delivery);
                Stage::Sent(delivery, outcome)
            }
            Stage::Sent(delivery, outcome) => {
                self.settle(&delivery, outcome)?;
                // There may be more messages to send.
                let plan = delivery.dispatch.as_ref().map(|dispatch| dispatch.plan.clone());
                plan.map_or(Stage::Idle, |plan| Stage::Posted(delivery.target.clone(), plan, 1))
            }
        };
        Ok(())
    }

    fn post(&mut self) -> Result<Stage, String> {
        let target = self.ground.random.pick(&self.targets).clone();
        let mode = if self.ground.random.in_thousand(600) { Mode::Steer } else { Mode::FollowUp };
        let Ok(plan) = decide(&self.presence(&target)?, mode) else { return Ok(Stage::Idle) };
        self.made += 1;
        let id = MessageId::new(&format!("m-{}", self.made)).expect("a valid id");
        let kind = MessageType::new("INFO").expect("a known word");
        let (task, attachments) = (Some(target.clone()), Vec::new());
        let draft =
            Draft { id: id.clone(), kind, task, run: None, author: "a".into(), parent: None, body: "x".into(), attachments };
        let request = PostRequest { draft, contention: Contention { attempts: 1, ..Contention::default() }, to_task: Some(mode) };
        match self.ground.call(request)? {
            Reply::Post(PostOutcome::Posted(_)) => drop(self.posted.insert(id)),
            Reply::Post(PostOutcome::TargetOver(..)) => return Ok(Stage::Idle),
            reply => return Err(format!("{reply:?}")),
        }
        Ok(Stage::Posted(target, plan, 1))
    }

    fn begin(&mut self, slot: usize, target: TaskId, plan: Plan, round: u32) -> Result<Stage, String> {
        let Plan::ControlSocket { run } = &plan else { return Ok(Stage::Idle) };
        let dispatcher = self.senders[slot].process.clone();
        let follow_ups = self.sessions.get(run).is_some_and(|session| session.input == SessionInput::Turns);
        let request = MailboxRequest::Begin { target: target.clone(), run: run.clone(), follow_ups, dispatcher };
        Ok(match self.mailbox(request)? {
            MailboxOutcome::Began(delivery) => Stage::Began(delivery, plan, round),
            _ => Stage::Idle,
        })
    }

    /// Writes a message into a session.
    fn carry(&mut self, delivery: &Delivery) -> SendOutcome {
        if self.mutation == Some(MailMutation::ReportsTooSoon) && self.ground.random.in_thousand(300) {
            return SendOutcome::Sent;
        }
        let run = delivery.dispatch.as_ref().map(|dispatch| dispatch.run.clone());
        let session = run.and_then(|run| self.sessions.get_mut(&run)).filter(|session| session.ended.is_none());
        let Some(session) = session else { return SendOutcome::Failed };
        if self.ground.random.in_thousand(100) {
            return SendOutcome::Rejected;
        }
        if delivery.mode == Mode::FollowUp {
            if !session.seen.contains(&delivery.id) && !session.held.contains(&delivery.id) {
                session.held.push(delivery.id.clone());
            }
            return SendOutcome::Sent;
        }
        let is_twice = self.mutation == Some(MailMutation::SendsTwice);
        for _ in 0..1 + usize::from(is_twice) {
            if is_twice || !session.seen.contains(&delivery.id) {
                session.seen.push(delivery.id.clone());
            }
        }
        // The answer may be late.
        if self.ground.random.in_thousand(80) { SendOutcome::Unknown } else { SendOutcome::Sent }
    }

    fn settle(&mut self, delivery: &Delivery, outcome: SendOutcome) -> Result<(), String> {
        let epoch = delivery.claim().map_or(Epoch(0), |claim| claim.epoch);
        let (id, target) = (delivery.id.clone(), delivery.target.clone());
        let is_written = delivery.mode == Mode::Steer;
        self.mailbox(MailboxRequest::Settle { id, target, epoch, outcome, is_written }).map(drop)
    }
}
