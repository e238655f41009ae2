//! Guards and their conditions.

use banksman_core::guard::{
    COMMAND_TIMEOUT, CONDITION_LIMIT, Cmd, Condition, DEPTH_LIMIT, FRESH_FOR, Guard, GuardAction, IssueFilter, PipelineFilter,
    Predicate,
};
use banksman_core::pipeline::plan::Text;
use banksman_core::task::Status;
use toml::de::DeValue;

use super::read::{Spot, View};
use super::run_command::{text_of, used};
use super::{Build, Uses, own};
use crate::diagnostic::Code;
use crate::runbook::Runbook;

impl<'a> Build<'a, '_> {
    pub(super) fn read_guards(&mut self, root: View<'a>, runbook: &mut Runbook) {
        for (name, _, value) in root.view("guard").map(|all| all.entries()).unwrap_or_default() {
            let Some(view) = View::of(value) else {
                self.guards.insert(name, (None, Uses::default()));
                continue;
            };
            let mut reader = Reader { count: 0, uses: Uses::default() };
            let condition = view.view("condition").and_then(|condition| reader.condition(condition, 0));
            if reader.count > CONDITION_LIMIT {
                let message = format!("a guard can have at most {CONDITION_LIMIT} conditions, this one has {}", reader.count);
                self.sink.add(Code::OutOfRange, view.key_at("condition"), message);
            }
            let capacity = |name: &str| self.capacities.get(name).copied();
            if condition.as_ref().is_some_and(|condition| !condition.is_possible(&capacity)) {
                self.sink.add(Code::Conflict, view.key_at("condition"), "this condition can never hold");
            }
            let guard = own(name).zip(condition).map(|(name, condition)| Guard {
                name,
                condition,
                on_failure: action(view).unwrap_or_default(),
                fresh_for: view.span("fresh_for").unwrap_or(FRESH_FOR),
                timeout: view.span("timeout").unwrap_or(COMMAND_TIMEOUT),
            });
            runbook.guards.extend(guard.clone().map(|guard| (guard.name.clone(), guard)));
            self.guards.insert(name, (guard, reader.uses));
        }
    }
}

fn action(guard: View<'_>) -> Option<GuardAction> {
    let Some(view) = guard.view("on_failure") else {
        return (guard.str("on_failure")? == "warn").then_some(GuardAction::Warn);
    };
    let retry = view.span("retry").map(|delay| GuardAction::Retry { delay });
    retry.or_else(|| view.string("fail").map(|message| GuardAction::Fail { message }))
}

/// Reads the conditions of one guard.
struct Reader {
    count: usize,
    uses: Uses,
}

impl Reader {
    fn condition(&mut self, view: View<'_>, depth: usize) -> Option<Condition> {
        self.count += 1;
        if depth > DEPTH_LIMIT || self.count > CONDITION_LIMIT {
            return None;
        }
        let (key, _, value) = view.entries().into_iter().next()?;
        match key {
            "all" => self.list(value, depth).map(Condition::All),
            "any" => self.list(value, depth).map(Condition::Any),
            "not" => self.condition(View::of(value)?, depth + 1).map(|inner| Condition::Not(Box::new(inner))),
            _ => self.predicate(key, value).map(Condition::Predicate),
        }
    }

    fn predicate(&mut self, key: &str, value: Spot<'_>) -> Option<Predicate> {
        match key {
            "command" => self.command(value),
            "lock_free" => self.text(value).map(|lock| Predicate::LockFree { lock }),
            "lock_held" => self.lock_held(value),
            "semaphore_available" => self.semaphore(value),
            "tasks_complete" | "issues_complete" => self.issues(value).map(|filter| Predicate::IssuesComplete { filter }),
            "no_blocked_tasks" | "no_blocked_issues" => self.issues(value).map(|filter| Predicate::NoBlockedIssues { filter }),
            "branch_exists" => self.text(value).map(|branch| Predicate::BranchExists { branch }),
            "branch_clean" => self.text(value).map(|branch| Predicate::BranchClean { branch }),
            "file_exists" => self.text(value).map(|path| Predicate::FileExists { path }),
            "pipeline_complete" => self.text(value).map(|pipeline| Predicate::PipelineComplete { pipeline }),
            "pipeline_running" => self.running(value).map(|filter| Predicate::PipelineRunning { filter }),
            _ => self.two_arguments(key, View::of(value)?),
        }
    }

    /// Reads the predicates with two arguments.
    fn two_arguments(&mut self, key: &str, view: View<'_>) -> Option<Predicate> {
        let uses = &mut self.uses;
        match key {
            "branch_merged" => {
                Some(Predicate::BranchMerged { branch: text_of(view, "branch", uses)?, into: text_of(view, "into", uses)? })
            }
            "file_contains" => {
                Some(Predicate::FileContains { path: text_of(view, "path", uses)?, pattern: view.string("pattern")? })
            }
            "pipeline_in_phase" => {
                Some(Predicate::PipelineInPhase { pipeline: text_of(view, "pipeline", uses)?, phase: view.name("phase")? })
            }
            _ => None,
        }
    }

    fn text(&mut self, value: Spot<'_>) -> Option<Text> {
        used(value, &mut self.uses)
    }

    /// Reads all conditions of a list, also after a wrong one: they are counted.
    fn list(&mut self, value: Spot<'_>, depth: usize) -> Option<Vec<Condition>> {
        let all = value.get_ref().as_array()?.iter();
        let read: Vec<Option<Condition>> = all.map(|each| self.condition(View::of(each)?, depth + 1)).collect();
        read.into_iter().collect()
    }

    fn lock_held(&mut self, value: Spot<'_>) -> Option<Predicate> {
        match View::of(value) {
            Some(view) => {
                let by = text_of(view, "by", &mut self.uses);
                Some(Predicate::LockHeld { lock: text_of(view, "lock", &mut self.uses)?, by })
            }
            None => self.text(value).map(|lock| Predicate::LockHeld { lock, by: None }),
        }
    }

    fn running(&mut self, value: Spot<'_>) -> Option<PipelineFilter> {
        match View::of(value) {
            Some(view) => Some(PipelineFilter {
                name: text_of(view, "name", &mut self.uses),
                runbook: text_of(view, "runbook", &mut self.uses),
                phase: view.name("phase"),
            }),
            None => Some(PipelineFilter { name: Some(self.text(value)?), ..PipelineFilter::default() }),
        }
    }

    fn semaphore(&mut self, value: Spot<'_>) -> Option<Predicate> {
        match View::of(value) {
            Some(view) => {
                let slots = view.number("slots").unwrap_or(1);
                Some(Predicate::SemaphoreAvailable { semaphore: text_of(view, "semaphore", &mut self.uses)?, slots })
            }
            None => self.text(value).map(|semaphore| Predicate::SemaphoreAvailable { semaphore, slots: 1 }),
        }
    }

    fn issues(&mut self, value: Spot<'_>) -> Option<IssueFilter> {
        let view = View::of(value)?;
        let status = match view.str("status") {
            Some(word) => Some(Status::ALL.into_iter().find(|status| status.as_str() == word)?),
            None => None,
        };
        let from = match view.get("command") {
            Some(command) => Some(self.cmd(command)?),
            None => None,
        };
        Some(IssueFilter {
            section: text_of(view, "section", &mut self.uses),
            label: text_of(view, "label", &mut self.uses),
            status,
            ids: view.many("ids").into_iter().filter_map(|id| self.text(id)).collect(),
            from,
        })
    }

    fn command(&mut self, value: Spot<'_>) -> Option<Predicate> {
        let expect_success = View::of(value).and_then(|view| view.flag("expect_success")).unwrap_or(true);
        self.cmd(value).map(|cmd| Predicate::Command { cmd, expect_success })
    }

    fn cmd(&mut self, value: Spot<'_>) -> Option<Cmd> {
        match value.get_ref() {
            DeValue::String(line) => Some(Cmd::Run((&**line).into())),
            _ => {
                let view = View::of(value)?;
                match view.string("run") {
                    Some(line) => Some(Cmd::Run(line)),
                    None => Some(Cmd::Argv(view.many("argv").into_iter().filter_map(|word| self.text(word)).collect())),
                }
            }
        }
    }
}
