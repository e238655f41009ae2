//! What a phase leaves to those after it: the fields of its result that its plan names.

use serde_json::Map;

use super::*;
use crate::json;

/// How much of one field is kept, in bytes.
const FIELD_LIMIT: usize = 8 * 1_024;

impl Pipeline {
    /// Keeps the declared fields of the result of a phase, as one variable that is called like the phase. What is too much is cut or
    /// left out, and a checkpoint tells: the work is done, so this is never a failure.
    pub(super) fn take_in(&mut self, index: usize, output: Option<Value>, now: &Now, buffer: &mut EffectBuffer) {
        let Some(Value::Object(mut fields)) = output else { return };
        let (phase, declared) = (self.at(index).name.clone(), self.at(index).output.clone());
        let mut kept = Map::new();
        let mut notes = Vec::new();
        for name in declared {
            let Some(value) = fields.remove(&*name) else { continue };
            let (value, note) = fitted(&name, value);
            kept.extend(value.map(|value| (name.into(), value)));
            notes.extend(note);
        }
        if !kept.is_empty() {
            let vars = Context::from([(plan::output_var(&phase), Value::Object(kept))]);
            if let Err(error) = self.merge(vars, buffer) {
                notes.push(format!("the output of phase {phase} was left out: {error}"));
            }
        }
        for note in notes {
            self.say(note.into(), now, buffer);
        }
    }
}

/// A field that can be kept, and what is to be said about it.
fn fitted(name: &str, value: Value) -> (Option<Value>, Option<String>) {
    if let Err(error) = json::keepable(&value) {
        return (None, Some(format!("the output {name} was left out: {error}")));
    }
    match value {
        Value::String(text) if text.len() > FIELD_LIMIT => {
            let end = text.floor_char_boundary(FIELD_LIMIT);
            let note = format!("the output {name} was cut from {} to {end} bytes", text.len());
            (Some(Value::from(&text[..end])), Some(note))
        }
        Value::Array(_) | Value::Object(_) if value.to_string().len() > FIELD_LIMIT => {
            (None, Some(format!("the output {name} was left out: it has more than {FIELD_LIMIT} bytes")))
        }
        value => (Some(value), None),
    }
}
