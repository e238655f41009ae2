//! What is saved of a worktree.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use banksman_adapters::git::{Repository, Saving};

use crate::world::World;

#[test]
fn a_change_in_the_second_in_which_the_index_was_written_is_saved() {
    let world = World::new();
    world.git(&["config", "core.trustctime", "false"]);
    let repository = Repository::of(&world.repo()).unwrap().unwrap();
    let path = world.path("tree");
    repository.make(&path, "work", &world.tip("main")).unwrap();
    // The file, as the index knows it, is as old as the index; and the change has left its size and its age alone.
    let then = SystemTime::now() - Duration::from_secs(10);
    let set_age = |file: &std::path::Path| File::options().write(true).open(file).unwrap().set_modified(then).unwrap();
    let file = path.join("base");
    set_age(&file);
    world.git_in(&path, &["update-index", "--refresh"]);
    set_age(&world.repo().join(".git/worktrees/tree/index"));
    fs::write(&file, "BASE\n").unwrap();
    set_age(&file);

    let saving = Saving { id: "t-1", reason: "before it was removed", ignored: &[] };
    let saved = repository.save(&path, saving).unwrap().saved.expect("there is a change");
    assert_eq!(world.show(&saved.commit, "base"), "BASE");
}
