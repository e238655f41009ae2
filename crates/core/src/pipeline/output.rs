//! The output of a phase for the later ones: the fields of its result that its plan names.

use serde_json::Map;

use super::*;
use crate::json;

/// The largest field that is kept, in bytes.
const FIELD_LIMIT: usize = 8 * 1_024;

impl Pipeline {
    /// Keeps the declared fields of the result of a phase, as one variable that is named after the phase. Fields that
    /// are too large are cut or left out, with a checkpoint about it: the work is done, so this is never a failure.
    pub(super) fn keep_output(&mut self, index: usize, output: Option<Value>, now: &Now, buffer: &mut EffectBuffer) {
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
            self.add_checkpoint(note.into(), now, buffer);
        }
    }
}

/// The part of a field that can be kept, and a note if it is not all of it.
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
