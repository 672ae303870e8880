//! A statement ready to be carried out many times.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cql::ast::{Describe, Statement};
use md5::{Digest, Md5};
use model::{Schema, Table};
use uuid::Uuid;

use crate::entry::Class;
use crate::modify::{BatchPlan, ModificationPlan};
use crate::select::SelectPlan;
use crate::{ColumnSpec, ResultColumns};

/// A prepared statement. Its plan is `P`, which is [`Plan`] but in tests of those who only pass statements on.
///
/// It means the same as long as the schema of its tables does. After that it keeps the form that it has under the newer
/// schema, as long as clients cannot tell the two apart.
#[derive(Debug)]
pub struct Prepared<P = Plan> {
    /// What the client sent.
    pub text: Arc<str>,
    /// The keyspace that unqualified names were looked up in.
    pub keyspace: Option<Arc<str>>,
    /// The bind markers by number.
    pub variables: Vec<ColumnSpec>,
    /// The markers that give the partition key, in key order; empty where markers do not give all of it.
    pub partition_key_bind_indexes: Vec<u16>,
    /// The columns of the answer, of statements that answer rows of columns known beforehand.
    pub result_metadata: Option<Arc<ResultColumns>>,
    /// Warnings for whoever prepares the statement.
    pub warnings: Vec<String>,
    /// What carrying it out does.
    pub plan: P,
    result_id: OnceLock<[u8; 16]>,
    newer: Mutex<Option<Arc<Prepared<P>>>>,
}

impl<P> Prepared<P> {
    /// A statement of this text, whose unqualified names are of `keyspace`.
    pub fn new(text: Arc<str>, keyspace: Option<Arc<str>>, variables: Vec<ColumnSpec>, plan: P) -> Prepared<P> {
        Prepared {
            text,
            keyspace,
            variables,
            partition_key_bind_indexes: Vec::new(),
            result_metadata: None,
            warnings: Vec::new(),
            plan,
            result_id: OnceLock::new(),
            newer: Mutex::new(None),
        }
    }

    /// The id that clients know it by.
    pub fn id(&self) -> [u8; 16] {
        statement_id(&self.text, self.keyspace.as_deref())
    }

    /// The id of its result's columns, which v5 clients keep; see [`result_id`].
    pub fn result_id(&self) -> &[u8; 16] {
        let columns = self.result_metadata.as_ref().map_or(&[][..], |columns| columns.specs());
        self.result_id.get_or_init(|| result_id(columns))
    }

    /// Whether clients cannot tell the two apart by what PREPARE answered.
    fn looks_like(&self, other: &Prepared<P>) -> bool {
        self.result_id() == other.result_id() && self.variables == other.variables
    }

    /// The form of this statement under a newer schema: the one kept last if `is_current` says so, or else the one that
    /// `prepare` makes. `None` if it cannot be made, or a client would notice.
    pub(crate) fn renewed(
        &self,
        is_current: impl FnOnce(&Prepared<P>) -> bool,
        prepare: impl FnOnce() -> Option<Arc<Prepared<P>>>,
    ) -> Option<Arc<Prepared<P>>> {
        let mut newer = self.newer.lock().unwrap_or_else(PoisonError::into_inner);
        if !newer.as_deref().is_some_and(is_current) {
            *newer = prepare().filter(|again| again.looks_like(self));
        }
        newer.clone()
    }
}

/// What a statement does.
#[derive(Debug)]
pub struct Plan {
    pub(crate) work: Work,
    pub(crate) class: Class,
    /// The version of the schema it was made under.
    pub(crate) schema_version: Uuid,
    pub(crate) tables: Vec<Arc<Table>>,
}

#[derive(Debug)]
pub(crate) enum Work {
    Select(Box<SelectPlan>),
    Modification(Box<ModificationPlan>),
    Batch(Box<BatchPlan>),
    Use(Arc<str>),
    Truncate(Arc<Table>),
    Describe(Describe),
    /// DDL, and statements about roles.
    Schema(Box<Statement>),
}

impl Plan {
    /// Whether the statement means the same under this schema.
    pub(crate) fn is_current(&self, schema: &Schema) -> bool {
        let same = |table: &Arc<Table>| {
            schema.table(&table.keyspace, &table.name).is_none_or(|now| Arc::ptr_eq(now, table))
                && (schema.keyspace(&table.keyspace).is_none() || schema.table(&table.keyspace, &table.name).is_some())
        };
        self.schema_version == schema.version || self.tables.iter().all(same)
    }

    /// Whether carrying it out changes rows.
    pub(crate) fn is_modification(&self) -> bool {
        matches!(self.work, Work::Modification(_) | Work::Batch(_))
    }
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
