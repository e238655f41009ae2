//! What the test does with a cause: checks its details, and removes it.

use std::collections::BTreeSet;

use banksman_core::event::{Kind, Resource};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::task::Verdict;
use banksman_core::task::admission::Reason;
use banksman_core::task::roots;
use banksman_core::{HolderId, LimitsChange, RunId, RunnerId, Status, TaskId};
use banksman_engine::TaskRequest;
use banksman_engine::why::{Answer, Cause, Chain, ChainEnd, Life, Obstacle};
use banksman_store::Key;

use super::scene::Scene;

/// The subject of [`Cause::Roots`].
pub(super) const ROOTS: &str = "roots";

impl Scene {
    /// Ends all runs and claims in the exclusive section.
    fn vacate_section(&mut self) {
        let rows = self.everything().tables.backlog;
        let in_it: Vec<_> = rows.tasks.into_values().filter(|task| task.spec.section.as_ref() == Some(&self.exclusive)).collect();
        for task in in_it {
            task.live().iter().for_each(|live| self.finish(&live.run.clone()));
            self.end_claim(&task.id);
        }
        self.vacate(&Resource { kind: Kind::Lock, name: self.exclusive.lock() });
    }

    /// Removes all waiters and holders from a resource.
    fn vacate(&mut self, resource: &Resource) {
        loop {
            let rows = self.rows([Key::Lock(resource.name.clone()), Key::Semaphore(resource.name.clone())]).tables.coordination;
            let (holders, line) = match resource.kind {
                Kind::Lock => {
                    let Some(lock) = rows.locks.get(&resource.name) else { return };
                    let held = match &lock.state {
                        lock::State::Held(grant) => vec![grant.claim.holder.clone()],
                        lock::State::Free => Vec::new(),
                    };
                    (held, lock.waiters.clone())
                }
                Kind::Semaphore => {
                    let row = &rows.semaphores[&resource.name];
                    (row.holders.keys().cloned().collect(), row.waiters.clone())
                }
            };
            if let Some(waiter) = line.iter().next() {
                let command = match resource.kind {
                    Kind::Lock => Command::Lock(resource.name.clone(), lock::Input::Leave { ticket: waiter.ticket }),
                    Kind::Semaphore => {
                        Command::Semaphore(resource.name.clone(), semaphore::Input::Leave { ticket: waiter.ticket })
                    }
                };
                self.command(command);
                continue;
            }
            let Some(holder) = holders.first() else { return };
            let run = holder.as_str().strip_prefix("run:").map(|run| RunId::new(run).unwrap());
            match (run, self.claimed_for(resource, holder)) {
                (Some(run), _) => self.finish(&run),
                (None, Some(task)) => self.end_claim(&task),
                (None, None) => self.vacate_first(resource),
            }
        }
    }

    /// The task for which a person has claimed the resource.
    pub(super) fn claimed_for(&mut self, resource: &Resource, holder: &HolderId) -> Option<TaskId> {
        let claims = self.everything().tables.coordination.claims;
        let is_part = |claim: &&banksman_core::WorkClaim| claim.waits().is_none() && claim.wants(resource);
        let name = |claim: &banksman_core::WorkClaim| match (resource.kind, &claim.task) {
            (Kind::Semaphore, Some(task)) => format!("{}/{task}", claim.holder),
            _ => claim.holder.to_string(),
        };
        claims.values().filter(is_part).find(|claim| name(claim) == holder.as_str()).and_then(|claim| claim.task.clone())
    }

    /// Removes the claims that are named as waiters of the resource.
    fn dismiss_named(&mut self, resource: &Resource, line: &[(HolderId, banksman_core::Stamp)]) {
        let named = self.waiting(resource).into_iter().filter(|claim| line.iter().any(|(holder, _)| *holder == claim.holder));
        named.collect::<Vec<_>>().iter().for_each(|claim| self.dismiss(claim));
    }

    /// Removes a cause, as the cause itself advises.
    pub(super) fn remove(&mut self, cause: &Cause) {
        match cause {
            Cause::Manual => panic!("nothing makes a task for people one for runners"),
            Cause::Backoff { .. } => unreachable!("there are no loops here"),
            Cause::AccountLimit { .. } => unreachable!("there are no agents here"),
            Cause::Paused { .. } => unreachable!("nothing is paused here"),
            Cause::PassedOn { .. } => unreachable!("few tasks wait for one here"),
            Cause::Roots { roots, ahead, .. } => {
                let room = u32::try_from(roots.len() as u64 + ahead + 1).unwrap();
                self.set_limits(LimitsChange { roots: Some(room), ..LimitsChange::default() });
            }
            Cause::Dependency(chain) => {
                let id = chain.links[0].id.clone();
                self.complete(&id);
            }
            Cause::Taken { reason, line, .. } => match reason {
                Reason::Slots { resource, wanted, capacity, .. } => {
                    if wanted > capacity {
                        let define = semaphore::Input::Define(semaphore::Config { capacity: *wanted, ttl: None });
                        self.command(Command::Semaphore(resource.name.clone(), define));
                    }
                    self.vacate(resource);
                    self.dismiss_named(resource, line);
                }
                Reason::Lock { resource, .. } | Reason::TaskLock { resource, .. } => {
                    self.vacate(resource);
                    self.dismiss_named(resource, line);
                }
                Reason::Reserved { resource, holder, task, .. } => {
                    let of = |claim: &&banksman_core::WorkClaim| (&claim.holder, &claim.task) == (holder, task);
                    match self.waiting(resource).iter().find(of) {
                        Some(claim) => self.dismiss(claim),
                        // The resource is offered to the first waiter.
                        None => self.vacate(resource),
                    }
                }
                Reason::Section { .. } => self.vacate_section(),
                Reason::Undefined { resource } => {
                    let define = semaphore::Input::Define(semaphore::Config { capacity: 1, ttl: None });
                    self.command(Command::Semaphore(resource.name.clone(), define));
                }
                // The cause advises to raise the limit; the end of a run removes it too.
                Reason::NoSlot { capacity, .. } if self.places.chance(2) => {
                    self.set_limits(LimitsChange { runs: Some(capacity + 1), ..LimitsChange::default() });
                }
                Reason::NoSlot { holders, .. } => {
                    let run = holders[0].holder.as_str().strip_prefix("run:").unwrap();
                    self.finish(&RunId::new(run).unwrap());
                }
                other => panic!("{other:?} takes nothing"),
            },
            Cause::SectionBusy { .. } => self.vacate_section(),
            Cause::NoRunner { .. } => drop(self.enlist(true, None, Vec::new())),
            Cause::NoRunnerFree { runners, .. } => {
                let elsewhere = |obstacles: &[Obstacle]| obstacles.iter().any(|it| matches!(it, Obstacle::OtherSections(_)));
                let chosen = runners.iter().find(|(_, obstacles)| !elsewhere(obstacles));
                let in_section = runners.iter().flat_map(|(_, it)| it).any(|it| matches!(it, Obstacle::Section(_)));
                match chosen {
                    None => drop(self.enlist(true, None, Vec::new())),
                    Some((runner, obstacles)) => {
                        let rows = self.rows([Key::Live]).tables.backlog;
                        let own = rows.runs.values().find(|run| run.owner == *runner).map(|run| run.id.clone());
                        if obstacles.iter().any(|obstacle| matches!(obstacle, Obstacle::Full(_))) {
                            self.finish(&own.expect("a runner that is full has runs"));
                        }
                    }
                }
                if in_section {
                    self.vacate_section();
                }
            }
        }
    }

    /// Completes a task, whatever its state.
    fn complete(&mut self, id: &TaskId) {
        let task = self.rows([Key::Task(id.clone())]).backlog.tasks.remove(id).unwrap();
        if let Some(live) = task.live() {
            return self.finish(&live.run.clone());
        }
        if task.status().is_over() {
            self.request(TaskRequest::Retry { id: id.clone() });
        }
        self.request(TaskRequest::Conclude { id: id.clone(), epoch: None, by: None, verdict: Verdict::Done { output: None } });
    }

    /// Checks the details of a cause that the test can compute by itself.
    pub(super) fn verify(&mut self, cause: &Cause, task: &TaskId) {
        match cause {
            Cause::Paused { .. } => unreachable!("nothing is paused here"),
            Cause::PassedOn { .. } => unreachable!("few tasks wait for one here"),
            Cause::NoRunner { .. } => assert!(self.living.is_empty()),
            Cause::NoRunnerFree { runners, .. } => {
                let named: BTreeSet<RunnerId> = runners.iter().map(|(runner, _)| runner.clone()).collect();
                assert_eq!(named, self.living, "all that live, and only those");
            }
            Cause::SectionBusy { run, .. } => assert_eq!(run.life == Life::Alive, self.living.contains(&run.owner)),
            Cause::Dependency(chain) => self.verify_chain(chain, task),
            Cause::Roots { limit, roots, .. } => {
                let rows = self.everything().tables.backlog;
                let under_way = rows.tasks.values().filter(|task| roots::is_under_way(task)).count();
                // Until the first runner has set the limits, `why` shows those of the settings and counts nothing.
                let expected = rows.limits.map_or((roots.len(), *limit), |limits| (under_way, limits.roots));
                assert_eq!((roots.len(), *limit), expected);
            }
            // The named holder has the lock.
            Cause::Taken { reason: Reason::Lock { resource, holder } | Reason::TaskLock { resource, holder }, .. } => {
                let rows = self.rows([Key::Lock(resource.name.clone())]).tables.coordination;
                let state = &rows.locks[&resource.name].state;
                assert!(matches!(state, lock::State::Held(grant) if grant.claim.holder == holder.holder), "{cause:?}: {state:?}");
            }
            Cause::Manual | Cause::Taken { .. } | Cause::Backoff { .. } | Cause::AccountLimit { .. } => {}
        }
    }

    fn verify_chain(&mut self, chain: &Chain, task: &TaskId) {
        // Every link is an unmet dependency of the one before it.
        let mut before = task.clone();
        for link in &chain.links {
            let rows = self.rows([Key::Dependencies(before.clone()), Key::Task(link.id.clone())]).tables.backlog;
            let edge = rows.edges[&before].iter().find(|edge| edge.on == link.id).expect("a dependency");
            let status = rows.tasks[&link.id].status();
            assert!(status != Status::Completed && !(edge.allow_failed && status.is_over()), "{link:?}");
            before = link.id.clone();
        }
        // The end of the chain agrees with `why` for the last link.
        if let ChainEnd::Because(answer) = &chain.end
            && let (Answer::Waits(said), Answer::Waits(asked)) = (&**answer, self.why(&before))
        {
            // Earlier roots are only named for the task itself.
            let is_place = |cause: &&Cause| matches!(cause, Cause::Roots { .. });
            let all = |causes: &[Cause]| causes.iter().filter(|cause| !is_place(cause)).map(about).collect::<BTreeSet<_>>();
            assert_eq!(all(said), all(&asked));
        }
    }
}

/// The subject of a cause: the same before and after others were removed.
pub(super) fn about(cause: &Cause) -> String {
    match cause {
        Cause::Manual => "by hand".into(),
        Cause::Backoff { .. } => unreachable!("there are no loops here"),
        Cause::AccountLimit { .. } => unreachable!("there are no agents here"),
        Cause::Paused { .. } => unreachable!("nothing is paused here"),
        Cause::PassedOn { .. } => unreachable!("few tasks wait for one here"),
        Cause::Roots { .. } => ROOTS.into(),
        Cause::Dependency(chain) => format!("dependency {}", chain.links[0].id),
        Cause::NoRunner { .. } => "no runner".into(),
        // The cause that keeps a new runner out of a section remains when the runner is enlisted.
        Cause::SectionBusy { .. } | Cause::NoRunnerFree { .. } | Cause::Taken { reason: Reason::Section { .. }, .. } => {
            "no runner free".into()
        }
        Cause::Taken { reason, .. } => format!("taken {}", reason.resource().unwrap()),
    }
}

pub(super) fn kind(cause: &Cause) -> &'static str {
    match cause {
        Cause::Manual => "by hand",
        Cause::Backoff { .. } => unreachable!("there are no loops here"),
        Cause::AccountLimit { .. } => unreachable!("there are no agents here"),
        Cause::Paused { .. } => unreachable!("nothing is paused here"),
        Cause::PassedOn { .. } => unreachable!("few tasks wait for one here"),
        Cause::Roots { limit, roots, .. } if roots.len() < *limit as usize => "behind earlier roots",
        Cause::Roots { .. } => ROOTS,
        Cause::Dependency(_) => "dependency",
        Cause::Taken { reason, line, holders, .. } => match reason {
            Reason::TaskLock { .. } => "task lock",
            Reason::Section { .. } => "section",
            Reason::Lock { .. } if !line.is_empty() && holders.iter().any(|holder| holder.over.is_some()) => "lock goes on",
            Reason::Lock { .. } => "lock",
            Reason::Slots { wanted, available, .. } if wanted <= available => "behind a line",
            Reason::Slots { wanted, capacity, .. } if wanted > capacity => "never fits",
            Reason::Slots { .. } => "slots",
            Reason::Undefined { .. } => "undefined",
            Reason::Reserved { resource, .. } if resource.name.is_work() => "a claim is next",
            Reason::Reserved { .. } => "reserved",
            Reason::NoSlot { .. } => "no slot",
            _ => "other",
        },
        Cause::SectionBusy { .. } => "section busy",
        Cause::NoRunner { .. } => "no runner",
        Cause::NoRunnerFree { runners, .. } => {
            let any = |is: fn(&Obstacle) -> bool| runners.iter().flat_map(|(_, it)| it).any(is);
            if any(|it| matches!(it, Obstacle::Section(_))) {
                "kept out of the section"
            } else if any(|it| matches!(it, Obstacle::OtherSections(_))) {
                "works elsewhere"
            } else {
                "full"
            }
        }
    }
}
