//! Streams of the real programs, and their verdicts.

use banksman_core::agent::{AgentEnd, AgentVerdict, Limit};
use banksman_core::{Name, Span, Wall};

use super::Family;
use crate::judge::{self, Exit, StopReason};
use crate::report::{Reader, Report};
use crate::resets::Reset;

macro_rules! stream {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/streams/", $name, ".jsonl"))
    };
}

fn read(family: Family, stream: &[u8]) -> Report {
    // The size of the chunks must not matter.
    let reports: Vec<Report> = [1, 7, 100_000]
        .map(|size| {
            let mut reader = Reader::new(family);
            for chunk in stream.chunks(size) {
                reader.output(chunk, 5);
            }
            reader.finish(5)
        })
        .into();
    assert!(reports.iter().all(|report| *report == reports[0]));
    reports.into_iter().next().unwrap()
}

fn judge(family: Family, report: &Report, exit: Exit, stop: Option<StopReason>) -> AgentEnd {
    judge::judge(&Name::new("a").unwrap(), family, report, exit, stop)
}

fn verdict(family: Family, stream: &[u8], code: i32) -> AgentVerdict {
    judge(family, &read(family, stream), Exit { code: Some(code), signal: None }, None).verdict
}

fn retried(family: Family, stream: &[u8]) -> AgentVerdict {
    judge(family, &read(family, stream), Exit { code: None, signal: Some(15) }, Some(StopReason::Retrying)).verdict
}

#[test]
fn a_claude_stream_fills_the_report() {
    let report = read(Family::Claude, stream!("claude-over"));
    assert_eq!(report.session.as_deref(), Some("b357f250-2f04-4efc-ae35-fd7bab609912"));
    assert_eq!(report.model.as_deref(), Some("claude-sonnet-5"));
    assert_eq!((report.turns, report.usage.input, report.usage.output, report.cost_micros), (Some(2), 200, 40, Some(1_200)));
    assert_eq!((report.retry.is_none(), report.is_calling()), (true, false), "the model has answered since");
    assert_eq!(report.activity.as_deref(), Some("All steps are done."));
}

#[test]
fn real_streams_have_the_right_verdicts() {
    use AgentVerdict::{Auth, Failed, Ok, Refused};
    let limit = Limit { kind: "five_hour".into(), model: None, resets: Some(Wall(1_794_978_306_000)) };
    assert_eq!(verdict(Family::Claude, stream!("claude-ok"), 0), Ok);
    assert_eq!(verdict(Family::Claude, stream!("claude-limit"), 1), AgentVerdict::Quota(limit));
    assert_eq!(verdict(Family::Claude, stream!("claude-auth"), 1), Auth, "although its subtype is success");
    assert_eq!(verdict(Family::Claude, stream!("claude-denied"), 0), Refused);
    assert_eq!(verdict(Family::Claude, stream!("claude-turns"), 1), Failed);
    assert_eq!(verdict(Family::Codex, stream!("codex-ok"), 0), Ok, "an error item is no error of the run");
    assert_eq!(verdict(Family::Codex, stream!("codex-auth"), 1), Auth);
    assert_eq!(verdict(Family::Codex, stream!("codex-over"), 0), Ok);
    assert_eq!(retried(Family::Codex, stream!("codex-limit")), AgentVerdict::Quota(Limit::unnamed()));
    assert_eq!(verdict(Family::Gemini, stream!("gemini-ok"), 0), Ok);
    assert_eq!(verdict(Family::Gemini, stream!("gemini-auth"), 145), Auth);
    assert_eq!(verdict(Family::Gemini, stream!("gemini-over"), 0), Ok);
    assert_eq!(verdict(Family::Opencode, stream!("opencode-ok"), 0), Ok);
    assert_eq!(verdict(Family::Opencode, stream!("opencode-auth"), 1), Auth);
    assert_eq!(verdict(Family::Opencode, stream!("opencode-over"), 0), Ok);
    assert_eq!(verdict(Family::Opencode, stream!("opencode-limit"), 0), Refused, "its last step asked for a tool");
}

#[test]
fn reset_times_are_parsed_from_real_streams() {
    let reset = |family, stream: &[u8]| read(family, stream).reset;
    let day = Some(crate::resets::Day { year: 2026, month: 11, day: 21 });
    assert_eq!(reset(Family::Codex, stream!("codex-usage")), Some(Reset::At { day, hour: 9, minute: 36 }));
    let usage = |model: Option<&str>| Limit { kind: "usage".into(), model: model.map(Into::into), resets: None };
    assert_eq!(verdict(Family::Codex, stream!("codex-usage"), 1), AgentVerdict::Quota(usage(None)));
    let of_model = br#"{"type":"error","message":"You have hit your usage limit for gpt-5.3-x. Switch to another model now, or try again at 2:15 AM."}"#;
    assert_eq!(read(Family::Codex, of_model).limit, Some(usage(Some("gpt-5.3-x"))));
    assert_eq!(reset(Family::Gemini, stream!("gemini-quota")), Some(Reset::After(Span::from_ms(4_000_500))));
    assert_eq!(verdict(Family::Gemini, stream!("gemini-quota"), 173), AgentVerdict::Quota(Limit::unnamed()));
    assert_eq!(reset(Family::Opencode, stream!("opencode-quota")), Some(Reset::After(Span::from_secs(3))));
    assert_eq!(verdict(Family::Opencode, stream!("opencode-quota"), 1), AgentVerdict::Quota(Limit::unnamed()));
}

#[test]
fn a_result_counts_only_before_the_request_to_end() {
    let stream = stream!("claude-ok");
    let exit = Exit { code: Some(0), signal: None };
    let mut reader = Reader::new(Family::Claude);
    reader.output(stream, 0);
    reader.close();
    assert_eq!(judge(Family::Claude, reader.report(), exit, Some(StopReason::AfterResult)).verdict, AgentVerdict::Ok);
    let mut reader = Reader::new(Family::Claude);
    reader.close();
    reader.output(stream, 0);
    assert_eq!(judge(Family::Claude, reader.report(), exit, Some(StopReason::Asked)).verdict, AgentVerdict::Hung);
}

#[test]
fn garbage_changes_nothing() {
    for family in [Family::Claude, Family::Codex, Family::Gemini, Family::Opencode] {
        let mut reader = Reader::new(family);
        let lines: [&[u8]; 8] = [
            b"plain text",
            b"{\"type\":5}",
            b"{}",
            b"{\"type\":\"result\",\"is_error\":\"maybe\",\"result\":{\"a\":1},\"usage\":[1]",
            b"{\"type\":\"assistant\",\"message\":[]}",
            b"\xff\xfe{\"type\":\"result\"}",
            b"[{\"type\":\"result\"}]",
            b"{\"type\":\"from.the.future\",\"x\":{\"y\":[1,2,3]}}",
        ];
        for line in lines {
            reader.output(line, 0);
            reader.output(b"\n", 0);
        }
        let exit = Exit { code: Some(0), signal: None };
        let end = judge(family, reader.report(), exit, None);
        assert_eq!(end.verdict, AgentVerdict::NoResult, "{family:?}");
    }
}

#[test]
fn a_program_without_a_format_is_judged_by_its_exit_status() {
    assert_eq!(verdict(Family::Text, b"{\"type\":\"result\"}\n", 0), AgentVerdict::Ok);
    assert_eq!(verdict(Family::Text, b"fine\n", 3), AgentVerdict::Failed);
}

#[test]
fn gemini_reports_retries_on_standard_error() {
    let mut reader = Reader::new(Family::Gemini);
    reader.errors(b"Attempt 1 failed with status 429. Retrying with backoff... _ApiError: {}\n    at x\n", 9);
    let retry = reader.report().retry.clone().unwrap();
    assert_eq!((retry.trouble, retry.since_ms), (crate::Trouble::Quota, 9));
    let mut reader = Reader::new(Family::Gemini);
    let said = "Attempt 1 failed: You exceeded your current quota. Please retry in 3.5s.\nSuggested retry after 3s.. Retrying after 5367ms...\n";
    reader.errors(said.as_bytes(), 9);
    let retry = reader.report().retry.clone().unwrap();
    assert_eq!((retry.trouble, retry.count), (crate::Trouble::Quota, 1));
}

#[test]
fn an_unexpected_field_does_not_affect_the_rest_of_its_line() {
    for item in
        ["null", "true", "-1", "1", "0.5", r#""a text""#, r#"["a", {"b": 1}]"#, r#"{"type": [1], "id": {"a": "b"}, "new": null}"#]
    {
        let lines = format!(
            "{{\"item\":{item},\"type\":\"thread.started\",\"thread_id\":\"s-1\"}}\n{{\"type\":\"item.completed\",\"item\":{item}}}\n\
             {{\"type\":\"turn.completed\",\"item\":{item},\"usage\":{{\"input_tokens\":7,\"output_tokens\":1}}}}\n"
        );
        let report = read(Family::Codex, lines.as_bytes());
        assert_eq!((report.session.as_deref(), report.usage.input), (Some("s-1"), 7), "{item}");
        assert_eq!(verdict(Family::Codex, lines.as_bytes(), 0), AgentVerdict::Ok, "{item}");
    }
}
