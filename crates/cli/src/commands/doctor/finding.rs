//! The result of a check.

use serde::Serialize;

use crate::printer::{DIM, GREEN, RED, YELLOW};

/// The command that repairs everything that needs no decision.
const FIX: &str = "banksman doctor --fix";

pub(super) struct Finding {
    check: &'static str,
    verdict: Verdict,
    entries: Vec<Entry>,
}

/// One problem, or the statement that there is none.
#[derive(Serialize)]
pub(super) struct Entry {
    text: String,
    /// The command that solves it: `doctor --fix`, or a command that needs a decision of the user.
    fix: Option<String>,
    /// What was repaired, if it was.
    fixed: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Fixed,
    Note,
    Wrong,
}

/// The JSON form of a finding.
#[derive(Serialize)]
pub(super) struct FindingView<'a> {
    check: &'static str,
    verdict: Verdict,
    findings: Vec<&'a str>,
    entries: &'a [Entry],
}

impl Entry {
    /// A problem without a known solution, or one that solves itself.
    pub(super) fn new(text: impl Into<String>) -> Entry {
        Entry { text: text.into(), fix: None, fixed: None }
    }

    /// Marks the problem as solved by `doctor --fix`.
    pub(super) fn fixable(self) -> Entry {
        self.solved_by(FIX)
    }

    /// Adds the command that solves the problem.
    pub(super) fn solved_by(self, command: impl Into<String>) -> Entry {
        Entry { fix: Some(command.into()), ..self }
    }

    /// Marks the problem as repaired just now.
    pub(super) fn fixed(self, what: impl Into<String>) -> Entry {
        Entry { fix: None, fixed: Some(what.into()), ..self }
    }

    fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// The text, and below it the solution.
    fn lines(&self) -> Vec<String> {
        let fix = self.fix.iter().map(|command| format!("{DIM}fix: {command}{DIM:#}"));
        let fixed = self.fixed.iter().map(|what| format!("{GREEN}fixed:{GREEN:#} {what}"));
        std::iter::once(self.text.clone()).chain(fix).chain(fixed).collect()
    }
}

impl Finding {
    /// Problems that are merely stale: exit 0.
    pub(super) fn notes(check: &'static str, fine: &str, entries: Vec<Entry>) -> Finding {
        Finding::new(check, fine, entries, Verdict::Note)
    }

    /// Problems that need attention: exit 7, unless all were repaired.
    pub(super) fn faults(check: &'static str, fine: &str, entries: Vec<Entry>) -> Finding {
        Finding::new(check, fine, entries, Verdict::Wrong)
    }

    fn new(check: &'static str, fine: &str, entries: Vec<Entry>, otherwise: Verdict) -> Finding {
        if entries.is_empty() {
            return Finding { check, verdict: Verdict::Ok, entries: vec![Entry::new(fine)] };
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
            verdict: self.verdict,
            findings: self.entries.iter().map(|entry| entry.text.as_str()).collect(),
            entries: &self.entries,
        }
    }

    pub(super) fn line(&self) -> String {
        let (style, mark) = match self.verdict {
            Verdict::Ok => (GREEN, "ok"),
            Verdict::Fixed => (GREEN, "fixed"),
            Verdict::Note => (YELLOW, "note"),
            Verdict::Wrong => (RED, "wrong"),
        };
        let lines: Vec<String> = self.entries.iter().flat_map(Entry::lines).collect();
        format!("{style}{mark:<6}{style:#}{DIM}{:<12}{DIM:#}{}", self.check, lines.join("\n                  "))
    }
}
