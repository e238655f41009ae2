//! Descriptions of obstacles and returns.

use std::fmt;

use super::REBUILD_LIMIT;
use super::entry::{Obstacle, Return};

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Checkout { path, reason, files } if files.is_empty() => write!(f, "the checkout at {path}: {reason}"),
            Obstacle::Checkout { path, reason, files } => write!(f, "the checkout at {path}: {reason}: {}", named(files)),
            Obstacle::Failure { error } => write!(f, "{error}"),
            Obstacle::Children { tasks } => match tasks.as_slice() {
                [task] => write!(f, "its child {task} is not over"),
                [task, others @ ..] => write!(f, "its child {task} and {} more are not over", others.len()),
                [] => write!(f, "its children are not over"),
            },
            Obstacle::Author { files } => {
                write!(f, "conflict in {}, where another task resolves a conflict first", named(files))
            }
        }
    }
}

impl fmt::Display for Return {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Return::Conflict { files, .. } => write!(f, "conflict in {}", named(files)),
            Return::CheckFailed { commit, log } => {
                write!(f, "the check fails on {}, and passes without it (output: {log})", commit.short())
            }
            Return::NoChange => write!(f, "nothing was changed"),
            Return::Unfinished { reason } => write!(f, "{reason}"),
            Return::TargetMoves => write!(f, "others moved the target {REBUILD_LIMIT} times meanwhile"),
            Return::Failure { error } => write!(f, "{error}"),
        }
    }
}

/// How many files are named.
const NAMED: usize = 10;

fn named(files: &[Box<str>]) -> String {
    let named = files.iter().take(NAMED).map(|file| &**file).collect::<Vec<_>>().join(", ");
    if files.len() > NAMED { format!("{named} and {} more", files.len() - NAMED) } else { named }
}
