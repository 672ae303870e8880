//! LIKE: patterns, and the texts that they match.

use model::{Analysis, Index, SasiMode};

use crate::QueryError;

const WILDCARD: u8 = b'%';

/// The part of a text that must be the wanted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LikeAnchor {
    /// The text is the wanted one.
    Whole,
    /// `abc%`
    Start,
    /// `%abc`
    End,
    /// `%abc%`
    Anywhere,
}

impl LikeAnchor {
    /// The relation's operator as Cassandra prints it.
    fn operator(self) -> &'static str {
        match self {
            LikeAnchor::Whole => "LIKE '<term>'",
            LikeAnchor::Start => "LIKE '<term>%'",
            LikeAnchor::End => "LIKE '%<term>'",
            LikeAnchor::Anywhere => "LIKE '%<term>%'",
        }
    }

    /// The pattern for this text.
    pub fn pattern(self, text: &str) -> String {
        match self {
            LikeAnchor::Whole => text.to_owned(),
            LikeAnchor::Start => format!("{text}%"),
            LikeAnchor::End => format!("%{text}"),
            LikeAnchor::Anywhere => format!("%{text}%"),
        }
    }
}

/// A pattern in an execution.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub anchor: LikeAnchor,
    /// The wanted text as it was written.
    pub text: Vec<u8>,
    /// The wanted terms, as the index changes text.
    pub terms: Vec<String>,
    pub analysis: Analysis,
}

impl Pattern {
    /// Reads a pattern for the column of an index. A wildcard counts at the start and at the end.
    pub fn read(pattern: &[u8], index: &Index, analysis: Analysis) -> Result<Pattern, QueryError> {
        let empty = || QueryError::invalid("LIKE value can't be empty.");
        let starts_open = pattern.first() == Some(&WILDCARD);
        let ends_open = pattern.last() == Some(&WILDCARD);
        let (anchor, text) = match (starts_open, ends_open) {
            (true, true) => (LikeAnchor::Anywhere, pattern.get(1..pattern.len().saturating_sub(1)).unwrap_or_default()),
            (false, true) => (LikeAnchor::Start, pattern.get(..pattern.len() - 1).unwrap_or_default()),
            (true, false) => (LikeAnchor::End, pattern.get(1..).unwrap_or_default()),
            (false, false) => (LikeAnchor::Whole, pattern),
        };
        if text.is_empty() {
            return Err(empty());
        }
        let pattern = Pattern { anchor, text: text.to_vec(), terms: engine::terms(analysis, text), analysis };
        match answers(index, analysis, anchor) {
            true => Ok(pattern),
            false => Err(QueryError::invalid(format!(
                "{} {} {} is only supported on properly indexed columns",
                index.column,
                anchor.operator(),
                pattern.shown()
            ))),
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }

    /// Whether a value has all of the terms.
    pub fn matches(&self, value: &[u8]) -> bool {
        let found = engine::terms(self.analysis, value);
        let is_wanted = |term: &str, wanted: &str| match self.anchor {
            LikeAnchor::Whole => term == wanted,
            LikeAnchor::Start => term.starts_with(wanted),
            LikeAnchor::End => term.ends_with(wanted),
            LikeAnchor::Anywhere => term.contains(wanted),
        };
        !self.terms.is_empty() && self.terms.iter().all(|wanted| found.iter().any(|term| is_wanted(term, wanted)))
    }

    /// The term by which an index is searched: the longest one.
    pub fn longest(&self) -> Option<&str> {
        self.terms.iter().map(String::as_str).max_by_key(|term| term.len())
    }
}

/// Whether a SASI index answers a LIKE for a text.
fn answers(index: &Index, analysis: Analysis, anchor: LikeAnchor) -> bool {
    match (index.sasi_options().mode(), anchor) {
        (_, LikeAnchor::Whole) => true,
        // Words are found by what they contain, and not by what they begin with.
        (Some(SasiMode::Contains), LikeAnchor::Start) => !analysis.divides(),
        (Some(SasiMode::Contains), _) => true,
        (_, anchor) => anchor == LikeAnchor::Start,
    }
}
