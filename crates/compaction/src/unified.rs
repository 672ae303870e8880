//! UnifiedCompactionStrategy: levels by density, and merges where too many tables of a level overlap.

use sstable::SSTableId;
use types::Token;

use crate::metadata::{Pick, TableMetadata};
use crate::options::UnifiedOptions;

/// The assumed size of a flush if nothing is known.
const FLUSH_SIZE_MIN: u64 = 1 << 20;

/// All merges that could begin, ordered by descending overlap, and then by level.
pub(crate) fn picks(options: &UnifiedOptions, tables: &[TableMetadata], flush_size_bytes: u64) -> Vec<Pick> {
    let mut picks = Vec::new();
    for (level, members) in levels(options, tables, flush_size_bytes).into_iter().enumerate() {
        for bucket in buckets(&members) {
            picks.extend(pick(options, level, &bucket));
        }
    }
    picks.sort_by(|a, b| b.overlap.cmp(&a.overlap).then(a.level.cmp(&b.level)));
    picks
}

/// The tables of each level.
fn levels<'t>(options: &UnifiedOptions, tables: &'t [TableMetadata], flush_size: u64) -> Vec<Vec<&'t TableMetadata>> {
    let mut by_density: Vec<&TableMetadata> = tables.iter().collect();
    by_density.sort_by(|a, b| a.density().total_cmp(&b.density()).then_with(|| a.id.cmp(&b.id)));
    // Some tolerance for flushes that are a little smaller, less than one table of a merge.
    let base = flush_size.max(FLUSH_SIZE_MIN) as f64 * (1.0 - 0.9 / f64::from(options.fanout(0)));
    let mut limit = (base * f64::from(options.fanout(0))).floor();
    let mut levels = vec![Vec::new()];
    for table in by_density {
        while table.density() >= limit {
            limit = (limit * f64::from(options.fanout(levels.len()))).floor();
            levels.push(Vec::new());
        }
        if let Some(level) = levels.last_mut() {
            level.push(table);
        }
    }
    levels
}

/// Tables of a level that are connected by overlaps.
struct Bucket<'t> {
    /// Newest first.
    tables: Vec<&'t TableMetadata>,
    /// Sets of tables, by index, that all overlap at some token.
    overlaps: Vec<Vec<usize>>,
}

/// The tables in sets without a common token, in order of tokens.
pub(crate) fn apart(tables: &[TableMetadata]) -> Vec<Vec<SSTableId>> {
    let groups = groups(tables.iter().collect()).into_iter();
    groups.map(|group| group.iter().map(|table| table.id.clone()).collect()).collect()
}

fn buckets<'t>(members: &[&'t TableMetadata]) -> Vec<Bucket<'t>> {
    groups(members.to_vec()).into_iter().map(Bucket::new).collect()
}

/// Divides tables into groups without a common token.
fn groups(mut by_start: Vec<&TableMetadata>) -> Vec<Vec<&TableMetadata>> {
    by_start.sort_by_key(|table| (table.first_token, table.id.clone()));
    let mut groups: Vec<(Token, Vec<&TableMetadata>)> = Vec::new();
    for table in by_start {
        match groups.last_mut() {
            Some((end, group)) if table.first_token <= *end => {
                *end = (*end).max(table.last_token);
                group.push(table);
            }
            _ => groups.push((table.last_token, vec![table])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

impl<'t> Bucket<'t> {
    fn new(mut tables: Vec<&'t TableMetadata>) -> Self {
        tables.sort_by(|a, b| b.max_timestamp.cmp(&a.max_timestamp).then_with(|| b.id.cmp(&a.id)));
        let mut starts: Vec<usize> = (0..tables.len()).collect();
        starts.sort_by_key(|index| tables[*index].first_token);
        let mut overlaps: Vec<Vec<usize>> = Vec::new();
        let mut active: Vec<usize> = Vec::new();
        for index in starts {
            let first = tables[index].first_token;
            if active.iter().any(|other| tables[*other].last_token < first) {
                overlaps.push(active.clone());
                active.retain(|other| tables[*other].last_token >= first);
            }
            active.push(index);
        }
        overlaps.push(active);
        Bucket { tables, overlaps }
    }

    fn overlap(&self) -> usize {
        self.overlaps.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The oldest tables, as many as possible without more than `limit` of them overlapping anywhere.
    fn oldest(&self, limit: usize) -> Vec<&'t TableMetadata> {
        let mut counts = vec![0; self.overlaps.len()];
        let mut taken = Vec::new();
        for index in (0..self.tables.len()).rev() {
            let sets = || self.overlaps.iter().enumerate().filter(|(_, set)| set.contains(&index)).map(|(at, _)| at);
            if sets().any(|at| counts[at] >= limit) {
                break;
            }
            sets().for_each(|at| counts[at] += 1);
            taken.push(self.tables[index]);
        }
        taken
    }
}

/// The merge that a bucket needs, if there is one.
fn pick(options: &UnifiedOptions, level: usize, bucket: &Bucket<'_>) -> Option<Pick> {
    let overlap = bucket.overlap();
    if overlap < options.threshold(level) {
        return None;
    }
    let limit = pick_limit(options, level, overlap);
    let mut tables: Vec<_> = bucket.oldest(limit).into_iter().map(|table| table.id.clone()).collect();
    if tables.len() < 2 {
        return None;
    }
    tables.sort();
    Some(Pick { tables, level, overlap })
}

/// How many overlapping tables to merge at once.
fn pick_limit(options: &UnifiedOptions, level: usize, overlap: usize) -> usize {
    let fanout = options.fanout(level) as usize;
    let most = options.max_sstables_to_compact.max(fanout);
    if overlap <= fanout {
        return overlap;
    }
    // If a few tables more than the fanout overlap, as many as the fanout are merged, as in a merge that comes on time.
    // If many more overlap, the merge skips levels: it takes a multiple of the product of several levels' fanouts.
    let mut step = fanout;
    for next in level + 1.. {
        let further = step.saturating_mul(options.fanout(next) as usize);
        if further > most.min(overlap) {
            break;
        }
        step = further;
    }
    if step == fanout { fanout } else { step * (most.min(overlap) / step) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn table(id: u32, size_bytes: u64, tokens: (i64, i64)) -> TableMetadata {
        TableMetadata {
            id: SSTableId::from_sequence(id),
            first_token: Token(tokens.0),
            last_token: Token(tokens.1),
            size_bytes,
            token_space_coverage: (i128::from(tokens.1) - i128::from(tokens.0)) as f64 / 2_f64.powi(64),
            min_timestamp: 0,
            max_timestamp: i64::from(id),
            max_local_deletion_time: u32::MAX,
        }
    }

    const ALL: (i64, i64) = (i64::MIN, i64::MAX);

    fn ids(pick: &Pick) -> Vec<String> {
        pick.tables.iter().map(|id| id.to_string()).collect()
    }

    #[test]
    fn four_flushes_are_merged_and_three_are_not() {
        let options = UnifiedOptions::default();
        let tables: Vec<_> = (1..=4).map(|id| table(id, MIB, ALL)).collect();
        assert!(picks(&options, &tables[..3], MIB).is_empty());
        let picked = picks(&options, &tables, MIB);
        assert_eq!((picked.len(), picked[0].level, ids(&picked[0]).len()), (1, 0, 4));
    }

    #[test]
    fn sizes_make_levels() {
        let options = UnifiedOptions::default();
        let mut tables: Vec<_> = (1..=3).map(|id| table(id, MIB, ALL)).collect();
        tables.extend((4..=7).map(|id| table(id, 5 * MIB, ALL)));
        let picked = picks(&options, &tables, MIB);
        assert_eq!((picked.len(), picked[0].level), (1, 1));
        assert_eq!(ids(&picked[0]), ["4", "5", "6", "7"]);
    }

    #[test]
    fn a_late_merge_takes_the_oldest() {
        let options = UnifiedOptions::default();
        let tables: Vec<_> = (1..=9).map(|id| table(id, MIB, ALL)).collect();
        let picked = picks(&options, &tables, MIB);
        assert_eq!((ids(&picked[0]), picked[0].overlap), (vec!["1".into(), "2".into(), "3".into(), "4".into()], 9));
        // Very late: as many levels at once as there are tables for, or fewer if an option limits them.
        let tables: Vec<_> = (1..=300).map(|id| table(id, MIB, ALL)).collect();
        let picked = |max_sstables_to_compact| {
            let options = UnifiedOptions { max_sstables_to_compact, ..options.clone() };
            picks(&options, &tables, MIB)[0].tables.len()
        };
        assert_eq!([usize::MAX, 200, 32, 3].map(picked), [256, 192, 32, 4]);
    }

    #[test]
    fn tables_that_do_not_overlap_are_not_compacted() {
        let options = UnifiedOptions::default();
        let quarter = i64::MAX / 4;
        let apart: Vec<_> =
            (0..4).map(|i| table(i + 1, MIB, (i64::from(i) * quarter, i64::from(i + 1) * quarter - 1))).collect();
        assert!(picks(&options, &apart, MIB).is_empty());
        let leveled = UnifiedOptions { scaling_parameters: vec![-8], ..options };
        let two: Vec<_> = (1..=2).map(|id| table(id, MIB, ALL)).collect();
        assert_eq!(picks(&leveled, &two, MIB)[0].tables.len(), 2);
    }

    #[test]
    fn density_counts_and_not_size() {
        // A quarter of the ring with a quarter of the size is the same level.
        let options = UnifiedOptions { scaling_parameters: vec![0], ..UnifiedOptions::default() };
        let tables = [table(1, 8 * MIB, ALL), table(2, 2 * MIB, (i64::MIN, i64::MIN / 2))];
        assert_eq!(picks(&options, &tables, MIB).len(), 1);
    }
}
