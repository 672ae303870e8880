//! Reads and writes of SSTables that go past the kernel's page cache.

use blockio::{BlockWrites, Disk, SimulatedDisk};
use engine::{DiskAccess, EngineOptions};

use crate::fixture::{create_table, insert, open_with, rows, small_options};

/// The bytes that a flush and a compaction of large rows write past the cache, and how the node reports its way of
/// writing.
fn written(disk: &SimulatedDisk, disk_access: DiskAccess) -> ([u64; 2], BlockWrites) {
    let engine = open_with(&EngineOptions { disk_access, ..small_options(disk) });
    let table = create_table(&engine);
    let flushed: u64 = (0..2)
        .map(|number| {
            // The rows are larger than a block, however they are compressed.
            let letter = |i: u32| char::from((i.wrapping_mul(2_654_435_761) >> 20) as u8 % 91 + b' ');
            let value: String = (0..20_000).map(letter).collect();
            insert(&engine, &table, number, 1, &value, 10);
            let before = disk.direct_bytes();
            engine.flush(&table).unwrap();
            disk.direct_bytes() - before
        })
        .sum();
    let before = disk.direct_bytes();
    engine.compact(&table).unwrap();
    assert_eq!(rows(&engine, &table).len(), 2);
    let names: Vec<String> = disk.list("/node".as_ref()).unwrap().into_iter().map(|entry| entry.name).collect();
    assert!(!names.iter().any(|name| name.contains("direct")), "{names:?}");
    ([flushed, disk.direct_bytes() - before], engine.sstable_writes().clone())
}

#[test]
fn sstables_are_written_past_the_page_cache_unless_configured_otherwise() {
    for disk_access in [DiskAccess::DirectWrites, DiskAccess::Direct] {
        let ([flushed, compacted], writes) = written(&SimulatedDisk::new(), disk_access);
        assert!(flushed > 0 && compacted > 0, "{disk_access:?} {flushed} {compacted}");
        assert_eq!(writes, BlockWrites::Direct);
    }
    let (bytes, writes) = written(&SimulatedDisk::new(), DiskAccess::Buffered);
    assert!(bytes == [0, 0] && matches!(writes, BlockWrites::Buffered { .. }), "{bytes:?} {writes:?}");
}

#[test]
fn sstables_go_through_the_page_cache_if_the_file_system_refuses_direct_writes() {
    let disk = SimulatedDisk::new();
    disk.refuse_direct();
    let (bytes, writes) = written(&disk, DiskAccess::default());
    assert_eq!((bytes, writes), ([0, 0], BlockWrites::Buffered { reason: "O_DIRECT is refused here".into() }));
}
