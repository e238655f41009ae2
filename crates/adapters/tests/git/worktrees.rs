//! Half-made worktrees of a killed git.

use std::fs;
use std::process::Command;

use banksman_adapters::git::{Found, Removal, Repository, Saving};

use crate::world::World;

#[test]
fn a_branch_lock_of_a_killed_git_is_removed() {
    let world = World::new();
    let repository = Repository::of(&world.repo()).unwrap().unwrap();
    let folder = world.repo().join(".git/refs/heads/banksman");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("t-1.lock"), "").unwrap();
    repository.make(&world.path("tree"), "banksman/t-1", &world.tip("main")).unwrap();
    assert_eq!(world.tip("banksman/t-1"), world.tip("main"));
}

/// The state that a `git worktree add` leaves when it is killed at any of its steps.
#[test]
fn an_unfinished_worktree_of_a_killed_git_is_removed_and_made_again() {
    let world = World::new();
    let repository = Repository::of(&world.repo()).unwrap().unwrap();
    let tree = world.path("tree");
    let admin = world.repo().join(".git/worktrees/tree");
    for has_link in [false, true] {
        fs::create_dir_all(admin.join("refs")).unwrap();
        fs::write(admin.join("locked"), "initializing\n").unwrap();
        fs::write(admin.join("commondir"), "../..\n").unwrap();
        fs::write(admin.join("gitdir"), format!("{}/.git\n", tree.display())).unwrap();
        if has_link {
            fs::create_dir_all(&tree).unwrap();
            fs::write(tree.join(".git"), format!("gitdir: {}\n", admin.display())).unwrap();
        }
        assert_eq!(repository.find(&tree).unwrap(), Found::Unfinished);
        let saving = Saving { id: "t-1", reason: "before it was made again", ignored: &[] };
        assert_eq!(repository.remove(&tree, "work", false, saving).unwrap(), Removal::Removed(None));
        assert!(!admin.exists() && !tree.exists());
        repository.make(&tree, "work", &world.tip("main")).unwrap();
        assert_eq!(repository.find(&tree).unwrap(), Found::Worktree);
        assert_eq!(repository.remove(&tree, "work", true, saving).unwrap(), Removal::Removed(None));
    }
}

/// With an empty `commondir`, no git can list the worktrees of the repository, add one, or switch to another branch.
#[test]
fn an_incomplete_record_of_a_killed_git_blocks_no_other_git() {
    let world = World::new();
    let repository = Repository::of(&world.repo()).unwrap().unwrap();
    let records = world.repo().join(".git/worktrees");
    let begin = |name: &str| {
        fs::create_dir_all(records.join(name)).unwrap();
        fs::write(records.join(name).join("commondir"), "").unwrap();
        fs::write(records.join(name).join("gitdir"), format!("{}/.git\n", world.path(name).display())).unwrap();
    };
    begin("t-9");
    assert_eq!(repository.checked_out("main", &world.path("nowhere")).unwrap(), Some(world.repo().canonicalize().unwrap()));
    assert!(!records.join("t-9").exists());
    begin("main-0123abcd");
    repository.make(&world.path("tree"), "work", &world.tip("main")).unwrap();
    assert!(!records.join("main-0123abcd").exists());
    fs::write(world.path("tree").join("left"), "over\n").unwrap();
    begin("t-8");
    let saving = Saving { id: "t-1", reason: "before a run", ignored: &[] };
    assert!(repository.save(&world.path("tree"), saving).unwrap().saved.is_some());
    assert!(!records.join("t-8").exists());
}

/// Git reads the record of every worktree, and fails at a file that is still empty.
#[test]
fn git_is_repeated_while_another_git_adds_a_worktree() {
    let world = World::new();
    let repository = Repository::of(&world.repo()).unwrap().unwrap();
    let tree = world.path("tree");
    repository.make(&tree, "work", &world.tip("main")).unwrap();
    fs::write(tree.join("left"), "over\n").unwrap();
    let record = world.repo().join(".git/worktrees/feature");
    fs::create_dir_all(&record).unwrap();
    fs::write(record.join("gitdir"), format!("{}/.git\n", world.path("feature").display())).unwrap();
    fs::write(record.join("HEAD"), world.tip("main") + "\n").unwrap();
    fs::write(record.join("written"), "../..\n").unwrap();
    let commondir = record.join("commondir");
    assert!(Command::new("mkfifo").arg(&commondir).status().unwrap().success());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The git that has opened the pipe reads nothing; the next one finds the complete file.
            let _reader_is_there = fs::OpenOptions::new().write(true).open(&commondir).unwrap();
            fs::rename(record.join("written"), &commondir).unwrap();
        });
        let saving = Saving { id: "t-1", reason: "before a run", ignored: &[] };
        assert!(repository.save(&tree, saving).unwrap().saved.is_some());
    });
}

#[test]
fn a_conflict_is_merged_into_a_worktree_with_an_old_index() {
    let world = World::new();
    let repository = Repository::of(&world.repo()).unwrap().unwrap();
    let tree = world.path("tree");
    repository.make(&tree, "work", &world.tip("main")).unwrap();
    fs::write(tree.join("base"), "theirs\n").unwrap();
    fs::write(tree.join("left"), "over\n").unwrap();
    world.git_in(&tree, &["add", "base"]);
    world.git_in(&tree, &["commit", "-qm", "work"]);
    // The state after a process that was killed between the commit of the leftovers and the update of the index.
    let index = fs::read(world.repo().join(".git/worktrees/tree/index")).unwrap();
    world.git_in(&tree, &["add", "left"]);
    world.git_in(&tree, &["commit", "-qm", "what was left"]);
    fs::write(world.repo().join(".git/worktrees/tree/index"), index).unwrap();
    fs::write(world.repo().join("base"), "ours\n").unwrap();
    world.git(&["commit", "-qam", "meanwhile"]);

    let saving = Saving { id: "t-1", reason: "before its work came back", ignored: &[] };
    let files = repository.take_back_conflict(&tree, &world.tip("main"), "work", saving).unwrap();
    assert_eq!(files, ["base"]);
    assert_eq!(fs::read_to_string(tree.join("left")).unwrap(), "over\n");
}
