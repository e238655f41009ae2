//! A person works in the checkout while merges into its branch are made and killed, and unused objects are pruned: every commit and every
//! uncommitted byte of the person survives, every merge lands or reports the reason, and no lock is left.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use banksman_adapters::tree::descendants;
use banksman_core::pipeline::plan::MergeHow;
use banksman_core::task::{Spec, Work};
use banksman_core::{TaskId, Title};
use banksman_engine::{Request, TaskRequest};

use crate::dice::Dice;
use crate::merging::{git, repository};
use crate::world::{Running, World, kill};

/// The maximum number of attempts of one merge.
const TRIES: u32 = 8;

/// The beginnings of the reasons of merges that do not land.
const REASONS: [&str; 3] = ["the checkout at ", "conflict in ", "the branch main was moved by others meanwhile"];

/// Makes branches of which each changes, adds and removes files of its own.
pub(crate) fn branches(world: &World, count: usize) {
    repository(world);
    let mut script = String::from("commit refs/heads/base\nmark :1\ncommitter t <t@example.invalid> 0 +0000\ndata 4\nbase\n");
    script.push_str("from refs/heads/main^0\n");
    let file = |path: String, text: &str| format!("M 644 inline {path}\ndata {}\n{text}\n", text.len());
    for n in 0..count {
        script.push_str(&file(format!("changed/{n}"), "before\n"));
        script.push_str(&file(format!("gone/{n}"), "before\n"));
    }
    for n in 0..count {
        script.push_str(&format!("\ncommit refs/heads/b{n}\ncommitter t <t@example.invalid> 0 +0000\ndata 2\nb\n\nfrom :1\n"));
        script.push_str(&file(format!("changed/{n}"), "after\n"));
        script.push_str(&file(format!("new/{n}"), "new\n"));
        script.push_str(&format!("D gone/{n}\n"));
    }
    let mut import = Command::new("git");
    let mut import = import.args(["fast-import", "--quiet"]).current_dir(world.path()).stdin(Stdio::piped()).spawn().unwrap();
    import.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(import.wait().unwrap().success());
    git(world.path(), &["merge", "-q", "--ff-only", "base"]);
}

/// A person who works in the checkout, and the work that must survive.
struct Person<'a> {
    root: &'a Path,
    dice: Dice,
    /// The current merge: its files are the interesting ones.
    merge: &'a AtomicUsize,
    actions: u64,
    commits: Vec<String>,
    /// Committed: a word of each path.
    kept: BTreeMap<String, String>,
    /// Written and not committed: a word that the file must contain.
    loose: BTreeMap<String, String>,
    /// Stashed: the commit of the stash, the path, and the word.
    stashed: Vec<(String, String, String)>,
}

impl Person<'_> {
    /// Runs git, again as long as something is locked.
    fn git(&self, args: &[&str]) -> Result<String, String> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let done = Command::new("git").args(args).current_dir(self.root).output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            if done.status.success() {
                return Ok(String::from_utf8_lossy(&done.stdout).trim_end().to_owned());
            }
            let is_locked =
                said.contains(".lock") || said.contains("cannot lock ref") || said.contains("unable to write new index");
            if !is_locked || Instant::now() > end {
                return Err(said);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn word(&mut self) -> String {
        self.actions += 1;
        format!("word-{}-of-a-person", self.actions)
    }

    /// Writes a word into a file, in one of the ways in which programs do.
    fn write(&mut self, path: &str) {
        let (word, whole) = (self.word(), self.root.join(path));
        let Ok(()) = fs::create_dir_all(whole.parent().unwrap()) else { return };
        match self.dice.roll(3) {
            0 => fs::write(&whole, format!("{word}\n")).unwrap(),
            1 => {
                let mut file = fs::File::options().append(true).create(true).open(&whole).unwrap();
                file.write_all(format!("{word}\n").as_bytes()).unwrap();
            }
            _ => {
                let draft = self.root.join("state/draft");
                fs::write(&draft, format!("{word}\n")).unwrap();
                fs::rename(&draft, &whole).unwrap();
            }
        }
        self.loose.insert(path.into(), word);
    }

    /// Asserts that all uncommitted words are in their files.
    fn check_nothing_lost(&self) {
        for (path, word) in &self.loose {
            let is_saved = || files(&self.root.join(".git/banksman/saved")).iter().any(|path| is_in(path, word));
            assert!(
                is_in(&self.root.join(path), word) || is_saved(),
                "{path}: {word} is lost: {:?}",
                fs::read_to_string(self.root.join(path))
            );
        }
    }

    fn act(&mut self) {
        self.check_nothing_lost();
        let merge = self.merge.load(Ordering::SeqCst);
        let near = merge.saturating_sub(1) + usize::try_from(self.dice.roll(3)).unwrap();
        match self.dice.roll(10) {
            0 | 1 => self.write(&format!("mine/{}", self.actions)),
            2 if self.root.join(format!("changed/{near}")).exists() => self.write(&format!("changed/{near}")),
            3 => self.write(&format!("new/{near}")),
            4..=6 => self.commit(),
            7 => self.stash(),
            8 => self.stage(),
            _ => drop(self.git(&["gc", "-q", "--prune=now"])),
        }
        // The pace is drawn, so that merges meet every state of the person's work. Only without uncommitted work there are longer pauses,
        // so that merges can land.
        if self.loose.is_empty() {
            std::thread::sleep(Duration::from_millis(self.dice.roll(400)));
        }
        std::thread::sleep(Duration::from_millis(self.dice.roll(30)));
    }

    fn stage(&mut self) {
        let Some((path, word)) = self.loose.iter().next_back().map(|(path, word)| (path.clone(), word.clone())) else { return };
        if self.git(&["add", "--", &path]).is_ok() {
            let staged = self.git(&["show", &format!(":{path}")]).unwrap();
            assert!(staged.contains(&word), "{path}: {word} is not in the index: {staged}");
        }
    }

    fn commit(&mut self) {
        let Ok(_) = self.git(&["add", "-A"]) else { return };
        let message = self.word();
        match self.git(&["commit", "-q", "--allow-empty", "-m", &message]) {
            Ok(_) => {
                let commit = self.git(&["log", "-1", "--format=%H", &format!("--grep={message}"), "main"]).unwrap();
                for (path, word) in std::mem::take(&mut self.loose) {
                    let text = self.git(&["show", &format!("{commit}:{path}")]).unwrap();
                    assert!(text.contains(&word), "{path}: {word} is not in its commit: {text}");
                    self.kept.insert(path, word);
                }
                self.commits.push(commit);
            }
            Err(said) => assert!(said.contains("is at ") || said.contains("nothing"), "{said}"),
        }
    }

    /// Stashes everything. A stash that finds a lock midway has stashed, and may have reset a part of the checkout.
    fn stash(&mut self) {
        let list = |person: &Person<'_>| person.git(&["stash", "list", "--format=%H"]).unwrap();
        let before = list(self);
        // The result does not matter: the check is where the words are.
        self.git(&["stash", "push", "-q", "--include-untracked"]).ok();
        let after = list(self);
        let new = after.lines().filter(|stash| !before.contains(stash));
        for stash in new {
            for (path, word) in &self.loose {
                if self.has_stashed(stash, path, word) {
                    self.stashed.push((stash.into(), path.clone(), word.clone()));
                }
            }
        }
        let root = self.root;
        let stashed = &self.stashed;
        let is_stashed = |word: &String| stashed.iter().any(|(_, _, stashed)| stashed == word);
        self.loose.retain(|path, word| is_in(&root.join(path), word) || !is_stashed(word));
    }

    fn has_stashed(&self, stash: &str, path: &str, word: &str) -> bool {
        let show = |commit: String| self.git(&["show", &format!("{commit}:{path}")]).unwrap_or_default();
        show(stash.into()).contains(word) || show(format!("{stash}^3")).contains(word)
    }

    /// Asserts that everything that was ever committed or stashed survives.
    fn check(&self) {
        self.check_nothing_lost();
        for commit in &self.commits {
            self.git(&["merge-base", "--is-ancestor", commit, "main"]).unwrap();
        }
        for (path, word) in &self.kept {
            let text = self.git(&["log", "-p", "--format=", "main", "--", path]).unwrap();
            assert!(text.contains(word), "{path}: {word} was committed and is gone");
        }
        for (stash, path, word) in &self.stashed {
            assert!(self.has_stashed(stash, path, word), "{path}: {word} was stashed and is gone");
        }
    }
}

fn is_in(path: &Path, word: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.contains(word))
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

/// Kills a process, the process with all of its descendants, or one descendant.
fn kill_some(dice: &mut Dice, pid: i32) {
    let children = descendants(pid);
    match dice.roll(3) {
        0 => kill(pid),
        1 => [&[pid], &children[..]].concat().into_iter().for_each(kill),
        _ => {
            let chosen = usize::try_from(dice.roll(children.len() as u64 + 1)).unwrap();
            children.get(chosen).into_iter().for_each(|child| kill(*child));
        }
    }
}

/// Runs one merge by command. Returns whether it has landed.
fn merge(world: &World, dice: &mut Dice, n: usize) -> bool {
    let how = ["rebase", "merge_commit"][n % 2];
    for attempt in 1..=TRIES {
        let running = world.start(&["merge-branch", "--how", how, "--", &format!("b{n}"), "main"]);
        let is_killed = attempt < TRIES && dice.roll(2) == 0;
        if is_killed {
            // The moment of the kill is drawn, so that kills hit every step of a merge.
            std::thread::sleep(Duration::from_millis(dice.roll(400)));
            kill_some(dice, running.pid());
        }
        let said = running.end();
        if said.code == 0 {
            return true;
        }
        if !is_killed {
            let is_explained = REASONS.iter().any(|reason| said.stderr.starts_with(reason));
            if said.code != 1 || !is_explained {
                let mut fsck = Command::new("git");
                let fsck = fsck.args(["fsck", "--connectivity-only"]).current_dir(world.path()).output().unwrap();
                panic!("merge {n}: {said:?}, in a repository with {fsck:?}");
            }
            if said.stderr.starts_with("conflict") {
                return false;
            }
        }
    }
    false
}

/// Runs one merge as a task, whose runner is killed too. Returns whether it has landed.
fn merge_by_runner(world: &World, dice: &mut Dice, n: usize) -> bool {
    let id = format!("t-{n}");
    let work = Work::Merge { branch: format!("b{n}").as_str().into(), into: "main".into(), how: MergeHow::MergeCommit };
    let spec = Box::new(Spec { work: Some(work), ..Spec::new(Title::new("Merge it").unwrap()) });
    let add = TaskRequest::Add { id: TaskId::new(&id).unwrap(), spec, depends_on: Vec::new(), by: None };
    world.project().open().unwrap().call(Request::Task(add)).unwrap();
    for attempt in 1..=TRIES {
        let runner: Running = world.start(&["run", "--until-idle"]);
        if attempt < TRIES {
            // Drawn, as above.
            std::thread::sleep(Duration::from_millis(dice.roll(600)));
            // The keeper is a process of its own: it lives on, or is killed as well.
            kill_some(dice, runner.pid());
            kill(runner.pid());
        }
        runner.end();
        let task = world.data(&["tasks", "show", &id]);
        match task["status"].as_str().unwrap() {
            "completed" => return true,
            "failed" => {
                assert!(task["error"].as_str().is_some_and(|error| !error.is_empty()), "{task}");
                return false;
            }
            // The session was killed more often than it is recovered: a person decides.
            "blocked" => {
                assert_eq!(task["recentEvents"][0]["kind"], "escalate", "{task}");
                return false;
            }
            _ => {}
        }
    }
    let task = world.data(&["tasks", "show", &id]);
    assert_eq!(task["status"], "completed", "the last runner is not killed: {task}");
    true
}

/// Sets the flag when it is dropped, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn chaos(seed: u64, merges: usize) -> (usize, u64) {
    let world = World::on_sqlite();
    branches(&world, merges);
    let (current, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut landed = Vec::new();
    let person = std::thread::scope(|scope| {
        let (current, is_over, root) = (&current, &is_over, world.path());
        let person = scope.spawn(move || {
            let (dice, loose) = (Dice::new(seed + 1), BTreeMap::new());
            let (commits, kept, stashed) = (Vec::new(), BTreeMap::new(), Vec::new());
            let mut person = Person { root, dice, merge: current, actions: 0, commits, kept, loose, stashed };
            while !is_over.load(Ordering::SeqCst) {
                person.act();
            }
            person
        });
        let mut dice = Dice::new(seed);
        let over = Over(is_over);
        for n in 0..merges {
            current.store(n, Ordering::SeqCst);
            let has_landed = if n % 10 == 4 { merge_by_runner(&world, &mut dice, n) } else { merge(&world, &mut dice, n) };
            landed.extend(has_landed.then_some(n));
            if person.is_finished() {
                break;
            }
        }
        drop(over);
        person.join().unwrap()
    });
    world.ok(&["doctor", "--fix"]);
    person.check();
    for n in &landed {
        let log = git(world.path(), &["log", "--format=%H", "main", "--", &format!("gone/{n}")]);
        assert!(log.lines().count() >= 2, "b{n} has landed and is gone");
    }
    git(world.path(), &["fsck", "--connectivity-only", "--no-dangling"]);
    let locks: Vec<PathBuf> =
        files(&world.path().join(".git")).into_iter().filter(|path| path.extension().is_some_and(|end| end == "lock")).collect();
    assert_eq!(locks, Vec::<PathBuf>::new());
    assert_eq!(fs::read_dir(world.path().join(".git/banksman/moves")).unwrap().count(), 0);
    // Only uncommitted changes of the person differ.
    let status = git(world.path(), &["status", "--porcelain", "--untracked-files=all", "-z"]);
    for entry in status.split('\0').filter(|entry| !entry.is_empty()) {
        assert!(person.loose.contains_key(&entry[3..]), "{entry}");
    }
    (landed.len(), person.actions)
}

#[test]
fn a_person_loses_nothing_while_merges_are_killed() {
    let (landed, actions) = chaos(20_261_116, 24);
    println!("{landed} of 24 landed, beside {actions} writes of the person");
    assert!(landed > 0, "none has landed");
}

#[test]
#[ignore = "takes minutes"]
fn a_person_loses_nothing_during_a_thousand_merges() {
    for part in 0..10 {
        let began = Instant::now();
        let (landed, actions) = chaos(4_711 + part, 100);
        println!("{landed} of 100 landed in {:?}, beside {actions} writes of the person", began.elapsed());
    }
}
