//! A limit of an account: reached, waited for, tried by one run, and over.
//!
//! ```text
//!   no row -- reach --> Waiting until T -- T has come, a run starts --> Probing
//!                         ^    ^                                        |  |  |
//!                         |    `-------------- reached again ----------'  |  |
//!                         `------ the run ended without an answer (T = now) ' |
//!   no row <-- no waiters are left -- Open <------- the model answered -------'
//! ```
//!
//! Invariants: while it waits, no run that shares it starts; when its time has come, one run at a time does, until the
//! model has answered one. A budget has no account: all agents share it, and when its time has come it is over without
//! a run that probes it.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::{AgentChoice, AgentWork, OnQuota};
use crate::event::Event;
use crate::ids::{Name, RunId};
use crate::step::{EffectBuffer, Now, Step};
use crate::time::{Lease, Span, Wall};

/// The word for a login that is refused: an account waits for it as for a limit.
pub const LOGIN: &str = "login";

/// The word for the money that a project may spend in a day.
pub const BUDGET: &str = "budget";

/// The waits while the provider names no end: the first, the second, and every later one.
const WAITS: [Span; 3] = [Span::from_secs(5 * 60), Span::from_secs(15 * 60), Span::from_secs(60 * 60)];

/// Upper bound on a limit: a later end is not believed.
const LONGEST: Span = Span::from_secs(8 * 24 * 3_600);

/// A limit that was reached. The baseline of the log keeps it in its serialized form: a new field needs a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountLimit {
    /// The resource that tasks wait for.
    pub name: Name,
    #[serde(flatten)]
    pub scope: Scope,
    /// The agent whose run reached it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Name>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub text: Box<str>,
    pub since: Wall,
    /// How often in a row it was reached without a known end.
    #[serde(default)]
    pub unknown: u32,
    pub state: State,
}

/// Which runs share a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scope {
    /// Only runs of this account; all runs if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Name>,
    /// The limit in the word of the provider, such as `five_hour`.
    pub kind: Box<str>,
    /// Only runs of this model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// With a model: whether runs that name no model share the limit, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unnamed: bool,
}

/// The state of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum State {
    /// No run starts before the end; then one run does.
    Waiting {
        /// The end on the lease clock. It is not in the log, which has the wall time.
        #[serde(default)]
        until: Lease,
        /// The end on the wall clock.
        resets: Wall,
        /// Whether the provider named the end.
        is_given: bool,
    },
    /// This run probes whether the limit is over.
    Probing { run: RunId },
    /// The limit is over. The row stays until all waiters were notified.
    Open,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A run reached the limit.
    Reach {
        run: Option<RunId>,
        agent: Option<Name>,
        /// When it ends, if the provider said so.
        resets: Option<Wall>,
        text: Box<str>,
        /// Whether the run names no model.
        unnamed: bool,
    },
    /// A run that shares it starts.
    Start {
        run: RunId,
    },
    /// The model has answered a run.
    Answer {
        run: RunId,
    },
    End {
        run: RunId,
    },
    /// A person requests a probe now.
    Retry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The limit has a new end.
    Waiting,
    Known,
    /// The run probes whether the limit is over.
    Probing,
    /// The run may not start.
    Refused,
    Open,
    /// The next run that starts probes the limit.
    Due,
    /// The run is not the one that probes.
    Late,
}

/// The events of a limit in the log. The variants are the second words of their kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", prefix = "account_limit:")]
#[serde(rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum LimitFact {
    /// It was reached: no run that shares it starts before this time.
    Reached {
        #[serde(flatten)]
        scope: Scope,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<Name>,
        #[serde(default, skip_serializing_if = "str::is_empty")]
        text: Box<str>,
        resets: Wall,
        is_given: bool,
        #[serde(default)]
        unknown: u32,
    },
    /// A run tries whether it is over.
    Probing {
        run: RunId,
    },
    /// The next run that starts tries whether it is over: the last one has ended without an answer, or a person wants it so.
    Due {},
    Ended {},
}

impl LimitFact {
    pub(crate) fn kind(&self) -> &'static str {
        self.into()
    }
}

impl Scope {
    /// The resource that tasks wait for. A kind or a model that cannot be part of a name is left out.
    pub fn resource_name(&self) -> Name {
        let account = self.account.as_ref().map_or("", |account| account.as_str());
        let model = self.model.as_ref().map(|model| format!(":{model}")).unwrap_or_default();
        let name = Name::new(&format!("account:{account}:{}{model}", self.kind));
        name.or_else(|_| Name::new(&format!("account:{account}:limit")))
            .or_else(|_| Name::new("account::limit"))
            .expect("a plain word is a name")
    }

    /// Whether an agent shares it.
    pub fn covers(&self, choice: &AgentChoice) -> bool {
        self.account.as_ref().is_none_or(|account| *account == choice.account)
            && match (&self.model, &choice.model) {
                (None, _) => true,
                // The provider's word for a model is a part of its name.
                (Some(model), Some(named)) => named.contains(&**model) || model.contains(&**named),
                (Some(_), None) => self.unnamed,
            }
    }
}

impl AccountLimit {
    /// A limit that no run has reached.
    pub fn new(scope: Scope, now: &Now) -> AccountLimit {
        AccountLimit {
            name: scope.resource_name(),
            scope,
            agent: None,
            text: "".into(),
            since: now.wall,
            unknown: 0,
            state: State::Open,
        }
    }

    /// Decides one input.
    pub fn step(mut self, input: Input, now: &Now) -> Step<AccountLimit, Outcome> {
        let mut buffer = EffectBuffer::new(now);
        let outcome = match (&self.state, input) {
            // The result of the probing run decides.
            (State::Probing { run }, Input::Reach { run: reporter, .. }) if Some(run) != reporter.as_ref() => Outcome::Known,
            // A report with an end replaces one without; of two ends the later one counts.
            (State::Waiting { until, is_given, .. }, Input::Reach { resets, unnamed, .. })
                if now.lease < *until && (resets.is_none() || (*is_given && resets <= Some(self.resets()))) =>
            {
                let is_wider = unnamed && !self.scope.unnamed;
                self.scope.unnamed |= unnamed;
                if is_wider {
                    self.emit_reached(&mut buffer);
                }
                Outcome::Known
            }
            (_, Input::Reach { agent, resets, text, unnamed, .. }) => {
                self.scope.unnamed |= unnamed;
                (self.agent, self.text) = (agent, text);
                self.wait(resets, now);
                self.emit_reached(&mut buffer);
                Outcome::Waiting
            }
            (State::Waiting { .. }, Input::Start { .. }) if !self.is_due(now) => Outcome::Refused,
            (State::Waiting { .. }, Input::Start { .. }) if self.scope.account.is_none() => self.open(&mut buffer),
            (State::Waiting { .. }, Input::Start { run }) => {
                self.emit(LimitFact::Probing { run: run.clone() }, &mut buffer);
                self.state = State::Probing { run };
                Outcome::Probing
            }
            (State::Probing { run }, Input::Start { run: started }) if *run == started => Outcome::Probing,
            (State::Probing { .. }, Input::Start { .. }) => Outcome::Refused,
            (State::Open, Input::Start { .. }) => Outcome::Open,
            (State::Probing { run }, Input::Answer { run: answered }) if *run == answered => self.open(&mut buffer),
            (State::Probing { run }, Input::End { run: ended }) if *run == ended => self.fall_due(now, &mut buffer),
            (State::Waiting { .. } | State::Probing { .. } | State::Open, Input::Answer { .. } | Input::End { .. }) => {
                Outcome::Late
            }
            (State::Waiting { .. }, Input::Retry) if !self.is_due(now) => self.fall_due(now, &mut buffer),
            (State::Waiting { .. }, Input::Retry) => Outcome::Due,
            (State::Probing { .. }, Input::Retry) => Outcome::Probing,
            (State::Open, Input::Retry) => Outcome::Open,
        };
        Step { state: self, outcome, effects: buffer.effects }
    }

    /// When time alone could change something.
    pub fn next_deadline(&self) -> Option<Lease> {
        match self.state {
            State::Waiting { until, .. } => Some(until),
            State::Probing { .. } | State::Open => None,
        }
    }

    /// Whether its time has come.
    pub fn is_due(&self, now: &Now) -> bool {
        self.next_deadline().is_some_and(|until| now.lease >= until)
    }

    /// Whether a run that shares it may start.
    pub fn admits(&self, now: &Now) -> bool {
        self.state == State::Open || self.is_due(now)
    }

    /// Whether any number of runs may start.
    pub fn admits_all(&self, now: &Now) -> bool {
        self.state == State::Open || (self.scope.account.is_none() && self.is_due(now))
    }

    /// When it is expected to be over, for people.
    pub fn resets(&self) -> Wall {
        match self.state {
            State::Waiting { resets, .. } => resets,
            State::Probing { .. } | State::Open => self.since,
        }
    }

    /// The limit without its times on the lease clock, as the log knows it.
    pub fn timeless(self) -> AccountLimit {
        match self.state {
            State::Waiting { resets, is_given, .. } => {
                AccountLimit { state: State::Waiting { until: Lease(0), resets, is_given }, ..self }
            }
            State::Probing { .. } | State::Open => self,
        }
    }

    /// Panics if an invariant is broken.
    pub fn check(&self) {
        assert_eq!(self.name, self.scope.resource_name(), "a limit is waited for under its own name");
        let probes = matches!(self.state, State::Probing { .. });
        assert!(!probes || self.scope.account.is_some(), "no run probes a budget");
    }

    fn wait(&mut self, resets: Option<Wall>, now: &Now) {
        let given = resets.filter(|resets| *resets > now.wall).map(|resets| (resets - now.wall).min(LONGEST));
        let known = usize::try_from(self.unknown).unwrap_or(usize::MAX).min(WAITS.len() - 1);
        let span = given.unwrap_or(WAITS[known]);
        self.unknown = if given.is_some() { 0 } else { self.unknown.saturating_add(1) };
        self.since = now.wall;
        let resets = Wall(now.wall.0.saturating_add(span.as_ms()));
        self.state = State::Waiting { until: now.lease + span, resets, is_given: given.is_some() };
    }

    fn open(&mut self, buffer: &mut EffectBuffer) -> Outcome {
        self.emit(LimitFact::Ended {}, buffer);
        (self.state, self.unknown) = (State::Open, 0);
        Outcome::Open
    }

    fn fall_due(&mut self, now: &Now, buffer: &mut EffectBuffer) -> Outcome {
        self.emit(LimitFact::Due {}, buffer);
        self.state = State::Waiting { until: now.lease, resets: now.wall, is_given: true };
        Outcome::Due
    }

    fn emit_reached(&self, buffer: &mut EffectBuffer) {
        if let State::Waiting { resets, is_given, .. } = self.state {
            let (scope, agent, text) = (self.scope.clone(), self.agent.clone(), self.text.clone());
            self.emit(LimitFact::Reached { scope, agent, text, resets, is_given, unknown: self.unknown }, buffer);
        }
    }

    fn emit(&self, fact: LimitFact, buffer: &mut EffectBuffer) {
        buffer.emit(Event::AccountLimit { name: self.name.clone(), fact });
    }
}

/// Applies an event, without times on the lease clock. A limit that is over is dropped.
pub fn apply(name: &Name, before: Option<AccountLimit>, fact: LimitFact, wall: Wall) -> Option<AccountLimit> {
    match fact {
        LimitFact::Reached { scope, agent, text, resets, is_given, unknown } => {
            // A report that only widens the scope keeps the beginning.
            let is_known = |limit: &AccountLimit| matches!(limit.state, State::Waiting { resets: known, .. } if known == resets);
            let since = before.filter(is_known).map_or(wall, |before| before.since);
            let state = State::Waiting { until: Lease(0), resets, is_given };
            Some(AccountLimit { name: name.clone(), scope, agent, text, since, unknown, state })
        }
        LimitFact::Probing { run } => before.map(|limit| AccountLimit { state: State::Probing { run }, ..limit }),
        LimitFact::Due {} => {
            let state = State::Waiting { until: Lease(0), resets: wall, is_given: true };
            before.map(|limit| AccountLimit { state, ..limit })
        }
        LimitFact::Ended {} => None,
    }
}

/// Chooses the agent that does the work now; otherwise returns the limits of the candidate that is free first.
pub fn choose<'a, 'l>(
    work: &'a AgentWork,
    limits: impl Iterator<Item = &'l AccountLimit> + Clone,
    now: &Now,
) -> Result<&'a AgentChoice, Vec<(&'a AgentChoice, &'l AccountLimit)>> {
    let candidates = match work.on_quota {
        OnQuota::Wait => 1,
        OnQuota::Next => work.agents.len(),
    };
    let mut soonest: Option<Vec<_>> = None;
    let end = |limits: &[(&AgentChoice, &AccountLimit)]| limits.iter().map(|(_, limit)| limit.next_deadline()).max().flatten();
    for choice in work.agents.iter().take(candidates) {
        let in_the_way = limits.clone().filter(|limit| limit.scope.covers(choice) && !limit.admits(now));
        let in_the_way: Vec<_> = in_the_way.map(|limit| (choice, limit)).collect();
        if in_the_way.is_empty() {
            return Ok(choice);
        }
        if soonest.as_ref().is_none_or(|soonest| end(&in_the_way) < end(soonest)) {
            soonest = Some(in_the_way);
        }
    }
    Err(soonest.unwrap_or_default())
}

#[cfg(test)]
mod tests;
