//! Schema, rows, tombstones and mutations, and the reconciliation of their versions.
//!
//! Everything with an order or a form that memtable, log, SSTable and query share is defined here: the schema
//! ([`Table`], [`ColumnSet`]), the one row codec ([`Row`], [`RowBuilder`]; see `row/FORMAT.md`), the serialized
//! mutation ([`PartitionUpdate`]), the cursor that every source of rows implements ([`UnfilteredCursor`]) and the merge
//! of several such cursors ([`MergeCursor`]). The crate does no I/O and has no clock: callers pass *now*.
#![forbid(unsafe_code)]

mod analysis;
mod clustering;
mod column_sets;
mod cursor;
mod deletion;
mod error;
mod index;
mod key;
mod key_text;
mod mask;
mod merge;
mod mutation;
mod observer;
mod range;
mod row;
mod row_memory;
mod sasi;
mod schema;
mod table_form;

pub use analysis::{Analysis, Division, Language, LetterCase};
pub use clustering::{ClusteringBound, ClusteringComparator, Clusterings, Side, Slice, Slices, push_component};
pub use column_sets::{ColumnChange, ColumnSet, ColumnSets};
pub use cursor::{BoxCursor, Marker, PartitionHead, StoredRow, Unfiltered, UnfilteredCursor};
pub use deletion::{DeletionTime, NO_DELETION_TIME};
pub use error::{CorruptMutation, ReadError};
pub use index::{INDEX_CLASS, INDEX_SIMILARITY, INDEX_TARGET, Index, IndexClass, IndexKey, IndexPart};
pub use key::PartitionKey;
pub use mask::{ColumnMask, MaskArgument};
pub use merge::MergeCursor;
pub use mutation::{Mutation, PartitionUpdate, PartitionUpdateBuilder, RangeDeletion, ReadUpdates};
pub use observer::RowObserver;
pub use range::{KeyBound, KeyRange, ReadRange};
pub use row::{
    Cell, CellPlace, Cells, ColumnData, ComplexCells, Liveness, NodeCount, PieceSize, PlainRow, PlainValues, Row,
    RowBuilder, RowCutter, RowJoiner, RowMerger, RowRef, TTL_NONE, ValuePlaces, Written, begin_plain_row,
    compare_paths, counter_increment, counter_total, reconcile_cells,
};
pub use row_memory::{LargeRowLimit, RowMemory, RowReservation};
pub use sasi::{SasiAnalyzer, SasiMode, SasiOptions};
pub use schema::{
    Column, ColumnId, ColumnKind, DroppedColumn, Keyspace, Schema, Table, TableBuilder, TableId, TableOptions,
    UnreadableTable,
};
pub use table_form::TableForm;
