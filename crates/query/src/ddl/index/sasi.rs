//! What a SASI index may be of, and its options (`SASIIndex.validateOptions` in Cassandra).

use model::{Column, ColumnKind, Index, IndexPart, SasiAnalyzer, SasiMode};
use types::CqlType;

use crate::QueryError;
use crate::execution::Execution;

const EXPERIMENTAL: &str = "SASI indexes are experimental and are not recommended for production use.";

/// Checks an index that the table does not have yet, and warns of its kind.
pub(super) fn check(index: &Index, column: &Column, execution: &Execution<'_>) -> Result<(), QueryError> {
    let refuse = |message: String| Err(QueryError::configuration(message));
    if column.is_complex() || index.part != IndexPart::Whole {
        return refuse("complex columns are not yet supported by SASI".into());
    }
    if column.kind == ColumnKind::PartitionKey {
        return refuse("partition key columns are not yet supported by SASI".into());
    }
    let is_text = matches!(column.ty, CqlType::Ascii | CqlType::Text);
    check_analyzer(index, column, is_text)?;
    let options = index.sasi_options();
    let Some(mode) = options.mode() else {
        let given = index.options.get("mode").map_or("", String::as_str);
        return refuse(format!("Incorrect index mode: {given}"));
    };
    if mode == SasiMode::Sparse {
        if options.is_literal(is_text) {
            return refuse("SPARSE mode is only supported on non-literal columns.".into());
        }
        if options.is_analyzed() {
            return refuse("SPARSE mode doesn't support analyzers.".into());
        }
    }
    execution.warn(EXPERIMENTAL);
    Ok(())
}

/// Checks the class of an analyzer, and the options that it looks at.
fn check_analyzer(index: &Index, column: &Column, is_text: bool) -> Result<(), QueryError> {
    let refuse = |message: String| Err(QueryError::configuration(message));
    let Some(class) = index.options.get("analyzer_class") else { return Ok(()) };
    let Some(analyzer) = SasiAnalyzer::of_class(class) else {
        return refuse(format!("Invalid analyzer class option specified [{class}]"));
    };
    let simple = class.rsplit('.').next().unwrap_or(class);
    if analyzer == SasiAnalyzer::Delimiter && !is_text {
        return refuse(format!("{simple} does not support type {}", column.ty));
    }
    Ok(())
}
