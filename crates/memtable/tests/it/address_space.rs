//! Memtables of very many tables at once.

use std::sync::Arc;

use memtable::{AddressSpace, Memtable, MemtableConfiguration};
use memtrie::SparePages;

use crate::behaviour::{put, simple_table};

/// The number of cores of a node, and the number of its tables.
const CORES: usize = 128;
const TABLES: usize = 10_000;

#[test]
fn a_node_of_128_cores_holds_10_000_written_tables() {
    let (space, spare_pages) = (Arc::new(AddressSpace::default()), Arc::new(SparePages::new(0)));
    let table = simple_table();
    let memtables: Vec<Arc<dyn Memtable>> =
        (0..TABLES).map(|_| MemtableConfiguration::default().open(&table, CORES, &space, &spare_pages)).collect();
    for (number, memtable) in memtables.iter().enumerate() {
        // The first tables have a shard for each core, so they get enough rows to write to every shard.
        let rows = if number < 16 { 1_000 } else { 1 };
        for row in 0..rows {
            let update = put(&table, row, &[], 5, b"value");
            memtable.apply(&update, None).unwrap_or_else(|full| panic!("table {number}, row {row}: {full}"));
        }
    }
    assert!(space.shard_count() >= TABLES, "{} shards", space.shard_count());
    assert!(memtables.iter().all(|memtable| !memtable.is_empty()));
}
