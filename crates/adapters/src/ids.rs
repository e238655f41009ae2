//! Short random names that are easy to read aloud and to find by a prefix.

/// Digits and letters, without letters that are easily confused.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// `length` random characters, five bits each.
pub fn random(length: usize) -> String {
    let mut bytes = vec![0u8; length];
    let mut filled = 0;
    while filled < length {
        // The only errors are a missing system call and an interruption before the pool is ready.
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    }
    bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
}

/// A name such as `h-7k2m9q`.
pub fn short(prefix: &str) -> String {
    format!("{prefix}-{}", random(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_are_plain() {
        let names: std::collections::BTreeSet<String> = (0..1_000).map(|_| short("h")).collect();
        assert_eq!(names.len(), 1_000);
        assert!(names.iter().all(|name| name.len() == 10 && name.is_ascii()));
    }
}
