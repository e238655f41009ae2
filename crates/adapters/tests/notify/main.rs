//! Notices through real programs and a real server on the loopback interface.

#![expect(clippy::unwrap_used, reason = "a test that fails shall say so at once")]

mod programs;
mod server;
mod webhooks;

use banksman_adapters::notify::{Channels, Notice};
use banksman_core::NoticeKind;
use serde_json::json;

/// A notice with characters that are special to a shell, to markup and to HTTP.
fn nasty(kind: NoticeKind) -> Notice {
    Notice {
        kind,
        subject: "--help \"it's\" $(touch x) `touch x`\nnext; touch x".into(),
        text: "<b>50 & more</b> $(touch x)\r\n\0end".into(),
        project: "/srv/$(touch x)".into(),
        data: json!({ "task": "t-1" }),
    }
}

fn none(dir: &tempfile::TempDir) -> Channels {
    Channels::none(dir.path().into())
}
