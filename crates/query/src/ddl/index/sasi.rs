//! SASI indexes: their permitted targets and options (`SASIIndex.validateOptions` in Cassandra).

use cql::ast::IndexTarget;
use model::{Column, ColumnKind, INDEX_CLASS, INDEX_TARGET, Index, IndexPart, SasiAnalyzer, SasiMode};
use types::CqlType;
use types::identifier::Quoted;

use crate::QueryError;
use crate::execution::Execution;

const EXPERIMENTAL: &str = "SASI indexes are experimental and are not recommended for production use.";

/// The error for an index of no column, or of several.
pub(super) fn not_one_column(targets: &[IndexTarget]) -> QueryError {
    let names: Vec<String> = targets.iter().map(|target| Quoted(target.column.as_str()).to_string()).collect();
    QueryError::configuration(format!("failed to retrieve target column for: {}", names.join(", ")))
}

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
    check_memory(index)?;
    execution.warn(EXPERIMENTAL);
    Ok(())
}

/// Checks the class of an analyzer, and the options that it uses. Cassandra fails internally because of some of them.
fn check_analyzer(index: &Index, column: &Column, is_text: bool) -> Result<(), QueryError> {
    let refuse = |message: String| Err(QueryError::configuration(message));
    let Some(class) = index.options.get("analyzer_class") else { return Ok(()) };
    let Some(analyzer) = SasiAnalyzer::of_class(class) else {
        return refuse(format!("Invalid analyzer class option specified [{class}]"));
    };
    let simple = class.rsplit('.').next().unwrap_or(class);
    if analyzer != SasiAnalyzer::None && !is_text {
        return refuse(format!("{simple} does not support type {}", column.ty));
    }
    let given = |name: &str| index.options.get(name).map(String::as_str);
    let is = |name: &str| given(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let both_cases = "Options to normalize terms cannot be both uppercase and lowercase at the same time";
    match analyzer {
        SasiAnalyzer::None => {}
        SasiAnalyzer::NonTokenizing => {
            let [lower, upper] = ["normalize_lowercase", "normalize_uppercase"];
            if given("case_sensitive").is_some() && (given(lower).is_some() || given(upper).is_some()) {
                return refuse(format!(
                    "case_sensitive option cannot be specified together with either {lower} or {upper}"
                ));
            }
            if is(lower) && is(upper) {
                return refuse(both_cases.into());
            }
        }
        SasiAnalyzer::Standard => {
            if is("tokenization_normalize_lowercase") && is("tokenization_normalize_uppercase") {
                return refuse(both_cases.into());
            }
            let uses_locale = is("tokenization_skip_stop_words") || is("tokenization_enable_stemming");
            if let Some(locale) = given("tokenization_locale").filter(|locale| uses_locale && locale.len() < 2) {
                return refuse(format!("tokenization_locale must be a language, was {locale}"));
            }
        }
        SasiAnalyzer::Delimiter => {
            if let Some(delimiter) = given("delimiter").filter(|delimiter| delimiter.encode_utf16().count() != 1) {
                return refuse(format!("Only single character delimiters supported, was {delimiter}"));
            }
        }
    }
    Ok(())
}

/// Refuses a value that is not a number of megabytes. The number has no effect: nothing is collected for a compaction.
fn check_memory(index: &Index) -> Result<(), QueryError> {
    let number = index.options.get("max_compaction_flush_memory_in_mb").map(|number| number.parse::<i64>());
    if !matches!(number, Some(Err(_))) {
        return Ok(());
    }
    let given = index.given_options().map(|(name, value)| format!("{name}={value}"));
    let own =
        [INDEX_CLASS, INDEX_TARGET].map(|name| format!("{name}={}", index.options.get(name).map_or("", |own| own)));
    let options: Vec<String> = given.chain(own).collect();
    Err(QueryError::configuration(format!("Failed to validate custom indexer options: {{{}}}", options.join(", "))))
}
