//! All kinds of events that Banksman writes, and what was meant by one that it does not write.

use serde::de::value::Error as ReadError;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use thiserror::Error;

use super::custom::OWN;
use super::{
    ACCOUNT_LIMIT, DecisionFact, ESCALATE, FINISHED, ImportFact, LANDING, LANDING_TARGET, LIMITS_SET, PAUSED, PIPELINE, QUEUE,
    RESUMED, ROUTE, SectionFact, TaskFact, WORKER, WORKSPACE,
};
use crate::agent::limit::LimitFact;
use crate::route;
use crate::suggest::{distance, near};
use crate::{landing, pipeline, queue, worker, workspace};

/// Events of this kind cannot happen: the category is one of Banksman's, or almost.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there are no events {kind:?}")]
pub struct UnknownKind {
    pub kind: Box<str>,
    /// The kind that was most likely meant.
    pub meant: Option<String>,
    /// The kinds of its category.
    pub others: Vec<String>,
}

/// Checks a kind, such as `task:complete`. Users emit events of their own categories; a category that is almost one of Banksman's,
/// with an action that this one has, is a slip.
pub fn check_kind(kind: &str) -> Result<(), UnknownKind> {
    let (category, action) = kind.split_once(':').unwrap_or((kind, ""));
    let all = kinds();
    if all.iter().any(|known| known == kind) {
        return Ok(());
    }
    let unknown = |meant: Option<&str>, others| Err(UnknownKind { kind: kind.into(), meant: meant.map(str::to_owned), others });
    if OWN.contains(&category) {
        let others = all.iter().filter(|known| category_of(known) == category).cloned().collect();
        // An action in the past tense is the most likely slip: `queue:pushed` is nearer to `queue:paused` by its letters.
        let is_begun = |known: &&String| kind.strip_prefix(known.as_str()).is_some_and(|rest| rest.len() <= 2);
        let meant = all.iter().find(is_begun).map(String::as_str);
        return unknown(meant.or_else(|| near(kind, all.iter().map(String::as_str))), others);
    }
    let is_slip = |name: &&&str| distance(name, category) == 1 || near(category, [**name]).is_some();
    let meant = OWN.iter().filter(is_slip).find_map(|name| all.iter().find(|known| **known == format!("{name}:{action}")));
    meant.map_or(Ok(()), |meant| unknown(Some(meant), Vec::new()))
}

fn category_of(kind: &str) -> &str {
    kind.split_once(':').map_or(kind, |(category, _)| category)
}

/// Every kind of event that Banksman writes.
pub fn kinds() -> Vec<String> {
    let grants = ["defined", "acquired", "increased", "reclaimed", "released", "offer_lapsed"];
    let facts = [
        ("lock", &grants[..]),
        ("semaphore", &grants[..]),
        ("task", variants::<TaskFact>()),
        ("section", variants::<SectionFact>()),
        ("decision", variants::<DecisionFact>()),
        ("import", variants::<ImportFact>()),
        (QUEUE, variants::<queue::Fact>()),
        (WORKER, variants::<worker::Fact>()),
        (ROUTE, variants::<route::RouteFact>()),
        (PIPELINE, variants::<pipeline::Fact>()),
        (WORKSPACE, variants::<workspace::Fact>()),
        (LANDING, variants::<landing::EntryFact>()),
        (LANDING_TARGET, variants::<landing::TargetFact>()),
        (ACCOUNT_LIMIT, variants::<LimitFact>()),
    ];
    let kind = |category: &str, word: &str| match (category, word) {
        ("task", "escalated") => ESCALATE.to_owned(),
        (PIPELINE, "fallback" | "exhausted") => format!("strategy:{word}"),
        _ => format!("{category}:{word}"),
    };
    let all = facts.into_iter().flat_map(|(category, words)| words.iter().map(move |word| kind(category, word)));
    all.chain([FINISHED, PAUSED, RESUMED, LIMITS_SET].map(str::to_owned)).collect()
}

/// The names of the variants of an enum in its stored form.
fn variants<'de, F: Deserialize<'de>>() -> &'static [&'static str] {
    let mut names = &[][..];
    // It asks for one of its variants, and gets none: the names are all that is wanted.
    F::deserialize(Asked(&mut names)).err().expect("nothing can be read from nothing");
    names
}

/// Writes down which variants are asked for.
struct Asked<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = ReadError;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ReadError> {
        *self.0 = variants;
        Err(ReadError::custom("there is nothing to read"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ReadError> {
        Err(ReadError::custom("this is no enum"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    #[test]
    fn all_kinds_are_of_our_categories_and_no_other_word_is_read() {
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
    fn a_slip_is_found_and_the_events_of_users_are_left_alone() {
        let meant = |kind| check_kind(kind).unwrap_err().meant;
        for (slip, right) in [
            ("task:completed", "task:complete"),
            ("pipeline:fail", "pipeline:failed"),
            ("tasks:complete", "task:complete"),
            ("taks:complete", "task:complete"),
            ("queue:pushed", "queue:push"),
        ] {
            assert_eq!(meant(slip).as_deref(), Some(right), "{slip}");
        }
        assert_eq!(meant("lock:painted"), None);
        for own in ["task:complete", "escalate", "deploy:done", "tasks:counted", "tank:full"] {
            assert_eq!(check_kind(own), Ok(()));
        }
    }
}
