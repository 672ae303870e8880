//! The terms that a write adds to indexes: the work that they take, and the guardrails of those of storage-attached
//! indexes: `sai_string_term_size`, `sai_frozen_term_size`, `sai_vector_term_size`.
//!
//! The guardrails are off by default, so a small write is examined a second time only if one of them is set.

use engine::{Indexer, index_growth, may_grow_indexes};
use model::{Index, IndexClass, IndexPart, Mutation, PartitionUpdate};
use types::CqlType;

use crate::QueryError;
use crate::budget::steps_of_bytes;
use crate::execution::Execution;
use crate::guardrail::{Guardrail, SAI_FROZEN_TERM_SIZE, SAI_STRING_TERM_SIZE, SAI_VECTOR_TERM_SIZE, Texts};

/// The bytes of a map's entry besides key and value: here, and in Cassandra.
const ENTRY_BYTES: (usize, usize) = (8, 6);

/// The cost of counting the terms of some bytes, as a multiple of the cost of reading them.
const COUNTING_FACTOR: u64 = 8;

/// Checks the terms of a write. One that adds many entries is counted as work, so that it is made on a thread that may
/// be blocked.
pub(super) fn check(mutation: &Mutation, execution: &Execution<'_>) -> Result<(), QueryError> {
    if may_grow_indexes(mutation) {
        execution.work(COUNTING_FACTOR * steps_of_bytes(mutation.record_size()))?;
        let growth = index_growth(mutation);
        execution.work(growth.entries + steps_of_bytes(growth.size_bytes as usize))?;
    }
    if execution.processor.watches_terms() { check_guardrails(mutation, execution) } else { Ok(()) }
}

#[cold]
fn check_guardrails(mutation: &Mutation, execution: &Execution<'_>) -> Result<(), QueryError> {
    for update in mutation.updates() {
        for index in update.table().indexes().iter().filter(|index| index.class == IndexClass::StorageAttached) {
            check_update(update, index, execution)?;
        }
    }
    Ok(())
}

fn check_update(update: &PartitionUpdate, index: &Index, execution: &Execution<'_>) -> Result<(), QueryError> {
    let table = update.table();
    let (Some(indexer), Some(column)) = (Indexer::of_index(table, index), table.column(&index.column)) else {
        return Ok(());
    };
    let (guardrail, texts) = guardrail_of(&column.ty, execution);
    let mut checked = Ok(());
    indexer.values_of_update(update, &mut |value| {
        let size_bytes = match index.part {
            IndexPart::Entries => (value.len() + ENTRY_BYTES.1).saturating_sub(ENTRY_BYTES.0),
            _ => value.len(),
        };
        if checked.is_ok() {
            checked = guardrail.check(texts, &index.column, size_bytes, execution);
        }
    });
    checked
}

/// The guardrail of terms of columns of this type.
fn guardrail_of(ty: &CqlType, execution: &Execution<'_>) -> (Guardrail, &'static Texts) {
    let guardrails = &execution.processor.options().guardrails;
    let is_frozen = matches!(
        ty,
        CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. } | CqlType::Tuple(_) | CqlType::Udt { .. }
    );
    match ty {
        CqlType::Vector { .. } => (guardrails.sai_vector_term_size, &SAI_VECTOR_TERM_SIZE),
        ty if is_frozen && !ty.is_multi_cell() => (guardrails.sai_frozen_term_size, &SAI_FROZEN_TERM_SIZE),
        _ => (guardrails.sai_string_term_size, &SAI_STRING_TERM_SIZE),
    }
}
