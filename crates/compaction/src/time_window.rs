//! TimeWindowCompactionStrategy: the tables of one time window become one.

use std::collections::BTreeMap;

use crate::metadata::{Pick, TableMetadata};
use crate::options::TimeWindowOptions;
use crate::size_tiered;

/// All merges of free tables that could begin: in the current window, which is the newest of any table, by size-tiered
/// compaction; in older ones of everything.
pub(crate) fn picks(
    options: &TimeWindowOptions,
    tables: &[TableMetadata],
    is_free: &dyn Fn(&TableMetadata) -> bool,
) -> Vec<Pick> {
    let mut windows: BTreeMap<i64, Vec<&TableMetadata>> = BTreeMap::new();
    for table in tables {
        let micros = (table.max_timestamp as f64 * options.timestamp_resolution_micros) as i64;
        windows.entry(micros.div_euclid(options.window_micros)).or_default().push(table);
    }
    let mut picks = Vec::new();
    for (index, mut members) in windows.into_values().rev().enumerate() {
        members.retain(|table| is_free(table));
        members.sort_by(|a, b| a.size_bytes.cmp(&b.size_bytes).then_with(|| a.id.cmp(&b.id)));
        let chosen = match index {
            0 => size_tiered::pick(&options.size_tiered, &members),
            _ => members.into_iter().take(options.size_tiered.max_threshold).collect(),
        };
        if chosen.len() >= 2 {
            let mut ids: Vec<_> = chosen.iter().map(|table| table.id.clone()).collect();
            ids.sort();
            picks.push(Pick { tables: ids, level: index, overlap: chosen.len() });
        }
    }
    picks
}

#[cfg(test)]
mod tests {
    use sstable::SSTableId;
    use types::Token;

    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn table(id: u32, size_bytes: u64, max_timestamp: i64) -> TableMetadata {
        TableMetadata {
            id: SSTableId::from_sequence(id),
            first_token: Token(0),
            last_token: Token(1),
            size_bytes,
            token_space_coverage: 1.0,
            min_timestamp: 0,
            max_timestamp,
            max_local_deletion_time: u32::MAX,
        }
    }

    fn hours(set: &[(&str, &str)]) -> TimeWindowOptions {
        let set = set.iter().chain([&("compaction_window_unit", "HOURS")]);
        TimeWindowOptions::from_options(&set.map(|(k, v)| (k.to_string(), v.to_string())).collect()).unwrap()
    }

    /// The tables of each pick.
    fn picked(options: &TimeWindowOptions, tables: &[TableMetadata]) -> Vec<Vec<String>> {
        let picks = picks(options, tables, &|_| true).into_iter();
        picks.map(|pick| pick.tables.iter().map(|id| id.to_string()).collect()).collect()
    }

    #[test]
    fn old_windows_become_one_table_and_the_newest_waits() {
        let mut tables = vec![
            table(1, 100, HOUR),
            table(2, 9000, HOUR + 5),
            table(3, 100, 2 * HOUR),
            table(4, 100, 3 * HOUR),
            table(5, 110, 3 * HOUR + 1),
            table(6, 120, 3 * HOUR + 2),
        ];
        assert_eq!(picked(&hours(&[]), &tables), [["1", "2"]]);
        // With the first table of the next window it is old as well.
        tables.push(table(7, 1, 4 * HOUR));
        assert_eq!(picked(&hours(&[]), &tables), [vec!["4", "5", "6"], vec!["1", "2"]]);
    }

    #[test]
    fn only_the_current_window_is_merged_by_size() {
        let of = |set: &[(&str, &str)], hour: i64, sizes: &[u64]| {
            let mut tables: Vec<_> = (1..).zip(sizes).map(|(id, size)| table(id, *size, HOUR)).collect();
            tables.push(table(9, 1 << 40, hour * HOUR));
            picked(&hours(set), &tables)
        };
        let (current, later) = (1, 2);
        let sizes = [100, 110, 120, 1000];
        // All are small, and therefore similar.
        assert_eq!(of(&[], current, &sizes), [["1", "2", "3", "4"]]);
        let by_size = [("min_sstable_size", "0")];
        assert!(of(&by_size, current, &sizes).is_empty());
        assert_eq!(of(&by_size, later, &sizes), [["1", "2", "3", "4"]]);
        let three = [("min_sstable_size", "0"), ("min_threshold", "3")];
        assert_eq!(of(&three, current, &sizes), [["1", "2", "3"]]);
        let wide = [("min_sstable_size", "0"), ("bucket_high", "12")];
        assert_eq!(of(&wide, current, &sizes), [["1", "2", "3", "4"]]);
        // The limit on the tables of a merge applies to every window, and the smallest are taken first.
        let two = [("min_threshold", "2"), ("max_threshold", "2")];
        assert_eq!(of(&two, current, &sizes), [["1", "2"]]);
        assert_eq!(of(&two, later, &sizes), [["1", "2"]]);
    }
}
