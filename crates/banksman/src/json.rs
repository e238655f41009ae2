//! Values of the caller's types, as the store keeps them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};

/// The stored form of a value.
pub(crate) fn value(data: &impl Serialize) -> Result<Value> {
    // Parses the text, so that the value is checked like one from the command line.
    let text = serde_json::to_string(data).map_err(Error::invalid)?;
    banksman_core::json::parse(&text).map_err(Error::invalid)
}

/// A stored value that does not have the type that the caller expects.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be read: {source}")]
struct Unreadable {
    what: String,
    source: serde_json::Error,
}

/// A stored value, as the type that the caller expects. `what` names it in the error.
pub(crate) fn read<T: DeserializeOwned>(value: &Value, what: impl FnOnce() -> String) -> Result<T> {
    T::deserialize(value).map_err(|source| Error::failed(Unreadable { what: what(), source }))
}
