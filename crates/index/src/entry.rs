//! The form of entries: `term, terminator, position of the partition, position of the row`.
//!
//! The term is a clustering component of [`bytecomp`], the partition's position is its decorated key, and the row's is
//! its clustering, or [`EXCLUDED`] for the whole partition. All of these end with a terminator, so that entries compare
//! by term, then partition, then row.

use bytecomp::separator::{EXCLUDED, TERMINATOR};
use bytecomp::{ClusteringColumnType, DecodeError, Side, decode_clustering, decode_leading_key, encode_clustering};
use model::{KeyBound, KeyRange, PartitionKey, Table};
use sstable::PartitionHint;
use types::CqlType;

use crate::nan::with_one_nan;

/// The greatest length of a term, bytes. Values that agree up to there have the same term.
pub const TERM_BYTES_MAX: usize = 1024;

/// The usual number of bytes of a term in addition to those of its value.
const TERM_ROOM_BYTES: usize = 8;

/// A search for terms with a prefix uses at most this number of the prefix's bytes.
const BEGINNING_BYTES_MAX: usize = TERM_BYTES_MAX / 4;

/// Follows every entry of a term and precedes those of greater terms.
const BEHIND_TERM: u8 = TERMINATOR + 1;
/// Greater than the first byte of every term.
const BEHIND_ALL: u8 = 0xff;

/// Appends the term of a value, with its terminator.
pub(crate) fn push_term(ty: &CqlType, value: &[u8], out: &mut Vec<u8>) {
    let (start, value) = (out.len(), with_one_nan(ty, value));
    let column = [ClusteringColumnType { cql_type: ty.clone(), reversed: false }];
    encode_clustering(&column, [Some(&*value)], TERMINATOR, out);
    if out.len() - start > TERM_BYTES_MAX + 1 {
        out.truncate(start + TERM_BYTES_MAX);
        out.push(TERMINATOR);
    }
}

/// The types of the clustering columns, in the form that the encoder takes.
pub(crate) fn clustering_types(table: &Table) -> Vec<ClusteringColumnType> {
    let columns = table.clustering().iter();
    columns.map(|column| ClusteringColumnType { cql_type: column.ty.clone(), reversed: column.reversed }).collect()
}

/// The range of entries of one value, or of all values between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermRange {
    /// The inclusive start of the range.
    pub(crate) start: Vec<u8>,
    /// The exclusive end of the range.
    pub(crate) end: Vec<u8>,
    /// Whether all entries have the term `start`.
    pub(crate) is_one_term: bool,
}

impl TermRange {
    /// The entries of a value.
    pub fn equal(ty: &CqlType, value: &[u8]) -> TermRange {
        let mut start = Vec::with_capacity(value.len().min(TERM_BYTES_MAX) + TERM_ROOM_BYTES);
        push_term(ty, value, &mut start);
        let mut end = start.clone();
        end_after(&mut end);
        TermRange { start, end, is_one_term: true }
    }

    /// The entries of the values between two. Both are included, because a term of the greatest length may stand for
    /// several values.
    pub fn between(ty: &CqlType, first: Option<&[u8]>, last: Option<&[u8]>) -> TermRange {
        let (mut start, mut end) = (Vec::new(), Vec::new());
        first.iter().for_each(|value| push_term(ty, value, &mut start));
        match last {
            Some(value) => push_end(ty, value, &mut end),
            None => end.push(BEHIND_ALL),
        }
        TermRange { start, end, is_one_term: false }
    }
}

impl TermRange {
    /// The entries of the texts that begin with this one. If the text is long or contains a zero, the range has entries
    /// of other texts too.
    pub fn beginning(ty: &CqlType, text: &[u8]) -> TermRange {
        let length = text.iter().position(|byte| *byte == 0).unwrap_or(text.len()).min(BEGINNING_BYTES_MAX);
        let mut start = Vec::new();
        push_term(ty, &text[..length], &mut start);
        // The end of the component, and the terminator that follows it.
        start.truncate(start.len() - 2);
        let mut end = start.clone();
        end.push(BEHIND_ALL);
        TermRange { start, end, is_one_term: false }
    }
}

fn push_end(ty: &CqlType, value: &[u8], out: &mut Vec<u8>) {
    push_term(ty, value, out);
    end_after(out);
}

/// Turns a term into a bound that follows its entries.
fn end_after(term: &mut Vec<u8>) {
    term.pop();
    term.push(BEHIND_TERM);
}

/// The keys between two positions of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBounds {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

impl KeyBounds {
    /// The bounds of the partitions that a read covers.
    pub fn of(keys: &KeyRange) -> KeyBounds {
        let (mut start, mut end) = (Vec::new(), Vec::new());
        match keys {
            KeyRange::Single(key) => {
                bytecomp::encode_key_bound(key.token(), key.bytes(), Side::Before, &mut start);
                bytecomp::encode_key_bound(key.token(), key.bytes(), Side::After, &mut end);
            }
            KeyRange::Range { start: from, end: to } => {
                push_bound(from, |inclusive| if inclusive { Side::Before } else { Side::After }, &mut start);
                push_bound(to, |inclusive| if inclusive { Side::After } else { Side::Before }, &mut end);
                if end.is_empty() {
                    end.push(BEHIND_ALL);
                }
            }
        }
        KeyBounds { start, end }
    }

    /// Whether a key is within the bounds. Usually all keys are.
    pub(crate) fn contain(&self, key: &[u8]) -> bool {
        let has_start = self.start.is_empty() || key >= self.start.as_slice();
        has_start && (self.end == [BEHIND_ALL] || key < self.end.as_slice())
    }
}

fn push_bound(bound: &KeyBound, side: impl Fn(bool) -> Side, out: &mut Vec<u8>) {
    match bound {
        KeyBound::Unbounded => {}
        KeyBound::Token { token, inclusive } => bytecomp::encode_token_bound(*token, side(*inclusive), out),
        KeyBound::Key { key, inclusive } => {
            bytecomp::encode_key_bound(key.token(), key.bytes(), side(*inclusive), out);
        }
    }
}

/// The key of a row, or of a whole partition, that a candidate names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowKey {
    /// The partition.
    pub partition: PartitionKey,
    /// The serialized clustering of the row, or `None` for the whole partition. It compares as equal to the clustering
    /// of the stored row, but its bytes may differ.
    pub clustering: Option<Vec<u8>>,
    /// A hint of where an SSTable has the partition.
    pub hint: Option<PartitionHint>,
}

/// Decodes the key of a candidate: an entry without its term. The result has no hint. The content of `buffer` is
/// replaced.
pub fn decode_row_key(
    clustering: &[ClusteringColumnType],
    key: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<RowKey, DecodeError> {
    let (mut rest, mut bytes) = (key, Vec::new());
    buffer.clear();
    buffer.reserve(key.len());
    let token = decode_leading_key(&mut rest, buffer)?;
    let partition = PartitionKey::with_token(token, buffer);
    let at = key.len() - rest.len();
    let behind = |error: DecodeError| DecodeError { offset: at + error.offset, ..error };
    let terminator = decode_clustering(clustering, &mut rest, &mut bytes).map_err(behind)?;
    let expected = "the terminator of a row or of a whole partition, and nothing after it";
    match terminator {
        TERMINATOR if rest.is_empty() => Ok(RowKey { partition, clustering: Some(bytes), hint: None }),
        EXCLUDED if rest.is_empty() => Ok(RowKey { partition, clustering: None, hint: None }),
        _ => Err(DecodeError { offset: key.len() - rest.len(), expected, got: Some(terminator) }),
    }
}
