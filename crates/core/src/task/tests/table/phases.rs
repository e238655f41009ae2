//! The task of a pipeline: it mirrors the status of its pipeline, and nothing else changes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::ids::Name;
use crate::pipeline::plan::Plan;

const PARENTS: [&str; 7] = [
    "parent: pending",
    "parent: in phases",
    "parent: in phases, blocked",
    "parent: completed",
    "parent: failed",
    "parent: failed, again",
    "parent: cancelled",
];

pub(super) fn scene(state: &str) -> World<Task> {
    let plan =
        Plan { runbook: "book".into(), name: Name::new("way").unwrap(), vars: BTreeMap::new(), phases: Vec::new(), land: None };
    let mut world = World::of(Spec { work: Some(Work::Pipeline(Arc::new(plan))), retries: 0, ..spec("build") });
    if !["pending", "cancelled"].contains(&state) {
        follow(&mut world, "goes on");
    }
    match state {
        "pending" | "in phases" => {}
        "in phases, blocked" => drop(follow(&mut world, "is blocked")),
        "completed" => drop(follow(&mut world, "is done")),
        "failed" => drop(follow(&mut world, "has failed")),
        "failed, again" => ["has failed", "goes on"].iter().for_each(|status| drop(follow(&mut world, status))),
        "cancelled" => drop(follow(&mut world, "is cancelled")),
        _ => unreachable!("{state}"),
    }
    world
}

fn follow(world: &mut World<Task>, input: &str) -> Outcome {
    world.act(Input::MirrorStatus(match input {
        "goes on" => PipelineStatus::InPhases { is_blocked: false },
        "is blocked" => PipelineStatus::InPhases { is_blocked: true },
        "is done" => PipelineStatus::Over(TaskEnd::Success { output: Some(json!({ "a": 1 })), warning: None }),
        "has failed" => PipelineStatus::Over(TaskEnd::Failed { error: "phase one: no".into() }),
        "is cancelled" => PipelineStatus::Over(TaskEnd::Cancelled),
        _ => unreachable!("{input}"),
    }))
}

const STATUSES: [&str; 5] = ["goes on", "is blocked", "is done", "has failed", "is cancelled"];

#[test]
fn the_task_of_a_pipeline_mirrors_its_status() {
    let expected = "
                            goes on                         is blocked                               is done                     has failed                   is cancelled
parent: pending             followed: in phases +in_phases  followed: in phases, blocked +in_phases  ended: completed +complete  ended: failed +failed !tell  ended: cancelled +cancelled
parent: in phases           followed: in phases             followed: in phases, blocked +in_phases  ended: completed +complete  ended: failed +failed !tell  ended: cancelled +cancelled
parent: in phases, blocked  followed: in phases +in_phases  followed: in phases, blocked             ended: completed +complete  ended: failed +failed !tell  ended: cancelled +cancelled
parent: failed              followed: in phases +in_phases  followed: in phases, blocked +in_phases  not pending                 not pending                  not pending
parent: failed, again       followed: in phases             followed: in phases, blocked +in_phases  ended: completed +complete  ended: failed +failed !tell  ended: cancelled +cancelled
any other                   not pending                     not pending                              not pending                 not pending                  not pending
";
    assert_answers(&PARENTS, &STATUSES, follow, expected);
}

#[test]
fn other_tasks_mirror_no_pipeline() {
    for state in STATES {
        for status in STATUSES {
            assert_eq!(cell(state, |world| follow(world, status)), "not pending", "{state}, {status}");
        }
    }
}

#[test]
fn only_its_pipeline_changes_the_task_of_a_pipeline() {
    let inputs = ["start", "never began", "ready"];
    let expected = "
           start       never began  ready
any other  has phases  late         not pending
";
    assert_answers(&PARENTS, &inputs, start_or_end, expected);
    let expected = "
           done    done, by hand  failed, by hand
any other  fenced  has phases     has phases
";
    assert_answers(&PARENTS, &["done", "done, by hand", "failed, by hand"], conclude, expected);
    let expected = "
                   cancel                       fail                         escalate     overtime     restart
parent: completed  over                         over                         over         over         over
parent: failed     over                         over                         over         over         over
parent: cancelled  over                         over                         over         over         over
any other          ended: cancelled +cancelled  ended: failed +failed !tell  not pending  not pending  not pending
";
    assert_answers(&PARENTS, &["cancel", "fail", "escalate", "overtime", "restart"], stop_run, expected);
    let expected = "
           retry       skip        review      take        return
any other  has phases  has phases  has phases  has phases  not pending
";
    assert_answers(&PARENTS, &["retry", "skip", "review", "take", "return"], decide_manually, expected);
    for input in ["active", "dead", "checkpoint", "overtime"] {
        for parent in PARENTS {
            let found = cell(parent, |world| observe(world, input));
            assert!(["late", "fenced"].contains(&found.as_str()), "{parent}, {input}: {found}");
        }
    }
    for input in ["DONE", "children ended"] {
        PARENTS
            .iter()
            .for_each(|parent| assert_eq!(cell(parent, |world| check_for_done(world, input)), "not pending", "{parent}"));
    }
}
