//! Changing one key in a file, and nothing else in it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::layers::{line_of, not_toml};
use super::{Config, ConfigError, FORMER, Home, Key, Layer, Problem, Source, unknown_key};
use crate::project::{ProjectError, io_at};

/// Sets a key in the file of the user or of a project. Comments, order and everything else stay as they are; the
/// file is replaced at once or not at all.
pub fn set(layer: Layer, path: &Path, name: &str, value: &str) -> Result<&'static Key, ProjectError> {
    let key = check(layer, name, value)?;
    change(layer, path, key.name, Some(value.into()))?;
    // A former name would be read as well.
    for (former, _) in FORMER.iter().filter(|(_, name)| *name == key.name) {
        change(layer, path, former, None)?;
    }
    Ok(key)
}

/// Removes a key from the file of the user or of a project, so that its default or another layer applies.
pub fn unset(layer: Layer, path: &Path, name: &str) -> Result<&'static Key, ProjectError> {
    let key = Key::find(name).ok_or_else(|| super::unknown_key(name))?;
    let formers = FORMER.iter().filter(|(_, name)| *name == key.name).map(|(former, _)| *former);
    for name in formers.chain([key.name]).filter(|_| path.exists()) {
        change(layer, path, name, None)?;
    }
    Ok(key)
}

/// Writes or removes a key of a project's file that people do not set.
pub(crate) fn record(path: &Path, name: &str, value: Option<Value>) -> Result<(), ProjectError> {
    change(Layer::Project, path, name, value)
}

fn change(layer: Layer, path: &Path, name: &str, value: Option<Value>) -> Result<(), ProjectError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io_at(folder))?;
    // A link, as dotfile managers make them, stays a link.
    let path = &path.canonicalize().unwrap_or_else(|_| path.into());
    let folder = path.parent().unwrap_or(folder);
    let lock = File::open(folder).map_err(io_at(folder))?;
    // Where a directory cannot be locked, as on NFS, the last of two concurrent writers wins.
    lock.lock().ok();
    let (text, mode) = match fs::read_to_string(path) {
        Ok(text) => (text, fs::metadata(path).map_err(io_at(path))?.permissions().mode()),
        // The user's file may contain a password; the project's file is for everyone with the repository.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (String::new(), if layer == Layer::User { 0o600 } else { 0o644 })
        }
        Err(error) => return Err(io_at(path)(error)),
    };
    let source = if layer == Layer::User { Source::User(path.into()) } else { Source::Project(path.into()) };
    let problem = |line, what| ConfigError::from(Problem { source: Some(source), line, key: Some(name.into()), what });
    let edited = match text.parse::<DocumentMut>() {
        Ok(document) => edit(document, name, value).map_err(|what| problem(None, what))?,
        Err(error) => return Err(problem(error.span().map(|span| line_of(&text, span.start)), not_toml(&error)).into()),
    };
    replace(path, folder, &edited, mode).map_err(io_at(path))
}

/// Refuses a value that could not be read back.
fn check(layer: Layer, name: &str, value: &str) -> Result<&'static Key, ConfigError> {
    let problem = |what| ConfigError::from(Problem { source: None, line: None, key: Some(name.into()), what });
    let key = Key::find(name).ok_or_else(|| unknown_key(name))?;
    if key.home == Home::Init {
        return Err(problem("banksman writes it, and it is not set by hand".into()));
    }
    key.admit(layer).and_then(|()| key.assign(&mut Config::default(), value)).map_err(problem)?;
    Ok(key)
}

fn edit(mut document: DocumentMut, name: &str, value: Option<Value>) -> Result<String, String> {
    let (sections, leaf) = name.rsplit_once('.').unwrap_or(("", name));
    let Some(mut value) = value else {
        remove(document.as_table_mut(), &name.split('.').collect::<Vec<_>>());
        return Ok(document.to_string());
    };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for section in sections.split('.').filter(|section| !section.is_empty()) {
        let item = table.entry(section).or_insert_with(|| Item::Table(Table::new()));
        table = item.as_table_like_mut().ok_or_else(|| format!("{section} is not a section in this file"))?;
    }
    match table.get_mut(leaf) {
        Some(Item::Value(old)) => {
            // Keep the blanks before the value and the comment after it.
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        Some(_) => return Err("it is a section in this file".into()),
        None => {
            table.insert(leaf, Item::Value(value));
        }
    }
    Ok(document.to_string())
}

/// Removes a key, and the sections that are then empty and without comments.
fn remove(table: &mut dyn TableLike, path: &[&str]) {
    match path {
        [] => {}
        [leaf] => drop(table.remove(leaf)),
        [section, rest @ ..] => {
            let Some(item) = table.get_mut(section) else { return };
            let Some(inner) = item.as_table_like_mut() else { return };
            remove(inner, rest);
            let is_empty = inner.is_empty();
            let decor = item.as_table().map(Table::decor);
            let comments = decor.into_iter().flat_map(|decor| [decor.prefix(), decor.suffix()]).flatten();
            if is_empty && comments.filter_map(|comment| comment.as_str()).all(|comment| comment.trim().is_empty()) {
                table.remove(section);
            }
        }
    }
}

/// Writes a file beside it and renames that over it, so that no reader ever sees half of it.
fn replace(path: &Path, folder: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".config-").suffix(".toml").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: &str, name: &str, value: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/config.toml");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, before).unwrap();
        set(Layer::User, &path, name, value).unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn set_keeps_the_rest_of_the_file() {
        let before = "# top\n\n[locking]   # the section\n# before\nwait_timeout   =  \"5m\"  # five\n\n# end\n";
        assert_eq!(after(before, "locking.wait_timeout", "90s"), before.replace("\"5m\"", "\"90s\""));
        assert_eq!(after(before, "locking.poll_interval", "1s"), before.replace("# five\n", "# five\npoll_interval = \"1s\"\n"));
        let url = "postgres://db/x";
        assert_eq!(after("[locking]\n", "store", url), format!("store = \"{url}\"\n[locking]\n"));
        assert_eq!(after("", "locking.poll_interval", "1s"), "[locking]\npoll_interval = \"1s\"\n");
        assert_eq!(after("store = 'x'", "locking.poll_interval", "1s"), "store = 'x'\n\n[locking]\npoll_interval = \"1s\"\n");
        assert_eq!(after("locking = {}", "locking.poll_interval", "1s"), "locking = { poll_interval = \"1s\" }\n");
        assert_eq!(
            after("locking.wait_timeout = '1m' # one\n", "locking.wait_timeout", "2m"),
            "locking.wait_timeout = \"2m\" # one\n"
        );
    }

    #[test]
    fn removing_a_key_keeps_comments_and_drops_empty_sections() {
        for (before, after) in [
            ("a = 1\n\n[locking]\nwait_timeout = '1m'\n", "a = 1\n"),
            ("[locking] # ours\nwait_timeout = '1m'\n", "[locking] # ours\n"),
            ("# ours\n[locking]\nwait_timeout = '1m'\n", "# ours\n[locking]\n"),
            ("[locking]\nwait_timeout = '1m'\nttl = '1m'\n", "[locking]\nttl = '1m'\n"),
            ("a = 1\n", "a = 1\n"),
        ] {
            assert_eq!(edit(before.parse().unwrap(), "locking.wait_timeout", None).unwrap(), after, "{before:?}");
        }
    }

    #[test]
    fn mode_and_link_are_kept_and_a_new_file_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (new, old, link) = (dir.path().join("a/b/new"), dir.path().join("old"), dir.path().join("link"));
        set(Layer::User, &new, "store", "postgres://db/x").unwrap();
        assert_eq!((mode(&new), mode(new.parent().unwrap())), (0o600, 0o700));
        fs::write(&old, "").unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&old, &link).unwrap();
        set(Layer::Project, &link, "locking.wait_timeout", "1s").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!((mode(&old), fs::read_to_string(&old).unwrap().contains("1s")), (0o640, true));
    }

    #[test]
    fn set_refuses_a_value_that_could_not_be_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        for (layer, before, name, value, words) in [
            (Layer::User, "", "locking.wait", "5s", "did you mean locking.wait_timeout?"),
            (Layer::User, "", "locking", "5s", "this is a section"),
            (Layer::User, "", "locking.wait_timeout", "5", "has no unit"),
            (Layer::Project, "", "project", "p", "not set by hand"),
            (Layer::Project, "", "store", "postgres://db/x", "--user"),
            (Layer::User, "", "store", "mysql://me:secret@db/x", "must begin with postgres://"),
            (Layer::User, "", "store", "postgres://me:secret@db:port/x", "it cannot be understood: invalid"),
            (
                Layer::User,
                "a = 1\nb = \n",
                "locking.wait_timeout",
                "5s",
                "config.toml:2: locking.wait_timeout: this is not valid TOML",
            ),
            (Layer::User, "locking = 5\n", "locking.wait_timeout", "5s", "locking is not a section"),
        ] {
            fs::write(&path, before).unwrap();
            let error = set(layer, &path, name, value).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("secret"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), before);
        }
    }

    #[test]
    fn concurrent_sets_keep_all_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::thread::scope(|scope| {
            for name in ["locking.wait_timeout", "locking.poll_interval", "locking.heartbeat_timeout"] {
                let path = &path;
                scope.spawn(move || set(Layer::User, path, name, "7s").unwrap());
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap().matches("7s").count(), 3);
    }
}
