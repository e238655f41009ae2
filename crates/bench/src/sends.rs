//! Messages to a live session: from the call of `send` until the program in the session has read the message.

use std::time::Duration;

use banksman_core::bus::{Draft, MessageType};
use banksman_core::dispatch::{Mode, Plan};
use banksman_core::task::{LiveInput, Spec};
use banksman_core::{MessageId, TaskId};
use banksman_runtime::Client;

use crate::bench::{Bench, Result};
use crate::clock;
use crate::fifo::Fifo;
use crate::program::{self, Runner};
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::tasks;

const TIMES: usize = 200;

/// The pause between two messages: the bus of a working session is mostly silent.
const PAUSE: Duration = Duration::from_millis(10);

/// A program that reads a line and reports it, without another process.
const READER: &str = "echo >bell; while read line; do echo >bell; done";

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let project = tasks::project(bench, "sends", 2)?;
    let client = project.open()?;
    let mut bell = Fifo::make(&project.root().join("bell"))?;
    let spec = Spec { input: Some(LiveInput::Pipe), ..tasks::command(READER)? };
    let task = tasks::submit(&client, spec, &[])?;
    let mut runner = Runner::start(&project, &[], |_| true)?;
    bell.wait()?;
    let (mut seen, mut answered, mut behind, mut binary) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 0..bench.rounds(TIMES) {
        std::thread::sleep(PAUSE);
        let start = clock::now();
        let (read, end) = std::thread::scope(|scope| -> Result<(u64, u64)> {
            let call = scope.spawn(|| send(&client, &task, number).map(|()| clock::now()));
            Ok((bell.wait()?, call.join().map_err(|_| "a thread panicked")??))
        })?;
        seen.push(ms(start, read));
        answered.push(ms(start, end));
        behind.push(ms(end, read));
    }
    for _ in 0..bench.rounds(TIMES / 4) {
        std::thread::sleep(PAUSE);
        let mut command = program::command(&project, &["send", task.as_str(), "use port 8080", "--author", "bench"])?;
        let start = clock::now();
        let mut child = command.spawn()?;
        binary.push(ms(start, bell.wait()?));
        child.wait()?;
    }
    runner.check()?;
    let p50 = |times: &[f64]| Sample::once(stats::percentile(times, 0.5));
    let p99 = |times: &[f64]| format!("p99 {:.2} ms, of {}", stats::percentile(times, 0.99), times.len());
    let row = |what: &str, times: &[f64]| Row::new(what, Unit::Milliseconds, p50(times)).beside(p99(times));
    Ok(vec![
        row("`send` to a live session, from the call until the program has read it: p50", &seen).target(Target::AtMost(5.0)),
        row("`send`: from the call to its answer: p50", &answered),
        row("`send`: from its answer until the program has read it: p50", &behind).target(Target::AtMost(5.0)),
        row("`banksman send`, start of the process until the program has read it: p50", &binary),
    ])
}

fn send(client: &Client, task: &TaskId, number: usize) -> Result<()> {
    let draft = Draft {
        id: MessageId::new(&format!("m-{}-{number}", std::process::id()))?,
        kind: MessageType::new("INFO")?,
        task: Some(task.clone()),
        run: None,
        author: "bench".into(),
        parent: None,
        body: "use port 8080".into(),
        attachments: Vec::new(),
    };
    match client.send(draft, task, Mode::Steer)?.plan {
        Plan::ControlSocket { .. } => Ok(()),
        other => Err(format!("the message took another way: {other:?}").into()),
    }
}

fn ms(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
}
