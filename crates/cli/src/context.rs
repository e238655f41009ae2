//! What every command starts from: where the project is, who acts, where output goes.

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
    /// The project: named by `--store`, by `-C`, by the environment, or found from the current directory.
    pub(crate) fn project(&self) -> Result<Project, Failure> {
        Ok(Project::discover(&self.directory(), &self.environment())?)
    }

    /// Acts from now on as if started in the directory that was named: files are looked for there, too.
    pub(crate) fn move_there(self) -> Result<Context, Failure> {
        let directory = self.directory();
        let moved = std::env::set_current_dir(&directory).and_then(|()| std::env::current_dir());
        let there = moved.map_err(|source| ProjectError::Io { path: directory, source })?;
        Ok(Context { directory: Some(there), ..self })
    }

    /// The directory to act in.
    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| PathBuf::from("."))
    }

    /// The store, if it was named: by a flag, by its variable, or by the user's settings.
    pub(crate) fn store_url(&self) -> Result<Option<StoreUrl>, Failure> {
        Ok(Project::named_store(&self.directory(), &self.environment())?)
    }

    /// What applies beside the project's own settings. The flag and the variable of the store are one to the parser.
    pub(crate) fn environment(&self) -> Environment {
        Environment { store: self.store.clone(), ..Environment::from_process() }
    }

    /// The project, open for all calls, on behalf of whoever gave the command.
    pub(crate) fn client(&self) -> Result<Arc<Client>, Failure> {
        let client = self.client_of_nobody()?;
        client.act_for(&caller::actor());
        Ok(client)
    }

    /// The project, open for all calls of a runner, which acts on its own.
    pub(crate) fn client_of_nobody(&self) -> Result<Arc<Client>, Failure> {
        let printer = self.printer.clone();
        let on_stall = move |occupant: &banksman_store::sqlite::Occupant| {
            let (pid, command, state) = (occupant.pid, &occupant.command, occupant.state);
            printer.note(&format!("waiting for the store: process {pid} ({command}) is in the middle of a write and is {state}"));
        };
        let client = Arc::new(Client::open_with(&self.project()?, Box::new(on_stall))?);
        signals::stop_without_writer_lock(&client).map_err(|error| Failure::system("take note of signals", error))?;
        Ok(client)
    }

    /// Where control sockets of sessions are kept in memory, if the system has a place for that.
    fn socket_dir(&self, project: &Project) -> Option<PathBuf> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute() && dir.is_dir())?;
        Some(runtime.join("banksman").join(project.config().project.as_ref()?))
    }

    /// The sessions of a project, as a runner of this process would keep them.
    pub(crate) fn sessions(&self, project: &Project) -> Sessions {
        Sessions::new(project).sockets(self.socket_dir(project)).store(self.store.clone())
    }

    /// The project, open for reading.
    pub(crate) fn reader(&self) -> Result<Reader, Failure> {
        Ok(self.project()?.reader()?)
    }
}

/// Who acts, and on whose behalf.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(crate) holder: HolderId,
    pub(crate) ancestors: Vec<HolderId>,
}

impl Actor {
    /// The name given, or the inherited one, or one made from the request, or a fresh one. A request that is repeated must
    /// come from the same holder.
    pub(crate) fn new(given: Option<&HolderId>, request: Option<&RequestId>) -> Result<Actor, Failure> {
        match (given, inherited()?) {
            (Some(holder), inherited) => Ok(Actor::descend(holder.clone(), inherited)),
            (None, Some(inherited)) => Ok(inherited),
            (None, None) => Ok(Actor { holder: fresh(request), ancestors: Vec::new() }),
        }
    }

    /// The name given, or the inherited one, or the one that `otherwise` finds.
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

    /// The name given, or one made from the request, or a fresh one, in any case as a descendant of the inherited one.
    pub(crate) fn fresh(given: Option<&HolderId>, request: Option<&RequestId>) -> Result<Actor, Failure> {
        Ok(Actor::descend(given.cloned().unwrap_or_else(|| fresh(request)), inherited()?))
    }

    /// The name given, or the inherited one: whoever heartbeats or releases must be somebody.
    pub(crate) fn existing(given: Option<&HolderId>, told_by: &str) -> Result<HolderId, Failure> {
        let inherited = inherited()?.map(|actor| actor.holder);
        given.cloned().or(inherited).ok_or_else(|| {
            Failure::usage("who holds it? --holder is missing")
                .hint(format!("name the holder that {told_by} printed; inside of `run`, BANKSMAN_HOLDER has it"))
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

    /// The ancestors as the environment carries them: names contain no line breaks.
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

/// The epoch that `… run` passed on, if it was for this very resource.
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
