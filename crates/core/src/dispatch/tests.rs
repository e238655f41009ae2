use super::*;

fn target() -> TaskId {
    TaskId::new("t-1").unwrap()
}

fn run() -> RunId {
    RunId::new("r-1").unwrap()
}

fn claim(lock: &str) -> LockClaim {
    LockClaim { lock: Name::new(lock).unwrap(), holder: HolderId::new("dispatch:x-7").unwrap(), epoch: Epoch(7) }
}

#[test]
fn the_plan_follows_from_the_facts() {
    let live = |input| Presence::Live { run: run(), input };
    let socket = || Ok(Plan::ControlSocket { run: run() });
    let terminal = |has_typist| Some(SessionInput::Terminal { has_typist });
    let table = [
        (Presence::Unknown, Err(Refused::UnknownTarget), Err(Refused::UnknownTarget)),
        (Presence::Over, Err(Refused::Over), Err(Refused::Over)),
        (live(None), Ok(Plan::Mailbox), Ok(Plan::Mailbox)),
        (live(Some(SessionInput::Nothing)), Ok(Plan::Mailbox), Ok(Plan::Mailbox)),
        (live(Some(SessionInput::Pipe)), socket(), Ok(Plan::Mailbox)),
        (live(Some(SessionInput::Turns)), socket(), socket()),
        (live(terminal(false)), socket(), Ok(Plan::Mailbox)),
        (live(terminal(true)), Err(Refused::Typing), Ok(Plan::Mailbox)),
        (Presence::Dormant { may_start: true }, Ok(Plan::Spawn), Ok(Plan::Spawn)),
        (Presence::Dormant { may_start: false }, Ok(Plan::Mailbox), Ok(Plan::Mailbox)),
    ];
    for (presence, steer, follow_up) in table {
        assert_eq!(decide(&presence, Mode::Steer), steer, "{presence:?}");
        assert_eq!(decide(&presence, Mode::FollowUp), follow_up, "{presence:?}");
    }
}

#[test]
fn an_unconfirmed_plan_has_three_rounds() {
    let plan = Plan::ControlSocket { run: run() };
    for round in 1..=5 {
        assert_eq!(confirm(&plan, &Ok(plan.clone()), round), Confirmation::Proceed);
        let changed = if round < 3 { Confirmation::DecideAnew } else { Confirmation::GiveUp };
        for other in [Ok(Plan::Mailbox), Ok(Plan::Spawn), Err(Refused::Over), Err(Refused::Typing)] {
            assert_eq!(confirm(&plan, &other, round), changed, "{other:?}");
        }
    }
}

#[test]
fn a_plan_with_a_wrong_lock_is_an_error() {
    let (own, other) = (claim("dispatch:t-1"), claim("dispatch:t-2"));
    let policy = |plan: &Plan, claim| release_policy(plan, &target(), claim);
    assert_eq!(policy(&Plan::Mailbox, None), Ok(ReleasePolicy::NoLock));
    assert_eq!(policy(&Plan::Mailbox, Some(&own)), Err(PlanError::UnwantedLock { target: target(), lock: own.lock.clone() }));
    for (plan, wanted) in
        [(Plan::ControlSocket { run: run() }, ReleasePolicy::AfterSendFinal), (Plan::Spawn, ReleasePolicy::AfterSpawnObservation)]
    {
        assert_eq!(policy(&plan, Some(&own)), Ok(wanted));
        assert_eq!(policy(&plan, None), Err(PlanError::WithoutLock { target: target() }));
        let stranger = PlanError::LockOfAnother { target: target(), lock: other.lock.clone() };
        assert_eq!(policy(&plan, Some(&other)), Err(stranger));
    }
}
