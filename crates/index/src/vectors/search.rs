//! A search for the rows with the most similar vectors in all sources of an index, the most similar first.

use sstable::SSTableError;

use crate::entry::KeyBounds;

/// The number of vectors that a source compares before the caller checks its limits.
const STEPS: usize = 1024;

/// The vectors of one index in one source, in order of their similarity to a wanted one.
pub trait VectorSource: Send {
    /// Compares about `steps` more vectors. Returns whether the next best one is known.
    fn search(&mut self, steps: usize) -> Result<bool, SSTableError>;

    /// The similarity of the next best vector; `None` after the last one.
    fn best(&self) -> Option<f32>;

    /// Moves past the best vector, and replaces `key` with its key. The next best one must be searched.
    fn take(&mut self, key: &mut Vec<u8>) -> Result<(), SSTableError>;

    /// The bytes that the search holds.
    fn held_bytes(&self) -> usize;
}

/// The result of a step of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchStep {
    /// The next row, and the similarity of its vector in some source.
    Candidate(f32),
    /// No candidate yet. The number estimates how many vectors were compared.
    Nothing(u64),
    /// There are no more rows.
    End,
}

/// A search in all sources.
pub struct NearestSearch {
    sources: Vec<Searched>,
    bounds: KeyBounds,
}

struct Searched {
    source: Box<dyn VectorSource>,
    is_known: bool,
}

impl NearestSearch {
    /// A search for rows within some partitions.
    pub fn new(sources: Vec<Box<dyn VectorSource>>, bounds: KeyBounds) -> NearestSearch {
        let searched = |source| Searched { source, is_known: false };
        NearestSearch { sources: sources.into_iter().map(searched).collect(), bounds }
    }

    /// Continues the search. The key of a candidate is written to `key`. The same key may come again from another
    /// source.
    pub fn next(&mut self, key: &mut Vec<u8>) -> Result<SearchStep, SSTableError> {
        if let Some(searched) = self.sources.iter_mut().find(|searched| !searched.is_known) {
            searched.is_known = searched.source.search(STEPS)?;
            if !searched.is_known {
                return Ok(SearchStep::Nothing(STEPS as u64));
            }
        }
        if self.sources.iter().any(|searched| !searched.is_known) {
            return Ok(SearchStep::Nothing(1));
        }
        let best = |searched: &Searched| searched.source.best().unwrap_or(f32::NEG_INFINITY);
        let by_score = |one: &&mut Searched, other: &&mut Searched| best(one).total_cmp(&best(other));
        let Some(searched) = self.sources.iter_mut().max_by(by_score) else { return Ok(SearchStep::End) };
        let Some(score) = searched.source.best() else { return Ok(SearchStep::End) };
        searched.source.take(key)?;
        searched.is_known = false;
        let is_within = *key >= self.bounds.start && *key < self.bounds.end;
        Ok(if is_within { SearchStep::Candidate(score) } else { SearchStep::Nothing(1) })
    }

    /// The bytes that the search holds.
    pub fn held_bytes(&self) -> usize {
        self.sources.iter().map(|searched| searched.source.held_bytes()).sum()
    }
}
