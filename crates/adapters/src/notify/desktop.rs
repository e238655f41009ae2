//! The notification service of the desktop, through `notify-send`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use banksman_core::NoticeKind;

use super::notice::fitting;
use super::{Notice, NotifyError, child};

/// How notices appear on the desktop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desktop {
    /// The program: a path, or a name that is searched in `PATH`.
    pub program: PathBuf,
    /// Whether notices make a sound.
    pub sound: bool,
}

impl Desktop {
    pub fn new(sound: bool) -> Desktop {
        Desktop { program: "notify-send".into(), sound }
    }

    pub(super) fn send(&self, notice: &Notice, limit: Duration) -> Result<(), NotifyError> {
        let mut command = Command::new(&self.program);
        command.arg("--app-name=Banksman");
        command.arg(if is_urgent(notice.kind) { "--urgency=critical" } else { "--urgency=normal" });
        if self.sound {
            command.arg(format!("--hint=string:sound-name:{}", sound(notice.kind)));
        }
        // After `--` nothing is parsed as an option.
        command.arg("--").arg(summary(&notice.subject)).arg(body(&notice.text));
        command.stdin(Stdio::null());
        child::run(command, limit)
    }
}

/// Whether the notice waits for a person.
fn is_urgent(kind: NoticeKind) -> bool {
    match kind {
        NoticeKind::Escalate | NoticeKind::Decision => true,
        NoticeKind::TaskFailed | NoticeKind::BacklogFinished | NoticeKind::Route | NoticeKind::Test => false,
    }
}

/// A name of the sound naming specification of freedesktop.org.
fn sound(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Escalate | NoticeKind::Decision => "dialog-warning",
        NoticeKind::TaskFailed => "dialog-error",
        NoticeKind::BacklogFinished => "complete",
        NoticeKind::Route | NoticeKind::Test => "message-new-instant",
    }
}

/// A summary is one line of plain text.
fn summary(text: &str) -> String {
    fitting(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Escapes markup, because a notice is plain text, and backslashes, because `notify-send` itself interprets them.
fn body(text: &str) -> String {
    fitting(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\\', "\\\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_shown_literally() {
        assert_eq!(summary("  a\n\tb  c\0 "), "a b c\u{fffd}");
        assert_eq!(body("<b>1 & 2</b>\nC:\\new"), "&lt;b&gt;1 &amp; 2&lt;/b&gt;\nC:\\\\new");
    }
}
