//! The schema for editors agrees with the check: it accepts right runbooks, and refuses runbooks with a wrong shape.

use std::fs;
use std::path::Path;

use banksman_core::pattern;
use banksman_runbook::{examples, schema};
use serde_json::{Map, Value};

/// Whether a value satisfies a schema. Supports the rules that our schema uses.
fn is_valid(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(rules) = schema else { return schema != &Value::Bool(false) };
    rules.iter().all(|(rule, says)| follows(root, rules, rule, says, value))
}

fn follows(root: &Value, rules: &Map<String, Value>, rule: &str, says: &Value, value: &Value) -> bool {
    let valid = |schema: &Value| is_valid(root, schema, value);
    let all = |says: &Value| says.as_array().unwrap().clone();
    match rule {
        "$ref" => valid(root.pointer(says.as_str().unwrap().trim_start_matches('#')).unwrap()),
        "type" => match says.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64(),
            other => panic!("{other}"),
        },
        "anyOf" => all(says).iter().any(valid),
        "oneOf" => all(says).iter().filter(|schema| valid(schema)).count() == 1,
        "not" => !valid(says),
        "enum" => all(says).contains(value),
        "required" => value.as_object().is_none_or(|map| all(says).iter().all(|key| map.contains_key(key.as_str().unwrap()))),
        "dependentRequired" => value.as_object().is_none_or(|map| {
            let needs = |(key, others): (&String, &Value)| {
                !map.contains_key(key) || all(others).iter().all(|other| map.contains_key(other.as_str().unwrap()))
            };
            says.as_object().unwrap().iter().all(needs)
        }),
        "properties" => value.as_object().is_none_or(|map| {
            let fits = |(key, schema): (&String, &Value)| map.get(key).is_none_or(|value| is_valid(root, schema, value));
            says.as_object().unwrap().iter().all(fits)
        }),
        "additionalProperties" => value.as_object().is_none_or(|map| {
            let known = rules.get("properties").and_then(Value::as_object);
            let others = map.iter().filter(|(key, _)| known.is_none_or(|known| !known.contains_key(*key)));
            others.into_iter().all(|(_, value)| is_valid(root, says, value))
        }),
        "propertyNames" => {
            value.as_object().is_none_or(|map| map.keys().all(|key| is_valid(root, says, &Value::String(key.clone()))))
        }
        "items" => value.as_array().is_none_or(|list| list.iter().all(|value| is_valid(root, says, value))),
        "pattern" => value.as_str().is_none_or(|text| pattern::compile(says.as_str().unwrap()).unwrap().is_match(text)),
        "minLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 >= says.as_u64().unwrap()),
        "maxLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 <= says.as_u64().unwrap()),
        "minimum" => value.as_i64().is_none_or(|number| number >= says.as_i64().unwrap()),
        "maximum" => value.as_i64().is_none_or(|number| number <= says.as_i64().unwrap()),
        "description" | "default" | "title" | "$schema" | "$defs" => true,
        other => panic!("the schema has a rule that this test does not know: {other}"),
    }
}

/// A file as an editor sees it; `None` if it is not valid TOML.
fn read(text: &str) -> Option<Value> {
    fn json(value: &toml::de::DeValue<'_>) -> Value {
        use toml::de::DeValue::{Array, Boolean, Datetime, Float, Integer, String, Table};
        match value {
            String(text) => Value::String(text.to_string()),
            Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::from(1e30), Value::from),
            Float(_) => Value::from(1.5),
            Boolean(flag) => Value::Bool(*flag),
            Datetime(date) => Value::String(date.to_string()),
            Array(list) => list.iter().map(|value| json(value.get_ref())).collect(),
            Table(table) => table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref()))).collect(),
        }
    }
    toml::de::DeTable::parse(text).ok().map(|table| json(&toml::de::DeValue::Table(table.into_inner())))
}

fn folder(name: &str) -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn the_schema_accepts_right_runbooks() {
    let schema = schema();
    let shown = examples().into_iter().map(|example| ("an example".to_owned(), example.to_owned()));
    for (name, text) in folder("tests/right").into_iter().chain(folder("../../docs/runbooks")).chain(shown) {
        let text = text.trim_start_matches('\u{feff}');
        assert!(is_valid(&schema, &schema, &read(text).unwrap()), "{name}\n{text}");
    }
}

#[test]
fn the_schema_refuses_wrong_shapes() {
    let schema = schema();
    let shape = ["unknown-key", "wrong-type", "missing-key", "bad-word"];
    let mut count = 0;
    for (name, text) in folder("tests/wrong") {
        let codes: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# expect: ")?.split(' ').next()).collect();
        let Some(value) = read(&text).filter(|_| codes.iter().any(|code| shape.contains(code))) else { continue };
        // The schema cannot express which numbers JSON lacks, and that an agent needs a prompt.
        let beyond = ["variables-that-no-json-has", "prompt-missing"];
        if !beyond.iter().any(|file| name.contains(file)) {
            assert!(!is_valid(&schema, &schema, &value), "{name}\n{text}");
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}
