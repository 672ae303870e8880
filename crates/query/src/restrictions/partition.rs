//! Restrictions of the partition key, by its columns and by the token.

use std::cmp::Ordering;
use std::sync::Arc;

use model::{Column, KeyBound, KeyRange, PartitionKey, Table};
use types::Token;

use super::alternatives::Alternatives;
use super::column::{ColumnRestriction, Kind, TermBound, join_bound};
use super::filter::RowFilter;
use super::index::Analyses;
use crate::QueryError;
use crate::execution::Execution;
use crate::terms::{Bound, Term};

/// The longest partition key, bytes.
const KEY_BYTES_MAX: usize = 65_535;

/// The partitions to read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Partitions {
    /// These, in the order that rows are returned in.
    Keys(Vec<PartitionKey>),
    /// All of a range, in token order.
    Range(KeyRange),
}

/// A restriction of the token.
#[derive(Clone, Debug)]
pub(super) enum TokenRestriction {
    Equal(Term),
    Slice { start: Option<TermBound>, end: Option<TermBound> },
}

/// The restrictions of a partition key.
#[derive(Debug)]
pub(super) struct PartitionRestrictions {
    table: Arc<Table>,
    /// The restrictions of columns, by place in the key.
    columns: Vec<Option<ColumnRestriction>>,
    token: Option<TokenRestriction>,
}

impl PartitionRestrictions {
    pub fn new(table: &Arc<Table>) -> Self {
        PartitionRestrictions { table: table.clone(), columns: vec![None; table.partition_key().len()], token: None }
    }

    pub fn add(&mut self, restriction: ColumnRestriction) -> Result<(), QueryError> {
        let place = restriction.column.position.max(0) as usize;
        match self.columns.get_mut(place) {
            Some(Some(known)) => known.merge(restriction),
            Some(slot) => {
                *slot = Some(restriction);
                Ok(())
            }
            None => Err(QueryError::server("a partition key column without a place")),
        }
    }

    pub fn add_token(&mut self, restriction: TokenRestriction) -> Result<(), QueryError> {
        let names: Vec<&str> = self.table.partition_key().iter().map(|column| &*column.name).collect();
        let names = names.join(", ");
        match (&mut self.token, restriction) {
            (slot @ None, restriction) => {
                *slot = Some(restriction);
                Ok(())
            }
            (Some(TokenRestriction::Equal(_)), _) => Err(QueryError::invalid(format!(
                "{names} cannot be restricted by more than one relation if it includes an Equal"
            ))),
            (Some(TokenRestriction::Slice { .. }), TokenRestriction::Equal(_)) => Err(QueryError::invalid(format!(
                "Columns \"{names}\" cannot be restricted by both an equality and an inequality relation"
            ))),
            (
                Some(TokenRestriction::Slice { start, end }),
                TokenRestriction::Slice { start: more_start, end: more_end },
            ) => {
                join_bound(start, more_start, "start", &names)?;
                join_bound(end, more_end, "end", &names)
            }
        }
    }

    pub fn restricted(&self) -> impl Iterator<Item = &ColumnRestriction> {
        self.columns.iter().flatten()
    }

    /// Whether no column is restricted.
    pub fn is_empty(&self) -> bool {
        self.restricted().next().is_none()
    }

    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub fn has_in(&self) -> bool {
        self.restricted().any(|restriction| matches!(restriction.kind, Kind::In(_)))
    }

    pub fn is_equal(&self, column: &Column) -> bool {
        self.restricted().any(|known| known.column.id == column.id && matches!(known.kind, Kind::Equal(_)))
    }

    /// The columns with their values, in order of the key, if each is given by `=` and the token is not restricted.
    pub fn equal_terms(&self) -> Option<impl Iterator<Item = (&Arc<Column>, &Term)>> {
        let equal = |restriction: &Option<ColumnRestriction>| {
            restriction.as_ref().is_some_and(|restriction| matches!(restriction.kind, Kind::Equal(_)))
        };
        (self.token.is_none() && self.columns.iter().all(equal)).then(|| {
            self.restricted().filter_map(|restriction| match &restriction.kind {
                Kind::Equal(term) => Some((&restriction.column, term)),
                _ => None,
            })
        })
    }

    /// The names of the columns without a restriction.
    pub fn missing_columns(&self) -> Vec<&str> {
        let columns = self.table.partition_key().iter().zip(&self.columns);
        columns.filter(|(_, restriction)| restriction.is_none()).map(|(column, _)| &*column.name).collect()
    }

    /// Whether columns are restricted, but not in a way that gives keys.
    pub fn needs_filtering(&self) -> bool {
        let gives_values = |restriction: &ColumnRestriction| matches!(restriction.kind, Kind::Equal(_) | Kind::In(_));
        !self.is_empty() && !self.columns.iter().all(|column| column.as_ref().is_some_and(gives_values))
    }

    pub fn filter(&self, filter: &mut RowFilter, execution: &Execution<'_>) -> Result<(), QueryError> {
        let none = Analyses::default();
        self.restricted().try_for_each(|restriction| restriction.filter(&self.table, none, filter, execution))
    }

    /// The partitions that columns and token give.
    pub fn partitions(&self, execution: &Execution<'_>) -> Result<Partitions, QueryError> {
        if self.is_empty() {
            return self.token_range(execution);
        }
        let mut keys = self.keys(execution)?;
        if self.token.is_some() {
            match self.token_range(execution)? {
                Partitions::Range(range) => keys.retain(|key| range.contains(key)),
                Partitions::Keys(_) => keys.clear(),
            }
        }
        Ok(Partitions::Keys(keys))
    }

    fn keys(&self, execution: &Execution<'_>) -> Result<Vec<PartitionKey>, QueryError> {
        if let [Some(ColumnRestriction { column, kind: Kind::Equal(term), .. })] = self.columns.as_slice() {
            let value = term.bind(execution)?;
            return Ok(vec![serialize_key(&[key_bytes(&value, column)?])?]);
        }
        let mut alternatives = Alternatives::default();
        for restriction in self.restricted() {
            let column = &restriction.column;
            let values = match &restriction.kind {
                Kind::Equal(term) => vec![key_value(term.bind(execution)?, column)?],
                Kind::In(values) => {
                    let values = values.bind(execution)?;
                    values.into_iter().map(|value| key_value(value, column)).collect::<Result<_, _>>()?
                }
                Kind::Slice { .. } | Kind::Contains(_) | Kind::Like(_) => Vec::new(),
            };
            if values.is_empty() {
                return Ok(Vec::new()); // restrictions after an `IN ()` are not examined
            }
            alternatives.push(values);
        }
        let mut keys = alternatives.combinations("partition key", execution)?;
        if self.has_in() {
            keys.sort_by(|left, right| self.compare(left, right));
            keys.dedup();
        }
        keys.iter().map(|values| serialize_key(values)).collect()
    }

    fn compare(&self, left: &[&[u8]], right: &[&[u8]]) -> Ordering {
        let columns = self.table.partition_key().iter().zip(left.iter().zip(right));
        let mut orders = columns.map(|(column, (left, right))| column.ty.compare(left, right));
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// The range that the token is restricted to; no keys if nothing can lie in it.
    pub fn token_range(&self, execution: &Execution<'_>) -> Result<Partitions, QueryError> {
        let bind = |bound: &TermBound| token_value(bound.term.bind(execution)?).map(|token| (token, bound.inclusive));
        let (start, end) = match &self.token {
            None => (None, None),
            Some(TokenRestriction::Equal(term)) => {
                let token = token_value(term.bind(execution)?)?;
                (Some((token, true)), Some((token, true)))
            }
            Some(TokenRestriction::Slice { start, end }) => {
                (start.as_ref().map(bind).transpose()?, end.as_ref().map(bind).transpose()?)
            }
        };
        // The least token, which no key has, stands for both ends of the ring.
        let real = |bound: Option<(Token, bool)>| bound.filter(|(token, _)| token.0 != i64::MIN);
        let (start, end) = (real(start), real(end));
        if let (Some((start, includes_start)), Some((end, includes_end))) = (start, end)
            && (start > end || (start == end && !(includes_start && includes_end)))
        {
            return Ok(Partitions::Keys(Vec::new()));
        }
        let key_bound = |bound: Option<(Token, bool)>| match bound {
            None => KeyBound::Unbounded,
            Some((token, inclusive)) => KeyBound::Token { token, inclusive },
        };
        Ok(Partitions::Range(KeyRange::Range { start: key_bound(start), end: key_bound(end) }))
    }
}

fn key_value(value: Bound<'_>, column: &Column) -> Result<Vec<u8>, QueryError> {
    key_bytes(&value, column).map(<[u8]>::to_vec)
}

fn key_bytes<'b>(value: &'b Bound<'_>, column: &Column) -> Result<&'b [u8], QueryError> {
    let name = &column.name;
    match value {
        Bound::Bytes(bytes) => Ok(bytes),
        Bound::Null => Err(QueryError::invalid(format!("Invalid null value in condition for column {name}"))),
        Bound::Unset => Err(QueryError::invalid(format!("Invalid unset value for column {name}"))),
    }
}

fn token_value(value: Bound<'_>) -> Result<Token, QueryError> {
    let bytes = value.as_bytes().ok_or_else(|| QueryError::invalid("Invalid null token value"))?;
    let token = bytes.try_into().map(i64::from_be_bytes);
    token.map(Token).map_err(|_| QueryError::invalid("Invalid null token value"))
}

/// The partition key of these column values.
#[inline]
pub(crate) fn serialize_key(values: &[&[u8]]) -> Result<PartitionKey, QueryError> {
    let serialized = check_key(values)?;
    if let [only] = values {
        return Ok(PartitionKey::new(only));
    }
    let mut key = Vec::with_capacity(serialized);
    push_key(values, &mut key);
    Ok(PartitionKey::new(&key))
}

/// Appends the partition key of these values of several columns.
pub(crate) fn push_key(values: &[&[u8]], key: &mut Vec<u8>) {
    for value in values {
        key.extend_from_slice(&(value.len() as u16).to_be_bytes());
        key.extend_from_slice(value);
        key.push(0);
    }
}

/// The length of the partition key of these values, bytes, if they make one.
pub(crate) fn check_key(values: &[&[u8]]) -> Result<usize, QueryError> {
    let length: usize = values.iter().map(|value| value.len()).sum();
    let serialized = if values.len() == 1 { length } else { length + 3 * values.len() };
    if serialized == 0 {
        return Err(QueryError::invalid("Key may not be empty"));
    }
    // Cassandra checks the values before the key that they form.
    for length in [length, serialized] {
        if length > KEY_BYTES_MAX {
            let message = format!("Key length of {length} is longer than maximum of {KEY_BYTES_MAX}");
            return Err(QueryError::invalid(message));
        }
    }
    Ok(serialized)
}
