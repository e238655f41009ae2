//! All short orders of inputs, and random histories against a model with only a branch and a check.

use super::*;

/// The reports and commands on two entries, one of them unchecked.
fn alphabet(ids: &[LandingId]) -> Vec<Input> {
    let mut all = vec![Input::Pause { by: "ann".into() }, Input::Resume { by: "ann".into() }];
    for id in ids {
        let report = |report| Input::Report(id.clone(), report);
        all.extend([
            report(built()),
            report(checked(true)),
            report(checked(false)),
            report(Report::TipChecked { tip: commit(0xa0), passed: false, log: "log".into() }),
            report(Report::Moved { commit: commit(0xb0) }),
            report(Report::TipMoved),
            Input::Remove { entry: id.clone(), by: "ann".into() },
        ]);
    }
    all
}

pub(super) fn explore(scene: &Scene, inputs: &[Input], depth: u32, seen: &mut u32) {
    *seen += 1;
    scene.check_replay();
    if depth == 0 {
        return;
    }
    for input in inputs {
        let mut next = scene.clone();
        next.step(input.clone());
        // A step that changes nothing leads to no new state.
        if next.log.len() > scene.log.len() {
            explore(&next, inputs, depth - 1, seen);
        }
    }
}

#[test]
fn all_short_orders_keep_the_invariants() {
    let mut scene = Scene::new();
    let ids = [scene.add(spec(1)), scene.add(EntrySpec { unchecked: true, ..spec(2) })];
    let mut seen = 0;
    explore(&scene, &alphabet(&ids), 6, &mut seen);
    assert!(seen > 2_000, "{seen}");
}

/// Pseudo-random numbers.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A branch as a list of commits, each of which passes the check or not. It does not depend on the machine.
struct Branch {
    tips: Vec<(CommitId, bool)>,
    made: u8,
}

impl Branch {
    fn make(&mut self) -> CommitId {
        self.made = self.made.wrapping_add(1);
        CommitId::new(&format!("{:040x}", 0x1000 + u32::from(self.made) + 256 * u32::try_from(self.tips.len()).unwrap())).unwrap()
    }

    fn tip(&self) -> &(CommitId, bool) {
        self.tips.last().unwrap()
    }
}

/// A worker follows the queue, with a branch that others move, checks that fail, and crashes between any two steps:
/// then the result is not reported, and is found on the branch later.
#[test]
fn random_histories_land_every_good_entry_once_and_only_tested_commits() {
    for seed in 1..400_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut scene = Scene::new();
        let first = commit(0xfe);
        let mut branch = Branch { tips: vec![(first, true)], made: 0 };
        // By entry: whether its source passes the check, and the commit that it landed as.
        let mut good: BTreeMap<LandingId, bool> = BTreeMap::new();
        let mut candidates: BTreeMap<CommitId, (LandingId, bool)> = BTreeMap::new();
        let mut landed: BTreeMap<LandingId, CommitId> = BTreeMap::new();
        for number in 0..1 + dice.below(6) {
            let passes = dice.below(3) > 0;
            let work = spec(u8::try_from(number + 1).unwrap());
            let task = (dice.below(2) == 0).then(|| crate::ids::TaskId::new(&format!("t-{number}")).unwrap());
            // The work of a task is collected first.
            let source = work.source.clone().filter(|_| task.is_none());
            let id = scene.add(EntrySpec { task, source, ..work });
            good.insert(id, passes);
        }
        let mut idle = 0;
        for _ in 0..300 {
            scene.now.lease = scene.now.lease + Span::from_ms(500);
            if dice.below(12) == 0 {
                let commit = branch.make();
                branch.tips.push((commit, true));
            }
            let work = scene.queue.next("here", scene.now.lease);
            let crashes = dice.below(5) == 0;
            let (id, report) = match work {
                Work::Collect(entry) => {
                    let source = Found::Commit { source: branch.make(), branch: None };
                    (entry.id, Report::Collected { found: source, terms: Terms { rounds: 2, ask_on_conflict: false } })
                }
                Work::Build(entry) => {
                    let (tip, made) = (branch.tip().0.clone(), branch.make());
                    candidates.insert(made.clone(), (entry.id.clone(), good[&entry.id] && branch.tip().1));
                    (entry.id, Report::Built { tip, commit: made })
                }
                Work::Check { entry, commit } => {
                    let passed = candidates[&commit].1;
                    (entry.id, Report::Checked { commit, passed, log: "log".into() })
                }
                Work::CheckTip { entry, tip } => {
                    let passed = branch.tips.iter().find(|(known, _)| *known == tip).unwrap().1;
                    (entry.id, Report::TipChecked { tip, passed, log: "log".into() })
                }
                Work::Move { entry, tip, commit } => {
                    let is_there = branch.tips.iter().any(|(known, _)| *known == commit);
                    if !is_there && branch.tip().0 == tip {
                        let (of, passes) = candidates[&commit].clone();
                        assert!(passes, "seed {seed}: {commit} was never tested well");
                        assert_eq!(landed.insert(of, commit.clone()), None, "seed {seed}: landed twice");
                        branch.tips.push((commit.clone(), true));
                    }
                    let is_there = branch.tips.iter().any(|(known, _)| *known == commit);
                    (entry.id, if is_there { Report::Moved { commit } } else { Report::TipMoved })
                }
                Work::Sleep(_) | Work::Nothing => {
                    idle += 1;
                    if idle > 3 { break } else { continue }
                }
            };
            if !crashes {
                let outcome = scene.report(&id, report);
                assert!(matches!(outcome, Outcome::Stands(_)), "seed {seed}: {outcome:?}");
            }
        }
        scene.check_replay();
        for (id, passes) in &good {
            let word = scene.word(id);
            let expected = match (passes, landed.contains_key(id)) {
                (true, true) => "landed",
                (true, false) => "needs_you",
                (false, _) => "returned",
            };
            assert!(
                word == expected || (word == "needs_you" && !landed.contains_key(id)),
                "seed {seed}: {id} is {word}, not {expected}"
            );
        }
    }
}
