//! Pipelines beside others: locks that are held across phases, pipelines that exclude each other, and deleted pipelines.

use crate::world::{World, is_alive, until};

/// Makes the file `at-NAME`, then waits until the test makes `go-NAME`.
fn waits(name: &str) -> String {
    format!("touch at-{name}; while [ ! -e go-{name} ]; do sleep 0.01; done")
}

#[test]
fn a_lock_is_held_across_phases_until_the_pipeline_ends() {
    let world = World::new();
    let text = format!(
        "[pipeline.way]\nvars = {{ end = \"0\" }}\n\
         [[pipeline.way.phase]]\nname = \"prepare\"\nrun = \"true\"\n\
         [[pipeline.way.phase]]\nname = \"ship\"\nrun = \"true\"\nlock = \"prod\"\nhold = \"pipeline\"\n\
         [[pipeline.way.phase]]\nname = \"watch\"\nrun = \"{}; exit $VAR_END\"\n",
        waits("watch")
    );
    world.book(&text);
    let id = world.begin(&["--var", "end=1"]);
    let runner = world.runner(&[]);
    until("the last phase runs", || world.has("at-watch"));
    let holder = format!("pipeline:{id}");
    assert_eq!(world.data(&["locks", "show", "prod"])["holder"], holder.as_str());
    // Another pipeline of this runbook, and a task that needs the lock, wait.
    let other = world.add(&["Other", "--run", "touch other", "--lock", "prod"]);
    let second = world.begin(&[]);
    until("it is seen that the lock is held", || {
        world.ok(&["why", &other]).contains(&holder) && world.pipeline_state(&second) == "running ship"
    });
    world.touch("go-watch");
    world.until_pipeline_state(&id, "failed watch");
    until("the lock is free, and taken by the others", || world.has("other"));
    world.until_pipeline_state(&second, "done");
    // A retry takes the lock again before any phase runs.
    std::fs::remove_file(world.path().join("go-watch")).unwrap();
    std::fs::remove_file(world.path().join("at-watch")).unwrap();
    let epoch = world.data(&["locks", "acquire", "prod", "--holder", "ann"])["epoch"].to_string();
    world.ok(&["pipelines", "retry", &id]);
    until("it waits for the lock", || world.ok(&["why", &id]).contains("ann"));
    assert!(!world.has("at-watch"));
    world.ok(&["locks", "release", "prod", "--holder", "ann", "--epoch", &epoch]);
    until("the last phase runs again", || world.has("at-watch"));
    assert_eq!(world.data(&["locks", "show", "prod"])["holder"], holder.as_str());
    // A cancelled pipeline frees the lock when its run is dead, and not before.
    world.ok(&["pipelines", "cancel", &id]);
    assert_eq!(world.data(&["locks", "show", "prod"])["holder"], serde_json::Value::Null);
    world.ok(&["doctor"]);
    drop(runner);
}

#[test]
fn a_guard_on_pipeline_running_excludes_concurrent_pipelines() {
    let world = World::new();
    let text = format!(
        "[guard.alone]\ncondition = {{ not = {{ pipeline_running = {{ name = \"way\", runbook = \"book\" }} }} }}\n\
         [pipeline.way]\nvars = [\"mark\"]\n\
         [[pipeline.way.phase]]\nname = \"prepare\"\nrun = \"true\"\n\
         [[pipeline.way.phase]]\nname = \"ship\"\npre = \"alone\"\nrun = \"echo $VAR_MARK >> order; {}; echo $VAR_MARK >> order\"\n",
        waits("ship")
    );
    world.book(&text);
    let ids: Vec<String> = ["a", "b", "c"].iter().map(|mark| world.begin(&["--var", &format!("mark={mark}")])).collect();
    let _runner = world.runner(&[]);
    let count_in = |words: &str| ids.iter().filter(|id| world.pipeline_state(id) == words).count();
    until("one ships, the others wait", || (count_in("running ship"), count_in("blocked ship")) == (1, 2));
    let blocked = ids.iter().find(|id| world.pipeline_state(id) == "blocked ship").unwrap();
    let why = world.ok(&["why", blocked]);
    assert!(why.contains("way of runbook book is running"), "{why}");
    world.touch("go-ship");
    until("all are done", || count_in("done") == 3);
    let order = world.lines("order");
    assert!(order.chunks(2).all(|pair| pair[0] == pair[1]), "one after the other: {order:?}");
}

/// B17: `pipeline_running` by runbook alone, and by phase.
#[test]
fn pipeline_running_selects_by_runbook_and_by_phase() {
    let world = World::new();
    let guard = |name: &str, filter: &str| format!("[guard.{name}]\ncondition = {{ not = {{ pipeline_running = {filter} }} }}\n");
    let pipeline = |name: &str, pre: &str| {
        format!("[pipeline.{name}]\n[[pipeline.{name}.phase]]\nname = \"one\"\npre = \"{pre}\"\nrun = \"touch {name}\"\n")
    };
    let (alone, idle) = (guard("alone", "{ runbook = \"book\" }"), guard("idle", "{ runbook = \"second\" }"));
    let (at_rest, way) = (guard("at-rest", "{ runbook = \"book\", phase = \"ship\" }"), waits("prepare"));
    world.book(&format!(
        "{alone}[pipeline.way]\n[[pipeline.way.phase]]\nname = \"prepare\"\nrun = \"{way}\"\n\
         [[pipeline.way.phase]]\nname = \"ship\"\nrun = \"{}\"\n{}",
        waits("ship"),
        pipeline("beside", "alone")
    ));
    let second = [idle, at_rest, pipeline("elsewhere", "idle"), pipeline("early", "at-rest"), pipeline("late", "at-rest")];
    crate::runbooks::write(&world, "second", &second.concat());
    let begin = |name: &str| world.data(&["pipelines", "start", name])["id"].as_str().unwrap().to_owned();
    let way = begin("way");
    let _runner = world.runner(&[]);
    world.until_pipeline_state(&way, "running prepare");
    let beside = begin("beside");
    world.until_pipeline_state(&beside, "blocked one");
    // The pipeline that asks does not count, and none is in the phase yet.
    for name in ["early", "elsewhere"] {
        let id = begin(name);
        world.until_pipeline_state(&id, "done");
    }
    world.touch("go-prepare");
    world.until_pipeline_state(&way, "running ship");
    let late = begin("late");
    world.until_pipeline_state(&late, "blocked one");
    assert_eq!((world.pipeline_state(&beside).as_str(), world.has("beside"), world.has("late")), ("blocked one", false, false));
    world.touch("go-ship");
    [way, beside, late].iter().for_each(|id| world.until_pipeline_state(id, "done"));
}

#[test]
fn a_pipeline_is_deleted_with_its_phases_also_while_it_runs() {
    let world = World::new();
    world.book(&format!(
        "[pipeline.way]\n[[pipeline.way.phase]]\nname = \"one\"\nrun = \"true\"\n\
         [[pipeline.way.phase]]\nname = \"two\"\nrun = \"echo $$ > pid; {}\"\nlock = \"prod\"\nhold = \"pipeline\"\n",
        waits("two")
    ));
    let id = world.begin(&[]);
    let _runner = world.runner(&[]);
    until("it is in its last phase", || world.has("at-two"));
    let pid: i32 = world.read("pid").trim().parse().unwrap();
    world.assert_refused(&["pipelines", "delete", &id], 6, "TASK_BUSY");
    let other = world.add(&["After it", "--depends-on", &format!("{id}.1")]);
    assert_eq!(world.error(&["tasks", "delete", "--force", &id]).1["code"], "TASK_HAS_DEPENDENTS");
    world.ok(&["tasks", "delete", &other]);
    world.ok(&["tasks", "delete", "--force", &id]);
    assert!(!is_alive(pid));
    assert_eq!(world.data(&["tasks", "list"])["tasks"].as_array().unwrap().len(), 0);
    assert_eq!(world.data(&["locks", "show", "prod"])["holder"], serde_json::Value::Null);
    assert_eq!(std::fs::read_dir(world.path().join(".banksman/tasks")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(world.path().join(".banksman/logs")).into_iter().flatten().count(), 0);
    world.ok(&["doctor"]);
    // A pipeline that is over can be deleted without --force.
    world.touch("go-two");
    let done = world.begin(&[]);
    world.until_pipeline_state(&done, "done");
    world.ok(&["pipelines", "delete", &done]);
    assert_eq!(world.error(&["pipelines", "show", &done]).1["code"], "PIPELINE_NOT_FOUND");
}

#[test]
fn fallback_on_any_covers_an_approach_that_hangs() {
    let world = World::new();
    for (key, value) in [("task.silence_timeout", "200ms"), ("task.max_recovery_attempts", "0"), ("task.kill_grace", "200ms")] {
        world.ok(&["config", "set", key, value]);
    }
    world.book(
        "[strategy.s]\n[[strategy.s.approach]]\nname = \"hangs\"\nrun = \"exec sleep 1000\"\nfallback_on = \"any\"\n\
         [[strategy.s.approach]]\nname = \"works\"\nrun = \"touch worked\"\n\
         [pipeline.way]\n[[pipeline.way.phase]]\nname = \"one\"\nstrategy = \"s\"\n",
    );
    let id = world.begin(&[]);
    assert_eq!(world.run_all(), 0);
    assert_eq!((world.pipeline_state(&id), world.has("worked")), ("done".into(), true));
}

/// A pipeline that keeps a lock takes the locks of all later phases with it, so two pipelines never wait for each other.
#[test]
fn pipelines_that_keep_a_lock_never_wait_for_each_other() {
    let world = World::new();
    let pipeline = |name: &str, kept: &str, later: &str| {
        format!(
            "[pipeline.{name}]\n[[pipeline.{name}.phase]]\nname = \"keep\"\nrun = \"{}\"\nlock = \"{kept}\"\nhold = \"pipeline\"\n\
             [[pipeline.{name}.phase]]\nname = \"later\"\nrun = \"true\"\nlock = \"{later}\"\n",
            waits(name)
        )
    };
    world.book(&format!("{}{}", pipeline("one", "a", "b"), pipeline("two", "b", "a")));
    let begin = |name: &str| world.data(&["pipelines", "start", name])["id"].as_str().unwrap().to_owned();
    let one = begin("one");
    let _runner = world.runner(&[]);
    until("the first keeps", || world.has("at-one"));
    let two = begin("two");
    until("the second waits for both", || world.ok(&["why", &two]).contains(&format!("pipeline:{one}")));
    assert_eq!(
        [world.holder("a"), world.holder("b")].map(|holder| holder.unwrap().to_string()),
        [(); 2].map(|()| format!("pipeline:{one}"))
    );
    world.touch("go-two");
    assert!(!world.has("at-two"), "it would hold one lock and wait for the other");
    world.touch("go-one");
    world.until_pipeline_state(&one, "done");
    world.until_pipeline_state(&two, "done");
}

/// The transaction that frees a kept lock wakes its waiters; a run that waits for the lock of its own pipeline is refused.
#[test]
fn waiters_of_a_kept_lock_are_woken_and_circles_refused() {
    let world = World::new();
    // No poll comes within the test.
    world.ok(&["config", "set", "locking.poll_interval", "10m"]);
    let own = format!(
        "{b} tasks add Own --run true --lock prod; {b} tasks wait Own; echo $? > wait; {b} locks acquire prod; echo $? > acquire; {}",
        waits("keep"),
        b = crate::world::BANKSMAN
    );
    world.book(&format!(
        "[pipeline.way]\n[[pipeline.way.phase]]\nname = \"keep\"\nrun = \"\"\"{own}\"\"\"\nlock = \"prod\"\nhold = \"pipeline\"\n\
         [pipeline.other]\n[[pipeline.other.phase]]\nname = \"ship\"\nrun = \"true\"\nlock = \"prod\"\nhold = \"pipeline\"\n"
    ));
    let one = world.data(&["pipelines", "start", "way"])["id"].as_str().unwrap().to_owned();
    let runner = world.runner(&[]);
    until("it keeps", || world.has("at-keep"));
    assert_eq!([world.read("wait").trim(), world.read("acquire").trim()], ["9", "9"]);
    let other = world.data(&["pipelines", "start", "other"])["id"].as_str().unwrap().to_owned();
    until("its phase waits", || world.ok(&["why", &other]).contains(&format!("pipeline:{one}")));
    // A person takes that phase manually, and waits only for the lock that the pipeline is to keep.
    let ann = world.start(&["tasks", "take", &format!("{other}.1"), "--holder", "ann"]);
    crate::claims::until_waiting(&world, 1);
    world.touch("go-keep");
    assert_eq!(ann.end().code, 0);
    assert_eq!(world.holder("prod").unwrap().as_str(), format!("pipeline:{other}"));
    world.ok(&["tasks", "done", &format!("{other}.1"), "--holder", "ann"]);
    world.until_pipeline_state(&other, "done");
    world.until_status("Own", "completed");
    drop(runner);
}
