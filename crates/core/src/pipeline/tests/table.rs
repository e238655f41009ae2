//! A table of every state with every input.

use super::*;

/// A phase with retries; one with guards and a strategy, from which it goes back; one that pushes.
fn way() -> Vec<Phase> {
    let approaches = vec![approach("a", vec![Fallback::Error("boom".into()), Fallback::Timeout]), approach("b", Vec::new())];
    let check = Phase {
        action: strategy(approaches),
        pre: vec![guard("g")],
        post: vec![guard("h")],
        on_fail: OnFail::Phase { to: name("build"), times: 1 },
        ..phase("check")
    };
    let build = Phase { on_fail: OnFail::Retry { times: 1 }, ..phase("build") };
    vec![build, check, Phase { action: push(), ..phase("send") }]
}

const STATES: [&str; 18] = [
    "init",
    "dependencies",
    "running",
    "running, last try",
    "parked",
    "checking pre",
    "blocked pre",
    "blocked pre, due",
    "approach a",
    "approach b",
    "approach a, last",
    "checking post",
    "blocked post",
    "pushing",
    "done",
    "failed",
    "failed for good",
    "cancelled",
];

fn block(guard: &str, again: Lease) -> GuardsResult {
    GuardsResult::Block { guard: name(guard), part: "part".into(), again, asks_outside: false }
}

type Act = fn(&mut Site) -> Outcome;

fn start(site: &mut Site) -> Outcome {
    site.ask(Input::Start { unmet: false })
}

fn begin(site: &mut Site) -> Outcome {
    site.ask(Input::Begin)
}

fn well(site: &mut Site) -> Outcome {
    site.end(success(Value::Null))
}

fn badly(site: &mut Site) -> Outcome {
    site.end(failed("no"))
}

fn pass(site: &mut Site) -> Outcome {
    site.report_guards(passed())
}

fn fail(site: &mut Site) -> Outcome {
    site.report_guards(GuardsResult::Fail { guard: name("g"), message: "no".into(), part: "part".into() })
}

fn cancel(site: &mut Site) -> Outcome {
    site.ask(Input::Cancel)
}

/// The steps that lead to a state.
fn path(state: &str) -> &'static [Act] {
    match state {
        "dependencies" => &[|site| site.ask(Input::Start { unmet: true })],
        "init" => &[start],
        "running" => &[start, begin],
        "running, last try" => &[start, begin, badly],
        "parked" => &[start, begin, |site| {
            site.ask(Input::AwaitingDecision { task: child(1), decision: Some(DecisionId::new("d-1").unwrap()) })
        }],
        "checking pre" => &[start, begin, well],
        "blocked pre" => &[start, begin, well, |site| site.report_guards(block("g", Lease(9_000)))],
        "blocked pre, due" => &[start, begin, well, |site| {
            let outcome = site.report_guards(block("g", Lease(1_500)));
            site.pass(500);
            outcome
        }],
        "approach a" => &[start, begin, well, pass],
        "approach b" => &[start, begin, well, pass, |site| site.end(failed("boom"))],
        "approach a, last" => &[start, begin, well, pass, badly, well, pass],
        "checking post" => &[start, begin, well, pass, well],
        "blocked post" => &[start, begin, well, pass, well, |site| site.report_guards(block("h", Lease(9_000)))],
        "pushing" => &[start, begin, well, pass, well, pass],
        "done" => &[start, begin, well, pass, well, pass, |site| site.ask(Input::Pushed { phase: name("send"), error: None })],
        "failed" => &[start, begin, badly, badly],
        "failed for good" => &[start, begin, well, fail, well, fail],
        "cancelled" => &[start, begin, well, cancel],
        other => panic!("{other}"),
    }
}

fn in_state(state: &str) -> Site {
    let mut site = Site::blank(way());
    path(state).iter().for_each(|act| drop(act(&mut site)));
    site
}

fn inputs(site: &Site) -> Vec<(&'static str, Input)> {
    let task = site.pipeline.task().cloned().unwrap_or_else(|| child(1));
    let ended = |end| Input::Ended { task: task.clone(), end, runs: 1 };
    let checked = |phase: &str, when, verdict| Input::Checked { phase: name(phase), when, verdict, at: Seq(1) };
    let fail = GuardsResult::Fail { guard: name("g"), message: "no".into(), part: "part".into() };
    let late = PhaseEnd::Failed { error: "slow".into(), tail: "".into(), timed_out: true };
    let loud = PhaseEnd::Failed { error: "exit 1".into(), tail: "boom!".into(), timed_out: false };
    let decision = DecisionId::new("d-2").unwrap();
    vec![
        ("start", Input::Start { unmet: false }),
        ("start, unmet", Input::Start { unmet: true }),
        ("begin", Input::Begin),
        ("examine", Input::BeginCheck { by: runner("m"), is_free: false, heard: Seq(0) }),
        ("looked", Input::EndCheck { by: runner("m") }),
        ("pre pass", checked("check", When::Pre, passed())),
        (
            "pre warn",
            checked("check", When::Pre, GuardsResult::Pass { warnings: vec![(name("w"), "part".into())], recheck: None }),
        ),
        ("pre block", checked("check", When::Pre, block("g", Lease(9_000)))),
        ("pre fail", checked("check", When::Pre, fail.clone())),
        ("post pass", checked("check", When::Post, passed())),
        ("post block", checked("check", When::Post, block("h", Lease(9_000)))),
        ("post fail", checked("check", When::Post, fail)),
        ("other guards", checked("build", When::Pre, passed())),
        ("no such phase", checked("nowhere", When::Pre, passed())),
        ("well", ended(success(json!({ "a": 1 })))),
        ("badly", ended(failed("no"))),
        ("badly, a reason", ended(loud)),
        ("too slow", ended(late)),
        ("dropped", ended(PhaseEnd::Dropped { how: "skipped".into() })),
        ("other task", Input::Ended { task: child(99), end: success(Value::Null), runs: 1 }),
        ("park", Input::AwaitingDecision { task: task.clone(), decision: Some(decision) }),
        ("unpark", Input::AwaitingDecision { task: task.clone(), decision: None }),
        ("pushed", Input::Pushed { phase: name("send"), error: None }),
        ("not pushed", Input::Pushed { phase: name("send"), error: Some("full".into()) }),
        ("unclear", Input::Unclear { task: task.clone(), error: "no such variable".into() }),
        ("look", Input::Poll),
        ("unblock", Input::Unblock { by: None }),
        ("retry", Input::Retry),
        ("cancel", Input::Cancel),
        ("set", Input::Set(vars(json!({ "b": 2 })))),
        ("checkpoint", Input::Checkpoint("half".into())),
    ]
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Begin(task) => format!("begin {}", task.as_str().rsplit('.').next().unwrap()),
        Outcome::Refused(refusal) => {
            let text = format!("{refusal:?}");
            format!("refused: {}", text.split(['(', ' ']).next().unwrap())
        }
        other => format!("{other:?}").to_lowercase(),
    }
}

/// A state in a few words: the phase, the approach, the attempt if it is not the first.
fn letters(pipeline: &Pipeline) -> String {
    let phase = pipeline.phase().map_or("-", Name::as_str);
    let detail = match &pipeline.state {
        State::Running { approach, task, .. } => {
            let task = task.as_ref().map_or("-", |task| task.as_str().rsplit('.').next().unwrap());
            format!(" {approach} task {task}")
        }
        State::Checking { when, .. } => format!(" {when:?}"),
        State::Blocked { when, reason, .. } => {
            let reason = format!("{reason:?}");
            format!(" {when:?} {}", reason.split(' ').next().unwrap())
        }
        State::Failed { recoverable: false, .. } => " for good".into(),
        State::Failed { .. } | State::Init | State::Done | State::Cancelled { .. } => String::new(),
    };
    let attempt = if pipeline.attempt > 1 { format!(" attempt {}", pipeline.attempt) } else { String::new() };
    format!("{} {phase}{detail}{attempt}", pipeline.word()).to_lowercase()
}

#[test]
fn every_state_answers_every_input() {
    let mut table = String::new();
    for state in STATES {
        let site = in_state(state);
        table += &format!("\n{state}: {}\n", letters(&site.pipeline));
        let mut late = Vec::new();
        for (what, input) in inputs(&site) {
            let mut after = site.clone();
            let outcome = after.ask(input);
            if outcome == Outcome::Late {
                late.push(what);
                continue;
            }
            let facts = after.facts[site.facts.len()..].iter().map(|fact| fact.kind().split_once(':').unwrap().1);
            let facts: String = facts.map(|kind| format!(" +{kind}")).collect();
            let stands = if after.pipeline == site.pipeline { "=".into() } else { letters(&after.pipeline) };
            table += format!("  {what:<16} {:<24} {stands:<40}{facts}", word(&outcome)).trim_end();
            table.push('\n');
        }
        table += &format!("  late: {}\n", late.join("; "));
    }
    assert_eq!(table.trim(), include_str!("table.txt").trim(), "the table in table.txt:\n{table}");
}
