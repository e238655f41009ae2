//! Runners: processes that claim tasks.

use banksman_core::Ticket;
use banksman_core::backlog::{Idle, Runner};
use banksman_core::ids::RunnerId;

use crate::columns::{Codec, Columns, Int, Json, Moment, NeededJson, Text, Type};
use crate::error::StoreError;
use crate::table::table;
use crate::value::{Row, Value};

/// The idle state of a runner: `wants` is 0 if the runner is busy.
pub(crate) struct OfIdle;

impl Columns for OfIdle {
    fn list(_: &str, out: &mut Vec<(String, Type)>) {
        out.extend(["wants", "ticket", "limited"].map(|name| (name.to_owned(), Type::Int)));
    }
}

impl Codec<Option<Idle>> for OfIdle {
    fn bind<'a>(idle: &'a Option<Idle>, params: &mut Vec<Value<'a>>) {
        let Idle { wants, ticket, is_limited } = idle.unwrap_or(Idle { wants: 0, ticket: Ticket(0), is_limited: false });
        params.extend([i64::from(wants), ticket.0, i64::from(is_limited)].map(Value::from));
    }

    fn read(row: &mut Row) -> Result<Option<Idle>, StoreError> {
        let (wants, ticket, is_limited) = (Int::read(row)?, Int::read(row)?, Int::read(row)?);
        Ok((wants > 0).then_some(Idle { wants, ticket, is_limited }))
    }
}

table! {
    Runners "runners" of &'a RunnerId => Runner, |_id, runner|
    by ["id"] = [Text &runner.id]; upserts
    fixed { id: Text, process: NeededJson, address: Text, sections: Json, max_runs: Int, started: Moment, until_idle: Int }
    changing { idle: OfIdle, woken("woken_lease"): Int, has_duty("duty"): Int, seen("seen_lease"): Int, terms: Json, shortage: Json }
    read Runner = Runner {
        id, process, address, sections, max_runs, started, until_idle, idle, woken, has_duty, seen, terms, shortage
    };
    statements {
        All => "SELECT {runners} FROM runners WHERE project = $1 ORDER BY id",
        ById => "SELECT {runners} FROM runners WHERE project = $1 AND id = $2",
        /// The runner with duty, and the first idle runners of each group that the same changes wake.
        Idle => "SELECT {runners} FROM runners WHERE project = $1 AND duty = 1 \
            UNION ALL SELECT {runners} FROM (SELECT {runners}, row_number() OVER (PARTITION BY sections, limited, until_idle ORDER BY ticket) AS place \
            FROM runners WHERE project = $1 AND wants > 0 AND duty = 0) AS waiting WHERE place <= 16",
        /// The addresses of the runners to wake, once for each worker of a queue.
        OfQueue => "{woken} AND w.queue = $2",
        OfQueueAndDeadLetter => "{woken} AND w.queue IN {and_dead_letter}",
        OfQueues => "{woken}",
    }
}
