//! Facts about branches.

use banksman_adapters::git::GitError;
use banksman_core::pipeline::plan::MergeHow;

use crate::world::World;

/// Names with characters that are special to a shell, to git's expressions or to paths.
pub(crate) const ODD: [&str; 7] =
    ["feature/it's", "a$(touch${IFS}x)b", "ümläut/日本", "a;b&c", "@head", "refs/heads/main", "50%-off#1"];

#[test]
fn a_branch_exists_only_under_its_exact_name() {
    let world = World::new();
    let git = world.facts();
    assert!(git.branch_exists("main").unwrap());
    assert!(!git.branch_exists("topic").unwrap());
    for name in ODD {
        assert!(!git.branch_exists(name).unwrap(), "{name}");
        world.git(&["branch", name]);
        assert!(git.branch_exists(name).unwrap(), "{name}");
        assert!(git.branch_clean(name).unwrap(), "{name}");
        assert!(git.is_merged(name, "main").unwrap(), "{name}");
    }
    assert!(!git.branch_exists("feature").unwrap(), "a part of a name is no branch");
    world.commit("second", "x");
    for expression in ["main~1", "main^", "main@{0}", "HEAD", "ma*", "m?in", "main:base", "a..b", " main", "main/"] {
        assert!(!git.branch_exists(expression).unwrap(), "{expression}");
    }
    for name in ["-d", "--help", "", "a\nb", "a\0b"] {
        assert!(matches!(git.branch_exists(name), Err(GitError::Name(_))), "{name:?}");
    }
}

#[test]
fn a_remote_branch_is_known_as_last_fetched() {
    let world = World::new();
    world.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
    world.branch("topic", "a", "a");
    let git = world.facts();
    assert!(git.branch_exists("origin/main").unwrap());
    assert!(git.branch_clean("origin/main").unwrap());
    assert!(git.is_merged("main", "origin/main").unwrap());
    assert!(!git.is_merged("topic", "origin/main").unwrap());
}

#[test]
fn changes_are_found_in_every_checkout() {
    let world = World::new();
    let git = world.facts();
    world.git(&["branch", "topic"]);
    assert!(git.branch_clean("main").unwrap());
    assert!(git.branch_clean("topic").unwrap(), "it is not checked out");
    assert!(matches!(git.branch_clean("other"), Err(GitError::NoBranch(_))));

    // A directory whose name contains a line break.
    let linked = world.path("linked\n two");
    world.git(&["worktree", "add", "-q", linked.to_str().unwrap(), "topic"]);
    assert!(git.branch_clean("topic").unwrap());
    std::fs::write(linked.join("new"), "x").unwrap();
    assert!(!git.branch_clean("topic").unwrap(), "a new file");
    assert!(git.branch_clean("main").unwrap(), "another branch");
    world.git_in(&linked, &["add", "new"]);
    assert!(!git.branch_clean("topic").unwrap(), "a staged new file");
    world.git_in(&linked, &["commit", "-q", "-m", "new"]);
    assert!(git.branch_clean("topic").unwrap());
    std::fs::write(linked.join("base"), "changed").unwrap();
    assert!(!git.branch_clean("topic").unwrap(), "a change");
    std::fs::write(linked.join("a new one"), "x").unwrap();
    let (checkout, files) = git.branch_changes("topic").unwrap().unwrap();
    assert_eq!((checkout, files), (linked.clone(), vec!["base".to_owned(), "a new one".to_owned()]));
    std::fs::remove_dir_all(&linked).unwrap();
    assert!(git.branch_clean("topic").unwrap(), "there is no checkout any more");
}

#[test]
fn a_branch_in_the_middle_of_a_rebase_is_not_clean() {
    let world = World::new();
    world.branch("topic", "a", "topic\n");
    world.commit("a", "main\n");
    for directory in [world.path("linked"), world.repo()] {
        if directory != world.repo() {
            world.git(&["worktree", "add", "-q", directory.to_str().unwrap(), "topic"]);
        } else {
            world.git(&["worktree", "remove", "--force", world.path("linked").to_str().unwrap()]);
            world.git(&["switch", "-q", "topic"]);
        }
        let done = std::process::Command::new("git").current_dir(&directory).args(["rebase", "main"]).output().unwrap();
        assert!(!done.status.success(), "a conflict");
        assert!(!world.facts().branch_clean("topic").unwrap(), "{}", directory.display());
        world.git_in(&directory, &["rebase", "--abort"]);
        assert!(world.facts().branch_clean("topic").unwrap());
    }
}

#[test]
fn a_branch_is_merged_by_merge_rebase_or_squash() {
    let world = World::new();
    let git = world.facts();
    let merged = |branch: &str| git.is_merged(branch, "main").unwrap();
    world.branch("topic", "a", "a\n");
    world.git(&["switch", "-q", "topic"]);
    world.commit("b", "b\n");
    world.git(&["switch", "-q", "main"]);
    for copy in ["forward", "merged", "rebased", "squashed", "half", "not"] {
        world.git(&["branch", copy, "topic"]);
    }
    world.commit("c", "c\n");
    assert!(!merged("topic"));
    let start = world.tip("main");
    let reset = || drop(world.git(&["reset", "-q", "--hard", &start]));

    world.git(&["merge", "-q", "--no-edit", "merged"]);
    assert!(merged("merged"));
    reset();
    world.git(&["cherry-pick", "topic~1", "topic"]);
    assert!(merged("rebased"));
    reset();
    world.git(&["cherry-pick", "topic~1"]);
    assert!(!merged("half"), "one of two commits");
    reset();
    world.git(&["merge", "-q", "--squash", "squashed"]);
    world.git(&["commit", "-q", "-m", "all at once"]);
    world.commit("d", "d\n");
    assert!(merged("squashed"), "main has more commits since");
    assert!(matches!(git.is_merged("main", "other"), Err(GitError::NoBranch(name)) if &*name == "other"));
}

#[test]
fn a_rebased_branch_is_merged_while_the_target_has_it() {
    let lines = |changed: &[usize]| -> String {
        (1..=12).map(|n| if changed.contains(&n) { format!("changed {n}\n") } else { format!("line {n}\n") }).collect()
    };
    let world = World::new();
    world.commit("house", &lines(&[]));
    world.branch("b1", "house", &lines(&[3]));
    world.branch("b2", "house", &lines(&[6]));
    world.branch("b3", "house", &lines(&[9]));
    world.merge("b1", MergeHow::Rebase).unwrap();
    let before = world.tip("main");
    assert!(!world.facts().is_merged("b2", "main").unwrap());
    world.merge("b2", MergeHow::Rebase).unwrap();
    assert_eq!(world.show("main", "house"), lines(&[3, 6]).trim_end());
    assert!(world.facts().is_merged("b2", "main").unwrap(), "the lines around its own differ");
    assert!(!world.facts().is_merged("b3", "main").unwrap());
    // Merging it again would be a conflict by now, so only the record shows that it is merged.
    world.commit("house", &lines(&[3]).replace("line 6", "changed again"));
    world.git(&["gc", "-q", "--prune=now"]);
    assert!(world.facts().is_merged("b2", "main").unwrap());
    world.git(&["reset", "-q", "--hard", &before]);
    assert!(!world.facts().is_merged("b2", "main").unwrap(), "the merge was reverted");
    // The same change, made in another way.
    world.commit("house", &lines(&[3, 6]));
    assert!(world.facts().is_merged("b2", "main").unwrap(), "merging it would change nothing");
}

#[test]
fn a_merge_with_changes_of_its_own_is_not_ignored() {
    let world = World::new();
    let git = world.facts();
    world.branch("topic", "a", "a\n");
    world.branch("side", "s", "s\n");
    world.git(&["switch", "-q", "topic"]);
    world.git(&["merge", "-q", "--no-commit", "--no-ff", "side"]);
    world.commit("evil", "only in the merge\n");
    world.git(&["switch", "-q", "main"]);
    world.git(&["cherry-pick", "topic^1", "side"]);
    assert!(!git.is_merged("topic", "main").unwrap());
}

#[test]
fn a_branch_without_changes_is_merged_and_one_without_a_common_commit_is_not() {
    let world = World::new();
    let git = world.facts();
    world.branch("back", "a", "a\n");
    world.git(&["switch", "-q", "back"]);
    world.git(&["revert", "--no-edit", "HEAD"]);
    world.git(&["switch", "-q", "--orphan", "strange"]);
    world.commit("z", "z\n");
    world.git(&["switch", "-q", "main"]);
    world.commit("c", "c\n");
    assert!(git.is_merged("back", "main").unwrap());
    assert!(!git.is_merged("strange", "main").unwrap());
}

#[test]
fn no_repository_is_an_error() {
    let world = World::new();
    let nowhere = world.path("nowhere");
    std::fs::create_dir(&nowhere).unwrap();
    let git = banksman_adapters::git::Git::new(&nowhere, std::time::Duration::from_secs(30));
    let error = git.branch_exists("main").unwrap_err().to_string();
    assert!(error.contains("not a git repository"), "{error}");
}
