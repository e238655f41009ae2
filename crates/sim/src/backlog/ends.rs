//! The end of a run: recorded once, when its session is dead, and as it really was.

use banksman_core::task::{After, Ending, Verdict};
use banksman_core::{RunId, Status, TaskId};

use super::book::{Entry, Job, Standing};
use super::runner::MAX_RECOVERIES;
use super::world::{Fated, World};
use crate::report::Checker;

/// What a task makes of the end of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    Over(Status),
    Again(Ending),
}

impl World<'_> {
    /// Takes in the end of a task, or of one run of it.
    pub(crate) fn take_in_end(&mut self, id: &TaskId, run: Option<&RunId>, made: Made) {
        if let Some(run) = run {
            self.must_be_live(id, run);
            let lives = self.lives(run);
            self.verdict.expect(Checker::Ends, !lives, || format!("the end of {run} is recorded, and its session lives"));
            let fate = self.fates.get(run).cloned().unwrap_or_default();
            if let (Some(entry), Some(job)) = (self.book.runs.get(run), self.book.jobs.get(id)) {
                let right: Vec<Made> = fate.endings().into_iter().map(|ending| expected(job, entry, ending)).collect();
                self.verdict.expect(Checker::Ends, right.contains(&made), || {
                    format!("{run} of {id} became {made:?}; what happened is {fate:?}, so it should be one of {right:?}")
                });
            }
            self.count_end(id, run, &made);
            self.book.runs.get_mut(run).into_iter().for_each(|entry| entry.ended = true);
        } else {
            let live = self.book.live(id).map(|(live, _)| live.clone());
            self.verdict.expect(Checker::Ends, live.is_none(), || format!("{id} ends by hand while {live:?} is at it"));
        }
        if let Some(job) = self.book.jobs.get_mut(id) {
            let over = matches!(job.standing, Standing::Over(_));
            self.verdict.expect(Checker::Ends, !over, || format!("{id} ends twice: {:?}, {made:?}", job.standing));
            job.standing = match &made {
                Made::Over(status) => Standing::Over(*status),
                Made::Again(_) => Standing::Pending,
            };
        }
        self.tally.count(match made {
            Made::Over(Status::Completed) => "completed",
            Made::Over(Status::Failed) => "failed",
            Made::Over(_) => "cancelled",
            Made::Again(Ending::Lost) => "again: lost",
            Made::Again(Ending::Never) => "again: never began",
            Made::Again(_) => "again: failed",
        });
    }

    fn count_end(&mut self, id: &TaskId, run: &RunId, made: &Made) {
        let said_failed = matches!(self.book.runs.get(run).map(|entry| &entry.verdict), Some(Some(Verdict::Failed { .. })));
        let Some(job) = self.book.jobs.get_mut(id) else { return };
        match made {
            Made::Over(_) => {}
            Made::Again(_) if said_failed => job.failures += 1,
            Made::Again(Ending::Never) => {}
            Made::Again(Ending::Lost) => job.recoveries += 1,
            Made::Again(_) => job.failures += 1,
        }
    }
}

impl Fated {
    /// How its run may be said to have ended.
    fn endings(&self) -> Vec<Ending> {
        match (&self.recorded, self.spawned, self.rebooted) {
            (Some(ending), _, false) => vec![ending.clone()],
            (Some(ending), _, true) if self.forgotten => vec![ending.clone(), Ending::Lost],
            (Some(ending), _, true) => vec![ending.clone()],
            (None, true, _) => vec![Ending::Lost],
            (None, false, true) => vec![Ending::Lost, Ending::Never],
            (None, false, false) => vec![Ending::Never],
        }
    }
}

/// What a task makes of the end of its run, told anew.
fn expected(job: &Job, entry: &Entry, ending: Ending) -> Made {
    let failed = |ending: Ending| {
        if job.failures < job.spec.retries { Made::Again(ending) } else { Made::Over(Status::Failed) }
    };
    match (&entry.stopping, &entry.verdict, ending) {
        (Some(After::Cancel), _, _) => Made::Over(Status::Cancelled),
        (_, Some(Verdict::Done { .. }), _) => Made::Over(Status::Completed),
        (Some(After::Fail { .. }), _, _) => Made::Over(Status::Failed),
        (_, Some(Verdict::Failed { .. }), ending) => failed(ending),
        (_, None, Ending::Exited(0)) => Made::Over(Status::Completed),
        (_, None, Ending::Never) => Made::Again(Ending::Never),
        (_, None, Ending::Lost) if job.recoveries < MAX_RECOVERIES => Made::Again(Ending::Lost),
        (_, None, Ending::Lost) => Made::Over(Status::Failed),
        (_, None, ending) => failed(ending),
    }
}
