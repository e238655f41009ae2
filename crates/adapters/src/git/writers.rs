//! Programs that have a file open for writing. What they write goes into that file wherever it was moved to, so its content proves nothing as
//! long as there is one.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{EAGAIN, F_RDLCK, F_SETLEASE, F_UNLCK, SIGURG, c_int};

/// The number of the command on Linux, which the crate does not name.
const F_SETSIG: c_int = 10;

/// Whether a program has a file open for writing. The kernel gives no lease for reading on such a file. Where there are no leases, or not for
/// us, nothing is known, and the answer is no.
pub(super) fn has_writer(file: &File) -> bool {
    // Who opens the file while the lease is held waits for its end, and we would be told by a signal that kills: this one is ignored.
    let leased = control(file, F_SETSIG, SIGURG).and_then(|()| control(file, F_SETLEASE, F_RDLCK));
    match leased {
        Ok(()) => control(file, F_SETLEASE, F_UNLCK).is_err(),
        Err(error) => error.raw_os_error() == Some(EAGAIN),
    }
}

#[expect(unsafe_code, reason = "rustix knows no leases")]
fn control(file: &File, command: c_int, argument: c_int) -> io::Result<()> {
    // SAFETY: these commands take a number, and the descriptor is open as long as the file is borrowed.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_writer_as_long_as_one_has_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "before").unwrap();
        let file = File::open(&path).unwrap();
        assert!(!has_writer(&file));
        let reader = File::open(&path).unwrap();
        assert!(!has_writer(&file), "a reader");
        let writer = File::options().append(true).open(&path).unwrap();
        assert!(has_writer(&file));
        drop(writer);
        assert!(!has_writer(&file));
        drop(reader);
        File::options().append(true).open(&path).expect("no lease is left");
    }
}
