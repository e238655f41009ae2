//! The check that work must pass before it lands: given, stored, or proposed from the files of the project.

use std::fs;
use std::path::Path;

use banksman_runtime::config::{self, Layer};
use banksman_runtime::{Project, landing};

use super::setup::{asks, is_on_terminal};
use crate::commands::trust::trust_also;
use crate::context::Context;
use crate::failure::Failure;

/// Stores the check that was given, or that the user agrees to.
pub(super) fn store(context: &Context, project: Project, given: Option<&str>) -> Result<Project, Failure> {
    let is_set = project.config().landing.check.is_some();
    let proposed = || proposed(project.root()).filter(|_| is_on_terminal() && landing::lander(&project).is_ok());
    let check = match given {
        Some(check) => check.to_owned(),
        None if is_set => return Ok(project),
        None => match proposed().filter(|check| asks(context, &format!("run `{check}` before work lands?"))) {
            Some(check) => check.to_owned(),
            None => return Ok(project),
        },
    };
    config::set(Layer::Project, &project.folder().join("config.toml"), "landing.check", &check)?;
    // Giving a command here trusts it.
    trust_also(context, &project, |foreign| foreign.key.name == "landing.check", Vec::new())?;
    context.project()
}

/// The check that the files of a project suggest.
fn proposed(root: &Path) -> Option<&'static str> {
    let text = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let is_there = |file: &str| root.join(file).is_file();
    let has_target = |file: &str| text(file).lines().any(|line| line.starts_with("test:"));
    let has_script = || {
        let package: Option<serde_json::Value> = serde_json::from_str(&text("package.json")).ok();
        package.is_some_and(|package| package["scripts"]["test"].is_string())
    };
    match () {
        () if has_target("Makefile") || has_target("makefile") => Some("make test"),
        () if is_there("Cargo.toml") => Some("cargo test"),
        () if has_script() => Some("npm test"),
        () if is_there("pytest.ini") || text("pyproject.toml").contains("pytest") => Some("pytest"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_suggest_a_check_that_can_work() {
        let dir = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
        assert_eq!(proposed(dir.path()), None);
        put("pyproject.toml", "[tool.pytest.ini_options]");
        assert_eq!(proposed(dir.path()), Some("pytest"));
        put("package.json", r#"{"scripts": {"build": "x"}}"#);
        assert_eq!(proposed(dir.path()), Some("pytest"), "without a script test, npm has nothing to run");
        put("package.json", r#"{"scripts": {"test": "jest"}}"#);
        assert_eq!(proposed(dir.path()), Some("npm test"));
        put("Cargo.toml", "");
        assert_eq!(proposed(dir.path()), Some("cargo test"));
        put("Makefile", "build:\n\tcc\n");
        assert_eq!(proposed(dir.path()), Some("cargo test"), "without a target test, make has nothing to do");
        put("Makefile", "test: build\n\t./test\n");
        assert_eq!(proposed(dir.path()), Some("make test"));
    }
}
