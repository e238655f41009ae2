//! Merges of each kind, with the target checked out or not, and all obstacles.

use banksman_adapters::git::{MergeError, merge};
use banksman_core::pipeline::plan::MergeHow;
use std::os::unix::fs::PermissionsExt;

use crate::facts::ODD;
use crate::world::World;

/// A branch `topic` with the file `a`, and a `main` with another commit, with the file `m`.
fn diverged() -> World {
    let world = World::new();
    world.branch("topic", "a", "a\n");
    world.commit("m", "m\n");
    world
}

#[test]
fn a_fast_forward_moves_the_target_and_its_checkout() {
    let world = World::new();
    let before = world.tip("main");
    let tip = world.branch("topic", "a", "a\n");
    let merged = world.merge("topic", MergeHow::FastForward).unwrap();
    assert_eq!((merged.commit.as_str(), merged.before.as_str()), (tip.as_str(), before.as_str()));
    assert_eq!(merged.checkout.as_deref(), Some(&*world.repo().canonicalize().unwrap()));
    assert_eq!(world.tip("main"), tip);
    assert_eq!(std::fs::read_to_string(world.repo().join("a")).unwrap(), "a\n");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    world.assert_tidy();
}

#[test]
fn a_diverged_branch_is_not_fast_forwarded() {
    let world = diverged();
    let before = world.tip("main");
    let error = world.merge("topic", MergeHow::FastForward).unwrap_err().to_string();
    assert_eq!(error, "not a fast-forward: main has commits that topic does not have");
    assert_eq!(world.tip("main"), before);
}

#[test]
fn a_rebase_copies_the_commits_and_does_not_move_the_branch() {
    for elsewhere in [false, true] {
        let world = diverged();
        if elsewhere {
            world.git(&["switch", "-q", "--detach"]);
        }
        let (before, topic) = (world.tip("main"), world.tip("topic"));
        let merged = world.merge("topic", MergeHow::Rebase).unwrap();
        assert_eq!(merged.checkout.is_none(), elsewhere);
        assert_eq!(world.tip("main"), merged.commit);
        assert_eq!(world.tip("main^"), before, "one commit on top");
        assert_eq!((world.show("main", "a"), world.show("main", "m")), ("a".into(), "m".into()));
        assert_eq!(world.tip("topic"), topic);
        assert_eq!(world.git(&["status", "--porcelain"]), "");
        world.assert_tidy();
    }
}

#[test]
fn a_rebase_does_not_lose_changes_made_in_a_merge() {
    let world = diverged();
    world.git(&["switch", "-q", "topic"]);
    world.git(&["merge", "-q", "--no-edit", "main"]);
    world.git(&["switch", "-q", "main"]);
    let before = world.commit("m2", "m\n");
    // A merge without changes of its own is dropped.
    world.git(&["branch", "plain", "topic"]);
    world.git(&["switch", "-q", "topic"]);
    world.git(&["merge", "-q", "--no-commit", "main"]);
    world.commit("own", "own\n");
    world.git(&["switch", "-q", "main"]);
    let error = world.merge("topic", MergeHow::Rebase).unwrap_err().to_string();
    assert_eq!(error, "a rebase would lose changes: merges in topic have some of their own");
    assert_eq!(world.tip("main"), before);
    assert!(world.merge("plain", MergeHow::Rebase).unwrap().has_moved());
    assert_eq!(world.git(&["rev-list", "--merges", "main"]), "");
    world.merge("topic", MergeHow::MergeCommit).unwrap();
    assert_eq!(world.show("main", "own"), "own");
}

#[test]
fn a_merge_commit_has_both_parents() {
    for elsewhere in [false, true] {
        let world = diverged();
        if elsewhere {
            world.git(&["switch", "-q", "--detach"]);
        }
        let (before, topic) = (world.tip("main"), world.tip("topic"));
        let merged = world.merge("topic", MergeHow::MergeCommit).unwrap();
        assert_eq!((world.tip("main"), world.tip("main^1"), world.tip("main^2")), (merged.commit, before, topic));
        assert_eq!(world.git(&["log", "-1", "--format=%s", "main"]), "Merge branch 'topic' into main");
        let tree = world.git(&["merge-tree", "--write-tree", "main^1", "main^2"]);
        assert_eq!(world.tip("main^{tree}"), tree, "the merge has no changes of its own");
        world.assert_tidy();
    }
}

#[test]
fn a_branch_that_is_merged_already_succeeds_and_moves_nothing() {
    let world = diverged();
    world.git(&["merge", "-q", "--no-edit", "topic"]);
    let before = world.tip("main");
    for how in MergeHow::ALL {
        let merged = world.merge("topic", how).unwrap();
        assert!(!merged.has_moved() && merged.commit == before, "{merged:?}");
    }
    // A rebase that drops every commit.
    let world = diverged();
    world.git(&["cherry-pick", "topic"]);
    let before = world.tip("main");
    assert!(!world.merge("topic", MergeHow::Rebase).unwrap().has_moved());
    assert_eq!(world.tip("main"), before);
    assert_eq!(world.git(&["for-each-ref", "refs/banksman"]), "");
}

#[test]
fn a_conflict_names_the_files_and_changes_nothing() {
    let world = World::new();
    world.git(&["switch", "-q", "-c", "topic"]);
    world.commit("a file", "topic\n");
    world.commit("ü", "topic\n");
    world.git(&["switch", "-q", "main"]);
    world.commit("a file", "main\n");
    world.commit("ü", "main\n");
    let (before, topic) = (world.tip("main"), world.tip("topic"));
    let error = world.merge("topic", MergeHow::MergeCommit).unwrap_err().to_string();
    assert_eq!(error, "conflict in a file, ü");
    let error = world.merge("topic", MergeHow::Rebase).unwrap_err().to_string();
    assert_eq!(error, "conflict in a file", "the first commit with a conflict");
    assert_eq!((world.tip("main"), world.tip("topic")), (before, topic));
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    world.assert_tidy();
}

#[test]
fn a_checkout_with_changes_is_left_alone() {
    let world = diverged();
    let before = world.tip("main");
    std::fs::write(world.repo().join("base"), "begun").unwrap();
    for how in [MergeHow::Rebase, MergeHow::MergeCommit] {
        let error = world.merge("topic", how).unwrap_err().to_string();
        assert_eq!(error, format!("the checkout at {} has changes", world.repo().canonicalize().unwrap().display()));
    }
    world.git(&["checkout", "-q", "base"]);
    // A new file does not count as a change, unless the merge would overwrite it.
    std::fs::write(world.repo().join("a"), "mine").unwrap();
    let error = world.merge("topic", MergeHow::Rebase).unwrap_err();
    assert!(matches!(error, MergeError::InTheWay(_)), "{error}");
    assert_eq!(std::fs::read_to_string(world.repo().join("a")).unwrap(), "mine");
    assert_eq!(world.tip("main"), before);
    std::fs::rename(world.repo().join("a"), world.repo().join("another")).unwrap();
    assert!(world.merge("topic", MergeHow::Rebase).unwrap().has_moved());
    assert!(world.repo().join("another").exists());
}

#[test]
fn a_target_that_is_checked_out_elsewhere_moves_there() {
    let world = diverged();
    world.git(&["switch", "-q", "-c", "work"]);
    let linked = world.path("linked");
    world.git(&["worktree", "add", "-q", linked.to_str().unwrap(), "main"]);
    let merged = world.merge("topic", MergeHow::Rebase).unwrap();
    assert_eq!(merged.checkout, Some(linked.canonicalize().unwrap()));
    assert_eq!(std::fs::read_to_string(linked.join("a")).unwrap(), "a\n");
    assert_eq!(world.git_in(&linked, &["status", "--porcelain"]), "");
    assert!(!world.repo().join("a").exists());
}

#[test]
fn the_former_tip_is_kept_for_a_while() {
    let world = World::new();
    world.git(&["switch", "-q", "--detach"]);
    let mut tips = Vec::new();
    let mut merge = || {
        tips.push(world.tip("main"));
        world.git(&["branch", "-f", "topic", "main"]);
        world.git(&["checkout", "-q", "--detach", "topic"]);
        let tip = world.commit("n", &tips.len().to_string());
        world.git(&["branch", "-f", "topic", &tip]);
        world.merge("topic", MergeHow::FastForward).unwrap();
        tips.clone()
    };
    let kept = || world.git(&["for-each-ref", "--format=%(objectname)", "--sort=refname", "refs/banksman/merges/main/"]);
    (0..3).for_each(|_| drop(merge()));
    let tips = merge();
    assert_eq!(kept().lines().collect::<Vec<_>>(), tips, "the latest comes last");
    // If there are more than a hundred, only the last fifty are kept.
    for n in 0..97 {
        world.git(&["update-ref", &format!("refs/banksman/merges/main/{n:014}-000000000000"), "main"]);
    }
    let tips = merge();
    let kept = kept();
    let kept: Vec<&str> = kept.lines().collect();
    assert_eq!((kept.len(), &kept[45..]), (50, &tips.iter().map(String::as_str).collect::<Vec<_>>()[..]));
    // Failed attempts do not add records, which would push out older ones.
    let world = diverged();
    std::fs::write(world.repo().join("a"), "in the way").unwrap();
    for _ in 0..3 {
        world.merge("topic", MergeHow::Rebase).unwrap_err();
    }
    let kept = world.git(&["for-each-ref", "--format=%(objectname)", "refs/banksman/merges/main/"]);
    assert_eq!(kept, world.tip("main"));
}

#[test]
fn branches_may_have_odd_names() {
    for (n, name) in ODD.iter().enumerate() {
        let world = World::new();
        world.branch(name, "a", "a\n");
        world.commit("m", "m\n");
        let how = [MergeHow::Rebase, MergeHow::MergeCommit][n % 2];
        assert!(world.merge(name, how).unwrap().has_moved(), "{name}");
        assert_eq!(world.show("main", "a"), "a");
        // The same name as a target that is not checked out.
        world.git(&["branch", "-M", name, "former"]);
        world.git(&["branch", name, "main~1"]);
        merge(&world.repo(), &world.path("scratch"), "main", name, MergeHow::FastForward).unwrap();
        assert_eq!(world.tip(&format!("refs/heads/{name}")), world.tip("refs/heads/main"));
    }
    let world = World::new();
    for (branch, into) in [("-d", "main"), ("main", "--force"), ("", "main")] {
        let error = merge(&world.repo(), &world.path("scratch"), branch, into, MergeHow::Rebase).unwrap_err().to_string();
        assert!(error.ends_with("is no name of a branch"), "{error}");
    }
    for (branch, into) in [("gone", "main"), ("main", "gone"), ("main~0", "main")] {
        let error = merge(&world.repo(), &world.path("scratch"), branch, into, MergeHow::Rebase).unwrap_err().to_string();
        assert!(error.starts_with("no such branch: "), "{error}");
    }
}

#[test]
fn an_alias_as_a_target_is_refused() {
    let world = World::new();
    let tip = world.branch("topic", "a", "a\n");
    let before = world.tip("main");
    world.git(&["symbolic-ref", "refs/heads/alias", "refs/heads/main"]);
    let error = merge(&world.repo(), &world.path("scratch"), "topic", "alias", MergeHow::FastForward).unwrap_err();
    assert_eq!(error.to_string(), "the branch alias is another name of main: merge into that");
    assert_eq!((world.tip("main"), world.git(&["status", "--porcelain"])), (before, String::new()));
    // A checkout of the alias is a checkout of the branch, and an alias may be merged.
    world.git(&["symbolic-ref", "HEAD", "refs/heads/alias"]);
    world.git(&["symbolic-ref", "refs/heads/same", "refs/heads/topic"]);
    assert!(world.merge("same", MergeHow::FastForward).unwrap().checkout.is_some());
    assert_eq!((world.tip("main"), world.git(&["status", "--porcelain"])), (tip, String::new()));
}

/// Runs a script during every checkout of a file with the suffix `.slow`.
pub(crate) fn on_checkout(world: &World, script: &str) {
    let path = world.path("filter");
    std::fs::write(&path, format!("#!/bin/sh\nunset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_PREFIX\n{script}\ncat\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.git(&["config", "filter.slow.smudge", path.to_str().unwrap()]);
}

/// A branch `topic`, and a `main` with another commit that is not checked out, with a file whose checkout runs a script.
fn slow() -> World {
    let world = World::new();
    world.commit(".gitattributes", "*.slow filter=slow\n");
    world.commit("x.slow", "x\n");
    world.branch("topic", "a", "a\n");
    world.commit("m", "m\n");
    world.git(&["switch", "-q", "--detach"]);
    world
}

#[test]
fn a_merge_into_a_moving_target_uses_its_new_tip() {
    let world = slow();
    // The first two times that the merge makes its worktree, a commit is made to main.
    let (repo, count) = (world.repo(), world.path("count"));
    on_checkout(
        &world,
        &format!(
            "cd '{}'; echo x >> '{count}'; [ $(wc -l < '{count}') -gt 2 ] || git update-ref refs/heads/main \
             $(git commit-tree -p main -m other main^{{tree}})",
            repo.display(),
            count = count.display()
        ),
    );
    let merged = world.merge("topic", MergeHow::MergeCommit).unwrap();
    assert_eq!(world.tip("main"), merged.commit);
    assert_eq!(world.git(&["log", "--format=%s", "--first-parent", "main"]).lines().filter(|line| *line == "other").count(), 2);
    assert_eq!(std::fs::read_to_string(count).unwrap().lines().count(), 3, "two races were lost");
    world.assert_tidy();
}

#[test]
fn a_target_that_is_checked_out_meanwhile_moves_with_its_checkout() {
    let world = slow();
    on_checkout(&world, &format!("cd '{}'; git symbolic-ref HEAD refs/heads/main", world.repo().display()));
    let merged = world.merge("topic", MergeHow::MergeCommit).unwrap();
    assert_eq!((merged.checkout, world.tip("main")), (Some(world.repo().canonicalize().unwrap()), merged.commit));
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    world.assert_tidy();
}

#[test]
fn a_target_that_keeps_moving_is_an_error() {
    let world = slow();
    let repo = world.repo();
    on_checkout(
        &world,
        &format!("cd '{}'; git update-ref refs/heads/main $(git commit-tree -p main -m other main^{{tree}})", repo.display()),
    );
    let error = world.merge("topic", MergeHow::Rebase).unwrap_err().to_string();
    assert!(error.starts_with("the branch main was moved by others meanwhile, 5 times"), "{error}");
    assert_eq!(world.git(&["log", "--format=%s", "main"]).lines().filter(|line| *line == "other").count(), 5, "nothing is lost");
    world.assert_tidy();
}

#[test]
fn concurrent_merges_all_succeed() {
    let world = World::new();
    let branches: Vec<String> = (0..6).map(|n| format!("b{n}")).collect();
    for branch in &branches {
        world.branch(branch, branch, "x\n");
    }
    std::thread::scope(|scope| {
        for (n, branch) in branches.iter().enumerate() {
            let world = &world;
            scope.spawn(move || world.merge(branch, [MergeHow::Rebase, MergeHow::MergeCommit][n % 2]).unwrap());
        }
    });
    for branch in &branches {
        assert!(world.facts().is_merged(branch, "main").unwrap());
    }
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    world.assert_tidy();
}

#[test]
fn the_worktree_of_a_killed_merge_is_removed() {
    let world = diverged();
    let left = world.path("scratch/.merge-earlier");
    std::fs::create_dir_all(world.path("scratch")).unwrap();
    // A complete, locked worktree with a change.
    world.git(&["worktree", "add", "-q", "--detach", left.to_str().unwrap(), "topic"]);
    world.git(&["worktree", "lock", left.to_str().unwrap()]);
    std::fs::write(left.join("base"), "begun").unwrap();
    assert!(world.merge("topic", MergeHow::Rebase).unwrap().has_moved());
    world.assert_tidy();
    // An incomplete record, with which no git can list the worktrees.
    let world = diverged();
    let half = world.repo().join(".git/worktrees/-merge-earlier");
    std::fs::create_dir_all(&half).unwrap();
    std::fs::write(half.join("commondir"), "").unwrap();
    assert!(world.merge("topic", MergeHow::Rebase).unwrap().has_moved());
    world.assert_tidy();
    // A worktree of an earlier version, and one whose directory is gone.
    let world = diverged();
    std::fs::create_dir_all(world.path("scratch")).unwrap();
    for (name, is_gone) in [(".merge", false), (".merge-gone", true)] {
        let left = world.path("scratch").join(name);
        world.git(&["worktree", "add", "-q", "--detach", left.to_str().unwrap(), "topic"]);
        if is_gone {
            std::fs::remove_dir_all(&left).unwrap();
        }
    }
    assert!(world.merge("topic", MergeHow::Rebase).unwrap().has_moved());
    world.assert_tidy();
    // A worktree whose directory was replaced by one that git does not know.
    let world = diverged();
    std::fs::create_dir_all(world.path("scratch")).unwrap();
    let left = world.path("scratch/.merge-earlier");
    world.git(&["worktree", "add", "-q", "--detach", left.to_str().unwrap(), "topic"]);
    std::fs::remove_dir_all(&left).unwrap();
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("junk"), "x").unwrap();
    assert!(world.merge("topic", MergeHow::MergeCommit).unwrap().has_moved());
    world.assert_tidy();
}

#[test]
fn a_merge_in_progress_is_not_disturbed() {
    let world = diverged();
    world.branch("other", "o", "o\n");
    let before = world.tip("main");
    // Without a change in any file.
    world.git(&["merge", "-q", "--strategy=ours", "--no-commit", "other"]);
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    assert!(!world.facts().branch_clean("main").unwrap());
    let error = world.merge("topic", MergeHow::Rebase).unwrap_err().to_string();
    assert!(error.ends_with(" has changes: a merge is under way"), "{error}");
    assert_eq!(world.tip("main"), before);
}

#[test]
fn a_recorded_resolution_does_not_hide_a_conflict() {
    let world = World::new();
    world.git(&["config", "rerere.enabled", "true"]);
    world.git(&["config", "rerere.autoUpdate", "true"]);
    world.branch("topic", "a", "topic\n");
    let before = world.commit("a", "main\n");
    // Git records the resolution of a conflict.
    let merged = std::process::Command::new("git").current_dir(world.repo()).args(["merge", "-q", "topic"]).output().unwrap();
    assert!(!merged.status.success());
    world.commit("a", "both\n");
    world.git(&["reset", "-q", "--hard", &before]);
    for how in [MergeHow::Rebase, MergeHow::MergeCommit] {
        assert_eq!(world.merge("topic", how).unwrap_err().to_string(), "conflict in a");
    }
}

fn hook(world: &World, name: &str, script: &str) {
    let path = world.repo().join(".git/hooks").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_hook_can_refuse_that_the_target_moves() {
    let world = diverged();
    let before = world.tip("main");
    hook(&world, "reference-transaction", "[ $1 != prepared ] || ! grep refs/heads/main");
    let error = world.merge("topic", MergeHow::Rebase).unwrap_err().to_string();
    assert!(error.starts_with("git update-ref failed: "), "{error}");
    assert_eq!((world.tip("main"), world.git(&["status", "--porcelain"])), (before, String::new()));
    world.assert_tidy();
}

#[test]
fn settings_and_hooks_of_the_user_do_not_disturb_a_merge() {
    let world = diverged();
    world.branch("second", "s", "s\n");
    world.git(&["branch", "middle", "topic"]);
    let middle = world.tip("middle");
    for (key, value) in [
        ("rebase.updateRefs", "true"),
        ("rebase.autoStash", "true"),
        ("rebase.rebaseMerges", "true"),
        ("merge.ff", "only"),
        ("branch.main.mergeoptions", "--squash"),
        ("core.editor", "false"),
        ("commit.template", "/nowhere"),
        ("status.showStash", "true"),
        ("status.branch", "true"),
    ] {
        world.git(&["config", key, value]);
    }
    std::fs::write(world.repo().join("base"), "later").unwrap();
    world.git(&["stash", "-q"]);
    let hook = |name: &str, script: &str| hook(&world, name, script);
    hook("post-checkout", "exit 1");
    hook("pre-rebase", "exit 1");
    hook("commit-msg", "exit 1");
    hook("post-merge", "echo here > merged");
    assert!(world.merge("topic", MergeHow::Rebase).unwrap().has_moved());
    assert_eq!(world.tip("middle"), middle);
    assert!(world.repo().join("merged").exists(), "the hook of the checkout has run");
    assert!(world.merge("second", MergeHow::MergeCommit).unwrap().has_moved());
    world.assert_tidy();
}

#[test]
fn a_repository_without_a_user_gets_one() {
    let world = diverged();
    world.git(&["config", "--unset", "user.name"]);
    world.git(&["config", "--unset", "user.email"]);
    world.git(&["config", "user.useConfigOnly", "true"]);
    let merged = world.merge("topic", MergeHow::MergeCommit);
    assert!(merged.is_ok_and(|merged| merged.has_moved()));
}

#[test]
fn the_lock_of_a_killed_gc_does_not_block_a_merge() {
    let world = diverged();
    let lock = std::fs::File::create(world.repo().join(".git/gc.pid.lock")).unwrap();
    lock.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(10)).unwrap();
    let began = std::time::Instant::now();
    world.merge("topic", MergeHow::Rebase).unwrap();
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "a running collection would be waited for a minute");
}
