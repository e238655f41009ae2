//! The item that a task is an attempt at, and what becomes of it.

use banksman_core::ItemId;
use banksman_core::task::{Done, OfItem, State};
use banksman_engine::why::{Fate, Why};
use banksman_store::{Key, Reader};

use crate::failure::Failure;
use crate::printer::DIM;
use crate::views::why::ItemView;
use crate::words;

/// Whoever asks about an item is sent to where that is told of.
pub(super) fn meant(reader: &mut Reader, name: &str, failure: Failure) -> Result<Failure, Failure> {
    let Ok(id) = name.parse::<ItemId>() else { return Ok(failure) };
    let items = reader.view().load(&[Key::Item(id)].into())?.queues.items;
    let Some(item) = items.get(&id) else { return Ok(failure) };
    let show = format!("banksman queues show {} {id}", words::quoted(&item.queue));
    Ok(failure.hint(format!("it is an item of queue {}: {show}", item.queue)))
}

/// A line below the answer.
pub(super) fn human(why: &Why) -> String {
    let Some((of, fate)) = why.task.spec.item.as_deref().zip(why.fate.as_ref()) else { return String::new() };
    let attempt = words::ordinal(of.attempt as usize);
    let mut text = format!(
        "\n  {DIM}item{DIM:#}  {} of queue {}, the {attempt} attempt of worker {}: {}",
        of.taken.item,
        of.taken.queue,
        of.worker,
        message(fate, &why.task.state)
    );
    if let Some(hint) = hint(of, fate) {
        text.push_str(&format!("\n        {DIM}try: {hint}{DIM:#}"));
    }
    text
}

pub(super) fn view(why: &Why) -> Option<ItemView<'_>> {
    let (of, fate) = why.task.spec.item.as_deref().zip(why.fate.as_ref())?;
    let standing = match fate {
        Fate::Open => "open",
        Fate::Waits => "waiting",
        Fate::Again { .. } => "again",
        Fate::Dead { .. } => "dead",
        Fate::Gone => "gone",
    };
    Some(ItemView {
        id: of.taken.item,
        queue: &of.taken.queue,
        worker: &of.worker,
        attempt: of.attempt,
        standing,
        message: message(fate, &why.task.state),
        hint: hint(of, fate),
    })
}

fn message(fate: &Fate, state: &State) -> String {
    match (fate, state) {
        (Fate::Open, State::Done(_)) => "it ends so as soon as a runner looks".into(),
        (Fate::Open, _) => "it ends as this task does".into(),
        (Fate::Waits, _) => "it waits for the next attempt".into(),
        (Fate::Again { task: Some(task), .. }, _) => format!("another attempt is made, {task}"),
        (Fate::Again { holder, task: None }, _) => format!("another attempt is made, by {holder}"),
        (Fate::Dead { queue, reason }, _) => format!("it is dead, in queue {queue}: {reason}"),
        (Fate::Gone, State::Done(Done::Success { .. })) => "it is done".into(),
        (Fate::Gone, _) => "it is not in a queue any more: another attempt has completed it, or it was removed".into(),
    }
}

fn hint(of: &OfItem, fate: &Fate) -> Option<String> {
    match fate {
        Fate::Dead { queue, .. } => Some(format!("banksman queues requeue {} {}", words::quoted(queue), of.taken.item)),
        Fate::Open | Fate::Waits | Fate::Again { .. } | Fate::Gone => None,
    }
}
