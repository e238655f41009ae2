//! The commits of a merge queue: made without a work tree, and landed by moving the target from exactly the tip that
//! they are based on.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::journal::Journal;
use super::merge::{Halt, MergeError};
use super::scratch::{MergeLock, remove_half_made};
use super::settling::settle_all;
use super::target::Target;
use super::transaction::Update;
use super::worktree::name_full_disk;
use super::{Git, GitError, Id, check, zero_separated};

/// How often a move is attempted while another process works in the checkout.
const ATTEMPTS: u32 = 5;

/// How long one command of git may take.
const LIMIT: Duration = Duration::from_secs(600);

/// How many branches one command of git lists.
const AT_ONCE: usize = 500;

/// How many commits the message of the landing commit names.
const NAMED: usize = 100;

/// The refs that hold the commits that wait in a queue, and the commits that were made for one.
const QUEUED: &str = "refs/banksman/queued/";
const CANDIDATES: &str = "refs/banksman/candidates/";

/// A repository with merge queues.
#[derive(Debug, Clone)]
pub struct Lander {
    git: Git,
    common: PathBuf,
    git_dir: PathBuf,
    scratch: PathBuf,
    /// Whether the user wants all commits signed.
    signs: bool,
    /// The last commit that was made, and its tree. Usually the next commit is based on it.
    last: Arc<Mutex<Option<(Id, Id)>>>,
}

/// The message of the landing commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub title: String,
    /// The task that did the work.
    pub task: Option<String>,
}

/// The result of making a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Built {
    /// The commit was made on top of the tip.
    Commit { tip: String, commit: String },
    /// The tip has all changes already.
    NoChange { tip: String },
    /// Both have changed the same lines of these files.
    Conflict { tip: String, files: Vec<String> },
}

/// The result of moving a branch.
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    /// The branch is, or was, at the commit.
    Moved {
        /// The folder with the files that were changed while the checkout moved.
        saved: Option<PathBuf>,
    },
    /// The branch is not at the tip any more.
    TipMoved,
    /// The checkout of the branch cannot be updated.
    InTheWay { checkout: PathBuf, reason: String, files: Vec<String> },
}

/// The author and the subjects of the commits that land.
struct Commits {
    author: Option<[Vec<u8>; 3]>,
    subjects: Vec<Vec<u8>>,
}

impl Lander {
    /// The repository that `repo` belongs to. Moves with the same `scratch` wait for each other.
    pub fn open(repo: &Path, scratch: &Path) -> Result<Lander, GitError> {
        let mut git = Git::new(repo, LIMIT).check_version()?;
        let [common, git_dir] = git.places([&["--git-common-dir"], &["--git-dir"]])?;
        git.common = Some(common.clone());
        let signs = git.ask(&["config", "--type=bool", "commit.gpgSign"])?.stdout.starts_with(b"true");
        Ok(Lander { git, common, git_dir, scratch: scratch.into(), signs, last: Arc::default() })
    }

    /// The branch that is checked out where the repository was opened; `None` if its HEAD is detached.
    pub fn current_branch(&self) -> Result<Option<String>, GitError> {
        let answer = self.git.ask(&["symbolic-ref", "--quiet", "HEAD"])?;
        let name = String::from_utf8_lossy(&answer.stdout).trim_end().to_owned();
        Ok((answer.status == 0).then(|| name.strip_prefix("refs/heads/").map(str::to_owned)).flatten())
    }

    /// The tip of a local branch.
    pub fn branch_tip(&self, branch: &str) -> Result<Option<String>, GitError> {
        self.git.tip(branch)
    }

    /// The branch that a branch is an alias of.
    pub fn alias_of(&self, branch: &str) -> Result<Option<String>, GitError> {
        self.git.alias_of(branch)
    }

    /// The tips of the local branches among these names.
    pub fn branch_tips(&self, names: &[String]) -> Result<HashMap<String, String>, GitError> {
        let mut tips = HashMap::new();
        // Split, so that the command line does not become too long.
        let names: Vec<String> =
            names.iter().filter(|name| check(name).is_ok()).map(|name| format!("refs/heads/{name}")).collect();
        for names in names.chunks(AT_ONCE) {
            let mut args = vec!["for-each-ref", "--format=%(objectname) %(refname)", "--"];
            args.extend(names.iter().map(String::as_str));
            let list = self.git.line(&args)?;
            let refs = list.lines().filter_map(|line| line.split_once(' '));
            let refs = refs.filter(|(_, name)| names.iter().any(|wanted| wanted == name));
            let branches = refs.filter_map(|(tip, name)| Some((name.strip_prefix("refs/heads/")?.to_owned(), tip.to_owned())));
            tips.extend(branches);
        }
        Ok(tips)
    }

    /// The first lines of the messages of commits.
    pub fn subjects(&self, commits: &[&str]) -> Result<HashMap<String, String>, GitError> {
        if commits.is_empty() {
            return Ok(HashMap::new());
        }
        let args = ["log", "--no-walk", "--no-show-signature", "-z", "--format=%H %s", "--stdin"];
        let answer = self.git.ask_with(&args, commits.join("\n").as_bytes())?;
        if answer.status != 0 {
            return Err(answer.failed());
        }
        let lines = zero_separated(&answer.stdout).map(|line| String::from_utf8_lossy(line).into_owned());
        Ok(lines.filter_map(|line| line.split_once(' ').map(|(id, subject)| (id.to_owned(), subject.to_owned()))).collect())
    }

    /// Holds commits that wait in the queue of a branch, even if their own branches move or go.
    pub fn hold(&self, target: &str, commits: &[&str]) -> Result<(), GitError> {
        // Two branches may be at one commit, and git refuses to change a ref twice in a transaction.
        let commits: BTreeSet<&str> = commits.iter().copied().collect();
        if commits.is_empty() {
            return Ok(());
        }
        let lines: String = commits.iter().map(|commit| format!("update {QUEUED}{target}/{commit}\0{commit}\0\0")).collect();
        self.git.set_own_refs(&self.common, &["update-ref", "--stdin", "-z"], lines.as_bytes())
    }

    /// Makes the landing commit: all changes of `source` on top of the target's tip, by the author of the last of its commits.
    pub fn build(&self, target: &str, source: &str, message: &Message) -> Result<Built, GitError> {
        let (tip, tree_before) = self.tip_and_tree(target)?;
        let merged = self.git.ask(&["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", &tip, source])?;
        let mut fields = zero_separated(&merged.stdout).map(|field| String::from_utf8_lossy(field).into_owned());
        let tree = fields.next().unwrap_or_default();
        match merged.status {
            0 if tree == tree_before => return Ok(Built::NoChange { tip }),
            0 => {}
            1 => {
                let files: Vec<String> = fields.collect();
                return if files.is_empty() { Err(merged.failed()) } else { Ok(Built::Conflict { tip, files }) };
            }
            _ => return Err(merged.failed()),
        }
        let commits = self.commits(&tip, source)?;
        let commit = self.commit(&tree, &tip, &commits, message)?;
        *self.last() = Some((commit.clone(), tree));
        // `git gc` must not remove it before it has landed.
        self.git.set_own_ref(&self.common, &["update-ref", &format!("{CANDIDATES}{target}"), &commit])?;
        self.git.get(&["rev-list", "--objects", "--quiet", &commit, &format!("^{tip}")])?;
        Ok(Built::Commit { tip, commit })
    }

    fn tip_and_tree(&self, target: &str) -> Result<(Id, Id), GitError> {
        let (tip, _) = self.git.branch(target)?.ok_or_else(|| GitError::NoBranch(target.into()))?;
        let known = self.last().as_ref().filter(|(commit, _)| *commit == tip).map(|(_, tree)| tree.clone());
        let tree = match known {
            Some(tree) => tree,
            None => self.git.line(&["rev-parse", "--verify", &format!("{tip}^{{tree}}")])?,
        };
        Ok((tip, tree))
    }

    fn last(&self) -> MutexGuard<'_, Option<(Id, Id)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The author of the newest commit that `source` has and the tip has not, and the subjects of all, the oldest first.
    fn commits(&self, tip: &Id, source: &str) -> Result<Commits, GitError> {
        let format = ["log", "-z", "--no-show-signature", "--format=%an%x00%ae%x00%aI%x00%s"];
        let count = format!("--max-count={NAMED}");
        let without = format!("^{tip}");
        let mut list = self.git.get(&[&format[..], &["--no-merges", &count, source, &without, "--"]].concat())?;
        if list.is_empty() {
            list = self.git.get(&[&format[..], &["--max-count=1", source, "--"]].concat())?;
        }
        let list = list.strip_suffix(b"\0").unwrap_or(&list);
        let fields: Vec<&[u8]> = list.split(|byte| *byte == 0).collect();
        let mut commits = Commits { author: None, subjects: Vec::new() };
        for fields in fields.chunks_exact(4) {
            commits.author.get_or_insert_with(|| [fields[0].into(), fields[1].into(), fields[2].into()]);
            commits.subjects.push(fields[3].into());
        }
        commits.subjects.reverse();
        Ok(commits)
    }

    fn commit(&self, tree: &str, tip: &Id, commits: &Commits, message: &Message) -> Result<Id, GitError> {
        let mut git = self.git.clone();
        if let Some([name, email, date]) = &commits.author {
            let text = |bytes: &[u8]| OsString::from(OsStr::from_bytes(bytes));
            git = git.with_variable("GIT_AUTHOR_NAME", text(name)).with_variable("GIT_AUTHOR_EMAIL", text(email));
            git = git.with_variable("GIT_AUTHOR_DATE", text(date));
        }
        let mut args = vec!["commit-tree", "-p", tip, "-F", "-"];
        if self.signs {
            args.push("-S");
        }
        args.push(tree);
        let answer = git.ask_with(&args, &text_of(message, &commits.subjects))?;
        if answer.status == 0 { Ok(answer.text()) } else { Err(answer.failed()) }
    }

    /// What would prevent an update of the target's checkout from a tip to a commit, as far as it can be known beforehand.
    pub fn obstacle(&self, target: &str, from: &str, to: &str) -> Result<Option<Moved>, MergeError> {
        for checkout in self.git.checkouts(target)? {
            if let Some(what) = self.git.under_way(&checkout)? {
                return Ok(Some(in_the_way(checkout.path, format!("a {what} is in progress"), Vec::new())));
            }
            let files = self.files_in_the_way(&checkout.path, from, to)?;
            if !files.is_empty() {
                return Ok(Some(in_the_way(checkout.path, "it has changes in files that would change".into(), files)));
            }
        }
        Ok(None)
    }

    /// The files of a checkout that differ from its commit and also differ between two commits, and the files, ignored
    /// or not, at the paths of new ones.
    fn files_in_the_way(&self, checkout: &Path, from: &str, to: &str) -> Result<Vec<String>, GitError> {
        let differ = self.git.get(&["diff-tree", "-r", "-z", "--no-renames", "--name-status", from, to])?;
        let (mut changed, mut files, mut words) = (HashSet::new(), BTreeSet::new(), zero_separated(&differ));
        while let (Some(status), Some(path)) = (words.next(), words.next()) {
            changed.insert(String::from_utf8_lossy(path).into_owned());
            let taken = occupant(checkout, Path::new(OsStr::from_bytes(path))).filter(|_| status == b"A");
            files.extend(taken.map(|path| path.to_string_lossy().into_owned()));
        }
        let own = self.git.at(checkout).every_change()?;
        files.extend(own.into_iter().filter(|path| changed.contains(path)));
        Ok(files.into_iter().collect())
    }

    /// Settles the remains of killed landings and merges in the repository.
    pub fn settle(&self) -> Result<(), MergeError> {
        let merge_lock = MergeLock::take(&self.git, &self.scratch, &self.common)?;
        settle_all(&self.git, &self.common, Some(merge_lock.scratch())).map(drop)
    }

    /// Moves the target from a tip to a commit, and its checkout with it. Does nothing if the target is at the commit
    /// already, or was: so a caller that was killed after the move can repeat it.
    pub fn move_to(&self, target: &str, source: &str, from: &str, to: &str) -> Result<Moved, MergeError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        let merge_lock = MergeLock::take(&self.git, &self.scratch, &self.common)?;
        settle_all(&self.git, &self.common, Some(merge_lock.scratch()))?;
        let journal = Journal::begin(&self.common, merge_lock.scratch())?;
        journal.keep_collection_away()?;
        let note = format!("banksman: land {}", source.get(..12).unwrap_or(source));
        let branch = Target { git: &self.git, git_dir: &self.git_dir, journal: &journal, name: target, note };
        let end = self.try_to_move(&branch, source, &from, &to);
        journal.let_collect();
        if journal.open_record()?.is_none() && !journal.has_left_locks.get() {
            journal.end()?;
        }
        end
    }

    fn try_to_move(&self, branch: &Target<'_>, source: &str, from: &Id, to: &Id) -> Result<Moved, MergeError> {
        let mut attempt = 1;
        loop {
            let tip = branch.own_tip()?;
            if tip == *to || (tip != *from && self.git.contains(&tip, to)?) {
                return Ok(Moved::Moved { saved: None });
            }
            if tip != *from {
                return Ok(Moved::TipMoved);
            }
            let error = match self.attempt(branch, source, from, to) {
                Ok(moved) => return Ok(moved),
                Err(Halt::Refused(error)) => match self.as_obstacle(error, from, to)? {
                    Ok(moved) => return Ok(moved),
                    Err(MergeError::Git(error @ GitError::Failed { .. })) if branch.journal.may_be_collecting(&error) => {
                        error.into()
                    }
                    Err(error) => return Err(error),
                },
                Err(Halt::Locked(path)) => MergeError::Locked(path),
                Err(Halt::Again(said)) => MergeError::Moved { into: branch.name.into(), said },
            };
            if attempt == ATTEMPTS || branch.journal.has_left_locks.get() {
                return self.as_obstacle(error, from, to)?;
            }
            // The other process needs a moment.
            std::thread::sleep(Duration::from_millis(20) * attempt);
            attempt += 1;
        }
    }

    fn attempt(&self, branch: &Target<'_>, source: &str, from: &Id, to: &Id) -> Result<Moved, Halt> {
        let checkout = branch.checkout()?;
        let updates = [
            Update::Move { name: branch.full_name(), from: from.clone(), to: to.clone() },
            Git::landing(branch.name, &source.to_owned(), to),
        ];
        let saved = match &checkout {
            Some(checkout) => branch.move_with(checkout, from, to, &updates)?,
            None => {
                branch.move_alone(&updates)?;
                None
            }
        };
        Ok(Moved::Moved { saved })
    }

    /// Turns an error about an obstacle in the checkout into [`Moved::InTheWay`]. Returns any other error unchanged.
    fn as_obstacle(&self, error: MergeError, from: &Id, to: &Id) -> Result<Result<Moved, MergeError>, MergeError> {
        let (path, reason) = match &error {
            MergeError::Dirty(path) => (path, "it has changes in files that would change".into()),
            MergeError::InTheWay(path) => (path, "new files are in the way".into()),
            MergeError::UnderWay { path, what } => (path, format!("a {what} is in progress")),
            MergeError::Locked(path) => (path, "another git has locked it, or was killed and left its index.lock".into()),
            MergeError::SeveralCheckouts { path, .. } => (path, "it is not the only one of this branch".into()),
            MergeError::NotFastForward { .. }
            | MergeError::Conflict(_)
            | MergeError::OwnChanges(_)
            | MergeError::Alias { .. }
            | MergeError::Moved { .. }
            | MergeError::Halfway { .. }
            | MergeError::Git(_) => return Ok(Err(error)),
        };
        let files = self.files_in_the_way(path, from, to)?;
        Ok(Ok(in_the_way(path.clone(), reason, files)))
    }

    /// Makes a directory a worktree of exactly this commit: files of the commit are as in the commit, other files are
    /// removed, and ignored ones stay unless the worktree must be `fresh`. Neither people nor agents work there, so
    /// nothing in it has to be saved.
    pub fn check_out(&self, directory: &Path, commit: &str, fresh: bool) -> Result<(), GitError> {
        let git = self.git.clone().with("core.hooksPath=/dev/null").with("advice.detachedHead=false");
        let there = git.at(directory);
        let is_there = directory.join(".git").is_file();
        if is_there && !fresh {
            let moved = there.says(&["checkout", "--quiet", "--force", "--detach", commit, "--"]).unwrap_or(false);
            if moved && there.says(&["clean", "--quiet", "-f", "-f", "-d"]).unwrap_or(false) {
                return Ok(());
            }
        }
        // The worktree is new, half made, or locked by a killed git.
        super::journal::remove_tree(directory)?;
        let add = ["worktree", "add", "--quiet", "--force", "--force", "--no-checkout", "--detach"].map(OsString::from);
        let add = || git.get(&[&add[..], &[directory.into(), commit.into()]].concat());
        if add().is_err() {
            // Git fails at half-made worktrees, which other gits are adding or have left when they were killed.
            remove_half_made(&self.common);
            super::journal::remove_tree(directory)?;
            add()?;
        }
        let written = there.get(&["read-tree", "--reset", "-u", "--no-recurse-submodules", commit]);
        written.map(drop).map_err(|error| name_full_disk(directory, error))
    }

    /// Releases the commits that are held for the queue of a branch, except for `queued`, and removes the oldest
    /// records of what has landed.
    pub fn tidy(&self, target: &str, queued: &[&str]) -> Result<(), GitError> {
        let merge_lock = MergeLock::take(&self.git, &self.scratch, &self.common)?;
        let place = format!("{QUEUED}{target}/");
        let list = self.git.line(&["for-each-ref", "--format=%(objectname) %(refname)", &place])?;
        let released = list.lines().filter_map(|line| line.split_once(' ')).filter(|(_, name)| {
            name.strip_prefix(place.as_str()).is_some_and(|commit| !commit.contains('/') && !queued.contains(&commit))
        });
        let released = released.map(|(at, name)| Update::Delete { name: name.into(), at: at.into() }).collect();
        let journal = Journal::begin(&self.common, merge_lock.scratch())?;
        self.git.prune_records(&journal, target, released)?;
        journal.end()
    }
}

/// The path that is in the way of a new file: its own path, or a file where it needs a directory.
fn occupant<'a>(checkout: &Path, path: &'a Path) -> Option<&'a Path> {
    let is_taken = |part: &&Path| {
        let found = checkout.join(part).symlink_metadata();
        found.is_ok_and(|found| *part == path || !found.is_dir())
    };
    path.ancestors().filter(|part| !part.as_os_str().is_empty()).find(is_taken)
}

fn in_the_way(checkout: PathBuf, reason: String, files: Vec<String>) -> Moved {
    Moved::InTheWay { checkout, reason, files }
}

/// The title, the subjects of the commits if they say more than the title, and the task.
fn text_of(message: &Message, subjects: &[Vec<u8>]) -> Vec<u8> {
    let mut text = format!("{}\n", message.title.replace('\n', " ")).into_bytes();
    if subjects.iter().any(|subject| *subject != message.title.as_bytes()) {
        text.push(b'\n');
        for subject in subjects {
            text.extend([b"* ", &subject[..], b"\n"].concat());
        }
    }
    if let Some(task) = &message.task {
        text.extend(format!("\nBanksman-Task: {task}\n").into_bytes());
    }
    text
}
