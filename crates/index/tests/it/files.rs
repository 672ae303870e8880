//! Index files against a sorted map, and damaged ones.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, Fault, OpenOptions, SimulatedDisk};
use index::{Batch, IndexFile, IndexWriter, Origin, Source, WriterLimits};
use model::{Analysis, ColumnId, IndexKey, IndexPart, LetterCase};
use sstable::{BlockCache, SSTableError, SSTableId};
use testkit::{Random, seed};

use crate::support::{KEY, PATH, bytes_of, disk, open, origin, overwrite, read_all, write, write_within};

fn entry(random: &mut Random) -> (Vec<u8>, usize) {
    let length = if random.one_in(300) { 3000 + random.below(9000) } else { 1 + random.below(24) };
    let entry: Vec<u8> = (0..length).map(|_| 0x40 + random.below(6) as u8).collect();
    let term_length = random.below(length.min(1000) + 1);
    (entry, term_length)
}

#[test]
fn a_file_gives_back_every_range_of_its_entries() {
    let mut random = Random(seed(1));
    for (run_bytes, runs_max) in [(200, 1), (200, 7), (9_000, 1), (9_000, 64), (1 << 20, 64)] {
        for count in [0, 1, 3, 400, 5_000] {
            let disk = disk();
            let mut model = BTreeMap::new();
            let mut arrivals = Vec::new();
            for _ in 0..count {
                let (entry, term_length) = entry(&mut random);
                let term_length = *model.entry(entry.clone()).or_insert(term_length);
                arrivals.push((entry, term_length));
            }
            let limits = WriterLimits { run_bytes, runs_max };
            write_within(&disk, arrivals.iter().map(|(entry, length)| (entry.as_slice(), *length)), limits);
            let file = open(&disk).unwrap();
            file.verify().unwrap();
            for _ in 0..20 {
                let (start, end) = (entry(&mut random).0, entry(&mut random).0);
                let mut found: Vec<_> = file.parts().flat_map(|part| read_all(&part, &start, &end).unwrap()).collect();
                found.sort();
                found.dedup();
                let expected: Vec<_> = match start < end {
                    true => model.range(start..end).map(|(entry, length)| (entry.clone(), *length)).collect(),
                    false => Vec::new(),
                };
                assert_eq!(found, expected, "{count} entries within {limits:?}");
            }
        }
    }
}

#[test]
fn a_file_without_entries_is_found_complete_and_empty() {
    let disk = disk();
    write(&disk, [], 100);
    let file = open(&disk).unwrap();
    assert_eq!((file.entry_count(), file.parts().count()), (0, 0));
}

#[test]
fn every_flipped_bit_and_every_cut_is_an_error_or_changes_nothing() {
    let disk = disk();
    let mut random = Random(seed(2));
    let entries: Vec<_> = (0..600).map(|_| entry(&mut random)).collect();
    write(&disk, entries.iter().map(|(entry, length)| (entry.as_slice(), *length)), 4_000);
    let sound = bytes_of(&disk);
    for _ in 0..1_500 {
        let mut damaged = sound.clone();
        match random.one_in(3) {
            true => damaged.truncate(random.below(sound.len())),
            false => damaged[random.below(sound.len())] ^= 1 << random.below(8),
        }
        overwrite(&disk, &damaged);
        let error = open(&disk).and_then(|file| file.verify()).expect_err("every byte is covered by a checksum");
        match error {
            SSTableError::Corruption(corruption) => assert_eq!(corruption.file, "7.db"),
            SSTableError::Unsupported { file, .. } => assert_eq!(file, "7.db"),
            other => panic!("{other}"),
        }
    }
    overwrite(&disk, &sound);
    open(&disk).unwrap().verify().unwrap();
}

/// A forged page may have a right checksum. Reading ends without a panic, whatever the pages hold.
#[test]
fn forged_pages_end_in_an_error_or_in_few_entries() {
    let mut random = Random(seed(3));
    let disk = disk();
    let entries: Vec<_> = (0..300).map(|_| entry(&mut random)).collect();
    write(&disk, entries.iter().map(|(entry, length)| (entry.as_slice(), *length)), 1 << 20);
    let sound = bytes_of(&disk);
    let footer = u64::from_be_bytes(*sound[sound.len() - 12..].first_chunk().unwrap()) as usize;
    for _ in 0..2_000 {
        let mut forged = sound.clone();
        for _ in 0..1 + random.below(4) {
            let page = random.below(footer / 4096);
            forged[page * 4096 + random.below(60)] = random.number() as u8;
        }
        for (page, bytes) in forged.clone()[..footer].chunks(4096).enumerate() {
            let at = footer + 24 + page * 4;
            forged[at..at + 4].copy_from_slice(&crc32fast::hash(bytes).to_be_bytes());
        }
        let end = forged.len() - 16;
        let crc = crc32fast::hash(&forged[footer..end]);
        forged[end..end + 4].copy_from_slice(&crc.to_be_bytes());
        overwrite(&disk, &forged);
        let Ok(file) = open(&disk) else { continue };
        let _ = file.verify();
        for part in file.parts() {
            let _ = read_all(&part, &entry(&mut random).0, &[0xff]);
        }
    }
}

#[test]
fn a_file_of_another_column_part_sstable_or_version_is_refused() {
    let disk = disk();
    write(&disk, [(&b"\x40a"[..], 1)], 100);
    let open_as =
        |key, origin: Origin| IndexFile::open(&*disk, Path::new(PATH), key, &origin, &BlockCache::new(1 << 20));
    assert!(open_as(KEY, origin()).is_ok());
    let other = open_as(IndexKey { column: ColumnId(8), ..KEY }, origin()).expect_err("it is of column 7").to_string();
    assert_eq!(other, "7.db is corrupt at offset 8204: expected column 8, got 7");
    let other = open_as(IndexKey { part: IndexPart::Keys, ..KEY }, origin()).expect_err("it is of values").to_string();
    assert_eq!(other, "7.db is corrupt at offset 8208: expected part 2, got 0");
    let lower = Analysis { case: LetterCase::Lower, ..Analysis::NONE };
    let other = open_as(IndexKey { analysis: lower, ..KEY }, origin()).expect_err("it is of values").to_string();
    assert_eq!(other, "7.db is corrupt at offset 8212: expected the analysis \"lower\" of text, got \"\"");
    let another = Origin { sstable: SSTableId::from_sequence(6), ..origin() };
    let other = open_as(KEY, another).expect_err("it is of SSTable 5").to_string();
    assert_eq!(other, "7.db is corrupt at offset 8216: expected the id 6 of an SSTable, got \"5\"");
    let other = open_as(KEY, Origin { data_bytes: 101, ..origin() }).expect_err("it is of 100 bytes").to_string();
    assert_eq!(other, "7.db is corrupt at offset 8225: expected an SSTable of 101 bytes, got 100");
    let mut bytes = bytes_of(&disk);
    bytes[8192 + 7] = 7;
    let end = bytes.len() - 16;
    let crc = crc32fast::hash(&bytes[8192..end]);
    bytes[end..end + 4].copy_from_slice(&crc.to_be_bytes());
    overwrite(&disk, &bytes);
    let newer = open_as(KEY, origin()).expect_err("it is of version 7").to_string();
    assert_eq!(newer, "7.db: version 7 of index files is not supported");
}

#[test]
fn a_footer_that_is_longer_than_its_pages_allow_is_refused_without_memory_for_it() {
    let disk = disk();
    write(&disk, [(&b"\x40a"[..], 1)], 100);
    let file = disk.open(Path::new(PATH), OpenOptions::write()).unwrap();
    let end = 16 << 20;
    file.write_at(&[&0_u64.to_be_bytes()[..], b"ESPI"].concat(), end - 12).unwrap();
    let error = open(&disk).expect_err("the file has no pages").to_string();
    let expected = "7.db is corrupt at offset 16777204: expected the position of the footer, at a page's start, got 0";
    assert_eq!(error, expected);
}

#[test]
fn a_file_has_its_name_only_when_it_is_complete_and_durable() {
    let simulated = Arc::new(SimulatedDisk::new());
    simulated.create_dir_all(Path::new("/index")).unwrap();
    let disk: Arc<dyn Disk> = simulated.clone();
    let mut writer = IndexWriter::create(&disk, Path::new(PATH)).unwrap();
    writer.add(b"\x40a", 1, None).unwrap();
    drop(writer);
    assert!(disk.list(Path::new("/index")).unwrap().is_empty(), "nothing stays of a file that was given up");
    write(&disk, [(&b"\x40a"[..], 1)], 100);
    disk.sync_dir(Path::new("/index")).unwrap();
    for seed in 0..50 {
        let found: Arc<dyn Disk> = Arc::new(simulated.crash_image(seed));
        open(&found).unwrap().verify().unwrap();
    }
}

#[test]
fn a_disk_that_fails_leaves_no_file_under_the_name() {
    for skip in 0..6 {
        let simulated = Arc::new(SimulatedDisk::new());
        simulated.create_dir_all(Path::new("/index")).unwrap();
        simulated.inject_into("/index", Fault::Full, skip);
        let disk: Arc<dyn Disk> = simulated.clone();
        let written = IndexWriter::create(&disk, Path::new(PATH)).and_then(|mut writer| {
            writer.add(b"\x40a", 1, None)?;
            writer.finish(KEY, &origin(), &mut || true)
        });
        assert_eq!(disk.exists(Path::new(PATH)).unwrap(), written.is_ok(), "after {skip} operations");
    }
}

#[test]
fn positions_are_given_back_with_their_entries() {
    let mut random = Random(seed(9));
    for greatest in [0, 200, 70_000, u64::from(u32::MAX), (1 << 56) - 1] {
        let disk = disk();
        let mut model = BTreeMap::new();
        let limits = WriterLimits { run_bytes: 9_000, runs_max: 1 + random.below(9) };
        let mut writer = IndexWriter::with_limits(&disk, Path::new(PATH), limits).unwrap();
        for number in 0..2_000 {
            let (entry, term_length) = entry(&mut random);
            let position = if number == 0 { greatest } else { random.number() % (greatest + 1) };
            let position = *model.entry(entry.clone()).or_insert(position);
            writer.add(&entry, term_length, Some(position)).unwrap();
        }
        writer.finish(KEY, &origin(), &mut || true).unwrap();
        let (file, mut count) = (open(&disk).unwrap(), 0);
        file.verify().unwrap();
        for part in file.parts() {
            let (mut start, mut batch) = (Vec::new(), Batch::default());
            while !batch.is_last() {
                batch.clear_to_read_on();
                part.read(Bound::Excluded(&start), &[0xff], true, &mut batch).unwrap();
                for index in 0..batch.len() {
                    start = batch.entry(index).unwrap().to_vec();
                    assert_eq!(batch.position(index), Some(model[&start]), "up to {greatest}");
                    count += 1;
                }
            }
        }
        assert!(count >= model.len(), "{count} entries");
    }
}

#[test]
fn entries_have_no_positions_if_one_is_unknown_or_too_large() {
    for (other, is_kept) in [(Some(9), true), (None, false), (Some(1 << 56), false)] {
        let disk = disk();
        let mut writer = IndexWriter::create(&disk, Path::new(PATH)).unwrap();
        writer.add(b"\x40a\x38b", 3, Some(7)).unwrap();
        writer.add(b"\x40a\x38c", 3, other).unwrap();
        writer.finish(KEY, &origin(), &mut || true).unwrap();
        let mut batch = Batch::default();
        let part = open(&disk).unwrap().parts().next().unwrap();
        part.read(Bound::Unbounded, &[0xff], true, &mut batch).unwrap();
        assert_eq!(batch.position(0), is_kept.then_some(7));
        assert_eq!(batch.position(1), other.filter(|_| is_kept));
    }
}

#[test]
fn entries_that_were_put_aside_make_one_segment_with_each_once() {
    let disk = disk();
    let mut random = Random(seed(10));
    let mut entries: Vec<_> = (0..4_000).map(|_| (random.number() % 3_000).to_be_bytes()).collect();
    let limits = WriterLimits { run_bytes: 3_000, runs_max: 64 };
    write_within(&disk, entries.iter().map(|entry| (&entry[..], 4)), limits);
    entries.sort();
    entries.dedup();
    let file = open(&disk).unwrap();
    assert_eq!(file.segment_entry_counts(), [entries.len() as u64]);
    let found: Vec<_> = file.parts().flat_map(|part| read_all(&part, &[], &[0xff]).unwrap()).collect();
    assert!(found.iter().map(|(entry, _)| entry.as_slice()).eq(entries.iter().map(|entry| &entry[..])));
    let names: Vec<_> = disk.list(Path::new("/index")).unwrap().into_iter().map(|found| found.name).collect();
    assert_eq!(names, ["7.db"], "the runs are gone");
}

/// A search that goes on where a batch ended, or further on, finds what it finds from the beginning.
#[test]
fn reading_on_behind_a_batch_gives_what_a_new_search_gives() {
    let mut random = Random(seed(11));
    for (run_bytes, count) in [(1 << 20, 30_000), (40_000, 9_000)] {
        let disk = disk();
        let entries: Vec<_> = (0..count).map(|_| entry(&mut random)).collect();
        write(&disk, entries.iter().map(|(entry, length)| (entry.as_slice(), *length)), run_bytes);
        let file = open(&disk).unwrap();
        for part in file.parts() {
            let entries = read_all(&part, &[], &[0xff]).unwrap();
            for _ in 0..40 {
                let (mut from, mut batch) = (random.below(entries.len()), Batch::default());
                while from < entries.len() && !batch.is_last() {
                    let start = match from.checked_sub(1).filter(|_| random.one_in(2)) {
                        Some(before) => Bound::Excluded(entries[before].0.as_slice()),
                        None => Bound::Included(entries[from].0.as_slice()),
                    };
                    batch.clear_to_read_on();
                    part.read(start, &[0xff], true, &mut batch).unwrap();
                    let found = (0..batch.len()).map(|index| batch.entry(index).unwrap());
                    let expected = entries[from..].iter().map(|(entry, _)| entry.as_slice());
                    assert!(found.eq(expected.take(batch.len())), "{count} entries from {from} on");
                    from += batch.len();
                    assert!(!batch.is_empty() && (!batch.is_last() || from == entries.len()));
                    from += [0, 1, 30, 3_000][random.below(4)];
                }
            }
        }
    }
}

#[test]
fn runs_that_the_disk_gives_back_damaged_end_the_build() {
    let disk = disk();
    let limits = WriterLimits { run_bytes: 3_000, runs_max: 64 };
    for is_cut in [false, true] {
        let mut writer = IndexWriter::with_limits(&disk, Path::new(PATH), limits).unwrap();
        (0..1_000_u64).for_each(|number| writer.add(&number.to_be_bytes(), 4, None).unwrap());
        let runs = disk.open(Path::new("/index/7.db.runs.tmp"), OpenOptions::write()).unwrap();
        match is_cut {
            true => runs.set_len(4_000).unwrap(),
            false => runs.write_at(&[1], 4_000).unwrap(),
        }
        let error = writer.finish(KEY, &origin(), &mut || true).expect_err("the runs are damaged");
        assert!(is_cut || error.to_string().starts_with("7.db.runs.tmp is corrupt at"), "{error}");
        assert!(disk.list(Path::new("/index")).unwrap().is_empty(), "nothing stays of a build that failed");
    }
}

#[test]
fn a_build_can_be_stopped_while_runs_are_merged() {
    let disk = disk();
    let limits = WriterLimits { run_bytes: 30_000, runs_max: 64 };
    let mut writer = IndexWriter::with_limits(&disk, Path::new(PATH), limits).unwrap();
    (0..20_000_u64).for_each(|number| writer.add(&number.to_be_bytes(), 4, None).unwrap());
    let mut left = 2;
    let stopped = writer.finish(KEY, &origin(), &mut || {
        left -= 1;
        left > 0
    });
    assert!(stopped.unwrap_err().to_string().ends_with("the building of an index was stopped"));
    assert!(disk.list(Path::new("/index")).unwrap().is_empty());
}

/// A build that is killed leaves either what the next build replaces, or the index file alone.
#[test]
fn runs_do_not_stay_beside_an_index_file_that_is_complete() {
    let limits = WriterLimits { run_bytes: 3_000, runs_max: 64 };
    let (mut is_complete, mut skip) = (false, 0);
    while !is_complete {
        let simulated = Arc::new(SimulatedDisk::new());
        simulated.create_dir_all(Path::new("/index")).unwrap();
        simulated.inject_into("/index", Fault::PowerCut, skip);
        let disk: Arc<dyn Disk> = simulated.clone();
        let build = |disk| {
            let mut writer = IndexWriter::with_limits(disk, Path::new(PATH), limits)?;
            (0..1_000_u64).try_for_each(|number| writer.add(&number.to_be_bytes(), 4, None))?;
            writer.finish(KEY, &origin(), &mut || true)
        };
        is_complete = build(&disk).is_ok();
        let found: Arc<dyn Disk> = Arc::new(simulated.after_process_death());
        let list = || found.list(Path::new("/index")).unwrap().into_iter().map(|found| found.name);
        if list().any(|name| name == "7.db") {
            assert!(list().eq(["7.db"]), "after {skip} operations");
            open(&found).unwrap().verify().unwrap();
        }
        build(&found).unwrap();
        assert!(list().eq(["7.db"]), "after {skip} operations and another build");
        skip += 1;
    }
    assert!(skip > 10, "{skip} operations");
}
