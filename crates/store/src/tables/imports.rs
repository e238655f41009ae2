//! Unfinished imports. Their tasks are stored, but hidden while the row exists.

use banksman_core::ids::ImportId;
use banksman_core::import::Import;

use crate::columns::{Int, Json, NeededJson, Text};
use crate::table::table;

table! {
    Imports "imports" of &'a ImportId => Import, |_id, import|
    by ["id"] = [Text &import.id]; inserts
    fixed { id: Text, process: NeededJson, position: Int, started("started_wall"): Int, total: Int, sections: Json }
    changing { added: Int }
    read Import = Import { id, process, position, started, total, added, sections };
    statements {
        All => "SELECT {imports} FROM imports WHERE project = $1 ORDER BY id",
    }
}
