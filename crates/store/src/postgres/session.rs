//! One connection: prepared statements, and pipelined requests.

use std::pin::pin;
use std::task::Poll;

use futures_util::StreamExt as _;
use futures_util::future::{poll_fn, try_join_all};
use tokio_postgres::types::{IsNull, ToSql, Type, private::BytesMut};
use tokio_postgres::{Client, Error};

use super::connect::Server;
use crate::columns::Type as ColumnType;
use crate::dialect;
use crate::error::StoreError;
use crate::sql;
use crate::tables::{Statement, events, locks};
use crate::value::{Query, Row, Rows, Value};

/// Distinguishes our advisory locks from those of other programs.
pub(super) const LOCK_SPACE: i64 = 0x424b_534d << 32;

/// The same for the locks that followers of an event log share.
pub(crate) const FOLLOWER_SPACE: i64 = 0x424b_5346 << 32;

/// Settings of every connection. The server ends a session that stops while it holds the writer lock, and an
/// acknowledged commit is on disk whatever the server's default is. Plans are made once and kept, so they must not be
/// made for tables that happen to be small: a sequential scan would read every dead version of a row that changes
/// often, and so would a bitmap scan. Joins are done in the written order, row by row by an index, as in SQLite: other
/// ways only pay where most rows of a table are read. No statement runs long enough for JIT compilation to pay.
const SETTINGS: &str = "SET search_path = banksman; SET synchronous_commit = on; \
                        SET idle_in_transaction_session_timeout = '15s'; SET lock_timeout = '2s'; \
                        SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
                        SET join_collapse_limit = 1; SET plan_cache_mode = force_generic_plan; SET jit = off";

pub(super) struct Session {
    client: Client,
    tx: tokio_postgres::Statement,
    prepared: Vec<Option<tokio_postgres::Statement>>,
}

pub(super) struct Begun {
    pub(super) transaction: String,
    /// Whether another transaction held the writer lock.
    pub(super) has_waited: bool,
    pub(super) answers: Vec<Vec<tokio_postgres::Row>>,
}

impl Session {
    pub(super) async fn connect(server: &Server) -> Result<Session, StoreError> {
        let (client, mut messages) = server.connect().await?;
        // The connection makes progress whenever this thread waits for an answer. The next request sees the end of the
        // connection.
        tokio::spawn(async move { while let Some(Ok(_)) = messages.next().await {} });
        let tx = client.prepare("SELECT pg_try_advisory_xact_lock($1), pg_advisory_xact_lock($1), pg_current_xact_id()::text");
        let (settings, tx) = futures_util::future::join(client.batch_execute(SETTINGS), tx).await;
        settings.map_err(super::classify)?;
        let tx = tx.map_err(super::classify)?;
        Ok(Session { client, tx, prepared: vec![None; Statement::COUNT] })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Begins, waits for the writer lock, and loads, in one round trip.
    pub(super) async fn begin(&mut self, project: i64, patient: bool, queries: &[Query<'_>]) -> Result<Begun, Error> {
        self.prepare(queries).await?;
        let begin = self.client.batch_execute(if patient { "BEGIN; SET LOCAL lock_timeout = '7s'" } else { "BEGIN" });
        // The lock waits before the next statement, which reads, takes its snapshot.
        let key: [&(dyn ToSql + Sync); 1] = [&(LOCK_SPACE | project)];
        let tx = self.client.query(&self.tx, &key);
        let loads = self.answers(queries);
        // Polled in this order, so sent in this order.
        let (begin, tx, loads) = futures_util::future::join3(begin, tx, loads).await;
        begin?;
        let tx = tx?;
        let row = tx.first().map(|row| Ok::<_, Error>((row.try_get::<_, bool>(0)?, row.try_get(2)?))).transpose()?;
        let (was_free, transaction) = row.unwrap_or_default();
        Ok(Begun { transaction, has_waited: !was_free, answers: loads? })
    }

    /// Runs queries in the open transaction.
    pub(super) async fn query(&mut self, queries: &[Query<'_>]) -> Result<Vec<Vec<tokio_postgres::Row>>, Error> {
        self.prepare(queries).await?;
        self.answers(queries).await
    }

    /// Lets the open transaction stay idle.
    pub(super) async fn stay(&self) -> Result<(), Error> {
        self.client.batch_execute("SET LOCAL idle_in_transaction_session_timeout = 0").await
    }

    /// Writes in one round trip.
    pub(super) async fn write(&mut self, writes: &[Query<'_>]) -> Result<(), Error> {
        self.prepare(writes).await?;
        self.carry_out(writes).await
    }

    /// Writes and commits in one round trip. If a statement fails, the commit after it rolls the transaction back.
    pub(super) async fn commit(&mut self, writes: &[Query<'_>]) -> Result<(), Error> {
        self.prepare(writes).await?;
        let (writes, commit) = futures_util::future::join(self.carry_out(writes), self.client.batch_execute("COMMIT")).await;
        writes?;
        commit
    }

    /// Rolls the transaction back, and so releases the writer lock, without waiting for the answer: the next request
    /// follows it on the same connection, and the end of the connection ends the transaction too.
    pub(super) async fn roll_back(&self) {
        let mut roll_back = pin!(self.client.batch_execute("ROLLBACK"));
        // The first poll hands the request to the connection, which sends it as soon as this future yields.
        poll_fn(|context| {
            // The next request sees a failure.
            let _unanswered = roll_back.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
        tokio::task::yield_now().await;
    }

    /// Runs queries in one snapshot.
    pub(super) async fn read(&mut self, queries: &[Query<'_>]) -> Result<Vec<Vec<tokio_postgres::Row>>, Error> {
        self.prepare(queries).await?;
        let begin = self.client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ");
        let loads = self.answers(queries);
        let (begin, loads, end) = futures_util::future::join3(begin, loads, self.client.batch_execute("COMMIT")).await;
        begin?;
        let loads = loads?;
        end.map(|()| loads)
    }

    /// The size of the log and its baseline, in bytes.
    pub(super) async fn log_size(&self) -> Result<i64, Error> {
        let question = "SELECT pg_total_relation_size('events') + pg_total_relation_size('baseline')";
        self.client.query_one(question, &[]).await?.try_get(0)
    }

    /// The number of connections, its maximum, and the fill level of the notification queue in percent.
    pub(super) async fn usage(&self) -> Result<[u32; 3], Error> {
        let question = "SELECT (SELECT sum(numbackends) FROM pg_stat_database)::int8, (current_setting('max_connections')::int \
                        - current_setting('superuser_reserved_connections')::int)::int8, (pg_notification_queue_usage() * 100)::int8";
        let row = self.client.query_one(question, &[]).await?;
        let number = |column| Ok(u32::try_from(row.try_get::<_, i64>(column)?).unwrap_or(0));
        Ok([number(0)?, number(1)?, number(2)?])
    }

    /// The outcome of a transaction: `committed`, `aborted`, `in progress`, or `None` if the server no longer knows.
    pub(super) async fn status(&self, transaction: &str) -> Result<Option<String>, StoreError> {
        let row = self.client.query_one("SELECT pg_xact_status($1::text::xid8)", &[&transaction]).await;
        row.and_then(|row| row.try_get(0)).map_err(super::classify)
    }

    /// The rows that answer each query. One statement reads all locks, and the first lock query gets its rows: each row
    /// names its lock.
    async fn answers(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<tokio_postgres::Row>>, Error> {
        let is_lock = |query: &&Query<'_>| query.statement == LOCK;
        let Some(first) = queries.iter().find(is_lock) else {
            return try_join_all(queries.iter().map(|query| self.rows(query))).await;
        };
        let names: Vec<&str> = queries.iter().filter(is_lock).filter_map(|query| query.params[1].as_text()).collect();
        let params: [&(dyn ToSql + Sync); 2] = [&first.params[0], &names];
        let locks = self.client.query(self.prepared[LOCK.index()].as_ref().expect("prepared before"), &params);
        let others = try_join_all(queries.iter().filter(|query| !is_lock(query)).map(|query| self.rows(query)));
        let (locks, others) = futures_util::future::try_join(locks, others).await?;
        let (mut locks, mut others) = (Some(locks), others.into_iter());
        let answer = |query: &Query<'_>| if is_lock(&query) { locks.take() } else { others.next() }.unwrap_or_default();
        Ok(queries.iter().map(answer).collect())
    }

    /// Runs statements, with one insert for all events. All are sent before the first answer is read, so that a
    /// statement after them is sent too.
    async fn carry_out(&self, writes: &[Query<'_>]) -> Result<(), Error> {
        let is_event = |query: &&Query<'_>| query.statement == EVENT;
        let events: Vec<&Query<'_>> = writes.iter().filter(is_event).collect();
        let rows = futures_util::future::join_all(writes.iter().filter(|query| !is_event(query)).map(|query| self.rows(query)));
        let columns = columns(&events);
        let params: Vec<&(dyn ToSql + Sync)> = columns.iter().map(|column| &**column).collect();
        let events = async {
            if events.is_empty() {
                return Ok(Vec::new());
            }
            let insert = self.prepared[EVENT.index()].as_ref().expect("prepared before");
            self.client.query(insert, &params).await
        };
        let (rows, events) = futures_util::future::join(rows, events).await;
        rows.into_iter().collect::<Result<Vec<_>, Error>>()?;
        events.map(drop)
    }

    /// Prepares the statements that are new to this connection, in one round trip.
    async fn prepare(&mut self, queries: &[Query<'_>]) -> Result<(), Error> {
        let mut missing: Vec<Statement> = Vec::new();
        for statement in queries.iter().map(|query| query.statement) {
            if self.prepared[statement.index()].is_none() && !missing.contains(&statement) {
                missing.push(statement);
            }
        }
        let texts: Vec<String> = missing.iter().map(|statement| text(*statement)).collect();
        let prepared = try_join_all(texts.iter().map(|text| self.client.prepare(text))).await?;
        for (statement, prepared) in missing.into_iter().zip(prepared) {
            self.prepared[statement.index()] = Some(prepared);
        }
        Ok(())
    }

    async fn rows(&self, query: &Query<'_>) -> Result<Vec<tokio_postgres::Row>, Error> {
        let statement = self.prepared[query.statement.index()].as_ref().expect("prepared before");
        let params: Vec<&(dyn ToSql + Sync)> = query.params.iter().map(|param| param as &(dyn ToSql + Sync)).collect();
        self.client.query(statement, &params).await
    }
}

/// The locks of a batch are read by one statement, and its events are written by one: a message for each would cost
/// most of a round trip. Each lock is looked up by its key: for `= ANY`, a plan made for a small table reads all locks
/// of the project.
fn text(statement: Statement) -> String {
    let text = dialect::postgres(statement.text());
    match statement {
        LOCK => {
            let one = text.replace("SELECT", "").replace("name = $2", "name = wanted.key");
            let (columns, from) = one.split_once(" FROM ").expect("a statement that reads a table");
            format!(
                "SELECT {columns} FROM unnest($2::text[]) AS wanted (key) CROSS JOIN LATERAL (SELECT * FROM {from} OFFSET 0) AS found"
            )
        }
        EVENT => {
            let arrays = events::COLUMNS.iter().zip(2..).map(|((_, of), number)| match of {
                ColumnType::Int => format!("${number}::bigint[]"),
                ColumnType::Text => format!("${number}::text[]"),
            });
            let arrays = arrays.collect::<Vec<_>>().join(", ");
            let values = sql::params(1..=events::COLUMNS.len() + 1).join(", ");
            text.replace(&format!("VALUES ({values})"), &format!("SELECT $1, * FROM unnest({arrays})"))
        }
        _ => text,
    }
}

const LOCK: Statement = locks::Statement::ByName.erased();
const EVENT: Statement = events::Statement::Insert.erased();

/// The events as one parameter per column.
fn columns<'a>(events: &'a [&Query<'_>]) -> Vec<Box<dyn ToSql + Sync + 'a>> {
    let mut columns: Vec<Box<dyn ToSql + Sync + 'a>> = vec![Box::new(events.first().and_then(|event| event.params[0].as_int()))];
    for ((_, of), index) in events::COLUMNS.iter().zip(1..) {
        columns.push(match of {
            ColumnType::Int => Box::new(events.iter().map(|event| event.params[index].as_int()).collect::<Vec<_>>()),
            ColumnType::Text => Box::new(events.iter().map(|event| event.params[index].as_text()).collect::<Vec<_>>()),
        });
    }
    columns
}

/// Rows in the form that all databases share.
pub(super) fn decode(rows: Vec<tokio_postgres::Row>) -> Result<Rows, StoreError> {
    let column = |row: &tokio_postgres::Row, index: usize| -> Result<Value<'static>, StoreError> {
        let value = match *row.columns()[index].type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(index).map(Value::from),
            Type::VOID => Ok(Value::Null),
            _ => row.try_get::<_, Option<String>>(index).map(Value::from),
        };
        value.map_err(StoreError::corrupt)
    };
    rows.iter().map(|row| (0..row.len()).map(|index| column(row, index)).collect::<Result<Vec<_>, _>>().map(Row::new)).collect()
}

impl ToSql for Value<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(number) => number.to_sql(kind, out),
            Value::Text(text) => text.as_ref().to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::TEXT | Type::VARCHAR)
    }

    tokio_postgres::types::to_sql_checked!();
}
