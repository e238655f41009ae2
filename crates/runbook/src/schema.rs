//! A JSON Schema of the format, so that editors complete and check while typing.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::format::{Key, Kind, ROOT, Table};

/// Variables, and fields of the outputs of phases.
const REFERENCE: &str = "^[A-Za-z][A-Za-z0-9_]{0,63}(\\.[a-z][a-z0-9_]{0,63})?$";

/// Names of variables.
const VARIABLE: &str = "^[a-z][a-z0-9_]*$";

/// Names of things defined in a runbook.
const OWN: &str = "^[^:()/\"]+$";

/// Durations, as far as a pattern can check them.
const DURATION: &str = "^([0-9]+(ms|s|m|h|d))+$";

/// The schema, in the draft 2020-12. `runbooks check` may refuse what the schema accepts: it cannot express references,
/// cycles and variables.
pub fn schema() -> Value {
    let mut definitions = BTreeMap::new();
    let Value::Object(mut root) = table(&ROOT, &mut definitions) else { return Value::Null };
    root.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    root.insert("title".into(), "A runbook of Banksman".into());
    let definitions: Map<String, Value> = definitions.into_iter().collect();
    root.insert("$defs".into(), Value::Object(definitions));
    Value::Object(root)
}

type Definitions = BTreeMap<String, Value>;

fn table(table: &Table, definitions: &mut Definitions) -> Value {
    let properties: Map<String, Value> = table.keys.iter().map(|key| (key.name.into(), property(key, definitions))).collect();
    let mut schema = json!({
        "type": "object",
        "description": table.doc,
        "properties": properties,
        "additionalProperties": false,
    });
    let needed = |names: &[&str]| -> Vec<Value> { names.iter().map(|name| json!({ "required": [name] })).collect() };
    let required: Vec<&str> = table.keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if !table.one_of.is_empty() {
        schema["oneOf"] = needed(table.one_of).into();
    }
    if !table.some_of.is_empty() {
        schema["anyOf"] = needed(table.some_of).into();
    }
    let with: Map<String, Value> = table.keys.iter().filter_map(|key| Some((key.name.into(), json!([key.with?])))).collect();
    if !with.is_empty() {
        schema["dependentRequired"] = with.into();
    }
    if table.key("prompt").is_some() {
        schema["not"] = json!({ "required": ["prompt", "prompt_file"] });
    }
    schema
}

fn property(key: &Key, definitions: &mut Definitions) -> Value {
    let mut schema = kind(&key.kind, definitions);
    schema["description"] = key.doc.into();
    if let Some(default) = key.default {
        // Defaults are written as in TOML, which for these is JSON.
        schema["default"] = serde_json::from_str(default).unwrap_or_default();
    }
    schema
}

fn kind(of: &Kind, definitions: &mut Definitions) -> Value {
    match of {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Duration | Kind::DurationOrZero => json!({ "type": "string", "pattern": DURATION }),
        Kind::Prose | Kind::Plain | Kind::Path | Kind::Shell => json!({ "type": "string", "minLength": 1 }),
        Kind::Template | Kind::Regex | Kind::Event => json!({ "type": "string" }),
        Kind::Own(_) => json!({ "type": "string", "pattern": OWN, "maxLength": 200 }),
        Kind::Shared(_) => json!({ "type": "string", "minLength": 1, "maxLength": 200 }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::Variable => json!({ "type": "string", "pattern": VARIABLE }),
        Kind::Text | Kind::Inside => json!({ "anyOf": [{ "type": "string", "minLength": 1 }, variable_reference()] }),
        Kind::Vars => json!({ "anyOf": [
            { "type": "array", "items": { "anyOf": [{ "type": "string", "pattern": VARIABLE }, defaults()] } },
            defaults(),
        ] }),
        Kind::List(each) => json!({ "type": "array", "items": kind(each, definitions) }),
        Kind::OneOrMany(each) => {
            let each = kind(each, definitions);
            json!({ "anyOf": [each, { "type": "array", "items": each }] })
        }
        Kind::Short(short, full) => json!({ "anyOf": [kind(short, definitions), reference(full, definitions)] }),
        Kind::Table(full) => reference(full, definitions),
        Kind::Each(Kind::Own(_), each) => {
            json!({ "type": "object", "propertyNames": { "pattern": OWN }, "additionalProperties": reference(each, definitions) })
        }
        Kind::Each(_, each) => json!({ "type": "object", "additionalProperties": reference(each, definitions) }),
    }
}

fn defaults() -> Value {
    json!({ "type": "object", "propertyNames": { "pattern": VARIABLE } })
}

fn variable_reference() -> Value {
    json!({
        "type": "object",
        "properties": { "var": { "type": "string", "pattern": REFERENCE } },
        "required": ["var"],
        "additionalProperties": false,
    })
}

/// Defines a table once and refers to it: conditions contain conditions.
fn reference(full: &Table, definitions: &mut Definitions) -> Value {
    let name = definition(full);
    if !definitions.contains_key(&name) {
        // Reserves the name first, because a table may contain itself.
        definitions.insert(name.clone(), Value::Null);
        let schema = table(full, definitions);
        definitions.insert(name.clone(), schema);
    }
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// `[[pipeline.NAME.phase]]` is `pipeline-phase`, `on_fail = { … }` is `on_fail-value`. Two tables with one title get
/// different names by their keys.
fn definition(table: &Table) -> String {
    let words = table.title.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let words = words.filter(|word| !word.is_empty() && *word != "NAME" && *word != "PATTERN");
    let name = words.collect::<Vec<_>>().join("-");
    match table.title.starts_with('[') {
        true => name,
        false if name == "command" => format!("command-of-{}", table.keys.len()),
        false => format!("{name}-value"),
    }
}
