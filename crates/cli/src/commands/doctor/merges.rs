//! Leftovers of killed merges in the repository around the project: checkouts between two commits, and lock files.

use std::path::Path;

use banksman_adapters::git::{self, Leftover, Settled};

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let root = examination.project.root();
    let failed = |error: &dyn std::fmt::Display| Entry::new(format!("git failed: {error}"));
    let entries = if examination.fix {
        match git::settle_leftovers(root) {
            Ok(settled) => settled.iter().map(fixed).collect(),
            Err(error) => vec![failed(&error)],
        }
    } else {
        match git::leftovers(root) {
            Ok(found) => found.iter().map(left).collect(),
            Err(error) => vec![failed(&error)],
        }
    };
    Ok(Finding::faults("merges", "no unfinished merges", entries))
}

fn left(leftover: &Leftover) -> Entry {
    let mut text = "a merge was killed".to_owned();
    if let Some(checkout) = &leftover.checkout {
        text.push_str(&format!("; the checkout at {} may be between two commits", checkout.display()));
    }
    if !leftover.locks.is_empty() {
        text.push_str(&format!("; it left {}", list(&leftover.locks)));
    }
    Entry::new(text).fixable()
}

fn fixed(settled: &Settled) -> Entry {
    let mut done = Vec::new();
    if let Some(checkout) = &settled.checkout {
        done.push(format!("the checkout at {} matches its branch again", checkout.display()));
    }
    if !settled.locks.is_empty() {
        done.push(format!("removed {}", list(&settled.locks)));
    }
    if let Some(saved) = &settled.saved {
        done.push(format!("files changed during the merge are in {}", saved.display()));
    }
    let done = if done.is_empty() { "removed its leftovers".to_owned() } else { done.join("; ") };
    Entry::new("a merge was killed").fixed(done)
}

fn list(paths: &[impl AsRef<Path>]) -> String {
    paths.iter().map(|path| path.as_ref().display().to_string()).collect::<Vec<_>>().join(", ")
}
