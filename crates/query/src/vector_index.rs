//! Functions that several statements about indexed vectors use.

use model::{Index, Table};
use types::Similarity;
use types::float_text::float;
use types::similarity::Unindexable;

use crate::QueryError;

/// The index of a column's vectors.
pub(crate) fn find<'t>(table: &'t Table, column: &str) -> Option<&'t Index> {
    table.indexes().iter().find(|index| *index.column == *column && index.part.similarity().is_some())
}

/// Refuses a vector that cannot be compared with others. The texts are those of Cassandra's log. Its clients get only a
/// failure without a reason.
pub(crate) fn check(similarity: Similarity, vector: &[f32]) -> Result<(), QueryError> {
    similarity.check(vector).map_err(|reason| {
        QueryError::invalid(match reason {
            Unindexable::NotFinite(place, value) => format!("non-finite value at vector[{place}]={}", float(value)),
            Unindexable::OutOfBounds(place, value) => {
                format!("Out-of-bounds value at vector[{place}]={}", float(value))
            }
            Unindexable::AllZero => "Zero vectors cannot be indexed or queried with cosine similarity".to_owned(),
        })
    })
}
