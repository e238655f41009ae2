//! Account limits that were reached.

use banksman_core::agent::limit::AccountLimit;
use banksman_core::ids::Name;

use crate::columns::{NeededJson, Text};
use crate::table::table;

table! {
    AccountLimits "account_limits" of &'a Name => AccountLimit, |_name, limit|
    by ["name"] = [Text &limit.name]; saves
    fixed { name: Text }
    changing { state: NeededJson = limit }
    read AccountLimit = { let state: AccountLimit = state; AccountLimit { name, ..state } };
    statements {
        All => "SELECT {account_limits} FROM account_limits WHERE project = $1 ORDER BY name",
    }
}
