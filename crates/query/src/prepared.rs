//! Prepared statements, which are executed many times.

mod class;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cql::ast::{Describe, Statement};
use md5::{Digest, Md5};
use model::{Schema, Table};
use uuid::Uuid;

use crate::modify::{BatchPlan, ModificationPlan};
use crate::select::SelectPlan;
use crate::{ClientState, ColumnSpec, QueryError, ResultColumns};

pub(crate) use class::Class;

/// A prepared statement. Its plan is `P`, which is [`Plan`] except in tests of the server.
///
/// The plan is valid as long as the schema of its tables does not change. After a change the statement keeps its new
/// form too, provided that clients see no difference.
#[derive(Debug)]
pub struct Prepared<P = Plan> {
    /// The text that the client sent.
    pub text: Arc<str>,
    /// The keyspace of unqualified names.
    pub keyspace: Option<Arc<str>>,
    /// The bind markers by number.
    pub variables: Vec<ColumnSpec>,
    /// The numbers of the markers that bind the partition key, in the key's order. Empty unless markers bind all of it.
    pub partition_key_bind_indexes: Vec<u16>,
    /// The columns of the answer, if they are known before the statement is executed.
    pub result_metadata: Option<Arc<ResultColumns>>,
    /// Warnings for a client that prepares the statement.
    pub warnings: Vec<String>,
    /// The plan.
    pub plan: P,
    /// The memory that the plan takes, in bytes.
    pub plan_size_bytes: usize,
    result_id: OnceLock<[u8; 16]>,
    newer: Mutex<Option<Arc<Prepared<P>>>>,
}

impl<P> Prepared<P> {
    /// A statement with this text. Unqualified names belong to `keyspace`.
    pub fn new(text: Arc<str>, keyspace: Option<Arc<str>>, variables: Vec<ColumnSpec>, plan: P) -> Prepared<P> {
        Prepared {
            text,
            keyspace,
            variables,
            partition_key_bind_indexes: Vec::new(),
            result_metadata: None,
            warnings: Vec::new(),
            plan,
            plan_size_bytes: 0,
            result_id: OnceLock::new(),
            newer: Mutex::new(None),
        }
    }

    /// The id by which clients refer to the statement.
    pub fn id(&self) -> [u8; 16] {
        statement_id(&self.text, self.keyspace.as_deref())
    }

    /// The id of the result's columns, which v5 clients keep. See [`result_id`].
    pub fn result_id(&self) -> &[u8; 16] {
        let columns = self.result_metadata.as_ref().map_or(&[][..], |columns| columns.specs());
        self.result_id.get_or_init(|| result_id(columns))
    }

    /// The memory that the statement takes, in bytes.
    pub fn size_bytes(&self) -> usize {
        // The plan has a copy of each constant and each name in the text.
        size_of::<Prepared<P>>() + 2 * self.text.len() + size_of_val(&*self.variables) + self.plan_size_bytes
    }

    /// Fails if the statement takes more memory than this.
    pub fn check_size(&self, size_bytes_max: u64) -> Result<(), QueryError> {
        const SHOWN_CHARACTERS: usize = 200;
        let size_bytes = self.size_bytes() as u64;
        if size_bytes <= size_bytes_max {
            return Ok(());
        }
        let text: String = self.text.chars().take(SHOWN_CHARACTERS).collect();
        Err(QueryError::invalid(format!(
            "Prepared statement of size {size_bytes} bytes is larger than allowed maximum of {size_bytes_max} bytes: \
             {text}..."
        )))
    }

    /// Whether PREPARE gives clients the same answer for both forms.
    fn looks_like(&self, other: &Prepared<P>) -> bool {
        self.result_id() == other.result_id() && self.variables == other.variables
    }

    /// The form of this statement under a newer schema. That is the form kept last, if `is_current` accepts it, or else
    /// the one that `prepare` returns. `None` if there is no such form, or if clients would see a difference.
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

/// An upper estimate of the memory of a plan, in bytes, from the number of tokens of its text. It is mostly less than
/// three times the real size. A plan is made of parts of the text, so each token has a price; the price of selected
/// expressions is higher. The prices were measured (`tests/it/prepared_size.rs`).
pub(crate) fn plan_size_bytes(work: &Work, tokens: usize, markers: usize) -> usize {
    const PLAN_BYTES: usize = 4096;
    const MARKER_BYTES: usize = 128;
    const SELECTOR_BYTES: usize = 768;
    let (token_bytes, selectors) = match work {
        Work::Select(select) => (512, select.selector_count()),
        _ => (160, 0),
    };
    PLAN_BYTES + tokens * token_bytes + markers * MARKER_BYTES + selectors * SELECTOR_BYTES
}

/// The plan of a statement.
#[derive(Debug)]
pub struct Plan {
    pub(crate) work: Work,
    pub(crate) class: Class,
    /// The version of the schema under which the plan was made.
    pub(crate) schema_version: Uuid,
    pub(crate) tables: Vec<Arc<Table>>,
    /// The last decisions about permissions: a role that was allowed to execute it, and the epoch. Zero is none. A role
    /// has its place, so that a few roles may execute the statement in turn.
    pub(crate) allowed: [AtomicU64; ALLOWED_ROLES],
    /// Why guardrails forbid the statement to ordinary roles.
    pub(crate) forbidden: Option<QueryError>,
    /// Whether it needed more than a turn when it was last executed where it may block. It is then executed there
    /// again, because an attempt would only use up a turn.
    exceeds_turn: AtomicBool,
}

#[derive(Debug)]
pub(crate) enum Work {
    Select(Box<SelectPlan>),
    Modification(Box<ModificationPlan>),
    /// A modification that reads before it writes.
    Derived(Box<ModificationPlan>),
    Batch(Box<BatchPlan>),
    Use(Arc<str>),
    Truncate(Arc<Table>),
    Describe(Describe),
    /// DDL, and statements about roles.
    Schema(Box<Statement>),
}

/// How many roles may execute a statement in turn without a new decision each time.
const ALLOWED_ROLES: usize = 4;

impl Plan {
    /// A plan for this work, made under a schema of this version.
    pub(crate) fn new(
        work: Work,
        tables: Vec<Arc<Table>>,
        schema_version: Uuid,
        forbidden: Option<QueryError>,
    ) -> Plan {
        let (class, allowed, exceeds_turn) = (Class::of(&work), Default::default(), AtomicBool::new(false));
        Plan { work, class, schema_version, tables, allowed, forbidden, exceeds_turn }
    }

    /// Whether the statement probably needs more than a turn.
    #[inline]
    pub(crate) fn exceeds_turn(&self) -> bool {
        self.exceeds_turn.load(Ordering::Relaxed)
    }

    /// Notes whether the statement needed more than a turn.
    pub(crate) fn note_work(&self, exceeds_turn: bool) {
        // All threads read this flag, so it is written only when it changes.
        if self.exceeds_turn() != exceeds_turn {
            self.exceeds_turn.store(exceeds_turn, Ordering::Relaxed);
        }
    }

    /// The last decision about the client's role, or about another role with the same place.
    #[inline]
    pub(crate) fn allowed_to(&self, client: &ClientState) -> &AtomicU64 {
        &self.allowed[client.user_id as usize % ALLOWED_ROLES]
    }

    /// Whether the plan is valid under this schema.
    pub(crate) fn is_current(&self, schema: &Schema) -> bool {
        let same = |table: &Arc<Table>| {
            schema.table(&table.keyspace, &table.name).is_none_or(|now| Arc::ptr_eq(now, table))
                && (schema.keyspace(&table.keyspace).is_none() || schema.table(&table.keyspace, &table.name).is_some())
        };
        self.schema_version == schema.version || self.tables.iter().all(same)
    }

    /// Whether it is a SELECT that finds few rows by an index, which does not take long.
    pub(crate) fn is_short_search(&self) -> bool {
        matches!(&self.work, Work::Select(select) if select.is_short_search())
    }

    /// Whether the statement changes rows.
    pub(crate) fn is_modification(&self) -> bool {
        matches!(self.work, Work::Modification(_) | Work::Derived(_) | Work::Batch(_))
    }
}

/// The id of a result's columns, as in Cassandra: an MD5 digest of their names and types. A v5 client compares it with
/// the id that it knows, and so notices a change of the columns.
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

/// The id of a prepared statement: a digest of its text and, if names depend on it, of the keyspace.
pub fn statement_id(text: &str, keyspace: Option<&str>) -> [u8; 16] {
    let mut digest = Md5::new();
    digest.update(keyspace.unwrap_or_default().as_bytes());
    digest.update(text.as_bytes());
    digest.finalize().into()
}
