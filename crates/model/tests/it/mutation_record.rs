//! Mutations as log records.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    Cell, ClusteringBound, DeletionTime, Keyspace, Liveness, Mutation, PartitionKey, PartitionUpdateBuilder,
    ReadUpdates, RowBuilder, Schema, Side, Slice, Table, TableBuilder, TableId, push_component,
};
use types::CqlType;
use uuid::Uuid;

use testkit::Choices;

fn table(name: &str, id: u128) -> Arc<Table> {
    let builder = TableBuilder::new("ks", name, TableId(Uuid::from_u128(id))).partition_key("k", CqlType::Int);
    let builder = builder.clustering("c", CqlType::Int, true).static_column("s", CqlType::Text);
    Arc::new(builder.regular("v", CqlType::Text).build())
}

fn schema(tables: &[&Arc<Table>]) -> Schema {
    let mut keyspace = Keyspace::new("ks", BTreeMap::new(), true);
    keyspace.tables = tables.iter().map(|table| (table.name.clone(), (*table).clone())).collect();
    Schema::new(Uuid::nil(), [("ks".into(), Arc::new(keyspace))].into_iter().collect())
}

fn clustering(value: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_component(Some(&value.to_be_bytes()), &mut bytes);
    bytes
}

fn row(table: &Table, is_static: bool, value: &str) -> Vec<u8> {
    let mut builder = RowBuilder::default();
    builder.start(table.columns(is_static), is_static);
    if !is_static {
        builder.liveness(Liveness::at(7));
    }
    builder.cell(0, &Cell::live(7, value.as_bytes()));
    let mut blob = Vec::new();
    builder.finish(&mut blob);
    blob
}

fn full_update(table: &Arc<Table>) -> model::PartitionUpdate {
    let mut update = PartitionUpdateBuilder::new(table.clone(), PartitionKey::new(&1i32.to_be_bytes()));
    update.delete_partition(DeletionTime::new(3, 4));
    update.static_row(&row(table, true, "st"));
    update.row(&clustering(1), &row(table, false, "one"));
    update.row(&clustering(5), &row(table, false, "five"));
    update.row(&clustering(1), &row(table, false, "oneplus"));
    let start = ClusteringBound::new(clustering(9), Side::Before);
    update.delete_range(Slice { start, end: ClusteringBound::top() }, DeletionTime::new(5, 6));
    update.build()
}

#[test]
fn a_record_reads_back_as_what_was_written() {
    let (first, second) = (table("a", 1), table("b", 2));
    let mutation = Mutation::new(vec![full_update(&first), full_update(&second)]);
    let mut record = Vec::new();
    mutation.write_record(&mut record);
    assert_eq!(record.len(), mutation.record_size());
    let (read, unknown) = Mutation::read_record(&record, &schema(&[&first, &second])).unwrap();
    assert_eq!(unknown, 0);
    for (read, written) in read.updates().iter().zip(mutation.updates()) {
        assert_eq!(read.as_bytes(), written.as_bytes());
        assert_eq!(read.key(), written.key());
        assert_eq!(read.partition_deletion(), DeletionTime::new(3, 4));
        assert_eq!(read.static_row(), written.static_row());
        // Descending clustering; versions of one row merged.
        let clusterings: Vec<_> = read.rows().map(|row| row.clustering.to_vec()).collect();
        assert_eq!(clusterings, [clustering(5), clustering(1)]);
        assert!(read.rows().eq(written.rows()));
        assert!(read.range_deletions().eq(written.range_deletions()));
        assert_eq!(read.range_deletion_count(), 1);
    }
}

/// A drop removes cells when they are read: this may leave nothing of a row, but an empty row cannot be written.
#[test]
fn versions_of_a_row_without_cells_after_a_drop_read_back() {
    let first = table("a", 1);
    let dropped = first.to_builder().drop_column("v", CqlType::Text, 15).drop_column("s", CqlType::Text, 15).build();
    let again = dropped.to_builder().static_column("s", CqlType::Text).regular("v", CqlType::Text).build();
    let again = Arc::new(again);
    let old = |is_static: bool, timestamp| {
        let mut builder = RowBuilder::default();
        let set = again.columns(is_static);
        builder.start(set, is_static);
        builder.cell(set.columns.len() - 1, &Cell::live(timestamp, b"old"));
        let mut blob = Vec::new();
        builder.finish(&mut blob);
        blob
    };
    let mut update = PartitionUpdateBuilder::new(again.clone(), PartitionKey::new(&1i32.to_be_bytes()));
    for timestamp in [7, 8] {
        update.row(&clustering(1), &old(false, timestamp));
        update.static_row(&old(true, timestamp));
    }
    let mutation = Mutation::from(update.build());
    let mut record = Vec::new();
    mutation.write_record(&mut record);
    let (read, _) = Mutation::read_record(&record, &schema(&[&again])).unwrap();
    let [read] = read.updates() else { panic!("one update was written") };
    assert_eq!(read.row_count(), 1);
    assert!(read.static_row().is_some());
}

/// Any number of rows, in any order of arrival, together with any other parts.
#[test]
fn any_number_of_rows_reads_back() {
    let table = table("a", 1);
    let schema = schema(&[&table]);
    for count in [1_i32, 2, 127, 128, 300] {
        for is_ascending in [false, true] {
            for has_static in [false, true] {
                let key = PartitionKey::new(&count.to_be_bytes());
                let mut update = PartitionUpdateBuilder::new(table.clone(), key.clone());
                assert!(update.is_empty());
                for place in 0..count {
                    let c = if is_ascending { place } else { count - place };
                    let blob = row(&table, false, &format!("row {c}"));
                    match place % 2 {
                        0 => update.row(&clustering(c), &blob),
                        // The size is only a hint.
                        _ => update.row_with(&clustering(c), 0, |out| out.extend_from_slice(&blob)),
                    }
                }
                if has_static {
                    update.static_row(&row(&table, true, "st"));
                }
                let mutation = Mutation::from(update.build());
                let mut record = Vec::new();
                mutation.write_record(&mut record);
                assert_eq!(record.len(), mutation.record_size());
                let (read, _) = Mutation::read_record(&record, &schema).unwrap();
                let [read] = read.updates() else { panic!("one update") };
                assert_eq!((read.key(), read.row_count()), (&key, count as usize));
                assert_eq!(read.static_row().is_some(), has_static);
                let first = i32::from(!is_ascending);
                let expected =
                    (first..first + count).rev().map(|c| (clustering(c), row(&table, false, &format!("row {c}"))));
                assert!(read.rows().map(|row| (row.clustering.to_vec(), row.row.as_bytes().to_vec())).eq(expected));
                assert!(read.rows().eq(mutation.updates()[0].rows()));
            }
        }
    }
}

#[test]
fn updates_of_dropped_tables_are_left_out_and_counted() {
    let (kept, dropped) = (table("a", 1), table("b", 2));
    let mut record = Vec::new();
    Mutation::new(vec![full_update(&dropped), full_update(&kept)]).write_record(&mut record);
    let (read, unknown) = Mutation::read_record(&record, &schema(&[&kept])).unwrap();
    assert_eq!((read.updates().len(), unknown), (1, 1));
    assert_eq!(read.updates()[0].table().name, kept.name);
}

/// Records are read correctly into memory that held updates of other tables, shorter or longer.
#[test]
fn records_read_into_used_memory_are_as_if_it_were_new() {
    let tables = [table("a", 1), table("b", 2)];
    let schema = schema(&[&tables[0], &tables[1]]);
    let mut read = ReadUpdates::default();
    for seed in 0..200 {
        let mut random = Choices(seed);
        let mut records = Vec::new();
        read.clear();
        for _ in 0..1 + random.below(4) {
            let updates = (0..1 + random.below(3)).map(|_| {
                let table = &tables[random.below(2) as usize];
                let key = PartitionKey::new(&vec![random.next() as u8; 1 + random.below(9) as usize]);
                let mut update = PartitionUpdateBuilder::new(table.clone(), key);
                match random.below(3) {
                    0 => update.delete_partition(DeletionTime::new(random.next() as i64, 7)),
                    _ => update.row(
                        &clustering(random.below(5) as i32),
                        &row(table, false, &"x".repeat(random.below(60) as usize)),
                    ),
                }
                update.build()
            });
            let mutation = Mutation::new(updates.collect());
            let mut record = Vec::new();
            mutation.write_record(&mut record);
            let first = &mutation.updates()[0];
            assert_eq!(Mutation::first_partition(&record), Some((first.table().id, first.key().token())));
            assert_eq!(read.read_record(&record, |id| schema.table_by_id(id)), Ok(0));
            records.extend(mutation.into_updates());
        }
        assert_eq!(read.updates().len(), records.len());
        for (read, written) in read.updates().iter().zip(&records) {
            assert_eq!(
                (read.as_bytes(), read.key(), read.table().id),
                (written.as_bytes(), written.key(), written.table().id)
            );
            assert_eq!(read.key().token(), written.key().token());
            assert_eq!(read.partition_deletion(), written.partition_deletion());
            assert!(read.rows().eq(written.rows()));
        }
    }
    assert_eq!(Mutation::first_partition(&[0; 17]), None);
}

#[test]
fn damaged_records_are_refused_without_panic() {
    let table = table("a", 1);
    let schema = schema(&[&table]);
    let mut record = Vec::new();
    Mutation::new(vec![full_update(&table)]).write_record(&mut record);
    for length in 1..record.len() {
        assert!(Mutation::read_record(&record[..length], &schema).is_err(), "cut at {length}");
    }
    for seed in 0..3000 {
        let mut random = Choices(seed);
        let mut damaged = record.clone();
        let at = random.below(damaged.len() as u64) as usize;
        damaged[at] = random.next() as u8;
        if let Ok((mutation, _)) = Mutation::read_record(&damaged, &schema) {
            mutation.updates().iter().for_each(|update| update.rows().for_each(drop));
        }
    }
}

/// Older builds accepted and logged such a deletion, which no SSTable can store.
#[test]
fn a_partition_deletion_with_a_negative_timestamp_is_left_out_of_an_old_record() {
    let table = table("a", 1);
    let mut record = Vec::new();
    Mutation::new(vec![full_update(&table)]).write_record(&mut record);
    let at = record.windows(8).position(|bytes| bytes == 3_i64.to_be_bytes()).unwrap();
    record[at..at + 8].copy_from_slice(&(-1_i64).to_be_bytes());
    let (read, _) = Mutation::read_record(&record, &schema(&[&table])).unwrap();
    let update = &read.updates()[0];
    assert!(update.partition_deletion().is_live());
    assert_eq!((update.row_count(), update.range_deletion_count()), (full_update(&table).row_count(), 1));
}
