//! Runs whose keeper is dead, but whose processes cannot be proven dead: a person is asked, once, and the answer counts.

use banksman_core::decision::About;
use banksman_core::task::{After, State};
use banksman_core::{Decision, Lease, RunId};

use super::stage::{Actor, Stage, options, task};
use super::{Action, Input, Options};
use crate::calls::decisions::{DecisionOutcome, DecisionRequest};
use crate::calls::runs::{RunRequest, Work};
use crate::calls::tasks::TaskRequest;
use crate::request::Request;

/// A runner with a run of the task `t` that it cannot prove to be dead.
fn unproven(stage: &mut Stage) -> (Actor, RunId) {
    stage.add("t", |_| {});
    let mut actor = stage.start("n", options());
    let run = actor.run();
    ask(stage, &mut actor, &run);
    actor.did();
    (actor, run)
}

fn ask(stage: &mut Stage, actor: &mut Actor, run: &RunId) {
    let now: Lease = stage.now();
    actor.dispatcher.on(Input::Unproven(run.clone(), "its container cannot be seen".into()), now);
    stage.play(actor);
}

fn open(stage: &mut Stage) -> Vec<Decision> {
    stage.rows().decisions.into_values().filter(Decision::is_open).collect()
}

fn work(stage: &mut Stage, run: &RunId) -> Option<Box<Work>> {
    let rows = stage.rows();
    let run = rows.runs.get(run)?.clone();
    let task = rows.tasks.get(&run.task)?.clone();
    Some(Box::new(Work { run, task }))
}

fn answer(stage: &mut Stage, work: Option<Box<Work>>, option: u32) -> DecisionOutcome {
    let decision = stage.rows().decisions.into_values().max_by_key(|decision| decision.id.seq()).unwrap();
    let (id, about) = (decision.id.clone(), decision.question.about);
    stage.request(DecisionRequest { id, about, run: work, option, by: "ann".into(), note: None })
}

#[test]
fn a_person_is_asked_once_about_an_unproven_run() {
    let mut stage = Stage::new();
    let (mut actor, run) = unproven(&mut stage);
    ask(&mut stage, &mut actor, &run);
    assert_eq!(stage.count_events("decision:raised"), 1);
    assert_eq!(open(&mut stage)[0].question.about, About::Run { run, task: task("t") });
    assert_eq!(stage.rows().runs.values().filter(|run| run.is_live()).count(), 1, "the store still counts it as live");
}

/// The store did not reply to the question, which may not have been asked: a runner that ends when only people have work left stays for it.
#[test]
fn a_runner_does_not_leave_before_the_person_was_asked() {
    let mut stage = Stage::new();
    stage.add("t", |_| {});
    let mut actor = stage.start("n", Options { until_idle: true, ..options() });
    let run = actor.run();
    actor.dispatcher.on(Input::Unproven(run.clone(), "its container cannot be seen".into()), stage.now());
    let Action::Call(requests) = actor.dispatcher.next(stage.now()) else { panic!("it asks") };
    assert!(matches!(requests[..], [Request::Run(RunRequest::Unproven { .. }), ..]), "{requests:?}");
    actor.dispatcher.on(Input::NoReply, stage.now());
    actor.did();
    stage.sleep(&mut actor);
    stage.sleep(&mut actor);
    assert_eq!(actor.did().iter().filter(|did| *did == "recover t").count(), 1);
    ask(&mut stage, &mut actor, &run);
    assert_eq!(open(&mut stage).len(), 1);
}

/// A runner that ends when nothing is left does not miss a task that became ready since its claim, although it has a run that only a person
/// can end.
#[test]
fn a_runner_with_an_unproven_run_does_other_tasks_before_it_leaves() {
    let mut stage = Stage::new();
    stage.add("t", |_| {});
    let mut actor = stage.start("n", Options { until_idle: true, ..options() });
    let run = actor.run();
    ask(&mut stage, &mut actor, &run);
    actor.did();
    stage.forget_wakes();
    stage.add("other", |_| {});
    stage.forget_wakes();
    actor.notify(&mut stage, Input::NewEvents);
    assert!(actor.did().contains(&"spawn other".to_owned()));
}

#[test]
fn the_answer_ends_the_run_and_decides_about_its_task() {
    for (option, status, attempts) in [(1, "in_progress", 2), (2, "failed", 1), (3, "cancelled", 1)] {
        let mut stage = Stage::new();
        let (mut actor, run) = unproven(&mut stage);
        stage.add("c", |spec| spec.parent = Some(task("t")));
        let work = work(&mut stage, &run);
        for _ in 0..2 {
            answer(&mut stage, work.clone(), option);
            stage.play(&mut actor);
        }
        assert_eq!((stage.status("t").as_str(), stage.count_events("decision:resolved")), (status, 1), "option {option}");
        assert_eq!(stage.rows().tasks[&task("t")].attempts, attempts);
        assert!(!stage.rows().runs[&run].is_live());
        assert_eq!(stage.status("c") == "cancelled", option == 3, "option {option}");
        assert!(actor.did().contains(&"acknowledge".into()), "its keeper is notified");
        let held = stage.everything().tables.coordination;
        let holds = |grant: &banksman_core::Grant| grant.claim.holder == run.holder();
        assert!(!held.semaphores.values().flat_map(|semaphore| semaphore.holders.values()).any(holds));
    }
}

#[test]
fn the_answer_carries_out_an_earlier_cancellation() {
    let mut stage = Stage::new();
    let (mut actor, run) = unproven(&mut stage);
    stage.ask(Request::Task(TaskRequest::Cancel { id: task("t") }));
    stage.play(&mut actor);
    assert!(!actor.did().contains(&"kill".into()), "there is no keeper that could end it");
    assert!(matches!(&stage.rows().tasks[&task("t")].state, State::Stopping { then: After::Cancel, .. }));
    let work = work(&mut stage, &run);
    answer(&mut stage, work, 1);
    assert_eq!(stage.status("t"), "cancelled");
}

#[test]
fn an_answer_for_a_run_with_a_new_owner_is_late() {
    let mut stage = Stage::new();
    let (first, run) = unproven(&mut stage);
    let then = work(&mut stage, &run);
    stage.kill(first);
    stage.start("m", options());
    assert_eq!(answer(&mut stage, then, 1), DecisionOutcome::Late);
    assert_eq!(answer(&mut stage, None, 1), DecisionOutcome::Late);
    assert_eq!((open(&mut stage).len(), stage.status("t").as_str()), (1, "in_progress"));
    let now = work(&mut stage, &run);
    assert!(matches!(answer(&mut stage, now, 1), DecisionOutcome::Stepped(..)));
    assert_eq!(open(&mut stage).len(), 0);
}

#[test]
fn the_question_is_withdrawn_when_the_run_is_proven_dead() {
    let mut stage = Stage::new();
    let (mut actor, run) = unproven(&mut stage);
    let ended = crate::calls::runs::ended(banksman_core::task::RunEnd::Lost, banksman_core::Wall(0), None);
    actor.notify(&mut stage, Input::Ended(run.clone(), ended));
    assert_eq!((stage.count_events("decision:withdrawn"), open(&mut stage).len()), (1, 0));
}
