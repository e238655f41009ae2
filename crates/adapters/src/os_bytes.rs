//! Paths and other text of the system as data: bytes that are usually, but not always, UTF-8.
//!
//! `#[serde(with = "os_bytes")]` writes UTF-8 as a string, as serde does, and everything else as a list of bytes. Serde
//! itself refuses a path that is not UTF-8.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Either form on the wire.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Form<'a> {
    /// UTF-8.
    Text(Cow<'a, str>),
    /// Not UTF-8.
    Bytes(Cow<'a, [u8]>),
}

/// A type with a lossless form.
pub trait Lossless: Sized {
    type Written<'a>: Serialize
    where
        Self: 'a;
    type Read: DeserializeOwned;
    fn written(&self) -> Self::Written<'_>;
    fn from_read(read: Self::Read) -> Self;
}

impl Lossless for OsString {
    type Written<'a> = Form<'a>;
    type Read = Form<'static>;

    fn written(&self) -> Form<'_> {
        form(self)
    }

    fn from_read(read: Form<'static>) -> OsString {
        match read {
            Form::Text(text) => text.into_owned().into(),
            Form::Bytes(bytes) => OsString::from_vec(bytes.into_owned()),
        }
    }
}

impl Lossless for PathBuf {
    type Written<'a> = Form<'a>;
    type Read = Form<'static>;

    fn written(&self) -> Form<'_> {
        form(self.as_os_str())
    }

    fn from_read(read: Form<'static>) -> PathBuf {
        OsString::from_read(read).into()
    }
}

impl<T: Lossless> Lossless for Vec<T> {
    type Written<'a>
        = Vec<T::Written<'a>>
    where
        T: 'a;
    type Read = Vec<T::Read>;

    fn written(&self) -> Self::Written<'_> {
        self.iter().map(T::written).collect()
    }

    fn from_read(read: Self::Read) -> Vec<T> {
        read.into_iter().map(T::from_read).collect()
    }
}

impl<T: Lossless> Lossless for Option<T> {
    type Written<'a>
        = Option<T::Written<'a>>
    where
        T: 'a;
    type Read = Option<T::Read>;

    fn written(&self) -> Self::Written<'_> {
        self.as_ref().map(T::written)
    }

    fn from_read(read: Self::Read) -> Option<T> {
        read.map(T::from_read)
    }
}

/// A variable of the environment.
impl<T: Lossless> Lossless for (String, T) {
    type Written<'a>
        = (&'a str, T::Written<'a>)
    where
        T: 'a;
    type Read = (String, T::Read);

    fn written(&self) -> Self::Written<'_> {
        (&self.0, self.1.written())
    }

    fn from_read((name, value): Self::Read) -> (String, T) {
        (name, T::from_read(value))
    }
}

fn form(text: &OsStr) -> Form<'_> {
    text.to_str().map_or_else(|| Form::Bytes(text.as_bytes().into()), |text| Form::Text(text.into()))
}

/// For `#[serde(with)]`.
pub fn serialize<T: Lossless, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.written().serialize(serializer)
}

/// For `#[serde(with)]`.
pub fn deserialize<'de, T: Lossless, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::Read::deserialize(deserializer).map(T::from_read)
}

/// A text for an absolute path; different paths have different texts. For paths that are stored as text and compared.
pub fn as_text(path: &std::path::Path) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    path.to_str().map_or_else(|| format!("bytes:{}", hex(path.as_os_str().as_bytes())), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct All {
        #[serde(with = "super")]
        path: PathBuf,
        #[serde(with = "super")]
        list: Vec<PathBuf>,
        #[serde(with = "super")]
        maybe: Option<PathBuf>,
        #[serde(with = "super")]
        env: Vec<(String, OsString)>,
    }

    #[test]
    fn every_path_survives() {
        let odd = || PathBuf::from(OsString::from_vec(b"/a\xff\n/\xc3".to_vec()));
        let env = vec![("A".into(), "text".into()), ("B".into(), odd().into())];
        let all = All { path: odd(), list: vec!["/ä".into(), odd()], maybe: Some(odd()), env };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<All>(&text).unwrap(), all);
        assert!(text.contains(r#""list":["/ä",[47,97,255"#), "{text}");
    }

    #[test]
    fn different_paths_have_different_texts() {
        let [one, two] = [b"/p\xff", b"/p\xfe"].map(|path| PathBuf::from(OsString::from_vec(path.to_vec())));
        assert_eq!(one.to_string_lossy(), two.to_string_lossy());
        assert_ne!(as_text(&one), as_text(&two));
        assert_eq!(as_text("/päth".as_ref()), "/päth");
    }
}
