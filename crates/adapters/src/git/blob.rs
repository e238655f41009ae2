//! The ids that git gives to files. A file whose bytes have the id in a commit is exactly the file of that commit,
//! which saves a run of git. A file that git filters, or whose line ends it converts, has another id; then git must
//! decide.

use std::io::{self, Read};

use ring::digest::{Algorithm, Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// The size of one read.
const PIECE: usize = 64 << 10;

/// Whether these bytes, `size` of them, are the blob with this id.
pub(super) fn is_blob(id: &str, size: u64, mut bytes: impl Read) -> io::Result<bool> {
    let Some(algorithm) = algorithm(id) else { return Ok(false) };
    let mut context = Context::new(algorithm);
    context.update(format!("blob {size}\0").as_bytes());
    let mut piece = vec![0; PIECE.min(usize::try_from(size).unwrap_or(PIECE)) + 1];
    let mut read = 0;
    loop {
        match bytes.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => {
                read += length as u64;
                context.update(&piece[..length]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let found: String = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(read == size && found == id)
}

/// A repository uses one of two hashes, which differ in their length.
fn algorithm(id: &str) -> Option<&'static Algorithm> {
    match id.len() {
        40 => Some(&SHA1_FOR_LEGACY_USE_ONLY),
        64 => Some(&SHA256),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_matches_its_sha1_and_its_sha256() {
        let ids =
            ["78981922613b2afb6025042ff6bd878ac1994e85", "f8625e43f9e04f24291f77cdbe4c71b3c2a3b0003f60419b3ed06a058d766c8b"];
        for id in ids {
            assert!(is_blob(id, 2, &b"a\n"[..]).unwrap(), "{id}");
            for (size, bytes) in [(2, &b"b\n"[..]), (3, b"a\n"), (2, b"a\nb"), (2, b"a")] {
                assert!(!is_blob(id, size, bytes).unwrap(), "{id} {size} {bytes:?}");
            }
        }
        assert!(!is_blob("7898", 2, &b"a\n"[..]).unwrap());
    }
}
