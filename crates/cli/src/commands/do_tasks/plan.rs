//! The input: titles, or a Markdown file whose open boxes are tasks.

use std::path::Path;

use banksman_core::Title;

use crate::failure::Failure;

/// A task to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) title: Title,
    /// The indented text below the box.
    pub(super) prompt: Option<String>,
}

/// Parses the arguments: one file, or titles.
pub(super) fn read(words: &[String]) -> Result<Vec<Item>, Failure> {
    let items = match words {
        [file] if file.ends_with(".md") && Path::new(file).is_file() => {
            let text = std::fs::read_to_string(file).map_err(|error| Failure::usage(format!("{file}: {error}")))?;
            let items = checklist(&text)?;
            if items.is_empty() {
                return Err(Failure::usage(format!("{file} has no line `- [ ] TITLE`")));
            }
            items
        }
        titles => titles.iter().map(|title| item(title, None)).collect::<Result<_, _>>()?,
    };
    Ok(items)
}

fn item(title: &str, prompt: Option<String>) -> Result<Item, Failure> {
    Ok(Item { title: Title::new(title).map_err(Failure::usage)?, prompt })
}

/// Every line `- [ ] TITLE` is a task; the indented lines below it are its prompt. Ticked boxes are skipped.
fn checklist(text: &str) -> Result<Vec<Item>, Failure> {
    let mut items: Vec<(String, Vec<&str>)> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let bullet = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
        match bullet.and_then(|rest| rest.strip_prefix("[ ] ")) {
            Some(title) => {
                items.push((title.trim().to_owned(), Vec::new()));
                is_open = true;
            }
            None if line.trim().is_empty() || line.starts_with([' ', '\t']) => {
                items.iter_mut().next_back().filter(|_| is_open).into_iter().for_each(|(_, lines)| lines.push(line));
            }
            None => is_open = false,
        }
    }
    items.into_iter().map(|(title, lines)| item(&title, Some(unindented(&lines)))).collect()
}

/// Removes the indentation that all lines share.
fn unindented(lines: &[&str]) -> String {
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let common = lines.iter().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    let lines: Vec<&str> = lines.iter().map(|line| line.get(common..).unwrap_or_default()).collect();
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_boxes_are_tasks_and_indented_lines_are_their_prompts() {
        let text =
            "# Plan\n\n- [ ] Add login\n  With OAuth.\n\n    code\n- [x] Done before\n  not this\n- [ ] Fix rounding\nText.\n";
        let items = checklist(text).unwrap();
        let found: Vec<(&str, &str)> = items.iter().map(|item| (item.title.as_str(), item.prompt.as_deref().unwrap())).collect();
        assert_eq!(found, [("Add login", "With OAuth.\n\n  code"), ("Fix rounding", "")]);
    }
}
