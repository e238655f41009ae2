//! Every statement, written once for every database.

/// Defines the statements by name. Their parameters are `$1`, `$2`, …; `$1` is always the project.
macro_rules! statements {
    ($($name:ident => $text:expr;)*) => {
        /// A statement by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Statement {
            $($name,)*
        }

        impl Statement {
            /// All of them, each at the index that is its number.
            pub(crate) const ALL: [Statement; Statement::COUNT] = [$(Statement::$name,)*];

            pub(crate) const COUNT: usize = [$(stringify!($name),)*].len();

            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Statement::$name => $text,)*
                }
            }
        }
    };
}

statements! {
    Project => "SELECT p.seq, p.ticket, p.lease, p.lease_base, p.boot, s.version, /* clock */ NULL, p.moved_to, p.max_runs, p.max_roots FROM projects p, store s WHERE p.project = $1";
    InsertProject => "INSERT INTO projects (project, id, seq, ticket, lease, lease_base, boot) VALUES ($1, $2, 0, 0, $3, 0, $4)";
    UpdateProject => "UPDATE projects SET seq = $2, ticket = $3, lease = $4, lease_base = $5, boot = $6 WHERE project = $1";
    SetLimits => "UPDATE projects SET max_runs = $2, max_roots = $3 WHERE project = $1";
    Identity => "SELECT store_id, moved_to FROM projects WHERE project = $1";
    // An id is given once and never changed.
    SetStoreId => "UPDATE projects SET store_id = $2 WHERE project = $1 AND store_id IS NULL";
    SetMovedTo => "UPDATE projects SET moved_to = $2 WHERE project = $1";
    Boots => "SELECT boot, seq FROM boots WHERE project = $1 AND host = $2 ORDER BY boot";
    InsertBoot => "INSERT INTO boots (project, host, boot, seq) VALUES ($1, $2, $3, $4)";
    Lock => concat!(locks!(), " AND name = $2");
    AllLocks => concat!(locks!(), " ORDER BY name");
    WaitedLocks => concat!(locks!(), " AND name", waited!("lock"), " ORDER BY name");
    UpsertLock => concat!(
        "INSERT INTO locks (project, name, default_ttl, default_max_hold, fence, ",
        grant!(),
        ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) ",
        "ON CONFLICT (project, name) DO UPDATE SET default_ttl = $3, default_max_hold = $4, fence = $5, holder = $6, ",
        "weight = $7, ttl = $8, max_hold = $9, ancestors = $10, processes = $11, metadata = $12, request = $13, ",
        "epoch = $14, acquired_lease = $15, acquired_wall = $16, heartbeat_lease = $17, heartbeat_wall = $18, ",
        "ticket = $19, offer = $20"
    );
    // For lists: the locks of tasks that nobody works on say nothing.
    ListedLocks => concat!(locks!(), " AND (holder IS NOT NULL OR NOT (name >= 'task:' AND name < 'task;')) ORDER BY name");
    DeleteLock => "DELETE FROM locks WHERE project = $1 AND name = $2";
    Semaphore => concat!(semaphores!(), " AND name = $2");
    AllSemaphores => concat!(semaphores!(), " ORDER BY name");
    WaitedSemaphores => concat!(semaphores!(), " AND name", waited!("semaphore"), " ORDER BY name");
    UpsertSemaphore => concat!(
        "INSERT INTO semaphores (project, name, capacity, default_ttl) VALUES ($1, $2, $3, $4) ",
        "ON CONFLICT (project, name) DO UPDATE SET capacity = $3, default_ttl = $4"
    );
    Slots => concat!(slots!(), " AND semaphore = $2 ORDER BY holder");
    AllSlots => concat!(slots!(), " ORDER BY semaphore, holder");
    WaitedSlots => concat!(slots!(), " AND semaphore", waited!("semaphore"), " ORDER BY semaphore, holder");
    UpsertSlot => concat!(
        "INSERT INTO slots (project, semaphore, ",
        grant!(),
        ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ",
        "ON CONFLICT (project, semaphore, holder) DO UPDATE SET weight = $4, ttl = $5, max_hold = $6, ancestors = $7, ",
        "processes = $8, metadata = $9, request = $10, epoch = $11, acquired_lease = $12, acquired_wall = $13, ",
        "heartbeat_lease = $14, heartbeat_wall = $15, ticket = $16, offer = $17"
    );
    DeleteSlot => "DELETE FROM slots WHERE project = $1 AND semaphore = $2 AND holder = $3";
    Waiters => concat!(
        "SELECT ticket, kind, resource, ",
        claim!(),
        ", standing, since_lease, since_wall, seen_lease FROM waiters WHERE project = $1 ",
        // Runners that wait for something stand in no line, but are to be woken too.
        "UNION ALL SELECT 0, 'runner', id, NULL, NULL, NULL, NULL, NULL, NULL, watching, NULL, address, 0, 0, 0 ",
        "FROM runners WHERE project = $1 AND watching IS NOT NULL ",
        // Nor do claims.
        "UNION ALL SELECT ticket, 'claim', resource, holder, weight, epoch, NULL, kind, task, NULL, NULL, terms, 0, 0, 0 ",
        "FROM claims WHERE project = $1 ",
        // With those who hold what a waiting claim wants: they pass its reservations.
        "UNION ALL SELECT c.ticket, 'in the way', c.resource, l.holder, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0 ",
        "FROM claims c CROSS JOIN locks l WHERE c.project = $1 AND c.terms IS NOT NULL AND c.kind = 'lock' ",
        "AND l.project = $1 AND l.name = c.resource AND l.holder IS NOT NULL ",
        "UNION ALL SELECT c.ticket, 'in the way', c.resource, s.holder, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0 ",
        "FROM claims c CROSS JOIN slots s WHERE c.project = $1 AND c.terms IS NOT NULL AND c.kind = 'semaphore' ",
        "AND s.project = $1 AND s.semaphore = c.resource"
    );
    UpsertClaim => concat!(
        "INSERT INTO claims (project, ticket, kind, resource, weight, epoch, holder, task, terms) ",
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ",
        "ON CONFLICT (project, ticket, kind, resource) DO UPDATE SET weight = $5, epoch = $6, terms = $9"
    );
    DeleteClaim => "DELETE FROM claims WHERE project = $1 AND ticket = $2";
    LostClaims => "SELECT task, holder, epoch, reason, lost_wall FROM lost_claims WHERE project = $1 AND task = $2";
    UpsertLostClaim => concat!(
        "INSERT INTO lost_claims (project, task, holder, epoch, reason, lost_wall) VALUES ($1, $2, $3, $4, $5, $6) ",
        "ON CONFLICT (project, task, holder) DO UPDATE SET epoch = $4, reason = $5, lost_wall = $6"
    );
    DeleteLostClaim => "DELETE FROM lost_claims WHERE project = $1 AND task = $2 AND holder = $3";
    UpsertWaiter => concat!(
        "INSERT INTO waiters (project, ticket, kind, resource, ",
        claim!(),
        ", standing, since_lease, since_wall, seen_lease) ",
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ",
        "ON CONFLICT (project, ticket) DO UPDATE SET processes = $10, standing = $13, seen_lease = $16"
    );
    DeleteWaiter => "DELETE FROM waiters WHERE project = $1 AND ticket = $2";
    Request => "SELECT seq, kind, component, id, data FROM events WHERE project = $1 AND request = $2 ORDER BY seq DESC LIMIT 1";
    InsertEvent => "INSERT INTO events (project, seq, wall, kind, component, id, request, data, actor, depth) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    Events => concat!(
        "SELECT seq, wall, kind, component, id, data, actor, depth FROM events WHERE project = $1 AND seq > $2 ",
        "AND wall >= $4 ORDER BY seq LIMIT $3"
    );
    // With what a pipeline is to do, if it happened to one: that tells which pipeline of which runbook it is.
    Heard => concat!(
        "SELECT e.seq, e.wall, e.kind, e.component, e.id, e.data, CASE WHEN e.component = 'pipeline' THEN ",
        "(SELECT t.spec FROM tasks t WHERE t.project = $1 AND t.id = e.id) END, e.depth FROM events e ",
        "WHERE e.project = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3"
    );
    LastEvents => concat!(
        "SELECT seq, wall, kind, component, id, data, actor, depth FROM events WHERE project = $1 AND seq > $2 ",
        "AND component = $3 AND id = $4 ORDER BY seq DESC LIMIT $5"
    );
    Compacted => "SELECT compacted, compacted_wall FROM projects WHERE project = $1";
    SetCompacted => "UPDATE projects SET compacted = $2, compacted_wall = $3 WHERE project = $1";
    DeleteEvents => "DELETE FROM events WHERE project = $1 AND seq <= $2";
    Kept => "SELECT component, id, data FROM baseline WHERE project = $1 AND component = $2 AND id = $3";
    AllKept => "SELECT component, id, data FROM baseline WHERE project = $1 ORDER BY component, id";
    UpsertKept => concat!(
        "INSERT INTO baseline (project, component, id, data) VALUES ($1, $2, $3, $4) ",
        "ON CONFLICT (project, component, id) DO UPDATE SET data = $4"
    );
    DeleteKept => "DELETE FROM baseline WHERE project = $1 AND component = $2 AND id = $3";
    Sections => "SELECT id, name, exclusive, position FROM sections WHERE project = $1 ORDER BY position";
    UpsertSection => concat!(
        "INSERT INTO sections (project, id, name, exclusive, position) VALUES ($1, $2, $3, $4, $5) ",
        "ON CONFLICT (project, id) DO UPDATE SET name = $3, exclusive = $4"
    );
    DeleteSection => "DELETE FROM sections WHERE project = $1 AND id = $2";
    Task => concat!(tasks!(), " AND t.id = $2 AND ", shown!("t"));
    TaskById => concat!("SELECT t.id FROM tasks t WHERE t.project = $1 AND t.id = $2 AND ", shown!("t"));
    // The plus keeps SQLite from going through all positions instead of the few rows of a title.
    TaskByTitle => concat!(
        "SELECT t.id FROM tasks t WHERE t.project = $1 AND t.title = $2 AND ", shown!("t"), " ORDER BY +t.position LIMIT 20"
    );
    TaskByPrefix => concat!(
        "SELECT t.id FROM tasks t WHERE t.project = $1 AND t.id >= $2 AND t.id < $3 AND ", shown!("t"), " ORDER BY t.id LIMIT 20"
    );
    TaskPage => concat!(
        "SELECT ", task!(), ", t.unmet FROM tasks t WHERE t.project = $1 AND t.position > $2 ",
        "AND (CAST($4 AS TEXT) IS NULL OR $4 LIKE '%|' || t.state || '|%') AND (CAST($5 AS TEXT) IS NULL OR t.section = $5) ",
        "AND (CAST($6 AS TEXT) IS NULL OR t.parent = $6) AND (CAST($7 AS TEXT) IS NULL OR t.spec LIKE $7) AND ", shown!("t"),
        " ORDER BY t.position LIMIT $3"
    );
    // Counters, and beside them what of the pending dependencies hold back: that is taken off the number of the others.
    TaskCounts => concat!(
        "SELECT c.state, CAST(0 AS BIGINT), c.by_hand, CAST(sum(c.number) AS BIGINT) FROM task_counts c WHERE c.project = $1 AND ",
        shown_count!("c"), " GROUP BY c.state, c.by_hand ",
        "UNION ALL SELECT 'pending', CAST(1 AS BIGINT), CAST(CASE WHEN t.lane IS NULL THEN 1 ELSE 0 END AS BIGINT), count(*) FROM tasks t ",
        "WHERE t.project = $1 AND t.state = 'pending' AND t.unmet > 0 AND ", whole!("t"), " AND ", shown!("t"), " GROUP BY 3"
    );
    AddToCount => concat!(
        "INSERT INTO task_counts (project, import, state, by_hand, number) VALUES ($1, $2, $3, $4, $5) ",
        "ON CONFLICT (project, import, state, by_hand) DO UPDATE SET number = task_counts.number + $5"
    );
    // The same by going through all tasks.
    RealCounts => concat!(
        "SELECT state, CAST(CASE WHEN unmet > 0 THEN 1 ELSE 0 END AS BIGINT), CAST(CASE WHEN lane IS NULL THEN 1 ELSE 0 END AS BIGINT), count(*) ",
        "FROM tasks t WHERE project = $1 AND ", shown!("t"), " AND ", whole!("t"), " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    );
    SectionCounts => concat!(
        "SELECT section, state, CAST(CASE WHEN unmet > 0 THEN 1 ELSE 0 END AS BIGINT), count(*) ",
        "FROM tasks t WHERE project = $1 AND section IS NOT NULL AND ", shown!("t"), " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    );
    // Those of a higher priority, or of the same that came earlier. Counted in the index alone; one task of each lane is
    // looked up as its example.
    ReadyBefore => concat!(
        lanes!(),
        "SELECT (SELECT i.id FROM tasks i WHERE ", ready!("i"), " AND i.lane = l.lane ORDER BY i.priority DESC, i.position LIMIT 1), ",
        "(SELECT count(*) FROM tasks i WHERE ", ready!("i"), " AND i.lane = l.lane ",
        "AND (i.priority > $2 OR (i.priority = $2 AND i.position < $3))) FROM lanes l WHERE ", shown_lane!()
    );
    // Roots that came earlier, likewise.
    QueueBefore => concat!(
        lanes!(),
        "SELECT (SELECT i.id FROM tasks i WHERE ", ready!("i"), " AND i.parent IS NULL AND i.lane = l.lane ORDER BY i.position LIMIT 1), ",
        "(SELECT count(*) FROM tasks i WHERE ", ready!("i"), " AND i.parent IS NULL AND i.lane = l.lane ",
        "AND i.position < $2) FROM lanes l WHERE ", shown_lane!()
    );
    LastFailed => concat!(
        tasks!(), " AND t.state IN ('failed', 'cancelled', 'skipped') AND t.state = 'failed' AND ", whole!("t"),
        " ORDER BY t.changed_lease DESC, t.position DESC LIMIT $2"
    );
    // Pending tasks that wait for one that will not complete by itself. The bound on changed_lease leads to the small index
    // `tasks_ended`, and the joins are in the order in which SQLite shall do them.
    HeldByEnded => concat!(
        "SELECT count(DISTINCT t.id), min(t.id) FROM tasks d CROSS JOIN edges e CROSS JOIN tasks t WHERE d.project = $1 ",
        "AND d.state IN ('failed', 'cancelled', 'skipped') AND d.changed_lease > -1 ",
        "AND e.project = $1 AND e.on_task = d.id AND e.allow_failed = 0 ",
        "AND t.project = $1 AND t.id = e.task AND t.state = 'pending' AND ", shown!("t")
    );
    ReadyCounts => concat!(
        lanes!(),
        "SELECT (SELECT i.id FROM tasks i WHERE ", ready!("i"), " AND i.lane = l.lane ORDER BY i.priority DESC, i.position LIMIT 1), ",
        "(SELECT count(*) FROM tasks i WHERE ", ready!("i"), " AND i.lane = l.lane) FROM lanes l WHERE ", shown_lane!()
    );
    AllTasks => concat!(tasks!(), " AND ", shown!("t"), " ORDER BY t.id");
    // The task and all that were created by it, by them, and so on.
    Family => concat!(
        family!(),
        tasks!(), " AND t.id IN (SELECT id FROM family) ORDER BY t.id"
    );
    Dependencies => concat!(
        "SELECT ", task!(), " FROM edges e CROSS JOIN tasks t ",
        "WHERE e.project = $1 AND e.task = $2 AND t.project = $1 AND t.id = e.on_task"
    );
    // Also those that are not shown yet: a section that an import needs is not empty.
    InSection => concat!(tasks!(), " AND t.section = $2 ORDER BY t.position");
    // The first few of every lane.
    Ready => concat!(
        lanes!(),
        "SELECT ", task!(), " FROM lanes l CROSS JOIN tasks t WHERE ", shown_lane!(), " AND t.project = $1 ",
        "AND t.id IN (SELECT i.id FROM tasks i WHERE ",
        ready!("i"),
        " AND i.lane = l.lane ORDER BY i.priority DESC, i.position LIMIT $2)"
    );
    // The first few roots of every lane, in the order of their arrival.
    Queue => concat!(
        lanes!(),
        "SELECT ", task!(), " FROM lanes l CROSS JOIN tasks t WHERE ", shown_lane!(), " AND t.project = $1 ",
        "AND t.id IN (SELECT i.id FROM tasks i WHERE ",
        ready!("i"),
        " AND i.parent IS NULL AND i.lane = l.lane ORDER BY i.position LIMIT $2)"
    );
    // Who works by hand on the task or its descendants, and what they may hold.
    HandLocks => concat!(
        family!(),
        "SELECT name, default_ttl, default_max_hold, fence, ", grant!(), " FROM locks WHERE project = $1 AND name IN (",
        "SELECT 'task:' || id FROM family UNION SELECT 'section:' || t.section FROM tasks t ",
        "WHERE t.project = $1 AND t.id IN (SELECT id FROM family) AND t.section IS NOT NULL ",
        "UNION ", claimed!("lock"), ")"
    );
    HandSemaphores => concat!(family!(), semaphores!(), " AND name IN (", claimed!("semaphore"), ")");
    HandSlots => concat!(family!(), slots!(), " AND semaphore IN (", claimed!("semaphore"), ")");
    HandTasks => concat!(
        family!(),
        tasks!(), " AND t.due IS NOT NULL AND t.state = 'by_hand' AND t.section IN (",
        "SELECT s.section FROM tasks s WHERE s.project = $1 AND s.id IN (SELECT id FROM family))"
    );
    // The claims of the holder $2, or those that $3 is part of: their tasks, and what they hold.
    ClaimedTasks => concat!(tasks!(), " AND t.id IN (", claims_of!("task"), ")");
    ClaimedLocks => concat!(locks!(), " AND name IN (", claims_of!("resource"), " AND c.kind = 'lock')");
    ClaimedSemaphores => concat!(semaphores!(), " AND name IN (", claims_of!("resource"), " AND c.kind = 'semaphore')");
    ClaimedSlots => concat!(slots!(), " AND semaphore IN (", claims_of!("resource"), " AND c.kind = 'semaphore')");
    // What time alone may change, the most urgent first.
    Due => concat!(tasks!(), " AND t.due IS NOT NULL ORDER BY t.due, t.id LIMIT $2");
    DueRoots => concat!(
        tasks!(), " AND t.due IS NOT NULL AND t.parent IS NULL ",
        "UNION ALL ", tasks!(), " AND t.state = 'phases' AND t.parent IS NULL"
    );
    // The same where roots are limited, else nothing. In the order in which SQLite shall join them.
    LimitedRoots => concat!(
        limited_roots!(), " AND t.due IS NOT NULL AND t.parent IS NULL ",
        "UNION ALL ", limited_roots!(), " AND t.state = 'phases' AND t.parent IS NULL"
    );
    // The grants that time may have ended by $2: the first $3 of them.
    ExpiredLocks => concat!(locks!(), " AND holder IS NOT NULL", timed!(), " ORDER BY name LIMIT $3");
    ExpiredSemaphores => concat!(semaphores!(), " AND name IN (SELECT semaphore FROM slots WHERE project = $1", timed!(), ") ORDER BY name LIMIT $3");
    ExpiredSlots => concat!(
        slots!(), " AND semaphore IN (SELECT name FROM semaphores WHERE project = $1 ",
        "AND name IN (SELECT semaphore FROM slots WHERE project = $1", timed!(), ") ORDER BY name LIMIT $3) ORDER BY semaphore, holder"
    );
    // The pipeline of a task, or that whose phase it is.
    Pipeline => concat!(pipelines!(), " AND p.id", with_parent!());
    // What it holds under its own name, across phases.
    PipelineLocks => concat!(locks!(), pipeline_holds!());
    PipelineSemaphores => concat!(semaphores!(), " AND name IN (SELECT semaphore FROM slots WHERE project = $1", pipeline_holds!(), ")");
    PipelineSlots => concat!(
        slots!(), " AND semaphore IN (SELECT semaphore FROM slots WHERE project = $1", pipeline_holds!(), ")"
    );
    FamilyPipelineLocks => concat!(family!(), locks!(), family_holds!());
    FamilyPipelineSemaphores => concat!(
        family!(), semaphores!(), " AND name IN (SELECT semaphore FROM slots WHERE project = $1", family_holds!(), ")"
    );
    FamilyPipelineSlots => concat!(
        family!(), slots!(), " AND semaphore IN (SELECT semaphore FROM slots WHERE project = $1", family_holds!(), ")"
    );
    FamilyPipelines => concat!(family!(), pipelines!(), " AND p.id IN (SELECT id FROM family)");
    // The words of the index come first, so that it is used.
    BegunPipelines => concat!(
        pipelines!(), " AND p.state IN ('init', 'checking', 'blocked', 'running') AND p.state <> 'init' ORDER BY p.id"
    );
    // Those that are to be looked at by now, the most urgent first.
    DuePipelines => concat!(pipelines!(), " AND p.due <= $3 ORDER BY p.due, p.id LIMIT $2");
    // When the next one is to be looked at, and since when somebody listens.
    Listening => concat!(
        "SELECT (SELECT min(p.due) FROM pipelines p WHERE p.project = $1 AND p.due > $2), ",
        "(SELECT min(l.since) FROM listeners l WHERE l.project = $1)"
    );
    // Those that something has happened for, in a part of the log. Each thing in it is looked up once, however much has happened to
    // it. The plus keeps SQLite from going through all who have listened since before.
    HeardPipelines => concat!(
        pipelines!(), " AND p.id IN (SELECT DISTINCT l.pipeline FROM (",
        "SELECT component, id AS about, max(seq) AS seq FROM events WHERE project = $1 AND seq > $2 AND seq <= $3 ",
        "AND id IS NOT NULL GROUP BY component, id UNION ALL ",
        "SELECT component, '', max(seq) FROM events WHERE project = $1 AND seq > $2 AND seq <= $3 GROUP BY component) e ",
        "CROSS JOIN listeners l WHERE l.project = $1 AND l.component = e.component AND l.about = e.about AND +l.since < e.seq ",
        "ORDER BY l.pipeline LIMIT $4) ORDER BY p.id"
    );
    // The first locks and semaphores that pipelines wait for.
    AwaitedLocks => concat!(awaited!("lock"), locks!(), " AND name IN (SELECT name FROM awaited) ORDER BY name");
    AwaitedSemaphores => concat!(awaited!("semaphore"), semaphores!(), " AND name IN (SELECT name FROM awaited) ORDER BY name");
    AwaitedSlots => concat!(
        awaited!("semaphore"), slots!(), " AND semaphore IN (SELECT name FROM awaited) ORDER BY semaphore, holder"
    );
    AllListeners => "SELECT pipeline, component, about, since FROM listeners WHERE project = $1 ORDER BY pipeline, component, about";
    UpsertListener => concat!(
        "INSERT INTO listeners (project, pipeline, component, about, since) VALUES ($1, $2, $3, $4, $5) ",
        "ON CONFLICT (project, component, about, pipeline) DO UPDATE SET since = $5"
    );
    DeleteListener => "DELETE FROM listeners WHERE project = $1 AND pipeline = $2 AND component = $3 AND about = $4";
    AllPipelines => concat!(pipelines!(), " ORDER BY p.id");
    PipelinePage => concat!(
        "SELECT ", task!(), ", p.body FROM tasks t JOIN pipelines p ON p.project = t.project AND p.id = t.id ",
        "WHERE t.project = $1 AND t.position > $2 AND (CAST($4 AS TEXT) IS NULL OR p.state = $4) ORDER BY t.position LIMIT $3"
    );
    OpenPipelines => concat!(
        pipelines!(), " AND p.state IN ('init', 'checking', 'blocked', 'running') ORDER BY t.position LIMIT $2"
    );
    PipelineCounts => "SELECT p.state, count(*) FROM pipelines p WHERE p.project = $1 GROUP BY 1 ORDER BY 1";
    InsertPipeline => "INSERT INTO pipelines (project, id, state, phase, due, body) VALUES ($1, $2, $3, $4, $5, $6)";
    UpdatePipeline => "UPDATE pipelines SET state = $3, phase = $4, due = $5, body = $6 WHERE project = $1 AND id = $2";
    DeletePipeline => "DELETE FROM pipelines WHERE project = $1 AND id = $2";
    // Loops that wait for their next attempt, in turn.
    Loops => concat!(
        tasks!(), " AND t.loops = 1 AND t.state IN ('pending', 'resting') AND t.position > $3 AND ", shown!("t"),
        " ORDER BY t.position LIMIT $2"
    );
    InsertTask => concat!(
        "INSERT INTO tasks (project, id, title, section, parent, priority, position, lane, spec, created_wall, loops, state, detail, ",
        "changed_lease, changed_wall, attempts, failures, recoveries, due, unmet, import, part) ",
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)"
    );
    UpdateTaskSpec =>
        "UPDATE tasks SET title = $3, section = $4, parent = $5, priority = $6, lane = $7, spec = $8 WHERE project = $1 AND id = $2";
    UpdateTaskState => concat!(
        "UPDATE tasks SET state = $3, detail = $4, changed_lease = $5, changed_wall = $6, attempts = $7, failures = $8, ",
        "recoveries = $9, due = $10 WHERE project = $1 AND id = $2"
    );
    DeleteTask => "DELETE FROM tasks WHERE project = $1 AND id = $2";
    DeleteRunsOf => "DELETE FROM runs WHERE project = $1 AND task = $2";
    RefreshUnmet => concat!("UPDATE tasks SET unmet = ", unmet!("$2"), " WHERE project = $1 AND id = $2");
    RefreshDependents => concat!(
        "UPDATE tasks SET unmet = ", unmet!("tasks.id"),
        " WHERE project = $1 AND id IN (SELECT task FROM edges WHERE project = $1 AND on_task = $2)"
    );
    Edges => concat!(edges!(), " AND e.task = $2 ORDER BY e.on_task");
    AllEdges => concat!(edges!(), " ORDER BY e.task, e.on_task");
    // Who waits for the task, shown or not: what an import needs stays.
    Dependents => concat!(edges!(), " AND e.on_task = $2 ORDER BY e.task");
    FamilyDependents => concat!(family!(), edges!(), " AND e.on_task IN (SELECT id FROM family) ORDER BY e.task");
    // Everything that can be reached from the task along its dependencies.
    Upstream => concat!(
        "WITH RECURSIVE up(task) AS (SELECT CAST($2 AS TEXT) ",
        "UNION SELECT e.on_task FROM edges e JOIN up ON e.task = up.task WHERE e.project = $1) ",
        edges!(), " AND e.task IN (SELECT task FROM up) ORDER BY e.task, e.on_task"
    );
    ChainTasks => concat!(chain!(), tasks!(), " AND t.id IN (SELECT task FROM chain LIMIT 10000) ORDER BY t.id");
    // Only those that are not met: the tasks that the others lead to are not read.
    ChainEdges => concat!(
        chain!(), "SELECT e.task, e.on_task, e.allow_failed FROM edges e ",
        "LEFT JOIN tasks d ON d.project = $1 AND d.id = e.on_task WHERE e.project = $1 ",
        "AND e.task IN (SELECT task FROM chain LIMIT 10000) AND NOT (coalesce(d.state, '') = 'completed' ",
        "OR (e.allow_failed = 1 AND coalesce(d.state, '') IN ('failed', 'cancelled', 'skipped'))) ORDER BY e.task, e.on_task"
    );
    InsertEdge => "INSERT INTO edges (project, task, on_task, allow_failed) VALUES ($1, $2, $3, $4)";
    DeleteEdges => "DELETE FROM edges WHERE project = $1 AND task = $2";
    Run => concat!(runs!(), " AND id = $2");
    AllRuns => concat!(runs!(), " ORDER BY id");
    LastRuns => concat!(runs!(), " AND ended IS NOT NULL ORDER BY epoch DESC LIMIT $2");
    RunByPrefix => concat!(runs!(), " AND id >= $2 AND id < $3 ORDER BY id LIMIT 20");
    LiveRuns => concat!(runs!(), " AND live = 1 ORDER BY epoch");
    RunsOf => concat!(runs!(), " AND task = $2 ORDER BY attempt");
    LiveTasks => concat!(
        "SELECT ", task!(), " FROM runs r CROSS JOIN tasks t ",
        "WHERE r.project = $1 AND r.live = 1 AND t.project = $1 AND t.id = r.task"
    );
    InsertRun => concat!(
        "INSERT INTO runs (project, id, task, attempt, epoch, owner, owner_epoch, holds, session, host, boot, started_lease, ",
        "started_wall, lease, ended, live) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, ",
        live!("$15"), ")"
    );
    UpdateRun => concat!(
        "UPDATE runs SET owner = $3, owner_epoch = $4, holds = $5, session = $6, lease = $7, ended = $8, live = ",
        live!("$8"), " WHERE project = $1 AND epoch = $2"
    );
    Runners => concat!(
        "SELECT id, process, address, sections, max_runs, watching, started_lease, started_wall, seen_lease, terms, ",
        "shortage FROM runners WHERE project = $1 ORDER BY id"
    );
    UpsertRunner => concat!(
        "INSERT INTO runners (project, id, process, address, sections, max_runs, watching, started_lease, started_wall, seen_lease, ",
        "terms, shortage) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ",
        "ON CONFLICT (project, id) DO UPDATE SET watching = $7, seen_lease = $10, terms = $11, shortage = $12"
    );
    DeleteRunner => "DELETE FROM runners WHERE project = $1 AND id = $2";
    Outbox => "SELECT seq, executor, errand, attempts, due FROM outbox WHERE project = $1 ORDER BY seq";
    InsertSent =>
        "INSERT INTO outbox (project, seq, subject, executor, errand, attempts, due) VALUES ($1, $2, $3, $4, $5, $6, $7)";
    UpdateSent => "UPDATE outbox SET executor = $3, attempts = $4, due = $5 WHERE project = $1 AND seq = $2";
    DeleteSent => "DELETE FROM outbox WHERE project = $1 AND seq = $2";
    Finish => concat!(
        "SELECT coalesce((SELECT seq FROM marks WHERE project = $1 AND name = 'finished'), 0), ",
        "coalesce((SELECT epoch FROM runs WHERE project = $1 ORDER BY epoch DESC LIMIT 1), 0)"
    );
    UpsertFinish =>
        "INSERT INTO marks (project, name, seq) VALUES ($1, 'finished', $2) ON CONFLICT (project, name) DO UPDATE SET seq = $2";
    Decision => concat!(decisions!(), " AND id = $2");
    AllDecisions => concat!(decisions!(), " ORDER BY seq");
    OpenDecisions => concat!(decisions!(), " AND is_open = 1 ORDER BY seq");
    LastDecisions => concat!(decisions!(), " ORDER BY seq DESC LIMIT $2");
    InsertDecision =>
        "INSERT INTO decisions (project, id, seq, raised_wall, question, state, is_open) VALUES ($1, $2, $3, $4, $5, $6, $7)";
    UpdateDecision => "UPDATE decisions SET state = $3, is_open = $4 WHERE project = $1 AND id = $2";
    Imports => "SELECT id, process, position, started_wall, total, added, sections FROM imports WHERE project = $1 ORDER BY id";
    InsertImport => concat!(
        "INSERT INTO imports (project, id, process, position, started_wall, total, added, sections) ",
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
    );
    UpdateImport => "UPDATE imports SET added = $3 WHERE project = $1 AND id = $2";
    DeleteImport => "DELETE FROM imports WHERE project = $1 AND id = $2";
    // The first tasks of an import that is not finished. They came after it was opened, so it needs no index of its own.
    Imported => concat!(
        tasks!(), " AND t.position > (SELECT m.position FROM imports m WHERE m.project = $1 AND m.id = $2) ",
        "AND t.import = $2 ORDER BY t.position LIMIT $3"
    );
    AllQueues => concat!("SELECT ", queue!(), " FROM queues WHERE project = $1 ORDER BY name");
    QueueRow => concat!("SELECT ", queue!(), " FROM queues WHERE project = $1 AND name", and_dead_letter!());
    UpsertQueue => concat!(
        "INSERT INTO queues (project, ", queue!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ",
        "ON CONFLICT (project, name) DO UPDATE SET visibility = $3, max_attempts = $4, dead_letter = $5, max_length = $6, ",
        "paused = $7, length = $8"
    );
    UpdateLength => "UPDATE queues SET length = $3 WHERE project = $1 AND name = $2";
    Item => concat!(items!(), " AND id = $2");
    AllItems => concat!(items!(), " ORDER BY id");
    // One that is dead keeps its key, but nobody out.
    ItemByKey => concat!(
        items!(), " AND queue = $2 AND dedupe = $3 AND dedupe IS NOT NULL AND state <> 'dead' AND origin IS NULL ORDER BY id"
    );
    ReadyItems => concat!(items!(), " AND queue = $2 AND ready = 1 ORDER BY rank, id LIMIT $3");
    DueItems => concat!(items!(), " AND queue = $2 AND due IS NOT NULL ORDER BY due, id LIMIT $3");
    RestingItems => concat!(
        items!(), " AND queue = $2 AND due IS NOT NULL AND state IN ('pending', 'failed') ORDER BY due, id LIMIT $3"
    );
    ProcessingItems => concat!(
        items!(), " AND queue = $2 AND due IS NOT NULL AND state = 'processing' ORDER BY due, id LIMIT $3"
    );
    DeadItems => concat!(items!(), " AND queue = $2 AND state = 'dead' ORDER BY id LIMIT $3");
    MovedItems => concat!(items!(), " AND queue = $2 AND ready = 1 AND origin IS NOT NULL ORDER BY rank, id LIMIT $3");
    InsertItem => concat!(
        "INSERT INTO items (project, id, queue, data, priority, rank, created_lease, created_wall, dedupe, attempts, fence, state, ",
        "ready, due, holder, taken_lease, taken_wall, reason, died_wall, history, origin, depth) ",
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)"
    );
    UpdateItem => concat!(
        "UPDATE items SET queue = $3, dedupe = $4, attempts = $5, fence = $6, state = $7, ready = $8, due = $9, holder = $10, ",
        "taken_lease = $11, taken_wall = $12, reason = $13, died_wall = $14, history = $15, origin = $16 ",
        "WHERE project = $1 AND id = $2"
    );
    DeleteItem => "DELETE FROM items WHERE project = $1 AND id = $2";
    // Each part is counted in the index that has it and nothing else. What time has done by $2 counts as done.
    QueueCounts => concat!(
        "SELECT queue, 'ready', count(*) FROM items WHERE project = $1 AND ready = 1 GROUP BY queue ",
        "UNION ALL SELECT place, word, count(*) FROM (SELECT ",
        "CASE WHEN ", dies!(), " AND i.origin IS NULL THEN coalesce(q.dead_letter, i.queue) ELSE i.queue END AS place, ",
        "CASE WHEN i.due > $2 THEN i.state ",
        "WHEN ", dies!(), " AND (i.origin IS NOT NULL OR q.dead_letter IS NULL) THEN 'dead' ELSE 'ready' END AS word ",
        "FROM items i JOIN queues q ON q.project = i.project AND q.name = i.queue WHERE i.project = $1 AND i.due IS NOT NULL) AS timed ",
        "GROUP BY place, word ",
        "UNION ALL SELECT queue, 'dead', count(*) FROM items WHERE project = $1 AND state = 'dead' GROUP BY queue"
    );
    // What workers have to do, are at, and could not do.
    WorkItems => concat!(
        counted!("'ready'", "i.ready = 1"), worked!(), " GROUP BY i.queue ",
        "UNION ALL ", counted!("i.state", "i.due IS NOT NULL"), worked!(), " GROUP BY i.queue, i.state ",
        "UNION ALL ", counted!("'dead'", "i.state = 'dead'"), worked!(), " GROUP BY i.queue ",
        "UNION ALL ", counted!("'dead'", "i.state = 'dead'"), graves!(), " GROUP BY i.queue ",
        "UNION ALL ", counted!("'dead'", "i.ready = 1 AND i.origin IS NOT NULL"), graves!(), " GROUP BY i.queue"
    );
    FirstTaker => concat!(takers!(), " AND queue = $2 ORDER BY ticket LIMIT 1");
    Takers => concat!(takers!(), " AND queue", and_dead_letter!(), " ORDER BY ticket");
    AllTakers => concat!(takers!(), " ORDER BY ticket");
    UpsertTaker => concat!(
        "INSERT INTO takers (project, ticket, queue, holder, standing, since_lease, since_wall, seen_lease) ",
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (project, queue, ticket) DO UPDATE SET seen_lease = $8"
    );
    DeleteTaker => "DELETE FROM takers WHERE project = $1 AND queue = $2 AND ticket = $3";
    // One statement tells a runner that there are no workers and no routes, and no queue in which time changes something.
    Crew => concat!(
        worker!(),
        " UNION ALL SELECT 'job', j.task, NULL, j.worker, j.queue, j.item, j.epoch, 0, ",
        "CASE WHEN coalesce(t.state, 'gone') IN ('gone', 'completed', 'failed', 'cancelled', 'skipped') THEN 1 ELSE 0 END ",
        "FROM jobs j LEFT JOIN tasks t ON t.project = j.project AND t.id = j.task WHERE j.project = $1 ",
        "UNION ALL ", route!(), " ",
        "UNION ALL SELECT 'due', name, NULL, NULL, NULL, due, 0, 0, 0 FROM (SELECT q.name, (SELECT min(i.due) FROM items i ",
        "WHERE i.project = q.project AND i.queue = q.name AND i.due IS NOT NULL) AS due FROM queues q WHERE q.project = $1) AS next ",
        "WHERE due IS NOT NULL ",
        "UNION ALL ", cursor!()
    );
    WorkerRows => concat!(
        worker!(), " AND name = $2 UNION ALL SELECT 'job', task, NULL, worker, queue, item, epoch, 0, 0 FROM jobs ",
        "WHERE project = $1 AND worker = $2"
    );
    RouteRow => concat!(route!(), " AND id = $2");
    Cursor => cursor!();
    MoveCursor =>
        "INSERT INTO marks (project, name, seq) VALUES ($1, 'router', $2) ON CONFLICT (project, name) DO UPDATE SET seq = $2";
    Hands => concat!(hands!(), " AND w.queue = $2");
    HandsBeyond => concat!(hands!(), " AND w.queue", and_dead_letter!());
    AllHands => hands!();
    UpsertWorker => concat!(
        "INSERT INTO workers (project, name, queue, definition, paused, awake, removed, since) ",
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (project, name) ",
        "DO UPDATE SET queue = $3, definition = $4, paused = $5, awake = $6, removed = $7, since = $8"
    );
    UpdateWorker =>
        "UPDATE workers SET paused = $3, awake = $4, removed = $5, since = $6 WHERE project = $1 AND name = $2";
    DeleteWorker => "DELETE FROM workers WHERE project = $1 AND name = $2";
    InsertJob => "INSERT INTO jobs (project, worker, task, queue, item, epoch) VALUES ($1, $2, $3, $4, $5, $6)";
    DeleteJob => "DELETE FROM jobs WHERE project = $1 AND worker = $2 AND task = $3";
    UpsertRoute => concat!(
        "INSERT INTO routes (project, id, route, since) VALUES ($1, $2, $3, $4) ",
        "ON CONFLICT (project, id) DO UPDATE SET route = $3, since = $4"
    );
    DeleteRoute => "DELETE FROM routes WHERE project = $1 AND id = $2";
    Notify => "SELECT pg_notify($1, $2)";
}
