//! The JSON output of commands: one type per entity, made from rows. A change of a field is a change of the interface;
//! `tests/all/shapes.rs` pins every one of them.

pub(crate) mod accounts;
pub(crate) mod bus;
pub(crate) mod decisions;
pub(crate) mod events;
pub(crate) mod landing;
pub(crate) mod pausing;
pub(crate) mod pipelines;
pub(crate) mod problems;
pub(crate) mod queues;
pub(crate) mod resources;
pub(crate) mod runbooks;
pub(crate) mod sections;
pub(crate) mod sessions;
pub(crate) mod spend;
pub(crate) mod status;
pub(crate) mod tasks;
pub(crate) mod why;
pub(crate) mod workers;
pub(crate) mod workspaces;

use std::fmt::Display;

use banksman_core::{Stamp, Wall};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::format;

/// A moment: RFC 3339 in UTC, with milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time(pub(crate) Wall);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format::rfc3339(self.0))
    }
}

impl From<Stamp> for Time {
    fn from(stamp: Stamp) -> Time {
        Time(stamp.wall)
    }
}

/// A value as its text, such as `1h30m` for a duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<T>(pub(crate) T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// An object with one field, such as `{ "locks": [] }`.
#[derive(Debug)]
pub(crate) struct Named<T>(pub(crate) &'static str, pub(crate) T);

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, &self.1)])
    }
}

/// A view as a JSON value.
pub(crate) fn value(view: &(impl Serialize + ?Sized)) -> Value {
    serde_json::to_value(view).expect("a view has only keys that are texts, and nothing in it fails")
}
