//! Tasks in worktrees of their own, with real git.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::merging::{commit, git, repository};
use crate::shapes;
use crate::world::World;

/// A project in a repository with one commit. Its worktree directory is removed with it.
pub(crate) struct Checkout {
    pub(crate) world: World,
    pub(crate) beside: PathBuf,
}

impl Drop for Checkout {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.beside).ok();
    }
}

pub(crate) fn checkout() -> Checkout {
    let world = World::new();
    repository(&world);
    let name = world.path().file_name().unwrap().to_str().unwrap();
    let beside = world.path().with_file_name(format!(".{name}-banksman"));
    Checkout { world, beside }
}

impl Checkout {
    /// Adds a task with a worktree, and returns its id.
    pub(crate) fn add(&self, title: &str, run: &str, more: &[&str]) -> String {
        let args = [&["tasks", "add", title, "--worktree", "--run", run], more].concat();
        self.world.data(&args)["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn run(&self) {
        let said = self.world.run(&["run", "--until-idle"]);
        assert!([0, 7].contains(&said.code), "{said:?}");
    }

    fn show(&self, task: &str) -> Value {
        self.world.data(&["tasks", "show", task])
    }

    fn log(&self, task: &str) -> String {
        self.world.ok(&["tasks", "logs", task])
    }

    fn path(&self, task: &str) -> PathBuf {
        self.beside.join(task)
    }
}

/// Commits all changes in the working directory of a run.
const COMMIT: &str = "git add -A && git commit -q -m work";

#[test]
fn a_task_runs_in_its_own_worktree() {
    let at = checkout();
    fs::write(at.world.path().join("mine"), "not committed").unwrap();
    let id = at.add("Add login", &format!("pwd; echo $BANKSMAN_WORKSPACE $BANKSMAN_BRANCH; echo x > login; {COMMIT}"), &[]);
    assert_eq!(at.world.data(&["workspaces", "list"])["workspaces"], json!([]), "nothing is made before it starts");
    at.run();
    let branch = format!("banksman/{id}-add-login");
    let path = at.path(&id).canonicalize().unwrap();
    let log = at.log(&id);
    assert!(log.contains(&format!("{}\n{} {branch}\n", path.display(), at.path(&id).display())), "{log}");
    assert_eq!(git(at.world.path(), &["show", &format!("{branch}:login")]), "x");
    assert_eq!(git(at.world.path(), &["status", "--porcelain", "mine", "login"]), "?? mine");
    let base = git(at.world.path(), &["rev-parse", "main"]);
    let row = at.world.data(&["workspaces", "show", "Add login"]);
    for (field, value) in [("state", "kept"), ("branch", &branch), ("base", &base), ("kind", "worktree"), ("owner", &id)] {
        assert_eq!(row[field], value, "{row}");
    }
    let page = at.show(&id);
    assert_eq!((page["workspace"].as_str(), page["branch"].as_str()), (Some("worktree"), Some(&*branch)));
    assert!(at.world.ok(&["tasks", "diff", &id]).contains("+++ b/login"));
}

#[test]
fn a_retry_continues_in_the_worktree_and_its_state_is_saved() {
    let at = checkout();
    let script = "if [ -e half ]; then git status --short; rm half; echo done > whole; else echo begun > half; exit 1; fi";
    let id = at.add("Twice", script, &["--retries", "1"]);
    at.run();
    let log = at.log(&id);
    assert!(log.contains("?? half"), "{log}");
    assert!(log.contains(&format!("saved what the last run has left as refs/banksman/saved/{id}/1")), "{log}");
    assert_eq!(git(at.world.path(), &["show", &format!("refs/banksman/saved/{id}/1:half")]), "begun");
    assert_eq!(fs::read_to_string(at.path(&id).join("whole")).unwrap(), "done\n");
}

#[test]
fn sixteen_concurrent_tasks_all_get_worktrees() {
    let at = checkout();
    at.world.ok(&["config", "set", "limits.max_concurrent_runs", "16"]);
    let ids: Vec<String> = (0..16).map(|n| at.add(&format!("T{n}"), &format!("echo {n} > f; {COMMIT}"), &[])).collect();
    at.run();
    for (n, id) in ids.iter().enumerate() {
        let page = at.show(id);
        assert_eq!(page["status"], "completed", "{}", at.log(id));
        assert_eq!(git(at.world.path(), &["show", &format!("{}:f", page["branch"].as_str().unwrap())]), n.to_string());
    }
}

#[test]
fn a_removed_worktree_can_be_recovered_completely() {
    let at = checkout();
    commit(&at.world, ".gitignore", "/state\n/config\n*.tmp\n.env\n");
    at.world.ok(&["config", "set", "workspace.save_ignored", ".env"]);
    // A commit that is amended away, a staged change, a stash, new and ignored files.
    let script = "echo 1 > a; git add a; git commit -qm first; echo 2 > a; git commit -qa --amend -m second; \
        echo s > stashed; git add stashed; git stash -q; echo staged > base; git add base; echo both > base; \
        echo new > new; echo secret > .env; echo x > x.tmp";
    let id = at.add("Lose nothing", script, &[]);
    at.run();
    let first = git(&at.path(&id), &["rev-parse", "HEAD@{1}"]);
    let removed = at.world.data(&["workspaces", "remove", &id]);
    assert!(!at.path(&id).exists());
    let saved = removed["saved"]["ref"].as_str().unwrap().to_owned();
    let show = |what: &str| git(at.world.path(), &["show", &format!("{saved}{what}")]);
    assert_eq!(
        (show(":base"), show(":new"), show(":.env"), show(":a")),
        ("both".into(), "new".into(), "secret".into(), "2".into())
    );
    let all = git(at.world.path(), &["rev-list", &saved]);
    assert!(all.contains(&first), "the amended commit");
    let trees: Vec<String> = all.lines().map(|commit| git(at.world.path(), &["ls-tree", "-r", "--name-only", commit])).collect();
    assert!(trees.iter().any(|tree| tree.contains("stashed")), "the stash");
    let staged = all.lines().any(|commit| git(at.world.path(), &["show", &format!("{commit}:base")]) == "staged");
    assert!(staged, "what was staged");
    assert!(!show("").contains("x.tmp"));
    let branches = git(at.world.path(), &["branch", "--list", "banksman/*"]);
    assert_eq!(branches, "", "its branch is saved and gone");
    let list = at.world.data(&["recover", "list", &id]);
    let state = list["saved"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    let shown = at.world.ok(&["recover", "show", &state]);
    assert!(shown.contains("+new") && shown.contains(" second\n") && shown.contains(" first\n"), "{shown}");
    at.world.ok(&["recover", "restore", &state, "--branch", "rescued"]);
    assert_eq!(git(at.world.path(), &["show", "rescued:new"]), "new");
    assert_eq!(at.world.error(&["recover", "restore", &state, "--branch", "rescued"]).1["code"], "BRANCH_EXISTS");
    assert_eq!(at.world.error(&["workspaces", "show", &id]).0, 4);
}

#[test]
fn a_worktree_with_a_nested_repository_is_not_removed() {
    let at = checkout();
    let id = at.add(
        "Nested",
        "git init -q inner && cd inner && git -c user.name=t -c user.email=t@x commit -q --allow-empty -m x",
        &[],
    );
    at.run();
    let error = at.world.assert_refused(&["workspaces", "remove", &id], 1, "NOT_REMOVED");
    assert!(error["message"].as_str().unwrap().ends_with("/inner"), "{error}");
    assert!(at.path(&id).join("inner/.git").exists());
    at.world.ok(&["config", "set", "workspace.keep_for", "1ms"]);
    let [said, done] = [&["workspaces", "prune", "--dry-run"][..], &["workspaces", "prune"]].map(|args| at.world.run(args));
    assert_eq!((said.code, &said.stdout), (1, &done.stdout), "{said:?} {done:?}");
    assert!(said.stdout.starts_with("not done remove "), "{said:?}");
    // The worktree remains usable.
    let again = at.add("Again", "test -e inner", &["--retries", "0"]);
    at.run();
    git(&at.path(&again), &["init", "-q", "inner"]);
    git(
        &at.path(&again).join("inner"),
        &["-c", "user.name=t", "-c", "user.email=t@x", "commit", "-q", "--allow-empty", "-m", "x"],
    );
    assert_eq!(at.world.error(&["tasks", "retry", &again, "--fresh"]).1["code"], "NOT_REMOVED");
    assert_eq!(at.world.data(&["workspaces", "show", &again])["state"], "kept");
    at.world.ok(&["tasks", "retry", &again]);
    at.run();
    assert_eq!(at.show(&again)["status"], "completed", "{}", at.log(&again));
}

#[test]
fn prune_follows_its_dry_run_and_keeps_needed_worktrees() {
    let at = checkout();
    let over = at.add("Over", "echo x > x", &[]);
    at.run();
    let open = at.add("Open", "exit 1", &["--loop", "--restart-delay", "1h"]);
    let young = at.world.data(&["workspaces", "prune", "--dry-run"]);
    assert_eq!(young["steps"], json!([]), "14 days are not over");
    at.world.ok(&["config", "set", "workspace.keep_for", "1ms"]);
    let said = at.world.ok(&["workspaces", "prune", "--dry-run"]);
    assert!(at.path(&over).exists());
    assert_eq!(at.world.ok(&["workspaces", "prune"]), said);
    assert!(!at.path(&over).exists());
    assert_eq!(git(at.world.path(), &["show", &format!("refs/banksman/saved/{over}/1:x")]), "x");
    assert_eq!(at.show(&open)["status"], "pending");
}

#[test]
fn a_manually_deleted_worktree_is_made_again() {
    let at = checkout();
    let id = at.add("Gone", &format!("test -e kept && exit 0; echo x > kept; {COMMIT}; exit 1"), &[]);
    at.run();
    fs::remove_dir_all(at.path(&id)).unwrap();
    for verb in ["diff", "open"] {
        let error = at.world.assert_refused(&["tasks", verb, &id], 4, "WORKSPACE_MISSING");
        assert!(error["hint"].as_str().unwrap().contains("git diff "), "{error}");
    }
    at.world.ok(&["tasks", "retry", &id]);
    at.run();
    let log = at.log(&id);
    assert_eq!(at.show(&id)["status"], "completed", "{log}");
    assert!(log.contains("was gone; it is made again"), "{log}");
}

#[test]
fn impossible_worktrees_are_refused_with_the_reason() {
    let world = World::new();
    let code =
        |world: &World, args: &[&str]| world.error(&[&["tasks", "add", "X", "--run", "true"], args].concat()).1["code"].clone();
    assert_eq!(code(&world, &["--worktree"]), "NO_REPOSITORY");
    git(world.path(), &["init", "-q", "-b", "main"]);
    assert_eq!(code(&world, &["--worktree"]), "NO_COMMITS");
    let at = checkout();
    assert_eq!(code(&at.world, &["--base", "nowhere"]), "NO_BASE");
    assert_eq!(code(&at.world, &["--branch", "a..b"]), "USAGE");
    assert_eq!(code(&at.world, &["--workspace", "dir", "--branch", "b"]), "USAGE");
    assert_eq!(code(&at.world, &["--cwd", "/nowhere/at/all"]), "USAGE");
    let id = at.add("Taken", "true", &["--branch", "main"]);
    at.run();
    assert_eq!(at.show(&id)["status"], "failed");
    assert!(at.log(&id).contains("the branch main is checked out at"), "{}", at.log(&id));
}

#[test]
fn branch_and_base_can_be_named() {
    let at = checkout();
    commit(&at.world, "later", "x\n");
    let id = at.add("Old", "test ! -e later && test -e base", &["--branch", "topic", "--base", "main~1"]);
    at.run();
    assert_eq!(at.show(&id)["status"], "completed", "{}", at.log(&id));
    at.world.ok(&["workspaces", "remove", &id]);
    assert_eq!(git(at.world.path(), &["branch", "--list", "topic"]).trim(), "topic", "a branch that the user named stays");
}

#[test]
fn a_task_runs_in_the_directory_where_it_was_added() {
    // On PostgreSQL the test names the store by a variable, and a project that is found in this way has a single folder.
    if crate::postgres::wanted() {
        return;
    }
    let at = checkout();
    let linked = at.beside.join("linked");
    fs::create_dir_all(&at.beside).unwrap();
    git(at.world.path(), &["worktree", "add", "-q", linked.to_str().unwrap()]);
    let added = at.world.command(&["tasks", "add", "There", "--run", "pwd"]).current_dir(&linked).output().unwrap();
    assert!(added.status.success(), "{added:?}");
    at.world.ok(&["tasks", "add", "Below", "--run", "pwd", "--cwd", ".banksman"]);
    at.run();
    assert_eq!(at.log("There").trim(), linked.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(Path::new(at.log("Below").trim()), at.world.path().join(".banksman").canonicalize().unwrap());
}

#[test]
fn every_verb_of_workspaces_prints_its_shape() {
    let at = checkout();
    let id = at.add("Shapes", "echo x > x", &[]);
    at.run();
    let saved = json!({ "id": "string", "workspace": "string", "ref": "string", "commit": "string", "reason": "string", "savedAt": "time" });
    let row = json!({
        "owner": "string", "title": "string?", "kind": "string", "state": "string", "path": "string", "branch": "string?",
        "base": "string?", "host": "string", "holder": "string?", "createdAt": "time",
    });
    let mut page = row.clone();
    page["saved"] = json!([saved]);
    let diff = json!({ "owner": "string", "base": "string", "files": ["string"], "diff": "string" });
    let step = json!({ "action": "string", "what": "string", "reason": "string", "saved": "any", "error": "string?" });
    let state = format!("{id}/1");
    for (args, shape) in [
        (&["workspaces", "list"][..], json!({ "workspaces": [row] })),
        (&["workspaces", "show", &id], page),
        (&["workspaces", "diff", &id], diff.clone()),
        (&["tasks", "diff", &id], diff.clone()),
        (&["config", "set", "workspace.keep_for", "1ms"], json!("any")),
        (&["workspaces", "prune", "--dry-run"], json!({ "dryRun": "bool", "steps": [step] })),
        (&["workspaces", "remove", &id], json!({ "owner": "string", "path": "string", "saved": saved })),
        (&["recover", "list"], json!({ "saved": [saved] })),
        (&["recover", "show", &state], diff),
        (&["recover", "restore", &state], json!({ "saved": saved, "branch": "string" })),
    ] {
        shapes::check(&shape, &at.world.data(args), &args.join(" "));
    }
    let shell = at.add("Open", "true", &[]);
    at.run();
    let open = at.world.command(&["tasks", "open", &shell]).env("SHELL", "/bin/pwd").output().unwrap();
    assert_eq!(String::from_utf8(open.stdout).unwrap().trim(), at.path(&shell).to_str().unwrap());
}

#[test]
fn a_child_shares_the_workspace_while_its_parent_waits() {
    let at = checkout();
    let parent = "echo parent > parent; git add -A; git commit -qm parent; \
        banksman tasks add Shares --child --run 'cat parent; echo child > child'; \
        banksman tasks add Own --child --worktree --run 'cat parent; pwd'; \
        banksman tasks wait Shares Own && cat child";
    let bin = Path::new(crate::world::BANKSMAN).parent().unwrap().display().to_string();
    let id = at.add("Parent", &format!("PATH={bin}:$PATH; {parent}"), &[]);
    at.run();
    let log = at.log(&id);
    assert_eq!(at.show(&id)["status"], "completed", "{log}");
    assert!(log.ends_with("child\n"), "{log}");
    let own = at.show("Own");
    let path = own["workspacePath"].as_str().unwrap();
    assert_ne!(path, at.path(&id).to_str().unwrap());
    assert!(at.log("Own").contains(&format!("parent\n{path}\n")), "{}", at.log("Own"));
    assert_eq!(at.show("Shares")["workspacePath"], at.path(&id).to_str().unwrap());
}

#[test]
fn a_task_keeps_the_lock_of_its_worktree_when_its_locks_change() {
    let at = checkout();
    let bin = crate::world::BANKSMAN;
    let id = at.add("Changed", &format!("{bin} locks list --json"), &["--lock", "old"]);
    at.world.ok(&["tasks", "update", &id, "--lock", "new"]);
    at.run();
    let log = at.log(&id);
    for lock in [format!("workspace:{id}"), "new".into()] {
        assert!(log.contains(&format!("\"{lock}\"")), "{lock}: {log}");
    }
    assert!(!log.contains("\"old\""), "{log}");
}

#[test]
fn a_retry_may_start_afresh() {
    let at = checkout();
    let id = at.add("Again", &format!("test -e old && exit 3; echo x > old; {COMMIT}; exit 1"), &[]);
    at.run();
    commit(&at.world, "newer", "x\n");
    at.world.ok(&["tasks", "retry", "--fresh", &id]);
    at.run();
    assert_eq!(at.show(&id)["runs"].as_array().unwrap().len(), 2);
    assert!(at.path(&id).join("newer").exists(), "it starts from where the checkout is now: {}", at.log(&id));
    assert_eq!(git(at.world.path(), &["show", &format!("refs/banksman/saved/{id}/1:old")]), "x");
}

#[test]
fn all_phases_and_guards_of_a_pipeline_share_a_workspace() {
    let at = checkout();
    // Before the first phase there is no workspace yet.
    fs::write(at.world.path().join("only-in-checkout"), "").unwrap();
    let book = "[guard.there]\ncondition = { command = 'test -e first' }\n\
        [guard.fresh]\ncondition = { all = [{ command = 'test ! -e only-in-checkout; echo $? >> asked; test ! -e only-in-checkout' }, \
        { not = { file_exists = 'only-in-checkout' } }] }\n\
        [guard.odd]\ncondition = { file_exists = 'only-in-checkout' }\non_failure = 'warn'\n\
        [pipeline.p]\n\
        [[pipeline.p.phase]]\nname = 'one'\nrun = 'echo x > first'\npre = ['fresh', 'odd']\nblocked_timeout = '1s'\n\
        [[pipeline.p.phase]]\nname = 'two'\nrun = 'cat first; pwd'\npre = ['there']\n";
    crate::runbooks::write(&at.world, "book", book);
    for kind in ["dir", "worktree"] {
        let started = at.world.data(&["pipelines", "start", "p", "--workspace", kind]);
        let id = started["id"].as_str().unwrap();
        at.run();
        let rows = at.world.data(&["workspaces", "show", id]);
        assert_eq!((rows["kind"].as_str(), at.show(id)["status"].as_str()), (Some(kind), Some("completed")));
        let path = rows["path"].as_str().unwrap();
        let log = at.log(&format!("{id}.2"));
        assert!(log.ends_with(&format!("x\n{path}\n")), "{log}");
        assert_eq!(fs::read_to_string(format!("{path}/asked")).unwrap(), "0\n", "once, in the session");
        let log = at.log(&format!("{id}.1"));
        assert!(log.contains("warning: guard odd: file only-in-checkout is not there"), "{log}");
    }
    // A guard that does not hold there blocks the pipeline; from then on runners check it in the workspace.
    let book = "[guard.open]\ncondition = { file_exists = 'open' }\nfresh_for = '50ms'\n[pipeline.p]\n\
        [[pipeline.p.phase]]\nname = 'one'\nrun = 'pwd'\npre = 'open'\n";
    crate::runbooks::write(&at.world, "book", book);
    fs::write(at.world.path().join("open"), "").unwrap();
    let started = at.world.data(&["pipelines", "start", "p", "--workspace", "worktree"]);
    let id = started["id"].as_str().unwrap();
    let _runner = at.world.runner(&[]);
    at.world.until_pipeline_state(id, "blocked one");
    let rows = at.world.data(&["workspaces", "show", id]);
    fs::write(Path::new(rows["path"].as_str().unwrap()).join("open"), "").unwrap();
    at.world.until_pipeline_state(id, "done");
    assert_eq!(at.log(&format!("{id}.1")).lines().last(), rows["path"].as_str());
}

#[test]
fn a_new_worktree_gets_copies_and_its_setup() {
    let at = checkout();
    commit(&at.world, ".gitignore", "/state\n/config\n.env\nready\n");
    fs::write(at.world.path().join(".env"), "secret\n").unwrap();
    fs::write(at.world.path().join("untracked"), "mine\n").unwrap();
    at.world.ok(&["config", "set", "workspace.copy", ".env,untracked"]);
    at.world.ok(&["config", "set", "workspace.setup_inputs", "base"]);
    at.world.committed("workspace.setup", "echo made >> ready");
    let id = at.add("Set up", "cat .env ready; echo changed > base; test $BANKSMAN_ATTEMPT = 2", &["--retries", "2"]);
    at.run();
    assert_eq!(at.show(&id)["status"], "failed");
    assert!(at.log(&id).contains("workspace.setup comes with the project and is not trusted"), "{}", at.log(&id));
    at.world.ok(&["trust"]);
    at.world.ok(&["tasks", "retry", &id]);
    at.run();
    let log = at.log(&id);
    assert!(log.contains("secret\nmade\n") && log.contains("untracked is not copied"), "{log}");
    assert_eq!(fs::read_to_string(at.path(&id).join("ready")).unwrap(), "made\nmade\n", "once more for the changed input: {log}");
}

#[test]
fn a_task_waits_while_there_is_too_little_space() {
    let at = checkout();
    at.world.ok(&["config", "set", "workspace.min_free", "999999TiB"]);
    let id = at.add("Large", "true", &[]);
    let runner = at.world.start(&["run"]);
    crate::world::until("the reason", || at.world.ok(&["why", &id]).contains("workspace.min_free"));
    drop(runner);
    assert_eq!(at.show(&id)["attempts"], 0);
}
