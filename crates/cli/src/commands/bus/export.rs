use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use banksman_core::Seq;
use banksman_core::bus::Message;
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
/// A file that is there already is continued: what is in it is not written again, and a last line that was cut off by a kill is replaced.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  banksman bus export > bus.jsonl\n  banksman bus export bus.jsonl --follow &\n  banksman bus export bus.jsonl --task 'Add login'"
)]
pub(super) struct Export {
    /// The file [default: stdout]
    file: Option<PathBuf>,
    /// Go on with what is posted from now on
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    which: Which,
}

/// What was written.
#[derive(Serialize)]
struct Exported<'a> {
    file: Text<std::path::Display<'a>>,
    messages: usize,
}

impl Export {
    pub(super) fn run(self, context: &Context) -> ExitResult {
        let project = context.project()?;
        let filter = self.which.filter(context)?;
        let mut out = match &self.file {
            Some(path) => Out::File(Export::open(path).map_err(cannot_write(path))?),
            None => Out::Stdout,
        };
        let after = if let Out::File((_, after)) = &out { *after } else { Seq(0) };
        let mut bus = BusReader::new(project.reader()?, filter, after);
        let mut written = 0;
        let mut write = |messages: &[Message]| match (&mut out, &self.file) {
            (Out::File((file, _)), Some(path)) => file.write_all(&lines(messages)).map_err(cannot_write(path)),
            _ => {
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
            written += messages.len();
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

    /// Opens a file behind its last message, and says which one that is. All messages of the last number are written again, as some of them
    /// may be missing.
    fn open(path: &Path) -> io::Result<(File, Seq)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let (mut at, mut line) = (0, Vec::new());
        let (mut last, mut last_at, mut before) = (Seq(0), 0, Seq(0));
        let mut reader = BufReader::new(&file);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            let Ok(Numbered { seq }) = serde_json::from_slice(&line) else { break };
            if line.last() != Some(&b'\n') {
                break;
            }
            if seq != last {
                (before, last, last_at) = (last, seq, at);
            }
            at += read as u64;
        }
        file.set_len(last_at)?;
        file.seek(SeekFrom::Start(last_at))?;
        Ok((file, before))
    }
}

enum Out {
    Stdout,
    File((File, Seq)),
}

#[derive(Deserialize)]
struct Numbered {
    seq: Seq,
}

fn lines(messages: &[Message]) -> Vec<u8> {
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
    use super::*;

    #[test]
    fn a_file_is_continued_behind_its_last_number_that_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus.jsonl");
        let open = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let (_, after) = Export::open(&path).unwrap();
            (after.0, std::fs::read_to_string(&path).unwrap())
        };
        let lines = |seqs: &[i64]| seqs.iter().map(|seq| format!("{{\"seq\":{seq}}}\n")).collect::<String>();
        assert_eq!(open(""), (0, String::new()));
        assert_eq!(open(&lines(&[3])), (0, String::new()));
        assert_eq!(open(&lines(&[3, 5, 5])), (3, lines(&[3])), "another one of number 5 may be missing");
        assert_eq!(open(&format!("{}{{\"seq\":7}}", lines(&[3, 5]))), (3, lines(&[3])), "the last line is not complete");
    }
}
