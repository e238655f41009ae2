//! What starting an agent executes: an agent reads settings of the repository that start programs, and acts with the permission of its
//! profile. So it starts only after its user has trusted these very things.

use std::fs;

use banksman_adapters::digest;

use crate::project::Project;
use crate::trust::Trust;

/// The longest file of a repository that is looked at.
const FILE_LIMIT: u64 = 1 << 20;

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
            let is_small = fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() <= FILE_LIMIT);
            // A file that cannot be read is not the same as none.
            let value = match fs::read(&path) {
                Ok(bytes) if is_small => digest::sha256(&[&bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Ok(_) | Err(_) => "cannot be read".into(),
            };
            let text = fs::read_to_string(&path).unwrap_or_default();
            let what = executes(&text).map(|what| format!(" ({what})")).unwrap_or_default();
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
}
