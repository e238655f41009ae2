//! Items that became tasks of workers, until these tasks have ended.

use banksman_core::worker::Taken;
use banksman_core::{Name, TaskId};

use crate::columns::{Int, Text, columns};
use crate::table::table;

columns! {
    /// An item that became a task.
    OfTaken of Taken {
        queue: Text,
        item: Int,
        epoch: Int,
    }
}

table! {
    Jobs "jobs" of (&'a Name, &'a TaskId) => Taken, |of, taken|
    by ["worker", "task"] = [Text of.0, Text of.1]; inserts
    fixed { worker: Text = of.0, task: Text = of.1, taken: OfTaken = taken }
    changing {}
    read (Name, TaskId, Taken) = (worker, task, taken);
    statements {
        OfWorker => "SELECT {jobs} FROM jobs WHERE project = $1 AND worker = $2",
    }
}
