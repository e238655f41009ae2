//! How a runner calls the store: while other processes write, it listens to its sessions, and reports those that end in
//! the same transaction.

use std::sync::Arc;

use banksman_core::RunId;
use banksman_engine::Request;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Runner;
use super::sleeping::poll_session;
use crate::writer::{Answers, Pending};

impl Runner<'_> {
    /// Sends requests, and returns the answers.
    pub(super) fn call(&mut self, requests: Vec<Request>) -> Answers {
        if !self.dispatcher.may_amend() {
            return self.client.call_all(requests);
        }
        match self.client.begin_call(requests, &self.answered) {
            Ok(answers) => answers,
            Err(call) => self.hear_until_answered(call),
        }
    }

    fn hear_until_answered(&mut self, mut call: Pending) -> Answers {
        loop {
            if let Some(answers) = self.client.poll_call(&mut call) {
                return answers;
            }
            let ready = self.await_answer_or_session(&call);
            if !ready.is_empty() {
                ready.iter().for_each(|run| self.listen(run));
                self.client.amend_call(&mut call, |requests| self.dispatcher.amend(requests));
            }
        }
    }

    /// Waits until the call is to be polled. Returns the runs whose sessions have sent something.
    fn await_answer_or_session(&self, call: &Pending) -> Vec<RunId> {
        let answered = Arc::clone(&self.answered);
        let mut fds = vec![PollFd::new(&answered, PollFlags::IN)];
        fds.extend(self.sessions.values().map(poll_session));
        let patience = call.patience();
        let timeout = Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
        // An interruption is a reason to check, like any other.
        if poll(&mut fds, Some(&timeout)).is_err() {
            return Vec::new();
        }
        let ready = fds[1..].iter().map(|fd| !fd.revents().is_empty());
        self.sessions.keys().zip(ready).filter(|(_, ready)| *ready).map(|(run, _)| run.clone()).collect()
    }
}
