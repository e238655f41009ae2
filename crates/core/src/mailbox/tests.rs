use super::*;
use crate::dispatch::ReleasePolicy;
use crate::ids::{HolderId, Name};
use crate::time::{Lease, Wall};

fn run(number: i64) -> (RunId, Epoch) {
    (RunId::new(&format!("r-{number}")).unwrap(), Epoch(number))
}

fn delivery() -> Delivery {
    Delivery::new(MessageId::new("m-1").unwrap(), Seq(3), TaskId::new("t-1").unwrap(), Mode::Steer)
}

fn claim(grant: i64) -> LockClaim {
    let (lock, holder) = (Name::new("dispatch:t-1").unwrap(), HolderId::new("dispatch:m-1").unwrap());
    LockClaim { lock, holder, epoch: Epoch(grant) }
}

fn dispatch(plan: Plan, number: i64, grant: i64) -> Input {
    let policy = match plan {
        Plan::Spawn => ReleasePolicy::AfterSpawnObservation,
        Plan::ControlSocket { .. } | Plan::Mailbox => ReleasePolicy::AfterSendFinal,
    };
    let (run, epoch) = run(number);
    let release = Release::new(policy, Some(claim(grant)));
    Input::Dispatch(Box::new(Dispatch {
        plan,
        run,
        epoch,
        dispatcher: None,
        release,
        began: Stamp { lease: Lease(0), wall: Wall(0) },
    }))
}

fn socket(number: i64, grant: i64) -> Input {
    dispatch(Plan::ControlSocket { run: run(number).0 }, number, grant)
}

fn fetch(number: i64) -> Input {
    let (run, epoch) = run(number);
    Input::Fetch { run, epoch, way: DeliveryPath::Read }
}

fn acknowledge(number: i64) -> Input {
    let (run, epoch) = run(number);
    Input::Acknowledge { run, epoch }
}

fn settle(grant: i64, outcome: SendOutcome) -> Input {
    Input::Settle { epoch: Epoch(grant), outcome, is_written: true }
}

/// The keeper has taken the message, and has not written it in time.
fn settle_taken(grant: i64) -> Input {
    Input::Settle { epoch: Epoch(grant), outcome: SendOutcome::Sent, is_written: false }
}

fn inputs() -> Vec<Input> {
    let back = |has_ended_well| Input::Return { has_ended_well };
    vec![
        fetch(5),
        fetch(8),
        acknowledge(5),
        acknowledge(8),
        socket(5, 6),
        socket(8, 9),
        dispatch(Plan::Spawn, 8, 9),
        settle(6, SendOutcome::Sent),
        settle(6, SendOutcome::Rejected),
        settle(9, SendOutcome::Unknown),
        Input::Observe(ReleaseEvent::SocketAlive),
        back(true),
        back(false),
        Input::Written { epoch: Epoch(5) },
    ]
}

/// The outcome of every input in every state: `d` done, `r` done and a lock released, `y` yours, `i` in dispatch, `n`
/// not yours, `w` not written, `f` final.
#[test]
fn every_input_has_an_outcome_in_every_state() {
    let after = |inputs: &[Input]| inputs.iter().cloned().fold(delivery(), |state, input| state.step(input).state);
    let table = [
        ("unread", after(&[]), "ddnndddnnndddn"),
        ("dispatched to 5", after(&[socket(5, 6)]), "iiiiiiirrndiid"),
        ("dispatched to 5, written", after(&[socket(5, 6), Input::Written { epoch: Epoch(5) }]), "yddniiirrndddd"),
        ("fetched by 5", after(&[fetch(5)]), "yddnyddnnndddd"),
        ("fetched by 8", after(&[fetch(8)]), "nyndnyynnndddn"),
        ("started with 8", after(&[dispatch(Plan::Spawn, 8, 9)]), "nyndiiinnnrddn"),
        ("sent to 5", after(&[socket(5, 6), settle(6, SendOutcome::Sent)]), "yddnyddnnndddd"),
        ("taken by 5", after(&[socket(5, 6), settle_taken(6)]), "ydwnyddnnndddd"),
        ("rejected", after(&[socket(5, 6), settle(6, SendOutcome::Rejected)]), "ddnndddnnndddn"),
        ("acknowledged", after(&[fetch(5), acknowledge(5)]), "fffffffnnndfff"),
        ("undelivered", after(&[Input::Return { has_ended_well: false }]), "fffffffnnndfff"),
        ("unknown", after(&[socket(8, 9), settle(9, SendOutcome::Unknown)]), "fffffffnnndfff"),
    ];
    for (name, state, wanted) in table {
        let outcome = |input: Input| match state.clone().step(input).outcome {
            Outcome::Done => 'd',
            Outcome::Release(_) => 'r',
            Outcome::Yours => 'y',
            Outcome::InDispatch => 'i',
            Outcome::NotYours => 'n',
            Outcome::NotWritten => 'w',
            Outcome::Final => 'f',
        };
        assert_eq!(inputs().into_iter().map(outcome).collect::<String>(), wanted, "{name}");
    }
}

/// A message without the machine: the runs that have seen it, and whether it was given up.
#[derive(Debug, Clone, Default)]
struct Model {
    seen: Vec<i64>,
    acknowledged: bool,
    given_up: bool,
    /// The run and the grant of a dispatch that is under way.
    sending: Option<(i64, i64)>,
    released: Vec<i64>,
    granted: Vec<i64>,
}

/// All orders of inputs up to a length of five. A run with a lower number than one that has seen the message is over,
/// and has no more inputs.
#[test]
fn no_order_of_inputs_shows_a_message_twice_or_loses_it() {
    let inputs = inputs();
    let mut stack = vec![(delivery(), Model::default(), 0)];
    let mut states = 0;
    while let Some((state, model, length)) = stack.pop() {
        state.check();
        states += 1;
        let mut seen = model.seen.clone();
        seen.dedup();
        assert_eq!(seen, model.seen, "a run has seen it twice");
        let is_open = matches!(state.state, State::Unread { .. } | State::Dispatched { .. } | State::Fetched { .. });
        assert_eq!(is_open, !(model.acknowledged || model.given_up), "{state:?} {model:?}");
        assert_eq!(state.claim().is_some(), model.granted.len() > model.released.len(), "{state:?} {model:?}");
        if length == 5 {
            continue;
        }
        for input in &inputs {
            let step = state.clone().step(input.clone());
            let mut model = model.clone();
            let is_done = matches!(step.outcome, Outcome::Done | Outcome::Release(_));
            if let Outcome::Release(claim) = &step.outcome {
                model.released.push(claim.epoch.0);
                assert_eq!(model.released, model.granted, "{input:?} released another grant");
            }
            match input {
                Input::Fetch { epoch, .. } if is_done => model.seen.push(epoch.0),
                Input::Acknowledge { .. } if is_done => model.acknowledged = true,
                Input::Dispatch(dispatch) if is_done => {
                    let grant = dispatch.release.claim().unwrap().epoch.0;
                    model.granted.push(grant);
                    match dispatch.plan {
                        Plan::Spawn => model.seen.push(dispatch.epoch.0),
                        _ => model.sending = Some((dispatch.epoch.0, grant)),
                    }
                }
                Input::Settle { outcome, .. } if is_done => match (model.sending.take(), outcome) {
                    (Some((run, _)), SendOutcome::Sent) => model.seen.push(run),
                    (Some(_), SendOutcome::Unknown) => model.given_up = true,
                    _ => {}
                },
                // The keeper reports before the dispatcher.
                Input::Written { .. } if is_done => model.seen.extend(model.sending.take().map(|(run, _)| run)),
                Input::Return { .. } if is_done => model.given_up = true,
                _ => {}
            }
            stack.push((step.state, model, length + 1));
        }
    }
    assert!(states > 100_000, "{states}");
}

#[test]
fn a_receipt_states_only_what_is_known() {
    let after = |inputs: &[Input]| inputs.iter().cloned().fold(delivery(), |state, input| state.step(input).state);
    let sent = settle(6, SendOutcome::Sent);
    let table = [
        (after(&[]), Receipt::Queued, Receipt::Undelivered, Receipt::Undelivered),
        (after(&[socket(5, 6)]), Receipt::Queued, Receipt::Queued, Receipt::Queued),
        (after(&[fetch(5)]), Receipt::Sent, Receipt::Undelivered, Receipt::Read),
        (after(&[socket(5, 6), sent]), Receipt::Delivered, Receipt::Undelivered, Receipt::Read),
        (after(&[socket(5, 6), settle_taken(6)]), Receipt::Sent, Receipt::Undelivered, Receipt::Undelivered),
        (after(&[socket(5, 6), settle_taken(6), acknowledge(5)]), Receipt::Sent, Receipt::Undelivered, Receipt::Undelivered),
        (after(&[fetch(5), acknowledge(5)]), Receipt::Read, Receipt::Read, Receipt::Read),
        (after(&[socket(5, 6), settle(6, SendOutcome::Unknown)]), Receipt::Unknown, Receipt::Unknown, Receipt::Unknown),
    ];
    for (state, open, over, ended_well) in table {
        assert_eq!(state.receipt(Some(Status::InProgress), true), open, "{state:?}");
        for status in [Some(Status::Failed), Some(Status::Completed), None] {
            assert_eq!(state.receipt(status, false), over, "{state:?}");
            assert_eq!(state.receipt(status, true), ended_well, "{state:?}");
        }
    }
}

#[test]
fn a_message_written_by_the_keeper_can_be_acknowledged() {
    let taken = [socket(5, 6), settle_taken(6)].into_iter().fold(delivery(), |state, input| state.step(input).state);
    let written = taken.step(Input::Written { epoch: Epoch(5) }).state;
    assert_eq!(written.receipt(Some(Status::InProgress), false), Receipt::Delivered);
    assert_eq!(written.step(acknowledge(5)).state.receipt(None, false), Receipt::Read);
}

#[test]
fn a_message_written_by_the_keeper_counts_before_the_dispatch_settles() {
    let of = |outcome: SendOutcome, has_ended_well: bool| {
        let written = delivery().step(socket(5, 6)).state.step(Input::Written { epoch: Epoch(5) }).state;
        let over = written.step(Input::Return { has_ended_well }).state;
        let settled = over.step(settle(6, outcome));
        assert!(matches!(settled.outcome, Outcome::Release(_)), "{outcome:?}");
        settled.state.receipt(Some(Status::Completed), has_ended_well)
    };
    for outcome in [SendOutcome::Sent, SendOutcome::Unknown, SendOutcome::Failed] {
        assert_eq!((of(outcome, true), of(outcome, false)), (Receipt::Read, Receipt::Undelivered), "{outcome:?}");
    }
}

#[test]
fn the_stored_form_is_frozen() {
    let text = |state: &State| serde_json::to_string(state).unwrap();
    let fetched = delivery().step(fetch(5)).state.step(fetch(8)).state;
    let wanted = r#"{"fetched":{"run":"r-8","epoch":8,"way":"read","redelivered":true}}"#;
    assert_eq!(text(&fetched.state), wanted);
    assert_eq!(serde_json::from_str::<State>(wanted).unwrap(), fetched.state);
    assert_eq!(text(&delivery().state), r#"{"unread":{"redelivered":false}}"#);
    let sending = delivery().step(socket(5, 6)).state.dispatch.unwrap();
    let wanted = concat!(
        r#"{"plan":{"control_socket":{"run":"r-5"}},"run":"r-5","epoch":5,"release":{"policy":"after_send_final","#,
        r#""claim":{"lock":"dispatch:t-1","holder":"dispatch:m-1","epoch":6}},"began":{"lease":0,"wall":0}}"#
    );
    assert_eq!(serde_json::to_string(&sending).unwrap(), wanted);
    assert_eq!(serde_json::from_str::<Dispatch>(wanted).unwrap(), sending);
}
