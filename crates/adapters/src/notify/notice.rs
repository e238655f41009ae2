//! The content of a notification.

use std::path::{Path, PathBuf};

use banksman_core::NoticeKind;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// One notification.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Notice {
    pub kind: NoticeKind,
    /// A short title.
    pub subject: String,
    /// One or two plain sentences.
    pub text: String,
    /// The directory of the project.
    #[serde(serialize_with = "as_lossy_text")]
    pub project: PathBuf,
    /// Data for programs, such as the id of a task.
    pub data: Value,
}

impl Notice {
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a notice has nothing that JSON cannot say")
    }
}

/// JSON is text, so bytes that are not UTF-8 become replacement characters.
fn as_lossy_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// Makes text fit into an argument or a variable: without NUL, and not longer than the system accepts.
pub(super) fn fitting(text: &str) -> String {
    const LONGEST: usize = 4_000;
    text.chars().take(LONGEST).map(|letter| if letter == '\0' { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_same_names_in_json_and_in_as_str() {
        for kind in NoticeKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert_eq!(NoticeKind::find(kind.as_str()), Some(kind));
        }
    }
}
