//! The page of events. The meaning of each kind is written here; the kinds themselves come from the code.

use std::fmt::Write;

use banksman_core::event::kinds;

use super::{NOTICE, compare};

const CATEGORIES: [(&str, &str); 17] = [
    ("lock", "The source is `lock:NAME`."),
    ("semaphore", "The source is `semaphore:NAME`."),
    ("task", "The source is `task:ID`."),
    ("escalate", "The source is `task:ID`."),
    ("section", "The source is `section:ID`."),
    ("decision", "The source is `decision:ID`."),
    ("landing", "The source is `landing:ID`, an entry in a merge queue."),
    ("account_limit", "The source is `account_limit:NAME`, with the account, the kind of limit and the model, if it names one."),
    ("landing_target", "The source is `landing_target:BRANCH`."),
    ("import", "The source is `import:ID`."),
    ("queue", "The source is `queue:NAME`."),
    ("worker", "The source is `worker:NAME`."),
    ("route", "The source is `route:RUNBOOK/PATTERN`."),
    ("pipeline", "The source is `pipeline:ID`."),
    ("strategy", "Of a phase with several approaches. The source is `pipeline:ID`."),
    ("workspace", "The source is `workspace:ID`, with the id of the task or pipeline."),
    ("backlog", "Of the whole project, like `limits:set`."),
];

const MEANINGS: &[(&str, &str)] = &[
    ("lock:defined", "The defaults of the lock were set: its lease, or its maximum hold time."),
    ("lock:acquired", "A holder got the lock. The number of the event is the epoch."),
    ("lock:reclaimed", "The lock was taken from a holder that is dead or whose lease has expired."),
    ("lock:released", "The holder released the lock, or it was released by force."),
    ("lock:offer_lapsed", "A waiter was offered the lock and did not take it in time."),
    ("semaphore:defined", "The semaphore was created, or its capacity or lease was changed."),
    ("semaphore:acquired", "A holder got slots. The number of the event is the epoch."),
    ("semaphore:increased", "A holder got more slots for the same grant."),
    ("semaphore:reclaimed", "Slots were taken from a holder that is dead or whose lease has expired."),
    ("semaphore:released", "The holder released its slots, or they were released by force."),
    ("semaphore:offer_lapsed", "A waiter was offered slots and did not take them in time."),
    ("task:added", "The task was added."),
    ("task:updated", "Its title, command, needs, priority, section or dependencies were changed."),
    ("task:started", "A run began. The number of the event is the epoch of the run."),
    ("task:asked", "Its run has asked a question; the task waits for the answer."),
    ("task:answered", "The question of its run was answered, and the task continues."),
    ("task:adopted", "Another runner has taken over the run."),
    ("task:stuck", "The run shows no activity."),
    ("task:nudged", "The run was nudged: SIGCONT, and SIGUSR1 for processes that handle it."),
    ("task:recovered", "The run shows activity again."),
    ("task:checkpoint", "The run is in progress (`task.checkpoint_interval`)."),
    ("task:stopping", "The run is being stopped."),
    ("task:restarting", "The run has ended, and another one follows."),
    ("task:awaiting", "The task is done, except for its children."),
    ("task:ending_children", "The children took too long and are being cancelled."),
    ("task:taken", "A person or an agent has claimed the task (`tasks take`)."),
    ("task:returned", "The claim was released, or lost."),
    ("task:in_phases", "The pipeline of this task goes through its phases, or is blocked."),
    ("task:complete", "The task is completed."),
    ("task:failed", "The task has failed."),
    ("task:cancelled", "The task was cancelled."),
    ("task:landing", "The work of the task is done and in the merge queue."),
    ("task:sent_back", "The work of the task came back from the merge queue: the task is retried."),
    ("task:retried", "A person retries the task."),
    ("task:paused", "A person has stopped the task: it is not started until it is resumed."),
    ("task:resumed", "The task may be started again."),
    ("task:marked", "The task was marked as skipped, or for review."),
    ("task:deleted", "The task was deleted."),
    ("escalate", "The task cannot continue without a person: a decision was raised."),
    ("section:added", "The section was added."),
    ("section:updated", "The section was renamed, or its exclusiveness was changed."),
    ("section:deleted", "The section was deleted."),
    ("decision:raised", "A question waits for an answer (`decisions list`)."),
    ("decision:resolved", "The question was answered."),
    ("decision:withdrawn", "The question no longer applies."),
    ("landing:added", "A commit was put into the merge queue of a branch."),
    ("landing:collected", "The work in the worktree of the task was committed as this commit."),
    ("landing:built", "The commit to land was created, on this tip of the target."),
    ("landing:check_failed", "The check has failed on that commit."),
    ("landing:check_passed", "The check has passed on that commit; `flaky` if it failed on it before."),
    ("landing:requeued", "The entry is built again: the target has moved, fails the check itself, or a person requested it."),
    ("landing:waiting", "A checkout or a failure of git blocks the entry; later entries pass it."),
    ("landing:asked", "The entry needs you: a decision was raised."),
    ("landing:landed", "The target has moved to the commit."),
    ("landing:no_change", "The target contains all of its changes already."),
    ("landing:returned", "The entry has left the queue: it conflicts, fails the check, or has nothing to land."),
    ("landing:shelved", "The entry has left the queue: it lands when a person requests it."),
    ("landing:removed", "A person has removed the entry."),
    ("landing_target:paused", "Nothing lands on the branch until it is resumed."),
    ("landing_target:resumed", "Entries land on the branch again."),
    (
        "account_limit:reached",
        "The account of an agent is limited, or not logged in: no run that shares it starts before `resets`.",
    ),
    ("account_limit:probing", "The limit may have ended, and one run probes the account."),
    ("account_limit:due", "The next run probes the account: the last probe ended without an answer, or a person requested it."),
    ("account_limit:ended", "The model has answered: runs start again."),
    ("landing_target:green", "The check has passed on this commit of the branch."),
    ("landing_target:resolving", "The author of a task resolves a conflict in these files. Others that conflict there wait."),
    ("landing_target:resolved", "No entry waits for the author of that task any more."),
    ("import:opened", "An import began; its tasks are not visible yet."),
    ("import:finished", "All tasks of the import are visible from now on."),
    ("import:dropped", "The import was dropped; nothing of it remains."),
    ("queue:defined", "The queue was created, or its terms were changed."),
    ("queue:paused", "Nothing is taken from the queue until it is resumed."),
    ("queue:resumed", "Items are taken again."),
    ("queue:push", "An item was pushed. The number of the event is part of its id."),
    ("queue:take", "An item was taken. The number of the event is the epoch."),
    ("queue:complete", "The item is done and has left the queue."),
    ("queue:fail", "An attempt at the item has failed or timed out."),
    ("queue:dead", "The item has no attempts left."),
    ("queue:requeue", "A dead item is retried."),
    ("queue:purged", "The item was removed."),
    ("worker:defined", "The worker was applied, or changed."),
    ("worker:removed", "The worker takes no more items, and is removed when its jobs have ended."),
    ("worker:paused", "The worker takes no items until it is resumed."),
    ("worker:resumed", "The worker takes items again."),
    ("worker:woken", "The worker takes items until its queue is empty."),
    ("worker:asleep", "The queue is empty, and the worker waits for one of its events."),
    ("worker:take", "An item has become a task of the worker."),
    ("worker:end", "The task of an item has ended."),
    ("route:defined", "The route was applied, or changed."),
    ("route:removed", "The route is no longer applied."),
    ("route:notified", "The route has sent a notification."),
    ("route:failed", "An action of the route has failed."),
    ("pipeline:created", "The pipeline was added."),
    ("pipeline:started", "The pipeline has begun."),
    ("pipeline:checking", "The guards of a phase are being checked."),
    ("pipeline:blocked", "The pipeline cannot continue; the data has the reason."),
    ("pipeline:phase", "A phase has begun."),
    ("pipeline:unblocked", "A person has unblocked the pipeline, regardless of its guards."),
    ("pipeline:resumed", "The task of the phase no longer waits for a decision or a guard."),
    ("pipeline:phase_failed", "A phase has failed, and the pipeline continues with another phase."),
    ("pipeline:warned", "A guard does not hold, and only warns."),
    ("pipeline:set", "Variables were set."),
    ("pipeline:checkpoint", "A phase, or Banksman, left a note."),
    ("pipeline:complete", "All phases are done."),
    ("pipeline:failed", "The pipeline has failed."),
    ("pipeline:retry", "A person retries the phase that failed."),
    ("pipeline:cancelled", "The pipeline was cancelled."),
    ("pipeline:deleted", "The pipeline was deleted."),
    ("strategy:fallback", "An approach has failed, and the next one is tried."),
    ("strategy:exhausted", "All approaches have failed."),
    ("workspace:begun", "A session is about to make the workspace of its task."),
    ("workspace:made", "The workspace is ready."),
    ("workspace:removing", "The workspace is about to be saved and removed."),
    ("workspace:kept", "The workspace was not removed: a repository in it has unsaved work, or saving the workspace failed."),
    ("workspace:removed", "The workspace was removed."),
    ("backlog:finished", "Nothing is left that a runner could do."),
    ("backlog:paused", "Nothing is started until the project is resumed; `verb` says whether its sessions were stopped."),
    ("backlog:resumed", "Tasks are started again."),
    ("limits:set", "The limits of the project were changed."),
];

const TEXT: &str = "# Events

Every change is an event, written in the same transaction as the change. `banksman events` lists them, `--kind task:` or
`--kind lock:acquired` and `--source lock:deploy` select some, and [runbooks](../guides/runbooks.md) react to them: `[on.\"task:failed\"]`,
`wake_on`. Emit your own with `banksman events emit CATEGORY:ACTION`; the categories below are reserved.
`runbooks check` reports unknown kinds of a reserved category, with a similar kind.

With `--json` an event has `id` (its number), `timestamp` (UTC), `kind`, `source` (`component` and `id`), `by` (the person or run whose
command caused it, or null) and `data`, whose fields depend on the kind. More about the log: [the event log](../guides/events.md).
";

fn page() -> String {
    let mut page = format!("{NOTICE}\n\n{TEXT}");
    for (category, about) in CATEGORIES {
        write!(page, "\n## {category}\n\n{about}\n\n| kind | meaning |\n|---|---|\n").unwrap();
        let is_of = |kind: &str| kind.split(':').next() == Some(category) || (category == "backlog" && kind == "limits:set");
        let rows = MEANINGS.iter().filter(|(kind, _)| is_of(kind));
        rows.for_each(|(kind, meaning)| writeln!(page, "| `{kind}` | {meaning} |").unwrap());
    }
    page
}

#[test]
fn the_reference_of_events_is_up_to_date() {
    compare("events.md", &page());
}

#[test]
fn every_kind_of_event_has_a_meaning() {
    let (mut known, mut described) = (kinds(), MEANINGS.iter().map(|(kind, _)| (*kind).to_owned()).collect::<Vec<_>>());
    // Parsed so that old logs can be read, and never written: a lock has no weight.
    known.retain(|kind| kind != "lock:increased");
    known.sort();
    described.sort();
    assert_eq!(described, known);
    let has_category = |kind: &str| CATEGORIES.iter().any(|(category, _)| kind.split(':').next() == Some(category));
    assert_eq!(
        MEANINGS.iter().filter(|(kind, _)| !has_category(kind)).collect::<Vec<_>>(),
        [&("limits:set", MEANINGS.last().unwrap().1)]
    );
}
