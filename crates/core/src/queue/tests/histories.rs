//! Random histories against a naive model: a plain list.

use proptest::prelude::*;

use super::*;

/// An item of the model.
#[derive(Debug, Clone)]
struct Line {
    id: ItemId,
    priority: i32,
    created: i64,
    attempts: u32,
    /// The epoch of its holder, and until when.
    held: Option<(Epoch, i64)>,
    not_before: i64,
    dead: bool,
}

#[derive(Debug, Clone)]
enum Op {
    Push { priority: i32, delay: i64 },
    Take,
    Complete(usize),
    Fail(usize, i64),
    Extend(usize),
    Requeue(usize),
    Wait(i64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (-1..2, prop_oneof![Just(0), 1i64..60]).prop_map(|(priority, delay)| Op::Push { priority, delay }),
        5 => Just(Op::Take),
        2 => (0usize..20).prop_map(Op::Complete),
        2 => ((0usize..20), prop_oneof![Just(0), 1i64..60]).prop_map(|(at, retry)| Op::Fail(at, retry)),
        1 => (0usize..20).prop_map(Op::Extend),
        1 => (0usize..20).prop_map(Op::Requeue),
        3 => (1i64..80).prop_map(Op::Wait),
    ]
}

const ATTEMPTS: u32 = 3;
const VISIBILITY: i64 = 100;

/// The index of the item for a take. Only a few items whose time has come are settled before one is chosen, the
/// earliest first.
fn first(lines: &mut [Line], now: i64) -> Option<usize> {
    let due = |line: &Line| match line.held {
        Some((_, until)) => Some(until),
        None if line.not_before > 0 => Some(line.not_before),
        None => None,
    };
    let mut waiting: Vec<(i64, ItemId)> =
        lines.iter().filter(|line| !line.dead).filter_map(|line| Some((due(line)?, line.id))).collect();
    waiting.sort_unstable();
    for (due, id) in waiting.into_iter().take(DUE_PER_TAKE) {
        let line = lines.iter_mut().find(|line| line.id == id).unwrap();
        if due <= now {
            line.dead = line.held.is_some() && line.attempts >= ATTEMPTS;
            (line.held, line.not_before) = (None, 0);
        }
    }
    let free = lines.iter().enumerate().filter(|(_, line)| !line.dead && line.held.is_none() && line.not_before == 0);
    let best = free.min_by_key(|(_, line)| (line.created - i64::from(line.priority) * AGEING.as_ms(), line.id));
    best.map(|(index, _)| index)
}

proptest! {
    #[test]
    fn random_histories_agree_with_a_naive_queue(ops in prop::collection::vec(op(), 1..80)) {
        let mut site = Site::new();
        let config = Config { visibility_timeout: Span::from_ms(VISIBILITY), max_attempts: ATTEMPTS, dead_letter: None, max_length: 1_000 };
        site.ask("q", Input::Define(config));
        let (mut lines, mut now): (Vec<Line>, i64) = (Vec::new(), 0);
        // Every hold there ever was, with its item: an old one must never work again.
        let mut holds: Vec<Hold> = Vec::new();
        for op in ops {
            match op {
                Op::Wait(ms) => {
                    now += ms;
                    site.at(now);
                }
                Op::Push { priority, delay } => {
                    let pushed = site.ask("q", Input::Push(vec![New { delay: Span::from_ms(delay), ..new(priority) }]));
                    let Outcome::Pushed(pushed) = pushed else { panic!("{pushed:?}") };
                    let Pushed::Added(id) = pushed[0] else { panic!("{pushed:?}") };
                    let not_before = if delay > 0 { now + delay } else { 0 };
                    lines.push(Line { id, priority, created: now, attempts: 0, held: None, not_before, dead: false });
                }
                Op::Take => {
                    let wanted = first(&mut lines, now);
                    match (site.ask("q", Input::Take { holder: holder("a"), wait: None, ticket: None }), wanted) {
                        (Outcome::Taken(item), Some(index)) => {
                            let line = &mut lines[index];
                            prop_assert_eq!(item.id, line.id);
                            line.attempts += 1;
                            line.held = Some((item.fence, now + VISIBILITY));
                            prop_assert_eq!(item.attempts, line.attempts);
                            prop_assert!(holds.iter().all(|hold| hold.epoch < item.fence), "epochs rise");
                            holds.push(Hold { item: item.id, holder: holder("a"), epoch: item.fence });
                        }
                        (Outcome::Empty { .. }, None) => {}
                        (outcome, wanted) => prop_assert!(false, "{outcome:?}, the model says {wanted:?}"),
                    }
                }
                Op::Complete(at) | Op::Fail(at, _) | Op::Extend(at) => {
                    let Some(hold) = holds.get(at).cloned() else { continue };
                    let index = lines.iter().position(|line| line.held.is_some_and(|(epoch, _)| epoch == hold.epoch));
                    let (outcome, worked) = match op {
                        Op::Complete(_) => {
                            let outcome = site.ask("q", Input::Complete(hold));
                            index.map(|index| lines.remove(index));
                            (outcome.clone(), outcome == Outcome::Completed)
                        }
                        Op::Extend(_) => {
                            let outcome = site.ask("q", Input::Extend(hold.clone(), None));
                            if let Some(index) = index {
                                lines[index].held = Some((hold.epoch, now + VISIBILITY));
                            }
                            (outcome.clone(), matches!(outcome, Outcome::Extended { .. }))
                        }
                        Op::Fail(_, retry) => {
                            let retry_after = Some(Span::from_ms(retry));
                            let outcome = site.ask("q", Input::Fail { hold, error: "no".into(), retry_after });
                            if let Some(line) = index.map(|index| &mut lines[index]) {
                                line.dead = line.attempts >= ATTEMPTS;
                                line.held = None;
                                line.not_before = if retry > 0 { now + retry } else { 0 };
                            }
                            (outcome.clone(), matches!(outcome, Outcome::Failed { .. } | Outcome::Dead { .. }))
                        }
                        _ => unreachable!(),
                    };
                    prop_assert_eq!(worked, index.is_some(), "{:?}", outcome);
                }
                Op::Requeue(at) => {
                    let Some(line) = lines.get_mut(at) else { continue };
                    let outcome = site.ask("q", Input::Requeue(line.id));
                    prop_assert_eq!(matches!(outcome, Outcome::Requeued { .. }), line.dead, "{:?}", outcome);
                    if line.dead {
                        (line.dead, line.attempts, line.not_before) = (false, 0, 0);
                    }
                }
            }
            prop_assert_eq!(site.queues.items.len(), lines.len());
        }
    }
}
