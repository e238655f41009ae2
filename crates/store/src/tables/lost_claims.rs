//! Claims that ended against the will of their holder, until the holder is notified.

use banksman_core::backlog::LostClaim;
use banksman_core::{HolderId, TaskId};

use crate::columns::{Int, Text};
use crate::table::table;

table! {
    LostClaims "lost_claims" of &'a (TaskId, HolderId) => LostClaim, |_key, lost|
    by ["task", "holder"] = [Text &lost.task, Text &lost.holder]; upserts
    fixed { task: Text, holder: Text }
    changing { epoch: Int, reason: Text, at("lost_wall"): Int }
    read LostClaim = LostClaim { task, holder, epoch, reason, at };
    statements {
        OfTask => "SELECT {lost_claims} FROM lost_claims WHERE project = $1 AND task = $2",
    }
}
