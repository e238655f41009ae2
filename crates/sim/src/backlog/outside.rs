//! The inputs of guards outside of the store: files that come and go, commands that succeed, fail, or hang. A check by
//! a runner takes time, and the runner may be killed meanwhile.

use banksman_engine::RunnerInput;
use std::collections::BTreeMap;

use banksman_core::Pipeline;
use banksman_core::guard::{Cmd, CommandResult, FileInfo, GuardInputs};
use banksman_core::{RunnerId, TaskId};

use crate::clock::Ms;
use crate::mutation::Mutation;
use crate::report::Checker;
use crate::world::World;

/// The files that guards ask about.
pub(crate) const FILES: [&str; 2] = ["f1", "f2"];

/// The commands that guards run.
pub(crate) const COMMANDS: [&str; 2] = ["c1", "c2"];

/// The state outside of the store. A command that hangs has no result.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outside {
    pub(crate) files: BTreeMap<Box<str>, bool>,
    pub(crate) commands: BTreeMap<Box<str>, Option<bool>>,
}

/// A guard check in progress.
pub(crate) struct GuardCheck {
    pub(crate) done_at: Ms,
    pipeline: Box<Pipeline>,
    /// The visit of the guards that it belongs to.
    visit: u32,
}

/// What a runner has read outside, and in which visit of the guards.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) visit: u32,
    pub(crate) found: Outside,
}

impl World<'_> {
    /// Changes something outside.
    pub(crate) fn change_outside(&mut self) {
        self.tally.count("changes outside");
        let (file, command) = ((*self.random.pick(&FILES)).into(), (*self.random.pick(&COMMANDS)).into());
        if self.random.in_thousand(500) {
            let is_there = self.random.in_thousand(600);
            self.outside.files.insert(file, is_there);
        } else {
            let result = (!self.random.in_thousand(200)).then(|| self.random.in_thousand(600));
            self.outside.commands.insert(command, result);
        }
    }

    /// Ends all hangs.
    pub(crate) fn settle_outside(&mut self) {
        let hanging: Vec<Box<str>> =
            self.outside.commands.iter().filter(|(_, result)| result.is_none()).map(|(name, _)| name.clone()).collect();
        for name in hanging {
            let works = self.random.in_thousand(700);
            self.outside.commands.insert(name, Some(works));
        }
    }

    /// A runner begins to check the guards of a pipeline. No other runner may be checking them.
    pub(crate) fn check_guards(&mut self, slot: usize, pipeline: Box<Pipeline>) {
        self.tally.count("looks at guards");
        let id = pipeline.id.clone();
        // A runner that has announced its exit is about to end, and its checks end with it.
        let has_left = |id: &RunnerId| self.model.runners.get(id).is_some_and(|known| known.left);
        let others =
            self.runners.iter().filter(|other| other.alive && !has_left(&other.id)).flat_map(|other| &other.guard_checks);
        let mut others = others.filter(|other| other.pipeline.id == id && other.pipeline.gate() == pipeline.gate());
        let is_alone = others.next().is_none();
        let runner = self.runners[slot].id.clone();
        self.verdict.expect(Checker::Guards, is_alone, || format!("{runner} looks at the guards of {id}, and so does another"));
        let takes = if self.random.in_thousand(150) { self.random.between(2_000, 20_000) } else { self.random.between(0, 2_500) };
        let visit = self.examined.get(&(runner, id)).copied().unwrap_or_default();
        self.note(slot, format_args!("looks at the guards of {}", pipeline.id));
        let done_at = self.clock.now() + takes;
        self.runners[slot].guard_checks.push(GuardCheck { done_at, pipeline, visit });
    }

    /// A guard check that is no longer needed ends soon.
    pub(crate) fn stop_guard_check(&mut self, slot: usize, id: &TaskId) {
        self.tally.count("looks at guards that are ended early");
        let soon = self.clock.now() + self.random.between(0, 300);
        let checks = self.runners[slot].guard_checks.iter_mut().filter(|check| check.pipeline.id == *id);
        checks.for_each(|check| check.done_at = check.done_at.min(soon));
    }

    pub(crate) fn finish_guard_checks(&mut self, slot: usize) {
        let now = self.clock.now();
        let done: Vec<GuardCheck> = self.runners[slot].guard_checks.extract_if(.., |check| check.done_at <= now).collect();
        for GuardCheck { pipeline, visit, .. } in done {
            let found = self.outside.clone();
            let inputs = inputs(&found, &pipeline);
            self.samples.insert((self.runners[slot].id.clone(), pipeline.id.clone()), Sample { visit, found });
            self.note(slot, format_args!("has looked at the guards of {}", pipeline.id));
            if self.mutation() == Some(Mutation::AnswerLost) {
                continue;
            }
            self.input(slot, RunnerInput::GuardsChecked(pipeline, Box::new(inputs)));
        }
    }

    /// Whether a living runner checks the guards of a pipeline.
    pub(crate) fn is_checked(&self, id: &TaskId) -> bool {
        let living = self.runners.iter().filter(|runner| runner.alive);
        living.flat_map(|runner| &runner.guard_checks).any(|check| check.pipeline.id == *id)
    }

    /// A runner was given the guards of a pipeline to check.
    pub(crate) fn observe_examination(&mut self, id: &TaskId, by: &RunnerId) {
        if let Some(pipeline) = self.model.pipelines.get_mut(id) {
            pipeline.checker = Some(by.clone());
            self.examined.insert((by.clone(), id.clone()), pipeline.visit);
        }
    }
}

fn inputs(found: &Outside, pipeline: &Pipeline) -> GuardInputs {
    let file = |exists: bool| FileInfo { exists, matches: BTreeMap::new() };
    let command = |result: Option<bool>| match result {
        Some(true) => CommandResult::Success,
        Some(false) => CommandResult::Failure,
        None => CommandResult::Unknown,
    };
    GuardInputs {
        vars: pipeline.context.clone(),
        files: found.files.iter().map(|(path, exists)| (path.clone(), file(*exists))).collect(),
        command_results: found.commands.iter().map(|(line, result)| (Cmd::Run(line.clone()), command(*result))).collect(),
        ..GuardInputs::default()
    }
}
