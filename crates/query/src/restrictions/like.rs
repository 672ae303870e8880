//! LIKE: patterns, and the texts that they match.

use model::{Analysis, Index, SasiMode};

use crate::QueryError;

const WILDCARD: u8 = b'%';

/// The place at which a text must contain the wanted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The text is the wanted one.
    Whole,
    /// `abc%`
    Start,
    /// `%abc`
    End,
    /// `%abc%`
    Anywhere,
}

impl Place {
    /// The relation's operator as Cassandra prints it.
    fn operator(self) -> &'static str {
        match self {
            Place::Whole => "LIKE '<term>'",
            Place::Start => "LIKE '<term>%'",
            Place::End => "LIKE '%<term>'",
            Place::Anywhere => "LIKE '%<term>%'",
        }
    }

    /// The pattern for this text at this place.
    pub fn pattern(self, text: &str) -> String {
        match self {
            Place::Whole => text.to_owned(),
            Place::Start => format!("{text}%"),
            Place::End => format!("%{text}"),
            Place::Anywhere => format!("%{text}%"),
        }
    }
}

/// A pattern in an execution.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub place: Place,
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
        let (place, text) = match (starts_open, ends_open) {
            (true, true) => (Place::Anywhere, pattern.get(1..pattern.len().saturating_sub(1)).unwrap_or_default()),
            (false, true) => (Place::Start, pattern.get(..pattern.len() - 1).unwrap_or_default()),
            (true, false) => (Place::End, pattern.get(1..).unwrap_or_default()),
            (false, false) => (Place::Whole, pattern),
        };
        if text.is_empty() {
            return Err(empty());
        }
        let pattern = Pattern { place, text: text.to_vec(), terms: engine::terms(analysis, text), analysis };
        match answers(index, analysis, place) {
            true => Ok(pattern),
            false => Err(QueryError::invalid(format!(
                "{} {} {} is only supported on properly indexed columns",
                index.column,
                place.operator(),
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
        let is_wanted = |term: &str, wanted: &str| match self.place {
            Place::Whole => term == wanted,
            Place::Start => term.starts_with(wanted),
            Place::End => term.ends_with(wanted),
            Place::Anywhere => term.contains(wanted),
        };
        !self.terms.is_empty() && self.terms.iter().all(|wanted| found.iter().any(|term| is_wanted(term, wanted)))
    }

    /// The term by which an index is searched: the longest one.
    pub fn longest(&self) -> Option<&str> {
        self.terms.iter().map(String::as_str).max_by_key(|term| term.len())
    }
}

/// Whether a SASI index answers a LIKE for a text at this place.
fn answers(index: &Index, analysis: Analysis, place: Place) -> bool {
    match (index.sasi_options().mode(), place) {
        (_, Place::Whole) => true,
        // Words are found by what they contain, and not by what they begin with.
        (Some(SasiMode::Contains), Place::Start) => !analysis.divides(),
        (Some(SasiMode::Contains), _) => true,
        (_, place) => place == Place::Start,
    }
}
