//! Values of the caller's types, as the store keeps them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};

/// What is kept of a value.
pub(crate) fn value(data: &impl Serialize) -> Result<Value> {
    // By its text, so that it is checked like one that comes from the command line.
    let text = serde_json::to_string(data).map_err(Error::invalid)?;
    banksman_core::json::parse(&text).map_err(Error::invalid)
}

/// A value that was kept, as the type that the caller expects.
pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<T> {
    T::deserialize(value).map_err(Error::failed)
}
