//! Pipelines with real processes: phases, variables, failures, and killed runners.

use serde_json::{Value, json};

use crate::runbooks;
use crate::world::{Said, World, is_alive, until};

/// Helpers for tests of pipelines.
impl World {
    pub(crate) fn book(&self, text: &str) {
        runbooks::write(self, "book", text);
    }

    /// Starts the pipeline `way` of the runbook and returns its id.
    pub(crate) fn begin(&self, args: &[&str]) -> String {
        self.data(&[&["pipelines", "start", "way"], args].concat())["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn pipeline(&self, id: &str) -> Value {
        self.data(&["pipelines", "show", id])
    }

    /// The state and the current phase of a pipeline.
    pub(crate) fn pipeline_state(&self, id: &str) -> String {
        let pipeline = self.pipeline(id);
        format!("{} {}", pipeline["state"].as_str().unwrap(), pipeline["phase"].as_str().unwrap_or_default()).trim_end().into()
    }

    pub(crate) fn until_pipeline_state(&self, id: &str, words: &str) {
        until(&format!("{id} is {words}"), || self.pipeline_state(id) == words);
    }

    /// The statuses of the tasks of a phase, in order.
    pub(crate) fn tasks_of(&self, id: &str, phase: &str) -> Vec<String> {
        let page = self.pipeline(id);
        let own = page["phases"].as_array().unwrap().iter().find(|entry| entry["name"] == phase).unwrap();
        let tasks = own["tasks"].as_array().unwrap().iter();
        tasks.map(|task| task["status"].as_str().unwrap().to_owned()).collect()
    }

    /// A command with the environment that a phase has written to the file `env`.
    pub(crate) fn as_phase(&self, args: &[&str]) -> Said {
        let mut command = self.command(args);
        for line in self.lines("env") {
            let (name, value) = line.split_once('=').unwrap();
            command.env(name, value);
        }
        command.output().unwrap().into()
    }
}

/// A pipeline `way` of these phases, each with these lines.
pub(crate) fn way(phases: &[(&str, &str)]) -> String {
    let one = |(name, lines): &(&str, &str)| format!("[[pipeline.way.phase]]\nname = \"{name}\"\n{lines}\n");
    format!("[pipeline.way]\n{}", phases.iter().map(one).collect::<String>())
}

/// A world in which the pipeline `way` of this runbook was started, and its id.
pub(crate) fn begun(text: &str) -> (World, String) {
    let world = World::new();
    world.book(text);
    let id = world.begin(&[]);
    (world, id)
}

#[test]
fn phases_run_in_order_and_pass_their_output_on() {
    let world = World::new();
    world.book(&format!(
        "[pipeline.way]\nvars = [\"title\", {{ tries = 3 }}]\n{}",
        way(&[
            ("first", r#"run = 'echo "$VAR_TITLE $VAR_TRIES $BANKSMAN_PHASE" >> out; echo "{\"no\": 1"; echo "{\"version\": 3, \"list\": [1, \"a\"], \"title\": \"evil\"}"; echo bye'
output = ["version", "list"]"#),
            ("second", r#"argv = ["sh", "-c", 'echo "$VAR_FIRST_VERSION $1 $BANKSMAN_PIPELINE" >> out', "sh", "{{ first.list }}"]"#),
        ])
        .trim_start_matches("[pipeline.way]\n")
    ));
    world.assert_refused(&["pipelines", "start", "way"], 2, "VARIABLES");
    let taken = |args: &[&str]| {
        let (_, error) = world.error(args);
        assert_eq!(error["message"], "\"attempt\" has a meaning already, and cannot be a variable");
        assert_eq!(error["hint"], "rename the variable");
    };
    taken(&["pipelines", "start", "way", "--var", "attempt=1"]);
    let id = world.begin(&["--var", "title=Add login"]);
    taken(&["pipelines", "set", "--pipeline", &id, "attempt=1"]);
    assert_eq!(world.run_all(), 0);
    assert_eq!(world.lines("out"), ["Add login 3 first".to_owned(), format!("3 [1,\"a\"] {id}")]);
    let page = world.pipeline(&id);
    assert_eq!((&page["state"], &page["status"]), (&json!("done"), &json!("completed")));
    assert_eq!(page["vars"], json!({ "title": "Add login", "tries": 3, "first": { "version": 3, "list": [1, "a"] } }));
    assert_eq!(world.task(&id)["output"], page["vars"], "the output of the task is its variables");
}

#[test]
fn nothing_in_a_variable_is_ever_executed() {
    let world = World::new();
    let show = r#"argv = ["sh", "-c", "printf '%s\\n' \"$@\" > out", "sh", "{{ evil }}", "a{{ evil }}b"]"#;
    world.book(&format!(
        "[pipeline.way]\nvars = [\"evil\"]\n{}",
        &way(&[("show", show), ("plain", "run = 'echo \"$VAR_EVIL\" >> out'")])[15..]
    ));
    let evil = r#"'; touch hacked; "$(touch hacked)" `touch hacked` {{ 7 * 7 }} | & > hacked \"#;
    let id = world.begin(&["--var", &format!("evil={evil}")]);
    assert_eq!(world.run_all(), 0);
    assert_eq!(world.lines("out"), [evil.to_owned(), format!("a{evil}b"), evil.to_owned()]);
    assert!(!world.has("hacked"), "{}", world.pipeline_state(&id));
}

#[test]
fn a_variable_that_no_command_can_take_fails_its_phase_only() {
    let first = r#"run = 'echo "{\"nothing\": \"a\\u0000b\"}"'
output = ["nothing"]"#;
    let (world, id) = begun(&way(&[("first", first), ("second", "run = 'true'")]));
    assert_eq!(world.run_all(), 7);
    assert_eq!(world.pipeline_state(&id), "failed second");
    world.ok(&["pipelines", "set", "--pipeline", &id, "first:={\"nothing\": \"x\"}"]);
    world.ok(&["pipelines", "retry", &id]);
    assert_eq!((world.run_all(), world.pipeline_state(&id).as_str()), (0, "done"));
}

#[test]
fn a_pipeline_waits_for_its_dependencies_or_is_unblocked() {
    let world = World::new();
    world.book(&way(&[("only", "run = 'echo \"$BANKSMAN_PIPELINE\" >> out'")]));
    let before = world.add(&["before", "--run", "echo before >> out"]);
    let by_hand = world.add(&["by hand"]);
    let first = world.begin(&["--depends-on", &before]);
    let second = world.begin(&["--depends-on", &by_hand]);
    assert_eq!((world.pipeline_state(&first).as_str(), world.status(&first).as_str()), ("blocked only", "blocked"));
    assert_eq!(world.pipeline(&second)["blockedBy"], json!("dependencies"));
    world.run_all();
    assert_eq!(world.lines("out"), ["before", &first]);
    world.assert_refused(&["pipelines", "unblock", &first], 2, "PIPELINE_OVER");
    let said = world.data(&["pipelines", "unblock", &second]);
    assert_eq!((&said["state"], &said["phase"]), (&json!("running"), &json!("only")));
    world.assert_refused(&["pipelines", "unblock", &second], 2, "PIPELINE_NOT_BLOCKED");
    world.run_all();
    assert_eq!(world.pipeline_state(&second), "done");
}

#[test]
fn a_failed_phase_is_retried_manually_unless_it_is_not_recoverable() {
    let world = World::new();
    world.book(&format!(
        "{}\n[guard.never]\ncondition = {{ lock_free = \"gate\" }}\non_failure = {{ fail = \"the gate is shut\" }}\n",
        way(&[("one", "run = 'test -e key'"), ("two", "run = 'true'\npre = \"never\"")])
    ));
    let id = world.begin(&[]);
    let said = world.run(&["run", "--until-idle"]);
    let line = said.stderr.lines().rfind(|line| line.starts_with("failed ")).unwrap_or_default();
    assert!(said.code == 7 && line.contains(&format!("banksman pipelines show {id}")), "{said:?}");
    assert!(!line.contains("tasks retry"), "that would be refused: {line}");
    let page = world.pipeline(&id);
    assert_eq!((&page["state"], &page["recoverable"], &page["attempt"]), (&json!("failed"), &json!(true), &json!(1)));
    let phase = page["phases"][0]["tasks"][0]["id"].as_str().unwrap().to_owned();
    for task in [&phase, &id] {
        world.assert_refused(&["tasks", "retry", task], 2, "TASK_IS_PIPELINE");
    }
    world.touch("key");
    world.ok(&["locks", "acquire", "gate", "--holder", "ann"]);
    let said = world.data(&["pipelines", "retry", &phase]);
    assert_eq!((&said["pipeline"], &said["attempt"]), (&json!(id), &json!(2)), "by the id of its phase, too");
    assert_eq!(world.run_all(), 7);
    assert_eq!(
        (world.pipeline_state(&id).as_str(), world.tasks_of(&id, "one")),
        ("failed two", vec!["failed".into(), "completed".into()])
    );
    world.assert_refused(&["pipelines", "retry", &id], 5, "NOT_RECOVERABLE");
    assert!(world.pipeline(&id)["error"].as_str().unwrap().contains("the gate is shut"));
}

#[test]
fn cancel_kills_the_processes_of_the_phase_and_no_other_begins() {
    let (world, id) =
        begun(&way(&[("one", "run = 'sleep 1000 & echo $! > child; echo $$ > pid; wait'"), ("two", "run = 'touch two'")]));
    let runner = world.runner(&["--until-idle"]);
    until("the phase runs", || world.has("pid"));
    world.ok(&["pipelines", "cancel", &id]);
    for file in ["pid", "child"] {
        let pid = world.read(file).trim().parse().unwrap();
        assert!(!is_alive(pid), "{file} lives");
    }
    runner.end();
    assert_eq!((world.pipeline_state(&id).as_str(), world.tasks_of(&id, "one")), ("cancelled one", vec!["cancelled".into()]));
    assert!(!world.has("two") && world.tasks_of(&id, "two").is_empty());
    world.assert_refused(&["pipelines", "retry", &id], 2, "PIPELINE_NOT_FAILED");
}

#[test]
fn a_phase_sets_variables_and_checkpoints_until_it_is_over() {
    let world = World::new();
    let inside = r#"run = 'env | grep ^BANKSMAN_ > env; "$B" pipelines set n:=7 word=x && "$B" pipelines checkpoint "half way"; touch said; while [ ! -e go ]; do sleep 0.02; done'"#;
    world.book(&way(&[
        ("one", &inside.replace("$B", crate::world::BANKSMAN)),
        ("two", "run = 'echo $VAR_N$VAR_WORD > out; while [ ! -e on ]; do sleep 0.02; done'"),
    ]));
    let id = world.begin(&[]);
    let runner = world.runner(&["--until-idle"]);
    until("it has spoken", || world.has("said"));
    let page = world.pipeline(&id);
    assert_eq!(page["vars"], json!({ "n": 7, "word": "x" }));
    assert_eq!((&page["checkpoints"][0]["message"], &page["checkpoints"][0]["phase"]), (&json!("half way"), &json!("one")));
    assert_eq!(world.as_phase(&["pipelines", "set", "word=y"]).code, 0, "it is at its phase");
    world.touch("go");
    world.until_pipeline_state(&id, "running two");
    for late in [&["pipelines", "set", "word=z"][..], &["pipelines", "checkpoint", "too late"]] {
        let said = world.as_phase(late);
        assert_eq!(said.code, 8, "{said:?}");
    }
    // A person may set checkpoints from outside.
    world.ok(&["pipelines", "checkpoint", "--pipeline", &id, "by hand"]);
    world.ok(&["pipelines", "checkpoint", "--pipeline", &id, "two\nlines \x1b[31m"]);
    let page = world.ok(&["pipelines", "show", &id]);
    assert!(!page.lines().any(|line| line.starts_with("lines")), "what an agent says stays in its line: {page}");
    world.touch("on");
    runner.end();
    assert_eq!((world.lines("out"), world.pipeline_state(&id).as_str()), (vec!["7y".to_owned()], "done"));
    world.assert_refused(&["pipelines", "set", "--pipeline", &id, "a=1"], 2, "PIPELINE_OVER");
    assert_eq!(world.run(&["pipelines", "set", "a=1"]).code, 2, "no pipeline is named");
}

#[test]
fn a_failure_leads_to_another_phase_and_back() {
    let (world, id) = begun(&way(&[
        ("test", "run = 'echo test >> out; test -e mended'\non_fail = { phase = \"mend\", times = 2 }\nnext = \"done\""),
        ("mend", "run = 'echo mend >> out; if [ -e once ]; then touch mended; fi; touch once'\nnext = \"test\""),
    ]));
    assert_eq!(world.run_all(), 0, "what was mended has not failed");
    assert_eq!(world.lines("out"), ["test", "mend", "test", "mend", "test"]);
    assert_eq!((world.pipeline_state(&id).as_str(), world.tasks_of(&id, "test").len()), ("done", 3));
}

#[test]
fn a_strategy_falls_back_on_an_error_text_and_on_a_timeout() {
    let world = World::new();
    let approaches = r#"
[strategy.s]
[[strategy.s.approach]]
name = "quick"
run = 'echo quick >> out; echo "CONFLICT in a.rs" >&2; exit 1'
fallback_on = { error = "CONFLICT" }
[[strategy.s.approach]]
name = "slow"
run = 'echo slow >> out; sleep 1000'
timeout = "200ms"
fallback_on = ["timeout"]
[[strategy.s.approach]]
name = "sure"
run = 'echo sure >> out; echo "{\"by\": \"sure\"}"; test -e key'
fallback_on = { error = "CONFLICT" }
[[strategy.s.approach]]
name = "never"
run = 'echo never >> out'
"#;
    world.book(&format!("{}{approaches}", way(&[("land", "strategy = \"s\"\noutput = [\"by\"]")])));
    let id = world.begin(&[]);
    assert_eq!(world.run_all(), 7);
    assert_eq!(world.lines("out"), ["quick", "slow", "sure"], "an error that is no reason ends the chain");
    assert_eq!(world.pipeline_state(&id), "failed land");
    world.touch("key");
    world.ok(&["pipelines", "retry", &id]);
    assert_eq!(world.run_all(), 0);
    let page = world.pipeline(&id);
    assert_eq!((&page["state"], &page["vars"]), (&json!("done"), &json!({ "land": { "by": "sure" } })));
    assert_eq!(world.tasks_of(&id, "land").len(), 6);
    let kinds: Vec<String> =
        world.events().iter().map(|event| event.kind.to_string()).filter(|kind| kind.starts_with("strategy")).collect();
    let fallback = || "strategy:fallback".to_owned();
    assert_eq!(kinds, [fallback(), fallback(), "strategy:exhausted".into(), fallback(), fallback()]);
}

#[test]
fn a_phase_has_a_timeout_and_retries() {
    let (world, id) = begun(&way(&[
        ("flaky", "run = 'echo x >> tries; test $(wc -l < tries) -ge 3'\nretries = 2"),
        ("slow", "run = 'sleep 1000'\ntimeout = \"200ms\""),
    ]));
    assert_eq!(world.run_all(), 7);
    assert_eq!((world.lines("tries").len(), world.tasks_of(&id, "flaky")), (3, vec!["completed".to_owned()]));
    let page = world.pipeline(&id);
    assert_eq!(page["phase"], "slow");
    assert!(page["error"].as_str().unwrap().contains("longer than"), "{page}");
}

#[test]
fn a_phase_pushes_an_item_and_holds_its_needs() {
    let world = World::new();
    let holds = "run = 'while [ ! -e go ]; do sleep 0.02; done'\nlock = \"db\"\nsemaphore = { name = \"gpu\", weight = 2 }";
    world.book(&format!(
        "[pipeline.way]\nvars = {{ a = 1, b = 2 }}\n{}\n[queue.q]\n[lock.db]\n[semaphore.gpu]\ncapacity = 3\n",
        &way(&[("send", "push = { queue = \"q\", priority = 4, vars = [\"a\"] }"), ("hold", holds)])[15..]
    ));
    let id = world.begin(&["--var", "a=x"]);
    let runner = world.runner(&["--until-idle"]);
    world.until_pipeline_state(&id, "running hold");
    until("it holds the lock", || world.holder("db").is_some());
    let used: u32 = world
        .snapshot()
        .coordination
        .semaphores
        .values()
        .filter(|row| row.name.as_str() == "gpu")
        .flat_map(|row| row.holders.values())
        .map(|grant| grant.claim.weight)
        .sum();
    assert_eq!(used, 2);
    let taken = world.data(&["queues", "take", "q", "--holder", "me"]);
    assert_eq!((&taken["item"]["data"], &taken["item"]["priority"]), (&json!({ "a": "x" }), &json!(4)), "{taken}");
    world.touch("go");
    runner.end();
    assert_eq!((world.pipeline_state(&id).as_str(), world.holder("db")), ("done", None));
}

#[test]
fn a_pipeline_with_impossible_needs_is_not_started() {
    let world = World::new();
    let second = "run = 'true'\nsemaphore = { name = \"gpu\", weight = 2 }";
    world.book(&way(&[("first", "run = 'true'"), ("second", second)]));
    for (verb, code, said, message) in [
        ("pipelines start way", 4, "SEMAPHORE_NOT_FOUND", "phase second needs the semaphore gpu, which is not there"),
        ("semaphores define gpu --capacity 1", 0, "", ""),
        ("tasks add Way --runbook book", 2, "OVER_CAPACITY", "phase second needs 2 slots of the semaphore gpu, which has 1"),
        ("semaphores define gpu --capacity 2", 0, "", ""),
    ] {
        let words: Vec<&str> = verb.split(' ').collect();
        if code == 0 {
            world.ok(&words);
            continue;
        }
        let (found, error) = world.error(&words);
        assert_eq!((found, error["code"].as_str().unwrap()), (code, said), "{error}");
        let ending = error["message"].as_str().unwrap().rsplit_once(": ").unwrap().1;
        assert_eq!((ending, &error["details"]["semaphores"]), (message, &json!(["gpu"])));
        assert_eq!(world.data(&["pipelines", "list"])["pipelines"], json!([]), "nothing was started");
    }
    let id = world.begin(&[]);
    assert_eq!((world.run_all(), world.pipeline_state(&id).as_str()), (0, "done"));
}

#[test]
fn a_running_pipeline_keeps_its_version_of_the_runbook() {
    let world = World::new();
    let wait = "run = 'echo old-one >> out; while [ ! -e go ]; do sleep 0.02; done'";
    world.book(&way(&[("one", wait), ("two", "run = 'echo old-two >> out'")]));
    world.begin(&[]);
    let runner = world.runner(&[]);
    until("it runs", || !world.lines("out").is_empty());
    world.book(&way(&[("two", "run = 'echo new-two >> out'")]));
    world.touch("go");
    let second = world.begin(&[]);
    until("both are through", || world.lines("out").len() == 3 && world.pipeline_state(&second) == "done");
    let mut lines = world.lines("out");
    lines.sort();
    assert_eq!(lines, ["new-two", "old-one", "old-two"]);
    drop(runner);
}

#[test]
fn a_released_lock_unblocks_a_pipeline() {
    let world = World::new();
    let book = way(&[("one", "run = 'echo one >> out'\npre = \"quiet\""), ("two", "run = 'echo two >> out'\npost = \"quiet\"")]);
    world.book(&format!("{book}\n[guard.quiet]\ncondition = {{ lock_free = \"deploy\" }}\n"));
    let grab = || world.data(&["locks", "acquire", "deploy", "--holder", "ann"])["epoch"].to_string();
    let release = |epoch: &str| drop(world.ok(&["locks", "release", "deploy", "--holder", "ann", "--epoch", epoch]));
    let epoch = grab();
    let id = world.begin(&[]);
    let runner = world.runner(&["--until-idle"]);
    world.until_pipeline_state(&id, "blocked one");
    let page = world.pipeline(&id);
    assert_eq!(page["blockedBy"]["guard"]["guard"], "quiet");
    assert!(page["blockedBy"]["guard"]["part"].as_str().unwrap().contains("ann"), "{page}");
    let why = world.ok(&["why", &id]);
    assert!(why.contains("guard quiet does not pass") && why.contains("unblock"), "{why}");
    assert!(!world.has("out"));
    release(&epoch);
    // The guard of the second phase is checked after it; by then the lock is free.
    world.until_pipeline_state(&id, "done");
    assert_eq!((world.lines("out"), runner.end().code), (vec!["one".to_owned(), "two".into()], 0));
    let epoch = grab();
    let id = world.begin(&[]);
    let runner = world.runner(&[]);
    world.until_pipeline_state(&id, "blocked one");
    world.ok(&["pipelines", "unblock", &id]);
    world.until_pipeline_state(&id, "blocked two");
    assert_eq!((world.lines("out").len(), world.tasks_of(&id, "two")), (4, vec!["completed".to_owned()]));
    release(&epoch);
    world.until_pipeline_state(&id, "done");
    drop(runner);
}

#[test]
fn why_and_status_report_pipelines() {
    let world = World::new();
    world.book(&way(&[("build", "run = 'touch built; while [ ! -e go ]; do sleep 0.02; done; exit 3'")]));
    let first = world.begin(&["--title", "first"]);
    let second = world.begin(&["--title", "second", "--depends-on", &first]);
    let why = |id: &str| world.ok(&["why", id]);
    assert!(why(&first).contains("no runner"), "{}", why(&first));
    assert!(why(&second).contains(&first), "{}", why(&second));
    let runner = world.runner(&["--until-idle"]);
    until("it runs", || world.has("built"));
    let said = why(&first);
    assert!(said.contains("in phase build (1 of 1)") && said.contains(&format!("{first}.1")), "{said}");
    let counts = world.data(&["status"]);
    assert_eq!(counts["pipelines"]["byState"]["running"], 1, "{counts}");
    world.touch("go");
    assert_eq!(runner.end().code, 7);
    let said = why(&first);
    assert!(said.contains("ago: phase build: exit status 3") && said.contains("pipelines retry"), "{said}");
    assert_eq!(world.data(&["pipelines", "list", "--state", "failed"])["pipelines"].as_array().unwrap().len(), 1);
    world.assert_refused(&["pipelines", "show", "p-nothing"], 4, "PIPELINE_NOT_FOUND");
}

#[test]
fn a_phase_without_activity_waits_for_a_decision() {
    let world = World::new();
    for (key, value) in [("task.silence_timeout", "200ms"), ("task.max_recovery_attempts", "0"), ("task.kill_grace", "200ms")] {
        world.ok(&["config", "set", key, value]);
    }
    world.book(&way(&[("one", "run = 'test -e mended || sleep 600'"), ("two", "run = 'true'")]));
    let id = world.begin(&[]);
    assert_eq!(world.run_all(), 7, "there is nothing to do but for people");
    let page = world.pipeline(&id);
    assert_eq!((&page["state"], &page["status"]), (&json!("blocked"), &json!("blocked")));
    let decision = page["blockedBy"]["decision"]["decision"].as_str().unwrap();
    world.assert_refused(&["pipelines", "unblock", &id], 2, "PIPELINE_UNDECIDED");
    assert!(world.ok(&["why", &id]).contains(decision));
    world.touch("mended");
    world.ok(&["config", "set", "task.silence_timeout", "10m"]);
    world.ok(&["decisions", "resolve", decision, "1"]);
    assert_eq!((world.run_all(), world.pipeline_state(&id).as_str()), (0, "done"));
    assert_eq!(world.tasks_of(&id, "one"), ["completed"], "it is the same task");
}

#[test]
fn a_child_pipeline_is_cancelled_with_its_parent() {
    let world = World::new();
    world.book(&way(&[("one", "run = 'echo $$ > pid; sleep 1000'"), ("two", "run = 'touch two'")]));
    let start = format!("{} pipelines start way --child --title inner; touch asked; sleep 1000", crate::world::BANKSMAN);
    let outer = world.add(&["outer", "--run", &start]);
    let runner = world.runner(&["--until-idle"]);
    until("the phase runs", || world.has("pid") && world.has("asked"));
    world.ok(&["tasks", "cancel", &outer]);
    runner.end();
    let pid = world.read("pid").trim().parse().unwrap();
    assert_eq!((is_alive(pid), world.pipeline_state("inner").as_str(), world.has("two")), (false, "cancelled one", false));
}

#[test]
fn output_of_a_phase_is_found_among_noise_and_is_limited() {
    let world = World::new();
    let noise = "head -c 3000000 /dev/zero | tr '\\\\0' x | fold -w 100; echo";
    let large = |bytes: usize| format!("printf '{{\"large\": \"%s\"}}\\\\n' $(head -c {bytes} /dev/zero | tr '\\\\0' y)");
    let phase = |line: String| format!("run = \"\"\"\n{}\n\"\"\"\noutput = [\"large\"]", line.replace('"', "\\\""));
    // The huge output is cut, although more output follows it.
    let huge = format!("echo before; {}; {noise}", large(2_000_000)).replace("3000000", "200000");
    let list = phase("printf '{\"large\": [%s0]}\\\\n' $(head -c 20000 /dev/zero | sed 's/\\\\x00/1,/g')".into());
    world.book(&way(&[("noisy", &phase(format!("{noise}; {}", large(8_000)))), ("huge", &phase(huge)), ("list", &list)]));
    let id = world.begin(&[]);
    assert_eq!(world.run_all(), 0, "the work is done, however much it says: {}", world.pipeline(&id));
    let page = world.pipeline(&id);
    let kept = |phase: &str| page["vars"][phase]["large"].as_str().map(str::len);
    assert_eq!((kept("noisy"), kept("huge"), &page["vars"]["list"]), (Some(8_000), Some(8_192), &Value::Null), "{page}");
    let notes = page["checkpoints"].to_string();
    assert!(notes.contains("the output large was cut from 2000000 to 8192 bytes"), "{notes}");
    assert!(notes.contains("the output large was left out: it has more than 8192 bytes"), "{notes}");
}

#[test]
fn pipelines_move_to_the_other_database_with_their_project() {
    let world = World::on_sqlite().unchecked();
    world.book(&way(&[("one", "run = 'echo \"{\\\"n\\\": 1}\"'\noutput = [\"n\"]"), ("two", "run = 'test -e key'")]));
    let id = world.begin(&[]);
    assert_eq!(world.run_all(), 7);
    let other = world.begin(&["--depends-on", &id]);
    let here = world.pipeline(&id);
    let url = crate::postgres::fresh_database();
    let file = format!("sqlite:{}", world.path().join(".banksman/store.db").display());
    world.ok(&["store", "copy", &file, &url]);
    let there = |args: &[&str]| world.data(&[&["--store", &url][..], args].concat());
    assert_eq!(there(&["doctor"])["healthy"], true);
    let copied = there(&["pipelines", "show", &id]);
    assert_eq!((&copied["state"], &copied["vars"], &copied["error"]), (&here["state"], &here["vars"], &here["error"]));
    world.touch("key");
    there(&["pipelines", "retry", &id]);
    world.ok(&["--store", &url, "run", "--until-idle"]);
    assert_eq!(there(&["pipelines", "show", &id])["state"], "done");
    assert_eq!(there(&["pipelines", "show", &other])["state"], "done");
    assert_eq!(there(&["doctor"])["healthy"], true);
}

#[test]
fn values_nested_too_deeply_are_refused() {
    let world = World::new();
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    world.ok(&["queues", "define", "q"]);
    world.add(&["task", "--run", "true"]);
    let refused: [&[&str]; 4] = [
        &["queues", "push", "q", &deep(120)],
        &["events", "emit", "x:y", "--data", &deep(120)],
        &["tasks", "done", "task", "--output", &deep(120)],
        &["locks", "acquire", "l", "--holder", "a", "--metadata", &deep(120)],
    ];
    for args in refused {
        world.assert_refused(args, 2, "USAGE");
    }
    world.book(&way(&[("one", "run = 'cat said'")]));
    let id = world.begin(&[]);
    std::fs::write(world.path().join("said"), format!("{{\"x\": {}, \"y\": 2}}\n", deep(126))).unwrap();
    assert_eq!(world.run_all(), 0);
    assert_eq!(world.pipeline(&id)["vars"], json!({}), "what was not asked for is not kept");
    assert_eq!(world.status("task"), "completed", "the other task is not affected");
}
