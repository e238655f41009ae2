//! Notifications: setup, `notify test`, and the trust that the settings of a project need.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::notices::serve;
use crate::world::{Said, World};

/// A fake `notify-send` that records its arguments. Returns a `PATH` with it in front. Another process writes it: a child of another
/// test could inherit a file that this process has open for writing, and then it could not be executed.
fn fake_desktop(world: &World) -> String {
    let folder = world.path().join("bin");
    fs::create_dir(&folder).unwrap();
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat > \"$1\" && chmod +x \"$1\"", "sh"]).arg(folder.join("notify-send")).stdin(Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    let script = b"#!/bin/sh\nprintf '%s\\0' \"$@\" > \"${0%/*}/argv\"\n";
    writer.stdin.take().unwrap().write_all(script).unwrap();
    assert!(writer.wait().unwrap().success());
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// The exit status and the data of `notify test --json`.
fn test(world: &World, more: &[&str], path: Option<&str>) -> (i32, Value) {
    let mut command = world.command(&[&["notify", "test", "--json"], more].concat());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let said: Said = command.output().unwrap().into();
    let mut envelope: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    (said.code, envelope["data"].take())
}

/// `channel outcome` of each channel.
fn outcomes(data: &Value) -> Vec<String> {
    let word = |channel: &Value, key: &str| channel[key].as_str().unwrap().to_owned();
    let channels = data["channels"].as_array().unwrap().iter();
    channels.map(|channel| format!("{} {}", word(channel, "channel"), word(channel, "outcome"))).collect()
}

#[test]
fn without_a_channel_the_hint_names_all_three() {
    for world in [World::on_sqlite(), World::empty_on_sqlite()] {
        let error = world.assert_refused(&["notify", "test"], 3, "NO_CHANNEL");
        for key in ["notify.desktop on", "notify.command", "notify.webhook https://"] {
            assert!(error["hint"].as_str().unwrap().contains(key), "{error}");
        }
    }
}

#[test]
fn notify_test_uses_every_channel() {
    let world = World::on_sqlite();
    let path = fake_desktop(&world);
    let (url, server) = serve("/T0/token", &["200 Fine"]);
    let secret = world.path().join("secret file");
    fs::write(&secret, "hunter2\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let set = |key: &str, value: &str| world.ok(&["config", "set", "--user", key, value]);
    set("notify.desktop", "on");
    set("notify.sound", "on");
    set("notify.command", r#"["sh", "-c", "cat > stdin; echo $BANKSMAN_NOTICE_KIND > kind"]"#);
    let said = set("notify.webhook", &url);
    assert!(!said.contains("token"), "{said}");
    set("notify.webhook_secret_file", secret.to_str().unwrap());
    let (code, data) = test(&world, &["--kind", "decision"], Some(&path));
    assert_eq!((code, outcomes(&data)), (0, vec!["desktop sent".into(), "command sent".into(), "webhook sent".into()]));
    let argv = fs::read_to_string(world.path().join("bin/argv")).unwrap();
    let argv: Vec<&str> = argv.split_terminator('\0').collect();
    assert_eq!(argv[..4], ["--app-name=Banksman", "--urgency=critical", "--hint=string:sound-name:dialog-warning", "--"]);
    assert_eq!(fs::read_to_string(world.path().join("kind")).unwrap(), "decision\n");
    let notice: Value = serde_json::from_str(&fs::read_to_string(world.path().join("stdin")).unwrap()).unwrap();
    assert_eq!(notice["project"], world.path().canonicalize().unwrap().to_str().unwrap());
    let heard = server.join().unwrap().concat().to_lowercase();
    assert!(heard.starts_with("post /t0/token http/1.1\r\n") && heard.contains("x-banksman-signature: sha256="), "{heard}");
    assert!(heard.contains(&format!("x-banksman-delivery: {}", data["delivery"].as_str().unwrap())), "{heard}");

    // Neither the secret nor the token of the URL is ever shown.
    for args in [&["config", "list"][..], &["config", "list", "--json"], &["notify", "test"]] {
        let said = world.run(args);
        assert!(!format!("{said:?}").contains("hunter2") && !said.stdout.contains("token"), "{said:?}");
    }
}

#[test]
fn a_failed_channel_reports_its_error_and_the_others_work() {
    let world = World::on_sqlite();
    let (url, server) = serve("/T0/token", &["404 None"]);
    for (key, value) in [("notify.command", "echo no such room >&2; exit 3"), ("notify.webhook", &url)] {
        world.ok(&["config", "set", "--user", key, value]);
    }
    let said = world.run(&["notify", "test"]);
    assert_eq!((said.code, said.stdout.contains("failed: sh ended with exit status 3: no such room\n")), (1, true), "{said:?}");
    assert!(said.stdout.contains("answered 404") && said.stdout.matches("hint: ").count() == 2, "{said:?}");
    server.join().unwrap();

    world.ok(&["config", "set", "--user", "notify.desktop", "on"]);
    world.ok(&["config", "set", "--user", "notify.command", ":"]);
    let folder = world.path().join("programs");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("/bin/sh", folder.join("sh")).unwrap();
    let (code, data) = test(&world, &[], folder.to_str());
    assert_eq!((code, outcomes(&data)), (1, vec!["desktop failed".into(), "command sent".into(), "webhook failed".into()]));
    assert_eq!(data["channels"][0]["error"], "notify-send is not there");
}

#[test]
fn a_webhook_secret_that_others_can_read_is_refused() {
    let world = World::on_sqlite();
    let secret = world.path().join("secret");
    fs::write(&secret, "hunter2").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    world.ok(&["config", "set", "--user", "notify.webhook", "http://127.0.0.1:9/x"]);
    world.ok(&["config", "set", "--user", "notify.webhook_secret_file", secret.to_str().unwrap()]);
    let (code, data) = test(&world, &[], None);
    assert_eq!((code, outcomes(&data)), (1, vec!["webhook refused".into()]));
    assert!(data["channels"][0]["hint"].as_str().unwrap().starts_with("chmod 600 "), "{data}");
}

#[test]
fn settings_of_notifications_are_checked() {
    let world = World::on_sqlite();
    for (key, value, words) in [
        ("notify.on", "escalate,decison", "did you mean decision?"),
        ("notify.on", "weather", "only of escalate, decision, task_failed, backlog_finished, route"),
        ("notify.desktop", "yes", "it must be on or off"),
        ("notify.webhook", "hooks.example/token", "begins with https://"),
        ("notify.webhook_secret_file", "secret", "an absolute path"),
        ("notify.command", "[1]", "a list of words"),
    ] {
        let (code, error) = world.error(&["config", "set", key, value]);
        assert_eq!(code, 3, "{error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    world.ok(&["config", "set", "notify.on", "decision"]);
    world.ok(&["config", "set", "--user", "notify.command", "true"]);
    let said = world.run(&["notify", "test", "--kind", "escalate"]);
    assert_eq!((said.code, said.stderr.contains("notify.on does not include escalate")), (0, true), "{said:?}");
    assert_eq!(world.run(&["notify", "test", "--kind", "decision"]).stderr, "");
}

#[test]
fn settings_of_a_project_do_nothing_before_they_are_trusted() {
    let world = World::on_sqlite();
    let line = "echo ran >> ran";
    world.committed("notify.command", line);
    let ran = || fs::read_to_string(world.path().join("ran")).unwrap_or_default().lines().count();
    let is_refused = || {
        let (code, data) = test(&world, &[], None);
        assert_eq!((code, outcomes(&data)), (1, vec!["command refused".into()]));
        assert!(data["channels"][0]["hint"].as_str().unwrap().contains("banksman trust"), "{data}");
    };
    is_refused();
    let shown = world.ok(&["trust", "--show"]);
    assert!(shown.contains(&format!("\nnot trusted  notify.command = {line}\n")), "{shown}");
    is_refused();
    assert_eq!(ran(), 0);

    assert!(world.ok(&["trust"]).contains("\ntrusted      notify.command"));
    assert_eq!((test(&world, &[], None).0, ran()), (0, 1));
    // Trust covers neither a copy of the project nor a changed value.
    let copy = world.path().join("copy");
    fs::create_dir_all(copy.join(".banksman")).unwrap();
    for file in ["config.toml", "store.db"] {
        fs::copy(world.path().join(".banksman").join(file), copy.join(".banksman").join(file)).unwrap();
    }
    let said = world.run(&["-C", copy.to_str().unwrap(), "notify", "test"]);
    assert_eq!((said.code, said.stdout.contains("refused: notify.command comes with the project")), (1, true), "{said:?}");
    world.committed("notify.command", "echo ran >> ran; true");
    is_refused();
    world.ok(&["trust"]);
    assert_eq!((test(&world, &[], None).0, ran()), (0, 2));
    world.ok(&["trust", "--revoke"]);
    is_refused();
    assert_eq!(ran(), 2);
}

#[test]
fn settings_of_the_user_need_no_trust() {
    let world = World::on_sqlite();
    world.committed("notify.command", "touch theirs");
    let run = |command: &mut Command| -> Said { command.output().unwrap().into() };
    let said = run(world.command(&["notify", "test"]).env("BANKSMAN_CONFIG_NOTIFY__COMMAND", "touch mine"));
    assert_eq!((said.code, world.has("mine")), (0, true), "{said:?}");
    assert!(!world.has("theirs"));
    assert!(world.data(&["trust", "--show"])["keys"][0]["trusted"] == false);
}

#[test]
fn trust_is_stored_privately_and_shown_with_escapes() {
    let world = World::empty_on_sqlite();
    assert_eq!(world.error(&["trust"]).0, 4);
    world.ok(&["init"]);
    assert!(world.ok(&["trust"]).contains("\nno setting of this project"));
    let file = world.path().join(".banksman/config.toml");
    let text = fs::read_to_string(&file).unwrap() + "[notify]\ncommand = \"true \\u001b[2K\\u202e\\n x\"\n";
    fs::write(&file, text).unwrap();
    let shown = world.ok(&["trust"]);
    assert!(shown.contains("notify.command = true \\u{1b}[2K\\u{202e}\\n x\n"), "{shown:?}");
    let kept: Vec<PathBuf> =
        fs::read_dir(world.path().join("state/banksman/trust")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let modes: Vec<u32> = kept.iter().map(|file| fs::metadata(file).unwrap().permissions().mode() & 0o777).collect();
    assert_eq!(modes, [0o600; 2], "the store, and the settings");
}
