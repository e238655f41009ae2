//! Checks what an agent would execute, inside of its session: in the directory where it is to run, after that was
//! prepared, and right before the program starts. A worktree may differ from the checkout: its base brings settings of
//! its own, and so does an agent that has worked there.
//!
//! If everything is trusted, this process becomes the program. If not, it reports that to the store and exits without
//! starting the program.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use banksman_agents::Profile;
use banksman_core::task::Verdict;
use banksman_core::{Epoch, TaskId};
use banksman_engine::{TaskRequest, Work};
use serde::{Deserialize, Serialize};

use super::trust;
use crate::guarded::{become_program, patiently, report};
use crate::project::Project;
use crate::trust::{Trust, exposure_hash, real};
use crate::workspaces::say;

/// The hidden first argument.
const MARK: &str = "__agent";

/// What is checked: the profile with which the command line was built, whatever the settings are by now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    agent: String,
    task: TaskId,
    epoch: Epoch,
    /// The owner of the worktree.
    owner: Option<TaskId>,
    /// What the profile gives the agent: a description for people, and the hash by which it is trusted.
    given: Vec<(String, String)>,
    /// The files that the program executes something from.
    reads: Vec<String>,
}

impl Terms {
    pub(super) fn new(project: &Project, work: &Work, agent: &str, profile: &Profile) -> Terms {
        let root = real(project.root());
        let hashed = |found: &trust::Exposure| Some((found.description(), exposure_hash(&root, found)?));
        let owner = work.task.spec.workspace.owner(&work.task.id);
        Terms {
            agent: agent.into(),
            task: work.task.id.clone(),
            epoch: work.run.epoch,
            owner: owner.cloned(),
            given: trust::given(project, agent, profile).iter().filter_map(hashed).collect(),
            reads: trust::files(profile).to_vec(),
        }
    }

    /// The command line that runs this check and then becomes `argv`.
    pub(crate) fn argv(&self, project: &Project, argv: Vec<OsString>) -> Vec<OsString> {
        let terms = serde_json::to_string(self).expect("plain data has a JSON form");
        // The agent may be given another home.
        let trust = Trust::of_user().map(|trust| trust.folder().as_os_str().to_owned()).unwrap_or_default();
        let words: [&OsStr; 5] = ["/proc/self/exe".as_ref(), MARK.as_ref(), project.root().as_ref(), &trust, terms.as_ref()];
        words.into_iter().map(OsStr::to_owned).chain(argv).collect()
    }
}

/// A check parsed from a command line.
pub(crate) struct StartCheck {
    root: PathBuf,
    trust: PathBuf,
    terms: Terms,
}

impl StartCheck {
    /// Splits a command line into its check and the rest.
    pub(crate) fn take(argv: &[OsString]) -> Option<(StartCheck, &[OsString])> {
        let [_, mark, root, trust, terms, argv @ ..] = argv else { return None };
        let terms = Some(terms).filter(|_| mark == MARK).and_then(|terms| serde_json::from_str(terms.to_str()?).ok())?;
        Some((StartCheck { root: root.into(), trust: trust.into(), terms }, argv))
    }

    /// Checks what an agent finds in a directory. If it must not start there, reports that to the store and returns the
    /// message for the log.
    pub(crate) fn refusal(&self, directory: &Path) -> Option<String> {
        let StartCheck { root, trust, terms } = self;
        let (root, trust) = (real(root), Trust::in_folder(trust));
        let given = terms.given.iter().filter(|(_, hash)| !trust.covers_hash(&root, hash)).map(|(what, _)| what.clone());
        let read = trust::read(&terms.agent, &terms.reads, &root, directory).into_iter();
        let read = read.filter(|found| !trust.covers_exposure(&root, found)).map(|found| found.description());
        let untrusted: Vec<String> = given.chain(read).collect();
        if untrusted.is_empty() {
            return None;
        }
        let said = trust::refusal(&terms.agent, &untrusted, terms.owner.as_ref());
        let verdict = Verdict::Untrusted { error: said.as_str().into() };
        let request = TaskRequest::Conclude { id: terms.task.clone(), epoch: Some(terms.epoch), by: None, verdict };
        let reported = patiently(|| {
            let project = Project::find(&self.root).map_err(|error| error.to_string())?;
            report(&project.open().map_err(|error| error.to_string())?, request.clone())
        });
        Some(match reported {
            Ok(()) => said,
            Err(error) => format!("{said} (and the store cannot be told: {error})"),
        })
    }
}

/// Runs the check and becomes the agent, if the command line of this process asks for that.
pub(crate) fn enter(args: &[OsString]) -> Option<ExitCode> {
    let (check, argv) = StartCheck::take(args)?;
    let refusal = match std::env::current_dir() {
        Ok(directory) => check.refusal(&directory),
        Err(error) => Some(format!("the directory of this run is not there: {error}")),
    };
    say(&refusal.unwrap_or_else(|| become_program(argv)));
    Some(ExitCode::FAILURE)
}
