//! Large runbooks: what is too large is refused at once, and what is not takes time in proportion.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "how long something takes is what is asked here")]

use std::fmt::Write;
use std::time::{Duration, Instant};

use banksman_runbook::{RUNBOOK_LIMIT, parse};

fn no_files(_: &str) -> Result<String, String> {
    Err("there are no files here".into())
}

/// A pipeline with so many phases, each with a guard, a template and a way back.
fn phases(count: usize) -> String {
    let mut text = String::from("[guard.g]\ncondition = { file_exists = \"a\" }\n\n[pipeline.p]\nvars = [\"a\"]\n");
    for index in 0..count {
        let back = index / 2;
        let phase = "[[pipeline.p.phase]]";
        write!(
            text,
            "{phase}\nname = \"n{index}\"\nargv = [\"{{{{ a }}}}\"]\npre = \"g\"\non_fail = {{ phase = \"n{back}\" }}\n"
        )
        .unwrap();
    }
    text
}

fn time(text: &str) -> Duration {
    let start = Instant::now();
    drop(std::hint::black_box(parse("large", text, &no_files)));
    start.elapsed()
}

#[test]
fn ten_times_the_phases_take_about_ten_times_as_long() {
    let (small, large) = (phases(1_000), phases(9_000));
    assert!(large.len() < RUNBOOK_LIMIT, "{}", large.len());
    parse("large", &large, &no_files).unwrap();
    // The best of a few: other tests run beside this one.
    let best = |text: &str| (0..5).map(|_| time(text)).min().unwrap();
    let (small, large) = (best(&small), best(&large));
    assert!(large < small * 9 * 3, "1,000 phases: {small:?}, 9,000: {large:?}");
}

/// Every phase is wrong in several ways.
#[test]
fn mistakes_take_time_in_proportion_too() {
    let wrong = phases(9_000).replace("\"g\"", "\"h\"").replace("{{ a }}", "{{ b }}").replace("phase = \"n", "phase = \"m");
    let start = Instant::now();
    let found = parse("large", &wrong, &no_files).unwrap_err();
    assert!(found.more > 20_000, "{}", found.more);
    found.draw(true);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn too_many_phases_are_refused() {
    let mut text = String::from("[pipeline.p]\n");
    (0..10_001).for_each(|index| write!(text, "[[pipeline.p.phase]]\nname=\"{index}\"\nrun=\"x\"\n").unwrap());
    let wrong = parse("large", &text, &no_files).unwrap_err();
    assert_eq!((wrong.list.len(), wrong.list[0].line), (1, 2 + 3 * 10_000));
}

#[test]
fn ten_megabytes_are_refused_before_they_are_read() {
    let text = "x".repeat(10_000_000);
    let start = Instant::now();
    let wrong = parse("large", &text, &no_files).unwrap_err();
    assert_eq!((wrong.list.len(), wrong.list[0].code.as_str()), (1, "too-large"));
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
}

/// Text that is meant to hurt a reader of TOML, or of this format.
#[test]
fn nothing_hangs_or_overflows() {
    let hurtful = [
        "[".repeat(500_000),
        format!("a = {}", "[".repeat(500_000)),
        format!("a = {}", "{a=".repeat(300_000)),
        format!("{}x = 1", "a.".repeat(400_000)),
        format!("[{}x]", "a.".repeat(400_000)),
        format!("[guard.g]\ncondition = {}{{}}", "{ not = ".repeat(10_000)),
        format!("[guard.g]\ncondition = {{ all = [{}] }}", "{ all = [] },".repeat(70_000)),
        "x = 1\n".repeat(150_000),
        format!("[pipeline.p]\nvars = [{}]", "\"a\",".repeat(200_000)),
        format!("[[pipeline.p.phase]]\nname = \"a\"\nargv = [{}]", "\"{{ x }}\",".repeat(90_000)),
        "\u{0}".repeat(100_000),
        "\"".repeat(1_000_000),
    ];
    for text in hurtful {
        let start = Instant::now();
        let wrong = parse("hurtful", &text, &no_files).unwrap_err();
        wrong.draw(true);
        assert!(start.elapsed() < Duration::from_secs(20), "{:.40} took {:?}", text, start.elapsed());
    }
}
