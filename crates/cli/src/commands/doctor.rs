use banksman::store::Key;
use clap::Args;
use serde_json::{Value, json};

use super::Done;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::printer::{DIM, GREEN, RED, YELLOW};

/// Check the health of the project.
///
/// Checks the structure of the store, folds the event log and compares it with the tables, and notes what is left
/// behind by the dead. What an import that was killed has left is cleared away. Exit 7 if something is wrong; what is merely
/// stale is a note.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  banksman doctor")]
pub(crate) struct Doctor {}

/// One thing that was looked at.
struct Finding {
    check: &'static str,
    verdict: Verdict,
    words: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    Note,
    Wrong,
}

impl Doctor {
    pub(crate) fn run(self, context: &Context) -> Done {
        let project = context.project()?;
        let mut reader = project.reader()?;
        let complaints = reader.view().check_integrity()?;
        let differences = if complaints.is_empty() { reader.view().compare_with_log()? } else { Vec::new() };
        let mut findings = vec![
            judge("store", "the database is sound", complaints),
            judge("event log", "the log folds to the tables", differences),
        ];
        findings.push(stale(&mut reader, &project)?);
        findings.push(imports(context, &mut reader)?);
        let wrong = findings.iter().any(|finding| finding.verdict == Verdict::Wrong);
        let data: Vec<Value> = findings
            .iter()
            .map(|finding| {
                let verdict = match finding.verdict {
                    Verdict::Fine => "ok",
                    Verdict::Note => "note",
                    Verdict::Wrong => "wrong",
                };
                json!({ "check": finding.check, "verdict": verdict, "findings": finding.words })
            })
            .collect();
        let lines: Vec<String> = findings.iter().map(Finding::line).collect();
        context.printer.result(json!({ "healthy": !wrong, "checks": data }), lines.join("\n"));
        Ok(if wrong { exit::UNHEALTHY } else { exit::OK })
    }
}

fn judge(check: &'static str, fine: &str, complaints: Vec<String>) -> Finding {
    if complaints.is_empty() {
        Finding { check, verdict: Verdict::Fine, words: vec![fine.into()] }
    } else {
        Finding { check, verdict: Verdict::Wrong, words: complaints }
    }
}

/// Grants of the dead and the silent. The next who asks for them gets them, so they are no fault.
fn stale(reader: &mut banksman::store::Reader, project: &banksman::Project) -> Result<Finding, crate::failure::Failure> {
    let stale = super::hold::stale_grants(reader, project.host())?;
    let words: Vec<String> =
        stale.iter().map(|entry| format!("{}: {} is {}", entry.resource, entry.grant.claim.holder, entry.state)).collect();
    Ok(if words.is_empty() {
        Finding { check: "holders", verdict: Verdict::Fine, words: vec!["everything that is held is held by the living".into()] }
    } else {
        Finding { check: "holders", verdict: Verdict::Note, words }
    })
}

/// Imports that are not finished. Nobody sees what those of the dead have left, and it is in the way of nobody but who wants to
/// delete what it refers to or to copy the store; so it is cleared away.
fn imports(context: &Context, reader: &mut banksman::store::Reader) -> Result<Finding, crate::failure::Failure> {
    let open = reader.view().load(&[Key::Imports].into())?.backlog.imports;
    let cleared = if open.is_empty() { Vec::new() } else { context.client()?.clear_imports()? };
    let words: Vec<String> = open
        .values()
        .map(|import| {
            let is_cleared = cleared.iter().any(|gone| gone.id == import.id);
            let (id, added, total) = (&import.id, import.added, import.total);
            match is_cleared {
                true => format!("import {id} was killed after {added} of {total} tasks; they were cleared away"),
                false => format!("import {id} of process {} is at {added} of {total} tasks", import.process.pid),
            }
        })
        .collect();
    Ok(if words.is_empty() {
        Finding { check: "imports", verdict: Verdict::Fine, words: vec!["none is unfinished".into()] }
    } else {
        Finding { check: "imports", verdict: Verdict::Note, words }
    })
}

impl Finding {
    fn line(&self) -> String {
        let (style, mark) = match self.verdict {
            Verdict::Fine => (GREEN, "ok"),
            Verdict::Note => (YELLOW, "note"),
            Verdict::Wrong => (RED, "wrong"),
        };
        format!("{style}{mark:<6}{style:#}{DIM}{:<11}{DIM:#}{}", self.check, self.words.join("\n                 "))
    }
}
