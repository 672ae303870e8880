//! The text that an index has entries of, and looks for, instead of the text that was written.

mod ascii;

use std::borrow::Cow;

use model::{Analysis, LetterCase};
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// Changes a value as an index with this analysis does: the case first, then the normal form, then what is beyond
/// ASCII. A value that is no text is left as it is.
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
        let all = Analysis { case: LetterCase::Lower, normalizes: true, folds_to_ascii: true };
        for (analysis, written, expected) in [
            (Analysis::NONE, "\u{c9}a", "\u{c9}a"),
            (lower, "ABC \u{c9}\u{3a3}", "abc \u{e9}\u{3c2}"),
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
    fn bytes_that_are_no_text_are_left_as_they_are() {
        let lower = Analysis { case: LetterCase::Lower, ..Analysis::NONE };
        assert_eq!(*analysed(lower, b"A\xff"), *b"A\xff");
    }
}
