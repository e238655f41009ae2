//! Reading the output of the program.

use std::time::Instant;

use rustix::io::Errno;

use super::{Keeper, talking};
use crate::host;
use crate::keeper::agent::{AgentWatch, Stream};
use crate::keeper::protocol::Notice;

/// How often output is read before other events are polled again.
const READS: usize = 16;

impl Keeper {
    pub(super) fn read_output(&mut self) {
        self.read_stream(Stream::Output);
        self.read_stream(Stream::Errors);
    }

    fn read_stream(&mut self, stream: Stream) {
        let Keeper { output, errors, agent, log, buffer, input, recent, control, .. } = self;
        let source = match stream {
            Stream::Output => output,
            Stream::Errors => errors,
        };
        for _ in 0..READS {
            let Some(open) = source.as_ref() else { return };
            match rustix::io::read(open, buffer.as_mut_slice()) {
                Ok(0) => *source = None,
                Ok(n) => {
                    self.output_at_ms = Some(host::wall_ms());
                    self.heard = Instant::now();
                    match agent {
                        Some(agent) => agent.take(stream, &buffer[..n], |bytes| log.take(bytes)),
                        None => log.take(&buffer[..n]),
                    }
                    if input.is_some() {
                        recent.add(&buffer[..n]);
                        talking::show(control, &buffer[..n]);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => *source = None,
            }
        }
    }

    pub(super) fn notify_answer(&mut self) {
        if !self.is_answer_notified && self.agent.as_ref().is_some_and(AgentWatch::has_answered) {
            self.is_answer_notified = true;
            self.control.notify_owner(&Notice::Answered);
        }
    }
}
