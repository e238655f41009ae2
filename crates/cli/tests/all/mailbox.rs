//! Messages to tasks: into a mailbox, a prompt or a live session; what runs read, and the receipts.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::agents::{INIT, RESULT, trusted};

use crate::world::{BANKSMAN, Running, World, until, write_program};

fn receipt(world: &World, id: &str) -> String {
    world.data(&["mailbox", "show", id])["receipt"].as_str().unwrap().to_owned()
}

fn send(world: &World, task: &str, text: &str) -> Value {
    world.data(&["send", task, text, "--author", "ada"])
}

/// The messages in an output of `mailbox read`: body, and whether an earlier run had it.
fn read(world: &World, file: &str) -> Vec<(String, bool)> {
    let text = fs::read_to_string(world.path().join(file)).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text:?}"));
    let messages = value["data"]["messages"].as_array().unwrap().clone();
    messages.iter().map(|m| (m["body"].as_str().unwrap().to_owned(), m["redelivered"].as_bool().unwrap())).collect()
}

#[test]
fn the_next_run_reads_each_message_once() {
    let world = World::new();
    let read_twice = format!(
        "{BANKSMAN} mailbox read --json > one; {BANKSMAN} mailbox read --again --json > again; {BANKSMAN} mailbox read --json > two; touch go; while [ -e go ]; do {BANKSMAN} mailbox read --wait --timeout 60s --json > three && rm go; done"
    );
    world.ok(&["tasks", "add", "Job", "--run", &read_twice]);
    let first = send(&world, "Job", "one");
    assert_eq!((&first["receipt"], &first["plan"], &first["isNew"]), (&"queued".into(), &"spawn".into(), &true.into()));
    let id = first["id"].as_str().unwrap();
    // A repeated send changes nothing.
    let again = world.data(&["send", "Job", "one", "--author", "ada", "--id", id]);
    assert_eq!((&again["isNew"], &again["seq"]), (&false.into(), &first["seq"]));
    let second = send(&world, "Job", "two");
    let runner = world.start(&["run", "--until-idle"]);
    until("it waits", || world.has("go"));
    assert_eq!(read(&world, "one"), [("one".into(), false), ("two".into(), false)]);
    assert_eq!(read(&world, "again"), read(&world, "one"));
    assert_eq!(read(&world, "two"), []);
    assert_eq!(receipt(&world, id), "read");
    // A new message wakes the waiting read.
    let third = send(&world, "Job", "three");
    assert_eq!(third["plan"], "mailbox");
    // The run may fetch it before `send` reads the receipt.
    assert!(["queued", "sent", "read"].contains(&third["receipt"].as_str().unwrap()), "{third}");
    assert_eq!(runner.end().code, 0);
    assert_eq!(read(&world, "three"), [("three".into(), false)]);
    for sent in [&second, &third] {
        assert_eq!(receipt(&world, sent["id"].as_str().unwrap()), "read", "its task is completed");
    }
}

#[test]
fn messages_of_a_dead_run_are_redelivered_and_a_result_acknowledges() {
    let world = World::new();
    let script = format!(
        "{BANKSMAN} mailbox read --json > run$BANKSMAN_ATTEMPT; case $BANKSMAN_ATTEMPT in 0) kill -9 $$ ;; 1) {BANKSMAN} tasks fail $BANKSMAN_TASK --error no; exit 1 ;; esac"
    );
    world.ok(&["tasks", "add", "Job", "--run", &script, "--retries", "2"]);
    let id = send(&world, "Job", "hello")["id"].as_str().unwrap().to_owned();
    world.run(&["run", "--until-idle"]);
    assert_eq!(read(&world, "run0"), [("hello".into(), false)]);
    assert_eq!(read(&world, "run1"), [("hello".into(), true)]);
    assert_eq!(receipt(&world, &id), "read");
    if world.has("run2") {
        assert_eq!(read(&world, "run2"), [], "the result of the run before has acknowledged it");
    }
}

#[test]
fn messages_of_a_dead_run_are_not_read_by_the_success_of_a_later_one() {
    let world = World::new();
    let script = "[ $BANKSMAN_ATTEMPT = 1 ] && exit 0; touch begun; read -r line; kill -9 $$";
    world.ok(&["tasks", "add", "Job", "--run", script, "--input", "--retries", "1"]);
    let runner = world.start(&["run", "--until-idle"]);
    until("it has begun", || world.has("begun"));
    let id = send(&world, "Job", "hello")["id"].as_str().unwrap().to_owned();
    assert_eq!(runner.end().code, 0);
    assert_eq!(receipt(&world, &id), "undelivered");
    let returned = world.data(&["bus", "read", "--type", "ERROR"])["messages"].clone();
    assert_eq!(returned[0]["replyTo"], id.as_str(), "{returned}");
}

#[test]
fn an_agent_runs_in_a_terminal_if_its_profile_says_so() {
    let world = World::new();
    let program = world.path().join("tui.sh");
    let text = "#!/bin/sh\ntest -t 0 && echo \"$1\" > prompt\ntouch begun\nread -r line\necho \"$line\" > got\n";
    write_program(&program, text);
    world.configure(&format!(
        "\n[agent.tui]\nprogram = \"{}\"\nprompt = \"argument\"\nstart = [\"{{prompt}}\"]\npty = true\n",
        program.display()
    ));
    world.ok(&["trust", "--agent", "tui"]);
    world.ok(&["tasks", "add", "Job", "--agent", "tui", "--prompt", "say hello"]);
    let runner = world.start(&["run", "--until-idle"]);
    until("it has begun", || world.has("begun"));
    let sent = send(&world, "Job", "hello");
    assert_eq!(sent["plan"], "control_socket", "{sent}");
    // The program ends after this line, perhaps before `send` reads the receipt.
    assert!(["delivered", "read"].contains(&sent["receipt"].as_str().unwrap()), "{sent}");
    assert_eq!(runner.end().code, 0);
    let text = |file: &str| fs::read_to_string(world.path().join(file)).unwrap_or_default();
    assert!(text("prompt").contains("say hello"), "{:?}", text("prompt"));
    assert_eq!(text("got"), "hello\n");
    // Only the profile of an agent sets these: in a terminal the task would not get its prompt.
    for flag in ["--pty", "--input"] {
        assert_eq!(world.run(&["tasks", "add", "Other", "--agent", "tui", flag]).code, 2);
    }
}

#[test]
fn a_task_that_is_over_refuses_messages_and_returns_unread_ones() {
    let world = World::new();
    world.ok(&["tasks", "add", "Job", "--run", &format!("{BANKSMAN} mailbox read --json > read")]);
    let id = send(&world, "Job", "too late")["id"].as_str().unwrap().to_owned();
    world.ok(&["tasks", "cancel", "Job"]);
    assert_eq!(receipt(&world, &id), "undelivered");
    world.assert_refused(&["send", "Job", "x"], 2, "TARGET_OVER");
    assert_eq!(world.error(&["send", "Nothing", "x"]).0, 4);
    assert_eq!(world.error(&["mailbox", "read"]).0, 2, "outside of a run");
    world.run(&["run", "--until-idle"]);
    let returned = || world.data(&["bus", "read", "--type", "ERROR"])["messages"].clone();
    assert_eq!(returned()[0]["replyTo"], id.as_str());
    // A later run does not get an undelivered message.
    world.ok(&["tasks", "retry", "Job"]);
    world.ok(&["run", "--until-idle"]);
    assert_eq!(read(&world, "read"), []);
    assert_eq!((receipt(&world, &id), returned().as_array().unwrap().len()), ("undelivered".into(), 1));
}

#[test]
fn a_process_that_outlives_its_run_reads_no_messages() {
    let world = World::new();
    world.ok(&["tasks", "add", "Job", "--run", "env > env; exit 1", "--loop", "--restart-delay", "1h"]);
    let _runner = world.start(&["run"]);
    until("it has run", || world.has("env") && world.data(&["sessions", "list"])["sessions"].as_array().unwrap().is_empty());
    send(&world, "Job", "for the next one");
    let text = fs::read_to_string(world.path().join("env")).unwrap();
    let mut late = world.command(&["mailbox", "read", "--json"]);
    late.envs(text.lines().filter(|line| line.starts_with("BANKSMAN_")).filter_map(|line| line.split_once('=')));
    let output = late.output().unwrap();
    assert_eq!(output.status.code(), Some(8), "{output:?}");
}

/// Records lines from stdin until one is `end`.
const LISTENER: &str = r#"touch begun; while read -r line; do echo "got $line" >> got; [ "$line" = end ] && exit 0; done"#;

#[test]
fn a_message_is_written_into_a_live_session_once() {
    let world = World::new();
    let task = world.data(&["tasks", "add", "Job", "--run", LISTENER, "--input"])["id"].as_str().unwrap().to_owned();
    let runner = world.start(&["run", "--until-idle"]);
    until("it has begun", || world.has("begun"));
    let first = send(&world, "Job", "one");
    assert_eq!((&first["receipt"], &first["plan"]), (&"delivered".into(), &"control_socket".into()));
    let run = world.data(&["mailbox", "show", first["id"].as_str().unwrap()])["run"].as_str().unwrap().to_owned();
    // A repeated send is not written again; a follow-up waits for the next run.
    world.data(&["send", "Job", "one", "--author", "ada", "--id", first["id"].as_str().unwrap()]);
    let later = world.data(&["sessions", "send", &run, "later", "--mode", "follow-up"]);
    assert_eq!(later["receipt"], "queued");
    assert_eq!(world.grant(&format!("dispatch:{task}")), None);
    let last = world.data(&["sessions", "send", &run, "end"]);
    assert!(["delivered", "read"].contains(&last["receipt"].as_str().unwrap()), "{last}");
    assert_eq!(runner.end().code, 0);
    assert_eq!(fs::read_to_string(world.path().join("got")).unwrap(), "got one\ngot end\n");
    assert_eq!(receipt(&world, first["id"].as_str().unwrap()), "read");
    assert_eq!(receipt(&world, later["id"].as_str().unwrap()), "undelivered");
    assert_eq!(world.error(&["sessions", "send", &run, "x"]).1["code"], "SESSION_ENDED");
}

/// An agent that takes one turn per line of its input, and records the lines in `lines`. The first turn runs `first`.
fn turns(world: &World, first: &str) {
    let program = world.path().join("turns.sh");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> args\n{INIT}\nwhile read -r line; do printf '%s\\n' \"$line\" >> lines; \
         if [ ! -e begun ]; then touch begun; {first}; fi; {RESULT}; done\n"
    );
    write_program(&program, &script);
    world.configure(&format!(
        "\n[agent.turns]\nextends = \"claude\"\nprogram = \"{}\"\naccount = \"turns\"\nreads = []\ncheck_login = []\ninput = true\n",
        program.display()
    ));
    world.ok(&["trust", "--agent", "turns"]);
    world.ok(&["tasks", "add", "Job", "--agent", "turns", "--prompt", "begin"]);
}

fn runs(world: &World) -> usize {
    world.data(&["tasks", "show", "Job"])["runs"].as_array().unwrap().len()
}

#[test]
fn follow_ups_are_the_next_turns_of_a_live_agent() {
    let world = World::new();
    turns(&world, "while [ ! -e go ]; do sleep 0.01; done");
    let runner = world.start(&["run", "--until-idle"]);
    until("it works", || world.has("begun"));
    let ids = ["second", "third"].map(|text| {
        let sent = world.data(&["send", "Job", text, "--author", "ada", "--mode", "follow-up"]);
        assert_eq!((&sent["plan"], &sent["receipt"]), (&"control_socket".into(), &"sent".into()), "{sent}");
        sent["id"].as_str().unwrap().to_owned()
    });
    fs::write(world.path().join("go"), "").unwrap();
    assert_eq!(runner.end().code, 0);
    let lines = world.lines("lines");
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("begin") && lines[1].contains("second") && lines[2].contains("third"), "{lines:?}");
    assert_eq!(ids.map(|id| receipt(&world, &id)), ["read", "read"]);
    assert_eq!(runs(&world), 1);
}

/// Waits for an open decision.
fn question(world: &World) -> String {
    let open = || world.data(&["decisions", "list"])["decisions"].clone();
    until("a question is open", || !open().as_array().unwrap().is_empty());
    open()[0]["id"].as_str().unwrap().to_owned()
}

const ASK: &str = "tasks ask 'Which port?' --option 80 --option 8080";

/// A live agent that has asked a question, its runner, and the decision.
fn asking() -> (World, Running, String) {
    let world = World::new();
    turns(&world, &format!("{BANKSMAN} {ASK} > asked"));
    let runner = world.start(&["run", "--until-idle"]);
    let decision = question(&world);
    until("the answer to `tasks ask` was printed", || world.read("asked").contains("end your turn"));
    (world, runner, decision)
}

#[test]
fn an_answer_is_the_next_turn_of_the_agent_that_asked() {
    let (world, runner, decision) = asking();
    assert_eq!(world.data(&["tasks", "show", "Job"])["status"], "in_progress", "its session waits");
    world.ok(&["decisions", "resolve", &decision, "2", "--note", "as before"]);
    assert_eq!(runner.end().code, 0);
    let lines = world.lines("lines");
    assert!(lines.len() == 2 && lines[1].contains("8080: as before"), "{lines:?}");
    let answer = world.data(&["mailbox", "show", &format!("answer-{decision}")]);
    assert_eq!((runs(&world), &answer["receipt"]), (1, &"read".into()), "{answer}");
    let bus = world.data(&["bus", "read", "--task", "Job"])["messages"].clone();
    let said: Vec<_> =
        bus.as_array().unwrap().iter().map(|m| (m["type"].as_str().unwrap(), m["body"].as_str().unwrap())).collect();
    assert!(said.contains(&("QUESTION", "Which port?\n1. 80\n2. 8080")), "{said:?}");
    assert_eq!(said.iter().filter(|said| said.0 == "ANSWER").count(), 1, "{said:?}");
}

/// The runner sends the answer, and repeats it until the keeper takes it; the command that resolves the decision need not stay alive.
#[test]
fn an_answer_reaches_a_session_whose_keeper_was_stopped() {
    let (world, runner, decision) = asking();
    let sessions = world.data(&["sessions", "list"])["sessions"].clone();
    let keeper = i32::try_from(sessions[0]["keeperPid"].as_i64().unwrap()).unwrap();
    let keeper = rustix::process::Pid::from_raw(keeper).unwrap();
    rustix::process::kill_process(keeper, Signal::STOP).unwrap();
    world.ok(&["decisions", "resolve", &decision, "1"]);
    rustix::process::kill_process(keeper, Signal::CONT).unwrap();
    assert_eq!(runner.end().code, 0);
    let lines = world.lines("lines");
    assert!(lines.len() == 2 && lines[1].contains("80"), "{lines:?}");
    assert_eq!(runs(&world), 1);
}

#[test]
fn a_question_outlives_the_session_that_asked() {
    let (world, runner, live) = asking();
    let sessions = world.data(&["sessions", "list"])["sessions"].clone();
    let child = i32::try_from(sessions[0]["childPid"].as_i64().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    runner.end();
    assert_eq!(world.data(&["tasks", "show", "Job"])["status"], "blocked");
    let decision = question(&world);
    assert_ne!(decision, live, "it is a question of the task now");
    world.ok(&["decisions", "resolve", &decision, "1"]);
    world.run(&["run", "--until-idle"]);
    let lines = world.lines("lines");
    assert!(lines.len() == 2 && lines[1].contains("You asked: Which port?") && lines[1].contains("The answer: 80"), "{lines:?}");
}

#[test]
fn concurrent_messages_are_all_delivered() {
    let world = World::new();
    world.ok(&["tasks", "add", "Job", "--run", LISTENER, "--input"]);
    let runner = world.start(&["run", "--until-idle"]);
    until("it has begun", || world.has("begun"));
    let texts: Vec<String> = (0..12).map(|n| format!("m{n}")).collect();
    let senders: Vec<_> = texts.iter().map(|text| world.start(&["send", "Job", text])).collect();
    senders.into_iter().for_each(|sender| assert_eq!(sender.end().code, 0));
    let got = || fs::read_to_string(world.path().join("got")).unwrap_or_default();
    until("all are there", || got().lines().count() == texts.len());
    let mut lines: Vec<String> = got().lines().map(|line| line.replace("got ", "")).collect();
    lines.sort_by_key(|line| line[1..].parse::<u32>().unwrap());
    assert_eq!(lines, texts);
    world.ok(&["send", "Job", "end"]);
    assert_eq!(runner.end().code, 0);
}

#[test]
fn a_dead_dispatcher_leaves_an_unknown_receipt_and_no_lock() {
    let world = World::new();
    let script = "touch begun; while [ ! -e go ]; do sleep 0.05; done; cat > got";
    let task = world.data(&["tasks", "add", "Job", "--run", script, "--input"])["id"].as_str().unwrap().to_owned();
    let runner = world.start(&["run", "--until-idle"]);
    until("it has begun", || world.has("begun"));
    // More than a pipe holds: the dispatcher blocks on a session that does not read.
    let large = "x".repeat(200_000);
    let file = world.path().join("large");
    fs::write(&file, &large).unwrap();
    let mut command = world.command(&["send", "Job", "-", "--id", "m-large"]);
    let mut sender = command.stdin(fs::File::open(&file).unwrap()).spawn().unwrap();
    until("it is being sent", || world.grant(&format!("dispatch:{task}")).is_some());
    sender.kill().unwrap();
    sender.wait().unwrap();
    if receipt(&world, "m-large") == "queued" {
        let doctor = world.ok(&["doctor"]);
        assert!(doctor.contains("that sent message m-large") || receipt(&world, "m-large") == "unknown", "{doctor}");
        // The next sender proves that the dispatcher is dead, and sends its own message.
        let next = send(&world, "Job", "next");
        assert!(["sent", "delivered"].contains(&next["receipt"].as_str().unwrap()), "{next}");
        assert_eq!(receipt(&world, "m-large"), "unknown");
    }
    until("the lock is free", || world.grant(&format!("dispatch:{task}")).is_none());
    fs::write(world.path().join("go"), "").unwrap();
    let pid = world.data(&["sessions", "list"])["sessions"][0]["run"].as_str().unwrap().to_owned();
    world.ok(&["sessions", "kill", &pid]);
    runner.stop();
}

#[test]
fn a_message_of_the_maximum_size_reaches_a_session() {
    let world = World::new();
    world.ok(&["tasks", "add", "Job", "--run", "touch begun; head -n 2 | wc -c > got", "--input"]);
    let runner = world.start(&["run", "--until-idle"]);
    until("it has begun", || world.has("begun"));
    let limit = 1024 * 1024;
    let file = world.path().join("large");
    fs::write(&file, "x".repeat(limit)).unwrap();
    let mut command = world.command(&["send", "Job", "-", "--id", "m-large"]);
    assert!(command.stdin(fs::File::open(&file).unwrap()).status().unwrap().success());
    // The large message does not block the next one.
    send(&world, "Job", "small");
    assert_eq!(runner.end().code, 0);
    let got = fs::read_to_string(world.path().join("got")).unwrap();
    assert_eq!((got.trim(), receipt(&world, "m-large").as_str()), ((limit + 1 + 6).to_string().as_str(), "read"));
}

#[test]
fn a_message_that_was_not_written_completely_is_undelivered() {
    let world = World::new();
    let script = format!("touch begun; while [ ! -e go ]; do sleep 0.05; done; {BANKSMAN} tasks done $BANKSMAN_TASK");
    world.ok(&["tasks", "add", "Job", "--run", &script, "--input"]);
    let runner = world.start(&["run", "--until-idle"]);
    until("it has begun", || world.has("begun"));
    let small = send(&world, "Job", "fits into the pipe")["id"].as_str().unwrap().to_owned();
    // More than a pipe holds, to a session that never reads.
    let file = world.path().join("large");
    fs::write(&file, "x".repeat(200_000)).unwrap();
    let mut command = world.command(&["send", "Job", "-", "--id", "m-large"]);
    assert!(command.stdin(fs::File::open(&file).unwrap()).status().unwrap().success());
    assert_eq!((receipt(&world, &small), receipt(&world, "m-large")), ("delivered".into(), "sent".into()));
    fs::write(world.path().join("go"), "").unwrap();
    assert_eq!(runner.end().code, 0);
    assert_eq!((receipt(&world, &small), receipt(&world, "m-large")), ("read".into(), "undelivered".into()));
    let returned = world.data(&["bus", "read", "--type", "ERROR"])["messages"].clone();
    assert_eq!(returned[0]["replyTo"], "m-large", "{returned}");
}

#[test]
fn the_claim_puts_messages_into_the_prompt_of_an_agent() {
    let world = World::new();
    trusted(&world, "first", &format!("{INIT}; [ $(wc -l < $0.args) -lt 2 ] && exit 1; {RESULT}"));
    let task = world.data(&["tasks", "add", "Job", "--agent", "first", "--retries", "1"])["id"].as_str().unwrap().to_owned();
    let sent = send(&world, "Job", "use port 8080");
    assert_eq!(sent["plan"], "spawn");
    world.ok(&["run", "--until-idle"]);
    let prompt = fs::read_to_string(world.path().join("first.sh.prompt")).unwrap();
    let id = sent["id"].as_str().unwrap();
    assert!(prompt.contains(&format!("INFO from ada ({id}, an earlier attempt may have seen it):\nuse port 8080\n")), "{prompt}");
    assert_eq!(receipt(&world, id), "read");
    assert_eq!(world.grant(&format!("dispatch:{task}")), None);
    // The dispatch lock was held from each claim until the session was observed.
    let of_lock = |kind: &str| {
        world
            .events()
            .iter()
            .filter(|event| event.kind == kind && event.source.id.as_deref() == Some(&format!("dispatch:{task}")))
            .count()
    };
    assert_eq!((of_lock("lock:acquired"), of_lock("lock:released")), (2, 2));
}

#[test]
fn a_sender_waits_for_the_answer() {
    let world = World::new();
    let answer = format!(
        "touch begun; id=$({BANKSMAN} mailbox read --wait --json | sed 's/.*\"id\":\"\\([^\"]*\\)\".*/\\1/'); {BANKSMAN} bus post ANSWER 8080 --reply-to $id"
    );
    world.ok(&["tasks", "add", "Job", "--run", &answer]);
    let runner = world.start(&["run", "--until-idle"]);
    let reply = world.data(&["send", "Job", "which port?", "--wants-reply", "--timeout", "60s"]);
    assert_eq!((&reply["reply"]["type"], &reply["reply"]["body"]), (&"ANSWER".into(), &"8080".into()));
    assert_eq!(runner.end().code, 0);
    world.ok(&["tasks", "add", "Deaf", "--run", "true"]);
    world.assert_refused(&["send", "Deaf", "hello?", "--wants-reply", "--timeout", "10ms"], 6, "NO_REPLY");
    // The waiting sender gets an error when the message comes back.
    let sender = world.start(&["send", "Deaf", "hello?", "--wants-reply", "--timeout", "60s", "--id", "m-deaf", "--json"]);
    until("it is sent", || world.run(&["mailbox", "show", "m-deaf"]).code == 0);
    world.ok(&["run", "--until-idle"]);
    let said = sender.end();
    let error: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, &error["error"]["details"]["receipt"]), (6, &"undelivered".into()), "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("is completed"), "{error}");
}
