//! Shared checks of the needs and labels of a task, for the command line and for files.

use banksman_core::event::Kind;
use banksman_core::task::{self, Need, SpecError, Work};
use banksman_core::{Label, Name};

use crate::commands::resources;
use crate::failure::Failure;

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Failure {
        let hint = match error {
            SpecError::NoCommand => Some("leave it out for a manual task"),
            SpecError::CommandTooLong(_) => Some("put it into a script, and run the script"),
            _ => None,
        };
        let failure = Failure::usage(error);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// The work of a shell command.
pub(super) fn work(command: &str) -> Result<Work, Failure> {
    Ok(Work::shell(command)?)
}

/// The labels without duplicates.
pub(crate) fn labels(labels: Vec<Label>) -> Result<Vec<Label>, Failure> {
    Ok(task::labels(labels)?)
}

/// The need of a lock.
pub(super) fn lock(name: &Name) -> Result<Need, Failure> {
    Ok(Need::Lock(resources::own_name(Kind::Lock, name)?.name))
}

/// The need of slots, written `NAME` or `NAME=WEIGHT`.
pub(super) fn slots(text: &str) -> Result<Need, Failure> {
    let (name, weight) = match text.rsplit_once('=') {
        None => (text, 1),
        Some((name, weight)) => {
            let bad = |_| Failure::usage(format!("{weight:?} is not a number of slots"));
            (name, weight.parse().map_err(bad)?)
        }
    };
    if weight == 0 {
        return Err(SpecError::NoSlot.into());
    }
    let name = Name::new(name).map_err(Failure::usage)?;
    Ok(Need::Slots { name: resources::own_name(Kind::Semaphore, &name)?.name, weight })
}

/// The locks and slots without duplicates, in an order that does not depend on the input.
pub(super) fn needs(needs: Vec<Need>) -> Result<Vec<Need>, Failure> {
    Ok(task::needs(needs)?)
}

/// The same, from the options of the command line.
pub(super) fn named_needs(locks: &[Name], semaphores: &[String]) -> Result<Vec<Need>, Failure> {
    let slots = |text: &String| slots(text).map_err(|error| error.at(&format!("--semaphore {text}")));
    needs(locks.iter().map(lock).chain(semaphores.iter().map(slots)).collect::<Result<_, _>>()?)
}
