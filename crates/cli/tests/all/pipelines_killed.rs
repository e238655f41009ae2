//! Pipelines whose runners are killed: no phase is lost and none is repeated.

use serde_json::json;

use crate::dice::Dice;
use crate::pipelines::{begun, way};
use crate::world::{World, until};

#[test]
fn a_runner_killed_in_any_phase_loses_and_repeats_no_phase() {
    let phase = |name: &str| {
        let line = format!("echo {name} >> out; while [ ! -e go-{name} ]; do sleep 0.02; done; echo \"{{\\\"n\\\": 1}}\"");
        format!("run = '{line}'\noutput = [\"n\"]")
    };
    let (world, id) = begun(&way(&[("one", &phase("one")), ("two", &phase("two")), ("three", &phase("three"))]));
    for (number, name) in ["one", "two", "three"].iter().enumerate() {
        let runner = world.runner(&[]);
        until(&format!("{name} runs"), || world.lines("out").len() == number + 1);
        runner.kill();
        // The phase ends while there is no runner.
        world.touch(&format!("go-{name}"));
    }
    assert_eq!(world.run_all(), 0);
    assert_eq!(world.lines("out"), ["one", "two", "three"], "nothing ran twice");
    let page = world.pipeline(&id);
    assert_eq!(
        (&page["state"], &page["vars"]),
        (&json!("done"), &json!({ "one": { "n": 1 }, "two": { "n": 1 }, "three": { "n": 1 } }))
    );
}

#[test]
fn runners_killed_at_any_moment_lose_and_repeat_no_phase() {
    const PIPELINES: usize = 10;
    let world = World::new();
    let note = "run = 'echo \"$BANKSMAN_PIPELINE $BANKSMAN_PHASE\" >> out; echo \"{\\\"last\\\": \\\"$BANKSMAN_PHASE\\\"}\"'";
    let send = "push = \"q\"";
    let quiet = format!("{note}\npre = \"quiet\"");
    let phases = way(&[("one", note), ("two", &quiet), ("three", send), ("four", note)]);
    world.book(&format!("{phases}\n[queue.q]\n[guard.quiet]\ncondition = {{ lock_free = \"deploy\" }}\n"));
    let ids: Vec<String> = (0..PIPELINES).map(|_| world.begin(&[])).collect();
    let mut dice = Dice(7);
    let is_done = || world.data(&["pipelines", "list", "--state", "done"])["pipelines"].as_array().unwrap().len() == PIPELINES;
    let mut runners = vec![world.runner(&[]), world.runner(&[])];
    for _ in 0..8 {
        // After this many more lines one of the runners is killed, whatever it is doing.
        let wanted = world.lines("out").len() + usize::try_from(dice.roll(4)).unwrap();
        until("there is progress", || world.lines("out").len() >= wanted || is_done());
        let victim = runners.remove(usize::try_from(dice.roll(2)).unwrap());
        victim.kill();
        runners.push(world.runner(&[]));
    }
    until("all are through", is_done);
    drop(runners);
    let mut lines = world.lines("out");
    let mut expected: Vec<String> =
        ids.iter().flat_map(|id| ["one", "two", "four"].map(|phase| format!("{id} {phase}"))).collect();
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected, "each phase once");
    assert_eq!(world.data(&["queues", "show", "q"])["ready"], PIPELINES, "each item once");
}
