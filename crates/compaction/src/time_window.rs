//! TimeWindowCompactionStrategy: the tables of one window of time become one.

use std::collections::BTreeMap;

use crate::options::TimeWindowOptions;
use crate::strategy::{Pick, TableMetadata};

/// Sizes within this factor of their mean count as similar in the newest window.
const SIMILAR: (f64, f64) = (0.5, 1.5);

/// All merges of free tables that could be begun: in the newest window as size-tiered compaction does, in older ones of everything.
pub(crate) fn picks(
    options: &TimeWindowOptions,
    tables: &[TableMetadata],
    is_free: &dyn Fn(&TableMetadata) -> bool,
    now_micros: i64,
) -> Vec<Pick> {
    let window_of = |micros: i64| micros.div_euclid(options.window_micros);
    let mut windows: BTreeMap<i64, Vec<&TableMetadata>> = BTreeMap::new();
    for table in tables {
        let micros = (table.max_timestamp as f64 * options.timestamp_resolution_micros) as i64;
        windows.entry(window_of(micros)).or_default().push(table);
    }
    let newest = windows.keys().next_back().copied().unwrap_or(0).max(window_of(now_micros));
    let mut picks = Vec::new();
    for (index, (window, mut members)) in windows.into_iter().rev().enumerate() {
        members.retain(|table| is_free(table));
        members.sort_by(|a, b| a.size_bytes.cmp(&b.size_bytes).then_with(|| a.id.cmp(&b.id)));
        let chosen = match window == newest {
            true => similar(&members, options.min_threshold),
            false => members,
        };
        if chosen.len() >= 2 {
            let overlap = chosen.len();
            let mut ids: Vec<_> = chosen.iter().take(options.max_threshold).map(|table| table.id.clone()).collect();
            ids.sort();
            picks.push(Pick { tables: ids, level: index, overlap });
        }
    }
    picks
}

/// The largest group of tables of similar size, if it has at least `least` tables. `members` ascend by size.
fn similar<'t>(members: &[&'t TableMetadata], least: usize) -> Vec<&'t TableMetadata> {
    let mut groups: Vec<(f64, Vec<&TableMetadata>)> = Vec::new();
    for table in members {
        let size = table.size_bytes as f64;
        match groups.last_mut() {
            Some((mean, group)) if size >= *mean * SIMILAR.0 && size <= *mean * SIMILAR.1 => {
                *mean = (*mean * group.len() as f64 + size) / (group.len() + 1) as f64;
                group.push(table);
            }
            _ => groups.push((size, vec![table])),
        }
    }
    groups
        .into_iter()
        .map(|(_, group)| group)
        .filter(|group| group.len() >= least)
        .max_by_key(Vec::len)
        .unwrap_or_default()
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

    #[test]
    fn old_windows_become_one_table_and_the_newest_waits() {
        let options = [("compaction_window_unit", "HOURS")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let options = TimeWindowOptions::from_options(&options).unwrap();
        let tables = [
            table(1, 100, HOUR),
            table(2, 9000, HOUR + 5),
            table(3, 100, 2 * HOUR),
            table(4, 100, 3 * HOUR),
            table(5, 110, 3 * HOUR + 1),
            table(6, 120, 3 * HOUR + 2),
        ];
        let picked = picks(&options, &tables, &|_| true, 3 * HOUR + 9);
        assert_eq!(picked.len(), 1);
        assert_eq!(picked[0].tables, [SSTableId::from_sequence(1), SSTableId::from_sequence(2)]);
        // An hour later the last window is old as well.
        assert_eq!(picks(&options, &tables, &|_| true, 4 * HOUR).len(), 2);
    }
}
