//! SELECT: prepared statements, and the pages of rows that their execution reads.
//!
//! `execute` and `read` execute every statement. `lookup` is a fast path for few rows of one partition, with the same
//! answers. `by_index` and `by_similarity` choose the rows to read by an index, and `nearest` sorts by similarity.

mod by_index;
mod by_similarity;
mod execute;
mod grouping;
mod lookup;
mod masking;
mod nearest;
mod ordering;
mod paging;
mod read;
mod sizes;
mod tombstones;
mod writer;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as AtomicOrdering};

use cql::ast::{self, Select};
use model::{ColumnKind, Table};
use types::CqlType;

use crate::budget::steps_of_expressions;
use crate::names::column_spec;
use crate::preparing::Preparing;
use crate::restrictions::{Reading, Restrictions, StatementType, Target};
use crate::selection::{self, Selection, selects_only_statics};
use crate::terms::{Term, prepare as prepare_term};
use crate::{QueryError, ResultColumns};

use grouping::Grouping;
use lookup::LookedUp;
use masking::Masking;
use nearest::Nearest;
use ordering::Ordering;
use writer::PlainWriter;

/// A prepared SELECT.
#[derive(Debug)]
pub(crate) struct SelectPlan {
    table: Arc<Table>,
    /// The form of statement that the states of its pages belong to; see [`paging::shape`].
    shape: u64,
    selection: Selection,
    /// The changes that masks of columns make, if the table has any.
    masking: Option<Box<Masking>>,
    /// Writes the rows of a selection of plain columns.
    plain: Option<PlainWriter>,
    /// The rows of one partition that it reads, if they can be looked up.
    looked_up: Option<LookedUp>,
    /// Whether an earlier answer had more rows than a look-up returns, or had a further page.
    is_long: AtomicBool,
    /// The regular columns that are read, by index; `None` if all are.
    regulars: Option<Arc<[usize]>>,
    restrictions: Restrictions,
    is_distinct: bool,
    grouping: Option<Grouping>,
    ordering: Ordering,
    /// The order by similarity, if the rows have one.
    nearest: Option<Box<Nearest>>,
    limit: Option<Term>,
    per_partition_limit: Option<Term>,
    /// The cost of a row besides its bytes, in steps of a [`crate::budget::Budget`].
    steps_per_row: u64,
    /// The size of the cells in an earlier answer, which is reserved for those of the next one, bytes.
    usual_size_bytes: AtomicUsize,
}

impl SelectPlan {
    /// How many expressions it selects.
    pub fn selector_count(&self) -> usize {
        let forms = if self.changes_for_readers() { 2 } else { 1 };
        forms * self.selection.selector_count()
    }

    /// The columns of the answer.
    pub fn result_metadata(&self) -> Arc<ResultColumns> {
        self.selection.metadata().clone()
    }

    /// Whether the SELECT reads a range of partitions instead of given ones.
    pub fn is_scan(&self) -> bool {
        self.restrictions.is_key_range()
    }

    /// Whether it finds rows by an index.
    pub fn uses_index(&self) -> bool {
        self.restrictions.uses_index()
    }

    /// Whether it finds rows by values in an index, and was not long when it was executed last.
    pub fn is_short_search(&self) -> bool {
        let is_search = !self.restrictions.indexed().is_empty();
        is_search && self.nearest.is_none() && !self.is_long.load(AtomicOrdering::Relaxed)
    }

    /// Whether the rows may be found without a cursor, by [`SelectPlan::find_rows`].
    pub fn may_be_looked_up(&self) -> bool {
        self.looked_up.is_some()
    }

    /// Whether some readers see masked values of selected columns.
    fn changes_for_readers(&self) -> bool {
        self.masking.as_ref().is_some_and(|masking| masking.changes_selection())
    }

    /// Whether result rows are made of groups of rows.
    fn is_grouping(&self) -> bool {
        self.grouping.is_some() || self.selection.is_aggregate()
    }
}

/// Prepares a SELECT.
pub(crate) fn prepare(select: &Select, preparing: &mut Preparing<'_>) -> Result<SelectPlan, QueryError> {
    let table = preparing.table(&select.table)?;
    let only_statics = selects_only_statics(&select.selection, &table);
    // Cassandra looks up selected columns and functions first.
    selection::check_names(&select.selection, &table, preparing)?;
    let by_similarity = nearest::Clauses::prepare(&select.order_by, &table, preparing)?;
    let reading = Reading { statement: StatementType::Select, only_statics, allow_filtering: select.allow_filtering };
    let ordered_by = by_similarity.column();
    let restrictions = Restrictions::prepare_ordered(&select.where_clause, &table, reading, ordered_by, preparing)?;
    let selection = Selection::prepare(&select.selection, &table, select.is_json, preparing)?;
    if select.is_distinct {
        check_distinct(select, &selection, &restrictions, &table)?;
    }
    let grouping = Grouping::prepare(select, &table, &restrictions, preparing)?;
    if selection.is_aggregate() && grouping.is_none() && select.per_partition_limit.is_some() {
        return Err(QueryError::invalid("PER PARTITION LIMIT is not allowed with aggregate queries."));
    }
    let nearest = by_similarity.into_order(&table);
    let clauses = if nearest.is_some() { &[] } else { select.order_by.as_slice() };
    let ordering = Ordering::prepare(clauses, &table, &restrictions)?;
    restrictions.check_needs_filtering(select.allow_filtering)?;
    let mut limit = |term: &Option<ast::Term>, name: &str| {
        let receiver = column_spec(&table, &table.partition_key()[0]).sibling(name, CqlType::Int);
        term.as_ref().map(|term| prepare_term(term, &receiver, preparing)).transpose()
    };
    let per_partition_limit = limit(&select.per_partition_limit, "[per_partition_limit]")?;
    let limit = limit(&select.limit, "[limit]")?;
    let is_plain = selection.is_plain() && grouping.is_none();
    let is_in_order = nearest.is_none();
    let is_whole = limit.is_none() && per_partition_limit.is_none() && !select.is_distinct && is_in_order;
    let plain = if is_plain { PlainWriter::new(&selection, &table) } else { None };
    let regulars = regulars_used(&table, &selection, &restrictions);
    let masking = Masking::prepare(select, &table, &selection, preparing)?;
    // Only plans that check who their client is may show masks.
    let is_for_all = !masking.as_ref().is_some_and(|masking| masking.changes_selection());
    let is_looked_up = plain.is_some() && is_for_all;
    let finds_row = is_looked_up && is_whole && lookup::applies(&table);
    let finds_rows = is_looked_up
        && !select.is_distinct
        && is_in_order
        && ordering.sort.is_none()
        && lookup::applies_to_rows(&table, regulars.as_deref());
    let columns = if is_looked_up { 0 } else { table.columns(true).columns.len() + table.regulars().columns.len() };
    Ok(SelectPlan {
        steps_per_row: 1 + steps_of_expressions(selection.expression_count() + columns),
        shape: paging::shape(select, &table),
        looked_up: looked_up(&restrictions, &table, finds_row, finds_rows),
        regulars,
        table,
        selection,
        masking,
        plain,
        is_long: AtomicBool::new(false),
        restrictions,
        is_distinct: select.is_distinct,
        grouping,
        ordering,
        nearest,
        limit,
        per_partition_limit,
        usual_size_bytes: AtomicUsize::new(0),
    })
}

/// What is looked up without a cursor, if something is: one row, or a few rows.
fn looked_up(restrictions: &Restrictions, table: &Table, finds_row: bool, finds_rows: bool) -> Option<LookedUp> {
    match restrictions.target() {
        Target::Row(row) if finds_row && row.gives_row(table) => Some(LookedUp { target: row.into(), is_row: true }),
        Target::Row(row) if finds_rows => Some(LookedUp { target: row.into(), is_row: false }),
        Target::Slice(target) if finds_rows => Some(LookedUp { target: *target, is_row: false }),
        _ => None,
    }
}

/// The indexes of the selected and restricted regular columns; `None` if these are all.
fn regulars_used(table: &Table, selection: &Selection, restrictions: &Restrictions) -> Option<Arc<[usize]>> {
    let used = selection.used_columns().iter().chain(restrictions.other_columns());
    let regulars = used.filter(|column| column.kind == ColumnKind::Regular);
    let mut indexes: Vec<usize> = regulars.filter_map(|column| table.regulars().index_of(&column.name)).collect();
    indexes.sort_unstable();
    indexes.dedup();
    (indexes.len() < table.regulars().columns.len()).then(|| indexes.into())
}

fn check_distinct(
    select: &Select,
    selection: &Selection,
    restrictions: &Restrictions,
    table: &Table,
) -> Result<(), QueryError> {
    if select.per_partition_limit.is_some() {
        return Err(QueryError::invalid("PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries"));
    }
    let restricts_rows = restrictions.other_columns().any(|column| column.kind == ColumnKind::Regular);
    if restrictions.has_clustering() || restricts_rows {
        return Err(QueryError::invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.",
        ));
    }
    for column in selection.used_columns() {
        if matches!(column.kind, ColumnKind::Clustering | ColumnKind::Regular) {
            return Err(QueryError::invalid(format!(
                "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {})",
                column.name
            )));
        }
    }
    if !restrictions.is_key_range() {
        return Ok(());
    }
    let used: HashSet<_> = selection.used_columns().iter().map(|column| column.id).collect();
    for column in table.partition_key() {
        if !used.contains(&column.id) {
            return Err(QueryError::invalid(format!(
                "SELECT DISTINCT queries must request all the partition key columns (missing {})",
                column.name
            )));
        }
    }
    Ok(())
}
