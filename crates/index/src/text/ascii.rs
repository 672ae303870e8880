//! Replacement of characters beyond ASCII by similar ones of ASCII, as Lucene's `ASCIIFoldingFilter` does it.

use std::sync::OnceLock;

/// Each line has a replacement in ASCII, a tab, and the characters that it replaces.
const TABLE: &str = include_str!("ascii.txt");

/// The characters with their replacements, by character.
fn replacements() -> &'static [(char, &'static str)] {
    static SORTED: OnceLock<Vec<(char, &'static str)>> = OnceLock::new();
    SORTED.get_or_init(|| {
        let lines = TABLE.lines().filter_map(|line| line.split_once('\t'));
        let mut all: Vec<_> =
            lines.flat_map(|(ascii, characters)| characters.chars().map(move |character| (character, ascii))).collect();
        all.sort_unstable();
        all
    })
}

/// The text with each character that has a replacement replaced.
pub(super) fn folded(text: &str) -> String {
    let all = replacements();
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match all.binary_search_by_key(&character, |(known, _)| *known) {
            Ok(place) if !character.is_ascii() => out.push_str(all[place].1),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replacement_is_ascii_and_every_character_has_one_at_most() {
        let all = replacements();
        assert!(all.len() > 1000, "{} characters", all.len());
        assert!(all.iter().all(|(character, ascii)| !character.is_ascii() && ascii.is_ascii()));
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
