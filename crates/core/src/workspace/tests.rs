use super::*;
use crate::step::Effect;

fn owner() -> TaskId {
    TaskId::new("t-1").unwrap()
}

fn place() -> Place {
    Place::Worktree { path: "/w/t-1".into(), branch: "banksman/t-1".into(), base: "abc".into() }
}

fn at(state: Option<State>) -> Option<Workspace> {
    state.map(|state| Workspace { owner: owner(), host: "here".into(), place: place(), created: Wall(7), state })
}

fn begin(host: &str) -> Input {
    Input::Begin { host: host.into(), place: place() }
}

#[test]
fn every_input_in_every_state_has_one_outcome() {
    use State::{Creating, Ready, Removing};
    let elsewhere = || Outcome::Elsewhere { host: "here".into() };
    let table = [
        (None, begin("here"), Outcome::Create, Some(Creating)),
        (None, Input::Made, Outcome::Refused, None),
        (None, Input::Remove, Outcome::Refused, None),
        (None, Input::Keep, Outcome::Refused, None),
        (None, Input::Removed, Outcome::Refused, None),
        (Some(Creating), begin("here"), Outcome::Resume, Some(Creating)),
        (Some(Creating), begin("there"), elsewhere(), Some(Creating)),
        (Some(Creating), Input::Made, Outcome::Noted, Some(Ready)),
        (Some(Creating), Input::Remove, Outcome::Noted, Some(Removing)),
        (Some(Creating), Input::Keep, Outcome::Refused, Some(Creating)),
        (Some(Creating), Input::Removed, Outcome::Refused, Some(Creating)),
        (Some(Ready), begin("here"), Outcome::Use, Some(Ready)),
        (Some(Ready), begin("there"), elsewhere(), Some(Ready)),
        (Some(Ready), Input::Made, Outcome::Noted, Some(Ready)),
        (Some(Ready), Input::Remove, Outcome::Noted, Some(Removing)),
        (Some(Ready), Input::Keep, Outcome::Refused, Some(Ready)),
        (Some(Ready), Input::Removed, Outcome::Refused, Some(Ready)),
        (Some(Removing), begin("here"), Outcome::HalfRemoved, Some(Removing)),
        (Some(Removing), begin("there"), elsewhere(), Some(Removing)),
        (Some(Removing), Input::Made, Outcome::Refused, Some(Removing)),
        (Some(Removing), Input::Remove, Outcome::Noted, Some(Removing)),
        (Some(Removing), Input::Keep, Outcome::Noted, Some(Ready)),
        (Some(Removing), Input::Removed, Outcome::Noted, None),
    ];
    for (before, input, outcome, after) in table {
        let words = format!("{before:?} {input:?}");
        let stepped = step(&owner(), at(before), input, &Now { wall: Wall(7), ..Now::default() });
        assert_eq!((stepped.outcome, stepped.state.clone()), (outcome, at(after)), "{words}");
        // The row follows from the events alone.
        let replayed = stepped.effects.iter().fold(at(before), |row, effect| match effect {
            Effect::Emit(Event::Workspace { id, fact }) => apply(id, row, fact, Wall(7)),
            other => panic!("{words}: {other:?}"),
        });
        assert_eq!(replayed, stepped.state, "{words}");
    }
}

#[test]
fn the_stored_form_is_frozen() {
    let row = at(Some(State::Ready)).unwrap();
    let text = r#"{"host":"here","place":{"worktree":{"path":"/w/t-1","branch":"banksman/t-1","base":"abc"}},"created":7,"state":"ready"}"#;
    assert_eq!(serde_json::to_string(&row).unwrap(), text);
    assert_eq!(serde_json::to_string(&Place::Dir { path: "/d".into() }).unwrap(), r#"{"dir":{"path":"/d"}}"#);
}

#[test]
fn a_branch_is_named_after_the_task() {
    for (title, name) in [
        ("Add login", "banksman/t-1-add-login"),
        ("  Größe: (1/2) .. @{x}", "banksman/t-1-gr-e-1-2-x"),
        ("…", "banksman/t-1"),
        ("a word and many others which would make a very long name", "banksman/t-1-a-word-and-many-others-which-would-make"),
    ] {
        assert_eq!(branch_name(&owner(), title), name);
    }
}
