//! A program that uses the library, for the tests: their own `main` belongs to the test harness.
//!
//! ```text
//! banksman-library-test entered DIR     calls `enter` first, and runs the backlog of the project
//! banksman-library-test careless DIR    the same without `enter`
//! banksman-library-test named DIR PATH  the same with another program for supervisors
//! banksman-library-test thread DIR      calls `enter` first, and has a runner on a thread while it waits for a task
//! banksman-library-test parent DIR      as the run of a task: adds a child, waits for it, and reports its status
//! ```

#![expect(clippy::print_stdout, reason = "the tests read what it prints")]

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use banksman::{Client, NewTask, Project};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().collect();
    // The keeper of a program that has called `enter` has other arguments, and none of the program's own.
    if args.get(1).is_none_or(|mode| mode != "careless" && mode != "named") {
        banksman::enter();
    }
    // Only `main` of the program reaches this line: the tests count its lines.
    let dir = args.get(2).map_or_else(|| Path::new("/nowhere"), Path::new);
    File::options().append(true).create(true).open(dir.join("mains"))?.write_all(b"main\n")?;
    if args.get(1).is_some_and(|mode| mode == "parent") {
        return parent(&Project::find(dir)?.open()?);
    }
    if args.get(1).is_some_and(|mode| mode == "thread") {
        return thread(&Project::find(dir)?.open()?);
    }
    if let Some(program) = args.get(3) {
        banksman::use_program(program)?;
    }
    if let Err(error) = Project::find(dir)?.open()?.runner().run_until_idle() {
        println!("{error:?}: {error}");
        return Err(error.into());
    }
    Ok(())
}

fn thread(client: &Client) -> Result<(), Box<dyn Error>> {
    let runner = client.runner().max_runs(1).start()?;
    let task = client.tasks().add(NewTask::new("Greet").run("echo \"$NAME\"; exit 3").env("NAME", "world"))?;
    let task = client.tasks().wait(&task, Duration::from_secs(60))?;
    println!("{}: {}", task.status(), task.error().unwrap_or_default());
    runner.stop()?;
    let after = client.tasks().add(NewTask::new("Nobody is there").run("true"))?;
    println!("{}", after.status());
    Ok(())
}

fn parent(client: &Client) -> Result<(), Box<dyn Error>> {
    let tasks = client.tasks();
    let child = tasks.add(NewTask::new("Child").run("true").child())?;
    let child = tasks.wait(&child, Duration::from_secs(60))?;
    tasks.done(std::env::var("BANKSMAN_TASK")?, &child.status().to_string())?;
    Ok(())
}
