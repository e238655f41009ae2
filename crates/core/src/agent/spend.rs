//! The usage and cost of agents in a day, as far as they report it.

use super::{AgentEnd, Usage};
use crate::ids::Name;
use crate::time::Wall;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A day as people count it on the machine where a run has ended: machines in other time zones begin theirs at other times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day {
    /// Its date, in days since 1970.
    pub date: i64,
    /// When it is over.
    pub ends: Wall,
}

/// The usage and cost of an agent in a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaySpend {
    /// The day, counted from 1970.
    pub day: i64,
    pub agent: Name,
    pub runs: u64,
    pub usage: Usage,
    /// The price that the program reports, in millionths of a dollar. For a subscriber it is the list price, which is
    /// not paid.
    pub cost_micros: u64,
    /// The part of it that is paid.
    pub paid_micros: u64,
}

impl DaySpend {
    pub fn new(day: i64, agent: Name) -> DaySpend {
        DaySpend { day, agent, runs: 0, usage: Usage::default(), cost_micros: 0, paid_micros: 0 }
    }

    /// Adds a run that has ended.
    pub fn add(&mut self, end: &AgentEnd) {
        let cost = end.cost_micros.unwrap_or(0);
        self.runs += 1;
        self.usage = self.usage.plus(end.usage);
        self.cost_micros = self.cost_micros.saturating_add(cost);
        self.paid_micros = self.paid_micros.saturating_add(if end.is_paid() { cost } else { 0 });
    }
}

impl AgentEnd {
    /// Whether its cost is paid, and not covered by a subscription: a program that has no key says so.
    pub fn is_paid(&self) -> bool {
        self.key_source.as_deref() != Some("none")
    }
}

impl Day {
    /// The day of a moment where the time is UTC.
    pub fn utc(at: Wall) -> Day {
        let date = at.0.div_euclid(DAY_MS);
        Day { date, ends: Wall(date.saturating_add(1).saturating_mul(DAY_MS)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentVerdict;

    #[test]
    fn usage_covered_by_a_subscription_is_not_paid() {
        let end = |key: &str| AgentEnd {
            agent: Name::new("claude").unwrap(),
            verdict: AgentVerdict::Ok,
            text: "".into(),
            session: None,
            model: None,
            key_source: Some(key.into()),
            turns: 1,
            answers: 1,
            usage: Usage { input: 10, output: 2, ..Usage::default() },
            cost_micros: Some(500),
        };
        let mut spend = DaySpend::new(Day::utc(Wall(DAY_MS + 1)).date, Name::new("claude").unwrap());
        spend.add(&end("none"));
        spend.add(&end("ANTHROPIC_API_KEY"));
        assert_eq!((spend.day, spend.runs, spend.usage.input), (1, 2, 20));
        assert_eq!((spend.cost_micros, spend.paid_micros), (1_000, 500));
        assert_eq!(Day::utc(Wall(DAY_MS)).ends, Wall(2 * DAY_MS));
    }
}
