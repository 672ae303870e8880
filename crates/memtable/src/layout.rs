//! The layout of a shard's trie, and the encoding of its contents (`FORMAT.md`).

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytecomp::separator::{GT_NEXT_COMPONENT, LT_NEXT_COMPONENT, TERMINATOR};
use bytecomp::{ClusteringColumnType, decode_clustering, encode_decorated_key, encode_serialized_clustering};
use model::{Clusterings, DeletionTime, PartitionKey, ReadError, Row, Side, Table};
use types::{Token, vint};

/// The lead byte of deleted ranges, below a partition's key. Rows start with a separator, which is greater.
pub(crate) const RANGE_BRANCH: u8 = 0x01;
/// The lead byte of deletions of single rows.
pub(crate) const ROW_DELETION_BRANCH: u8 = 0x02;

/// The lead byte of the pieces of a large static row, or of a large row in a table without clustering.
pub(crate) const PIECE_BRANCH: u8 = 0x03;

const HAS_DELETION: u8 = 0x01;
const HAS_STATIC_ROW: u8 = 0x02;
const HAS_ROW: u8 = 0x04;
const HAS_BRANCHES: u8 = 0x08;
/// The size of a stored deletion in bytes.
pub(crate) const DELETION_SIZE: usize = 12;

const _: () = {
    assert!(DELETION_SIZE == size_of::<i64>() + size_of::<u32>(), "a timestamp and a local deletion time");
    assert!(RANGE_BRANCH < ROW_DELETION_BRANCH && ROW_DELETION_BRANCH < PIECE_BRANCH, "the order of the branches");
    assert!(PIECE_BRANCH < LT_NEXT_COMPONENT, "every position of a row comes behind the branches");
    assert!(LT_NEXT_COMPONENT < TERMINATOR && TERMINATOR < GT_NEXT_COMPONENT, "a row lies between its bounds");
    assert!(HAS_DELETION + HAS_STATIC_ROW + HAS_ROW + HAS_BRANCHES == 0x0F, "each flag has a bit of its own");
};

/// Changes of a row's contents: the key below the row's (empty for the row itself), and the blob or `None`.
pub(crate) type RowEdits = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The mapping between the positions of one table's rows and paths.
///
/// A user type in a clustering may get another field while the memtable has rows. These keep their paths, because
/// fields that are null at the end have no bytes. Rows written later need the new type, so each layout refers to its
/// successor.
#[derive(Debug)]
pub(crate) struct Layout {
    columns: Vec<ClusteringColumnType>,
    /// The total number of types in the columns, which only grows.
    type_parts: u32,
    /// The layout after a type has grown.
    next: OnceLock<Box<Layout>>,
    /// Whether contents keep the serialized clustering because the path does not give it back byte for byte.
    keeps_clustering: bool,
}

impl Layout {
    pub fn new(table: &Table) -> Layout {
        let columns: Vec<_> = table
            .clustering()
            .iter()
            .map(|column| ClusteringColumnType { cql_type: column.ty.clone(), reversed: column.reversed })
            .collect();
        let keeps_clustering = columns.iter().any(|column| !bytecomp::is_invertible(&column.cql_type));
        let parts = columns.iter().map(|column| column.cql_type.shape().parts);
        let type_parts = parts.fold(0, u32::saturating_add);
        Layout { columns, type_parts, next: OnceLock::new(), keeps_clustering }
    }

    /// The layout with the newest types. Follows one link for each ALTER TYPE since the first layout.
    #[inline]
    pub fn newest(&self) -> &Layout {
        let mut newest = self;
        while let Some(next) = newest.next.get() {
            newest = next;
        }
        newest
    }

    /// Adds a layout with the types of `table` if they have grown.
    pub fn follow(&self, table: &Table) {
        let (newest, altered) = (self.newest(), Layout::new(table));
        if altered.type_parts > newest.type_parts {
            debug_assert_eq!(altered.columns.len(), newest.columns.len(), "keys have as many columns for ever");
            debug_assert!(newest.keeps_clustering, "a type that grows is not invertible");
            // Another thread may have been faster.
            let _ = newest.next.set(Box::new(altered));
        }
    }

    /// Whether the clustering of a row is kept with it.
    pub fn keeps_clustering(&self) -> bool {
        self.keeps_clustering
    }

    pub fn has_clustering(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Whether a serialized prefix has all components.
    pub fn is_whole(&self, prefix: &[u8]) -> bool {
        Clusterings(prefix).count() == self.columns.len()
    }

    /// Appends the path of a row below its partition's key.
    pub fn push_row(&self, clustering: &[u8], out: &mut Vec<u8>) {
        encode_serialized_clustering(&self.columns, clustering, TERMINATOR, out);
        debug_assert_eq!(out.last(), Some(&TERMINATOR), "the position of a row ends");
    }

    /// Appends the position of a bound.
    pub fn push_bound(&self, prefix: &[u8], side: Side, out: &mut Vec<u8>) {
        let terminator = match side {
            Side::Before => LT_NEXT_COMPONENT,
            Side::After => GT_NEXT_COMPONENT,
        };
        encode_serialized_clustering(&self.columns, prefix, terminator, out);
        debug_assert_eq!(side_of(out), side, "the position of a bound tells its side");
    }

    /// Appends what is stored in front of a content: for a row, its deletion, or the bound of a range.
    pub fn push_content_head(&self, clustering: &[u8], out: &mut Vec<u8>) {
        if self.keeps_clustering {
            vint::write_uvint(clustering.len() as u64, out);
            out.extend_from_slice(clustering);
        }
    }

    /// Splits a stored content into the clustering, if it is kept there, and the content proper.
    pub fn split_content<'c>(&self, content: &'c [u8]) -> (Option<&'c [u8]>, &'c [u8]) {
        if !self.keeps_clustering {
            return (None, content);
        }
        let mut rest = content;
        let length = vint::read_uvint(&mut rest).unwrap_or(0) as usize;
        debug_assert!(length <= rest.len(), "a clustering of {length} bytes in {} bytes of content", rest.len());
        let (clustering, content) = rest.split_at(length.min(rest.len()));
        (Some(clustering), content)
    }

    /// Adds the heads in front of a row's blobs. Only the row's own content keeps its clustering.
    pub fn finish_row_edits(&self, clustering: &[u8], edits: &mut RowEdits) {
        if !self.keeps_clustering {
            return;
        }
        for (key, content) in edits {
            let clustering = if key.is_empty() { clustering } else { &[] };
            if let Some(blob) = content {
                let mut content = Vec::with_capacity(blob.len() + clustering.len() + 2);
                self.push_content_head(clustering, &mut content);
                content.extend_from_slice(blob);
                *blob = content;
            }
        }
    }

    /// Whether a stored content is a piece of a row.
    pub fn is_piece(&self, content: &[u8]) -> bool {
        Row::new(self.split_content(content).1).is_piece()
    }

    /// How many bytes of a key below the partition's are the row's position; the rest names a piece of the row.
    pub fn position_length(&self, key: &[u8]) -> usize {
        let mut rest = key;
        match decode_clustering(&self.columns, &mut rest, &mut Vec::new()) {
            Ok(_) => key.len() - rest.len(),
            Err(_) => key.len(),
        }
    }

    /// Appends the serialized clustering (or prefix) of a position; `kept` is the clustering that its content keeps.
    pub fn push_clustering(&self, position: &[u8], kept: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), ReadError> {
        if let Some(kept) = kept {
            out.extend_from_slice(kept);
            return Ok(());
        }
        let mut input = position;
        match decode_clustering(&self.columns, &mut input, out) {
            Ok(_) => Ok(()),
            Err(error) => Err(ReadError::Corruption {
                table: None,
                file: "memtable".into(),
                offset: 0,
                expected: "a clustering position".into(),
                got: format!("{position:02x?}: {error}"),
            }),
        }
    }
}

/// The side of its prefix on which a border lies.
pub(crate) fn side_of(position: &[u8]) -> Side {
    if position.last() == Some(&LT_NEXT_COMPONENT) { Side::Before } else { Side::After }
}

/// Replaces `out` with the path of a partition.
pub(crate) fn partition_path(key: &PartitionKey, out: &mut Vec<u8>) {
    out.clear();
    encode_decorated_key(key.token(), key.bytes(), out);
}

/// The token in a path.
pub(crate) fn decode_token(path: &[u8]) -> Option<Token> {
    let token = path.get(1..)?.first_chunk::<8>()?;
    Some(Token((u64::from_be_bytes(*token) ^ 1 << 63) as i64))
}

/// The content at a partition's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'a> {
    pub deletion: DeletionTime,
    /// The static row; in a table without clustering, the row.
    pub row: Option<Row<'a>>,
    /// Whether there may be deletions of ranges or rows below.
    pub has_branches: bool,
}

impl<'a> Header<'a> {
    pub const EMPTY: Header<'static> = Header { deletion: DeletionTime::LIVE, row: None, has_branches: false };

    #[inline]
    pub fn read(content: &'a [u8]) -> Header<'a> {
        let (flags, mut rest) = content.split_first().map_or((0, content), |(&flags, rest)| (flags, rest));
        debug_assert!(!content.is_empty(), "a header begins with its flags");
        debug_assert!(flags & 0xF0 == 0, "unknown flags {flags:#04x}");
        debug_assert!(flags & HAS_ROW == 0 || flags & HAS_STATIC_ROW == 0, "a header has one row at most");
        let mut deletion = DeletionTime::LIVE;
        if flags & HAS_DELETION != 0 {
            deletion = read_deletion(rest);
            rest = rest.get(DELETION_SIZE..).unwrap_or_default();
        }
        let row = (flags & (HAS_STATIC_ROW | HAS_ROW) != 0).then(|| Row::new(rest));
        Header { deletion, row, has_branches: flags & HAS_BRANCHES != 0 }
    }

    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve_exact(1 + DELETION_SIZE + self.row.map_or(0, |row| row.as_bytes().len()));
        let row_flag = match self.row {
            Some(row) if row.is_static() => HAS_STATIC_ROW,
            Some(_) => HAS_ROW,
            None => 0,
        };
        let deletion_flag = if self.deletion.is_live() { 0 } else { HAS_DELETION };
        out.push(row_flag | deletion_flag | if self.has_branches { HAS_BRANCHES } else { 0 });
        if !self.deletion.is_live() {
            write_deletion(self.deletion, out);
        }
        if let Some(row) = self.row {
            out.extend_from_slice(row.as_bytes());
        }
        debug_assert_eq!(Header::read(&out[start..]).deletion, self.deletion, "reading inverts writing");
    }
}

/// Decodes a stored deletion. Bytes that are too short are read as no deletion.
pub(crate) fn read_deletion(bytes: &[u8]) -> DeletionTime {
    debug_assert!(bytes.len() >= DELETION_SIZE, "a deletion of {} bytes", bytes.len());
    match (bytes.first_chunk::<8>(), bytes.get(8..).and_then(|rest| rest.first_chunk::<4>())) {
        (Some(at), Some(local)) => DeletionTime::new(i64::from_be_bytes(*at), u32::from_be_bytes(*local)),
        _ => DeletionTime::LIVE,
    }
}

pub(crate) fn write_deletion(deletion: DeletionTime, out: &mut Vec<u8>) {
    debug_assert!(!deletion.is_live(), "the absence of a deletion is not written");
    out.extend_from_slice(&deletion.marked_for_delete_at.to_be_bytes());
    out.extend_from_slice(&deletion.local_deletion_time.to_be_bytes());
}
