use std::collections::BTreeSet;

use super::*;
use crate::AlignedBuffer;

fn disk_with(dir: &str) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.create_dir_all(Path::new(dir)).unwrap();
    disk
}

fn contents(disk: &SimulatedDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(path), OpenOptions::read()).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

/// The possible contents of a file after a crash, over many seeds.
fn outcomes(disk: &SimulatedDisk, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..200).map(|seed| contents(&disk.crash_image(seed), path)).collect()
}

#[test]
fn synced_bytes_stay_and_unsynced_ones_may_go() {
    let disk = disk_with("/d");
    let file = disk.open(Path::new("/d/f"), OpenOptions::create_new()).unwrap();
    file.write_at(b"one", 0).unwrap();
    assert!(outcomes(&disk, "/d/f").contains(&None), "the name is not synced");
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(outcomes(&disk, "/d/f"), BTreeSet::from([Some(b"one".to_vec())]));
    file.write_at(b"two", 0).unwrap();
    assert_eq!(outcomes(&disk, "/d/f"), BTreeSet::from([Some(b"one".to_vec()), Some(b"two".to_vec())]));
    assert_eq!(contents(&disk, "/d/f").unwrap(), b"two");
}

#[test]
fn a_write_is_torn_between_sectors_only() {
    let disk = disk_with("/d");
    let file = disk.open(Path::new("/d/f"), OpenOptions::create_new()).unwrap();
    file.write_at(&[1; 1024], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_at(&[2; 1024], 0).unwrap();
    let expected = [[1, 1], [1, 2], [2, 1], [2, 2]].map(|[a, b]| Some([[a; 512], [b; 512]].concat()));
    assert_eq!(outcomes(&disk, "/d/f"), BTreeSet::from(expected));
}

#[test]
fn a_durable_block_survives_pending_writes_below_it() {
    let disk = disk_with("/d");
    let file = disk.open(Path::new("/d/f"), OpenOptions::create_new().blocks()).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    let mut block = AlignedBuffer::new(4096);
    block.fill(1);
    file.write_blocks(block.all_blocks(), 0, Durability::AtNextSync).unwrap();
    block.fill(2);
    file.write_blocks(block.all_blocks(), 0, Durability::Durable).unwrap();
    assert_eq!(outcomes(&disk, "/d/f"), BTreeSet::from([Some(vec![2; 4096])]));
}

#[test]
fn a_rename_is_atomic_and_durable_with_its_directory() {
    let disk = disk_with("/d");
    let names = |disk: &SimulatedDisk| {
        disk.list(Path::new("/d")).unwrap().into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    let file = disk.open(Path::new("/d/new"), OpenOptions::create_new()).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.rename(Path::new("/d/new"), Path::new("/d/f")).unwrap();
    let images: BTreeSet<_> = (0..50).map(|seed| names(&disk.crash_image(seed))).collect();
    assert_eq!(images, BTreeSet::from([vec!["f".to_owned()], vec!["new".to_owned()]]));
    disk.sync_dir(Path::new("/d")).unwrap();
    assert!((0..50).all(|seed| names(&disk.crash_image(seed)) == ["f"]));
}

#[test]
fn a_failed_sync_loses_the_data_that_it_should_have_written() {
    let disk = disk_with("/d");
    let file = disk.open(Path::new("/d/f"), OpenOptions::create_new()).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_at(b"lost", 0).unwrap();
    disk.inject(Fault::FailSync, 0);
    file.sync_data().unwrap_err();
    file.sync_data().unwrap();
    assert_eq!(contents(&disk, "/d/f").unwrap(), b"lost");
    assert_eq!(outcomes(&disk, "/d/f"), BTreeSet::from([Some(vec![])]));
}

#[test]
fn faults_hit_the_operation_they_are_meant_for() {
    let disk = disk_with("/d");
    let file = disk.open(Path::new("/d/f"), OpenOptions::create_new()).unwrap();
    disk.inject(Fault::Full, 1);
    disk.inject(Fault::ShortRead, 0);
    disk.inject(Fault::FlipBit, 3);
    file.write_at(b"abcd", 0).unwrap();
    assert_eq!(file.write_at(b"efgh", 4).unwrap_err().kind(), DiskErrorKind::Full);
    let mut buffer = [0; 4];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 2);
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 4);
    assert_ne!(&buffer, b"abcd");
    disk.flip_bit(Path::new("/d/f"), 0, 1).unwrap();
    assert_eq!(contents(&disk, "/d/f").unwrap(), b"cbcd");
    disk.set_capacity(6);
    assert_eq!(file.write_at(b"12345", 2).unwrap_err().kind(), DiskErrorKind::Full);
    assert_eq!(file.allocate(0, 7).unwrap_err().kind(), DiskErrorKind::Full);
    assert_eq!(disk.space(Path::new("/d")).unwrap(), Space { free_bytes: 2, total_bytes: 6 });
    disk.inject(Fault::PowerCut, 0);
    assert!(file.write_at(b"x", 0).is_err() && file.sync_data().is_err() && disk.list(Path::new("/d")).is_err());
}

#[test]
fn a_fault_of_one_file_affects_no_other() {
    let disk = disk_with("/d");
    let open = |path| disk.open(Path::new(path), OpenOptions::create_new()).unwrap();
    let (file, other) = (open("/d/file"), open("/d/other"));
    disk.inject_into("file", Fault::Misdirect, 1);
    for at in 0..3 {
        other.write_at(b"other", at * 5).unwrap();
    }
    file.write_at(b"right", 0).unwrap();
    file.write_at(b"astray", 0).unwrap();
    assert_eq!(contents(&disk, "/d/other").unwrap(), b"otherotherother");
    let bytes = contents(&disk, "/d/file").unwrap();
    assert_eq!((&bytes[..5], &bytes[BLOCK_SIZE..]), (&b"right"[..], &b"astray"[..]));
}

#[test]
fn reads_and_other_files_work_while_changes_of_a_file_are_refused() {
    let disk = disk_with("/d");
    let file = disk.open(Path::new("/d/file"), OpenOptions::create_new()).unwrap();
    file.write_at(b"before", 0).unwrap();
    disk.refuse_changes(Some("/d/f"));
    let (path, to) = (Path::new("/d/file"), Path::new("/d/to"));
    assert!(file.write_at(b"after", 0).is_err() && file.set_len(1).is_err());
    file.sync_data().unwrap();
    assert!(disk.rename(path, to).is_err() && disk.remove_file(path).is_err() && disk.hard_link(path, path).is_err());
    assert!(disk.open(Path::new("/d/f2"), OpenOptions::create_new()).is_err());
    assert!(!disk.exists(Path::new("/d/f2")).unwrap());
    assert_eq!(contents(&disk, "/d/file").unwrap(), b"before");
    disk.open(to, OpenOptions::create_new()).unwrap().write_at(b"other", 0).unwrap();
    disk.refuse_changes(None);
    file.write_at(b"after", 0).unwrap();
}

#[test]
fn a_directory_is_moved_and_removed_with_its_content() {
    let disk = disk_with("/a/b");
    disk.open(Path::new("/a/b/f"), OpenOptions::create_new()).unwrap();
    disk.hard_link(Path::new("/a/b/f"), Path::new("/a/g")).unwrap();
    disk.rename(Path::new("/a/b"), Path::new("/a/c")).unwrap();
    assert!(disk.exists(Path::new("/a/c/f")).unwrap() && !disk.exists(Path::new("/a/b")).unwrap());
    disk.remove_dir_all(Path::new("/a/c")).unwrap();
    let entries = disk.list(Path::new("/a")).unwrap();
    assert_eq!(entries, [DirectoryEntry { name: "g".into(), is_dir: false }]);
    assert_eq!(disk.open(Path::new("/x/f"), OpenOptions::create_new()).unwrap_err().kind(), DiskErrorKind::NotFound);
}

#[test]
fn a_directory_is_locked_until_the_lock_is_dropped() {
    let disk = disk_with("/d");
    let lock = disk.lock_dir(Path::new("/d")).unwrap();
    assert_eq!(disk.lock_dir(Path::new("/d")).unwrap_err().kind(), DiskErrorKind::Locked);
    assert!(disk.crash_image(0).lock_dir(Path::new("/d")).is_ok());
    drop(lock);
    disk.lock_dir(Path::new("/d")).unwrap();
}

#[test]
fn a_kill_loses_nothing_and_a_power_cut_loses_unsynced_data() {
    let disk = disk_with("/d");
    let lock = disk.lock_dir(Path::new("/d")).unwrap();
    let file = disk.open(Path::new("/d/new"), OpenOptions::create_new()).unwrap();
    file.write_at(b"bytes", 0).unwrap();
    disk.rename(Path::new("/d/new"), Path::new("/d/f")).unwrap();
    let next = disk.after_process_death();
    next.lock_dir(Path::new("/d")).unwrap();
    assert_eq!(contents(&next, "/d/f").unwrap(), b"bytes");
    assert!(outcomes(&next, "/d/f").is_superset(&BTreeSet::from([None, Some(vec![])])), "nothing of it was synced");
    // What the killed process still does has no effect.
    file.write_at(b"later", 0).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(contents(&next, "/d/f").unwrap(), b"bytes");
    assert!(outcomes(&next, "/d/f").contains(&None));
    drop(lock);
}

#[test]
fn a_directory_of_a_killed_process_is_durable_after_the_next_creates_it() {
    let disk = disk_with("/d");
    // The directory is made, and the sync of its parent fails.
    disk.inject(Fault::Fail, 1);
    disk.create_dir_all(Path::new("/d/e")).unwrap_err();
    let next = disk.after_process_death();
    assert!(next.exists(Path::new("/d/e")).unwrap());
    let stays = |disk: &SimulatedDisk| (0..50).all(|seed| disk.crash_image(seed).exists(Path::new("/d/e")).unwrap());
    assert!(!stays(&next));
    next.create_dir_all(Path::new("/d/e")).unwrap();
    assert!(stays(&next));
}

#[test]
fn a_disk_and_its_images_do_not_see_each_others_changes() {
    let disk = disk_with("/d");
    let file = disk.open(Path::new("/d/f"), OpenOptions::create_new()).unwrap();
    file.write_at(b"one", 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    let (image, left) = (disk.crash_image(0), disk.after_process_death());
    for (disk, bytes) in [(&disk, b"two"), (&image, b"six"), (&left, b"ten")] {
        let file = disk.open(Path::new("/d/f"), OpenOptions::write_or_create()).unwrap();
        file.write_at(bytes, 0).unwrap();
        disk.remove_file(Path::new("/d/f")).unwrap();
    }
    for (disk, bytes) in [(&disk, b"two"), (&image, b"six"), (&left, b"ten")] {
        assert!(!disk.exists(Path::new("/d/f")).unwrap());
        let found = outcomes(disk, "/d/f");
        assert_eq!(found, BTreeSet::from([None, Some(b"one".to_vec()), Some(bytes.to_vec())]));
    }
}

#[test]
fn a_write_that_was_truncated_before_a_sync_does_not_come_back() {
    let disk = disk_with("/d");
    let file = disk.open(Path::new("/d/f"), OpenOptions::create_new()).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_at(&[1; 1500], 1024).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(outcomes(&disk, "/d/f"), BTreeSet::from([Some(vec![])]));
}

#[test]
fn a_lost_directory_takes_what_is_below_it() {
    let disk = disk_with("/d/e.other");
    disk.inject(Fault::Fail, 1);
    disk.create_dir_all(Path::new("/d/e")).unwrap_err();
    disk.open(Path::new("/d/e/f"), OpenOptions::create_new()).unwrap();
    disk.sync_dir(Path::new("/d/e")).unwrap();
    let mut found = BTreeSet::new();
    for image in (0..50).map(|seed| disk.crash_image(seed)) {
        let there = ["/d/e", "/d/e/f", "/d/e.other"].map(|path| image.exists(Path::new(path)).unwrap());
        found.insert(there);
        assert_eq!(image.list(Path::new("/d")).unwrap().len(), there.iter().step_by(2).filter(|it| **it).count());
    }
    assert_eq!(found, BTreeSet::from([[true, true, true], [false, false, true]]));
}

/// A random history; it and its crash image depend on nothing but the seed.
fn history(seed: u64) -> (Vec<Operation>, Vec<Option<Vec<u8>>>) {
    let disk = disk_with("/d");
    let mut choices = Choices(seed);
    disk.inject(Fault::FailSync, choices.below(9));
    for _ in 0..60 {
        let path = PathBuf::from(format!("/d/{}", choices.below(4)));
        let other = PathBuf::from(format!("/d/{}", choices.below(4)));
        let file = disk.open(&path, OpenOptions::write_or_create()).unwrap();
        match choices.below(7) {
            0 => disk.rename(&path, &other).unwrap(),
            1 => disk.remove_file(&path).unwrap(),
            2 => disk.sync_dir(Path::new("/d")).unwrap(),
            3 => drop(file.sync_data()),
            4 => file.set_len(choices.below(3000)).unwrap(),
            _ => file.write_at(&vec![choices.next() as u8; choices.below(1500) as usize], choices.below(2000)).unwrap(),
        }
    }
    let image = disk.crash_image(seed ^ 1);
    (disk.trace(), (0..4).map(|name| contents(&image, &format!("/d/{name}"))).collect())
}

#[test]
fn the_same_seed_gives_the_same_trace_and_image() {
    for seed in 0..50 {
        assert!(history(seed) == history(seed));
    }
    assert!(history(1) != history(2));
}
