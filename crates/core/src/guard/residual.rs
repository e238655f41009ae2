//! The residual of a guard when everything outside of the store is known: it is small, and can be evaluated inside a
//! transaction.

use super::{Condition, Guard, GuardInputs, Predicate, Truth};
use crate::pipeline::plan::Text;

const TRUE: Condition = Condition::All(Vec::new());
const FALSE: Condition = Condition::Any(Vec::new());

impl Guard {
    /// The guard with every answer from outside of the store replaced by its truth; `None` if nothing is left to ask.
    /// It holds if the guard does, as long as the world outside does not change.
    pub fn residual(&self, inputs: &GuardInputs) -> Option<Guard> {
        let condition = self.condition.residual(inputs, true);
        (condition != TRUE).then(|| Guard { condition, ..self.clone() })
    }
}

impl Condition {
    /// `is_wanted` is whether it helps if this part is true: an unknown part never helps, unless a session checks it later.
    fn residual(&self, inputs: &GuardInputs, is_wanted: bool) -> Condition {
        match self {
            Condition::All(parts) => {
                let parts = parts.iter().map(|part| part.residual(inputs, is_wanted));
                let parts: Vec<Condition> = parts.filter(|part| *part != TRUE).collect();
                if parts.contains(&FALSE) { FALSE } else { one_or(parts, Condition::All) }
            }
            Condition::Any(parts) => {
                let parts = parts.iter().map(|part| part.residual(inputs, is_wanted));
                let parts: Vec<Condition> = parts.filter(|part| *part != FALSE).collect();
                if parts.contains(&TRUE) { TRUE } else { one_or(parts, Condition::Any) }
            }
            Condition::Not(part) => {
                let part = part.residual(inputs, !is_wanted);
                if part == TRUE {
                    FALSE
                } else if part == FALSE {
                    TRUE
                } else {
                    Condition::Not(Box::new(part))
                }
            }
            Condition::Predicate(predicate) if predicate.is_internal() => self.clone(),
            Condition::Predicate(predicate) => match predicate.truth(inputs) {
                Truth::True => TRUE,
                Truth::False => FALSE,
                Truth::Unknown if is_wanted == (inputs.awaits_workspace && predicate.is_in_workspace()) => TRUE,
                Truth::Unknown => FALSE,
            },
        }
    }

    /// Whether it could ever be true in any state of the store, given these capacities of semaphores.
    pub fn is_possible(&self, capacity: &dyn Fn(&str) -> Option<u32>) -> bool {
        self.possible(capacity).0
    }

    /// Whether it could be true, and whether it could be false.
    fn possible(&self, capacity: &dyn Fn(&str) -> Option<u32>) -> (bool, bool) {
        match self {
            Condition::All(parts) => {
                let all: Vec<(bool, bool)> = parts.iter().map(|part| part.possible(capacity)).collect();
                let is_contradiction = parts.iter().any(|part| parts.iter().any(|other| part.excludes(other)));
                (all.iter().all(|(yes, _)| *yes) && !is_contradiction, all.iter().any(|(_, no)| *no))
            }
            Condition::Any(parts) => {
                let all: Vec<(bool, bool)> = parts.iter().map(|part| part.possible(capacity)).collect();
                (all.iter().any(|(yes, _)| *yes), all.iter().all(|(_, no)| *no))
            }
            Condition::Not(part) => {
                let (yes, no) = part.possible(capacity);
                (no, yes)
            }
            Condition::Predicate(Predicate::SemaphoreAvailable { semaphore: Text::Literal(name), slots }) => {
                (capacity(name).is_none_or(|capacity| *slots <= capacity), true)
            }
            Condition::Predicate(_) => (true, true),
        }
    }

    /// Whether the two cannot both be true.
    fn excludes(&self, other: &Condition) -> bool {
        match (self, other) {
            (Condition::Not(part), other) => **part == *other,
            (
                Condition::Predicate(Predicate::LockFree { lock }),
                Condition::Predicate(Predicate::LockHeld { lock: held, .. }),
            ) => lock == held,
            _ => false,
        }
    }
}

impl Predicate {
    /// Whether the answer is in a few rows of the store, so that the transaction that decides can load it.
    fn is_internal(&self) -> bool {
        match self {
            Predicate::LockFree { .. }
            | Predicate::LockHeld { .. }
            | Predicate::SemaphoreAvailable { .. }
            | Predicate::PipelineInPhase { .. }
            | Predicate::PipelineComplete { .. }
            | Predicate::PipelineRunning { .. } => true,
            Predicate::IssuesComplete { .. }
            | Predicate::NoBlockedIssues { .. }
            | Predicate::BranchExists { .. }
            | Predicate::BranchClean { .. }
            | Predicate::BranchMerged { .. }
            | Predicate::FileExists { .. }
            | Predicate::FileContains { .. }
            | Predicate::Command { .. } => false,
        }
    }

    /// Whether the answer comes from the workspace of the pipeline: files, and what commands say there.
    fn is_in_workspace(&self) -> bool {
        match self {
            Predicate::FileExists { .. } | Predicate::FileContains { .. } | Predicate::Command { .. } => true,
            Predicate::IssuesComplete { filter } | Predicate::NoBlockedIssues { filter } => filter.from.is_some(),
            Predicate::LockFree { .. }
            | Predicate::LockHeld { .. }
            | Predicate::SemaphoreAvailable { .. }
            | Predicate::PipelineInPhase { .. }
            | Predicate::PipelineComplete { .. }
            | Predicate::PipelineRunning { .. }
            | Predicate::BranchExists { .. }
            | Predicate::BranchClean { .. }
            | Predicate::BranchMerged { .. } => false,
        }
    }
}

/// A single part needs no list around it.
fn one_or(mut parts: Vec<Condition>, of: fn(Vec<Condition>) -> Condition) -> Condition {
    if parts.len() == 1 { parts.remove(0) } else { of(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::{FileInfo, GuardAction, GuardResult};
    use crate::ids::{HolderId, Name};
    use crate::time::Span;

    fn file(path: &str) -> Condition {
        Condition::Predicate(Predicate::FileExists { path: Text::Literal(path.into()) })
    }

    fn free(lock: &str) -> Condition {
        Condition::Predicate(Predicate::LockFree { lock: Text::Literal(lock.into()) })
    }

    fn not(condition: Condition) -> Condition {
        Condition::Not(Box::new(condition))
    }

    fn guard(condition: Condition) -> Guard {
        let (fresh_for, timeout, on_failure) = (Span::ZERO, Span::ZERO, GuardAction::Block);
        Guard { name: Name::new("g").unwrap(), condition, on_failure, fresh_for, timeout }
    }

    #[test]
    fn residual_asks_only_the_store() {
        let mut inputs = GuardInputs::default();
        inputs.files.insert("there".into(), FileInfo { exists: true, ..FileInfo::default() });
        inputs.files.insert("gone".into(), FileInfo::default());
        let cases = [
            (file("there"), None),
            (Condition::All(vec![file("there"), free("l")]), Some(free("l"))),
            (Condition::Any(vec![file("gone"), free("l")]), Some(free("l"))),
            (Condition::Any(vec![file("there"), free("l")]), None),
            (Condition::All(vec![file("gone"), free("l")]), Some(FALSE)),
            (Condition::All(vec![not(file("gone")), not(free("l"))]), Some(not(free("l")))),
            // An unknown part never helps, on neither side of a `not`.
            (Condition::Any(vec![file("unknown"), free("l")]), Some(free("l"))),
            (Condition::Any(vec![not(file("unknown")), free("l")]), Some(free("l"))),
        ];
        for (condition, left) in cases {
            let residual = guard(condition.clone()).residual(&inputs).map(|guard| guard.condition);
            assert_eq!(residual, left, "{condition:?}");
            for holder in [None, Some(HolderId::new("ann").unwrap())] {
                inputs.locks.insert("l".into(), holder);
                let holds = residual.as_ref().is_none_or(|left| left.truth(&inputs) == Truth::True);
                assert_eq!(holds, condition.truth(&inputs) == Truth::True, "{condition:?}");
            }
        }
    }

    #[test]
    fn what_a_session_checks_later_stops_no_guard() {
        let inputs = GuardInputs { awaits_workspace: true, locks: [("l".into(), None)].into(), ..GuardInputs::default() };
        let held = GuardInputs { locks: [("l".into(), Some(HolderId::new("ann").unwrap()))].into(), ..inputs.clone() };
        let branch = Condition::Predicate(Predicate::BranchExists { branch: Text::Literal("b".into()) });
        let cases = [
            (file("f"), true, true),
            (not(file("f")), true, true),
            (Condition::All(vec![file("f"), free("l")]), true, false),
            (Condition::Any(vec![file("f"), free("l")]), true, true),
            (Condition::All(vec![not(file("f")), not(free("l"))]), false, true),
            (Condition::All(vec![file("f"), branch]), false, false),
        ];
        for (condition, passes_free, passes_held) in cases {
            let asked = guard(condition);
            let passes = |inputs: &GuardInputs| asked.evaluate(inputs) == GuardResult::Passed;
            assert_eq!((passes(&inputs), passes(&held)), (passes_free, passes_held), "{:?}", asked.condition);
            let known = GuardInputs { awaits_workspace: false, ..held.clone() };
            assert!(!passes(&known), "{:?}", asked.condition);
        }
    }

    #[test]
    fn impossible_conditions_are_detected() {
        let held = Condition::Predicate(Predicate::LockHeld { lock: Text::Literal("l".into()), by: None });
        let slots = |slots| Condition::Predicate(Predicate::SemaphoreAvailable { semaphore: Text::Literal("s".into()), slots });
        let never =
            [FALSE, not(TRUE), slots(3), Condition::All(vec![free("l"), held]), Condition::All(vec![free("l"), not(free("l"))])];
        let some = [TRUE, not(FALSE), slots(2), not(slots(3)), Condition::Any(vec![slots(3), free("l")])];
        let is_possible = |condition: &Condition| condition.is_possible(&|name| (name == "s").then_some(2));
        assert_eq!(never.map(|condition| is_possible(&condition)), [false; 5]);
        assert_eq!(some.map(|condition| is_possible(&condition)), [true; 5]);
    }
}
