//! Programs that have a file open for writing. They write into the file wherever it is moved to, so its content is not
//! final while there is one.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{EAGAIN, F_RDLCK, F_SETLEASE, F_UNLCK, SIGURG, c_int};

/// The number of this command on Linux, which the `libc` crate does not define.
const F_SETSIG: c_int = 10;

/// Whether a program has a file open for writing. The kernel grants no read lease on such a file. Where leases are not
/// supported or not permitted, the answer is unknown and therefore no.
pub(super) fn has_writer(file: &File) -> bool {
    // An open of the file while the lease is held waits for its end and signals this process. The default signal kills;
    // this is ignored.
    let leased = control(file, F_SETSIG, SIGURG).and_then(|()| control(file, F_SETLEASE, F_RDLCK));
    match leased {
        Ok(()) => control(file, F_SETLEASE, F_UNLCK).is_err(),
        Err(error) => error.raw_os_error() == Some(EAGAIN),
    }
}

#[expect(unsafe_code, reason = "rustix knows no leases")]
fn control(file: &File, command: c_int, argument: c_int) -> io::Result<()> {
    // SAFETY: these commands take an integer, and the descriptor is open while the file is borrowed.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_writer_while_it_is_open_for_writing() {
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
