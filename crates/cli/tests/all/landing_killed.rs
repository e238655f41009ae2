//! Landings that are killed at random moments: afterwards checkout, index and ref agree, and every branch has landed once.

use std::time::{Duration, Instant};

use banksman_adapters::tree::descendants;
use rustix::process::{Pid, Signal, kill_process};

use crate::dice::Dice;
use crate::landing::Yard;
use crate::merging_chaos::branches;
use crate::world::World;

/// How many landings of one branch are killed before one may finish.
const KILLS: usize = 4;

/// The upper bound on the lifetime of a landing before it is killed; an undisturbed one takes a little less.
const LIFE_MS: u64 = 250;

/// Kills `4 * count` landings.
pub(crate) fn kill_landings(count: usize, seed: u64) {
    let world = World::on_sqlite();
    branches(&world, count);
    let yard = Yard(world);
    let mut dice = Dice::new(seed);
    for n in 0..count {
        let (branch, title) = (format!("b{n}"), format!("land {n}"));
        let args = ["land", &branch, "--unchecked", "--title", &title];
        for _ in 0..KILLS {
            let mut landing =
                yard.0.command(&args).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
            let life = Duration::from_millis(dice.roll(LIFE_MS));
            let until = Instant::now() + life;
            // The moment of the kill is drawn, so that kills hit every step of a landing.
            while Instant::now() < until && landing.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let pid = i32::try_from(landing.id()).unwrap();
            // Its git processes are killed with it, or live on for a moment.
            let below = if dice.roll(2) == 0 { descendants(pid) } else { Vec::new() };
            for pid in below.into_iter().chain([pid]) {
                kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
            }
            landing.wait().unwrap();
        }
        let landed = yard.0.run(&args);
        assert_eq!(landed.code, 0, "{branch}: {landed:?}");
        check(&yard, n + 1);
    }
}

fn check(yard: &Yard, landed: usize) {
    assert_eq!(yard.git(&["status", "--porcelain"]), "", "checkout, index and ref agree");
    let log = yard.git(&["log", "--format=%s", "main"]);
    let ours: Vec<&str> = log.lines().filter(|subject| subject.starts_with("land ")).collect();
    let expected: Vec<String> = (0..landed).rev().map(|n| format!("land {n}")).collect();
    assert_eq!(ours, expected, "each has landed once");
    for n in 0..landed {
        assert_eq!(yard.file(&format!("changed/{n}")).trim_end(), "after");
        assert!(!yard.0.path().join(format!("gone/{n}")).exists());
    }
    let fsck = yard.git(&["fsck", "--connectivity-only", "--no-dangling"]);
    assert_eq!(fsck, "", "nothing is missing");
}

#[test]
fn killed_landings_leave_nothing_half_done() {
    kill_landings(4, 7);
}
