//! Suggestions for misspelled words.

/// How many letters must be added, removed or replaced to change one word into the other.
pub fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (index, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[index + 1];
            row[index + 1] = replaced.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[to.len()]
}

/// The word that was most likely meant, if one is near.
pub fn closest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let meant = plain(word);
    // In a short word, a second typo makes it another word.
    let limit = match word.chars().count() {
        0..=4 => 1,
        5..=11 => 2,
        length => length / 4,
    };
    let score = |other: &'a str| {
        let plain = plain(other);
        // An abbreviation counts as one typo: `desc` for `description`.
        let begun = meant.len() > 2 && plain.starts_with(&meant);
        let apart = if begun || is_swapped(&meant, &plain) { 1 } else { distance(&meant, &plain) };
        // Two short words are near each other even if they share no letter.
        (apart <= limit && apart < meant.chars().count().min(plain.chars().count())).then_some((apart, other))
    };
    // Most words are too long or too short to be compared letter by letter.
    let alike = |other: &&str| other.len() + 2 * limit >= word.len() && other.len() <= word.len() + 64;
    words.into_iter().filter(alike).filter_map(score).min_by_key(|(apart, _)| *apart).map(|(_, other)| other)
}

fn plain(text: &str) -> String {
    text.replace(['_', '-', ' '], "").to_lowercase()
}

/// Whether two adjacent letters are swapped, and nothing else differs.
fn is_swapped(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) else { return false };
    a.len() == b.len() && at + 1 < a.len() && a[at] == b[at + 1] && a[at + 1] == b[at] && a[at + 2..] == b[at + 2..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edited_letters() {
        assert_eq!([distance("", "abc"), distance("kitten", "sitting"), distance("same", "same")], [3, 3, 0]);
    }

    #[test]
    fn suggest_finds_the_word_for_a_typo_only() {
        let words = ["description", "pre", "post", "run", "argv", "retries", "on_fail"];
        for (typo, meant) in [
            ("desc", "description"),
            ("pst", "post"),
            ("retires", "retries"),
            ("onfail", "on_fail"),
            ("Run", "run"),
            ("psot", "post"),
        ] {
            assert_eq!(closest(typo, words), Some(meant), "{typo}");
        }
        for nonsense in ["", "x", "abc", "tops", "frobnicate"] {
            assert_eq!(closest(nonsense, words), None, "{nonsense}");
        }
    }
}
