//! Random histories of random plans, against the model.

use proptest::prelude::*;

use super::model::{Entry, PipelineModel, Position, Then, Work};
use super::*;

/// An operation. `before` is the distance of its task from the newest one.
#[derive(Debug, Clone)]
enum Op {
    Begin,
    ReportGuards { kind: u8, is_meant: bool },
    End { well: bool, before: u32 },
    TakeAway { before: u32 },
    Ask(bool),
    Pushed { well: bool },
    Unclear,
    Poll,
    Unblock,
    Retry,
    Cancel,
    Set(u8),
    Say,
}

fn op() -> impl Strategy<Value = Op> {
    let before = || prop_oneof![9 => Just(0u32), 1 => 1u32..4];
    prop_oneof![
        3 => Just(Op::Begin),
        8 => (0u8..6, prop::bool::weighted(0.9)).prop_map(|(kind, is_meant)| Op::ReportGuards { kind, is_meant }),
        14 => (prop::bool::weighted(0.6), before()).prop_map(|(well, before)| Op::End { well, before }),
        1 => before().prop_map(|before| Op::TakeAway { before }),
        2 => any::<bool>().prop_map(Op::Ask),
        5 => prop::bool::weighted(0.7).prop_map(|well| Op::Pushed { well }),
        1 => Just(Op::Unclear),
        1 => Just(Op::Poll),
        1 => Just(Op::Unblock),
        2 => Just(Op::Retry),
        1 => prop::bool::weighted(0.1).prop_map(|really| if really { Op::Cancel } else { Op::Poll }),
        1 => (0u8..3).prop_map(Op::Set),
        1 => Just(Op::Say),
    ]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    (1usize..6).prop_flat_map(|count| prop::collection::vec(entry(count), count))
}

fn entry(count: usize) -> impl Strategy<Value = Entry> {
    let work = prop_oneof![
        3 => Just(Work::Command),
        2 => (1u32..4, any::<bool>()).prop_map(|(count, falls)| Work::Choices(count, falls)),
        1 => Just(Work::Item),
    ];
    let then = prop_oneof![6 => Just(Then::Next), 2 => (0..count).prop_map(Then::Go), 1 => Just(Then::End)];
    let if_fails = prop_oneof![2 => Just(Then::End), 2 => Just(Then::Same), 2 => (0..count).prop_map(Then::Go)];
    (work, any::<bool>(), any::<bool>(), then, if_fails, 0u32..4).prop_map(|(work, pre, post, then, if_fails, times)| Entry {
        work,
        pre,
        post,
        then,
        if_fails,
        times,
    })
}

fn title(at: usize) -> String {
    format!("p{at}")
}

/// The phases for the entries of the model.
fn phases(entries: &[Entry]) -> Vec<Phase> {
    let written = |(at, entry): (usize, &Entry)| Phase {
        action: match entry.work {
            Work::Command => phase("any").action,
            Work::Choices(count, falls) => {
                let reasons = || if falls { vec![Fallback::Any] } else { Vec::new() };
                strategy((0..count).map(|number| approach(&format!("a{number}"), reasons())).collect())
            }
            Work::Item => push(),
        },
        pre: if entry.pre { vec![guard("g")] } else { Vec::new() },
        post: if entry.post { vec![guard("g")] } else { Vec::new() },
        then: match entry.then {
            Then::Go(to) => After::Phase(name(&title(to))),
            Then::End => After::Done,
            Then::Next | Then::Same => After::Next,
        },
        on_fail: match entry.if_fails {
            Then::Go(to) => OnFail::Phase { to: name(&title(to)), times: entry.times },
            Then::Same => OnFail::Retry { times: entry.times },
            Then::End | Then::Next => OnFail::Fail,
        },
        ..phase(&title(at))
    };
    entries.iter().enumerate().map(written).collect()
}

/// The state of a pipeline as a position of the model.
fn seen(pipeline: &Pipeline) -> Position {
    let at = |phase: &Name| pipeline.plan.index(phase).unwrap();
    let number = |task: &TaskId| task.as_str().rsplit('.').next().unwrap().parse().unwrap();
    match &pipeline.state {
        State::Init => Position::Not,
        State::Blocked { reason: Reason::Dependencies, .. } => Position::Waits,
        State::Checking { phase, when: When::Pre } => Position::Before { at: at(phase), held: false },
        State::Checking { phase, when: When::Post } => Position::After { at: at(phase), held: false },
        State::Blocked { phase, when, reason: Reason::Guard { .. } } => match when {
            When::Pre => Position::Before { at: at(phase), held: true },
            When::Post => Position::After { at: at(phase), held: true },
        },
        State::Blocked { reason: Reason::Overdue { .. }, .. } => unreachable!("no wait is that long here"),
        State::Blocked { phase, reason: Reason::Decision { approach, task, .. }, .. } => {
            Position::At { at: at(phase), choice: *approach, task: Some(number(task)), asked: true }
        }
        State::Running { phase, approach, task } => {
            Position::At { at: at(phase), choice: *approach, task: task.as_ref().map(number), asked: false }
        }
        State::Done => Position::Through,
        State::Failed { phase, recoverable, .. } => Position::Broken { at: at(phase), for_good: !recoverable },
        State::Cancelled { .. } => Position::Dropped,
    }
}

/// Does the same in both places. Returns the outcome, and whether the model has no change for it: then it must be late
/// or refused.
fn act(site: &mut Site, model: &mut PipelineModel, op: Op) -> (Outcome, bool) {
    let before = (model.position, model.attempt, model.tasks);
    let is_newest = |task: &TaskId| site.pipeline.task() == Some(task);
    let meant = |before: u32| child(site.pipeline.tasks.saturating_sub(before));
    let mut is_noted = false;
    let input = match op {
        Op::Begin => {
            model.begin();
            Input::Begin
        }
        Op::ReportGuards { kind, is_meant } => {
            let (phase, when) = match (&site.pipeline.state, is_meant) {
                (State::Checking { phase, when } | State::Blocked { phase, when, reason: Reason::Guard { .. } }, true) => {
                    (phase.clone(), *when)
                }
                (State::Checking { phase, when } | State::Blocked { phase, when, .. }, false) => {
                    (phase.clone(), if *when == When::Pre { When::Post } else { When::Pre })
                }
                _ => (name("p0"), When::Pre),
            };
            let is_awaited = is_meant && matches!(model.position, Position::Before { .. } | Position::After { .. });
            let verdict = match kind {
                0 if site.now.seq.0 % 3 == 0 => GuardsResult::Fail { guard: name("g"), message: "no".into(), part: "p".into() },
                1 | 2 => GuardsResult::Block {
                    guard: name("g"),
                    part: format!("part {kind}").into(),
                    again: Lease(9_000),
                    asks_outside: false,
                },
                _ => passed(),
            };
            match &verdict {
                _ if !is_awaited => {}
                GuardsResult::Fail { .. } => model.give_up(),
                GuardsResult::Block { .. } => {
                    model.hold_up();
                    is_noted = true;
                }
                GuardsResult::Pass { .. } => model.let_through(),
            }
            Input::Checked { phase, when, verdict, at: Seq(0) }
        }
        Op::End { well, before } => {
            let task = meant(before);
            if is_newest(&task) {
                model.ended(well);
            }
            Input::Ended { task, end: if well { success(json!({ "n": before })) } else { failed("no") }, runs: 1 }
        }
        Op::TakeAway { before } => {
            let task = meant(before);
            if is_newest(&task) {
                model.taken_away();
            }
            Input::Ended { task, end: PhaseEnd::Dropped { how: "skipped".into() }, runs: 1 }
        }
        Op::Ask(is_open) => {
            let task = meant(0);
            if is_newest(&task) {
                model.ask(is_open);
            }
            Input::AwaitingDecision { task, decision: is_open.then(|| DecisionId::new("d-1").unwrap()) }
        }
        Op::Pushed { well } => {
            let phase = site.pipeline.phase().cloned().unwrap_or_else(|| name("p0"));
            if matches!(model.position, Position::At { task: None, .. }) {
                model.ended(well);
            }
            Input::Pushed { phase, error: (!well).then(|| "full".into()) }
        }
        Op::Unclear => {
            let task = meant(0);
            if is_newest(&task) {
                model.taken_away();
            }
            Input::Unclear { task, error: "no such variable".into() }
        }
        Op::Poll => {
            is_noted = matches!(model.position, Position::Before { held: true, .. } | Position::After { held: true, .. });
            Input::Poll
        }
        Op::Unblock => {
            match model.position {
                Position::Waits => model.begin(),
                _ => model.let_through(),
            }
            Input::Unblock { by: None }
        }
        Op::Retry => {
            model.again();
            Input::Retry
        }
        Op::Cancel => {
            if !model.is_over() {
                model.drop_it();
            }
            Input::Cancel
        }
        Op::Set(number) => {
            is_noted = !matches!(model.position, Position::Through | Position::Dropped);
            Input::Set(vars(json!({ "set": number })))
        }
        Op::Say => {
            is_noted = !matches!(model.position, Position::Through | Position::Dropped);
            Input::Checkpoint("so far".into())
        }
    };
    let is_moved = before != (model.position, model.attempt, model.tasks);
    (site.ask(input), !is_moved && !is_noted)
}

proptest! {
    #[test]
    fn random_histories_agree_with_a_naive_pipeline(
        entries in entries(),
        waits in any::<bool>(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut site = Site::blank(phases(&entries));
        let mut model = PipelineModel::new(entries);
        site.ask(Input::Start { unmet: waits });
        if waits {
            model.waits();
        }
        // The last completed phase: only its end leads to the end of the pipeline.
        let mut completed: Option<Name> = None;
        let mut is_for_good = false;
        for op in ops {
            let (was, phase) = (site.pipeline.clone(), site.pipeline.phase().cloned());
            let is_good = matches!(op, Op::End { well: true, .. } | Op::Pushed { well: true });
            let (outcome, is_unmoved) = act(&mut site, &mut model, op.clone());
            prop_assert_eq!(seen(&site.pipeline), model.position, "{:?}: {:?}", &op, &outcome);
            prop_assert_eq!((site.pipeline.attempt, site.pipeline.tasks), (model.attempt, model.tasks), "{:?}", &op);
            let tallies: Vec<u32> =
                (0..model.entries.len()).map(|at| site.pipeline.failures.get(&name(&title(at))).copied().unwrap_or(0)).collect();
            prop_assert_eq!(&tallies, &model.tallies);
            let is_refused = matches!(outcome, Outcome::Late | Outcome::Refused(_));
            prop_assert_eq!(is_refused, is_unmoved, "{:?}: {:?}", &op, &outcome);
            if is_good && !is_refused {
                completed = phase;
            }
            if site.pipeline.state == State::Done && was.state != State::Done {
                prop_assert_eq!(completed.as_ref(), was.phase(), "the last phase on the way was completed");
            }
            prop_assert!(!is_for_good || site.pipeline.state == was.state, "what failed for good is never tried again");
            is_for_good |= matches!(site.pipeline.state, State::Failed { recoverable: false, .. });
        }
        prop_assert_eq!(site.made.len(), site.facts.iter().filter(|fact| matches!(fact, Fact::Phase { task: Some(_), .. })).count());
    }

    /// Whatever the loops of a plan, a pipeline whose tasks only fail comes to its end.
    #[test]
    fn failing_pipelines_come_to_an_end(entries in entries()) {
        let most: u32 = entries.iter().map(|entry| entry.times).sum::<u32>() + 1;
        let choices: u32 = entries.iter().map(|entry| if let Work::Choices(count, _) = entry.work { count } else { 1 }).max().unwrap();
        let mut site = Site::begun(phases(&entries));
        let mut steps = 0;
        while !site.pipeline.is_over() {
            match site.pipeline.state.clone() {
                State::Checking { .. } => drop(site.report_guards(passed())),
                State::Running { phase, task: None, .. } => drop(site.ask(Input::Pushed { phase, error: Some("full".into()) })),
                State::Running { .. } => drop(site.end(failed("no"))),
                other => prop_assert!(false, "{other:?}"),
            }
            steps += 1;
            prop_assert!(steps <= 2 * most * choices + 2, "the pipeline does not end");
        }
        let is_broken = matches!(site.pipeline.state, State::Failed { recoverable: true, .. });
        prop_assert!(is_broken);
    }
}
