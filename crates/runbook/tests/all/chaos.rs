//! Runbooks with random deletions and insertions: each is accepted or refused, with valid places, and nothing panics.

use std::fs;
use std::path::Path;

use banksman_runbook::parse;
use proptest::prelude::*;

/// The complete runbook, to be edited.
fn everything() -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/right");
    fs::read_to_string(dir.join("everything.toml")).unwrap()
}

/// Texts that replace other texts.
const PIECES: [&str; 16] = [
    "",
    "\"",
    "'''",
    "[",
    "]",
    "{",
    "}",
    "{{",
    "}}",
    "{% if",
    "=",
    "\n",
    "\u{0}",
    "漢",
    "[[pipeline.feature.phase]]\n",
    "999999999999",
];

fn edit(mut text: String, edits: &[(prop::sample::Index, u8, prop::sample::Index)]) -> String {
    for (at, length, piece) in edits {
        let near = |mut at: usize| {
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let start = near(at.index(text.len() + 1));
        let end = near((start + usize::from(*length)).min(text.len())).max(start);
        text.replace_range(start..end, PIECES[piece.index(PIECES.len())]);
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(edits in prop::collection::vec(any::<(prop::sample::Index, u8, prop::sample::Index)>(), 1..6)) {
        let text = edit(everything(), &edits);
        if let Err(wrong) = parse("chaos", &text, &|_| Ok("{{ branch }} {{ nothing }}".into())) {
            prop_assert!(!wrong.list.is_empty(), "refused without a diagnostic: {text}");
            for one in &wrong.list {
                let lines = one.elsewhere.as_ref().map_or(&*text, |(_, text)| text).split('\n').count();
                prop_assert!((1..=lines).contains(&one.line) && one.column >= 1, "{one:?}");
            }
            wrong.draw(true);
        }
    }
}
