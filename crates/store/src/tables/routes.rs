//! Routes from events to their consequences.

use banksman_core::route::InForce;

use crate::columns::{Int, NeededJson, Text};
use crate::table::table;

table! {
    Routes "routes" of &'a Box<str> => InForce, |id, _in_force|
    by ["id"] = [Text id]; upserts
    fixed { id: Text = id }
    changing { route: NeededJson, since: Int }
    read (Box<str>, InForce) = (id, InForce { route, since });
    statements {
        ById => "SELECT {routes} FROM routes WHERE project = $1 AND id = $2",
    }
}
