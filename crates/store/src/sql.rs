//! Every statement, written once for every database.

/// A statement by name. Its parameters are `$1`, `$2`, …; `$1` is always the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statement {
    Project,
    InsertProject,
    UpdateProject,
    Boots,
    InsertBoot,
    Lock,
    AllLocks,
    WaitedLocks,
    UpsertLock,
    Semaphore,
    AllSemaphores,
    WaitedSemaphores,
    UpsertSemaphore,
    Slots,
    AllSlots,
    WaitedSlots,
    UpsertSlot,
    DeleteSlot,
    Waiters,
    UpsertWaiter,
    DeleteWaiter,
    Request,
    InsertEvent,
    Events,
    LastEvents,
    Notify,
}

macro_rules! claim {
    () => {
        "holder, weight, ttl, max_hold, ancestors, processes, metadata, request"
    };
}
macro_rules! grant {
    () => {
        concat!(claim!(), ", epoch, acquired_lease, acquired_wall, heartbeat_lease, heartbeat_wall, ticket, offer")
    };
}
macro_rules! locks {
    () => {
        concat!("SELECT name, default_ttl, default_max_hold, fence, ", grant!(), " FROM locks WHERE project = $1")
    };
}
macro_rules! semaphores {
    () => {
        "SELECT name, capacity, default_ttl FROM semaphores WHERE project = $1"
    };
}
macro_rules! slots {
    () => {
        concat!("SELECT semaphore, ", grant!(), " FROM slots WHERE project = $1")
    };
}
macro_rules! waited {
    ($kind:literal) => {
        concat!(" IN (SELECT resource FROM waiters WHERE project = $1 AND kind = '", $kind, "')")
    };
}

impl Statement {
    pub(crate) const COUNT: usize = Statement::Notify as usize + 1;

    /// All of them, each at the index that is its number.
    pub(crate) const ALL: [Statement; Statement::COUNT] = [
        Statement::Project,
        Statement::InsertProject,
        Statement::UpdateProject,
        Statement::Boots,
        Statement::InsertBoot,
        Statement::Lock,
        Statement::AllLocks,
        Statement::WaitedLocks,
        Statement::UpsertLock,
        Statement::Semaphore,
        Statement::AllSemaphores,
        Statement::WaitedSemaphores,
        Statement::UpsertSemaphore,
        Statement::Slots,
        Statement::AllSlots,
        Statement::WaitedSlots,
        Statement::UpsertSlot,
        Statement::DeleteSlot,
        Statement::Waiters,
        Statement::UpsertWaiter,
        Statement::DeleteWaiter,
        Statement::Request,
        Statement::InsertEvent,
        Statement::Events,
        Statement::LastEvents,
        Statement::Notify,
    ];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Statement::Project => {
                "SELECT p.seq, p.ticket, p.lease, p.lease_base, p.boot, s.version, /* clock */ NULL FROM projects p, store s WHERE p.project = $1"
            }
            Statement::InsertProject => {
                "INSERT INTO projects (project, id, seq, ticket, lease, lease_base, boot) VALUES ($1, $2, 0, 0, $3, 0, $4)"
            }
            Statement::UpdateProject => {
                "UPDATE projects SET seq = $2, ticket = $3, lease = $4, lease_base = $5, boot = $6 WHERE project = $1"
            }
            Statement::Boots => "SELECT boot, seq FROM boots WHERE project = $1 AND host = $2 ORDER BY boot",
            Statement::InsertBoot => "INSERT INTO boots (project, host, boot, seq) VALUES ($1, $2, $3, $4)",
            Statement::Lock => concat!(locks!(), " AND name = $2"),
            Statement::AllLocks => concat!(locks!(), " ORDER BY name"),
            Statement::WaitedLocks => concat!(locks!(), " AND name", waited!("lock"), " ORDER BY name"),
            Statement::UpsertLock => concat!(
                "INSERT INTO locks (project, name, default_ttl, default_max_hold, fence, ",
                grant!(),
                ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) ",
                "ON CONFLICT (project, name) DO UPDATE SET default_ttl = $3, default_max_hold = $4, fence = $5, holder = $6, ",
                "weight = $7, ttl = $8, max_hold = $9, ancestors = $10, processes = $11, metadata = $12, request = $13, ",
                "epoch = $14, acquired_lease = $15, acquired_wall = $16, heartbeat_lease = $17, heartbeat_wall = $18, ",
                "ticket = $19, offer = $20"
            ),
            Statement::Semaphore => concat!(semaphores!(), " AND name = $2"),
            Statement::AllSemaphores => concat!(semaphores!(), " ORDER BY name"),
            Statement::WaitedSemaphores => concat!(semaphores!(), " AND name", waited!("semaphore"), " ORDER BY name"),
            Statement::UpsertSemaphore => concat!(
                "INSERT INTO semaphores (project, name, capacity, default_ttl) VALUES ($1, $2, $3, $4) ",
                "ON CONFLICT (project, name) DO UPDATE SET capacity = $3, default_ttl = $4"
            ),
            Statement::Slots => concat!(slots!(), " AND semaphore = $2 ORDER BY holder"),
            Statement::AllSlots => concat!(slots!(), " ORDER BY semaphore, holder"),
            Statement::WaitedSlots => concat!(slots!(), " AND semaphore", waited!("semaphore"), " ORDER BY semaphore, holder"),
            Statement::UpsertSlot => concat!(
                "INSERT INTO slots (project, semaphore, ",
                grant!(),
                ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ",
                "ON CONFLICT (project, semaphore, holder) DO UPDATE SET weight = $4, ttl = $5, max_hold = $6, ancestors = $7, ",
                "processes = $8, metadata = $9, request = $10, epoch = $11, acquired_lease = $12, acquired_wall = $13, ",
                "heartbeat_lease = $14, heartbeat_wall = $15, ticket = $16, offer = $17"
            ),
            Statement::DeleteSlot => "DELETE FROM slots WHERE project = $1 AND semaphore = $2 AND holder = $3",
            Statement::Waiters => concat!(
                "SELECT ticket, kind, resource, ",
                claim!(),
                ", standing, since_lease, since_wall, seen_lease FROM waiters WHERE project = $1 ORDER BY ticket"
            ),
            Statement::UpsertWaiter => concat!(
                "INSERT INTO waiters (project, ticket, kind, resource, ",
                claim!(),
                ", standing, since_lease, since_wall, seen_lease) ",
                "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ",
                "ON CONFLICT (project, ticket) DO UPDATE SET processes = $10, standing = $13, seen_lease = $16"
            ),
            Statement::DeleteWaiter => "DELETE FROM waiters WHERE project = $1 AND ticket = $2",
            Statement::Request => {
                "SELECT seq, kind, component, id, data FROM events WHERE project = $1 AND request = $2 ORDER BY seq DESC LIMIT 1"
            }
            Statement::InsertEvent => {
                "INSERT INTO events (project, seq, wall, kind, component, id, request, data) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
            }
            Statement::Events => concat!(
                "SELECT seq, wall, kind, component, id, data FROM events WHERE project = $1 AND seq > $2 ",
                "AND wall >= $4 ORDER BY seq LIMIT $3"
            ),
            Statement::LastEvents => concat!(
                "SELECT seq, wall, kind, component, id, data FROM events WHERE project = $1 AND seq > $2 ",
                "AND component = $3 AND id = $4 ORDER BY seq DESC LIMIT $5"
            ),
            Statement::Notify => "SELECT pg_notify($1, $2)",
        }
    }
}
