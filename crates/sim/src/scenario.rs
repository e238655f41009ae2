//! Who takes part in a history.

use clap::ValueEnum;

use crate::mutation::Mutation;
use crate::random::Random;

/// The actors of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Processes that hold and wait for locks and semaphores.
    Locks,
    /// Processes that take items from queues.
    Queues,
    /// People who claim tasks, locks and slots, beside runners with exclusive sections.
    People,
    /// Runners, sessions, tasks, pipelines, workers, routes and people.
    Backlog,
    /// A hundred runners, and tasks with needs.
    Runners,
}

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn drawn(seed: u64) -> Scenario {
        // With random numbers of its own, so that naming the scenario gives the same history. A hundred runners take
        // long, so they run only when named.
        let drawn = [Scenario::Locks, Scenario::Queues, Scenario::People, Scenario::Backlog];
        *Random::new(seed ^ 0x5ce0_a210_0000_5eed).pick(&drawn)
    }

    /// A constant that separates its random numbers from those of the other scenarios.
    pub(crate) fn stream(self) -> u64 {
        match self {
            Scenario::Locks => 0x10c5 << 16,
            Scenario::Queues => 0x9e0e << 16,
            Scenario::People => 0x9e09 << 16,
            Scenario::Backlog => 0,
            Scenario::Runners => 0xf1ee << 16,
        }
    }

    /// The scenario in which a fault shows.
    pub(crate) fn of(mutation: Mutation) -> Scenario {
        use Mutation::*;
        match mutation {
            LockFencingOff | NewcomerFirst | CapacityOff | EpochReuse | FenceFalls | ForgetWaiter | DeadlockOff | StealLease
            | PresumeDead | SilentLock | LostHeartbeat | OutsideCounter => Scenario::Locks,
            QueueFencingOff | QueueNoTime | QueueSilent | QueueLostItem | QueueOldEpoch | QueueSilentRow => Scenario::Queues,
            SectionStays | ClaimForgotten | RenewsTaskOnly | SectionOpen | AdoptionNeedsLock | OvertakeOff | NextNotKept
            | StoppedKept | DeadlockUnseen | CircleInvented | WaitStays | WhyIgnoresClaims => Scenario::People,
            WakeLost | WakesAll | WakesTheDead | NewestFirst | EndersFirst | StaysParked => Scenario::Runners,
            _ => Scenario::Backlog,
        }
    }
}
