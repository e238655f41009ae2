//! Whether runbooks are applied, and whether their files have changed since.

use std::collections::BTreeSet;

use banksman_core::Name;
use banksman_core::resource::coordination::Coordination;
use banksman_core::resource::lock;
use banksman_runbook::{QueueTerms, Runbook};
use banksman_runtime::config::Config;
use banksman_store::{Key, Snapshot};

use crate::printer::{DIM, GREEN, YELLOW};

/// Whether a runbook is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applied {
    /// The runbook has nothing to apply.
    Nothing,
    /// Nothing of the runbook is applied.
    No,
    /// Everything is applied as the file has it.
    Yes,
    /// The applied state differs from the file.
    Differs,
}

impl Applied {
    /// The rows to compare with.
    pub(super) fn keys<'a>(runbooks: impl Iterator<Item = &'a Runbook>) -> BTreeSet<Key> {
        let shared = runbooks.flat_map(|runbook| {
            let locks = runbook.locks.keys().cloned().map(Key::Lock);
            locks.chain(runbook.semaphores.keys().cloned().map(Key::Semaphore))
        });
        shared.chain([Key::Automation, Key::Queues]).collect()
    }

    pub(super) fn of(runbook: &Runbook, snapshot: &Snapshot, settings: &Config) -> Applied {
        let (workers, routes) = (&snapshot.automation.workers.workers, &snapshot.automation.routes.routes);
        let own = workers.values().filter(|worker| worker.definition.runbook == runbook.name && !worker.removed);
        let more = own.filter(|worker| !runbook.workers.contains_key(&worker.definition.name)).count();
        let ids: BTreeSet<Box<str>> = runbook.routes.iter().map(|route| route.id()).collect();
        let more = more + routes.iter().filter(|(id, there)| there.route.runbook == runbook.name && !ids.contains(*id)).count();
        let workers = runbook.workers.iter().map(|(name, worker)| {
            let there = workers.get(name).filter(|there| !there.removed && there.definition.runbook == runbook.name);
            there.map(|there| *there.definition == *worker)
        });
        let routes = runbook.routes.iter().map(|route| routes.get(&route.id()).map(|there| *there.route == *route));
        let is_equal = |(name, terms): (&Name, &QueueTerms)| {
            snapshot.queues.queues.get(name).map(|there| there.config == settings.queue(terms))
        };
        let queues = runbook.queues.iter().map(is_equal);
        let Coordination { locks, semaphores, .. } = &snapshot.coordination;
        // A lock with default terms counts like an undefined one.
        let plain = lock::Config::default();
        let locks = runbook.locks.iter().filter_map(|(name, terms)| {
            let there = locks.get(name).map(|there| there.config).filter(|there| *there != plain);
            (there.is_some() || terms.config() != plain).then(|| there.map(|there| there == terms.config()))
        });
        let semaphores =
            runbook.semaphores.iter().map(|(name, terms)| semaphores.get(name).map(|there| there.config == terms.config()));
        let found: Vec<Option<bool>> = workers.chain(routes).chain(queues).chain(locks).chain(semaphores).collect();
        match () {
            () if found.is_empty() && more == 0 => Applied::Nothing,
            () if found.iter().all(|one| *one == Some(true)) && more == 0 => Applied::Yes,
            () if found.iter().all(Option::is_none) && more == 0 => Applied::No,
            () => Applied::Differs,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Applied::Nothing => "-",
            Applied::No => "no",
            Applied::Yes => "yes",
            Applied::Differs => "differs",
        }
    }

    pub(super) fn coloured(self) -> String {
        let style = match self {
            Applied::Nothing | Applied::No => DIM,
            Applied::Yes => GREEN,
            Applied::Differs => YELLOW,
        };
        format!("{style}{}{style:#}", self.as_str())
    }
}

/// The runbooks with applied workers or routes.
pub(super) fn applied_runbooks(snapshot: &Snapshot) -> BTreeSet<Box<str>> {
    let workers = snapshot.automation.workers.workers.values().filter(|worker| !worker.removed);
    let routes = snapshot.automation.routes.routes.values().map(|applied| applied.route.runbook.clone());
    workers.map(|worker| worker.definition.runbook.clone()).chain(routes).collect()
}
