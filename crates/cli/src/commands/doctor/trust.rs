//! A store that the user has neither created nor trusted: it can be read, but nothing of it is executed.

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let entries = if examination.project.is_trusted()? {
        Vec::new()
    } else {
        vec![Entry::new("the store is not trusted, so nothing is started").solved_by("banksman trust")]
    };
    Ok(Finding::notes("trust", "you created or trusted the store", entries))
}
