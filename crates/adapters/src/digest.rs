//! Hashes and signatures, as hexadecimal digits.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The SHA-256 of these parts. Each part is hashed with its length, so that different lists of parts give different input.
pub fn sha256(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// The HMAC-SHA256 of a message.
pub fn hmac_sha256(secret: &[u8], message: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("an HMAC takes a key of any length");
    mac.update(message);
    hex(&mac.finalize().into_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_matches_rfc_4231() {
        let signature = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hmac_sha256(b"Jefe", b"what do ya want for nothing?"), signature);
    }

    #[test]
    fn parts_are_kept_apart() {
        assert_ne!(sha256(&[b"ab", b"c"]), sha256(&[b"a", b"bc"]));
        assert_eq!(sha256(&[b"ab", b"c"]), sha256(&[b"ab", b"c"]));
    }
}
