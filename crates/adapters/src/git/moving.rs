//! A checkout on its way from one commit to another, by a process that may be killed at any moment.
//!
//! It is `index.lock` that says so, as a file of ours: while it is there no git changes anything in the checkout, and whoever
//! finds it knows where things came from and were to go. The process that moves the checkout, and the git that does it for that
//! process, hold a lock on the file; who gets that lock knows that both are dead, and puts the checkout where its branch is.
//!
//! Git works with a copy of the index, which takes the place of the index when all files are there. So the order is: the files,
//! the index, the branch.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

use super::{Answer, Git, GitError, Id};

/// The first line of the file, and the last: people look into it when git tells them that it is there.
const TITLE: &str = "banksman moves this checkout";
const ADVICE: &str = "If no merge is running, the next one into this branch puts things right: leave the file here until then.";

/// A checkout that is locked, and the two commits that its files may be of.
pub(super) struct Move {
    /// Git in the checkout, with the copy of the index.
    git: Git,
    /// Where its files are: a setting can put them elsewhere than git is asked about them.
    root: PathBuf,
    /// Where git keeps what belongs to this checkout.
    place: PathBuf,
    lock: File,
    before: Id,
    commit: Id,
}

/// A file that two commits have in different ways.
struct Change {
    path: PathBuf,
    /// What an index says of it, for the first and for the second: nothing, if that one does not have the file.
    sides: [Option<String>; 2],
    /// The id of nothing.
    nothing: String,
}

impl Change {
    fn is_submodule(&self, side: usize) -> bool {
        self.sides[side].as_ref().is_some_and(|entry| entry.starts_with("160000 "))
    }
}

impl Move {
    /// Locks a checkout, unless some other git is at work there.
    pub(super) fn begin(git: &Git, before: &Id, commit: &Id) -> Result<Option<Move>, GitError> {
        let (root, place) = (root(git)?, place(git)?);
        let name = place.join("index.lock");
        let lock = match create(&name, &format!("{TITLE}\nfrom {before}\nto {commit}\n{ADVICE}\n")) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(system(&name)(error)),
        };
        Ok(Some(Move::new(git, root, place, lock, before.clone(), commit.clone())))
    }

    /// What a killed process has left of a move. If it, or its git, is alive, this waits for its end.
    pub(super) fn left(git: &Git) -> Result<Option<Move>, GitError> {
        let (root, place) = (root(git)?, place(git)?);
        let name = place.join("index.lock");
        let Ok(mut lock) = File::open(&name) else { return Ok(None) };
        let mut text = Vec::new();
        (&lock).take(4_096).read_to_end(&mut text).map_err(system(&name))?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return Ok(None);
        }
        let mut id = |word: &str| lines.next().and_then(|line| line.strip_prefix(word)).map(str::to_owned);
        let (Some(before), Some(commit)) = (id("from "), id("to ")) else { return Ok(None) };
        lock.lock().map_err(system(&name))?;
        lock.rewind().map_err(system(&name))?;
        let own = lock.metadata().map_err(system(&name))?;
        let is_there = fs::metadata(&name).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()));
        Ok(is_there.then(|| Move::new(git, root, place, lock, before, commit)))
    }

    fn new(git: &Git, root: PathBuf, place: PathBuf, lock: File, before: Id, commit: Id) -> Move {
        // A hook would find the checkout locked, and a stranger's index.
        let git =
            git.clone().with("core.hooksPath=/dev/null").with("core.ignoreStat=false").with_index(&place.join("banksman-index"));
        Move { git, root, place, lock, before, commit }
    }

    /// Whether the place of a new file is taken by something of the user's. Git would remove what is ignored, also all of a
    /// directory, and what is in a submodule.
    pub(super) fn in_the_way(&self) -> Result<bool, GitError> {
        let changes = self.changes(&self.before, &self.commit)?;
        let leaves = |change: &&Change| change.sides[1].is_none() && !change.is_submodule(0);
        let leaving: HashSet<&Path> = changes.iter().filter(leaves).map(|change| &*change.path).collect();
        for change in &changes {
            let is_file = change.sides[1].is_some() && !change.is_submodule(1);
            let takes_place = change.sides[0].is_none() || (change.is_submodule(0) && is_file);
            if takes_place && self.is_taken(&change.path, is_file, &leaving)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether something is at a place, or on the way to it, that does not leave. A directory may stay where a submodule comes.
    fn is_taken(&self, path: &Path, by_file: bool, leaving: &HashSet<&Path>) -> Result<bool, GitError> {
        let mut way: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
        while let Some(part) = way.pop() {
            match fs::symlink_metadata(self.root.join(part)) {
                Ok(there) if there.is_dir() => {}
                Ok(_) => return Ok(!leaving.contains(part)),
                Err(_) => return Ok(false),
            }
        }
        Ok(by_file && self.has_others(path, leaving)?)
    }

    /// Whether a directory has files that do not leave.
    fn has_others(&self, directory: &Path, leaving: &HashSet<&Path>) -> Result<bool, GitError> {
        let whole = self.root.join(directory);
        for entry in fs::read_dir(&whole).map_err(system(&whole))? {
            let entry = entry.map_err(system(&whole))?;
            let path = directory.join(entry.file_name());
            let is_dir = entry.file_type().map_err(system(&whole))?.is_dir();
            if if is_dir { self.has_others(&path, leaving)? } else { !leaving.contains(&*path) } {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves files and index forward, if git finds nothing that would be lost.
    pub(super) fn forward(&self) -> Result<Answer, GitError> {
        self.copy_index()?;
        self.refresh()?;
        let answer = self.read_tree(&self.before, &self.commit)?;
        if answer.status == 0 {
            self.adopt_index()?;
        }
        Ok(answer)
    }

    /// Puts files and index where the branch is: at the one commit or at the other. Of the files that the two have in
    /// different ways, those are touched that are missing, as the other commit has them, or the beginning of either. Whatever
    /// else somebody has written stays, and is a change in the checkout then.
    pub(super) fn settle(&self) -> Result<(), GitError> {
        let head = self.git.line(&["rev-parse", "--verify", "HEAD"])?;
        let has_moved = self.git.contains(&head, &self.commit)?;
        let (from, to) = if has_moved { (&self.before, &self.commit) } else { (&self.commit, &self.before) };
        let changes = self.changes(from, to)?;
        self.copy_index()?;
        self.stage(&changes, 1)?;
        let astray = self.others(changes, 1)?;
        self.stage(&astray, 0)?;
        let mut left = Vec::new();
        for change in self.others(astray, 0)? {
            if !self.has_file(&change.path) {
                continue;
            }
            if self.is_begun(&change.path, from)? || self.is_begun(&change.path, to)? {
                let path = self.root.join(&change.path);
                fs::remove_file(&path).map_err(system(&path))?;
            } else {
                left.push(change);
            }
        }
        self.stage(&left, 1)?;
        // Now the index is what the files are, but for those that are missing and those that stay.
        let here = self.git.line(&["write-tree", "--missing-ok"])?;
        let answer = self.read_tree(&here, to)?;
        if answer.status != 0 {
            return Err(answer.failed());
        }
        // One that says so already may have marks of the user's, which the copy has lost.
        if self.own_index().says(&["diff-index", "--cached", "--quiet", to])? { Ok(()) } else { self.adopt_index() }
    }

    /// Gives the checkout free.
    pub(super) fn end(self) -> Result<(), GitError> {
        self.drop_copy()?;
        let name = self.place.join("index.lock");
        fs::remove_file(&name).map_err(system(&name))
    }

    fn own_index(&self) -> Git {
        Git { index: None, ..self.git.clone() }
    }

    /// The index as it is, for git to work with. Its age is kept: git compares it with the age of files.
    fn copy_index(&self) -> Result<(), GitError> {
        let (index, copy) = (self.place.join("index"), self.place.join("banksman-index"));
        self.drop_copy()?;
        let copied = || -> io::Result<()> {
            let modified = fs::metadata(&index)?.modified()?;
            fs::copy(&index, &copy)?;
            File::options().write(true).open(&copy)?.set_modified(modified)
        };
        match copied() {
            // Nothing was ever added here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            end => end.map_err(system(&copy)),
        }
    }

    fn drop_copy(&self) -> Result<(), GitError> {
        for name in ["banksman-index", "banksman-index.lock"].map(|name| self.place.join(name)) {
            match fs::remove_file(&name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(system(&name)(error)),
                _ => {}
            }
        }
        Ok(())
    }

    fn adopt_index(&self) -> Result<(), GitError> {
        let copy = self.place.join("banksman-index");
        let adopt = || File::open(&copy)?.sync_all().and_then(|()| fs::rename(&copy, self.place.join("index")));
        adopt().map_err(system(&copy))
    }

    /// Moves the files, and the copy of the index. Git has the lock as its input, so that it stays locked as long as git lives.
    fn read_tree(&self, from: &Id, to: &Id) -> Result<Answer, GitError> {
        let mut command = self.git.command(&["read-tree", "-m", "-u", "--no-recurse-submodules", from, to]);
        command.stdin(self.lock.try_clone().map_err(system(&self.place))?);
        self.git.end(command, "read-tree".into())
    }

    fn changes(&self, from: &Id, to: &Id) -> Result<Vec<Change>, GitError> {
        let list = self.git.get(&["diff-tree", "-r", "-z", "--no-renames", from, to])?;
        let fields: Vec<&[u8]> = list.split(|byte| *byte == 0).collect();
        let change = |pair: &[&[u8]]| {
            let about = String::from_utf8_lossy(pair[0]);
            let mut words = about.trim_start_matches(':').split(' ');
            let [modes, ids] = [(); 2].map(|()| [(); 2].map(|()| words.next().unwrap_or_default()));
            let side = |n: usize| (modes[n] != "000000").then(|| format!("{} {}", modes[n], ids[n]));
            let nothing = "0".repeat(ids[0].len());
            Change { path: OsStr::from_bytes(pair[1]).into(), sides: [side(0), side(1)], nothing }
        };
        Ok(fields.chunks_exact(2).map(change).collect())
    }

    /// Lets git look into files whose age alone has changed.
    fn refresh(&self) -> Result<(), GitError> {
        // Its answer is whether there are others.
        self.git.ask(&["update-index", "-q", "--refresh"]).map(drop)
    }

    /// Says in the index that files are as one of the sides has them.
    fn stage(&self, changes: &[Change], side: usize) -> Result<(), GitError> {
        let feed = || -> io::Result<File> {
            let mut feed = File::from(memfd_create("banksman", MemfdFlags::CLOEXEC)?);
            let mut lines = Vec::new();
            for change in changes {
                let entry = change.sides[side].clone().unwrap_or_else(|| format!("0 {}", change.nothing));
                lines.extend([entry.as_bytes(), b"\t", change.path.as_os_str().as_bytes(), b"\0"].concat());
            }
            feed.write_all(&lines)?;
            feed.rewind()?;
            Ok(feed)
        };
        let mut command = self.git.command(&["update-index", "-z", "--index-info"]);
        command.stdin(feed().map_err(system(&self.place))?);
        let answer = self.git.end(command, "update-index".into())?;
        if answer.status == 0 { Ok(()) } else { Err(answer.failed()) }
    }

    /// Which files are not as this side has them, which is what the index says.
    fn others(&self, changes: Vec<Change>, side: usize) -> Result<Vec<Change>, GitError> {
        self.refresh()?;
        let list = self.git.get(&["diff-files", "-z", "--name-only", "--ignore-submodules=all"])?;
        let differ: HashSet<&[u8]> = list.split(|byte| *byte == 0).collect();
        let is_other = |change: &Change| match change.sides[side] {
            Some(_) => differ.contains(change.path.as_os_str().as_bytes()),
            None => self.has_file(&change.path),
        };
        Ok(changes.into_iter().filter(is_other).collect())
    }

    /// Whether there is a file, and no directory on the way to it is a link to elsewhere.
    fn has_file(&self, path: &Path) -> bool {
        let is_dir = |path: &Path| fs::symlink_metadata(self.root.join(path)).map(|meta| meta.is_dir());
        let parents = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
        is_dir(path).is_ok_and(|is_dir| !is_dir) && parents.into_iter().all(|parent| is_dir(parent).unwrap_or(false))
    }

    /// Whether a file is the beginning of what git would write for a commit: git was killed while it wrote, or the power went.
    fn is_begun(&self, path: &Path, commit: &Id) -> Result<bool, GitError> {
        let file = self.root.join(path);
        if !fs::symlink_metadata(&file).map_err(system(&file))?.is_file() {
            return Ok(false);
        }
        let begun = fs::read(&file).map_err(system(&file))?;
        let mut name = OsString::from(format!("{commit}:"));
        name.push(path);
        let command = self.git.command(&["cat-file".as_ref(), "--filters".as_ref(), name.as_os_str()]);
        let answer = self.git.start_of(command, "cat-file".into(), begun.len())?;
        Ok(begun.is_empty() || (answer.status == 0 && answer.stdout == begun))
    }
}

/// Where the files of a checkout are.
fn root(git: &Git) -> Result<PathBuf, GitError> {
    git.path_line(&["rev-parse", "--show-toplevel"])
}

/// Where git keeps what belongs to a checkout.
fn place(git: &Git) -> Result<PathBuf, GitError> {
    git.path_line(&["rev-parse", "--absolute-git-dir"])
}

/// Makes a file that is there with all its text and locked, or not at all.
fn create(name: &Path, text: &str) -> io::Result<File> {
    let draft = name.with_extension(format!("lock-{}", std::process::id()));
    let mut file = File::create(&draft)?;
    let mut created = || {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        file.lock()?;
        fs::hard_link(&draft, name)?;
        File::open(name.parent().unwrap_or(name))?.sync_all()
    };
    let end = created();
    fs::remove_file(&draft)?;
    end.map(|()| file)
}

fn system(path: &Path) -> impl Fn(io::Error) -> GitError {
    let what = path.display().to_string();
    move |source| GitError::System { what: what.clone(), source }
}
