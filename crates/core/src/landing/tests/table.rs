//! Every state with every input: the next state, or that nothing changes.

use super::*;

/// The reports that lead an entry to each of its states.
fn scenes() -> Vec<(&'static str, Vec<Report>)> {
    let failure = Report::Obstructed(Obstacle::Failure { error: "e".into() });
    vec![
        ("queued", vec![]),
        ("checking", vec![built()]),
        ("failed once", vec![built(), checked(false)]),
        ("checking_target", vec![built(), checked(false), checked(false)]),
        ("passed", vec![built(), checked(true)]),
        ("waiting", vec![failure.clone()]),
        ("needs_you", vec![failure; 5]),
        ("landed", vec![built(), checked(true), Report::Moved { commit: commit(0xb0) }]),
    ]
}

fn inputs(id: &LandingId) -> Vec<(&'static str, Input)> {
    let other = commit(0xee);
    let report = |report| Input::Report(id.clone(), report);
    let tip = |tip, passed| report(Report::TipChecked { tip, passed, log: "log".into() });
    vec![
        ("built", report(built())),
        ("no change", report(Report::NoChange { tip: commit(0xa0) })),
        ("conflict", report(Report::Conflict { tip: commit(0xa0), files: vec!["a".into()] })),
        ("pass", report(checked(true))),
        ("fail", report(checked(false))),
        ("pass of another", report(Report::Checked { commit: other.clone(), passed: true, log: "log".into() })),
        ("tip green", tip(commit(0xa0), true)),
        ("tip red", tip(commit(0xa0), false)),
        ("another tip", tip(other.clone(), true)),
        ("moved", report(Report::Moved { commit: commit(0xb0) })),
        ("moved to another", report(Report::Moved { commit: other })),
        ("tip moved", report(Report::TipMoved)),
        ("failure", report(Report::Obstructed(Obstacle::Failure { error: "e".into() }))),
        ("remove", Input::Remove { entry: id.clone(), by: "ann".into() }),
        ("again", Input::Answer { entry: id.clone(), again: true }),
        ("give back", Input::Answer { entry: id.clone(), again: false }),
    ]
}

/// Columns: the states. `-` is late, `?` is unknown.
const TABLE: &str = "
input            | queued    | checking   | failed once     | checking_target | passed    | waiting   | needs_you | landed
built            | checking  | -          | -               | -               | -         | checking  | -         | ?
no change        | no_change | -          | -               | -               | -         | no_change | -         | ?
conflict         | returned  | -          | -               | -               | -         | returned  | -         | ?
pass             | -         | passed     | passed          | -               | -         | -         | -         | ?
fail             | -         | checking   | checking_target | -               | -         | -         | -         | ?
pass of another  | -         | -          | -               | -               | -         | -         | -         | ?
tip green        | -         | -          | -               | returned        | -         | -         | -         | ?
tip red          | -         | -          | -               | queued          | -         | -         | -         | ?
another tip      | -         | -          | -               | -               | -         | -         | -         | ?
moved            | -         | -          | -               | -               | landed    | -         | -         | ?
moved to another | -         | -          | -               | -               | -         | -         | -         | ?
tip moved        | -         | queued     | queued          | queued          | queued    | -         | -         | ?
failure          | waiting   | waiting    | waiting         | waiting         | waiting   | waiting   | -         | ?
remove           | removed   | removed    | removed         | removed         | -         | removed   | removed   | ?
again            | -         | -          | -               | -               | -         | -         | queued    | ?
give back        | -         | -          | -               | -               | -         | -         | returned  | ?
";

#[test]
fn every_state_answers_every_input() {
    let mut lines = TABLE.trim().lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let rows: BTreeMap<&str, Vec<&str>> = lines.map(|row| (row[0], row[1..].to_vec())).collect();
    for (column, (name, way)) in scenes().into_iter().enumerate() {
        assert_eq!(header[column + 1], name);
        let mut scene = Scene::new();
        let id = scene.add(spec(1));
        way.into_iter().for_each(|report| drop(scene.report(&id, report)));
        let all = inputs(&id);
        assert_eq!(all.len(), rows.len());
        for (word, input) in all {
            let mut after = scene.clone();
            let got = match after.step(input) {
                Outcome::Stands(entry) => entry.state.as_str(),
                Outcome::Late => "-",
                Outcome::Unknown => "?",
                other => panic!("{name}, {word}: {other:?}"),
            };
            assert_eq!(got, rows[word][column], "{name}, {word}");
            if matches!(got, "-" | "?") {
                assert_eq!((after.queue, after.log.len()), (scene.queue.clone(), scene.log.len()), "{name}, {word}");
            } else {
                after.check_replay();
            }
        }
    }
}

#[test]
fn pause_and_resume_are_idempotent() {
    let mut scene = Scene::new();
    let by = || "ann".into();
    assert_eq!(scene.step(Input::Resume { by: by() }), Outcome::Unchanged);
    assert_eq!(scene.step(Input::Pause { by: by() }), Outcome::Paused);
    assert_eq!(scene.step(Input::Pause { by: by() }), Outcome::Unchanged);
    assert_eq!(scene.step(Input::Resume { by: by() }), Outcome::Resumed);
    scene.check_replay();
}
