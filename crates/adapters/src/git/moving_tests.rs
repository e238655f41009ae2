//! Moves that stop after any number of steps, as if the process were killed, with and without a person who writes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Git;
use super::journal::Journal;
use super::merge::Halt;
use super::settling::settle_all;
use super::staging::{Staged, stage};

struct Repo {
    directory: tempfile::TempDir,
    from: String,
    to: String,
}

const FILES: [&str; 9] = ["changed", "dir/changed", "gone", "new/dir/file", "dir-to-file/x", "file-to-dir", "link", "mode", "zz"];

impl Repo {
    /// `main` at a commit, and a later commit in which everything is different.
    fn new() -> Repo {
        let directory = tempfile::tempdir().unwrap();
        let repo = Repo { directory, from: String::new(), to: String::new() };
        repo.git(&["init", "-q", "-b", "main"]);
        repo.git(&["config", "user.name", "t"]);
        repo.git(&["config", "user.email", "t@example.invalid"]);
        for name in ["changed", "dir/changed", "gone", "dir-to-file/x", "file-to-dir", "mode", "zz"] {
            repo.write(name, "before\n");
        }
        std::os::unix::fs::symlink("before", repo.path("link")).unwrap();
        let from = repo.commit();
        for name in ["gone", "dir-to-file/x", "file-to-dir", "link"] {
            fs::remove_file(repo.path(name)).unwrap();
        }
        fs::remove_dir(repo.path("dir-to-file")).unwrap();
        for name in ["changed", "dir/changed", "new/dir/file", "dir-to-file", "file-to-dir/x", "zz"] {
            repo.write(name, "after\n");
        }
        std::os::unix::fs::symlink("after", repo.path("link")).unwrap();
        fs::set_permissions(repo.path("mode"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let to = repo.commit();
        repo.git(&["branch", "topic"]);
        repo.git(&["reset", "-q", "--hard", &from]);
        Repo { from, to, ..repo }
    }

    /// Begins a move and stops it after `steps` steps. Returns the number of all steps.
    fn stop_after(&self, steps: usize) -> usize {
        let journal = Journal::begin(&self.common(), Path::new("/scratch")).unwrap();
        let staged = self.staged(&journal);
        let all = &staged.moving.record().steps;
        all.iter().take(steps).for_each(|step| staged.moving.slots().forward(step).unwrap());
        all.len()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn git(&self, args: &[&str]) -> String {
        let done = Command::new("git").args(args).current_dir(self.directory.path()).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
    }

    fn commit(&self) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", "c"]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn common(&self) -> PathBuf {
        self.path(".git")
    }

    /// A prepared and locked move.
    fn staged<'a>(&self, journal: &'a Journal) -> Staged<'a> {
        let git = Git::new(self.directory.path(), Duration::from_secs(60));
        let Ok(staged) = stage(&git, journal, "refs/heads/main", &self.from, &self.to) else { panic!("it cannot be staged") };
        journal.write_record(staged.moving.record()).unwrap();
        assert!(staged.moving.lock_index().unwrap());
        assert!(staged.verify().is_ok());
        staged
    }

    /// Settles like the next merge of the same project.
    fn settle(&self) {
        let git = Git::new(self.directory.path(), Duration::from_secs(60));
        settle_all(&git, &self.common(), Some(Path::new("/scratch"))).unwrap();
    }

    fn assert_tidy(&self) {
        assert!(!self.path(".git/index.lock").exists() && !self.path(".git/banksman/saved").exists());
        assert_eq!(Journal::folders(&self.common()), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_move_goes_back_from_every_step() {
    let repo = Repo::new();
    let mut after = 0;
    loop {
        let steps = repo.stop_after(after);
        repo.settle();
        assert_eq!(repo.git(&["status", "--porcelain"]), "", "after {after} steps");
        repo.assert_tidy();
        if after == steps {
            break;
        }
        after += 1;
    }
    assert!(after > 8, "there are steps of all kinds");
}

#[test]
fn a_move_whose_ref_has_moved_is_completed_from_every_step() {
    for after in [0, 4, 100] {
        let repo = Repo::new();
        repo.stop_after(after);
        repo.git(&["update-ref", "refs/heads/main", &repo.to]);
        repo.settle();
        assert_eq!(repo.git(&["status", "--porcelain"]), "", "after {after} steps");
        repo.assert_tidy();
    }
}

#[test]
fn files_that_a_person_writes_after_any_step_stay() {
    for after in [0, 2, 4, 7, 9, 12] {
        let repo = Repo::new();
        repo.stop_after(after);
        let written: Vec<&str> = FILES
            .into_iter()
            .filter(|name| *name != "link")
            .filter(|name| {
                let path = repo.path(name);
                fs::create_dir_all(path.parent().unwrap()).is_ok() && fs::write(path, "mine\n").is_ok()
            })
            .collect();
        assert!(written.len() > 4, "{written:?}");
        repo.settle();
        for name in written {
            assert_eq!(fs::read_to_string(repo.path(name)).unwrap(), "mine\n", "{name} after {after} steps");
        }
        assert!(!repo.path(".git/index.lock").exists());
    }
}

#[test]
fn an_edit_between_the_comparison_and_the_move_goes_back_to_its_place() {
    for name in ["changed", "gone", "zz"] {
        let repo = Repo::new();
        let journal = Journal::begin(&repo.common(), Path::new("/scratch")).unwrap();
        let staged = repo.staged(&journal);
        // A write after the verification.
        repo.write(name, "mine\n");
        assert!(matches!(staged.moving.forward(), Err(Halt::Again(_))), "{name}");
        staged.moving.undo().unwrap();
        assert_eq!(fs::read_to_string(repo.path(name)).unwrap(), "mine\n");
        assert_eq!(repo.git(&["status", "--porcelain"]), format!(" M {name}"));
    }
}

#[test]
fn a_file_that_is_open_for_writing_goes_back_to_its_place() {
    let repo = Repo::new();
    let journal = Journal::begin(&repo.common(), Path::new("/scratch")).unwrap();
    let staged = repo.staged(&journal);
    let mut open = fs::File::options().append(true).open(repo.path("changed")).unwrap();
    assert!(matches!(staged.moving.forward(), Err(Halt::Again(_))));
    staged.moving.undo().unwrap();
    open.write_all(b"late\n").unwrap();
    assert_eq!(fs::read_to_string(repo.path("changed")).unwrap(), "before\nlate\n");
    assert_eq!(repo.git(&["status", "--porcelain"]), " M changed");
}

#[test]
fn writes_into_a_file_that_was_moved_away_are_kept() {
    let repo = Repo::new();
    let journal = Journal::begin(&repo.common(), Path::new("/scratch")).unwrap();
    let staged = repo.staged(&journal);
    let mut open = fs::File::options().append(true).open(repo.path("changed")).unwrap();
    // The state of a move that is killed right before its comparison.
    staged.moving.record().steps.iter().for_each(|step| staged.moving.slots().forward(step).unwrap());
    let saved = staged.moving.dispose().unwrap().unwrap();
    open.write_all(b"late\n").unwrap();
    assert_eq!(fs::read_to_string(saved.join("changed")).unwrap(), "before\nlate\n");
}
