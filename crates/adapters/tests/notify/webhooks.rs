use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use banksman_adapters::digest;
use banksman_adapters::notify::{Channel, Channels, Delivery, NotifyError, Secret, SecretError, Webhook, send};
use banksman_core::NoticeKind;
use serde_json::Value;

use crate::server::Server;
use crate::{nasty, none};

fn secret_file(dir: &Path, text: &str, mode: u32) -> std::path::PathBuf {
    let path = dir.join("secret");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn to(dir: &tempfile::TempDir, url: &str, secret: Option<Secret>) -> Channels {
    Channels { webhook: Some(Webhook::new(url, secret).unwrap()), ..none(dir) }
}

fn attempt(channels: &Channels) -> Result<(), NotifyError> {
    let mut done = send(channels, &nasty(NoticeKind::Escalate), "d-17");
    let (channel, result) = done.pop().unwrap();
    assert_eq!((channel, done.len()), (Channel::Webhook, 0));
    result
}

#[test]
fn a_notice_is_signed_and_repeated_with_the_same_delivery_id() {
    let dir = tempfile::tempdir().unwrap();
    let secret = Secret::read(&secret_file(dir.path(), "s3cret\n", 0o600)).unwrap();
    let server = Server::start(&["500 Oh", "429 Slow", "204 Fine"]);
    let channels = to(&dir, &server.url, Some(secret));
    for status in ["500", "429"] {
        let error = attempt(&channels).unwrap_err();
        assert_eq!(error.delivery(), Delivery::Again, "{error}");
        assert!(error.to_string().ends_with(status) && !error.to_string().contains("hidden"), "{error}");
    }
    attempt(&channels).unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert_eq!(request.first, "POST /hook?token=hidden HTTP/1.1");
        let header = |name: &str| request.headers[name].as_str();
        assert_eq!(header("x-banksman-signature"), format!("sha256={}", digest::hmac_sha256(b"s3cret", &request.body)));
        assert_eq!((header("x-banksman-delivery"), header("content-type")), ("d-17", "application/json"));
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let notice = nasty(NoticeKind::Escalate);
        assert_eq!((&body["kind"], &body["subject"]), (&"escalate".into(), &notice.subject.into()));
        assert_eq!((&body["text"], &body["data"]["task"]), (&notice.text.into(), &"t-1".into()));
    }
    let debug = format!("{channels:?}");
    assert!(!debug.contains("s3cret") && !debug.contains("hidden"), "{debug}");
}

#[test]
fn without_a_secret_there_is_no_signature() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&["200 Fine"]);
    attempt(&to(&dir, &server.url, None)).unwrap();
    assert!(!server.requests()[0].headers.contains_key("x-banksman-signature"));
}

#[test]
fn a_notice_that_the_server_refuses_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    for answer in ["404 Gone", "401 Who"] {
        let server = Server::start(&[answer]);
        let error = attempt(&to(&dir, &server.url, None)).unwrap_err();
        assert_eq!((error.delivery(), server.requests().len()), (Delivery::Final, 1), "{error}");
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    for status in [302, 307] {
        let answer = format!("{status} There\r\nLocation: http://{}/", elsewhere.local_addr().unwrap());
        let server = Server::start(&[&answer]);
        let error = attempt(&to(&dir, &server.url, None)).unwrap_err();
        assert_eq!(error.delivery(), Delivery::Final, "{error}");
        server.requests();
        assert!(elsewhere.accept().is_err(), "no request arrived");
    }
}

#[test]
fn no_answer_after_the_request_means_unknown_delivery() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&[""]);
    let channels = Channels { limit: Duration::from_millis(400), ..to(&dir, &server.url, None) };
    let start = Instant::now();
    let error = attempt(&channels).unwrap_err();
    assert_eq!(error.delivery(), Delivery::Unknown, "{error}");
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn an_unreachable_server_may_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = attempt(&to(&dir, &format!("http://127.0.0.1:{port}/"), None)).unwrap_err();
    assert_eq!(error.delivery(), Delivery::Again, "{error}");
    // A label of a name has at most 63 letters, so this one is refused without a query.
    let error = attempt(&to(&dir, &format!("http://{}.invalid/", "x".repeat(64)), None)).unwrap_err();
    assert_eq!(error.delivery(), Delivery::Again, "{error}");
}

#[test]
fn a_secret_that_others_can_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for mode in [0o640, 0o604, 0o666] {
        let error = Secret::read(&secret_file(dir.path(), "s3cret", mode)).unwrap_err();
        assert!(matches!(error, SecretError::Open { .. }) && !error.to_string().contains("s3cret"), "{error}");
    }
    for text in ["", "\n", &"x".repeat(5_000)] {
        assert!(matches!(Secret::read(&secret_file(dir.path(), text, 0o600)), Err(SecretError::Length { .. })));
    }
    assert!(matches!(Secret::read(dir.path()), Err(SecretError::NoFile { .. })));
    assert!(matches!(Secret::read(&dir.path().join("none")), Err(SecretError::Read { .. })));
}

#[test]
fn an_invalid_url_is_refused_without_repeating_it() {
    for url in ["ftp://host/hidden", "hidden", "https://", "http://a b/hidden", ""] {
        let what = Webhook::new(url, None).unwrap_err();
        assert!(!what.contains("hidden"), "{what}");
    }
    assert_eq!(Webhook::new("https://me:pass@hooks.example:8443/x", None).unwrap().host(), "hooks.example:8443");
}
