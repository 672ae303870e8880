//! Power cuts at every step of writing and replacing tables: all or nothing, and nothing half made is left.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, Fault, SimulatedDisk};
use model::UnfilteredCursor;
use sstable::{
    Descriptor, PreparedSSTable, SSTableError, SSTableId, SSTableWriter, WriterOptions, list_tables, remove_leftovers,
    replace_tables, verify,
};

use crate::fixture::Fixture;

const DIR: &str = "/data/ks/t";

fn id(number: u32) -> Descriptor {
    Descriptor::new(DIR, SSTableId::from_sequence(number))
}

/// Writes the fixture's content as table `number`.
fn write(disk: &Arc<dyn Disk>, fixture: &Fixture, number: u32) -> Result<SSTableWriter, SSTableError> {
    let options = WriterOptions { column_index_size_bytes: 100, ..WriterOptions::for_table(&fixture.table)? };
    let mut writer = SSTableWriter::create(disk, &id(number), &fixture.table, options)?;
    let mut cursor = fixture.open().scan()?;
    // A few partitions suffice: every operation of the disk is cut once.
    for _ in 0..3 {
        assert!(cursor.advance_partition()?);
        writer.begin_partition(&cursor.partition())?;
        while cursor.advance()? {
            writer.add(&cursor.unfiltered())?;
        }
        writer.end_partition()?;
    }
    Ok(writer)
}

fn prepare(disk: &Arc<dyn Disk>, fixture: &Fixture, number: u32) -> Result<PreparedSSTable, SSTableError> {
    Ok(write(disk, fixture, number)?.prepare()?.expect("partitions were written"))
}

fn start(fixture: &Fixture, tables: &[u32]) -> (SimulatedDisk, Arc<dyn Disk>) {
    let simulated = SimulatedDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(simulated.clone());
    disk.create_dir_all(Path::new(DIR)).unwrap();
    for number in tables {
        write(&disk, fixture, *number).unwrap().finish().unwrap();
    }
    (simulated, disk)
}

/// The tables there are after a restart, each verified.
fn recover(disk: &dyn Disk, fixture: &Fixture) -> Vec<Descriptor> {
    remove_leftovers(disk, Path::new(DIR)).unwrap();
    let tables = list_tables(disk, Path::new(DIR)).unwrap();
    for table in &tables {
        assert_eq!(verify(disk, table, &fixture.table, true).unwrap().partitions, 3);
    }
    let names = disk.list(Path::new(DIR)).unwrap();
    assert!(
        names.iter().all(|name| Descriptor::parse_file_name(&name.name)
            .is_some_and(|(id, _)| { tables.iter().any(|table| table.id == id) })),
        "nothing else is left: {names:?}"
    );
    tables
}

/// Cuts the power after 0, 1, 2... operations of `act` and checks what is found afterwards.
fn cut_everywhere(
    tables: &[u32],
    act: impl Fn(&Arc<dyn Disk>, &Fixture) -> Result<(), SSTableError>,
    check: impl Fn(bool, Vec<Descriptor>),
) {
    let fixture = Fixture::load("statics");
    for step in 0.. {
        let (simulated, disk) = start(&fixture, tables);
        simulated.inject(Fault::PowerCut, step);
        let done = act(&disk, &fixture).is_ok();
        for seed in 0..6 {
            let image = simulated.crash_image(step * 100 + seed);
            // The first start may lose power too.
            image.inject(Fault::PowerCut, seed * 3);
            let again = match remove_leftovers(&image, Path::new(DIR)) {
                Ok(_) => image.crash_image(seed),
                Err(_) => image.crash_image(seed + 1),
            };
            check(done, recover(&again, &fixture));
        }
        if done {
            // The cut came after the last operation.
            assert!(step > 20, "the act has steps");
            return;
        }
    }
}

#[test]
fn a_table_is_there_whole_or_not_at_all() {
    cut_everywhere(
        &[],
        |disk, fixture| write(disk, fixture, 1)?.finish().map(|_| ()),
        |done, tables| assert!(if done { tables == [id(1)] } else { tables.is_empty() || tables == [id(1)] }),
    );
}

#[test]
fn a_replacement_happens_whole_or_not_at_all() {
    let (old, new) = (vec![id(1), id(2)], vec![id(3), id(4)]);
    cut_everywhere(
        &[1, 2],
        |disk, fixture| {
            let prepared = vec![prepare(disk, fixture, 3)?, prepare(disk, fixture, 4)?];
            Ok(replace_tables(&**disk, Path::new(DIR), prepared, &old).map(|_| ())?)
        },
        |done, tables| assert!(tables == new || !done && tables == old, "{done} {tables:?}"),
    );
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let fixture = Fixture::load("statics");
    let (_, disk) = start(&fixture, &[1]);
    drop(write(&disk, &fixture, 2).unwrap());
    drop(prepare(&disk, &fixture, 3).unwrap());
    assert_eq!(recover(&*disk, &fixture), [id(1)]);
}

#[test]
fn a_full_disk_and_a_failed_sync_are_errors_and_the_rest_stays() {
    let fixture = Fixture::load("statics");
    for fault in [Fault::Full, Fault::FailSync] {
        for step in 0..6 {
            let (simulated, disk) = start(&fixture, &[1]);
            simulated.inject(fault, step);
            let result = write(&disk, &fixture, 2).and_then(SSTableWriter::finish);
            let tables = recover(&simulated.crash_image(step), &fixture);
            match result {
                Ok(_) => assert_eq!(tables, [id(1), id(2)]),
                Err(_) => assert_eq!(tables, [id(1)], "{fault:?} after {step}"),
            }
        }
    }
}
