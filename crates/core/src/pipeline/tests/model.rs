//! The naive model of a pipeline: a list of phases, the position in it, and counters.
//!
//! It works by an agenda, one small step after the other, and knows neither events nor explanations, and task ids only
//! by their numbers.

/// A phase of the model.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) work: Work,
    pub(super) pre: bool,
    pub(super) post: bool,
    pub(super) then: Then,
    pub(super) if_fails: Then,
    /// How often that may happen.
    pub(super) times: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Command,
    /// The number of approaches, and whether each falls back on every error, or on none.
    Choices(u32, bool),
    Item,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Next,
    Go(usize),
    Same,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    Not,
    Waits,
    Before { at: usize, held: bool },
    At { at: usize, choice: u32, task: Option<u32>, asked: bool },
    After { at: usize, held: bool },
    Through,
    Broken { at: usize, for_good: bool },
    Dropped,
}

/// The next step of the model.
enum Todo {
    Arrive(usize),
    Approach(usize),
    Do(usize, u32),
    Finished(usize),
    Leave(usize),
    Failed(usize),
}

#[derive(Debug, Clone)]
pub(super) struct PipelineModel {
    pub(super) entries: Vec<Entry>,
    pub(super) position: Position,
    pub(super) tasks: u32,
    pub(super) attempt: u32,
    /// The attempts at each entry.
    attempts: Vec<u32>,
    pub(super) tallies: Vec<u32>,
}

impl PipelineModel {
    pub(super) fn new(entries: Vec<Entry>) -> PipelineModel {
        let none = vec![0; entries.len()];
        PipelineModel { entries, position: Position::Not, tasks: 0, attempt: 1, attempts: none.clone(), tallies: none }
    }

    pub(super) fn begin(&mut self) {
        if matches!(self.position, Position::Not | Position::Waits) {
            self.work(Todo::Arrive(0));
        }
    }

    pub(super) fn waits(&mut self) {
        self.position = Position::Waits;
    }

    /// The guards pass, or a person lets it continue.
    pub(super) fn let_through(&mut self) {
        match self.position {
            Position::Before { at, .. } => self.work(Todo::Do(at, 0)),
            Position::After { at, .. } => self.work(Todo::Leave(at)),
            _ => {}
        }
    }

    pub(super) fn hold_up(&mut self) {
        if let Position::Before { held, .. } | Position::After { held, .. } = &mut self.position {
            *held = true;
        }
    }

    pub(super) fn give_up(&mut self) {
        match self.place() {
            Some(at) if self.entries[at].if_fails == Then::End || self.tallies[at] >= self.entries[at].times => {
                self.position = Position::Broken { at, for_good: true };
            }
            Some(at) => self.work(Todo::Failed(at)),
            None => {}
        }
    }

    /// The work at the position has ended.
    pub(super) fn ended(&mut self, well: bool) {
        let Position::At { at, choice, .. } = self.position else { return };
        let next = match (well, self.entries[at].work) {
            (true, _) => Todo::Finished(at),
            (false, Work::Choices(count, true)) if choice + 1 < count => Todo::Do(at, choice + 1),
            (false, _) => Todo::Failed(at),
        };
        self.work(next);
    }

    /// A person has cancelled or skipped the work.
    pub(super) fn taken_away(&mut self) {
        if let Position::At { at, .. } = self.position {
            self.position = Position::Broken { at, for_good: false };
        }
    }

    pub(super) fn ask(&mut self, is_open: bool) {
        if let Position::At { asked, .. } = &mut self.position {
            *asked = is_open;
        }
    }

    pub(super) fn again(&mut self) {
        if let Position::Broken { at, for_good: false } = self.position {
            self.tallies.fill(0);
            self.begin_attempt(at);
            self.work(Todo::Approach(at));
        }
    }

    pub(super) fn drop_it(&mut self) {
        self.position = Position::Dropped;
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.position, Position::Through | Position::Broken { .. } | Position::Dropped)
    }

    fn place(&self) -> Option<usize> {
        match self.position {
            Position::Before { at, .. } | Position::At { at, .. } | Position::After { at, .. } | Position::Broken { at, .. } => {
                Some(at)
            }
            Position::Not | Position::Waits | Position::Through | Position::Dropped => None,
        }
    }

    fn begin_attempt(&mut self, at: usize) {
        self.attempts[at] += 1;
        self.attempt = self.attempts[at];
    }

    fn work(&mut self, first: Todo) {
        let mut todo = Some(first);
        while let Some(now) = todo.take() {
            match now {
                Todo::Arrive(at) => {
                    self.begin_attempt(at);
                    todo = Some(Todo::Approach(at));
                }
                Todo::Approach(at) if self.entries[at].pre => self.position = Position::Before { at, held: false },
                Todo::Approach(at) => todo = Some(Todo::Do(at, 0)),
                Todo::Do(at, choice) => {
                    self.tasks += 1;
                    let task = (self.entries[at].work != Work::Item).then_some(self.tasks);
                    self.position = Position::At { at, choice, task, asked: false };
                }
                Todo::Finished(at) if self.entries[at].post => self.position = Position::After { at, held: false },
                Todo::Finished(at) => todo = Some(Todo::Leave(at)),
                Todo::Leave(at) => match self.entries[at].then {
                    Then::Next if at + 1 < self.entries.len() => todo = Some(Todo::Arrive(at + 1)),
                    Then::Go(to) => todo = Some(Todo::Arrive(to)),
                    Then::Next | Then::End | Then::Same => self.position = Position::Through,
                },
                Todo::Failed(at) if self.entries[at].if_fails == Then::End || self.tallies[at] >= self.entries[at].times => {
                    self.position = Position::Broken { at, for_good: false };
                }
                Todo::Failed(at) => {
                    self.tallies[at] += 1;
                    todo = Some(match self.entries[at].if_fails {
                        Then::Go(to) => Todo::Arrive(to),
                        Then::Same | Then::Next | Then::End => {
                            self.begin_attempt(at);
                            Todo::Approach(at)
                        }
                    });
                }
            }
        }
    }
}
