//! Wakes one waiter by a datagram, which carries no data: it means "check again".
//!
//! The sockets are in a directory of the project whose path may be longer than the 108 bytes of a socket address, so they are
//! bound and addressed through `/proc/self/fd`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Once;

use banksman_core::resource::grant::Address;
use rustix::fs::OFlags;

use crate::{ids, private};

/// How many sockets the first waiter of a process checks for dead waiters: more than one, so that their number falls.
const LEFTOVERS: usize = 8;

/// The directory of the sockets.
pub struct Exchange {
    dir: File,
    path: PathBuf,
    sender: UnixDatagram,
    /// Only the first waiter sweeps: repeated sweeps would delay processes that wait often.
    sweep: Once,
}

/// The socket that wakes one waiter. It is removed on drop.
pub struct Mailbox {
    address: Address,
    path: PathBuf,
    socket: UnixDatagram,
}

impl Exchange {
    /// Opens the exchange in `dir`, which must exist.
    pub fn open(dir: &Path) -> io::Result<Exchange> {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        Ok(Exchange {
            dir: private::open(dir, OFlags::RDONLY | OFlags::DIRECTORY)?,
            path: dir.into(),
            sender,
            sweep: Once::new(),
        })
    }

    /// Opens a mailbox under a unique name.
    pub fn mailbox(&self) -> io::Result<Mailbox> {
        let address = Address(format!("{}.wake", ids::short("w")).into());
        let socket = UnixDatagram::bind(self.short_path(&address))?;
        socket.set_nonblocking(true)?;
        let path = self.path.join(&*address.0);
        fs::set_permissions(self.short_path(&address), fs::Permissions::from_mode(0o600))?;
        private::give_entry_to_owner(&self.dir, Path::new(&*address.0));
        self.sweep.call_once(|| {
            self.sweep(LEFTOVERS);
        });
        Ok(Mailbox { address, path, socket })
    }

    /// A descriptor that never blocks and wakes this mailbox with every write.
    pub fn sender_to(&self, mailbox: &Mailbox) -> io::Result<OwnedFd> {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        sender.connect(self.short_path(&mailbox.address))?;
        Ok(sender.into())
    }

    /// The identity of the directory on this machine, independent of the path that leads to it.
    pub fn identity(&self) -> io::Result<String> {
        let found = self.dir.metadata()?;
        Ok(format!("{}:{}", found.dev(), found.ino()))
    }

    /// Wakes the waiter at an address. A full mailbox wakes its waiter anyway; a dead one is removed.
    pub fn wake(&self, address: &Address) -> io::Result<()> {
        if address.0.contains('/') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an address is a plain file name"));
        }
        match self.sender.send_to(b"!", self.short_path(address)) {
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::NotFound => Ok(()),
                io::ErrorKind::ConnectionRefused => match fs::remove_file(self.path.join(&*address.0)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                },
                _ => Err(error),
            },
        }
    }

    /// Wakes all waiters.
    pub fn wake_all(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        // A waiter that cannot be woken is gone, or polls at its own interval.
        names.filter(|name| name.ends_with(".wake")).for_each(|name| drop(self.wake(&Address(name.into()))));
    }

    /// Removes the sockets of killed waiters, checking at most `most` sockets. Returns the number of removed sockets.
    pub fn sweep(&self, most: usize) -> usize {
        // A socket that cannot be removed does no harm.
        self.deserted(most).iter().filter(|address| fs::remove_file(self.path.join(&*address.0)).is_ok()).count()
    }

    /// The sockets that no process is bound to, among at most `most` sockets.
    pub fn deserted(&self, most: usize) -> Vec<Address> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let sockets = names.filter(|name| name.ends_with(".wake")).take(most).map(|name| Address(name.into()));
        sockets.filter(|address| self.is_deserted(address)).collect()
    }

    /// Whether no process is bound to a socket. Connecting wakes no waiter.
    fn is_deserted(&self, address: &Address) -> bool {
        let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(self.short_path(address)));
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    fn short_path(&self, address: &Address) -> PathBuf {
        format!("/proc/self/fd/{}/{}", self.dir.as_raw_fd(), address.0).into()
    }
}

impl Mailbox {
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Discards the datagrams that have arrived, so that the next wait does not end at once.
    pub fn empty(&self) {
        let mut byte = [0u8; 1];
        while self.socket.recv(&mut byte).is_ok() {}
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // If it cannot be removed, the next sender, which is refused, removes it.
        fs::remove_file(&self.path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn a_waiter_behind_a_very_long_path_is_woken() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(200));
        fs::create_dir(&deep).unwrap();
        let exchange = Exchange::open(&deep).unwrap();
        let mailbox = exchange.mailbox().unwrap();
        exchange.wake(mailbox.address()).unwrap();
        assert_eq!(poll(&mut [PollFd::new(&mailbox, PollFlags::IN)], None).unwrap(), 1);
        mailbox.empty();
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&mailbox, PollFlags::IN)], Some(&now)).unwrap(), 0);
    }

    #[test]
    fn the_socket_of_a_dead_waiter_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let exchange = Exchange::open(dir.path()).unwrap();
        let mailbox = exchange.mailbox().unwrap();
        let address = mailbox.address().clone();
        let mut leftover = mailbox;
        leftover.path = dir.path().join("elsewhere");
        drop(leftover);
        assert!(dir.path().join(&*address.0).exists());
        exchange.wake(&address).unwrap();
        assert!(!dir.path().join(&*address.0).exists());
        exchange.wake(&address).unwrap();
    }

    #[test]
    fn a_sweep_removes_only_sockets_of_dead_waiters() {
        let dir = tempfile::tempdir().unwrap();
        let exchange = Exchange::open(dir.path()).unwrap();
        for number in 0..LEFTOVERS {
            drop(UnixDatagram::bind(dir.path().join(format!("w-{number}.wake"))).unwrap());
        }
        let mailbox = exchange.mailbox().unwrap();
        exchange.sweep(usize::MAX);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, [&*mailbox.address().0]);
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&mailbox, PollFlags::IN)], Some(&now)).unwrap(), 0, "the sweep wakes no waiter");
    }
}
