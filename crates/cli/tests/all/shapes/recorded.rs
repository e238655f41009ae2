//! The recorded output of every verb: the keys, which of them are null or empty, and every word such as a state or an outcome. Of values
//! that differ from run to run, only the type is recorded.

use serde_json::Value;

/// Fields that differ from machine to machine, or with the duration of an operation.
const VARYING: [&str; 4] = ["user", "host", "by", "data"];

/// Appends the outline of the output of one command.
pub(super) fn record(lines: &mut String, args: &[&str], data: &Value) {
    lines.push_str(&format!("{}\n  {}\n", args.join(" "), outline(data)));
}

fn outline(value: &Value) -> Value {
    let field = |(name, value): (&String, &Value)| {
        let value = match (name.as_str(), value) {
            // The id of a store is sometimes made of letters only.
            ("id", Value::String(_)) => "string".into(),
            // The source of an event is an object; that of a setting is a word.
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
