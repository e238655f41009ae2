//! The sources whose events may change the result of the guard that blocks a pipeline. All rows follow from
//! `pipelines`.

use std::collections::BTreeSet;

use banksman_core::Seq;
use banksman_core::event::Source;
use banksman_core::ids::TaskId;
use banksman_core::pipeline::Pipeline;

use crate::columns::{Codec, Int, Text};
use crate::error::StoreError;
use crate::reader::View;
use crate::table::statements;
use crate::value::{Query, Row, Value};

statements! {
    /// The time when the next pipeline is due, and the event since which the longest listener listens.
    Next => "SELECT (SELECT min(p.due) FROM pipelines p WHERE p.project = $1 AND p.due > $2), \
             (SELECT min(l.since) FROM listeners l WHERE l.project = $1)".to_owned(),
    /// The first event up to $2 and before $3 that a listener has yet to handle.
    Unheard => "SELECT min(e.seq) FROM listeners l JOIN events e ON e.project = l.project AND e.seq > l.since \
                AND e.component = l.component AND (l.about = '' OR e.id = l.about) \
                WHERE l.project = $1 AND e.seq <= $2 AND e.wall < $3".to_owned(),
    All => "SELECT pipeline, component, about, since FROM listeners WHERE project = $1 ORDER BY pipeline, component, about".to_owned(),
    Upsert => "INSERT INTO listeners (project, pipeline, component, about, since) VALUES ($1, $2, $3, $4, $5) \
               ON CONFLICT (project, component, about, pipeline) DO UPDATE SET since = $5".to_owned(),
    Delete => "DELETE FROM listeners WHERE project = $1 AND pipeline = $2 AND component = $3 AND about = $4".to_owned(),
}

/// Writes the listeners of a pipeline again with every guard check, so that a pipeline of an older store gets listeners
/// too.
pub(crate) fn changes<'a>(project: i64, id: &'a TaskId, was: Option<&Pipeline>, is: Option<&Pipeline>, queries: &mut Vec<Query<'a>>) {
    if was == is {
        return;
    }
    let of = |pipeline: Option<&Pipeline>| pipeline.map(Pipeline::listens).unwrap_or_default();
    let (old, new) = (of(was), of(is));
    for source in old.iter().filter(|source| !new.contains(source)) {
        queries.push(Query::new(Statement::Delete, listener(project, id, source)));
    }
    if let Some(pipeline) = is.filter(|is| was.is_none_or(|was| was.knows() != is.knows() || old != new)) {
        for source in new {
            let since = pipeline.knows().unwrap_or_default().0.into();
            let params = [&listener(project, id, &source)[..], &[since]].concat();
            queries.push(Query::new(Statement::Upsert, params));
        }
    }
}

fn listener<'a>(project: i64, id: &'a TaskId, source: &Source) -> [Value<'a>; 4] {
    let (component, about) = (source.component.to_string(), source.id.as_deref().unwrap_or_default().to_owned());
    [project.into(), id.as_str().into(), component.into(), about.into()]
}

impl View<'_> {
    /// All listeners: the pipeline, its source, and the event after which it listens.
    pub fn listeners(&mut self) -> Result<BTreeSet<(TaskId, Source, Seq)>, StoreError> {
        let rows = self.rows(Query::new(Statement::All, [self.project.into()]))?;
        let read = |mut row: Row| {
            let (pipeline, component, about) = (Text::read(&mut row)?, Text::read(&mut row)?, row.text()?);
            let id = (!about.is_empty()).then(|| about.into());
            Ok((pipeline, Source { component, id }, Int::read(&mut row)?))
        };
        rows.into_iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use banksman_core::backlog::Backlog;
    use banksman_core::guard::{Condition, Guard, GuardAction, Predicate};
    use banksman_core::pipeline::{Reason, State, When};
    use banksman_core::pipeline::plan::{Action, Bound, RunCommand, Phase, Plan, Text};
    use banksman_core::{Lease, Name, Now, Span};

    use super::*;
    use crate::table::Table as _;
    use crate::tables::pipelines::Pipelines;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// A pipeline that is blocked by a lock, with a guard check as of this event.
    fn blocked(at: i64) -> Backlog {
        let condition = Condition::Predicate(Predicate::LockFree { lock: Text::Literal("l".into()) });
        let (fresh_for, timeout) = (Span::ZERO, Span::ZERO);
        let phase = Phase {
            pre: vec![Guard { name: name("g"), condition, on_failure: GuardAction::Block, fresh_for, timeout }],
            ..Phase::new(name("one"), Action::Do(RunCommand::Run("true".into())))
        };
        let plan = Plan { runbook: "b".into(), name: name("way"), vars: BTreeMap::new(), phases: vec![phase], land: None };
        let id = TaskId::new("p-1").unwrap();
        let mut pipeline = Pipeline::new(id.clone(), banksman_core::Title::new("way").unwrap(), Arc::new(plan), Bound::default(), &Now::default());
        let reason = Reason::Guard {
            guard: name("g"),
            part: "p".into(),
            at: Seq(at),
            again: Lease(9),
            rest: Lease(5),
            looked: banksman_core::Wall(0),
            held: None,
        };
        pipeline.state = State::Blocked { phase: name("one"), when: When::Pre, reason };
        Backlog { pipelines: [(id, pipeline)].into(), ..Backlog::default() }
    }

    #[test]
    fn a_pipeline_without_listeners_gets_them_with_its_next_guard_check() {
        let (before, after, gone) = (blocked(1), blocked(2), Backlog::default());
        let written = |before: &Backlog, after: &Backlog| {
            let mut queries = Vec::new();
            crate::tables::pipelines::changes(1, before, after, &mut queries);
            queries.iter().map(|query| query.statement).collect::<Vec<_>>()
        };
        assert_eq!(written(&before, &after), [Pipelines::UPDATE.unwrap(), Statement::Upsert.erased()]);
        assert_eq!(written(&after, &after), []);
        assert_eq!(written(&after, &gone), [Pipelines::DELETE, Statement::Delete.erased()]);
    }
}
