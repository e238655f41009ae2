//! The order of phases: unknown, cyclic and unreachable ones.

use std::collections::BTreeMap;

use super::Build;
use crate::diagnostic::{At, Code};

/// Maximum number of phases of a cycle that a message names.
const NAMED: usize = 8;

/// A phase as a node of the order.
pub(super) struct PhaseNode<'a> {
    pub(super) name: Option<(&'a str, At)>,
    pub(super) at: At,
    /// Whether the pipeline ends after it.
    pub(super) is_last: bool,
    /// The phase after it, if that is not the next one in the file.
    pub(super) next: Option<(&'a str, At)>,
    /// The phase after it if it fails.
    pub(super) fallback: Option<(&'a str, At)>,
}

/// Checks the order of a pipeline's phases. Takes linear time: a pipeline can have thousands of phases.
pub(super) fn check(build: &mut Build<'_, '_>, nodes: &[PhaseNode<'_>]) {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        if let Some((name, _)) = &node.name {
            places.entry(name).or_insert(index);
        }
    }
    let mut are_all_known = true;
    for (name, at) in nodes.iter().flat_map(|node| node.next.iter().chain(&node.fallback)) {
        if !places.contains_key(name) {
            build.no_such("phase", name, at.clone(), places.keys().copied());
            are_all_known = false;
        }
    }
    // With an unknown name, a phase may only seem to be unreachable.
    if are_all_known && nodes.iter().all(|node| node.name.is_some()) {
        let next: Vec<Option<usize>> = (0..nodes.len()).map(|index| next(nodes, &places, index)).collect();
        cycles(build, nodes, &next);
        unreachable(build, nodes, &next, &places);
    }
}

/// The phase after a phase that succeeds.
fn next(nodes: &[PhaseNode<'_>], places: &BTreeMap<&str, usize>, index: usize) -> Option<usize> {
    match &nodes[index].next {
        Some((name, _)) => places.get(name).copied(),
        None if nodes[index].is_last => None,
        None => Some(index + 1).filter(|below| *below < nodes.len()),
    }
}

/// Reports phases that follow each other for ever, even if all succeed. Each phase has one successor, so a walk finds
/// all cycles.
fn cycles(build: &mut Build<'_, '_>, nodes: &[PhaseNode<'_>], next: &[Option<usize>]) {
    // The walk that reached a phase; 0 for none.
    let mut met = vec![0; nodes.len()];
    for start in 0..nodes.len() {
        let mut at = Some(start);
        while let Some(index) = at.filter(|index| met[*index] == 0) {
            met[index] = start + 1;
            at = next[index];
        }
        if let Some(again) = at.filter(|index| met[*index] == start + 1) {
            report_cycle(build, nodes, next, again);
        }
    }
}

fn report_cycle(build: &mut Build<'_, '_>, nodes: &[PhaseNode<'_>], next: &[Option<usize>], first: usize) {
    let mut around = vec![first];
    while let Some(index) = next[around[around.len() - 1]].filter(|index| *index != first) {
        around.push(index);
    }
    // The step that goes back is the one to fix.
    let back = around.iter().copied().find(|index| next[*index].is_some_and(|to| to <= *index)).unwrap_or(first);
    let turn = around.iter().position(|index| *index == back).map_or(0, |at| (at + 1) % around.len());
    around.rotate_left(turn);
    let name = |index: &usize| nodes[*index].name.as_ref().map_or("?", |(name, _)| name);
    let mut names: Vec<&str> = around.iter().take(NAMED).map(name).collect();
    if around.len() > NAMED {
        names.push("…");
    }
    names.push(name(&around[0]));
    let at = nodes[back].next.as_ref().map_or_else(|| nodes[back].at.clone(), |(_, at)| at.clone());
    let message = format!("the phases follow each other for ever: {}", names.join(" -> "));
    let hint = "`on_fail` may go back, because it does so only a few times; `next` may not";
    build.sink.hint(Code::Cycle, at, message, hint);
}

fn unreachable(build: &mut Build<'_, '_>, nodes: &[PhaseNode<'_>], next: &[Option<usize>], places: &BTreeMap<&str, usize>) {
    let mut reached = vec![false; nodes.len()];
    let mut open: Vec<usize> = if nodes.is_empty() { Vec::new() } else { vec![0] };
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut reached[index], true) {
            open.extend(next[index]);
            open.extend(nodes[index].fallback.as_ref().and_then(|(name, _)| places.get(name).copied()));
        }
    }
    for (index, node) in nodes.iter().enumerate().filter(|(index, _)| !reached[*index]) {
        let Some((name, at)) = &node.name else { continue };
        // Of two phases with one name, the second one has been reported already.
        if places.get(name) == Some(&index) {
            let hint = "let the `next` or the `on_fail` of another phase name it, or remove it";
            build.sink.hint(Code::Unreachable, at.clone(), format!("the phase {name:?} is never reached"), hint);
        }
    }
}
