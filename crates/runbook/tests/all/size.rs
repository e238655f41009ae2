//! Large runbooks: too large ones are refused at once, and the others take time in proportion to their size.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "these tests measure time")]

use std::fmt::Write;
use std::time::{Duration, Instant};

use banksman_runbook::{RUNBOOK_LIMIT, parse};
use rustix::time::{ClockId, clock_gettime};

fn no_files(_: &str) -> Result<String, String> {
    Err("there are no files here".into())
}

/// A pipeline with this many phases, each with a guard, a template and a step back.
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

/// Processor time, which other programs do not prolong.
fn time(text: &str) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
    };
    let start = now();
    let drawn = parse("large", text, &no_files).err().map(|wrong| wrong.draw(true));
    drop(std::hint::black_box(drawn));
    now() - start
}

/// The best of three, because other tests run at the same time.
fn best(text: &str) -> Duration {
    (0..3).map(|_| time(text)).min().unwrap()
}

#[test]
fn nine_times_the_phases_take_about_nine_times_as_long() {
    let (small, large) = (phases(1_000), phases(9_000));
    assert!(large.len() < RUNBOOK_LIMIT, "{}", large.len());
    parse("large", &large, &no_files).unwrap();
    let (small, large) = (best(&small), best(&large));
    assert!(large < small * 9 * 3, "1,000 phases: {small:?}, 9,000: {large:?}");
}

/// Every phase is wrong in several ways.
#[test]
fn the_time_for_errors_grows_with_their_number() {
    let wrong = |count: usize| {
        let text = phases(count);
        text.replace("\"g\"", "\"h\"").replace("{{ a }}", "{{ b }}").replace("phase = \"n", "phase = \"m")
    };
    let found = parse("large", &wrong(4_500), &no_files).unwrap_err();
    assert!(found.more > 10_000, "{}", found.more);
    let (small, large) = (best(&wrong(500)), best(&wrong(4_500)));
    assert!(large < small * 9 * 3, "500 wrong phases: {small:?}, 4,500: {large:?}");
}

#[test]
fn too_many_phases_are_refused() {
    let mut text = String::from("[pipeline.p]\n");
    (0..10_001).for_each(|index| write!(text, "[[pipeline.p.phase]]\nname=\"{index}\"\nrun=\"x\"\n").unwrap());
    let wrong = parse("large", &text, &no_files).unwrap_err();
    assert_eq!((wrong.list.len(), wrong.list[0].line), (1, 2 + 3 * 10_000));
}

#[test]
fn ten_megabytes_are_refused_without_parsing() {
    let text = "x".repeat(10_000_000);
    let wrong = parse("large", &text, &no_files).unwrap_err();
    assert_eq!((wrong.list.len(), wrong.list[0].code.as_str()), (1, "too-large"));
}

/// Texts that are hard for a TOML parser, or for this format.
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
        assert!(start.elapsed() < Duration::from_secs(60), "{:.40} took {:?}", text, start.elapsed());
    }
}
