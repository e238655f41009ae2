use super::*;
use crate::process::ProcessId;
use crate::resource::grant::Address;
use crate::step::Now;
use crate::task::RunEnd;
use crate::time::Stamp;

fn runner(host: &str, terms: Option<(i64, &str)>) -> Runner {
    let process = ProcessId { host: host.into(), boot: "boot".into(), pid_ns: 1, pid: 1, start: 1 };
    Runner {
        seen: Lease(1_000),
        terms: terms.map(|(ttl, folder)| Terms { ttl: Span::from_ms(ttl), folder: folder.into() }),
        ..Runner::new(RunnerId::new("n-1").unwrap(), process, Address("nowhere".into()), Stamp::default())
    }
}

fn run(owner: &Runner, now: i64) -> Run {
    let mut run = Run {
        id: RunId::new("r-1").unwrap(),
        task: TaskId::new("t-1").unwrap(),
        attempt: 0,
        epoch: Epoch(1),
        owner: owner.id.clone(),
        owner_epoch: Epoch(1),
        holds: Vec::new(),
        agent: None,
        session: None,
        host: owner.process.host.clone(),
        boot: owner.process.boot.clone(),
        started: Stamp::default(),
        lease: None,
        ended: None,
    };
    run.renew(owner, Lease(now));
    run
}

fn at(lease: i64, patience: i64) -> Now {
    Now { lease: Lease(lease), patience: Span::from_ms(patience), ..Now::default() }
}

#[test]
fn a_run_is_lost_after_its_lease_and_the_patience_for_a_stall() {
    let owner = runner("here", Some((300, "/a")));
    let mut run = run(&owner, 1_000);
    assert!(!run.is_lost(&at(1_299, 0)) && run.is_lost(&at(1_300, 0)));
    assert!(!run.is_lost(&at(1_399, 100)) && run.is_lost(&at(1_400, 100)));
    run.renew(&owner, Lease(1_200));
    assert!(!run.is_lost(&at(1_499, 0)) && run.is_lost(&at(1_500, 0)));
    run.ended = Some(RunEndRecord::new(RunEnd::Lost, Wall(0), None));
    assert!(!run.is_lost(&at(9_999, 0)));
}

#[test]
fn a_run_without_a_lease_is_never_lost_by_time() {
    let owner = runner("here", None);
    assert_eq!(run(&owner, 1_000).lease, None);
    assert!(!run(&owner, 1_000).is_lost(&at(i64::MAX, 0)));
    assert!(!owner.is_silent(&at(i64::MAX, 0)));
}

#[test]
fn renewal_never_shortens_a_lease() {
    let mut run = run(&runner("here", Some((60_000, "/a"))), 1_000);
    let hasty = runner("here", Some((3_000, "/a")));
    run.renew(&hasty, Lease(2_000));
    assert!(!run.is_lost(&at(60_999, 0)), "its keeper may not have heard of the shorter one");
    run.renew(&hasty, Lease(60_000));
    assert!(run.is_lost(&at(63_000, 0)));
}

#[test]
fn a_runner_is_silent_when_its_lease_is_over() {
    let runner = runner("here", Some((300, "/a")));
    assert!(!runner.is_silent(&at(1_299, 0)) && runner.is_silent(&at(1_300, 0)) && !runner.is_silent(&at(1_300, 1)));
}

#[test]
fn a_run_is_within_reach_on_the_same_machine_and_folder() {
    let leased = run(&runner("here", Some((300, "/a"))), 1_000);
    assert!(leased.is_within_reach_of(&runner("here", Some((900, "/a")))));
    assert!(!leased.is_within_reach_of(&runner("here", Some((300, "/b")))));
    assert!(!leased.is_within_reach_of(&runner("there", Some((300, "/a")))));
    assert!(!leased.is_within_reach_of(&runner("here", None)));
    let plain = run(&runner("here", None), 1_000);
    assert!(plain.is_within_reach_of(&runner("here", None)));
    assert!(plain.is_within_reach_of(&runner("another home", None)), "all share one kernel");
    assert!(!plain.is_within_reach_of(&runner("there", Some((300, "/a")))), "it was copied to where machines differ");
}
