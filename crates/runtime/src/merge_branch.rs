//! The merge of a branch, as the command of a session. It is not a public command: a runbook asks for it.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use banksman_adapters::git::{self, MergeError};
use banksman_core::pipeline::plan::MergeHow;
use serde_json::json;

use crate::project::Project;

/// The hidden first argument.
const MARK: &str = "__merge-branch";

/// The command line of a merge. It starts the keeper's own executable, whose `main` calls [`enter`](crate::enter).
pub(crate) fn argv(project: &Project, branch: &str, into: &str, how: MergeHow) -> Vec<OsString> {
    let (root, folder) = (project.root().as_os_str(), project.folder().as_os_str());
    let words: [&OsStr; 7] =
        ["/proc/self/exe".as_ref(), MARK.as_ref(), how.as_str().as_ref(), root, folder, branch.as_ref(), into.as_ref()];
    words.map(OsStr::to_owned).into()
}

/// Merges a branch, if the command line of this process asks for that.
pub(crate) fn enter(args: &[OsString]) -> Option<ExitCode> {
    let [_, mark, how, root, folder, branch, into] = args else { return None };
    if mark != MARK {
        return None;
    }
    let (how, branch, into) = (how.to_string_lossy(), branch.to_string_lossy(), into.to_string_lossy());
    let how = MergeHow::ALL.into_iter().find(|known| known.as_str() == how)?;
    Some(match merge(Path::new(root), Path::new(folder), &branch, &into, how) {
        Ok(lines) => {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            if std::io::stdout().write_all(text.as_bytes()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            // No prefix: a strategy compares the beginning of the line. If stderr cannot be written, the exit status
            // remains.
            writeln!(std::io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    })
}

/// Merges `branch` into `into` in the repository at `root`. Returns what to print; the last line is the result of the run.
pub fn merge(root: &Path, folder: &Path, branch: &str, into: &str, how: MergeHow) -> Result<Vec<String>, MergeError> {
    let merged = git::merge(root, &folder.join("workspaces"), branch, into, how)?;
    let how = how.as_str();
    let mut lines = vec![if merged.has_moved() {
        format!("merged {branch} into {into} ({how}): from {} to {}", merged.before, merged.commit)
    } else {
        format!("all of {branch} is in {into} already")
    }];
    let checkout = merged.checkout.as_ref().filter(|_| merged.has_moved());
    lines.extend(checkout.map(|checkout| format!("the checkout at {} moved along", checkout.display())));
    let saved = merged.saved.as_ref().map(|folder| folder.display().to_string());
    lines.extend(
        saved.map(|folder| format!("files that were changed in the moment in which the checkout moved are kept in {folder}")),
    );
    lines.push(json!({ "merged": true, "how": how, "commit": merged.commit }).to_string());
    Ok(lines)
}
