//! The serialization header: without it Data.db cannot be read.

use types::vint;

use crate::error::Decoded;
use crate::input::Input;

/// 2015-09-22T00:00:00Z in microseconds, the base of stored timestamps.
pub(crate) const TIMESTAMP_EPOCH: i64 = 1_442_880_000_000_000;
/// The same in seconds, the base of stored deletion times.
pub(crate) const DELETION_TIME_EPOCH: u32 = 1_442_880_000;

/// The bases relative to which Data.db stores timestamps, deletion times and TTLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodingBase {
    /// The base of timestamps, microseconds.
    pub timestamp: i64,
    /// The base of local deletion times, seconds since the epoch.
    pub local_deletion_time: u32,
    /// The base of TTLs, seconds.
    pub ttl: i32,
}

impl EncodingBase {
    pub(crate) fn read(input: &mut Input<'_>) -> Decoded<Self> {
        let timestamp = (input.uvint("minimal timestamp")? as i64).wrapping_add(TIMESTAMP_EPOCH);
        let local_deletion_time = (input.uvint("minimal deletion time")? as u32).wrapping_add(DELETION_TIME_EPOCH);
        let ttl = input.uvint("minimal ttl")? as i32;
        Ok(EncodingBase { timestamp, local_deletion_time, ttl })
    }
}

impl Default for EncodingBase {
    fn default() -> Self {
        EncodingBase { timestamp: TIMESTAMP_EPOCH, local_deletion_time: DELETION_TIME_EPOCH, ttl: 0 }
    }
}

/// A column of the file: its name and the marshal class of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderColumn {
    /// UTF-8 in practice.
    pub name: String,
    /// Full marshal class.
    pub class: String,
}

/// The schema under which Data.db was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerializationHeader {
    /// Bases of deltas.
    pub base: EncodingBase,
    /// Marshal class of the partition key.
    pub key_class: String,
    /// Marshal classes of the clustering columns, `ReversedType(..)` where descending.
    pub clustering_classes: Vec<String>,
    /// Static columns in file order.
    pub statics: Vec<HeaderColumn>,
    /// Regular columns in file order.
    pub regulars: Vec<HeaderColumn>,
}

impl SerializationHeader {
    pub(super) fn read(input: &mut Input<'_>) -> Decoded<Self> {
        Ok(SerializationHeader {
            base: EncodingBase::read(input)?,
            key_class: input.vstring("partition key class")?.to_owned(),
            clustering_classes: read_classes(input)?,
            statics: read_columns(input)?,
            regulars: read_columns(input)?,
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        vint::write_uvint(self.base.timestamp.wrapping_sub(TIMESTAMP_EPOCH) as u64, out);
        let deletion_delta = self.base.local_deletion_time.wrapping_sub(DELETION_TIME_EPOCH) as i32;
        vint::write_uvint(i64::from(deletion_delta) as u64, out);
        vint::write_uvint(i64::from(self.base.ttl) as u64, out);
        push_vbytes(self.key_class.as_bytes(), out);
        write_classes(&self.clustering_classes, out);
        for columns in [&self.statics, &self.regulars] {
            vint::write_uvint(columns.len() as u64, out);
            for column in columns {
                push_vbytes(column.name.as_bytes(), out);
                push_vbytes(column.class.as_bytes(), out);
            }
        }
    }
}

pub(crate) fn push_vbytes(bytes: &[u8], out: &mut Vec<u8>) {
    vint::write_uvint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub(super) fn read_classes(input: &mut Input<'_>) -> Decoded<Vec<String>> {
    let count = input.uvint("clustering column count")?;
    let count = input.checked_count(count, 1, "clustering columns")?;
    (0..count).map(|_| Ok(input.vstring("clustering class")?.to_owned())).collect()
}

pub(super) fn write_classes(classes: &[String], out: &mut Vec<u8>) {
    vint::write_uvint(classes.len() as u64, out);
    for class in classes {
        push_vbytes(class.as_bytes(), out);
    }
}

fn read_columns(input: &mut Input<'_>) -> Decoded<Vec<HeaderColumn>> {
    let count = input.uvint("column count")?;
    let count = input.checked_count(count, 2, "columns")?;
    let column = |input: &mut Input<'_>| {
        let name = input.vstring("column name")?.to_owned();
        Ok(HeaderColumn { name, class: input.vstring("column class")?.to_owned() })
    };
    (0..count).map(|_| column(input)).collect()
}
