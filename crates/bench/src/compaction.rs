//! The wait of other calls while `events compact` compacts the events of 100,000 tasks, each of which becomes a
//! baseline row: the maximum that it writes for one event.

use banksman_core::event::{CustomKind, Event, Source};
use banksman_runtime::Project;
use serde_json::json;

use crate::bench::{Bench, Result};
use crate::clock;
use crate::program;
use crate::report::{Row, Target, Unit};
use crate::stats::{self, Sample};
use crate::tasks;

const TASKS: usize = 100_000;

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let project = tasks::project(bench, "compaction", 2)?;
    tasks::fill(&project, (0..TASKS).map(|_| tasks::waiting()).collect::<Result<_>>()?)?;
    let client = project.open()?;
    let emit = || {
        let source = Source { component: "user".into(), id: None };
        let start = clock::now();
        client.emit(Event::Custom { kind: CustomKind::new("build:step")?, source, data: json!({}) })?;
        Ok((clock::now() - start) as f64 / 1e6)
    };
    let alone = (0..1_000).map(|_| emit()).collect::<Result<Vec<f64>>>()?;
    let mut meanwhile = Vec::new();
    let mut command = program::command(&project, &["events", "compact", "--keep-events", "1", "--quiet"])?;
    let start = clock::now();
    let mut compaction = command.spawn()?;
    while compaction.try_wait()?.is_none() {
        meanwhile.push(emit()?);
    }
    let took = (clock::now() - start) as f64 / 1e6;
    if !compaction.wait()?.success() || compacted(&project)? < TASKS as i64 {
        return Err("the log was not compacted".into());
    }
    let at = |times: &[f64], share| Sample::once(stats::percentile(times, share));
    let what = "a call while 100,000 events are compacted";
    Ok(vec![
        Row::new(format!("{what}: longest"), Unit::Milliseconds, at(&meanwhile, 1.0))
            .beside(format!("of {}; without it: {:.1} ms", meanwhile.len(), at(&alone, 1.0).median))
            .target(Target::AtMost(100.0)),
        Row::new(format!("{what}: p50"), Unit::Milliseconds, at(&meanwhile, 0.5))
            .beside(format!("without it: {:.2} ms", at(&alone, 0.5).median)),
        Row::new("`events compact`, 100,000 events, start to exit", Unit::Milliseconds, Sample::once(took)),
    ])
}

fn compacted(project: &Project) -> Result<i64> {
    Ok(project.reader()?.view().mark()?.through.0)
}
