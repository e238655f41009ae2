//! Pipelines: from the end of one phase to the beginning of the next, durable, many at once; and complete pipelines.

use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use banksman_core::pipeline::plan::{Action, After, Phase, Plan, RunCommand};
use banksman_core::task::{Outcome, Spec, Verdict, Work};
use banksman_core::{Name, Status, TaskId, Title, pipeline};
use banksman_engine::{PipelineOutcome, PipelineRequest, Reply, Request, Start, TaskOutcome, TaskRequest};
use banksman_runtime::Client;

use crate::bench::{Bench, Result};
use crate::report::{Row, Target, Unit};
use crate::stats::Sample;
use crate::{clock, threads, worker};

const THREADS: usize = 64;
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// Number of phases of one pipeline before a thread starts another.
const PHASES: u32 = 500;

/// Number of phases of a short pipeline.
const SHORT: u32 = 4;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (project, client) = bench.project("phases")?;
    let made = AtomicU32::new(0);
    let (mut rates, mut batches, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds(ROUNDS) {
        let before = worker::commits(&threads::index_file(&project))?;
        let (steps, _, seconds) = round(&client, &made, PHASES, bench.span(ROUND))?;
        let commits = worker::commits(&threads::index_file(&project))? - before;
        rates.push(steps / seconds);
        batches.push(steps / commits as f64);
    }
    for _ in 0..bench.rounds(ROUNDS) {
        let (_, pipelines, seconds) = round(&client, &made, SHORT, bench.span(ROUND))?;
        whole.push(pipelines / seconds);
    }
    Ok(vec![
        Row::new("pipelines: phase done to next phase begun, 64 at once", Unit::StepsPerSecond, Sample::of(&rates))
            .beside("each a task of its own, acknowledged by itself")
            .target(Target::AtLeast(6_000.0)),
        Row::new("pipelines: transitions per commit", Unit::Count, Sample::of(&batches)).beside("64 at most"),
        Row::new("pipelines: whole ones of 4 phases, 64 at once", Unit::CyclesPerSecond, Sample::of(&whole))
            .beside("6 calls each: start, begin, 4 phases"),
    ])
}

/// The number of transitions and complete pipelines of all threads, and the seconds that they took.
fn round(client: &Client, made: &AtomicU32, phases: u32, span: Duration) -> Result<(f64, f64, f64)> {
    let start = Barrier::new(THREADS);
    let plan = plan(phases)?;
    let began = clock::now();
    let end = began + clock::nanos(span);
    let counts = std::thread::scope(|scope| {
        let work = || {
            start.wait();
            let (mut steps, mut pipelines) = (0u32, 0u32);
            while clock::now() < end {
                let id = begin(client, made.fetch_add(1, Ordering::Relaxed), &plan)?;
                for number in 1..=phases {
                    conclude(client, &id, number)?;
                    steps += 1;
                    if clock::now() >= end && phases == PHASES {
                        return Ok((steps, pipelines));
                    }
                }
                pipelines += 1;
            }
            Ok((steps, pipelines))
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect::<Result<Vec<(u32, u32)>>>()
    })?;
    let sum = |part: fn(&(u32, u32)) -> u32| counts.iter().map(|count| f64::from(part(count))).sum();
    Ok((sum(|count| count.0), sum(|count| count.1), (clock::now() - began) as f64 / 1e9))
}

/// A pipeline with this many phases in a row.
fn plan(phases: u32) -> Result<Arc<Plan>> {
    let phase = |number: u32| -> Result<Phase> {
        Ok(Phase::new(Name::new(&format!("phase-{}", number % 4))?, Action::Do(RunCommand::Run("make".into()))))
    };
    let mut list = (0..4).map(phase).collect::<Result<Vec<_>>>()?;
    // The plan has a realistic length: a long pipeline repeats its phases.
    if phases > SHORT {
        list[3].then = After::Phase(list[0].name.clone());
    }
    Ok(Arc::new(Plan { runbook: "bench".into(), name: Name::new("bench")?, vars: Default::default(), phases: list, land: None }))
}

fn begin(client: &Client, number: u32, plan: &Arc<Plan>) -> Result<TaskId> {
    let id = TaskId::new(&format!("p-{number}"))?;
    let spec = Spec { work: Some(Work::Pipeline(plan.clone())), ..Spec::new(Title::new("a pipeline of the bench")?) };
    let start = Start { id: id.clone(), spec, depends_on: Vec::new(), vars: Default::default(), by: None };
    ask(client, PipelineRequest::Start(Box::new(start)))?;
    match ask(client, PipelineRequest::Begin { id: id.clone(), needs: Vec::new() })? {
        PipelineOutcome::Stepped(pipeline::Outcome::Begin(_), _) => Ok(id),
        other => Err(format!("it did not begin: {other:?}").into()),
    }
}

fn ask(client: &Client, request: PipelineRequest) -> Result<PipelineOutcome> {
    match client.call(Request::Pipeline(request))? {
        Reply::Pipeline(outcome) => Ok(outcome),
        other => Err(format!("{other:?}").into()),
    }
}

/// Ends the task of a phase as done, which begins the next phase.
fn conclude(client: &Client, pipeline: &TaskId, number: u32) -> Result<()> {
    let id = TaskId::new(&format!("{pipeline}.{number}"))?;
    let verdict = Verdict::Done { output: None };
    match client.call(Request::Task(TaskRequest::Conclude { id, epoch: None, by: None, verdict }))? {
        Reply::Task(TaskOutcome::Stepped(Outcome::Ended(Status::Completed), _)) => Ok(()),
        other => Err(format!("not done: {other:?}").into()),
    }
}
