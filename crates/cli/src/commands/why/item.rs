//! The item that a task is an attempt at, and its future.

use banksman_core::ItemId;
use banksman_core::task::{OfItem, State, TaskEnd};
use banksman_engine::why::{ItemFuture, Why};
use banksman_store::{Key, Reader};

use crate::failure::Failure;
use crate::format;
use crate::printer::DIM;
use crate::views::why::ItemView;

/// Adds a hint to `queues show` if the unknown task is an item.
pub(super) fn with_item_hint(reader: &mut Reader, name: &str, failure: Failure) -> Result<Failure, Failure> {
    let Ok(id) = name.parse::<ItemId>() else { return Ok(failure) };
    let items = reader.view().load(&[Key::Item(id)].into())?.tables.queues.items;
    let Some(item) = items.get(&id) else { return Ok(failure) };
    let show = format!("banksman queues show {} {id}", format::quoted(&item.queue));
    Ok(failure.hint(format!("it is an item of queue {}: {show}", item.queue)))
}

/// The line about the item below the answer.
pub(super) fn human(why: &Why) -> String {
    let Some((of, future)) = why.task.spec.item.as_deref().zip(why.item_future.as_ref()) else { return String::new() };
    let attempt = format::ordinal(of.attempt as usize);
    let mut text = format!(
        "\n  {DIM}item{DIM:#}  {} of queue {}, the {attempt} attempt of worker {}: {}",
        of.taken.item,
        of.taken.queue,
        of.worker,
        message(future, &why.task.state)
    );
    if let Some(hint) = hint(of, future) {
        text.push_str(&format!("\n        {DIM}try: {hint}{DIM:#}"));
    }
    text
}

pub(super) fn view(why: &Why) -> Option<ItemView<'_>> {
    let (of, future) = why.task.spec.item.as_deref().zip(why.item_future.as_ref())?;
    let standing = match future {
        ItemFuture::Open => "open",
        ItemFuture::Waits => "waiting",
        ItemFuture::Again { .. } => "again",
        ItemFuture::Dead { .. } => "dead",
        ItemFuture::Gone => "gone",
    };
    Some(ItemView {
        id: of.taken.item,
        queue: &of.taken.queue,
        worker: &of.worker,
        attempt: of.attempt,
        standing,
        message: message(future, &why.task.state),
        hint: hint(of, future),
    })
}

fn message(future: &ItemFuture, state: &State) -> String {
    match (future, state) {
        (ItemFuture::Open, State::Done(_)) => "it ends when a runner records the end of this task".into(),
        (ItemFuture::Open, _) => "it ends with this task".into(),
        (ItemFuture::Waits, _) => "it waits for the next attempt".into(),
        (ItemFuture::Again { task: Some(task), .. }, _) => format!("another attempt is in progress: {task}"),
        (ItemFuture::Again { holder, task: None }, _) => format!("another attempt is in progress, by {holder}"),
        (ItemFuture::Dead { queue, reason }, _) => format!("it is dead, in queue {queue}: {reason}"),
        (ItemFuture::Gone, State::Done(TaskEnd::Success { .. })) => "it is done".into(),
        (ItemFuture::Gone, _) => "it is no longer in a queue: another attempt has completed it, or it was removed".into(),
    }
}

fn hint(of: &OfItem, future: &ItemFuture) -> Option<String> {
    match future {
        ItemFuture::Dead { queue, .. } => Some(format!("banksman queues requeue {} {}", format::quoted(queue), of.taken.item)),
        ItemFuture::Open | ItemFuture::Waits | ItemFuture::Again { .. } | ItemFuture::Gone => None,
    }
}
