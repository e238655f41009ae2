//! `doctor --fix` repairs findings; without it, doctor changes nothing.

use crate::postgres::{self, Server};
use crate::world::{World, until};

#[test]
fn fix_releases_locks_of_dead_processes() {
    let world = World::new();
    let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    world.ok(&["locks", "acquire", "left", "--pid", &sleeper.id().to_string(), "--holder", "d"]);
    world.ok(&["locks", "acquire", "kept", "--pid", &std::process::id().to_string(), "--holder", "l"]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let holders = |args: &[&str]| {
        let checks = world.data(args)["checks"].clone();
        checks.as_array().unwrap().iter().find(|check| check["check"] == "holders").unwrap().clone()
    };
    until("the death is noticed", || holders(&["doctor"])["verdict"] == "note");
    let found = holders(&["doctor"]);
    assert_eq!(found["entries"][0]["fix"], "banksman doctor --fix", "{found}");
    assert!(world.holder("left").is_some(), "without --fix nothing is changed");
    let fixed = holders(&["doctor", "--fix"]);
    assert_eq!((&fixed["verdict"], &fixed["entries"][0]["fixed"]), (&"fixed".into(), &"released".into()), "{fixed}");
    assert!(world.holder("left").is_none() && world.holder("kept").is_some());
    assert_eq!(holders(&["doctor"])["verdict"], "ok");
}

#[test]
fn doctor_reports_the_free_connections_of_the_server() {
    let server_of = |world: &World| {
        let checks = world.data(&["doctor"])["checks"].clone();
        checks.as_array().unwrap().iter().find(|check| check["check"] == "server").cloned()
    };
    assert_eq!(server_of(&World::on_sqlite()), None, "there is no server");
    let roomy = World::at(postgres::fresh_database());
    roomy.ok(&["init"]);
    assert_eq!(server_of(&roomy).unwrap()["verdict"], "ok");

    let small = Server::start_with(|_| vec!["max_connections=12".into()]);
    let world = World::at(small.url("postgres"));
    world.ok(&["init"]);
    let found = server_of(&world).unwrap();
    let said = found["findings"][0].as_str().unwrap();
    assert!(said.contains("of 9 connections are left") && said.ends_with("0 % full"), "{said}");
    assert_eq!(found["verdict"], "note");
}
