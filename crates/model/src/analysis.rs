//! The analysis of text by an index, before it is stored and before it is searched.

use std::fmt;

/// The case to which letters are changed.
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

/// The division of text into terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Division {
    /// The text is one term.
    #[default]
    Whole,
    /// Its words, by the rules of Unicode.
    Words,
    /// The parts between the occurrences of this character.
    Between(char),
}

/// A language: its code of two small letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Language(pub [u8; 2]);

impl Language {
    /// The code.
    pub fn code(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The changes of text that an index asks for. Without any, terms are the values themselves. Indexes of the same part
/// of a column have the same entries only if these are equal too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Analysis {
    /// The division of text, before any other change.
    pub division: Division,
    /// The case of letters.
    pub case: LetterCase,
    /// The language whose most frequent words are left out.
    pub stop_words: Option<Language>,
    /// The language by whose rules words are reduced to their stems.
    pub stems: Option<Language>,
    /// Whether text is brought to Unicode's form NFC, after the case.
    pub normalizes: bool,
    /// Whether characters beyond ASCII are replaced by similar ones of ASCII, if there are any. This is the last
    /// change.
    pub folds_to_ascii: bool,
    /// Whether a term is also found by its parts (LIKE '%text%').
    pub has_suffixes: bool,
}

impl Analysis {
    /// Values as they are.
    pub const NONE: Analysis = Analysis {
        division: Division::Whole,
        case: LetterCase::AsWritten,
        stop_words: None,
        stems: None,
        normalizes: false,
        folds_to_ascii: false,
        has_suffixes: false,
    };

    /// Whether values are left as they are.
    pub fn is_none(&self) -> bool {
        *self == Analysis::NONE
    }

    /// Whether a value can have several terms, or none.
    pub fn divides(&self) -> bool {
        self.division != Division::Whole
    }
}

/// The name in file names: small letters, digits and dashes; empty if values are left as they are.
impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let division = match self.division {
            Division::Whole => None,
            Division::Words => Some("words".to_owned()),
            Division::Between(character) => Some(format!("split{:x}", u32::from(character))),
        };
        let case = match self.case {
            LetterCase::AsWritten => None,
            LetterCase::Lower => Some("lower".to_owned()),
            LetterCase::Upper => Some("upper".to_owned()),
        };
        let flag = |is_set: bool, name: &str| is_set.then(|| name.to_owned());
        let parts = [
            division,
            case,
            self.stop_words.map(|language| format!("skip{}", language.code())),
            self.stems.map(|language| format!("stem{}", language.code())),
            flag(self.normalizes, "nfc"),
            flag(self.folds_to_ascii, "ascii"),
            flag(self.has_suffixes, "suffixes"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join("-"))
    }
}
