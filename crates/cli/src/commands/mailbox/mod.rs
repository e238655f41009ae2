//! Mailboxes: the messages for a run, and the receipts of sent messages.

mod list;
mod read;

subcommands! {
    /// Read the messages of a task, and show their delivery status.
    #[command(
        after_help = "Examples:\n  banksman mailbox read --wait --timeout 10m\n  banksman mailbox list --task 'Add login'\n  banksman mailbox show m-7k2m9q1a"
    )]
    pub(crate) noun Mailbox {
        Read(read::Read),
        List(list::List),
        Show(list::Show),
    }
}
