//! The reference page of the format, generated from its description.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::format::{Key, Kind, ROOT, Table};
use crate::template::FILTERS;
use crate::{PHASE_VARS, RUNBOOK_LIMIT};

/// One section of the page.
struct Section {
    table: &'static Table,
    depth: usize,
}

/// The page, without the notice that it is generated.
pub fn reference() -> String {
    let mut page = String::from("# Runbooks: the format\n\n");
    page += &wrapped(ROOT.doc);
    page += &format!(
        "\n`banksman runbooks check` finds everything that is wrong with a file, with line and column; `banksman runbooks \
         schema`\nprints a JSON Schema for editors. A runbook may have at most {} KiB. How runbooks are used: [the \
         guide](../guides/runbooks.md).\n\n",
        RUNBOOK_LIMIT / 1_024
    );
    page += &keys(&ROOT);
    page += &example(&ROOT);
    for section in sections() {
        let hashes = "#".repeat(section.depth);
        write!(page, "\n{hashes} `{}`\n\n{}\n{}", section.table.title, wrapped(section.table.doc), keys(section.table)).ok();
        page += &example(section.table);
    }
    page + &values()
}

/// The example runbooks.
pub fn examples() -> Vec<&'static str> {
    let all = [&ROOT].into_iter().chain(sections().into_iter().map(|section| section.table));
    all.map(|table| table.example).filter(|example| !example.is_empty()).collect()
}

/// All tables below the top level, parents before their parts, each once.
fn sections() -> Vec<Section> {
    fn collect(table: &'static Table, depth: usize, seen: &mut BTreeSet<&'static str>, all: &mut Vec<Section>) {
        for inner in table.keys.iter().filter_map(|key| inner(&key.kind)) {
            if seen.insert(inner.title) && inner.keys.len() > 1 {
                // Small tables are siblings on the page, however deeply they are nested.
                all.push(Section { table: inner, depth });
                collect(inner, 3, seen, all);
            }
        }
    }
    let mut all = Vec::new();
    collect(&ROOT, 2, &mut BTreeSet::new(), &mut all);
    all
}

/// The table that a kind of value contains.
fn inner(kind: &Kind) -> Option<&'static Table> {
    match kind {
        Kind::Each(_, table) | Kind::Table(table) | Kind::Short(_, table) => Some(table),
        Kind::List(kind) | Kind::OneOrMany(kind) => inner(kind),
        Kind::Flag | Kind::Number(..) | Kind::Duration | Kind::DurationOrZero | Kind::Prose | Kind::Own(_) => None,
        Kind::Shared(_) | Kind::Shell | Kind::Template | Kind::Plain | Kind::Path | Kind::Regex | Kind::Event => None,
        Kind::Word(_) | Kind::Variable | Kind::Text | Kind::Inside | Kind::Vars => None,
    }
}

fn keys(table: &Table) -> String {
    let mut text = String::from("| key | value | meaning |\n|---|---|---|\n");
    for key in table.keys {
        writeln!(text, "| `{}` | {} | {} |", key.name, cell(&key.kind.describe()), cell(&meaning(table, key))).ok();
    }
    text
}

fn meaning(table: &Table, key: &Key) -> String {
    let mut text = key.doc.to_owned();
    if let Some(with) = key.with {
        text += &format!(" Only beside `{with}`.");
    }
    if let Some(default) = key.default {
        text += &format!(" Default: `{default}`.");
    }
    if key.required {
        text += " **Required.**";
    }
    if table.one_of.contains(&key.name) {
        text += if table.one_of.len() == table.keys.len() { "" } else { " *One of these.*" };
    }
    text
}

fn example(table: &Table) -> String {
    if table.example.is_empty() { String::new() } else { format!("\n```toml\n{}```\n", table.example) }
}

/// The section on values that many keys share.
fn values() -> String {
    let vars: Vec<String> = PHASE_VARS.iter().map(|name| format!("`{name}`")).collect();
    let filters: Vec<String> = FILTERS.iter().map(|name| format!("`{name}`")).collect();
    format!(
        "
## Values

- **Durations** are written like `\"500ms\"`, `\"90s\"`, `\"1h30m\"` or `\"2d\"`.
- **Names** may have up to 200 bytes. Those of a runbook's own things must not contain `:`, `(`, `)`, `/` or quotes.
- **Variables** reach a command as environment variables: `title` is in `VAR_TITLE`. Texts are there as they are, everything
  else as JSON. A line for the shell is never changed: `{{{{ … }}}}` in it is an error.
- **A text or `{{ var = \"NAME\" }}`**: the text itself, or what the variable has for a value when it is needed.
- **Templates** are prompts and the elements of `argv`. `{{{{ name }}}}` is the value of a variable, `{{{{ item.title }}}}` a part of
  it. `{{% if … %}}`, `{{% elif … %}}`, `{{% else %}}` and `{{% for … in … %}}` choose and repeat; `==`, `<`, `in`, `and`, `or` and
  `not` compare. The filters are
  {filters}.
  Beside the variables of its pipeline, every phase has {vars}. A name that is not there is an error, when
  the runbook is checked and when it is used.
- **Regular expressions** are those of the Rust crate `regex`, with up to 1,000 bytes.
- **Patterns for events** are `category:action`, `category:action(argument)`, `category:*` or `*`.
",
        filters = filters.join(", "),
        vars = vars.join(", "),
    )
}

/// Text that fits into a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// A paragraph in lines of at most 120 characters.
fn wrapped(paragraph: &str) -> String {
    let mut lines = vec![String::new()];
    for word in paragraph.split_whitespace() {
        let line = lines.len() - 1;
        if !lines[line].is_empty() && lines[line].chars().count() + 1 + word.chars().count() > 120 {
            lines.push(word.to_owned());
        } else {
            if !lines[line].is_empty() {
                lines[line].push(' ');
            }
            lines[line] += word;
        }
    }
    lines.join("\n") + "\n"
}
