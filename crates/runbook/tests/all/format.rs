//! There is one description of the format: its examples are runbooks, and the schema agrees with the check.

use banksman_runbook::{examples, parse, reference, schema};
use serde_json::Value;

fn no_files(_: &str) -> Result<String, String> {
    Err("there are no files here".into())
}

#[test]
fn every_example_of_the_reference_is_a_valid_runbook() {
    assert!(examples().len() >= 10);
    for example in examples() {
        if let Err(wrong) = parse("example", example, &no_files) {
            panic!("{wrong}\nin\n{example}");
        }
    }
}

#[test]
fn the_runbooks_of_the_guide_are_valid() {
    let guide = include_str!("../../../../docs/guides/runbooks.md");
    let shown: Vec<&str> = guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!shown.is_empty());
    for text in shown {
        parse("guide", text, &no_files).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[test]
fn every_block_is_in_the_reference_with_an_example() {
    let page = reference();
    for block in ["pipeline", "guard", "strategy", "agent", "lock", "semaphore", "queue", "worker"] {
        let section = page.split(&format!("\n## `[{block}.NAME]`")).nth(1).unwrap_or_else(|| panic!("[{block}.NAME]"));
        let section = section.split("\n## ").next().unwrap();
        assert!(section.contains("```toml") && section.contains("| key |"), "{block}");
    }
    assert!(page.contains("## `[on.\"PATTERN\"]`"));
}

#[test]
fn every_reference_of_the_schema_resolves() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let schema = schema();
    let mut found = Vec::new();
    references(&schema, &mut found);
    assert!(found.len() > 10);
    for reference in found {
        let target = schema.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null);
        assert!(target["properties"].is_object(), "{reference}");
    }
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["$defs"]["pipeline-phase"]["required"], serde_json::json!(["name"]));
    assert_eq!(schema["$defs"]["pipeline-phase"]["properties"]["retries"]["default"], 0);
}
