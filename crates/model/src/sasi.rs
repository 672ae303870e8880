//! The options of SASI indexes.

use std::collections::BTreeMap;

use crate::{Analysis, Division, Language, LetterCase};

/// The package of the analyzers' classes.
const ANALYZERS: &str = "org.apache.cassandra.index.sasi.analyzer.";

/// An analyzer of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SasiAnalyzer {
    /// `NoOpAnalyzer`, and no analyzer.
    None,
    /// `NonTokenizingAnalyzer`.
    NonTokenizing,
    /// `StandardAnalyzer`.
    Standard,
    /// `DelimiterAnalyzer`.
    Delimiter,
}

impl SasiAnalyzer {
    /// The analyzer of a class; `None` if there is no such class.
    pub fn of_class(class: &str) -> Option<SasiAnalyzer> {
        Some(match class.strip_prefix(ANALYZERS)? {
            "NoOpAnalyzer" => SasiAnalyzer::None,
            "NonTokenizingAnalyzer" => SasiAnalyzer::NonTokenizing,
            "StandardAnalyzer" => SasiAnalyzer::Standard,
            "DelimiterAnalyzer" => SasiAnalyzer::Delimiter,
            _ => return None,
        })
    }
}

/// The queries that a SASI index answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SasiMode {
    /// Beginnings of terms, and ranges of values that are no text.
    Prefix,
    /// Parts of terms.
    Contains,
    /// As `Prefix`, of values that few rows have.
    Sparse,
}

impl SasiMode {
    /// The mode of that name; `None` if there is none.
    pub fn of_name(name: &str) -> Option<SasiMode> {
        match name.to_uppercase().as_str() {
            "PREFIX" => Some(SasiMode::Prefix),
            "CONTAINS" => Some(SasiMode::Contains),
            "SPARSE" => Some(SasiMode::Sparse),
            _ => None,
        }
    }
}

/// The options of a SASI index that determine which queries it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SasiOptions<'o>(pub &'o BTreeMap<String, String>);

impl<'o> SasiOptions<'o> {
    fn get(self, name: &str) -> Option<&'o str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether an option is `true`. As in Cassandra, any other word means false.
    fn is(self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The mode; `None` if it is unknown.
    pub fn mode(self) -> Option<SasiMode> {
        self.get("mode").map_or(Some(SasiMode::Prefix), SasiMode::of_name)
    }

    /// Whether values are analyzed.
    pub fn is_analyzed(self) -> bool {
        self.is("analyzed").unwrap_or(self.get("analyzer_class").is_some())
    }

    /// Whether terms are strings, in an index of text (or not text).
    pub fn is_literal(self, is_text: bool) -> bool {
        self.is("is_literal").unwrap_or(is_text)
    }

    fn language(self) -> Option<Language> {
        let locale = self.get("tokenization_locale")?.to_lowercase();
        locale.as_bytes().first_chunk().copied().map(Language)
    }

    /// The character between the terms of a `DelimiterAnalyzer`.
    pub fn delimiter(self) -> Option<char> {
        self.get("delimiter").map_or(Some(','), |delimiter| delimiter.chars().next())
    }

    /// The analysis of text.
    pub fn analysis(self) -> Analysis {
        let has_suffixes = self.mode() == Some(SasiMode::Contains);
        let none = Analysis { has_suffixes, ..Analysis::NONE };
        if !self.is_analyzed() {
            return none;
        }
        let case = |lower: bool, upper: bool| match (lower, upper) {
            (true, _) => LetterCase::Lower,
            (_, true) => LetterCase::Upper,
            _ => LetterCase::AsWritten,
        };
        let is = |name: &str| self.is(name) == Some(true);
        match self.get("analyzer_class").map_or(Some(SasiAnalyzer::Standard), SasiAnalyzer::of_class) {
            None | Some(SasiAnalyzer::None) => none,
            Some(SasiAnalyzer::NonTokenizing) => {
                let is_lower = self.is("case_sensitive") == Some(false) || is("normalize_lowercase");
                Analysis { case: case(is_lower, is("normalize_uppercase")), normalizes: true, ..none }
            }
            Some(SasiAnalyzer::Standard) => {
                let language = self.language();
                Analysis {
                    division: Division::Words,
                    case: case(is("tokenization_normalize_lowercase"), is("tokenization_normalize_uppercase")),
                    stop_words: language.filter(|_| is("tokenization_skip_stop_words")),
                    stems: language.filter(|_| is("tokenization_enable_stemming")),
                    normalizes: true,
                    ..none
                }
            }
            Some(SasiAnalyzer::Delimiter) => {
                Analysis { division: Division::Between(self.delimiter().unwrap_or(',')), ..none }
            }
        }
    }
}
