//! Restrictions of one column that is not a clustering column.

use std::sync::Arc;

use cql::ast::Operator;
use model::{Column, IndexPart, Table};

use super::filter::{Comparison, RowFilter};
use super::index::{Analyses, pattern_of};
use crate::QueryError;
use crate::execution::Execution;
use crate::row_view::Source;
use crate::terms::{Bound, InTerms, Term};

/// An end of a slice.
#[derive(Clone, Debug)]
pub(super) struct TermBound {
    pub term: Term,
    pub inclusive: bool,
}

/// The restriction of a column.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Equal(Term),
    In(InTerms),
    Slice { start: Option<TermBound>, end: Option<TermBound> },
    Contains(Contains),
    Like(Term),
}

/// CONTAINS, CONTAINS KEY and map elements, all of which may be there several times.
#[derive(Clone, Debug, Default)]
pub(super) struct Contains {
    pub values: Vec<Term>,
    pub keys: Vec<Term>,
    pub entries: Vec<(Term, Term)>,
}

impl Contains {
    pub fn join(&mut self, other: Contains) {
        self.values.extend(other.values);
        self.keys.extend(other.keys);
        self.entries.extend(other.entries);
    }
}

/// A restriction of one column.
#[derive(Clone, Debug)]
pub(super) struct ColumnRestriction {
    pub column: Arc<Column>,
    /// Where a row has its value.
    pub source: Source,
    pub kind: Kind,
}

/// Adds a restriction to those of other columns, or joins it with the one of its column.
pub(super) fn merge_into(
    restrictions: &mut Vec<ColumnRestriction>,
    restriction: ColumnRestriction,
) -> Result<(), QueryError> {
    match restrictions.iter_mut().find(|known| known.column.id == restriction.column.id) {
        Some(known) => known.merge(restriction),
        None => {
            restrictions.push(restriction);
            Ok(())
        }
    }
}

impl ColumnRestriction {
    /// Joins another restriction of the same column with this one.
    pub fn merge(&mut self, other: ColumnRestriction) -> Result<(), QueryError> {
        let name = &self.column.name;
        let refuse = |message: String| Err(QueryError::invalid(message));
        match (&mut self.kind, other.kind) {
            (Kind::Equal(_), _) => {
                refuse(format!("{name} cannot be restricted by more than one relation if it includes an Equal"))
            }
            (Kind::In(_), _) => {
                refuse(format!("{name} cannot be restricted by more than one relation if it includes a IN"))
            }
            (Kind::Slice { start, end }, Kind::Slice { start: more_start, end: more_end }) => {
                join_bound(start, more_start, "start", name)?;
                join_bound(end, more_end, "end", name)
            }
            (Kind::Slice { .. }, _) => {
                refuse(format!("Column \"{name}\" cannot be restricted by both an equality and an inequality relation"))
            }
            (Kind::Contains(contains), Kind::Contains(more)) => {
                contains.join(more);
                Ok(())
            }
            (Kind::Like(_), _) => {
                refuse(format!("{name} cannot be restricted by more than one relation if it includes a LIKE"))
            }
            (Kind::Contains(_), _) => refuse(format!(
                "Collection column {name} can only be restricted by CONTAINS, CONTAINS KEY, or map-entry equality"
            )),
        }
    }

    /// Adds the restriction's conditions on rows. Text that an index answers for is compared as that index analyzes it.
    pub fn filter(
        &self,
        table: &Table,
        analyses: Analyses<'_>,
        filter: &mut RowFilter,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        let mut add_part = |part: IndexPart, comparison: Comparison| {
            let place = (&self.column, self.source);
            filter.add_analysed(place, comparison, analyses.of(&self.column.name, part));
        };
        match &self.kind {
            Kind::Equal(term) => {
                add_part(IndexPart::Whole, Comparison::Order(Operator::Eq, self.value(term, execution)?));
            }
            Kind::In(values) => {
                let mut alternatives = Vec::new();
                for value in values.bind(execution)? {
                    // Nothing equals null.
                    if value != Bound::Null {
                        alternatives.push(self.supported(value, "value")?);
                    }
                }
                filter.add((&self.column, self.source), Comparison::In(alternatives));
            }
            Kind::Slice { start, end } => {
                for (bound, open, closed) in [(start, Operator::Gt, Operator::Gte), (end, Operator::Lt, Operator::Lte)]
                {
                    if let Some(bound) = bound {
                        let operator = if bound.inclusive { closed } else { open };
                        let comparison = Comparison::Order(operator, self.value(&bound.term, execution)?);
                        filter.add((&self.column, self.source), comparison);
                    }
                }
            }
            Kind::Like(term) => {
                let pattern = pattern_of(table, &self.column, &self.value(term, execution)?)?;
                filter.add((&self.column, self.source), Comparison::Like(pattern));
            }
            Kind::Contains(contains) => {
                for term in &contains.values {
                    add_part(IndexPart::Values, Comparison::Contains(self.value(term, execution)?));
                }
                for term in &contains.keys {
                    add_part(IndexPart::Keys, Comparison::ContainsKey(self.value(term, execution)?));
                }
                for (key, value) in &contains.entries {
                    let (key, value) = (key.bind(execution)?, value.bind(execution)?);
                    let (key, value) = (self.supported(key, "map key")?, self.supported(value, "map value")?);
                    filter.add((&self.column, self.source), Comparison::Entry(key, value));
                }
            }
        }
        Ok(())
    }

    fn value(&self, term: &Term, execution: &Execution<'_>) -> Result<Vec<u8>, QueryError> {
        self.supported(term.bind(execution)?, "value")
    }

    fn supported(&self, value: Bound<'_>, what: &str) -> Result<Vec<u8>, QueryError> {
        let name = &self.column.name;
        match value {
            Bound::Bytes(bytes) => Ok(bytes.into_owned()),
            Bound::Null => Err(QueryError::invalid(format!("Unsupported null {what} for column {name}"))),
            Bound::Unset => Err(QueryError::invalid(format!("Unsupported unset {what} for column {name}"))),
        }
    }
}

/// Sets a bound that must not be there yet.
pub(super) fn join_bound<T>(bound: &mut Option<T>, more: Option<T>, which: &str, name: &str) -> Result<(), QueryError> {
    if bound.is_some() && more.is_some() {
        let message = format!("More than one restriction was found for the {which} bound on {name}");
        return Err(QueryError::invalid(message));
    }
    if more.is_some() {
        *bound = more;
    }
    Ok(())
}
