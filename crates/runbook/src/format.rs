//! The format of a runbook in one place: the source of the check of keys and types, of the schema for editors and of
//! the reference.
//!
//! * `format/blocks.rs`: the blocks, such as `[pipeline.NAME]`;
//! * `format/parts.rs`: the small tables in them, such as `on_fail`.

mod blocks;
mod parts;

pub(crate) use blocks::ROOT;
pub(crate) use parts::CONDITION;

/// A table and its keys.
#[derive(Debug)]
pub(crate) struct Table {
    /// Its notation: `[guard.NAME]`.
    pub(crate) title: &'static str,
    /// Its description, in sentences.
    pub(crate) doc: &'static str,
    pub(crate) keys: &'static [Key],
    /// Exactly one of these keys must be present.
    pub(crate) one_of: &'static [&'static str],
    /// At least one of these keys must be present.
    pub(crate) some_of: &'static [&'static str],
    /// An example runbook.
    pub(crate) example: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// The kind of its value.
    pub(crate) kind: Kind,
    /// Whether it must be present.
    pub(crate) required: bool,
    /// Its value if it is missing.
    pub(crate) default: Option<&'static str>,
    /// Another key that it needs.
    pub(crate) with: Option<&'static str>,
    /// Its description.
    pub(crate) doc: &'static str,
}

/// The kind of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number in this range.
    Number(i64, i64),
    /// A duration above zero.
    Duration,
    /// A duration, or `0s`.
    DurationOrZero,
    /// Text for people.
    Prose,
    /// The name of something defined in this runbook.
    Own(&'static str),
    /// The name of something that the project shares: a lock, a semaphore, a queue.
    Shared(&'static str),
    /// A shell command line.
    Shell,
    /// A text with `{{ … }}`.
    Template,
    /// A text in which `{{ … }}` is an error.
    Plain,
    /// The path of a file.
    Path,
    /// A regular expression.
    Regex,
    /// An event pattern.
    Event,
    /// One of these words.
    Word(&'static [&'static str]),
    /// The name of a variable.
    Variable,
    /// A text, or `{ var = "NAME" }`.
    Text,
    /// The same for the path of a file in the project.
    Inside,
    /// The variables of a pipeline.
    Vars,
    List(&'static Kind),
    /// One value, or a list of them.
    OneOrMany(&'static Kind),
    /// A short value, or a table with details.
    Short(&'static Kind, &'static Table),
    Table(&'static Table),
    /// Tables with names of this kind: `[guard.NAME]`.
    Each(&'static Kind, &'static Table),
}

const fn key(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, kind, required: false, default: None, with: None, doc }
}

impl Key {
    const fn required(self) -> Key {
        Key { required: true, ..self }
    }

    const fn or(self, default: &'static str) -> Key {
        Key { default: Some(default), ..self }
    }

    const fn with(self, other: &'static str) -> Key {
        Key { with: Some(other), ..self }
    }
}

impl Table {
    const EMPTY: Table = Table { title: "", doc: "", keys: &[], one_of: &[], some_of: &[], example: "" };

    /// The key of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Kind {
    /// The expected value, for the reference and the messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Kind::Flag => "`true` or `false`".into(),
            Kind::Number(least, most) => format!("a whole number from {least} to {most}"),
            Kind::Duration | Kind::DurationOrZero => "a duration such as \"90s\"".into(),
            Kind::Prose | Kind::Plain => "a text".into(),
            Kind::Own(what) | Kind::Shared(what) => format!("the name of {} {what}", article(what)),
            Kind::Shell => "a line for the shell".into(),
            Kind::Template => "a template".into(),
            Kind::Path => "a path".into(),
            Kind::Regex => "a regular expression".into(),
            Kind::Event => "a pattern for events".into(),
            Kind::Word(words) => listed(words),
            Kind::Variable => "the name of a variable".into(),
            Kind::Text => "a text, or `{ var = \"NAME\" }`".into(),
            Kind::Inside => "a path, or `{ var = \"NAME\" }`".into(),
            Kind::Vars => "a list of names and of tables with defaults".into(),
            Kind::List(Kind::Table(table)) if table.title.starts_with("[[") => format!("`{}`", table.title),
            Kind::List(Kind::Table(table)) => format!("a list of tables as in `{}`", table.title),
            Kind::List(kind) => format!("a list, each {}", kind.describe()),
            Kind::OneOrMany(kind) => format!("{}, or a list of them", kind.describe()),
            Kind::Short(kind, table) => format!("{}, or {}", kind.describe(), brief(table)),
            Kind::Table(table) => brief(table),
            Kind::Each(_, table) => format!("`{}`", table.title),
        }
    }
}

pub(crate) fn article(what: &str) -> &'static str {
    if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// `"a", "b" or "c"`.
fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// A short notation of a table: `{ retry }` or `{ phase, times }`.
fn brief(table: &Table) -> String {
    if table.keys.len() > 4 {
        return format!("a table as in `{}`", table.title);
    }
    let names = |names: Vec<&str>| format!("`{{ {} }}`", names.join(", "));
    let own = |first: &str| {
        let rest = table.keys.iter().filter(|key| key.with.map_or(!table.one_of.contains(&key.name), |with| with == first));
        names([first].into_iter().chain(rest.map(|key| key.name)).collect())
    };
    if table.one_of.is_empty() {
        return names(table.keys.iter().map(|key| key.name).collect());
    }
    table.one_of.iter().map(|first| own(first)).collect::<Vec<_>>().join(" or ")
}
