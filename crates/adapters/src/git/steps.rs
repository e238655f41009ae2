//! The steps of a move, one for each path, forward and back. Both directions are idempotent: the location of the files
//! shows what was done.

use std::io;
use std::path::{Path, PathBuf};

use super::files::{Root, Stamp, is_absent};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) kind: Kind,
    pub(super) path: PathBuf,
    /// The stamp of the new file, as it was made.
    pub(super) ours: Option<Stamp>,
    /// The index entry (`MODE ID`) of the file that is removed.
    pub(super) leaves: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Remove,
    /// Remove the directory of a submodule, if it is empty.
    LeaveModule,
    /// Exchange a file with another.
    Replace,
    Add,
    /// Make an empty directory for a submodule.
    EnterModule,
}

/// In the order of the steps.
const KINDS: [(Kind, &str); 5] = [
    (Kind::Remove, "remove"),
    (Kind::LeaveModule, "leave-module"),
    (Kind::Replace, "replace"),
    (Kind::Add, "add"),
    (Kind::EnterModule, "enter-module"),
];

impl Step {
    pub(super) fn encode(&self) -> String {
        let kind = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("", |(_, word)| word);
        let ours = self.ours.map(|ours| ours.encode()).unwrap_or_default();
        let leaves = self.leaves.iter().map(|entry| format!(" {entry}")).collect::<String>();
        format!("{kind} {ours}{leaves}")
    }

    pub(super) fn decode(text: &str, path: &Path) -> Option<Step> {
        let (word, rest) = text.split_once(' ')?;
        let (kind, _) = KINDS.iter().find(|(_, name)| *name == word)?;
        let words: Vec<&str> = rest.split(' ').collect();
        // The stamp is five words, or one empty word.
        let leaves = words.len().checked_sub(2).filter(|at| [1, 5].contains(at)).map(|at| words[at..].join(" "));
        Some(Step { kind: *kind, path: path.into(), ours: Stamp::decode(rest), leaves })
    }

    /// Removals come first, so that a directory can take the place of a file and the other way round.
    pub(super) fn order(&self) -> usize {
        KINDS.iter().position(|(kind, _)| *kind == self.kind).unwrap_or(KINDS.len())
    }

    fn is_ours(&self, found: Option<Stamp>) -> bool {
        matches!((self.ours, found), (Some(ours), Some(found)) if ours.is_same_content(&found))
    }
}

/// The files of a checkout, the new files, and the files that were moved away. An exchange moves a file away into `new`.
pub(super) struct Slots {
    pub(super) root: Root,
    pub(super) new: Root,
    pub(super) old: Root,
}

impl Slots {
    pub(super) fn open(root: &Path, slots: &Path) -> io::Result<Slots> {
        Ok(Slots { root: Root::open(root)?, new: Root::open(&slots.join("new"))?, old: Root::open(&slots.join("old"))? })
    }

    pub(super) fn forward(&self, step: &Step) -> io::Result<()> {
        let path = &step.path;
        match step.kind {
            Kind::Remove => {
                if self.root.stamp(path)?.is_some() && self.old.stamp(path)?.is_none() {
                    self.root.take(path, &self.old)?;
                    self.root.prune(path);
                }
            }
            Kind::LeaveModule => {
                if self.root.remove_directory(path) {
                    self.root.prune(path);
                }
            }
            Kind::Replace => {
                if step.is_ours(self.new.stamp(path)?) {
                    self.root.exchange(path, &self.new)?;
                }
            }
            Kind::Add => {
                if step.is_ours(self.new.stamp(path)?) {
                    match self.root.put(path, &self.new) {
                        // Git does not track empty directories, so they may be removed.
                        Err(error) if is_occupied(&error) && self.root.remove_empty(path) => self.root.put(path, &self.new)?,
                        end => end?,
                    }
                }
            }
            Kind::EnterModule => drop(self.root.make_directory(path)?),
        }
        Ok(())
    }

    /// Moves the former file back, if the present one is exactly ours.
    pub(super) fn undo(&self, step: &Step) -> io::Result<()> {
        let path = &step.path;
        match step.kind {
            Kind::Remove => self.put_back(path, &self.old),
            Kind::LeaveModule => self.root.make_directory(path).map(drop),
            Kind::Replace => {
                if step.is_ours(self.new.stamp(path)?) || !step.is_ours(self.root.stamp(path)?) {
                    return Ok(());
                }
                self.root.exchange(path, &self.new)?;
                // A file that was changed in this very moment goes back to its place.
                if step.is_ours(self.new.stamp(path)?) { Ok(()) } else { self.root.exchange(path, &self.new) }
            }
            Kind::Add => {
                if self.new.stamp(path)?.is_some() || !step.is_ours(self.root.stamp(path)?) {
                    return Ok(());
                }
                self.root.take(path, &self.new)?;
                if step.is_ours(self.new.stamp(path)?) {
                    self.root.prune(path);
                    return Ok(());
                }
                self.put_back(path, &self.new)
            }
            Kind::EnterModule => {
                self.root.remove_directory(path);
                Ok(())
            }
        }
    }

    /// Whether the file that was moved away is, byte by byte, the one of the first commit.
    pub(super) fn is_committed(&self, slot: &Root, step: &Step) -> bool {
        step.leaves.as_ref().is_some_and(|entry| slot.is_exactly(&step.path, entry).unwrap_or(false))
    }

    /// The slot with the file that was moved away, if it was.
    pub(super) fn taken(&self, step: &Step) -> Option<&Root> {
        let is_file = |slot: &Root| std::fs::symlink_metadata(slot.path().join(&step.path)).is_ok();
        match step.kind {
            Kind::Remove => Some(&self.old).filter(|slot| is_file(slot)),
            Kind::Replace | Kind::Add => {
                let is_ours = self.new.stamp(&step.path).is_ok_and(|found| step.is_ours(found));
                Some(&self.new).filter(|slot| !is_ours && is_file(slot))
            }
            Kind::LeaveModule | Kind::EnterModule => None,
        }
    }

    /// Moves a file back, unless its path is taken: a file put there meanwhile stays, and `dispose` saves the former.
    fn put_back(&self, path: &Path, slot: &Root) -> io::Result<()> {
        match self.root.put(path, slot) {
            Err(error) if is_absent(&error) || is_occupied(&error) => Ok(()),
            end => end,
        }
    }
}

/// Whether an error means that the path is taken, or that a file is in the place of one of its parents.
pub(super) fn is_occupied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_this_and_of_earlier_versions_are_decoded() {
        let path = Path::new("a b");
        let stamp = Stamp::decode("1 2 3 4 5");
        for (kind, ours) in [(Kind::Remove, None), (Kind::Replace, stamp)] {
            for leaves in [None, Some("100644 78981922613b2afb6025042ff6bd878ac1994e85".to_owned())] {
                let step = Step { kind, path: path.into(), ours, leaves };
                assert_eq!(Step::decode(&step.encode(), path), Some(step));
            }
        }
        for (text, ours) in [("remove ", None), ("replace 1 2 3 4 5", stamp)] {
            let step = Step::decode(text, path).unwrap();
            assert_eq!((step.ours, step.leaves), (ours, None), "{text}");
        }
    }
}
