//! Runners over a store in memory, without processes: `stage` plays the driver.

mod attempts;
mod fleet;
mod lost_wakeups;
mod pipelines;
mod quota;
mod shortage;
mod stage;
mod unproven;
mod workers;

use super::{Action, Activity, Dispatcher, Input, Options, RunnerEvent, Vitals};
