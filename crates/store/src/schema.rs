//! The tables, as numbered migrations. A released migration is never changed.

/// The schema version of this program.
pub const VERSION: i64 = MIGRATIONS.len() as i64;

/// The migrations from one schema version to the next, each in one transaction.
pub(crate) const MIGRATIONS: [&str; 24] = [
    include_str!("schema/0001_coordination.sql"),
    include_str!("schema/0002_backlog.sql"),
    include_str!("schema/0003_endurance.sql"),
    include_str!("schema/0004_queues.sql"),
    include_str!("schema/0005_runbooks.sql"),
    include_str!("schema/0006_trust.sql"),
    include_str!("schema/0007_shortage.sql"),
    include_str!("schema/0008_pipeline_locks.sql"),
    include_str!("schema/0009_claims.sql"),
    include_str!("schema/0010_limits.sql"),
    include_str!("schema/0011_route_depth.sql"),
    include_str!("schema/0012_pipeline_slots.sql"),
    include_str!("schema/0013_workspaces.sql"),
    include_str!("schema/0014_ready.sql"),
    include_str!("schema/0015_landing.sql"),
    include_str!("schema/0016_fan_outs.sql"),
    include_str!("schema/0017_messages.sql"),
    include_str!("schema/0018_account_limits.sql"),
    include_str!("schema/0019_pause.sql"),
    include_str!("schema/0020_indexes.sql"),
    include_str!("schema/0021_spend.sql"),
    include_str!("schema/0022_deliveries.sql"),
    include_str!("schema/0023_counters.sql"),
    include_str!("schema/0024_appended.sql"),
];
