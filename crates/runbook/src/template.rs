//! Templates: `{{ name }}` in a prompt or in an element of an argv.
//!
//! A template can name variables and parts of them, choose with `{% if %}`, repeat with `{% for %}`, and use a few
//! filters. It cannot create values that are larger than its input: everything that joins, repeats or stores values is
//! refused before rendering. So every template ends soon and needs little memory.

mod language;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use banksman_core::pipeline::plan::Context;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use thiserror::Error as ThisError;

/// The longest template, in bytes.
pub const TEMPLATE_LIMIT: usize = 256 * 1_024;

/// The longest rendered text, in bytes.
pub const OUTPUT_LIMIT: usize = 1_024 * 1_024;

/// Maximum number of steps of a template.
const FUEL: u64 = 100_000;

/// Maximum number of bytes that the filters of a template produce together.
const FILTER_LIMIT: usize = 8 * 1_024 * 1_024;

/// The supported filters.
pub const FILTERS: [&str; 8] = ["default", "first", "join", "json", "last", "length", "lower", "upper"];

/// An error of a template, when it is checked or rendered.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("{message}")]
pub struct TemplateError {
    pub message: Box<str>,
    /// The place in bytes of the template, if it is known.
    pub at: Option<Range<usize>>,
    /// What to write instead.
    pub hint: Option<Box<str>>,
    /// The unknown variable, if that is the error.
    pub variable: Option<Box<str>>,
}

impl TemplateError {
    fn new(message: impl Into<Box<str>>) -> TemplateError {
        TemplateError { message: message.into(), at: None, hint: None, variable: None }
    }

    /// The line of the template, counted from 1, if that is known.
    pub fn line(&self, template: &str) -> Option<usize> {
        let before = template.get(..self.at.as_ref()?.start)?;
        Some(before.matches('\n').count() + 1)
    }

    fn at(mut self, at: Range<usize>) -> TemplateError {
        self.at = Some(at);
        self
    }

    fn hint(mut self, hint: impl Into<Box<str>>) -> TemplateError {
        self.hint = Some(hint.into());
        self
    }
}

/// Renders a template with these variables.
pub fn render(template: &str, context: &Context) -> Result<String, TemplateError> {
    // Most elements of an argv are plain words.
    if !template.contains("{{") && !template.contains("{%") && !template.contains("{#") {
        return Ok(template.to_owned());
    }
    let known: BTreeSet<&str> = context.keys().map(|name| &**name).collect();
    check_template(template, &known).map_err(|mut wrong| wrong.swap_remove(0))?;
    let environment = environment();
    let mut text = Bounded(Vec::new());
    let made = environment
        .template_from_str(template)
        .and_then(|template| template.render_captured_to(Value::from(Serde(context)), &mut text).map(drop));
    made.map_err(|error| failed(&error, template))?;
    String::from_utf8(text.0).map_err(|_| TemplateError::new("the text is not UTF-8"))
}

/// All errors of a template that may use these variables. An `Err` has at least one.
pub fn check_template(template: &str, vars: &BTreeSet<&str>) -> Result<(), Vec<TemplateError>> {
    let wrong = language::check(template, vars);
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn failed(error: &Error, template: &str) -> TemplateError {
    let expression = error.range().and_then(|range| expression_at(template, range)).map(|text| format!("`{text}` is "));
    let wrong = match error.kind() {
        ErrorKind::OutOfFuel => TemplateError::new(format!("the template takes more than {FUEL} steps")),
        ErrorKind::WriteFailure => {
            TemplateError::new(format!("the template becomes longer than {OUTPUT_LIMIT} bytes")).hint("let it say less")
        }
        ErrorKind::UndefinedError => {
            TemplateError::new(format!("{}a part of a variable that it does not have", expression.unwrap_or_default()))
        }
        _ => TemplateError::new(error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned)),
    };
    error.range().map_or(wrong.clone(), |range| wrong.at(range))
}

/// The expression at this place, with the variable before it: the place covers only its last part or filter.
fn expression_at(template: &str, at: Range<usize>) -> Option<&str> {
    let (before, part) = (template.get(..at.start)?, template.get(at.clone())?);
    let is_name = |letter: char| letter.is_alphanumeric() || "_.[]'\"|".contains(letter);
    let from =
        if part.starts_with(['.', '[']) || before.ends_with('|') { before.trim_end_matches(is_name).len() } else { at.start };
    template.get(from..at.end).map(str::trim)
}

/// A buffer that takes no more bytes than the limit.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > OUTPUT_LIMIT {
            return Err(io::Error::other("too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_syntax(language::syntax());
    environment.set_formatter(print);
    add_filters(&mut environment);
    environment
}

/// Prints a value as a command sees it: a text without quotes, everything else as JSON.
fn print(out: &mut Output, _state: &mut State, value: &Value) -> Result<(), Error> {
    match defined(value)?.as_str() {
        Some(text) => out.write_str(text).map_err(Error::from),
        None => out.write_str(&json(value)?).map_err(Error::from),
    }
}

/// A defined value: an undefined one is an error in a filter too.
fn defined(value: &Value) -> Result<&Value, Error> {
    if value.is_undefined() { Err(ErrorKind::UndefinedError.into()) } else { Ok(value) }
}

fn json(value: &Value) -> Result<String, Error> {
    serde_json::to_string(defined(value)?).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

fn plain(value: &Value) -> Result<String, Error> {
    value.as_str().map_or_else(|| json(value), |text| Ok(text.to_owned()))
}

/// The filters. Their total output is limited, or a filter in a loop would be slow.
fn add_filters(environment: &mut Environment<'static>) {
    let made = Arc::new(AtomicUsize::new(0));
    let meter = |change: fn(&Value) -> Result<String, Error>| {
        let made = made.clone();
        move |value: &Value| change(value).and_then(|text| counted(&made, text))
    };
    environment.add_filter("upper", meter(|value| Ok(plain(value)?.to_uppercase())));
    environment.add_filter("lower", meter(|value| Ok(plain(value)?.to_lowercase())));
    environment.add_filter("json", meter(json));
    environment.add_filter("length", length);
    environment
        .add_filter("first", |value: &Value| defined(value)?.try_iter().map(|mut all| all.next().unwrap_or(Value::UNDEFINED)));
    environment.add_filter("last", |value: &Value| defined(value)?.try_iter().map(|all| all.last().unwrap_or(Value::UNDEFINED)));
    environment.add_filter("default", |value: &Value, other: &Value| if value.is_true() { value.clone() } else { other.clone() });
    let total = made.clone();
    environment.add_filter("join", move |value: &Value, between: &str| join(&total, value, between));
}

fn length(value: &Value) -> Result<usize, Error> {
    defined(value)?.len().ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "a number has no length"))
}

fn join(made: &AtomicUsize, value: &Value, between: &str) -> Result<String, Error> {
    let mut text = String::new();
    for (index, part) in defined(value)?.try_iter()?.enumerate() {
        if index > 0 {
            text += between;
        }
        text += &plain(&part)?;
        if text.len() > OUTPUT_LIMIT {
            break;
        }
    }
    counted(made, text)
}

fn counted(made: &AtomicUsize, text: String) -> Result<String, Error> {
    let before = made.fetch_add(text.len(), Ordering::Relaxed);
    if text.len() > OUTPUT_LIMIT || before + text.len() > FILTER_LIMIT {
        return Err(Error::new(ErrorKind::InvalidOperation, "the filters of the template make too much text"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn context() -> Context {
        let vars = [
            ("title", json!("Add a door")),
            ("files", json!(["a.rs", "b.rs"])),
            ("item", json!({ "id": 7, "by": { "name": "Ada" } })),
            ("empty", json!("")),
            ("long", json!("x".repeat(20_000))),
            ("many", json!("x".repeat(400).split("").collect::<Vec<_>>())),
        ];
        vars.into_iter().map(|(name, value)| (name.into(), value)).collect()
    }

    fn rendered(template: &str) -> Result<String, String> {
        render(template, &context()).map_err(|error| error.message.into())
    }

    #[test]
    fn values_are_printed_as_commands_see_them() {
        let cases = [
            ("plain } text {", "plain } text {"),
            ("{{ title }}\n", "Add a door\n"),
            ("{{ item.id }} by {{ item.by.name }}", "7 by Ada"),
            ("{{ files }} {{ files[1] }}", r#"["a.rs","b.rs"] b.rs"#),
            ("{% for file in files %}- {{ file }}{% if not loop.last %}, {% endif %}{% endfor %}", "- a.rs, - b.rs"),
            ("{% if title == 'x' %}a{% elif 'a.rs' in files %}b{% else %}c{% endif %}", "b"),
            ("{{ title|upper }} {{ files|join('; ') }} {{ files|length }} {{ files|first }}", "ADD A DOOR a.rs; b.rs 2 a.rs"),
            ("{{ empty|default('none') }} {{ title|json }}", "none \"Add a door\""),
            ("{{ item.nothing|default('none') }}", "none"),
            ("{# a note #}<{{ '{{' }}>", "<{{>"),
            ("{{ title if empty else 'no' }}", "no"),
        ];
        for (template, text) in cases {
            assert_eq!(rendered(template), Ok(text.to_owned()), "{template}");
        }
    }

    #[test]
    fn undefined_variables_and_parts_are_errors() {
        assert_eq!(rendered("{{ titel }}"), Err("there is no variable \"titel\"".into()));
        let part = |expression: &str| Err(format!("`{expression}` is a part of a variable that it does not have"));
        assert_eq!(rendered("{{ title }}\n{{ item.nothing }}"), part("item.nothing"));
        assert_eq!(rendered("{{ item.nothing.more }}"), part("item.nothing.more"));
        for filter in ["upper", "json", "length", "first", "last", "join(', ')"] {
            let expression = format!("files[7]|{filter}");
            assert_eq!(rendered(&format!("{{{{ {expression} }}}}")), part(&expression));
        }
        let error = render("{{ title }}\n\n{{ item.nothing }}", &context()).unwrap_err();
        assert_eq!(error.line("{{ title }}\n\n{{ item.nothing }}"), Some(3));
    }

    #[test]
    #[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it must not take long")]
    fn bombs_are_refused_at_once() {
        let nested = |depth: usize, open: &str, close: &str| format!("{}x{}", open.repeat(depth), close.repeat(depth));
        let bombs = [
            ("joins", "{{ long ~ long }}".to_owned()),
            ("adds", "{{ long + long }}".into()),
            ("multiplies", "{{ 'x' * 1000000000 }}".into()),
            ("remembers", "{% set title = title %}{{ title }}".into()),
            ("captures", "{% set title %}{{ title }}{{ title }}{% endset %}{{ title }}".into()),
            ("doubles lists", "{% for a in [[title, title]] %}{{ a }}{% endfor %}".into()),
            ("calls", "{% for i in range(100000) %}x{% endfor %}".into()),
            ("goes around", nested(4, "{% for a in many %}", "{% endfor %}").replace('x', "")),
            ("prints", "{% for a in many %}{{ long }}{% endfor %}".into()),
            ("filters", "{% for a in many %}{% if long|json|upper|length %}{% endif %}{% endfor %}".into()),
            ("widens", "{{ many|join(long) }}".into()),
            ("nests", nested(5_000, "{% if title %}", "{% endif %}")),
            ("stacks", format!("{{{{ title{} }}}}", "|upper".repeat(40_000))),
            ("digs", format!("{{{{ title{} }}}}", ".a".repeat(100_000))),
            ("branches", format!("{{% if title %}}{}{{% endif %}}", "{% elif title %}".repeat(10_000))),
            ("escapes", format!("{{{{ title{} }}}}", "|json".repeat(45))),
            ("is long", "x{{ title }}".repeat(TEMPLATE_LIMIT / 10)),
        ];
        for (what, bomb) in bombs {
            let start = std::time::Instant::now();
            assert!(rendered(&bomb).is_err(), "{what}");
            assert!(start.elapsed().as_secs() < 60, "{what} took {:?}", start.elapsed());
        }
    }

    #[test]
    fn a_check_finds_all_errors_with_their_places() {
        let template = "{{ a }} {{ title }} {{ b }} {% for f in c %}{{ f }}{{ loop.index }}{% endfor %}{{ f }}";
        let wrong = check_template(template, &["title"].into()).unwrap_err();
        let found: Vec<&str> = wrong.iter().map(|wrong| &template[wrong.at.clone().unwrap()]).collect();
        assert_eq!(found, ["a", "b", "c", "f"]);
        for bad in ["{{ title", "{% if title %}", "{{ title|shout }}", "{% include 'x' %}", "{{ title is odd }}", "{{ title() }}"]
        {
            let wrong = check_template(bad, &["title"].into()).unwrap_err();
            assert_eq!(wrong.len(), 1, "{bad}");
        }
        let wrong = check_template("{{ title|uper }}", &["title"].into()).unwrap_err();
        assert_eq!(wrong[0].hint.as_deref(), Some("did you mean `upper`?"));
    }
}
