//! The bus: messages of people and runs.

mod export;
mod post;
mod read;
mod stats;

pub(crate) use post::{failure as post_failure, refused as post_refused, stdin};

use banksman_core::bus::Message;

use crate::format;
use crate::printer::{BOLD, CYAN, DIM, GREEN, RED, YELLOW};
use crate::terminal::Style;

subcommands! {
    /// Post, read and follow messages between people and runs.
    #[command(
        after_help = "Examples:\n  banksman bus post INFO 'the cache is warm'\n  banksman bus read --follow\n  banksman bus read --task 'Add login' --last 20"
    )]
    pub(crate) noun Bus {
        Post(post::Post),
        Read(read::Read),
        Stats(stats::Stats),
        Export(export::Export),
    }
}

/// `17  08:00:00  QUESTION  t-1  ada: which port?`, with further lines of the body below.
pub(crate) fn message_line(message: &Message) -> String {
    let draft = &message.draft;
    let style = style(draft.kind.as_str());
    let about = draft.task.as_ref().map(|task| format!("  {task}")).unwrap_or_default();
    let mut line = format!(
        "{DIM}{:>6}  {}{DIM:#}  {style}{:<8}{style:#}{about}  {BOLD}{}{BOLD:#}: ",
        message.seq,
        format::local(message.wall),
        draft.kind,
        format::one_line(&draft.author)
    );
    line.push_str(&draft.body.trim_end_matches('\n').replace('\n', "\n        "));
    for path in &draft.attachments {
        line.push_str(&format!("\n        {DIM}attached: {}{DIM:#}", format::one_line(path)));
    }
    line
}

fn style(kind: &str) -> Style {
    match kind {
        "ERROR" => RED,
        "QUESTION" | "DECISION" => YELLOW,
        "ANSWER" | "FACT" => GREEN,
        _ => CYAN,
    }
}
