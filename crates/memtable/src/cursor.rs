//! Reading a trie memtable: partitions, rows and markers, copied out under short pins.
//!
//! A fill pins the trie, copies items until the batch is full (64 KiB; the first ones less), and unpins. The next one
//! goes on from a *place*: a partition, a slice, and a bound in it. At its start the deletion in force just after the place is looked
//! up anew: where it differs from what was in force when the last batch ended, a marker says so. Entering a slice is the
//! same thing, with nothing in force. So the markers are always well nested, and a deletion that came in between
//! batches holds for the rest of the partition.

use std::ops::Bound;
use std::sync::Arc;

use bytecomp::{Side as KeySide, decode_decorated_key, encode_key_bound, encode_token_bound};
use memtrie::{Bounds, Direction, Pin};
use model::{
    DeletionTime, KeyBound, KeyRange, Marker, PartitionHead, PartitionKey, ReadError, ReadRange, Row, RowMerger, RowRef,
    Side, Table, Unfiltered, UnfilteredCursor,
};

use crate::layout::{Border, Header, RANGE_BRANCH, ROW_DELETION_BRANCH, partition_path, read_deletion, side_of};
use crate::shard::is_newer;
use crate::translate::{deletion_only, translate};
use crate::trie_memtable::TrieMemtable;

/// A batch ends when it holds this many bytes; the first is small, each next one twice as large.
const BATCH_BYTES_FIRST: usize = 4 << 10;
const BATCH_BYTES_MAX: usize = 64 << 10;
/// After the last byte of a partition's path (its terminator) and everything below it.
const AFTER_PARTITION: u8 = bytecomp::separator::TERMINATOR + 1;

/// See the module.
pub(crate) struct TrieCursor {
    memtable: Arc<TrieMemtable>,
    table: Arc<Table>,
    /// Rows may be written under this one, if it is newer.
    newest: Arc<Table>,
    reversed: bool,
    slices: Vec<Slice>,
    /// All rows forward: the trie's own order.
    plain: bool,
    single: Option<PartitionKey>,
    first_shard: usize,
    last_shard: usize,
    end: Vec<u8>,
    place: Place,
    batch: Batch,
    batch_bytes: usize,
    current: Current,
    merger: RowMerger,
}

/// A slice with the positions of its bounds.
struct Slice {
    start: Vec<u8>,
    start_prefix: Vec<u8>,
    start_side: Side,
    end: Vec<u8>,
    end_prefix: Vec<u8>,
    end_side: Side,
}

/// Where the next fill goes on.
enum Place {
    /// At the first partition at or after this path, in this shard.
    Partition { shard: usize, path: Vec<u8> },
    /// In a partition, in a slice (counted in reading order).
    Rows { shard: usize, path: Vec<u8>, head_deletion: DeletionTime, slice: usize, bound: PlaceBound, open: DeletionTime },
    End,
}

/// A bound between rows.
#[derive(Clone)]
struct PlaceBound {
    position: Vec<u8>,
    prefix: Vec<u8>,
    side: Side,
}

/// Items copied out.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    items: Vec<Item>,
    next: usize,
}

type Span = std::ops::Range<u32>;

enum Item {
    Partition { path: Span, deletion: DeletionTime, row: Option<Span> },
    Row { clustering: Span, row: Span },
    Marker { prefix: Span, side: Side, before: DeletionTime, after: DeletionTime },
}

/// What the caller sees.
struct Current {
    key: Option<PartitionKey>,
    deletion: DeletionTime,
    static_row: Option<Vec<u8>>,
    /// The single row of a partition without clustering, yet to be given.
    item: Option<usize>,
}

impl TrieCursor {
    pub fn new(memtable: Arc<TrieMemtable>, table: &Arc<Table>, range: &ReadRange) -> TrieCursor {
        let layout = memtable.layout();
        let position = |prefix: &[u8], side: Side| {
            let mut position = Vec::with_capacity(prefix.len() + 8);
            layout.push_bound(prefix, side, &mut position);
            position
        };
        let mut slices: Vec<Slice> = range
            .slices
            .as_slice()
            .iter()
            .map(|slice| Slice {
                start: position(&slice.start.prefix, slice.start.side),
                start_prefix: slice.start.prefix.clone(),
                start_side: slice.start.side,
                end: position(&slice.end.prefix, slice.end.side),
                end_prefix: slice.end.prefix.clone(),
                end_side: slice.end.side,
            })
            .collect();
        if range.reversed {
            slices.reverse();
        }
        let (mut start, mut end, mut single) = (Vec::new(), Vec::new(), None);
        let (mut first_shard, mut last_shard) = (0, memtable.shards().len() - 1);
        match &range.keys {
            KeyRange::Single(key) => {
                first_shard = memtable.shard_of(key.token());
                last_shard = first_shard;
                partition_path(key, &mut start);
                single = Some(key.clone());
            }
            KeyRange::Range { start: from, end: to } => {
                if let Some(token) = encode_bound(from, KeySide::Before, &mut start) {
                    first_shard = memtable.shard_of(token);
                }
                if let Some(token) = encode_bound(to, KeySide::After, &mut end) {
                    last_shard = memtable.shard_of(token);
                }
            }
        }
        // Every shard knows of every alteration; which one is asked matters for updates that came ahead of it.
        let newest = memtable.shards()[first_shard..=last_shard.max(first_shard)].iter().map(|shard| shard.table());
        let newest = newest.fold(table.clone(), |newest, known| if is_newer(&known, &newest) { known } else { newest });
        let plain = !range.reversed && range.slices.is_all();
        TrieCursor {
            table: table.clone(),
            newest,
            reversed: range.reversed,
            slices,
            plain,
            single,
            first_shard,
            last_shard,
            end,
            place: Place::Partition { shard: first_shard, path: start },
            batch: Batch::default(),
            batch_bytes: BATCH_BYTES_FIRST,
            current: Current { key: None, deletion: DeletionTime::LIVE, static_row: None, item: None },
            merger: RowMerger::default(),
            memtable,
        }
    }
}
