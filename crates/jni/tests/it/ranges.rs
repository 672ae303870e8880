//! Reads of ranges: each partition as a read of it alone returns it, with its key, whatever the pages.

use std::collections::BTreeMap;

use jni::{Choice, Pages, PluginMemtable, Reply, Store};
use testkit::{Random, seed};

use crate::stored::{Directory, open};
use crate::vectors::{ALL_KEYS, ALL_ROWS, Vector, content, next_page, vectors};

/// A memtable with the updates of all vectors of its table.
struct Filled {
    table: &'static [u8],
    memtable: PluginMemtable,
    /// In order: the token, the length and the bytes of each key, as requests and pages have them.
    keys: Vec<Vec<u8>>,
    /// What may be selected of a partition: the direction and the slices.
    rows: Vec<Vec<u8>>,
}

/// The token, length and bytes of the key of a request for a partition.
fn key_of(request: &[u8]) -> &[u8] {
    let length = u32::from_be_bytes(*request[9..].first_chunk().unwrap()) as usize;
    &request[1..13 + length]
}

/// All rows, none, and slices if the first clustering column is an int, in both directions.
fn selections(table: &[u8]) -> Vec<Vec<u8>> {
    let mut slices = vec![ALL_ROWS[6..].to_vec(), ALL_KEYS[6..].to_vec()];
    // Its kind, and the end of its class.
    let of_int = [&[1, 0, 0, 0, 1, b'c', 0, 0, 0, 41], &b"org.apache.cassandra.db.marshal.Int32Type"[..]].concat();
    if table.windows(of_int.len()).any(|window| window == of_int) {
        slices.push([&1u32.to_be_bytes()[..], &slice(1, 3)].concat());
        slices.push([&2u32.to_be_bytes()[..], &slice(-2, -2), &slice(2, 4)].concat());
    }
    slices.iter().flat_map(|slices| [0u8, 1].map(|reversed| [&[reversed], &slices[..]].concat())).collect()
}

/// The rows whose first clustering value is in a range.
fn slice(first: i32, last: i32) -> Vec<u8> {
    let position = |side: u8, value: i32| [&[side, 0, 0, 0, 8, 0, 0, 0, 4], &value.to_be_bytes()[..]].concat();
    [position(0, first), position(1, last)].concat()
}

fn token(key: &[u8]) -> i64 {
    i64::from_be_bytes(*key.first_chunk().unwrap())
}

impl Filled {
    fn new(table: &'static [u8], memtable: PluginMemtable, vectors: &[Vector]) -> Filled {
        let mut keys = Vec::new();
        for vector in vectors {
            memtable.put(vector.update).unwrap();
            keys.push(key_of(vector.request).to_vec());
        }
        keys.sort_by(|one, other| (token(one), &one[12..]).cmp(&(token(other), &other[12..])));
        keys.dedup();
        Filled { table, memtable, keys, rows: selections(table) }
    }

    /// What a range read has of each partition that a memtable has. `is_stored`: without those of which it has nothing.
    fn partitions(&self, rows: &[u8], keys: &[Vec<u8>], is_stored: bool) -> Vec<Vec<u8>> {
        let mut partitions = Vec::new();
        for key in keys {
            let pages = self.memtable.read(0, &[&[0], &key[..], rows].concat()).unwrap();
            assert!(is_stored || pages.is_some(), "a memtable has every partition");
            let Some(pages) = pages else { continue };
            partitions.push([&key[..], &content(pages, 1 << 16)].concat());
        }
        partitions
    }

    fn range(&self, start: &[u8], end: &[u8], rows: &[u8]) -> Pages {
        self.memtable.read(0, &[&[1], start, end, rows].concat()).unwrap().expect("a range is never absent")
    }
}

/// No limit of a range.
const NONE: &[u8] = &[0, 0];

fn by_table() -> BTreeMap<&'static [u8], Vec<Vector>> {
    let mut tables: BTreeMap<_, Vec<Vector>> = BTreeMap::new();
    vectors().into_iter().for_each(|vector| tables.entry(vector.table).or_default().push(vector));
    tables
}

/// A memtable of four shards for each table.
fn memtables() -> Vec<Filled> {
    let quarters = [i64::MIN / 2, 0, i64::MAX / 2].map(i64::to_be_bytes).concat();
    let memtables = by_table().into_iter();
    memtables
        .map(|(table, vectors)| Filled::new(table, PluginMemtable::open(table, &quarters, 0).unwrap(), &vectors))
        .collect()
}

#[test]
fn a_range_has_what_reads_of_its_partitions_return_whatever_the_pages() {
    let mut partition_count = 0;
    for filled in memtables() {
        for rows in &filled.rows {
            let partitions = filled.partitions(rows, &filled.keys, false);
            partition_count += partitions.len();
            for room in [1 << 16, 4096, 100, 1] {
                let read = content(filled.range(NONE, NONE, rows), room);
                assert!(read == partitions.concat(), "pages of {room} bytes, {rows:?}");
            }
        }
    }
    assert!(partition_count > 250, "{partition_count} partitions");
}

#[test]
fn a_range_of_the_engine_is_the_same_in_memory_and_in_files() {
    for (table, vectors) in by_table() {
        let directory = Directory::new();
        let store = open(directory.path());
        let memtable = PluginMemtable::open_stored(&store, table, Choice::ExistingOrFirst).unwrap().unwrap();
        let filled = Filled::new(table, memtable, &vectors);
        assert_stored(&filled, "in memory");
        store.engine().flush_all().unwrap();
        assert_stored(&filled, "in a file");
        write_every_other(&store, &filled, &vectors);
        assert_stored(&filled, "in a file, and partly in memory and in a second one");
    }
}

/// Writes some of the updates again, one half to a file.
fn write_every_other(store: &Store, filled: &Filled, vectors: &[Vector]) {
    for (index, vector) in vectors.iter().enumerate().step_by(2) {
        filled.memtable.put(vector.update).unwrap();
        if index <= vectors.len() / 2 {
            store.engine().flush_all().unwrap();
        }
    }
}

fn assert_stored(filled: &Filled, when: &str) {
    for rows in &filled.rows {
        let partitions = filled.partitions(rows, &filled.keys, true);
        let read = content(filled.range(NONE, NONE, rows), 4096);
        // A file is passed over if it has nothing in the slices, by a read of a partition as well.
        assert!(read == partitions.concat(), "{when}, {rows:?}");
    }
    let (count, key_bytes) = filled.memtable.count_keys(0, &ALL_KEYS).unwrap();
    let bytes = filled.keys.iter().map(|key| key.len() - 12).sum::<usize>();
    assert_eq!((count, key_bytes), (filled.keys.len() as u64, bytes as u64), "{when}");
}

#[test]
fn a_page_ends_where_a_partition_does_if_there_is_no_room_for_more() {
    for filled in memtables() {
        let partitions = filled.partitions(&ALL_ROWS[5..], &filled.keys, false);
        let all = partitions.concat();
        let mut end = 0;
        for partition in &partitions {
            end += partition.len();
            for room in [end - 1, end, end + 1] {
                assert_first_page(filled.range(NONE, NONE, &ALL_ROWS[5..]), room, &all);
            }
        }
    }
}

fn assert_first_page(mut pages: Pages, room: usize, all: &[u8]) {
    let (first, has_more) = next_page(&mut pages, room);
    assert_eq!((first.len(), has_more), (room.min(all.len()), room < all.len()));
    assert!(first == all[..first.len()], "a page of {room} bytes");
    if has_more {
        assert!(content(pages, 1 << 16) == all[first.len()..], "what follows {room} bytes");
    }
}

#[test]
fn a_read_goes_on_after_a_partition_that_is_passed_over() {
    let mut random = Random(seed(26));
    for filled in memtables() {
        let partitions = filled.partitions(&ALL_ROWS[5..], &filled.keys, false);
        for _ in 0..100 {
            assert_passes(&filled, &partitions, &mut random);
        }
    }
}

/// Reads pages of random sizes. Where one ends within a partition, its rest may be passed over.
fn assert_passes(filled: &Filled, partitions: &[Vec<u8>], random: &mut Random) {
    let mut pages = filled.range(NONE, NONE, &ALL_ROWS[5..]);
    // Where the read is.
    let (mut index, mut at, mut has_more) = (0, 0, true);
    while has_more {
        let room = 1 + random.below(2 * partitions[index.min(partitions.len() - 1)].len());
        let (page, more) = next_page(&mut pages, room);
        has_more = more;
        let mut rest = &page[..];
        while !rest.is_empty() {
            let left = &partitions[index][at..];
            let length = left.len().min(rest.len());
            assert!(rest[..length] == left[..length], "partition {index} from byte {at}");
            rest = &rest[length..];
            (index, at) = if length == left.len() { (index + 1, 0) } else { (index, at + length) };
        }
        if has_more && at > 0 && random.one_in(2) {
            pages.pass_partition();
            (index, at) = (index + 1, 0);
        }
    }
    assert_eq!((index, at), (partitions.len(), 0));
}

fn bound_of_key(key: &[u8], inclusive: bool) -> Vec<u8> {
    [&[2, u8::from(inclusive)], key].concat()
}

fn bound_of_token(key: &[u8], inclusive: bool) -> Vec<u8> {
    [&[1, u8::from(inclusive)], &key[..8]].concat()
}

#[test]
fn a_range_begins_and_ends_at_keys_and_tokens() {
    for filled in memtables() {
        let (keys, rows) = (&filled.keys, &ALL_ROWS[5..]);
        let read = |start: &[u8], end: &[u8]| content(filled.range(start, end, rows), 1 << 16);
        for (index, key) in keys.iter().enumerate() {
            let partitions = |keys: &[Vec<u8>]| filled.partitions(rows, keys, false).concat();
            for bound in [bound_of_key, bound_of_token] {
                assert!(read(&bound(key, true), NONE) == partitions(&keys[index..]));
                assert!(read(&bound(key, false), NONE) == partitions(&keys[index + 1..]));
                assert!(read(NONE, &bound(key, true)) == partitions(&keys[..=index]));
                assert!(read(NONE, &bound(key, false)) == partitions(&keys[..index]));
                assert!(read(&bound(key, true), &bound(key, true)) == partitions(&keys[index..=index]));
                // What is left of a range after its first partition.
                assert!(read(&bound(key, false), &bound(key, true)).is_empty());
                let next = keys.get(index + 1).unwrap_or(key);
                assert!(read(&bound(next, true), &bound(key, false)).is_empty(), "it ends before it begins");
            }
        }
        let empty = PluginMemtable::open(filled.table, &[], 0).unwrap();
        assert!(content(empty.read(0, &ALL_ROWS).unwrap().unwrap(), 1).is_empty(), "a range of an empty memtable");
    }
}

#[test]
fn a_damaged_request_of_a_range_is_an_error_or_another_request() {
    for filled in memtables() {
        let [first, .., last] = &filled.keys[..] else { panic!("a table of the vectors has several keys") };
        let rows = filled.rows.last().unwrap();
        let request = [&[1], &bound_of_key(first, true)[..], &bound_of_token(last, false), rows].concat();
        filled.memtable.read(0, &request).unwrap();
        for length in 0..request.len() {
            assert!(filled.memtable.read(0, &request[..length]).is_err(), "{length} bytes");
        }
        for at in 0..request.len() {
            for bit in 0..8 {
                let mut damaged = request.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(Some(mut pages)) = filled.memtable.read(0, &damaged) {
                    while pages.fill(&mut Reply::new(&mut [0; 500])) == Ok(true) {}
                }
            }
        }
    }
}
