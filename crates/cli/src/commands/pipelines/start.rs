//! `pipelines start`.

use banksman_adapters::ids;
use banksman_core::pipeline::plan::{BindError, Context as Vars, Plan};
use banksman_core::resource::coordination::Command;
use banksman_core::resource::lock;
use banksman_core::resource::semaphore;
use banksman_core::task::{Spec, Work};
use banksman_core::{Name, TaskId, Title, queue};
use banksman_engine::{PipelineRequest, QueueRequest, Request, lacks, slot_keys};
use banksman_runbook::{PipelineDef, Runbook};
use banksman_runtime::Client;
use banksman_runtime::runbooks::{load_all, load_runbook};
use banksman_store::Key;
use clap::Args;
use serde_json::Value;

use super::{note_runner, stepped};
use crate::commands::tasks::{FoundTask, TaskArgs};
use crate::commands::{ExitResult, find};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM};
use crate::views::pipelines::PipelineView;

/// Start a pipeline of a runbook.
///
/// The pipeline keeps the current text of the runbook, even if the file changes. Locks, semaphores and queues of the runbook that
/// do not exist yet are defined. Fails if a phase needs a semaphore that does not exist, because the phase would wait forever.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman pipelines start feature --var title='Add login' --var branch=login\n  banksman pipelines start release --runbook ops --var tries:=3 --depends-on 'Run the tests'"
)]
pub(super) struct Start {
    /// The name of the pipeline
    pipeline: Name,
    /// The runbook of the pipeline, by name or path; required if several runbooks have a pipeline of this name
    #[arg(long, value_name = "NAME|FILE")]
    runbook: Option<String>,
    /// A variable: NAME=TEXT or NAME:=JSON; may be given more than once
    #[arg(long = "var", value_name = "NAME=VALUE")]
    vars: Vec<String>,
    /// The title [default: the variable `title`, else the name of the pipeline]
    #[arg(long)]
    title: Option<Title>,
    #[command(flatten)]
    place: TaskArgs,
}

/// The parameters of a start; `pipelines start` and `runbooks apply` make one.
pub(crate) struct StartRequest {
    /// Without a name, the only pipeline of the runbook.
    pub(crate) pipeline: Option<Name>,
    pub(crate) runbook: Option<String>,
    pub(crate) vars: Vec<String>,
    pub(crate) title: Option<Title>,
    pub(crate) place: TaskArgs,
}

impl Start {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let Start { pipeline, runbook, vars, title, place } = self;
        StartRequest { pipeline: Some(pipeline), runbook, vars, title, place }.carry_out(context)
    }
}

impl StartRequest {
    pub(crate) fn carry_out(self, context: &Context) -> ExitResult {
        let vars = variables(&self.vars)?;
        let client = context.client()?;
        let (book, definition) = find_definition(&client, self.pipeline.as_ref(), self.runbook.as_deref())?;
        let plan = definition.plan;
        let bound = plan.bind(vars).map_err(|error| unbound(&error, &plan))?;
        let mut reader = client.reader()?;
        let title = self.title.unwrap_or_else(|| plan.title(&bound.context));
        let place = match &plan.land {
            Some(land) => self.place.with_landing(land, &bound.context),
            None => self.place,
        };
        let work = Work::Pipeline(plan.clone());
        let FoundTask { spec, depends_on, by, .. } = place.find(title, Some(&work), &client, &mut reader)?;
        define_missing(&client, &book)?;
        check_slots(&client, &plan)?;
        let spec = Spec { work: Some(work), ..spec };
        let id = TaskId::new(&ids::short("p")).expect("a short id is valid");
        let start = banksman_engine::Start { id: id.clone(), spec, depends_on, vars: bound, by };
        let pipeline = stepped(&id, client.request(PipelineRequest::Start(Box::new(start)))?)?;
        let task = reader.view().load(&[Key::Task(id.clone())].into())?.backlog.tasks.remove(&id);
        let task = task.ok_or_else(|| find::no_task(id.as_str()))?;
        let human = format!("started {BOLD}{}{BOLD:#} {DIM}{id}{DIM:#}", task.spec.title);
        context.printer.print(&PipelineView::new(&task, &pipeline, pipeline.phase_started), human);
        note_runner(context, &client, &mut reader)?;
        Ok(exit::OK)
    }
}

/// Variables from the command line, `NAME=TEXT` or `NAME:=JSON`, each at most once.
pub(crate) fn variables(words: &[String]) -> Result<Vars, Failure> {
    let variable = |word: &String| -> Result<(Box<str>, Value), Failure> {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("a variable is written NAME=TEXT or NAME:=JSON, not {word:?}")))?;
        match name.strip_suffix(':') {
            None => Ok((name.into(), Value::from(value))),
            Some(name) => {
                let wrong = |error| Failure::usage(format!("{name}: {value:?}: {error}")).hint(format!("a text is {name}=TEXT"));
                let value = banksman_core::json::parse(value).map_err(wrong)?;
                Ok((name.into(), value))
            }
        }
    };
    let mut vars = Vars::new();
    for word in words {
        let (name, value) = variable(word)?;
        if vars.insert(Box::clone(&name), value).is_some() {
            return Err(Failure::usage(format!("the variable {name} is given more than once")));
        }
    }
    Ok(vars)
}

/// The pipeline with this name, in the only runbook that has it.
fn find_definition(client: &Client, name: Option<&Name>, runbook: Option<&str>) -> Result<(Runbook, PipelineDef), Failure> {
    let mut wrong = None;
    let books = match runbook {
        Some(runbook) => vec![load_runbook(client.project(), runbook)?],
        // An invalid runbook matters only if the pipeline is not found in the others.
        None => {
            let loaded = load_all(client.project())?.into_iter().map(|(_, runbook)| runbook);
            loaded.filter_map(|runbook| runbook.map_err(|error| wrong = Some(error)).ok()).collect()
        }
    };
    let names: Vec<String> = books.iter().flat_map(|book| book.pipelines.keys()).map(ToString::to_string).collect();
    let matches_name = |candidate: &Name| name.is_none_or(|name| name == candidate);
    let mut found: Vec<(Runbook, Name)> = Vec::new();
    for book in books {
        let matching: Vec<Name> = book.pipelines.keys().filter(|candidate| matches_name(candidate)).cloned().collect();
        found.extend(matching.into_iter().map(|name| (book.clone(), name)));
    }
    match (found.len(), name) {
        (0, name) => Err(wrong.map_or_else(|| no_definition(name, &names), Into::into)),
        (1, _) => {
            let (book, name) = found.remove(0);
            let definition = book.pipelines[&name].clone();
            Ok((book, definition))
        }
        (_, Some(name)) => {
            let books: Vec<&str> = found.iter().map(|(book, _)| &*book.name).collect();
            let message = format!("more than one runbook has a pipeline {name}: {}", books.join(", "));
            Err(Failure::new(exit::USAGE, "AMBIGUOUS_NAME", message).hint("select one with --runbook"))
        }
        (_, None) => {
            let message = format!("the runbook has more than one pipeline: {}", names.join(", "));
            Err(Failure::new(exit::USAGE, "AMBIGUOUS_NAME", message).hint("select one with --runbook FILE:PIPELINE"))
        }
    }
}

fn no_definition(name: Option<&Name>, names: &[String]) -> Failure {
    let hint = match names {
        [] => "there are no pipelines; create one from a template: banksman runbooks new feature".into(),
        names => format!("known pipelines: {}", names.join(", ")),
    };
    let message = name.map_or("the runbook has no pipelines".into(), |name| format!("no runbook has a pipeline {name}"));
    Failure::new(exit::NOT_FOUND, "PIPELINE_NOT_FOUND", message).detail("pipeline", &name).hint(hint)
}

pub(super) fn unbound(error: &BindError, plan: &Plan) -> Failure {
    let pipeline = &plan.name;
    let spelt = |name: &str, is_optional: bool| if is_optional { format!("[{name}]") } else { name.to_owned() };
    let known: Vec<String> = plan.vars.iter().map(|(name, default)| spelt(name, default.is_some())).collect();
    let hint = match (error, &known[..]) {
        (BindError::Missing(name), _) => format!("set it with: --var {name}=…"),
        (BindError::Unknown(_), []) => format!("{pipeline} has no variables"),
        (BindError::Unknown(_), known) => format!("variables of {pipeline}: {}", known.join(", ")),
        (BindError::BadName(_) | BindError::Taken(_), _) => "rename the variable".into(),
        (BindError::Given(_), _) => "print it in the phase, and declare it in the runbook: output = [\"NAME\"]".into(),
        (BindError::TooDeep(..) | BindError::TooLarge(_), _) => "write it into a file, and set a variable to its path".into(),
    };
    Failure::new(exit::USAGE, "VARIABLES", error.to_string()).detail("pipeline", &pipeline).hint(hint)
}

/// Defines the locks, semaphores and queues of a runbook that do not exist yet.
fn define_missing(client: &Client, book: &Runbook) -> Result<(), Failure> {
    let keys = book.locks.keys().cloned().map(Key::Lock);
    let keys = keys.chain(book.semaphores.keys().cloned().map(Key::Semaphore)).chain([Key::Queues]).collect();
    let rows = client.load(&keys)?;
    for (name, terms) in book.locks.iter().filter(|(name, _)| !rows.coordination.locks.contains_key(*name)) {
        client.call(Request::plain(Command::Lock(name.clone(), lock::Input::Define(terms.config()))))?;
    }
    for (name, terms) in book.semaphores.iter().filter(|(name, _)| !rows.coordination.semaphores.contains_key(*name)) {
        client.call(Request::plain(Command::Semaphore(name.clone(), semaphore::Input::Define(terms.config()))))?;
    }
    let missing = book.queues.iter().filter(|(name, _)| !rows.queues.queues.contains_key(*name));
    // Dead-letter queues must exist before the queues that refer to them.
    let (targets, others): (Vec<_>, Vec<_>) =
        missing.partition(|(name, _)| book.queues.values().any(|terms| terms.dead_letter.as_ref() == Some(*name)));
    for (name, terms) in targets.into_iter().chain(others) {
        let config = client.config().queue(terms);
        client.call(Request::Queue(QueueRequest::new(name.clone(), queue::Input::Define(config))))?;
    }
    Ok(())
}

/// Fails if a phase would wait for missing slots: the phases before it would be done by then.
fn check_slots(client: &Client, plan: &Plan) -> Result<(), Failure> {
    let lacks = lacks(plan, &client.load(&slot_keys(plan).collect())?.coordination);
    let Some(first) = lacks.first() else { return Ok(()) };
    let (name, sentences) = (format::quoted(&first.semaphore), lacks.iter().map(ToString::to_string));
    let message = format!("pipeline {} cannot run: {}", plan.name, sentences.collect::<Vec<_>>().join("; "));
    let failure = match first.capacity {
        None => Failure::new(exit::NOT_FOUND, "SEMAPHORE_NOT_FOUND", message).hint(format!(
            "define it: banksman semaphores define {name} --capacity N; or define it in the runbook with [semaphore.{}]",
            first.semaphore
        )),
        Some(_) => Failure::new(exit::USAGE, "OVER_CAPACITY", message)
            .hint(format!("make it larger: banksman semaphores define {name} --capacity {}", first.wanted)),
    };
    let names: Vec<&Name> = lacks.iter().map(|lack| &lack.semaphore).collect();
    Err(failure.detail("pipeline", &plan.name).detail("semaphores", &names))
}
