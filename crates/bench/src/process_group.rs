//! Many processes that start at the same moment: this program again, in the roles of [`crate::worker`].

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::bench::Result;
use crate::{clock, worker};

/// The delay between the start signal and the start, so that all processes have received the signal.
const LEAD: Duration = Duration::from_millis(50);

pub(crate) struct ProcessGroup(Vec<Member>);

struct Member {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl ProcessGroup {
    /// Starts one process for each list of arguments, and waits until all of them are ready.
    pub(crate) fn gather(role: &str, members: impl IntoIterator<Item = Vec<String>>) -> Result<ProcessGroup> {
        let mut group = ProcessGroup(Vec::new());
        for args in members {
            group.0.push(Member::start(role, &args)?);
        }
        for member in &mut group.0 {
            let mut line = String::new();
            member.output.read_line(&mut line)?;
            if line.trim() != worker::READY {
                return Err(format!("a worker process is not ready but says {line:?}").into());
            }
        }
        Ok(group)
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(|member| member.child.id()).collect()
    }

    /// Sends all processes their start and end times.
    pub(crate) fn go(&mut self, span: Duration) -> Result<()> {
        let start = clock::now() + clock::nanos(LEAD);
        let end = start + clock::nanos(span);
        for member in &mut self.0 {
            writeln!(member.input, "{start} {end}")?;
        }
        Ok(())
    }

    /// The reports of the processes at their end: lines of numbers.
    pub(crate) fn reports(mut self) -> Result<Vec<Vec<Vec<u64>>>> {
        self.0.iter_mut().map(Member::report).collect()
    }
}

impl Member {
    fn start(role: &str, args: &[String]) -> Result<Member> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([worker::MARK, role]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take().expect("it was asked to be a pipe");
        let output = BufReader::new(child.stdout.take().expect("it was asked to be a pipe"));
        Ok(Member { child, input, output })
    }

    fn report(&mut self) -> Result<Vec<Vec<u64>>> {
        let mut lines = Vec::new();
        for line in (&mut self.output).lines() {
            lines.push(line?.split(' ').map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?);
        }
        let status = self.child.wait()?;
        if status.success() { Ok(lines) } else { Err(format!("a worker process failed: {status}").into()) }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Most processes have ended by themselves; a failed round must leave none behind.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
