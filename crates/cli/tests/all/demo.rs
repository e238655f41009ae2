//! `demo`: its claims hold, and it leaves nothing behind.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{Running, World};

/// The demo, with a temporary directory of its own.
struct Stage {
    world: World,
    place: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        let world = World::empty();
        let place = world.path().join("demo");
        std::fs::create_dir(&place).unwrap();
        Stage { world, place }
    }

    fn demo(&self, args: &[&str]) -> Running {
        let mut command = self.world.command(&[&["demo"], args].concat());
        command.env("TMPDIR", &self.place).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        Running(command.spawn().unwrap())
    }

    /// Asserts that neither a directory nor a process is left.
    fn assert_nothing_is_left(&self) {
        assert_eq!(std::fs::read_dir(&self.place).unwrap().count(), 0, "the project is gone");
        let place = self.place.to_str().unwrap();
        let belongs = |pid: &String| {
            let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            directory.starts_with(&self.place) || String::from_utf8_lossy(&variables).contains(&format!("PROJECT={place}"))
        };
        let entries = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = entries.filter(|name| name.parse::<i32>().is_ok()).filter(belongs).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn the_checks_of_the_demo_hold() {
    let stage = Stage::new();
    let said = stage.demo(&["--json"]).end();
    let value: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    let data = &value["data"];
    assert_eq!((said.code, &data["holds"]), (0, &true.into()), "{:#}", data["checks"]);
    assert!(data["checks"].as_array().unwrap().iter().all(|check| check["holds"] == true));
    let tasks: Vec<&Value> = data["timeline"]["sections"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|section| section["tasks"].as_array().unwrap())
        .collect();
    assert_eq!((tasks.len(), tasks.iter().filter(|task| task["completed"] == true).count()), (16, 16));
    let count = |key: &str| tasks.iter().map(|task| task[key].as_array().unwrap().len()).sum::<usize>();
    assert_eq!((count("crashedAtMs"), count("restartedAtMs")), (1, 1));
    assert!(count("adoptedAtMs") >= 1, "{data:#}");
    stage.assert_nothing_is_left();
}

#[test]
fn the_demo_fits_80_columns_without_colours() {
    let stage = Stage::new();
    let said = stage.demo(&[]).end();
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert!(said.stdout.lines().all(|line| line.chars().count() <= 80 && !line.contains('\x1b')), "{}", said.stdout);
    assert_eq!(said.stdout.lines().filter(|line| line.starts_with("✓ ")).count(), 7, "{}", said.stdout);
    stage.assert_nothing_is_left();
}

#[test]
fn the_checks_of_the_landing_demo_hold() {
    let stage = Stage::new();
    let said = stage.demo(&["--git"]).end();
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert_eq!(said.stdout.lines().filter(|line| line.starts_with("✓ ")).count(), 6, "{}", said.stdout);
    assert!(said.stdout.contains('≈'), "the time in the merge queue is drawn: {}", said.stdout);
    stage.assert_nothing_is_left();
}

/// Interrupted once while a runner lives, and once while none does.
#[test]
fn an_interrupted_demo_cleans_up() {
    for moment in ["hides process", "kill -9 of the runner"] {
        let stage = Stage::new();
        let mut demo = stage.demo(&[]);
        let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(moment)), "{moment}");
        demo.signal(Signal::INT);
        assert_eq!(demo.0.wait().unwrap().code(), Some(130), "{moment}");
        stage.assert_nothing_is_left();
    }
}

#[test]
fn a_demo_without_a_reader_of_its_output_cleans_up() {
    let stage = Stage::new();
    let mut demo = stage.demo(&[]);
    drop(demo.0.stdout.take());
    assert_eq!(demo.0.wait().unwrap().code(), Some(0));
    stage.assert_nothing_is_left();
}
