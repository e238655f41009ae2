//! Tokens and cost of agents.

use std::collections::BTreeMap;

use banksman_core::Name;
use banksman_core::agent::AgentEnd;
use banksman_core::agent::spend::DaySpend;
use banksman_core::backlog::Run;
use serde::Serialize;

use super::tasks::TokensView;
use crate::format;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SpendView {
    pub(crate) agent: Name,
    runs: u64,
    #[serde(flatten)]
    tokens: TokensView,
    /// The price that the program reports, in millionths of a dollar; for a subscription it is the list price.
    pub(crate) cost_micros: u64,
    /// The part of the price that is actually paid.
    pub(crate) paid_micros: u64,
}

impl From<&DaySpend> for SpendView {
    fn from(spend: &DaySpend) -> SpendView {
        SpendView {
            agent: spend.agent.clone(),
            runs: spend.runs,
            tokens: spend.usage.into(),
            cost_micros: spend.cost_micros,
            paid_micros: spend.paid_micros,
        }
    }
}

/// The spend of each agent in these runs.
pub(crate) fn of_runs<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<SpendView> {
    of_ends(runs.filter_map(|run| run.ended.as_ref()?.agent.as_deref()))
}

pub(crate) fn of_ends<'a>(ends: impl Iterator<Item = &'a AgentEnd>) -> Vec<SpendView> {
    let mut by_agent: BTreeMap<&Name, DaySpend> = BTreeMap::new();
    for end in ends {
        by_agent.entry(&end.agent).or_insert_with(|| DaySpend::new(0, end.agent.clone())).add(end);
    }
    by_agent.values().map(Into::into).collect()
}

/// `claude: 3 runs, 12400 tokens, $1.25 (list price)`.
pub(crate) fn summary(spend: &SpendView) -> String {
    let runs = if spend.runs == 1 { "1 run".into() } else { format!("{} runs", spend.runs) };
    let cost = price(std::slice::from_ref(spend)).map(|cost| format!(", {cost}")).unwrap_or_default();
    format!("{}: {runs}, {} tokens{cost}", spend.agent, spend.tokens.total())
}

/// The total cost, `$1.25`, and whether it is paid; `None` if no program has reported a price.
pub(crate) fn price(spends: &[SpendView]) -> Option<String> {
    let sum = |of: fn(&SpendView) -> u64| spends.iter().map(of).fold(0, u64::saturating_add);
    Some(match (sum(|spend| spend.cost_micros), sum(|spend| spend.paid_micros)) {
        (0, _) => return None,
        (cost, 0) => format!("{} (list price)", format::dollars(cost)),
        (cost, paid) if cost == paid => format::dollars(cost),
        (cost, paid) => format!("{} paid of {} (list price)", format::dollars(paid), format::dollars(cost)),
    })
}
