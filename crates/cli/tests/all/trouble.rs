//! A failing PostgreSQL server: calls succeed once or report that they did not, and waiters keep their place.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::postgres::Server;
use crate::world::{World, until};

/// A separate server with a project, so that its failures do not affect other tests.
fn own_server() -> (Server, World) {
    let server = Server::start();
    let world = World::at(server.url("postgres")).initialized();
    (server, world)
}

fn end(server: &Server, signal: Signal) {
    kill_process(Pid::from_raw(server.pid).unwrap(), signal).unwrap();
    let pid = server.pid;
    until("the server is gone", || !crate::world::is_alive(pid));
}

#[test]
fn waiters_keep_their_place_when_every_connection_is_terminated() {
    let (server, world) = own_server();
    let epoch = world.data(&["locks", "acquire", "x", "--holder", "first", "--ttl", "1h"])["epoch"].to_string();
    let waiters = world.start_waiters("x", 3);
    server.terminate_connections();
    world.ok(&["locks", "release", "x", "--holder", "first", "--epoch", &epoch]);
    for (n, waiter) in waiters.into_iter().enumerate() {
        assert_eq!(waiter.end().code, 0);
        let grant = world.grant("x").unwrap();
        assert_eq!(grant.claim.holder.as_str(), format!("w{n}"), "in the order of arrival");
        world.ok(&["locks", "release", "x", "--holder", &format!("w{n}"), "--epoch", &grant.epoch.to_string()]);
    }
}

#[test]
fn holders_and_waiters_survive_a_restart() {
    for signal in [Signal::INT, Signal::KILL] {
        let (mut server, world) = own_server();
        let holder = world.start(&["locks", "run", "x", "--holder", "h", "--ttl", "2s", "--", "sleep", "3"]);
        world.until_held_by("x", "h");
        let waiter = world.start(&["locks", "acquire", "x", "--holder", "w", "--ttl", "1h"]);
        world.until_waiters("x", 1);
        end(&server, signal);
        server.restart();
        assert_eq!(holder.end().code, 0, "its heartbeats went on");
        assert_eq!(waiter.end().code, 0);
        assert_eq!(world.holder("x").unwrap().as_str(), "w");
        world.check();
    }
}

#[test]
fn calls_with_broken_connections_happen_once_or_not_at_all() {
    let (server, world) = own_server();
    let client = banksman::Project::find_in(world.path(), &server.url("postgres")).unwrap().open().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut succeeded = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                server.terminate_connections();
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        for n in 0..200 {
            // Each grant has a request id, so that the log proves whether it happened.
            let held = client.lock("x").request_id(format!("r{n}")).acquire_within(Duration::from_secs(30));
            if let Ok(held) = held {
                succeeded += 1;
                held.release().ok();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let granted: Vec<String> =
        world.events().iter().filter_map(|event| event.data["request"].as_str().map(str::to_owned)).collect();
    let distinct: std::collections::BTreeSet<&String> = granted.iter().collect();
    assert_eq!(granted.len(), distinct.len(), "no request was granted twice");
    assert!(granted.len() >= succeeded, "no success was lost: {} of {succeeded}", granted.len());
    assert!(succeeded > 100, "most get through: {succeeded}");
}

#[test]
fn an_unreachable_or_full_server_is_reported() {
    let (mut server, world) = own_server();
    end(&server, Signal::KILL);
    world.assert_refused(&["locks", "list"], 7, "STORE_UNREACHABLE");
    server.restart();
    server.sql("postgres", "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0");
    let full = server.url("postgres").replace("user=postgres", "user=crowd");
    let said = world.run(&["--store", &full, "locks", "list"]);
    assert_eq!((said.code, said.stderr.contains("too many connections")), (7, true), "{said:?}");
    assert_eq!(world.run(&["locks", "list"]).code, 0);
}

#[test]
fn missing_rights_and_a_newer_schema_are_reported() {
    let (server, world) = own_server();
    let world = world.unchecked();
    server.sql("postgres", "CREATE ROLE guest LOGIN");
    server.sql("postgres", "CREATE DATABASE other");
    server.sql("postgres", "REVOKE CREATE ON DATABASE other FROM PUBLIC");
    let guest = |database: &str| server.url(database).replace("user=postgres", "user=guest");
    let fresh = World::at(guest("other"));
    let said = fresh.run(&["init"]);
    assert_eq!((said.code, said.stderr.contains("permission denied")), (5, true), "{said:?}");
    assert!(!fresh.path().join(".banksman").exists(), "nothing is left half done");
    let said = world.run(&["--store", &guest("postgres"), "locks", "list"]);
    assert_eq!((said.code, said.stderr.contains("permission denied")), (5, true), "{said:?}");
    server.sql("postgres", "UPDATE banksman.store SET version = 99");
    for args in [&["locks", "list"][..], &["locks", "acquire", "x"], &["init"]] {
        let said = world.run(args);
        assert_eq!((said.code, said.stderr.contains("newer version")), (3, true), "{args:?}: {said:?}");
    }
}

/// Makes a certificate authority, and a certificate for this machine signed by it.
#[cfg(feature = "tls")]
fn certificates(dir: &std::path::Path) {
    let openssl = |args: &str| {
        let done = std::process::Command::new("openssl").current_dir(dir).args(args.split(' ')).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost").unwrap();
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj /CN=test-authority -days 2");
    openssl("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost");
    openssl("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names");
}

#[test]
fn processes_with_a_common_folder_wake_each_other_without_the_server() {
    let server = Server::start_with(|_| vec!["log_statement=all".into()]);
    let world = World::at(server.url("postgres")).initialized();
    let epoch = world.data(&["locks", "acquire", "x", "--holder", "first", "--ttl", "1h"])["epoch"].to_string();
    let waiter = world.start(&["locks", "acquire", "x", "--holder", "second", "--ttl", "1h"]);
    world.until_waiters("x", 1);
    world.ok(&["locks", "release", "x", "--holder", "first", "--epoch", &epoch]);
    assert_eq!(waiter.end().code, 0);
    let log = server.log();
    let notified: Vec<&str> = log.lines().filter(|line| line.contains("$1 = 'banksman_")).collect();
    assert!(notified.iter().all(|line| line.contains("'banksman_bell_")), "only followers are notified: {notified:#?}");
    assert!(log.contains("LISTEN \"banksman_"), "those on other machines could wake it too");
}

#[cfg(feature = "tls")]
#[test]
fn a_connection_by_network_is_encrypted_and_the_server_is_checked() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut authority = std::path::PathBuf::new();
    let server = Server::start_with(|dir| {
        certificates(dir);
        authority = dir.join("ca.crt");
        let file = |name: &str| dir.join(name).display().to_string();
        vec![
            "ssl=on".into(),
            format!("ssl_cert_file={}", file("server.crt")),
            format!("ssl_key_file={}", file("server.key")),
            "listen_addresses=127.0.0.1".into(),
            format!("port={port}"),
        ]
    });
    let world = World::at(format!("postgres://postgres@localhost:{port}/postgres?sslmode=require"));
    let said = world.run(&["init"]);
    assert_eq!((said.code, said.stderr.contains("certificate")), (7, true), "a stranger is not trusted: {said:?}");
    let trusting = |args: &[&str]| {
        let mut command = world.command(args);
        command.env("PGSSLROOTCERT", &authority);
        command
    };
    assert!(trusting(&["init"]).status().unwrap().success());
    assert!(trusting(&["locks", "run", "x", "--", "true"]).status().unwrap().success());
    let _follower = crate::world::Running(trusting(&["events", "--follow"]).stdout(std::process::Stdio::null()).spawn().unwrap());
    let encrypted = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE s.ssl AND a.application_name LIKE 'banksman%'";
    until("encrypted", || server.sql("postgres", encrypted).trim() != "0");
}

#[test]
fn several_projects_live_in_one_database() {
    let (server, world) = own_server();
    let other = World::at(server.url("postgres")).initialized();
    world.ok(&["locks", "acquire", "x", "--holder", "a"]);
    other.ok(&["locks", "acquire", "x", "--holder", "b"]);
    assert_eq!((world.holder("x").unwrap().as_str(), other.holder("x").unwrap().as_str()), ("a", "b"));
    let (code, _) = other.error(&["init"]);
    assert_eq!(code, 2, "it is there already");
    // A clone of the repository, as on another machine, is the same project.
    let clone = World::at(server.url("postgres"));
    std::fs::create_dir(clone.path().join(".banksman")).unwrap();
    std::fs::copy(world.path().join(".banksman/config.toml"), clone.path().join(".banksman/config.toml")).unwrap();
    assert_eq!(clone.holder("x").unwrap().as_str(), "a");
}

#[test]
fn a_writer_stopped_inside_a_transaction_is_named_and_terminated() {
    let (server, world) = own_server();
    // A session that takes the writer lock of the project and does nothing.
    let project: i64 = server.sql("postgres", "SELECT project FROM banksman.projects").trim().parse().unwrap();
    let key = (0x424b_534d_i64 << 32) | project;
    let script = format!("SELECT pg_advisory_lock({key}); SELECT pg_sleep(600)");
    let url = server.url("postgres");
    let mut holder = std::process::Command::new("psql")
        .arg(url.replace("user=", "application_name=sleeper&user="))
        .arg("-c")
        .arg(script)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("it has the writer lock", || world.project().occupant().is_some());
    let said = world.run(&["locks", "acquire", "x"]);
    assert_eq!(said.code, 7, "{said:?}");
    assert!(said.stderr.contains("(sleeper)") && said.stderr.contains("nothing was changed"), "{said:?}");
    server.terminate_connections();
    holder.wait().unwrap();
    assert_eq!(world.run(&["locks", "acquire", "x"]).code, 0);
}
