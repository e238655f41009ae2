//! The checkout of the target, which moves along or stays unchanged.

use std::fs;

use banksman_adapters::git::MergeError;
use banksman_core::pipeline::plan::MergeHow;

use crate::merges::on_checkout;
use crate::world::World;

/// A branch `topic` ahead of the checked out `main`, with a change in a file whose checkout runs a script.
fn ahead() -> World {
    let world = World::new();
    world.commit(".gitattributes", "*.slow filter=slow\n");
    world.commit("x.slow", "x\n");
    world.git(&["switch", "-q", "-c", "topic"]);
    world.commit("a", "a\n");
    world.commit("base", "changed\n");
    world.commit("x.slow", "y\n");
    world.git(&["switch", "-q", "main"]);
    world
}

fn assert_unmoved(world: &World) {
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    let has = |name: &str| world.repo().join(name).exists();
    assert!(!has("a") && !has(".git/index.lock") && !has(".git/banksman-index"));
    world.assert_tidy();
}

#[test]
fn a_checkout_is_moved_back_when_the_target_moves_meanwhile() {
    // `core.ignoreStat` makes git assume that files it has written are unchanged.
    for ignore in ["false", "true"] {
        let world = ahead();
        world.git(&["config", "core.ignoreStat", ignore]);
        // While the checkout moves, the target is moved back to an earlier commit.
        let earlier = world.tip("main~1");
        on_checkout(&world, &format!("cd '{}'; git update-ref refs/heads/main {earlier}", world.repo().display()));
        let error = world.merge("topic", MergeHow::FastForward).unwrap_err();
        assert!(matches!(error, MergeError::Dirty(_)), "the branch moved under its checkout: {error}");
        assert_eq!(world.tip("main"), earlier);
        world.git(&["update-ref", "refs/heads/main", "topic~3"]);
        assert_unmoved(&world);
    }
}

#[test]
fn a_checkout_is_not_touched_when_a_file_cannot_be_written() {
    let world = ahead();
    let before = world.tip("main");
    world.git(&["config", "filter.slow.clean", "cat"]);
    world.git(&["config", "filter.slow.required", "true"]);
    on_checkout(&world, "! grep y || exit 1; echo x");
    let error = world.merge("topic", MergeHow::FastForward).unwrap_err().to_string();
    assert!(error.starts_with("git checkout-index failed: "), "{error}");
    assert_eq!(world.tip("main"), before);
    assert_unmoved(&world);
    on_checkout(&world, "");
    assert!(world.merge("topic", MergeHow::FastForward).unwrap().has_moved());
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    world.assert_tidy();
}

#[test]
fn a_file_that_is_ignored_is_not_overwritten() {
    let world = ahead();
    fs::write(world.repo().join(".git/info/exclude"), "a\n").unwrap();
    fs::write(world.repo().join("a"), "mine").unwrap();
    let error = world.merge("topic", MergeHow::FastForward).unwrap_err();
    assert!(matches!(error, MergeError::InTheWay(_)), "{error}");
    assert_eq!(fs::read_to_string(world.repo().join("a")).unwrap(), "mine");
    fs::remove_file(world.repo().join("a")).unwrap();
    assert_unmoved(&world);
}

#[test]
fn files_in_the_way_of_swapped_files_and_directories_stay() {
    let world = World::new();
    let path = |name: &str| world.repo().join(name);
    fs::create_dir(path("dir")).unwrap();
    world.commit("dir/x", "x\n");
    world.git(&["switch", "-q", "-c", "topic"]);
    world.git(&["rm", "-q", "-r", "dir"]);
    fs::create_dir(path("new")).unwrap();
    fs::write(path("new/x"), "x\n").unwrap();
    fs::write(path("file"), "x\n").unwrap();
    world.commit("dir", "a file\n");
    world.git(&["switch", "-q", "main"]);
    fs::write(path(".git/info/exclude"), "*mine\nnew\n").unwrap();
    // A file in a directory that becomes a file, a file in a directory at the path of a new file, and a file at the
    // path of a directory.
    for (directory, file) in [("dir/sub", "dir/sub/mine"), ("file", "file/mine"), (".", "new")] {
        fs::create_dir_all(path(directory)).unwrap();
        fs::write(path(file), "mine").unwrap();
        let error = world.merge("topic", MergeHow::FastForward).unwrap_err();
        assert!(matches!(error, MergeError::InTheWay(_)), "{error}");
        assert_eq!(fs::read_to_string(path(file)).unwrap(), "mine");
        fs::remove_file(path(file)).unwrap();
    }
    assert!(world.merge("topic", MergeHow::FastForward).unwrap().has_moved(), "empty directories do not block a merge");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_branch_with_a_locked_missing_checkout_does_not_move() {
    let world = ahead();
    let before = world.tip("main");
    world.git(&["switch", "-q", "--detach"]);
    let (disk, away) = (world.path("disk"), world.path("away"));
    world.git(&["worktree", "add", "-q", disk.to_str().unwrap(), "main"]);
    world.git(&["worktree", "lock", "--reason", "unplugged", disk.to_str().unwrap()]);
    fs::rename(&disk, away).unwrap();
    let error = world.merge("topic", MergeHow::FastForward).unwrap_err().to_string();
    assert!(error.ends_with("is locked: its directory is not there"), "{error}");
    assert_eq!(world.tip("main"), before);
    world.facts().branch_clean("main").unwrap_err();
    world.git(&["worktree", "unlock", disk.to_str().unwrap()]);
    assert!(
        world.merge("topic", MergeHow::FastForward).unwrap().has_moved(),
        "an unlocked missing checkout does not block a merge"
    );
}

#[test]
fn marked_files_with_changes_are_not_overwritten() {
    let world = ahead();
    for mark in ["--skip-worktree", "--assume-unchanged"] {
        fs::write(world.repo().join("base"), "mine").unwrap();
        world.git(&["update-index", mark, "base"]);
        let marks = world.git(&["ls-files", "-v", "base"]);
        let error = world.merge("topic", MergeHow::FastForward).unwrap_err();
        assert!(matches!(error, MergeError::Dirty(_)), "{error}");
        assert_eq!(fs::read_to_string(world.repo().join("base")).unwrap(), "mine");
        assert_eq!(world.git(&["ls-files", "-v", "base"]), marks);
        world.git(&["update-index", &mark.replace("--", "--no-"), "base"]);
        world.git(&["checkout", "-q", "base"]);
    }
    assert_unmoved(&world);
}

#[test]
fn files_links_and_directories_can_replace_each_other() {
    let world = World::new();
    let path = |name: &str| world.repo().join(name);
    for directory in ["dir", "lib"] {
        fs::create_dir(path(directory)).unwrap();
        fs::write(path(directory).join("x"), "x\n").unwrap();
    }
    std::os::unix::fs::symlink("lib", path("link")).unwrap();
    world.commit("file", "file\n");
    world.git(&["switch", "-q", "-c", "topic"]);
    world.git(&["rm", "-q", "-r", "dir", "link", "file"]);
    for directory in ["link", "file"] {
        fs::create_dir(path(directory)).unwrap();
        fs::write(path(directory).join("x"), "x\n").unwrap();
    }
    world.commit("dir", "a file\n");
    world.git(&["switch", "-q", "main"]);
    assert!(world.merge("topic", MergeHow::FastForward).unwrap().has_moved());
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    assert_eq!((world.tip("main"), fs::read_to_string(path("lib/x")).unwrap()), (world.tip("topic"), "x\n".into()));
}

#[test]
fn a_file_that_was_only_touched_has_not_changed() {
    let world = ahead();
    fs::write(world.repo().join("base"), "base\n").unwrap();
    let file = fs::File::options().write(true).open(world.repo().join("base")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    drop(file);
    assert!(world.merge("topic", MergeHow::FastForward).unwrap().has_moved());
    assert_eq!(world.git(&["status", "--porcelain"]), "");
}

#[test]
fn special_indexes_and_sparse_checkouts_move_along() {
    for settings in [&[("core.splitIndex", "true")][..], &[("core.untrackedCache", "true"), ("index.version", "4")]] {
        let world = ahead();
        settings.iter().for_each(|(key, value)| drop(world.git(&["config", key, value])));
        world.git(&["update-index", "--force-write-index"]);
        assert!(world.merge("topic", MergeHow::FastForward).unwrap().has_moved());
        assert_eq!(world.git(&["status", "--porcelain"]), "");
        world.git(&["fsck", "--strict"]);
    }
    // A sparse checkout.
    let world = World::new();
    fs::create_dir_all(world.repo().join("in")).unwrap();
    fs::create_dir_all(world.repo().join("out")).unwrap();
    world.commit("out/x", "x\n");
    world.git(&["switch", "-q", "-c", "topic"]);
    world.commit("out/y", "y\n");
    world.commit("out/x", "changed\n");
    world.commit("in/x", "x\n");
    world.git(&["switch", "-q", "main"]);
    world.git(&["sparse-checkout", "set", "in"]);
    assert!(world.merge("topic", MergeHow::FastForward).unwrap().has_moved());
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    assert!(world.repo().join("in/x").exists() && !world.repo().join("out").exists());
}

/// A `main` with a submodule, and a branch `topic` ahead with another commit of the submodule, which is checked out at
/// the earlier one.
fn with_submodule() -> World {
    let world = World::new();
    let (sub, origin) = (world.repo().join("sub"), world.path("origin"));
    fs::create_dir(&origin).unwrap();
    let commit = |directory: &std::path::Path, file: &str| {
        fs::write(directory.join(file), file).unwrap();
        world.git_in(directory, &["add", "-A"]);
        let who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
        world.git_in(directory, &[&who[..], &["commit", "-q", "-m", file]].concat());
    };
    world.git_in(&origin, &["init", "-q"]);
    commit(&origin, "first");
    world.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../origin", "sub"]);
    world.git(&["commit", "-q", "-m", "sub"]);
    world.git(&["switch", "-q", "-c", "topic"]);
    commit(&sub, "second");
    world.git(&["commit", "-q", "-a", "-m", "bump"]);
    world.git(&["switch", "-q", "main"]);
    world.git(&["submodule", "--quiet", "update"]);
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    world
}

#[test]
fn a_submodule_stays_where_it_is_and_blocks_nothing() {
    let world = with_submodule();
    assert!(world.merge("topic", MergeHow::FastForward).unwrap().has_moved());
    assert_eq!(world.git(&["status", "--porcelain"]), " M sub", "the submodule stays at its commit");
    assert!(world.facts().branch_clean("main").unwrap());
    world.git(&["switch", "-q", "-c", "next"]);
    fs::write(world.repo().join("a"), "a\n").unwrap();
    world.git(&["add", "a"]);
    world.git(&["commit", "-q", "-m", "a"]);
    world.git(&["switch", "-q", "main"]);
    fs::write(world.repo().join("sub/first"), "begun").unwrap();
    assert!(!world.facts().branch_clean("main").unwrap(), "a change inside of the submodule");
    assert!(world.merge("next", MergeHow::MergeCommit).unwrap().has_moved());
    assert_eq!(fs::read_to_string(world.repo().join("sub/first")).unwrap(), "begun");
    // A staged commit of the submodule is a change.
    world.branch("last", "b", "b\n");
    world.git(&["add", "sub"]);
    assert!(matches!(world.merge("last", MergeHow::Rebase), Err(MergeError::Dirty(_))));
}

#[test]
fn a_changed_submodule_is_not_replaced_by_a_file() {
    let world = with_submodule();
    world.git(&["worktree", "add", "-q", "-b", "next", "../next", "main"]);
    let next = world.path("next");
    world.git_in(&next, &["rm", "-q", "sub"]);
    fs::write(next.join("sub"), "a file\n").unwrap();
    world.git_in(&next, &["add", "sub"]);
    world.git_in(&next, &["commit", "-q", "-m", "file"]);
    fs::write(world.repo().join("sub/first"), "begun").unwrap();
    let error = world.merge("next", MergeHow::FastForward).unwrap_err();
    assert!(matches!(error, MergeError::InTheWay(_)), "{error}");
    assert_eq!(fs::read_to_string(world.repo().join("sub/first")).unwrap(), "begun");
    world.git(&["submodule", "--quiet", "deinit", "--force", "sub"]);
    assert!(world.merge("next", MergeHow::FastForward).unwrap().has_moved());
}

#[test]
fn a_checkout_is_found_if_its_git_directory_is_elsewhere() {
    let world = ahead();
    world.git(&["init", "-q", "--separate-git-dir", world.path("away").to_str().unwrap()]);
    assert!(world.merge("topic", MergeHow::FastForward).unwrap().has_moved());
    assert_eq!((world.tip("main"), world.git(&["status", "--porcelain"])), (world.tip("topic"), String::new()));

    let world = ahead();
    let elsewhere = world.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    world.git(&["config", "core.worktree", elsewhere.to_str().unwrap()]);
    world.git(&["reset", "-q", "--hard"]);
    fs::write(world.repo().join(".git/info/exclude"), "a\n").unwrap();
    fs::write(elsewhere.join("a"), "mine").unwrap();
    let error = world.merge("topic", MergeHow::FastForward).unwrap_err();
    assert!(matches!(error, MergeError::InTheWay(_)), "{error}");

    let world = with_submodule();
    let sub = world.repo().join("sub");
    let git = |args: &[&str]| world.git_in(&sub, args);
    git(&["switch", "-q", "-C", "main"]);
    git(&["branch", "topic", &world.git(&["rev-parse", "topic:sub"])]);
    fs::write(world.repo().join(".git/modules/sub/info/exclude"), "second\n").unwrap();
    fs::write(sub.join("second"), "mine").unwrap();
    let merge = || banksman_adapters::git::merge(&sub, &world.path("scratch"), "topic", "main", MergeHow::FastForward);
    let error = merge().unwrap_err();
    assert!(matches!(error, MergeError::InTheWay(_)), "{error}");
    assert_eq!(fs::read_to_string(sub.join("second")).unwrap(), "mine");
    fs::remove_file(sub.join("second")).unwrap();
    assert_eq!(merge().unwrap().checkout, Some(sub.canonicalize().unwrap()));
    assert_eq!((git(&["rev-parse", "main"]), git(&["status", "--porcelain"])), (git(&["rev-parse", "topic"]), String::new()));
}
