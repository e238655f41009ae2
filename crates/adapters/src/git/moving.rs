//! The move of a checkout from one commit to another, while a person may work in it.
//!
//! Everything is prepared before anything is locked (`staging`). Then a transaction locks and compares the ref, and
//! `index.lock` locks the index. Then HEAD, the index and every affected file are verified to be unchanged, and only
//! then do files move, each in one step. The files that were moved away are compared once more, when they cannot change
//! any more: no process finds them, and no program has them open for writing (`writers`). At last the index is put into
//! place, and the transaction is committed. If any check fails, every path is moved back whose file is exactly ours. A
//! file that was moved away and differs from the commit is never removed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::journal::{Journal, Record, is_same_file, remove_tree};
use super::merge::{Halt, MergeError};
use super::staging::{Staged, changes, feed};
use super::steps::{Kind, Slots, Step, is_occupied};
use super::{Git, GitError, system, zero_separated};

/// Files that show an operation in progress in a checkout, which will move its branch.
const UNDER_WAY: [&str; 5] = ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply"];

/// A move of a checkout.
pub(super) struct Move<'a> {
    /// Git for the checkout.
    git: Git,
    journal: &'a Journal,
    slots: Slots,
    record: Record,
}

impl<'a> Move<'a> {
    pub(super) fn new(git: &Git, journal: &'a Journal, slots: Slots, record: Record) -> Move<'a> {
        // A hook would find the checkout locked, with an unknown index.
        let git = git.clone().with("core.hooksPath=/dev/null").with("core.ignoreStat=false");
        let git = git.with_variable("GIT_DIR", &record.git_dir).with_variable("GIT_WORK_TREE", &record.root);
        Move { git, journal, slots, record }
    }

    /// An interrupted move; `None` if the checkout or the directories of the moved files are gone.
    pub(super) fn resume(git: &Git, journal: &'a Journal, record: Record) -> Result<Option<Move<'a>>, GitError> {
        let slots = ["new", "old"].map(|name| record.slots.join(name));
        if [&record.root, &record.git_dir, &slots[0], &slots[1]].iter().any(|directory| !directory.is_dir()) {
            return Ok(None);
        }
        let slots = Slots::open(&record.root, &record.slots).map_err(system(&record.slots))?;
        Ok(Some(Move::new(&git.at(&record.root), journal, slots, record)))
    }

    pub(super) fn with_steps(mut self, steps: Vec<Step>) -> Move<'a> {
        self.record.steps = steps;
        self
    }

    pub(super) fn git(&self) -> &Git {
        &self.git
    }

    pub(super) fn journal(&self) -> &Journal {
        self.journal
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Git with an index from the journal.
    pub(super) fn with_index(&self, name: &str) -> Git {
        self.git.clone().with_index(&self.journal.path(name))
    }

    /// The files below a directory that differ from the first commit, with the status letter, according to git and its filters.
    pub(super) fn differing(&self, directory: &Path) -> Result<HashMap<PathBuf, u8>, GitError> {
        self.make_check()?;
        let git = self.with_index("check").with("diff.autoRefreshIndex=true").with_variable("GIT_WORK_TREE", directory);
        let args = ["diff", "--no-ext-diff", "--no-renames", "--name-status", "--ignore-submodules=all", "-z"];
        let list = git.at(directory).get(&args)?;
        let fields: Vec<&[u8]> = zero_separated(&list).collect();
        let pairs = fields.chunks_exact(2).map(|pair| (PathBuf::from(OsStr::from_bytes(pair[1])), pair[0][0]));
        Ok(pairs.collect())
    }

    /// Makes an index with the former entries of the removed and changed files, and the attributes for the comparison.
    fn make_check(&self) -> Result<(), GitError> {
        if self.journal.path("check").exists() {
            return Ok(());
        }
        let before = self.journal.path("index.before");
        // It was put back if the move was undone.
        let before = if before.exists() { before } else { self.record.git_dir.join("index") };
        let attributes = ["ls-files", "-s", "-z", "--", ":(glob)**/.gitattributes"];
        let mut lines = self.git.clone().with_index(&before).get(&attributes)?;
        for change in changes(&self.git, &self.record.from, &self.record.to)?.iter().filter(|change| change.is_file(0)) {
            let entry = change.sides[0].as_deref().unwrap_or_default();
            lines.extend([entry.as_bytes(), b"\t", change.path.as_os_str().as_bytes(), b"\0"].concat());
        }
        feed(&self.with_index("check"), &["update-index", "-z", "--index-info"], &lines)
    }

    /// Locks the index. Returns false if another git has locked it.
    pub(super) fn lock_index(&self) -> Result<bool, GitError> {
        let (lock, name) = (self.journal.path("lock"), self.index_lock());
        match fs::hard_link(&lock, &name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(self.journal.is_lock(&name)),
            Err(error) => Err(system(&name)(error)),
        }
    }

    pub(super) fn unlock_index(&self) -> Result<(), GitError> {
        let name = self.index_lock();
        // If our lock was removed manually, the file may be the lock of another git now.
        if self.journal.is_lock(&name) { fs::remove_file(&name).map_err(system(&name)) } else { Ok(()) }
    }

    fn index_lock(&self) -> PathBuf {
        self.record.git_dir.join("index.lock")
    }

    /// Moves the files, then the index.
    pub(super) fn forward(&self) -> Result<(), Halt> {
        for step in &self.record.steps {
            self.slots.forward(step).map_err(|error| self.refusal(step, error))?;
        }
        if let Some(path) = self.wrongly_taken()?.first() {
            return Err(Halt::Again(format!("{} was changed, or is open for writing", path.display())));
        }
        Ok(self.install_index()?)
    }

    /// Whether the checkout is on the branch that moves.
    fn is_at_target(&self) -> bool {
        let name = &self.record.target;
        // Git is asked if HEAD is not a file of this form: a link, or refs that are stored in another way.
        fs::read(self.record.git_dir.join("HEAD")).is_ok_and(|head| head == format!("ref: {name}\n").as_bytes())
            || self.git.line(&["symbolic-ref", "--quiet", "HEAD"]).is_ok_and(|head| head == *name)
    }

    fn refusal(&self, step: &Step, error: io::Error) -> Halt {
        let directory = self.git.directory.clone();
        match step.kind {
            Kind::Add if is_occupied(&error) => Halt::Refused(MergeError::InTheWay(directory)),
            Kind::Replace | Kind::Remove if super::files::is_absent(&error) => Halt::Refused(MergeError::Dirty(directory)),
            _ => Halt::from(system(&self.record.root.join(&step.path))(error)),
        }
    }

    /// The files that were moved away and differ from the first commit, or may differ in a moment, because a program
    /// has them open for writing. No process can open them any more.
    fn wrongly_taken(&self) -> Result<Vec<PathBuf>, GitError> {
        let mut wrong = Vec::new();
        for slot in [&self.slots.new, &self.slots.old] {
            let is_here = |step: &&Step| self.slots.taken(step).is_some_and(|root| root.path() == slot.path());
            let has_writer = |step: &&Step| slot.has_writer(&step.path).unwrap_or(false);
            let (written, taken): (Vec<&Step>, Vec<&Step>) = self.record.steps.iter().filter(is_here).partition(has_writer);
            wrong.extend(written.into_iter().map(|step| step.path.clone()));
            let taken: Vec<&Step> = taken.into_iter().filter(|step| !self.slots.is_committed(slot, step)).collect();
            if taken.is_empty() {
                continue;
            }
            let differing = self.differing(slot.path())?;
            for step in taken.into_iter().filter(|step| differing.contains_key(&step.path)) {
                if !self.is_as_committed(slot.path(), &step.path)? {
                    wrong.push(step.path.clone());
                }
            }
        }
        Ok(wrong)
    }

    /// A second comparison, for filters that can run in the checkout only.
    fn is_as_committed(&self, slot: &Path, path: &Path) -> Result<bool, GitError> {
        let file = slot.join(path);
        if !fs::symlink_metadata(&file).map_err(system(&file))?.is_file() {
            return Ok(false);
        }
        let git = self.git.clone().with_variable("GIT_ATTR_SOURCE", &self.record.from);
        let mut name = std::ffi::OsString::from("--path=");
        name.push(path);
        let mut command = git.command(&["hash-object".as_ref(), "--stdin".as_ref(), name.as_os_str()]);
        command.stdin(File::open(&file).map_err(system(&file))?);
        let answer = git.end(command, "hash-object".into())?;
        let mut object = std::ffi::OsString::from(format!("{}:", self.record.from));
        object.push(path);
        let committed = self.git.get(&["rev-parse".as_ref(), "--verify".as_ref(), object.as_os_str()])?;
        Ok(answer.status == 0 && answer.stdout == committed)
    }

    fn install_index(&self) -> Result<(), GitError> {
        let (new, kept) = (self.journal.path("index.new"), self.journal.path("index.kept"));
        if !new.exists() {
            return Ok(());
        }
        // Its exit status, whether there are other changes, does not matter.
        self.with_index("index.new").ask(&["update-index", "-q", "--refresh"])?;
        let install = || {
            File::open(&new)?.sync_all()?;
            fs::hard_link(&new, &kept)?;
            fs::rename(&new, self.record.git_dir.join("index"))
        };
        install().map_err(system(&new))
    }

    /// Moves back every path whose file is exactly ours.
    pub(super) fn undo(&self) -> Result<(), GitError> {
        let index = self.record.git_dir.join("index");
        let before = self.journal.path("index.before");
        let is_ours = fs::metadata(self.journal.path("index.kept")).is_ok_and(|ours| is_same_file(&index, &ours));
        if is_ours {
            let put_back = if before.exists() { fs::rename(&before, &index) } else { fs::remove_file(&index) };
            put_back.map_err(system(&index))?;
        }
        for step in self.record.steps.iter().rev() {
            self.slots.undo(step).map_err(system(&self.record.root.join(&step.path)))?;
        }
        Ok(())
    }

    /// Completes a move whose ref has moved. Files that were changed meanwhile stay.
    pub(super) fn complete(&self) -> Result<(), GitError> {
        for step in &self.record.steps {
            match self.slots.forward(step) {
                Err(error) if is_occupied(&error) || super::files::is_absent(&error) => {}
                end => end.map_err(system(&self.record.root.join(&step.path)))?,
            }
        }
        for path in self.wrongly_taken()? {
            for step in self.record.steps.iter().rev().filter(|step| step.path == path) {
                self.slots.undo(step).map_err(system(&path))?;
            }
        }
        self.install_index()
    }

    /// Removes the files that were moved away. Those that no commit has are kept in a folder, which is returned.
    pub(super) fn dispose(&self) -> Result<Option<PathBuf>, GitError> {
        let id = self.journal.folder().file_name().unwrap_or_default();
        let saved = self.journal.common().join("banksman/saved").join(id);
        let mut is_saved = false;
        for path in self.wrongly_taken()? {
            for step in self.record.steps.iter().filter(|step| step.path == path) {
                let Some(slot) = self.slots.taken(step) else { continue };
                let target = saved.join(&path);
                let save = || {
                    fs::create_dir_all(target.parent().unwrap_or(&saved))?;
                    fs::rename(slot.path().join(&path), &target).or_else(|_| fs::copy(slot.path().join(&path), &target).map(drop))
                };
                save().map_err(system(&target))?;
                is_saved = true;
            }
        }
        remove_tree(&self.record.slots)?;
        Ok(is_saved.then_some(saved))
    }
}

impl Staged<'_> {
    /// Verifies that nothing has changed since the move was prepared. Ref and index are locked now.
    pub(super) fn verify(&self) -> Result<(), Halt> {
        let (moving, record) = (&self.moving, self.moving.record());
        let again = |what: &str| Err(Halt::Again(what.into()));
        if !moving.is_at_target() {
            return again("its checkout has switched to another branch");
        }
        if UNDER_WAY.iter().any(|name| record.git_dir.join(name).exists()) {
            return again("a merge or the like has begun in its checkout");
        }
        if read(&record.git_dir.join("index"))? != read(&moving.journal().path("index.before"))? {
            return again("the index of its checkout has changed");
        }
        for (path, seen) in &self.seen {
            if moving.slots().root.stamp(path).map_err(system(path))? != *seen {
                return Err(Halt::Again(format!("{} has changed", path.display())));
            }
        }
        if self.is_in_the_way()? {
            return Err(Halt::Refused(MergeError::InTheWay(moving.git().directory.clone())));
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, GitError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(system(path)(error)),
    }
}
