//! The path from a task to the task that causes the wait. `cli/tests/all/causes.rs` compares the causes with the claim itself.

use banksman_core::backlog::Edge;
use banksman_core::task::{Spec, TaskEnd, Work};
use banksman_core::{Lease, Seq, Title, Wall};
use banksman_store::CHAIN_LIMIT;

use super::*;

fn id(name: &str) -> TaskId {
    TaskId::new(name).unwrap()
}

/// Tasks `a: b c` that depend on others, each with its state.
fn backlog(tasks: &[(&str, &[&str], State)]) -> Backlog {
    let mut backlog = Backlog::default();
    for (name, depends_on, state) in tasks {
        let spec = Spec {
            section: None,
            parent: None,
            labels: Vec::new(),
            priority: 0,
            work: Some(Work::Run("true".into())),
            needs: Vec::new(),
            retries: 0,
            restart: None,
            ..Spec::new(Title::new(name).unwrap())
        };
        let task = Task { state: state.clone(), ..Task::new(id(name), spec, &Now::default()) };
        backlog.tasks.insert(id(name), task);
        let edges = depends_on.iter().map(|on| Edge { on: id(on), allow_failed: false }).collect();
        backlog.edges.insert(id(name), edges);
    }
    backlog
}

fn failed() -> State {
    State::Done(TaskEnd::Failed { error: "it broke".into() })
}

fn done() -> State {
    State::Done(TaskEnd::Success { output: None, warning: None })
}

fn why(backlog: Backlog, task: &str) -> Why {
    let tables = Tables { backlog, ..Tables::default() };
    let snapshot = Snapshot { tables, lease: Lease(0), wall: Wall(0), seq: Seq(0) };
    Situation::new(&snapshot, &BTreeMap::new()).why(&id(task), &[]).unwrap()
}

/// The chains of a task: the names of the links, and the end.
fn chains_of(backlog: Backlog, task: &str) -> Vec<(String, ChainEnd)> {
    let why = why(backlog, task);
    let Answer::Waits(causes) = why.answer else { panic!("{why:?}") };
    let chain = |cause: Cause| match cause {
        Cause::Dependency(chain) => {
            let links: Vec<&str> = chain.links.iter().map(|link| link.id.as_str()).collect();
            Some((links.join(" "), chain.end))
        }
        _ => None,
    };
    causes.into_iter().filter_map(chain).collect()
}

fn because(end: &ChainEnd) -> &Answer {
    match end {
        ChainEnd::Because(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_chain_leads_to_a_task_that_never_ends_by_itself() {
    let found = chains_of(
        backlog(&[
            ("a", &["b"], State::Pending),
            ("b", &["near", "c"], State::Pending),
            ("near", &[], State::Review),
            ("c", &["d", "ready"], State::Pending),
            ("ready", &[], State::Pending),
            ("d", &[], failed()),
        ]),
        "a",
    );
    let [(links, end)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(links, "b c d");
    assert!(matches!(because(end), Answer::Over { done: TaskEnd::Failed { .. }, .. }));
}

#[test]
fn met_dependencies_are_not_followed() {
    let found = chains_of(
        backlog(&[
            ("a", &["b", "over"], State::Pending),
            ("over", &["c"], done()),
            ("b", &["over", "c"], State::Pending),
            ("c", &["gone"], State::Pending),
        ]),
        "a",
    );
    let [(links, end)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((links.as_str(), end), ("b c gone", &ChainEnd::Gone));
}

#[test]
fn a_chain_ends_with_the_cause_of_its_last_task() {
    let found = chains_of(backlog(&[("a", &["b"], State::Pending), ("b", &[], State::Pending)]), "a");
    assert_eq!(*because(&found[0].1), Answer::Waits(vec![Cause::NoRunner { ahead: 0 }]));
    let why = why(backlog(&[("a", &["b"], State::Pending), ("b", &[], State::Pending)]), "a");
    assert_eq!(why.status, Status::Blocked);
    assert_eq!(Status::Pending, self::why(backlog(&[("a", &[], State::Pending)]), "a").status);
}

#[test]
fn tasks_that_wait_for_each_other_are_named() {
    let found = chains_of(
        backlog(&[
            ("a", &["b"], State::Pending),
            ("b", &["c", "ready"], State::Pending),
            ("ready", &[], State::Pending),
            ("c", &["d"], State::Pending),
            ("d", &["c"], State::Pending),
        ]),
        "a",
    );
    let [(links, ChainEnd::Cycle(cycle))] = &found[..] else { panic!("{found:?}") };
    assert!(links == "b c" || links == "b c d", "{links}");
    assert_eq!(cycle.first(), cycle.last());
    assert_eq!(cycle.iter().cloned().collect::<BTreeSet<_>>(), BTreeSet::from([id("c"), id("d")]));
    // The same if the task itself is in the cycle.
    let found = chains_of(backlog(&[("a", &["b"], State::Pending), ("b", &["a"], State::Pending)]), "a");
    assert!(matches!(&found[..], [(_, ChainEnd::Cycle(_))]), "{found:?}");
}

#[test]
fn a_long_chain_is_followed_and_a_truncated_one_is_marked() {
    let names: Vec<String> = (0..CHAIN_LIMIT + 1).map(|number| format!("t{number}")).collect();
    let mut tasks: Vec<(&str, Vec<&str>, State)> =
        names.windows(2).map(|pair| (pair[0].as_str(), vec![pair[1].as_str()], State::Pending)).collect();
    let listed = |tasks: &[(&str, Vec<&str>, State)]| {
        let rows: Vec<(&str, &[&str], State)> =
            tasks.iter().map(|(name, on, state)| (*name, on.as_slice(), state.clone())).collect();
        backlog(&rows)
    };
    let found = chains_of(listed(&tasks), "t0");
    assert_eq!(found[0].1, ChainEnd::More, "the last was not read");
    tasks.push((names[CHAIN_LIMIT].as_str(), Vec::new(), failed()));
    let found = chains_of(listed(&tasks), "t0");
    assert_eq!(found[0].0.split(' ').count(), CHAIN_LIMIT);
    assert!(matches!(because(&found[0].1), Answer::Over { .. }));
}
