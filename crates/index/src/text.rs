//! The analysis of text: it turns a written text, or a searched one, into the terms of an index.

mod ascii;
mod words;

use std::borrow::Cow;

use model::{Analysis, Division, LetterCase};
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// The greatest size of a term of tokenized text or of a suffix, bytes. Larger ones are left out, as in Cassandra's
/// SASI indexes.
const TERM_BYTES_MAX: usize = 1024;
/// The greatest length of a suffix in an index, characters. Longer ones are cut.
const SUFFIX_CHARACTERS: usize = 8;

/// Analyzes a value without tokenizing it: first the case, then the normal form, then the characters beyond ASCII. A
/// value that is not text is not changed.
pub fn analysed(analysis: Analysis, value: &[u8]) -> Cow<'_, [u8]> {
    if analysis.is_none() {
        return Cow::Borrowed(value);
    }
    let Ok(text) = std::str::from_utf8(value) else { return Cow::Borrowed(value) };
    match changed(analysis, text) {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// The terms of a value in an index with this analysis, in the order of the text. A value that is not text has none.
pub fn terms(analysis: Analysis, value: &[u8]) -> Vec<String> {
    std::str::from_utf8(value).map_or_else(|_| Vec::new(), |text| each_term(analysis, text).collect())
}

/// As [`terms`], but made one at a time, because a long text may have millions.
pub(crate) fn each_term<'t>(analysis: Analysis, text: &'t str) -> Box<dyn Iterator<Item = String> + 't> {
    if analysis.is_none() {
        return Box::new(std::iter::once(text.to_owned()));
    }
    let terms: Box<dyn Iterator<Item = String>> = match analysis.division {
        Division::Whole => Box::new(std::iter::once(changed(analysis, text).into_owned())),
        Division::Between(separator) => {
            let parts = text.split(separator).filter(|part| !part.is_empty());
            Box::new(parts.map(move |part| changed(analysis, part).into_owned()))
        }
        Division::Words => Box::new(words::of(text).filter_map(move |word| words::term(analysis, word))),
    };
    match analysis.divides() || analysis.has_suffixes {
        true => Box::new(terms.filter(|term| term.len() <= TERM_BYTES_MAX)),
        false => terms,
    }
}

/// The proper suffixes of a term, each cut after a few characters.
pub(crate) fn cut_suffixes(term: &str) -> impl Iterator<Item = &str> {
    term.char_indices().skip(1).map(|(start, _)| cut_suffix(&term[start..]))
}

/// A suffix in the form that an index stores.
pub(crate) fn cut_suffix(suffix: &str) -> &str {
    let end = suffix.char_indices().nth(SUFFIX_CHARACTERS).map_or(suffix.len(), |(end, _)| end);
    &suffix[..end]
}

fn changed(analysis: Analysis, text: &str) -> Cow<'_, str> {
    let mut text = match analysis.case {
        LetterCase::AsWritten => Cow::Borrowed(text),
        LetterCase::Lower => Cow::Owned(text.to_lowercase()),
        LetterCase::Upper => Cow::Owned(text.to_uppercase()),
    };
    if analysis.normalizes && !is_nfc(&text) {
        text = Cow::Owned(text.nfc().collect());
    }
    if analysis.folds_to_ascii && !text.is_ascii() {
        text = Cow::Owned(ascii::folded(&text));
    }
    text
}

#[cfg(test)]
mod tests {
    use model::Language;

    use super::*;

    fn text(analysis: Analysis, value: &str) -> String {
        String::from_utf8(analysed(analysis, value.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn each_change_is_made_alone_and_in_cassandras_order() {
        let lower = Analysis { case: LetterCase::Lower, ..Analysis::NONE };
        let upper = Analysis { case: LetterCase::Upper, ..Analysis::NONE };
        let normal = Analysis { normalizes: true, ..Analysis::NONE };
        let ascii = Analysis { folds_to_ascii: true, ..Analysis::NONE };
        let all = Analysis { case: LetterCase::Lower, normalizes: true, folds_to_ascii: true, ..Analysis::NONE };
        for (analysis, written, expected) in [
            (Analysis::NONE, "\u{c9}a", "\u{c9}a"),
            (lower, "ABC \u{c9}\u{3a3}", "abc \u{e9}\u{3c2}"),
            (lower, "\u{3a3}\u{c9}", "\u{3c3}\u{e9}"),
            (upper, "abc \u{df}", "ABC SS"),
            (normal, "E\u{301}", "\u{c9}"),
            (ascii, "\u{c9}\u{153}\u{fb03} \u{20ac}", "Eoeffi \u{20ac}"),
            // The decomposed letter has no counterpart of ASCII before it is composed.
            (ascii, "E\u{301}", "E\u{301}"),
            (all, "E\u{301}A", "ea"),
        ] {
            assert_eq!(text(analysis, written), expected, "{analysis} of {written}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_left_as_they_are_and_have_no_terms() {
        let lower = Analysis { case: LetterCase::Lower, ..Analysis::NONE };
        assert_eq!(*analysed(lower, b"A\xff"), *b"A\xff");
        assert!(terms(lower, b"A\xff").is_empty());
    }

    #[test]
    fn text_is_divided_into_words_or_at_a_character() {
        let english = Some(Language(*b"en"));
        let words = Analysis { division: Division::Words, ..Analysis::NONE };
        let stems = Analysis { case: LetterCase::Lower, stop_words: english, stems: english, ..words };
        let split = Analysis { division: Division::Between(','), ..Analysis::NONE };
        for (analysis, text, expected) in [
            (words, "Don't stop, foo@bar.com 3.14 x_y", &["Don't", "stop", "foo", "bar.com", "3.14", "x_y"][..]),
            (stems, "The running runners", &["run", "runner"]),
            (stems, "the and", &[]),
            (split, "a,,b c,", &["a", "b c"]),
            (split, "", &[]),
        ] {
            assert_eq!(terms(analysis, text.as_bytes()), expected, "{analysis} of {text}");
        }
        let long = "x".repeat(TERM_BYTES_MAX + 1);
        assert!(terms(split, long.as_bytes()).is_empty());
        assert_eq!(terms(Analysis::NONE, long.as_bytes()), [long]);
    }

    #[test]
    fn suffixes_are_cut_at_characters() {
        let suffixes: Vec<&str> = cut_suffixes("a\u{e9}bcdefghij").collect();
        assert_eq!(suffixes[..3], ["\u{e9}bcdefgh", "bcdefghi", "cdefghij"]);
        assert_eq!(suffixes.last(), Some(&"j"));
        assert_eq!(cut_suffixes("").count(), 0);
    }
}
