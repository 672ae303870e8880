//! Power cuts at every step of writing and replacing tables: every change is atomic, and nothing half made is left.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, Fault, SimulatedDisk};
use model::UnfilteredCursor;
use sstable::{
    Component, Descriptor, PreparedSSTable, SSTableError, SSTableId, SSTableWriter, WriterOptions, list_tables,
    missing_tocs, remove_all_tables, remove_leftovers, remove_tables, replace_tables, verify,
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
    // A few partitions are enough: every operation of the disk is cut once.
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

/// The tables after a restart, each verified.
fn recover(disk: &dyn Disk, fixture: &Fixture) -> Vec<Descriptor> {
    remove_leftovers(disk, Path::new(DIR)).unwrap();
    assert!(missing_tocs(disk, Path::new(DIR)).unwrap().is_empty(), "no crash takes a TOC.txt away");
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

/// Cuts the power after 0, 1, 2... operations of `act` and checks what is found afterwards. Where `act` ends, it also
/// cuts the power while the next start continues from what is not durable.
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
            let (simulated, disk) = start(&fixture, tables);
            simulated.inject(Fault::Fail, step);
            let done = act(&disk, &fixture).is_ok();
            simulated.inject(Fault::PowerCut, seed * 4);
            let _ = remove_leftovers(&*disk, Path::new(DIR));
            check(done, recover(&simulated.crash_image(step + seed), &fixture));
        }
        if done {
            // The cut came after the last operation.
            assert!(step > 10, "the act has steps");
            return;
        }
    }
}

#[test]
fn a_table_is_complete_or_absent_after_a_crash() {
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
fn a_removal_takes_tables_whole_or_not_at_all_and_no_others() {
    let of_two = |done: bool, tables: Vec<Descriptor>, kept: &[Descriptor]| {
        assert!(kept.iter().all(|table| tables.contains(table)), "{tables:?}");
        assert!(!done || tables == kept, "{tables:?}");
    };
    cut_everywhere(
        &[1, 2],
        |disk, _| remove_tables(&**disk, Path::new(DIR), &[id(1), id(7)]),
        |done, tables| of_two(done, tables, &[id(2)]),
    );
    cut_everywhere(
        &[1, 2],
        |disk, _| remove_all_tables(&**disk, Path::new(DIR)),
        |done, tables| of_two(done, tables, &[]),
    );
}

#[test]
fn the_leftovers_of_a_replacement_are_removed_completely_or_not_at_all() {
    let fixture = Fixture::load("statics");
    let (mut with_record, mut done) = (0, 0);
    for case in 0..160 {
        let (simulated, disk) = start(&fixture, &[1, 2]);
        let prepared = vec![prepare(&disk, &fixture, 3).unwrap(), prepare(&disk, &fixture, 4).unwrap()];
        simulated.inject(Fault::PowerCut, case % 50);
        let _ = replace_tables(&*disk, Path::new(DIR), prepared, &[id(1), id(2)]);
        let image = simulated.crash_image(case);
        let names = image.list(Path::new(DIR)).unwrap();
        with_record += usize::from(names.iter().any(|entry| entry.name.ends_with(".log")));
        image.inject(Fault::PowerCut, case * 7 % 100);
        let removed = remove_all_tables(&image, Path::new(DIR));
        let tables = recover(&image.crash_image(case), &fixture);
        if removed.is_ok() {
            assert!(tables.is_empty(), "{case}: {tables:?}");
            done += 1;
        }
    }
    assert!(with_record > 20 && done > 20, "{with_record} {done}");
}

#[test]
fn a_table_that_lost_its_toc_is_damaged_and_stays() {
    let fixture = Fixture::load("statics");
    let (_, disk) = start(&fixture, &[1, 2]);
    disk.remove_file(&id(1).path(Component::Toc)).unwrap();
    let before = disk.list(Path::new(DIR)).unwrap();
    assert!(remove_leftovers(&*disk, Path::new(DIR)).unwrap().is_empty());
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), before);
    let [damage] = &missing_tocs(&*disk, Path::new(DIR)).unwrap()[..] else { panic!("one table is damaged") };
    assert!(damage.to_string().starts_with("da-1-bti-TOC.txt is corrupt at offset 0"), "{damage}");
    remove_all_tables(&*disk, Path::new(DIR)).unwrap();
    assert!(disk.list(Path::new(DIR)).unwrap().is_empty());
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
