//! Storage-attached indexes of vectors: their permitted targets and options.

use model::{Column, INDEX_SIMILARITY, Index};
use types::{CqlType, Similarity};

use crate::QueryError;
use crate::execution::Execution;

const OPTIMIZE_FOR: &str = "optimize_for";
const MAXIMUM_NODE_CONNECTIONS: &str = "maximum_node_connections";
const CONSTRUCTION_BEAM_WIDTH: &str = "construction_beam_width";
/// The options of indexes of vectors.
pub(super) const OPTIONS: [&str; 4] =
    [INDEX_SIMILARITY, OPTIMIZE_FOR, MAXIMUM_NODE_CONNECTIONS, CONSTRUCTION_BEAM_WIDTH];

/// The possible optimization goals of a graph.
const OPTIMIZATIONS: [&str; 2] = ["LATENCY", "RECALL"];

/// A system property of Cassandra without which the graph's parameters cannot be set. It is never set here.
const CUSTOM_PARAMETERS: &str = "SAI_VECTOR_ALLOW_CUSTOM_PARAMETERS";

const USAGE: &str = "SAI ANN indexes on vector columns are experimental and are not recommended for production use.
They don't yet support SELECT queries with:
 * Consistency level higher than ONE/LOCAL_ONE.
 * Paging.
 * No LIMIT clauses.
 * PER PARTITION LIMIT clauses.
 * GROUP BY clauses.
 * Aggregation functions.
 * Filters on columns without a SAI index.";

fn refuse(message: impl Into<String>) -> Result<(), QueryError> {
    Err(QueryError::invalid(message.into()))
}

/// Makes an index one of vectors if its column has vectors. The options are checked later.
pub(super) fn part(index: Index, column: &Column) -> Index {
    match column.ty {
        CqlType::Vector { .. } => index.clone().of_vectors().unwrap_or(index),
        _ => index,
    }
}

/// Checks the options of indexes of vectors, if there are any.
pub(super) fn check_options(index: &Index, column: &Column, value_type: &CqlType) -> Result<(), QueryError> {
    let given = |option: &str| index.given_options().find(|(key, _)| *key == option).map(|(_, value)| value);
    if !OPTIONS.iter().any(|option| given(option).is_some()) {
        return Ok(());
    }
    if !matches!(column.ty, CqlType::Vector { .. }) {
        return refuse(format!("CQL type {value_type} cannot have vector options"));
    }
    if given(MAXIMUM_NODE_CONNECTIONS).is_some() {
        return refuse(format!("Maximum node connections cannot be set without enabling {CUSTOM_PARAMETERS}"));
    }
    if given(CONSTRUCTION_BEAM_WIDTH).is_some() {
        return refuse(format!("Construction beam width cannot be set without enabling {CUSTOM_PARAMETERS}"));
    }
    // Cassandra checks the options without the name of the index.
    if let Some(named) = given(INDEX_SIMILARITY)
        && Similarity::of_name(named).is_none()
    {
        let (named, known) = (named.to_uppercase(), Similarity::ALL.map(Similarity::name).join(", "));
        return refuse(format!(
            "Similarity function {named} was not recognized for index null. Valid values are: {known}"
        ));
    }
    if let Some(named) = given(OPTIMIZE_FOR)
        && !OPTIMIZATIONS.iter().any(|known| known.eq_ignore_ascii_case(named))
    {
        let (named, known) = (named.to_uppercase(), OPTIMIZATIONS.join(", "));
        return refuse(format!("optimize_for '{named}' was not recognized for index null. Valid values are: {known}"));
    }
    Ok(())
}

/// Checks an index of a column of vectors, and warns about its limits.
pub(super) fn check(index: &Index, column: &Column, execution: &Execution<'_>) -> Result<(), QueryError> {
    let CqlType::Vector { element, dimension } = &column.ty else { return Ok(()) };
    if **element != CqlType::Float {
        return refuse("SAI ANN indexes are only allowed on vector columns with float elements");
    }
    if *dimension == 1 && index.part.similarity() == Some(Similarity::Cosine) {
        return refuse("Cosine similarity is not supported for single-dimension vectors");
    }
    execution.warn(USAGE);
    Ok(())
}
