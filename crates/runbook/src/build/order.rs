//! What follows what: phases that there are not, that never end, or that are never reached.

use std::collections::BTreeMap;

use super::Build;
use crate::diagnostic::{At, Code};

/// How many phases of a cycle are named.
const NAMED: usize = 8;

/// A phase, as far as its place is concerned.
pub(super) struct Stop<'a> {
    pub(super) name: Option<(&'a str, At)>,
    pub(super) at: At,
    /// Whether the pipeline is over after it.
    pub(super) is_last: bool,
    /// The phase after it, if it is not the one below.
    pub(super) next: Option<(&'a str, At)>,
    /// The phase after it if it fails.
    pub(super) fallback: Option<(&'a str, At)>,
}

/// Looks at the order of a pipeline's phases. All of it is linear: a pipeline can have thousands.
pub(super) fn check(build: &mut Build<'_, '_>, stops: &[Stop<'_>]) {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, stop) in stops.iter().enumerate() {
        if let Some((name, _)) = &stop.name {
            places.entry(name).or_insert(index);
        }
    }
    let mut whole = true;
    for (name, at) in stops.iter().flat_map(|stop| stop.next.iter().chain(&stop.fallback)) {
        if !places.contains_key(name) {
            build.no_such("phase", name, at.clone(), places.keys().copied());
            whole = false;
        }
    }
    // A name that is not there may be that of a phase which only seems to be out of reach.
    if whole && stops.iter().all(|stop| stop.name.is_some()) {
        let next: Vec<Option<usize>> = (0..stops.len()).map(|index| next(stops, &places, index)).collect();
        cycles(build, stops, &next);
        unreachable(build, stops, &next, &places);
    }
}

/// What follows a phase that succeeds.
fn next(stops: &[Stop<'_>], places: &BTreeMap<&str, usize>, index: usize) -> Option<usize> {
    match &stops[index].next {
        Some((name, _)) => places.get(name).copied(),
        None if stops[index].is_last => None,
        None => Some(index + 1).filter(|below| *below < stops.len()),
    }
}

/// Phases that follow each other for ever, though each succeeds. Each phase has one that follows it, so a walk finds them.
fn cycles(build: &mut Build<'_, '_>, stops: &[Stop<'_>], next: &[Option<usize>]) {
    // In which walk a phase was met; 0 in none.
    let mut met = vec![0; stops.len()];
    for start in 0..stops.len() {
        let mut at = Some(start);
        while let Some(index) = at.filter(|index| met[*index] == 0) {
            met[index] = start + 1;
            at = next[index];
        }
        if let Some(again) = at.filter(|index| met[*index] == start + 1) {
            report_cycle(build, stops, next, again);
        }
    }
}

fn report_cycle(build: &mut Build<'_, '_>, stops: &[Stop<'_>], next: &[Option<usize>], first: usize) {
    let mut around = vec![first];
    while let Some(index) = next[around[around.len() - 1]].filter(|index| *index != first) {
        around.push(index);
    }
    // The step that goes back is the one to mend.
    let back = around.iter().copied().find(|index| next[*index].is_some_and(|to| to <= *index)).unwrap_or(first);
    let turn = around.iter().position(|index| *index == back).map_or(0, |at| (at + 1) % around.len());
    around.rotate_left(turn);
    let name = |index: &usize| stops[*index].name.as_ref().map_or("?", |(name, _)| name);
    let mut names: Vec<&str> = around.iter().take(NAMED).map(name).collect();
    if around.len() > NAMED {
        names.push("…");
    }
    names.push(name(&around[0]));
    let at = stops[back].next.as_ref().map_or_else(|| stops[back].at.clone(), |(_, at)| at.clone());
    let message = format!("the phases follow each other for ever: {}", names.join(" -> "));
    let hint = "`on_fail` may go back, because it does so only a few times; `next` may not";
    build.sink.hint(Code::Cycle, at, message, hint);
}

fn unreachable(build: &mut Build<'_, '_>, stops: &[Stop<'_>], next: &[Option<usize>], places: &BTreeMap<&str, usize>) {
    let mut reached = vec![false; stops.len()];
    let mut open: Vec<usize> = if stops.is_empty() { Vec::new() } else { vec![0] };
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut reached[index], true) {
            open.extend(next[index]);
            open.extend(stops[index].fallback.as_ref().and_then(|(name, _)| places.get(name).copied()));
        }
    }
    for (index, stop) in stops.iter().enumerate().filter(|(index, _)| !reached[*index]) {
        let Some((name, at)) = &stop.name else { continue };
        // Of two phases of one name, the second is told already.
        if places.get(name) == Some(&index) {
            let hint = "let the `next` or the `on_fail` of another phase name it, or remove it";
            build.sink.hint(Code::Unreachable, at.clone(), format!("the phase {name:?} is never reached"), hint);
        }
    }
}
