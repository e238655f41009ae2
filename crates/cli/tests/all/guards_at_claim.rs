//! Guards at the moment of the claim, guards that block for too long, and the outputs and resources of phases.

use banksman_core::Lease;
use serde_json::{Value, json};

use crate::merging::repository;
use crate::pipelines::{begun, way};
use crate::world::{Running, World, until};

pub(crate) fn hold(world: &World, lock: &str) -> String {
    world.data(&["locks", "acquire", lock, "--holder", "bob", "--ttl", "1h"])["epoch"].to_string()
}

pub(crate) fn release(world: &World, lock: &str, epoch: &str) {
    world.ok(&["locks", "release", lock, "--holder", "bob", "--epoch", epoch]);
}

fn attempts(world: &World, id: &str) -> usize {
    world.data(&["tasks", "show", &format!("{id}.1")])["runs"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_store_condition_is_checked_inside_the_claim() {
    let world = World::new();
    let guard = "[guard.go]\ncondition = { lock_free = \"freeze\" }\n";
    let phase = "run = 'echo began >> out'\nlock = \"db\"\npre = \"go\"";
    world.book(&format!("{}\n{guard}", way(&[("one", phase)])));
    let db = hold(&world, "db");
    let id = world.begin(&[]);
    let _runner = world.runner(&[]);
    // The guard has passed, and the phase waits for its lock.
    world.until_pipeline_state(&id, "running one");
    let epoch = hold(&world, "freeze");
    release(&world, "db", &db);
    world.until_pipeline_state(&id, "blocked one");
    assert_eq!((world.has("out"), attempts(&world, &id), world.holder("db")), (false, 0, None), "nothing was taken");
    let held = world.data(&["why", &format!("{id}.1")]);
    assert!(held["reasons"][0]["message"].as_str().unwrap().contains("lock freeze is held by bob"), "{held}");
    release(&world, "freeze", &epoch);
    world.until_pipeline_state(&id, "done");
    assert_eq!(world.lines("out").len(), 1);
}

#[test]
fn a_retry_checks_its_guards_again_and_collects_stale_inputs_first() {
    let world = World::new();
    let guard = "[guard.go]\ncondition = { all = [{ file_exists = \"open\" }, { lock_free = \"db\" }] }\nfresh_for = \"100ms\"\n";
    world.touch("open");
    // The phase removes the file of its own guard; its own lock does not make the guard fail.
    let line = "run = 'echo $BANKSMAN_ATTEMPT >> out; rm open; exit 3'\nretries = 5\nlock = \"db\"\npre = \"go\"";
    world.book(&format!("{}\n{guard}", way(&[("one", line)])));
    let id = world.begin(&[]);
    let _runner = world.runner(&[]);
    world.until_pipeline_state(&id, "blocked one");
    assert_eq!(world.lines("out"), ["0"]);
    let why = world.data(&["why", &id]);
    assert!(why["reasons"][0]["message"].as_str().unwrap().contains("file open is not there"), "{why}");
    assert_eq!(world.holder("db"), None, "everything is free");
    let log = world.run(&["tasks", "logs", &format!("{id}.1")]);
    assert!(log.stdout.contains("guard go: file open is not there"), "{log:?}");
    world.touch("open");
    until("it is tried again", || world.lines("out").len() == 2);
    world.until_pipeline_state(&id, "blocked one");
    assert_eq!(world.lines("out"), ["0", "1"], "what did not begin was no attempt");
}

/// A pipeline whose phase waits for its lock, after the guard of the phase has passed. The guard asks for a file; its command,
/// which names its pipeline, ends when another file exists.
struct Waiting {
    world: World,
    id: String,
    _runner: Running,
    db: String,
}

impl Waiting {
    fn new(fresh_for: &str) -> Waiting {
        let world = World::new();
        let command = "echo $BANKSMAN_PIPELINE >> asked; while [ ! -e go ]; do sleep 0.01; done";
        let condition = format!("{{ all = [{{ command = '{command}' }}, {{ file_exists = \"open\" }}] }}");
        let guard = format!("[guard.go]\ncondition = {condition}\nfresh_for = \"{fresh_for}\"\n");
        let phase = "run = 'echo $BANKSMAN_ATTEMPT >> out'\nlock = \"db\"\npre = \"go\"";
        world.book(&format!("{}\n{guard}", way(&[("one", phase)])));
        world.touch("open");
        let db = hold(&world, "db");
        let id = world.begin(&[]);
        let _runner = world.runner(&[]);
        Waiting { world, id, _runner, db }
    }

    fn fresh_until(&self) -> Lease {
        let pipeline = &self.world.everything().backlog.pipelines[self.id.as_str()];
        pipeline.recheck.as_ref().unwrap().fresh_until
    }
}

#[test]
fn a_stale_result_is_collected_again_inside_the_session() {
    let at = Waiting::new("100ms");
    at.world.touch("go");
    at.world.until_pipeline_state(&at.id, "running one");
    std::fs::remove_file(at.world.path().join("open")).unwrap();
    until("the result is stale", || at.fresh_until() < at.world.everything().lease);
    release(&at.world, "db", &at.db);
    at.world.until_pipeline_state(&at.id, "blocked one");
    assert_eq!((at.world.has("out"), at.world.holder("db")), (false, None), "the command was not started");
    let log = at.world.run(&["tasks", "logs", &format!("{}.1", at.id)]);
    assert!(log.stdout.contains("guard go: file open is not there"), "{log:?}");
    let asked = at.world.lines("asked");
    assert!(asked.len() >= 2 && asked.iter().all(|line| *line == at.id), "the session is part of the pipeline, too: {asked:?}");
    at.world.touch("open");
    at.world.until_pipeline_state(&at.id, "done");
    assert_eq!(at.world.lines("out"), ["0"], "what did not begin was no attempt");
}

#[test]
fn a_fresh_result_counts_from_the_end_of_its_collection() {
    let at = Waiting::new("1h");
    until("the guard is being checked", || at.world.has("asked"));
    let asked = at.world.everything().lease;
    until("the command takes a while", || at.world.everything().lease.0 > asked.0 + 200);
    let before_the_end = at.world.everything().lease;
    at.world.touch("go");
    at.world.until_pipeline_state(&at.id, "running one");
    assert!(at.fresh_until().0 > before_the_end.0 + 3_600_000 - 100, "{:?} {before_the_end:?}", at.fresh_until());
    // The result is still fresh, so the session does not ask again.
    std::fs::remove_file(at.world.path().join("open")).unwrap();
    release(&at.world, "db", &at.db);
    at.world.until_pipeline_state(&at.id, "done");
    assert_eq!((at.world.lines("out"), at.world.lines("asked").len()), (vec!["0".to_owned()], 1));
}

#[test]
fn a_phase_that_left_changes_behind_is_repeated_with_the_reason() {
    let world = World::new();
    repository(&world);
    world.ok(&["config", "set", "--user", "notify.command", "cat >> state/notices"]);
    let guard = "[guard.clean]\ncondition = { branch_clean = \"main\" }\nfresh_for = \"50ms\"\n";
    let book = |script: &str| {
        let script = format!("echo \"$BANKSMAN_REASON|$1\" >> state/reasons; {script}");
        let build = format!(
            "argv = [\"sh\", \"-c\", '{script}', \"sh\", \"{{{{ reason }}}}\"]\npost = \"clean\"\n\
             blocked_timeout = \"300ms\"\non_fail = {{ phase = \"build\", times = 1 }}"
        );
        let next = "run = 'echo \"next $BANKSMAN_REASON\" >> state/reasons'";
        world.book(&format!("{}\n{guard}", way(&[("build", &build), ("next", next)])));
    };
    std::fs::create_dir_all(world.path().join("state")).unwrap();
    let commit = "git add -A && git commit -qm work";
    book(&format!("echo x >> forgotten; if [ $BANKSMAN_ATTEMPT = 1 ]; then {commit}; fi"));
    let id = world.begin(&[]);
    assert_eq!((world.run_all(), world.pipeline_state(&id).as_str()), (0, "done"));
    let reasons = world.lines("state/reasons");
    let [first, second, next] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!((first.as_str(), next.as_str()), ("|", "next "), "the reason is that of the repeated phase alone");
    let (env, argument) = second.split_once('|').unwrap();
    assert!(env == argument && env.starts_with("blocked for 300ms: guard clean: ") && env.ends_with(": forgotten"), "{second}");
    // A phase that never commits is repeated once, and then a person is asked.
    book("echo x >> forgotten");
    let id = world.begin(&[]);
    let said = world.start(&["run", "--until-idle"]).end();
    assert_eq!(said.code, 7, "{said:?}");
    assert_eq!((world.tasks_of(&id, "build").len(), world.pipeline_state(&id).as_str()), (2, "blocked build"));
    let decisions = world.data(&["decisions", "list"]);
    assert_eq!(decisions["decisions"].as_array().map(Vec::len), Some(1), "{decisions}");
    assert!(decisions.to_string().contains("forgotten"), "{decisions}");
    assert_eq!(world.read("state/notices").matches("\"kind\":\"decision\"").count(), 1, "{}", world.read("state/notices"));
}

#[test]
fn a_guard_that_fails_its_phase_leads_to_on_fail() {
    let guard = "[guard.clean]\ncondition = { not = { file_exists = \"dirt\" } }\non_failure = { fail = \"not clean\" }\n";
    let build =
        "run = 'echo build >> out; touch dirt'\npost = \"clean\"\non_fail = { phase = \"sweep\", times = 1 }\nnext = \"done\"";
    let sweep = "run = 'echo sweep >> out; rm dirt'\nnext = \"build\"";
    let (world, id) = begun(&format!("{}\n{guard}", way(&[("build", build), ("sweep", sweep)])));
    assert_eq!(world.run_all(), 7);
    assert_eq!(world.lines("out"), ["build", "sweep", "build"], "on_fail applies once");
    assert!(world.pipeline(&id)["error"].as_str().unwrap().contains("not clean (guard clean: file dirt is there)"));
}

#[test]
fn blocked_timeout_raises_a_decision_and_lets_an_idle_runner_leave() {
    let guard = "[guard.there]\ncondition = { file_exists = \"key\" }\nfresh_for = \"50ms\"\n";
    let slow = "run = 'true'\npre = \"there\"\nblocked_timeout = \"300ms\"";
    let (world, id) = begun(&format!("{}\n{guard}", way(&[("one", slow)])));
    // A file that only a person can make does not keep the runner waiting.
    let said = world.start(&["run", "--until-idle"]).end();
    assert_eq!(said.code, 7, "{said:?}");
    assert!(said.stdout.contains(&format!("{id} needs you: guard there: file key is not there")), "{said:?}");
    let decisions = world.data(&["decisions", "list"]);
    let decision = decisions["decisions"][0]["id"].as_str().unwrap().to_owned();
    assert!(decisions.to_string().contains("file key is not there"), "{decisions}");
    let why = world.data(&["why", &id]);
    assert_eq!(why["reasons"][0]["hint"], format!("banksman decisions show {decision}"), "{why}");
    world.touch("key");
    world.ok(&["decisions", "resolve", &decision, "1"]);
    assert_eq!((world.run_all(), world.pipeline_state(&id).as_str()), (0, "done"));
    // With an `on_fail` phase no person is asked.
    std::fs::remove_file(world.path().join("key")).unwrap();
    let more = format!("{slow}\non_fail = {{ phase = \"mend\", times = 1 }}\nnext = \"done\"");
    world.book(&format!("{}\n{guard}", way(&[("one", &more), ("mend", "run = 'touch key'\nnext = \"one\"")])));
    let id = world.begin(&[]);
    assert_eq!((world.run_all(), world.pipeline_state(&id).as_str()), (0, "done"));
}

#[test]
fn until_idle_waits_for_a_held_lock_but_not_for_a_person() {
    let guard = "[guard.taken]\ncondition = { lock_held = \"turn\" }\n[guard.quiet]\ncondition = { lock_free = \"gate\" }\n\
                 [guard.made]\ncondition = { file_exists = \"made\" }\n";
    let phases = way(&[("one", "run = 'true'\npre = [\"taken\", \"made\"]"), ("two", "run = 'true'\npre = \"quiet\"")]);
    let (world, id) = begun(&format!("{phases}\n{guard}"));
    // The second guard, about a file, makes no difference.
    let said = world.start(&["run", "--until-idle"]).end();
    assert!(said.code == 7 && said.stdout.contains(&format!("{id} needs you: guard taken: lock turn is free")), "{said:?}");
    let why = world.data(&["why", &id]);
    let wakes = why["reasons"][0]["wakes"].as_str().unwrap();
    assert!(wakes.starts_with("it continues when lock turn is acquired; a notification is sent in 29 min"), "{wakes}");
    world.touch("made");
    let gate = hold(&world, "gate");
    hold(&world, "turn");
    let runner = world.runner(&["--until-idle"]);
    world.until_pipeline_state(&id, "blocked two");
    let why = world.data(&["why", &id]);
    assert_eq!(why["reasons"][0]["hint"], "banksman locks show gate", "{why}");
    release(&world, "gate", &gate);
    assert_eq!((runner.end().code, world.pipeline_state(&id).as_str()), (0, "done"));
}

#[test]
fn a_long_block_is_notified_once_and_unblock_records_its_author() {
    let world = World::new();
    world.ok(&["config", "set", "--user", "notify.command", "cat >> notices"]);
    let guard = "[guard.quiet]\ncondition = { lock_free = \"gate\" }\non_failure = { retry = \"100ms\" }\n";
    let phase = "run = 'true'\npre = \"quiet\"\nblocked_timeout = \"200ms\"";
    world.book(&format!("{}\n{guard}", way(&[("one", phase)])));
    hold(&world, "gate");
    let id = world.begin(&[]);
    let _runner = world.runner(&[]);
    let notice_is_pending = || world.ok(&["why", &id]).contains("a notification is sent in");
    until("it is overdue", || world.pipeline_state(&id) == "blocked one" && !notice_is_pending());
    until("the notification was sent", || world.has("notices") && world.read("notices").contains("lock gate is held by bob"));
    assert_eq!(world.pipeline_state(&id), "blocked one", "a release wakes it");
    world.ok(&["pipelines", "unblock", &id]);
    world.until_pipeline_state(&id, "done");
    assert_eq!(world.read("notices").matches("lock gate is held by bob").count(), 1);
    let events = world.events();
    let unblocked = events.iter().find(|event| event.kind == "pipeline:unblocked").unwrap();
    assert!(unblocked.data.to_string().contains("\"by\""), "{}", unblocked.data);
}

#[test]
fn impossible_guards_are_refused_and_guard_commands_get_their_pipeline() {
    let world = World::new();
    let wrong = |text: &str, message: &str| {
        crate::runbooks::write(&world, "wrong", text);
        let (code, error) = world.error(&["runbooks", "check", "wrong"]);
        assert!(code == 3 && error.to_string().contains(message), "{error}");
    };
    let with = |guard: &str, more: &str| format!("{}\n[guard.g]\ncondition = {guard}\n", way(&[("one", more)]));
    let before = "run = 'true'\npre = \"g\"";
    wrong(&with("{ pipeline_complete = { var = \"pipeline\" } }", before), "there is no variable \\\"pipeline\\\"");
    wrong(&with("{ any = [] }", before), "this condition can never hold");
    let own = "run = 'true'\nlock = \"db\"\npost = \"g\"";
    wrong(&with("{ lock_free = \"db\" }", own), "which the phase holds until then");
    let own = "run = 'true'\nsemaphore = \"gpu\"\npost = \"g\"";
    wrong(&with("{ semaphore_available = { semaphore = \"gpu\", slots = 1 } }", own), "which the phase holds until then");
    std::fs::remove_file(world.path().join(".banksman/runbooks/wrong.toml")).unwrap();
    world.book(&with("{ command = 'echo \"$BANKSMAN_PIPELINE\" > asked' }", before));
    let id = world.begin(&[]);
    assert_eq!((world.run_all(), world.read("asked").trim()), (0, id.as_str()));
}

#[test]
fn only_declared_output_is_stored_and_never_overwrites_variables() {
    let world = World::new();
    let banksman = crate::world::BANKSMAN;
    let said = r#"{"branch": "evil", "version": "1.2", "more": 1}"#;
    std::fs::write(world.path().join("said"), format!("{said}\n")).unwrap();
    let set = |vars: &str| format!("{banksman} pipelines set {vars}; echo $? >> code");
    let set = [set("branch=evil"), set("note=evil"), set("mark=evil note=evil"), set("mark=fine")].join("; ");
    let evil = format!("run = '{set}; cat said'\noutput = [\"version\"]");
    let show = "argv = [\"sh\", \"-c\", 'echo \"$VAR_BRANCH $VAR_MAKE_IT_VERSION $1\" > out', \"sh\", \"{{ make_it.version }}\"]\n\
        pre = \"same\"";
    let guard = "[guard.same]\ncondition = { command = { argv = [\"test\", { var = \"make_it.version\" }, \"=\", \"1.2\"] } }\n";
    let phases = &way(&[("make-it", &evil), ("show", show)])["[pipeline.way]\n".len()..];
    world.book(&format!("[pipeline.way]\nvars = [\"branch\", {{ note = \"\", mark = \"\" }}]\n{phases}\n{guard}"));
    let id = world.begin(&["--var", "branch=good", "--var", "note=given"]);
    assert_eq!(world.run_all(), 0, "{}", world.pipeline(&id));
    assert_eq!(world.lines("out"), ["good 1.2 1.2"]);
    assert_eq!(world.lines("code"), ["2", "2", "2", "0"], "only a default that nobody replaced can be set");
    let vars = json!({ "branch": "good", "note": "given", "mark": "fine", "make_it": { "version": "1.2" } });
    assert_eq!(world.pipeline(&id)["vars"], vars);
    // A person may set what was given.
    let id = world.begin(&["--var", "branch=good", "--var", "note=given"]);
    world.ok(&["pipelines", "set", "--pipeline", &id, "note=other"]);
    assert_eq!(world.pipeline(&id)["vars"]["note"], "other");
    world.ok(&["pipelines", "cancel", &id]);
}

#[test]
fn attempt_numbers_continue_across_retries_and_other_phases() {
    let test = "argv = [\"sh\", \"-c\", 'echo $BANKSMAN_ATTEMPT $1 >> out; test -e good', \"sh\", \"{{ attempt }}\"]\nretries = 1\n\
        on_fail = { phase = \"mend\", times = 3 }\nnext = \"done\"";
    let mend = "run = 'if [ -e once ]; then touch good; fi; touch once'\nnext = \"test\"";
    let (world, id) = begun(&way(&[("test", test), ("mend", mend)]));
    assert_eq!(world.run_all(), 0);
    assert_eq!(world.lines("out"), ["0 1", "1 1", "2 3", "3 3", "4 5"], "the argument was written for the first run");
    let runs: Vec<Value> = world.data(&["tasks", "show", &format!("{id}.3")])["runs"].as_array().unwrap().clone();
    assert_eq!(runs.iter().map(|run| run["attempt"].clone()).collect::<Vec<_>>(), [json!(2), json!(3)]);
}

#[test]
fn attempts_of_pipelines_count_from_1_and_those_of_runs_from_0() {
    let one = "argv = [\"sh\", \"-c\", 'echo $BANKSMAN_ATTEMPT $1 > out; test -e good', \"sh\", \"{{ attempt }}\"]\n\
        on_fail = { retry = 1 }";
    let (world, id) = begun(&way(&[("one", one)]));
    assert_eq!(world.run_all(), 7);
    // This is the first run of the second attempt.
    let phase = format!("{id}.2");
    let run = &world.task(&phase)["runs"][0];
    assert_eq!((&world.pipeline(&id)["attempt"], &run["attempt"], world.read("out").trim()), (&json!(2), &json!(1), "1 2"));
    assert_eq!(world.data(&["why", &phase])["run"]["attempt"], json!(1));
    let events = world.events();
    let last = |kind: &str| events.iter().rev().find(|event| event.kind == kind).unwrap().data["attempt"].clone();
    assert_eq!((last("pipeline:phase"), last("task:started")), (json!(2), json!(0)), "it is the first run of its task");
    assert_eq!(world.data(&["pipelines", "retry", &id])["attempt"], json!(3));
    world.ok(&["pipelines", "cancel", &id]);
}

#[test]
fn the_locks_and_slots_of_a_phase_are_held_until_its_post_guards_hold() {
    let world = World::new();
    world.ok(&["semaphores", "define", "hosts", "--capacity", "3"]);
    let guard = "[guard.healthy]\ncondition = { file_exists = \"healthy\" }\nfresh_for = \"50ms\"\n";
    let phase = "run = 'echo deployed >> out'\nlock = \"prod\"\nsemaphore = { name = \"hosts\", weight = 2 }\npost = \"healthy\"";
    world.book(&format!("{}\n{guard}", way(&[("deploy", phase)])));
    let (first, second) = (world.begin(&[]), world.begin(&[]));
    let _runner = world.runner(&["--max-runs", "1"]);
    until("one is blocked behind its phase", || [&first, &second].iter().any(|id| world.pipeline_state(id) == "blocked deploy"));
    let (blocked, other) = if world.pipeline_state(&first) == "blocked deploy" { (&first, &second) } else { (&second, &first) };
    assert_eq!(world.holder("prod").map(|holder| holder.to_string()), Some(format!("pipeline:{blocked}")));
    let slots =
        || world.snapshot().coordination.semaphores["hosts"].holders.values().map(|grant| grant.claim.weight).sum::<u32>();
    let holders = || world.snapshot().coordination.semaphores["hosts"].holders.keys().cloned().collect::<Vec<_>>();
    assert_eq!((slots(), holders()[0].as_str()), (2, &*format!("pipeline:{blocked}")));
    // The run slot of the first is free, and the other one waits for the lock.
    let quick = world.add(&["quick", "--run", "true"]);
    world.until_status(&quick, "completed");
    assert_eq!((world.pipeline_state(other).as_str(), world.lines("out").len()), ("running deploy", 1));
    world.ok(&["pipelines", "unblock", blocked]);
    until("the other deploys", || world.pipeline_state(other) == "blocked deploy");
    assert_eq!(world.pipeline_state(blocked), "done");
    world.ok(&["pipelines", "cancel", other]);
    assert_eq!((world.holder("prod"), slots()), (None, 0));
}
