//! The target branches of merge queues.

use banksman_core::ids::Name;
use banksman_core::landing::Target;

use crate::columns::{NeededJson, Text};
use crate::table::table;

table! {
    LandingTargets "landing_targets" of &'a Name => Target, |_name, target|
    by ["name"] = [Text &target.name]; saves
    fixed { name: Text }
    changing { state: NeededJson = target }
    read Target = { let state: Target = state; Target { name, ..state } };
    statements {
        ByName => "SELECT {landing_targets} FROM landing_targets WHERE project = $1 AND name = $2",
        All => "SELECT {landing_targets} FROM landing_targets WHERE project = $1 ORDER BY name",
        /// The target of the last entry of a task.
        OfTask => "SELECT {landing_targets} FROM landing_targets WHERE project = $1 AND name = (SELECT target FROM landings WHERE project = $1 AND task = $2 ORDER BY seq DESC LIMIT 1)",
    }
}
