//! A program of a user of the library, for the tests: their own `main` belongs to the harness.
//!
//! ```text
//! banksman-library-test entered DIR     calls `enter` first, and works off the backlog of the project
//! banksman-library-test careless DIR    the same without `enter`
//! banksman-library-test named DIR PATH  the same with another program for supervisors
//! ```

#![expect(clippy::print_stdout, reason = "the tests read what it prints")]

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use banksman_runtime::{Project, RunOptions, Runner, Sessions};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().collect();
    // The keeper of a program that has called `enter` has other arguments, and none of the program's own.
    if args.get(1).is_none_or(|mode| mode != "careless" && mode != "named") {
        banksman_runtime::enter();
    }
    // Whatever comes here is `main`: the tests count it.
    let dir = args.get(2).map_or_else(|| Path::new("/nowhere"), Path::new);
    File::options().append(true).create(true).open(dir.join("mains"))?.write_all(b"main\n")?;
    if let Some(program) = args.get(3) {
        banksman_runtime::use_program(Path::new(program))?;
    }
    let client = Project::find(dir)?.open()?;
    let options = RunOptions { until_idle: true, ..RunOptions::default() };
    let runner = match Runner::new(&client, Sessions::new(client.project()), options) {
        Ok(runner) => runner,
        Err(error) => {
            println!("{error:?}: {error}");
            return Err(error.into());
        }
    };
    let (cancel, _sender) = std::io::pipe()?;
    runner.run(cancel.as_fd(), &mut |_| {})?;
    Ok(())
}
