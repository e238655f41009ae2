//! Reads values that the first pass has checked. Wrong values are skipped: they were reported already.

use banksman_core::pipeline::plan::Text;
use banksman_core::{Name, Span};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::At;
use crate::shape::integer;

/// A value with its place.
pub(super) type Spot<'a> = &'a Spanned<DeValue<'a>>;

/// A table with its place.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) table: &'a DeTable<'a>,
    pub(super) value: Spot<'a>,
}

impl<'a> View<'a> {
    pub(super) fn of(value: Spot<'a>) -> Option<View<'a>> {
        value.get_ref().as_table().map(|table| View { table, value })
    }

    pub(super) fn at(&self) -> At {
        self.value.span()
    }

    pub(super) fn get(&self, key: &str) -> Option<Spot<'a>> {
        self.table.get(key)
    }

    /// The place of a key, or of the table if the key is missing.
    pub(super) fn key_at(&self, key: &str) -> At {
        self.table.get_key_value(key).map_or_else(|| self.at(), |(key, _)| key.span())
    }

    /// The place of a value, or of the table if the key is missing.
    pub(super) fn value_at(&self, key: &str) -> At {
        self.get(key).map_or_else(|| self.at(), Spanned::span)
    }

    pub(super) fn str(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.get_ref().as_str()
    }

    pub(super) fn string(&self, key: &str) -> Option<Box<str>> {
        self.str(key).map(Into::into)
    }

    pub(super) fn name(&self, key: &str) -> Option<Name> {
        Name::new(self.str(key)?).ok()
    }

    pub(super) fn span(&self, key: &str) -> Option<Span> {
        self.str(key)?.parse().ok()
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.get_ref().as_bool()
    }

    /// A number that fits; others were reported already.
    pub(super) fn number<T: TryFrom<i64>>(&self, key: &str) -> Option<T> {
        T::try_from(integer(self.get(key)?.get_ref().as_integer()?)?).ok()
    }

    pub(super) fn view(&self, key: &str) -> Option<View<'a>> {
        View::of(self.get(key)?)
    }

    /// One value, or a list of them; empty if the key is missing.
    pub(super) fn many(&self, key: &str) -> Vec<Spot<'a>> {
        self.get(key).map(many).unwrap_or_default()
    }

    /// The tables of `[[…]]`.
    pub(super) fn views(&self, key: &str) -> Vec<View<'a>> {
        self.many(key).into_iter().filter_map(View::of).collect()
    }

    /// All entries, in the order of the file.
    pub(super) fn entries(&self) -> Vec<(&'a str, At, Spot<'a>)> {
        let mut all: Vec<_> = self.table.iter().map(|(key, value)| (&**key.get_ref(), key.span(), value)).collect();
        all.sort_by_key(|(_, at, _)| at.start);
        all
    }
}

fn many<'a>(value: Spot<'a>) -> Vec<Spot<'a>> {
    match value.get_ref() {
        DeValue::Array(list) => list.iter().collect(),
        _ => vec![value],
    }
}

/// A text, or the value of a variable.
pub(super) fn text(value: Spot<'_>) -> Option<Text> {
    match value.get_ref() {
        DeValue::String(text) => Some(Text::Literal((&**text).into())),
        DeValue::Table(table) => Some(Text::Var { var: table.get("var")?.get_ref().as_str()?.into() }),
        _ => None,
    }
}

/// The default of a variable. A date becomes a text; `None` for a number that JSON cannot represent.
pub(super) fn json(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::String(text) => Some(Value::String(text.to_string())),
        DeValue::Integer(number) => integer(number).map(Value::from),
        DeValue::Float(number) => {
            let number: f64 = number.as_str().replace('_', "").parse().ok()?;
            serde_json::Number::from_f64(number).map(Value::Number)
        }
        DeValue::Boolean(flag) => Some(Value::Bool(*flag)),
        DeValue::Datetime(date) => Some(Value::String(date.to_string())),
        DeValue::Array(list) => list.iter().map(|value| json(value.get_ref())).collect(),
        DeValue::Table(table) => {
            let pair = |(key, value): (&Spanned<toml::de::DeString<'_>>, &Spanned<DeValue<'_>>)| {
                Some((key.get_ref().to_string(), json(value.get_ref())?))
            };
            table.iter().map(pair).collect::<Option<serde_json::Map<_, _>>>().map(Value::Object)
        }
    }
}
