//! The overhead of an agent run, and the cost of tasks that wait for a quota.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use banksman_core::Name;
use banksman_core::agent::{AgentChoice, AgentWork};
use banksman_core::task::{Spec, Work};
use banksman_runtime::Project;

use crate::bench::{Bench, Result};
use crate::fifo::Fifo;
use crate::program::{self, Runner};
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::{proc, tasks};

const TASKS: usize = 100;
const ROUNDS: usize = 7;

const WAITING: usize = 20;
const SPAN: Duration = Duration::from_secs(20);

/// The output of a short agent turn, in the format of claude.
const TURN: &str = r#"cat >/dev/null
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
echo '{"type":"assistant","message":{"id":"m-1","content":[{"type":"text","text":"done"}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":1,"usage":{"input_tokens":10,"output_tokens":2}}'
"#;

/// The output while the account is limited for an hour.
const LIMITED: &str = r#"echo >bell
echo '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":'$(($(date +%s)+3600))',"rateLimitType":"five_hour"}}'
echo '{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"session limit"}'
exit 1
"#;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = vec![cost_of_a_profile(bench)?];
    rows.extend(waiting_for_a_quota(bench)?);
    Ok(rows)
}

/// A project with this script as a trusted agent.
fn project(bench: &Bench, name: &str, script: &str) -> Result<Project> {
    let project = tasks::project(bench, name, 1)?;
    let program = project.root().join("agent.sh");
    fs::write(&program, format!("#!/bin/sh\n{script}"))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let config = project.folder().join("config.toml");
    let text = fs::read_to_string(&config).unwrap_or_default();
    let section = format!(
        "\n[agent.mine]\nextends = \"claude\"\nprogram = \"{}\"\naccount = \"mine\"\ncheck_login = []\n",
        program.display()
    );
    fs::write(&config, text + &section)?;
    program::succeed(&project, &["trust", "--agent", "mine"])?;
    Ok(Project::find_at(project.root(), None)?)
}

fn agent() -> Result<Spec> {
    let choice = AgentChoice { agent: Name::new("mine")?, account: Name::new("mine")?, model: None };
    let work = AgentWork { agents: vec![choice], prompt: "Do it.".into(), ..AgentWork::default() };
    Ok(Spec { work: Some(Work::Agent(Arc::new(work))), ..tasks::command("true")? })
}

/// The same program as a command and as an agent, one run after the other.
fn cost_of_a_profile(bench: &Bench) -> Result<Row> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds(ROUNDS) {
        let run = |name: &str, spec: fn() -> Result<Spec>| -> Result<f64> {
            let project = project(bench, &format!("profile-{name}-{round}"), TURN)?;
            tasks::fill(&project, (0..TASKS).map(|_| spec()).collect::<Result<_>>()?)?;
            let cost = program::timed(&mut program::run(&project, &["--until-idle", "--max-runs", "1"])?)?;
            tasks::check_completed(&project, TASKS)?;
            Ok(cost.seconds * 1e3 / TASKS as f64)
        };
        theirs.push(run("command", || tasks::command("./agent.sh </dev/null"))?);
        ours.push(run("agent", agent)?);
    }
    let added: Vec<f64> = ours.iter().zip(&theirs).map(|(agent, command)| agent - command).collect();
    let median = |times: &[f64]| stats::percentile(times, 0.5);
    let beside =
        format!("a run of the same program: {:.2} ms as an agent, {:.2} ms as a command", median(&ours), median(&theirs));
    let what = "what an agent profile adds to a run";
    Ok(Row::new(what, Unit::Milliseconds, Sample::of(&added)).beside(beside).target(Target::AtMost(3.0)))
}

/// A runner with tasks whose account is limited, after one run has found out.
fn waiting_for_a_quota(bench: &Bench) -> Result<Vec<Row>> {
    let project = project(bench, "quota", LIMITED)?;
    let mut bell = Fifo::make(&project.root().join("bell"))?;
    tasks::fill(&project, (0..=WAITING).map(|_| agent()).collect::<Result<_>>()?)?;
    let mut runner = Runner::start(&project, &[], |_| true)?;
    bell.wait()?;
    // Long enough for the runner to record the end of the run and to sleep.
    std::thread::sleep(Duration::from_secs(2));
    let span = bench.span(SPAN);
    let (pid, faults) = (runner.pid(), proc::spent(runner.pid())?.children_faults);
    // The keeper of the ended run waits for the next one.
    let (before, kept) = (proc::used(pid)?, proc::children(pid)?);
    std::thread::sleep(span);
    let after = proc::used(pid)?;
    runner.check()?;
    if bell.has_more(Duration::ZERO)? {
        return Err("an agent was started while its account is limited".into());
    }
    let gone = usize::from(proc::spent(pid)?.children_faults != faults);
    let processes = proc::children(pid)?.saturating_sub(kept) + gone;
    drop(runner);
    let share = (after.0 - before.0) as f64 / span.as_nanos() as f64 * 100.0;
    let look = format!("{:.0} s, {} voluntary switches", span.as_secs_f64(), after.1 - before.1);
    Ok(vec![
        Row::new("20 tasks that wait for a quota: CPU", Unit::Percent, Sample::once(share))
            .beside(look)
            .target(Target::AtMost(0.1)),
        Row::new("20 tasks that wait for a quota: processes started", Unit::Count, Sample::once(processes as f64))
            .target(Target::AtMost(0.0)),
    ])
}
