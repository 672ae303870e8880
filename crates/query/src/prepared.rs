//! A statement ready to be carried out many times.

use std::sync::Arc;

use cql::ast::{Describe, Statement};
use md5::{Digest, Md5};
use model::{Schema, Table};
use uuid::Uuid;

use crate::modify::{BatchPlan, ModificationPlan};
use crate::select::SelectPlan;
use crate::{ColumnSpec, ResultColumns};

/// A prepared statement. Immutable; made again when the schema of its tables changes.
#[derive(Debug)]
pub struct Prepared {
    /// The bind markers by number.
    pub variables: Vec<ColumnSpec>,
    /// The markers that give the partition key, in key order; empty where markers do not give all of it.
    pub partition_key_bind_indexes: Vec<u16>,
    /// The columns of the answer, of statements that answer rows of columns known beforehand.
    pub result_metadata: Option<Arc<ResultColumns>>,
    /// Warnings for whoever prepares the statement.
    pub warnings: Vec<String>,
    /// The version of the schema it was prepared under.
    pub schema_version: Uuid,
    /// The keyspace that unqualified names were looked up in.
    pub keyspace: Option<Arc<str>>,
    pub(crate) plan: Plan,
    pub(crate) tables: Vec<Arc<Table>>,
    /// How many tokens its text has.
    pub(crate) tokens: usize,
}

impl Prepared {
    /// Whether the statement means the same under this schema.
    pub fn is_current(&self, schema: &Schema) -> bool {
        let same = |table: &Arc<Table>| {
            schema.table(&table.keyspace, &table.name).is_none_or(|now| Arc::ptr_eq(now, table))
                && (schema.keyspace(&table.keyspace).is_none() || schema.table(&table.keyspace, &table.name).is_some())
        };
        self.schema_version == schema.version || self.tables.iter().all(same)
    }

    /// What it takes in memory, bytes: not less, and mostly not more than three times as much. A plan is made of parts
    /// of the text, so a price for each token stands for them; that of expressions to be selected is higher. The prices
    /// were measured (`tests/it/prepared_size.rs`).
    pub fn size_bytes(&self) -> usize {
        const PLAN_BYTES: usize = 4096;
        const MARKER_BYTES: usize = 128;
        const SELECTOR_BYTES: usize = 768;
        let (token_bytes, selectors) = match &self.plan {
            Plan::Select(select) => (512, select.selector_count()),
            _ => (160, 0),
        };
        PLAN_BYTES + self.tokens * token_bytes + self.variables.len() * MARKER_BYTES + selectors * SELECTOR_BYTES
    }

    /// Whether carrying it out changes rows.
    pub fn is_modification(&self) -> bool {
        matches!(self.plan, Plan::Modification(_) | Plan::Batch(_))
    }
}

/// What a statement does.
#[derive(Debug)]
pub(crate) enum Plan {
    Select(Box<SelectPlan>),
    Modification(Box<ModificationPlan>),
    Batch(Box<BatchPlan>),
    Use(Arc<str>),
    Truncate(Arc<Table>),
    Describe(Describe),
    /// DDL, and statements about roles.
    Schema(Box<Statement>),
}

/// Cassandra's id of a result's columns: an MD5 of their names and types. A v5 client learns from it whether the
/// columns that it knows are still those of the result.
pub fn result_id(columns: &[ColumnSpec]) -> [u8; 16] {
    let mut digest = Md5::new();
    for column in columns {
        digest.update(column.name.as_bytes());
        digest.update([0]);
        digest.update(column.ty.to_marshal_class().as_bytes());
        digest.update([0, 0]);
    }
    digest.finalize().into()
}

/// The id a statement is prepared under: a digest of its text and, where names depend on it, the keyspace.
pub fn statement_id(text: &str, keyspace: Option<&str>) -> [u8; 16] {
    let mut digest = Md5::new();
    digest.update(keyspace.unwrap_or_default().as_bytes());
    digest.update(text.as_bytes());
    digest.finalize().into()
}
