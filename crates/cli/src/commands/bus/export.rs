use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use banksman_core::bus::Message;
use banksman_core::{MessageId, Seq};
use banksman_runtime::{BusFollower, BusReader};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::read::Which;
use crate::commands::ExitResult;
use crate::context::Context;
use crate::exit_codes as exit;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::views::bus::MessageView;
use crate::views::{self, Text};

/// Write messages as JSON lines, for `tail -f` and for programs without banksman.
///
/// Continues the file of an earlier export: messages in it are skipped, and a last line that was cut off by a kill is replaced. Refuses any
/// other file.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman bus export > bus.jsonl\n  banksman bus export bus.jsonl --follow &\n  banksman bus export bus.jsonl --task 'Add login'"
)]
pub(super) struct Export {
    /// The file [default: stdout]
    file: Option<PathBuf>,
    /// Follow: also write new messages as they are posted
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    which: Which,
}

#[derive(Serialize)]
struct Exported<'a> {
    file: Text<std::path::Display<'a>>,
    messages: usize,
}

impl Export {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let filter = self.which.filter(context)?;
        let mut out = self.file.as_ref().map(|path| Export::open(path).map(|out| (path, out))).transpose()?;
        let after = out.as_ref().map_or(Seq(0), |(_, out)| Seq((out.last.0 - 1).max(0)));
        let mut bus = BusReader::new(project.reader()?, filter, after);
        let mut written = 0;
        let mut write = |messages: &[Message]| match &mut out {
            Some((path, out)) => {
                let new: Vec<&Message> = messages.iter().filter(|message| !out.has(message)).collect();
                written += new.len();
                out.file.write_all(&lines(new)).map_err(cannot_write(path))
            }
            None => {
                context.printer.raw(&lines(messages));
                Ok(())
            }
        };
        if self.follow {
            let signals = Signals::install()?;
            let mut follower = BusFollower::open(&project, bus)?;
            loop {
                let messages = follower.next(signals.as_fd())?.ok_or_else(Failure::interrupted)?;
                write(&messages)?;
            }
        }
        loop {
            let messages = bus.next_page()?;
            if messages.is_empty() {
                break;
            }
            write(&messages)?;
        }
        match &self.file {
            Some(file) => {
                let human =
                    format!("wrote {written} {} to {}", if written == 1 { "message" } else { "messages" }, file.display());
                context.printer.result(&Exported { file: Text(file.display()), messages: written }, human)
            }
            None => Ok(exit::OK),
        }
    }

    /// Opens a file and seeks behind its last message. A file that `bus export` did not write is refused and not changed.
    fn open(path: &Path) -> Result<Out, Failure> {
        let foreign = |number: usize| {
            let message = format!("{} was not written by bus export: line {number} is not a message", path.display());
            Failure::usage(message).hint("name a file that does not exist yet")
        };
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.map_err(cannot_write(path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("another bus export is writing to {}", path.display());
                return Err(Failure::new(exit::LOCKED, "EXPORT_BUSY", message));
            }
            Err(TryLockError::Error(error)) => return Err(cannot_write(path)(error)),
        }
        let (mut at, mut line) = (0, Vec::new());
        let (mut last, mut ids) = (Seq(0), Vec::new());
        let mut reader = BufReader::new(&file);
        for number in 1.. {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(cannot_write(path))?;
            match (line.ends_with(b"\n"), serde_json::from_slice(&line)) {
                (true, Ok(Written { seq, id })) => {
                    if seq != last {
                        ids.clear();
                    }
                    ids.push(id);
                    (last, at) = (seq, at + read as u64);
                }
                // The end of the file, or half a line of an export that was killed.
                (false, _) if line.starts_with(START) || START.starts_with(&line) => break,
                _ => return Err(foreign(number)),
            }
        }
        file.set_len(at).and_then(|()| file.seek(SeekFrom::Start(at))).map_err(cannot_write(path))?;
        Ok(Out { file, last, ids })
    }
}

/// The start of each line.
const START: &[u8] = br#"{"attachments":["#;

/// A file to continue. Several messages have the same number if they follow from one event, and the file may have only
/// some of them.
struct Out {
    file: File,
    last: Seq,
    /// The messages in the file that have the last number.
    ids: Vec<MessageId>,
}

impl Out {
    fn has(&self, message: &Message) -> bool {
        message.seq == self.last && self.ids.contains(&message.draft.id)
    }
}

/// The fields that are read from an existing line.
#[derive(Deserialize)]
struct Written {
    seq: Seq,
    id: MessageId,
}

fn lines<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Vec<u8> {
    let mut lines = Vec::new();
    for message in messages {
        lines.extend(views::value(&MessageView::from(message)).to_string().into_bytes());
        lines.push(b'\n');
    }
    lines
}

fn cannot_write(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::system(&format!("write {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use banksman_core::Wall;
    use banksman_core::bus::{Contention, Draft, MessageType};

    use super::*;

    fn line(seq: i64, id: &str) -> String {
        let draft = Draft {
            id: MessageId::new(id).unwrap(),
            kind: MessageType::fact(),
            task: None,
            run: None,
            author: "ada".into(),
            parent: None,
            body: "text".into(),
            attachments: Vec::new(),
        };
        let message = Message { seq: Seq(seq), wall: Wall(0), draft, contention: Contention::default() };
        String::from_utf8(lines([&message])).unwrap()
    }

    #[test]
    fn an_export_continues_a_file_after_its_last_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus.jsonl");
        let open = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let out = Export::open(&path).map(|out| (out.last.0, out.ids.len())).map_err(|failure| failure.code);
            (out, std::fs::read_to_string(&path).unwrap())
        };
        let all = [line(3, "m-a"), line(5, "m-b"), line(5, "m-c")].concat();
        assert_eq!(open(""), (Ok((0, 0)), String::new()));
        assert_eq!(open(&all), (Ok((5, 2)), all.clone()));
        let next = line(7, "m-d");
        for half in (0..next.len()).filter(|at| next.is_char_boundary(*at)) {
            assert_eq!(open(&format!("{all}{}", &next[..half])), (Ok((5, 2)), all.clone()), "the last line is not complete");
        }
        // Other files are not changed.
        for text in ["# Notes\n", "notes", "{}\n", "{\"a\":1}", "\n", &format!("{all}notes\n"), &format!("{all}notes")] {
            assert_eq!(open(text), (Err("USAGE"), text.to_owned()));
        }
        std::fs::write(&path, "").unwrap();
        let _first = Export::open(&path).unwrap();
        assert_eq!(Export::open(&path).map(drop).map_err(|failure| failure.code), Err("EXPORT_BUSY"));
    }
}
