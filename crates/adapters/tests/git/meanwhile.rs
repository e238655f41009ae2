//! Work of a person in the checkout of the target during a merge. Nothing of it may be lost.

use std::fs;

use banksman_core::pipeline::plan::MergeHow;

use crate::merges::on_checkout;
use crate::world::World;

/// A diverged branch `topic` and a checked out `main`. Making the candidate runs a script.
fn diverged() -> World {
    let world = World::new();
    world.commit(".gitattributes", "*.slow filter=slow\n");
    world.commit("x.slow", "x\n");
    world.commit("edited", "before\n");
    world.branch("topic", "a", "a\n");
    world.commit("m", "m\n");
    world
}

/// Runs a script in the checkout, once, when the merge makes its candidate.
fn during_the_merge(world: &World, script: &str) {
    let (repo, once) = (world.repo(), world.path("once"));
    let (repo, once) = (repo.display(), once.display());
    on_checkout(world, &format!("[ -e '{once}' ] || (: > '{once}'; cd '{repo}'; {script}) > /dev/null"));
}

#[test]
fn a_commit_made_during_the_merge_survives_with_its_files() {
    for how in [MergeHow::Rebase, MergeHow::MergeCommit] {
        let world = diverged();
        let commit = "echo precious > precious.txt; echo after > edited; git add -A; git commit -q -m precious";
        during_the_merge(&world, commit);
        let merged = world.merge("topic", how).unwrap();
        assert_eq!(world.tip("main"), merged.commit);
        assert_eq!(world.git(&["status", "--porcelain"]), "", "nothing is staged as deleted");
        let read = |name: &str| fs::read_to_string(world.repo().join(name)).unwrap();
        assert_eq!(
            (read("precious.txt").as_str(), read("edited").as_str(), read("a").as_str()),
            ("precious\n", "after\n", "a\n")
        );
        assert_eq!(world.show("main", "precious.txt"), "precious");
        world.assert_tidy();
    }
}
