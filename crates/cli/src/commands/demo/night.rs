//! The second part: agents without supervision. One stops early, one hangs and recovers, and one hangs for good and
//! needs a person.

use std::time::Duration;

use banksman_core::{DecisionId, Seq};

use super::stage::{Stage, now};
use super::story::{of_kind, task};
use crate::commands::timeline::rows::RunnerSpan;
use crate::failure::Failure;
use crate::printer::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};

/// A task: its title, its command, more options.
type Part = (&'static str, &'static str, &'static [&'static str]);

pub(super) const TASKS: [Part; 3] = [
    // The first attempt exits with 0 but does not report the task as done.
    (
        "Fix the test",
        "sleep 0.4; [ $BANKSMAN_ATTEMPT = 0 ] || touch $BANKSMAN_TASK_DIR/DONE",
        &["--loop", "--restart-delay", "200ms"],
    ),
    // Hangs until it is nudged.
    ("Refactor", "trap 'echo awake' USR1; sleep 600 & wait; sleep 0.3; banksman tasks done", &["--loop"]),
    // The first attempt hangs and does not react to a nudge.
    ("Upgrade", "[ $BANKSMAN_ATTEMPT = 0 ] && sleep 600; sleep 0.4", &[]),
];

pub(super) fn run(stage: &mut Stage, spans: &mut Vec<RunnerSpan>) -> Result<(), Failure> {
    stage.run(&["config", "set", "task.silence_timeout", "600ms"])?;
    stage.run(&["config", "set", "task.max_recovery_attempts", "1"])?;
    stage.run(&["sections", "add", "agents"])?;
    for (title, command, more) in TASKS {
        stage.run(&[&["tasks", "add", title, "--section", "agents", "--run", command], more].concat())?;
    }
    spans.push(RunnerSpan { name: "runner 4", from: now(), to: now(), is_killed: false });
    let runner = stage.spawn_banksman(&["run"])?;
    stage.narrate(now(), &format!("{CYAN}three agents run overnight{CYAN:#}, without supervision"));

    let event = stage.until(|seen| task(seen, "task:restarting", "Fix the test"))?;
    stage.narrate(event.wall, &format!("{BOLD}Fix the test{BOLD:#} exits without a result, and is {YELLOW}restarted{YELLOW:#}"));
    let event = stage.until(|seen| task(seen, "task:nudged", "Refactor"))?;
    stage.narrate(event.wall, &format!("{BOLD}Refactor{BOLD:#} shows no activity, and is {YELLOW}nudged{YELLOW:#}"));
    let event = stage.until(|seen| task(seen, "task:recovered", "Refactor"))?;
    stage.narrate(event.wall, &format!("{BOLD}Refactor{BOLD:#} {GREEN}recovers{GREEN:#}, and reports that it is done"));
    let event = stage.until(|seen| of_kind(seen, "escalate"))?;
    stage
        .narrate(event.wall, &format!("{BOLD}Upgrade{BOLD:#} {RED}does not react{RED:#}: it is ended, and a person must decide"));

    let decision = stage.until(|seen| of_kind(seen, "decision:raised"))?;
    let id = DecisionId::from(Seq(decision.id.0));
    // People need a moment.
    std::thread::sleep(Duration::from_millis(500));
    stage.run(&["decisions", "resolve", id.as_str(), "--recommended"])?;
    stage.narrate(now(), &format!("the person decides: retry     {DIM}$ banksman decisions resolve {id} 1{DIM:#}"));
    stage.until(|seen| task(seen, "task:complete", "Upgrade"))?;
    stage.until(|seen| TASKS.iter().all(|(title, ..)| task(seen, "task:complete", title).is_some()).then(|| seen[0].clone()))?;
    runner.stop()?;
    if let Some(span) = spans.last_mut() {
        span.to = now();
    }
    stage.catch_up()?;
    stage.narrate(now(), "all tasks are done");
    Ok(())
}
