//! One author at a time resolves a file.

use super::histories::{Dice, explore};
use super::*;

fn task(number: u8) -> TaskId {
    TaskId::new(&format!("t-{number}")).unwrap()
}

fn of_task(number: u8) -> EntrySpec {
    EntrySpec { task: Some(task(number)), rounds: 100, ..spec(number) }
}

fn conflict(files: &[&str]) -> Report {
    Report::Conflict { tip: commit(0xa0), files: files.iter().map(|file| (*file).into()).collect() }
}

/// The entry that is built next, if there is one.
fn next(scene: &Scene) -> Option<LandingId> {
    match scene.queue.next("here", scene.now.lease) {
        Work::Build(entry) => Some(entry.id),
        Work::Sleep(_) | Work::Nothing => None,
        other => panic!("{other:?}"),
    }
}

fn land(scene: &mut Scene, id: &LandingId) {
    for report in [built(), checked(true), Report::Moved { commit: commit(0xb0) }] {
        scene.report(id, report);
    }
    assert_eq!(scene.word(id), "landed");
}

#[test]
fn one_author_at_a_time_resolves_a_file_and_clean_entries_pass() {
    let mut scene = Scene::new();
    let [first, second, third, other, clean] = [1, 2, 3, 4, 5].map(|number| scene.add(of_task(number)));
    scene.report(&first, conflict(&["a", "b"]));
    scene.report(&second, conflict(&["b", "c"]));
    scene.report(&third, conflict(&["a"]));
    scene.report(&other, conflict(&["d"]));
    let words = [&first, &second, &third, &other].map(|id| scene.word(id));
    assert_eq!(words, ["returned", "waiting", "waiting", "returned"], "only conflicts in the same files wait");
    assert_eq!(scene.notices, 0, "a wait that ends by itself sends no notification");
    assert_eq!(scene.queue.target.author_before(&scene.entries[&second]), Some(&task(1)));
    assert_eq!(next(&scene), Some(clean.clone()));
    land(&mut scene, &clean);
    assert_eq!(next(&scene), None);
    // It comes back, and its check takes longer than the longest wait for an author.
    let again = scene.add(of_task(1));
    scene.report(&again, built());
    scene.now.lease = scene.now.lease + AUTHOR_WAIT + AUTHOR_WAIT;
    assert!(matches!(scene.queue.next("here", scene.now.lease), Work::Check { .. }));
    for report in [checked(true), Report::Moved { commit: commit(0xb0) }] {
        scene.report(&again, report);
    }
    assert_eq!(next(&scene), Some(second.clone()), "the first of the waiting entries");
    scene.report(&second, conflict(&["b", "c"]));
    assert_eq!(
        (scene.word(&second), next(&scene)),
        ("returned", Some(third.clone())),
        "the third entry does not wait for this one"
    );
    land(&mut scene, &third);
    scene.check_replay();
}

#[test]
fn waits_for_an_author_end_when_it_leaves_or_takes_too_long() {
    let mut scene = Scene::new();
    let [first, second, third] = [1, 2, 3].map(|number| scene.add(of_task(number)));
    for id in [&first, &second, &third] {
        scene.report(id, conflict(&["a"]));
    }
    assert_eq!(scene.queue.next("here", scene.now.lease), Work::Sleep(scene.now.lease + AUTHOR_WAIT));
    assert_eq!(scene.step(Input::AuthorLeft(task(9))), Outcome::Unchanged);
    assert_eq!(scene.step(Input::AuthorLeft(task(1))), Outcome::Noted);
    assert_eq!(next(&scene), Some(second.clone()));
    scene.now.lease = scene.now.lease + Span::from_ms(AUTHOR_WAIT.as_ms() - 1);
    scene.report(&second, conflict(&["a"]));
    assert_eq!((scene.word(&second), next(&scene)), ("returned", None), "the wait for another author starts again");
    scene.now.lease = scene.now.lease + AUTHOR_WAIT;
    assert_eq!(next(&scene), Some(third.clone()));
    scene.report(&third, conflict(&["a"]));
    assert_eq!(scene.word(&third), "returned");
    scene.check_replay();
}

#[test]
fn authors_do_not_wait_for_each_other() {
    let mut scene = Scene::new();
    let [first, second] = [1, 2].map(|number| scene.add(of_task(number)));
    scene.report(&first, conflict(&["a"]));
    scene.report(&second, conflict(&["b"]));
    let [first, second] = [1, 2].map(|number| scene.add(of_task(number)));
    scene.report(&first, conflict(&["a", "b"]));
    assert_eq!(scene.word(&first), "waiting");
    scene.report(&second, conflict(&["a", "b"]));
    assert_eq!(scene.word(&second), "returned", "it would wait for the entry that waits for it");
    let branch = scene.add(spec(7));
    let asks = scene.add(EntrySpec { ask_on_conflict: true, ..of_task(8) });
    scene.report(&branch, conflict(&["a"]));
    scene.report(&asks, conflict(&["a"]));
    assert_eq!([&branch, &asks].map(|id| scene.word(id)), ["returned", "needs_you"], "their author is a person");
    scene.check_replay();
}

#[test]
fn all_short_orders_of_conflicts_keep_the_invariants() {
    let mut scene = Scene::new();
    let ids = [scene.add(EntrySpec { unchecked: true, ..of_task(1) }), scene.add(EntrySpec { unchecked: true, ..of_task(2) })];
    let mut inputs = Vec::new();
    for (number, id) in (1..).zip(&ids) {
        let report = |report| Input::Report(id.clone(), report);
        let again = EntrySpec { unchecked: true, ..of_task(number) };
        inputs.extend([
            report(conflict(&["a"])),
            report(conflict(&["a", "b"])),
            report(built()),
            report(Report::Moved { commit: commit(0xb0) }),
            report(Report::Obstructed(Obstacle::Failure { error: "e".into() })),
            Input::AuthorLeft(task(number)),
            Input::Add(Box::new(again)),
        ]);
    }
    let mut seen = 0;
    explore(&scene, &inputs, 5, &mut seen);
    assert!(seen > 2_000, "{seen}");
}

/// Tasks that write to a few files. A task conflicts if another one has changed one of its files since it was last
/// rebased; its author rebases it some time later. The model knows nothing of the machine but its work orders.
struct Author {
    files: Vec<&'static str>,
    based_on: usize,
    /// When its author has rebased it.
    ready_at: Option<u64>,
    returns: u32,
    landed: bool,
}

#[test]
fn rounds_of_conflicts_grow_only_linearly() {
    const FILES: [&str; 3] = ["a", "b", "c"];
    for seed in 1..200_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let is_one_file = seed % 2 == 0;
        let number = 2 + u8::try_from(dice.below(12)).unwrap();
        let mut scene = Scene::new();
        let mut log: Vec<Vec<&str>> = Vec::new();
        let mut tasks = Vec::new();
        let mut entries = BTreeMap::new();
        for index in 0..number {
            let wanted = if is_one_file { 1 } else { 1 + usize::try_from(dice.below(7)).unwrap() };
            let files = (0..3).filter(|bit| wanted & (1 << bit) != 0).map(|bit| FILES[bit]).collect();
            tasks.push(Author { files, based_on: 0, ready_at: None, returns: 0, landed: false });
            entries.insert(scene.add(EntrySpec { unchecked: true, ..of_task(index) }), usize::from(index));
        }
        let mut step = 0;
        while tasks.iter().any(|task| !task.landed) {
            step += 1;
            assert!(step < 4_000, "seed {seed}: something never lands");
            scene.now.lease = scene.now.lease + Span::from_secs(1);
            for (index, task) in tasks.iter_mut().enumerate() {
                if task.ready_at.take_if(|at| *at <= step).is_some() {
                    let spec = EntrySpec { unchecked: true, ..of_task(u8::try_from(index).unwrap()) };
                    entries.insert(scene.add(spec), index);
                }
            }
            match scene.queue.next("here", scene.now.lease) {
                Work::Build(entry) => {
                    let task = &mut tasks[entries[&entry.id]];
                    let theirs: Vec<&str> = log[task.based_on..].iter().flatten().copied().collect();
                    let files: Vec<&str> = task.files.iter().copied().filter(|file| theirs.contains(file)).collect();
                    let is_clean = files.is_empty();
                    scene.report(&entry.id, if is_clean { built() } else { conflict(&files) });
                    if scene.word(&entry.id) == "returned" {
                        // The author starts from the present tip of the target, which is what the worktree has.
                        (task.based_on, task.returns, task.ready_at) =
                            (log.len(), task.returns + 1, Some(step + 1 + dice.below(40)));
                    }
                    assert!(!is_clean || scene.word(&entry.id) == "passed", "seed {seed}: a clean entry waits");
                }
                Work::Move { entry, commit, .. } => {
                    let task = &mut tasks[entries[&entry.id]];
                    task.landed = true;
                    log.push(task.files.clone());
                    scene.report(&entry.id, Report::Moved { commit });
                }
                Work::Sleep(_) | Work::Nothing => {}
                other => panic!("{other:?}"),
            }
        }
        let most = tasks.iter().map(|task| task.returns).max();
        assert!(!is_one_file || most == Some(1), "seed {seed}: an entry came back {most:?} times");
        assert!(scene.queue.target.resolving.is_empty(), "seed {seed}");
        scene.check_replay();
    }
}
