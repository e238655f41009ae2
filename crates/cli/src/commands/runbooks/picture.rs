//! A runbook as a diagram: its phases from top to bottom, with the transitions between them.

use std::fmt::Write;

use banksman_core::pipeline::plan::{Action, After, Merge, OnFail, Phase, Plan, Push, RunCommand};
use banksman_core::route::Then;
use banksman_core::task::Need;
use banksman_core::worker::Job;
use banksman_runbook::{PipelineDef, Runbook};

use super::guard;
use crate::commands::tasks::brief;
use crate::format;
use crate::printer::{BOLD, CYAN, DIM, GREEN, YELLOW};

/// The number of characters shown of a command or a prompt.
const SHOWN: usize = 80;

pub(super) fn runbook(runbook: &Runbook) -> String {
    let mut parts = vec![heading(&runbook.name, runbook.description.as_deref())];
    parts.extend(runbook.pipelines.values().map(pipeline));
    parts.extend(list("GUARDS", runbook.guards.values().map(guard::lines).collect()));
    let workers = runbook.workers.values().map(|worker| {
        let awake = worker.wake_on.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let wake = if awake.is_empty() { String::new() } else { format!("; woken by {awake}") };
        let (name, queue, concurrency) = (&worker.name, &worker.queue, worker.concurrency);
        format!("{BOLD}{name}{BOLD:#}  each item of {queue}: {}, {concurrency} at a time{wake}", job(&worker.job))
    });
    parts.extend(list("WORKERS", workers.collect()));
    let routes = runbook.routes.iter().map(|route| {
        let then: Vec<String> = route.then.iter().map(then).collect();
        format!("{BOLD}{}{BOLD:#}  {}", route.on, then.join(", "))
    });
    parts.extend(list("ON", routes.collect()));
    parts.extend(list("SHARED", shared(runbook)));
    parts.join("\n\n")
}

fn heading(name: &str, description: Option<&str>) -> String {
    let description = description.map_or_else(String::new, |text| format!("  {text}"));
    format!("{BOLD}{name}{BOLD:#}{description}")
}

fn list(title: &str, lines: Vec<String>) -> Option<String> {
    let lines = lines.into_iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
    (!lines.is_empty()).then(|| format!("{DIM}{title}{DIM:#}\n{lines}"))
}

fn shared(runbook: &Runbook) -> Vec<String> {
    let ttl = |ttl: Option<banksman_core::Span>| ttl.map_or_else(String::new, |ttl| format!(", {ttl} without a heartbeat"));
    let locks = runbook.locks.iter().map(|(name, terms)| {
        let most = terms.max_hold.map_or_else(String::new, |most| format!(", at most {most}"));
        format!("lock {name}{}{most}", ttl(terms.ttl))
    });
    let semaphores = runbook
        .semaphores
        .iter()
        .map(|(name, terms)| format!("semaphore {name}, {}{}", format::slots(terms.capacity), ttl(terms.ttl)));
    let queues = runbook.queues.iter().map(|(name, terms)| {
        let attempts =
            terms.max_attempts.map(|number| if number == 1 { "1 attempt".into() } else { format!("{number} attempts") });
        let visibility = terms.visibility_timeout.map(|time| format!("{time} for each"));
        let dead = terms.dead_letter.as_ref().map(|dead| format!("dead items to {dead}"));
        [Some(format!("queue {name}")), attempts, visibility, dead].into_iter().flatten().collect::<Vec<_>>().join(", ")
    });
    locks.chain(semaphores).chain(queues).collect()
}

fn pipeline(def: &PipelineDef) -> String {
    let plan = &def.plan;
    let vars = plan.vars.iter().map(|(name, default)| match default {
        None => name.to_string(),
        Some(value) => format!("{name} = {}", brief(&value.to_string(), 40)),
    });
    let vars = vars.collect::<Vec<_>>().join(", ");
    let description = def.description.as_ref().map_or_else(String::new, |text| format!("  {text}"));
    let mut text = format!("{DIM}PIPELINE{DIM:#} {BOLD}{}{BOLD:#}({vars}){description}", plan.name);
    for (index, phase) in plan.phases.iter().enumerate() {
        // A blank line separates a phase that the one above does not lead to.
        if index > 0 && !leads_below(plan, index - 1) {
            text.push('\n');
        }
        text += &phase_lines(plan, index, phase);
    }
    text
}

fn leads_below(plan: &Plan, index: usize) -> bool {
    match (&plan.phases[index].then, plan.phases.get(index + 1)) {
        (After::Next, below) => below.is_some(),
        (After::Phase(name), Some(below)) => *name == below.name,
        (After::Phase(_), None) | (After::Done, _) => false,
    }
}

fn phase_lines(plan: &Plan, index: usize, phase: &Phase) -> String {
    let mut text = format!("\n  ● {BOLD}{}{BOLD:#}  {}", phase.name, action(&phase.action));
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            write!(text, "\n  │   {DIM}{name:<7}{DIM:#} {value}").ok();
        }
    };
    let names =
        |guards: &[banksman_core::guard::Guard]| guards.iter().map(|guard| guard.name.as_str()).collect::<Vec<_>>().join(", ");
    line("before", names(&phase.pre));
    line("after", names(&phase.post));
    line("holds", phase.needs.iter().map(|need| held(need, plan)).collect::<Vec<_>>().join(", "));
    line("limits", limits(phase));
    line("fails", fails(&phase.on_fail));
    if !leads_below(plan, index) {
        text += &match &phase.then {
            After::Phase(name) => format!("\n  ╰─▶ {CYAN}{name}{CYAN:#}"),
            After::Done | After::Next => format!("\n  ╰─▶ {GREEN}done{GREEN:#}"),
        };
    }
    text
}

fn held(need: &Need, plan: &Plan) -> String {
    match need {
        Need::Lock(name) if plan.kept().contains(name) => format!("lock {name} until the end of the pipeline"),
        Need::Lock(name) | Need::Kept { name, .. } => format!("lock {name}"),
        Need::Slots { name, weight } => format!("{} of {name}", format::slots(*weight)),
    }
}

fn limits(phase: &Phase) -> String {
    let timeout = phase.timeout.map(|timeout| format!("at most {timeout}"));
    let retries = (phase.retries > 0).then(|| format!("{} tries", phase.retries + 1));
    [timeout, retries].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn fails(on_fail: &OnFail) -> String {
    match on_fail {
        OnFail::Fail => String::new(),
        OnFail::Retry { times } => format!("{YELLOW}retry{YELLOW:#}, {}", often(*times)),
        OnFail::Phase { to, times } => format!("─▶ {YELLOW}{to}{YELLOW:#}, {}", often(*times)),
    }
}

fn often(times: u32) -> String {
    match times {
        1 => "once".into(),
        2 => "twice".into(),
        times => format!("{times} times"),
    }
}

/// The action of a phase in one line.
pub(crate) fn action(action: &Action) -> String {
    match action {
        Action::Do(what) => run_command(what),
        Action::Strategy { name, approaches } => {
            let names: Vec<&str> = approaches.iter().map(|approach| approach.name.as_str()).collect();
            format!("strategy {name}: {}", names.join(", then "))
        }
        Action::Push(what) => push(what),
    }
}

fn run_command(run_command: &RunCommand) -> String {
    match run_command {
        RunCommand::Run(script) => brief(&without_comments(script), SHOWN),
        RunCommand::Argv(argv) => brief(&argv.join(" "), SHOWN),
        RunCommand::Agent { name, prompt, .. } => format!("agent {name}: {}", brief(prompt, SHOWN)),
        RunCommand::Merge(Merge { branch, into, how }) => format!("merge {branch} into {into} ({})", how.as_str()),
    }
}

/// A script without blank lines, comments and `set` lines.
fn without_comments(script: &str) -> String {
    let is_command = |line: &&str| !line.is_empty() && !line.starts_with('#') && !line.starts_with("set -");
    script.lines().map(str::trim).filter(is_command).collect::<Vec<_>>().join("\n")
}

fn push(push: &Push) -> String {
    let vars = if push.vars.is_empty() { String::new() } else { format!(" with {}", push.vars.join(", ")) };
    format!("push to {}{vars}", push.queue)
}

/// The action of a worker on an item.
pub(crate) fn job(job: &Job) -> String {
    match job {
        Job::Pipeline(plan) => format!("pipeline {}", plan.name),
        Job::Task { run_command: what, timeout } => {
            let most = timeout.map_or_else(String::new, |timeout| format!(" (at most {timeout})"));
            format!("{}{most}", run_command(what))
        }
    }
}

/// The action of a route.
pub(crate) fn then(then: &Then) -> String {
    match then {
        Then::Start(plan) => format!("start {}", plan.name),
        Then::Push(what) => push(what),
        Then::Wake(worker) => format!("wake {worker}"),
        Then::Notify(words) => format!("notify: {}", brief(words, SHOWN)),
    }
}
