//! Every state of a loop against every input.

use super::*;

#[test]
fn every_state_of_a_loop_answers_one_who_runs_it() {
    let found = table(&LOOPS, &["start", "never began", "end of another", "ready"], run_it);
    let expected = "
                               start                                   never began                                   end of another  ready
loop: pending                  started: running +started !spawn        late                                          late            not pending
loop: resting                  not pending                             late                                          late            not pending
loop: rested                   started: running (1 0) +started !spawn  late                                          late            clear: pending (1 0)
loop: running                  not pending                             never: pending +restarting                    late            not pending
loop: running, said done       not pending                             ended: completed +complete                    late            not pending
loop: running, said failed     not pending                             failed: resting (1 0) +restarting             late            not pending
loop: last attempt             not pending                             never: pending (2 0) +restarting              late            not pending
loop: last attempt, said done  not pending                             ended: completed (2 0) +complete              late            not pending
loop: nudged                   not pending                             never: pending (0 1) +restarting              late            not pending
loop: to restart               not pending                             never: pending +restarting                    late            not pending
loop: last recovery            not pending                             never: pending (0 2) +restarting              late            not pending
loop: overtime                 not pending                             never: pending +restarting                    late            not pending
loop: to escalate              not pending                             parked: parked (0 2) +raised +escalate !tell  late            not pending
loop: to fail                  not pending                             ended: failed +failed !tell                   late            not pending
loop: to cancel, said done     not pending                             ended: cancelled +cancelled                   late            not pending
loop: awaiting                 not pending                             late                                          late            not pending
loop: awaited too long         not pending                             late                                          late            not pending
loop: ending children          not pending                             late                                          late            not pending
loop: parked                   not pending                             late                                          late            not pending
loop: by hand                  not pending                             late                                          late            not pending
loop: review                   not pending                             late                                          late            not pending
loop: completed                not pending                             late                                          late            not pending
loop: failed                   not pending                             late                                          late            not pending
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_of_a_loop_answers_when_its_run_ends() {
    let found =
        table(&LOOPS, &["exit 0", "exit 1", "lost", "exit 1, DONE", "exit 0, DONE, children", "exit 0, DONE broken"], end_it);
    let expected = "
                               exit 0                                        exit 1                                        lost                                          exit 1, DONE                      exit 0, DONE, children              exit 0, DONE broken
loop: pending                  late                                          late                                          late                                          late                              late                                late
loop: resting                  late                                          late                                          late                                          late                              late                                late
loop: rested                   late                                          late                                          late                                          late                              late                                late
loop: running                  no_verdict: resting (1 0) +restarting         failed: resting (1 0) +restarting             lost: resting (1 0) +restarting               ended: completed +complete        awaiting +awaiting                  ended: failed +failed !tell
loop: running, said done       ended: completed +complete                    ended: completed +complete                    ended: completed +complete                    ended: completed +complete        awaiting +awaiting                  ended: completed +complete
loop: running, said failed     failed: resting (1 0) +restarting             failed: resting (1 0) +restarting             failed: resting (1 0) +restarting             ended: completed +complete        awaiting +awaiting                  ended: failed +failed !tell
loop: last attempt             ended: failed (2 0) +failed !tell             ended: failed (2 0) +failed !tell             ended: failed (2 0) +failed !tell             ended: completed (2 0) +complete  awaiting: awaiting (2 0) +awaiting  ended: failed (2 0) +failed !tell
loop: last attempt, said done  ended: completed (2 0) +complete              ended: completed (2 0) +complete              ended: completed (2 0) +complete              ended: completed (2 0) +complete  awaiting: awaiting (2 0) +awaiting  ended: completed (2 0) +complete
loop: nudged                   no_verdict: resting (1 1) +restarting         failed: resting (1 1) +restarting             lost: resting (1 1) +restarting               ended: completed (0 1) +complete  awaiting: awaiting (0 1) +awaiting  ended: failed (0 1) +failed !tell
loop: to restart               stuck: resting (1 1) +restarting              stuck: resting (1 1) +restarting              stuck: resting (1 1) +restarting              ended: completed +complete        awaiting +awaiting                  ended: failed +failed !tell
loop: last recovery            parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  ended: completed (0 2) +complete  awaiting: awaiting (0 2) +awaiting  ended: failed (0 2) +failed !tell
loop: overtime                 overtime: resting (1 0) +restarting           overtime: resting (1 0) +restarting           overtime: resting (1 0) +restarting           ended: completed +complete        awaiting +awaiting                  ended: failed +failed !tell
loop: to escalate              parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  parked: parked (0 2) +raised +escalate !tell  ended: completed (0 2) +complete  awaiting: awaiting (0 2) +awaiting  parked: parked (0 2) +raised +escalate !tell
loop: to fail                  ended: failed +failed !tell                   ended: failed +failed !tell                   ended: failed +failed !tell                   ended: completed +complete        awaiting +awaiting                  ended: failed +failed !tell
loop: to cancel, said done     ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled                   ended: cancelled +cancelled       ended: cancelled +cancelled         ended: cancelled +cancelled
loop: awaiting                 late                                          late                                          late                                          late                              late                                late
loop: awaited too long         late                                          late                                          late                                          late                              late                                late
loop: ending children          late                                          late                                          late                                          late                              late                                late
loop: parked                   late                                          late                                          late                                          late                              late                                late
loop: by hand                  late                                          late                                          late                                          late                              late                                late
loop: review                   late                                          late                                          late                                          late                              late                                late
loop: completed                late                                          late                                          late                                          late                              late                                late
loop: failed                   late                                          late                                          late                                          late                              late                                late
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_of_a_loop_answers_one_who_looks() {
    let found = table(&LOOPS, &["active", "idle, not long", "idle", "dead", "old active", "future active"], look_at_it);
    let expected = "
                               active                         idle, not long                              idle                                        dead                       old active  future active
loop: pending                  fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
loop: resting                  fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
loop: rested                   fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
loop: running                  seen: running                  seen: running                               stuck: stuck (0 1) +stuck +nudged !nudge    stuck +stuck               fenced      fenced
loop: running, said done       seen: running                  seen: running                               stuck: stuck (0 1) +stuck +nudged !nudge    stuck +stuck               fenced      fenced
loop: running, said failed     seen: running                  seen: running                               stuck: stuck (0 1) +stuck +nudged !nudge    stuck +stuck               fenced      fenced
loop: last attempt             seen: running (2 0)            seen: running (2 0)                         stuck: stuck (2 1) +stuck +nudged !nudge    stuck: stuck (2 0) +stuck  fenced      fenced
loop: last attempt, said done  seen: running (2 0)            seen: running (2 0)                         stuck: stuck (2 1) +stuck +nudged !nudge    stuck: stuck (2 0) +stuck  fenced      fenced
loop: nudged                   recovered: running +recovered  stopping: to restart (0 1) +stopping !kill  stopping: to restart (0 1) +stopping !kill  seen: stuck (0 1)          fenced      fenced
loop: to restart               seen: to restart               seen: to restart                            seen: to restart                            seen: to restart           fenced      fenced
loop: last recovery            seen: to restart (0 2)         seen: to restart (0 2)                      seen: to restart (0 2)                      seen: to restart (0 2)     fenced      fenced
loop: overtime                 seen: overtime                 seen: overtime                              seen: overtime                              seen: overtime             fenced      fenced
loop: to escalate              seen: to escalate (0 2)        seen: to escalate (0 2)                     seen: to escalate (0 2)                     seen: to escalate (0 2)    fenced      fenced
loop: to fail                  seen: to fail                  seen: to fail                               seen: to fail                               seen: to fail              fenced      fenced
loop: to cancel, said done     seen: to cancel                seen: to cancel                             seen: to cancel                             seen: to cancel            fenced      fenced
loop: awaiting                 fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
loop: awaited too long         fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
loop: ending children          fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
loop: parked                   fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
loop: by hand                  fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
loop: review                   fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
loop: completed                fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
loop: failed                   fenced                         fenced                                      fenced                                      fenced                     fenced      fenced
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_of_a_loop_answers_one_who_measures() {
    let found = table(&LOOPS, &["checkpoint", "old checkpoint", "in time", "overtime", "overtime of another"], look_at_it);
    let expected = "
                               checkpoint                           old checkpoint  in time                      overtime                                  overtime of another
loop: pending                  fenced                               fenced          late                         late                                      late
loop: resting                  fenced                               fenced          late                         late                                      late
loop: rested                   fenced                               fenced          late                         late                                      late
loop: running                  seen: running +checkpoint            fenced          seen: running                stopping: overtime +stopping !kill        late
loop: running, said done       seen: running +checkpoint            fenced          seen: running                stopping: overtime +stopping !kill        late
loop: running, said failed     seen: running +checkpoint            fenced          seen: running                stopping: overtime +stopping !kill        late
loop: last attempt             seen: running (2 0) +checkpoint      fenced          seen: running (2 0)          stopping: overtime (2 0) +stopping !kill  late
loop: last attempt, said done  seen: running (2 0) +checkpoint      fenced          seen: running (2 0)          stopping: overtime (2 0) +stopping !kill  late
loop: nudged                   seen: stuck (0 1) +checkpoint        fenced          seen: stuck (0 1)            stopping: overtime (0 1) +stopping !kill  late
loop: to restart               seen: to restart +checkpoint         fenced          stopping: to restart         stopping: to restart                      late
loop: last recovery            seen: to restart (0 2) +checkpoint   fenced          stopping: to restart (0 2)   stopping: to restart (0 2)                late
loop: overtime                 seen: overtime +checkpoint           fenced          stopping: overtime           stopping: overtime                        late
loop: to escalate              seen: to escalate (0 2) +checkpoint  fenced          stopping: to escalate (0 2)  stopping: to escalate (0 2)               late
loop: to fail                  seen: to fail +checkpoint            fenced          stopping: to fail            stopping: to fail                         late
loop: to cancel, said done     seen: to cancel +checkpoint          fenced          stopping: to cancel          stopping: to cancel                       late
loop: awaiting                 fenced                               fenced          late                         late                                      late
loop: awaited too long         fenced                               fenced          late                         late                                      late
loop: ending children          fenced                               fenced          late                         late                                      late
loop: parked                   fenced                               fenced          late                         late                                      late
loop: by hand                  fenced                               fenced          late                         late                                      late
loop: review                   fenced                               fenced          late                         late                                      late
loop: completed                fenced                               fenced          late                         late                                      late
loop: failed                   fenced                               fenced          late                         late                                      late
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_of_a_loop_answers_one_who_knows_the_result() {
    let found = table(&LOOPS, &["done", "failed", "done, old epoch", "done, by hand", "failed, by hand"], know_the_result);
    let expected = "
                               done                                  failed                                  done, old epoch  done, by hand                     failed, by hand
loop: pending                  fenced                                fenced                                  fenced           ended: completed +complete        ended: failed +failed !tell
loop: resting                  fenced                                fenced                                  fenced           ended: completed (1 0) +complete  ended: failed (1 0) +failed !tell
loop: rested                   fenced                                fenced                                  fenced           ended: completed (1 0) +complete  ended: failed (1 0) +failed !tell
loop: running                  noted: running, said done             noted: running, said failed             fenced           busy                              busy
loop: running, said done       noted: running                        noted: running, said failed             fenced           busy                              busy
loop: running, said failed     noted: running, said done             noted: running                          fenced           busy                              busy
loop: last attempt             noted: running (2 0), said done       noted: running (2 0), said failed       fenced           busy                              busy
loop: last attempt, said done  noted: running (2 0)                  noted: running (2 0), said failed       fenced           busy                              busy
loop: nudged                   noted: running, said done +recovered  noted: running, said failed +recovered  fenced           busy                              busy
loop: to restart               noted: to restart, said done          noted: to restart, said failed          fenced           busy                              busy
loop: last recovery            noted: to restart (0 2), said done    noted: to restart (0 2), said failed    fenced           busy                              busy
loop: overtime                 noted: overtime, said done            noted: overtime, said failed            fenced           busy                              busy
loop: to escalate              noted: to escalate (0 2), said done   noted: to escalate (0 2), said failed   fenced           busy                              busy
loop: to fail                  noted: to fail, said done             noted: to fail, said failed             fenced           busy                              busy
loop: to cancel, said done     noted: to cancel                      noted: to cancel, said failed           fenced           busy                              busy
loop: awaiting                 fenced                                fenced                                  fenced           ended: completed +complete        ended: failed +failed !tell
loop: awaited too long         fenced                                fenced                                  fenced           ended: completed +complete        ended: failed +failed !tell
loop: ending children          fenced                                fenced                                  fenced           ended: completed +complete        ended: failed +failed !tell
loop: parked                   fenced                                fenced                                  fenced           ended: completed (0 2) +complete  ended: failed (0 2) +failed !tell
loop: by hand                  fenced                                fenced                                  fenced           ended: completed +complete        ended: failed +failed !tell
loop: review                   fenced                                fenced                                  fenced           ended: completed (1 0) +complete  ended: failed (1 0) +failed !tell
loop: completed                fenced                                fenced                                  fenced           over                              over
loop: failed                   fenced                                fenced                                  fenced           over                              over
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_of_a_loop_answers_one_who_stops_it() {
    let found = table(&LOOPS, &["cancel", "fail", "escalate", "overtime", "restart"], stop_it);
    let expected = "
                               cancel                                     fail                                     escalate                                     overtime                                  restart
loop: pending                  ended: cancelled +cancelled                ended: failed +failed !tell              not pending                                  not pending                               not pending
loop: resting                  ended: cancelled (1 0) +cancelled          ended: failed (1 0) +failed !tell        not pending                                  not pending                               not pending
loop: rested                   ended: cancelled (1 0) +cancelled          ended: failed (1 0) +failed !tell        not pending                                  not pending                               not pending
loop: running                  stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to escalate +stopping !kill        stopping: overtime +stopping !kill        stopping: to restart +stopping !kill
loop: running, said done       stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to escalate +stopping !kill        stopping: overtime +stopping !kill        stopping: to restart +stopping !kill
loop: running, said failed     stopping: to cancel +stopping !kill        stopping: to fail +stopping !kill        stopping: to escalate +stopping !kill        stopping: overtime +stopping !kill        stopping: to restart +stopping !kill
loop: last attempt             stopping: to cancel (2 0) +stopping !kill  stopping: to fail (2 0) +stopping !kill  stopping: to escalate (2 0) +stopping !kill  stopping: overtime (2 0) +stopping !kill  stopping: to restart (2 0) +stopping !kill
loop: last attempt, said done  stopping: to cancel (2 0) +stopping !kill  stopping: to fail (2 0) +stopping !kill  stopping: to escalate (2 0) +stopping !kill  stopping: overtime (2 0) +stopping !kill  stopping: to restart (2 0) +stopping !kill
loop: nudged                   stopping: to cancel (0 1) +stopping !kill  stopping: to fail (0 1) +stopping !kill  stopping: to escalate (0 1) +stopping !kill  stopping: overtime (0 1) +stopping !kill  stopping: to restart (0 1) +stopping !kill
loop: to restart               stopping: to cancel +stopping              stopping: to fail +stopping              stopping: to escalate +stopping              stopping: overtime +stopping              stopping: to restart
loop: last recovery            stopping: to cancel (0 2) +stopping        stopping: to fail (0 2) +stopping        stopping: to escalate (0 2) +stopping        stopping: overtime (0 2) +stopping        stopping: to restart (0 2)
loop: overtime                 stopping: to cancel +stopping              stopping: to fail +stopping              stopping: to escalate +stopping              stopping: overtime                        stopping: overtime
loop: to escalate              stopping: to cancel (0 2) +stopping        stopping: to fail (0 2) +stopping        stopping: to escalate (0 2)                  stopping: to escalate (0 2)               stopping: to escalate (0 2)
loop: to fail                  stopping: to cancel +stopping              stopping: to fail                        stopping: to fail                            stopping: to fail                         stopping: to fail
loop: to cancel, said done     stopping: to cancel                        stopping: to cancel                      stopping: to cancel                          stopping: to cancel                       stopping: to cancel
loop: awaiting                 ended: cancelled +cancelled                ended: failed +failed !tell              not pending                                  not pending                               not pending
loop: awaited too long         ended: cancelled +cancelled                ended: failed +failed !tell              not pending                                  not pending                               not pending
loop: ending children          ended: cancelled +cancelled                ended: failed +failed !tell              not pending                                  not pending                               not pending
loop: parked                   ended: cancelled (0 2) +cancelled          ended: failed (0 2) +failed !tell        not pending                                  not pending                               not pending
loop: by hand                  ended: cancelled +cancelled                ended: failed +failed !tell              not pending                                  not pending                               not pending
loop: review                   ended: cancelled (1 0) +cancelled          ended: failed (1 0) +failed !tell        not pending                                  not pending                               not pending
loop: completed                over                                       over                                     over                                         over                                      over
loop: failed                   over                                       over                                     over                                         over                                      over
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_of_a_loop_answers_one_who_decides_by_hand() {
    let found = table(&LOOPS, &["retry", "skip", "review", "take", "take, same grant", "return"], decide_by_hand);
    let expected = "
                               retry                    skip                           review                        take                   take, same grant       return
loop: pending                  not pending              marked: skipped +marked        marked: review +marked        taken: by hand +taken  taken: by hand +taken  not pending
loop: resting                  not pending              marked: skipped (1 0) +marked  marked: review (1 0) +marked  taken: by hand +taken  taken: by hand +taken  not pending
loop: rested                   not pending              marked: skipped (1 0) +marked  marked: review (1 0) +marked  taken: by hand +taken  taken: by hand +taken  not pending
loop: running                  not pending              busy                           busy                          busy                   busy                   not pending
loop: running, said done       not pending              busy                           busy                          busy                   busy                   not pending
loop: running, said failed     not pending              busy                           busy                          busy                   busy                   not pending
loop: last attempt             not pending              busy                           busy                          busy                   busy                   not pending
loop: last attempt, said done  not pending              busy                           busy                          busy                   busy                   not pending
loop: nudged                   not pending              busy                           busy                          busy                   busy                   not pending
loop: to restart               not pending              busy                           busy                          busy                   busy                   not pending
loop: last recovery            not pending              busy                           busy                          busy                   busy                   not pending
loop: overtime                 not pending              busy                           busy                          busy                   busy                   not pending
loop: to escalate              not pending              busy                           busy                          busy                   busy                   not pending
loop: to fail                  not pending              busy                           busy                          busy                   busy                   not pending
loop: to cancel, said done     not pending              busy                           busy                          busy                   busy                   not pending
loop: awaiting                 not pending              not pending                    not pending                   not pending            not pending            not pending
loop: awaited too long         not pending              not pending                    not pending                   not pending            not pending            not pending
loop: ending children          not pending              not pending                    not pending                   not pending            not pending            not pending
loop: parked                   clear: pending +retried  marked: skipped (0 2) +marked  marked: review (0 2) +marked  taken: by hand +taken  taken: by hand +taken  not pending
loop: by hand                  not pending              marked: skipped +marked        marked: review +marked        taken: by hand +taken  taken: by hand         returned: pending +returned
loop: review                   clear: pending +retried  marked: skipped (1 0) +marked  marked: review (1 0) +marked  taken: by hand +taken  taken: by hand +taken  not pending
loop: completed                clear: pending +retried  over                           over                          over                   over                   not pending
loop: failed                   clear: pending +retried  over                           over                          over                   over                   not pending
";
    assert_eq!(found, expected, "{found}");
}

#[test]
fn every_state_of_a_loop_answers_one_who_looks_for_done() {
    let found = table(&LOOPS, &["nothing", "DONE", "DONE, children", "broken", "children left", "children ended"], look_for_done);
    let expected = "
                               nothing               DONE                              DONE, children                      broken                             children left                                   children ended
loop: pending                  clear: pending        ended: completed +complete        awaiting +awaiting                  ended: failed +failed !tell        not pending                                     not pending
loop: resting                  clear: resting (1 0)  ended: completed (1 0) +complete  awaiting: awaiting (1 0) +awaiting  ended: failed (1 0) +failed !tell  not pending                                     not pending
loop: rested                   clear: resting (1 0)  ended: completed (1 0) +complete  awaiting: awaiting (1 0) +awaiting  ended: failed (1 0) +failed !tell  not pending                                     not pending
loop: running                  not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: running, said done       not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: running, said failed     not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: last attempt             not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: last attempt, said done  not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: nudged                   not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: to restart               not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: last recovery            not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: overtime                 not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: to escalate              not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: to fail                  not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: to cancel, said done     not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: awaiting                 not pending           not pending                       not pending                         not pending                        awaiting                                        ended: completed +complete
loop: awaited too long         not pending           not pending                       not pending                         not pending                        end children: ending children +ending_children  ended: completed +complete
loop: ending children          not pending           not pending                       not pending                         not pending                        awaiting: ending children                       ended: completed +complete
loop: parked                   not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: by hand                  not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: review                   not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: completed                not pending           not pending                       not pending                         not pending                        not pending                                     not pending
loop: failed                   not pending           not pending                       not pending                         not pending                        not pending                                     not pending
";
    assert_eq!(found, expected, "{found}");
}
