//! Data.db: partitions, rows, cells and markers, from and to the model's forms.

mod columns;
mod decode;
mod deletion;
mod encode;
mod row_stats;

use model::{Cells, Row, Table};

pub(crate) use columns::{FileColumn, FileColumns, MESSAGE};
pub(crate) use decode::{Decoder, Projection, UnfilteredHead};
pub(crate) use deletion::{read_deletion, read_partition_deletion, write_deletion};
pub(crate) use encode::Encoder;
pub(crate) use row_stats::NoStats;

/// Where unfiltereds are. In a file each has its length and that of the one before it; in a message it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnfilteredForm {
    File,
    Message,
}

impl UnfilteredForm {
    /// The cells of a row that are written. A file keeps cells of dropped columns that are newer than the drop.
    fn columns<'a, 't>(self, row: Row<'a>, table: &'t Table) -> Cells<'a, 't> {
        match self {
            UnfilteredForm::File => row.kept_columns(table),
            UnfilteredForm::Message => row.columns(table),
        }
    }
}

/// Flags of an unfiltered.
pub(crate) mod flag {
    pub const END_OF_PARTITION: u8 = 0x01;
    pub const IS_MARKER: u8 = 0x02;
    pub const HAS_TIMESTAMP: u8 = 0x04;
    pub const HAS_TTL: u8 = 0x08;
    pub const HAS_DELETION: u8 = 0x10;
    pub const HAS_ALL_COLUMNS: u8 = 0x20;
    pub const HAS_COMPLEX_DELETION: u8 = 0x40;
    pub const EXTENSION: u8 = 0x80;
}

/// The flags of a row that may be passed on in stored form.
pub(crate) const STORED_ROW: u8 = flag::HAS_TIMESTAMP | flag::HAS_ALL_COLUMNS;

/// Flags of the extension byte.
pub(crate) mod extended {
    pub const IS_STATIC: u8 = 0x01;
    pub const HAS_SHADOWABLE_DELETION: u8 = 0x02;
}

/// Flags of a cell.
pub(crate) mod cell_flag {
    pub const IS_DELETED: u8 = 0x01;
    pub const IS_EXPIRING: u8 = 0x02;
    pub const HAS_EMPTY_VALUE: u8 = 0x04;
    pub const USE_ROW_TIMESTAMP: u8 = 0x08;
    pub const USE_ROW_TTL: u8 = 0x10;
}

/// Tables with at least this many columns list the indexes of missing columns in place of a bitmap.
pub(crate) const LISTED_COLUMNS_MIN: usize = 64;

/// First byte of "no partition deletion".
pub(crate) const LIVE_DELETION: u8 = 0x80;
