//! Events of the log.

use banksman_core::Seq;
use banksman_core::event::{Actor, Source};
use banksman_store::EventRow;
use serde::Serialize;
use serde_json::Value;

use super::Time;

#[derive(Debug, Serialize)]
pub(crate) struct EventView<'a> {
    id: Seq,
    kind: &'a str,
    timestamp: Time,
    source: &'a Source,
    data: &'a Value,
    by: &'a Option<Actor>,
}

impl EventView<'_> {
    pub(crate) fn list(events: &[EventRow]) -> Vec<EventView<'_>> {
        events.iter().map(EventView::from).collect()
    }
}

impl<'a> From<&'a EventRow> for EventView<'a> {
    fn from(event: &'a EventRow) -> EventView<'a> {
        let EventRow { id, kind, wall, source, data, by, .. } = event;
        EventView { id: *id, kind, timestamp: Time(*wall), source, data, by }
    }
}

/// A view with the latest events of its entity.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WithEvents<'a, V> {
    #[serde(flatten)]
    pub(crate) view: V,
    recent_events: Vec<EventView<'a>>,
}

impl<'a, V> WithEvents<'a, V> {
    pub(crate) fn new(view: V, events: &'a [EventRow]) -> WithEvents<'a, V> {
        WithEvents { view, recent_events: EventView::list(events) }
    }
}
