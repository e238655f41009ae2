//! Adds two tasks, runs them in this process, and prints how they ended.

#![expect(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::time::Duration;

use banksman::{Error, NewTask, Project};

fn main() -> banksman::Result<()> {
    // Must come first: the supervisors of the runs start this same program.
    banksman::enter();
    let project = match Project::find(".") {
        Err(Error::NoProject { .. }) => Project::init(".")?,
        found => found?,
    };
    let client = project.open()?;
    let runner = client.runner().on_trouble(|what| println!("{what}")).start()?;
    let tasks = client.tasks();
    let tests = tasks.add(NewTask::new("Run the tests").run("echo testing; sleep 1").timeout(Duration::from_secs(60)))?;
    let release = tasks.add(NewTask::new("Release").run("echo released").depends_on(&tests).lock("deploy"))?;
    for task in tasks.wait_all([&tests, &release], Duration::from_secs(120))? {
        println!("{} is {} {}", task.title(), task.status(), task.error().unwrap_or_default());
    }
    runner.stop()
}
