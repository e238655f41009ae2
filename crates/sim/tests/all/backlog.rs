//! Whole backlogs survive every fault.

use banksman_sim::backlog::{run, run_twice};
use banksman_sim::{Options, Tally};

fn assert_holds(seed: u64) -> Tally {
    let report = run(seed, Options::default(), None);
    let violation = report.violation;
    let what = violation.as_ref().map(ToString::to_string).unwrap_or_default();
    let replay = format!("cargo run -p banksman-sim -- --world backlog --seed {seed}");
    assert!(violation.is_none(), "seed {seed}: {what}\nreplay it with: {replay}");
    report.tally
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in 100..103 {
        assert_eq!(run_twice(seed, Options::default()).violation, None, "seed {seed}");
    }
    let hash = |seed| run(seed, Options::default(), None).hash;
    assert_ne!(hash(500), hash(501), "another seed is another history");
}

/// On these seeds every kind of trouble comes up: a simulation in which nothing happens proves nothing.
#[test]
fn fixed_seeds_keep_every_promise() {
    // An outbox command that fails five times is rare, and so is a phase that goes on after a question.
    let seeds: Vec<u64> = (0..60).chain([139, 163, 194]).collect();
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let parts: Vec<_> = seeds
            .chunks(seeds.len().div_ceil(4))
            .map(|part| scope.spawn(|| part.iter().map(|seed| assert_holds(*seed)).collect::<Vec<Tally>>()))
            .collect();
        for part in parts {
            part.join().expect("what went wrong was told").iter().for_each(|each| tally.add(each));
        }
    });
    for what in [
        "DONE found",
        "DONE made",
        "a directory as DONE",
        "adoptions",
        "again: failed",
        "again: lost",
        "again: never began",
        "again: no verdict",
        "again: shortage",
        "again: stuck",
        "again: took too long",
        "answers refused",
        "attempts of loops",
        "buried",
        "cancelled",
        "changes outside",
        "checkpoints",
        "children cancelled",
        "circles refused",
        "completed",
        "failed",
        "fault: bell not heard",
        "fault: commit unknown, done",
        "fault: commit unknown, undone",
        "fault: crash after commit",
        "fault: end reported again",
        "fault: keeper killed",
        "fault: keeper stopped",
        "fault: people not told",
        "fault: program killed",
        "fault: read failed",
        "fault: reboot",
        "fault: replies lost",
        "fault: runner killed",
        "fault: runner stalled",
        "fault: runner told to end",
        "fault: shortage",
        "fault: shell killed",
        "fault: wake-up late",
        "fault: wake-up lost",
        "fault: wall clock set",
        "held by hand",
        "hidden processes ended",
        "items pushed by phases",
        "keepers refused",
        "kills",
        "looks at guards",
        "looks from a line",
        "nudged",
        "parked",
        "people told",
        "pipeline:blocked",
        "pipeline:cancelled",
        "pipeline:complete",
        "pipeline:failed",
        "pipeline:phase_failed",
        "pipeline:resumed",
        "pipeline:retry",
        "pipeline:unblocked",
        "pipeline:warned",
        "pipelines over at the end",
        "pulses",
        "questions about errands",
        "questions about tasks",
        "questions answered",
        "questions withdrawn",
        "queue:complete",
        "queue:dead",
        "queue:fail",
        "queue:paused",
        "queue:purged",
        "reactions",
        "recovered",
        "results told by sessions",
        "roots admitted",
        "route:notified",
        "route:removed",
        "runners done",
        "runs under a kept lock",
        "sessions adopted",
        "sessions that hang",
        "slots given back",
        "stopped: escalate",
        "stopped: overtime",
        "stopped: restart",
        "strategy:exhausted",
        "strategy:fallback",
        "sweeps",
        "waits for its children",
        "worker:asleep",
        "worker:end",
        "worker:paused",
        "worker:removed",
        "worker:take",
        "worker:woken",
    ] {
        assert!(tally.get(what) > 0, "{what} never happened: {tally:?}");
    }
}
