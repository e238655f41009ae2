//! Declarations of tables: one declaration has the columns, their binding and reading, and the statements.
//!
//! To add a column, add a line to the declaration of its table and a migration.

use std::collections::BTreeMap;

use crate::columns::Type;
use crate::error::StoreError;
use crate::tables::Statement;
use crate::value::{Query, Row, Value};

/// A table with one row per entity of a project.
pub(crate) trait Table {
    /// The key of a row in memory.
    type Key<'a>: Copy;
    /// The rest of a row in memory. It may repeat the key.
    type Value: PartialEq + 'static;
    /// The result of reading a row.
    type Row;

    const NAME: &'static str;

    /// The columns besides the project that identify a row for updates and deletes.
    const KEY: &'static [&'static str];

    /// Writes a row that is new to a batch. This is an upsert if the table may have the row nevertheless.
    const NEW: Statement;
    /// Writes a changed row. Without it, changed rows are written like new ones.
    const UPDATE: Option<Statement>;
    const DELETE: Statement;

    /// The columns that are read.
    fn stored() -> Vec<(String, Type)>;

    /// The columns that are written only on insert, and those that change.
    fn written() -> [Vec<(String, Type)>; 2];

    fn bind_key<'a>(key: Self::Key<'a>, value: &'a Self::Value, params: &mut Vec<Value<'a>>);

    fn bind_fixed<'a>(key: Self::Key<'a>, value: &'a Self::Value, params: &mut Vec<Value<'a>>);

    fn bind_changing<'a>(key: Self::Key<'a>, value: &'a Self::Value, params: &mut Vec<Value<'a>>);

    fn read(row: &mut Row) -> Result<Self::Row, StoreError>;
}

/// Declares a table.
///
/// ```text
/// table! {
///     /// What it holds.
///     Name "name" of &'a Key => Value, |key, value|
///     by ["key columns"] = [Codec expression, ...]; inserts, upserts or saves
///     fixed { field("column"): Codec = where it is, ... } + { "derived column": Codec = expression, ... }
///     changing { ... } + { ... }
///     read Row = expression over the fields
///     statements { Name => "SQL", ... }
/// }
/// ```
///
/// A column has the name of its field, and the value of that field of the entity, unless the declaration gives another
/// one. A derived column is written but not read: it exists for indexes.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $table:ident $name:literal of $key_type:ty => $value_type:ty, |$key:ident, $value:ident|
        by [$($by:literal),*] = [$($by_codec:ident $by_value:expr),*]; $mode:ident
        fixed { $($fixed:ident $(($fixed_name:literal))?: $fixed_codec:ident $(= $fixed_value:expr)?),* $(,)? }
            $(+ { $($f_name:literal: $f_codec:ident = $f_value:expr),* $(,)? })?
        changing { $($changing:ident $(($changing_name:literal))?: $changing_codec:ident $(= $changing_value:expr)?),* $(,)? }
            $(+ { $($c_name:literal: $c_codec:ident = $c_value:expr),* $(,)? })?
        read $row_type:ty = $row_value:expr;
        statements { $($(#[$statement_doc:meta])* $statement:ident => $text:expr,)* }
    ) => {
        $crate::table::statements! {
            New => $crate::table::mode!($mode text $table),
            Update => $crate::sql::update::<$table>(),
            Delete => $crate::sql::delete::<$table>(),
            $($(#[$statement_doc])* $statement => $crate::sql::expand($text),)*
        }

        $(#[$doc])*
        pub(crate) struct $table;

        pub(super) fn stored() -> Vec<(String, $crate::columns::Type)> {
            <$table as $crate::table::Table>::stored()
        }

        impl $crate::table::Table for $table {
            type Key<'a> = $key_type;
            type Value = $value_type;
            type Row = $row_type;

            const NAME: &'static str = $name;
            const KEY: &'static [&'static str] = &[$($by),*];
            const NEW: $crate::tables::Statement = Statement::New.erased();
            const UPDATE: Option<$crate::tables::Statement> = $crate::table::mode!($mode update);
            const DELETE: $crate::tables::Statement = Statement::Delete.erased();

            fn stored() -> Vec<(String, $crate::columns::Type)> {
                let mut out = Vec::new();
                $(<$fixed_codec as $crate::columns::Columns>::list($crate::columns::named!($fixed $($fixed_name)?), &mut out);)*
                $(<$changing_codec as $crate::columns::Columns>::list($crate::columns::named!($changing $($changing_name)?), &mut out);)*
                out
            }

            fn written() -> [Vec<(String, $crate::columns::Type)>; 2] {
                let mut groups = [Vec::new(), Vec::new()];
                $(<$fixed_codec as $crate::columns::Columns>::list($crate::columns::named!($fixed $($fixed_name)?), &mut groups[0]);)*
                $($(<$f_codec as $crate::columns::Columns>::list($f_name, &mut groups[0]);)*)?
                $(<$changing_codec as $crate::columns::Columns>::list($crate::columns::named!($changing $($changing_name)?), &mut groups[1]);)*
                $($(<$c_codec as $crate::columns::Columns>::list($c_name, &mut groups[1]);)*)?
                groups
            }

            fn bind_key<'a>($key: $key_type, $value: &'a $value_type, params: &mut Vec<$crate::value::Value<'a>>) {
                let _ = ($key, $value, &params);
                $(<$by_codec as $crate::columns::Codec<_>>::bind($by_value, params);)*
            }

            fn bind_fixed<'a>($key: $key_type, $value: &'a $value_type, params: &mut Vec<$crate::value::Value<'a>>) {
                let _ = ($key, $value, &params);
                $(<$fixed_codec as $crate::columns::Codec<_>>::bind($crate::table::field!($value $fixed $($fixed_value)?), params);)*
                $($(params.push($f_value.into());)*)?
            }

            fn bind_changing<'a>($key: $key_type, $value: &'a $value_type, params: &mut Vec<$crate::value::Value<'a>>) {
                let _ = ($key, $value, &params);
                $(<$changing_codec as $crate::columns::Codec<_>>::bind(
                    $crate::table::field!($value $changing $($changing_value)?),
                    params,
                );)*
                $($(params.push($c_value.into());)*)?
            }

            fn read(row: &mut $crate::value::Row) -> Result<$row_type, $crate::error::StoreError> {
                $(let $fixed = <$fixed_codec as $crate::columns::Codec<_>>::read(row)?;)*
                $(let $changing = <$changing_codec as $crate::columns::Codec<_>>::read(row)?;)*
                Ok($row_value)
            }
        }
    };
}

macro_rules! field {
    ($value:ident $field:ident) => {
        &$value.$field
    };
    ($value:ident $field:ident $given:expr) => {
        $given
    };
}

/// How rows are written: `inserts` new rows and updates changed ones; `upserts` both; or `saves`, which upserts rows
/// that are new to the batch, and updates changed ones.
macro_rules! mode {
    (inserts text $table:ident) => {
        $crate::sql::insert::<$table>()
    };
    ($mode:ident text $table:ident) => {
        $crate::sql::upsert::<$table>()
    };
    (upserts update) => {
        None
    };
    ($mode:ident update) => {
        Some(Statement::Update.erased())
    };
}

/// Declares the statements of a table by name. Their parameters are `$1`, `$2`, …; `$1` is always the project.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident => $text:expr,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Statement {
            $($(#[$doc])* $name,)*
        }

        impl Statement {
            pub(super) const ALL: &'static [Statement] = &[$(Statement::$name,)*];

            pub(super) fn text(self) -> String {
                match self {
                    $(Statement::$name => $text,)*
                }
            }
        }
    };
}

pub(crate) use {field, mode, statements, table};

/// The statements that turn the rows of `before` into those of `after`.
pub(crate) fn changes<'a, K, T>(
    project: i64,
    before: &'a BTreeMap<K, T::Value>,
    after: &'a BTreeMap<K, T::Value>,
    queries: &mut Vec<Query<'a>>,
) where
    K: Ord,
    T: Table<Key<'a> = &'a K>,
{
    for (key, value) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        queries.push(delete::<T>(project, key, value));
    }
    for (key, value) in after {
        queries.extend(change::<T>(project, key, before.get(key), value));
    }
}

/// The statement that changes one row, if it has changed.
pub(crate) fn change<'a, T: Table>(project: i64, key: T::Key<'a>, was: Option<&T::Value>, is: &'a T::Value) -> Option<Query<'a>> {
    match was {
        Some(was) if was == is => None,
        Some(_) => Some(update::<T>(project, key, is)),
        None => Some(insert::<T>(project, key, is)),
    }
}

pub(crate) fn insert<'a, T: Table>(project: i64, key: T::Key<'a>, value: &'a T::Value) -> Query<'a> {
    let mut params = Vec::with_capacity(PARAMS);
    params.push(project.into());
    T::bind_fixed(key, value, &mut params);
    T::bind_changing(key, value, &mut params);
    Query { statement: T::NEW, params }
}

pub(crate) fn update<'a, T: Table>(project: i64, key: T::Key<'a>, value: &'a T::Value) -> Query<'a> {
    let Some(statement) = T::UPDATE else { return insert::<T>(project, key, value) };
    let mut params = Vec::with_capacity(PARAMS);
    params.push(project.into());
    T::bind_key(key, value, &mut params);
    T::bind_changing(key, value, &mut params);
    Query { statement, params }
}

pub(crate) fn delete<'a, T: Table>(project: i64, key: T::Key<'a>, value: &'a T::Value) -> Query<'a> {
    let mut params = Vec::with_capacity(1 + T::KEY.len());
    params.push(project.into());
    T::bind_key(key, value, &mut params);
    Query { statement: T::DELETE, params }
}

/// Room for the parameters of nearly every table.
const PARAMS: usize = 22;
