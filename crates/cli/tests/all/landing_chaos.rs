//! Tasks in worktrees land while runners, keepers and their scripts are killed and a person commits to the target: in the end all work is
//! reachable, every commit that landed passes the check, and each task has landed once.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use banksman_adapters::tree::descendants;
use rustix::process::{Pid, Signal, kill_process};

use crate::dice::Dice;
use crate::landing::Yard;
use crate::world::{Running, World};

/// How many tasks work at the same time.
const WIDTH: &str = "8";

/// The script of every task: it writes files of its own and a shared one, commits some of them, repairs a failed check, and resolves
/// conflicts. It records the objects that it has made, so that the test can look for them.
const SCRIPT: &str = r#"
n=${BANKSMAN_TITLE#task }
made() { echo "$1" >> "$BANKSMAN_PROJECT/.banksman/made"; }
if grep -qs '^<<<<<<<' shared; then grep -vE '^(<<<<<<<|=======|>>>>>>>)' shared > s; mv s shared; fi
word=ok
if [ $((n % 5)) = 3 ] && [ ! -e "w/$n" ]; then word=bad; fi
mkdir -p w
echo "$word $BANKSMAN_RUN" > "w/$n"; made "$(git hash-object "w/$n")"
if [ $((n % 2)) = 0 ]; then git add -A; git commit -qm "part of $n"; made "$(git rev-parse HEAD)"; fi
if [ $((n % 3)) = 0 ]; then echo "$n $BANKSMAN_RUN" >> shared; made "$(git hash-object shared)"; fi
if [ $((n % 4)) = 0 ]; then git add -A; git commit -qm "more of $n"; made "$(git rev-parse HEAD)"; fi
exit 0
"#;

/// A runner that is started again after each kill.
struct Runner<'a> {
    yard: &'a Yard,
    running: Option<Running>,
}

impl Runner<'_> {
    /// Whether the runner has ended by itself. Starts one if there is none.
    fn is_over(&mut self) -> bool {
        match self.running.as_mut().map(|running| running.0.try_wait().unwrap()) {
            None => {
                let command = self.yard.0.command(&["run", "--until-idle"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
                self.running = Some(Running(command.unwrap()));
                false
            }
            Some(None) => false,
            Some(Some(_)) => {
                self.running = None;
                true
            }
        }
    }

    fn pid(&self) -> Option<i32> {
        self.running.as_ref().map(|running| i32::try_from(running.0.id()).unwrap())
    }

    fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            // The child processes of its landings may die with it, or live on.
            running.0.kill().unwrap();
            running.0.wait().unwrap();
        }
    }
}

/// The keepers and the commands of the live sessions.
fn sessions(yard: &Yard) -> Vec<i32> {
    let said = yard.0.run(&["sessions", "list", "--json"]);
    let Ok(list) = serde_json::from_str::<serde_json::Value>(&said.stdout) else { return Vec::new() };
    let sessions = list["data"]["sessions"].as_array().cloned().unwrap_or_default();
    let pids = sessions.iter().flat_map(|session| [&session["keeperPid"], &session["childPid"]].map(serde_json::Value::as_i64));
    pids.flatten().filter_map(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 1).collect()
}

fn kill(pid: i32) {
    // The process may have ended already.
    Pid::from_raw(pid).and_then(|pid| kill_process(pid, Signal::KILL).ok());
}

/// Commits a file to the target, as a person in its checkout does. Returns the commit.
fn commit_as_person(yard: &Yard, number: usize) -> Option<String> {
    fs::create_dir_all(yard.0.path().join("p")).unwrap();
    yard.write(&format!("p/{number}"), "mine\n");
    let git = |args: &[&str]| Command::new("git").args(args).current_dir(yard.0.path()).output().unwrap();
    let path = format!("p/{number}");
    let is_done = git(&["add", "--", &path]).status.success() && git(&["commit", "-qm", &path, "--", &path]).status.success();
    is_done.then(|| yard.git(&["log", "-1", "--format=%H", "--", &path]))
}

/// Resolves all open decisions with the option to try again.
fn answer_all(yard: &Yard) {
    let open = yard.0.data(&["decisions", "list"]);
    for decision in open["decisions"].as_array().unwrap() {
        let options = decision["options"].as_array().cloned().unwrap_or_default();
        let again = options.iter().position(|option| option["text"].as_str().is_some_and(|text| text.contains("again")));
        let option = (again.unwrap_or(0) + 1).to_string();
        yard.0.run(&["decisions", "resolve", decision["id"].as_str().unwrap(), &option]);
    }
}

/// The state of the project, with the logs of failed tasks.
fn unfinished(yard: &Yard) -> String {
    let failed = yard.0.data(&["tasks", "list", "--status", "review,failed"]);
    let ids = failed["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned());
    let logs = ids.map(|id| yard.0.run(&["tasks", "logs", &id]).stdout);
    let lists = [&["status"][..], &["landing", "list"], &["decisions", "list"], &["locks", "list"]].map(|args| yard.0.ok(args));
    lists.into_iter().chain(logs).collect::<Vec<_>>().join("\n")
}

pub(crate) fn chaos(tasks: usize, kills: usize, seed: u64) {
    let yard = Yard(World::on_sqlite());
    crate::merging::repository(&yard.0);
    yard.0.ok(&["config", "set", "limits.max_concurrent_runs", WIDTH]);
    yard.0.ok(&["config", "set", "task.max_recovery_attempts", "1000"]);
    yard.0.ok(&["config", "set", "landing.retries", "1000"]);
    // The settings are files of the checkout, so they are committed.
    yard.git(&["add", "-A"]);
    yard.git(&["commit", "-qm", "settings"]);
    yard.check("! grep -rLs ^ok w | grep .");
    for n in 1..=tasks {
        yard.task(&format!("task {n}"), SCRIPT, &[]);
    }
    let mut dice = Dice::new(seed);
    let mut runner = Runner { yard: &yard, running: None };
    let (mut person, mut killed) = (Vec::new(), 0);
    let until = Instant::now() + Duration::from_secs(60 + 12 * tasks as u64);
    loop {
        assert!(Instant::now() < until, "seed {seed}: {}", unfinished(&yard));
        if runner.is_over() {
            if yard.0.data(&["status"])["byStatus"]["completed"] == tasks {
                break;
            }
            answer_all(&yard);
            for task in yard.0.data(&["tasks", "list", "--status", "review,failed"])["tasks"].as_array().unwrap() {
                yard.0.run(&["tasks", "retry", task["id"].as_str().unwrap()]);
            }
        }
        // The delay is drawn, so that kills hit every step of a runner.
        std::thread::sleep(Duration::from_millis(dice.roll(150)));
        match dice.roll(6) {
            0 | 1 if killed < kills => {
                // Sometimes a descendant, such as a git process in the middle of a step; then the runner itself.
                let below = runner.pid().map(descendants).unwrap_or_default();
                if !below.is_empty() && dice.roll(2) == 0 {
                    kill(below[usize::try_from(dice.roll(below.len() as u64)).unwrap()]);
                }
                runner.kill();
                killed += 1;
            }
            2 | 3 if killed < kills => {
                let all = sessions(&yard);
                if !all.is_empty() {
                    kill(all[usize::try_from(dice.roll(all.len() as u64)).unwrap()]);
                    killed += 1;
                }
            }
            4 if person.len() < tasks => person.extend(commit_as_person(&yard, person.len())),
            _ => {}
        }
    }
    check(&yard, tasks, &person, seed);
}

fn check(yard: &Yard, tasks: usize, person: &[String], seed: u64) {
    let landed = yard.git(&["log", "--format=%H %(trailers:key=Banksman-Task,valueonly,separator=%x20)", "main"]);
    let landed: Vec<(&str, &str)> =
        landed.lines().filter_map(|line| line.split_once(' ')).filter(|(_, id)| !id.is_empty()).collect();
    let distinct: BTreeSet<&str> = landed.iter().map(|(_, id)| *id).collect();
    assert_eq!((landed.len(), distinct.len()), (tasks, tasks), "seed {seed}: each has landed once");
    for (commit, _) in &landed {
        let bad = Command::new("git").args(["grep", "-L", "^ok", commit, "--", "w"]).current_dir(yard.0.path()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&bad.stdout), "", "seed {seed}: {commit} does not pass the check");
    }
    for n in 1..=tasks {
        assert!(yard.file(&format!("w/{n}")).starts_with("ok"), "seed {seed}");
    }
    for (number, commit) in person.iter().enumerate() {
        yard.git(&["merge-base", "--is-ancestor", commit, "main"]);
        assert_eq!(yard.file(&format!("p/{number}")), "mine\n", "seed {seed}");
    }
    let reachable = yard.git(&["rev-list", "--objects", "--all"]);
    let reachable: BTreeSet<&str> = reachable.lines().filter_map(|line| line.split(' ').next()).collect();
    let made = fs::read_to_string(yard.0.path().join(".banksman/made")).unwrap();
    let lost: Vec<&str> = made.lines().filter(|id| !id.is_empty() && !reachable.contains(id)).collect();
    assert!(lost.is_empty(), "seed {seed}: {} of {} are lost: {lost:?}", lost.len(), made.lines().count());
    assert_eq!(yard.git(&["status", "--porcelain", "--untracked-files=no"]), "", "seed {seed}");
    assert_eq!(yard.git(&["fsck", "--connectivity-only", "--no-dangling"]), "", "seed {seed}");
}

#[test]
fn landing_tasks_lose_nothing_while_processes_are_killed() {
    chaos(10, 12, 5);
}
