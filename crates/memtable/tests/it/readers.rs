//! Random histories with readers beside the writer: every read of a partition matches one of its versions, and none
//! that is older than what was applied before the read began. A read of all partitions copies batches and may end one
//! inside a partition, whose rest may then be newer; so it is not checked for partitions that changed meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memtable::Memtable;
use model::{KeyRange, PartitionKey, PartitionUpdate, ReadRange, Slices, Table};
use testkit::{Random, seeds};

use crate::against_model::{SMALL, all_clusterings, expected, key, table, update};
use crate::cells::{Partition, Seen, read_partition};
use crate::kinds::{KINDS, Kind};

const READERS: u64 = 2;
const UPDATES: usize = 200;
const PARTITIONS: i32 = 3;
/// The least number of reads, by both readers together, while updates arrive.
const READS_MIN: usize = 200;

/// The versions of one partition, and how many of them the writer has applied.
struct Versions {
    /// What a reader sees after each number of updates, forward and reverse; `None` before the first.
    seen: Vec<Option<[Seen; 2]>>,
    begun: AtomicUsize,
    applied: AtomicUsize,
}

struct History {
    table: Arc<Table>,
    updates: Vec<PartitionUpdate>,
    partitions: BTreeMap<PartitionKey, Versions>,
    /// The clusterings that are probed, forward and reverse.
    probes: [Vec<Vec<u8>>; 2],
}

impl History {
    fn new(random: &mut Random, table: Arc<Table>, deletions: bool) -> History {
        let updates: Vec<_> = (0..UPDATES).map(|_| update(random, &table, SMALL, deletions)).collect();
        let forward = all_clusterings(&table);
        let probes = [forward.clone(), forward.into_iter().rev().collect()];
        let partitions = (0..PARTITIONS).map(|p| {
            let of_this = updates.iter().filter(|update| *update.key() == key(p));
            let mut partition = Partition::default();
            let mut seen = vec![None];
            for update in of_this {
                partition.write(update, &table);
                let [forward, reverse] = &probes;
                let look = |probes: &[Vec<u8>]| expected(&partition, &table, &Slices::all(), probes);
                seen.push(Some([look(forward), look(reverse)]));
            }
            (key(p), Versions { seen, begun: AtomicUsize::new(0), applied: AtomicUsize::new(0) })
        });
        let partitions = partitions.collect();
        History { table, updates, partitions, probes }
    }

    /// Applies all updates, some after the next read has ended, and then repeats some of them, which changes nothing,
    /// until there were enough reads.
    fn write(&self, random: &mut Random, memtable: &dyn Memtable, reads: &AtomicUsize, failed: &AtomicBool) {
        for update in &self.updates {
            let before = reads.load(Ordering::Relaxed);
            let awaits_a_read = random.one_in(4);
            while awaits_a_read && reads.load(Ordering::Relaxed) == before && !failed.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let versions = &self.partitions[update.key()];
            versions.begun.fetch_add(1, Ordering::SeqCst);
            memtable.apply(update, None).expect("room");
            versions.applied.fetch_add(1, Ordering::SeqCst);
        }
        while reads.load(Ordering::Relaxed) < READS_MIN && !failed.load(Ordering::Relaxed) {
            let update = &self.updates[random.below(UPDATES)];
            memtable.apply(update, None).expect("room");
        }
    }

    /// Reads one partition or all of them, and finds each among its versions.
    fn read(&self, random: &mut Random, memtable: &Arc<dyn Memtable>) {
        let reversed = random.one_in(2);
        let keys = match random.below(2) {
            0 => KeyRange::all(),
            _ => KeyRange::Single(key(random.below(PARTITIONS as usize) as i32)),
        };
        let applied: BTreeMap<_, _> =
            self.partitions.iter().map(|(key, versions)| (key, versions.applied.load(Ordering::SeqCst))).collect();
        let mut read: BTreeMap<PartitionKey, Seen> = BTreeMap::new();
        let range = ReadRange { keys, slices: Slices::all(), reversed };
        let mut cursor = memtable.clone().cursor(&self.table, &range);
        while cursor.advance_partition().expect("memory") {
            let key = cursor.partition().key.clone();
            read.insert(key, read_partition(&mut *cursor, &self.probes[usize::from(reversed)], reversed));
        }
        for (key, versions) in self.partitions.iter().filter(|(key, _)| range.keys.contains(key)) {
            let (oldest, newest) = (applied[key], versions.begun.load(Ordering::SeqCst));
            if newest > oldest && range.keys == KeyRange::all() {
                continue;
            }
            let of_direction = |both: &Option<[Seen; 2]>| -> bool {
                both.as_ref().map(|both| &both[usize::from(reversed)]) == read.get(key)
            };
            let between = &versions.seen[oldest..=newest];
            assert!(
                between.iter().any(of_direction),
                "{key:?}, reversed {reversed}, is none of its versions {oldest} to {newest}: {:?}; they are {between:?}",
                read.get(key),
            );
        }
    }
}

/// Sets a flag when its thread panics, so that no thread waits for it.
struct Failing<'a>(&'a AtomicBool);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}

fn history_with_readers(seed: u64, kind: Kind, deletions: bool) {
    println!("seed {seed}, {kind:?}, deletions {deletions}");
    let random = &mut Random(seed);
    let history = History::new(random, table(), deletions);
    let memtable = kind.open(&history.table, 1 + seed as usize % 2);
    let (done, failed, reads) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (history, memtable, done, failed, reads) = (&history, &memtable, &done, &failed, &reads);
            scope.spawn(move || {
                let (random, _failing) = (&mut Random(seed * READERS + reader + 1), Failing(failed));
                while !done.load(Ordering::Relaxed) {
                    history.read(random, memtable);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        history.write(random, &*memtable, &reads, &failed);
        done.store(true, Ordering::Relaxed);
    });
    history.read(random, &memtable);
}

#[test]
fn readers_beside_a_random_history_see_each_update_as_a_whole_and_in_time() {
    for seed in seeds(2000..2004) {
        KINDS.iter().for_each(|kind| history_with_readers(seed, *kind, true));
    }
}

/// Without deletions the tries change most rows in place.
#[test]
fn readers_beside_a_random_history_without_deletions_see_each_update_as_a_whole_and_in_time() {
    for seed in seeds(2000..2004) {
        KINDS.iter().for_each(|kind| history_with_readers(seed, *kind, false));
    }
}
