//! Imports of task files: every format, every mistake with its line, and atomicity.

use std::io::Write;
use std::process::Stdio;

use banksman_core::backlog::Edge;
use banksman_core::import::{Import, NewSection};
use banksman_core::task::{Spec, Work};
use banksman_core::{ImportId, SectionId, TaskId, Title};
use banksman_engine::{ImportOutcome, ImportRequest, Seen};
use banksman_runtime::Client;
use banksman_store::Key;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::world::{Running, Said, World, until};

pub(crate) fn write(world: &World, file: &str, text: &str) {
    std::fs::write(world.path().join(file), text).unwrap();
}

/// Title and status of every listed task.
pub(crate) fn listed(world: &World) -> Vec<(String, String)> {
    let list = world.data(&["tasks", "list"]);
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    list["tasks"].as_array().unwrap().iter().map(|task| (word(&task["title"]), word(&task["status"]))).collect()
}

/// The mistakes in a file: line, field and reason of each.
pub(crate) fn mistakes(world: &World, args: &[&str]) -> Vec<(u64, Option<String>, String)> {
    let error = world.assert_refused(&[&["tasks", "import"], args].concat(), 2, "IMPORT_INVALID");
    let mistake = |problem: &Value| {
        let field = problem["field"].as_str().map(Into::into);
        (problem["line"].as_u64().unwrap(), field, problem["what"].as_str().unwrap().to_owned())
    };
    error["details"]["problems"].as_array().unwrap().iter().map(mistake).collect()
}

fn open_imports(world: &World) -> Vec<Import> {
    let mut reader = world.project().reader().unwrap();
    reader.view().load(&[Key::Imports].into()).unwrap().tables.backlog.imports.into_values().collect()
}

const JSON_LINES: &str = r#"{"key":"build","title":"Build it","run":"echo build >> order","labels":["x"],"priority":3,"retries":1}
{"title":"Test it","run":"echo test >> order","dependsOn":["build"],"section":"back end","locks":["db"],"semaphores":["gpu=2"]}
{"title":"Ship it","run":"echo ship >> order; echo \"$BANKSMAN_TITLE\" >> order","dependsOn":["Test it","Old"],"workspace":"none"}
"#;

#[test]
fn json_lines_become_tasks_that_run_in_order() {
    let world = World::new();
    world.ok(&["semaphores", "define", "gpu", "--capacity", "2"]);
    world.ok(&["sections", "add", "back end"]);
    world.ok(&["tasks", "add", "Old", "--run", "echo old >> order"]);
    write(&world, "tasks.jsonl", JSON_LINES);
    let data = world.data(&["tasks", "import", "tasks.jsonl", "--ids"]);
    assert_eq!((&data["tasks"], &data["dependencies"], &data["skipped"]), (&3.into(), &3.into(), &0.into()));
    let ids = data["ids"].as_object().unwrap();
    assert_eq!(ids.keys().collect::<Vec<_>>(), ["Ship it", "Test it", "build"]);
    let test = world.data(&["tasks", "show", ids["Test it"].as_str().unwrap()]);
    assert_eq!((&test["title"], &test["section"]), (&"Test it".into(), &"back end".into()));
    world.ok(&["run", "--until-idle", "--max-runs", "1"]);
    assert_eq!(world.lines("order"), ["build", "old", "test", "ship", "Ship it"], "the highest priority first");
}

#[test]
fn a_csv_file_has_the_same_fields() {
    let world = World::new();
    let text = "\u{feff}title,run,dependsOn,labels,allowFailed\r\nfirst,false,,a;b,\r\nsecond,echo second >> order,first,,true\r\n\"third, last\",\"echo \"\"third\"\" >> order\",first; second,,\r\n";
    write(&world, "tasks.csv", text);
    world.ok(&["tasks", "import", "tasks.csv"]);
    assert_eq!(world.run(&["run", "--until-idle"]).code, 7, "one has failed");
    let wanted = [("first", "failed"), ("second", "completed"), ("third, last", "blocked")];
    assert_eq!(listed(&world), wanted.map(|(title, status)| (title.into(), status.into())));
    assert_eq!(world.lines("order"), ["second"]);
}

const CHECKLIST: &str = "# Plan

## Back end
- [ ] Release: `echo release >> order`
  - [ ] Test: `echo test >> order`
    - [ ] Build
  - [x] Write it
- [ ] Announce (after: Release; Write it)

## Front end
- [ ] Look
";

#[test]
fn a_checklist_becomes_sections_and_tasks() {
    let world = World::new();
    write(&world, "plan.md", CHECKLIST);
    let unknown = |name: &str| format!("there is no section {name:?}");
    let section = || Some("section".to_owned());
    let problems = mistakes(&world, &["plan.md"]);
    assert_eq!(problems, [(4, section(), unknown("Back end")), (11, section(), unknown("Front end"))]);

    let run = "echo \"$BANKSMAN_TITLE\" >> order";
    let data = world.data(&["tasks", "import", "plan.md", "--create-sections", "--run", run]);
    assert_eq!(data["sectionsCreated"], json!(["Back end", "Front end"]));
    assert_eq!((&data["tasks"], &data["skipped"]), (&5.into(), &1.into()));
    assert!(data.get("ids").is_none());
    world.ok(&["run", "--until-idle", "--max-runs", "1"]);
    let mut order = world.lines("order");
    order.retain(|line| line != "Look");
    assert_eq!(order, ["Build", "test", "release", "Announce"]);
    // The sections of the first import exist for the second.
    world.ok(&["tasks", "import", "plan.md"]);
    assert_eq!(world.data(&["sections", "list"])["sections"].as_array().unwrap().len(), 2);
}

#[test]
fn tasks_are_imported_from_stdin() {
    let world = World::new();
    let import = |args: &[&str]| -> Said {
        let mut command = world.command(&[&["tasks", "import", "-"], args].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that cannot detect the format does not read stdin.
        child.stdin.take().unwrap().write_all(b"{\"title\":\"a\"}\n").ok();
        Running(child).end()
    };
    assert_eq!(import(&["--format", "jsonl"]).code, 0);
    let said = import(&[]);
    assert_eq!(said.code, 2);
    assert!(said.stderr.contains("--format"), "{said:?}");
    assert_eq!(listed(&world).len(), 1);
}

#[test]
fn every_mistake_is_reported_with_its_line_and_nothing_is_imported() {
    let world = World::new();
    world.ok(&["tasks", "add", "twin"]);
    world.ok(&["tasks", "add", "twin"]);
    let text = r#"{"title":"fine"}
{"title":"","run":" "}
{"title":"a","depends_on":["fine"]}
{"title":"b","dependsOn":["fine","nothing","b"],"semaphores":["gpu=0"]}
not json
{"key":"k","title":"c","section":"nowhere","locks":["task:1"]}
{"key":"k","title":"d","dependsOn":["twin","same"]}
{"title":"same"}
{"title":"same"}
"#;
    write(&world, "tasks.jsonl", text);
    let errors = mistakes(&world, &["tasks.jsonl"]);
    let part = |line: u64, field: &str, what: &str| {
        let found = errors.iter().any(|(at, of, why)| (*at, of.as_deref().unwrap_or("")) == (line, field) && why.contains(what));
        assert!(found, "line {line}, {field}: {what} is not in {errors:#?}");
    };
    part(2, "title", "must not be empty");
    part(2, "run", "no command");
    part(3, "", "unknown field \"depends_on\"");
    part(4, "dependsOn", "there is no task \"nothing\"");
    part(4, "dependsOn", "cannot depend on itself");
    part(4, "semaphores", "at least one slot");
    part(5, "", "invalid JSON");
    part(6, "section", "no section \"nowhere\"");
    part(6, "locks", "reserved");
    part(7, "key", "line 6 has it already");
    part(7, "dependsOn", "several tasks of the project");
    part(7, "dependsOn", "line 8 and line 9");
    assert_eq!(errors.len(), 12, "{errors:#?}");
    assert!(errors.is_sorted_by_key(|(line, ..)| *line));
    let said = world.run(&["tasks", "import", "tasks.jsonl"]);
    assert!(said.stderr.contains("tasks.jsonl:3: unknown field \"depends_on\"\n    hint: did you mean dependsOn?"), "{said:?}");
    assert_eq!(listed(&world).len(), 2);
    assert!(world.events().iter().all(|event| !event.kind.starts_with("import:")));

    let many: String = (0..150).map(|_| "{\"titel\":1}\n").collect();
    write(&world, "many.jsonl", &many);
    let said = world.run(&["tasks", "import", "many.jsonl"]);
    assert!(said.stderr.contains("more than 100 mistakes"), "{said:?}");
}

#[test]
fn an_unreadable_file_is_reported_with_the_reason() {
    let world = World::new();
    assert_eq!(world.error(&["tasks", "import", "nothing.csv"]).1["code"], "NO_SUCH_FILE");
    assert_eq!(world.error(&["tasks", "import", "nothing"]).0, 2);
    std::fs::write(world.path().join("latin.csv"), b"title\ncaf\xe9\n").unwrap();
    assert_eq!(mistakes(&world, &["latin.csv"]), [(2, None, "not valid UTF-8".into())]);
}

#[test]
fn a_cycle_is_shown_by_keys_and_lines() {
    let world = World::new();
    let text = "key,title,dependsOn\na,A,\nb,B,a;d\nc,C,b\nd,D,c\n";
    write(&world, "tasks.csv", text);
    let what = "dependency cycle: b (line 3) -> d (line 5) -> c (line 4) -> b (line 3)";
    assert_eq!(mistakes(&world, &["tasks.csv"]), [(3, Some("dependsOn".into()), what.into())]);
    write(&world, "tasks.md", "- [ ] out (after: in)\n- [ ] in\n  - [ ] out of it (after: out)\n");
    assert_eq!(mistakes(&world, &["tasks.md"]).len(), 1);
}

#[test]
fn a_dry_run_checks_and_writes_nothing() {
    let world = World::new();
    write(&world, "plan.md", CHECKLIST);
    let before = world.events().len();
    let data = world.data(&["tasks", "import", "plan.md", "--create-sections", "--dry-run", "--ids"]);
    let wanted =
        json!({ "import": null, "tasks": 5, "dependencies": 3, "sectionsCreated": ["Back end", "Front end"], "skipped": 1 });
    assert_eq!(data, wanted);
    assert_eq!(world.run(&["tasks", "import", "plan.md", "--dry-run"]).code, 2, "mistakes are found");
    assert_eq!(world.events().len(), before);
    assert_eq!(world.data(&["sections", "list"])["sections"], json!([]));
}

/// The requests of an import, one by one.
pub(crate) struct Steps<'a> {
    pub(crate) client: &'a Client,
    pub(crate) id: ImportId,
}

impl Steps<'_> {
    pub(crate) fn ask(&self, request: ImportRequest) -> ImportOutcome {
        self.client.request(request).unwrap()
    }

    fn open(&self, total: u32, sections: Vec<NewSection>) -> ImportOutcome {
        self.ask(ImportRequest::Open { id: self.id.clone(), process: self.client.this_process().clone(), total, sections })
    }

    fn chunk(&self, first: u32, tasks: Vec<(Spec, Vec<Edge>)>) -> ImportOutcome {
        self.ask(ImportRequest::Chunk { id: self.id.clone(), first, tasks })
    }

    fn finish(&self) -> ImportOutcome {
        self.ask(ImportRequest::Finish { id: self.id.clone() })
    }

    fn give_up(&self) -> ImportOutcome {
        let by = self.client.this_process().clone();
        self.ask(ImportRequest::Drop { id: self.id.clone(), by, seen: Seen::default() })
    }
}

pub(crate) fn task(title: &str, section: Option<&SectionId>, on: &[TaskId]) -> (Spec, Vec<Edge>) {
    let spec = Spec {
        section: section.cloned(),
        priority: 9,
        work: Some(Work::Run("echo \"$BANKSMAN_TITLE\" >> order".into())),
        ..Spec::new(Title::new(title).unwrap())
    };
    (spec, on.iter().map(|on| Edge { on: on.clone(), allow_failed: false }).collect())
}

#[test]
fn an_import_is_invisible_before_it_is_finished() {
    let world = World::new();
    let old = world.data(&["tasks", "add", "old"])["id"].as_str().unwrap().to_owned();
    world.ok(&["tasks", "cancel", &old]);
    let section = SectionId::new(world.data(&["sections", "add", "s"])["id"].as_str().unwrap()).unwrap();
    let project = world.project();
    let client = project.open().unwrap();
    let steps = Steps { client: &client, id: ImportId::new("i-12345678").unwrap() };
    let (first, held) = (steps.id.task(0), TaskId::new(&old).unwrap());
    assert_eq!(steps.open(4, Vec::new()), ImportOutcome::Open { added: 0 });
    let tasks =
        vec![task("one", Some(&section), &[]), task("two", None, std::slice::from_ref(&first)), task("three", None, &[held])];
    assert_eq!(steps.chunk(0, tasks.clone()), ImportOutcome::Open { added: 3 });
    assert_eq!(steps.chunk(0, tasks), ImportOutcome::OutOfStep { added: 3 }, "no chunk comes twice");
    assert_eq!(steps.finish(), ImportOutcome::OutOfStep { added: 3 }, "one is missing");

    assert_eq!(listed(&world), [("old".into(), "cancelled".into())]);
    for name in ["one", first.as_str(), "t-12345678"] {
        assert_eq!(world.error(&["tasks", "show", name]).1["code"], "TASK_NOT_FOUND", "{name}");
        assert_eq!(world.error(&["why", name]).1["code"], "TASK_NOT_FOUND", "{name}");
    }
    let (code, _) = world.error(&["tasks", "add", "after", "--depends-on", first.as_str()]);
    assert_eq!(code, 4, "no task can depend on it");
    let status = world.data(&["status"]).to_string();
    assert!(!status.contains("12345678"), "{status}");
    let page = world.data(&["sections", "show", "s"]);
    assert_eq!(page["tasks"], 0);
    let said = world.run(&["run", "--until-idle"]);
    assert!(said.stdout.contains("0 of 1 tasks"), "{said:?}");
    assert_eq!(world.lines("order"), Vec::<String>::new());
    world.check();

    // The sections and tasks that it refers to cannot be deleted.
    assert_eq!(world.error(&["sections", "delete", "s"]).1["code"], "SECTION_NOT_EMPTY");
    assert_eq!(world.error(&["tasks", "delete", &old]).1["code"], "TASK_HAS_DEPENDENTS");

    let runner = world.start(&["run"]);
    until("a runner is there", || !world.data(&["status"])["runners"].as_array().unwrap().is_empty());
    assert_eq!(steps.chunk(3, vec![task("four", None, &[])]), ImportOutcome::Open { added: 4 });
    assert!(matches!(steps.finish(), ImportOutcome::Finished(_)));
    until("the runner has heard of it", || world.lines("order").len() == 3);
    runner.stop();
    let titles: Vec<String> = listed(&world).into_iter().map(|(title, _)| title).collect();
    assert_eq!(titles, ["old", "one", "two", "three", "four"]);
    assert_eq!(world.data(&["sections", "show", "s"])["tasks"], 1);
    assert_eq!(steps.finish(), ImportOutcome::Unknown);
}

#[test]
fn changes_to_dependencies_before_the_finish_count() {
    let world = World::new();
    let add = |title: &str| TaskId::new(world.data(&["tasks", "add", title])["id"].as_str().unwrap()).unwrap();
    let (done, cancelled, later) = (add("done"), add("cancelled"), add("later"));
    world.ok(&["tasks", "done", "done"]);
    world.ok(&["tasks", "cancel", "cancelled"]);
    let project = world.project();
    let client = project.open().unwrap();
    let steps = Steps { client: &client, id: ImportId::new("i-12345678").unwrap() };
    steps.open(5, Vec::new());
    let mut allowed = task("d", None, std::slice::from_ref(&cancelled));
    allowed.1[0].allow_failed = true;
    let tasks = vec![
        task("a", None, std::slice::from_ref(&done)),
        task("b", None, &[done, later.clone()]),
        task("c", None, &[cancelled]),
        allowed,
        task("e", None, &[steps.id.task(0), later]),
    ];
    assert_eq!(steps.chunk(0, tasks), ImportOutcome::Open { added: 5 });
    world.ok(&["tasks", "done", "later"]);
    assert!(matches!(steps.finish(), ImportOutcome::Finished(_)));
    let statuses: Vec<String> = listed(&world).into_iter().skip(3).map(|(_, status)| status).collect();
    assert_eq!(statuses, ["pending", "pending", "blocked", "pending", "blocked"]);
    world.run(&["run", "--until-idle"]);
    let statuses: Vec<String> = listed(&world).into_iter().skip(3).map(|(_, status)| status).collect();
    assert_eq!(statuses, ["completed", "completed", "blocked", "completed", "completed"]);
}

#[test]
fn an_import_is_checked_inside_its_transactions() {
    let world = World::new();
    let project = world.project();
    let client = project.open().unwrap();
    let steps = Steps { client: &client, id: ImportId::new("i-12345678").unwrap() };
    let new = NewSection { id: SectionId::new("s-1").unwrap(), name: Title::new("new").unwrap() };
    let gone = TaskId::new("t-gone").unwrap();
    steps.open(1, vec![new.clone()]);
    assert_eq!(steps.open(1, Vec::new()), ImportOutcome::Taken);
    let other = SectionId::new("s-2").unwrap();
    assert_eq!(steps.chunk(0, vec![task("a", Some(&other), &[])]), ImportOutcome::UnknownSection(other));
    assert!(matches!(steps.chunk(0, vec![task("a", None, &[gone])]), ImportOutcome::Dependencies(..)));
    let beyond = steps.id.task(1);
    assert!(matches!(steps.chunk(0, vec![task("a", None, &[beyond])]), ImportOutcome::Dependencies(..)));
    assert_eq!(steps.chunk(0, vec![task("a", Some(&new.id), &[])]), ImportOutcome::Open { added: 1 });
    world.ok(&["sections", "add", "new"]);
    assert_eq!(steps.finish(), ImportOutcome::SectionTaken(new.name));

    // Only its importer may drop it, and others after the importer's death.
    let mut stranger = client.this_process().clone();
    stranger.pid += 1;
    let drop = ImportRequest::Drop { id: steps.id.clone(), by: stranger, seen: Seen::default() };
    assert_eq!(steps.ask(drop), ImportOutcome::InUse);
    assert_eq!(client.clear_imports().unwrap(), Vec::new());
    assert_eq!(steps.give_up(), ImportOutcome::Dropped);
    assert_eq!(steps.give_up(), ImportOutcome::Unknown);
    assert_eq!(listed(&world), Vec::new());
}

#[test]
fn a_store_is_not_copied_in_the_middle_of_an_import() {
    let world = World::on_sqlite().unchecked();
    let project = world.project();
    let client = project.open().unwrap();
    let steps = Steps { client: &client, id: ImportId::new("i-12345678").unwrap() };
    steps.open(1, Vec::new());
    steps.chunk(0, vec![task("a", None, &[])]);
    let (from, to) = (world.path().join(".banksman/store.db"), world.path().join("copy.db"));
    let copy = [&from, &to].map(|path| format!("sqlite:{}", path.display()));
    world.assert_refused(&["store", "copy", &copy[0], &copy[1]], 6, "STORE_IMPORTING");
    steps.finish();
    assert_eq!(world.data(&["store", "copy", &copy[0], &copy[1]])["tasks"], 1);
    assert_eq!(world.data(&["--store", &copy[1], "doctor"])["healthy"], true);
}

/// Starts a long import, and waits until a part of it is committed.
fn start_long(world: &World) -> Running {
    let text: String = (0..30_000).map(|number| format!("task {number},task {}\n", (number + 1) % 29_999)).collect();
    write(world, "long.csv", &format!("title,dependsOn\nlast,\n{}", text.replace(",task 0\n", ",last\n")));
    let running = world.start(&["tasks", "import", "long.csv"]);
    until("a chunk is committed", || open_imports(world).iter().any(|import| import.added > 0));
    running
}

#[test]
fn a_killed_import_leaves_no_visible_tasks() {
    let world = World::new();
    let import = start_long(&world);
    import.signal(Signal::KILL);
    assert_eq!(import.end().code, 128 + 9);
    let left = open_imports(&world);
    assert!(left[0].added > 0 && left[0].added < left[0].total, "{left:?}");
    assert_eq!(listed(&world), Vec::new());
    let status = world.data(&["status"]).to_string();
    assert!(!status.contains(&left[0].id.as_str()[2..]) && !status.contains("30000"), "{status}");
    world.ok(&["run", "--until-idle"]);

    write(&world, "small.md", "- [ ] small\n");
    world.ok(&["tasks", "import", "small.md"]);
    assert_eq!(open_imports(&world), Vec::new());
    // Remains of the killed import would be listed now.
    assert_eq!(listed(&world), [("small".into(), "pending".into())]);
}

#[test]
fn a_killed_import_is_complete_or_absent() {
    const SIZE: u32 = 2_000;
    let world = World::new();
    let text: String = (0..SIZE).map(|number| format!("- [ ] task {number}\n")).collect();
    write(&world, "tasks.md", &text);
    let mut finished = 0;
    for moment in [0, 500, 1_000, 1_500, SIZE, SIZE] {
        let mut import = world.start(&["tasks", "import", "tasks.md"]);
        let mut seen = false;
        while import.0.try_wait().unwrap().is_none() {
            let open = open_imports(&world);
            seen |= !open.is_empty();
            // Or the import is no longer open, because it was just finished.
            if open.iter().any(|import| import.added >= moment && import.added > 0) || (seen && open.is_empty()) {
                break;
            }
        }
        import.0.kill().unwrap();
        import.end();
        let shown = listed(&world).len();
        assert!(shown == finished || shown == finished + SIZE as usize, "{shown} are shown after {finished}");
        finished = shown;
        world.check();
        assert_eq!(listed(&world).len(), finished, "removed rows were not listed");
    }
}

#[test]
fn doctor_removes_the_rows_of_a_killed_import() {
    let world = World::new();
    let import = start_long(&world);
    import.signal(Signal::KILL);
    import.end();
    let said = world.ok(&["doctor"]);
    assert!(said.contains("was killed after") && said.contains("fix: banksman doctor --fix"), "{said}");
    assert_eq!(open_imports(&world).len(), 1, "without --fix nothing is changed");
    let said = world.ok(&["doctor", "--fix"]);
    assert!(said.contains("fixed: its tasks were removed"), "{said}");
    assert_eq!((open_imports(&world), listed(&world)), (Vec::new(), Vec::new()));
    let said = world.ok(&["doctor"]);
    assert!(said.contains("no unfinished imports"), "{said}");
}

#[test]
fn an_interrupted_import_leaves_nothing_behind() {
    let world = World::new();
    let import = start_long(&world);
    let said = import.interrupt();
    assert_eq!(said.code, 130, "{said:?}");
    assert_eq!((open_imports(&world), listed(&world)), (Vec::new(), Vec::new()));
    assert_eq!(world.events().last().unwrap().kind, "import:dropped");
}
