//! What starting an agent executes: an agent reads settings of the repository that start programs, and acts with the
//! permission of its profile. So it starts only after its user has trusted exactly these values, as they are in the
//! directory where it is to run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use banksman_adapters::digest;
use banksman_agents::Profile;
use banksman_core::agent::AgentChoice;
use banksman_core::task::WorkspaceSpec;
use banksman_core::{Task, TaskId};

use super::work_of;
use crate::project::Project;
use crate::trust::Trust;
use crate::workspaces;

/// The longest file of a repository that can be trusted, in bytes.
const FILE_LIMIT: u64 = 64 << 20;

/// The most files of a directory that can be trusted.
const FILES_LIMIT: usize = 10_000;

/// Something that an agent is given or executes, trusted by its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    agent: String,
    /// The text for people.
    what: String,
    /// The same text without its location.
    pub(crate) key: String,
    pub(crate) value: Value,
}

/// The trusted value, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// A value of the profile.
    Given(String),
    /// The digest of a file or directory.
    Read(String),
    /// The file exists, but cannot be read.
    Unreadable(String),
}

impl Exposure {
    fn given(agent: &str, what: String, value: &str) -> Exposure {
        let key = format!("agent {agent}: {what}");
        Exposure { agent: agent.into(), what, key, value: Value::Given(value.into()) }
    }

    /// The agent and the description, for people.
    pub fn label(&self) -> String {
        format!("agent {}: {}", self.agent, self.description())
    }

    /// The text for people without the agent.
    pub(crate) fn description(&self) -> String {
        match &self.value {
            Value::Given(_) | Value::Read(_) => self.what.clone(),
            Value::Unreadable(why) => format!("{}: {why}", self.what),
        }
    }

    /// Whether it cannot be trusted at all.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.value, Value::Unreadable(_))
    }
}

impl Project {
    /// What an agent executes and may do in the checkout.
    pub fn exposures(&self, agent: &str) -> Vec<Exposure> {
        self.exposures_in(agent, self.root())
    }

    /// What an agent executes and may do in a directory.
    pub fn exposures_in(&self, agent: &str, directory: &Path) -> Vec<Exposure> {
        let Some((_, profile)) = self.config().agents.profiles.get(agent) else { return Vec::new() };
        let mut found = given(self, agent, profile);
        found.extend(read(agent, files(profile), self.root(), directory));
        found
    }

    /// The exposures in the checkout that are not trusted.
    pub fn untrusted_exposures(&self, agent: &str) -> Vec<Exposure> {
        self.untrusted(self.exposures(agent))
    }

    /// Whether what the settings of the project say of an agent, such as its program, is trusted. It is, too, if they
    /// say nothing.
    pub fn trusts_agent_section(&self, agent: &str) -> bool {
        self.untrusted(sections(self, agent)).is_empty()
    }

    fn untrusted(&self, exposures: Vec<Exposure>) -> Vec<Exposure> {
        let trust = Trust::of_user();
        let covers = |exposure: &Exposure| trust.as_ref().is_some_and(|trust| trust.covers_exposure(self.root(), exposure));
        exposures.into_iter().filter(|exposure| !covers(exposure)).collect()
    }

    /// The directory in which the agent of a task runs, if it exists.
    pub fn agent_directory(&self, task: &Task) -> Option<PathBuf> {
        match &task.spec.workspace {
            WorkspaceSpec::Checkout => Some(self.root().to_owned()),
            WorkspaceSpec::Cwd(directory) => Some(PathBuf::from(&**directory)),
            WorkspaceSpec::Dir | WorkspaceSpec::Worktree(_) | WorkspaceSpec::Shared { .. } => {
                workspaces::directory(self, task.spec.workspace.owner(&task.id)?)
            }
        }
    }
}

/// The agents that may do a task.
pub fn choices(task: &Task) -> &[AgentChoice] {
    work_of(task).map(|work| work.agents.as_slice()).unwrap_or_default()
}

/// What a profile gives an agent.
pub(super) fn given(project: &Project, agent: &str, profile: &Profile) -> Vec<Exposure> {
    let level = profile.level.as_str();
    iter::once(Exposure::given(agent, format!("permission level {level}"), level)).chain(sections(project, agent)).collect()
}

/// The sections of the project's settings for an agent and for the agents that it extends.
fn sections(project: &Project, agent: &str) -> Vec<Exposure> {
    let (mut found, mut names) = (Vec::new(), vec![agent.to_owned()]);
    while let Some(next) = names.get(found.len()) {
        let section = project.settings().project_agents().iter().find(|(name, _)| name == next);
        let Some((name, section)) = section else { break };
        found.push(Exposure::given(agent, format!("section [agent.{name}] of the project"), section));
        let base = extended(section).filter(|base| !names.contains(base));
        names.extend(base);
    }
    found
}

/// The agent that a section extends.
fn extended(section: &str) -> Option<String> {
    let section: serde_json::Value = serde_json::from_str(section).ok()?;
    section.get("extends")?.as_str().map(str::to_owned)
}

/// The files of a repository from which an agent executes something.
pub(super) fn files(profile: &Profile) -> &[String] {
    if profile.isolated && !profile.isolated_args.is_empty() { &[] } else { &profile.reads }
}

/// What an agent that starts in `directory` finds in these files. The programs also read them in the directories above,
/// up to the top of the repository.
pub(super) fn read(agent: &str, files: &[String], root: &Path, directory: &Path) -> Vec<Exposure> {
    let above = directory.ancestors().collect::<Vec<_>>();
    let is_top = |path: &&Path| *path == root || path.join(".git").symlink_metadata().is_ok();
    let levels = above.iter().rposition(is_top).map_or(1, |top| top + 1);
    let mut found = Vec::new();
    for (level, path) in above.into_iter().take(levels).enumerate() {
        for file in files {
            let path = path.join(file);
            let value = match value(&path) {
                Ok(value) => Value::Read(value),
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
                // An unreadable file is not the same as a missing one.
                Err(error) => Value::Unreadable(error.to_string()),
            };
            let what = match &value {
                Value::Read(_) if path.is_dir() => Some("programs".into()),
                Value::Read(_) => executes(&fs::read_to_string(&path).unwrap_or_default()),
                Value::Given(_) | Value::Unreadable(_) => None,
            };
            let what = what.map(|what| format!(" ({what})")).unwrap_or_default();
            let key = format!("agent {agent}: reads {file}{what}");
            let what = format!("reads {}{file}{what}", "../".repeat(level));
            found.push(Exposure { agent: agent.into(), what, key, value });
        }
    }
    found
}

/// Why an agent is not started where these are not trusted. The owner is that of its worktree, if it has one.
pub(super) fn refusal(agent: &str, untrusted: &[String], owner: Option<&TaskId>) -> String {
    let task = owner.map(|owner| format!(" --task {owner}")).unwrap_or_default();
    let all = untrusted.join("; ");
    format!("agent {agent} is not trusted here ({all}). See and trust it with: banksman trust --agent {agent}{task}")
}

/// The digest of a file, or of the names and contents of all that is in a directory.
fn value(path: &Path) -> io::Result<String> {
    let found = fs::metadata(path)?;
    if !found.is_dir() {
        return if found.is_file() { file_value(path) } else { Err(io::Error::other("it is no file")) };
    }
    let (mut entries, mut open) = (BTreeMap::new(), vec![path.to_owned()]);
    while let Some(directory) = open.pop() {
        // Only the directory itself may be missing: an entry that cannot be read counts as unreadable.
        for entry in fs::read_dir(&directory).map_err(io::Error::other)? {
            let entry = entry.map_err(io::Error::other)?.path();
            // A link to a directory above it would never end.
            if entries.len() >= FILES_LIMIT {
                return Err(io::Error::other(format!("it has more than {FILES_LIMIT} files")));
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

fn file_value(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_LIMIT + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_LIMIT {
        return Err(io::Error::other(format!("it is longer than {} MiB", FILE_LIMIT >> 20)));
    }
    Ok(digest::sha256(&[&text]))
}

/// What a settings file of an agent starts, as a short text.
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
    fn executes_names_hooks_and_servers() {
        let text = r#"{"hooks":{"SessionStart":[]},"mcpServers":{"db":{"command":"x"}}}"#;
        assert_eq!(executes(text).as_deref(), Some("hooks SessionStart; MCP servers db"));
        assert_eq!(executes("{}"), None);
        assert_eq!(executes("not JSON"), None);
    }

    #[test]
    fn read_searches_up_to_the_top_of_the_repository() {
        let dir = tempfile::tempdir().unwrap();
        let (top, project) = (dir.path().join("repo"), dir.path().join("repo/part"));
        let inner = project.join(".banksman/workspaces/t-1");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir(top.join(".git")).unwrap();
        for above in [dir.path(), &top, &project] {
            fs::write(above.join(".mcp.json"), "{}").unwrap();
        }
        let found = |directory: &Path| {
            let found = read("a", &[".mcp.json".into()], &project, directory);
            found.iter().map(Exposure::description).collect::<Vec<_>>()
        };
        assert_eq!(found(&project), ["reads .mcp.json", "reads ../.mcp.json"]);
        // A `.git` file above the directories of tasks does not stop every program.
        fs::write(inner.parent().unwrap().join(".git"), "").unwrap();
        assert_eq!(found(&inner), ["reads ../../../.mcp.json", "reads ../../../../.mcp.json"]);
        assert_eq!(found(dir.path()), ["reads .mcp.json"], "outside of a repository only the directory itself");
        let keys: Vec<String> = read("a", &[".mcp.json".into()], &project, &inner).into_iter().map(|found| found.key).collect();
        assert_eq!(keys[0], keys[1], "the same is trusted wherever it lies");
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
            assert_ne!(value(&at("")).unwrap_err().kind(), io::ErrorKind::NotFound, "it is not missing");
            fs::remove_file(at("link")).unwrap();
        }
    }
}
