//! Restrictions of the clustering columns, and the resulting slices of rows.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use cql::ast::Operator;
use model::{ClusteringBound, Column, Side, Slice, Slices, Table, push_component};

use super::alternatives::Alternatives;
use super::column::{Contains, join_bound};
use super::filter::{Comparison, RowFilter};
use super::index::pattern_of;
use super::tuple::{TupleIn, TupleTerm};
use crate::QueryError;
use crate::execution::Execution;
use crate::row_view::Source;
use crate::terms::{Bound, Term};

/// The values of an end of a slice, and whether rows with them are within.
type BoundValues = (Vec<Option<Vec<u8>>>, bool);

/// The longest clustering, bytes, as Cassandra counts it: it writes the length in two bytes.
pub(super) const CLUSTERING_BYTES_MAX: usize = 65_535;

/// An end of a slice over one or more columns.
#[derive(Clone, Debug)]
pub(super) struct TupleBound {
    pub tuple: TupleTerm,
    pub inclusive: bool,
}

/// The restriction of successive clustering columns.
#[derive(Clone, Debug)]
pub(super) enum ClusteringKind {
    Equal(TupleTerm),
    In(TupleIn),
    Slice { start: Option<TupleBound>, end: Option<TupleBound> },
    Contains(Contains),
    Like(Term),
}

/// A restriction of clustering columns that follow each other.
#[derive(Clone, Debug)]
pub(super) struct ClusteringRestriction {
    pub columns: Vec<Arc<Column>>,
    pub kind: ClusteringKind,
    /// Whether it was written as a multi-column relation, which shows in messages.
    pub is_multi: bool,
}

impl ClusteringRestriction {
    fn places(&self) -> Range<usize> {
        let first = self.columns.first().map_or(0, |column| column.position.max(0) as usize);
        first..first + self.columns.len()
    }

    fn first_name(&self) -> &str {
        self.columns.first().map_or("", |column| &column.name)
    }

    fn is_slice(&self) -> bool {
        matches!(self.kind, ClusteringKind::Slice { .. })
    }

    fn covers(&self, column: &Column) -> bool {
        self.columns.iter().any(|known| known.id == column.id)
    }

    fn overlaps(&self, other: &ClusteringRestriction) -> bool {
        self.columns.iter().any(|column| other.covers(column))
    }

    /// Joins another restriction that shares columns with this one.
    fn merge(&mut self, other: ClusteringRestriction) -> Result<(), QueryError> {
        let shared: Vec<&str> = match self.is_multi || other.is_multi {
            true => self.columns.iter().filter(|column| other.covers(column)).map(|column| &*column.name).collect(),
            false => vec![self.first_name()],
        };
        let names = shared.join(", ");
        let same_start = self.first_name() == other.first_name();
        let refuse = |message: String| Err(QueryError::invalid(message));
        match (&mut self.kind, other.kind) {
            (ClusteringKind::Equal(_), _) => {
                refuse(format!("{names} cannot be restricted by more than one relation if it includes an Equal"))
            }
            (ClusteringKind::In(_), _) => {
                refuse(format!("{names} cannot be restricted by more than one relation if it includes a IN"))
            }
            (ClusteringKind::Slice { start, end }, ClusteringKind::Slice { start: more_start, end: more_end }) => {
                if !same_start {
                    return refuse(format!(
                        "Column \"{names}\" cannot be restricted by two inequalities not starting with the same column"
                    ));
                }
                join_bound(start, more_start, "start", &names)?;
                join_bound(end, more_end, "end", &names)?;
                if other.columns.len() > self.columns.len() {
                    self.columns = other.columns;
                }
                self.is_multi |= other.is_multi;
                Ok(())
            }
            (ClusteringKind::Slice { .. }, _) => refuse(format!(
                "Column \"{names}\" cannot be restricted by both an equality and an inequality relation"
            )),
            (ClusteringKind::Contains(contains), ClusteringKind::Contains(more)) => {
                contains.join(more);
                Ok(())
            }
            (ClusteringKind::Like(_), _) => {
                refuse(format!("{names} cannot be restricted by more than one relation if it includes a LIKE"))
            }
            (ClusteringKind::Contains(_), _) => refuse(format!(
                "Collection column {names} can only be restricted by CONTAINS, CONTAINS KEY, or map-entry equality"
            )),
        }
    }
}

/// The restrictions of the clustering columns, by their first column.
#[derive(Debug)]
pub(crate) struct ClusteringRestrictions {
    table: Arc<Table>,
    restrictions: Vec<ClusteringRestriction>,
    /// Whether a slice of one column may end at null, which sorts before all values. Only reads may.
    allows_null: bool,
}

impl ClusteringRestrictions {
    pub(super) fn new(table: &Arc<Table>, allows_null: bool) -> Self {
        ClusteringRestrictions { table: table.clone(), restrictions: Vec::new(), allows_null }
    }

    /// Adds a restriction, or joins it with those that share columns with it.
    pub(super) fn add(&mut self, new: ClusteringRestriction, allow_filtering: bool) -> Result<(), QueryError> {
        let last =
            self.restrictions.last().map(|last| (last.is_slice(), last.places().start, last.first_name().to_owned()));
        let (start, is_slice, name) = (new.places().start, new.is_slice(), new.first_name().to_owned());
        match self.restrictions.iter_mut().find(|known| known.overlaps(&new)) {
            Some(known) => known.merge(new)?,
            None => {
                self.restrictions.push(new);
                self.restrictions.sort_by_key(|restriction| restriction.places().start);
            }
        }
        let Some((last_is_slice, last_start, last_name)) = last.filter(|_| !allow_filtering) else { return Ok(()) };
        if last_is_slice && start > last_start {
            return Err(QueryError::invalid(format!(
                "Clustering column \"{name}\" cannot be restricted (preceding column \"{last_name}\" is restricted by a non-EQ relation)"
            )));
        }
        if is_slice && start < last_start {
            let next = self.restrictions.iter().find(|known| known.places().start > start);
            let next = next.map_or("", ClusteringRestriction::first_name);
            return Err(QueryError::invalid(format!(
                "PRIMARY KEY column \"{next}\" cannot be restricted (preceding column \"{name}\" is restricted by a non-EQ relation)"
            )));
        }
        Ok(())
    }

    /// The restrictions, by their first column.
    pub(super) fn all(&self) -> &[ClusteringRestriction] {
        &self.restrictions
    }

    pub fn is_empty(&self) -> bool {
        self.restrictions.is_empty()
    }

    pub fn has_slice(&self) -> bool {
        self.restrictions.iter().any(ClusteringRestriction::is_slice)
    }

    pub fn has_in(&self) -> bool {
        self.restrictions.iter().any(|restriction| matches!(restriction.kind, ClusteringKind::In(_)))
    }

    pub fn has_contains(&self) -> bool {
        self.restrictions.iter().any(|restriction| matches!(restriction.kind, ClusteringKind::Contains(_)))
    }

    pub fn is_equal(&self, column: &Column) -> bool {
        let equal = |known: &ClusteringRestriction| matches!(known.kind, ClusteringKind::Equal(_));
        self.restrictions.iter().any(|known| known.covers(column) && equal(known))
    }

    /// The first columns with their values, up to the first that is not given by `=` alone.
    pub fn equal_terms(&self) -> impl Iterator<Item = (&Arc<Column>, &Term)> {
        self.restrictions.iter().enumerate().map_while(|(place, restriction)| {
            let ClusteringRestriction {
                columns,
                kind: ClusteringKind::Equal(TupleTerm::Single(term)),
                is_multi: false,
            } = restriction
            else {
                return None;
            };
            (restriction.places() == (place..place + 1)).then_some((columns.first()?, term))
        })
    }

    /// The restrictions after those.
    pub(super) fn after_equal(&self, count: usize) -> &[ClusteringRestriction] {
        self.restrictions.get(count..).unwrap_or_default()
    }

    /// The names of the columns without a restriction.
    pub fn missing_columns(&self) -> Vec<&str> {
        let restricted = |column: &Column| self.restrictions.iter().any(|known| known.covers(column));
        self.table.clustering().iter().filter(|column| !restricted(column)).map(|column| &*column.name).collect()
    }

    /// Whether every column is restricted to values.
    pub fn gives_rows(&self) -> bool {
        let gives_values = |kind: &ClusteringKind| matches!(kind, ClusteringKind::Equal(_) | ClusteringKind::In(_));
        self.missing_columns().is_empty() && self.restrictions.iter().all(|restriction| gives_values(&restriction.kind))
    }

    /// How many restrictions, from the first, give slices; those after it are left to filtering.
    fn in_slices(&self) -> usize {
        let mut place = 0;
        for (count, restriction) in self.restrictions.iter().enumerate() {
            let is_of_part = matches!(restriction.kind, ClusteringKind::Contains(_) | ClusteringKind::Like(_));
            if is_of_part || restriction.places().start != place {
                return count;
            }
            if restriction.is_slice() {
                return count + 1;
            }
            place = restriction.places().end;
        }
        self.restrictions.len()
    }

    /// Whether the slices do not cover all restrictions.
    pub fn needs_filtering(&self) -> bool {
        self.in_slices() < self.restrictions.len()
    }

    /// Refuses a column restricted after one that is not.
    pub fn refuse_gap(&self) -> Result<(), QueryError> {
        let restricted = self.restrictions.iter().flat_map(|restriction| &restriction.columns);
        for (column, restricted) in self.table.clustering().iter().zip(restricted) {
            if column.id != restricted.id {
                return Err(QueryError::invalid(format!(
                    "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{}\" is not restricted",
                    restricted.name, column.name
                )));
            }
        }
        Ok(())
    }

    /// Adds the restrictions that the slices do not cover.
    pub fn filter(&self, filter: &mut RowFilter, execution: &Execution<'_>) -> Result<(), QueryError> {
        for restriction in self.restrictions.iter().skip(self.in_slices()) {
            self.filter_by(restriction, filter, execution)?;
        }
        Ok(())
    }

    fn filter_by(
        &self,
        restriction: &ClusteringRestriction,
        filter: &mut RowFilter,
        execution: &Execution<'_>,
    ) -> Result<(), QueryError> {
        let mut add =
            |column: &Arc<Column>, comparison| filter.add((column, Source::of(&self.table, column)), comparison);
        let supported = |column: &Column, value: Bound<'_>| match value {
            Bound::Bytes(bytes) => Ok(bytes.into_owned()),
            Bound::Null => Err(QueryError::invalid(format!("Unsupported null value for column {}", column.name))),
            Bound::Unset => Err(QueryError::invalid(format!("Unsupported unset value for column {}", column.name))),
        };
        let columns = &restriction.columns;
        match &restriction.kind {
            ClusteringKind::Equal(tuple) => {
                for (column, value) in columns.iter().zip(tuple.bind(execution)?) {
                    add(column, Comparison::Order(Operator::Eq, supported(column, value)?));
                }
            }
            ClusteringKind::In(TupleIn::Single(values)) => {
                let column = &columns[0];
                let values: Result<Vec<_>, _> =
                    values.bind(execution)?.into_iter().map(|value| supported(column, value)).collect();
                add(column, Comparison::In(values?));
            }
            ClusteringKind::In(_) => {
                return Err(QueryError::invalid("Multicolumn IN filters are not supported"));
            }
            ClusteringKind::Slice { start, end } => {
                if columns.len() > 1 {
                    let message = "Multi-column slice restrictions cannot be used for filtering.";
                    return Err(QueryError::invalid(message));
                }
                for (bound, open, closed) in [(start, Operator::Gt, Operator::Gte), (end, Operator::Lt, Operator::Lte)]
                {
                    let Some(bound) = bound else { continue };
                    let operator = if bound.inclusive { closed } else { open };
                    for (column, value) in columns.iter().zip(bound.tuple.bind(execution)?) {
                        add(column, Comparison::Order(operator, supported(column, value)?));
                    }
                }
            }
            ClusteringKind::Like(term) => {
                let column = &columns[0];
                let pattern = pattern_of(&self.table, column, &supported(column, term.bind(execution)?)?)?;
                add(column, Comparison::Like(pattern));
            }
            ClusteringKind::Contains(contains) => {
                let column = &columns[0];
                let value = |term: &Term| supported(column, term.bind(execution)?);
                for term in &contains.values {
                    add(column, Comparison::Contains(value(term)?));
                }
                for term in &contains.keys {
                    add(column, Comparison::ContainsKey(value(term)?));
                }
                for (key, entry) in &contains.entries {
                    add(column, Comparison::Entry(value(key)?, value(entry)?));
                }
            }
        }
        Ok(())
    }

    /// The serialized prefixes that the leading restrictions to values give, in clustering order. Restrictions after an
    /// `IN ()` are not examined.
    pub fn prefixes(&self, execution: &Execution<'_>) -> Result<Vec<Vec<u8>>, QueryError> {
        if !self.has_in() {
            let mut prefix = Vec::new();
            for restriction in self.restrictions.iter().take(self.in_slices()) {
                push_equal(restriction, &mut prefix, execution)?;
            }
            check_length(&prefix)?;
            return Ok(vec![prefix]);
        }
        let mut alternatives = Alternatives::default();
        for restriction in self.restrictions.iter().take(self.in_slices()) {
            let values = match &restriction.kind {
                ClusteringKind::In(tuples) => tuples_of(restriction, tuples, execution)?,
                _ => {
                    let mut value = Vec::new();
                    push_equal(restriction, &mut value, execution)?;
                    vec![value]
                }
            };
            if values.is_empty() {
                return Ok(Vec::new());
            }
            alternatives.push(values);
        }
        let combinations = alternatives.combinations("clustering key", execution)?;
        let mut prefixes: Vec<Vec<u8>> = combinations.iter().map(|values| values.concat()).collect();
        let comparator = self.table.comparator();
        prefixes.sort_by(|left, right| comparator.compare(left, right));
        prefixes.dedup_by(|left, right| comparator.compare(left, right) == Ordering::Equal);
        prefixes.iter().try_for_each(|prefix| check_length(prefix))?;
        Ok(prefixes)
    }

    /// The slices that contain all rows matching the restrictions. Restrictions that slices cannot express are left to
    /// a filter.
    pub fn slices(&self, execution: &Execution<'_>) -> Result<Slices, QueryError> {
        if self.restrictions.is_empty() {
            return Ok(Slices::all());
        }
        let prefixes = self.prefixes(execution)?;
        if prefixes.is_empty() {
            return Ok(Slices::none());
        }
        let comparator = self.table.comparator();
        let last = self.in_slices().checked_sub(1).and_then(|last| self.restrictions.get(last));
        let Some((restriction, ClusteringKind::Slice { start, end })) = last.map(|last| (last, &last.kind)) else {
            return Ok(Slices::new(prefixes.iter().map(|prefix| Slice::prefix(prefix)).collect(), comparator));
        };
        let bind = |bound: &Option<TupleBound>| -> Result<Option<BoundValues>, QueryError> {
            let Some(bound) = bound else { return Ok(None) };
            let values = bound.tuple.bind(execution)?;
            let values = restriction.columns.iter().zip(&values).map(|(column, value)| match value {
                Bound::Bytes(bytes) => Ok(Some(bytes.to_vec())),
                Bound::Null if restriction.is_multi || !self.allows_null => {
                    let name = &column.name;
                    Err(QueryError::invalid(format!("Invalid null value in condition for column {name}")))
                }
                Bound::Null => Ok(None),
                Bound::Unset => Err(QueryError::invalid(format!("Invalid unset value for column {}", column.name))),
            });
            Ok(Some((values.collect::<Result<_, _>>()?, bound.inclusive)))
        };
        let (start, end) = (bind(start)?, bind(end)?);
        let mut slices = Vec::new();
        for prefix in &prefixes {
            let above = bounded(prefix, &restriction.columns, start.as_ref(), true);
            let below = bounded(prefix, &restriction.columns, end.as_ref(), false);
            for above in &above {
                slices.extend(below.iter().map(|below| intersect(above, below, comparator)));
            }
        }
        Ok(Slices::new(slices, comparator))
    }
}

/// Appends the components that an `=` gives; a slice gives none.
fn push_equal(
    restriction: &ClusteringRestriction,
    out: &mut Vec<u8>,
    execution: &Execution<'_>,
) -> Result<(), QueryError> {
    let ClusteringKind::Equal(tuple) = &restriction.kind else { return Ok(()) };
    let null = match restriction.is_multi {
        true => "Invalid null value for column",
        false => "Invalid null value in condition for column",
    };
    for (column, value) in restriction.columns.iter().zip(&tuple.bind(execution)?) {
        push_component(Some(value_of(value, null, &column.name)?), out);
    }
    Ok(())
}

/// The components that each alternative of an IN gives.
fn tuples_of(
    restriction: &ClusteringRestriction,
    tuples: &TupleIn,
    execution: &Execution<'_>,
) -> Result<Vec<Vec<u8>>, QueryError> {
    let null = match restriction.is_multi {
        true => "Invalid null value in condition for columns:",
        false => "Invalid null value in condition for column",
    };
    let names: Vec<&str> = restriction.columns.iter().map(|column| &*column.name).collect();
    let name = if restriction.is_multi { format!("[{}]", names.join(", ")) } else { names.concat() };
    let mut alternatives = Vec::new();
    for values in tuples.bind(execution)? {
        let mut components = Vec::new();
        for value in &values {
            push_component(Some(value_of(value, null, &name)?), &mut components);
        }
        alternatives.push(components);
    }
    Ok(alternatives)
}

fn value_of<'b>(value: &'b Bound<'_>, null: &str, name: &str) -> Result<&'b [u8], QueryError> {
    match value {
        Bound::Bytes(bytes) => Ok(bytes),
        Bound::Null => Err(QueryError::invalid(format!("{null} {name}"))),
        Bound::Unset => Err(QueryError::invalid(format!("Invalid unset value for column {name}"))),
    }
}

/// Refuses a clustering whose values have more bytes in all than Cassandra can write the length of.
pub(super) fn check_value_bytes(length: usize) -> Result<(), QueryError> {
    if length <= CLUSTERING_BYTES_MAX {
        return Ok(());
    }
    let message = format!("Key length of {length} is longer than maximum of {CLUSTERING_BYTES_MAX}");
    Err(QueryError::invalid(message))
}

/// Refuses a clustering prefix that is too long.
fn check_length(prefix: &[u8]) -> Result<(), QueryError> {
    if prefix.len() <= CLUSTERING_BYTES_MAX {
        return Ok(());
    }
    check_value_bytes(model::Clusterings(prefix).map(|value| value.map_or(0, <[u8]>::len)).sum())
}

/// The intersection of two slices.
fn intersect(left: &Slice, right: &Slice, comparator: &model::ClusteringComparator) -> Slice {
    let later = |a: &ClusteringBound, b: &ClusteringBound| comparator.compare_bounds(a, b) == Ordering::Greater;
    let start = if later(&left.start, &right.start) { &left.start } else { &right.start };
    let end = if later(&left.end, &right.end) { &right.end } else { &left.end };
    Slice { start: start.clone(), end: end.clone() }
}

/// The slices with `prefix` whose next columns are above (or below) the bound's values, columns taken together.
fn bounded(prefix: &[u8], columns: &[Arc<Column>], bound: Option<&BoundValues>, is_start: bool) -> Vec<Slice> {
    let Some((values, inclusive)) = bound else { return vec![Slice::prefix(prefix)] };
    let reversed: Vec<bool> = columns.iter().take(values.len()).map(|column| column.reversed).collect();
    let mut slices = Vec::new();
    // Where all columns sort the same way, the last step says it all.
    let first = if reversed.windows(2).all(|pair| pair[0] == pair[1]) { values.len() - 1 } else { 0 };
    for step in first..values.len() {
        let mut position = prefix.to_vec();
        values[..=step].iter().for_each(|value| push_component(value.as_deref(), &mut position));
        let mut around = prefix.to_vec();
        let kept = if first == 0 { step } else { 0 };
        values[..kept].iter().for_each(|value| push_component(value.as_deref(), &mut around));
        let included = *inclusive && step + 1 == values.len();
        slices.push(half(around, position, included, is_start != reversed[step]));
    }
    slices
}

/// The part of `around` after (or before) `position`, with or without what starts with `position`.
fn half(around: Vec<u8>, position: Vec<u8>, included: bool, after: bool) -> Slice {
    if after {
        let side = if included { Side::Before } else { Side::After };
        Slice { start: ClusteringBound::new(position, side), end: ClusteringBound::new(around, Side::After) }
    } else {
        let side = if included { Side::After } else { Side::Before };
        Slice { start: ClusteringBound::new(around, Side::Before), end: ClusteringBound::new(position, side) }
    }
}
