//! The generated pages of docs/reference: from the definition of the command line, from the table of settings, and from
//! the description of runbooks. `UPDATE_DOCS=1 cargo test -p banksman-cli reference` writes them.

mod environment;
mod events;

use std::fmt::Write;

use banksman_runtime::config::{Home, KEYS, Kind};
use clap::{Arg, Command, CommandFactory};

/// The start of each page.
const NOTICE: &str = "<!-- Generated. Do not edit: Regenerate with: `UPDATE_DOCS=1 cargo test -p banksman-cli reference` -->";

#[test]
fn the_reference_of_the_command_line_is_up_to_date() {
    compare("cli.md", &cli_page());
}

#[test]
fn the_reference_of_the_settings_is_up_to_date() {
    compare("config.md", &config_page());
}

#[test]
fn the_reference_of_runbooks_is_up_to_date() {
    compare("runbook.md", &format!("{NOTICE}\n\n{}", banksman_runbook::reference()));
}

#[test]
fn every_command_has_a_description_and_an_example() {
    for command in commands() {
        let name = name(&command);
        assert!(command.get_about().is_some(), "{name} has no description");
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.starts_with("Example") && help.contains("\n  banksman "), "{name} has no example");
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some(), "{} of {name} has no description", arg.get_id());
        }
    }
    crate::Cli::command().debug_assert();
}

fn compare(page: &str, expected: &str) {
    let path = format!("{}/../../docs/reference/{page}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/reference/{page} is out of date; regenerate it with: UPDATE_DOCS=1 cargo test -p banksman-cli reference"
    );
}

/// All commands, each before its subcommands.
fn commands() -> Vec<Command> {
    fn collect(command: &Command, all: &mut Vec<Command>) {
        all.push(command.clone());
        command.get_subcommands().for_each(|command| collect(command, all));
    }
    let mut root = crate::Cli::command();
    root.build();
    let mut all = Vec::new();
    collect(&root, &mut all);
    all
}

fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}

fn cli_page() -> String {
    let commands = commands();
    let (root, rest) = commands.split_first().unwrap();
    let mut page = format!("{NOTICE}\n\n# The command line\n\n");
    let about = |command: &Command| command.get_about().unwrap().to_string();
    page.push_str("| command | what it does |\n|---|---|\n");
    for command in rest {
        writeln!(page, "| [`{}`](#{}) | {} |", name(command), name(command).replace(' ', "-"), cell(&about(command))).unwrap();
    }
    page.push_str("\nThe [exit codes](exit-codes.md) and the [settings](config.md) have pages of their own.\n");
    page.push_str("\n## Options of every command\n\n");
    page.push_str(&table("option", root.get_arguments().filter(|arg| !arg.is_positional())));
    for command in rest {
        page.push_str(&section(command));
    }
    page
}

fn section(command: &Command) -> String {
    let depth = if name(command).split(' ').count() > 2 { "###" } else { "##" };
    let mut text = format!("\n{depth} {}\n\n", name(command));
    let about = command.get_long_about().or(command.get_about()).unwrap().to_string();
    for paragraph in about.split("\n\n") {
        writeln!(text, "{}.\n", wrapped(paragraph.trim_end_matches('.'))).unwrap();
    }
    let usage = command.clone().render_usage().to_string();
    writeln!(text, "```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim()).unwrap();
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        writeln!(text, "Alias: {}\n", aliases.join(", ")).unwrap();
    }
    let own =
        || command.get_arguments().filter(|arg| !arg.is_global_set() && !["help", "version"].contains(&arg.get_id().as_str()));
    for (title, positional) in [("argument", true), ("option", false)] {
        if own().any(|arg| arg.is_positional() == positional) {
            writeln!(text, "{}", table(title, own().filter(|arg| arg.is_positional() == positional))).unwrap();
        }
    }
    let help = command.get_after_help().unwrap().to_string();
    let examples: Vec<&str> = help.lines().skip(1).map(str::trim).collect();
    writeln!(text, "```sh\n{}\n```", examples.join("\n")).unwrap();
    text
}

fn table<'a>(title: &str, args: impl Iterator<Item = &'a Arg>) -> String {
    let mut text = format!("| {title} | meaning |\n|---|---|\n");
    for arg in args {
        let mut meaning = cell(&arg.get_help().unwrap().to_string());
        let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if arg.get_action().takes_values() && !defaults.is_empty() {
            write!(meaning, " [default: {}]", defaults.join(" ")).unwrap();
        }
        if let Some(variable) = arg.get_env() {
            write!(meaning, " [variable: `{}`]", variable.to_string_lossy()).unwrap();
        }
        let values: Vec<String> = arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
        if arg.get_action().takes_values() && !values.is_empty() {
            write!(meaning, ": {}", values.join(", ")).unwrap();
        }
        writeln!(text, "| {} | {meaning} |", flag_names(arg)).unwrap();
    }
    text
}

/// `-C`, `--directory DIR`.
fn flag_names(arg: &Arg) -> String {
    let value = arg.get_value_names().map(|names| names.join(" ")).filter(|_| arg.get_action().takes_values());
    let long = arg.get_long().map(|long| value.as_ref().map_or(format!("`--{long}`"), |value| format!("`--{long} {value}`")));
    let names: Vec<String> = arg.get_short().map(|short| format!("`-{short}`")).into_iter().chain(long).collect();
    if names.is_empty() { format!("`{}`", value.unwrap_or_default()) } else { names.join(", ") }
}

fn config_page() -> String {
    let mut page = format!("{NOTICE}\n\n# Settings\n\n");
    page.push_str("| key | values | default | meaning |\n|---|---|---|---|\n");
    for key in KEYS {
        let values = match key.kind {
            Kind::Duration(_) | Kind::Span(_) => "a duration",
            Kind::Limit(_) => "a duration above `0s`, or `none`",
            Kind::Number(_) => "a whole number of at least 1",
            Kind::Word(words, _) => &words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
            Kind::Period(_) => "a duration above `0s`",
            Kind::Count(_) => "a whole number of at least 0",
            Kind::Id(_) => "a name",
            Kind::Url(_) => "`postgres://…`",
            Kind::Switch(_) => "`on` or `off`",
            Kind::Notices(_) => "`all`, or a comma-separated list",
            Kind::Program(_) => "a command line for `sh`, or a list of words",
            Kind::Directory(_) => "a directory",
            Kind::List(_) => "a comma-separated list, or a TOML array",
            Kind::Size(_) => "bytes, as in `500MiB` or `2GiB`",
            Kind::Webhook(_) => "`https://…`",
            Kind::File(_) => "an absolute path",
        };
        let default = key.default.map_or("none".into(), |default| format!("`{default}`"));
        let place = match key.home {
            Home::Everywhere => "",
            Home::Init => ". Only in the project's file; do not change it",
            Home::User => ". Only in the user's file, because it may carry a password",
            Home::Trusted => ". In the project's file it has no effect until the user runs `banksman trust`",
        };
        writeln!(page, "| `{}` | {values} | {default} | {}{place} |", key.name, cell(key.description)).unwrap();
    }
    let example = KEYS.iter().find(|key| key.home == Home::Everywhere).unwrap();
    let (section, name) = example.name.split_once('.').unwrap();
    let variable = example.variable();
    let default = example.default.unwrap();
    write!(
        page,
        "
Durations are written like `500ms`, `90s`, `1h30m` or `2d`. All values are text in quotes; a list of words may also be a
TOML array, and `on` and `off` may be `true` and `false`. To set up notifications, see [notifications](../guides/notifications.md).

## Where they are set

A later layer wins:

1. the user's file, `$XDG_CONFIG_HOME/banksman/config.toml` or `~/.config/banksman/config.toml`;
2. the project's file, `.banksman/config.toml`, which may be committed;
3. the environment: `BANKSMAN_CONFIG_<SECTION>__<KEY>`, and `BANKSMAN_STORE` for the store;
4. flags, such as `--timeout` and `--store`.

```toml
[{section}]
{name} = \"{default}\"
```

```sh
# every key: its value, its default, where it comes from
banksman config list
# in the project's file; with --user, in the user's
banksman config set {key} {default}
# for one command
{variable}={default} banksman locks acquire deploy
```

Unknown keys and invalid values are errors with the file, the line and, if there is one, a similar key; all of them are
reported together, with exit code 3. `config set` checks the value before it writes, keeps comments and everything else in
the file, and replaces the file atomically.
",
        key = example.name,
    )
    .unwrap();
    page
}

/// A text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

/// A paragraph in lines of at most 120 characters.
fn wrapped(paragraph: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in paragraph.replace('<', "&lt;").split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > 120 {
            text.push('\n');
            width = 0;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text
}
