//! The WHERE clause: the partitions and rows that it selects, and the conditions left to filter by.

mod alternatives;
mod clustering;
mod column;
mod filter;
mod index;
mod like;
mod nearest;
mod partition;
mod relation;
mod target;
mod tuple;

use std::sync::Arc;

use cql::ast::{Operator, QualifiedName, Relation, WhereClause};
use model::{Clusterings, Column, ColumnKind, PartitionKey, Slices, Table, TableForm, push_component};

use crate::QueryError;
use crate::execution::Execution;
use crate::preparing::Preparing;

pub(crate) use alternatives::check_combinations;
pub(crate) use clustering::ClusteringRestrictions;
pub(crate) use filter::RowFilter;
pub(crate) use index::IndexedRestriction;
pub(crate) use partition::{Partitions, check_key, push_key};
pub(crate) use target::{ROW_VALUES_MAX, RowTarget, RowValues, SliceTarget, Target};

use column::ColumnRestriction;
use index::IndexUse;
use partition::PartitionRestrictions;
use relation::Restriction;

const NEEDS_FILTERING: &str = "Cannot execute this query as it might involve data filtering and thus may have \
    unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
    FILTERING";

/// The kind of statement that a WHERE clause belongs to. The names are printed in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementType {
    Select,
    Insert,
    Update,
    Delete,
}

impl StatementType {
    fn name(self) -> &'static str {
        match self {
            StatementType::Select => "SELECT",
            StatementType::Insert => "INSERT",
            StatementType::Update => "UPDATE",
            StatementType::Delete => "DELETE",
        }
    }
}

/// How a WHERE clause is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The kind of statement.
    pub statement: StatementType,
    /// Whether a SELECT asks for, or a modification changes, static columns and no others outside the partition key.
    pub only_statics: bool,
    /// Whether rows may be left out after reading them.
    pub allow_filtering: bool,
}

/// A WHERE clause that was checked against its table.
#[derive(Debug)]
pub(crate) struct Restrictions {
    table: Arc<Table>,
    partition: PartitionRestrictions,
    clustering: ClusteringRestrictions,
    others: Vec<ColumnRestriction>,
    /// The column by whose vectors the rows are ordered.
    nearest: Option<Arc<Column>>,
    /// Whether partitions are not given by their keys.
    is_key_range: bool,
    filters_partition: bool,
    filters_clustering: bool,
    /// Whether the last clustering columns of a written row are left out, and null.
    leaves_out_clustering: bool,
    indexes: IndexUse,
    /// Whether storage-attached indexes go before plain ones.
    prefers_attached: bool,
    /// The restrictions by which indexes find the rows.
    indexed: Vec<IndexedRestriction>,
}

impl Restrictions {
    /// Checks a WHERE clause, and prepares its values.
    pub fn prepare(
        clause: &WhereClause,
        table: &Arc<Table>,
        reading: Reading,
        preparing: &mut Preparing<'_>,
    ) -> Result<Restrictions, QueryError> {
        Restrictions::prepare_ordered(clause, table, reading, Ok(None), preparing)
    }

    /// As [`prepare`](Self::prepare), of a SELECT whose rows are ordered by the vectors of a column. An error of the
    /// order comes after those of the relations.
    pub fn prepare_ordered(
        clause: &WhereClause,
        table: &Arc<Table>,
        reading: Reading,
        nearest: Result<Option<Arc<Column>>, QueryError>,
        preparing: &mut Preparing<'_>,
    ) -> Result<Restrictions, QueryError> {
        let mut restrictions = Restrictions {
            table: table.clone(),
            partition: PartitionRestrictions::new(table),
            clustering: ClusteringRestrictions::new(table, reading.statement == StatementType::Select),
            others: Vec::new(),
            nearest: None,
            is_key_range: false,
            filters_partition: false,
            filters_clustering: false,
            leaves_out_clustering: false,
            indexes: IndexUse::default(),
            prefers_attached: preparing.prefers_attached,
            indexed: Vec::new(),
        };
        for relation in &clause.relations {
            restrictions.add(relation, reading, preparing)?;
        }
        if let Some(column) = nearest? {
            restrictions.add_nearest(column)?;
        }
        if let Some(expression) = clause.expressions.first() {
            return Err(refuse_expression(&expression.index, table));
        }
        if reading.statement == StatementType::Select {
            restrictions.find_index_use();
        }
        restrictions.check_partition(reading)?;
        restrictions.check_clustering(reading)?;
        restrictions.check_others(reading)?;
        restrictions.check_index_use()?;
        restrictions.indexed = restrictions.useful_indexed();
        Ok(restrictions)
    }

    fn add(&mut self, relation: &Relation, reading: Reading, preparing: &mut Preparing<'_>) -> Result<(), QueryError> {
        let operator = relation.operator();
        let modifies = matches!(reading.statement, StatementType::Update | StatementType::Delete);
        if modifies && matches!(operator, Operator::Contains | Operator::ContainsKey) {
            let message = format!("Cannot use {} with {operator}", reading.statement.name());
            return Err(QueryError::invalid(message));
        }
        if operator == Operator::IsNot {
            return Err(QueryError::invalid(format!("Unsupported restriction: {relation}")));
        }
        let restriction = relation::prepare(relation, &self.table, preparing)?;
        if operator == Operator::Like && reading.statement != StatementType::Select {
            return Err(relation::refuse_like(relation));
        }
        match restriction {
            Restriction::Token(token) => self.partition.add_token(token),
            Restriction::Clustering(restriction) => {
                let may_follow_slice = reading.allow_filtering || restriction.indexed(self.table_indexes()).is_some();
                self.clustering.add(restriction, may_follow_slice)
            }
            Restriction::Column(restriction) => match restriction.column.kind {
                ColumnKind::PartitionKey => self.partition.add(restriction),
                _ => column::merge_into(&mut self.others, restriction),
            },
        }
    }

    fn check_partition(&mut self, reading: Reading) -> Result<(), QueryError> {
        let statement = reading.statement.name();
        if reading.statement != StatementType::Select {
            if self.partition.has_token() {
                let message = format!("The token function cannot be used in WHERE clauses for {statement} statements");
                return Err(QueryError::invalid(message));
            }
            let missing = self.partition.missing_columns();
            if !missing.is_empty() {
                let message = format!("Some partition key parts are missing: {}", missing.join(", "));
                return Err(QueryError::invalid(message));
            }
            if self.partition.needs_filtering() {
                return Err(QueryError::invalid(format!(
                    "Only EQ and IN relation are supported on the partition key (unless you use the token() function) for {statement} statements"
                )));
            }
            return Ok(());
        }
        self.is_key_range = self.partition.is_empty();
        if self.is_partition_free() {
            self.indexes.is_used = self.indexes.is_possible;
        }
        if self.partition.needs_filtering() {
            if !reading.allow_filtering && !self.indexes.is_possible {
                return Err(QueryError::invalid(NEEDS_FILTERING));
            }
            self.is_key_range = true;
            self.filters_partition = true;
            self.indexes.is_used = self.indexes.is_possible;
        }
        self.indexes.filters_partition = self.indexes.is_used || self.filters_partition;
        Ok(())
    }

    fn check_clustering(&mut self, reading: Reading) -> Result<(), QueryError> {
        let statement = reading.statement.name();
        if reading.only_statics && !self.clustering.is_empty() {
            return Err(QueryError::invalid(match reading.statement {
                StatementType::Select => {
                    "Cannot restrict clustering columns when selecting only static columns".to_owned()
                }
                _ => format!(
                    "Invalid restrictions on clustering columns since the {statement} statement modifies only static columns"
                ),
            }));
        }
        if matches!(reading.statement, StatementType::Insert | StatementType::Update) {
            if self.clustering.has_slice() {
                let message =
                    format!("Slice restrictions are not supported on the clustering columns in {statement} statements");
                return Err(QueryError::invalid(message));
            }
            let missing = self.clustering.missing_columns();
            if reading.only_statics || missing.is_empty() {
                return Ok(());
            }
            if !self.table.form().is_dense() || self.clustering.is_empty() {
                let message = format!("Some clustering keys are missing: {}", missing.join(", "));
                return Err(QueryError::invalid(message));
            }
            self.leaves_out_clustering = true;
            return self.clustering.refuse_gap();
        }
        if self.clustering.has_contains() && !reading.allow_filtering && !self.indexes.is_possible {
            return Err(QueryError::invalid(
                "Clustering columns can only be restricted with CONTAINS with a secondary index or filtering",
            ));
        }
        if self.clustering.needs_filtering() {
            if self.indexes.is_possible {
                self.indexes.is_used = true;
            } else if !reading.allow_filtering {
                self.clustering.refuse_gap()?;
            }
            self.filters_clustering = true;
        }
        self.indexes.is_used |= self.is_key_range && self.indexes.is_possible && self.has_clustering_index();
        self.indexes.filters_clustering = self.indexes.is_used || self.filters_clustering;
        Ok(())
    }

    fn check_others(&mut self, reading: Reading) -> Result<(), QueryError> {
        if let Some(column) = self.nearest() {
            self.check_nearest(column, reading.allow_filtering)?;
            self.indexes.is_used = true;
            return Ok(());
        }
        if self.others.is_empty() {
            return Ok(());
        }
        if reading.statement != StatementType::Select {
            let names: Vec<&str> = self.others.iter().map(|restriction| &*restriction.column.name).collect();
            let message = format!("Non PRIMARY KEY columns found in where clause: {} ", names.join(", "));
            return Err(QueryError::invalid(message));
        }
        self.refuse_indexed_vectors()?;
        if self.indexes.is_possible {
            self.indexes.is_used = true;
        } else if !reading.allow_filtering {
            return Err(QueryError::invalid(NEEDS_FILTERING));
        }
        Ok(())
    }

    /// Refuses a SELECT over all partitions that leaves out rows, unless filtering is allowed.
    pub fn check_needs_filtering(&self, allow_filtering: bool) -> Result<(), QueryError> {
        if self.indexes.is_used && !allow_filtering {
            return self.check_index_filters();
        }
        let filters = self.filters() || !self.clustering.is_empty();
        if !allow_filtering && self.is_key_range && filters {
            return Err(QueryError::invalid(NEEDS_FILTERING));
        }
        Ok(())
    }

    /// Whether rows are left out after reading them.
    pub fn filters(&self) -> bool {
        self.filters_partition || self.filters_clustering || !self.others.is_empty()
    }

    /// Whether partitions are not given by their keys.
    pub fn is_key_range(&self) -> bool {
        self.is_key_range
    }

    /// Whether the partition key is not restricted at all.
    pub fn is_partition_free(&self) -> bool {
        self.partition.is_empty() && !self.partition.has_token()
    }

    /// Whether partitions are given by IN.
    pub fn is_key_in(&self) -> bool {
        self.partition.has_in()
    }

    /// Whether clustering columns are restricted.
    pub fn has_clustering(&self) -> bool {
        !self.clustering.is_empty()
    }

    /// The restricted columns outside of the primary key, and the one by whose vectors rows are ordered.
    pub fn other_columns(&self) -> impl Iterator<Item = &Arc<Column>> {
        self.others.iter().map(|restriction| &restriction.column).chain(self.nearest())
    }

    /// Whether a column of the primary key is restricted to one value.
    pub fn is_equal(&self, column: &Column) -> bool {
        match column.kind {
            ColumnKind::PartitionKey => self.partition.is_equal(column),
            ColumnKind::Clustering => self.clustering.is_equal(column),
            _ => false,
        }
    }

    /// Whether a partition with nothing but static content yields a row.
    pub fn returns_static_only_partitions(&self) -> bool {
        let is_regular = |other: &ColumnRestriction| other.column.kind == ColumnKind::Regular;
        self.clustering.is_empty() && !self.others.iter().any(is_regular) && !self.is_nearest_regular()
    }

    /// Whether every clustering column is restricted to values, so that rows are given one by one.
    pub fn gives_rows(&self) -> bool {
        self.leaves_out_clustering || self.clustering.gives_rows()
    }

    /// Whether a partition key column is restricted by IN.
    pub fn has_partition_in(&self) -> bool {
        self.partition.has_in()
    }

    /// Whether a clustering column is restricted by IN.
    pub fn has_clustering_in(&self) -> bool {
        self.clustering.has_in()
    }

    /// The partitions, in this execution.
    pub fn partitions(&self, execution: &Execution<'_>) -> Result<Partitions, QueryError> {
        if self.filters_partition {
            return self.partition.token_range(execution);
        }
        self.partition.partitions(execution)
    }

    /// The partition keys of a modification, in this execution.
    pub fn partition_keys(&self, execution: &Execution<'_>) -> Result<Vec<PartitionKey>, QueryError> {
        match self.partition.partitions(execution)? {
            Partitions::Keys(keys) => Ok(keys),
            Partitions::Range(_) => Err(QueryError::server("a modification without a partition key")),
        }
    }

    /// The rows of each partition, in this execution, as slices in clustering order.
    pub fn slices(&self, execution: &Execution<'_>) -> Result<Slices, QueryError> {
        if self.table.form() == TableForm::StaticCompact {
            return Ok(Slices::none());
        }
        self.clustering.slices(execution)
    }

    /// The whole clusterings of a modification that restricts every clustering column to values; one empty clustering
    /// in a table without clustering columns.
    pub fn clusterings(&self, execution: &Execution<'_>) -> Result<Vec<Vec<u8>>, QueryError> {
        let mut prefixes = self.clustering.prefixes(execution)?;
        if self.leaves_out_clustering {
            prefixes.iter_mut().for_each(|prefix| complete_with_nulls(&self.table, prefix));
        }
        Ok(prefixes)
    }

    /// The conditions on rows besides lying in the partitions and slices.
    pub fn filter(&self, execution: &Execution<'_>) -> Result<RowFilter, QueryError> {
        let mut filter = RowFilter::default();
        if self.filters_partition {
            self.partition.filter(&mut filter, execution)?;
        }
        if self.filters_clustering {
            self.clustering.filter(&mut filter, execution)?;
        }
        let analyses = self.analyses();
        for restriction in &self.others {
            restriction.filter(&self.table, analyses, &mut filter, execution)?;
        }
        Ok(filter)
    }
}

/// Completes a prefix to a clustering: the missing columns are null.
fn complete_with_nulls(table: &Table, prefix: &mut Vec<u8>) {
    for _ in Clusterings(prefix).count()..table.clustering().len() {
        push_component(None, prefix);
    }
}

/// The error of an `expr(index, value)`: no index supports it.
fn refuse_expression(index: &QualifiedName, table: &Table) -> QueryError {
    let is_there = table.indexes().iter().any(|known| *known.name == *index.name.as_str());
    QueryError::invalid(match is_there {
        true => format!("Only CUSTOM indexes may be used in custom index expressions, {index} is not valid"),
        false => format!("Invalid index expression, index {index} not found for {}.{}", table.keyspace, table.name),
    })
}
