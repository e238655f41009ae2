//! An import: many tasks that are added together, and appear together.
//!
//! Its rows come in small transactions. Its tasks are hidden until the last of them, which removes the import's own
//! row.

use serde::{Deserialize, Serialize};

use crate::ids::{ImportId, SectionId, Seq, TaskId, Title};
use crate::process::ProcessId;
use crate::time::Wall;

/// The most tasks of one import.
pub const IMPORT_LIMIT: usize = 1_000_000;

/// The digits that number tasks; they are in the order of their bytes.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The number of digits that number all tasks of the largest import.
const PLACES: u32 = 4;

/// An import that is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub id: ImportId,
    pub process: ProcessId,
    /// The number of the event that opened it: its tasks come after it.
    pub position: Seq,
    pub started: Wall,
    /// How many tasks it has when it is complete.
    pub total: u32,
    /// How many tasks were added so far.
    pub added: u32,
    /// The sections that are added when it is finished.
    pub sections: Vec<NewSection>,
}

/// A section that appears with the tasks of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSection {
    pub id: SectionId,
    pub name: Title,
}

impl ImportId {
    /// The id of a task of this import. The ids rise with the number, so that their rows are adjacent: random ids would
    /// make every chunk write a page for nearly every row.
    pub fn task(&self, number: u32) -> TaskId {
        let digit = |place: u32| char::from(DIGITS[(number >> (5 * place)) as usize % DIGITS.len()]);
        let digits: String = (0..PLACES).rev().map(digit).collect();
        TaskId::new(&format!("t-{}{digits}", self.stem())).expect("an import's id is short and plain")
    }

    /// The number of a task of this import.
    pub fn number_of(&self, task: &TaskId) -> Option<u32> {
        let digits = task.as_str().strip_prefix("t-")?.strip_prefix(self.stem())?;
        if digits.len() != PLACES as usize {
            return None;
        }
        digits.bytes().try_fold(0, |number, digit| {
            let value = DIGITS.iter().position(|known| *known == digit)?;
            Some(number * 32 + u32::try_from(value).ok()?)
        })
    }

    /// The id without its prefix.
    fn stem(&self) -> &str {
        self.as_str().strip_prefix("i-").unwrap_or(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_numbered_in_the_order_of_their_ids() {
        let import = ImportId::new("i-7k2m9q1a").unwrap();
        let last = u32::try_from(IMPORT_LIMIT).unwrap() - 1;
        let numbers = [0, 1, 31, 32, 1_023, 1_024, 99_999, last];
        let ids = numbers.map(|number| import.task(number));
        assert_eq!(ids[0].as_str(), "t-7k2m9q1a0000");
        assert!(ids.is_sorted());
        assert_eq!(ids.each_ref().map(|id| import.number_of(id)), numbers.map(Some));
    }

    #[test]
    fn tasks_of_other_imports_have_no_number() {
        let import = ImportId::new("i-7k2m9q1a").unwrap();
        for other in ["t-7k2m9q1a", "t-7k2m9q1a000", "t-7k2m9q1a00000", "t-7k2m9q1a000u", "t-8k2m9q1a0000", "x"] {
            assert_eq!(import.number_of(&TaskId::new(other).unwrap()), None, "{other}");
        }
    }
}
