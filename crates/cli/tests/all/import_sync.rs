//! Synchronized task files: new tasks are added, changed ones are edited.

use banksman_core::task::Need;
use banksman_core::{ImportId, Name, TaskId};
use banksman_engine::{Edit, ImportOutcome, ImportRequest};
use banksman_store::Key;
use serde_json::{Value, json};

use crate::import::{Steps, listed, mistakes, task, write};
use crate::world::{World, until};

fn titles(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|entry| entry["title"].as_str().unwrap()).collect()
}

#[test]
fn a_second_import_warns_of_duplicates_and_names_sync() {
    let world = World::new();
    write(&world, "plan.jsonl", "{\"title\":\"Build\",\"run\":\"true\"}\n{\"title\":\"Test\"}\n");
    assert_eq!(world.run(&["tasks", "import", "plan.jsonl"]).stderr, "");
    for (more, says) in [(&["--dry-run"][..], "would be duplicated (--sync"), (&[], "are duplicated; cancel one of each (--sync")]
    {
        let said = world.run(&[&["tasks", "import", "plan.jsonl"], more].concat()).stderr;
        assert!(said.replace('\n', " ").contains(says), "{said}");
    }
    // Tasks of another source, and tasks whose namesakes are over, are new.
    world.ok(&["tasks", "import", "plan.jsonl", "--source", "other"]);
    for id in world.data(&["tasks", "list"])["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap()) {
        world.ok(&["tasks", "cancel", id]);
    }
    assert_eq!(world.run(&["tasks", "import", "plan.jsonl"]).stderr, "");
}

#[test]
fn a_sync_adds_new_tasks_and_edits_changed_ones() {
    let world = World::new();
    write(
        &world,
        "plan.jsonl",
        concat!(
            "{\"id\":1,\"title\":\"Build\",\"run\":\"echo old >> order\"}\n",
            "{\"key\":\"test\",\"title\":\"Test\",\"run\":\"echo test >> order\",\"dependsOn\":[\"1\"],\"workspace\":\"dir\",\"locks\":[\"db\"]}\n",
            "{\"title\":\"Gone\"}\n{\"title\":\"Over\"}\n{\"title\":\"Mine\"}\n",
        ),
    );
    let first = world.data(&["tasks", "import", "plan.jsonl", "--sync"]);
    assert_eq!(titles(&first["added"]), ["Build", "Test", "Gone", "Over", "Mine"]);
    let again = world.data(&["tasks", "import", "plan.jsonl", "--sync"]);
    assert_eq!((&again["unchanged"], &again["added"], &again["edited"]), (&5.into(), &json!([]), &json!([])), "{again}");
    assert_eq!(listed(&world).len(), 5, "nothing is doubled");

    world.ok(&["tasks", "done", "Over", "--anyway"]);
    world.ok(&["tasks", "take", "Mine", "--holder", "me"]);
    // Two tasks change places, a new one is between them, and its section is created.
    write(
        &world,
        "plan.jsonl",
        concat!(
            "{\"id\":1,\"title\":\"Build it\",\"run\":\"echo build >> order\",\"dependsOn\":[\"new\"],\"priority\":2}\n",
            "{\"key\":\"new\",\"title\":\"New\",\"run\":\"echo new >> order\",\"dependsOn\":[\"test\"],\"section\":\"s\"}\n",
            "{\"key\":\"test\",\"title\":\"Test\",\"run\":\"echo test >> order\",\"locks\":[\"db\"]}\n",
            "{\"title\":\"Over\",\"priority\":7}\n{\"title\":\"Mine\",\"priority\":7}\n",
        ),
    );
    let before = changes(&world).len();
    let args = ["tasks", "import", "plan.jsonl", "--sync", "--create-sections"];
    let dry = world.data(&[&args[..], &["--dry-run"]].concat());
    assert_eq!(
        (titles(&dry["added"]), titles(&dry["edited"]), &dry["dryRun"]),
        (vec!["New"], vec!["Build", "Test"], &true.into())
    );
    assert_eq!(changes(&world).len(), before, "a dry run writes nothing");
    let data = world.data(&args);
    assert_eq!((titles(&data["added"]), titles(&data["edited"])), (vec!["New"], vec!["Build", "Test"]), "{data}");
    assert_eq!(data["edited"][0]["fields"], json!(["title", "priority", "dependsOn", "run"]));
    assert_eq!(data["edited"][1]["fields"], json!(["workspace", "dependsOn"]));
    assert_eq!((titles(&data["left"]), titles(&data["missing"])), (vec!["Over", "Mine"], vec!["Gone"]), "{data}");
    assert_eq!((&data["left"][1]["status"], &data["sectionsCreated"]), (&"in_progress".into(), &json!(["s"])));
    let events = changes(&world);
    assert!(
        events[before..].len() >= 4 && events[before..].iter().all(|event| event.wall == events[before].wall),
        "one transaction"
    );
    let mut reader = world.project().reader().unwrap();
    let test = TaskId::new(data["edited"][1]["id"].as_str().unwrap()).unwrap();
    let needs = reader.view().load(&[Key::Task(test.clone())].into()).unwrap().backlog.tasks[&test].spec.needs.clone();
    assert_eq!(needs, [Need::Lock(Name::new("db").unwrap())], "the lock of the directory is gone");
    let again = world.data(&args);
    assert_eq!((&again["unchanged"], &again["edited"]), (&3.into(), &json!([])), "{again}");
    let said = world.run(&args);
    assert!(
        said.stdout.starts_with("synced plan.jsonl: 0 added, 0 edited, 3 unchanged, 2 not applied, 1 no longer in the file"),
        "{said:?}"
    );
    world.ok(&["tasks", "cancel", "Mine", "Gone"]);
    assert_eq!(world.run(&["run", "--until-idle"]).code, 7, "two were cancelled");
    assert_eq!(world.lines("order"), ["test", "new", "build"]);
}

#[test]
fn a_sync_leaves_a_run_alone() {
    let world = World::new();
    write(&world, "plan.md", "- [ ] Work: `while [ ! -e open ]; do sleep 0.01; done`\n- [ ] Rest\n");
    world.ok(&["tasks", "import", "plan.md"]);
    let runner = world.start(&["run", "--until-idle"]);
    until("it runs", || listed(&world)[0].1 == "in_progress");
    write(&world, "plan.md", "- [ ] Work: `false`\n- [x] Rest\n");
    let data = world.data(&["tasks", "import", "plan.md", "--sync"]);
    assert_eq!((titles(&data["left"]), &data["left"][0]["fields"]), (vec!["Work"], &json!(["run"])), "{data}");
    assert_eq!((&data["missing"], &data["skipped"]), (&json!([]), &1.into()), "one that is ticked is not missing");
    write(&world, "open", "");
    let said = runner.end();
    assert!(said.stdout.contains("1 of 2 tasks"), "the manual one is left: {said:?}");
    assert_eq!(listed(&world)[0], ("Work".into(), "completed".into()));
}

#[test]
fn a_sync_is_one_transaction() {
    let world = World::new();
    write(&world, "plan.jsonl", "{\"title\":\"A\"}\n{\"title\":\"B\"}\n");
    world.ok(&["tasks", "import", "plan.jsonl", "--source", "tracker"]);
    world.ok(&["tasks", "add", "Outside", "--depends-on", "A"]);
    // A cycle through a task that is not in the file is found in the transaction.
    write(
        &world,
        "plan.jsonl",
        "{\"title\":\"A\",\"dependsOn\":[\"New\"]}\n{\"title\":\"B\",\"priority\":3}\n{\"title\":\"New\",\"dependsOn\":[\"Outside\"]}\n",
    );
    let args = ["tasks", "import", "plan.jsonl", "--source", "tracker", "--sync"];
    let before = changes(&world).len();
    world.assert_refused(&args, 2, "DEPENDENCY_CYCLE");
    // A task that was taken in the meantime refuses the sync, too.
    let id = |name: &str| TaskId::new(world.data(&["tasks", "show", name])["id"].as_str().unwrap()).unwrap();
    let (a, b) = (id("A"), id("B"));
    assert_eq!(changes(&world).len(), before, "nothing has changed");
    world.ok(&["tasks", "take", "B", "--holder", "me"]);
    let before = changes(&world).len();
    let edit = |priority| Edit { priority: Some(priority), ..Edit::default() };
    let client = world.project().open().unwrap();
    let steps = Steps { client: &client, id: ImportId::new("i-12345678").unwrap() };
    let (spec, edges) = task("Late", None, &[]);
    let add = vec![(TaskId::new("t-12345678").unwrap(), spec, edges)];
    let request = ImportRequest::Sync { sections: Vec::new(), add, edit: vec![(a, edit(1)), (b.clone(), edit(2))] };
    assert_eq!(steps.ask(request), ImportOutcome::Overtaken(b));
    assert_eq!((changes(&world).len(), listed(&world).len()), (before, 3));
    drop(client);

    write(&world, "plan.jsonl", "{\"title\":\"A\"}\n{\"title\":\"A\"}\n");
    let errors = mistakes(&world, &args[2..]);
    assert_eq!(errors.len(), 2, "without a key they cannot be distinguished: {errors:?}");
    let many: String = (0..1_100).map(|number| format!("{{\"title\":\"n{number}\"}}\n")).collect();
    write(&world, "plan.jsonl", &("{\"title\":\"A\"}\n".to_owned() + &many));
    let (code, error) = world.error(&args);
    assert!(code == 2 && error["message"].as_str().unwrap().contains("1,100 rows"), "{error}");
    assert_eq!(listed(&world).len(), 3);
}

#[test]
fn concurrent_syncs_of_one_file_add_each_task_once() {
    let world = World::new();
    let mut lines = 0;
    for more in [3, 2] {
        lines += more;
        let text: String = (0..lines).map(|number| format!("{{\"key\": \"k{number}\", \"title\": \"T{number}\"}}\n")).collect();
        std::fs::write(world.path().join("plan.jsonl"), text).unwrap();
        let syncs: Vec<_> = (0..6).map(|_| world.start(&["tasks", "import", "plan.jsonl", "--sync"])).collect();
        for sync in syncs {
            let said = sync.end();
            assert_eq!(said.code, 0, "{said:?}");
        }
        assert_eq!(world.data(&["tasks", "list"])["tasks"].as_array().unwrap().len(), lines);
    }
}

/// The events, without those of the lock under which files are compared.
fn changes(world: &World) -> Vec<banksman_store::EventRow> {
    world.events().into_iter().filter(|event| &*event.source.component != "lock").collect()
}
