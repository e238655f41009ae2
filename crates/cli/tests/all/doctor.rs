//! `doctor --fix`: what is found stays until it is asked for, is repaired then, and is gone afterwards.

use crate::world::{World, until};

#[test]
fn fix_releases_what_the_dead_hold() {
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
