//! What was meant by a word that is almost right.

/// How many letters must be added, removed or replaced to turn one word into the other.
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

/// Which of these words was most likely meant, if one is near.
pub fn near<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['_', '-', ' '], "").to_lowercase();
    let (meant, limit) = (plain(word), 2.max(word.len() / 4));
    let score = |other: &str| {
        // A word that the other begins with is as good as a slip: `desc` for `description`.
        let begun = meant.len() > 2 && plain(other).starts_with(&meant);
        let apart = if begun { 1 } else { distance(&meant, &plain(other)) };
        // Two short words are near each other even if they share no letter.
        (apart <= limit && apart < other.chars().count().min(word.chars().count())).then_some(apart)
    };
    // Most words are too long or too short to be looked at letter by letter.
    let alike = |other: &&str| other.len() + limit >= word.len() && (other.len() <= word.len() + limit || other.len() < 64);
    let scored = words.into_iter().filter(alike).filter_map(|other| Some((score(other)?, other)));
    scored.min_by_key(|(score, _)| *score).map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        assert_eq!([distance("", "abc"), distance("kitten", "sitting"), distance("same", "same")], [3, 3, 0]);
    }

    #[test]
    fn a_slip_finds_its_word_and_nonsense_finds_none() {
        let words = ["description", "pre", "post", "run", "argv", "retries", "on_fail"];
        for (slip, meant) in
            [("desc", "description"), ("pst", "post"), ("retires", "retries"), ("onfail", "on_fail"), ("Run", "run")]
        {
            assert_eq!(near(slip, words), Some(meant), "{slip}");
        }
        for nonsense in ["", "x", "abc", "frobnicate"] {
            assert_eq!(near(nonsense, words), None, "{nonsense}");
        }
    }
}
