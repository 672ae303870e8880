//! The native methods of `espalier.cassandra.Native`. All unsafe code of the crate is here.
//!
//! What Java promises, by number; each unsafe block names the promises that it needs:
//!
//! 1. An address with a length denotes memory that Java owns, that is not written during the call, and that stays valid
//!    until the call returns. It is 0 only if the length is 0.
//! 2. The buffer of a reply is memory as in 1, and only this call reads or writes it.
//! 3. The handle of a memtable came from `open`, and `free` was not called with it. `free` is called once, when no
//!    other call with the handle runs or will run: when the Java object that has it was found unreachable.
//! 4. The handle of pages came from a reply of `read` or `more`; one thread at a time uses it; after `closePages`, or a
//!    reply with content and without a handle, it is not used again.
//!
//! 5. The handle of a store came from `openStore`. It is never freed.
//!
//! A panic does not leave this module: it becomes an error like any other.
#![allow(unsafe_code, reason = "the other side is Java")]
#![allow(non_snake_case, reason = "the names of native methods begin with those of their Java classes")]
#![allow(
    clippy::too_many_arguments,
    reason = "every native method has the two arguments that Java adds, and the buffer of its reply"
)]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::pages::Pages;
use crate::plugin_memtable::{Growth, PluginMemtable, Refusal};
use crate::reply::{Reply, Status};
use crate::request::Request;
use crate::store::{Choice, Store};

/// Changes when the two halves no longer fit together.
const VERSION: i32 = 7;

/// The result of a call that failed; the reply has the reason.
const FAILED: i64 = i64::MIN;

/// The longest buffer, bytes. Java's buffers cannot be longer.
const BUFFER_BYTES_MAX: i64 = i32::MAX as i64;

/// # Safety
/// Promise 1.
unsafe fn bytes<'a>(address: i64, length: i64) -> &'a [u8] {
    if length <= 0 || length > BUFFER_BYTES_MAX || address == 0 {
        return &[];
    }
    // SAFETY: promise 1, for as long as the call runs; no caller keeps the slice.
    unsafe { std::slice::from_raw_parts(address as *const u8, length as usize) }
}

/// # Safety
/// Promise 2.
unsafe fn buffer<'a>(address: i64, length: i64) -> &'a mut [u8] {
    if length <= 0 || length > BUFFER_BYTES_MAX || address == 0 {
        return &mut [];
    }
    // SAFETY: promise 2, for as long as the call runs; no caller keeps the slice.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, length as usize) }
}

/// # Safety
/// Promise 3.
unsafe fn memtable_of<'a>(handle: i64) -> Result<&'a PluginMemtable, String> {
    // SAFETY: promise 3, for as long as the call runs; no caller keeps the reference.
    unsafe { (handle as *const PluginMemtable).as_ref() }.ok_or_else(|| "there is no memtable".to_owned())
}

/// # Safety
/// Promise 5.
unsafe fn store<'a>(handle: i64) -> Result<&'a Arc<Store>, String> {
    // SAFETY: promise 5; it lives as long as the process.
    unsafe { (handle as *const Arc<Store>).as_ref() }.ok_or_else(|| "there is no store".to_owned())
}

fn text_of_panic(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panic: {}", text.unwrap_or_else(|| "unknown".into()))
}

/// Runs a call. If it fails or panics, the reply says so and the result is [`FAILED`].
fn guard(out: &mut [u8], call: impl FnOnce(&mut [u8]) -> Result<i64, String>) -> i64 {
    guard_write(out, |out| Ok(call(out)?))
}

/// Like [`guard`], for a call that may find no room.
fn guard_write(out: &mut [u8], call: impl FnOnce(&mut [u8]) -> Result<i64, Refusal>) -> i64 {
    let result = catch_unwind(AssertUnwindSafe(|| call(out)));
    let refusal = match result {
        Ok(Ok(result)) => return result,
        Ok(Err(refusal)) => refusal,
        Err(panic) => Refusal::Failed(text_of_panic(&*panic)),
    };
    let status = if refusal == Refusal::Full { Status::Full } else { Status::Failed };
    Reply::new(out).fail(status, &refusal.to_string());
    FAILED
}

/// The result of a write: twice the bytes by which the memory grew, and 1 more if the memtable should be flushed
/// because a shard is half full.
fn result_of(growth: Growth) -> i64 {
    2 * growth.bytes + i64::from(growth.is_half_full)
}

/// The number of handles that Java holds. Tests read it to find handles that were not closed.
static HANDLES: AtomicI64 = AtomicI64::new(0);

/// Makes a handle of a value. The value lives until Java closes the handle.
fn into_handle<T>(value: Box<T>) -> i64 {
    HANDLES.fetch_add(1, Ordering::Relaxed);
    Box::into_raw(value) as i64
}

/// Takes the value of a handle back.
///
/// # Safety
/// The handle came from [`into_handle`] for a `T`, and this is its last use.
unsafe fn from_handle<T>(handle: i64) -> Box<T> {
    HANDLES.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: `into_handle` made it from a box, which is taken back once.
    unsafe { Box::from_raw(handle as *mut T) }
}

/// Writes content to a reply, or a handle for `takeChanges` if it does not fit.
fn reply_with(out: &mut [u8], content: Vec<u8>) {
    let mut reply = Reply::new(out);
    if reply.push(&content) {
        reply.finish(0, Status::Content);
    } else {
        let wanted = content.len();
        reply.too_small(into_handle(Box::new(content)), wanted);
    }
}

/// `int version()`.
#[unsafe(no_mangle)]
pub extern "system" fn Java_espalier_cassandra_Native_version(_: *mut c_void, _: *mut c_void) -> i32 {
    VERSION
}

/// `long handles()`.
#[unsafe(no_mangle)]
pub extern "system" fn Java_espalier_cassandra_Native_handles(_: *mut c_void, _: *mut c_void) -> i64 {
    HANDLES.load(Ordering::Relaxed)
}

/// `long open(long description, long length, long firsts, long firstsLength, long shardBytes, long out,
/// long capacity)`: the handle of a new memtable. Its shards but the first one begin at the tokens `firsts`, and are as
/// large as they can be if `shardBytes` is 0.
///
/// # Safety
/// Promises 1 and 2.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_open(
    _: *mut c_void,
    _: *mut c_void,
    description: i64,
    length: i64,
    firsts: i64,
    firsts_length: i64,
    shard_bytes: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promises 1 and 2.
    let (description, out) = unsafe { (bytes(description, length), buffer(out, capacity)) };
    // SAFETY: promise 1.
    let firsts = unsafe { bytes(firsts, firsts_length) };
    guard(out, |_| {
        let shard_bytes = u64::try_from(shard_bytes).unwrap_or(0);
        Ok(into_handle(Box::new(PluginMemtable::open(description, firsts, shard_bytes)?)))
    })
}

/// `long alter(long memtable, long description, long length, long out, long capacity)`: the index of the table's new
/// version.
///
/// # Safety
/// Promises 1 to 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_alter(
    _: *mut c_void,
    _: *mut c_void,
    memtable: i64,
    description: i64,
    length: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promises 1 and 2.
    let (description, out) = unsafe { (bytes(description, length), buffer(out, capacity)) };
    // SAFETY: promise 3.
    let memtable = unsafe { memtable_of(memtable) };
    guard(out, |_| Ok(memtable?.alter(description)? as i64))
}

/// `long put(long memtable, long update, long length, long out, long capacity)`: how the memory grew ([`result_of`]).
///
/// # Safety
/// Promises 1 to 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_put(
    _: *mut c_void,
    _: *mut c_void,
    memtable: i64,
    update: i64,
    length: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promises 1 and 2.
    let (update, out) = unsafe { (bytes(update, length), buffer(out, capacity)) };
    // SAFETY: promise 3.
    let memtable = unsafe { memtable_of(memtable) };
    guard_write(out, |_| Ok(result_of(memtable?.put(update)?)))
}

/// `long putObserved(long memtable, int version, long update, long length, long out, long capacity)`: like `put`. The
/// reply has the changed rows under a version of the table, or a handle for `takeChanges` if they do not fit.
///
/// # Safety
/// Promises 1 to 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_putObserved(
    _: *mut c_void,
    _: *mut c_void,
    memtable: i64,
    version: i32,
    update: i64,
    length: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promises 1 and 2.
    let (update, out) = unsafe { (bytes(update, length), buffer(out, capacity)) };
    // SAFETY: promise 3.
    let memtable = unsafe { memtable_of(memtable) };
    guard_write(out, |out| {
        let version = usize::try_from(version).map_err(|_| "a version below 0")?;
        let (growth, changes) = memtable?.put_observed(version, update)?;
        reply_with(out, changes);
        Ok(result_of(growth))
    })
}

/// `long takeChanges(long changes, long out, long capacity)`: the content that did not fit; frees it.
///
/// # Safety
/// Promise 2. The handle came from a reply of `putObserved` or `listing` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_takeChanges(
    _: *mut c_void,
    _: *mut c_void,
    changes: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promise 2.
    let out = unsafe { buffer(out, capacity) };
    if changes == 0 {
        return guard(out, |_| Err("there are no changed rows".into()));
    }
    // SAFETY: the handle is that of a box which `reply_with` made, and this is its only use.
    let changes = unsafe { from_handle::<Vec<u8>>(changes) };
    guard(out, |out| {
        let mut reply = Reply::new(out);
        if !reply.push(&changes) {
            return Err("the buffer is too small for the changed rows".into());
        }
        reply.finish(0, Status::Content);
        Ok(0)
    })
}

/// `long read(long memtable, int version, long request, long length, long out, long capacity)`: the first page of what
/// a request selects.
///
/// # Safety
/// Promises 1 to 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_read(
    _: *mut c_void,
    _: *mut c_void,
    memtable: i64,
    version: i32,
    request: i64,
    length: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promises 1 and 2.
    let (request, out) = unsafe { (bytes(request, length), buffer(out, capacity)) };
    // SAFETY: promise 3.
    let memtable = unsafe { memtable_of(memtable) };
    guard(out, |out| {
        let version = usize::try_from(version).map_err(|_| "a version below 0".to_owned())?;
        let pages = memtable?.read(version, request)?;
        let mut reply = Reply::new(out);
        let Some(mut pages) = pages else {
            reply.finish(0, Status::Absent);
            return Ok(0);
        };
        let has_more = pages.fill(&mut reply)?;
        reply.finish(if has_more { into_handle(Box::new(pages)) } else { 0 }, Status::Content);
        Ok(0)
    })
}

/// `long more(long pages, boolean passesPartition, long out, long capacity)`: the next page. With `passesPartition` it
/// begins after the partition in which the page before it ended. After the last one, which has no handle, the pages
/// are freed.
///
/// # Safety
/// Promises 2 and 4.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_more(
    _: *mut c_void,
    _: *mut c_void,
    pages: i64,
    passes_partition: u8,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promise 2.
    let out = unsafe { buffer(out, capacity) };
    if pages == 0 {
        return guard(out, |_| Err("there are no pages".into()));
    }
    let mut has_more = true;
    let result = guard(out, |out| {
        // SAFETY: promise 4; the reference ends with this closure.
        let read = unsafe { &mut *handle_of(pages) };
        if passes_partition != 0 {
            read.pass_partition();
        }
        let mut reply = Reply::new(out);
        has_more = read.fill(&mut reply)?;
        reply.finish(if has_more { pages } else { 0 }, Status::Content);
        Ok(0)
    });
    if !has_more {
        // SAFETY: promise 4: the reply had no handle, so Java does not use it again.
        drop(unsafe { from_handle::<Pages>(pages) });
    }
    result
}

fn handle_of(pages: i64) -> *mut Pages {
    pages as *mut Pages
}

/// `void closePages(long pages)`: frees pages before their end.
///
/// # Safety
/// Promise 4.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_closePages(_: *mut c_void, _: *mut c_void, pages: i64) {
    if pages != 0 {
        guard(&mut [], |_| {
            // SAFETY: promise 4.
            drop(unsafe { from_handle::<Pages>(pages) });
            Ok(0)
        });
    }
}

/// `long countKeys(long memtable, int version, long request, long length, long out, long capacity)`: the reply has the
/// number of partitions that a request selects and the bytes of their keys.
///
/// # Safety
/// Promises 1 to 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_countKeys(
    _: *mut c_void,
    _: *mut c_void,
    memtable: i64,
    version: i32,
    request: i64,
    length: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promises 1 and 2.
    let (request, out) = unsafe { (bytes(request, length), buffer(out, capacity)) };
    // SAFETY: promise 3.
    let memtable = unsafe { memtable_of(memtable) };
    guard(out, |out| {
        let version = usize::try_from(version).map_err(|_| "a version below 0".to_owned())?;
        let (count, bytes) = memtable?.count_keys(version, request)?;
        let mut reply = Reply::new(out);
        reply.push(&[count.to_be_bytes(), bytes.to_be_bytes()].concat());
        reply.finish(0, Status::Content);
        Ok(0)
    })
}

/// `long usage(long memtable, long out, long capacity)`: the reply has the number of partitions, the bytes in use,
/// reusable and held, the writes that found no other writer and those that did, and the nanoseconds that these waited.
/// All are 0 once the memtable was discarded, and the first is -1 if the table's rows cannot be read. The bytes in use
/// of each shard follow, as far as there is room.
///
/// # Safety
/// Promises 2 and 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_usage(
    _: *mut c_void,
    _: *mut c_void,
    memtable: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promise 2.
    let out = unsafe { buffer(out, capacity) };
    // SAFETY: promise 3.
    let memtable = unsafe { memtable_of(memtable) };
    guard(out, |out| {
        let mut reply = Reply::new(out);
        let usage = memtable?.usage();
        let numbers = usage.as_ref().map_or([0; 7], |usage| {
            let puts = usage.puts;
            let waited_nanos = u64::try_from(puts.waited.as_nanos()).unwrap_or(u64::MAX);
            let (used, reusable) = (usage.used_bytes, usage.reusable_bytes);
            let committed = usage.committed_bytes;
            [usage.partition_count, used, reusable, committed, puts.uncontended, puts.contended, waited_nanos]
        });
        numbers.iter().chain(usage.iter().flat_map(|usage| &usage.shard_bytes)).for_each(|number| {
            reply.push(&number.to_be_bytes());
        });
        reply.finish(0, Status::Content);
        Ok(0)
    })
}

/// `long discard(long memtable, long out, long capacity)`: frees the content as soon as the reads that have begun end.
///
/// # Safety
/// Promises 2 and 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_discard(
    _: *mut c_void,
    _: *mut c_void,
    memtable: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promise 2.
    let out = unsafe { buffer(out, capacity) };
    // SAFETY: promise 3.
    let memtable = unsafe { memtable_of(memtable) };
    guard(out, |_| memtable?.discard().map(|()| 0))
}

/// `long setOldestOfCassandra(long memtable, long timestamp, long out, long capacity)`: notes the least timestamp of
/// the rows that Cassandra has of a table of the engine itself.
///
/// # Safety
/// Promises 2 and 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_setOldestOfCassandra(
    _: *mut c_void,
    _: *mut c_void,
    memtable: i64,
    timestamp: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promise 2.
    let out = unsafe { buffer(out, capacity) };
    // SAFETY: promise 3.
    let memtable = unsafe { memtable_of(memtable) };
    guard(out, |_| memtable?.set_oldest_of_cassandra(timestamp).map(|()| 0))
}

/// `long snapshot(long memtable, long request, long length, long out, long capacity)`: takes a snapshot of a table of
/// the engine. The request is its name and the statements that make the table, as texts.
///
/// # Safety
/// Promises 1 to 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_snapshot(
    _: *mut c_void,
    _: *mut c_void,
    memtable: i64,
    request: i64,
    length: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promises 1 and 2.
    let (request, out) = unsafe { (bytes(request, length), buffer(out, capacity)) };
    // SAFETY: promise 3.
    let memtable = unsafe { memtable_of(memtable) };
    guard(out, |_| {
        let mut request = Request::new(request);
        let name = request.text("the name of a snapshot").map_err(|error| error.to_string())?;
        let schema_cql = request.text("the statements of a table").map_err(|error| error.to_string())?;
        memtable?.snapshot(name, schema_cql).map(|_| 0)
    })
}

/// `long cleanUp(long memtable, long request, long length, long out, long capacity)`: removes the partitions that a
/// table of the engine has outside of ranges of tokens. 1 if all of them are gone, 0 if some are left.
///
/// # Safety
/// Promises 1 to 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_cleanUp(
    _: *mut c_void,
    _: *mut c_void,
    memtable: i64,
    request: i64,
    length: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promises 1 and 2.
    let (request, out) = unsafe { (bytes(request, length), buffer(out, capacity)) };
    // SAFETY: promise 3.
    let memtable = unsafe { memtable_of(memtable) };
    guard(out, |_| memtable?.clean_up(request).map(i64::from))
}

/// `long openStore(long request, long length, long out, long capacity)`: the handle of the engine in a directory.
///
/// # Safety
/// Promises 1 and 2.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_openStore(
    _: *mut c_void,
    _: *mut c_void,
    request: i64,
    length: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promises 1 and 2.
    let (request, out) = unsafe { (bytes(request, length), buffer(out, capacity)) };
    guard(out, |_| Ok(Box::into_raw(Box::new(Arc::new(Store::open(request)?))) as i64))
}

/// `long closeStore(long store, long millis, long out, long capacity)`: flushes what it can in a time and closes the
/// log. Later writes are refused.
///
/// # Safety
/// Promises 2 and 5.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_closeStore(
    _: *mut c_void,
    _: *mut c_void,
    opened: i64,
    millis: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promise 2.
    let out = unsafe { buffer(out, capacity) };
    // SAFETY: promise 5.
    let opened = unsafe { store(opened) };
    guard(out, |_| opened?.close(Duration::from_millis(u64::try_from(millis).unwrap_or(0))).map(|()| 0))
}

/// `long openStored(long store, long description, long length, int choice, long out, long capacity)`: the handle of a
/// memtable in the engine; 0 if there is none. Choices: 0 the generation that exists or the first one, 1 the next
/// one, 2 the generation that exists.
///
/// # Safety
/// Promises 1, 2 and 5.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_openStored(
    _: *mut c_void,
    _: *mut c_void,
    opened: i64,
    description: i64,
    length: i64,
    choice: i32,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promises 1 and 2.
    let (description, out) = unsafe { (bytes(description, length), buffer(out, capacity)) };
    // SAFETY: promise 5.
    let opened = unsafe { store(opened) };
    guard(out, |_| {
        let choice = match choice {
            0 => Choice::ExistingOrFirst,
            1 => Choice::Next,
            2 => Choice::Existing,
            _ => return Err(format!("there is no choice {choice}")),
        };
        let memtable = PluginMemtable::open_stored(opened?, description, choice)?;
        Ok(memtable.map_or(0, |memtable| into_handle(Box::new(memtable))))
    })
}

/// `long listing(long store, long out, long capacity)`: the reply has what the engine keeps, as text, or a handle for
/// `takeChanges` if it does not fit.
///
/// # Safety
/// Promises 2 and 5.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_listing(
    _: *mut c_void,
    _: *mut c_void,
    opened: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promise 2.
    let out = unsafe { buffer(out, capacity) };
    // SAFETY: promise 5.
    let opened = unsafe { store(opened) };
    guard(out, |out| {
        reply_with(out, opened?.listing().into_bytes());
        Ok(0)
    })
}

/// `long keeps(long store, long high, long low, long out, long capacity)`: 1 if the engine has a table of an id, or 0.
///
/// # Safety
/// Promises 2 and 5.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_keeps(
    _: *mut c_void,
    _: *mut c_void,
    opened: i64,
    high: i64,
    low: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promise 2.
    let out = unsafe { buffer(out, capacity) };
    // SAFETY: promise 5.
    let opened = unsafe { store(opened) };
    guard(out, |_| Ok(i64::from(opened?.keeps(id_of(high, low)))))
}

/// The bytes of an id of which Java passes the halves.
fn id_of(high: i64, low: i64) -> [u8; 16] {
    ((i128::from(high) << 64) as u128 | u128::from(low as u64)).to_be_bytes()
}

/// `long removeStored(long store, long high, long low, long out, long capacity)`: removes what the engine keeps of the
/// table of an id.
///
/// # Safety
/// Promises 2 and 5.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_removeStored(
    _: *mut c_void,
    _: *mut c_void,
    opened: i64,
    high: i64,
    low: i64,
    out: i64,
    capacity: i64,
) -> i64 {
    // SAFETY: promise 2.
    let out = unsafe { buffer(out, capacity) };
    // SAFETY: promise 5.
    let opened = unsafe { store(opened) };
    guard(out, |_| opened?.remove_all(id_of(high, low)).map(|()| 0))
}

/// `void free(long memtable)`: frees everything.
///
/// # Safety
/// Promise 3.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_espalier_cassandra_Native_free(_: *mut c_void, _: *mut c_void, memtable: i64) {
    if memtable != 0 {
        guard(&mut [], |_| {
            // SAFETY: promise 3.
            drop(unsafe { from_handle::<PluginMemtable>(memtable) });
            Ok(0)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;
    use std::ptr::null_mut;

    use super::*;

    /// The status and the text of a reply.
    fn said(out: &[u8]) -> (u8, &str) {
        (out[11], std::str::from_utf8(&out[16..16 + usize::from(out[15])]).expect("a text"))
    }

    #[test]
    fn a_panic_becomes_a_failed_reply_with_its_text() {
        let panics: [(fn(), &str); 3] = [
            (|| panic!("a block is missing"), "panic: a block is missing"),
            (|| panic!("block {} is missing", 7), "panic: block 7 is missing"),
            (|| panic_any(7), "panic: unknown"),
        ];
        for (panic, text) in panics {
            let mut out = [0xee; 100];
            let result = guard(&mut out, |out| {
                // What was written before it is no part of the reply.
                Reply::new(out).push(&[1; 60]);
                panic();
                Ok(5)
            });
            assert_eq!((result, said(&out)), (FAILED, (Status::Failed as u8, text)));
            assert_eq!(guard(&mut [], |_| panic!("there is no room for a text")), FAILED);
        }
        let mut out = [0; 100];
        assert_eq!(guard(&mut out, |_| Err("no".into())), FAILED);
        assert_eq!(said(&out), (Status::Failed as u8, "no"));
        assert_eq!(guard(&mut out, |_| Ok(5)), 5);
    }

    #[test]
    fn a_write_without_room_is_told_from_a_failed_one() {
        let mut out = [0; 100];
        assert_eq!(guard_write(&mut out, |_| Err(Refusal::Full)), FAILED);
        assert_eq!(said(&out), (Status::Full as u8, "the memtable is full"));
        assert_eq!(guard_write(&mut out, |_| Err("no".into())), FAILED);
        assert_eq!(said(&out), (Status::Failed as u8, "no"));
        let growths = [(3, false), (3, true), (-3, false), (-3, true), (0, true)];
        let results = growths.map(|(bytes, is_half_full)| result_of(Growth { bytes, is_half_full }));
        // As Java reads them: the bytes without the last bit, and that bit.
        assert_eq!(results.map(|result| (result >> 1, result & 1 == 1)), growths);
    }

    #[test]
    fn a_call_without_a_handle_fails_with_a_text() {
        let mut out = [0; 100];
        let (address, capacity) = (out.as_mut_ptr() as i64, out.len() as i64);
        let null = null_mut();
        // SAFETY: the buffer is this test's, and a handle of 0 denotes nothing.
        let results = unsafe {
            [
                Java_espalier_cassandra_Native_put(null, null, 0, 0, 0, address, capacity),
                Java_espalier_cassandra_Native_read(null, null, 0, 0, 0, 0, address, capacity),
                Java_espalier_cassandra_Native_usage(null, null, 0, address, capacity),
            ]
        };
        assert_eq!(results, [FAILED; 3]);
        assert_eq!(said(&out), (Status::Failed as u8, "there is no memtable"));
        // SAFETY: as above.
        let result = unsafe { Java_espalier_cassandra_Native_more(null, null, 0, 0, address, capacity) };
        assert_eq!((result, said(&out)), (FAILED, (Status::Failed as u8, "there are no pages")));
        // SAFETY: as above.
        let result = unsafe { Java_espalier_cassandra_Native_listing(null, null, 0, address, capacity) };
        assert_eq!((result, said(&out)), (FAILED, (Status::Failed as u8, "there is no store")));
    }
}
