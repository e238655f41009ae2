//! Histories of a task: all short ones, and random long ones beside a naive model.

use proptest::prelude::*;

use super::table::is_refusal;
use super::*;

/// Small inputs that collide in many ways: a runner, its runs and their ends, and people who want other things.
fn try_one(world: &mut World<Task>, choice: usize) -> Outcome {
    let epoch = world.epoch();
    match choice {
        0 => world.start(),
        1 => world.end_last(Ending::Exited(1)),
        2 => world.end_last(Ending::Lost),
        3 => {
            world.pass(TIMEOUT);
            world.pulse(epoch, Pulse::Idle(Span::from_secs(TIMEOUT)))
        }
        4 => world.pulse(epoch, Pulse::Active),
        5 => world.say(Some(epoch), true),
        6 => world.stop(After::Restart),
        7 => world.stop(After::Cancel),
        8 => world.fail(),
        9 => world.act(Input::Retry),
        _ => unreachable!("{choice}"),
    }
}

/// What no single step may do, whatever it is.
fn assert_step_is_sound(before: &World<Task>, after: &World<Task>, outcome: &Outcome) {
    let (old, new) = (&before.machine, &after.machine);
    assert_eq!(new.attempts, old.attempts + u32::from(matches!(outcome, Outcome::Started(_))));
    assert!(new.failures <= RETRIES && new.recoveries <= MAX_RECOVERIES, "{new:?}");
    if is_refusal(outcome) {
        assert_eq!((new, &after.log, &after.sent), (old, &before.log, &before.sent), "a refusal changes nothing");
    }
    match (old.live(), new.live()) {
        (Some(old), Some(new)) => assert_eq!((&old.run, old.epoch), (&new.run, new.epoch), "one run at a time"),
        (None, Some(_)) => assert!(matches!(outcome, Outcome::Started(_))),
        (Some(_), None) => assert!(matches!(outcome, Outcome::Ended(_) | Outcome::Again), "{outcome:?}"),
        (None, None) => {}
    }
    if let State::Stopping { then, .. } = &old.state {
        match &new.state {
            State::Stopping { then: now, .. } => assert!(now.weight() >= then.weight(), "{then:?} became {now:?}"),
            State::Pending => assert_eq!(then, &After::Restart),
            State::Done(done) => assert!(then != &After::Cancel || done == &Done::Cancelled),
            State::Running(_) | State::Stuck { .. } | State::Review => panic!("a run that is being stopped became {new:?}"),
        }
    }
}

/// What the log and the errands tell: runs one after the other, numbered without a gap, each killed at most once.
fn assert_log_is_sound(world: &World<Task>) {
    let (mut live, mut spawned, mut cancelled) = (None, Vec::new(), false);
    for (_, _, event) in &world.log {
        let Event::Task { fact, .. } = event else { unreachable!("a task tells of itself") };
        match fact {
            TaskFact::Started { run, attempt, .. } => {
                assert_eq!((live, usize::try_from(*attempt).unwrap()), (None, spawned.len()), "{:#?}", world.log);
                assert!(!cancelled, "nobody restarts what was cancelled");
                live = Some(run);
                spawned.push(run.clone());
            }
            TaskFact::Stuck { run, .. } | TaskFact::Recovered { run } | TaskFact::Stopping { run, .. } => {
                assert_eq!(live, Some(run));
            }
            TaskFact::Restarting { run, .. } => assert_eq!(live.take(), Some(run)),
            TaskFact::Complete { run, .. } | TaskFact::Failed { run, .. } | TaskFact::Cancelled { run } => {
                assert_eq!(live.take(), run.as_ref());
                cancelled = matches!(fact, TaskFact::Cancelled { .. });
            }
            TaskFact::Retried {} => cancelled = false,
            TaskFact::Marked { .. } => assert_eq!(live, None),
            TaskFact::Added { .. } | TaskFact::Updated { .. } | TaskFact::Adopted { .. } | TaskFact::Deleted {} => {}
        }
    }
    assert_eq!(live, world.machine.live().map(|live| &live.run));
    let of = |kind: fn(&Errand) -> bool| world.sent.iter().filter(move |errand| kind(errand)).map(Errand::subject);
    assert!(of(|errand| matches!(errand, Errand::Spawn { .. })).eq(&spawned));
    let killed: Vec<_> = of(|errand| matches!(errand, Errand::Kill { .. })).collect();
    let distinct: std::collections::BTreeSet<_> = killed.iter().collect();
    assert_eq!(distinct.len(), killed.len(), "killed twice: {killed:?}");
}

/// Whoever speaks for a run that is over is refused, and nothing changes.
fn assert_earlier_runs_are_powerless(world: &World<Task>) {
    for (seq, _, event) in &world.log {
        let Event::Task { fact: TaskFact::Started { run, .. }, .. } = event else { continue };
        let (run, epoch) = (run.clone(), Epoch::from(*seq));
        let current = world.machine.live().map(|live| live.epoch);
        if current == Some(epoch) {
            continue;
        }
        let mut later = world.clone();
        for ending in [Ending::Exited(0), Ending::Lost, Ending::Never] {
            assert_eq!(later.act(Input::End { run: run.clone(), ending, max_recoveries: 9 }), Outcome::Late);
        }
        for pulse in [Pulse::Active, Pulse::SessionDead] {
            assert_eq!(later.pulse(epoch, pulse), Outcome::Fenced(current));
        }
        assert_eq!(later.say(Some(epoch), true), Outcome::Fenced(current));
        assert_eq!((&later.machine, &later.log, &later.sent), (&world.machine, &world.log, &world.sent));
    }
}

/// Time alone makes a run stuck at the deadline and not a millisecond earlier.
fn assert_deadline_is_exact(world: &World<Task>) {
    let (mut later, epoch, long) = (world.clone(), world.epoch(), Pulse::Idle(Span::from_secs(1_000_000)));
    let Some(deadline) = world.machine.next_deadline(Span::from_secs(TIMEOUT)) else {
        later.pass(1_000_000);
        later.pulse(epoch, long);
        assert_eq!(&later.machine, &world.machine);
        return;
    };
    later.now.lease = Lease(deadline.0 - 1);
    assert_eq!(later.pulse(epoch, long), Outcome::Seen);
    later.now.lease = deadline;
    assert_eq!(later.pulse(epoch, long), Outcome::Stuck);
}

#[test]
fn all_orders_of_a_few_inputs_keep_the_invariants() {
    fn explore(world: &World<Task>, depth: usize) -> usize {
        if depth == 0 {
            assert_log_is_sound(world);
            assert_earlier_runs_are_powerless(world);
            assert_deadline_is_exact(world);
            return 1;
        }
        let after = |choice| {
            let mut next = world.clone();
            let outcome = try_one(&mut next, choice);
            assert_step_is_sound(world, &next, &outcome);
            explore(&next, depth - 1)
        };
        (0..10).map(after).sum()
    }
    assert_eq!(explore(&World::task(), 5), 100_000);
    // From a task that was started and lost once, so that its counters are used up within reach.
    let mut world = World::task();
    world.start();
    world.end_last(Ending::Lost);
    world.start();
    assert_eq!(explore(&world, 4), 10_000);
}

/// What happens in a random history. A run is named by how many runs ago it began: 0 is the last one.
#[derive(Debug, Clone)]
enum Deed {
    Start,
    Active(usize),
    Idle(usize, i64),
    Dead(usize),
    Say(usize, bool),
    ByHand(bool),
    Stop(u8),
    End(usize, Ending),
    Retry,
    Set(Mark),
    Pass(i64),
}

fn deed() -> impl Strategy<Value = Deed> {
    let back = || prop_oneof![6 => Just(0_usize), 1 => 1..3_usize];
    let secs = || prop::sample::select(vec![1, 30, 59, 60, 90]);
    let ending = prop_oneof![
        2 => Just(Ending::Exited(0)),
        3 => Just(Ending::Exited(1)),
        1 => Just(Ending::Signalled(9)),
        1 => Just(Ending::NotStarted { error: "no shell".into() }),
        3 => Just(Ending::Lost),
        1 => Just(Ending::Never),
    ];
    prop_oneof![
        8 => Just(Deed::Start),
        2 => back().prop_map(Deed::Active),
        3 => (back(), secs()).prop_map(|(back, secs)| Deed::Idle(back, secs)),
        1 => back().prop_map(Deed::Dead),
        2 => (back(), any::<bool>()).prop_map(|(back, done)| Deed::Say(back, done)),
        1 => any::<bool>().prop_map(Deed::ByHand),
        2 => (0..3_u8).prop_map(Deed::Stop),
        6 => (back(), ending).prop_map(|(back, ending)| Deed::End(back, ending)),
        3 => Just(Deed::Retry),
        1 => prop::sample::select(vec![Mark::Skipped, Mark::Review]).prop_map(Deed::Set),
        3 => secs().prop_map(Deed::Pass),
    ]
}

/// The task as one would explain it at a whiteboard: runs are numbers, times are seconds, states are words.
struct Naive {
    time: i64,
    word: &'static str,
    runs: usize,
    live: Option<Attempt>,
    failures: u32,
    recoveries: u32,
}

#[derive(Default)]
struct Attempt {
    heard: i64,
    is_stuck: bool,
    /// 0: to be restarted, 1: to fail, 2: to be cancelled.
    wish: Option<u8>,
    said: Option<bool>,
}

impl Naive {
    /// The live run, if that is the one which is spoken of.
    fn at(&mut self, back: usize) -> Option<&mut Attempt> {
        self.live.as_mut().filter(|_| back == 0)
    }

    fn is_over(&self) -> bool {
        ["completed", "failed", "cancelled", "skipped"].contains(&self.word)
    }

    fn settle(&mut self, word: &'static str) {
        (self.live, self.word) = (None, word);
    }

    fn end(&mut self, ending: &Ending) {
        let attempt = self.live.take().unwrap();
        let (can_fail, can_be_lost) = (self.failures < RETRIES, self.recoveries < MAX_RECOVERIES);
        let is_cancelled = attempt.wish == Some(2);
        let is_done =
            attempt.said == Some(true) || (attempt.said.is_none() && attempt.wish.is_none() && *ending == Ending::Exited(0));
        let is_nothing = *ending == Ending::Never && (attempt.said.is_none() || attempt.wish == Some(0));
        let is_lost = attempt.wish == Some(0) || (attempt.said.is_none() && *ending == Ending::Lost);
        self.word = match () {
            () if is_cancelled => "cancelled",
            () if is_done => "completed",
            () if attempt.wish == Some(1) => "failed",
            () if is_nothing => "pending",
            () if is_lost && can_be_lost => {
                self.recoveries += 1;
                "pending"
            }
            () if !is_lost && can_fail => {
                self.failures += 1;
                "pending"
            }
            () => "failed",
        };
    }

    fn deed(&mut self, deed: &Deed) {
        let time = self.time;
        match deed {
            Deed::Start if self.word == "pending" && self.live.is_none() => {
                self.runs += 1;
                self.live = Some(Attempt { heard: time, ..Attempt::default() });
            }
            Deed::Start => {}
            Deed::Active(back) => {
                if let Some(attempt) = self.at(*back) {
                    (attempt.heard, attempt.is_stuck) = (time, false);
                }
            }
            Deed::Idle(back, secs) => {
                let from = time - secs;
                if let Some(attempt) = self.at(*back).filter(|attempt| !attempt.is_stuck && attempt.wish.is_none()) {
                    attempt.heard = attempt.heard.max(from);
                    attempt.is_stuck = time - attempt.heard >= TIMEOUT;
                }
            }
            Deed::Dead(back) => {
                if let Some(attempt) = self.at(*back).filter(|attempt| attempt.wish.is_none()) {
                    attempt.is_stuck = true;
                }
            }
            Deed::Say(back, done) => {
                if let Some(attempt) = self.at(*back) {
                    (attempt.heard, attempt.is_stuck, attempt.said) = (time, false, Some(*done));
                }
            }
            Deed::ByHand(done) if self.live.is_none() && !self.is_over() => {
                self.settle(if *done { "completed" } else { "failed" });
            }
            Deed::ByHand(_) => {}
            Deed::Stop(wish) => {
                let is_over = self.is_over();
                match &mut self.live {
                    Some(attempt) => (attempt.wish, attempt.is_stuck) = (attempt.wish.max(Some(*wish)), false),
                    None if is_over || *wish == 0 => {}
                    None => self.settle(if *wish == 1 { "failed" } else { "cancelled" }),
                }
            }
            Deed::End(back, ending) => {
                if self.at(*back).is_some() {
                    self.end(ending);
                }
            }
            Deed::Retry if self.live.is_none() && self.word != "pending" => {
                self.settle("pending");
                (self.failures, self.recoveries) = (0, 0);
            }
            Deed::Retry => {}
            Deed::Set(mark) if self.live.is_none() && !self.is_over() => {
                self.settle(if *mark == Mark::Skipped { "skipped" } else { "review" });
            }
            Deed::Set(_) => {}
            Deed::Pass(secs) => self.time += secs,
        }
    }

    fn status(&self) -> &'static str {
        match &self.live {
            Some(attempt) if attempt.is_stuck => "stuck",
            Some(_) => "in_progress",
            None => self.word,
        }
    }
}

/// Does one deed in the world.
fn play(world: &mut World<Task>, epochs: &mut Vec<Epoch>, deed: &Deed) {
    // An epoch from before the first run, if there were not so many.
    let epoch = |back: usize| epochs.iter().rev().nth(back).copied().unwrap_or(Epoch(1));
    let outcome = match deed.clone() {
        Deed::Start => world.start(),
        Deed::Active(back) => world.pulse(epoch(back), Pulse::Active),
        Deed::Idle(back, secs) => world.pulse(epoch(back), Pulse::Idle(Span::from_secs(secs))),
        Deed::Dead(back) => world.pulse(epoch(back), Pulse::SessionDead),
        Deed::Say(back, done) => world.say(Some(epoch(back)), done),
        Deed::ByHand(done) => world.say(None, done),
        Deed::Stop(0) => world.stop(After::Restart),
        Deed::Stop(1) => world.fail(),
        Deed::Stop(_) => world.stop(After::Cancel),
        Deed::End(back, ending) => world.end(world.runs().wrapping_sub(back), ending),
        Deed::Retry => world.act(Input::Retry),
        Deed::Set(mark) => world.act(Input::Set(mark)),
        Deed::Pass(secs) => return world.pass(secs),
    };
    if let Outcome::Started(epoch) = outcome {
        epochs.push(epoch);
    }
}

proptest! {
    #[test]
    fn random_histories_agree_with_a_naive_task(deeds in prop::collection::vec(deed(), 1..120)) {
        let (mut world, mut epochs) = (World::task(), Vec::new());
        let mut model = Naive { time: 0, word: "pending", runs: 0, live: None, failures: 0, recoveries: 0 };
        for deed in &deeds {
            play(&mut world, &mut epochs, deed);
            model.deed(deed);
            let task = &world.machine;
            prop_assert_eq!(task.status().as_str(), model.status());
            prop_assert_eq!((task.failures, task.recoveries), (model.failures, model.recoveries));
            prop_assert_eq!((world.runs(), epochs.len()), (model.runs, model.runs));
            let live = task.live().map(|live| (live.epoch, live.run.clone()));
            let last = || epochs.last().copied().map(|epoch| (epoch, run(model.runs)));
            prop_assert_eq!(live, model.live.as_ref().and_then(|_| last()));
            let wish = match &task.state {
                State::Stopping { then, .. } => Some(then.weight()),
                _ => None,
            };
            prop_assert_eq!(wish, model.live.as_ref().and_then(|attempt| attempt.wish));
        }
        assert_log_is_sound(&world);
        assert_earlier_runs_are_powerless(&world);
        assert_deadline_is_exact(&world);
    }
}
