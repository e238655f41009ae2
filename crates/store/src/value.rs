//! Parameters and columns of a statement.

use std::borrow::Cow;

use crate::error::StoreError;
use crate::tables::Statement;

/// A value of a column or a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Null,
    Int(i64),
    Text(Cow<'a, str>),
}

/// A statement with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query<'a> {
    pub(crate) statement: Statement,
    pub(crate) params: Vec<Value<'a>>,
}

/// The rows that answer one query.
pub(crate) type Rows = Vec<Row>;

/// One row, read from left to right.
#[derive(Debug)]
pub(crate) struct Row(std::vec::IntoIter<Value<'static>>);

impl Row {
    pub(crate) fn new(values: Vec<Value<'static>>) -> Row {
        Row(values.into_iter())
    }

    /// Skips the NULL columns of other tables, in a statement that reads several: the first column of a table is never
    /// NULL.
    pub(crate) fn skip_nulls(&mut self) {
        while self.is_null() {
            self.0.next();
        }
    }

    /// Whether the next column is NULL.
    pub(crate) fn is_null(&self) -> bool {
        self.0.as_slice().first() == Some(&Value::Null)
    }

    fn next(&mut self) -> Result<Value<'static>, StoreError> {
        self.0.next().ok_or_else(|| StoreError::corrupt("a row has too few columns"))
    }

    pub(crate) fn int(&mut self) -> Result<i64, StoreError> {
        self.maybe_int()?.ok_or_else(|| StoreError::corrupt("a number is missing"))
    }

    pub(crate) fn maybe_int(&mut self) -> Result<Option<i64>, StoreError> {
        match self.next()? {
            Value::Int(number) => Ok(Some(number)),
            Value::Null => Ok(None),
            Value::Text(text) => Err(StoreError::corrupt(format_args!("{text:?} stands where a number belongs"))),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        self.maybe_text()?.ok_or_else(|| StoreError::corrupt("a text is missing"))
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.next()? {
            Value::Text(text) => Ok(Some(text.into_owned())),
            Value::Null => Ok(None),
            Value::Int(number) => Err(StoreError::corrupt(format_args!("{number} stands where a text belongs"))),
        }
    }
}

impl Value<'_> {
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Null | Value::Int(_) => None,
        }
    }

    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Null | Value::Text(_) => None,
        }
    }
}

impl<'a> Query<'a> {
    pub(crate) fn new(statement: impl Into<Statement>, params: impl Into<Vec<Value<'a>>>) -> Query<'a> {
        Query { statement: statement.into(), params: params.into() }
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(Cow::Owned(text))
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}
