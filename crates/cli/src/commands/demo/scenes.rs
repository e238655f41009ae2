//! The four scenes.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::stage::Stage;
use super::timeline;
use crate::failure::Failure;
use crate::printer::{BOLD, DIM, GREEN};
use crate::words;

/// Six agents want the same lock. They get it one after the other, in the order in which they came.
pub(super) fn crowd(stage: &Stage) -> Result<Value, Failure> {
    stage.title(1, "Six agents, one lock: one at a time, in the order of arrival");
    stage.prompt("locks run deploy -- ./deploy.sh");
    let names: Vec<String> = (1..=6).map(|number| format!("agent-{number}")).collect();
    let mut actors = Vec::new();
    for (index, name) in names.iter().enumerate() {
        actors.push(stage.cast(&["locks", "run", "deploy", "--holder", name, "--", "sleep", "0.35"])?);
        // So that the order of arrival is known.
        if index == 0 {
            stage.until("lock:acquired", name)?;
        } else {
            stage.until_line("deploy", index)?;
        }
    }
    for (actor, name) in actors.into_iter().zip(&names) {
        stage.until("lock:released", name)?;
        actor.end()?;
    }
    let events = stage.events_of("deploy");
    stage.say(&timeline::draw(&events));
    let overlaps = timeline::overlaps(&events);
    stage
        .say(&format!("   {GREEN}{overlaps} overlaps{GREEN:#}: a release and the grant to the next in line are one transaction"));
    Ok(json!({ "agents": names.len(), "overlaps": overlaps }))
}

/// The holder is killed with -9. Its command dies with it, and the next in line has the lock at once.
pub(super) fn heir(stage: &Stage) -> Result<Value, Failure> {
    stage.title(2, "kill -9 of the holder: the next in line takes over");
    let victim = stage.cast(&["locks", "run", "build", "--holder", "victim", "--", "sleep", "600"])?;
    stage.until("lock:acquired", "victim")?;
    let heir = stage.cast(&["locks", "run", "build", "--holder", "heir", "--", "true"])?;
    stage.until_line("build", 1)?;
    stage.say("   victim holds build, heir waits");
    let killed_at = banksman::core::Wall(banksman::adapters::host::wall_ms());
    victim.signal(Signal::KILL)?;
    let taken = stage.until("lock:acquired", "heir")?;
    let after = taken.wall - killed_at;
    victim.end()?;
    let (status, _) = heir.end()?;
    stage.say(&format!("   {GREEN}heir had it {} after the kill{GREEN:#}; victim's command died with its wrapper, and before that nobody got the lock", words::span(after)));
    Ok(json!({ "takenAfterMs": after.as_ms(), "heirStatus": status }))
}

/// A holder is stopped for longer than its lease, and wakes up after somebody else took over.
pub(super) fn zombie(stage: &Stage) -> Result<Value, Failure> {
    stage.title(3, "A zombie: stopped past its lease, it wakes up and is fenced");
    stage.prompt("locks run paint --ttl 1s -- ./paint.sh");
    let zombie = stage.cast(&["locks", "run", "paint", "--ttl", "1s", "--holder", "zombie", "--", "sleep", "600"])?;
    let before = stage.until("lock:acquired", "zombie")?;
    zombie.signal(Signal::STOP)?;
    stage.say(&format!("   zombie holds paint with epoch {}, and is stopped like a laptop that was shut", before.id));
    let heir = stage.cast(&["locks", "run", "paint", "--holder", "successor", "--", "true"])?;
    let after = stage.until("lock:acquired", "successor")?;
    heir.end()?;
    stage.say(&format!("   its lease runs out, successor gets paint with epoch {}", after.id));
    zombie.signal(Signal::CONT)?;
    let (status, said) = zombie.end()?;
    let error = said.lines().find(|line| line.starts_with("error:")).unwrap_or_default().to_owned();
    stage.say(&format!("   zombie wakes up: {BOLD}{error}{BOLD:#}"));
    stage.say(&format!(
        "   {GREEN}its command was stopped, exit {}{GREEN:#}; whoever checks epochs refuses its late writes too",
        status.unwrap_or_default()
    ));
    Ok(json!({ "epochBefore": before.id, "epochAfter": after.id, "zombieStatus": status }))
}

/// Two agents want two locks in opposite order. The second one is told at once, instead of both waiting for ever.
pub(super) fn deadlock(stage: &Stage) -> Result<Value, Failure> {
    stage.title(4, "A deadlock: refused at once, with the circle");
    let own = "exec /proc/$PPID/exe locks run";
    let first = stage.cast(&["locks", "run", "left", "--holder", "alice", "--", "sleep", "600"])?;
    stage.until("lock:acquired", "alice")?;
    let bob_script = format!("{own} left --holder bob-inner -- true");
    let second = stage.cast(&["locks", "run", "right", "--holder", "bob", "--", "sh", "-c", &bob_script])?;
    stage.until_line("left", 1)?;
    stage.say("   alice holds left; bob holds right and waits for left");
    let alice = stage.cast(&["locks", "acquire", "right", "--holder", "alice"])?;
    let (status, said) = alice.end()?;
    let error = said.lines().find(|line| line.starts_with("error:")).unwrap_or_default().to_owned();
    stage.say(&format!("   alice asks for right: {BOLD}{error}{BOLD:#}"));
    first.signal(Signal::TERM)?;
    first.end()?;
    let (bob, _) = second.end()?;
    stage.say(&format!(
        "   {GREEN}exit {}{GREEN:#}; alice gives up left, and bob goes on {DIM}(exit {}){DIM:#}\n",
        status.unwrap_or_default(),
        bob.unwrap_or_default()
    ));
    Ok(json!({ "aliceStatus": status, "bobStatus": bob, "message": error }))
}
