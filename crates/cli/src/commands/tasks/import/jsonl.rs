//! JSON lines: one object per line.

use serde_json::Value;

use super::problem::{Problem, Problems};
use super::record::{Raw, Record};
use super::source::Parsed;

pub(super) fn parse(text: &str, problems: &mut Problems) -> Parsed {
    let mut parsed = Parsed::default();
    for (line, text) in super::source::lines(text).filter(|(_, text)| !text.trim().is_empty()) {
        if problems.is_full() || !parsed.has_room(line, problems) {
            break;
        }
        match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(fields)) => {
                let mut record = Record { line, ..Record::default() };
                for (field, value) in &fields {
                    record.set(field, Raw::Json(value)).unwrap_or_else(|problem| problems.push(problem));
                }
                parsed.records.push(record);
            }
            Ok(_) => problems.push(not_an_object(line)),
            Err(_) if text.trim_start().starts_with('[') => {
                problems.push(not_an_object(line));
                // Every further line of a list over several lines would be reported as a mistake.
                break;
            }
            Err(error) => {
                let what = error.to_string();
                let what = what.split(" at line ").next().unwrap_or_default();
                let problem = Problem::new(line, format!("invalid JSON: {what}"));
                problems.push(problem.column(error.column()).hint("each line is one object: {\"title\": \"…\"}"));
            }
        }
    }
    parsed
}

fn not_an_object(line: usize) -> Problem {
    Problem::new(line, "not a JSON object").hint("each line is one object; to convert a list: jq -c '.[]'")
}

#[cfg(test)]
mod tests {
    use banksman_core::Span;
    use banksman_core::task::WorkspaceSpec;

    use super::*;

    fn parsed(text: &str) -> (Vec<Record>, Vec<String>) {
        let mut problems = Problems::default();
        let parsed = parse(text, &mut problems);
        (parsed.records, problems.messages())
    }

    #[test]
    fn every_field_is_read() {
        let text = concat!(
            "{\"title\": \"First\"}\r\n\n",
            r#"{"key":"b","title":"B","run":"make b","section":"s","labels":["x","y"],"priority":-2,"retries":3,"#,
            r#""loop":true,"maxAttempts":7,"maxDuration":"1h30m","silenceTimeout":"90s","workspace":"dir","locks":["l"],"semaphores":"gpu=2","dependsOn":["First"],"allowFailed":true}"#
        );
        let (records, problems) = parsed(text);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(records[0], Record { line: 1, title: "First".into(), ..Record::default() });
        let second = Record {
            line: 3,
            key: Some("b".into()),
            title: "B".into(),
            run: Some("make b".into()),
            section: Some("s".into()),
            labels: vec!["x".into(), "y".into()],
            priority: -2,
            retries: 3,
            looped: true,
            max_attempts: std::num::NonZeroU32::new(7),
            max_duration: Some(Span::from_secs(5_400)),
            silence_timeout: Some(Span::from_secs(90)),
            workspace: WorkspaceSpec::Dir,
            locks: vec!["l".into()],
            semaphores: vec!["gpu=2".into()],
            depends_on: vec!["First".into()],
            allow_failed: true,
            inner: Vec::new(),
        };
        assert_eq!(records[1], second);
    }

    #[test]
    fn every_mistake_has_its_line() {
        let text = "{\"title\":\"a\"}\n{\"title\":}\n7\n{\"titel\":\"c\"}\n{\"title\":\"d\",\"priority\":\"high\",\"retries\":-1}\n{\"labels\":[1]}";
        let wanted = [
            "2:10: invalid JSON: expected value",
            "3: not a JSON object",
            "4: unknown field \"titel\"",
            "5: priority: must be a whole number, not \"high\"",
            "5: retries: must be a whole number of at least 0, not -1",
            "6: labels: must be a string, not a number",
        ];
        assert_eq!(parsed(text).1, wanted);
        assert_eq!(parsed("[\n{},\n{}\n]").1, ["1: not a JSON object"]);
    }
}
