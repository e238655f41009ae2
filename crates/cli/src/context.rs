//! The context of every command: the project, the actor, the output.

use std::path::PathBuf;
use std::sync::Arc;

use banksman_adapters::ids;
use banksman_core::{Epoch, HolderId, RequestId};
pub(crate) use banksman_runtime::caller::variable;
use banksman_runtime::config::Environment;
use banksman_runtime::{Client, Project, ProjectError, Sessions, StoreUrl, caller};
use banksman_store::Reader;

use crate::failure::Failure;
use crate::printer::Printer;
use crate::signals;

/// The environment of one command.
pub(crate) struct Context {
    pub(crate) printer: Printer,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) store: Option<String>,
}

impl Context {
    /// The project: given by `--store`, by `-C`, by the environment, or found from the current directory.
    pub(crate) fn project(&self) -> Result<Project, Failure> {
        Ok(Project::discover(&self.directory(), &self.environment())?)
    }

    /// Changes the working directory to the one of `-C`, so that files are found there, too.
    pub(crate) fn move_there(self) -> Result<Context, Failure> {
        let directory = self.directory();
        let moved = std::env::set_current_dir(&directory).and_then(|()| std::env::current_dir());
        let there = moved.map_err(|source| ProjectError::Io { path: directory, source })?;
        Ok(Context { directory: Some(there), ..self })
    }

    /// The directory of `-C`, or the current one.
    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| PathBuf::from("."))
    }

    /// The store, if one was given: by a flag, by its variable, or by the user's settings.
    pub(crate) fn store_url(&self) -> Result<Option<StoreUrl>, Failure> {
        Ok(Project::named_store(&self.directory(), &self.environment())?)
    }

    /// The settings beside the project's own. The parser does not distinguish the flag of the store from its variable.
    pub(crate) fn environment(&self) -> Environment {
        Environment { store: self.store.clone(), ..Environment::from_process() }
    }

    /// A client that acts for the caller of this command.
    pub(crate) fn client(&self) -> Result<Arc<Client>, Failure> {
        let client = self.runner_client()?;
        client.act_for(&caller::actor());
        Ok(client)
    }

    /// A client of a runner, which acts for no caller.
    pub(crate) fn runner_client(&self) -> Result<Arc<Client>, Failure> {
        let printer = self.printer.clone();
        let on_stall = move |occupant: &banksman_store::sqlite::Occupant| {
            let (pid, command, state) = (occupant.pid, &occupant.command, occupant.state);
            printer.note(&format!("waiting for the store: process {pid} ({command}) is in a write transaction and is {state}"));
        };
        let client = Arc::new(Client::open_with(&self.project()?, Box::new(on_stall))?);
        signals::stop_without_writer_lock(&client).map_err(|error| Failure::system("install signal handlers", error))?;
        Ok(client)
    }

    /// The directory for control sockets in memory, if the system has one.
    fn socket_dir(&self, project: &Project) -> Option<PathBuf> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute() && dir.is_dir())?;
        Some(runtime.join("banksman").join(project.config().project.as_ref()?))
    }

    /// The sessions of a project, as a runner in this process would keep them.
    pub(crate) fn sessions(&self, project: &Project) -> Sessions {
        Sessions::new(project).sockets(self.socket_dir(project)).store(self.store.clone())
    }

    /// The store of the project, open for reading.
    pub(crate) fn reader(&self) -> Result<Reader, Failure> {
        Ok(self.project()?.reader()?)
    }
}

/// The holder of a call, with its ancestors.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(crate) holder: HolderId,
    pub(crate) ancestors: Vec<HolderId>,
}

impl Actor {
    /// The given name, the inherited one, one derived from the request, or a fresh one. A repeated request must come
    /// from the same holder.
    pub(crate) fn new(given: Option<&HolderId>, request: Option<&RequestId>) -> Result<Actor, Failure> {
        match (given, inherited()?) {
            (Some(holder), inherited) => Ok(Actor::descend(holder.clone(), inherited)),
            (None, Some(inherited)) => Ok(inherited),
            (None, None) => Ok(Actor { holder: fresh(request), ancestors: Vec::new() }),
        }
    }

    /// The given name, the inherited one, or the result of `otherwise`.
    pub(crate) fn named(
        given: Option<&HolderId>,
        otherwise: impl FnOnce() -> Option<HolderId>,
    ) -> Result<Option<Actor>, Failure> {
        Ok(match (given, inherited()?) {
            (Some(holder), inherited) => Some(Actor::descend(holder.clone(), inherited)),
            (None, Some(inherited)) => Some(inherited),
            (None, None) => otherwise().map(|holder| Actor { holder, ancestors: Vec::new() }),
        })
    }

    /// The given name, one derived from the request, or a fresh one; always a descendant of the inherited holder.
    pub(crate) fn fresh(given: Option<&HolderId>, request: Option<&RequestId>) -> Result<Actor, Failure> {
        Ok(Actor::descend(given.cloned().unwrap_or_else(|| fresh(request)), inherited()?))
    }

    /// The given name, or the inherited one: a heartbeat or a release needs a holder.
    pub(crate) fn existing(given: Option<&HolderId>, printed_by: &str) -> Result<HolderId, Failure> {
        let inherited = inherited()?.map(|actor| actor.holder);
        given.cloned().or(inherited).ok_or_else(|| {
            Failure::usage("--holder is missing")
                .hint(format!("give the holder that `{printed_by}` printed; inside of `run`, it is in BANKSMAN_HOLDER"))
        })
    }

    fn descend(holder: HolderId, inherited: Option<Actor>) -> Actor {
        match inherited {
            Some(parent) if parent.holder != holder => {
                let ancestors = std::iter::once(parent.holder).chain(parent.ancestors).collect();
                Actor { holder, ancestors }
            }
            Some(parent) => parent,
            None => Actor { holder, ancestors: Vec::new() },
        }
    }

    /// The ancestors as an environment variable, one per line: names contain no line breaks.
    pub(crate) fn ancestors_variable(&self) -> String {
        self.ancestors.iter().map(HolderId::as_str).collect::<Vec<_>>().join("\n")
    }
}

fn fresh(request: Option<&RequestId>) -> HolderId {
    let name = request.map_or_else(|| ids::short("h"), ToString::to_string);
    HolderId::new(&name).expect("a short id and a request id are valid names")
}

/// The holder in the environment, with its ancestors.
fn inherited() -> Result<Option<Actor>, Failure> {
    Ok(caller::holder()?.map(|caller| Actor { holder: caller.holder, ancestors: caller.ancestors }))
}

/// The epoch that `… run` passed on, if it was for this resource.
pub(crate) fn inherited_epoch(kind: &str, name: &str) -> Result<Option<Epoch>, Failure> {
    let kind = kind.to_uppercase();
    if variable(&format!("BANKSMAN_{kind}")).as_deref() != Some(name) {
        return Ok(None);
    }
    let epoch = variable(&format!("BANKSMAN_{kind}_EPOCH"));
    let parsed = epoch.map(|text| {
        text.parse().map(Epoch).map_err(|_| Failure::usage(format!("BANKSMAN_{kind}_EPOCH is not a number: {text:?}")))
    });
    parsed.transpose()
}
