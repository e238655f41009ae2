//! Dependencies: how they are written, whether they are valid, and whether they are met.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::backlog::Edge;
use crate::ids::TaskId;
use crate::task::Status;

/// How many dependencies a task can have at most.
pub const EDGE_LIMIT: usize = 1_000;

/// Why dependencies are refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DagError {
    #[error("a task cannot depend on itself")]
    Own,
    #[error("there is no task {0}")]
    Unknown(TaskId),
    /// The tasks would wait for each other.
    #[error("dependency cycle detected: {}", .0.iter().map(TaskId::as_str).collect::<Vec<_>>().join(" -> "))]
    Cycle(Vec<TaskId>),
    #[error("a task may depend on at most {EDGE_LIMIT} others, not {0}")]
    TooMany(usize),
}

/// The names in a list of dependencies as people write it: separated by commas, with spaces anywhere, perhaps repeated.
pub fn names<'a>(lists: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    let words = lists.into_iter().flat_map(|list| list.split(',')).map(str::trim).filter(|word| !word.is_empty());
    words.filter(|word| seen.insert(*word)).collect()
}

/// Whether a dependency no longer holds its task back.
pub fn is_met(status: Status, allow_failed: bool) -> bool {
    status == Status::Completed || (allow_failed && status.is_over())
}

/// Checks that `task` may depend on these. `known` is whether a task exists; `edges` must have the dependencies of
/// everything that can be reached from the new ones.
pub fn validate(
    task: &TaskId,
    wanted: &[Edge],
    known: impl Fn(&TaskId) -> bool,
    edges: &BTreeMap<TaskId, Vec<Edge>>,
) -> Result<(), DagError> {
    if wanted.len() > EDGE_LIMIT {
        return Err(DagError::TooMany(wanted.len()));
    }
    for edge in wanted {
        if edge.on == *task {
            return Err(DagError::Own);
        }
        if !known(&edge.on) {
            return Err(DagError::Unknown(edge.on.clone()));
        }
    }
    match path(wanted, task, edges) {
        Some(path) => Err(DagError::Cycle(std::iter::once(task.clone()).chain(path).collect())),
        None => Ok(()),
    }
}

/// The first path from one of these edges to `goal`, the goal included.
fn path(from: &[Edge], goal: &TaskId, edges: &BTreeMap<TaskId, Vec<Edge>>) -> Option<Vec<TaskId>> {
    // A list of open lists instead of recursion: a backlog may be one chain of 100,000 tasks.
    let mut seen = BTreeSet::new();
    let mut open: Vec<std::slice::Iter<'_, Edge>> = vec![from.iter()];
    let mut path: Vec<&TaskId> = Vec::new();
    while let Some(list) = open.last_mut() {
        match list.next() {
            None => {
                open.pop();
                path.pop();
            }
            Some(edge) if edge.on == *goal => {
                return Some(path.into_iter().chain([goal]).cloned().collect());
            }
            Some(edge) if seen.insert(&edge.on) => {
                path.push(&edge.on);
                open.push(edges.get(&edge.on).map_or(&[][..], Vec::as_slice).iter());
            }
            Some(_) => {}
        }
    }
    None
}

/// A cycle in a graph, if there is one: `edges[a]` are the dependencies of `a`. The first node of the cycle is not
/// repeated.
///
/// It suits graphs of any size: each edge is visited once, without recursion.
pub fn cycle(edges: &[Vec<u32>]) -> Option<Vec<u32>> {
    const NEW: u32 = 0;
    const DONE: u32 = u32::MAX;
    // NEW, DONE, or its place on the path, counted from 1.
    let mut places = vec![NEW; edges.len()];
    let mut path: Vec<(u32, std::slice::Iter<'_, u32>)> = Vec::new();
    for start in 0..edges.len() {
        let mut next = u32::try_from(start).ok().filter(|_| places[start] == NEW);
        loop {
            if let Some(node) = next.take() {
                path.push((node, edges[node as usize].iter()));
                places[node as usize] = u32::try_from(path.len()).expect("a path is no longer than the graph");
            }
            let Some((node, open)) = path.last_mut() else { break };
            match open.next() {
                None => {
                    places[*node as usize] = DONE;
                    path.pop();
                }
                Some(on) => match places[*on as usize] {
                    NEW => next = Some(*on),
                    DONE => {}
                    place => return Some(path[place as usize - 1..].iter().map(|(node, _)| *node).collect()),
                },
            }
        }
    }
    None
}

/// A cycle among these dependencies, if there is one.
pub fn find_cycle(edges: &BTreeMap<TaskId, Vec<Edge>>) -> Option<Vec<TaskId>> {
    // Tasks without remaining dependencies are removed until nothing changes: every remaining task is on a cycle, or
    // leads to one.
    let mut left: BTreeMap<&TaskId, usize> = BTreeMap::new();
    let mut dependents: BTreeMap<&TaskId, Vec<&TaskId>> = BTreeMap::new();
    for (task, list) in edges {
        left.insert(task, list.len());
        list.iter().for_each(|edge| dependents.entry(&edge.on).or_default().push(task));
    }
    let mut free: Vec<&TaskId> = dependents.keys().filter(|task| !left.contains_key(**task)).copied().collect();
    free.extend(left.iter().filter(|(_, count)| **count == 0).map(|(task, _)| *task));
    while let Some(task) = free.pop() {
        left.remove(task);
        for dependent in dependents.get(task).into_iter().flatten() {
            if let Some(count) = left.get_mut(dependent) {
                *count -= 1;
                if *count == 0 {
                    free.push(dependent);
                }
            }
        }
    }
    let mut at = *left.keys().next()?;
    let (mut walk, mut places) = (Vec::new(), BTreeMap::new());
    while !places.contains_key(at) {
        places.insert(at, walk.len());
        walk.push(at);
        at = edges[at]
            .iter()
            .map(|edge| &edge.on)
            .find(|on| left.contains_key(on))
            .expect("every remaining task has a remaining dependency");
    }
    Some(walk[places[at]..].iter().copied().chain([at]).cloned().collect())
}

#[cfg(test)]
mod tests;
