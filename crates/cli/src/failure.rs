//! Failures of commands: a code for programs, a message and a hint for people, and an exit status, all in one place.

use banksman_runtime::caller::CallerError;
use banksman_runtime::config::{ConfigError, Problem, Source};
use banksman_runtime::workspaces::WorkspaceError;
use banksman_runtime::{Error, ProjectError, RunbookError};
use banksman_store::StoreError;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::exit_codes as exit;
use crate::format;
use crate::terminal;
use crate::views;
use crate::views::problems::{RunbookProblem, SettingProblem};

#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    #[serde(skip)]
    pub(crate) exit: u8,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The objects of the message, by name.
    pub(crate) details: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// Text before the message, such as the lines of a file.
    #[serde(skip)]
    pub(crate) body: Option<Box<str>>,
}

impl Failure {
    pub(crate) fn new(exit: u8, code: &'static str, message: impl Into<String>) -> Failure {
        Failure { exit, code, message: message.into(), details: Map::new(), hint: None, body: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn body(mut self, body: String) -> Failure {
        self.body = Some(body.into());
        self
    }

    /// Sets the details to all fields of a view.
    pub(crate) fn details(mut self, view: &impl Serialize) -> Failure {
        if let Value::Object(fields) = views::value(view) {
            self.details = fields;
        }
        self
    }

    /// Adds a detail.
    pub(crate) fn detail(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Failure {
        self.details.insert(name.to_owned(), views::value(value));
        self
    }

    /// Prefixes the message with a place, such as "--run".
    pub(crate) fn at(mut self, place: &str) -> Failure {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// A system error while doing something, such as "start the command".
    pub(crate) fn system(what: &str, error: impl std::fmt::Display) -> Failure {
        Failure::new(exit::ERROR, "SYSTEM", format!("could not {what}: {error}"))
    }

    /// An outcome that this request cannot have.
    pub(crate) fn unexpected(answer: &impl std::fmt::Debug) -> Failure {
        Failure::new(exit::ERROR, "UNEXPECTED", format!("unexpected response of the store: {answer:?}"))
            .hint("this is a bug in banksman; please report it with this message")
    }

    /// A run that cannot be ended from this machine.
    pub(crate) fn elsewhere(run: &banksman_core::backlog::Run) -> Failure {
        let message = format!("run {} is on another machine, which has no runner to end it", run.id);
        Failure::new(exit::LOCKED, "SESSION_ELSEWHERE", message)
            .detail("run", &run.id)
            .detail("host", &run.host)
            .hint("it ends as soon as banksman run is started there")
    }

    /// A run whose end only a person can confirm.
    pub(crate) fn unproven(run: &banksman_core::backlog::Run, decision: &banksman_core::DecisionId) -> Failure {
        let message = format!("the keeper of run {} is dead, and its processes may still be alive", run.id);
        Failure::new(exit::LOCKED, "SESSION_UNPROVEN", message)
            .detail("run", &run.id)
            .detail("task", &run.task)
            .detail("decision", &decision)
            .hint(format!("if its container or machine is gone: banksman decisions resolve {decision} --recommended"))
    }

    /// An invalid argument.
    pub(crate) fn usage(message: impl ToString) -> Failure {
        Failure::new(exit::USAGE, "USAGE", message.to_string())
    }

    pub(crate) fn interrupted() -> Failure {
        Failure::new(exit::INTERRUPTED, "INTERRUPTED", "interrupted")
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let message = error.to_string();
        let (exit, code, hint) = match error {
            StoreError::Moved { to } => {
                return Failure::new(exit::CONFIG, "STORE_MOVED", message)
                    .hint(format!(
                        "use the new store: BANKSMAN_STORE={url}; if that was a mistake: banksman store copy --undo FROM {url}",
                        url = format::quoted(&to)
                    ))
                    .detail("movedTo", &to);
            }
            StoreError::Missing { .. } => (exit::NOT_FOUND, "STORE_MISSING", "create a project with: banksman init"),
            StoreError::Exists { .. } => (exit::USAGE, "STORE_EXISTS", "the project exists already; nothing was changed"),
            StoreError::Foreign { .. } => {
                (exit::CONFIG, "STORE_FOREIGN", "move the file away, or select the right store with --store")
            }
            StoreError::Newer { .. } => {
                (exit::CONFIG, "STORE_NEWER", "install the version of banksman that created it, or a later one")
            }
            StoreError::InUse { .. } => {
                (exit::LOCKED, "STORE_IN_USE", "nothing was changed; wait until they end, or cancel them: banksman tasks cancel")
            }
            StoreError::Importing { .. } => (
                exit::LOCKED,
                "STORE_IMPORTING",
                "nothing was changed; wait until they end; to remove the rest of a dead import: banksman doctor --fix",
            ),
            StoreError::Corrupt { .. } => (
                exit::UNHEALTHY,
                "STORE_CORRUPT",
                "stop all agents, copy the .banksman folder, and restore a backup: docs/guides/backup.md",
            ),
            StoreError::PathTooLong { .. } => (
                exit::CONFIG,
                "STORE_PATH_TOO_LONG",
                "move the project to a directory with a shorter path, or keep it in a database: --store postgres://…",
            ),
            StoreError::WentBack { .. } => (
                exit::UNHEALTHY,
                "STORE_WENT_BACK",
                "store.db-wal was removed, or an older copy of store.db was put in its place: put the newer files back, or restore a \
                 backup; to continue with the current files, stop all agents and remove .banksman/turn",
            ),
            StoreError::NetworkFileSystem { .. } => (
                exit::CONFIG,
                "STORE_NETWORK_FS",
                "put the project on a local disk of the machine that runs the agents, or its data into PostgreSQL: --store postgres://…",
            ),
            StoreError::ReadOnly { .. } => {
                (exit::NOT_PERMITTED, "STORE_READ_ONLY", "banksman needs to write in the .banksman folder and all files in it")
            }
            StoreError::Unsafe { .. } => (
                exit::NOT_PERMITTED,
                "STORE_UNSAFE",
                "check where it comes from; remove a link that came with a repository, or ask the owner of the project to correct it",
            ),
            StoreError::Full { .. } => (exit::ERROR, "STORE_FULL", "nothing was changed; free some space and retry"),
            StoreError::Unknown { .. } => {
                (exit::UNHEALTHY, "STORE_UNKNOWN", "check the state before you retry; --request-id makes a retry safe")
            }
            StoreError::Unreachable { .. } => (
                exit::UNHEALTHY,
                "STORE_UNREACHABLE",
                "check that the server is running, and the host, user and password of the URL",
            ),
            StoreError::Disconnected { .. } => (exit::UNHEALTHY, "STORE_DISCONNECTED", "nothing was changed; retry"),
            StoreError::Forbidden { .. } => {
                (exit::NOT_PERMITTED, "STORE_FORBIDDEN", "the role must own the schema banksman, or be allowed to create it")
            }
            StoreError::TooOld { .. } => (exit::CONFIG, "STORE_TOO_OLD", "use a newer server"),
            StoreError::Stalled => (
                exit::UNHEALTHY,
                "STORE_STALLED",
                "nothing was changed; a process that was stopped during a write blocks the store",
            ),
            StoreError::Bug { .. } => (exit::ERROR, "BUG", "please report this message, and what you did"),
            StoreError::Failed { .. } => (exit::ERROR, "STORE_FAILED", "for more: banksman doctor"),
        };
        Failure::new(exit, code, message).hint(hint)
    }
}

impl From<CallerError> for Failure {
    fn from(error: CallerError) -> Failure {
        Failure::usage(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Store(error) => error.into(),
            Error::Untrusted { ref store, has_id } => Failure::new(exit::NOT_PERMITTED, "STORE_UNTRUSTED", error.to_string())
                .detail("store", &store)
                .detail("hasId", &has_id)
                .hint("list what it would start: banksman trust --show; then trust it with: banksman trust"),
            Error::Name(_) => Failure::usage(error.to_string()),
            Error::NotEntered(_) | Error::System { .. } => Failure::new(exit::ERROR, "SYSTEM", error.to_string()),
            Error::Moved { .. } => Failure::new(exit::UNHEALTHY, "PROJECT_MOVED", error.to_string())
                .hint("its sessions continue; the next banksman run in the new place adopts them"),
        }
    }
}

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Failure {
        let message = error.to_string();
        let (exit, code) = match error {
            WorkspaceError::Store(error) => return error.into(),
            WorkspaceError::Project(error) => return error.into(),
            WorkspaceError::NoRepository(_) => (exit::USAGE, "NO_REPOSITORY"),
            WorkspaceError::NoCommits => (exit::USAGE, "NO_COMMITS"),
            WorkspaceError::NoBase(_) => (exit::USAGE, "NO_BASE"),
            WorkspaceError::CheckedOut { .. } => (exit::USAGE, "BRANCH_CHECKED_OUT"),
            WorkspaceError::InTheWay(_) | WorkspaceError::NotSaved { .. } => (exit::ERROR, "NOT_REMOVED"),
            WorkspaceError::Elsewhere { .. } => (exit::ERROR, "WORKSPACE_ELSEWHERE"),
            WorkspaceError::InUse { .. } => (exit::LOCKED, "WORKSPACE_IN_USE"),
            WorkspaceError::Landing(_) => (exit::LOCKED, "WORKSPACE_LANDING"),
            WorkspaceError::Fenced => (exit::FENCED, "FENCED"),
            WorkspaceError::Unknown(_) => (exit::NOT_FOUND, "WORKSPACE_NOT_FOUND"),
            WorkspaceError::Path(_) => (exit::USAGE, "USAGE"),
            WorkspaceError::Setup(_) => (exit::ERROR, "SETUP"),
            WorkspaceError::Git(_) => (exit::ERROR, "GIT"),
            WorkspaceError::Io { .. } => (exit::ERROR, "SYSTEM"),
        };
        Failure::new(exit, code, message)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        let problems: Vec<_> = error.problems.iter().map(SettingProblem::from).collect();
        Failure::new(exit::CONFIG, "CONFIG", error.to_string())
            .detail("problems", &problems)
            .hint(error.problems.first().map_or_else(String::new, config_hint))
    }
}

/// How to correct a setting. A command is suggested only if it would be accepted.
fn config_hint(problem: &Problem) -> String {
    let flag = if matches!(problem.source, Some(Source::User(_))) { " --user" } else { "" };
    match (&problem.source, problem.settable()) {
        (None | Some(Source::Default), _) => "list the keys: banksman config list".into(),
        (Some(Source::Environment(variable)), _) => format!("unset {variable}, or change its value"),
        (Some(Source::User(_) | Source::Project(_)), Some(key)) => {
            format!("edit the file, or: banksman config set{flag} {} {}", key.name, format::quoted(key.example()))
        }
        (Some(Source::User(_) | Source::Project(_)), None) => "edit the file: correct the line, or remove it".into(),
    }
}

impl From<ProjectError> for Failure {
    fn from(error: ProjectError) -> Failure {
        let message = error.to_string();
        match error {
            ProjectError::NotFound { .. } => Failure::new(exit::NOT_FOUND, "PROJECT_NOT_FOUND", message)
                .hint("create one with: banksman init; or select one with -C DIR or BANKSMAN_PROJECT"),
            ProjectError::Exists { .. } => Failure::new(exit::USAGE, "PROJECT_EXISTS", message)
                .hint("nothing was changed; to move the project to another store: banksman store copy FROM TO"),
            ProjectError::NoStore { store, id } => {
                Failure::new(exit::NOT_FOUND, "STORE_MISSING", message).detail("project", &id).detail("store", &store).hint(
                    "if the project is kept in a database, set BANKSMAN_STORE=postgres://…; \
                     in a fresh clone, banksman init creates a store for this clone alone",
                )
            }
            ProjectError::Elsewhere { config, id } => {
                Failure::new(exit::CONFIG, "STORE_ELSEWHERE", message).detail("project", &id).detail("config", &config).hint(
                    "set BANKSMAN_STORE=postgres://…, or once for this machine: banksman config set --user store postgres://…; \
                     for another project here that shares nothing with it: banksman init --new-id",
                )
            }
            ProjectError::NoBackup { .. } => Failure::usage(message),
            ProjectError::NotCopied { .. } => {
                Failure::usage(message).hint("nothing was changed; check the order: FROM is the old store")
            }
            ProjectError::ChangedSince { ref to } => Failure::new(exit::USAGE, "STORE_CHANGED", message).hint(format!(
                "nothing was changed; to move the project back as it is now: banksman store copy {} FROM",
                format::quoted(to)
            )),
            ProjectError::TwoStores { local, other } => Failure::new(exit::CONFIG, "TWO_STORES", message)
                .hint(format!(
                    "select one: BANKSMAN_STORE={file} or BANKSMAN_STORE={server}; to move the data of the file to the server: \
                     banksman store copy {file} {server}",
                    file = format::quoted(format_args!("sqlite:{}", local.display())),
                    server = format::quoted(&other)
                ))
                .detail("local", &local)
                .detail("other", &other),
            ProjectError::Config(error) => error.into(),
            ProjectError::Url { .. } => Failure::usage(message).hint("for example: --store sqlite:/srv/app/.banksman/store.db"),
            ProjectError::Store(error) => error.into(),
            ProjectError::Homeless => {
                Failure::new(exit::CONFIG, "CONFIG", message).hint("set HOME, or XDG_STATE_HOME to an absolute path")
            }
            ProjectError::Io { ref source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound => Failure::new(exit::NOT_FOUND, "NO_SUCH_DIRECTORY", message),
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    Failure::new(exit::NOT_PERMITTED, "READ_ONLY", message).hint("banksman needs to write there")
                }
                std::io::ErrorKind::StorageFull => {
                    Failure::new(exit::ERROR, "STORE_FULL", message).hint("free some space and retry")
                }
                _ => Failure::new(exit::ERROR, "SYSTEM", message),
            },
        }
    }
}

impl From<RunbookError> for Failure {
    fn from(error: RunbookError) -> Failure {
        let problems = views::value(&RunbookProblem::list(&error));
        let message = error.to_string();
        match error {
            RunbookError::NotFound { name, near, .. } => {
                let failure = Failure::new(exit::NOT_FOUND, "RUNBOOK_NOT_FOUND", message);
                failure.detail("name", &name).hint(near.map_or_else(
                    || "list the runbooks: banksman runbooks list".to_owned(),
                    |near| format!("did you mean {near}?"),
                ))
            }
            RunbookError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Failure::new(exit::NOT_FOUND, "NO_SUCH_FILE", message)
            }
            RunbookError::Io { .. } => Failure::new(exit::ERROR, "SYSTEM", message),
            RunbookError::Wrong(mut wrong) => {
                wrong.file = near_path(&wrong.file).into();
                let count = wrong.list.len() + wrong.more;
                let number = if count == 1 { "1 mistake".to_owned() } else { format!("{count} mistakes") };
                Failure::new(exit::CONFIG, "RUNBOOK_INVALID", format!("{} has {number}", wrong.file))
                    .detail("problems", &problems)
                    .body(terminal::from_ansi(&wrong.draw(true)))
            }
        }
    }
}

/// A path relative to the current directory, if it is below it.
pub(crate) fn near_path(path: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let near = std::path::Path::new(path).strip_prefix(here).map(|path| path.display().to_string());
    near.unwrap_or_else(|_| path.to_owned())
}
