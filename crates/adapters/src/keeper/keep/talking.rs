//! Requests of clients that talk to the session: they send messages, watch, and type.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::super::agent::AgentWatch;
use super::super::control::Control;
use super::super::input::{Input, PENDING_LIMIT, Progress};
use super::super::protocol::InputRefusal;
use super::super::talk::{OUTPUT_PIECE, TalkReply, TalkRequest, Typist};
use super::Keeper;

/// How many late-written messages the end of the session lists.
const WRITTEN: usize = 200;

impl Keeper {
    /// Handles a request of a client that talks to the session.
    pub(super) fn talk(&mut self, client: u64, request: TalkRequest) {
        if request == TalkRequest::Nudge {
            // Negative, because the effects of runners have positive numbers.
            self.nudge(-i64::from(self.nudges) - 1);
            return self.control.reply(client, &TalkReply::Nudged);
        }
        let has_typist = self.control.typist().is_some_and(|typist| typist != client);
        let Some(input) = &mut self.input else {
            let reply = match request {
                TalkRequest::Ping => TalkReply::Pong { input: None, has_typist: false, has_turns: false },
                _ => TalkReply::Refused(InputRefusal::NoInput),
            };
            return self.control.reply(client, &reply);
        };
        let is_typist = self.control.typist() == Some(client);
        let reply = match request {
            TalkRequest::Ping => Some(TalkReply::Pong {
                input: input.is_open().then_some(input.kind()),
                has_typist: self.control.typist().is_some(),
                has_turns: self.agent.as_ref().is_some_and(AgentWatch::has_turns),
            }),
            TalkRequest::Send { .. } | TalkRequest::FollowUp { .. } | TalkRequest::Close if has_typist => {
                Some(TalkReply::Refused(InputRefusal::Typing))
            }
            TalkRequest::Send { id, text } => Some(match input.take(client, &id, &text) {
                Ok(is_new) => TalkReply::Taken { id, again: !is_new },
                Err(refusal) => TalkReply::Refused(refusal),
            }),
            TalkRequest::FollowUp { id, text } => {
                let pending: usize = self.follow_ups.iter().map(|(_, _, text)| text.len()).sum();
                let again = input.has_taken(&id) || self.follow_ups.iter().any(|(_, waiting, _)| *waiting == id);
                Some(match again {
                    true => TalkReply::Taken { id, again },
                    false if !input.is_open() => TalkReply::Refused(InputRefusal::Closed),
                    false if pending > 0 && pending + text.len() > PENDING_LIMIT => {
                        TalkReply::Refused(InputRefusal::Full { pending })
                    }
                    false => {
                        self.follow_ups.push_back((client, id.clone(), text));
                        TalkReply::Taken { id, again }
                    }
                })
            }
            TalkRequest::Expect => {
                self.expects = true;
                None
            }
            TalkRequest::Nudge => None,
            TalkRequest::Close => {
                input.close();
                None
            }
            TalkRequest::Attach { typist, rows, columns } => return self.attach(client, typist, rows, columns),
            TalkRequest::Type { .. } | TalkRequest::Resize { .. } if !is_typist => {
                Some(TalkReply::Refused(InputRefusal::NotTypist))
            }
            TalkRequest::Type { bytes } => input.typed(bytes.into_vec()).err().map(TalkReply::Refused),
            TalkRequest::Resize { rows, columns } => {
                // Fails only if the terminal is gone.
                input.resize(rows, columns).ok();
                None
            }
        };
        if let Some(reply) = reply {
            self.control.reply(client, &reply);
        }
        self.write_input();
    }

    /// Attaches a client to the output, beginning with the last output so far, and makes it the typist if it wants and may.
    fn attach(&mut self, client: u64, typist: Typist, rows: u16, columns: u16) {
        let types = match (typist, self.control.typist()) {
            (Typist::Never, _) | (Typist::IfFree, Some(_)) => false,
            (Typist::IfFree, None) | (Typist::Take, _) => true,
        };
        if types {
            self.control.set_typist(client);
        }
        let input = self.input.as_ref().filter(|input| input.is_open()).map(Input::kind);
        self.control.reply(client, &TalkReply::Attached { is_typist: types, input });
        for piece in self.recent.bytes().chunks(OUTPUT_PIECE) {
            self.control.reply(client, &TalkReply::Output { bytes: OsString::from_vec(piece.to_vec()) });
        }
        self.control.watch(client);
        if let Some(input) = self.input.as_mut().filter(|_| types) {
            // The resize makes the program redraw, which shows more than its last output.
            input.resize(rows, columns).ok();
        }
    }

    fn write_input(&mut self) -> Vec<String> {
        let progress = self.input.as_mut().map(Input::write).unwrap_or_default();
        let written = progress.written.iter().map(|(_, id)| id.clone()).collect();
        self.reply_to_senders(progress);
        written
    }

    /// Writes pending messages. Their senders may not have waited, so the end of the session lists these messages.
    pub(super) fn write_late(&mut self) {
        let written = self.write_input();
        self.written_late.extend(written);
        let excess = self.written_late.len().saturating_sub(WRITTEN);
        self.written_late.drain(..excess);
    }

    pub(super) fn reply_to_senders(&mut self, progress: Progress) {
        for (client, id) in progress.written {
            self.control.reply(client, &TalkReply::Written { id });
        }
        for (client, id) in progress.lost {
            self.control.reply(client, &TalkReply::Lost { id });
        }
    }
}

/// Sends output to the watchers.
pub(super) fn show(control: &mut Control, bytes: &[u8]) {
    if control.has_watchers() {
        for piece in bytes.chunks(OUTPUT_PIECE) {
            control.notify_watchers(&TalkReply::Output { bytes: OsString::from_vec(piece.to_vec()) });
        }
    }
}
