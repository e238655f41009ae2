//! The preparation of a move of a checkout, outside of the checkout: the new files, as git would write them, the new
//! index, and the state that the checkout is compared with.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::files::{Stamp, can_exchange, copy_index};
use super::journal::{Journal, Record, remove_tree};
use super::merge::{Halt, MergeError};
use super::moving::Move;
use super::steps::{Kind, Slots, Step};
use super::{Git, GitError, Id, system, zero_separated};

/// A prepared move, and the state of the checkout at that time.
pub(super) struct Staged<'a> {
    pub(super) moving: Move<'a>,
    /// The files that the move removes or changes.
    pub(super) seen: Vec<(PathBuf, Option<Stamp>)>,
    changes: Vec<Change>,
    /// The path of the user's `post-merge` hook, whether it exists or not.
    pub(super) hook: PathBuf,
}

/// A path that differs between two commits.
pub(super) struct Change {
    pub(super) path: PathBuf,
    /// The index entries (`MODE ID`) of the first and of the second commit; `None` if the commit does not have the path.
    pub(super) sides: [Option<String>; 2],
}

impl Change {
    fn is_submodule(&self, side: usize) -> bool {
        self.sides[side].as_ref().is_some_and(|entry| entry.starts_with("160000 "))
    }

    pub(super) fn is_file(&self, side: usize) -> bool {
        self.sides[side].is_some() && !self.is_submodule(side)
    }
}

impl Staged<'_> {
    /// Whether a file of the user's, ignored or not, is at the path of a new file.
    pub(super) fn is_in_the_way(&self) -> Result<bool, GitError> {
        let leaves = |change: &&Change| change.sides[1].is_none() && !change.is_submodule(0);
        let leaving: HashSet<&Path> = self.changes.iter().filter(leaves).map(|change| &*change.path).collect();
        let root = self.moving.record().root.as_path();
        for change in &self.changes {
            let takes_place = change.sides[0].is_none() || (change.is_submodule(0) && change.is_file(1));
            if takes_place && is_taken(root, &change.path, change.is_file(1), &leaving)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Prepares a move of the checkout that `git` is in, without touching the checkout.
pub(super) fn stage<'a>(git: &Git, journal: &'a Journal, target: &str, from: &Id, to: &Id) -> Result<Staged<'a>, Halt> {
    let [root, git_dir, hook] = git.places([&["--show-toplevel"], &["--git-dir"], &["--git-path", "hooks/post-merge"]])?;
    let (slots, can_exchange) = slots(journal, &root)?;
    let record = Record { target: target.into(), from: from.clone(), to: to.clone(), git_dir, root, slots, steps: Vec::new() };
    let changes = changes(git, from, to)?;
    let open = || Slots::open(&record.root, &record.slots);
    let moving = Move::new(git, journal, open().map_err(system(&record.slots))?, record);
    let staging = Staging { moving: &moving, changes: &changes, from, to };
    staging.copy_index()?;
    let staged = moving.with_index("index.before").get(&["diff-index", "--cached", "--name-only", "--no-renames", "-z", from])?;
    let staged: HashSet<&[u8]> = zero_separated(&staged).collect();
    if changes.iter().any(|change| staged.contains(change.path.as_os_str().as_bytes())) {
        return Err(Halt::Refused(MergeError::Dirty(git.directory.clone())));
    }
    let seen = staging.stamps()?;
    if staging.is_dirty(&seen)? {
        return Err(Halt::Refused(MergeError::Dirty(git.directory.clone())));
    }
    let present: HashSet<&Path> = seen.iter().filter(|(_, stamp)| stamp.is_some()).map(|(path, _)| &**path).collect();
    let is_sparse = staging.is_sparse()?;
    staging.make_index(is_sparse)?;
    let staged = staging.make_files(&present, is_sparse)?;
    let steps = staging.steps(&present, &staged, can_exchange)?;
    let moving = moving.with_steps(steps);
    let staged = Staged { moving, seen, changes, hook };
    if staged.is_in_the_way()? {
        return Err(Halt::Refused(MergeError::InTheWay(git.directory.clone())));
    }
    Ok(staged)
}

/// Makes empty directories for the files, on the file system of the checkout. Returns whether it can exchange files.
fn slots(journal: &Journal, root: &Path) -> Result<(PathBuf, bool), GitError> {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).map_err(system(path));
    let slots = if device(root)? == device(journal.folder())? {
        journal.path("files")
    } else {
        let name = journal.folder().file_name().unwrap_or_default();
        root.join([OsStr::new(".banksman-move-"), name].join(OsStr::new("")))
    };
    remove_tree(&slots)?;
    let both = ["new", "old"].map(|name| slots.join(name));
    for path in &both {
        fs::create_dir_all(path).map_err(system(path))?;
    }
    let can_exchange = can_exchange(&both[0], &both[1]);
    Ok((slots, can_exchange))
}

struct Staging<'a, 'j> {
    moving: &'a Move<'j>,
    changes: &'a [Change],
    from: &'a Id,
    to: &'a Id,
}

impl Staging<'_, '_> {
    /// Copies the current index.
    fn copy_index(&self) -> Result<(), GitError> {
        let index = self.moving.record().git_dir.join("index");
        for name in ["index.before", "index.new", "index.kept", "index.new.lock", "check", "check.lock"] {
            fs::remove_file(self.moving.journal().path(name)).ok();
        }
        for copy in ["index.before", "index.new"].map(|name| self.moving.journal().path(name)) {
            match copy_index(&index, &copy) {
                // A checkout to which nothing was ever added has no index.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                end => end.map_err(system(&copy))?,
            }
        }
        Ok(())
    }

    fn stamps(&self) -> Result<Vec<(PathBuf, Option<Stamp>)>, GitError> {
        let root = &self.moving.slots().root;
        let files = self.changes.iter().filter(|change| change.is_file(0));
        files.map(|change| Ok((change.path.clone(), root.stamp(&change.path).map_err(system(&change.path))?))).collect()
    }

    /// Whether any of the files that the move removes or changes differs from the first commit.
    fn is_dirty(&self, seen: &[(PathBuf, Option<Stamp>)]) -> Result<bool, GitError> {
        let root = &self.moving.slots().root;
        let files = self.changes.iter().filter(|change| change.is_file(0)).zip(seen);
        // A file that is missing already is no change to lose.
        let mut present = files.filter(|(_, (_, stamp))| stamp.is_some()).map(|(change, _)| change);
        let is_exact =
            |change: &Change| change.sides[0].as_ref().is_some_and(|entry| root.is_exactly(&change.path, entry).unwrap_or(false));
        if present.all(is_exact) {
            return Ok(false);
        }
        let differing = self.moving.differing(root.path())?;
        Ok(self.changes.iter().any(|change| differing.get(&change.path).is_some_and(|how| *how != b'D')))
    }

    /// Makes the index after the move. For a sparse checkout it has the same selection of files.
    fn make_index(&self, is_sparse: bool) -> Result<(), GitError> {
        let git = self.moving.with_index("index.new");
        if !is_sparse {
            return git.get(&["read-tree", "-m", "-i", self.from, self.to]).map(drop);
        }
        // Git selects the files only when it writes them. Without attributes it writes them unfiltered.
        let (void, nothing) = (self.void(), git.line(&["hash-object", "-t", "tree", "/dev/null"])?);
        remove_tree(&void)?;
        fs::create_dir(&void).map_err(system(&void))?;
        let git = git.with_variable("GIT_WORK_TREE", &void).with_variable("GIT_ATTR_SOURCE", nothing);
        git.get(&["read-tree", "-m", "-u", "--no-recurse-submodules", self.from, self.to]).map(drop)
    }

    fn is_sparse(&self) -> Result<bool, GitError> {
        // Without a pattern file git checks out all files.
        Ok(self.moving.record().git_dir.join("info/sparse-checkout").exists()
            && self.moving.git().ask(&["config", "--type=bool", "core.sparseCheckout"])?.stdout.starts_with(b"true"))
    }

    fn void(&self) -> PathBuf {
        self.moving.journal().path("void")
    }

    /// Has git write the new files. Its filters run in the checkout, as always, with the attributes of the new commit.
    fn make_files(&self, present: &HashSet<&Path>, is_sparse: bool) -> Result<Vec<(PathBuf, Stamp)>, GitError> {
        let is_wanted = |change: &&Change| {
            change.is_file(1)
                && (!change.is_file(0) || present.contains(&*change.path))
                && (!is_sparse || fs::symlink_metadata(self.void().join(&change.path)).is_ok())
        };
        let wanted: Vec<&Change> = self.changes.iter().filter(is_wanted).collect();
        let mut lines = Vec::new();
        for change in &wanted {
            lines.extend([change.path.as_os_str().as_bytes(), b"\0"].concat());
        }
        let new = &self.moving.slots().new;
        let mut prefix = OsString::from("--prefix=");
        prefix.push(new.path().join(""));
        let git = self.moving.with_index("index.new").with_variable("GIT_ATTR_SOURCE", self.to);
        let words = ["checkout-index", "-z", "--stdin", "--ignore-skip-worktree-bits"].map(OsString::from);
        feed(&git, &[&words[..], &[prefix]].concat(), &lines)?;
        let made = |change: &Change| match new.stamp(&change.path).map_err(system(&change.path))? {
            Some(stamp) => Ok((change.path.clone(), stamp)),
            None => {
                Err(GitError::Failed { what: "checkout-index".into(), said: format!("{} is missing", change.path.display()) })
            }
        };
        wanted.into_iter().map(made).collect()
    }

    fn steps(&self, present: &HashSet<&Path>, staged: &[(PathBuf, Stamp)], can_exchange: bool) -> Result<Vec<Step>, GitError> {
        let slots = self.moving.slots();
        let mut steps = Vec::new();
        for change in self.changes {
            let leaves = change.sides[0].clone().filter(|_| change.is_file(0));
            let mut add = |kind, ours| steps.push(Step { kind, path: change.path.clone(), ours, leaves: leaves.clone() });
            let ours = staged.binary_search_by(|(path, _)| path.cmp(&change.path)).ok().map(|at| staged[at].1);
            match (present.contains(&*change.path), ours) {
                (true, Some(_)) if can_exchange => add(Kind::Replace, ours),
                (true, Some(_)) => {
                    add(Kind::Remove, None);
                    add(Kind::Add, ours);
                }
                (true, None) => add(Kind::Remove, None),
                (false, Some(_)) => add(Kind::Add, ours),
                (false, None) => {}
            }
            if change.is_submodule(0) && !change.is_submodule(1) {
                add(Kind::LeaveModule, None);
            }
            if change.is_submodule(1) && !slots.root.path().join(&change.path).exists() {
                add(Kind::EnterModule, None);
            }
        }
        steps.sort_by_key(Step::order);
        Ok(steps)
    }
}

/// The paths that differ between two commits, sorted.
pub(super) fn changes(git: &Git, from: &Id, to: &Id) -> Result<Vec<Change>, GitError> {
    let list = git.get(&["diff-tree", "-r", "-z", "--no-renames", from, to])?;
    let fields: Vec<&[u8]> = list.split(|byte| *byte == 0).collect();
    let change = |pair: &[&[u8]]| {
        let about = String::from_utf8_lossy(pair[0]);
        let mut words = about.trim_start_matches(':').split(' ');
        let [modes, ids] = [(); 2].map(|()| [(); 2].map(|()| words.next().unwrap_or_default()));
        let side = |n: usize| (modes[n] != "000000").then(|| format!("{} {}", modes[n], ids[n]));
        Change { path: OsStr::from_bytes(pair[1]).into(), sides: [side(0), side(1)] }
    };
    let mut changes: Vec<Change> = fields.chunks_exact(2).map(change).collect();
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changes)
}

/// Whether something that the move does not remove is at a path or in place of one of its parents. A new submodule may
/// take over a directory.
fn is_taken(root: &Path, path: &Path, by_file: bool, leaving: &HashSet<&Path>) -> Result<bool, GitError> {
    let mut way: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    while let Some(part) = way.pop() {
        match fs::symlink_metadata(root.join(part)) {
            Ok(there) if there.is_dir() => {}
            Ok(_) => return Ok(!leaving.contains(part)),
            Err(_) => return Ok(false),
        }
    }
    Ok(by_file && has_others(root, path, leaving)?)
}

/// Whether a directory has files that the move does not remove.
fn has_others(root: &Path, directory: &Path, leaving: &HashSet<&Path>) -> Result<bool, GitError> {
    let absolute = root.join(directory);
    for entry in fs::read_dir(&absolute).map_err(system(&absolute))? {
        let entry = entry.map_err(system(&absolute))?;
        let path = directory.join(entry.file_name());
        let is_dir = entry.file_type().map_err(system(&absolute))?.is_dir();
        if if is_dir { has_others(root, &path, leaving)? } else { !leaving.contains(&*path) } {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs git with input on stdin. It must succeed.
pub(super) fn feed<S: AsRef<OsStr>>(git: &Git, args: &[S], input: &[u8]) -> Result<(), GitError> {
    let answer = git.ask_with(args, input)?;
    if answer.status == 0 { Ok(()) } else { Err(answer.failed()) }
}
