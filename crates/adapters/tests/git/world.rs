//! A repository in a temporary directory, with a branch `main` and one commit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use banksman_adapters::git::{Git, MergeError, Merged, merge};
use banksman_core::pipeline::plan::MergeHow;

pub(crate) struct World(tempfile::TempDir);

impl World {
    pub(crate) fn new() -> World {
        let world = World(tempfile::tempdir().unwrap());
        std::fs::create_dir(world.repo()).unwrap();
        world.git(&["init", "-q", "-b", "main"]);
        world.git(&["config", "user.name", "t"]);
        world.git(&["config", "user.email", "t@example.invalid"]);
        world.commit("base", "base\n");
        world
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.0.path().join("repo")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn facts(&self) -> Git {
        Git::new(&self.repo(), Duration::from_secs(30))
    }

    /// Runs git, which must succeed, and returns what it prints.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.repo(), args)
    }

    pub(crate) fn git_in(&self, directory: &Path, args: &[&str]) -> String {
        let done = Command::new("git").current_dir(directory).args(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
    }

    /// Writes a file, and commits it.
    pub(crate) fn commit(&self, file: &str, text: &str) -> String {
        std::fs::write(self.repo().join(file), text).unwrap();
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", file]);
        self.tip("HEAD")
    }

    /// Makes a branch at `main`, with one commit, and switches back to `main`.
    pub(crate) fn branch(&self, name: &str, file: &str, text: &str) -> String {
        self.git(&["switch", "-q", "-c", name, "main"]);
        let tip = self.commit(file, text);
        self.git(&["switch", "-q", "main"]);
        tip
    }

    pub(crate) fn tip(&self, name: &str) -> String {
        self.git(&["rev-parse", "--verify", name])
    }

    /// The content of a file in a commit.
    pub(crate) fn show(&self, commit: &str, file: &str) -> String {
        self.git(&["show", &format!("{commit}:{file}")])
    }

    pub(crate) fn merge(&self, branch: &str, how: MergeHow) -> Result<Merged, MergeError> {
        merge(&self.repo(), &self.path("scratch"), branch, "main", how)
    }

    /// Asserts that no merge has left anything: no worktree, and no file but the lock.
    pub(crate) fn assert_tidy(&self) {
        let scratch = std::fs::read_dir(self.path("scratch")).unwrap();
        let files: Vec<_> = scratch.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files, [".merge.lock"]);
        let worktrees = self.git(&["worktree", "list", "--porcelain"]);
        assert!(!worktrees.contains("scratch"), "{worktrees}");
    }
}
