use banksman::adapters::ids;
use banksman::core::task::{Spec, Work};
use banksman::core::{SectionId, Seq, TaskId, Title};
use banksman::engine::{Reply, Request, TaskOutcome, TaskRequest};
use banksman::store::TaskFilter;
use clap::{Args, Subcommand};
use serde_json::json;

use super::Done;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::table;

/// Tasks: what is to be done.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman tasks add 'Run the tests' --run 'make test'\n  banksman tasks list")]
pub(crate) struct Tasks {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Add(Add),
    List(List),
}

/// Hand over a task.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman tasks add 'Run the tests' --run 'make test'")]
struct Add {
    /// What people call it
    title: Title,
    /// The command line to run, in a shell
    #[arg(long, value_name = "CMD")]
    run: Option<String>,
}

/// Show all tasks.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman tasks list")]
struct List {}

impl Tasks {
    pub(crate) fn name(&self) -> &'static str {
        match self.verb {
            Verb::Add(_) => "tasks add",
            Verb::List(_) => "tasks list",
        }
    }

    pub(crate) fn run(self, context: &Context) -> Done {
        match self.verb {
            Verb::Add(add) => add.run(context),
            Verb::List(list) => list.run(context),
        }
    }
}

impl Add {
    fn run(self, context: &Context) -> Done {
        let id = TaskId::new(&ids::short("t")).expect("a short id is valid");
        let spec = Spec {
            title: self.title.clone(),
            section: None,
            parent: None,
            labels: Vec::new(),
            priority: 0,
            work: self.run.map(|command| Work::Run(command.into())),
            needs: Vec::new(),
            retries: 0,
            workspace: Default::default(),
        };
        let request = TaskRequest::Add { id, spec: Box::new(spec), depends_on: Vec::new(), by: None };
        match context.client()?.call(Request::Task(request))? {
            Reply::Task(TaskOutcome::Kept(task)) => {
                context
                    .printer
                    .result(json!({ "id": task.id, "status": task.status() }), format!("added {} {}", task.id, task.spec.title));
                Ok(exit::OK)
            }
            reply => unreachable!("{reply:?}"),
        }
    }
}

impl List {
    fn run(self, context: &Context) -> Done {
        let (tasks, _) = context.reader()?.view().tasks(&TaskFilter::default(), Seq(0))?;
        let data: Vec<_> = tasks
            .iter()
            .map(|listed| json!({ "id": listed.task.id, "title": listed.task.spec.title, "status": listed.status() }))
            .collect();
        let rows = tasks
            .iter()
            .map(|listed| vec![listed.task.id.to_string(), listed.status().to_string(), listed.task.spec.title.to_string()])
            .collect();
        context.printer.result(json!({ "tasks": data }), table::render(&["ID", "STATUS", "TITLE"], rows));
        Ok(exit::OK)
    }
}

/// The sections of these names.
pub(crate) fn find_sections(_client: &banksman::Client, _names: &[String]) -> Result<Vec<SectionId>, Failure> {
    Ok(Vec::new())
}
