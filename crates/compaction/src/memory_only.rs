//! MemoryOnlyStrategy: all rows of the table are in memory, and reads use no SSTable. The data on disk is for the next
//! start.
//!
//! The SSTables must stay within 2.5 times the size of the data. There is one large SSTable of all data, and small ones
//! with later changes. All are merged as soon as another flush could make the small ones larger than half of the large
//! one. While the merge writes a new large one, there is at most 1 + 1/2 + 1 times the data, because a table is flushed
//! for its size only when the merge is done. Changes of less than [`FLUSH_BYTES_MIN`] are not flushed for their size.
//! If the data is less than twice as large, a flush would cause a merge at once, and there would be three times the
//! data meanwhile. Such a flush therefore rewrites the SSTables itself, together with the flushed data, and there is
//! twice the data.

use std::collections::BTreeMap;

use crate::metadata::{Pick, TableMetadata};
use crate::options::OptionError;

/// Options of MemoryOnlyStrategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOnlyOptions {
    /// The most memory that the table may take, bytes (`size_limit_in_mb`).
    pub size_limit_bytes: u64,
}

const NAME: &str = "MemoryOnlyStrategy";
const PACKAGE: &str = "org.apache.cassandra.db.compaction.";
/// Largest `size_limit_in_mb`, a petabyte.
const SIZE_LIMIT_MB_MAX: u64 = 1 << 30;
/// This many SSTables are merged whatever they contain, because a start opens all of them.
const SSTABLES_MAX: usize = 32;

/// Changes are flushed for their size when they are this fraction of the data, and at least `FLUSH_BYTES_MIN`.
const FLUSH_SHARE: u64 = 8;
/// Smaller changes are not flushed for their size, so that a table much smaller than a memtable is written to the disk
/// no more often than any other. In bytes.
pub const FLUSH_BYTES_MIN: u64 = 32 << 20;
/// A flush rewrites a table completely if it has less than this in SSTables, bytes.
pub const REWRITTEN_BYTES_MAX: u64 = 2 * FLUSH_BYTES_MIN;

impl MemoryOnlyOptions {
    /// The options of a table; `None` if it has another strategy.
    pub fn of_table(options: &BTreeMap<String, String>) -> Result<Option<Self>, OptionError> {
        let class = options.get("class").map_or("", String::as_str);
        if class.strip_prefix(PACKAGE).unwrap_or(class) == NAME {
            Self::from_options(options).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Reads the options.
    pub fn from_options(options: &BTreeMap<String, String>) -> Result<Self, OptionError> {
        let Some(text) = options.get("size_limit_in_mb") else {
            return Err(OptionError(format!("Missing sub-option 'size_limit_in_mb' for {NAME}")));
        };
        let megabytes: i64 = text
            .trim()
            .parse()
            .map_err(|_| OptionError(format!("size_limit_in_mb should be an integer, but \"{text}\" was specified")))?;
        match u64::try_from(megabytes) {
            Ok(megabytes @ 1..=SIZE_LIMIT_MB_MAX) => Ok(MemoryOnlyOptions { size_limit_bytes: megabytes << 20 }),
            _ => Err(OptionError(format!(
                "size_limit_in_mb must be between 1 and {SIZE_LIMIT_MB_MAX}, but was {megabytes}"
            ))),
        }
    }
}

/// The bytes of changes at which a table in memory of `data_bytes` is flushed for its size, at least `least_bytes`.
pub fn flush_bytes(data_bytes: u64, least_bytes: u64) -> u64 {
    (data_bytes / FLUSH_SHARE).max(least_bytes)
}

/// Whether SSTables of these sizes exceed the point at which they are merged. Merges then do not keep up, and a flush
/// to free log space would exceed the limit on the disk's contents.
pub fn is_merge_overdue(sizes_bytes: impl Iterator<Item = u64>) -> bool {
    let (small, large) = small_and_large(sizes_bytes);
    small > 0 && 2 * with_another_flush(small, large) > large
}

/// The total size of the small SSTables after another flush.
fn with_another_flush(small: u64, large: u64) -> u64 {
    small + flush_bytes(large, FLUSH_BYTES_MIN)
}

/// The total size of all SSTables but the largest, and the size of the largest.
fn small_and_large(sizes_bytes: impl Iterator<Item = u64>) -> (u64, u64) {
    let (total, largest) = sizes_bytes.fold((0, 0), |(total, largest), size| (total + size, size.max(largest)));
    (total - largest, largest)
}

/// Picks all SSTables, once those since the last merge have grown large enough.
pub(crate) fn picks(tables: &[TableMetadata]) -> Vec<Pick> {
    let (small, large) = small_and_large(tables.iter().map(|table| table.size_bytes));
    if tables.len() < 2 || (2 * with_another_flush(small, large) < large && tables.len() < SSTABLES_MAX) {
        return Vec::new();
    }
    let ids = tables.iter().map(|table| table.id.clone()).collect();
    vec![Pick { tables: ids, level: 0, overlap: tables.len() }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use sstable::SSTableId;
    use types::Token;
    use uuid::Uuid;

    fn tables(sizes_bytes: &[u64]) -> Vec<TableMetadata> {
        let of_size = |(index, size_bytes): (usize, &u64)| TableMetadata {
            id: SSTableId::from_uuid(Uuid::from_u128(index as u128)),
            first_token: Token(i64::MIN),
            last_token: Token(i64::MAX),
            size_bytes: *size_bytes,
            token_space_coverage: 1.0,
            min_timestamp: 0,
            max_timestamp: 0,
            max_local_deletion_time: u32::MAX,
        };
        sizes_bytes.iter().enumerate().map(of_size).collect()
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn all_sstables_are_merged_before_new_ones_exceed_half_of_the_old_one() {
        for (sizes, merged) in [
            (vec![], false),
            (vec![800], false),
            (vec![800, 299], false),
            (vec![800, 150, 150], true),
            (vec![100, 17], false),
            (vec![100, 18], true),
            (vec![20], false),
            (vec![20, 1], true),
        ] {
            let sizes: Vec<u64> = sizes.iter().map(|size| size * MIB).collect();
            let picks = picks(&tables(&sizes));
            assert_eq!(picks.iter().map(|pick| pick.tables.len()).sum::<usize>(), if merged { sizes.len() } else { 0 });
        }
        let mut many = vec![1; SSTABLES_MAX - 1];
        many.push(1000 * MIB);
        assert_eq!(picks(&tables(&many)).len(), 1, "a start has to open them all");
    }

    /// The most bytes on disk while this much data is overwritten.
    fn most_on_disk(data: u64) -> u64 {
        // A flush replaces nothing that was flushed since the last merge, but is never larger than all data.
        let flushed = flush_bytes(data, FLUSH_BYTES_MIN).min(data);
        let (mut sizes, mut most) = (vec![data], 0);
        for _ in 0..1000 {
            if sizes.iter().sum::<u64>() < REWRITTEN_BYTES_MAX {
                most = most.max(sizes.iter().sum::<u64>() + data);
                sizes = vec![data];
                continue;
            }
            if !is_merge_overdue(sizes.iter().copied()) {
                sizes.push(flushed);
            }
            if picks(&tables(&sizes)).is_empty() {
                continue;
            }
            let merged = sizes.len();
            // As many flushes as may happen during the merge.
            while !is_merge_overdue(sizes.iter().copied()) {
                sizes.push(flushed);
            }
            most = most.max(sizes.iter().sum::<u64>() + data);
            sizes.splice(..merged, [data]);
        }
        most
    }

    #[test]
    fn disk_use_stays_within_two_and_a_half_times_the_data_while_it_is_overwritten() {
        for mebibytes in [1, 7, 32, 63, 64, 65, 80, 100, 127, 128, 200, 255, 256, 300, 1000, 8000] {
            let most = most_on_disk(mebibytes * MIB);
            assert!(2 * most <= 5 * mebibytes * MIB, "{most} of {mebibytes} MiB");
        }
    }
}
