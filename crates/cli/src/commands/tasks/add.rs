use std::num::NonZeroU32;

use banksman::Client;
use banksman::adapters::ids;
use banksman::config::Config;
use banksman::core::admission::{Admission, Reason};
use banksman::core::backlog::{Backlog, Runner};
use banksman::core::planner;
use banksman::core::restart::Policy;
use banksman::core::task::{Need, Spec};
use banksman::core::{Name, Now, SectionId, Status, Task, TaskId, Title};
use banksman::engine::{TaskOutcome, TaskRequest, admission_keys, admit};
use banksman::store::Reader;
use clap::Args;
use serde_json::json;

use super::place::{Place, Placed};
use super::refused::refused;
use super::{spec, view};
use crate::commands::Done;
use crate::commands::hold::Dur;
use crate::commands::pipelines::Order;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM};
use crate::words;

/// Hand over a task.
///
/// With --run a runner runs it as soon as nothing stands in the way; without, it is for people. The command runs in the
/// project's directory, through a shell, with BANKSMAN_TASK, BANKSMAN_TITLE, BANKSMAN_RUN and BANKSMAN_RUN_EPOCH in its environment.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman tasks add 'Run the tests' --run 'make test' --retries 1\n  banksman tasks add 'Release' --run ./release.sh --depends-on 'Run the tests' --lock deploy\n  banksman tasks add 'Train' --run 'python train.py' --semaphore gpu=2 --section models\n  banksman tasks add 'Add login' --runbook feature --var branch=login\n  banksman tasks add 'Decide about the name'"
)]
pub(super) struct Add {
    /// What people call it
    title: Title,
    /// The command line to run, in a shell
    #[arg(long, value_name = "CMD")]
    run: Option<String>,
    /// The runbook whose pipeline it goes through: its name or path, and the pipeline if it has several
    #[arg(long, value_name = "FILE[:PIPELINE]", conflicts_with_all = ["run", "locks", "semaphores", "retries", "looped"])]
    runbook: Option<String>,
    /// A variable of that pipeline: NAME=TEXT or NAME:=JSON; may be given more than once
    #[arg(long = "var", value_name = "NAME=VALUE", requires = "runbook")]
    vars: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// How often a run that failed is followed by another
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    retries: u32,
    /// Try it again until it says that it is done: with `tasks done` in its run, or by the file DONE in BANKSMAN_TASK_DIR
    #[arg(long = "loop", requires = "run", conflicts_with = "retries")]
    looped: bool,
    /// How many attempts there are at most [default: loop.max_restarts]
    #[arg(long, value_name = "N", requires = "looped")]
    max_restarts: Option<NonZeroU32>,
    /// How long to rest between two attempts [default: loop.restart_delay]
    #[arg(long, value_name = "DUR", requires = "looped")]
    restart_delay: Option<Dur>,
    /// A lock that its runs hold while they live; may be given more than once
    #[arg(long = "lock", value_name = "NAME")]
    locks: Vec<Name>,
    /// Slots that its runs hold while they live; may be given more than once
    #[arg(long = "semaphore", value_name = "NAME[=WEIGHT]")]
    semaphores: Vec<String>,
}

/// How things stand for a task that was just added.
struct Prospect {
    task: Task,
    status: Status,
    unmet: u32,
    started: bool,
    place: Option<u64>,
    runner_alive: bool,
    reasons: Vec<Reason>,
}

impl Add {
    pub(super) fn run(self, context: &Context) -> Done {
        if self.runbook.is_some() {
            return self.order()?.carry_out(context);
        }
        let needs = self.needs()?;
        let work = self.run.as_deref().map(|run| spec::work(run).map_err(|error| error.at("--run"))).transpose()?;
        let client = context.client()?;
        let mut reader = client.reader()?;
        let restart = self.policy(client.config());
        let Placed { spec, section, depends_on, by } = self.place.find(self.title, &mut reader)?;
        let spec = Spec { work, needs, retries: self.retries, restart, ..spec };
        let id = TaskId::new(&ids::short("t")).expect("a short id is valid");
        let request = TaskRequest::Add { id: id.clone(), spec: Box::new(spec), depends_on: depends_on.clone(), by };
        let task = match super::ask(&client, request)? {
            TaskOutcome::Kept(task) => *task,
            // The one that is fenced is the parent.
            outcome => return Err(refused(super::inherited()?.as_ref().map_or(&id, |(parent, _)| parent), &outcome)),
        };
        let prospect = prospect(&client, &mut reader, task)?;
        let data = json!({
            "id": id,
            "title": prospect.task.spec.title,
            "status": prospect.status,
            "section": section.as_ref().map(|section| &section.name),
            "parent": prospect.task.spec.parent,
            "dependsOn": depends_on.iter().map(|edge| &edge.on).collect::<Vec<_>>(),
            "unmet": prospect.unmet,
            "admission": if prospect.started { "started" } else { "queued" },
            "queuePosition": prospect.place,
            "runnerAlive": prospect.runner_alive,
        });
        context.printer.result(data, format!("added {BOLD}{id}{BOLD:#} {}: {}", prospect.task.spec.title, prospect.words()));
        if !context.printer.json {
            prospect.notes().iter().for_each(|note| context.printer.note(&format!("{DIM}{note}{DIM:#}")));
        }
        Ok(exit::OK)
    }

    /// The pipeline that it is.
    fn order(self) -> Result<Order, Failure> {
        let runbook = self.runbook.unwrap_or_default();
        let (runbook, pipeline) = match runbook.rsplit_once(':') {
            Some((runbook, pipeline)) => (runbook.to_owned(), Some(Name::new(pipeline).map_err(Failure::usage)?)),
            None => (runbook, None),
        };
        Ok(Order { pipeline, runbook: Some(runbook), vars: self.vars, title: Some(self.title), place: self.place })
    }

    /// How it is tried again. What the settings say now is kept with the task.
    fn policy(&self, config: &Config) -> Option<Policy> {
        let policy = Policy {
            max_restarts: self.max_restarts.unwrap_or(config.restart.max_restarts),
            delay: self.restart_delay.map_or(config.restart.delay, Dur::span),
            ..config.restart.clone()
        };
        self.looped.then_some(policy)
    }

    fn needs(&self) -> Result<Vec<Need>, Failure> {
        let mut needs = Vec::new();
        for name in &self.locks {
            needs.push(spec::lock(name)?);
        }
        for text in &self.semaphores {
            needs.push(spec::slots(text).map_err(|error| error.at(&format!("--semaphore {text}")))?);
        }
        spec::needs(needs)
    }
}

/// Looks how things stand for a task: a runner may have been faster than this look.
fn prospect(client: &Client, reader: &mut Reader, added: Task) -> Result<Prospect, Failure> {
    let rows = reader.view().load(&admission_keys(&added))?;
    let task = rows.backlog.tasks.get(&added.id).cloned().unwrap_or(added);
    let now = Now { lease: rows.lease, wall: rows.wall, ..Now::default() };
    let roots = client.config().max_concurrent_root_tasks;
    let alive: Vec<&Runner> = rows.backlog.runners.values().filter(|runner| super::is_alive(client, runner)).collect();
    let reasons = |runner: Option<&Runner>| match admit(
        &task,
        runner.map(|runner| &runner.id),
        roots,
        &rows.coordination,
        &rows.backlog,
        &now,
    ) {
        Admission::Run => Vec::new(),
        Admission::Blocked(reasons) => reasons,
    };
    let unmet = rows.backlog.unmet(&task.id);
    let status = if task.status() == Status::Pending && unmet > 0 { Status::Blocked } else { task.status() };
    let section = task.spec.section.as_ref();
    let takes =
        |runner: &&Runner| works_in(runner, section) && has_room(runner, &rows.backlog) && reasons(Some(runner)).is_empty();
    // Without a runner the question is whether the first one that comes may take it.
    let is_admitted = match &alive[..] {
        [] => task.spec.work.is_some() && reasons(None).is_empty(),
        alive => alive.iter().copied().any(|runner| takes(&runner)),
    };
    let is_waiting = status == Status::Pending && task.spec.work.is_some();
    let ahead: u64 = if is_waiting && (roots > 0 || !is_admitted) {
        reader.view().ready_before(&task, roots > 0)?.iter().map(|(_, count)| count).sum()
    } else {
        0
    };
    // The places that are left go to the roots that came earlier.
    let under_way = rows.backlog.tasks.values().filter(|task| planner::is_under_way(task)).count() as u64;
    let has_place = roots == 0 || task.spec.parent.is_some() || under_way + ahead < u64::from(roots);
    let started = task.status() != Status::Pending || (is_admitted && has_place);
    let place = (is_waiting && !started).then_some(ahead + 1);
    let reasons = reasons(None);
    Ok(Prospect { status, unmet, started, place, runner_alive: !alive.is_empty(), reasons, task })
}

fn works_in(runner: &Runner, section: Option<&SectionId>) -> bool {
    runner.sections.is_empty() || section.is_some_and(|section| runner.sections.contains(section))
}

fn has_room(runner: &Runner, backlog: &Backlog) -> bool {
    let living = backlog.runs.values().filter(|run| run.is_live() && run.owner == runner.id).count();
    runner.max_runs.is_none_or(|max| living < max as usize)
}

impl Prospect {
    fn words(&self) -> String {
        match (self.task.spec.work.is_some(), self.started, self.place) {
            _ if self.status == Status::Blocked => format!("waits for {}", view::tasks(self.unmet as usize)),
            (false, _, _) => "for people".into(),
            (true, true, _) if !self.runner_alive => "admitted; it starts when a runner does".into(),
            (true, true, _) => "starts at once".into(),
            (true, false, Some(place)) => {
                format!("{} in the queue", words::ordinal(usize::try_from(place).unwrap_or(usize::MAX)))
            }
            (true, false, None) => "queued".into(),
        }
    }

    /// What a person should know: nobody would start it, or something that it needs is not there.
    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self
            .reasons
            .iter()
            .filter_map(|reason| match reason {
                Reason::Undefined { resource } => Some(format!(
                    "there is no semaphore {name} yet; define it with: banksman semaphores define {name} --capacity N",
                    name = words::quoted(&resource.name)
                )),
                Reason::Slots { resource, wanted, capacity, .. } if wanted > capacity => {
                    Some(format!("{} has only {}, so this will never fit", resource.name, words::slots(*capacity)))
                }
                _ => None,
            })
            .collect();
        if self.task.spec.work.is_some() && !self.runner_alive {
            notes.push(super::NO_RUNNER.into());
        }
        notes
    }
}
