//! Banksman's own files and git: they never make a checkout unclean, and git in a workspace never finds the project's repository.

use crate::landing::Yard;
use crate::merging::{branch, commit, git, repository};
use crate::world::World;

/// Whether the guard `clean` of the runbook passes.
fn is_clean(world: &World) -> bool {
    world.run(&["guards", "check", "clean"]).code == 0
}

#[test]
fn own_files_never_make_a_checkout_unclean_or_block_a_merge() {
    let world = World::new();
    crate::runbooks::write(&world, "ops", "[guard.clean]\ncondition = { branch_clean = \"main\" }\n");
    git(world.path(), &["init", "-q", "-b", "main"]);
    git(world.path(), &["config", "user.name", "t"]);
    git(world.path(), &["config", "user.email", "t@example.invalid"]);
    std::fs::write(world.path().join(".gitignore"), "/state\n/config\n").unwrap();
    git(world.path(), &["add", ".gitignore"]);
    git(world.path(), &["commit", "-q", "-m", "base"]);
    assert!(is_clean(&world), "the folder is new, and not committed");

    commit(&world, "base", "base\n");
    branch(&world, "topic", "a", "a\n");
    world.ok(&["config", "set", "task.kill_grace", "3s"]);
    assert!(git(world.path(), &["status", "--porcelain"]).contains(".banksman/config.toml"), "it is committed and changed");
    assert!(is_clean(&world));
    world.ok(&["merge-branch", "--how", "fast_forward", "--", "topic", "main"]);
    assert!(world.has("a"));
    assert_eq!(world.data(&["config", "get", "task.kill_grace"])["value"], "3s", "the change is still there");
    std::fs::write(world.path().join("base"), "changed").unwrap();
    assert!(!is_clean(&world), "a file of the user's");
}

/// B12: `config set` in a checkout with a committed settings file does not block a landing.
#[test]
fn a_changed_settings_file_does_not_block_a_landing() {
    let yard = Yard::new();
    yard.branch("unchecked", "a", "a\n");
    yard.branch("checked", "b", "b\n");
    yard.check("true");
    yard.0.ok(&["config", "set", "task.kill_grace", "3s"]);
    assert_eq!(yard.git(&["status", "--porcelain"]), " M .banksman/config.toml", "it is committed and changed");
    // Before a check, what would prevent the move is reported.
    for args in [&["unchecked", "--unchecked"][..], &["checked"]] {
        let landed = yard.land(args);
        assert_eq!(landed["state"], "landed", "{landed}");
    }
    assert_eq!((yard.file("a").as_str(), yard.file("b").as_str()), ("a\n", "b\n"));
    assert_eq!(yard.0.data(&["config", "get", "task.kill_grace"])["value"], "3s", "the change is still there");
}

#[test]
fn git_in_a_workspace_never_finds_the_projects_repository() {
    let world = World::new();
    repository(&world);
    std::fs::write(world.path().join("precious"), "not committed yet\n").unwrap();
    let tip = git(world.path(), &["rev-parse", "HEAD"]);
    let attack =
        "git add -A; git commit -qm stolen; env -i PATH=\"$PATH\" git add -A; env -i PATH=\"$PATH\" git commit -qm stolen";
    let own = "git init -q own && cd own && echo x > x && git add -A && git -c user.name=t -c user.email=t commit -qm own && git rev-parse HEAD";
    world.ok(&["tasks", "add", "Attack", "--workspace", "dir", "--run", attack]);
    world.ok(&["tasks", "add", "Own", "--workspace", "dir", "--run", own]);
    world.ok(&["tasks", "add", "Look", "--workspace", "dir", "--run", "git status"]);
    // With the environment of a git hook.
    let mut runner = world.command(&["run", "--until-idle", "--quiet"]);
    runner.env("GIT_DIR", world.path().join(".git")).env("GIT_WORK_TREE", world.path()).output().unwrap();
    assert_eq!(git(world.path(), &["rev-parse", "HEAD"]), tip);
    assert_eq!(git(world.path(), &["status", "--porcelain"]), "?? precious");
    let status = |title: &str| world.data(&["tasks", "show", title])["status"].clone();
    assert_eq!((status("Attack"), status("Own")), ("failed".into(), "completed".into()));
    let said = world.ok(&["tasks", "logs", "Look"]);
    assert!(said.contains("not a git repository"), "{said}");
}
