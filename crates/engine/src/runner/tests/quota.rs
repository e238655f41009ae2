//! Limits of accounts: no run starts while a limit is reached, one run tries it when it expires, and the others follow.

use std::sync::Arc;

use banksman_core::agent::limit::{LOGIN, State};
use banksman_core::agent::{AgentChoice, AgentEnd, AgentVerdict, AgentWork, Limit, OnQuota, Usage};
use banksman_core::backlog::RunEndRecord;
use banksman_core::task::{RunEnd, Work as What};
use banksman_core::{Name, RunId, Span, Wall};

use super::stage::{Actor, Stage, exited, options, task};
use super::{Action, Input};
use crate::calls::accounts::{AccountOutcome, AccountRequest};
use crate::calls::runs::Work;
use crate::calls::tasks::TaskRequest;
use crate::request::{Reply, Request};

const MINUTE: i64 = 60_000;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn add(stage: &mut Stage, id: &str, agents: &[(&str, Option<&str>)], on_quota: OnQuota) {
    let choice = |(agent, model): &(&str, Option<&str>)| AgentChoice {
        agent: name(agent),
        account: name(agent),
        model: model.map(Into::into),
    };
    let work = AgentWork { agents: agents.iter().map(choice).collect(), on_quota, ..AgentWork::default() };
    stage.add(id, |spec| spec.work = Some(What::Agent(Arc::new(work))));
}

fn add_plain(stage: &mut Stage, ids: &[&str]) {
    ids.iter().for_each(|id| add(stage, id, &[("claude", None)], OnQuota::Wait));
}

fn ended(verdict: AgentVerdict, answers: u32) -> RunEndRecord {
    let end = AgentEnd {
        agent: name("claude"),
        verdict,
        text: "said".into(),
        session: Some("s".into()),
        model: None,
        key_source: None,
        turns: answers,
        answers,
        usage: Usage::default(),
        cost_micros: None,
    };
    RunEndRecord { agent: Some(Box::new(end)), ..RunEndRecord::new(RunEnd::Exited(1), Wall(0), None) }
}

fn quota(stage: &Stage, after: Option<i64>) -> RunEndRecord {
    let resets = after.map(|after| Wall(1_000_000 + stage.now().0 + after));
    ended(AgentVerdict::Quota(Limit { kind: "five_hour".into(), model: None, resets }), 0)
}

/// The runs that the runner had to start since the last call.
fn spawned(actor: &mut Actor) -> Vec<Work> {
    actor.wants.drain(..).filter_map(|action| if let Action::Spawn(work) = action { Some(*work) } else { None }).collect()
}

fn tasks(works: &[Work]) -> Vec<&str> {
    works.iter().map(|work| work.task.id.as_str()).collect()
}

/// Ends a run, and plays the runner until it sleeps.
fn end(stage: &mut Stage, actor: &mut Actor, run: &RunId, ended: RunEndRecord) -> Span {
    actor.notify(stage, Input::Ended(run.clone(), ended)).expect("it waits for more")
}

fn max_runs(number: u32) -> super::Options {
    super::Options { max_runs: Some(number), ..options() }
}

#[test]
fn one_probe_starts_when_a_limit_expires_and_others_follow_its_answer() {
    let mut stage = Stage::new();
    add_plain(&mut stage, &["a", "b", "c", "d"]);
    let mut actor = stage.start("m", max_runs(2));
    let works = spawned(&mut actor);
    assert_eq!(tasks(&works), ["a", "b"]);
    assert!(works.iter().all(|work| !work.run.agent.as_ref().unwrap().probes));

    // The first run reaches the limit: its slot is free, but no other task starts.
    let resets = quota(&stage, Some(10 * MINUTE));
    end(&mut stage, &mut actor, &works[0].run.id, resets.clone());
    assert_eq!(end(&mut stage, &mut actor, &works[1].run.id, resets), Span::from_ms(10 * MINUTE));
    assert_eq!(tasks(&spawned(&mut actor)), Vec::<&str>::new());
    let rows = stage.rows();
    assert_eq!((rows.tasks[&task("a")].attempts, rows.tasks[&task("a")].failures), (0, 0), "no attempt is used");
    assert_eq!(rows.account_limits.len(), 1);
    assert!(stage.everything().coordination.semaphores.values().all(|slots| slots.holders.is_empty()));

    // A wake-up in between starts nothing; a task added in between waits, too.
    stage.pass(10 * MINUTE - 1);
    actor.dispatcher.on(Input::Woken, stage.now());
    add_plain(&mut stage, &["e"]);
    assert_eq!(stage.play(&mut actor), Some(Span::from_ms(1)));
    assert_eq!(tasks(&spawned(&mut actor)), Vec::<&str>::new());

    // When the limit expires, one of them tries.
    stage.pass(1);
    stage.play(&mut actor);
    let probe = spawned(&mut actor);
    assert_eq!(tasks(&probe), ["a"]);
    assert!(probe[0].run.agent.as_ref().unwrap().probes);
    assert!(matches!(stage.rows().account_limits.values().next().unwrap().state, State::Probing { .. }));
    stage.pass(MINUTE);
    actor.notify(&mut stage, Input::Woken);
    assert_eq!(tasks(&spawned(&mut actor)), Vec::<&str>::new(), "only one tries");

    // Its first answer lets the others start, while it goes on.
    actor.notify(&mut stage, Input::Answered(probe[0].run.id.clone()));
    let next = spawned(&mut actor);
    assert_eq!(tasks(&next), ["b"]);
    assert!(stage.rows().account_limits.is_empty(), "no task waits for it any more");
    let good = ended(AgentVerdict::Ok, 1);
    end(&mut stage, &mut actor, &probe[0].run.id, good.clone());
    end(&mut stage, &mut actor, &next[0].run.id, good);
    assert_eq!(tasks(&spawned(&mut actor)), ["c", "d"]);
    assert_eq!(stage.status("a"), "completed");
}

#[test]
fn a_probe_that_is_limited_again_sets_a_new_expiry() {
    let mut stage = Stage::new();
    add_plain(&mut stage, &["a", "b"]);
    let mut actor = stage.start("m", max_runs(1));
    for minutes in [5, 15, 60, 60] {
        let works = spawned(&mut actor);
        assert_eq!(works.len(), 1);
        let unknown = quota(&stage, None);
        assert_eq!(end(&mut stage, &mut actor, &works[0].run.id, unknown), Span::from_ms(minutes * MINUTE));
        stage.pass(minutes * MINUTE);
        stage.play(&mut actor);
    }
    assert_eq!(stage.rows().tasks[&task("a")].attempts + stage.rows().tasks[&task("b")].attempts, 1, "that of the probe");
}

#[test]
fn a_probe_that_dies_or_is_cancelled_is_replaced() {
    for how in ["cancelled", "dead"] {
        let mut stage = Stage::new();
        add_plain(&mut stage, &["a", "b", "c"]);
        let mut actor = stage.start("m", max_runs(1));
        let first = spawned(&mut actor);
        let resets = quota(&stage, Some(MINUTE));
        end(&mut stage, &mut actor, &first[0].run.id, resets);
        stage.pass(MINUTE);
        stage.play(&mut actor);
        let probe = spawned(&mut actor);
        assert_eq!(tasks(&probe), ["a"]);
        let lost = RunEndRecord::new(RunEnd::Lost, Wall(0), None);
        if how == "cancelled" {
            stage.ask(Request::Task(TaskRequest::Cancel { id: task("a") }));
            stage.play(&mut actor);
        }
        end(&mut stage, &mut actor, &probe[0].run.id, lost);
        let next = spawned(&mut actor);
        assert_eq!(next.len(), 1, "{how}: one tries in its place");
        assert!(next[0].run.agent.as_ref().unwrap().probes, "{how}");
    }
}

#[test]
fn a_probe_whose_runner_was_killed_is_adopted_and_its_answer_counts() {
    let mut stage = Stage::new();
    add_plain(&mut stage, &["a", "b"]);
    let mut first = stage.start("m", max_runs(1));
    let works = spawned(&mut first);
    let resets = quota(&stage, Some(MINUTE));
    end(&mut stage, &mut first, &works[0].run.id, resets);
    stage.pass(MINUTE);
    stage.play(&mut first);
    let probe = spawned(&mut first);
    assert_eq!(tasks(&probe), ["a"]);
    stage.kill(first);
    let mut second = stage.start("n", max_runs(2));
    assert!(second.did().contains(&"recover a".to_owned()));
    assert_eq!(tasks(&spawned(&mut second)), Vec::<&str>::new(), "the probe goes on, so no other task starts");
    // Its keeper reports the answer again to the new owner.
    second.notify(&mut stage, Input::Answered(probe[0].run.id.clone()));
    assert_eq!(tasks(&spawned(&mut second)), ["b"]);
}

#[test]
fn any_number_of_tasks_follows_an_answer() {
    let mut stage = Stage::new();
    let ids: Vec<String> = (0..50).map(|number| format!("t{number:02}")).collect();
    add_plain(&mut stage, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    let mut actor = stage.start("m", max_runs(1));
    let first = spawned(&mut actor);
    let resets = quota(&stage, Some(MINUTE));
    end(&mut stage, &mut actor, &first[0].run.id, resets);
    // All of them wait, and no other runner is woken for them.
    let mut large = stage.start("n", max_runs(60));
    assert_eq!(stage.play(&mut actor), Some(Span::from_ms(MINUTE)));
    stage.pass(MINUTE);
    stage.play(&mut actor);
    stage.play(&mut large);
    let mut works = spawned(&mut actor);
    works.extend(spawned(&mut large));
    assert_eq!(works.len(), 1);
    let of_large = works[0].run.owner.as_str() == "n";
    let owner = if of_large { &mut large } else { &mut actor };
    owner.dispatcher.on(Input::Answered(works[0].run.id.clone()), stage.now());
    for _ in 0..3 {
        stage.play(&mut actor);
        stage.play(&mut large);
    }
    works.extend(spawned(&mut actor));
    works.extend(spawned(&mut large));
    assert_eq!(works.len(), 50, "all have started");
    assert!(stage.rows().account_limits.is_empty());
}

#[test]
fn a_limit_of_a_model_blocks_only_agents_of_that_model() {
    let mut stage = Stage::new();
    add(&mut stage, "a", &[("claude", Some("opus"))], OnQuota::Wait);
    add(&mut stage, "b", &[("claude", Some("opus"))], OnQuota::Wait);
    add(&mut stage, "c", &[("claude", Some("sonnet"))], OnQuota::Wait);
    let mut actor = stage.start("m", max_runs(1));
    let works = spawned(&mut actor);
    let limit = Limit { kind: "seven_day_opus".into(), model: Some("opus".into()), resets: None };
    end(&mut stage, &mut actor, &works[0].run.id, ended(AgentVerdict::Quota(limit), 0));
    assert_eq!(tasks(&spawned(&mut actor)), ["c"]);
}

#[test]
fn the_next_agent_takes_over_with_on_quota_next() {
    let mut stage = Stage::new();
    add(&mut stage, "a", &[("claude", None), ("codex", None)], OnQuota::Next);
    let mut actor = stage.start("m", max_runs(1));
    let works = spawned(&mut actor);
    assert_eq!(works[0].run.agent.as_ref().unwrap().agent, name("claude"));
    let resets = quota(&stage, Some(MINUTE));
    end(&mut stage, &mut actor, &works[0].run.id, resets);
    let next = spawned(&mut actor);
    assert_eq!(next[0].run.agent.as_ref().unwrap().agent, name("codex"));
    end(&mut stage, &mut actor, &next[0].run.id, exited(0));
    assert_eq!(stage.status("a"), "completed");
}

#[test]
fn a_missing_login_is_retried_later_or_at_a_persons_request() {
    let mut stage = Stage::new();
    add_plain(&mut stage, &["a", "b"]);
    let mut actor = stage.start("m", max_runs(2));
    let works = spawned(&mut actor);
    end(&mut stage, &mut actor, &works[0].run.id, ended(AgentVerdict::Auth, 0));
    assert_eq!(end(&mut stage, &mut actor, &works[1].run.id, ended(AgentVerdict::Auth, 0)), Span::from_ms(5 * MINUTE));
    assert_eq!(&*stage.rows().account_limits.values().next().unwrap().scope.kind, LOGIN);
    let reply = stage.ask(AccountRequest::Retry { account: name("claude") }.into());
    assert!(matches!(reply, Reply::Account(AccountOutcome::Retried(limits)) if limits.len() == 1));
    stage.play(&mut actor);
    assert_eq!(tasks(&spawned(&mut actor)), ["a"]);
}
