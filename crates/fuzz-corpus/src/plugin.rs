//! The bytes that Java passes to the memtable plugin: descriptions of tables, updates and requests.

use jni::{Pages, PluginMemtable, Reply, Status};

/// The bytes of a reply before its content.
const HEAD_BYTES: usize = 16;
/// The size of a page, bytes. It is small, so that most reads have several pages.
const ROOM_BYTES: usize = 200;
/// What a read of a range has of each partition at least, beside the key: its token and length, two bytes, and an end.
const PARTITION_BYTES_MIN: u64 = 15;
/// The kind of request that reads a range.
const OF_RANGE: u8 = 1;
/// The greatest number of calls: each may read everything that the calls before it have written.
const CALLS_MAX: usize = 24;

/// `u32` length and bytes of a table's description, then calls: a byte, `u32` length and bytes of what is passed. The
/// low half of the byte is the kind of call, the high half the version of the table that it names.
pub fn calls(bytes: &[u8]) {
    let mut rest = bytes;
    let Some(description) = sized(&mut rest) else { return };
    let Ok(memtable) = PluginMemtable::open(description, &[], 0) else { return };
    for _ in 0..CALLS_MAX {
        let Some((kind, tail)) = rest.split_first() else { return };
        rest = tail;
        let Some(argument) = sized(&mut rest) else { return };
        call(&memtable, kind & 15, usize::from(kind >> 4), argument);
    }
}

fn sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_first_chunk::<4>()?;
    let (bytes, tail) = tail.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = tail;
    Some(bytes)
}

fn call(memtable: &PluginMemtable, kind: u8, version: usize, argument: &[u8]) {
    match kind {
        0 => {
            let before = memtable.usage();
            if memtable.put(argument).is_err() {
                assert_eq!(memtable.usage(), before, "a refused update has no effect");
            }
        }
        1 => drop(memtable.put_observed(version, argument)),
        2 => read(memtable, version, argument),
        3 => drop(memtable.alter(argument)),
        4 => {
            memtable.clean_up(argument).expect_err("only tables of the engine are cleaned up");
        }
        _ => {}
    }
}

/// Reads all pages. They have the same bytes whatever their size, and those of a range have as many partitions as a
/// count says.
fn read(memtable: &PluginMemtable, version: usize, request: &[u8]) {
    let counted = memtable.count_keys(version, request);
    let pages = || memtable.read(version, request).expect("it was read before").expect("it was there before");
    let Ok(Some(first)) = memtable.read(version, request) else { return };
    let Ok(content) = content_of(first, ROOM_BYTES) else { return };
    assert!(content_of(pages(), 10 * ROOM_BYTES).as_ref() == Ok(&content), "pages of other sizes");
    if request.first() == Some(&OF_RANGE) {
        let (count, key_bytes) = counted.expect("what can be read can be counted");
        assert!(content.len() as u64 >= PARTITION_BYTES_MIN * count + key_bytes);
        assert_eq!(partition_count(pages()), Ok(count));
    }
}

/// The bytes of all pages together.
fn content_of(mut pages: Pages, room: usize) -> Result<Vec<u8>, String> {
    let mut buffer = vec![0; HEAD_BYTES + room];
    let mut content = Vec::new();
    loop {
        let mut reply = Reply::new(&mut buffer);
        let has_more = pages.fill(&mut reply)?;
        reply.finish(0, Status::Content);
        let length = u32::from_be_bytes(buffer[12..16].try_into().expect("4 bytes")) as usize;
        assert!(length == room || !has_more, "a page that is not the last one is full");
        content.extend_from_slice(&buffer[HEAD_BYTES..HEAD_BYTES + length]);
        if !has_more {
            return Ok(content);
        }
    }
}

/// The number of partitions, of which each is passed over after its first byte.
fn partition_count(mut pages: Pages) -> Result<u64, String> {
    let mut count = 0;
    while pages.fill(&mut Reply::new(&mut [0; HEAD_BYTES + 1]))? {
        count += 1;
        pages.pass_partition();
    }
    Ok(count)
}

/// For each table of which Cassandra serialized updates: a description with a call of each kind, as seeds.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut rest: &[u8] = include_bytes!("../../jni/tests/vectors/updates.bin");
    let mut seeds: Vec<(String, Vec<u8>)> = Vec::new();
    while let Some(description) = sized(&mut rest) {
        let [update, request, _page] = [(); 3].map(|()| sized(&mut rest).expect("a vector has four parts"));
        let name = name_of(description);
        if seeds.iter().all(|(known, _)| *known != name) {
            seeds.push((name, seed(description, update, request)));
        }
    }
    seeds
}

/// The name of a table, which follows its id and its keyspace.
fn name_of(description: &[u8]) -> String {
    let mut rest = &description[16..];
    sized(&mut rest).expect("a keyspace");
    String::from_utf8_lossy(sized(&mut rest).expect("a name")).into_owned()
}

fn seed(description: &[u8], update: &[u8], request: &[u8]) -> Vec<u8> {
    const ALL_KEYS: [u8; 10] = [OF_RANGE, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const ALL_ROWS: [u8; 10] = [OF_RANGE, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let ranges = [&2u32.to_be_bytes()[..], &[0i64, 5, 9, -9].map(i64::to_be_bytes).concat()].concat();
    let calls: [(u8, &[u8]); 8] = [
        (0, update),
        (2, request),
        (3, description),
        (0x11, update),
        (0x12, request),
        (2, &ALL_KEYS),
        (2, &ALL_ROWS),
        (4, &ranges),
    ];
    let mut seed = Vec::new();
    let push = |seed: &mut Vec<u8>, part: &[u8]| {
        seed.extend((part.len() as u32).to_be_bytes());
        seed.extend(part);
    };
    push(&mut seed, description);
    for (kind, argument) in calls {
        seed.push(kind);
        push(&mut seed, argument);
    }
    seed
}
