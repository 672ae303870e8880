//! The bytes that Java passes to the memtable plugin: descriptions of tables, updates and requests.

use jni::{Filled, Guest, Pages, Reply};

/// The size of a page, bytes. It is small, so that most reads have several pages.
const ROOM_BYTES: usize = 200;
/// The bytes of a key's token and length in a page.
const HEAD_OF_A_KEY_BYTES: u64 = 12;
/// The kind of request that reads keys.
const OF_KEYS: u8 = 1;
/// The greatest number of calls: each may read everything that the calls before it have written.
const CALLS_MAX: usize = 24;

/// `u32` length and bytes of a table's description, then calls: a byte, `u32` length and bytes of what is passed. The
/// low half of the byte is the kind of call, the high half the version of the table that it names.
pub fn calls(bytes: &[u8]) {
    let mut rest = bytes;
    let Some(description) = sized(&mut rest) else { return };
    let Ok(guest) = Guest::open(description, &[], 0) else { return };
    for _ in 0..CALLS_MAX {
        let Some((kind, tail)) = rest.split_first() else { return };
        rest = tail;
        let Some(argument) = sized(&mut rest) else { return };
        call(&guest, kind & 15, usize::from(kind >> 4), argument);
    }
}

fn sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_first_chunk::<4>()?;
    let (bytes, tail) = tail.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = tail;
    Some(bytes)
}

fn call(guest: &Guest, kind: u8, version: usize, argument: &[u8]) {
    match kind {
        0 => {
            let before = guest.usage();
            if guest.put(argument).is_err() {
                assert_eq!(guest.usage(), before, "a refused update has no effect");
            }
        }
        1 => drop(guest.put_observed(version, argument)),
        2 => read(guest, version, argument),
        3 => drop(guest.alter(argument)),
        4 => {
            guest.clean_up(argument).expect_err("only tables of the engine are cleaned up");
        }
        _ => {}
    }
}

/// Reads all pages. Those of keys have as many as a count says.
fn read(guest: &Guest, version: usize, request: &[u8]) {
    let counted = guest.count_keys(version, request);
    let Ok(Some(pages)) = guest.read(version, request) else { return };
    let Ok(length) = content_length(pages) else { return };
    if request.first() == Some(&OF_KEYS) {
        let (count, key_bytes) = counted.expect("what can be read can be counted");
        assert_eq!(length, HEAD_OF_A_KEY_BYTES * count + key_bytes);
    }
}

/// The bytes of all pages together.
fn content_length(mut pages: Pages) -> Result<u64, String> {
    let mut buffer = vec![0; ROOM_BYTES];
    let mut length = 0;
    loop {
        let mut reply = Reply::new(&mut buffer);
        let filled = pages.fill(&mut reply)?;
        filled.finish(1, reply);
        let said = u64::from(u32::from_be_bytes(buffer[12..16].try_into().expect("4 bytes")));
        match filled {
            Filled::Nothing { wanted } => {
                assert!(wanted + 16 > buffer.len() && said == wanted as u64 + 16);
                buffer.resize(wanted + 16, 0);
                continue;
            }
            Filled::Part => length += said,
            Filled::Last => return Ok(length + said),
        }
    }
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
    const ALL_KEYS: [u8; 10] = [OF_KEYS, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let ranges = [&2u32.to_be_bytes()[..], &[0i64, 5, 9, -9].map(i64::to_be_bytes).concat()].concat();
    let calls: [(u8, &[u8]); 7] =
        [(0, update), (2, request), (3, description), (0x11, update), (0x12, request), (2, &ALL_KEYS), (4, &ranges)];
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
