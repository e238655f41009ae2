//! The bus. A row is written once and never changed; its number comes from the same sequence as events.

use banksman_core::bus::{Contention, Draft, Message, MessageType};
use banksman_core::event::Event;
use banksman_core::ids::{MessageId, TaskId};
use banksman_core::{Seq, Span, Wall};

use crate::columns::{Int, Json, Text};
use crate::error::StoreError;
use crate::reader::View;
use crate::store::Store;
use crate::table::table;
use crate::tables::{deliveries, events, projects};
use crate::value::{Query, Value};

table! {
    Messages "messages" of &'a MessageId => Message, |_id, message|
    by ["seq"] = [Int &message.seq]; inserts
    fixed {
        seq: Int,
        id: Text = &message.draft.id,
        wall: Int,
        kind: Text = &message.draft.kind,
        task: Text = &message.draft.task,
        run: Text = &message.draft.run,
        author: Text = &message.draft.author,
        parent: Text = &message.draft.parent,
        body: Text = &message.draft.body,
        attachments: Json = &message.draft.attachments,
        attempts: Int = &message.contention.attempts,
        waited: Int = &message.contention.waited,
    }
    changing {}
    read Message = Message {
        seq,
        wall,
        draft: Draft { id, kind, task, run, author, parent, body, attachments },
        contention: Contention { attempts, waited },
    };
    statements {
        ById => "SELECT {messages} FROM messages WHERE project = $1 AND id = $2",
        After => "SELECT {messages} FROM messages WHERE project = $1 AND seq > $2 ORDER BY seq LIMIT $3",
        AfterOfTask => "SELECT {messages} FROM messages WHERE project = $1 AND task = $4 AND seq > $2 ORDER BY seq LIMIT $3",
        Before => "SELECT {messages} FROM messages WHERE project = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3",
        BeforeOfTask => "SELECT {messages} FROM messages WHERE project = $1 AND task = $4 AND seq < $2 ORDER BY seq DESC LIMIT $3",
        Statistics => "SELECT kind, count(*), CAST(sum(attempts) AS BIGINT), CAST(sum(waited) AS BIGINT), max(waited), \
                       CAST(sum(length(body)) AS BIGINT), max(seq) FROM messages WHERE project = $1 GROUP BY kind ORDER BY kind",
        /// Of the oldest $3 messages without an open delivery: the number of those older than $2, and the newest of
        /// them.
        Old => "SELECT count(*), max(o.seq) FROM (SELECT m.seq, m.wall FROM messages m WHERE m.project = $1 AND {arrived m} \
                ORDER BY m.seq LIMIT $3) o WHERE o.wall < $2",
        DeleteThrough => "DELETE FROM messages WHERE project = $1 AND seq <= $2 AND wall < $3 AND {arrived messages}",
    }
}

/// Maximum number of messages of one read.
pub const MESSAGES_PAGE: usize = 1_000;

/// Number of messages that one compaction step removes.
const STEP: i64 = 1_000;

#[derive(Debug, Clone, Default)]
pub struct MessageFilter {
    /// Only these types; all types if empty.
    pub kinds: Vec<MessageType>,
    /// Only about this task.
    pub task: Option<TaskId>,
}

impl MessageFilter {
    pub fn passes(&self, message: &Message) -> bool {
        let task = self.task.as_ref().is_none_or(|task| message.draft.task.as_ref() == Some(task));
        task && (self.kinds.is_empty() || self.kinds.contains(&message.draft.kind))
    }
}

/// A page of the bus.
#[derive(Debug)]
pub struct MessagePage {
    pub messages: Vec<Message>,
    /// The end of the page: every message up to this one was read.
    pub through: Seq,
    /// Whether there may be another page.
    pub more: bool,
}

/// Events that messages are derived from.
#[derive(Debug)]
pub struct TaskEvents {
    pub events: Vec<(Seq, Wall, Event)>,
    /// The end of the page.
    pub through: Seq,
    /// Whether there may be another page.
    pub more: bool,
}

/// The messages of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeCount {
    pub kind: MessageType,
    pub messages: u64,
    /// How often their senders tried to post them.
    pub attempts: u64,
    /// How long the store kept their senders waiting: the total and the maximum.
    pub waited: Span,
    pub longest_wait: Span,
    /// Total length of the bodies.
    pub bytes: u64,
    /// The newest message.
    pub last: Seq,
}

impl View<'_> {
    /// The messages of the page after `after` that pass the filter.
    pub fn messages(&mut self, after: Seq, filter: &MessageFilter) -> Result<MessagePage, StoreError> {
        let limit = i64::try_from(MESSAGES_PAGE).expect("a page is small");
        let query = self.of_filter(Statement::After, Statement::AfterOfTask, after, limit, filter);
        let counters = Query::new(projects::Statement::One, [self.project.into()]);
        let mut answers = self.backend.read(&[query, counters])?.into_iter();
        let mut rows = answers.next().unwrap_or_default();
        let messages = rows.iter_mut().map(<Messages as crate::table::Table>::read).collect::<Result<Vec<_>, _>>()?;
        let newest = Seq(projects::Counters::read(answers.next().unwrap_or_default())?.seq);
        let more = messages.len() == MESSAGES_PAGE;
        let through = messages.last().map_or(newest, |last| if more { last.seq } else { newest.max(last.seq) });
        let messages = messages.into_iter().filter(|message| filter.passes(message)).collect();
        Ok(MessagePage { messages, through, more })
    }

    /// The last messages that pass the filter, oldest first.
    pub fn last_messages(&mut self, limit: usize, filter: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        let page = i64::try_from(limit.clamp(1, MESSAGES_PAGE)).expect("a page is small");
        let (mut messages, mut before) = (Vec::new(), Seq(i64::MAX));
        while messages.len() < limit {
            let query = self.of_filter(Statement::Before, Statement::BeforeOfTask, before, page, filter);
            let read = self.read::<Messages>(query)?;
            let Some(oldest) = read.last() else { break };
            before = oldest.seq;
            messages.extend(read.into_iter().filter(|message| filter.passes(message)));
        }
        messages.truncate(limit);
        messages.reverse();
        Ok(messages)
    }

    fn of_filter<'q>(
        &self,
        all: Statement,
        of_task: Statement,
        from: Seq,
        limit: i64,
        filter: &'q MessageFilter,
    ) -> Query<'q> {
        let mut params: Vec<Value<'q>> = vec![self.project.into(), from.0.into(), limit.into()];
        match &filter.task {
            Some(task) => {
                params.push(task.as_str().into());
                Query { statement: of_task.erased(), params }
            }
            None => Query { statement: all.erased(), params },
        }
    }

    /// The message with this id.
    pub fn message(&mut self, id: &MessageId) -> Result<Option<Message>, StoreError> {
        Ok(self.read::<Messages>(Query::new(Statement::ById, [self.project.into(), id.as_str().into()]))?.pop())
    }

    /// A page of the events after `after` that messages are derived from.
    pub fn task_events(&mut self, after: Seq) -> Result<TaskEvents, StoreError> {
        let limit = i64::try_from(MESSAGES_PAGE).expect("a page is small");
        let query = Query::new(events::Statement::OfTasks, [self.project.into(), after.0.into(), limit.into()]);
        let counters = Query::new(projects::Statement::One, [self.project.into()]);
        let mut answers = self.backend.read(&[query, counters])?.into_iter();
        let rows = answers.next().unwrap_or_default().into_iter().map(events::read).collect::<Result<Vec<_>, _>>()?;
        let newest = Seq(projects::Counters::read(answers.next().unwrap_or_default())?.seq);
        let more = rows.len() == MESSAGES_PAGE;
        let through = if more { rows.last().map_or(newest, |row| row.id) } else { newest };
        let event = |row: crate::EventRow| Ok((row.id, row.wall, crate::compact::parse(&row, &row.data.to_string())?));
        Ok(TaskEvents { events: rows.into_iter().map(event).collect::<Result<_, StoreError>>()?, through, more })
    }

    /// The number of messages by type, with the waiting times of their senders.
    pub fn message_counts(&mut self) -> Result<Vec<TypeCount>, StoreError> {
        let rows = self.rows(Query::new(Statement::Statistics, [self.project.into()]))?;
        let count = |number: i64| u64::try_from(number).map_err(StoreError::corrupt);
        let read = |mut row: crate::value::Row| {
            let kind = MessageType::new(&row.text()?).map_err(StoreError::corrupt)?;
            let (messages, attempts) = (count(row.int()?)?, count(row.int()?)?);
            let (waited, longest_wait) = (Span::from_ms(row.int()?), Span::from_ms(row.int()?));
            Ok(TypeCount { kind, messages, attempts, waited, longest_wait, bytes: count(row.int()?)?, last: Seq(row.int()?) })
        };
        rows.into_iter().map(read).collect()
    }

    /// How many of the oldest messages were posted before this moment, and the newest of them.
    fn old_messages(&mut self, before: Wall) -> Result<(u64, Seq), StoreError> {
        let params = [self.project.into(), before.0.into(), STEP.into()];
        let mut row = self.rows(Query::new(Statement::Old, params))?.pop().ok_or_else(|| StoreError::corrupt("nothing was counted"))?;
        Ok((u64::try_from(row.int()?).map_err(StoreError::corrupt)?, Seq(row.maybe_int()?.unwrap_or(0))))
    }
}

impl Store {
    /// Removes the messages that are older than `keep`, a step at a time, and returns their number. It may be
    /// interrupted at any moment.
    pub fn compact_messages(&mut self, keep: Span, mut report: impl FnMut(u64)) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let before = Wall(self.view().newest()?.1.0.saturating_sub(keep.as_ms()));
            let (number, through) = self.view().old_messages(before)?;
            if number == 0 {
                return Ok(removed);
            }
            self.remove_messages(through, before)?;
            removed += number;
            report(removed);
            self.backend.tidy(true)?;
        }
    }

    fn remove_messages(&mut self, through: Seq, before: Wall) -> Result<(), StoreError> {
        self.backend.lock_writer()?;
        let counters = [Query::new(projects::Statement::One, [self.project.into()])];
        let begun = self.backend.begin(&counters).and_then(|answers| {
            projects::Counters::read(answers.into_iter().next().unwrap_or_default())?;
            let params = [self.project.into(), through.0.into(), before.0.into()];
            let deliveries = [self.project.into(), through.0.into()];
            self.backend.commit(&[
                Query::new(Statement::DeleteThrough, params),
                Query::new(deliveries::Statement::DeleteThrough, deliveries),
            ])
        });
        if begun.is_err() {
            self.backend.roll_back();
        }
        self.backend.unlock_writer();
        begun
    }
}
