//! What every verb printed when it was recorded: the keys, which of them are null or empty, and every word such as a state or an
//! outcome. What differs from run to run counts only with its type.

use serde_json::Value;

/// These differ from machine to machine, or with the time that something took.
const VARYING: [&str; 4] = ["user", "host", "by", "data"];

/// A line for each command of a story.
pub(super) fn record(lines: &mut String, args: &[&str], data: &Value) {
    lines.push_str(&format!("{}\n  {}\n", args.join(" "), outline(data)));
}

fn outline(value: &Value) -> Value {
    let field = |(name, value): (&String, &Value)| {
        let value = match (name.as_str(), value) {
            // That of a store has only letters now and then.
            ("id", Value::String(_)) => "string".into(),
            // That of an event; the source of a setting is a word.
            ("source", Value::Object(_)) => "any".into(),
            (name, _) if VARYING.contains(&name) => "any".into(),
            _ => outline(value),
        };
        (name.clone(), value)
    };
    match value {
        Value::Number(_) => "number".into(),
        Value::String(text) if text.ends_with('Z') && text.contains('T') => "time".into(),
        Value::String(text) if !is_word(text) => "string".into(),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(outline).collect();
            items.dedup();
            items.into()
        }
        Value::Object(fields) => fields.iter().map(field).collect::<serde_json::Map<_, _>>().into(),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}
