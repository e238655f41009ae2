use proptest::prelude::*;

use super::*;
use crate::test_world::task;

fn id(number: usize) -> TaskId {
    TaskId::new(&format!("t{number:06}")).unwrap()
}

fn on(text: &str) -> Edge {
    Edge { on: task(text), allow_failed: false }
}

/// A graph from lines like `a: b c`.
fn graph(lines: &[&str]) -> BTreeMap<TaskId, Vec<Edge>> {
    let parts = lines.iter().map(|line| line.split_once(':').unwrap());
    parts.map(|(name, list)| (task(name), list.split_whitespace().map(on).collect())).collect()
}

fn refusal(name: &str, wanted: &[&str], edges: &[&str]) -> String {
    let (wanted, graph) = (wanted.iter().map(|text| on(text)).collect::<Vec<_>>(), graph(edges));
    let known = |id: &TaskId| id.as_str() == name || graph.contains_key(id);
    validate(&task(name), &wanted, known, &graph).map_or_else(|error| error.to_string(), |()| "fine".into())
}

#[test]
fn names_are_parsed_from_lists() {
    assert_eq!(names(["a,b", " c ,, a", "", " , ", "d e"]), ["a", "b", "c", "d e"]);
    assert_eq!(names([",b,a,b"]), ["b", "a"], "the order is that of the first mention");
    assert!(names([]).is_empty());
}

#[test]
fn only_completion_meets_a_dependency_unless_failure_is_allowed() {
    let met = |allow_failed| {
        let words = Status::ALL.into_iter().filter(move |status| is_met(*status, allow_failed));
        words.map(Status::as_str).collect::<Vec<_>>()
    };
    assert_eq!(met(false), ["completed"]);
    assert_eq!(met(true), ["completed", "failed", "cancelled", "skipped"]);
}

#[test]
fn refusals_have_a_reason() {
    assert_eq!(refusal("a", &["b"], &["b:"]), "fine");
    assert_eq!(refusal("a", &[], &[]), "fine");
    assert_eq!(refusal("a", &["b", "a"], &["b:"]), "a task cannot depend on itself");
    assert_eq!(refusal("a", &["b", "x"], &["b:"]), "there is no task x");
    assert_eq!(refusal("a", &["b"], &["b: a"]), "dependency cycle detected: a -> b -> a");
    assert_eq!(refusal("a", &["e", "b"], &["e:", "b: c d", "c: e", "d: c a"]), "dependency cycle detected: a -> b -> d -> a");
    assert_eq!(refusal("a", &["b"], &["a: b", "b: c", "c:"]), "fine", "its present dependencies are replaced");
}

#[test]
fn dependencies_have_a_limit() {
    let wanted: Vec<Edge> = (0..=EDGE_LIMIT).map(|number| Edge { on: id(number), allow_failed: false }).collect();
    let check = |wanted: &[Edge]| validate(&task("a"), wanted, |_| true, &BTreeMap::new());
    assert_eq!(check(&wanted), Err(DagError::TooMany(EDGE_LIMIT + 1)));
    assert_eq!(check(&wanted[1..]), Ok(()));
}

#[test]
fn cycles_in_a_backlog_are_found() {
    let found = |lines: &[&str]| find_cycle(&graph(lines)).map(|cycle| DagError::Cycle(cycle).to_string());
    assert_eq!(found(&["a: b c", "b: c", "c:"]), None);
    assert_eq!(found(&["a: x x", "b: a a"]), None, "a task outside of the list has no dependencies");
    assert_eq!(found(&["a: a"]).unwrap(), "dependency cycle detected: a -> a");
    assert_eq!(found(&["a: b", "b: a"]).unwrap(), "dependency cycle detected: a -> b -> a");
    assert_eq!(found(&["a: x b", "b: c d", "c:", "d: b"]).unwrap(), "dependency cycle detected: b -> d -> b");
}

/// Deep recursion would overflow the stack here, and a quadratic algorithm would not end in time.
#[test]
fn a_chain_of_100_000_tasks_is_checked() {
    const LENGTH: usize = 100_000;
    let edge = |number| Edge { on: id(number), allow_failed: false };
    let mut chain: BTreeMap<_, _> = (0..LENGTH).map(|number| (id(number), vec![edge(number + 1)])).collect();
    assert_eq!(find_cycle(&chain), None);
    assert_eq!(validate(&task("new"), &[edge(0)], |_| true, &chain), Ok(()));
    let Err(DagError::Cycle(path)) = validate(&id(LENGTH), &[edge(0)], |_| true, &chain) else { panic!("no cycle") };
    assert_eq!((path.len(), &path[0], path.last()), (LENGTH + 2, &id(LENGTH), Some(&id(LENGTH))));

    chain.insert(id(LENGTH), vec![edge(0)]);
    let cycle = find_cycle(&chain).unwrap();
    assert_eq!((cycle.len(), &cycle[0], cycle.last()), (LENGTH + 2, &id(0), Some(&id(0))));
    chain.insert(id(LENGTH), vec![edge(LENGTH - 1)]);
    assert_eq!(find_cycle(&chain).unwrap(), [id(LENGTH - 1), id(LENGTH), id(LENGTH - 1)]);
}

#[test]
fn a_graph_of_100_000_nodes_is_checked() {
    const LENGTH: u32 = 100_000;
    let mut graph: Vec<Vec<u32>> = (0..LENGTH).map(|node| (node + 1..(node + 3).min(LENGTH)).collect()).collect();
    assert_eq!(cycle(&graph), None);
    graph[LENGTH as usize - 1].push(0);
    assert_eq!(cycle(&graph), Some((0..LENGTH).collect()));
    assert_eq!(cycle(&[]), None);
    assert_eq!(cycle(&[vec![0]]), Some(vec![0]));
}

/// Which node can be reached from which by one step or more, by brute force.
fn reach(edges: &BTreeMap<TaskId, Vec<Edge>>, size: usize) -> Vec<Vec<bool>> {
    let leads = |from: usize, to: usize| edges.get(&id(from)).is_some_and(|list| list.iter().any(|edge| edge.on == id(to)));
    let mut reach: Vec<Vec<bool>> = (0..size).map(|from| (0..size).map(|to| leads(from, to)).collect()).collect();
    for _ in 0..size {
        for (from, to, over) in (0..size * size * size).map(|n| (n / size / size, n / size % size, n % size)) {
            reach[from][to] |= reach[from][over] && reach[over][to];
        }
    }
    reach
}

/// Whether this is a path along these dependencies that ends where it began.
fn is_cycle(path: &[TaskId], edges: &BTreeMap<TaskId, Vec<Edge>>) -> bool {
    let step = |pair: &[TaskId]| edges.get(&pair[0]).is_some_and(|list| list.iter().any(|edge| edge.on == pair[1]));
    let inner: BTreeSet<_> = path[1..].iter().collect();
    path.len() > 1 && path.first() == path.last() && path.windows(2).all(step) && inner.len() == path.len() - 1
}

const SIZE: usize = 7;

fn edges(most: usize) -> impl Strategy<Value = BTreeMap<TaskId, Vec<Edge>>> {
    let pairs = prop::collection::vec((0..SIZE, 0..SIZE, any::<bool>()), 0..most);
    pairs.prop_map(|pairs| {
        let mut edges: BTreeMap<TaskId, Vec<Edge>> = BTreeMap::new();
        for (from, to, allow_failed) in pairs {
            edges.entry(id(from)).or_default().push(Edge { on: id(to), allow_failed });
        }
        edges
    })
}

proptest! {
    #[test]
    fn random_backlogs_agree_with_brute_force(edges in edges(12)) {
        let reach = reach(&edges, SIZE);
        match find_cycle(&edges) {
            Some(cycle) => prop_assert!(is_cycle(&cycle, &edges), "{cycle:?} in {edges:?}"),
            None => prop_assert!((0..SIZE).all(|task| !reach[task][task]), "missed one in {edges:?}"),
        }
    }

    #[test]
    fn random_graphs_agree_with_brute_force(pairs in prop::collection::vec((0..SIZE, 0..SIZE), 0..14)) {
        let mut graph = vec![Vec::new(); SIZE];
        let mut edges: BTreeMap<TaskId, Vec<Edge>> = BTreeMap::new();
        for (from, to) in pairs {
            graph[from].push(u32::try_from(to).unwrap());
            edges.entry(id(from)).or_default().push(Edge { on: id(to), allow_failed: false });
        }
        let reach = reach(&edges, SIZE);
        match cycle(&graph) {
            Some(found) => {
                let names: Vec<TaskId> = found.iter().chain(&found[..1]).map(|node| id(*node as usize)).collect();
                prop_assert!(is_cycle(&names, &edges), "{found:?} in {graph:?}");
            }
            None => prop_assert!((0..SIZE).all(|task| !reach[task][task]), "missed one in {graph:?}"),
        }
    }

    #[test]
    fn random_edits_are_refused_iff_they_close_a_cycle(mut edges in edges(9), wanted in prop::collection::btree_set(1..SIZE, 0..4)) {
        // The edited task is task 0; the others have no cycle so far.
        edges.remove(&id(0));
        for (task, list) in &mut edges {
            list.retain(|edge| edge.on != *task && (edge.on > *task || edge.on == id(0)));
        }
        prop_assert_eq!(find_cycle(&edges), None);
        let wanted: Vec<Edge> = wanted.into_iter().map(|number| Edge { on: id(number), allow_failed: false }).collect();
        let answer = validate(&id(0), &wanted, |_| true, &edges);
        edges.insert(id(0), wanted);
        match answer {
            Ok(()) => prop_assert!(!reach(&edges, SIZE)[0][0], "missed one in {edges:?}"),
            Err(DagError::Cycle(cycle)) => {
                prop_assert!(is_cycle(&cycle, &edges) && cycle[0] == id(0), "{cycle:?} in {edges:?}");
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
