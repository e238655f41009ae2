//! How values are stored in columns.
//!
//! A table declares one of these codecs for each field; column names, types, parameters and decoding follow from it.

use banksman_core::bus::MessageType;
use banksman_core::event::{Kind, Resource};
use banksman_core::ids::{
    DecisionId, DedupeKey, HolderId, ImportId, ItemId, LandingId, MessageId, Name, RequestId, RunId, RunnerId, SectionId, TaskId,
    Title,
};
use banksman_core::resource::grant::{Address, Grant, GrantRequest};
use banksman_core::{Epoch, Lease, Seq, Span, Stamp, Ticket, Wall};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StoreError;
use crate::value::{Row, Value};

/// The types of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Int,
    Text,
}

/// One or more columns.
pub(crate) trait Columns {
    /// Appends the names and types of the columns for a field of this name.
    fn list(field: &str, out: &mut Vec<(String, Type)>);
}

/// A value in one or more columns.
pub(crate) trait Codec<T>: Columns {
    fn bind<'a>(value: &'a T, params: &mut Vec<Value<'a>>);

    fn read(row: &mut Row) -> Result<T, StoreError>;
}

/// A number; NULL is `None`.
pub(crate) struct Int;

/// A text; NULL is `None`.
pub(crate) struct Text;

/// A text; the empty text is `None`.
pub(crate) struct OrEmpty;

/// JSON; NULL is the default value: an empty list, or `None`.
pub(crate) struct Json;

/// A moment on both clocks: `FIELD_lease` and `FIELD_wall`.
pub(crate) struct Moment;

/// A lock or a semaphore.
pub(crate) struct OfResource;

macro_rules! single {
    ($($codec:ident $type:ident;)*) => {
        $(impl Columns for $codec {
            fn list(field: &str, out: &mut Vec<(String, Type)>) {
                out.push((field.to_owned(), Type::$type));
            }
        })*
    };
}

single! { Int Int; Text Text; OrEmpty Text; Json Text; }

/// A value that is stored as a number.
pub(crate) trait Number: Sized {
    fn number(&self) -> Option<i64>;

    fn of(number: Option<i64>) -> Result<Self, StoreError>;
}

/// A value that is stored as a text.
pub(crate) trait AsText: Sized {
    fn as_text(&self) -> Option<&str>;

    fn of(text: Option<String>) -> Result<Self, StoreError>;
}

fn present<T>(value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| StoreError::corrupt("a value is missing"))
}

macro_rules! numbers {
    ($($type:ty: |$value:ident| $number:expr, |$read:ident| $of:expr;)*) => {
        $(impl Number for $type {
            fn number(&self) -> Option<i64> {
                let $value = self;
                Some($number)
            }

            fn of(number: Option<i64>) -> Result<Self, StoreError> {
                let $read = present(number)?;
                $of
            }
        }

        impl Number for Option<$type> {
            fn number(&self) -> Option<i64> {
                self.as_ref().and_then(Number::number)
            }

            fn of(number: Option<i64>) -> Result<Self, StoreError> {
                number.map(|number| Number::of(Some(number))).transpose()
            }
        })*
    };
}

numbers! {
    Epoch: |value| value.0, |number| Ok(Epoch(number));
    Lease: |value| value.0, |number| Ok(Lease(number));
    Seq: |value| value.0, |number| Ok(Seq(number));
    Ticket: |value| value.0, |number| Ok(Ticket(number));
    Wall: |value| value.0, |number| Ok(Wall(number));
    ItemId: |value| value.0.0, |number| Ok(ItemId(Seq(number)));
    Span: |value| value.as_ms(), |number| Ok(Span::from_ms(number));
    bool: |value| i64::from(*value), |number| Ok(number != 0);
    i32: |value| i64::from(*value), |number| number.try_into().map_err(StoreError::corrupt);
    u32: |value| i64::from(*value), |number| number.try_into().map_err(StoreError::corrupt);
    i64: |value| *value, |number| Ok(number);
    u64: |value| i64::try_from(*value).unwrap_or(i64::MAX), |number| number.try_into().map_err(StoreError::corrupt);
}

macro_rules! text_columns {
    ($($type:ty: |$value:ident| $text:expr, |$read:ident| $of:expr;)*) => {
        $(impl AsText for $type {
            fn as_text(&self) -> Option<&str> {
                let $value = self;
                Some($text)
            }

            fn of(text: Option<String>) -> Result<Self, StoreError> {
                let $read = present(text)?;
                $of
            }
        }

        impl AsText for Option<$type> {
            fn as_text(&self) -> Option<&str> {
                self.as_ref().and_then(AsText::as_text)
            }

            fn of(text: Option<String>) -> Result<Self, StoreError> {
                text.map(|text| AsText::of(Some(text))).transpose()
            }
        })*
    };
}

macro_rules! ids {
    ($($type:ty)*) => {
        text_columns! { $($type: |value| value.as_str(), |text| <$type>::new(&text).map_err(StoreError::corrupt);)* }
    };
}

ids! { DecisionId DedupeKey HolderId ImportId LandingId MessageId Name RequestId RunId RunnerId SectionId TaskId Title }
text_columns! {
    Address: |value| &value.0, |text| Ok(Address(text.into()));
    Box<str>: |value| value, |text| Ok(text.into());
    MessageType: |value| value.as_str(), |text| MessageType::new(&text).map_err(StoreError::corrupt);
    String: |value| value, |text| Ok(text);
    Kind: |value| value.as_str(), |text| Kind::parse(&text).ok_or_else(|| StoreError::corrupt(format_args!("a resource of kind {text:?}")));
}

impl<T: Number> Codec<T> for Int {
    fn bind<'a>(value: &'a T, params: &mut Vec<Value<'a>>) {
        params.push(value.number().into());
    }

    fn read(row: &mut Row) -> Result<T, StoreError> {
        T::of(row.maybe_int()?)
    }
}

impl<T: AsText> Codec<T> for Text {
    fn bind<'a>(value: &'a T, params: &mut Vec<Value<'a>>) {
        params.push(value.as_text().into());
    }

    fn read(row: &mut Row) -> Result<T, StoreError> {
        T::of(row.maybe_text()?)
    }
}

impl<T> Codec<Option<T>> for OrEmpty
where
    Option<T>: AsText,
{
    fn bind<'a>(value: &'a Option<T>, params: &mut Vec<Value<'a>>) {
        params.push(value.as_text().unwrap_or_default().into());
    }

    fn read(row: &mut Row) -> Result<Option<T>, StoreError> {
        AsText::of(row.maybe_text()?.filter(|text| !text.is_empty()))
    }
}

/// A value that is stored as JSON.
pub(crate) trait JsonValue: Sized {
    fn text(&self) -> Option<String>;

    fn of(text: Option<String>) -> Result<Self, StoreError>;
}

pub(crate) fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data always becomes JSON")
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(StoreError::corrupt)
}

impl<T: Serialize + DeserializeOwned> JsonValue for Vec<T> {
    fn text(&self) -> Option<String> {
        (!self.is_empty()).then(|| to_json(self))
    }

    fn of(text: Option<String>) -> Result<Self, StoreError> {
        text.map_or(Ok(Vec::new()), |text| from_json(&text))
    }
}

impl<T: Serialize + DeserializeOwned> JsonValue for Option<T> {
    fn text(&self) -> Option<String> {
        self.as_ref().map(to_json)
    }

    fn of(text: Option<String>) -> Result<Self, StoreError> {
        text.map(|text| from_json(&text)).transpose()
    }
}

impl<T: JsonValue> Codec<T> for Json {
    fn bind<'a>(value: &'a T, params: &mut Vec<Value<'a>>) {
        params.push(value.text().into());
    }

    fn read(row: &mut Row) -> Result<T, StoreError> {
        T::of(row.maybe_text()?)
    }
}

/// JSON that is never NULL.
pub(crate) struct NeededJson;

single! { NeededJson Text; }

impl<T: Serialize + DeserializeOwned> Codec<T> for NeededJson {
    fn bind<'a>(value: &'a T, params: &mut Vec<Value<'a>>) {
        params.push(to_json(value).into());
    }

    fn read(row: &mut Row) -> Result<T, StoreError> {
        from_json(&row.text()?)
    }
}

impl Columns for Moment {
    fn list(field: &str, out: &mut Vec<(String, Type)>) {
        out.extend(["lease", "wall"].map(|clock| (format!("{field}_{clock}"), Type::Int)));
    }
}

impl Codec<Stamp> for Moment {
    fn bind<'a>(value: &'a Stamp, params: &mut Vec<Value<'a>>) {
        params.extend([value.lease.0.into(), value.wall.0.into()]);
    }

    fn read(row: &mut Row) -> Result<Stamp, StoreError> {
        Ok(Stamp { lease: Lease(row.int()?), wall: Wall(row.int()?) })
    }
}

impl Columns for OfResource {
    fn list(_: &str, out: &mut Vec<(String, Type)>) {
        out.extend(["kind", "resource"].map(|name| (name.to_owned(), Type::Text)));
    }
}

impl Codec<Resource> for OfResource {
    fn bind<'a>(value: &'a Resource, params: &mut Vec<Value<'a>>) {
        params.extend([value.kind.as_str().into(), value.name.as_str().into()]);
    }

    fn read(row: &mut Row) -> Result<Resource, StoreError> {
        Ok(Resource { kind: Text::read(row)?, name: Text::read(row)? })
    }
}

/// Declares a codec for a type whose fields have columns of their own.
macro_rules! columns {
    ($(#[$doc:meta])* $codec:ident of $type:ident { $($field:ident $(($name:literal))?: $kind:ident),* $(,)? }) => {
        $(#[$doc])*
        pub(crate) struct $codec;

        impl $crate::columns::Columns for $codec {
            fn list(_: &str, out: &mut Vec<(String, $crate::columns::Type)>) {
                $(<$kind as $crate::columns::Columns>::list($crate::columns::named!($field $($name)?), out);)*
            }
        }

        impl $crate::columns::Codec<$type> for $codec {
            fn bind<'a>(value: &'a $type, params: &mut Vec<$crate::value::Value<'a>>) {
                $(<$kind as $crate::columns::Codec<_>>::bind(&value.$field, params);)*
            }

            fn read(row: &mut $crate::value::Row) -> Result<$type, $crate::error::StoreError> {
                $(let $field = <$kind as $crate::columns::Codec<_>>::read(row)?;)*
                Ok($type { $($field),* })
            }
        }
    };
}

/// The name of a column: its field's name, unless the table gives another one.
macro_rules! named {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $name:literal) => {
        $name
    };
}

pub(crate) use {columns, named};

columns! {
    /// A grant request, of a waiter or of a holder. All columns are NULL if there is no holder.
    OfGrantRequest of GrantRequest {
        holder: Text,
        weight: Int,
        ttl: Int,
        max_hold: Int,
        ancestors: Json,
        processes: Json,
        metadata: Json,
        request: Text,
    }
}

columns! {
    OfGrant of Grant {
        claim: OfGrantRequest,
        epoch: Int,
        acquired: Moment,
        heartbeat: Moment,
        ticket: Int,
        offer: Json,
    }
}
