//! Sections: ordered groups of tasks.

use banksman_core::backlog::Section;
use banksman_core::ids::SectionId;

use crate::columns::{Int, Text};
use crate::table::table;

table! {
    Sections "sections" of &'a SectionId => Section, |_id, section|
    by ["id"] = [Text &section.id]; upserts
    fixed { id: Text, position: Int }
    changing { name: Text, exclusive: Int }
    read Section = Section { id, name, exclusive, position };
    statements {
        All => "SELECT {sections} FROM sections WHERE project = $1 ORDER BY position",
    }
}
