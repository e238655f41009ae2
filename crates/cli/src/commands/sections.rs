use std::collections::BTreeMap;

use banksman_adapters::ids;
use banksman_core::backlog::Section;
use banksman_core::resource::lock;
use banksman_core::{SectionId, Stamp, Status, Title};
use banksman_engine::{SectionOutcome, SectionRequest};
use banksman_runtime::{Client, Project};
use banksman_store::{Key, Reader};
use clap::Args;

use super::{ExitResult, events, find, resources};
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::table::TableFlags;
use crate::terminal::Style;
use crate::views::events::WithEvents;
use crate::views::sections::{Deleted, SectionPage, SectionView};
use crate::views::{Named, Time};

subcommands! {
    /// Manage sections.
    ///
    /// In an exclusive section, one runner or person works at a time; a runner may run several tasks of the section at once.
    #[command(
        after_help = "Examples:\n  banksman sections add backend\n  banksman sections add database --exclusive\n  banksman sections list"
    )]
    pub(crate) noun Sections {
        Add(Add),
        List(List),
        Show(Show),
        Update(Update),
        Delete(Delete),
    }
}

/// Add a section.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman sections add database --exclusive")]
struct Add {
    /// The name of the section
    name: Title,
    /// Allow only one runner or person at a time
    #[arg(long)]
    exclusive: bool,
}

/// List sections, with the number of tasks in each state.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman sections list")]
struct List {
    #[command(flatten)]
    table: TableFlags,
}

/// Show one section.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman sections show database")]
struct Show {
    /// The section: its name, its id, or the beginning of its id
    section: String,
}

/// Change a section.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman sections update database --exclusive false\n  banksman sections update backend --name server"
)]
struct Update {
    /// The section: its name, its id, or the beginning of its id
    section: String,
    /// The new name
    #[arg(long, value_name = "NAME")]
    name: Option<Title>,
    /// Whether only one runner or person works in it at a time
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = false)]
    exclusive: Option<bool>,
}

/// Delete an empty section.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman sections delete database\n  banksman sections delete database --force")]
struct Delete {
    /// The section: its name, its id, or the beginning of its id
    section: String,
    /// Also if a runner holds its lock
    #[arg(long)]
    force: bool,
}

/// A section with its counts and its holder.
struct Page {
    section: Section,
    counts: BTreeMap<Status, u64>,
    /// The holder, since when, and the state of its grant.
    holder: Option<(String, Stamp, &'static str)>,
}

impl Add {
    fn run(self, context: &Context) -> ExitResult {
        let id = SectionId::new(&ids::short("s")).expect("a short id is valid");
        let request = SectionRequest::Add { id, name: self.name.clone(), exclusive: self.exclusive };
        let section = kept(&*context.client()?, self.name.as_str(), request)?;
        let kind = if section.exclusive { "exclusive section" } else { "section" };
        let human = format!("added {kind} {BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", section.name, section.id);
        context.printer.result(&SectionView::from(&section), human)
    }
}

impl Update {
    fn run(self, context: &Context) -> ExitResult {
        if self.name.is_none() && self.exclusive.is_none() {
            return Err(Failure::usage("nothing to change").hint("give --name or --exclusive"));
        }
        let client = context.client()?;
        let id = find::section(&mut client.reader()?, &self.section)?.id;
        let request = SectionRequest::Update { id, name: self.name.clone(), exclusive: self.exclusive };
        let section = kept(&client, self.name.as_ref().map_or(&self.section, |name| name.as_str()), request)?;
        let kind = if section.exclusive { "one runner at a time" } else { "any number of runners" };
        let human = format!("updated {BOLD}{}{BOLD:#} {DIM}{}{DIM:#}: {kind}", section.name, section.id);
        context.printer.result(&SectionView::from(&section), human)
    }
}

impl Delete {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let section = find::section(&mut client.reader()?, &self.section)?;
        match client.request(SectionRequest::Delete { id: section.id.clone(), force: self.force })? {
            SectionOutcome::Deleted => {}
            outcome => return Err(refused(section.name.as_str(), &outcome)),
        }
        let human = format!("deleted {BOLD}{}{BOLD:#} {DIM}{}{DIM:#}", section.name, section.id);
        context.printer.result(&Deleted { id: &section.id, name: &section.name, forced: self.force }, human)
    }
}

fn kept(client: &Client, name: &str, request: SectionRequest) -> Result<Section, Failure> {
    match client.request(request)? {
        SectionOutcome::Kept(section) => Ok(section),
        outcome => Err(refused(name, &outcome)),
    }
}

fn refused(name: &str, outcome: &SectionOutcome) -> Failure {
    let quoted = format::quoted(name);
    match outcome {
        SectionOutcome::Unknown => find::no_section(name),
        SectionOutcome::NameTaken(id) => {
            Failure::new(exit::USAGE, "SECTION_EXISTS", format!("section {name:?} already exists: {id}"))
                .detail("section", &name)
                .detail("id", &id)
        }
        SectionOutcome::TooMany => {
            Failure::usage("a project may have at most 1000 sections").hint("use labels for finer distinctions")
        }
        SectionOutcome::NotEmpty(tasks) => {
            let message =
                format!("{name:?} is not empty: it has {}", if *tasks == 1 { "1 task".into() } else { format!("{tasks} tasks") });
            Failure::new(exit::USAGE, "SECTION_NOT_EMPTY", message).detail("section", &name).detail("tasks", &tasks).hint(
                format!("list them: banksman tasks list --section {quoted}; move them: banksman tasks update TASK --section …"),
            )
        }
        SectionOutcome::Locked(holder) => Failure::new(exit::LOCKED, "SECTION_LOCKED", format!("{name:?} is locked by {holder}"))
            .detail("section", &name)
            .detail("lockedBy", &holder)
            .hint(format!("to delete it anyway: banksman sections delete {quoted} --force")),
        SectionOutcome::Kept(_) | SectionOutcome::Deleted => Failure::unexpected(outcome),
    }
}

/// The pages of these sections, and the time of the read.
fn pages(project: &Project, reader: &mut Reader, sections: Vec<Section>) -> Result<(Vec<Page>, Stamp), Failure> {
    let keys = sections.iter().map(|section| Key::Lock(section.id.lock())).collect();
    let rows = reader.view().load(&keys)?;
    let at = rows.at();
    let mut counts = reader.view().section_counts()?;
    let mut page = |section: Section| {
        let holder = rows.coordination.locks.get(&section.id.lock()).and_then(|lock| match &lock.state {
            lock::State::Free => None,
            lock::State::Held(grant) => {
                Some((grant.claim.holder.to_string(), grant.acquired, resources::holder_state(grant, at, project.host())))
            }
        });
        Page { counts: counts.remove(&section.id).unwrap_or_default(), section, holder }
    };
    Ok((sections.into_iter().map(&mut page).collect(), at))
}

impl Page {
    fn view(&self) -> SectionPage<'_> {
        let holder = self.holder.as_ref();
        SectionPage {
            section: (&self.section).into(),
            tasks: self.counts.values().sum(),
            by_status: &self.counts,
            holder: holder.map(|(holder, ..)| holder.as_str()),
            since: holder.map(|(_, since, _)| Time(since.wall)),
            holder_state: holder.map(|(.., state)| *state),
        }
    }

    fn number(&self, status: &[Status]) -> u64 {
        status.iter().filter_map(|status| self.counts.get(status)).sum()
    }

    fn row(&self, at: Stamp) -> Vec<String> {
        let cell = |number: u64, style: Style| match number {
            0 => "-".to_owned(),
            number => format!("{style}{number}{style:#}"),
        };
        let plain = Style::PLAIN;
        let over = [Status::Failed, Status::Cancelled, Status::Skipped];
        vec![
            self.section.id.to_string(),
            self.section.name.to_string(),
            if self.section.exclusive { "yes".into() } else { "-".into() },
            cell(self.number(&[Status::Pending, Status::Review]), plain),
            cell(self.number(&[Status::Blocked]), YELLOW),
            cell(self.number(&[Status::InProgress, Status::Stuck, Status::Landing]), plain),
            cell(self.number(&[Status::Completed]), GREEN),
            cell(self.number(&over), RED),
            self.holder.as_ref().map_or_else(String::new, |holder| works(holder, at)),
        ]
    }
}

/// `runner:n-7k2m9q1a for 3 min`.
fn works((holder, since, state): &(String, Stamp, &'static str), at: Stamp) -> String {
    let state = if *state == "held" { String::new() } else { format!(" {RED}({state}){RED:#}") };
    format!("{holder} for {}{state}", format::span(at.lease - since.lease))
}

impl List {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let mut sections: Vec<Section> =
            reader.view().load(&[Key::Sections].into())?.tables.backlog.sections.into_values().collect();
        sections.sort_by_key(|section| section.position);
        let (pages, at) = pages(&project, &mut reader, sections)?;
        let human = if pages.is_empty() {
            format!("no sections yet\n{DIM}try: banksman sections add backend{DIM:#}")
        } else {
            let columns =
                ["ID????", "NAME~", "EXCLUSIVE???", "PENDING>", "BLOCKED>", "RUNNING>", "COMPLETED>", "FAILED>", "HOLDER~??"];
            self.table.render(&columns, pages.iter().map(|page| page.row(at)).collect())?
        };
        context.printer.result(&Named("sections", pages.iter().map(Page::view).collect::<Vec<_>>()), human)
    }
}

impl Show {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let section = find::section(&mut reader, &self.section)?;
        let (mut pages, at) = pages(&project, &mut reader, vec![section])?;
        let page = pages.pop().ok_or_else(|| find::no_section(&self.section))?;
        let events = reader.view().recent("section", page.section.id.as_str(), 5)?;
        let mut human = format!(
            "{BOLD}{}{BOLD:#} is {}",
            page.section.name,
            if page.section.exclusive { "exclusive" } else { "open to any number of runners" }
        );
        let mut field = |name: &str, value: String| human.push_str(&format!("\n  {DIM}{name:<11}{DIM:#} {value}"));
        field("id", page.section.id.to_string());
        if let Some(holder) = &page.holder {
            field("holder", works(holder, at));
        }
        if page.counts.is_empty() {
            field("tasks", "none".into());
        }
        for (status, number) in &page.counts {
            field(status.as_str(), number.to_string());
        }
        human.push_str(&events::recent(&events, &Default::default()));
        context.printer.result(&WithEvents::new(page.view(), &events), human)
    }
}
