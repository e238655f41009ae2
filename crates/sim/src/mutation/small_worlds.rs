//! The faults of the smaller worlds. Their checkers have no names: a history says what was wrong.

/// Faults of the world of limits of accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaMutation {
    /// A claim does not look at limits.
    StartsAnyway,
    /// A claim does not see that a run tries a limit already.
    TriesTwice,
    /// The end of a run that tries a limit hands that on to nobody.
    ForgetsProbe,
}

/// Faults of the world of merge queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandingMutation {
    /// A worker says that the check has passed without running it.
    SkipsCheck,
    /// A worker moves the target though somebody else has.
    MovesAnyway,
    /// A worker says that it has moved the target though it has not.
    ReportsTooSoon,
    /// A worker that is killed after the move does not look whether the target has the commit.
    ForgetsMove,
}

/// Faults of the world of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailMutation {
    /// A keeper writes a message whenever it is sent, and a sender sends it twice.
    SendsTwice,
    /// A runner starts an agent without the messages that were fetched for its prompt.
    ForgetsPrompt,
    /// A sender says that it has sent what it has not.
    ReportsTooSoon,
    /// Nobody looks after the message of a sender that was killed.
    LeavesLock,
    /// A keeper says at the end of a session that it has written what it still had for the next turn.
    ClaimsFollowUps,
    /// A runner records an end without what the keeper has said of its messages.
    ForgetsWritten,
}
