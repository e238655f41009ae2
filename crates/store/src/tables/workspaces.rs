//! The directories of tasks and pipelines.

use banksman_core::Workspace;
use banksman_core::ids::TaskId;

use crate::columns::{Int, NeededJson, Text};
use crate::table::table;

table! {
    Workspaces "workspaces" of &'a TaskId => Workspace, |_id, workspace|
    by ["owner"] = [Text &workspace.owner]; inserts
    fixed { owner: Text, host: Text, place: NeededJson, created("created_wall"): Int }
    changing { state: NeededJson }
    read Workspace = Workspace { owner, host, place, created, state };
    statements {
        ByOwner => "SELECT {workspaces} FROM workspaces WHERE project = $1 AND owner = $2",
        All => "SELECT {workspaces} FROM workspaces WHERE project = $1 ORDER BY owner",
    }
}
