//! The conditions that are checked after rows were read.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use cql::ast::Operator;
use engine::analysed;
use model::{Analysis, Column, ColumnData};
use types::identifier::Quoted;
use types::{CqlType, collection};

use super::like::Pattern;
use crate::row_view::{RowView, Source};
use crate::selection::{Parts, RowParts};

/// A comparison of a column's value with constants.
#[derive(Clone, Debug)]
pub(super) enum Comparison {
    Order(Operator, Vec<u8>),
    In(Vec<Vec<u8>>),
    Contains(Vec<u8>),
    ContainsKey(Vec<u8>),
    Entry(Vec<u8>, Vec<u8>),
    Like(Pattern),
}

#[derive(Debug)]
struct Expression {
    name: Arc<str>,
    source: Source,
    ty: CqlType,
    comparison: Comparison,
    /// The analysis of the row's text before it is compared. The text of the comparison was analyzed already.
    analysis: Analysis,
    /// For IN: the places of its values in ascending order.
    sorted: Vec<usize>,
}

/// Conditions that a row must all meet to be kept.
#[derive(Debug, Default)]
pub(crate) struct RowFilter {
    expressions: Vec<Expression>,
}

impl RowFilter {
    /// Adds a condition on the value of a column, which rows have at this place.
    pub(super) fn add(&mut self, place: (&Arc<Column>, Source), comparison: Comparison) {
        self.add_analysed(place, comparison, Analysis::NONE);
    }

    /// As [`add`](Self::add), of text that an index changes: an equality, or an element or a key that is contained.
    pub(super) fn add_analysed(
        &mut self,
        (column, source): (&Arc<Column>, Source),
        mut comparison: Comparison,
        analysis: Analysis,
    ) {
        if let Comparison::Order(_, wanted) | Comparison::Contains(wanted) | Comparison::ContainsKey(wanted) =
            &mut comparison
            && let Cow::Owned(changed) = analysed(analysis, wanted)
        {
            *wanted = changed;
        }
        let (name, ty) = (column.name.clone(), column.ty.clone());
        let mut sorted = Vec::new();
        if let Comparison::In(values) = &comparison {
            sorted.extend(0..values.len());
            sorted.sort_by(|one, other| ty.compare(&values[*one], &values[*other]));
        }
        self.expressions.push(Expression { name, source, ty, comparison, analysis, sorted });
    }

    /// Whether every row is kept.
    pub fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    /// The columns that it tests.
    pub fn column_names(&self) -> impl Iterator<Item = &str> {
        self.expressions.iter().map(|expression| &*expression.name)
    }

    /// The conditions as CQL.
    pub fn conditions(&self) -> impl Iterator<Item = String> + '_ {
        self.expressions.iter().map(Expression::to_cql)
    }

    /// The end of the regular columns that it tests, by index in the table's columns.
    pub fn regulars_end(&self) -> usize {
        let end = |expression: &Expression| match expression.source {
            Source::Regular(index) => index.saturating_add(1),
            Source::PartitionKey(_) | Source::Clustering(_) | Source::Static(_) => 0,
        };
        self.expressions.iter().map(end).max().unwrap_or(0)
    }

    /// The comparisons that a row may cost.
    pub fn comparison_count(&self) -> usize {
        let count = |expression: &Expression| match &expression.comparison {
            Comparison::In(values) => 1 + values.len().checked_ilog2().unwrap_or(0) as usize,
            Comparison::Like(pattern) => 1 + pattern.terms.len(),
            _ => 1,
        };
        self.expressions.iter().map(count).sum()
    }

    /// Whether the row is kept.
    pub fn matches(&self, row: &RowView<'_>) -> bool {
        let parts = RowParts::default();
        self.expressions.iter().all(|expression| expression.holds(row, &parts))
    }
}

impl Expression {
    fn to_cql(&self) -> String {
        let name = Quoted(&self.name);
        let element = match &self.ty {
            CqlType::List { element, .. } | CqlType::Set { element, .. } => element,
            CqlType::Map { value, .. } => value,
            other => other,
        };
        let key = if let CqlType::Map { key, .. } = &self.ty { key } else { element };
        match &self.comparison {
            Comparison::Order(operator, value) => format!("{name} {operator} {}", self.ty.to_cql_literal(value)),
            Comparison::In(values) => {
                let values: Vec<String> = values.iter().map(|value| self.ty.to_cql_literal(value)).collect();
                format!("{name} IN ({})", values.join(", "))
            }
            Comparison::Contains(value) => format!("{name} CONTAINS {}", element.to_cql_literal(value)),
            Comparison::ContainsKey(value) => format!("{name} CONTAINS KEY {}", key.to_cql_literal(value)),
            Comparison::Like(pattern) => {
                let text = pattern.anchor.pattern(&String::from_utf8_lossy(&pattern.text));
                format!("{name} LIKE {}", self.ty.to_cql_literal(text.as_bytes()))
            }
            Comparison::Entry(entry, value) => {
                format!("{name}[{}] = {}", key.to_cql_literal(entry), element.to_cql_literal(value))
            }
        }
    }

    fn holds(&self, row: &RowView<'_>, parts: &RowParts) -> bool {
        if !self.analysis.is_none() {
            return self.holds_of_analysed(row);
        }
        let asks_part =
            matches!(self.comparison, Comparison::Contains(_) | Comparison::ContainsKey(_) | Comparison::Entry(..));
        if asks_part && let Some(parts) = self.parts(row, parts) {
            return self.holds_of_parts(&parts);
        }
        match &self.comparison {
            Comparison::Order(operator, bound) => self.compare(row, bound).is_some_and(|order| match operator {
                Operator::Eq => order.is_eq(),
                Operator::Lt => order.is_lt(),
                Operator::Lte => order.is_le(),
                Operator::Gt => order.is_gt(),
                Operator::Gte => order.is_ge(),
                _ => false,
            }),
            Comparison::In(values) => row.value(self.source, &self.ty).is_some_and(|value| {
                self.sorted.binary_search_by(|place| self.ty.compare(&values[*place], &value)).is_ok()
            }),
            Comparison::Like(pattern) => row.value(self.source, &self.ty).is_some_and(|value| pattern.matches(&value)),
            Comparison::Contains(wanted) => self.any_entry(row, |ty, key, value| match ty {
                CqlType::Set { element, .. } => element.compare(key, wanted).is_eq(),
                CqlType::List { element, .. } | CqlType::Map { value: element, .. } => {
                    element.compare(value, wanted).is_eq()
                }
                _ => false,
            }),
            Comparison::ContainsKey(wanted) => self.any_entry(row, |ty, key, _| match ty {
                CqlType::Map { key: ty, .. } => ty.compare(key, wanted).is_eq(),
                _ => false,
            }),
            Comparison::Entry(wanted_key, wanted_value) => self.any_entry(row, |ty, key, value| match ty {
                CqlType::Map { key: key_ty, value: value_ty, .. } => {
                    key_ty.compare(key, wanted_key).is_eq() && value_ty.compare(value, wanted_value).is_eq()
                }
                _ => false,
            }),
        }
    }

    /// Whether the comparison holds for the analyzed text of the row.
    fn holds_of_analysed(&self, row: &RowView<'_>) -> bool {
        let is = |value: &[u8], wanted: &[u8]| *analysed(self.analysis, value) == *wanted;
        match &self.comparison {
            Comparison::Order(Operator::Eq, wanted) => {
                row.value(self.source, &self.ty).is_some_and(|value| is(&value, wanted))
            }
            Comparison::Contains(wanted) => self.any_entry(row, |ty, key, value| match ty {
                CqlType::Set { .. } => is(key, wanted),
                _ => is(value, wanted),
            }),
            Comparison::ContainsKey(wanted) => self.any_entry(row, |_, key, _| is(key, wanted)),
            Comparison::Order(..) | Comparison::In(_) | Comparison::Entry(..) | Comparison::Like(_) => false,
        }
    }

    /// The column's parts, if many conditions ask for them.
    fn parts(&self, row: &RowView<'_>, parts: &RowParts) -> Option<Rc<Parts>> {
        let read = || Ok::<_, Infallible>(row.value(self.source, &self.ty).map(Cow::into_owned));
        parts.of_value(self.source, &self.ty, read).unwrap_or_else(|never| match never {})
    }

    fn holds_of_parts(&self, parts: &Parts) -> bool {
        match (&self.comparison, &self.ty) {
            (Comparison::Contains(wanted), CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
                parts.has_value(element, wanted)
            }
            (Comparison::Contains(wanted), CqlType::Map { value, .. }) => parts.has_value(value, wanted),
            (Comparison::ContainsKey(wanted), CqlType::Map { .. }) => parts.element(wanted).is_some(),
            (Comparison::Entry(key, wanted), CqlType::Map { value, .. }) => {
                parts.element(key).is_some_and(|found| value.compare(found, wanted).is_eq())
            }
            _ => false,
        }
    }

    fn compare(&self, row: &RowView<'_>, bound: &[u8]) -> Option<Ordering> {
        let value = row.value(self.source, &self.ty)?;
        Some(if *value == *bound { Ordering::Equal } else { self.ty.compare(&value, bound) })
    }

    /// Whether `wanted` holds of any entry: (path, value) of a list, set or map; of a set the element is the key.
    fn any_entry(&self, row: &RowView<'_>, wanted: impl Fn(&CqlType, &[u8], &[u8]) -> bool) -> bool {
        if let Some(ColumnData::Complex(mut cells)) = row.data(self.source) {
            return cells.any(|cell| cell.is_live(row.now_seconds) && wanted(&self.ty, cell.path, cell.value));
        }
        let Some(value) = row.value(self.source, &self.ty) else { return false };
        if let CqlType::Map { .. } = &self.ty {
            return collection::entries(&value)
                .is_ok_and(|entries| entries.entries().flatten().any(|(key, value)| wanted(&self.ty, key, value)));
        }
        collection::elements(&value)
            .is_ok_and(|elements| elements.flatten().flatten().any(|element| wanted(&self.ty, element, element)))
    }
}
