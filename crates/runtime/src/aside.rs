//! What a runner does on threads of their own: clearing sessions away whose keeper was killed, and telling people.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use banksman_adapters::keeper::{self, Record};
use banksman_adapters::notify::{self, Channel, Fate};
use banksman_core::backlog::Ended;
use banksman_core::guard::GuardInputs;
use banksman_core::task::Ending;
use banksman_core::{Notice, Pipeline, RunId, Seq};

use crate::guards::Answers;
use crate::project::Project;
use crate::runner::now_ended;

/// What was done.
pub(crate) enum Deed {
    /// What was left of a session was ended.
    Swept(RunId, Ended),
    /// What the guards of a pipeline ask about was looked at.
    Gathered(Box<Pipeline>, Box<GuardInputs>),
    /// People were told, or not.
    Told(Seq, Result<(), Untold>),
}

/// Why people were not told.
pub(crate) struct Untold {
    pub(crate) error: Box<str>,
    /// Whether it is of no use to try again.
    pub(crate) is_final: bool,
}

/// What becomes of a notice.
pub(crate) enum Telling {
    /// It is being sent, but not in these ways, though the settings name them.
    Begun {
        /// Which ones, and why not.
        refused: Vec<String>,
    },
    /// Nobody wants it.
    Unwanted,
}

/// The threads, and how they tell what they have done.
pub(crate) struct Aside {
    sender: Sender<(Deed, Vec<Channel>)>,
    receiver: Receiver<(Deed, Vec<Channel>)>,
    near: UnixStream,
    far: UnixStream,
    /// The ways in which people were told already, where another has failed.
    told: BTreeMap<Seq, BTreeSet<Channel>>,
    /// What the commands of guards have answered.
    answers: Arc<Answers>,
}

impl Aside {
    pub(crate) fn new() -> std::io::Result<Aside> {
        let (sender, receiver) = mpsc::channel();
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        Ok(Aside { sender, receiver, near, far, told: BTreeMap::new(), answers: Arc::default() })
    }

    /// The keeper of a session was killed: what is left of its tree is ended.
    pub(crate) fn sweep(&self, run: RunId, record: Record, grace: Duration) {
        self.start(move || {
            let note = match keeper::sweep(&record, grace) {
                Ok(swept) if !swept.left.is_empty() => {
                    let left: Vec<String> = swept.left.iter().map(ToString::to_string).collect();
                    format!("its keeper was killed; processes that could not be ended: {}", left.join(", "))
                }
                Ok(swept) if swept.ended == 1 => "its keeper was killed; 1 process of it was ended".into(),
                Ok(swept) => format!("its keeper was killed; {} processes of it were ended", swept.ended),
                Err(error) => format!("its keeper was killed; what is left of it cannot be looked for: {error}"),
            };
            (Deed::Swept(run, now_ended(Ending::Lost, Some(&note))), Vec::new())
        });
    }

    /// Tells people in all ways that the settings name and that were not taken before.
    pub(crate) fn tell_people(&self, project: &Project, errand: Seq, notice: &Notice) -> Telling {
        let outlets = project.outlets();
        if !project.config().notify.on.contains(&notice.kind) || outlets.is_empty() {
            return Telling::Unwanted;
        }
        let done = self.told.get(&errand).cloned().unwrap_or_default();
        let notice = notify::Notice {
            kind: notice.kind,
            subject: notice.subject.to_string(),
            text: notice.text.to_string(),
            project: project.root().display().to_string(),
            data: serde_json::Value::Null,
        };
        let channels = outlets.channels;
        self.start(move || {
            // The same over all attempts, so that a receiver knows a repetition.
            let delivery = format!("n-{errand}");
            let mut told = Vec::new();
            let (mut errors, mut is_final) = (Vec::new(), true);
            for channel in channels.list().into_iter().filter(|channel| !done.contains(channel)) {
                match notify::send_to(&channels, channel, &notice, &delivery) {
                    Ok(()) => told.push(channel),
                    // It may have arrived, and nobody is told the same twice.
                    Err(error) if error.fate() == Fate::Unknown => told.push(channel),
                    Err(error) => {
                        is_final &= error.fate() == Fate::Final;
                        errors.push(format!("{}: {error}", channel.as_str()));
                    }
                }
            }
            let result = if errors.is_empty() { Ok(()) } else { Err(Untold { error: errors.join("; ").into(), is_final }) };
            (Deed::Told(errand, result), told)
        });
        let refused = outlets.refused.iter().map(|(channel, refusal)| format!("{}: {refusal}", channel.as_str()));
        Telling::Begun { refused: refused.collect() }
    }

    /// Finds out what the guards of a pipeline ask about.
    pub(crate) fn look_at_guards(&self, project: &Project, pipeline: Box<Pipeline>) {
        let (project, answers) = (project.clone(), Arc::clone(&self.answers));
        self.start(move || {
            let inputs = answers.gather(&project, &pipeline);
            (Deed::Gathered(pipeline, Box::new(inputs)), Vec::new())
        });
    }

    fn start(&self, deed: impl FnOnce() -> (Deed, Vec<Channel>) + Send + 'static) {
        let sender = self.sender.clone();
        let far = self.far.try_clone();
        std::thread::spawn(move || {
            // If the runner is gone, the next one does it all again.
            sender.send(deed()).ok();
            far.and_then(|mut far| far.write_all(b"!")).ok();
        });
    }

    /// What was done since the last time.
    pub(crate) fn take(&mut self) -> Vec<Deed> {
        let mut bytes = [0; 64];
        while matches!(self.near.read(&mut bytes), Ok(read) if read > 0) {}
        let mut deeds = Vec::new();
        for (deed, told) in self.receiver.try_iter() {
            if let Deed::Told(errand, result) = &deed {
                match result {
                    Ok(()) => drop(self.told.remove(errand)),
                    Err(_) => self.told.entry(*errand).or_default().extend(told),
                }
            }
            deeds.push(deed);
        }
        deeds
    }
}

impl AsFd for Aside {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }
}
