//! Which runbooks are in force, and whether they still say what they said then.

use std::collections::BTreeSet;

use banksman::config::Config;
use banksman::core::Name;
use banksman::runbook::{QueueTerms, Runbook};
use banksman::store::Snapshot;

use crate::printer::{DIM, GREEN, YELLOW};

/// How a runbook and what is in force go together: its queues, workers and routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Force {
    /// It has nothing to put into force.
    Nothing,
    /// Nothing of it is.
    No,
    /// All of it is, as it stands there.
    Yes,
    /// What is in force is something else.
    Differs,
}

impl Force {
    pub(super) fn of(runbook: &Runbook, snapshot: &Snapshot, settings: &Config) -> Force {
        let (workers, routes) = (&snapshot.crew.workers.workers, &snapshot.crew.routes.routes);
        let own = workers.values().filter(|worker| worker.definition.runbook == runbook.name && !worker.removed);
        let more = own.filter(|worker| !runbook.workers.contains_key(&worker.definition.name)).count();
        let ids: BTreeSet<Box<str>> = runbook.routes.iter().map(|route| route.id()).collect();
        let more = more + routes.iter().filter(|(id, there)| there.route.runbook == runbook.name && !ids.contains(*id)).count();
        let workers = runbook.workers.iter().map(|(name, worker)| {
            let there = workers.get(name).filter(|there| !there.removed && there.definition.runbook == runbook.name);
            there.map(|there| *there.definition == *worker)
        });
        let routes = runbook.routes.iter().map(|route| routes.get(&route.id()).map(|there| *there.route == *route));
        let as_said = |(name, terms): (&Name, &QueueTerms)| {
            snapshot.queues.queues.get(name).map(|there| there.config == settings.queue(terms))
        };
        let queues = runbook.queues.iter().map(as_said);
        let found: Vec<Option<bool>> = workers.chain(routes).chain(queues).collect();
        match () {
            () if found.is_empty() && more == 0 => Force::Nothing,
            () if found.iter().all(|one| *one == Some(true)) && more == 0 => Force::Yes,
            () if found.iter().all(Option::is_none) && more == 0 => Force::No,
            () => Force::Differs,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Force::Nothing => "-",
            Force::No => "no",
            Force::Yes => "yes",
            Force::Differs => "differs",
        }
    }

    pub(super) fn coloured(self) -> String {
        let style = match self {
            Force::Nothing | Force::No => DIM,
            Force::Yes => GREEN,
            Force::Differs => YELLOW,
        };
        format!("{style}{}{style:#}", self.as_str())
    }
}

/// The runbooks of which workers or routes are in force.
pub(super) fn in_force(snapshot: &Snapshot) -> BTreeSet<Box<str>> {
    let workers = snapshot.crew.workers.workers.values().filter(|worker| !worker.removed);
    let routes = snapshot.crew.routes.routes.values().map(|in_force| in_force.route.runbook.clone());
    workers.map(|worker| worker.definition.runbook.clone()).chain(routes).collect()
}
