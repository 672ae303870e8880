//! Damage is found and named, and salvage continues past it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blockio::{Disk, Fault, OpenOptions, SimulatedDisk};
use commitlog::{
    CommitLog, ENTRY_DECISIONS, EntryDecision, EntryKind, FirstBlock, Geometry, LogError, LogInspector, LogOptions,
    LogPosition, ReplayReport, SyncMode,
};
use uuid::Uuid;

const DIR: &str = "/log";
const BLOCK: u64 = 4096;
const SEGMENTS: u64 = 4;
/// Where segment 0 begins.
const FIRST: u64 = (2 + SEGMENTS) * BLOCK;

fn options() -> LogOptions {
    LogOptions {
        segment_size_bytes: 64 << 10,
        total_space_bytes: SEGMENTS * (64 << 10),
        log_id: Some(Uuid::from_u128(1)),
        host_id: Some(Uuid::from_u128(2)),
        clock: Arc::new(|| 100),
        ..LogOptions::new(DIR)
    }
}

fn path() -> PathBuf {
    commitlog::log_path(Path::new(DIR))
}

type Records = BTreeMap<LogPosition, Vec<u8>>;

/// A log of `count` records of `length` bytes, each acknowledged before the next.
fn log_of(count: u8, length: usize) -> (SimulatedDisk, Records) {
    log_with(&options(), count, length)
}

fn log_with(options: &LogOptions, count: u8, length: usize) -> (SimulatedDisk, Records) {
    let disk = SimulatedDisk::new();
    let (log, _) = CommitLog::open(Arc::new(disk.clone()), options.clone()).unwrap();
    let mut records = Records::new();
    for number in 0..count {
        let data = vec![number; length];
        let at = log.append(&[Uuid::from_u128(9)], &data).unwrap();
        log.sync().unwrap();
        records.insert(at.position, data);
    }
    drop(log);
    (disk.crash_image(0), records)
}

fn replay(disk: &SimulatedDisk, salvage: bool) -> Result<(Records, ReplayReport), LogError> {
    let (_log, mut replay) = CommitLog::open(Arc::new(disk.clone()), LogOptions { salvage, ..options() })?;
    let mut records = Records::new();
    while let Some(record) = replay.next_record()? {
        records.insert(record.position, record.data.to_vec());
    }
    Ok((records, replay.report().clone()))
}

fn damage_of(result: Result<(Records, ReplayReport), LogError>) -> u64 {
    match result {
        Err(LogError::Corrupt(corruption)) => {
            assert_eq!(corruption.path, path());
            assert!(!corruption.expected.is_empty() && !corruption.got.is_empty());
            corruption.offset
        }
        other => panic!("not found: {other:?}"),
    }
}

/// The block of the file that contains a position.
fn block_of(position: LogPosition) -> u64 {
    FIRST + (position.offset as u64 - 1) / BLOCK * BLOCK
}

#[test]
fn a_flipped_bit_below_the_horizon_is_named_and_salvage_loses_only_what_it_hit() {
    let (disk, records) = log_of(9, 600);
    assert_eq!(replay(&disk, false).unwrap().0, records);
    for (number, hit) in records.keys().enumerate().take(8) {
        for offset in (number as u64 % 7..BLOCK).step_by(97) {
            let disk = disk.crash_image(0);
            disk.flip_bit(&path(), block_of(*hit) + offset, number as u8).unwrap();
            assert_eq!(damage_of(replay(&disk, false)), block_of(*hit));
            let (salvaged, report) = replay(&disk, true).unwrap();
            let mut expected = records.clone();
            expected.remove(hit);
            assert_eq!(salvaged, expected);
            assert_eq!(
                report.gaps.iter().map(|gap| (gap.damage.offset, gap.length_bytes)).collect::<Vec<_>>(),
                [(block_of(*hit), BLOCK)]
            );
            assert!(disk.exists(&Path::new(DIR).join("commitlog.damaged-100")).unwrap());
        }
    }
}

#[test]
fn records_over_several_blocks_are_lost_whole_and_the_rest_is_found() {
    let (disk, records) = log_of(4, 9000);
    // The third block of the second record.
    let hit = FIRST + 3 * BLOCK + 2 * BLOCK;
    disk.flip_bit(&path(), hit + 100, 3).unwrap();
    assert_eq!(damage_of(replay(&disk, false)), hit);
    let (salvaged, _) = replay(&disk, true).unwrap();
    let expected: Records =
        records.iter().enumerate().filter(|(number, _)| *number != 1).map(|(_, (k, v))| (*k, v.clone())).collect();
    assert_eq!(salvaged, expected);
}

#[test]
fn a_damaged_frame_above_the_horizon_ends_the_log() {
    let (disk, mut records) = log_of(3, 600);
    let last = *records.keys().last().unwrap();
    disk.flip_bit(&path(), block_of(last) + 50, 1).unwrap();
    records.remove(&last);
    assert_eq!(replay(&disk, false).unwrap().0, records);
}

/// Which of the blocks that the caller knows to have been durable is damaged, whatever it is that is there now.
#[test]
fn a_log_that_ends_before_a_position_that_was_durable_is_damaged_there() {
    for sync in [SyncMode::Batch, SyncMode::Each] {
        let options = LogOptions { sync, ..options() };
        let (whole, records) = log_with(&options, 3, 600);
        let last = *records.keys().last().unwrap();
        for zeros in [false, true] {
            let disk = whole.crash_image(0);
            match zeros {
                true => disk
                    .open(&path(), OpenOptions::write())
                    .unwrap()
                    .write_at(&[0; BLOCK as usize], block_of(last))
                    .map(|_| ())
                    .unwrap(),
                false => disk.flip_bit(&path(), block_of(last) + 50, 1).unwrap(),
            }
            let read = |salvage, noted: &[LogPosition]| {
                let disk = Arc::new(disk.crash_image(0));
                let (_log, mut replay) = CommitLog::open(disk, LogOptions { salvage, ..options.clone() })?;
                replay.note_durable(noted.iter().copied());
                let mut preview = replay.preview();
                while preview.next_record()?.is_some() {}
                let mut count = 0;
                while replay.next_record()?.is_some() {
                    count += 1;
                }
                Ok((count, replay.report().gaps.clone()))
            };
            let before = *records.keys().nth(1).unwrap();
            let other = LogPosition { segment: last.segment + 1, ..last };
            // The last says nothing of where records end.
            for silent in [before, other, LogPosition { offset: 64 << 10, ..last }, LogPosition { offset: -1, ..last }]
            {
                let (count, gaps): (usize, Vec<_>) = read(false, &[silent]).unwrap();
                assert_eq!((count, gaps), (2, vec![]), "{silent}");
            }
            let reported: Result<_, LogError> = read(false, &[before, last, before]);
            let Err(LogError::Corrupt(damage)) = reported else { panic!("not found: {reported:?}") };
            assert_eq!((damage.path, damage.offset), (path(), block_of(last)));
            assert_eq!(damage.expected, format!("block 2 of segment {}", last.segment));
            let (count, gaps) = read(true, &[last]).unwrap();
            assert_eq!((count, gaps.len(), gaps[0].length_bytes), (2, 1, BLOCK));
        }
    }
}

#[test]
fn one_superblock_is_enough_and_the_other_is_repaired() {
    let (disk, records) = log_of(2, 10);
    for copy in 0..2 {
        for offset in 0..64 {
            let disk = disk.crash_image(0);
            if (56..60).contains(&offset) {
                continue;
            }
            disk.flip_bit(&path(), copy * BLOCK + offset, 5).unwrap();
            let (found, report) = replay(&disk, false).unwrap();
            assert_eq!((found, report.gaps.len()), (records.clone(), 1));
            assert_eq!(report.gaps[0].damage.offset, copy * BLOCK);
            assert_eq!(replay(&disk, false).unwrap().1.gaps, []);
        }
    }
}

/// Overwrites the file's first bytes with nonsense other than zeros.
fn overwrite_head(disk: &SimulatedDisk, length: u64) {
    let nonsense: Vec<u8> = (0..length).map(|at| ((at * 31) >> 3) as u8 | 1).collect();
    disk.open(&path(), OpenOptions::write()).unwrap().write_at(&nonsense, 0).unwrap();
}

/// The superblocks are lost by wrong bits in both, by nonsense over both, and by nonsense over half of the bookkeeping
/// too.
#[test]
fn two_lost_superblocks_are_restored_from_the_blocks() {
    type Damage = fn(&SimulatedDisk);
    let wrong_bits: Damage = |disk| (0..2).for_each(|copy| disk.flip_bit(&path(), copy * BLOCK + 20, 5).unwrap());
    let overwritten: Damage = |disk| overwrite_head(disk, 2 * BLOCK);
    let overwritten_further: Damage = |disk| overwrite_head(disk, 4 * BLOCK);
    let sync = |sync| LogOptions { sync, ..options() };
    let group = SyncMode::Group { window: Duration::ZERO };
    // In the first segment, and in three of four.
    for (options, count, length) in
        [(options(), 5, 600), (options(), 12, 9000), (sync(SyncMode::Each), 12, 9000), (sync(group), 1, 600)]
    {
        let (whole, records) = log_with(&options, count, length);
        for (damage, gaps) in [(wrong_bits, 1), (overwritten, 1), (overwritten_further, 3)] {
            let disk = whole.crash_image(0);
            damage(&disk);
            let head = bytes_of(&disk)[..2 * BLOCK as usize].to_vec();
            assert_eq!(damage_of(replay(&disk, false)), 0);
            let (found, report) = replay(&disk, true).unwrap();
            assert_eq!((found, report.gaps.len()), (records.clone(), gaps), "{:?}", report.gaps);
            assert_eq!((report.gaps[0].damage.offset, report.gaps[0].length_bytes), (0, 0));
            let kept = disk.open(&Path::new(DIR).join("commitlog.damaged"), OpenOptions::read()).unwrap();
            let mut copy = vec![0; kept.len().unwrap() as usize];
            kept.read_exact_at(&mut copy, 0).unwrap();
            assert_eq!(copy, head);
            let (log, replayed) = CommitLog::open(Arc::new(disk.clone()), options.clone()).unwrap();
            assert_eq!((log.host_id(), log.geometry()), (Uuid::from_u128(2), geometry()));
            drop((log, replayed));
            let (found, report) = replay(&disk, false).unwrap();
            assert_eq!((found, report.gaps), (records.clone(), vec![]), "got over for good");
        }
    }
}

fn geometry() -> Geometry {
    Geometry { segment_size_bytes: 64 << 10, segments: SEGMENTS as u32 }
}

/// The configured layout has changed meanwhile. Blocks of segments other than the first show the layout in force;
/// without such blocks the configured layout is used if it is possible.
#[test]
fn superblocks_are_restored_with_the_layout_of_the_blocks() {
    let salvaging = |segment_size_bytes| LogOptions { salvage: true, segment_size_bytes, ..options() };
    let opened = |disk: &SimulatedDisk, segment_size_bytes| {
        overwrite_head(disk, 2 * BLOCK);
        let (log, mut replay) = CommitLog::open(Arc::new(disk.clone()), salvaging(segment_size_bytes)).unwrap();
        let mut count = 0;
        while replay.next_record().unwrap().is_some() {
            count += 1;
        }
        (count, log.geometry().segment_size_bytes, replay.report().gaps[0].length_bytes > 0)
    };
    let (disk, records) = log_of(12, 9000);
    for other in [32 << 10, 128 << 10] {
        assert_eq!(opened(&disk.crash_image(0), other), (records.len(), 64 << 10, false));
    }
    let (disk, records) = log_of(5, 9000);
    assert_eq!(opened(&disk.crash_image(0), 128 << 10), (records.len(), 128 << 10, false));
    // The log has more blocks than that layout: nothing is proved, and the whole log is set aside.
    assert_eq!(opened(&disk.crash_image(0), 32 << 10), (0, 32 << 10, true));
}

/// A file of which nothing but nonsense is left is set aside.
#[test]
fn a_log_without_sound_bookkeeping_is_set_aside_by_salvage() {
    let (disk, _) = log_of(5, 600);
    overwrite_head(&disk, FIRST - BLOCK);
    assert_eq!(damage_of(replay(&disk, false)), 0);
    let (found, report) = replay(&disk, true).unwrap();
    assert_eq!((found.len(), report.gaps.len()), (0, 1));
    assert!(report.gaps[0].length_bytes > FIRST && disk.exists(&Path::new(DIR).join("commitlog.damaged")).unwrap());
    assert_eq!(replay(&disk, false).unwrap().1.gaps, []);
}

#[test]
fn damaged_bookkeeping_is_named_and_salvage_restores_it_from_blocks() {
    let (disk, records) = log_of(5, 600);
    let entry = |slot: u64| (2 + slot) * BLOCK;
    let raw = |disk: &SimulatedDisk| disk.open(&path(), OpenOptions::write()).unwrap();
    for slot in 0..SEGMENTS {
        let flipped = disk.crash_image(0);
        flipped.flip_bit(&path(), entry(slot) + 17, 0).unwrap();
        let zeroed = disk.crash_image(0);
        raw(&zeroed).write_at(&[0; 4096], entry(slot)).unwrap();
        let misplaced = disk.crash_image(0);
        let mut other = [0; 4096];
        raw(&misplaced).read_exact_at(&mut other, entry((slot + 1) % SEGMENTS)).unwrap();
        raw(&misplaced).write_at(&other, entry(slot)).unwrap();
        for disk in [flipped, zeroed, misplaced] {
            assert_eq!(damage_of(replay(&disk, false)), entry(slot));
            let (salvaged, report) = replay(&disk, true).unwrap();
            assert_eq!(salvaged, records);
            assert_eq!(report.gaps[0].damage.offset, entry(slot));
            let (found, report) = replay(&disk, false).unwrap();
            assert_eq!((found, report.gaps), (records.clone(), vec![]), "got over for good");
        }
    }
}

/// The bookkeeping entry of a segment.
fn bookkeeping(slot: u32, state: u8, id: i64) -> [u8; 28] {
    let mut entry = [0; 28];
    entry[..4].copy_from_slice(b"SEGM");
    entry[4..8].copy_from_slice(&slot.to_be_bytes());
    entry[8] = state;
    entry[16..24].copy_from_slice(&id.to_be_bytes());
    let mut crc = crc32fast::Hasher::new_with_initial(crc32fast::hash(Uuid::from_u128(1).as_bytes()));
    crc.update(&entry[..24]);
    entry[24..].copy_from_slice(&crc.finalize().to_be_bytes());
    entry
}

/// Every row of the table of entries, in every sync mode, with every kind of first block.
#[test]
fn the_decision_table_of_entries_holds_in_every_mode() {
    let period = Duration::from_secs(3600);
    let window = Duration::ZERO;
    for sync in [SyncMode::Batch, SyncMode::Each, SyncMode::Group { window }, SyncMode::Periodic { period }] {
        let (whole, records) = log_with(&LogOptions { sync, ..options() }, 5, 600);
        let first = first_block_of(&whole);
        for (kind, says, decision) in ENTRY_DECISIONS {
            // Blank, torn, and of the use that the entry describes.
            let older = vec![vec![0; BLOCK as usize], [&[first[0] ^ 1], &first[1..]].concat(), first.clone()];
            let firsts = if says == FirstBlock::Older { older } else { vec![first.clone()] };
            for block in firsts {
                let id = if says == FirstBlock::Newer { 99 } else { 100 };
                let disk = whole.crash_image(0);
                let raw = disk.open(&path(), OpenOptions::write()).unwrap();
                raw.write_at(&block, FIRST).unwrap();
                raw.write_at(&entry_of(kind, id), 2 * BLOCK).unwrap();
                let case = format!("{sync:?}, {kind:?} beside {says:?}");
                match decision {
                    EntryDecision::Damage => {
                        assert_eq!(damage_of(replay(&disk, false)), 2 * BLOCK, "{case}");
                        let (found, report) = replay(&disk, true).unwrap();
                        assert_eq!(report.gaps[0].damage.offset, 2 * BLOCK, "{case}");
                        assert!(found.len() >= records.len() - 1, "{case}");
                    }
                    EntryDecision::Skip => assert_eq!(replay(&disk, false).unwrap().0, Records::new(), "{case}"),
                    // Where the first block is lost, the following blocks show that it was there.
                    EntryDecision::Read if block == first => {
                        assert_eq!(replay(&disk, false).unwrap().0, records, "{case}");
                    }
                    EntryDecision::Read => assert_eq!(damage_of(replay(&disk, false)), FIRST, "{case}"),
                }
            }
        }
    }
}

fn first_block_of(disk: &SimulatedDisk) -> Vec<u8> {
    bytes_of(disk)[FIRST as usize..][..BLOCK as usize].to_vec()
}

/// A block in the place of the first segment's entry.
fn entry_of(kind: EntryKind, id: i64) -> Vec<u8> {
    let mut entry = match kind {
        EntryKind::Free | EntryKind::Unsound => bookkeeping(0, 1, id).to_vec(),
        EntryKind::Live => bookkeeping(0, 2, id).to_vec(),
        EntryKind::Elsewhere => bookkeeping(1, 2, id).to_vec(),
        EntryKind::Zeros => Vec::new(),
    };
    if kind == EntryKind::Unsound {
        entry[5] ^= 4;
    }
    entry.resize(BLOCK as usize, 0);
    entry
}

#[test]
fn two_segments_with_one_id_are_named_and_salvage_reads_their_blocks() {
    // Segments 100, 101 and 102; the fourth was never used.
    let (disk, records) = log_of(12, 9000);
    let raw = |disk: &SimulatedDisk| disk.open(&path(), OpenOptions::write()).unwrap();
    let entry = |slot: u64| (2 + slot) * BLOCK;
    for (slot, id, named) in [(1, 102, 2), (3, 101, 3), (3, 100, 3)] {
        let disk = disk.crash_image(0);
        raw(&disk).write_at(&bookkeeping(slot, 2, id), entry(slot.into())).unwrap();
        let inspected = LogInspector::open(&disk, &path()).unwrap().damage().unwrap();
        assert_eq!(inspected.iter().map(|damage| damage.offset).collect::<Vec<_>>(), [entry(named)]);
        assert_eq!(damage_of(replay(&disk, false)), entry(named));
        let (salvaged, report) = replay(&disk, true).unwrap();
        assert_eq!(salvaged, records);
        assert_eq!(report.gaps.iter().map(|gap| gap.damage.offset).collect::<Vec<_>>(), [entry(named)]);
        let (found, report) = replay(&disk, false).unwrap();
        assert_eq!((found, report.gaps), (records.clone(), vec![]), "got over for good");
    }
    // Two segments claim the same use: neither is skipped, and once they are free there is one of each.
    let mut segment = vec![0; 64 << 10];
    raw(&disk).read_exact_at(&mut segment, FIRST).unwrap();
    raw(&disk).write_at(&segment, FIRST + 3 * (64 << 10)).unwrap();
    raw(&disk).write_at(&bookkeeping(3, 2, 100), entry(3)).unwrap();
    assert_eq!(damage_of(replay(&disk, false)), entry(3));
    let options = LogOptions { salvage: true, ..options() };
    let (log, mut replayed) = CommitLog::open(Arc::new(disk.clone()), options).unwrap();
    let mut found = Vec::new();
    while let Some(record) = replayed.next_record().unwrap() {
        found.push((record.position, record.data.to_vec()));
    }
    let in_first = records.keys().filter(|position| position.segment == 100).count();
    assert_eq!(found.len(), records.len() + in_first);
    assert_eq!(Records::from_iter(found), records);
    log.discard_replayed().unwrap();
    log.shutdown().unwrap();
    drop(log);
    assert_eq!(replay(&disk, false).unwrap(), (Records::new(), ReplayReport::default()));
}

#[test]
fn salvage_keeps_the_rest_behind_truncated_bookkeeping() {
    for length in [2 * BLOCK, 3 * BLOCK, FIRST - 1] {
        let (disk, _) = log_of(5, 600);
        disk.open(&path(), OpenOptions::write()).unwrap().set_len(length).unwrap();
        assert_eq!(damage_of(replay(&disk, false)), length);
        let (salvaged, report) = replay(&disk, true).unwrap();
        assert_eq!((salvaged.len(), report.gaps.len()), (0, 1));
        assert_eq!((report.gaps[0].damage.offset, report.gaps[0].length_bytes), (length, length));
        let kept = disk.open(&Path::new(DIR).join("commitlog.damaged"), OpenOptions::read()).unwrap();
        assert_eq!(kept.len().unwrap(), length);
        let (found, report) = replay(&disk, false).unwrap();
        assert_eq!((found.len(), report.gaps), (0, vec![]));
    }
}

#[test]
fn a_later_salvage_keeps_the_copies_of_an_earlier_one() {
    let (disk, _) = log_of(5, 600);
    let open = |name: &str| disk.open(&Path::new(DIR).join(name), OpenOptions::write());
    for length in [2 * BLOCK, 3 * BLOCK, FIRST - 1] {
        open("commitlog.log").unwrap().set_len(length).unwrap();
        assert_eq!(replay(&disk, true).unwrap().1.gaps.len(), 1);
    }
    let kept = ["commitlog.damaged", "commitlog.damaged.2", "commitlog.damaged.3"]
        .map(|name| open(name).unwrap().len().unwrap());
    assert_eq!(kept, [2 * BLOCK, 3 * BLOCK, FIRST - 1]);

    // A segment is copied once, however often the start is tried, and again when there is more damage in it.
    let (disk, _) = log_of(5, 600);
    let copies =
        || disk.list(Path::new(DIR)).unwrap().into_iter().filter(|file| file.name.starts_with("commitlog.damaged-100"));
    for (block, expected) in [(0, 1), (2, 2)] {
        disk.flip_bit(&path(), FIRST + block * BLOCK + 100, 1).unwrap();
        for _ in 0..2 {
            replay(&disk, true).unwrap();
            assert_eq!(copies().count(), expected);
        }
    }
}

/// An entry from before the last use of its segment: sound, but older than the blocks. Tools see this as a start does.
#[test]
fn bookkeeping_that_was_lost_is_named_by_a_start_and_by_tools() {
    let (disk, records) = log_of(5, 600);
    let entry = 2 * BLOCK;
    let file = disk.open(&path(), OpenOptions::write()).unwrap();
    let found = |disk: &SimulatedDisk| {
        LogInspector::open(disk, &path())
            .unwrap()
            .damage()
            .unwrap()
            .iter()
            .map(|damage| damage.offset)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(&disk), []);
    for state in [1, 2] {
        file.write_at(&bookkeeping(0, state, 99), entry).unwrap();
        assert_eq!(found(&disk), [entry]);
        assert_eq!(damage_of(replay(&disk, false)), entry);
    }
    let (salvaged, report) = replay(&disk, true).unwrap();
    assert_eq!((salvaged, report.gaps[0].damage.offset), (records, entry));
}

#[test]
fn silent_faults_of_the_device_are_found_below_the_horizon() {
    for fault in [Fault::FlipBit, Fault::Misdirect] {
        for hit in 0..6u8 {
            let disk = SimulatedDisk::new();
            let (log, _) = CommitLog::open(Arc::new(disk.clone()), options()).unwrap();
            for number in 0..8u8 {
                if number == hit {
                    disk.inject(fault, if number == 0 { 1 } else { 0 });
                }
                let at = log.append(&[], &[number; 700]).unwrap();
                log.durable(at.position).wait().unwrap();
            }
            drop(log);
            let offset = damage_of(replay(&disk.crash_image(1), false));
            // The first write of all comes after its segment was prewritten, where a fault is harmless or hits block 0.
            assert!(offset == FIRST + u64::from(hit) * BLOCK, "{fault:?} {hit}: {offset}");
        }
    }
}

#[test]
fn another_format_version_is_refused_by_name() {
    let (disk, _) = log_of(1, 10);
    let file = disk.open(&path(), OpenOptions::write()).unwrap();
    let mut superblock = [0; 64];
    file.read_exact_at(&mut superblock, 0).unwrap();
    superblock[11] = 3;
    let crc = crc32fast::hash(&superblock[..60]);
    superblock[60..].copy_from_slice(&crc.to_be_bytes());
    file.write_at(&superblock, 0).unwrap();
    match replay(&disk, false) {
        Err(LogError::Refused { reason, .. }) => {
            assert_eq!(reason, "it has format version 3; this build reads versions 1 to 2")
        }
        other => panic!("{other:?}"),
    }
}

/// Version 1 had everything in this format except the mode `each`.
#[test]
fn a_log_of_version_1_is_read_and_made_one_of_this_version() {
    let (disk, records) = log_of(3, 600);
    let file = disk.open(&path(), OpenOptions::write()).unwrap();
    let mut superblock = [0; 64];
    file.read_exact_at(&mut superblock, 0).unwrap();
    superblock[11] = 1;
    let crc = crc32fast::hash(&superblock[..60]);
    superblock[60..].copy_from_slice(&crc.to_be_bytes());
    for copies in [&[0][..], &[1], &[0, 1]] {
        for copy in copies {
            file.write_at(&superblock, copy * BLOCK).unwrap();
        }
        assert_eq!(replay(&disk, false).unwrap().0, records);
        for copy in 0..2 {
            let mut version = [0; 4];
            file.read_exact_at(&mut version, copy * BLOCK + 8).unwrap();
            assert_eq!(version, [0, 0, 0, 2]);
        }
    }
}

fn bytes_of(disk: &SimulatedDisk) -> Vec<u8> {
    let file = disk.open(&path(), OpenOptions::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn the_decoder_takes_any_bytes() {
    let (disk, records) = log_of(9, 3000);
    let bytes = bytes_of(&disk);
    assert_eq!(commitlog::count_records(&bytes), records.len() as u64);
    let mut state = 1u64;
    for _ in 0..2000 {
        let mut bytes = bytes.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 20) as usize % bytes.len();
            bytes[at] ^= (state >> 56) as u8;
            if state >> 60 == 0 {
                bytes.truncate(at);
                break;
            }
        }
        assert!(commitlog::count_records(&bytes) <= records.len() as u64);
    }
}

#[test]
fn a_read_that_fails_or_falls_short_is_an_error() {
    let (disk, records) = log_of(3, 600);
    for fault in [Fault::Fail, Fault::ShortRead] {
        let mut failed = 0;
        for skip in 0..12 {
            let disk = disk.crash_image(0);
            disk.inject(fault, skip);
            match replay(&disk, false) {
                Ok((found, _)) => assert_eq!(found, records, "{fault:?} {skip}"),
                Err(_) => failed += 1,
            }
        }
        assert!(failed > 1, "{fault:?}");
    }
}
