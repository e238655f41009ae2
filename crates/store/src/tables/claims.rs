//! Claims of people, held or waiting: one row for each resource of a claim.

use banksman_core::WorkClaim;
use banksman_core::resource::coordination::Coordination;
use banksman_core::event::Resource;
use banksman_core::resource::work_claim::{Part, State, Terms};

use crate::columns::{Codec, Columns, Int, Json, OfResource, Text, Type};
use crate::error::StoreError;
use crate::table::{self, table};
use crate::value::{Query, Row, Value};

/// The terms of a waiting claim; NULL while the claim is held.
pub(crate) struct OfState;

impl Columns for OfState {
    fn list(field: &str, out: &mut Vec<(String, Type)>) {
        Json::list(field, out);
    }
}

impl Codec<State> for OfState {
    fn bind<'a>(value: &'a State, params: &mut Vec<Value<'a>>) {
        params.push(match value {
            State::Held => Value::Null,
            State::Waiting(terms) => crate::columns::to_json(terms).into(),
        });
    }

    fn read(row: &mut Row) -> Result<State, StoreError> {
        let terms: Option<Terms> = Json::read(row)?;
        Ok(terms.map_or(State::Held, |terms| State::Waiting(Box::new(terms))))
    }
}

table! {
    /// The parts of claims.
    Claims "claims" of &'a WorkClaim => Part, |claim, part|
    by ["ticket", "kind", "resource"] = [Int &claim.ticket, OfResource &part.resource]; upserts
    fixed { ticket: Int = &claim.ticket, resource: OfResource, holder: Text = &claim.holder, task: Text = &claim.task }
    changing { weight: Int, epoch: Int, state("terms"): OfState = &claim.state }
    read WorkClaim = WorkClaim {
        ticket,
        holder,
        task,
        parts: vec![Part { resource, weight, epoch }],
        state,
        in_the_way: Default::default(),
    };
    statements {
        DeleteAll => "DELETE FROM claims WHERE project = $1 AND ticket = $2",
    }
}

/// The statements that turn the claims of `before` into those of `after`.
pub(crate) fn changes<'a>(project: i64, before: &'a Coordination, after: &'a Coordination, queries: &mut Vec<Query<'a>>) {
    for (ticket, claim) in &before.claims {
        // The parts of the claim may have changed.
        let is_same = after.claims.get(ticket).is_some_and(|now| resources(now).eq(resources(claim)));
        if !is_same {
            queries.push(Query::new(Statement::DeleteAll, [project.into(), ticket.0.into()]));
        }
    }
    for claim in after.claims.values().filter(|claim| before.claims.get(&claim.ticket) != Some(*claim)) {
        queries.extend(claim.parts.iter().map(|part| table::insert::<Claims>(project, claim, part)));
    }
}

fn resources(claim: &WorkClaim) -> impl Iterator<Item = &Resource> {
    claim.parts.iter().map(|part| &part.resource)
}
