//! All kinds of events that Banksman writes, and suggestions for kinds that it does not write.

use strum::VariantNames;
use thiserror::Error;

use super::custom::OWN;
use super::{DecisionFact, ESCALATE, FINISHED, ImportFact, LIMITS_SET, PAUSED, RESUMED, SectionFact, TaskFact};
use crate::agent::limit::LimitFact;
use crate::route;
use crate::suggest::{closest, distance};
use crate::{landing, pipeline, queue, worker, workspace};

/// Events of this kind cannot happen: the category is one of Banksman's, or a misspelling of one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there are no events {kind:?}")]
pub struct UnknownKind {
    pub kind: Box<str>,
    /// The kind that was most likely meant.
    pub meant: Option<String>,
    /// The kinds of its category.
    pub others: Vec<String>,
}

/// Checks a kind, such as `task:complete`. Users emit events of their own categories; a category that is almost one of
/// Banksman's, with an action of that category, is a typo.
pub fn check_kind(kind: &str) -> Result<(), UnknownKind> {
    let (category, action) = kind.split_once(':').unwrap_or((kind, ""));
    let all = kinds();
    if all.iter().any(|known| known == kind) {
        return Ok(());
    }
    let unknown = |meant: Option<&str>, others| Err(UnknownKind { kind: kind.into(), meant: meant.map(str::to_owned), others });
    if OWN.contains(&category) {
        let others = all.iter().filter(|known| category_of(known) == category).cloned().collect();
        // An action in the past tense is the most likely typo: `queue:pushed` is nearer to `queue:paused` by its
        // letters.
        let is_begun = |known: &&String| kind.strip_prefix(known.as_str()).is_some_and(|rest| rest.len() <= 2);
        let meant = all.iter().find(is_begun).map(String::as_str);
        return unknown(meant.or_else(|| closest(kind, all.iter().map(String::as_str))), others);
    }
    let is_typo = |name: &&&str| distance(name, category) == 1 || closest(category, [**name]).is_some();
    let meant = OWN.iter().filter(is_typo).find_map(|name| all.iter().find(|known| **known == format!("{name}:{action}")));
    meant.map_or(Ok(()), |meant| unknown(Some(meant), Vec::new()))
}

fn category_of(kind: &str) -> &str {
    kind.split_once(':').map_or(kind, |(category, _)| category)
}

/// Every kind of event that Banksman writes.
pub fn kinds() -> Vec<String> {
    let grants = ["defined", "acquired", "increased", "reclaimed", "released", "offer_lapsed"];
    let resources = ["lock", "semaphore"].into_iter().flat_map(|kind| grants.map(|word| format!("{kind}:{word}")));
    let facts = [
        TaskFact::VARIANTS,
        SectionFact::VARIANTS,
        DecisionFact::VARIANTS,
        ImportFact::VARIANTS,
        queue::Fact::VARIANTS,
        worker::Fact::VARIANTS,
        route::RouteFact::VARIANTS,
        pipeline::Fact::VARIANTS,
        workspace::Fact::VARIANTS,
        landing::EntryFact::VARIANTS,
        landing::TargetFact::VARIANTS,
        LimitFact::VARIANTS,
    ];
    let kind = |kind: &&str| match *kind {
        "task:escalated" => ESCALATE.to_owned(),
        "pipeline:fallback" | "pipeline:exhausted" => kind.replace("pipeline", "strategy"),
        kind => kind.to_owned(),
    };
    let others = [FINISHED, PAUSED, RESUMED, LIMITS_SET].map(str::to_owned);
    resources.chain(facts.concat().iter().map(kind)).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    #[test]
    fn kinds_have_reserved_categories_and_unknown_ones_are_rejected() {
        let all = kinds();
        assert!(all.iter().all(|kind| OWN.contains(&category_of(kind))), "{all:?}");
        for known in
            ["task:complete", "escalate", "strategy:fallback", "pipeline:phase", "queue:dead", "worker:asleep", "lock:released"]
        {
            assert!(all.iter().any(|kind| kind == known), "{known}");
        }
        assert_eq!(all.len(), all.iter().collect::<std::collections::BTreeSet<_>>().len(), "{all:?}");
        assert!(Event::parse("queue:completed", "queue", Some("q"), "{}").is_err());
    }

    #[test]
    fn typos_are_found_and_user_events_are_accepted() {
        let meant = |kind| check_kind(kind).unwrap_err().meant;
        for (typo, right) in [
            ("task:completed", "task:complete"),
            ("pipeline:fail", "pipeline:failed"),
            ("tasks:complete", "task:complete"),
            ("taks:complete", "task:complete"),
            ("queue:pushed", "queue:push"),
        ] {
            assert_eq!(meant(typo).as_deref(), Some(right), "{typo}");
        }
        assert_eq!(meant("lock:painted"), None);
        for own in ["task:complete", "escalate", "deploy:done", "tasks:counted", "tank:full"] {
            assert_eq!(check_kind(own), Ok(()));
        }
    }
}
