//! What a user trusts of that which comes with a repository.
//!
//! `.banksman/config.toml` may be committed, so a command in it may be written by anybody. It does nothing until the
//! user has said that this very value is fine for the project at this very path. That is kept with the user's state,
//! where no repository can put it: one file per project, a line per setting, as hashes.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use banksman_adapters::digest;

use crate::config::Foreign;
use crate::project::{ProjectError, io_at, state_dir};

/// What the user trusts of one project.
#[derive(Debug, Clone)]
pub struct Trust {
    root: PathBuf,
    file: PathBuf,
}

impl Trust {
    /// For the project at `root`; `None` if there is no place for the user's state, and so no trust.
    pub fn of(root: &Path) -> Option<Trust> {
        Some(Trust::at(&state_dir()?, root))
    }

    /// The same, with the place of the state given.
    pub fn at(state_dir: &Path, root: &Path) -> Trust {
        let root = root.canonicalize().unwrap_or_else(|_| root.into());
        let file = state_dir.join("trust").join(digest::sha256(&[root.as_os_str().as_bytes()]));
        Trust { root, file }
    }

    /// Whether the user trusts this value. What cannot be read is not trusted.
    pub fn covers(&self, foreign: &Foreign) -> bool {
        let line = self.line(foreign);
        fs::read_to_string(&self.file).is_ok_and(|text| text.lines().any(|known| known == line))
    }

    /// Trusts these values, and no others any more. The file is replaced at once or not at all.
    pub fn grant(&self, all: &[Foreign]) -> Result<(), ProjectError> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io_at(folder))?;
        let lines: String = all.iter().map(|foreign| self.line(foreign) + "\n").collect();
        let write = || {
            // It is made for its owner only.
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            // For people: which project this is.
            write!(file, "# {:?}\n{lines}", self.root)?;
            file.as_file().sync_all()?;
            file.persist(&self.file).map(drop).map_err(|error| error.error)
        };
        write().map_err(io_at(&self.file))
    }

    /// Trusts nothing any more.
    pub fn revoke(&self) -> Result<(), ProjectError> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_at(&self.file)(error)),
            _ => Ok(()),
        }
    }

    /// The path is a part of it, so that a line means nothing in another file.
    fn line(&self, foreign: &Foreign) -> String {
        let name = foreign.key.name;
        format!("{} {name}", digest::sha256(&[self.root.as_os_str().as_bytes(), name.as_bytes(), foreign.value.as_bytes()]))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::Key;

    fn command(value: &str) -> Foreign {
        Foreign { key: Key::find("notify.command").unwrap(), value: value.into() }
    }

    #[test]
    fn only_this_value_of_this_project_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let (state, here, there) = (dir.path().join("state"), dir.path().join("here"), dir.path().join("there"));
        fs::create_dir(&here).unwrap();
        let trust = Trust::at(&state, &here);
        assert!(!trust.covers(&command("make tea")));
        trust.grant(&[command("make tea")]).unwrap();
        assert!(trust.covers(&command("make tea")));
        assert!(!trust.covers(&command("make tea ")), "every letter counts");
        let same = Foreign { key: Key::find("notify.webhook").unwrap(), value: "make tea".into() };
        assert!(!trust.covers(&same), "another key");
        let other = Trust::at(&state, &there);
        fs::copy(&trust.file, &other.file).unwrap();
        assert!(!other.covers(&command("make tea")), "another project");

        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&trust.file), mode(trust.file.parent().unwrap())), (0o600, 0o700));
        assert!(!fs::read_to_string(&trust.file).unwrap().contains("tea"), "only hashes are kept");

        trust.grant(&[command("make coffee")]).unwrap();
        assert!(!trust.covers(&command("make tea")));
        trust.revoke().unwrap();
        trust.revoke().unwrap();
        assert!(!trust.covers(&command("make coffee")));
    }

    #[test]
    fn a_project_is_known_by_its_real_path() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        Trust::at(dir.path(), &link).grant(&[command("x")]).unwrap();
        assert!(Trust::at(dir.path(), &real).covers(&command("x")));
    }
}
