//! Fields that may be missing, or may change their type one day: each is read on its own, and one of another type
//! counts as missing.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use banksman_core::Wall;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A field that is parsed later. One `borrow` in a struct makes all its fields borrow.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// A field as its expected type.
pub(super) fn read<T: DeserializeOwned>(raw: Raw<'_>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// A field with fields of its own.
pub(super) fn object<'a, T: Deserialize<'a>>(raw: Raw<'a>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// A field with fields of its own that nearly every line has: it is parsed together with the line, not a second time.
pub(super) struct Nested<T>(pub(super) Option<T>);

impl<T> Default for Nested<T> {
    fn default() -> Nested<T> {
        Nested(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Nested<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Nested<T>, D::Error> {
        deserializer.deserialize_any(OnlyObjects(PhantomData))
    }
}

struct OnlyObjects<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyObjects<T> {
    type Value = Nested<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Nested<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| Nested(Some(object)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Nested<T>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Nested(None))
    }

    fn visit_unit<E>(self) -> Result<Nested<T>, E> {
        Ok(Nested(None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Nested<T>, E> {
        Ok(Nested(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Nested<T>, E> {
        Ok(Nested(None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Nested<T>, E> {
        Ok(Nested(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Nested<T>, E> {
        Ok(Nested(None))
    }

    fn visit_str<E>(self, _: &str) -> Result<Nested<T>, E> {
        Ok(Nested(None))
    }
}

pub(super) fn text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    // The value is valid JSON: without an escape it is the text itself.
    let plain = raw?.get().strip_prefix('"')?.strip_suffix('"')?;
    if !plain.contains('\\') {
        return Some(plain.into());
    }
    object::<Text<'_>>(raw).map(|Text(text)| text)
}

/// A field of any type as text: a value that is no text is returned as JSON.
pub(super) fn any_text(raw: Raw<'_>) -> Cow<'_, str> {
    text(raw).unwrap_or_else(|| raw.map(|raw| raw.get().into()).unwrap_or_default())
}

/// The elements of a list.
pub(super) fn list(raw: Raw<'_>) -> Vec<&RawValue> {
    object(raw).unwrap_or_default()
}

/// Dollars in millionths.
pub(super) fn micros(raw: Raw<'_>) -> Option<u64> {
    read::<f64>(raw).map(|dollars| (dollars * 1e6).round() as u64)
}

/// A time, in seconds or in milliseconds since 1970: both occur.
pub(super) fn moment(raw: Raw<'_>) -> Option<Wall> {
    let number = read::<f64>(raw).filter(|number| *number > 0.0)?;
    let ms = if number < 1e11 { number * 1e3 } else { number };
    Some(Wall(ms as i64))
}

/// The most telling argument of a tool call.
pub(super) fn call(raw: Raw<'_>) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Input<'a> {
        #[serde(borrow)]
        command: Raw<'a>,
        file_path: Raw<'a>,
        #[serde(rename = "filePath")]
        path_of_file: Raw<'a>,
        path: Raw<'a>,
        pattern: Raw<'a>,
        url: Raw<'a>,
        description: Raw<'a>,
    }
    let Some(input) = object::<Input<'_>>(raw) else { return "".into() };
    let fields = [input.command, input.file_path, input.path_of_file, input.path, input.pattern, input.url, input.description];
    fields.into_iter().find_map(text).unwrap_or_default()
}
