//! How an index changes text before it is stored and before it is looked for.

use std::fmt;

/// The case that letters get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LetterCase {
    /// The case in which they were written.
    #[default]
    AsWritten,
    /// Small letters.
    Lower,
    /// Capital letters.
    Upper,
}

/// The changes of text that an index asks for. Without any, terms are the values themselves. Indexes of the same part
/// of a column have the same entries only if these are equal too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Analysis {
    /// The case of letters.
    pub case: LetterCase,
    /// Whether text is brought to Unicode's form NFC, after the case.
    pub normalizes: bool,
    /// Whether characters beyond ASCII are replaced by similar ones of ASCII, where there are such. It comes last.
    pub folds_to_ascii: bool,
}

impl Analysis {
    /// Values as they are.
    pub const NONE: Analysis = Analysis { case: LetterCase::AsWritten, normalizes: false, folds_to_ascii: false };

    /// Whether values are left as they are.
    pub fn is_none(&self) -> bool {
        *self == Analysis::NONE
    }
}

/// The name in file names: small letters, digits and dashes; empty if values are left as they are.
impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let case = match self.case {
            LetterCase::AsWritten => None,
            LetterCase::Lower => Some("lower"),
            LetterCase::Upper => Some("upper"),
        };
        let words = [case, self.normalizes.then_some("nfc"), self.folds_to_ascii.then_some("ascii")];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        f.write_str(&words.join("-"))
    }
}
