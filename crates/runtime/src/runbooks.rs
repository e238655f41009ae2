//! The runbooks of a project: the files of `.banksman/runbooks`, and files that are named by their path.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use banksman_core::suggest::closest;
use banksman_runbook::template::TEMPLATE_LIMIT;
use banksman_runbook::{Diagnostics, RUNBOOK_LIMIT, Runbook, parse_bytes, too_large};
use thiserror::Error;

use crate::project::Project;

/// The extension of a runbook's file.
const ENDING: &str = "toml";

/// A file with the name of a runbook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunbookFile {
    /// The name of the runbook: the file's name without its extension.
    pub name: String,
    pub path: PathBuf,
}

/// Why a runbook cannot be used.
#[derive(Debug, Error)]
pub enum RunbookError {
    /// There is no runbook of this name.
    #[error("there is no runbook {name:?} in {}", dir.display())]
    NotFound {
        name: String,
        /// The folder that was searched.
        dir: PathBuf,
        /// The name that may have been meant.
        near: Option<String>,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file has errors.
    #[error("{0}")]
    Wrong(Box<Diagnostics>),
}

/// A runbook's file, and its content.
pub type LoadedRunbook = (RunbookFile, Result<Runbook, RunbookError>);

impl Project {
    /// The folder of the runbooks.
    pub fn runbooks_dir(&self) -> PathBuf {
        self.folder().join("runbooks")
    }

    /// The runbooks that exist, by name. They are not read.
    pub fn runbooks(&self) -> Result<Vec<RunbookFile>, RunbookError> {
        let dir = self.runbooks_dir();
        let wrong = |source| RunbookError::Io { path: dir.clone(), source };
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(wrong)?,
        };
        let mut files = Vec::new();
        for entry in entries {
            files.extend(RunbookFile::of(entry.map_err(wrong)?.path()));
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }
}

impl RunbookFile {
    /// The runbook in a file, if the file has the extension and is not hidden.
    fn of(path: PathBuf) -> Option<RunbookFile> {
        let name = path.file_stem()?.to_string_lossy().into_owned();
        let is_one = path.extension().is_some_and(|ending| ending == ENDING) && !name.starts_with('.');
        is_one.then_some(RunbookFile { name, path })
    }
}

/// Reads every runbook of a project; each by itself, so that all errors can be reported at once.
pub fn load_all(project: &Project) -> Result<Vec<LoadedRunbook>, RunbookError> {
    let load = |file: RunbookFile| {
        let runbook = load_file(&file.path, Some(project.root()));
        (file, runbook)
    };
    Ok(project.runbooks()?.into_iter().map(load).collect())
}

/// Reads one runbook: `feature` is `.banksman/runbooks/feature.toml`, anything with `/` or `.toml` is a path.
pub fn load_runbook(project: &Project, name_or_path: &str) -> Result<Runbook, RunbookError> {
    if is_path(name_or_path) {
        return load_file(Path::new(name_or_path), Some(project.root()));
    }
    let files = project.runbooks()?;
    match files.iter().find(|file| file.name == name_or_path) {
        Some(file) => load_file(&file.path, Some(project.root())),
        None => Err(RunbookError::NotFound {
            name: name_or_path.into(),
            dir: project.runbooks_dir(),
            near: closest(name_or_path, files.iter().map(|file| file.name.as_str())).map(Into::into),
        }),
    }
}

/// Whether a text is the path of a runbook.
pub fn is_path(name_or_path: &str) -> bool {
    name_or_path.contains('/') || Path::new(name_or_path).extension().is_some_and(|ending| ending == ENDING)
}

/// Reads the runbook in a file. The files that it names must be inside of `root`, or else inside of the runbook's folder.
pub fn load_file(path: &Path, root: Option<&Path>) -> Result<Runbook, RunbookError> {
    let io = |source| RunbookError::Io { path: path.into(), source };
    let named = |mut wrong: Diagnostics| {
        wrong.file = path.to_string_lossy().into();
        for (file, _) in wrong.list.iter_mut().filter_map(|one| one.elsewhere.as_mut()) {
            *file = path.with_file_name(&**file).to_string_lossy().into();
        }
        RunbookError::Wrong(Box::new(wrong))
    };
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let bytes = match read(path, RUNBOOK_LIMIT).map_err(io)? {
        Content::Whole(bytes) => bytes,
        Content::TooLarge(bytes) => return Err(named(too_large(&name, bytes))),
    };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A project's own runbooks may name files anywhere in it; others only files in their folder.
    let (dir, root) = (dir.canonicalize().map_err(io)?, root.and_then(|root| root.canonicalize().ok()));
    let inside = root.filter(|root| dir.starts_with(root)).unwrap_or_else(|| dir.clone());
    parse_bytes(&name, &bytes, &|file| prompt(&dir.join(file), &inside)).map_err(named)
}

/// The content of a file.
enum Content {
    Whole(Vec<u8>),
    /// The size of a file above the limit.
    TooLarge(u64),
}

/// Reads a file that is not larger than the limit; of a larger one, only its size.
fn read(path: &Path, limit: usize) -> io::Result<Content> {
    let facts = fs::metadata(path)?;
    // A pipe or a device might never end.
    if !facts.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if facts.len() > limit as u64 {
        return Ok(Content::TooLarge(facts.len()));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Content::Whole(bytes))
}

/// The text of a prompt, or why it cannot be used.
fn prompt(path: &Path, inside: &Path) -> Result<String, String> {
    let path = path.canonicalize().map_err(|error| error.to_string())?;
    if !path.starts_with(inside) {
        return Err(format!("it is outside of {}", inside.display()));
    }
    match read(&path, TEMPLATE_LIMIT).map_err(|error| error.to_string())? {
        Content::Whole(bytes) => String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into()),
        Content::TooLarge(bytes) => Err(format!("a prompt may have at most {TEMPLATE_LIMIT} bytes, this one has {bytes}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNBOOK: &str = "[agent.a]\ncommand = [\"cat\"]\n[pipeline.p]\n[[pipeline.p.phase]]\nname = \"x\"\nagent = \"a\"\n";

    fn world(prompt_file: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let runbooks = dir.path().join("project/.banksman/runbooks");
        fs::create_dir_all(&runbooks).unwrap();
        fs::write(dir.path().join("project/prompt.md"), "hello").unwrap();
        fs::write(dir.path().join("secret.md"), "secret").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret.md"), runbooks.join("link.md")).unwrap();
        let path = runbooks.join("a.toml");
        fs::write(&path, format!("{RUNBOOK}prompt_file = {prompt_file:?}\n")).unwrap();
        (dir, path)
    }

    #[test]
    fn prompt_files_must_be_inside_the_project() {
        for (file, wrong) in [
            ("../../prompt.md", None),
            ("../../../secret.md", Some("it is outside of")),
            ("link.md", Some("it is outside of")),
            ("nothing.md", Some("No such file")),
            ("..", Some("it is not a file")),
        ] {
            let (dir, path) = world(file);
            let found = load_file(&path, Some(&dir.path().join("project")));
            match wrong {
                None => assert_eq!(found.unwrap().name, "a".into()),
                Some(words) => assert!(found.unwrap_err().to_string().contains(words), "{file}"),
            }
        }
        let (_dir, path) = world("../../prompt.md");
        assert!(load_file(&path, None).unwrap_err().to_string().contains("it is outside of"));
    }

    #[test]
    fn an_error_in_a_prompt_names_the_file_and_line_of_the_prompt() {
        let (dir, path) = world("../../prompt.md");
        fs::write(dir.path().join("project/prompt.md"), "a\n{{ nothing }}").unwrap();
        let wrong = load_file(&path, Some(&dir.path().join("project"))).unwrap_err().to_string();
        assert!(wrong.contains("runbooks/../../prompt.md:2:4"), "{wrong}");
    }

    #[test]
    fn files_that_are_too_large_or_no_text_are_refused() {
        let (dir, path) = world("../../prompt.md");
        let big = File::create(dir.path().join("big.toml")).unwrap();
        big.set_len(10_000_000).unwrap();
        let wrong = load_file(&dir.path().join("big.toml"), None).unwrap_err().to_string();
        assert!(wrong.contains("at most 1048576 bytes, this one has 10000000"), "{wrong}");
        fs::write(&path, b"description = \"a\"\nb = \"\xff\"").unwrap();
        let wrong = load_file(&path, None).unwrap_err().to_string();
        assert!(wrong.contains("a.toml:2:6") && wrong.contains("UTF-8"), "{wrong}");
        assert!(matches!(load_file(dir.path(), None), Err(RunbookError::Io { .. })));
    }
}
