//! Talking to live sessions: through a pipe, and through a terminal.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use banksman_adapters::keeper::{self, Delivery, InputKind, InputRefusal, Presence, Spec, TalkError, TalkReply, Talker, Typist};

use crate::world::{DEADLINE, Talk, World, start, until};

fn session(world: &World, input: Option<InputKind>, script: &str) -> Talk {
    let mut talk = start(&Spec { input, ..world.spec(script) });
    talk.begun().unwrap();
    talk
}

/// An attached client, with all output that it has received.
struct Watcher {
    talker: Talker,
    is_typist: bool,
    seen: Vec<u8>,
    moved: bool,
    ended: bool,
}

impl Watcher {
    fn attach(world: &World, typist: Typist) -> Watcher {
        let (talker, is_typist) = Talker::attach(&world.record(), typist, (30, 100), DEADLINE).unwrap();
        Watcher { talker, is_typist, seen: Vec::new(), moved: false, ended: false }
    }

    fn receive(&mut self) {
        self.talker.push();
        for heard in self.talker.heard() {
            match heard {
                Ok(TalkReply::Output { bytes }) => self.seen.extend(bytes.as_bytes()),
                Ok(TalkReply::TypistMoved) => self.moved = true,
                Ok(TalkReply::Ended) | Err(TalkError::Gone) => self.ended = true,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn until_seen(&mut self, text: &str) {
        until(text, || {
            self.receive();
            String::from_utf8_lossy(&self.seen).contains(text).then_some(())
        });
    }
}

#[test]
fn a_message_is_written_into_a_pipe_once() {
    let world = World::new();
    let mut talk = session(&world, Some(InputKind::Pipe), "while read -r line; do echo \"got $line\"; done; echo end");
    let record = world.record();
    assert_eq!(
        keeper::ping(&record, DEADLINE).unwrap(),
        Presence { input: Some(InputKind::Pipe), has_typist: false, has_turns: false }
    );
    assert_eq!(keeper::send_message(&record, "m-1", "one", DEADLINE).unwrap(), Delivery::Written);
    assert_eq!(keeper::send_message(&record, "m-1", "one", DEADLINE).unwrap(), Delivery::Taken, "the message was sent before");
    assert_eq!(keeper::send_message(&record, "m-2", "two\nthree", DEADLINE).unwrap(), Delivery::Written);
    keeper::close_input(&record, DEADLINE).unwrap();
    talk.ended();
    assert_eq!(world.log(), "got one\ngot two\ngot three\nend\n");
}

#[test]
fn a_session_without_input_refuses_messages() {
    let world = World::new();
    let _talk = session(&world, None, "sleep 60");
    assert_eq!(keeper::ping(&world.record(), DEADLINE).unwrap(), Presence { input: None, has_typist: false, has_turns: false });
    let refused = keeper::send_message(&world.record(), "m-1", "one", DEADLINE);
    assert!(matches!(refused, Err(TalkError::Refused(InputRefusal::NoInput))), "{refused:?}");
}

#[test]
fn a_program_that_does_not_read_blocks_no_client() {
    let world = World::new();
    let mut talk = session(&world, Some(InputKind::Pipe), "touch begun; while [ ! -e go ]; do sleep 0.01; done; wc -c");
    world.wait_for("begun");
    let text = "x".repeat(400 * 1024 - 1);
    let send = |id: &str| keeper::send_message(&world.record(), id, &text, Duration::from_millis(300));
    assert_eq!(send("m-1").unwrap(), Delivery::Taken);
    assert_eq!(send("m-2").unwrap(), Delivery::Taken);
    let refused = send("m-3");
    assert!(matches!(refused, Err(TalkError::Refused(InputRefusal::Full { .. }))), "{refused:?}");
    // The keeper still answers.
    assert!(!keeper::status(&world.record()).unwrap().stopping);
    std::fs::write(world.path("go"), "").unwrap();
    keeper::close_input(&world.record(), DEADLINE).unwrap();
    talk.ended();
    assert_eq!(world.log().trim(), (2 * 400 * 1024).to_string());
}

#[test]
fn a_terminal_session_has_a_tty_of_the_size_of_its_client() {
    let world = World::new();
    let script = "test -t 0 && test -t 1 && echo tty; stty size; read -r line; echo \"read $line\"; stty size; sleep 60";
    let _talk = session(&world, Some(InputKind::Terminal), script);
    until("the first size", || world.log().contains("24 80").then_some(()));
    let mut watcher = Watcher::attach(&world, Typist::IfFree);
    watcher.until_seen("tty\r\n24 80");
    watcher.talker.type_in(b"hello\r");
    watcher.until_seen("read hello\r\n30 100");
}

#[test]
fn several_clients_watch_and_one_types() {
    let world = World::new();
    let _talk = session(&world, Some(InputKind::Terminal), "while read -r line; do echo \"read $line\"; done");
    let mut first = Watcher::attach(&world, Typist::IfFree);
    let mut second = Watcher::attach(&world, Typist::IfFree);
    assert_eq!((first.is_typist, second.is_typist), (true, false));
    second.talker.type_in(b"not me\r");
    first.talker.type_in(b"me\r");
    first.until_seen("read me");
    second.until_seen("read me");
    let refused = keeper::send_message(&world.record(), "m-1", "text", DEADLINE);
    assert!(matches!(refused, Err(TalkError::Refused(InputRefusal::Typing))), "{refused:?}");
    // The right to type moves, and ends with the connection.
    let third = Watcher::attach(&world, Typist::Take);
    assert!(third.is_typist);
    until("the first client is notified", || {
        first.receive();
        first.moved.then_some(())
    });
    drop(third);
    until("no client types", || (!keeper::ping(&world.record(), DEADLINE).unwrap().has_typist).then_some(()));
    assert_eq!(keeper::send_message(&world.record(), "m-1", "by message", DEADLINE).unwrap(), Delivery::Written);
    second.until_seen("read by message");
    assert!(!String::from_utf8_lossy(&second.seen).contains("read not me"));
}

#[test]
fn a_late_watcher_gets_recent_output_and_a_slow_one_is_dropped() {
    let world = World::new();
    let script = "seq -w 1 20000; echo filled; read -r line; seq -w 1 600000; echo over; sleep 60";
    let _talk = session(&world, Some(InputKind::Terminal), script);
    until("the output is filled", || world.log().contains("filled").then_some(()));
    let slow = Watcher::attach(&world, Typist::Never);
    let mut watcher = Watcher::attach(&world, Typist::IfFree);
    watcher.until_seen("filled");
    assert!(watcher.seen.len() <= 64 * 1024, "{}", watcher.seen.len());
    assert!(!watcher.seen.starts_with(b"00001\r"), "only the last output");
    // 5 MB of output, which is 6 MB as lines to a watcher: one that reads nothing is disconnected, the others get all of it.
    watcher.talker.type_in(b"go\r");
    watcher.until_seen("600000\r\nover");
    let mut slow = slow;
    until("the slow watcher was disconnected", || {
        slow.receive();
        slow.ended.then_some(())
    });
    assert!(!String::from_utf8_lossy(&slow.seen).contains("over"));
}

#[test]
fn watchers_are_notified_of_the_end() {
    let world = World::new();
    let mut talk = session(&world, Some(InputKind::Terminal), "read -r line; echo last");
    let mut watcher = Watcher::attach(&world, Typist::IfFree);
    watcher.talker.type_in(b"\r");
    watcher.until_seen("last");
    until("the end", || {
        watcher.receive();
        watcher.ended.then_some(())
    });
    talk.ended();
}

#[test]
fn a_client_can_nudge_a_session() {
    let world = World::new();
    let script = "trap 'touch nudged' USR1; touch begun; while [ ! -e nudged ]; do sleep 0.01; done";
    let mut talk = session(&world, None, script);
    world.wait_for("begun");
    keeper::nudge(&world.record(), DEADLINE).unwrap();
    talk.ended();
    assert!(world.path("nudged").exists());
}
