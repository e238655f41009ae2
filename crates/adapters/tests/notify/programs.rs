use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use banksman_adapters::notify::{Channel, Channels, Delivery, Desktop, NotifyError, Program, send};
use banksman_core::NoticeKind;

use crate::{nasty, none};

/// Makes a script. Another process writes it: a child of another test could inherit a file that this process has open
/// for writing, and then the file cannot be executed.
fn script(path: &Path, text: &str) -> PathBuf {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat > \"$1\" && chmod +x \"$1\"", "sh"]).arg(path).stdin(Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
    path.into()
}

fn only(mut done: Vec<(Channel, Result<(), NotifyError>)>) -> Result<(), NotifyError> {
    assert_eq!(done.len(), 1);
    done.pop().unwrap().1
}

fn shell(dir: &tempfile::TempDir, line: &str) -> Channels {
    Channels { command: Some(Program::Shell(line.into())), ..none(dir) }
}

#[test]
fn the_desktop_gets_literal_arguments_without_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let record = "#!/bin/sh\nprintf '%s\\0' \"$@\" > \"${0%/*}/argv\"\n";
    let program = script(&dir.path().join("notify-send"), record);
    let argv = |kind, sound| {
        let channels = Channels { desktop: Some(Desktop { program: program.clone(), sound }), ..none(&dir) };
        only(send(&channels, &nasty(kind), "d-1")).unwrap();
        let text = fs::read_to_string(dir.path().join("argv")).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>()
    };
    let subject = "--help \"it's\" $(touch x) `touch x` next; touch x";
    let text = "&lt;b&gt;50 &amp; more&lt;/b&gt; $(touch x)\r\n\u{fffd}end";
    assert_eq!(argv(NoticeKind::Escalate, false), ["--app-name=Banksman", "--urgency=critical", "--", subject, text]);
    let loud = argv(NoticeKind::BacklogFinished, true);
    assert_eq!(loud[1..3], ["--urgency=normal", "--hint=string:sound-name:complete"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing was executed");
}

#[test]
fn a_missing_notify_send_is_a_final_error() {
    let dir = tempfile::tempdir().unwrap();
    let desktop = Desktop { program: dir.path().join("notify-send"), sound: false };
    let error = only(send(&Channels { desktop: Some(desktop), ..none(&dir) }, &nasty(NoticeKind::Test), "d-1")).unwrap_err();
    assert!(matches!(error, NotifyError::NoProgram { .. }) && error.delivery() == Delivery::Final, "{error}");
}

#[test]
fn a_command_has_the_notice_in_variables_and_on_stdin() {
    let dir = tempfile::tempdir().unwrap();
    let line = r#"cat > stdin; printf '%s\0' "$BANKSMAN_NOTICE_KIND" "$BANKSMAN_NOTICE_SUBJECT" "$BANKSMAN_NOTICE_TEXT" \
        "$BANKSMAN_PROJECT" "$BANKSMAN_NOTICE_DELIVERY" > variables"#;
    let argv = vec!["sh".into(), "-c".into(), line.into()];
    let notice = nasty(NoticeKind::TaskFailed);
    for program in [Program::Shell(line.into()), Program::Argv(argv)] {
        only(send(&Channels { command: Some(program), ..none(&dir) }, &notice, "d-1")).unwrap();
        assert_eq!(fs::read(dir.path().join("stdin")).unwrap(), notice.to_json());
        let variables = fs::read_to_string(dir.path().join("variables")).unwrap();
        let text = notice.text.replace('\0', "\u{fffd}");
        let expected = ["task_failed", &notice.subject, &text, notice.project.to_str().unwrap(), "d-1"];
        assert_eq!(variables.split_terminator('\0').collect::<Vec<_>>(), expected);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing was executed");
    }
}

#[test]
fn a_command_that_ignores_stdin_and_prints_much_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let mut notice = nasty(NoticeKind::Test);
    notice.text = "x".repeat(1_000_000);
    only(send(&shell(&dir, "head -c 1000000 /dev/zero"), &notice, "d-1")).unwrap();
}

#[test]
fn a_failing_command_reports_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let fail = |line: &str| only(send(&shell(&dir, line), &nasty(NoticeKind::Test), "d-1")).unwrap_err();
    let error = fail("echo first; printf '\\033[1mno such room\\n\\n' >&2; exit 3");
    assert_eq!((error.to_string().as_str(), error.delivery()), ("sh ended with exit status 3: [1mno such room", Delivery::Final));
    assert_eq!(fail("kill -9 $$").to_string(), "sh ended with signal 9");
    let missing = Channels { command: Some(Program::Argv(vec!["/none/such".into()])), ..none(&dir) };
    assert_eq!(only(send(&missing, &nasty(NoticeKind::Test), "d-1")).unwrap_err().to_string(), "/none/such is not there");
}

#[test]
fn a_command_that_times_out_is_killed_with_its_descendants() {
    let dir = tempfile::tempdir().unwrap();
    // One process in the group, one in a session of its own, one whose parent is gone already.
    let line = "echo $$ >> pids; sleep 60 & echo $! >> pids; setsid sh -c 'echo $$ >> pids; exec sleep 60' & \
        (sleep 60 & echo $! >> pids); while [ $(wc -l < pids) -lt 4 ]; do :; done; touch ready; wait; wait";
    let channels = Channels { limit: Duration::from_secs(2), ..shell(&dir, line) };
    let start = Instant::now();
    let error = only(send(&channels, &nasty(NoticeKind::Test), "d-1")).unwrap_err();
    assert!(matches!(error, NotifyError::Overdue { .. }) && error.delivery() == Delivery::Unknown, "{error}");
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(dir.path().join("ready").exists(), "all processes were started");
    let pids = fs::read_to_string(dir.path().join("pids")).unwrap();
    for pid in pids.lines() {
        let start = Instant::now();
        while lives(pid) {
            assert!(start.elapsed() < Duration::from_secs(30), "{pid} lives");
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}

fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn processes_that_a_command_leaves_behind_are_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let start = Instant::now();
    only(send(&shell(&dir, "sleep 60 & echo $! > pid"), &nasty(NoticeKind::Test), "d-1")).unwrap();
    assert!(start.elapsed() < Duration::from_secs(30));
    let pid = fs::read_to_string(dir.path().join("pid")).unwrap();
    assert!(lives(pid.trim()));
    Command::new("kill").arg(pid.trim()).status().unwrap();
}
