//! `updates.bin` was written by `proof/plugin/java/espalier/cassandra/WriteVectors.java` with Cassandra 5.0.8.

use jni::{Pages, PluginMemtable, Refusal, Reply, Status};

static UPDATES: &[u8] = include_bytes!("../vectors/updates.bin");

pub(crate) struct Vector {
    pub table: &'static [u8],
    pub update: &'static [u8],
    pub request: &'static [u8],
    pub page: &'static [u8],
}

/// The request of all partitions, with nothing of their rows.
pub(crate) const ALL_KEYS: [u8; 10] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// The request of all partitions with all rows.
pub(crate) const ALL_ROWS: [u8; 10] = [1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

pub(crate) fn vectors() -> Vec<Vector> {
    let mut rest = UPDATES;
    let mut part = || {
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (part, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
        rest = tail;
        Some(part)
    };
    let mut vectors = Vec::new();
    while let Some(table) = part() {
        let mut next = || part().expect("a vector has four parts");
        vectors.push(Vector { table, update: next(), request: next(), page: next() });
    }
    assert!(vectors.len() > 40);
    vectors
}

/// The next page, with room for `room` bytes, and whether there are more.
pub(crate) fn next_page(pages: &mut Pages, room: usize) -> (Vec<u8>, bool) {
    let mut buffer = vec![0xee; 16 + room];
    let mut reply = Reply::new(&mut buffer);
    let has_more = pages.fill(&mut reply).unwrap();
    reply.finish(if has_more { 7 } else { 0 }, Status::Content);
    let (head, content) = buffer.split_at(16);
    let length = u32::from_be_bytes(*head[12..].first_chunk().unwrap()) as usize;
    assert_eq!(head[..12], [0, 0, 0, 0, 0, 0, 0, if has_more { 7 } else { 0 }, 0, 0, 0, 1]);
    assert!(length == room || !has_more, "{length} bytes in a page of {room} that is not the last one");
    assert!(content[length..].iter().all(|byte| *byte == 0xee));
    (content[..length].to_vec(), has_more)
}

/// What follows in pages with room for `room` bytes each.
pub(crate) fn content(mut pages: Pages, room: usize) -> Vec<u8> {
    let mut content = Vec::new();
    loop {
        let (page, has_more) = next_page(&mut pages, room);
        content.extend(page);
        if !has_more {
            return content;
        }
    }
}

#[test]
fn data_serialized_by_cassandra_is_read_as_its_own_memtable_returns_it() {
    for (index, vector) in vectors().iter().enumerate() {
        for room in [1 << 16, 100, 1] {
            let memtable = PluginMemtable::open(vector.table, &0i64.to_be_bytes(), 0).unwrap();
            assert!(memtable.put(vector.update).unwrap().bytes > 0, "vector {index} takes memory");
            let pages = memtable.read(0, vector.request).unwrap().expect("the partition exists");
            assert_eq!(content(pages, room), vector.page, "vector {index}, pages of {room} bytes");
        }
    }
}

#[test]
fn a_division_of_the_tokens_that_is_cut_or_does_not_rise_is_refused() {
    let vector = &vectors()[0];
    let tokens = |tokens: &[i64]| tokens.iter().flat_map(|token| token.to_be_bytes()).collect::<Vec<u8>>();
    for right in [&[][..], &[0], &[i64::MIN, -1, i64::MAX]] {
        let memtable = PluginMemtable::open(vector.table, &tokens(right), 0).unwrap();
        memtable.put(vector.update).unwrap();
        assert_eq!(content(memtable.read(0, vector.request).unwrap().unwrap(), 1 << 16), vector.page);
    }
    let many: Vec<i64> = (0..1024).collect();
    for wrong in [tokens(&[5, 5]), tokens(&[1, 0]), tokens(&many), tokens(&[1, 2])[..15].to_vec()] {
        assert!(PluginMemtable::open(vector.table, &wrong, 0).is_err(), "{} bytes", wrong.len());
    }
}

#[test]
fn the_shard_of_an_update_is_the_only_one_that_grows() {
    let vector = &vectors()[0];
    let token = i64::from_be_bytes(*vector.request[1..].first_chunk().unwrap());
    let firsts: Vec<u8> = [token, token + 1].iter().flat_map(|first| first.to_be_bytes()).collect();
    let memtable = PluginMemtable::open(vector.table, &firsts, 0).unwrap();
    let before = memtable.usage().unwrap().shard_bytes;
    memtable.put(vector.update).unwrap();
    let usage = memtable.usage().unwrap();
    let grown: Vec<_> = before.iter().zip(&usage.shard_bytes).map(|(before, after)| after > before).collect();
    assert_eq!(grown, [false, true, false], "{before:?}, then {:?}", usage.shard_bytes);
    assert_eq!(usage.shard_bytes.iter().sum::<u64>(), usage.used_bytes);
}

#[test]
fn an_update_that_is_applied_twice_changes_nothing_more() {
    for vector in vectors() {
        let memtable = PluginMemtable::open(vector.table, &[], 0).unwrap();
        memtable.put(vector.update).unwrap();
        memtable.put_observed(0, vector.update).unwrap();
        let puts = memtable.usage().unwrap().puts;
        assert_eq!((puts.uncontended, puts.contended, puts.waited.as_nanos()), (2, 0, 0));
        let pages = memtable.read(0, vector.request).unwrap().unwrap();
        assert_eq!(content(pages, 1 << 16), vector.page);
    }
}

#[test]
fn damaged_updates_requests_and_descriptions_are_errors_or_harmless() {
    for vector in vectors().iter().step_by(7) {
        let memtable = PluginMemtable::open(vector.table, &[], 0).unwrap();
        for length in 0..vector.update.len() {
            assert!(memtable.put(&vector.update[..length]).is_err(), "{length} bytes of an update");
        }
        for length in 0..vector.request.len() {
            assert!(memtable.read(0, &vector.request[..length]).is_err());
        }
        for length in 0..vector.table.len() {
            assert!(PluginMemtable::open(&vector.table[..length], &[], 0).is_err());
        }
        for at in 0..vector.update.len() {
            for bit in 0..8 {
                let mut damaged = vector.update.to_vec();
                damaged[at] ^= 1 << bit;
                let _ = memtable.put(&damaged);
            }
        }
        read_everything(&memtable);
    }
}

/// Reads every partition, with the others and alone: nothing that was taken stands in the way of the rest.
fn read_everything(memtable: &PluginMemtable) {
    let all = content(memtable.read(0, &ALL_ROWS).unwrap().unwrap(), 1 << 16);
    let mut pages = memtable.read(0, &ALL_KEYS).unwrap().unwrap();
    let (count, _) = memtable.count_keys(0, &ALL_KEYS).unwrap();
    let mut rest = &all[..];
    for _ in 0..count {
        // Room for the token and the length of the key.
        let (head, _) = next_page(&mut pages, 12);
        let length = u32::from_be_bytes(*head[8..].first_chunk().unwrap()) as usize;
        let (key, _) = next_page(&mut pages, length);
        let request = [&[0], &head[..], &key, &ALL_ROWS[5..]].concat();
        let partition = content(memtable.read(0, &request).unwrap().unwrap(), 1 << 16);
        rest = rest.strip_prefix(&[&head[..], &key, &partition].concat()[..]).expect("the partition is in the range");
        pages.pass_partition();
    }
    assert!(rest.is_empty());
}

#[test]
fn a_discarded_memtable_refuses_calls_and_earlier_reads_continue() {
    let vectors = vectors();
    let vector = &vectors[0];
    let memtable = PluginMemtable::open(vector.table, &[], 0).unwrap();
    memtable.put(vector.update).unwrap();
    let pages = memtable.read(0, vector.request).unwrap().unwrap();
    memtable.discard().unwrap();
    assert!(memtable.put(vector.update).is_err());
    assert!(memtable.read(0, vector.request).is_err());
    assert!(memtable.usage().is_none());
    assert_eq!(content(pages, 10), vector.page);
}

#[test]
fn a_shard_says_that_it_is_half_full_and_refuses_what_it_has_no_room_for() {
    for vector in vectors().iter().step_by(3) {
        // From a shard of one page to one of 16 MiB.
        let outcome = |shift: u32| {
            let memtable = PluginMemtable::open(vector.table, &[], 4096 << shift).unwrap();
            let outcome = memtable.put(vector.update).map(|growth| growth.is_half_full);
            let is_there = memtable.read(0, vector.request).unwrap().is_some();
            assert_eq!(is_there, outcome.is_ok(), "an update that is refused has no effect");
            assert_eq!(memtable.put_observed(0, vector.update).err(), outcome.clone().err());
            outcome
        };
        let mut outcomes: Vec<_> = (0..13).map(outcome).collect();
        outcomes.dedup();
        assert_eq!(outcomes, [Err(Refusal::Full), Ok(true), Ok(false)]);
    }
}

#[test]
fn written_memtables_of_many_tables_fit_into_the_addresses_of_a_process() {
    // A process has 128 TiB of addresses, and a shard of the largest size reserves 18 GiB.
    const TABLES: usize = 7400;
    let vector = &vectors()[0];
    let quarters = [i64::MIN / 2, 0, i64::MAX / 2].map(i64::to_be_bytes).concat();
    let memtables: Vec<PluginMemtable> =
        (0..TABLES).map(|_| PluginMemtable::open(vector.table, &quarters, 0).unwrap()).collect();
    for (index, memtable) in memtables.iter().enumerate() {
        memtable.put(vector.update).unwrap_or_else(|refusal| panic!("table {index}: {refusal}"));
    }
    for memtable in memtables.iter().step_by(100) {
        assert_eq!(content(memtable.read(0, vector.request).unwrap().unwrap(), 1 << 16), vector.page);
    }
}
