//! `--json` of every verb: the envelope, and the data as it was recorded.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::postgres;
use crate::reference::commands;
use crate::world::World;

mod failures;
mod recorded;
mod stories;

/// The first difference between a value and a shape. A shape is a type such as `"string"` or `"number?"` (which may be null), an object of
/// shapes, or an array with the shape of its items; an empty array may hold any.
fn mismatch(shape: &Value, value: &Value, at: &str) -> Option<String> {
    match (shape, value) {
        (Value::Object(shapes), Value::Object(fields)) => {
            let names = |keys: serde_json::map::Keys| keys.cloned().collect::<BTreeSet<_>>();
            if names(shapes.keys()) != names(fields.keys()) {
                return Some(format!("{at} has {:?}, not {:?}", names(fields.keys()), names(shapes.keys())));
            }
            shapes.iter().find_map(|(name, shape)| mismatch(shape, &fields[name], &format!("{at}.{name}")))
        }
        (Value::Array(shapes), Value::Array(items)) => {
            let shape = shapes.first()?;
            items.iter().enumerate().find_map(|(index, item)| mismatch(shape, item, &format!("{at}[{index}]")))
        }
        (Value::String(kind), value) => {
            let fits = match (kind.trim_end_matches('?'), value) {
                ("any", _) => true,
                ("string", Value::String(_)) | ("number", Value::Number(_)) | ("bool", Value::Bool(_)) => true,
                ("time", Value::String(text)) => text.ends_with('Z') && text.contains('T'),
                (_, Value::Null) => kind.ends_with('?'),
                _ => false,
            };
            (!fits).then(|| format!("{at} is {value}, not {kind}"))
        }
        (shape, value) => Some(format!("{at} is {value}, not {shape}")),
    }
}

pub(crate) fn check(shape: &Value, value: &Value, what: &str) {
    assert_eq!(mismatch(shape, value, "data"), None, "{what}");
}

/// The shape of the demo's data, which differs from run to run and cannot be recorded.
fn demo() -> Value {
    json!({
        "holds": "bool",
        "checks": [{ "check": "string", "holds": "bool", "text": "string", "problems": ["string"] }],
        "timeline": {
            "lengthMs": "number",
            "killedAtMs": "number",
            "runners": [{ "name": "string", "fromMs": "number", "toMs": "number" }],
            "sections": [{ "name": "string", "exclusive": "bool", "tasks": [{
                "id": "string", "title": "string", "child": "bool", "completed": "bool",
                "segments": [{ "state": "string", "fromMs": "number", "toMs": "number" }],
                "crashedAtMs": ["number"], "adoptedAtMs": ["number"], "restartedAtMs": ["number"],
            }] }],
            "slots": [{ "fromMs": "number", "used": "number" }],
            "capacity": "number",
        },
    })
}

/// Commands that leave stdout to the command that they run.
const PASS_THROUGH: [&str; 6] = ["top", "sessions attach", "locks run", "semaphores run", "workspaces open", "tasks open"];

/// Commands that need two stores, a SQLite store, a live run, a decision, or a worktree: their data is checked in `relocation.rs`,
/// `backup.rs`, `tasks.rs`, `decisions.rs`, `landing.rs`, `worktrees.rs`, `agents.rs` and `config.rs`. Short forms print the same data.
const ELSEWHERE: [&str; 32] = [
    "mailbox read",
    "sessions send",
    "agents check",
    "agents retry",
    "agents show",
    "do",
    "config unset",
    "logs",
    "ls",
    "ps",
    "sessions nudge",
    "store copy",
    "store backup",
    "tasks ask",
    "tasks heartbeat",
    "decisions show",
    "decisions resolve",
    "workspaces list",
    "workspaces show",
    "workspaces diff",
    "workspaces remove",
    "workspaces prune",
    "recover list",
    "recover show",
    "recover restore",
    "tasks diff",
    "land",
    "landing list",
    "landing show",
    "landing pause",
    "landing resume",
    "landing remove",
];

#[test]
fn every_verb_prints_its_recorded_data() {
    let (main, queues, crew, ways) = (World::empty(), World::new(), World::new(), World::new());
    std::fs::write(main.path().join("none.md"), "- [x] This is done already.\n").unwrap();
    crate::runbooks::write(&queues, "good", crate::runbooks::GOOD);
    crate::runbooks::write(&queues, "guarded", stories::GUARDED);
    crate::runbooks::write(&crew, "crew", stories::CREW);
    crate::runbooks::write(&ways, "ways", stories::WAYS);
    let all = [
        (&main, [stories::GENERAL, stories::BACKLOG, stories::INSIGHT].concat()),
        (&queues, [stories::QUEUES, stories::RUNBOOKS, stories::GUARDS].concat()),
        (&crew, stories::WORKERS.to_vec()),
        (&ways, stories::PIPELINES.to_vec()),
    ];
    let commands = commands();
    let (mut checked, mut recorded) = (BTreeSet::new(), String::new());
    for (world, args) in all.iter().flat_map(|(world, lines)| lines.iter().map(move |args| (world, *args))) {
        let said = world.run(&[args, &["--json"]].concat());
        let envelope: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{args:?}: {said:?}"));
        assert_eq!((said.code, said.stdout.lines().count(), said.stderr.as_str()), (0, 1, ""), "{args:?}: {said:?}");
        let command =
            (1..=2).rev().map(|words| args[..words.min(args.len())].join(" ")).find(|name| commands.contains(name)).unwrap();
        assert_eq!(envelope, json!({ "success": true, "command": command, "data": envelope["data"] }));
        match command.as_str() {
            "demo" => check(&demo(), &envelope["data"], "demo"),
            _ => recorded::record(&mut recorded, args, &envelope["data"]),
        }
        checked.insert(command);
    }
    // On PostgreSQL other fields of a store are null.
    insta::assert_snapshot!(if postgres::wanted() { "verbs_on_postgres" } else { "verbs" }, recorded);
    checked.extend(PASS_THROUGH.iter().chain(&ELSEWHERE).map(|name| (*name).to_owned()));
    // A noun is no command of its own, except `events`.
    let is_noun = |name: &String| name != "events" && commands.iter().any(|verb| verb.starts_with(&format!("{name} ")));
    checked.extend(commands.iter().filter(|name| is_noun(name)).cloned());
    assert_eq!(checked, commands.into_iter().collect(), "a verb that is not recorded, or an unknown one");
    main.check();
}

#[test]
fn locks_run_leaves_stdout_to_its_command() {
    let world = World::new();
    world.ok(&["semaphores", "define", "gpu", "--capacity", "1"]);
    for noun in ["locks", "semaphores"] {
        assert_eq!(world.ok(&[noun, "run", "gpu", "--json", "--", "echo", "mine"]), "mine\n");
    }
}

#[test]
fn hints_can_be_pasted_into_a_shell() {
    let world = World::new();
    let said = world.ok(&["locks", "acquire", "my lock", "--holder", "it's me"]);
    let hint = said.lines().find_map(|line| line.strip_prefix("release it with: banksman ")).unwrap();
    assert_eq!(hint, r"locks release 'my lock' --holder 'it'\''s me' --epoch 1");
    let script = format!("{} {hint}", crate::world::BANKSMAN);
    let done = world.clean(std::process::Command::new("sh"), &["-c", &script]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let (_, error) = world.error(&["semaphores", "acquire", "a b"]);
    assert_eq!(error["hint"], "define it with: banksman semaphores define 'a b' --capacity N");
}
