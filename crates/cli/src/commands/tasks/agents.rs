//! The work of agents, from command lines and files.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use banksman_agents::Profile;
use banksman_core::agent::{AgentChoice, AgentWork, PROMPT_LIMIT};
use banksman_core::task::Work;
use banksman_core::{Name, Task, suggest};
use banksman_runtime::Project;
use banksman_runtime::config::Config;

use crate::exit_codes as exit;
use crate::failure::Failure;

/// The work of these agents, whose names are separated by commas.
pub(crate) fn work(config: &Config, names: &str, prompt: String) -> Result<Work, Failure> {
    let mut agents: Vec<AgentChoice> = Vec::new();
    for name in names.split(',') {
        let choice = choice(config, name.trim())?;
        if agents.iter().any(|known| known.agent == choice.agent) {
            return Err(Failure::usage(format!("--agent names {} twice", choice.agent)));
        }
        agents.push(choice);
    }
    Ok(Work::Agent(Arc::new(AgentWork { agents, on_quota: config.agents.on_quota, prompt: prompt.into(), is_revised: false })))
}

fn choice(config: &Config, name: &str) -> Result<AgentChoice, Failure> {
    let profiles = &config.agents.profiles;
    let Some((agent, profile)) = profiles.get(name) else { return Err(unknown(config, name)) };
    let account = account(name, profile)?;
    Ok(AgentChoice { agent: agent.clone(), account, model: profile.model.as_deref().map(Into::into) })
}

/// The account of an agent.
pub(crate) fn account(name: &str, profile: &Profile) -> Result<Name, Failure> {
    Name::new(&profile.account).map_err(|error| Failure::usage(format!("account of agent {name}: {error}")))
}

/// The failure for an unknown agent, with a similar name if there is one.
pub(crate) fn unknown(config: &Config, name: &str) -> Failure {
    let known: Vec<&str> = config.agents.profiles.names().collect();
    let near = suggest::closest(name, known.iter().copied());
    let hint = near.map_or_else(|| format!("known agents: {}", known.join(", ")), |near| format!("did you mean {near}?"));
    Failure::new(exit::NOT_FOUND, "AGENT_NOT_FOUND", format!("there is no agent {name:?}")).detail("agent", &name).hint(hint)
}

/// The prompt from `--prompt` or `--spec`.
pub(crate) fn prompt(text: Option<&str>, file: Option<&Path>) -> Result<String, Failure> {
    let read = |path: &Path| {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            return std::io::stdin().take(PROMPT_LIMIT as u64 + 1).read_to_string(&mut text).map(|_| text);
        }
        std::fs::read_to_string(path)
    };
    let cannot = |path: &Path, error| Failure::usage(format!("--spec {}: {error}", path.display()));
    let prompt = match (text, file) {
        (Some(text), _) => text.to_owned(),
        (None, Some(path)) => read(path).map_err(|error| cannot(path, error))?,
        (None, None) => String::new(),
    };
    if prompt.len() > PROMPT_LIMIT {
        let message = format!("a prompt may have at most {PROMPT_LIMIT} bytes, this one has {}", prompt.len());
        return Err(Failure::usage(message).hint("name the file in the prompt, and let the agent read it"));
    }
    Ok(prompt)
}

/// A note if an agent of the task is not trusted yet.
pub(crate) fn untrusted(project: &Project, task: &Task) -> Option<String> {
    let Some(Work::Agent(work)) = &task.spec.work else { return None };
    let untrusted = work.agents.iter().find(|choice| !project.untrusted_exposures(choice.agent.as_str()).is_empty())?;
    Some(format!("agent {} is not trusted here yet: banksman trust --agent {}", untrusted.agent, work.names()))
}
