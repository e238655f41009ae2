//! The checks of what a task asks for, wherever it comes from: the command line or a file.

use banksman_core::event::Kind;
use banksman_core::task::{COMMAND_LIMIT, LABEL_LIMIT, NEED_LIMIT, Need, Work};
use banksman_core::{Label, Name};

use crate::commands::resources;
use crate::failure::Failure;

/// What a runner does.
pub(super) fn work(command: &str) -> Result<Work, Failure> {
    if command.trim().is_empty() {
        return Err(Failure::usage("there is no command").hint("leave it out for a task that people do"));
    }
    if command.contains('\0') {
        return Err(Failure::usage("a command must not contain a NUL character"));
    }
    if command.len() > COMMAND_LIMIT {
        let bytes = command.len();
        return Err(Failure::usage(format!("a command may have at most {COMMAND_LIMIT} bytes, this one has {bytes}"))
            .hint("put it into a script, and run that"));
    }
    Ok(Work::Run(command.into()))
}

/// The labels, each once.
pub(crate) fn labels(mut labels: Vec<Label>) -> Result<Vec<Label>, Failure> {
    labels.sort();
    labels.dedup();
    if labels.len() > LABEL_LIMIT {
        return Err(Failure::usage(format!("a task may have at most {LABEL_LIMIT} labels, not {}", labels.len())));
    }
    Ok(labels)
}

/// A lock that a run needs.
pub(super) fn lock(name: &Name) -> Result<Need, Failure> {
    Ok(Need::Lock(resources::own_name(Kind::Lock, name)?.name))
}

/// Slots that a run needs, written `NAME` or `NAME=WEIGHT`.
pub(super) fn slots(text: &str) -> Result<Need, Failure> {
    let (name, weight) = match text.rsplit_once('=') {
        None => (text, 1),
        Some((name, weight)) => {
            let bad = |_| Failure::usage(format!("{weight:?} is not a number of slots"));
            (name, weight.parse().map_err(bad)?)
        }
    };
    if weight == 0 {
        return Err(Failure::usage("at least one slot must be asked for"));
    }
    let name = Name::new(name).map_err(Failure::usage)?;
    Ok(Need::Slots { name: resources::own_name(Kind::Semaphore, &name)?.name, weight })
}

/// The locks and slots, each once, in an order that does not depend on how they were given.
pub(super) fn needs(mut needs: Vec<Need>) -> Result<Vec<Need>, Failure> {
    needs.sort();
    needs.dedup();
    if let Some(twice) =
        needs.windows(2).find(|pair| matches!(pair, [Need::Slots { name, .. }, Need::Slots { name: other, .. }] if name == other))
    {
        return Err(Failure::usage(format!("semaphore {} is given twice, with different weights", twice[0].name())));
    }
    if needs.len() > NEED_LIMIT {
        return Err(Failure::usage(format!("a task may need at most {NEED_LIMIT} locks and semaphores, not {}", needs.len())));
    }
    Ok(needs)
}
