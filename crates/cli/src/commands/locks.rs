use std::ffi::OsString;

use banksman_adapters::host::Host;
use banksman_core::event::Kind;
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::lock::{self, Lock, State};
use banksman_core::suggest::closest;
use banksman_core::{Epoch, HolderId, Name, Span, Stamp};
use banksman_store::{Key, Reader};
use clap::Args;

use super::resources::{self, AcquireFlags, Dur};
use super::{ExitResult, find, tasks};
use crate::context::{Actor, Context, inherited_epoch};
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::table::TableFlags;
use crate::views::Named;
use crate::views::events::WithEvents;
use crate::views::resources::{Granted, LockDefinition, LockPage, LockView, Released};

/// The prefixes of the locks of tasks and sections.
const TASK: &str = "task:";
const SECTION: &str = "section:";

subcommands! {
    /// Manage locks: one holder at a time, first come, first served.
    #[command(after_help = "Examples:\n  banksman locks run deploy -- ./deploy.sh\n  banksman locks list")]
    pub(crate) noun Locks {
        Define(Define),
        List(List),
        Show(Show),
        Acquire(Acquire),
        Heartbeat(Heartbeat),
        Release(Release),
        Cleanup(Cleanup),
        Run(Run),
    }
}

/// Set the defaults for later grants of a lock.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman locks define deploy --ttl 5m --max-hold 1h")]
struct Define {
    /// The lock
    name: Name,
    /// Time to live of a grant without a heartbeat
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    ttl: Option<Dur>,
    /// Maximum time that a grant lasts
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    max_hold: Option<Dur>,
}

/// List locks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  banksman locks list\n  banksman locks list --held --json")]
struct List {
    /// Only held locks
    #[arg(long)]
    held: bool,
    #[command(flatten)]
    table: TableFlags,
}

/// Show one lock with its waiters and its recent events.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman locks show deploy")]
struct Show {
    /// The lock; or a task, for the lock of a manual claim on it; or section:NAME, for the lock of an exclusive section
    name: Name,
}

/// Acquire a lock, or wait for it.
///
/// Without --pid the lock is bound to no process: it expires unless `locks heartbeat` renews it. To hold a lock
/// while a command runs, `locks run` is simpler and safer.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman locks acquire deploy --holder ci-42 --ttl 10m\n  banksman locks acquire deploy --pid $$\n  banksman locks acquire deploy --no-wait"
)]
struct Acquire {
    /// The lock
    name: Name,
    #[command(flatten)]
    flags: AcquireFlags,
    /// Maximum time to hold the lock
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    max_hold: Option<Dur>,
}

/// Renew a lock that you hold.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman locks heartbeat deploy --holder ci-42 --epoch 17")]
struct Heartbeat {
    /// The lock; or a task, for the lock of a manual claim on it
    name: Name,
    /// The holder [default: $BANKSMAN_HOLDER]
    #[arg(long, value_name = "NAME")]
    holder: Option<HolderId>,
    /// The epoch of the grant [default: $BANKSMAN_LOCK_EPOCH inside of `locks run`]
    #[arg(long, value_name = "N")]
    epoch: Option<i64>,
}

/// Release a lock.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman locks release deploy --holder ci-42 --epoch 17\n  banksman locks release deploy --force"
)]
struct Release {
    /// The lock; or a task, for the lock of a manual claim on it
    name: Name,
    /// The holder [default: $BANKSMAN_HOLDER]
    #[arg(long, value_name = "NAME")]
    holder: Option<HolderId>,
    /// The epoch of the grant [default: $BANKSMAN_LOCK_EPOCH inside of `locks run`]
    #[arg(long, value_name = "N")]
    epoch: Option<i64>,
    /// Release the lock of any holder. That holder is fenced, but its work is not stopped.
    #[arg(long, conflicts_with_all = ["holder", "epoch"])]
    force: bool,
}

/// Release the locks of dead holders and of expired leases, and remove the claims of dead waiting processes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman locks cleanup --dry-run")]
struct Cleanup {
    /// Only list the locks that would be released
    #[arg(long)]
    dry_run: bool,
}

/// Hold a lock while a command runs.
///
/// The command's exit status is passed on. If this process dies, the command dies too, and only then is the lock
/// free. If the lock is lost, the command and all its descendants are stopped, and the exit status is 8.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman locks run deploy -- ./deploy.sh production\n  banksman locks run db --timeout 5m -- make migrate"
)]
struct Run {
    /// The lock
    name: Name,
    #[command(flatten)]
    flags: AcquireFlags,
    /// Maximum time to hold the lock
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    max_hold: Option<Dur>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Acquire {
    fn run(self, context: &Context) -> ExitResult {
        resources::acquire(context, Kind::Lock, &self.name, 1, self.max_hold, &self.flags)
    }
}

impl Cleanup {
    fn run(self, context: &Context) -> ExitResult {
        resources::cleanup(context, Kind::Lock, self.dry_run)
    }
}

impl Run {
    fn run(self, context: &Context) -> ExitResult {
        resources::run(context, Kind::Lock, &self.name, 1, self.max_hold, &self.flags, &self.command)
    }
}

impl Define {
    fn run(self, context: &Context) -> ExitResult {
        let ttl = self.ttl.map(|ttl| ttl.positive("--ttl")).transpose()?;
        let max_hold = self.max_hold.map(|max_hold| max_hold.positive("--max-hold")).transpose()?;
        let resource = resources::own_name(Kind::Lock, &self.name)?;
        let config = lock::Config { ttl, max_hold };
        context.client()?.ask(Command::Lock(resource.name, lock::Input::Define(config)), Vec::new())?;
        let words = |value: Option<Span>| value.map_or_else(|| "none".into(), |span| span.to_string());
        let human = format!("defined {BOLD}{}{BOLD:#}: ttl {}, max hold {}", self.name, words(ttl), words(max_hold));
        context.printer.result(&LockDefinition { name: &self.name, terms: config.into() }, human)
    }
}

impl List {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let snapshot = project.reader()?.view().snapshot()?;
        let at = snapshot.at();
        let mut locks: Vec<(Lock, &str)> = snapshot
            .tables
            .coordination
            .locks
            .into_values()
            .map(|lock| {
                let state = state(&lock, at, project.host());
                (lock, state)
            })
            .collect();
        if self.held {
            locks.retain(|(_, state)| *state != "free");
        }
        // Held locks come first.
        locks.sort_by_key(|(_, state)| *state == "free");
        let views: Vec<LockView<'_>> = locks.iter().map(|(lock, state)| LockView::new(lock, state)).collect();
        let human = if locks.is_empty() && self.held {
            "no lock is held".to_owned()
        } else if locks.is_empty() {
            format!("no locks yet\n{DIM}try: banksman locks run deploy -- echo \"only one at a time\"{DIM:#}")
        } else {
            let rows = locks.iter().map(|(lock, state)| row(lock, state, at)).collect();
            self.table.render(&["NAME~", "STATE", "HOLDER~", "HELD FOR>??", "EXPIRES IN>?", "WAITERS>???"], rows)?
        };
        context.printer.result(&Named("locks", views), human)
    }
}

fn state(lock: &Lock, at: Stamp, host: &Host) -> &'static str {
    match &lock.state {
        State::Free => "free",
        State::Held(grant) => resources::holder_state(grant, at, host),
    }
}

fn coloured(state: &str) -> String {
    let style = match state {
        "held" => GREEN,
        "offered" => YELLOW,
        "free" => DIM,
        _ => RED,
    };
    format!("{style}{state}{style:#}")
}

fn row(lock: &Lock, state: &str, at: Stamp) -> Vec<String> {
    let waiters = if lock.waiters.is_empty() { "-".into() } else { lock.waiters.len().to_string() };
    let blank = || "-".to_owned();
    let (holder, held_for, expires) = match &lock.state {
        State::Free => (blank(), blank(), blank()),
        State::Held(grant) => (
            grant.claim.holder.to_string(),
            format::span(at.lease - grant.acquired.lease),
            grant.deadline().map_or_else(|| "never".into(), |deadline| format::span(deadline - at.lease)),
        ),
    };
    vec![lock.name.to_string(), coloured(state), holder, held_for, expires, waiters]
}

impl Show {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let name = lock_name(&mut reader, &self.name)?;
        let mut snapshot = reader.view().snapshot()?;
        let at = snapshot.at();
        let lock = snapshot.coordination.locks.remove(&name).unwrap_or_else(|| Lock::new(name.clone()));
        let events = reader.view().recent("lock", name.as_str(), 5)?;
        let state = state(&lock, at, project.host());
        let mut human = format!("{BOLD}{}{BOLD:#} is {}", lock.name, coloured(state));
        if let State::Held(grant) = &lock.state {
            let ago = |stamp: Stamp| format!("{} ago", format::span(at.lease - stamp.lease));
            let mut field = |name: &str, value: String| human.push_str(&format!("\n  {DIM}{name:<10}{DIM:#} {value}"));
            field("holder", grant.claim.holder.to_string());
            if !grant.claim.ancestors.is_empty() {
                field("for", grant.claim.ancestors.iter().map(|ancestor| ancestor.as_str()).collect::<Vec<_>>().join(", "));
            }
            field("epoch", grant.epoch.to_string());
            field("acquired", ago(grant.acquired));
            field("heartbeat", ago(grant.heartbeat));
            let expiry = |deadline| format!("in {}", format::span(deadline - at.lease));
            field("expires", grant.deadline().map_or_else(|| "never, unless its process dies".into(), expiry));
            if !grant.claim.processes.is_empty() {
                field("pids", grant.claim.processes.iter().map(|process| process.pid.to_string()).collect::<Vec<_>>().join(", "));
            }
            if let Some(metadata) = &grant.claim.metadata {
                field("metadata", metadata.to_string());
            }
        }
        human.push_str(&resources::waiter_rows(&lock.waiters, at, false));
        human.push_str(&super::events::recent(&events, &Default::default()));
        context.printer.result(&WithEvents::new(LockPage::new(&lock, state), &events), human)
    }
}

/// The lock with this name, or the lock of the task or section with this id or title. Locks of tasks and sections exist
/// as long as these do, held or not; every other lock exists once it is defined or acquired.
fn lock_name(reader: &mut Reader, name: &Name) -> Result<Name, Failure> {
    let rows = reader.view().load(&[Key::Lock(name.clone())].into())?;
    if rows.coordination.locks.contains_key(name) {
        return Ok(name.clone());
    }
    if let Some(section) = name.as_str().strip_prefix(SECTION) {
        return find::section(reader, section).map(|section| section.id.lock());
    }
    let task = name.as_str().strip_prefix(TASK).unwrap_or(name.as_str());
    match &find::tasks_named(reader, task)?[..] {
        [] if task == name.as_str() => Err(no_lock(reader, name)?),
        [] => Err(find::no_task(task)),
        [_, ..] => find::task_id(reader, task).map(|task| task.lock()),
    }
}

/// The failure for an unknown lock, with a similar name if there is one.
fn no_lock(reader: &mut Reader, name: &Name) -> Result<Failure, Failure> {
    let locks = reader.view().snapshot()?.tables.coordination.locks;
    let hint = match closest(name.as_str(), locks.keys().map(Name::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None => "list the locks: banksman locks list".into(),
    };
    let failure = Failure::new(exit::NOT_FOUND, "LOCK_NOT_FOUND", format!("there is no lock {name}"));
    Ok(failure.detail("name", &name).hint(hint))
}

/// The holder of the call. A manual claim of a task does not need a holder name.
fn holder(name: &Name, given: Option<&HolderId>) -> Result<HolderId, Failure> {
    match name.task().and_then(|_| tasks::speaker(given).transpose()) {
        Some(speaker) => speaker,
        None => Actor::existing(given, "acquire"),
    }
}

/// The epoch is required: a late release must never free a later grant.
fn epoch(name: &Name, given: Option<i64>) -> Result<Epoch, Failure> {
    let epoch = given.map(Epoch).or(inherited_epoch("lock", name.as_str())?);
    epoch.ok_or_else(|| {
        Failure::usage("--epoch is missing")
            .hint(format!("acquire prints it; so does: banksman locks show {}", format::quoted(name)))
    })
}

impl Heartbeat {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let name = lock_name(&mut client.reader()?, &self.name)?;
        let (holder, epoch) = (holder(&name, self.holder.as_ref())?, epoch(&name, self.epoch)?);
        let command = Command::Lock(name.clone(), lock::Input::Heartbeat { holder, epoch });
        match client.ask(command, Vec::new())? {
            (Outcome::Lock(lock::Outcome::Extended(grant)), at) => {
                let lasts = grant.deadline().map_or_else(
                    || "the grant does not expire and needs no heartbeats".into(),
                    |deadline| format!("expires in {}", format::span(deadline - at.lease)),
                );
                context.printer.result(&Granted::extended(&name, &grant), format!("extended {BOLD}{name}{BOLD:#}: {lasts}"))
            }
            (Outcome::Lock(outcome), _) => Err(resources::lock_refusal(&name, &outcome)),
            (outcome, _) => Err(Failure::unexpected(&outcome)),
        }
    }
}

impl Release {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let name = lock_name(&mut client.reader()?, &self.name)?;
        let input = if self.force {
            lock::Input::Force { by: resources::forced(&client) }
        } else {
            lock::Input::Release { holder: holder(&name, self.holder.as_ref())?, epoch: epoch(&name, self.epoch)? }
        };
        let (outcome, _) = client.ask(Command::Lock(name.clone(), input), Vec::new())?;
        let word = match outcome {
            Outcome::Lock(lock::Outcome::Released) => "released",
            Outcome::Lock(lock::Outcome::AlreadyFree) => "already_free",
            Outcome::Lock(outcome) => return Err(resources::lock_refusal(&name, &outcome)),
            outcome => return Err(Failure::unexpected(&outcome)),
        };
        let human = if word == "released" {
            format!("released {BOLD}{name}{BOLD:#}")
        } else {
            format!("{BOLD}{name}{BOLD:#} is free already")
        };
        context.printer.result(&Released { name: &name, outcome: word, forced: self.force }, human)
    }
}
