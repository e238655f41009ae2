//! Runbooks: TOML text becomes typed definitions, or diagnostics with their places. This crate reads no files.
//!
//! * [`parse`]: the entry point. It checks each value by itself (`shape.rs`), then their meaning together (`build.rs`);
//! * `format.rs`: the format of a runbook. The check, [`schema()`] and [`reference()`] are derived from it;
//! * [`template`]: texts with variables.

mod build;
mod diagnostic;
mod format;
mod reference;
mod runbook;
mod schema;
mod shape;
pub mod template;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use diagnostic::Sink;
pub use diagnostic::{Code, DIAGNOSTIC_LIMIT, Diagnostic, Diagnostics};
pub use reference::{examples, reference};
pub use runbook::{LockTerms, PipelineDef, QueueTerms, Runbook, SemaphoreTerms};
pub use schema::schema;
pub use template::{TemplateError, check_template, render};

/// The largest runbook, in bytes.
pub const RUNBOOK_LIMIT: usize = 1_024 * 1_024;

/// The variables that every phase has, besides those of its pipeline.
pub const PHASE_VARS: [&str; 4] = ["pipeline", "phase", "attempt", "reason"];

/// The variables that a template of a worker has.
pub const WORKER_VARS: [&str; 2] = ["item", "attempt"];

/// Returns the text of a file that a runbook names, relative to its folder, or why it cannot be read.
pub type Files<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Parses a runbook, or finds all its errors.
pub fn parse(name: &str, text: &str, files: Files<'_>) -> Result<Runbook, Diagnostics> {
    if text.len() > RUNBOOK_LIMIT {
        return Err(too_large(name, text.len() as u64));
    }
    let mut sink = Sink::new(text);
    shape::check_name(&mut sink, name);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        sink.add(Code::Syntax, error.span().unwrap_or(0..0), error.message());
    }
    shape::check(&mut sink, table.get_ref(), 0..0, &format::ROOT);
    let span = table.span();
    let root = Spanned::new(span, DeValue::Table(table.into_inner()));
    let runbook = build::build(&mut sink, name, &root, files);
    if sink.is_empty() { Ok(runbook) } else { Err(sink.finish(name)) }
}

/// The same for bytes that may not be UTF-8.
pub fn parse_bytes(name: &str, bytes: &[u8], files: Files<'_>) -> Result<Runbook, Diagnostics> {
    match str::from_utf8(bytes) {
        Ok(text) => parse(name, text, files),
        Err(error) => {
            let text = String::from_utf8_lossy(bytes);
            let mut sink = Sink::new(&text);
            sink.add(Code::Syntax, error.valid_up_to()..error.valid_up_to(), "the text is not UTF-8");
            Err(sink.finish(name))
        }
    }
}

/// The diagnostics of a runbook that was not read because it has so many bytes.
pub fn too_large(name: &str, bytes: u64) -> Diagnostics {
    let mut sink = Sink::new("");
    let message = format!("a runbook may have at most {RUNBOOK_LIMIT} bytes, this one has {bytes}");
    sink.hint(Code::TooLarge, 0..0, message, "split it into several");
    sink.finish(name)
}
