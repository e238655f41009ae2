//! PostgreSQL: one database, many machines, one writer at a time for each project.
//!
//! A write transaction begins with an advisory lock on the project, so that writes are serial as on SQLite; sequence
//! numbers have the order of commits. A batch takes two round trips: begin, lock and load; write and commit. If the
//! connection breaks during the second one, the server is asked for the outcome of the transaction.

mod connect;
mod listen;
mod open;
mod session;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;

pub use connect::Server;
pub use listen::{ChangeSubscription, Heard, Listener, Subscription};
pub use open::{create, exists, occupant, open, open_reader, open_retired, remove};

use crate::backend::Backend;
use crate::compact::Size;
use crate::error::StoreError;
use crate::reader::ServerUsage;
use crate::tables::projects::Statement;
use crate::value::{Query, Rows};
pub(crate) use session::FOLLOWER_SPACE;
use session::{Begun, Session};

/// How long to ask for the outcome of a transaction whose connection broke.
const RESOLVE: Duration = Duration::from_secs(20);

/// How long to try to reach the server for one call.
const RECONNECT: Duration = Duration::from_secs(8);

/// A connection to a project in a PostgreSQL database.
pub(crate) struct Postgres {
    runtime: Runtime,
    server: Server,
    project: i64,
    session: Option<Session>,
    /// The id of the open transaction, to ask for its outcome if the connection breaks.
    transaction: Option<String>,
    /// Whether the open transaction holds the writer lock and has done nothing else yet.
    is_fresh: bool,
    /// Whether the last transaction waited for the writer lock.
    has_waited: bool,
}

impl Postgres {
    fn new(runtime: Runtime, server: Server, project: i64, session: Session) -> Postgres {
        Postgres { runtime, server, project, session: Some(session), transaction: None, is_fresh: false, has_waited: false }
    }

    /// The session. Connects if needed, and retries for a while: a server that restarts is soon back.
    fn session(&mut self) -> Result<(&Runtime, &mut Session), StoreError> {
        if self.session.as_ref().is_none_or(Session::is_closed) {
            self.session = None;
            let start = Instant::now();
            self.session = loop {
                match self.runtime.block_on(Session::connect(&self.server)) {
                    Ok(session) => break Some(session),
                    Err(error @ StoreError::Unreachable { .. }) if start.elapsed() > RECONNECT => return Err(error),
                    Err(StoreError::Unreachable { .. }) => connect::pause(start.elapsed()),
                    Err(error) => return Err(error),
                }
            };
        }
        Ok((&self.runtime, self.session.as_mut().expect("just connected")))
    }

    /// Begins a transaction with the writer lock. Without `is_patient` the wait is short, so that the caller can report
    /// the lock's holder.
    fn begin_transaction(&mut self, is_patient: bool, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        let project = self.project;
        let (runtime, session) = self.session()?;
        match runtime.block_on(session.begin(project, is_patient, queries)) {
            Ok(Begun { transaction, has_waited, answers }) => {
                (self.transaction, self.has_waited) = (Some(transaction), has_waited);
                answers.into_iter().map(session::decode).collect()
            }
            Err(error) => {
                let error = classify(error);
                self.transaction = Some(String::new());
                self.roll_back();
                Err(error)
            }
        }
    }

    /// Asks whether a transaction whose connection broke was committed.
    fn resolve(&mut self, transaction: &str, source: tokio_postgres::Error) -> Result<(), StoreError> {
        let start = Instant::now();
        let source = Arc::new(source);
        while start.elapsed() < RESOLVE {
            let status = self.session().and_then(|(runtime, session)| runtime.block_on(session.status(transaction)));
            match status.as_ref().map(Option::as_deref) {
                Ok(Some("committed")) => return Ok(()),
                Ok(Some("aborted")) => return Err(StoreError::Disconnected { source }),
                // The server has not noticed yet that the connection is gone, or is not reachable yet.
                Ok(Some(_)) | Err(_) => connect::pause(start.elapsed()),
                Ok(None) => break,
            }
        }
        Err(StoreError::Unknown { source })
    }
}

impl Backend for Postgres {
    /// Begins the transaction of the next batch with a longer wait than that batch has by itself; calls that arrive
    /// meanwhile join the batch.
    fn lock_writer(&mut self) -> Result<bool, StoreError> {
        if self.is_fresh {
            return Ok(false);
        }
        match self.begin_transaction(true, &[]) {
            Ok(_) => self.is_fresh = true,
            // The batch connects again, and waits by itself.
            Err(StoreError::Disconnected { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(self.has_waited)
    }

    /// The lock is a part of the transaction, which reports whether another one held it.
    fn try_lock_writer(&mut self) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn unlock_writer(&mut self) {
        if std::mem::take(&mut self.is_fresh) {
            self.roll_back();
        }
    }

    fn has_waited(&self) -> bool {
        self.has_waited
    }

    fn keeps_writer_lock(&self) -> bool {
        false
    }

    fn begin(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        let answers = match std::mem::take(&mut self.is_fresh) {
            true => self.query(queries),
            false => self.begin_transaction(false, queries),
        };
        // A transaction whose rows cannot be read is of no use.
        answers.inspect_err(|_| self.roll_back())
    }

    fn query(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        let (runtime, session) = (&self.runtime, self.session.as_mut().expect("a transaction has a session"));
        let answers = runtime.block_on(session.query(queries)).map_err(classify)?;
        answers.into_iter().map(session::decode).collect()
    }

    fn stay(&mut self) -> Result<(), StoreError> {
        let (runtime, session) = (&self.runtime, self.session.as_mut().expect("a transaction has a session"));
        runtime.block_on(session.stay()).map_err(classify)
    }

    fn write(&mut self, writes: &[Query<'_>]) -> Result<(), StoreError> {
        let (runtime, session) = (&self.runtime, self.session.as_mut().expect("a transaction has a session"));
        runtime.block_on(session.write(writes)).map_err(classify)
    }

    fn commit(&mut self, writes: &[Query<'_>]) -> Result<(), StoreError> {
        let transaction = self.transaction.take().expect("a transaction is open");
        let (runtime, session) = (&self.runtime, self.session.as_mut().expect("a transaction has a session"));
        match runtime.block_on(session.commit(writes)) {
            Ok(()) => Ok(()),
            // The server has answered: the transaction was rolled back.
            Err(error) if error.code().is_some() && !is_shutdown(&error) => Err(classify(error)),
            Err(error) => {
                self.session = None;
                self.resolve(&transaction, error)
            }
        }
    }

    fn roll_back(&mut self) {
        if self.transaction.take().is_some()
            && let Some(session) = &self.session
        {
            self.runtime.block_on(session.roll_back());
        }
    }

    fn read(&mut self, queries: &[Query<'_>]) -> Result<Vec<Rows>, StoreError> {
        let mut broken = None;
        for _ in 0..3 {
            let (runtime, session) = self.session()?;
            match runtime.block_on(session.read(queries)) {
                Ok(answers) => return answers.into_iter().map(session::decode).collect(),
                Err(error) => {
                    self.session = None;
                    broken = Some(classify(error));
                    if !matches!(broken, Some(StoreError::Disconnected { .. })) {
                        break;
                    }
                }
            }
        }
        Err(broken.unwrap_or(StoreError::Stalled))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn notifies(&self) -> bool {
        true
    }

    fn ring(&mut self, project: i64) -> Result<(), StoreError> {
        let (runtime, session) = self.session()?;
        let query = Query::new(Statement::Notify, [change_channel(project).into(), "".into()]);
        runtime.block_on(session.read(&[query])).map_err(classify).map(drop)
    }

    fn tidy(&mut self, _quiet: bool) -> Result<(), StoreError> {
        Ok(())
    }

    fn analyze(&mut self) -> Result<(), StoreError> {
        let (runtime, session) = self.session()?;
        runtime.block_on(session.client().batch_execute("ANALYZE tasks, edges, events")).map_err(classify)
    }

    /// The server checks its own files; from here one can check that the tables are readable.
    fn check_integrity(&mut self) -> Result<Vec<String>, StoreError> {
        self.read(&crate::load::plan_all(self.project)).map(|_| Vec::new())
    }

    fn server_usage(&mut self) -> Result<Option<ServerUsage>, StoreError> {
        let (runtime, session) = self.session()?;
        let [connections, max_connections, notification_queue] = runtime.block_on(session.usage()).map_err(classify)?;
        Ok(Some(ServerUsage { connections, max_connections, notification_queue }))
    }

    fn clear(&mut self, project: i64, lease: i64, boot: &str) -> Result<(), StoreError> {
        let (runtime, session) = self.session()?;
        runtime.block_on(open::clear(session.client(), project, lease, boot))
    }

    /// The size of the log and its baseline, which all projects of the database share. Free space in them is expensive
    /// to determine.
    fn size(&mut self) -> Result<Size, StoreError> {
        let (runtime, session) = self.session()?;
        let bytes = runtime.block_on(session.log_size()).map_err(classify)?;
        Ok(Size { bytes: bytes.try_into().map_err(StoreError::corrupt)?, free: None })
    }
}

/// The channel that notifies the followers of a project's event log.
fn change_channel(project: i64) -> String {
    format!("banksman_bell_{project}")
}

/// Maps errors of the server to their meaning for the caller.
fn classify(error: tokio_postgres::Error) -> StoreError {
    let code = error.code().cloned();
    let shutdown = is_shutdown(&error);
    let source = Arc::new(std::io::Error::other(connect::chain(&error)));
    match code {
        None => StoreError::Disconnected { source },
        Some(_) if shutdown => StoreError::Disconnected { source },
        Some(code) if code == SqlState::LOCK_NOT_AVAILABLE => StoreError::Stalled,
        Some(code) if code == SqlState::INSUFFICIENT_PRIVILEGE => StoreError::Forbidden { source },
        Some(code) if code == SqlState::DISK_FULL => StoreError::Full { source },
        Some(code) if code == SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::ReadOnly { source },
        Some(_) => StoreError::Failed { source },
    }
}

/// Whether the server ends the session: an administrator ended it, or the server restarts or has crashed.
fn is_shutdown(error: &tokio_postgres::Error) -> bool {
    let endings = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    error.code().is_some_and(|code| endings.contains(code))
}
