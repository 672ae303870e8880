//! Looking up one row without a cursor.

use std::cell::RefCell;

use bytecomp::encode_decorated_key;
use model::{Row, Table};
use types::Token;

use crate::layout::{Header, Layout};
use crate::shard::Shard;
use crate::{Lookup, RowLocation};

thread_local! {
    /// A buffer for building paths, which are about as long as keys.
    static PATH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The largest buffer that a thread keeps, in bytes.
const PATH_BYTES_MAX: usize = 4 << 10;

/// See [`crate::Memtable::find_row`].
pub(crate) fn find_row(
    layout: &Layout,
    shard: &Shard,
    table: &Table,
    location: RowLocation<'_>,
    take: &mut dyn FnMut(Row<'_>),
) -> Lookup {
    // The path does not give the clustering back, so the stored one is needed.
    if layout.keeps_clustering() {
        return Lookup::Unknown;
    }
    PATH.with_borrow_mut(|path| {
        path.clear();
        encode_decorated_key(location.token, location.key, path);
        let lookup = match layout.has_clustering() {
            false => find_only_row(shard, table, path, take),
            true => find_clustered_row(layout, shard, table, location.clustering, path, take),
        };
        path.shrink_to(PATH_BYTES_MAX);
        lookup
    })
}

/// See [`crate::Memtable::lacks_partition`].
pub(crate) fn lacks_partition(shard: &Shard, token: Token, key: &[u8]) -> bool {
    PATH.with_borrow_mut(|path| {
        path.clear();
        encode_decorated_key(token, key, path);
        let is_absent = shard.trie.pin_for_single_keys().get(path).is_none();
        path.shrink_to(PATH_BYTES_MAX);
        is_absent
    })
}

/// The row of a table without clustering columns is in the partition's header.
fn find_only_row(shard: &Shard, table: &Table, path: &[u8], take: &mut dyn FnMut(Row<'_>)) -> Lookup {
    debug_assert!(!path.is_empty(), "a partition has a path");
    let pin = shard.trie.pin_for_single_keys();
    let Some(content) = pin.get(path) else { return Lookup::Absent };
    let header = Header::read(content);
    match header.row {
        _ if !header.deletion.is_live() || header.has_branches => Lookup::Unknown,
        Some(row) => pass_row(row, table, take),
        None => Lookup::Absent,
    }
}

fn find_clustered_row(
    layout: &Layout,
    shard: &Shard,
    table: &Table,
    clustering: &[u8],
    path: &mut Vec<u8>,
    take: &mut dyn FnMut(Row<'_>),
) -> Lookup {
    let pin = shard.trie.pin_below(path);
    // The header and the row are of one version.
    let tail = pin.tail(path);
    debug_assert!(layout.has_clustering() && !layout.keeps_clustering(), "only such rows are found by their position");
    let Some(content) = tail.get(&[]) else { return Lookup::Absent };
    let header = Header::read(content);
    if !header.deletion.is_live() || header.has_branches || header.row.is_some() {
        return Lookup::Unknown;
    }
    path.clear();
    layout.push_row(clustering, path);
    match tail.get(path) {
        Some(content) => pass_row(Row::new(content), table, take),
        None => Lookup::Absent,
    }
}

fn pass_row(row: Row<'_>, table: &Table, take: &mut dyn FnMut(Row<'_>)) -> Lookup {
    debug_assert!(!row.as_bytes().is_empty(), "a stored row has content");
    let is_known = (row.column_set_version() as usize) < table.column_sets(false).count();
    if row.is_piece() || row.is_static() || row.has_deletion() || !is_known {
        return Lookup::Unknown;
    }
    take(row);
    Lookup::Found
}
