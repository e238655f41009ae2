//! `tasks list`: filters, and pages of a long list.

use banksman_core::Label;
use serde_json::{Value, json};

use crate::crashes::add;
use crate::world::World;

fn titles(data: &Value) -> Vec<&str> {
    data["tasks"].as_array().unwrap().iter().map(|task| task["title"].as_str().unwrap()).collect()
}

#[test]
fn filters_are_combined() {
    let world = World::new();
    world.ok(&["sections", "add", "back end"]);
    for args in [
        &["Über das Meer", "--label", "urgent", "--label", "sea", "--section", "back end"][..],
        &["Fails", "--run", "false", "--label", "urgent"],
        &["100% done", "--run", "true"],
        &["Waits", "--run", "true", "--depends-on", "Fails"],
        &["Has a child", "--run", "$BANKSMAN tasks add 'The child' --child --label sea"],
    ] {
        world.ok(&[&["tasks", "add"], args].concat());
    }
    let runner = world.command(&["run", "--until-idle", "--quiet"]).env("BANKSMAN", crate::world::BANKSMAN).output().unwrap();
    assert_eq!(runner.status.code(), Some(7), "{runner:?}");
    let listed = |args: &[&str]| {
        let data = world.data(&[&["tasks", "list"], args].concat());
        assert_eq!(data["next"], Value::Null);
        titles(&data).join("; ")
    };
    assert_eq!(listed(&["--status", "failed"]), "Fails");
    assert_eq!(listed(&["--status", "failed,blocked"]), "Fails; Waits");
    assert_eq!(listed(&["--status", "failed", "--status", "completed"]), "Fails; 100% done; Has a child");
    assert_eq!(listed(&["--status", "pending"]), "Über das Meer; The child", "what is blocked is not pending");
    assert_eq!(listed(&["--status", "in_progress,stuck,review,skipped"]), "");
    assert_eq!(listed(&["--label", "urgent"]), "Über das Meer; Fails");
    assert_eq!(listed(&["--label", "urgent", "--label", "sea"]), "Über das Meer");
    assert_eq!(listed(&["--section", "back end"]), "Über das Meer");
    assert_eq!(listed(&["--parent", "Has a child"]), "The child");
    assert_eq!(listed(&["--search", "ÜBER"]), "Über das Meer");
    assert_eq!(listed(&["--search", "%"]), "100% done");
    assert_eq!(listed(&["--search", "a", "--status", "failed,blocked,pending", "--label", "urgent"]), "Über das Meer; Fails");
    let said = world.run(&["tasks", "list", "--status", "failed,open"]);
    assert!(said.code == 2 && said.stderr.contains("valid values: pending, blocked"), "{said:?}");
}

#[test]
fn a_long_list_is_read_page_by_page() {
    let world = World::new();
    let client = world.project().open().unwrap();
    let odd = Label::new("it's odd").unwrap();
    for number in 0..230 {
        let labels = if number % 2 == 1 { vec![odd.clone()] } else { Vec::new() };
        add(&client, &format!("n {number}"), "true", |spec| spec.labels = labels);
    }
    assert_eq!(titles(&world.data(&["tasks", "list"])).len(), 230, "programs get all of them");

    let (mut seen, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let data = world.data(&["tasks", "list", "--limit", "50", "--after", &after, "--label", "it's odd"]);
        seen.extend(titles(&data).into_iter().map(str::to_owned));
        match &data["next"] {
            Value::Null => break,
            next => after = next.to_string(),
        }
    }
    assert_eq!(seen, (0..115).map(|half| format!("n {}", 2 * half + 1)).collect::<Vec<_>>());
    let exact = world.data(&["tasks", "list", "--limit", "230"]);
    assert_eq!(exact["next"], json!(null), "the last page says so");

    // For people the output names the command for the next page, which works as printed.
    let lines = |text: &str| text.lines().count() - 1;
    let mut said = world.run(&["tasks", "list", "--label", "it's odd"]);
    assert_eq!(lines(&said.stdout), 100);
    let command = said.stderr.strip_prefix("next page: banksman ").unwrap().trim_end().to_owned();
    assert!(command.starts_with(r"tasks list --label 'it'\''s odd' --after "), "{command}");
    let shell = world.clean(std::process::Command::new("sh"), &["-c", &format!("{} {command}", crate::world::BANKSMAN)]).output();
    said = shell.unwrap().into();
    assert_eq!((lines(&said.stdout), &*said.stderr), (15, ""));
    assert_eq!(lines(&world.ok(&["tasks", "list", "--all"])), 230);
    assert_eq!(world.run(&["tasks", "list", "--all", "--limit", "3"]).code, 2);
    assert!(world.run(&["tasks", "list", "--limit", "3"]).stderr.contains("tasks list --limit 3 --after "));
}

#[test]
fn tasks_are_found_by_inexact_names() {
    let world = World::new();
    for title in ["Build the release", "Run the tests", "Run the linters", "Copy a, b and c"] {
        world.ok(&["tasks", "add", title]);
    }
    let title = |name: &str| world.data(&["tasks", "show", name])["title"].as_str().unwrap().to_owned();
    assert_eq!(title("build THE release"), "Build the release");
    assert_eq!(title("linters"), "Run the linters");
    assert_eq!(title("release"), "Build the release");
    let (code, error) = world.error(&["tasks", "show", "run the"]);
    let message = error["message"].as_str().unwrap();
    assert!(code == 2 && message.contains("(Run the tests)") && message.contains("(Run the linters)"), "{error}");
    let (code, error) = world.error(&["tasks", "show", "Biuld the release"]);
    assert_eq!((code, error["hint"].as_str()), (4, Some("did you mean 'Build the release'?")), "{error}");
    // The name is no pattern.
    assert_eq!(world.error(&["tasks", "show", "%"]).0, 4);
    world.ok(&["tasks", "add", "After", "--depends-on", "Copy a, b and c"]);
    assert_eq!(world.data(&["ls", "--search", "after"])["tasks"].as_array().unwrap().len(), 1);
}
