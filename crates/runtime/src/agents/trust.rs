//! What starting an agent executes: an agent reads settings of the repository that start programs, and acts with the permission of its
//! profile. So it starts only after its user has trusted these very things.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

use banksman_adapters::digest;

use crate::project::Project;
use crate::trust::Trust;

/// The longest file of a repository that is looked at.
const FILE_LIMIT: u64 = 1 << 20;

/// The most files of a directory that are looked at.
const FILES_LIMIT: usize = 1_000;

/// Something that an agent is given or executes, which its user trusts by its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// What it is, for people.
    pub label: String,
    /// Its value: that very one is trusted.
    pub value: String,
}

impl Project {
    /// What an agent executes and may do here.
    pub fn exposures(&self, agent: &str) -> Vec<Exposure> {
        let Some((_, profile)) = self.config().agents.profiles.get(agent) else { return Vec::new() };
        let level = profile.level.as_str();
        let mut found = vec![Exposure { label: format!("agent {agent}: permission level {level}"), value: level.into() }];
        for (name, section) in self.settings().project_agents().iter().filter(|(name, _)| name == agent) {
            found
                .push(Exposure { label: format!("agent {name}: section [agent.{name}] of the project"), value: section.clone() });
        }
        if profile.isolated && !profile.isolated_args.is_empty() {
            return found;
        }
        for file in &profile.reads {
            let path = self.root().join(file);
            // What cannot be read is not the same as nothing.
            let value = match value(&path) {
                Ok(value) => value,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => "cannot be read".into(),
            };
            let text = fs::read_to_string(&path).unwrap_or_default();
            let what = if path.is_dir() { Some("programs".into()) } else { executes(&text) };
            let what = what.map(|what| format!(" ({what})")).unwrap_or_default();
            found.push(Exposure { label: format!("agent {agent}: reads {file}{what}"), value });
        }
        found
    }

    /// Those of them that are not trusted.
    pub fn untrusted_exposures(&self, agent: &str) -> Vec<Exposure> {
        let trust = Trust::of_user();
        let covers = |exposure: &Exposure| trust.as_ref().is_some_and(|trust| trust.covers_exposure(self.root(), exposure));
        self.exposures(agent).into_iter().filter(|exposure| !covers(exposure)).collect()
    }
}

/// The digest of a file, or of the names and contents of all that is in a directory.
fn value(path: &Path) -> io::Result<String> {
    let found = fs::metadata(path)?;
    if !found.is_dir() {
        let is_small = found.is_file() && found.len() <= FILE_LIMIT;
        return if is_small { Ok(digest::sha256(&[&fs::read(path)?])) } else { Err(io::ErrorKind::FileTooLarge.into()) };
    }
    let (mut entries, mut open) = (BTreeMap::new(), vec![path.to_owned()]);
    while let Some(directory) = open.pop() {
        // Only a directory that is not there is none: what is in it and cannot be read is something.
        for entry in fs::read_dir(&directory).map_err(io::Error::other)? {
            let entry = entry.map_err(io::Error::other)?.path();
            // Whoever links to a directory from within it could go on for ever.
            if entries.len() >= FILES_LIMIT {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let digest = if entry.is_dir() { String::new() } else { value(&entry).map_err(io::Error::other)? };
            open.extend(entry.is_dir().then(|| entry.clone()));
            entries.insert(entry, digest);
        }
    }
    let parts = entries.iter().flat_map(|(entry, digest)| {
        let name = entry.strip_prefix(path).unwrap_or(entry).as_os_str().as_bytes();
        [name, b"\0", digest.as_bytes(), b"\0"]
    });
    Ok(digest::sha256(&parts.collect::<Vec<_>>()))
}

/// What a settings file of an agent starts, in a few words.
fn executes(text: &str) -> Option<String> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    let names = |key: &str| json.get(key).and_then(|value| value.as_object()).map(|map| map.keys().cloned().collect::<Vec<_>>());
    let hooks = names("hooks").filter(|names| !names.is_empty()).map(|names| format!("hooks {}", names.join(", ")));
    let servers = names("mcpServers").or_else(|| names("mcp")).filter(|names| !names.is_empty());
    let servers = servers.map(|names| format!("MCP servers {}", names.join(", ")));
    let parts: Vec<String> = hooks.into_iter().chain(servers).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_and_servers_are_named() {
        let text = r#"{"hooks":{"SessionStart":[]},"mcpServers":{"db":{"command":"x"}}}"#;
        assert_eq!(executes(text).as_deref(), Some("hooks SessionStart; MCP servers db"));
        assert_eq!(executes("{}"), None);
        assert_eq!(executes("not JSON"), None);
    }

    #[test]
    fn every_file_of_a_directory_is_part_of_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join("plugin").join(name);
        assert_eq!(value(&at("")).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir_all(at("deep")).unwrap();
        let mut seen = vec![value(&at("")).unwrap()];
        for (name, text) in [("a.js", "1"), ("a.js", "2"), ("deep/b.js", "1"), ("deep/c.js", "1")] {
            fs::write(at(name), text).unwrap();
            let now = value(&at("")).unwrap();
            assert!(!seen.contains(&now), "{name} {text}");
            seen.push(now);
        }
        fs::rename(at("deep/c.js"), at("c.js")).unwrap();
        assert!(!seen.contains(&value(&at("")).unwrap()));
        for target in [dir.path().join("plugin"), dir.path().join("nowhere")] {
            std::os::unix::fs::symlink(target, at("link")).unwrap();
            assert_ne!(value(&at("")).unwrap_err().kind(), io::ErrorKind::NotFound, "it is not nothing");
            fs::remove_file(at("link")).unwrap();
        }
    }
}
