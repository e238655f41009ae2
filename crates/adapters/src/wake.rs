//! One datagram to one waiter. It carries nothing: it says "look again".
//!
//! Sockets live in a directory of the project whose path may be longer than the 108 bytes of a socket address, so
//! they are bound and addressed through `/proc/self/fd`.

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

/// How many sockets the first waiter of a process looks at, to clear away those of the dead: more than one, so that they become fewer.
const LEFTOVERS: usize = 8;

/// The directory of the sockets.
pub struct Exchange {
    dir: File,
    path: PathBuf,
    sender: UnixDatagram,
    /// Done by the first waiter: those who wait again and again would only delay each other.
    sweep: Once,
}

/// A place at which one waiter can be woken. It disappears with this value.
pub struct Mailbox {
    address: Address,
    path: PathBuf,
    socket: UnixDatagram,
}

impl Exchange {
    /// Uses `dir`, which must exist.
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

    /// Opens a place to be woken at, under a name that nobody else has.
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

    /// A descriptor that wakes this mailbox with every write, and never blocks.
    pub fn sender_to(&self, mailbox: &Mailbox) -> io::Result<OwnedFd> {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        sender.connect(self.short_path(&mailbox.address))?;
        Ok(sender.into())
    }

    /// What tells this directory from every other one of this machine, by whatever path it is reached.
    pub fn identity(&self) -> io::Result<String> {
        let found = self.dir.metadata()?;
        Ok(format!("{}:{}", found.dev(), found.ino()))
    }

    /// Wakes whoever waits there. A full mailbox already says all; a dead one is cleared away.
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

    /// Wakes everybody.
    pub fn wake_all(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        // Who cannot be woken is gone, or looks by itself now and then.
        names.filter(|name| name.ends_with(".wake")).for_each(|name| drop(self.wake(&Address(name.into()))));
    }

    /// Removes the sockets of waiters that were killed, looking at no more than `most` of those that are there. Returns how many.
    pub fn sweep(&self, most: usize) -> usize {
        // What cannot be removed is in nobody's way.
        self.deserted(most).iter().filter(|address| fs::remove_file(self.path.join(&*address.0)).is_ok()).count()
    }

    /// The sockets, of at most so many, that nobody is bound to.
    pub fn deserted(&self, most: usize) -> Vec<Address> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let sockets = names.filter(|name| name.ends_with(".wake")).take(most).map(|name| Address(name.into()));
        sockets.filter(|address| self.is_deserted(address)).collect()
    }

    /// Whether nobody is bound to a socket. To connect wakes nobody.
    fn is_deserted(&self, address: &Address) -> bool {
        let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(self.short_path(address)));
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    fn short_path(&self, address: &Address) -> PathBuf {
        format!("/proc/self/fd/{}/{}", self.dir.as_raw_fd(), address.0).into()
    }
}

impl Mailbox {
    /// Where to be woken.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Takes out what has arrived, so that the next wait does not end at once.
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
        // If it cannot be removed, the first who gets no answer there removes it.
        fs::remove_file(&self.path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn a_waiter_is_woken_also_behind_a_very_long_path() {
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
    fn the_socket_of_a_dead_waiter_is_cleared_away() {
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
    fn sockets_of_the_dead_are_swept_and_those_of_the_living_are_not() {
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
        assert_eq!(poll(&mut [PollFd::new(&mailbox, PollFlags::IN)], Some(&now)).unwrap(), 0, "it was not woken");
    }
}
