//! The settings of workspaces, and how their values are read.

use std::path::PathBuf;
use std::time::Duration;

use banksman_adapters::notify::Program;

/// Where tasks work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceSettings {
    /// The workspace of a task that names none.
    pub default: WorkspaceDefault,
    /// The directory of the worktrees, if it was set.
    pub root: Option<PathBuf>,
    /// The files that are copied into every new worktree.
    pub copy: Vec<String>,
    /// The command that runs in every new worktree.
    pub setup: Option<Program>,
    /// The files that the setup depends on.
    pub setup_inputs: Vec<String>,
    /// The ignored files that are saved.
    pub save_ignored: Vec<String>,
    /// How long the worktree of a task that is over is kept.
    pub keep_for: Duration,
    /// How many bytes must be free.
    pub min_free: u64,
}

/// The workspace of a task that names none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WorkspaceDefault {
    /// In the project's checkout.
    #[default]
    Checkout,
    /// In a directory of its own.
    Dir,
    /// In a worktree of its own.
    Worktree,
}

pub(super) fn directory(text: &str) -> Result<PathBuf, String> {
    if text.trim().is_empty() || text.contains('\0') { Err("it must be a directory".into()) } else { Ok(text.into()) }
}

/// Texts with commas between them: paths below the top of a checkout, or patterns for them.
pub(super) fn list(text: &str) -> Result<Vec<String>, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(|word| if is_inside(word) { Ok(word.into()) } else { Err(format!("{word:?} leads out of the checkout")) }).collect()
}

fn is_inside(path: &str) -> bool {
    !path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| part != ".." && part != ".git")
}

/// A number of bytes, such as `500MiB`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" | "B" => Some(1),
        "KiB" | "K" => Some(1 << 10),
        "MiB" | "M" => Some(1 << 20),
        "GiB" | "G" => Some(1 << 30),
        "TiB" | "T" => Some(1u64 << 40),
        _ => None,
    };
    let bytes = unit.zip(number.parse::<u64>().ok()).and_then(|(unit, number)| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("it must be a size such as 500MiB or 2GiB, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!(size(" 500 MiB "), Ok(500 << 20));
        for text in ["", "GiB", "1.5GiB", "2GB2", "-1", "99999999TiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_stay_inside_of_the_checkout() {
        assert_eq!(list(".env, a/b ,,"), Ok(vec![".env".into(), "a/b".into()]));
        for text in ["/etc/passwd", "../x", "a/../b", ".git/config"] {
            assert!(list(text).is_err(), "{text}");
        }
    }
}
