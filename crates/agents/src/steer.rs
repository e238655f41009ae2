//! The format of messages for the stdin of an agent program that reads messages while it works.

use serde_json::json;

/// A line of `--input-format stream-json`.
pub fn claude(text: &str) -> String {
    json!({ "type": "user", "message": { "role": "user", "content": [{ "type": "text", "text": text }] } }).to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_for_claude_is_one_line() {
        let line = super::claude("two\nlines");
        assert!(!line.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["type"], &value["message"]["content"][0]["text"]), (&"user".into(), &"two\nlines".into()));
    }
}
