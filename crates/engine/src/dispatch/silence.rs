//! Runs that show no sign of life. Each is looked at once per deadline.

use banksman_core::task::{self, Pulse};
use banksman_core::{Lease, RunId, Span, Status, Task};

use super::{Advice, Dispatcher, Mine, News, Phase};
use crate::request::Request;
use crate::runs::Work;
use crate::tasks::TaskRequest;

impl Dispatcher {
    /// When a run will have been without a sign of life for too long.
    pub(super) fn silence_due(&self) -> Option<Lease> {
        let timeout = self.options.heartbeat_timeout?;
        self.mine.values().filter(|mine| mine.phase == Phase::Live).map(|mine| mine.seen + timeout).min()
    }

    /// A run that has been without a sign of life for too long. It is looked at once per deadline.
    pub(super) fn silent(&mut self, now: Lease) -> Option<RunId> {
        let timeout = self.options.heartbeat_timeout?;
        let is_silent = |mine: &Mine| mine.phase == Phase::Live && mine.seen + timeout <= now;
        let (run, mine) = self.mine.iter_mut().find(|(_, mine)| is_silent(mine))?;
        mine.seen = now;
        Some(run.clone())
    }

    /// A run was looked at: nothing was seen of it for so long.
    pub fn pulse(&mut self, run: &RunId, quiet: Span, now: Lease) {
        let Some(timeout) = self.options.heartbeat_timeout else { return };
        let Some(mine) = self.mine.get_mut(run) else { return };
        let is_quiet = quiet >= timeout;
        if !is_quiet {
            mine.seen = Lease(now.0 - quiet.as_ms());
        }
        // What the store knows of it may be newer; and one that moves again is stuck no longer.
        if is_quiet != mine.stuck {
            let pulse = if is_quiet { Pulse::Idle(quiet) } else { Pulse::Active };
            let (id, epoch) = (mine.work.task.id.clone(), mine.work.run.epoch);
            self.requests = vec![Request::Task(TaskRequest::Heartbeat { id, epoch, pulse, timeout })];
            self.queue.push_back(Advice::Call);
        }
    }

    /// Takes in what a look at a run meant for its task.
    pub(super) fn note_pulse(&mut self, outcome: task::Outcome, task: &Task) {
        let Some(mine) = task.live().and_then(|live| self.mine.get_mut(&live.run)) else { return };
        mine.stuck = task.status() == Status::Stuck;
        mine.seen = mine.seen.max(task.live().map_or(mine.seen, |live| live.seen.lease));
        if matches!(outcome, task::Outcome::Stuck | task::Outcome::Recovered) {
            let work = Box::new(Work { task: task.clone(), ..mine.work.clone() });
            self.news.push(if mine.stuck { News::Stuck(work) } else { News::Recovered(work) });
        }
    }
}
