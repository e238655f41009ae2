//! The first pass over a runbook: unknown keys, values of a wrong type, texts that are not valid names, durations or
//! patterns. It checks each value without the rest of the file.

use banksman_core::Span;
use banksman_core::event::check_kind;
use banksman_core::guard::DEPTH_LIMIT;
use banksman_core::ids::{Name, NameError};
use banksman_core::pattern::{self, RegexError};
use banksman_core::pipeline::plan;
use banksman_core::route::Pattern;
use banksman_core::suggest::closest;
use banksman_core::task::COMMAND_LIMIT;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::diagnostic::{At, Code, Sink};
use crate::format::{CONDITION, Key, Kind, Table, article};

/// Characters that the names of a runbook's own things must not contain: they have a meaning where such names are used.
const SIGNS: [char; 5] = [':', '(', ')', '/', '"'];

/// Checks a table with everything in it.
pub(crate) fn check(sink: &mut Sink, table: &DeTable, at: At, format: &'static Table) {
    check_table(sink, table, at, format, 0);
}

/// Checks the name of the runbook itself.
pub(crate) fn check_name(sink: &mut Sink, name: &str) {
    own_name(sink, name, 0..0, "runbook");
}

fn check_table(sink: &mut Sink, table: &DeTable, at: At, format: &'static Table, depth: usize) {
    // A misspelt key is not reported as missing too.
    let mut meant = Vec::new();
    for (key, value) in table.iter() {
        match format.key(key.get_ref()) {
            Some(known) => {
                check_companion(sink, table, key, known);
                check_value(sink, value, &known.kind, depth);
            }
            None => meant.extend(unknown(sink, key, format)),
        }
    }
    for key in format.keys.iter().filter(|key| key.required && !table.contains_key(key.name) && !meant.contains(&key.name)) {
        let hint = match &key.kind {
            Kind::List(Kind::Table(table)) => format!("add {}", table.title),
            kind => format!("add `{} = …`: {}", key.name, kind.describe()),
        };
        sink.hint(Code::MissingKey, at.clone(), format!("`{}` is missing in {}", key.name, format.title), hint);
    }
    choice(sink, table, at, format, &meant);
}

/// Checks that a key has the other key that it needs.
fn check_companion(sink: &mut Sink, table: &DeTable, key: &Spanned<toml::de::DeString<'_>>, known: &Key) {
    if let Some(other) = known.with.filter(|other| !table.contains_key(*other)) {
        let message = format!("`{}` means nothing without `{other}`", known.name);
        sink.add(Code::Conflict, key.span(), message);
    }
}

/// Reports an unknown key. Returns the key that was probably meant, if one is similar.
fn unknown(sink: &mut Sink, key: &Spanned<toml::de::DeString<'_>>, format: &'static Table) -> Option<&'static str> {
    let names = || format.keys.iter().map(|key| key.name);
    let near = closest(key.get_ref(), names());
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the keys are {}", names().collect::<Vec<_>>().join(", ")),
    };
    sink.hint(Code::UnknownKey, key.span(), format!("there is no key `{}` in {}", key.get_ref(), format.title), hint);
    near
}

/// Checks the keys of which exactly one, or at least one, must be present.
fn choice(sink: &mut Sink, table: &DeTable, at: At, format: &'static Table, meant: &[&str]) {
    let listed = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let present = |names: &[&str]| -> Vec<(At, String)> {
        let key = |name: &&str| table.get_key_value(*name).map(|(key, _)| (key.span(), name.to_string()));
        names.iter().filter_map(key).collect()
    };
    let mut one = present(format.one_of);
    one.sort_by_key(|(at, _)| at.start);
    if let [first, rest @ ..] = one.as_slice() {
        for (at, name) in rest {
            let message = format!("`{name}` beside `{}`: {} can have only one of them", first.1, format.title);
            sink.hint(Code::Conflict, at.clone(), message, format!("one of {}", listed(format.one_of)));
        }
    } else if !format.one_of.is_empty() && !meant.iter().any(|name| format.one_of.contains(name)) {
        sink.add(Code::MissingKey, at.clone(), format!("{} needs one of {}", format.title, listed(format.one_of)));
    }
    let has_none = present(format.some_of).is_empty() && !meant.iter().any(|name| format.some_of.contains(name));
    if !format.some_of.is_empty() && has_none {
        sink.add(Code::MissingKey, at, format!("{} needs at least one of {}", format.title, listed(format.some_of)));
    }
}

fn check_value(sink: &mut Sink, value: &Spanned<DeValue>, kind: &Kind, depth: usize) {
    let at = value.span();
    match (kind, value.get_ref()) {
        (Kind::Flag, DeValue::Boolean(_)) => {}
        (Kind::Number(least, most), DeValue::Integer(number)) => {
            if !integer(number).is_some_and(|number| (*least..=*most).contains(&number)) {
                sink.add(Code::OutOfRange, at, format!("{} is not {}", number, kind.describe()));
            }
        }
        (Kind::List(each), DeValue::Array(list)) | (Kind::OneOrMany(each), DeValue::Array(list)) => {
            list.iter().for_each(|value| check_value(sink, value, each, depth));
            if list.is_empty() && !matches!(each, Kind::Table(table) if table.title == CONDITION.title) && must_have_some(each) {
                sink.add(Code::OutOfRange, at, "the list is empty");
            }
            // The words of a command are templates, and may be empty, except the first one, which is the program.
            if let (Kind::Template, Some(first)) = (each, list.first())
                && first.get_ref().as_str().is_some_and(|program| program.trim().is_empty())
            {
                sink.add(Code::OutOfRange, first.span(), "the program is empty");
            }
        }
        (Kind::OneOrMany(each), _) => check_value(sink, value, each, depth),
        (Kind::Short(_, table), DeValue::Table(inner)) => check_table(sink, inner, at, table, depth + 1),
        (Kind::Short(short, _), DeValue::String(_)) => check_value(sink, value, short, depth),
        (Kind::Table(table), DeValue::Table(inner)) => {
            // Reports a guard that is too deep once, and does not check deeper levels.
            if depth <= DEPTH_LIMIT {
                check_table(sink, inner, at, table, depth + 1);
            } else if depth == DEPTH_LIMIT + 1 {
                sink.add(Code::OutOfRange, at, format!("conditions can be nested {DEPTH_LIMIT} levels deep at most"));
            }
        }
        (Kind::Each(name, table), DeValue::Table(all)) => each(sink, all, name, table),
        (Kind::Text | Kind::Inside, DeValue::Table(inner)) => variable_reference(sink, inner, at, kind),
        (Kind::Vars, DeValue::Array(list)) => list.iter().for_each(|each| match each.get_ref() {
            DeValue::Table(defaults) => defaults.iter().for_each(|(name, _)| variable(sink, name.get_ref(), name.span())),
            _ => check_value(sink, each, &Kind::Variable, depth),
        }),
        (Kind::Vars, DeValue::Table(defaults)) => {
            defaults.iter().for_each(|(name, _)| variable(sink, name.get_ref(), name.span()));
        }
        (kind, DeValue::String(text)) if is_text(kind) => check_text(sink, text, at, kind),
        (kind, other) => wrong_type(sink, at, kind, other),
    }
}

/// Whether an empty list of these is an error. A pipeline needs phases; an empty list of guards is fine.
fn must_have_some(kind: &Kind) -> bool {
    matches!(kind, Kind::Table(_) | Kind::Template | Kind::Plain | Kind::Text)
}

fn is_text(kind: &Kind) -> bool {
    match kind {
        Kind::Duration | Kind::DurationOrZero | Kind::Prose | Kind::Own(_) | Kind::Shared(_) | Kind::Shell => true,
        Kind::Template | Kind::Plain | Kind::Path | Kind::Regex | Kind::Event | Kind::Word(_) | Kind::Variable => true,
        Kind::Text | Kind::Inside => true,
        Kind::Flag | Kind::Number(..) | Kind::Vars | Kind::List(_) | Kind::OneOrMany(_) => false,
        Kind::Short(..) | Kind::Table(_) | Kind::Each(..) => false,
    }
}

fn wrong_type(sink: &mut Sink, at: At, kind: &Kind, found: &DeValue) {
    let found = match found {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "`true` or `false`",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    let message = format!("this is {found}, and must be {}", kind.describe());
    match kind {
        Kind::Duration | Kind::DurationOrZero => sink.hint(Code::WrongType, at, message, "write it in quotes: \"90s\""),
        Kind::List(Kind::Table(table)) if table.title.starts_with("[[") => {
            sink.hint(Code::WrongType, at, message, format!("write it as {}", table.title))
        }
        _ => sink.add(Code::WrongType, at, message),
    }
}

/// Checks tables with names.
fn each(sink: &mut Sink, all: &DeTable, name: &Kind, table: &'static Table) {
    for (key, value) in all.iter() {
        check_text(sink, key.get_ref(), key.span(), name);
        match value.get_ref() {
            DeValue::Table(inner) => check_table(sink, inner, value.span(), table, 0),
            other => wrong_type(sink, value.span(), &Kind::Table(table), other),
        }
    }
}

fn check_text(sink: &mut Sink, text: &str, at: At, kind: &Kind) {
    match kind {
        Kind::Duration | Kind::DurationOrZero => match text.parse::<Span>() {
            Ok(Span::ZERO) if matches!(kind, Kind::Duration) => {
                sink.add(Code::BadDuration, at, "a duration of nothing makes no sense here");
            }
            Ok(_) => {}
            Err(wrong) => sink.add(Code::BadDuration, at, wrong),
        },
        Kind::Prose | Kind::Plain | Kind::Path | Kind::Template | Kind::Shell | Kind::Text => {
            check_verbatim(sink, text, at, kind)
        }
        Kind::Inside => {
            check_verbatim(sink, text, at.clone(), &Kind::Text);
            if text.starts_with('/') || text.split('/').any(|part| part == "..") {
                sink.add(Code::File, at, "the path must stay inside the project");
            }
        }
        Kind::Own(what) => own_name(sink, text, at, what),
        Kind::Shared(what) => match Name::new(text) {
            Ok(name) if name.is_reserved() => {
                let message = format!("{text:?} is a name that Banksman itself uses, and no {what} can have it");
                sink.add(Code::BadName, at, message);
            }
            Ok(_) => {}
            Err(wrong) => bad_name(sink, &wrong, at),
        },
        Kind::Regex => match pattern::compile(text) {
            Ok(_) => {}
            Err(RegexError::Syntax(wrong)) => sink.add(Code::BadRegex, at, format!("this is no regular expression: {wrong}")),
            Err(RegexError::TooLarge) => sink.add(Code::BadRegex, at, RegexError::TooLarge.to_string()),
        },
        Kind::Event => match Pattern::new(text) {
            Ok(pattern) => event_kind(sink, &pattern, at),
            Err(wrong) => {
                sink.hint(Code::BadPattern, at, wrong.to_string(), "such as pipeline:complete(feature) or queue:push");
            }
        },
        Kind::Word(words) => {
            if !words.contains(&text) {
                let message = format!("{text:?} is not {}", kind.describe());
                match closest(text, words.iter().copied()) {
                    Some(near) => sink.hint(Code::BadWord, at, message, format!("did you mean \"{near}\"?")),
                    None => sink.add(Code::BadWord, at, message),
                }
            }
        }
        Kind::Variable => variable(sink, text, at),
        Kind::Flag | Kind::Number(..) | Kind::Vars | Kind::List(_) | Kind::OneOrMany(_) => {}
        Kind::Short(..) | Kind::Table(_) | Kind::Each(..) => {}
    }
}

/// Checks texts that are used verbatim.
fn check_verbatim(sink: &mut Sink, text: &str, at: At, kind: &Kind) {
    if text.trim().is_empty() && !matches!(kind, Kind::Template) {
        sink.add(Code::OutOfRange, at.clone(), "the text is empty");
    }
    if text.len() > COMMAND_LIMIT && !matches!(kind, Kind::Template) {
        sink.add(
            Code::OutOfRange,
            at.clone(),
            format!("a text may have at most {COMMAND_LIMIT} bytes, this one has {}", text.len()),
        );
    }
    if matches!(kind, Kind::Prose) && text.contains(char::is_control) {
        sink.add(Code::OutOfRange, at.clone(), "a text for people must be one line, without control characters");
    }
    if text.contains('\0') {
        sink.add(Code::OutOfRange, at.clone(), "the text has a NUL in it, which no command can be given");
    }
    let Some(name) = braced(text) else { return };
    let name = if name.is_empty() { "NAME" } else { name };
    match kind {
        Kind::Shell => {
            let hint = format!("the variable is in the environment: write \"${}\", with the quotes", plan::env_name(name));
            let message = "nothing is put into a line for the shell: whoever chooses the value could run commands with it";
            sink.hint(Code::Template, place_of_braces(sink.text, at), message, hint);
        }
        Kind::Text => {
            let message = "`{{ … }}` is only for prompts and arguments";
            sink.hint(Code::Template, place_of_braces(sink.text, at), message, format!("write {{ var = \"{name}\" }} instead"));
        }
        Kind::Plain | Kind::Prose => sink.add(Code::Template, place_of_braces(sink.text, at), "`{{ … }}` means nothing here"),
        _ => {}
    }
}

/// The name in the first `{{ … }}`.
fn braced(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("{{")?;
    let inside = rest.split("}}").next().unwrap_or(rest).trim();
    Some(inside.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or(inside))
}

/// The place of the first braces of a text in the file.
fn place_of_braces(file: &str, at: At) -> At {
    let Some(start) = file.get(at.clone()).and_then(|text| text.find("{{")).map(|found| at.start + found) else { return at };
    let end = file[start..at.end].find("}}").map_or(at.end, |end| start + end + 2);
    start..end
}

fn own_name(sink: &mut Sink, text: &str, at: At, what: &str) {
    match Name::new(text) {
        Err(wrong) => bad_name(sink, &wrong, at),
        Ok(_) => {
            if let Some(sign) = text.chars().find(|c| SIGNS.contains(c)) {
                sink.add(Code::BadName, at, format!("the name of {} {what} must not contain `{sign}`", article(what)));
            }
        }
    }
}

/// Refuses a pattern that no event matches.
fn event_kind(sink: &mut Sink, pattern: &Pattern, at: At) {
    let Some(Err(unknown)) = pattern.kind().map(|kind| check_kind(&kind)) else { return };
    let hint = match &unknown.meant {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("there are {}", unknown.others.join(", ")),
    };
    sink.hint(Code::BadPattern, at, unknown.to_string(), hint);
}

fn bad_name(sink: &mut Sink, wrong: &NameError, at: At) {
    sink.add(Code::BadName, at, wrong.to_string());
}

fn variable(sink: &mut Sink, name: &str, at: At) {
    let mut letters = name.chars();
    let begins = letters.next().is_some_and(|c| c.is_ascii_lowercase());
    if !begins || !letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
        let message = format!("{name:?} cannot be a variable");
        sink.hint(Code::BadName, at, message, "names are lower-case letters, digits and `_`, and begin with a letter");
    } else if name.len() > plan::VARIABLE_LIMIT {
        sink.add(Code::BadName, at, format!("the name of a variable may have at most {} letters", plan::VARIABLE_LIMIT));
    } else if plan::TAKEN.contains(&name) {
        sink.add(Code::BadName, at, format!("`{name}` has a meaning already, and cannot be a variable"));
    }
}

/// `{ var = "NAME" }`
fn variable_reference(sink: &mut Sink, inner: &DeTable, at: At, kind: &Kind) {
    match inner.get("var").map(|value| (value.span(), value.get_ref())) {
        Some((_, DeValue::String(_))) if inner.len() == 1 => {}
        Some((at, other)) if inner.len() == 1 => wrong_type(sink, at, &Kind::Variable, other),
        _ => sink.add(Code::WrongType, at, format!("this is another table, and must be {}", kind.describe())),
    }
}

/// The number, if it fits.
pub(crate) fn integer(number: &DeInteger) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}
