//! Every state of a task against every input.

use super::*;

/// A state in few letters, with the failures and recoveries so far.
fn state(task: &Task) -> String {
    let state = match &task.state {
        State::Pending => "pending".into(),
        State::Running(_) => "running".into(),
        State::Stuck { .. } => "stuck".into(),
        State::Stopping { then: After::Cancel, .. } => "to cancel".into(),
        State::Stopping { then: After::Fail { .. }, .. } => "to fail".into(),
        State::Stopping { then: After::Restart, .. } => "to restart".into(),
        State::Review => "review".into(),
        State::Done(done) => done.status().to_string(),
    };
    match (task.failures, task.recoveries) {
        (0, 0) => state,
        (failures, recoveries) => format!("{state} ({failures} {recoveries})"),
    }
}

fn said(task: &Task) -> &'static str {
    match task.live().and_then(|live| live.verdict.as_ref()) {
        None => "",
        Some(Verdict::Done { .. }) => "done",
        Some(Verdict::Failed { .. }) => "failed",
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Started(_) => "started",
        Outcome::NotPending(_) => "not pending",
        Outcome::Seen => "seen",
        Outcome::Stuck => "stuck",
        Outcome::Recovered => "recovered",
        Outcome::Noted => "noted",
        Outcome::Ended(_) => "ended",
        Outcome::Again => "again",
        Outcome::Stopping => "stopping",
        Outcome::Over(_) => "over",
        Outcome::Late => "late",
        Outcome::Fenced(_) => "fenced",
        Outcome::Busy(_) => "busy",
        Outcome::Marked(_) => "marked",
    }
}

/// A task in that state whose last run, if it had one, had a run before it that failed or was lost.
fn scene(state: &str) -> World<Task> {
    let mut world = World::task();
    let (state, said) = state.split_once(", said ").unwrap_or((state, ""));
    if state != "pending" {
        world.start();
    }
    let epoch = world.epoch();
    match state {
        "pending" | "running" => {}
        "failed once" => drop(world.end_last(Ending::Exited(1))),
        "lost once" => drop(world.end_last(Ending::Lost)),
        "last try" => {
            world.end_last(Ending::Exited(1));
            world.start();
        }
        "last recovery" => {
            world.end_last(Ending::Lost);
            world.start();
        }
        "stuck" => drop(world.pulse(epoch, Pulse::SessionDead)),
        "to cancel" => drop(world.stop(After::Cancel)),
        "to fail" => drop(world.fail()),
        "to restart" => drop(world.stop(After::Restart)),
        "review" => {
            world.end_last(Ending::Exited(1));
            world.act(Input::Set(Mark::Review));
        }
        "completed" => drop(world.end_last(Ending::Exited(0))),
        "failed" => {
            world.end_last(Ending::Exited(1));
            world.start();
            world.end_last(Ending::Exited(1));
        }
        "cancelled" => {
            world.stop(After::Cancel);
            world.end_last(Ending::Signalled(15));
        }
        "skipped" => {
            world.end_last(Ending::Never);
            world.act(Input::Set(Mark::Skipped));
        }
        _ => unreachable!("{state}"),
    }
    let epoch = world.epoch();
    match said {
        "" => {}
        "done" => drop(world.say(Some(epoch), true)),
        "failed" => drop(world.say(Some(epoch), false)),
        _ => unreachable!("{said}"),
    }
    world.pass(TIMEOUT);
    world
}

const STATES: [&str; 20] = [
    "pending",
    "failed once",
    "lost once",
    "running",
    "running, said done",
    "running, said failed",
    "last try",
    "last recovery",
    "stuck",
    "to cancel",
    "to cancel, said done",
    "to fail",
    "to fail, said done",
    "to restart",
    "to restart, said done",
    "review",
    "completed",
    "failed",
    "cancelled",
    "skipped",
];

/// Every state against the given inputs: the outcome and the state afterwards (a refusal changes nothing), with
/// `+` for the events and `!` for the errands that come out.
fn table(inputs: &[&str], act: fn(&mut World<Task>, &str) -> Outcome) -> String {
    let mut columns = vec![std::iter::once("").chain(STATES).map(str::to_owned).collect::<Vec<_>>()];
    for input in inputs {
        let cells = STATES.iter().map(|name| cell(name, |world| act(world, input)));
        columns.push(std::iter::once((*input).to_owned()).chain(cells).collect());
    }
    let widths: Vec<usize> = columns.iter().map(|column| column.iter().map(String::len).max().unwrap() + 2).collect();
    let line = |row: usize| {
        let cells = columns.iter().zip(&widths).map(|(column, width)| format!("{:width$}", column[row]));
        format!("\n{}", cells.collect::<String>().trim_end())
    };
    (0..=STATES.len()).map(line).collect::<String>() + "\n"
}

fn cell(name: &str, act: impl FnOnce(&mut World<Task>) -> Outcome) -> String {
    let mut world = scene(name);
    let before = world.clone();
    let outcome = act(&mut world);
    let mut cell = word(&outcome).to_owned();
    if is_refusal(&outcome) {
        assert_eq!((&world.machine, &world.log, &world.sent), (&before.machine, &before.log, &before.sent), "{name}: {cell}");
        return cell;
    }
    cell += &format!(": {}", state(&world.machine));
    if said(&world.machine) != said(&before.machine) && world.machine.live().is_some() {
        cell += &format!(", said {}", said(&world.machine));
    }
    world.told()[before.log.len()..].iter().for_each(|kind| cell += &format!(" +{kind}"));
    for errand in &world.sent[before.sent.len()..] {
        cell += match errand {
            Errand::Spawn { .. } => " !spawn",
            Errand::Kill { .. } => " !kill",
        };
    }
    cell
}

pub(super) fn is_refusal(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::NotPending(_) | Outcome::Over(_) | Outcome::Late | Outcome::Fenced(_) | Outcome::Busy(_))
}

#[test]
fn every_state_answers_one_who_runs_it() {
    let inputs = ["start", "never began", "end of another"];
    let found = table(&inputs, |world, input| match input {
        "start" => world.start(),
        "never began" => world.end_last(Ending::Never),
        "end of another" => world.end(9, Ending::Exited(0)),
        _ => unreachable!("{input}"),
    });
    let expected = "
                       start                                   never began                       end of another
pending                started: running +started !spawn        late                              late
failed once            started: running (1 0) +started !spawn  late                              late
lost once              started: running (0 1) +started !spawn  late                              late
running                not pending                             again: pending +restarting        late
running, said done     not pending                             ended: completed +complete        late
running, said failed   not pending                             again: pending (1 0) +restarting  late
last try               not pending                             again: pending (1 0) +restarting  late
last recovery          not pending                             again: pending (0 1) +restarting  late
stuck                  not pending                             again: pending +restarting        late
to cancel              not pending                             ended: cancelled +cancelled       late
to cancel, said done   not pending                             ended: cancelled +cancelled       late
to fail                not pending                             ended: failed +failed             late
to fail, said done     not pending                             ended: completed +complete        late
to restart             not pending                             again: pending +restarting        late
to restart, said done  not pending                             ended: completed +complete        late
review                 not pending                             late                              late
completed              not pending                             late                              late
failed                 not pending                             late                              late
cancelled              not pending                             late                              late
skipped                not pending                             late                              late
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_answers_when_its_run_ends() {
    let inputs = ["exit 0", "exit 1", "lost"];
    let found = table(&inputs, |world, input| match input {
        "exit 0" => world.end_last(Ending::Exited(0)),
        "exit 1" => world.end_last(Ending::Exited(1)),
        "lost" => world.end_last(Ending::Lost),
        _ => unreachable!("{input}"),
    });
    let expected = "
                       exit 0                            exit 1                            lost
pending                late                              late                              late
failed once            late                              late                              late
lost once              late                              late                              late
running                ended: completed +complete        again: pending (1 0) +restarting  again: pending (0 1) +restarting
running, said done     ended: completed +complete        ended: completed +complete        ended: completed +complete
running, said failed   again: pending (1 0) +restarting  again: pending (1 0) +restarting  again: pending (1 0) +restarting
last try               ended: completed (1 0) +complete  ended: failed (1 0) +failed       again: pending (1 1) +restarting
last recovery          ended: completed (0 1) +complete  again: pending (1 1) +restarting  ended: failed (0 1) +failed
stuck                  ended: completed +complete        again: pending (1 0) +restarting  again: pending (0 1) +restarting
to cancel              ended: cancelled +cancelled       ended: cancelled +cancelled       ended: cancelled +cancelled
to cancel, said done   ended: cancelled +cancelled       ended: cancelled +cancelled       ended: cancelled +cancelled
to fail                ended: failed +failed             ended: failed +failed             ended: failed +failed
to fail, said done     ended: completed +complete        ended: completed +complete        ended: completed +complete
to restart             again: pending (0 1) +restarting  again: pending (0 1) +restarting  again: pending (0 1) +restarting
to restart, said done  ended: completed +complete        ended: completed +complete        ended: completed +complete
review                 late                              late                              late
completed              late                              late                              late
failed                 late                              late                              late
cancelled              late                              late                              late
skipped                late                              late                              late
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_answers_one_who_looks() {
    let inputs = ["active", "idle, not long", "idle", "dead", "old active", "future active"];
    let found = table(&inputs, |world, input| {
        let epoch = world.epoch();
        match input {
            "active" => world.pulse(epoch, Pulse::Active),
            "idle, not long" => world.pulse(epoch, Pulse::Idle(Span::from_secs(TIMEOUT - 1))),
            "idle" => world.pulse(epoch, Pulse::Idle(Span::from_secs(TIMEOUT))),
            "dead" => world.pulse(epoch, Pulse::SessionDead),
            "old active" => world.pulse(Epoch(epoch.0 - 1), Pulse::Active),
            "future active" => world.pulse(Epoch(epoch.0 + 1), Pulse::Active),
            _ => unreachable!("{input}"),
        }
    });
    let expected = "
                       active                         idle, not long       idle                       dead                       old active  future active
pending                fenced                         fenced               fenced                     fenced                     fenced      fenced
failed once            fenced                         fenced               fenced                     fenced                     fenced      fenced
lost once              fenced                         fenced               fenced                     fenced                     fenced      fenced
running                seen: running                  seen: running        stuck: stuck +stuck        stuck: stuck +stuck        fenced      fenced
running, said done     seen: running                  seen: running        stuck: stuck +stuck        stuck: stuck +stuck        fenced      fenced
running, said failed   seen: running                  seen: running        stuck: stuck +stuck        stuck: stuck +stuck        fenced      fenced
last try               seen: running (1 0)            seen: running (1 0)  stuck: stuck (1 0) +stuck  stuck: stuck (1 0) +stuck  fenced      fenced
last recovery          seen: running (0 1)            seen: running (0 1)  stuck: stuck (0 1) +stuck  stuck: stuck (0 1) +stuck  fenced      fenced
stuck                  recovered: running +recovered  seen: stuck          seen: stuck                seen: stuck                fenced      fenced
to cancel              seen: to cancel                seen: to cancel      seen: to cancel            seen: to cancel            fenced      fenced
to cancel, said done   seen: to cancel                seen: to cancel      seen: to cancel            seen: to cancel            fenced      fenced
to fail                seen: to fail                  seen: to fail        seen: to fail              seen: to fail              fenced      fenced
to fail, said done     seen: to fail                  seen: to fail        seen: to fail              seen: to fail              fenced      fenced
to restart             seen: to restart               seen: to restart     seen: to restart           seen: to restart           fenced      fenced
to restart, said done  seen: to restart               seen: to restart     seen: to restart           seen: to restart           fenced      fenced
review                 fenced                         fenced               fenced                     fenced                     fenced      fenced
completed              fenced                         fenced               fenced                     fenced                     fenced      fenced
failed                 fenced                         fenced               fenced                     fenced                     fenced      fenced
cancelled              fenced                         fenced               fenced                     fenced                     fenced      fenced
skipped                fenced                         fenced               fenced                     fenced                     fenced      fenced
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_answers_one_who_knows_the_result() {
    let inputs = ["done", "failed", "done, old epoch", "done, by hand", "failed, by hand"];
    let found = table(&inputs, |world, input| {
        let epoch = world.epoch();
        match input {
            "done" => world.say(Some(epoch), true),
            "failed" => world.say(Some(epoch), false),
            "done, old epoch" => world.say(Some(Epoch(epoch.0 - 1)), true),
            "done, by hand" => world.say(None, true),
            "failed, by hand" => world.say(None, false),
            _ => unreachable!("{input}"),
        }
    });
    let expected = "
                       done                                  failed                                  done, old epoch  done, by hand                     failed, by hand
pending                fenced                                fenced                                  fenced           ended: completed +complete        ended: failed +failed
failed once            fenced                                fenced                                  fenced           ended: completed (1 0) +complete  ended: failed (1 0) +failed
lost once              fenced                                fenced                                  fenced           ended: completed (0 1) +complete  ended: failed (0 1) +failed
running                noted: running, said done             noted: running, said failed             fenced           busy                              busy
running, said done     noted: running                        noted: running, said failed             fenced           busy                              busy
running, said failed   noted: running, said done             noted: running                          fenced           busy                              busy
last try               noted: running (1 0), said done       noted: running (1 0), said failed       fenced           busy                              busy
last recovery          noted: running (0 1), said done       noted: running (0 1), said failed       fenced           busy                              busy
stuck                  noted: running, said done +recovered  noted: running, said failed +recovered  fenced           busy                              busy
to cancel              noted: to cancel, said done           noted: to cancel, said failed           fenced           busy                              busy
to cancel, said done   noted: to cancel                      noted: to cancel, said failed           fenced           busy                              busy
to fail                noted: to fail, said done             noted: to fail, said failed             fenced           busy                              busy
to fail, said done     noted: to fail                        noted: to fail, said failed             fenced           busy                              busy
to restart             noted: to restart, said done          noted: to restart, said failed          fenced           busy                              busy
to restart, said done  noted: to restart                     noted: to restart, said failed          fenced           busy                              busy
review                 fenced                                fenced                                  fenced           ended: completed (1 0) +complete  ended: failed (1 0) +failed
completed              fenced                                fenced                                  fenced           over                              over
failed                 fenced                                fenced                                  fenced           over                              over
cancelled              fenced                                fenced                                  fenced           over                              over
skipped                fenced                                fenced                                  fenced           over                              over
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_answers_one_who_stops_it() {
    let inputs = ["cancel", "fail", "restart"];
    let found = table(&inputs, |world, input| match input {
        "cancel" => world.stop(After::Cancel),
        "fail" => world.fail(),
        "restart" => world.stop(After::Restart),
        _ => unreachable!("{input}"),
    });
    let expected = "
                       cancel                                     fail                                     restart
pending                ended: cancelled +cancelled                ended: failed +failed                    not pending
failed once            ended: cancelled (1 0) +cancelled          ended: failed (1 0) +failed              not pending
lost once              ended: cancelled (0 1) +cancelled          ended: failed (0 1) +failed              not pending
running                stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to restart +stopping !kill
running, said done     stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to restart +stopping !kill
running, said failed   stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to restart +stopping !kill
last try               stopping: to cancel (1 0) +stopping !kill  stopping: to fail (1 0) +stopping !kill  stopping: to restart (1 0) +stopping !kill
last recovery          stopping: to cancel (0 1) +stopping !kill  stopping: to fail (0 1) +stopping !kill  stopping: to restart (0 1) +stopping !kill
stuck                  stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to restart +stopping !kill
to cancel              stopping: to cancel                        stopping: to cancel                      stopping: to cancel
to cancel, said done   stopping: to cancel                        stopping: to cancel                      stopping: to cancel
to fail                stopping: to cancel +stopping              stopping: to fail                        stopping: to fail
to fail, said done     stopping: to cancel +stopping              stopping: to fail                        stopping: to fail
to restart             stopping: to cancel +stopping              stopping: to fail +stopping              stopping: to restart
to restart, said done  stopping: to cancel +stopping              stopping: to fail +stopping              stopping: to restart
review                 ended: cancelled (1 0) +cancelled          ended: failed (1 0) +failed              not pending
completed              over                                       over                                     over
failed                 over                                       over                                     over
cancelled              over                                       over                                     over
skipped                over                                       over                                     over
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_answers_one_who_decides_by_hand() {
    let inputs = ["retry", "skip", "review"];
    let found = table(&inputs, |world, input| match input {
        "retry" => world.act(Input::Retry),
        "skip" => world.act(Input::Set(Mark::Skipped)),
        "review" => world.act(Input::Set(Mark::Review)),
        _ => unreachable!("{input}"),
    });
    let expected = "
                       retry                    skip                           review
pending                not pending              marked: skipped +marked        marked: review +marked
failed once            not pending              marked: skipped (1 0) +marked  marked: review (1 0) +marked
lost once              not pending              marked: skipped (0 1) +marked  marked: review (0 1) +marked
running                not pending              busy                           busy
running, said done     not pending              busy                           busy
running, said failed   not pending              busy                           busy
last try               not pending              busy                           busy
last recovery          not pending              busy                           busy
stuck                  not pending              busy                           busy
to cancel              not pending              busy                           busy
to cancel, said done   not pending              busy                           busy
to fail                not pending              busy                           busy
to fail, said done     not pending              busy                           busy
to restart             not pending              busy                           busy
to restart, said done  not pending              busy                           busy
review                 again: pending +retried  marked: skipped (1 0) +marked  marked: review (1 0) +marked
completed              again: pending +retried  over                           over
failed                 again: pending +retried  over                           over
cancelled              again: pending +retried  over                           over
skipped                again: pending +retried  over                           over
";
    assert_eq!(found, expected, "{found}");
}
