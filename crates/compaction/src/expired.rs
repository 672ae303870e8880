//! Finding fully expired tables.

use sstable::SSTableId;

use crate::metadata::TableMetadata;

/// The tables among `candidates` that can be dropped without reading them: everything in them was deleted or expired
/// before `gc_before` (seconds), and no other table has data old enough for them to shadow. `overlapping` are the
/// tables that share tokens with them, and `memtable_min_timestamp` (microseconds) is the oldest write in memory.
pub fn fully_expired(
    candidates: &[TableMetadata],
    overlapping: &[TableMetadata],
    memtable_min_timestamp: i64,
    gc_before: u32,
    ignore_overlaps: bool,
) -> Vec<SSTableId> {
    let is_expired = |table: &&TableMetadata| table.max_local_deletion_time < gc_before;
    let living = candidates.iter().chain(overlapping).filter(|table| !is_expired(table));
    let oldest_living = living.map(|table| table.min_timestamp).min().unwrap_or(i64::MAX).min(memtable_min_timestamp);
    candidates
        .iter()
        .filter(is_expired)
        .filter(|table| ignore_overlaps || table.max_timestamp < oldest_living)
        .map(|table| table.id.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use types::Token;

    use super::*;

    fn table(id: u32, timestamps: (i64, i64), max_local_deletion_time: u32) -> TableMetadata {
        TableMetadata {
            id: SSTableId::from_sequence(id),
            first_token: Token(0),
            last_token: Token(1),
            size_bytes: 1,
            token_space_coverage: 1.0,
            min_timestamp: timestamps.0,
            max_timestamp: timestamps.1,
            max_local_deletion_time,
        }
    }

    #[test]
    fn an_expired_table_stays_while_it_may_shadow_something() {
        let expired = table(1, (10, 20), 500);
        let drop = |overlapping: &[TableMetadata], memtable, gc_before, ignore| {
            !fully_expired(std::slice::from_ref(&expired), overlapping, memtable, gc_before, ignore).is_empty()
        };
        assert!(drop(&[], i64::MAX, 501, false));
        assert!(!drop(&[], i64::MAX, 500, false), "not expired for long enough");
        assert!(!drop(&[table(2, (20, 90), u32::MAX)], i64::MAX, 501, false), "an older write lives elsewhere");
        assert!(drop(&[table(2, (21, 90), u32::MAX)], i64::MAX, 501, false));
        assert!(drop(&[table(2, (0, 90), 400)], i64::MAX, 501, false), "the other is expired as well");
        assert!(!drop(&[], 20, 501, false), "an older write is in memory");
        assert!(drop(&[], 20, 501, true));
    }
}
