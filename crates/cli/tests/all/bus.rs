//! The bus: posting, reading, following, exporting, contention, kills.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::dice::Dice;
use crate::world::{BANKSMAN, Running, World, until};

/// All messages that are not derived from events.
fn posted(world: &World) -> Vec<Value> {
    let messages = world.data(&["bus", "read"])["messages"].take();
    messages.as_array().unwrap().iter().filter(|message| message["author"] != "banksman").cloned().collect()
}

fn bodies(messages: &Value) -> Vec<String> {
    let text = |message: &Value| format!("{} {}", message["type"].as_str().unwrap(), message["body"].as_str().unwrap());
    messages["messages"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn a_message_is_read_as_it_was_posted() {
    let world = World::new();
    let task = world.data(&["tasks", "add", "Ports"])["id"].as_str().unwrap().to_owned();
    let body = "two\nlines\u{1b}[31m\n---\n{\"seq\": 1}\u{202e}";
    let posted = world.data(&["bus", "post", "question", body, "--task", "Ports", "--attach", "docs/a b.md", "--author", "ada"]);
    let answer = world.data(&["bus", "post", "ANSWER", "8080", "--reply-to", posted["id"].as_str().unwrap()]);
    assert!(answer["seq"].as_i64() > posted["seq"].as_i64());
    let read = world.data(&["bus", "read"]);
    let message = &read["messages"][0];
    assert_eq!(message["body"], body);
    assert_eq!((&message["type"], &message["task"], &message["author"]), (&"QUESTION".into(), &task.into(), &"ada".into()));
    assert_eq!(
        (&message["attachments"][0], &message["attempts"], &message["seq"]),
        (&"docs/a b.md".into(), &1.into(), &posted["seq"])
    );
    assert_eq!(read["messages"][1]["replyTo"], posted["id"]);
    // The control characters of a message are escaped for a terminal.
    let shown = world.ok(&["bus", "read"]);
    assert!(shown.contains(r"lines\u{1b}[31m") && !shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown}");
}

#[test]
fn a_message_id_is_posted_once() {
    let world = World::new();
    let first = world.data(&["bus", "post", "INFO", "one", "--id", "m-a"]);
    let again = world.data(&["bus", "post", "INFO", "one", "--id", "m-a"]);
    assert_eq!((&first["isNew"], &again["isNew"], &first["seq"]), (&true.into(), &false.into(), &again["seq"]));
    world.assert_refused(&["bus", "post", "INFO", "other", "--id", "m-a"], 2, "MESSAGE_ID_TAKEN");
    world.assert_refused(&["bus", "post", "INFO", "x", "--reply-to", "m-none"], 4, "MESSAGE_NOT_FOUND");
    assert_eq!(world.error(&["bus", "post", "INFO", ""]).0, 2);
    assert_eq!(world.error(&["bus", "post", "two words", "x"]).0, 2);
    assert_eq!(posted(&world).len(), 1);
    let stats = world.data(&["bus", "stats"]);
    assert_eq!((&stats["messages"], &stats["attempts"], &stats["retries"]), (&1.into(), &1.into(), &0.into()));
}

#[test]
fn a_body_has_a_limit() {
    let world = World::new();
    let post = |args: &[&str], text: &[u8]| {
        let mut command = world.command(&[&["bus", "post", "INFO", "--json"], args].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // The command stops reading at the limit.
        stdin.write_all(text).ok();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let limit = 1024 * 1024;
    assert_eq!(post(&["-"], &vec![b'x'; limit]).0, Some(0));
    let refused = |(code, said): (Option<i32>, String), why: &str| {
        assert!(code == Some(2) && said.contains(why), "{code:?} {said}");
    };
    refused(post(&["-"], &vec![b'x'; limit + 1]), "at most 1048576 bytes");
    refused(post(&["-"], "ä".repeat(limit).as_bytes()), "at most 1048576 bytes");
    refused(post(&["-"], b"text \xff"), "byte 5 is not");
    assert_eq!(posted(&world)[0]["body"].as_str().unwrap().len(), limit);
    // With --lines, the lines before a refused one are posted.
    let lines = [b"one\r\n\n".as_slice(), &vec![b'y'; limit], b"\n", &vec![b'z'; limit + 1], b"\nlast\n"].concat();
    refused(post(&["--lines"], &lines), "at most 1048576 bytes");
    let lengths: Vec<usize> = posted(&world).iter().map(|message| message["body"].as_str().unwrap().len()).collect();
    assert_eq!(lengths, [limit, 3, 1, limit]);
}

#[test]
fn the_bus_has_the_dependencies_and_ends_of_tasks() {
    let world = World::new();
    world.ok(&["tasks", "add", "First", "--run", "true"]);
    world.ok(&["tasks", "add", "Second", "--run", "exit 3", "--depends-on", "First"]);
    let before = world.data(&["bus", "read"]);
    world.ok(&["bus", "post", "INFO", "between"]);
    world.run(&["run", "--until-idle"]);
    let all = world.data(&["bus", "read"]);
    let words = bodies(&all);
    let first = world.data(&["tasks", "show", "First"])["id"].as_str().unwrap().to_owned();
    assert_eq!(bodies(&before), [format!("PROGRESS waiting for 1 task: {first} (First)")]);
    let order: Vec<&str> = words.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        order,
        ["PROGRESS waiting for 1 task", "INFO between", "FACT First", "FACT all dependencies are met", "FACT Second"],
        "{words:?}"
    );
    let seqs: Vec<i64> = all["messages"].as_array().unwrap().iter().map(|message| message["seq"].as_i64().unwrap()).collect();
    assert!(seqs.is_sorted(), "{seqs:?}");
    // Reads start at any position, in both directions, and can be limited to one task or type.
    for since in &seqs {
        let rest = world.data(&["bus", "read", "--since", &since.to_string()]);
        let wanted = all["messages"].as_array().unwrap().iter().filter(|message| message["seq"].as_i64().unwrap() > *since);
        assert_eq!(rest["messages"].as_array().unwrap().iter().collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "since {since}");
    }
    assert_eq!(bodies(&world.data(&["bus", "read", "--last", "2"])), words[3..]);
    assert_eq!(bodies(&world.data(&["bus", "read", "--limit", "2"])), words[..2]);
    assert_eq!(bodies(&world.data(&["bus", "read", "--task", "Second"])).len(), 3);
    assert_eq!(bodies(&world.data(&["bus", "read", "--type", "info"])), ["INFO between"]);
    // Messages survive the compaction of the events that they were posted between.
    world.ok(&["events", "compact", "--keep-events", "1"]);
    assert_eq!(bodies(&world.data(&["bus", "read", "--type", "info"])), ["INFO between"]);
}

#[test]
fn the_bus_has_questions_and_their_answers() {
    let world = World::new();
    let script = format!("[ -e asked ] || {{ touch asked; {BANKSMAN} tasks ask 'Which port?' --option 80 --option 8080; }}");
    let task = world.data(&["tasks", "add", "Job", "--run", &script])["id"].as_str().unwrap().to_owned();
    world.run(&["run", "--until-idle"]);
    let read = || world.data(&["bus", "read", "--type", "QUESTION", "--type", "ANSWER"])["messages"].clone();
    let asked = read();
    assert_eq!((&asked[0]["type"], &asked[0]["body"]), (&"QUESTION".into(), &"Which port?\n1. 80\n2. 8080".into()), "{asked}");
    assert_eq!(asked[0]["author"], format!("run:{}", asked[0]["run"].as_str().unwrap()));
    let decision = world.data(&["decisions", "list"])["decisions"][0]["id"].as_str().unwrap().to_owned();
    // The answer refers to its question, also when the events of the question are compacted.
    world.ok(&["events", "compact", "--keep-events", "1"]);
    world.ok(&["decisions", "resolve", &decision, "2"]);
    let all = read();
    let answer = all.as_array().unwrap().last().unwrap();
    assert_eq!((&answer["type"], &answer["body"]), (&"ANSWER".into(), &"8080".into()), "{all}");
    assert_eq!((&answer["replyTo"], &answer["task"]), (&asked[0]["id"], &task.into()));
    assert_eq!(world.data(&["bus", "stats"])["messages"], 0, "nothing is stored a second time");
}

#[test]
fn a_follower_reads_new_messages() {
    let world = World::new();
    world.ok(&["bus", "post", "INFO", "before"]);
    let mut follower = world.start(&["bus", "read", "--follow", "--json"]);
    let mut lines = BufReader::new(follower.0.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["body"], "before");
    for number in 0..20 {
        let body = format!("number {number}");
        world.ok(&["bus", "post", "INFO", &body]);
        assert_eq!(next()["body"], body);
    }
    world.ok(&["tasks", "add", "T"]);
    world.ok(&["tasks", "done", "T"]);
    assert_eq!(next()["body"], "T: completed");
    follower.signal(Signal::INT);
    assert_eq!(follower.0.wait().unwrap().code(), Some(130));
}

#[test]
fn an_exported_file_has_every_message_once_also_after_a_kill() {
    let world = World::new();
    let file = world.path().join("bus.jsonl");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    world.ok(&["bus", "post", "INFO", "one"]);
    let exporter = world.start(&["bus", "export", "bus.jsonl", "--follow"]);
    until("the first message", || read().lines().count() == 1);
    world.ok(&["bus", "post", "INFO", "two"]);
    until("the second message", || read().lines().count() == 2);
    exporter.kill();
    let text = read();
    std::fs::write(&file, &text[..text.len() - 7]).unwrap();
    world.ok(&["bus", "post", "INFO", "three"]);
    world.ok(&["bus", "export", "bus.jsonl"]);
    let messages: Vec<Value> = read().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(messages, posted(&world));
    assert_eq!(world.ok(&["bus", "export"]), read());
}

#[test]
fn a_post_that_gives_up_is_not_posted_later() {
    // On SQLite the writer lock is a file.
    let world = World::on_sqlite();
    world.ok(&["config", "set", "bus.lock_timeout", "50ms"]);
    world.ok(&["config", "set", "bus.retry_backoff", "10ms"]);
    world.ok(&["bus", "post", "INFO", "before"]);
    let turn = std::fs::File::open(world.path().join(".banksman/turn")).unwrap();
    turn.lock().unwrap();
    let began = Instant::now();
    let (code, error) = world.error(&["bus", "post", "INFO", "never"]);
    assert_eq!((code, &error["code"], &error["details"]["attempts"]), (6, &"BUS_LOCK_TIMEOUT".into(), &3.into()), "{error}");
    let waited = error["details"]["waitedMs"].as_u64().unwrap();
    assert!(error["message"].as_str().unwrap().ends_with(&format!("after 3 attempts in {waited} ms")), "{error}");
    assert!(
        (180..=u64::try_from(began.elapsed().as_millis()).unwrap()).contains(&waited),
        "3 x 50 ms, 10 ms and 20 ms: {waited}"
    );
    assert!(waited < 1_500, "a time-out of less than the time after which the process in the way is named: {waited} ms");
    // The second attempt of another post succeeds and reports the first one.
    world.ok(&["config", "set", "bus.lock_timeout", "300ms"]);
    let late = world.start(&["bus", "post", "INFO", "late", "--json"]);
    std::thread::park_timeout(std::time::Duration::from_millis(400));
    turn.unlock().unwrap();
    assert_eq!(late.end().code, 0);
    let messages = posted(&world);
    let texts: Vec<&str> = messages.iter().map(|message| message["body"].as_str().unwrap()).collect();
    assert_eq!(texts, ["before", "late"]);
    let attempts = messages[1]["attempts"].as_i64().unwrap();
    assert!(attempts == 1 || messages[1]["waitedMs"].as_i64().unwrap() >= 300, "{messages:?}");
    let stats = world.data(&["bus", "stats"]);
    assert_eq!(stats["retries"].as_i64().unwrap(), attempts - 1);
}

#[test]
fn compaction_removes_old_messages() {
    let world = World::new();
    world.ok(&["bus", "post", "INFO", "old"]);
    assert_eq!(world.data(&["events", "compact"])["removedMessages"], 0);
    world.ok(&["config", "set", "bus.keep", "1ms"]);
    let compact = || world.data(&["events", "compact"])["removedMessages"].as_i64().unwrap();
    until("it is old", || compact() == 1);
    assert_eq!(posted(&world).len(), 0);
    world.ok(&["bus", "post", "INFO", "new"]);
    assert_eq!(posted(&world)[0]["body"], "new");
}

#[test]
fn a_run_posts_for_its_task_until_it_has_ended() {
    let world = World::new();
    world.ok(&["tasks", "add", "Speaker", "--run", "banksman bus post FACT said; env | grep BANKSMAN_ > vars"]);
    let mut runner = world.command(&["run", "--until-idle"]);
    let path = format!(
        "{}:{}",
        std::path::Path::new(crate::world::BANKSMAN).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    assert!(runner.env("PATH", path).status().unwrap().success());
    let message = &posted(&world)[0];
    let task = world.data(&["tasks", "show", "Speaker"]);
    assert_eq!((&message["task"], &message["body"]), (&task["id"], &"said".into()));
    assert_eq!(message["author"], format!("run:{}", message["run"].as_str().unwrap()));
    // A process that outlives the run cannot post for it.
    let vars = std::fs::read_to_string(world.path().join("vars")).unwrap();
    let mut late = world.command(&["bus", "post", "FACT", "late", "--json"]);
    late.envs(vars.lines().filter_map(|line| line.split_once('=')));
    assert_eq!(late.output().unwrap().status.code(), Some(8));
    assert_eq!(posted(&world).len(), 1);
}

/// A writer that is killed and restarted until it has posted all of its messages.
struct Writer {
    name: String,
    dice: Dice,
    acknowledged: BTreeMap<i64, String>,
    /// How often it was killed, and how many of its messages were posted but not acknowledged.
    kills: usize,
    late: usize,
}

impl Writer {
    /// Posts all messages, those already posted too, until it is killed: a random time after a random number of new ones.
    fn post(&mut self, world: &World, messages: usize) {
        let mut command =
            world.command(&["bus", "post", "INFO", "--lines", "--json", "--author", &self.name, "--id", &self.name]);
        let mut child = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let mut stdin = child.0.stdin.take().unwrap();
        let mut out = BufReader::new(child.0.stdout.take().unwrap());
        let name = self.name.clone();
        let left = messages - self.acknowledged.len();
        let after = usize::try_from(self.dice.roll(1 + left.min(messages / 4) as u64)).unwrap();
        let then = self.dice.moment();
        std::thread::scope(|scope| {
            let feeder = scope.spawn(move || {
                // The writer may be killed while this feeds it.
                (1..=messages).try_for_each(|number| writeln!(stdin, "{name} {number}")).ok();
                // Keeps stdin open, so that only the kill ends the writer.
                stdin
            });
            let (progress, new) = std::sync::mpsc::channel::<()>();
            let killer = scope.spawn(move || {
                let is_alive = new.iter().take(after).count() == after && lives_for(&new, then);
                child.signal(Signal::KILL);
                is_alive
            });
            for number in 1.. {
                let mut line = String::new();
                // An incomplete line is no acknowledgement.
                if out.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
                    break;
                }
                let posted: Value = serde_json::from_str(&line).unwrap();
                let seq = posted["seq"].as_i64().unwrap_or_else(|| panic!("{line}"));
                if self.acknowledged.insert(seq, format!("{} {number}", self.name)).is_none() {
                    self.late += usize::from(posted["isNew"] == false);
                    // The killer may have stopped receiving.
                    progress.send(()).ok();
                }
            }
            drop(progress);
            assert!(killer.join().unwrap(), "{} has ended by itself", self.name);
            drop(feeder.join().unwrap());
        });
        self.kills += 1;
    }
}

/// Waits for this time, or until the sender is dropped. Returns whether the sender still exists.
fn lives_for(progress: &Receiver<()>, time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        match progress.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Many processes post and are killed at random moments: the bus has every acknowledged message once, in order for each writer.
#[expect(clippy::print_stderr, reason = "the figures of a long run are wanted")]
fn many_writers_and_kills(processes: usize, messages: usize) {
    let world = World::new();
    let began = Instant::now();
    let writers: Vec<Writer> = std::thread::scope(|scope| {
        let write = |number: usize| {
            let (name, dice) = (format!("w{number}"), Dice::new(1 + number as u64));
            let mut writer = Writer { name, dice, acknowledged: BTreeMap::new(), kills: 0, late: 0 };
            while writer.acknowledged.len() < messages {
                writer.post(&world, messages);
            }
            writer
        };
        let threads: Vec<_> = (0..processes).map(|number| scope.spawn(move || write(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sum = |of: fn(&Writer) -> usize| writers.iter().map(of).sum::<usize>();
    eprintln!(
        "{processes} x {messages} messages in {:?}; {} kills, {} of them between a commit and its acknowledgement",
        began.elapsed(),
        sum(|writer| writer.kills),
        sum(|writer| writer.late)
    );
    let read = posted(&world);
    let ids: BTreeSet<&str> = read.iter().map(|message| message["id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), read.len()), (processes * messages, processes * messages), "each message is there once");
    for writer in writers {
        let own = read.iter().filter(|message| message["author"] == *writer.name);
        let own: BTreeMap<i64, String> =
            own.map(|message| (message["seq"].as_i64().unwrap(), message["body"].as_str().unwrap().to_owned())).collect();
        assert!(own.values().zip(1..).all(|(body, number)| *body == format!("{} {number}", writer.name)), "in order");
        assert_eq!(own, writer.acknowledged, "as acknowledged");
    }
}

#[test]
fn no_acknowledged_message_is_lost_or_doubled_by_kills() {
    many_writers_and_kills(4, 60);
}

#[test]
#[ignore = "long: 16 x 10,000 messages"]
fn no_acknowledged_message_is_lost_or_doubled_by_kills_at_length() {
    many_writers_and_kills(16, 10_000);
}
