//! Counters with shards in several SSTables: for each node the shard with the latest clock remains, in whatever order
//! they are merged.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    Cell, ColumnData, DeletionTime, PartitionHead, PartitionKey, Row, RowBuilder, RowRef, Table, TableBuilder, TableId,
    Unfiltered, UnfilteredCursor, push_component,
};
use sstable::{Descriptor, SSTableId, SSTableReader, SSTableWriter, WriterOptions, verify};
use types::CqlType;
use uuid::Uuid;

use crate::content::{DIR, Generator, open};
use crate::merging::merge;

const PARTITIONS: i32 = 4;
const ROWS: i32 = 3;
const NODES: u8 = 4;

/// By node: clock and count.
type Shards = BTreeMap<u8, (i64, i64)>;
/// By partition and row.
type Counters = BTreeMap<(i32, i32), Shards>;

fn schema() -> Arc<Table> {
    let table = TableBuilder::new("ks", "t", TableId(Uuid::nil())).partition_key("pk", CqlType::Int);
    Arc::new(table.clustering("ck", CqlType::Int, false).regular("v", CqlType::Counter).build())
}

/// A context of global shards, the only ones that Cassandra has written since 2.1.
fn context(shards: &Shards) -> Vec<u8> {
    let mut context = (shards.len() as i16).to_be_bytes().to_vec();
    (0..shards.len() as u16).for_each(|index| context.extend((index | 0x8000).to_be_bytes()));
    for (node, (clock, count)) in shards {
        context.extend([*node; 16]);
        context.extend(clock.to_be_bytes());
        context.extend(count.to_be_bytes());
    }
    context
}

fn shards(context: &[u8]) -> Shards {
    let entries = usize::from(u16::from_be_bytes([context[0], context[1]]));
    let (shards, rest) = context[2 + 2 * entries..].as_chunks::<32>();
    assert!(shards.len() == entries && rest.is_empty(), "all are global: {context:02x?}");
    let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().unwrap());
    shards.iter().map(|shard| (shard[0], (number(&shard[16..24]), number(&shard[24..])))).collect()
}

/// The counts of nodes at random times.
fn counted(generator: &mut Generator) -> Counters {
    let mut counters = Counters::new();
    for place in (0..PARTITIONS).flat_map(|pk| (0..ROWS).map(move |ck| (pk, ck))) {
        for node in 0..NODES {
            if generator.random.below(2) == 0 {
                let clock = generator.random.below(6) as i64;
                // At one clock a node has one count, which need not grow.
                let count = i64::from(node) * 1000 + clock * 7 % 5;
                counters.entry(place).or_default().insert(node, (clock, count));
            }
        }
    }
    counters
}

fn write(generator: &mut Generator, counters: &Counters) -> Arc<SSTableReader> {
    let table = generator.table.clone();
    let descriptor = Descriptor::new(DIR, SSTableId::from_sequence(generator.next_id));
    generator.next_id += 1;
    let options = WriterOptions::for_table(&table).unwrap();
    let mut writer = SSTableWriter::create(&generator.disk, &descriptor, &table, options).unwrap();
    let mut keys: Vec<_> = (0..PARTITIONS).map(|pk| (PartitionKey::new(&pk.to_be_bytes()), pk)).collect();
    keys.sort();
    for (key, pk) in &keys {
        let rows: Vec<_> = counters.range((*pk, 0)..(*pk, ROWS)).collect();
        if rows.is_empty() {
            continue;
        }
        writer.begin_partition(&PartitionHead { key, deletion: DeletionTime::LIVE, static_row: None }).unwrap();
        for ((_, ck), shards) in rows {
            let (mut clustering, mut row, mut builder) = (Vec::new(), Vec::new(), RowBuilder::default());
            push_component(Some(&ck.to_be_bytes()), &mut clustering);
            builder.start(table.regulars(), false);
            builder.cell(0, &Cell::live(1 + generator.random.below(9) as i64, &context(shards)));
            builder.finish(&mut row);
            writer.add(&Unfiltered::Row(RowRef { clustering: &clustering, row: Row::new(&row) })).unwrap();
        }
        writer.end_partition().unwrap();
    }
    let descriptor = writer.finish().unwrap().unwrap();
    Arc::new(open(&generator.disk, &descriptor, &table))
}

fn read(reader: &SSTableReader) -> Counters {
    let mut cursor = reader.scan().unwrap();
    let mut counters = Counters::new();
    let number = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().unwrap());
    while cursor.advance_partition().unwrap() {
        let pk = number(cursor.partition().key.bytes());
        while cursor.advance().unwrap() {
            let Unfiltered::Row(row) = cursor.unfiltered() else { panic!("there are no deletions") };
            let Some((_, ColumnData::Simple(cell))) = row.row.columns(reader.table()).next() else { panic!("no cell") };
            counters.insert((pk, number(&row.clustering[4..8])), shards(cell.value));
        }
    }
    counters
}

#[test]
fn the_latest_shard_of_each_node_is_left_however_inputs_overlap() {
    let mut met = 0;
    for seed in 0..30 {
        let generator = &mut Generator::new(seed, 0);
        generator.table = schema();
        let mut expected = Counters::new();
        let mut inputs = Vec::new();
        for _ in 0..2 + seed % 4 {
            let counters = counted(generator);
            inputs.push(write(generator, &counters));
            for (place, shards) in counters {
                for (node, shard) in shards {
                    let known = expected.entry(place).or_default().entry(node);
                    known.and_modify(|known| (*known, met) = ((*known).max(shard), met + 1)).or_insert(shard);
                }
            }
        }
        // All at once, or some first and the others with the result.
        if seed % 2 == 1 {
            let (first, others) = inputs.split_at(2);
            let merged = merge(generator, first, others, 2000, Vec::new());
            inputs = others.iter().cloned().chain(merged).collect();
        }
        let merged = merge(generator, &inputs, &[], 2000, Vec::new());
        let [merged] = &merged[..] else { panic!("one SSTable") };
        assert_eq!(read(merged), expected, "seed {seed}");
        verify(&*generator.disk, merged.descriptor(), &generator.table, true).unwrap();
    }
    assert!(met > 500, "{met} shards met another of their node");
}
