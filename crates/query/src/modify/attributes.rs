//! USING TIMESTAMP and USING TTL.

use cql::ast;
use model::{NO_DELETION_TIME, TTL_NONE, Table};
use types::CqlType;

use super::times::Times;
use crate::execution::Execution;
use crate::preparing::Preparing;
use crate::terms::{Bound, Term, prepare as prepare_term};
use crate::{ColumnSpec, QueryError};

/// The longest TTL: twenty years, seconds.
pub(crate) const TTL_MAX: i32 = 20 * 365 * 24 * 60 * 60;

/// The last second that an expiring cell can have, in the words of error texts.
const EXPIRATION_MAX_TEXT: &str = "2106-02-07T06:28:13+00:00";

/// A prepared USING clause.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    timestamp: Option<Term>,
    time_to_live: Option<Term>,
}

impl Attributes {
    /// Prepares the USING clause of a statement about this table.
    pub fn prepare(
        raw: &ast::Attributes,
        keyspace: &str,
        table: &str,
        preparing: &mut Preparing<'_>,
    ) -> Result<Attributes, QueryError> {
        let mut prepare = |term: &Option<ast::Term>, name: &str, ty: CqlType| {
            let spec = ColumnSpec { keyspace: keyspace.into(), table: table.into(), name: name.into(), ty };
            term.as_ref().map(|term| prepare_term(term, &spec, preparing)).transpose()
        };
        Ok(Attributes {
            timestamp: prepare(&raw.timestamp, "[timestamp]", CqlType::Bigint)?,
            time_to_live: prepare(&raw.time_to_live, "[ttl]", CqlType::Int)?,
        })
    }

    /// Whether the statement has a timestamp.
    pub fn has_timestamp(&self) -> bool {
        self.timestamp.is_some()
    }

    /// Whether the statement has a TTL.
    pub fn has_time_to_live(&self) -> bool {
        self.time_to_live.is_some()
    }

    /// The timestamp of this execution, or `default` if the statement has none. Microseconds.
    pub fn timestamp(&self, default: i64, execution: &Execution<'_>) -> Result<i64, QueryError> {
        let Some(term) = &self.timestamp else { return Ok(default) };
        match term.bind(execution)? {
            Bound::Unset => Ok(default),
            Bound::Null => Err(QueryError::invalid("Invalid null value of timestamp")),
            Bound::Bytes(bytes) => number(&bytes).map(i64::from_be_bytes),
        }
    }

    /// All times of a statement about this table.
    pub fn times(&self, default: i64, table: &Table, execution: &Execution<'_>) -> Result<Times, QueryError> {
        let timestamp = self.timestamp(default, execution)?;
        if self.timestamp.is_some() {
            execution.processor.options().guardrails.check_timestamp(&table.name, timestamp, execution)?;
        }
        let ttl = self.time_to_live(table, execution)?;
        if timestamp == i64::MIN {
            let (first, last) = (i64::MIN + 1, i64::MAX);
            return Err(QueryError::invalid(format!("Out of bound timestamp, must be in [{first}, {last}]")));
        }
        Ok(Times::new(timestamp, ttl, execution.now_seconds))
    }

    fn time_to_live(&self, table: &Table, execution: &Execution<'_>) -> Result<i32, QueryError> {
        let default = table.options.default_time_to_live;
        let bound = self.time_to_live.as_ref().map(|term| term.bind(execution)).transpose()?;
        let (ttl, is_default) = match bound {
            None | Some(Bound::Unset) => (default, true),
            Some(Bound::Null) => (TTL_NONE, false),
            Some(Bound::Bytes(bytes)) => (number(&bytes).map(i32::from_be_bytes)?, false),
        };
        if ttl < 0 {
            return Err(QueryError::invalid(format!("A TTL must be greater or equal to 0, but was {ttl}")));
        }
        if ttl > TTL_MAX {
            let message = format!("ttl is too large. requested ({ttl}) maximum ({TTL_MAX})");
            return Err(QueryError::invalid(message));
        }
        refuse_overflow(ttl, is_default, table, execution.now_micros)?;
        Ok(ttl)
    }
}

fn number<const N: usize>(bytes: &[u8]) -> Result<[u8; N], QueryError> {
    let invalid = || QueryError::invalid(format!("Invalid timestamp value: {}", types::hex::to_string(bytes)));
    bytes.try_into().map_err(|_| invalid())
}

/// Refuses a TTL that ends after the last second that a cell can have.
fn refuse_overflow(ttl: i32, is_default: bool, table: &Table, now_micros: i64) -> Result<(), QueryError> {
    if ttl == TTL_NONE || now_micros / 1_000_000 + i64::from(ttl) < i64::from(NO_DELETION_TIME) {
        return Ok(());
    }
    let default = if is_default { "default " } else { "" };
    Err(QueryError::invalid(format!(
        "Request on table {}.{} with {default}ttl of {ttl} seconds exceeds maximum supported expiration date of \
         {EXPIRATION_MAX_TEXT}. In order to avoid this use a lower TTL, change the expiration date overflow policy or \
         upgrade to a version where this limitation is fixed. See CASSANDRA-14092 and CASSANDRA-14227 for more details.",
        table.keyspace, table.name
    )))
}
