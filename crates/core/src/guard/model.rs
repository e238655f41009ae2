//! Random conditions over a partly known world, against a naive model that tries out what is unknown.
//!
//! The model is two-valued. It completes the world in every possible way, and a condition is true if it is true in all
//! completions. That is stronger than three-valued logic where a condition has one fact twice ("a or not a" is
//! unknown), so each fact occurs once when the two are compared.

use proptest::prelude::*;

use super::*;

/// The facts that are known, true or false. The others are missing.
type World = BTreeMap<u8, bool>;

/// A condition over numbered facts.
#[derive(Debug, Clone)]
enum Tree {
    Fact(u8),
    All(Vec<Tree>),
    Any(Vec<Tree>),
    Not(Box<Tree>),
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = (0u8..13).prop_map(Tree::Fact);
    leaf.prop_recursive(5, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::All),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::Any),
            inner.prop_map(|tree| Tree::Not(Box::new(tree))),
        ]
    })
}

fn world() -> impl Strategy<Value = World> {
    prop::collection::btree_map(0u8..13, any::<bool>(), 0..13)
}

/// Renumbers the facts, so that each occurs once, up to thirteen of them.
fn with_distinct_facts(tree: Tree, next: &mut u8) -> Tree {
    match tree {
        Tree::Fact(_) => {
            *next += 1;
            if *next > 13 { Tree::All(vec![]) } else { Tree::Fact(*next - 1) }
        }
        Tree::All(parts) => Tree::All(parts.into_iter().map(|part| with_distinct_facts(part, next)).collect()),
        Tree::Any(parts) => Tree::Any(parts.into_iter().map(|part| with_distinct_facts(part, next)).collect()),
        Tree::Not(part) => Tree::Not(Box::new(with_distinct_facts(*part, next))),
    }
}

/// A tree as a condition, with one sort of predicate for each fact, so that all sorts are mixed.
fn condition(tree: &Tree) -> Condition {
    let text = |n: u8| Text::Literal(n.to_string().into());
    match tree {
        Tree::All(parts) => Condition::All(parts.iter().map(condition).collect()),
        Tree::Any(parts) => Condition::Any(parts.iter().map(condition).collect()),
        Tree::Not(part) => Condition::Not(Box::new(condition(part))),
        Tree::Fact(n) => match n {
            0 => Condition::Predicate(Predicate::LockHeld { lock: text(*n), by: None }),
            1 => Condition::Predicate(Predicate::SemaphoreAvailable { semaphore: text(*n), slots: 1 }),
            2 => Condition::Predicate(Predicate::IssuesComplete { filter: filter(*n) }),
            3 => Condition::Predicate(Predicate::NoBlockedIssues { filter: filter(*n) }),
            4 => Condition::Predicate(Predicate::BranchExists { branch: text(*n) }),
            5 => Condition::Predicate(Predicate::BranchClean { branch: text(*n) }),
            6 => Condition::Predicate(Predicate::BranchMerged { branch: text(*n), into: text(*n) }),
            7 => Condition::Predicate(Predicate::FileExists { path: text(*n) }),
            8 => Condition::Predicate(Predicate::FileContains { path: text(*n), pattern: "x".into() }),
            9 => Condition::Predicate(Predicate::PipelineComplete { pipeline: text(*n) }),
            11 => Condition::Predicate(Predicate::PipelineRunning { filter: named(*n) }),
            10 => Condition::Predicate(Predicate::Command { cmd: Cmd::Run(n.to_string().into()), expect_success: true }),
            _ => Condition::Predicate(Predicate::LockHeld { lock: Text::Var { var: "lock".into() }, by: None }),
        },
    }
}

fn named(n: u8) -> PipelineFilter {
    PipelineFilter { name: Some(Text::Literal(n.to_string().into())), ..PipelineFilter::default() }
}

fn filter(n: u8) -> IssueFilter {
    IssueFilter { ids: vec![Text::Literal(n.to_string().into())], ..IssueFilter::default() }
}

/// The known facts as inputs.
fn inputs(world: &World) -> GuardInputs {
    let mut inputs = GuardInputs::default();
    let holder = |yes: bool| yes.then(|| HolderId::new("h").unwrap());
    for (&n, &yes) in world {
        let key: Box<str> = n.to_string().into();
        let issue = |status: Status| Issue { id: "t".into(), status };
        match n {
            0 => drop(inputs.locks.insert(key, holder(yes))),
            1 => drop(inputs.semaphores.insert(key, u32::from(yes))),
            2 => drop(inputs.issues.insert(filter(n), vec![issue(if yes { Status::Completed } else { Status::Review })])),
            3 => drop(inputs.issues.insert(filter(n), vec![issue(if yes { Status::Failed } else { Status::Blocked })])),
            4 => drop(inputs.branches.insert(key, BranchInfo { exists: yes, clean: None })),
            5 => drop(inputs.branches.insert(key, BranchInfo { exists: true, clean: Some(yes) })),
            6 => drop(inputs.merged.insert((key.clone(), key), yes)),
            7 => drop(inputs.files.insert(key, FileInfo { exists: yes, matches: BTreeMap::new() })),
            8 => drop(inputs.files.insert(key, FileInfo { exists: true, matches: BTreeMap::from([("x".into(), yes)]) })),
            9 => drop(inputs.pipelines.insert(key, PipelineInfo { phase: None, is_complete: yes })),
            11 => drop(inputs.running.insert(named(n), if yes { vec!["p-1".into()] } else { vec![] })),
            10 => {
                let result = if yes { CommandResult::Success } else { CommandResult::Failure };
                inputs.command_results.insert(Cmd::Run(key), result);
            }
            _ => {
                inputs.vars.insert("lock".into(), "l".into());
                inputs.locks.insert("l".into(), holder(yes));
            }
        }
    }
    inputs
}

fn holds_in(tree: &Tree, world: &World) -> bool {
    match tree {
        Tree::Fact(n) => world[n],
        Tree::All(parts) => parts.iter().all(|part| holds_in(part, world)),
        Tree::Any(parts) => parts.iter().any(|part| holds_in(part, world)),
        Tree::Not(part) => !holds_in(part, world),
    }
}

/// Every world that has all facts and agrees with the known ones.
fn completions(world: &World) -> impl Iterator<Item = World> {
    let missing: Vec<u8> = (0..13).filter(|n| !world.contains_key(n)).collect();
    (0u32..1 << missing.len()).map(move |bits| {
        let mut complete = world.clone();
        complete.extend(missing.iter().enumerate().map(|(at, n)| (*n, bits >> at & 1 == 1)));
        complete
    })
}

/// The naive answer.
fn tried_out(tree: &Tree, world: &World) -> Truth {
    let answers: Vec<bool> = completions(world).map(|complete| holds_in(tree, &complete)).collect();
    match (answers.contains(&true), answers.contains(&false)) {
        (true, true) => Truth::Unknown,
        (yes, _) => Truth::from(Some(yes)),
    }
}

proptest! {
    #[test]
    fn three_valued_truth_agrees_with_trying_all_completions(tree in tree(), world in world()) {
        let tree = with_distinct_facts(tree, &mut 0);
        prop_assert_eq!(condition(&tree).truth(&inputs(&world)), tried_out(&tree, &world));
    }

    #[test]
    fn known_truth_stays_when_more_becomes_known(tree in tree(), world in world(), more in world()) {
        // Here a fact may occur twice, and then only one direction holds: a truth that is reported as known is right.
        let condition = condition(&tree);
        let before = condition.truth(&inputs(&world));
        let mut after = more;
        after.extend(world.clone());
        if before != Truth::Unknown {
            prop_assert_eq!(condition.truth(&inputs(&after)), before);
            prop_assert_eq!(tried_out(&tree, &world), before);
        }
    }

    #[test]
    fn result_depends_only_on_what_the_guard_wants(tree in tree(), world in world()) {
        let guard = Guard {
            name: Name::new("g").unwrap(),
            condition: condition(&tree),
            on_failure: GuardAction::Warn,
            fresh_for: FRESH_FOR,
            timeout: COMMAND_TIMEOUT,
        };
        let all = inputs(&world);
        let wants = guard.wants(&all.vars);
        let mut some = all.clone();
        some.locks.retain(|key, _| wants.locks.contains(key));
        some.semaphores.retain(|key, _| wants.semaphores.contains(key));
        some.issues.retain(|key, _| wants.issues.contains(key));
        some.branches.retain(|key, _| wants.branches.contains(key));
        some.merged.retain(|key, _| wants.merged.contains(key));
        some.files.retain(|key, _| wants.files.contains_key(key));
        some.pipelines.retain(|key, _| wants.pipelines.contains(key));
        some.running.retain(|key, _| wants.running.contains(key));
        some.command_results.retain(|key, _| wants.commands.contains(key));
        prop_assert_eq!(guard.evaluate(&some), guard.evaluate(&all));
    }

    #[test]
    fn a_failed_condition_is_explained(tree in tree(), world in world()) {
        let condition = condition(&tree);
        let inputs = inputs(&world);
        let part = condition.part(&inputs);
        prop_assert!(!part.is_empty());
        match condition.truth(&inputs) {
            // A condition that is known to be false is not explained with something unknown.
            Truth::False => prop_assert!(!part.contains("not known"), "{}", part),
            Truth::Unknown => prop_assert!(part.starts_with("not known"), "{}", part),
            Truth::True => {}
        }
    }
}
