//! Processes a queue with two threads, until Enter is pressed or the queue has been empty for a while.

#![expect(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::time::Duration;

use banksman::{CancelToken, Client, Error, Project, QueueOptions};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Thumbnail {
    image: String,
    width: u32,
}

fn main() -> banksman::Result<()> {
    let project = match Project::find(".") {
        Err(Error::NoProject { .. }) => Project::init(".")?,
        found => found?,
    };
    let client = project.open()?;
    let queue = client.queue("thumbnails");
    queue.define(QueueOptions::new().visibility_timeout(Duration::from_secs(60)).max_attempts(3))?;
    for width in [64, 128, 256] {
        queue.push(&Thumbnail { image: "cat.jpg".into(), width })?;
    }
    let stop = CancelToken::new()?;
    let on_enter = stop.clone();
    std::thread::spawn(move || std::io::stdin().read_line(&mut String::new()).map(|_| on_enter.cancel()));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| work(&client, &stop))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

fn work(client: &Client, stop: &CancelToken) -> banksman::Result<()> {
    let queue = client.queue("thumbnails").cancel_on(stop);
    loop {
        let item = match queue.take_within(Duration::from_secs(1)) {
            Ok(Some(item)) => item,
            Ok(None) | Err(Error::Cancelled) => return Ok(()),
            Err(error) => return Err(error),
        };
        let thumbnail: Thumbnail = item.data()?;
        println!("{} (attempt {}): {thumbnail:?}", item.id(), item.attempt());
        // An error or a panic before this line returns the item to the queue.
        item.complete()?;
    }
}
