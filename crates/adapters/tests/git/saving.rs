//! Saving worktrees.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use banksman_adapters::git::{Removal, Repository, Saving};

use crate::world::World;

const SAVING: Saving<'_> = Saving { id: "t-1", reason: "before it was removed", ignored: &[] };

#[test]
fn a_change_in_the_second_in_which_the_index_was_written_is_saved() {
    let world = World::new();
    world.git(&["config", "core.trustctime", "false"]);
    let repository = Repository::of(&world.repo()).unwrap().unwrap();
    let path = world.path("tree");
    repository.make(&path, "work", &world.tip("main")).unwrap();
    // In the index, the file is as old as the index itself; and the change keeps its size and its modification time.
    let then = SystemTime::now() - Duration::from_secs(10);
    let set_age = |file: &std::path::Path| File::options().write(true).open(file).unwrap().set_modified(then).unwrap();
    let file = path.join("base");
    set_age(&file);
    world.git_in(&path, &["update-index", "--refresh"]);
    set_age(&world.repo().join(".git/worktrees/tree/index"));
    fs::write(&file, "BASE\n").unwrap();
    set_age(&file);

    let saved = repository.save(&path, SAVING).unwrap().saved.expect("there is a change");
    assert_eq!(world.show(&saved.commit, "base"), "BASE");
}

/// The effect of `git gc --prune=now` on a commit that is made at the same time.
#[test]
fn a_broken_worktree_does_not_block_saving_and_removing_others() {
    let world = World::new();
    let repository = Repository::of(&world.repo()).unwrap().unwrap();
    let (broken, fine) = (world.path("broken"), world.path("fine"));
    for (path, branch) in [(&broken, "banksman/t-broken"), (&fine, "banksman/t-fine")] {
        repository.make(path, branch, &world.tip("main")).unwrap();
        fs::write(path.join("a"), branch).unwrap();
        world.git_in(path, &["add", "-A"]);
        world.git_in(path, &["commit", "-q", "-m", "a"]);
    }
    let lost = world.tip("banksman/t-broken");
    let later = world.git_in(&broken, &["commit-tree", "-p", "HEAD", "-m", "b", "HEAD^{tree}"]);
    world.git(&["branch", "of-a-person", &later]);
    fs::remove_file(world.repo().join(".git/objects").join(&lost[..2]).join(&lost[2..])).unwrap();
    let own = world.tip("banksman/t-fine");
    let removed = repository.remove(&fine, "banksman/t-fine", true, SAVING).unwrap();
    assert!(matches!(removed, Removal::Removed(Some(_))), "{removed:?}");
    world.git(&["merge-base", "--is-ancestor", &own, "refs/banksman/saved/t-1/1"]);
    assert!(!fine.exists() && world.git(&["branch", "--list", "banksman/t-fine"]).is_empty());
    assert!(repository.remove(&broken, "banksman/t-broken", true, SAVING).is_err(), "the work in it cannot be saved");
    assert!(broken.join("a").exists());
}
