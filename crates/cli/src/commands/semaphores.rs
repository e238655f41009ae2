use std::ffi::OsString;

use banksman_adapters::host::Host;
use banksman_core::event::Kind;
use banksman_core::resource::coordination::{Command, Outcome};
use banksman_core::resource::semaphore::{self, CAPACITY_LIMIT, Semaphore};
use banksman_core::{Epoch, Grant, HolderId, Name, Stamp};
use clap::Args;

use super::ExitResult;
use super::resources::{self, AcquireFlags, Dur};
use crate::context::{Actor, Context, inherited_epoch};
use crate::failure::Failure;
use crate::format;
use crate::printer::{BOLD, DIM};
use crate::table::{self, TableFlags};
use crate::views::resources::{GrantView, Granted, Released, SemaphoreDefinition, SemaphorePage, SemaphoreView};
use crate::views::{Named, Text};

subcommands! {
    /// Manage semaphores: counted slots, first come, first served.
    #[command(
        after_help = "Examples:\n  banksman semaphores define gpu --capacity 4\n  banksman semaphores run gpu --weight 2 -- python train.py"
    )]
    pub(crate) noun Semaphores {
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

/// Create a semaphore, or change its capacity while it is in use.
///
/// If the capacity shrinks, holders keep their slots; waiters that request more slots than the capacity are refused.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman semaphores define gpu --capacity 4 --ttl 5m")]
struct Define {
    /// The semaphore
    name: Name,
    /// The number of slots
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    capacity: u32,
    /// Time to live of a grant without a heartbeat
    #[arg(long, value_name = "DUR", allow_hyphen_values = true)]
    ttl: Option<Dur>,
}

/// List semaphores.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman semaphores list")]
struct List {
    #[command(flatten)]
    table: TableFlags,
}

/// Show one semaphore with its holders and its waiters.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman semaphores show gpu")]
struct Show {
    /// The semaphore
    name: Name,
}

/// Acquire slots of a semaphore, or wait for them.
///
/// A holder that acquires again with a larger weight gets more slots under the same epoch.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman semaphores acquire gpu --weight 2 --holder train-7\n  banksman semaphores acquire gpu --no-wait"
)]
struct Acquire {
    /// The semaphore
    name: Name,
    /// The number of slots to hold
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    weight: u32,
    #[command(flatten)]
    flags: AcquireFlags,
}

/// Renew slots that you hold.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman semaphores heartbeat gpu --holder train-7")]
struct Heartbeat {
    /// The semaphore
    name: Name,
    /// The holder [default: $BANKSMAN_HOLDER]
    #[arg(long, value_name = "NAME")]
    holder: Option<HolderId>,
    /// The epoch of the grant: with it, a late heartbeat is refused
    #[arg(long, value_name = "N")]
    epoch: Option<i64>,
}

/// Release all slots of a holder.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman semaphores release gpu --holder train-7 --epoch 21\n  banksman semaphores release gpu --holder train-7 --force"
)]
struct Release {
    /// The semaphore
    name: Name,
    /// The holder [default: $BANKSMAN_HOLDER]
    #[arg(long, value_name = "NAME")]
    holder: Option<HolderId>,
    /// The epoch of the grant: with it, a late release is refused
    #[arg(long, value_name = "N")]
    epoch: Option<i64>,
    /// Release the slots of any holder. That holder is fenced, but its work is not stopped.
    #[arg(long, conflicts_with = "epoch")]
    force: bool,
}

/// Release the slots of dead holders and of expired leases.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman semaphores cleanup --dry-run")]
struct Cleanup {
    /// Only list the slots that would be released
    #[arg(long)]
    dry_run: bool,
}

/// Hold slots while a command runs.
///
/// The command's exit status is passed on. If this process dies, the command dies too, and only then are the slots
/// free. If they are lost, the command and all its descendants are stopped, and the exit status is 8.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman semaphores run gpu --weight 2 -- python train.py")]
struct Run {
    /// The semaphore
    name: Name,
    /// The number of slots to hold
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    weight: u32,
    #[command(flatten)]
    flags: AcquireFlags,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Acquire {
    fn run(self, context: &Context) -> ExitResult {
        resources::acquire(context, Kind::Semaphore, &self.name, self.weight, None, &self.flags)
    }
}

impl Cleanup {
    fn run(self, context: &Context) -> ExitResult {
        resources::cleanup(context, Kind::Semaphore, self.dry_run)
    }
}

impl Run {
    fn run(self, context: &Context) -> ExitResult {
        resources::run(context, Kind::Semaphore, &self.name, self.weight, None, &self.flags, &self.command)
    }
}

impl Define {
    fn run(self, context: &Context) -> ExitResult {
        if self.capacity == 0 || self.capacity > CAPACITY_LIMIT {
            return Err(Failure::usage(format!("--capacity must be between 1 and {CAPACITY_LIMIT}")));
        }
        let ttl = self.ttl.map(|ttl| ttl.positive("--ttl")).transpose()?;
        let resource = resources::own_name(Kind::Semaphore, &self.name)?;
        let config = semaphore::Config { capacity: self.capacity, ttl };
        context.client()?.ask(Command::Semaphore(resource.name, semaphore::Input::Define(config)), Vec::new())?;
        let human = format!("defined {BOLD}{}{BOLD:#}: {}", self.name, format::slots(self.capacity));
        let view = SemaphoreDefinition { name: &self.name, capacity: Some(self.capacity), ttl: ttl.map(Text) };
        context.printer.result(&view, human)
    }
}

impl List {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let snapshot = project.reader()?.view().snapshot()?;
        let at = snapshot.at();
        let semaphores = snapshot.tables.coordination.semaphores.into_values();
        let semaphores: Vec<Usage> = semaphores.map(|semaphore| Usage::of(semaphore, at, project.host())).collect();
        let views: Vec<_> = semaphores.iter().map(|usage| usage.view(usage.live().count())).collect();
        let human = if semaphores.is_empty() {
            format!("no semaphores yet\n{DIM}try: banksman semaphores define gpu --capacity 4{DIM:#}")
        } else {
            let columns = ["NAME~", "CAPACITY>", "AVAILABLE>", "HOLDERS>?", "WAITERS>??"];
            self.table.render(&columns, semaphores.iter().map(Usage::row).collect())?
        };
        context.printer.result(&Named("semaphores", views), human)
    }
}

/// A semaphore and its use: grants that are over take no slots, though their rows stay until the next request.
struct Usage {
    semaphore: Semaphore,
    /// The state of each grant, in the order of the holders.
    states: Vec<&'static str>,
}

impl Usage {
    fn of(semaphore: Semaphore, at: Stamp, host: &Host) -> Usage {
        let states = semaphore.holders.values().map(|grant| resources::holder_state(grant, at, host)).collect();
        Usage { semaphore, states }
    }

    /// The grants with their states.
    fn grants(&self) -> impl Iterator<Item = (&Grant, &'static str)> {
        self.semaphore.holders.values().zip(self.states.iter().copied())
    }

    /// The grants that take slots.
    fn live(&self) -> impl Iterator<Item = &Grant> {
        self.grants().filter(|(_, state)| !resources::is_over(state)).map(|(grant, _)| grant)
    }

    /// The number of slots; `None` for the run slots of a project that does not limit its runs.
    fn capacity(&self) -> Option<u32> {
        let is_unlimited = self.semaphore.name == Name::runs() && self.semaphore.config.capacity == CAPACITY_LIMIT;
        (!is_unlimited).then_some(self.semaphore.config.capacity)
    }

    fn available(&self) -> u32 {
        let used = self.live().map(|grant| grant.claim.weight).fold(0, u32::saturating_add);
        self.semaphore.config.capacity.saturating_sub(used)
    }

    fn expired(&self) -> usize {
        self.states.len() - self.live().count()
    }

    fn view<H>(&self, holders: H) -> SemaphoreView<'_, H> {
        let Semaphore { name, config, waiters, .. } = &self.semaphore;
        SemaphoreView {
            definition: SemaphoreDefinition { name, capacity: self.capacity(), ttl: config.ttl.map(Text) },
            available: self.capacity().map(|_| self.available()),
            holders,
            expired: self.expired(),
            waiters: waiters.len(),
        }
    }

    fn row(&self) -> Vec<String> {
        let number = |number: usize| if number == 0 { "-".to_owned() } else { number.to_string() };
        let expired = if self.expired() == 0 { String::new() } else { format!(" ({} expired)", self.expired()) };
        vec![
            self.semaphore.name.to_string(),
            self.capacity().map_or_else(|| "unlimited".into(), |capacity| capacity.to_string()),
            self.capacity().map_or_else(|| "-".into(), |_| self.available().to_string()),
            number(self.live().count()) + &expired,
            number(self.semaphore.waiters.len()),
        ]
    }
}

impl Show {
    fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let mut snapshot = project.reader()?.view().snapshot()?;
        let at = snapshot.at();
        let semaphore = snapshot.coordination.semaphores.remove(&self.name).ok_or_else(|| resources::undefined(&self.name))?;
        let usage = Usage::of(semaphore, at, project.host());
        let (semaphore, holders): (_, Vec<_>) = (&usage.semaphore, usage.grants().collect());
        let grants = holders.iter().map(|(grant, state)| GrantView::new(grant, state)).collect();
        let view = SemaphorePage::new(usage.view(grants), semaphore);
        let mut human = match usage.capacity() {
            Some(capacity) => format!("{BOLD}{}{BOLD:#} has {} of {capacity} slots free", self.name, usage.available()),
            None => format!("{BOLD}{}{BOLD:#} has any number of slots", self.name),
        };
        if !holders.is_empty() {
            let row = |(grant, state): &(&Grant, &'static str)| {
                vec![
                    grant.claim.holder.to_string(),
                    (*state).to_owned(),
                    grant.claim.weight.to_string(),
                    grant.epoch.to_string(),
                    format::span(at.lease - grant.acquired.lease),
                    format::span(at.lease - grant.heartbeat.lease),
                    grant.deadline().map_or_else(|| "never".into(), |deadline| format::span(deadline - at.lease)),
                ]
            };
            let columns = ["HOLDER~", "STATE", "WEIGHT>", "EPOCH>?", "HELD FOR>??", "LAST HEARTBEAT>????", "EXPIRES IN>???"];
            human.push_str(&format!("\n\n{}", table::render(&columns, holders.iter().map(row).collect())));
        }
        human.push_str(&resources::waiter_rows(&semaphore.waiters, at, true));
        context.printer.result(&view, human)
    }
}

fn epoch(name: &Name, given: Option<i64>) -> Result<Option<Epoch>, Failure> {
    Ok(given.map(Epoch).or(inherited_epoch("semaphore", name.as_str())?))
}

impl Heartbeat {
    fn run(self, context: &Context) -> ExitResult {
        let (holder, epoch) = (Actor::existing(self.holder.as_ref(), "acquire")?, epoch(&self.name, self.epoch)?);
        let command = Command::Semaphore(self.name.clone(), semaphore::Input::Heartbeat { holder, epoch });
        match context.client()?.ask(command, Vec::new())? {
            (Outcome::Semaphore(semaphore::Outcome::Extended(grant)), at) => {
                let lasts = grant.deadline().map_or_else(
                    || "the grant does not expire and needs no heartbeats".into(),
                    |deadline| format!("expires in {}", format::span(deadline - at.lease)),
                );
                let slots = format::slots(grant.claim.weight);
                let view = Granted::extended(&self.name, &grant);
                context.printer.result(&view, format!("extended {slots} of {BOLD}{}{BOLD:#}: {lasts}", self.name))
            }
            (Outcome::Semaphore(outcome), _) => Err(resources::semaphore_refusal(&self.name, &outcome)),
            _ => Err(resources::undefined(&self.name)),
        }
    }
}

impl Release {
    fn run(self, context: &Context) -> ExitResult {
        let client = context.client()?;
        let holder = Actor::existing(self.holder.as_ref(), "acquire")?;
        let input = if self.force {
            semaphore::Input::Force { holder, by: resources::forced(&client) }
        } else {
            semaphore::Input::Release { holder, epoch: epoch(&self.name, self.epoch)? }
        };
        match client.ask(Command::Semaphore(self.name.clone(), input), Vec::new())?.0 {
            Outcome::Semaphore(semaphore::Outcome::Released) => {
                let view = Released { name: &self.name, outcome: "released", forced: self.force };
                context.printer.result(&view, format!("released {BOLD}{}{BOLD:#}", self.name))
            }
            Outcome::Semaphore(outcome) => Err(resources::semaphore_refusal(&self.name, &outcome)),
            _ => Err(resources::undefined(&self.name)),
        }
    }
}
