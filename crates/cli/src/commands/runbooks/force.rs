//! Which runbooks are in force, and whether they still say what they said then.

use std::collections::BTreeSet;

use banksman_core::Name;
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::lock;
use banksman_runbook::{QueueTerms, Runbook};
use banksman_runtime::config::Config;
use banksman_store::{Key, Snapshot};

use crate::printer::{DIM, GREEN, YELLOW};

/// How a runbook and what is in force go together.
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
    /// The rows that this depends on.
    pub(super) fn keys<'a>(runbooks: impl Iterator<Item = &'a Runbook>) -> BTreeSet<Key> {
        let shared = runbooks.flat_map(|runbook| {
            let locks = runbook.locks.keys().cloned().map(Key::Lock);
            locks.chain(runbook.semaphores.keys().cloned().map(Key::Semaphore))
        });
        shared.chain([Key::Crew, Key::Queues]).collect()
    }

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
        let Coordination { locks, semaphores, .. } = &snapshot.coordination;
        // A lock without terms of its own is as good as one that nobody has defined.
        let plain = lock::Config::default();
        let locks = runbook.locks.iter().filter_map(|(name, terms)| {
            let there = locks.get(name).map(|there| there.config).filter(|there| *there != plain);
            (there.is_some() || terms.config() != plain).then(|| there.map(|there| there == terms.config()))
        });
        let semaphores =
            runbook.semaphores.iter().map(|(name, terms)| semaphores.get(name).map(|there| there.config == terms.config()));
        let found: Vec<Option<bool>> = workers.chain(routes).chain(queues).chain(locks).chain(semaphores).collect();
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
