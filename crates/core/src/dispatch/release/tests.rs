use super::*;
use crate::ids::{Epoch, HolderId, Name};

const POLICIES: [ReleasePolicy; 3] = [ReleasePolicy::NoLock, ReleasePolicy::AfterSendFinal, ReleasePolicy::AfterSpawnObservation];

fn claim() -> LockClaim {
    LockClaim { lock: Name::new("dispatch:t-1").unwrap(), holder: HolderId::new("dispatch:x-7").unwrap(), epoch: Epoch(7) }
}

fn events() -> Vec<ReleaseEvent> {
    let outcomes =
        [SendOutcome::Sent, SendOutcome::FallbackSent, SendOutcome::Rejected, SendOutcome::Failed, SendOutcome::Unknown];
    let others = [
        ReleaseEvent::SpawnStarted { pid: 5 },
        ReleaseEvent::SpawnStartFailed { error: "no".into() },
        ReleaseEvent::SocketAlive,
        ReleaseEvent::ChildExited { code: Some(1) },
        ReleaseEvent::ChildExited { code: None },
        ReleaseEvent::MailboxEnqueued,
    ];
    outcomes.map(ReleaseEvent::SendFinal).into_iter().chain(others).collect()
}

/// The policies, written down a second time.
fn releases(policy: ReleasePolicy, event: &ReleaseEvent) -> bool {
    let word = serde_json::to_value(event).unwrap();
    let word = word.as_str().map_or_else(|| word.as_object().unwrap().keys().next().unwrap().clone(), str::to_owned);
    match policy {
        ReleasePolicy::NoLock => false,
        ReleasePolicy::AfterSendFinal => word == "send_final",
        ReleasePolicy::AfterSpawnObservation => ["spawn_start_failed", "socket_alive", "child_exited"].contains(&word.as_str()),
    }
}

#[test]
fn every_event_under_every_policy_has_one_outcome() {
    for policy in POLICIES {
        for event in events() {
            let step = Release::new(policy, Some(claim())).step(&event);
            let wanted = if releases(policy, &event) { Outcome::Release(claim()) } else { Outcome::Nothing };
            assert_eq!(step.outcome, wanted, "{policy:?} {event:?}");
            assert_eq!(step.effects, []);
        }
    }
}

/// All orders of events up to a length of six, with one event of each kind.
#[test]
fn no_order_of_events_releases_twice_early_or_another_claim() {
    let events = events();
    for policy in POLICIES {
        let mut sequences = 0;
        let mut stack = vec![(Release::new(policy, Some(claim())), 0, false)];
        while let Some((state, length, released)) = stack.pop() {
            state.check();
            sequences += 1;
            assert_eq!(state.claim().is_some(), !released && policy != ReleasePolicy::NoLock);
            if length == 6 {
                continue;
            }
            for event in &events {
                let step = state.clone().step(event);
                let due = !released && releases(policy, event);
                let wanted = if due { Outcome::Release(claim()) } else { Outcome::Nothing };
                assert_eq!(step.outcome, wanted, "{policy:?} {event:?} after {length} events");
                stack.push((step.state, length + 1, released || due));
            }
        }
        assert_eq!(sequences, (0..=6).map(|length| 11_usize.pow(length)).sum::<usize>());
    }
}

#[test]
fn the_stored_form_is_frozen() {
    let held = Release::new(ReleasePolicy::AfterSpawnObservation, Some(claim()));
    let text = r#"{"policy":"after_spawn_observation","claim":{"lock":"dispatch:t-1","holder":"dispatch:x-7","epoch":7}}"#;
    assert_eq!(serde_json::to_string(&held).unwrap(), text);
    let released = held.step(&ReleaseEvent::SocketAlive).state;
    assert_eq!(serde_json::to_string(&released).unwrap(), r#"{"policy":"after_spawn_observation"}"#);
    assert_eq!(serde_json::from_str::<Release>(text).unwrap().claim(), Some(&claim()));
}
