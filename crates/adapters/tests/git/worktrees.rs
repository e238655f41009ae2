//! Worktrees that a killed git has left half made.

use std::fs;

use banksman_adapters::git::Repository;

use crate::world::World;

#[test]
fn a_lock_of_the_branch_that_a_killed_git_has_left_holds_nothing_up() {
    let world = World::new();
    let repository = Repository::of(&world.repo()).unwrap().unwrap();
    let folder = world.repo().join(".git/refs/heads/banksman");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("t-1.lock"), "").unwrap();
    repository.make(&world.path("tree"), "banksman/t-1", &world.tip("main")).unwrap();
    assert_eq!(world.tip("banksman/t-1"), world.tip("main"));
}
