//! The faults of the small simulations. Their checkers have no names: a history returns the violation.

/// Faults of the simulation of account limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaMutation {
    /// A claim ignores limits.
    StartsAnyway,
    /// A claim does not see that a run already probes a limit.
    TriesTwice,
    /// The end of a run that probes a limit does not free the probe for another run.
    ForgetsProbe,
}

/// Faults of the simulation of merge queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandingMutation {
    /// A worker reports that the check has passed without running it.
    SkipsCheck,
    /// A worker moves the target although it has moved meanwhile.
    MovesAnyway,
    /// A worker reports a move of the target that it has not made.
    ReportsTooSoon,
    /// After a worker was killed right after its move, the next one does not check whether the target has the commit.
    ForgetsMove,
}

/// Faults of the simulation of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailMutation {
    /// A keeper writes a message whenever it is sent, and a sender sends it twice.
    SendsTwice,
    /// A runner starts an agent without the messages that were fetched for its prompt.
    ForgetsPrompt,
    /// A sender reports a message as sent that it has not sent.
    ReportsTooSoon,
    /// No runner recovers the message of a sender that was killed.
    LeavesLock,
    /// At the end of a session, a keeper reports messages for the next turn as written that it has not written.
    ClaimsFollowUps,
    /// A runner records an end without the messages that the keeper has reported as written.
    ForgetsWritten,
}
