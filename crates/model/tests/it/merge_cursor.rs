//! The merge of cursors against a map, over random sources, forward and reversed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::{
    BoxCursor, Cell, ClusteringBound, DeletionTime, Liveness, Marker, MergeCursor, PartitionHead, PartitionKey,
    ReadError, Row, RowBuilder, RowRef, Side, Table, TableBuilder, TableId, Unfiltered, UnfilteredCursor,
    push_component,
};
use types::CqlType;
use uuid::Uuid;

use testkit::Choices;

const ROWS: i32 = 8;

fn table() -> Arc<Table> {
    let builder = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("k", CqlType::Int);
    let builder = builder.clustering("c", CqlType::Int, false).static_column("s", CqlType::Blob);
    Arc::new(builder.regular("v", CqlType::Blob).build())
}

fn clustering(value: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_component(Some(&value.to_be_bytes()), &mut bytes);
    bytes
}

enum Item {
    Row(Vec<u8>, Vec<u8>),
    Marker(ClusteringBound, DeletionTime, DeletionTime),
}

struct Partition {
    key: PartitionKey,
    deletion: DeletionTime,
    static_row: Option<Vec<u8>>,
    items: Vec<Item>,
}

/// A source made of lists.
struct Listed<'p> {
    table: Arc<Table>,
    partitions: Vec<Partition>,
    partition: usize,
    item: usize,
    max_timestamp: i64,
    reversed: bool,
    /// The number of skipped items of all sources, forward and reversed.
    passed: &'p [AtomicUsize; 2],
}

impl UnfilteredCursor for Listed<'_> {
    fn table(&self) -> &Arc<Table> {
        &self.table
    }
    fn advance_partition(&mut self) -> Result<bool, ReadError> {
        self.partition += 1;
        self.item = 0;
        Ok(self.partition <= self.partitions.len())
    }
    fn partition(&self) -> PartitionHead<'_> {
        let partition = &self.partitions[self.partition - 1];
        let static_row = partition.static_row.as_deref().map(Row::new);
        PartitionHead { key: &partition.key, deletion: partition.deletion, static_row }
    }
    fn advance(&mut self) -> Result<bool, ReadError> {
        self.item += 1;
        Ok(self.item <= self.partitions[self.partition - 1].items.len())
    }
    fn unfiltered(&self) -> Unfiltered<'_> {
        match &self.partitions[self.partition - 1].items[self.item - 1] {
            Item::Row(clustering, blob) => Unfiltered::Row(RowRef { clustering, row: Row::new(blob) }),
            Item::Marker(bound, before, after) => {
                Unfiltered::Marker(Marker { prefix: &bound.prefix, side: bound.side, before: *before, after: *after })
            }
        }
    }
    fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }
    fn pass_to(&mut self, prefix: &[u8], weight: i8) -> Result<Option<DeletionTime>, ReadError> {
        let items = &self.partitions[self.partition - 1].items;
        let (comparator, mut open) = (self.table.comparator(), DeletionTime::LIVE);
        let lies_before = |item: &Item| {
            let order = match item {
                Item::Row(clustering, _) => comparator.compare_positions(clustering, 0, prefix, weight),
                Item::Marker(bound, ..) => {
                    comparator.compare_positions(&bound.prefix, bound.side.weight(), prefix, weight)
                }
            };
            if self.reversed { order.is_gt() } else { order.is_lt() }
        };
        assert!(lies_before(&items[self.item - 1]));
        let passed = items.iter().take_while(|item| lies_before(item)).count();
        for item in &items[..passed] {
            if let Item::Marker(_, before, after) = item {
                open = if self.reversed { *before } else { *after };
            }
        }
        self.passed[usize::from(self.reversed)].fetch_add(passed + 1 - self.item, Ordering::Relaxed);
        self.item = passed;
        Ok(Some(open))
    }
}

/// Row deletion (0: none), liveness, cell (timestamp and value).
type RowContent = (i64, Option<i64>, Option<(i64, u8)>);

/// For each partition: its deletion, its static cell, and for each row (row deletion, range deletion, liveness, cell);
/// the last by position.
#[derive(Clone, Default)]
struct Content {
    deletion: i64,
    static_cell: Option<(i64, u8)>,
    rows: BTreeMap<i32, RowContent>,
    /// The deletion that covers row `i`; 0 if none.
    ranges: [i64; ROWS as usize],
}

fn deletion(timestamp: i64) -> DeletionTime {
    if timestamp == 0 { DeletionTime::LIVE } else { DeletionTime::new(timestamp, 1) }
}

/// The same content, with all times `age` later.
fn aged(mut content: Content, age: i64) -> Content {
    let later = |timestamp: &mut i64| *timestamp += if *timestamp == 0 { 0 } else { age };
    later(&mut content.deletion);
    content.ranges.iter_mut().for_each(later);
    content.static_cell.iter_mut().for_each(|cell| cell.0 += age);
    for (row_deletion, liveness, cell) in content.rows.values_mut() {
        later(row_deletion);
        liveness.iter_mut().for_each(|timestamp| *timestamp += age);
        cell.iter_mut().for_each(|cell| cell.0 += age);
    }
    content
}

fn random_content(random: &mut Choices) -> Content {
    let mut content = Content::default();
    if random.one_in(4) {
        content.deletion = 1 + random.below(6) as i64;
    }
    if random.one_in(3) {
        content.static_cell = Some((1 + random.below(8) as i64, random.below(4) as u8));
    }
    for row in 0..ROWS {
        if random.one_in(2) {
            let row_deletion = if random.one_in(5) { 1 + random.below(8) as i64 } else { 0 };
            let liveness = if random.one_in(2) { Some(1 + random.below(9) as i64) } else { None };
            let cell = if random.one_in(2) { Some((1 + random.below(9) as i64, random.below(4) as u8)) } else { None };
            if row_deletion != 0 || liveness.is_some() || cell.is_some() {
                content.rows.insert(row, (row_deletion, liveness, cell));
            }
        }
    }
    for _ in 0..random.below(3) {
        let start = random.below(ROWS as u64) as usize;
        let end = start + 1 + random.below(ROWS as u64 - start as u64) as usize;
        let timestamp = 1 + random.below(9) as i64;
        content.ranges[start..end].iter_mut().for_each(|covering| *covering = timestamp.max(*covering));
    }
    content
}

fn blob(table: &Table, is_static: bool, deletion_time: i64, liveness: Option<i64>, cell: Option<(i64, u8)>) -> Vec<u8> {
    let mut builder = RowBuilder::default();
    builder.start(table.columns(is_static), is_static);
    builder.deletion(deletion(deletion_time));
    builder.liveness(liveness.map_or(Liveness::EMPTY, Liveness::at));
    if let Some((timestamp, value)) = cell {
        builder.cell(0, &Cell::live(timestamp, &[value]));
    }
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    blob
}

fn partition(table: &Table, key: &PartitionKey, content: &Content, reversed: bool) -> Partition {
    let mut items = Vec::new();
    let mut open = 0;
    for position in 0..=ROWS {
        let covering = content.ranges.get(position as usize).copied().unwrap_or(0);
        if covering != open {
            let bound = ClusteringBound::new(clustering(position), Side::Before);
            items.push(Item::Marker(bound, deletion(open), deletion(covering)));
            open = covering;
        }
        if let Some((row_deletion, liveness, cell)) = content.rows.get(&position) {
            items.push(Item::Row(clustering(position), blob(table, false, *row_deletion, *liveness, *cell)));
        }
    }
    if reversed {
        items.reverse();
    }
    let static_row = content.static_cell.map(|cell| blob(table, true, 0, None, Some(cell)));
    Partition { key: key.clone(), deletion: deletion(content.deletion), static_row, items }
}

/// The live result of merged rows: (key, row or -1 for static, liveness, cell).
type Live = Vec<(PartitionKey, i32, Option<i64>, Option<(i64, u8)>)>;

fn expected(keys: &[PartitionKey], sources: &[BTreeMap<usize, Content>]) -> Live {
    let mut live = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let contents: Vec<&Content> = sources.iter().filter_map(|source| source.get(&index)).collect();
        let newest = |values: &mut dyn Iterator<Item = i64>| values.max().unwrap_or(0);
        let partition = newest(&mut contents.iter().map(|content| content.deletion));
        let best =
            |cells: &mut dyn Iterator<Item = (i64, u8)>, deleted: i64| cells.max().filter(|cell| cell.0 > deleted);
        if let Some(cell) = best(&mut contents.iter().filter_map(|content| content.static_cell), partition) {
            live.push((key.clone(), -1, None, Some(cell)));
        }
        for row in 0..ROWS {
            let rows = || contents.iter().filter_map(|content| content.rows.get(&row));
            let range = newest(&mut contents.iter().map(|content| content.ranges[row as usize]));
            let deleted = partition.max(range).max(newest(&mut rows().map(|row| row.0)));
            let liveness = rows().filter_map(|row| row.1).max().filter(|timestamp| *timestamp > deleted);
            let cell = best(&mut rows().filter_map(|row| row.2), deleted);
            if liveness.is_some() || cell.is_some() {
                live.push((key.clone(), row, liveness, cell));
            }
        }
    }
    live
}

fn row_content(table: &Table, row: Row<'_>) -> (Option<i64>, Option<(i64, u8)>) {
    let liveness = row.liveness();
    let cell = row.columns(table).next().map(|(_, data)| match data {
        model::ColumnData::Simple(cell) => (cell.timestamp, cell.value[0]),
        model::ColumnData::Complex(_) => unreachable!(),
    });
    (if liveness.is_empty() { None } else { Some(liveness.timestamp) }, cell)
}

fn collect(table: &Table, mut cursor: MergeCursor<BoxCursor<'_>>, reversed: bool) -> Live {
    let mut live = Vec::new();
    while cursor.advance_partition().unwrap() {
        let key = cursor.partition().key.clone();
        if let Some(row) = cursor.partition().static_row {
            let (liveness, cell) = row_content(table, row);
            live.push((key.clone(), -1, liveness, cell));
        }
        let mut rows = Vec::new();
        let mut open = DeletionTime::LIVE;
        while cursor.advance().unwrap() {
            match cursor.unfiltered() {
                Unfiltered::Row(row) => {
                    let (liveness, cell) = row_content(table, row.row);
                    let position = i32::from_be_bytes(row.clustering[4..8].try_into().unwrap());
                    if liveness.is_some() || cell.is_some() {
                        rows.push((key.clone(), position, liveness, cell));
                    }
                }
                Unfiltered::Marker(marker) => {
                    let (leaves, enters) =
                        if reversed { (marker.after, marker.before) } else { (marker.before, marker.after) };
                    assert_eq!(leaves, open, "markers are well nested");
                    assert_ne!(leaves, enters);
                    open = enters;
                }
            }
        }
        assert!(open.is_live(), "what opens closes");
        if reversed {
            rows.reverse();
        }
        live.extend(rows);
    }
    live
}

#[test]
fn a_merge_equals_a_merge_of_cell_maps() {
    let table = table();
    let mut keys: Vec<PartitionKey> = (0..4i32).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
    keys.sort();
    let passed = [const { AtomicUsize::new(0) }; 2];
    for seed in 0..3000 {
        let mut random = Choices(seed);
        let reversed = random.one_in(2);
        // Some histories have sources that are older than others as a whole, and report it.
        let ages: Vec<i64> = (0..1 + random.below(4)).map(|_| 5 * random.below(4) as i64).collect();
        let sources: Vec<BTreeMap<usize, Content>> = ages
            .iter()
            .map(|age| {
                (0..keys.len())
                    .filter_map(|key| random.one_in(2).then_some((key, aged(random_content(&mut random), *age))))
                    .collect()
            })
            .collect();
        let cursors = sources.iter().zip(&ages).map(|(source, age)| {
            let partitions =
                source.iter().map(|(key, content)| partition(&table, &keys[*key], content, reversed)).collect();
            let max_timestamp = age + 9;
            let (table, passed) = (table.clone(), &passed);
            let listed = Listed { table, partitions, partition: 0, item: 0, max_timestamp, reversed, passed };
            Box::new(listed) as BoxCursor<'_>
        });
        let merged = MergeCursor::new(&table, reversed, cursors.collect());
        assert_eq!(collect(&table, merged, reversed), expected(&keys, &sources), "seed {seed}");
    }
    let passed = passed.map(AtomicUsize::into_inner);
    assert!(passed.iter().all(|passed| *passed > 500), "what is shadowed is passed over: {passed:?}");
}
