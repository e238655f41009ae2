//! What a check has found.

use serde::Serialize;

use crate::printer::{DIM, GREEN, RED, YELLOW};

/// The command that repairs what an entry with `Remedy::Fix` is about.
const FIX: &str = "banksman doctor --fix";

/// The result of one check.
pub(super) struct Finding {
    check: &'static str,
    verdict: Verdict,
    entries: Vec<Entry>,
}

/// One line of a finding.
pub(super) struct Entry {
    text: String,
    remedy: Option<Remedy>,
}

/// What helps against a problem.
enum Remedy {
    /// `doctor --fix` repairs it.
    Fix,
    /// A command that the user has to give, because it is a decision.
    Command(String),
    /// It is repaired: what was done.
    Fixed(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    Fixed,
    Note,
    Wrong,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Fine => "ok",
            Verdict::Fixed => "fixed",
            Verdict::Note => "note",
            Verdict::Wrong => "wrong",
        }
    }
}

/// A finding as JSON has it.
#[derive(Serialize)]
pub(super) struct FindingView<'a> {
    check: &'static str,
    verdict: &'static str,
    findings: Vec<&'a str>,
    entries: Vec<EntryView<'a>>,
}

#[derive(Serialize)]
struct EntryView<'a> {
    text: &'a str,
    fix: Option<&'a str>,
    fixed: Option<&'a str>,
}

impl Entry {
    /// A problem that nothing is known to help against, or that solves itself.
    pub(super) fn new(text: impl Into<String>) -> Entry {
        Entry { text: text.into(), remedy: None }
    }

    /// `doctor --fix` repairs it.
    pub(super) fn fixable(self) -> Entry {
        Entry { remedy: Some(Remedy::Fix), ..self }
    }

    /// This command solves it.
    pub(super) fn solved_by(self, command: impl Into<String>) -> Entry {
        Entry { remedy: Some(Remedy::Command(command.into())), ..self }
    }

    /// It was repaired just now.
    pub(super) fn fixed(self, what: impl Into<String>) -> Entry {
        Entry { remedy: Some(Remedy::Fixed(what.into())), ..self }
    }

    fn is_fixed(&self) -> bool {
        matches!(self.remedy, Some(Remedy::Fixed(_)))
    }

    /// The text, and below it what helps.
    fn lines(&self) -> Vec<String> {
        let remedy = match &self.remedy {
            None => None,
            Some(Remedy::Fix) => Some(format!("{DIM}fix: {FIX}{DIM:#}")),
            Some(Remedy::Command(command)) => Some(format!("{DIM}fix: {command}{DIM:#}")),
            Some(Remedy::Fixed(what)) => Some(format!("{GREEN}fixed:{GREEN:#} {what}")),
        };
        std::iter::once(self.text.clone()).chain(remedy).collect()
    }

    fn view(&self) -> EntryView<'_> {
        let (fix, fixed) = match &self.remedy {
            None => (None, None),
            Some(Remedy::Fix) => (Some(FIX), None),
            Some(Remedy::Command(command)) => (Some(command.as_str()), None),
            Some(Remedy::Fixed(what)) => (None, Some(what.as_str())),
        };
        EntryView { text: &self.text, fix, fixed }
    }
}

impl Finding {
    /// Something that is merely stale: exit 0.
    pub(super) fn notes(check: &'static str, fine: &str, entries: Vec<Entry>) -> Finding {
        Finding::new(check, fine, entries, Verdict::Note)
    }

    /// Something that is wrong: exit 7, unless all of it was repaired.
    pub(super) fn faults(check: &'static str, fine: &str, entries: Vec<Entry>) -> Finding {
        Finding::new(check, fine, entries, Verdict::Wrong)
    }

    fn new(check: &'static str, fine: &str, entries: Vec<Entry>, otherwise: Verdict) -> Finding {
        if entries.is_empty() {
            return Finding { check, verdict: Verdict::Fine, entries: vec![Entry::new(fine)] };
        }
        let verdict = if entries.iter().all(Entry::is_fixed) { Verdict::Fixed } else { otherwise };
        Finding { check, verdict, entries }
    }

    pub(super) fn is_wrong(&self) -> bool {
        self.verdict == Verdict::Wrong
    }

    pub(super) fn view(&self) -> FindingView<'_> {
        FindingView {
            check: self.check,
            verdict: self.verdict.word(),
            findings: self.entries.iter().map(|entry| entry.text.as_str()).collect(),
            entries: self.entries.iter().map(Entry::view).collect(),
        }
    }

    pub(super) fn line(&self) -> String {
        let style = match self.verdict {
            Verdict::Fine | Verdict::Fixed => GREEN,
            Verdict::Note => YELLOW,
            Verdict::Wrong => RED,
        };
        let mark = self.verdict.word();
        let lines: Vec<String> = self.entries.iter().flat_map(Entry::lines).collect();
        format!("{style}{mark:<6}{style:#}{DIM}{:<11}{DIM:#}{}", self.check, lines.join("\n                 "))
    }
}
