//! Updates and rows as Cassandra 5.0's nodes send them to each other: the grammar of Data.db without the sizes of rows.
//!
//! ```text
//! update := 16 bytes table id, partition
//! partition := vbytes key, u8 flags (1 empty, 2 reversed, 4 deletion, 8 static row, 16 row estimate)
//!              unless empty: header [deltas of a deletion] [static row] [uvint estimate] unfiltereds, 0x01
//! header := uvint timestamp, uvint deletion time, uvint ttl [statics, if there is a static row] regulars
//! statics, regulars := uvint count, count * vbytes name
//! ```
//!
//! `UnfilteredRowIteratorSerializer` and `PartitionUpdate.serializer` are Cassandra's sources for it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use model::{
    ClusteringBound, Clusterings, DeletionTime, Marker, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, Row,
    RowBuilder, RowRef, Side, Slice, Table, TableId,
};
use types::CqlType;

use crate::data::{Decoder, Encoder, FileColumns, MESSAGE, NoStats, UnfilteredForm, UnfilteredHead};
use crate::error::{Decoded, SSTableError};
use crate::input::Input;
use crate::stats::EncodingBase;

mod flag {
    pub const IS_EMPTY: u8 = 0x01;
    pub const IS_REVERSED: u8 = 0x02;
    pub const HAS_PARTITION_DELETION: u8 = 0x04;
    pub const HAS_STATIC_ROW: u8 = 0x08;
    pub const HAS_ROW_ESTIMATE: u8 = 0x10;
}

/// Ends the unfiltereds of a partition.
const END_OF_PARTITION: u8 = crate::data::flag::END_OF_PARTITION;

/// The greatest number of column sets for which a reader caches their mapping to the columns of the table.
const RELATED_MAX: usize = 16;

/// Reads the updates of one version of a table. Messages with the same columns share their mapping to the table's
/// columns. Thread-safe.
#[derive(Debug)]
pub struct UpdateReader {
    table: Arc<Table>,
    /// The id of the table in messages.
    id: TableId,
    related: ArcSwap<Vec<Arc<Related>>>,
}

/// The mapping of a message's columns to those of the table.
#[derive(Debug)]
struct Related {
    has_static_row: bool,
    /// The part of a message that names the columns. No such part is a prefix of another one.
    names: Box<[u8]>,
    columns: FileColumns,
}

impl UpdateReader {
    /// A reader of updates of `table`, which messages know as `id`.
    pub fn new(table: &Arc<Table>, id: TableId) -> UpdateReader {
        UpdateReader { table: table.clone(), id, related: ArcSwap::default() }
    }

    /// The id of the table in messages.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Reads the bytes of `PartitionUpdate.serializer` (messaging version 5.0). A partition deletion with a negative
    /// timestamp is left out, because no SSTable can store it.
    ///
    /// Fails if the bytes are damaged, are of another table, have a column that the table does not know, or a value of
    /// a clustering column that its type does not have and that could not be read back.
    pub fn read(&self, bytes: &[u8]) -> Result<PartitionUpdate, SSTableError> {
        let mut input = Input::new(MESSAGE, 0, bytes);
        let id = input.take(16, "table id")?;
        if id != self.id.0.as_bytes() {
            return Err(input.damaged("the id of the table", format!("{id:02x?}")).into());
        }
        let key = input.vbytes("partition key")?;
        if key.len() > usize::from(u16::MAX) {
            return Err(input.damaged("a key of at most 65535 bytes", format!("{} bytes", key.len())).into());
        }
        let mut update = PartitionUpdateBuilder::new(self.table.clone(), PartitionKey::new(key));
        let flags = input.u8("flags")?;
        if flags & flag::IS_EMPTY == 0 {
            if flags & flag::IS_REVERSED != 0 {
                return Err(input.damaged("rows in clustering order", "a reversed partition").into());
            }
            let base = EncodingBase::read(&mut input)?;
            let related = self.related(flags & flag::HAS_STATIC_ROW != 0, &mut input)?;
            let decoder = Decoder { base, columns: &related.columns, table: &self.table };
            read_partition(flags, &decoder, &mut input, &mut update)?;
        }
        if !input.is_empty() {
            return Err(input.damaged("the end of the update", format!("{} more bytes", input.remaining())).into());
        }
        Ok(update.build())
    }

    /// Reads the names of columns.
    fn related(&self, has_static_row: bool, input: &mut Input<'_>) -> Result<Arc<Related>, SSTableError> {
        let known = self.related.load();
        let is_same =
            |known: &&Arc<Related>| known.has_static_row == has_static_row && input.rest().starts_with(&known.names);
        if let Some(same) = known.iter().find(is_same) {
            input.take(same.names.len(), "column names")?;
            return Ok(same.clone());
        }
        let before = input.rest();
        let statics = if has_static_row { read_names(input)? } else { Vec::new() };
        let regulars = read_names(input)?;
        let columns = FileColumns::of_message(&statics, &regulars, &self.table)?;
        let names = before[..before.len() - input.remaining()].into();
        let related = Arc::new(Related { has_static_row, names, columns });
        if known.len() < RELATED_MAX {
            // If another thread adds a mapping at the same time, one of the two is lost. It is added again later.
            let all = known.iter().chain([&related]).cloned().collect();
            self.related.store(Arc::new(all));
        }
        Ok(related)
    }
}

fn read_partition(
    flags: u8,
    decoder: &Decoder<'_>,
    input: &mut Input<'_>,
    update: &mut PartitionUpdateBuilder,
) -> Result<(), SSTableError> {
    if flags & flag::HAS_PARTITION_DELETION != 0 {
        update.delete_partition(decoder.deletion(input)?);
    }
    let mut rows = RowReader::default();
    if flags & flag::HAS_STATIC_ROW != 0 {
        let head = decoder.head(input, &mut rows.clustering)?;
        if head.is_end() || head.is_marker() || !head.is_static() {
            return Err(input.damaged("a static row", "something else").into());
        }
        rows.read(decoder, &head, input)?;
        if !rows.blob.is_empty() {
            update.static_row(&rows.blob);
        }
    }
    if flags & flag::HAS_ROW_ESTIMATE != 0 {
        input.uvint("row estimate")?;
    }
    let has_checked = decoder.table.clustering().iter().any(|column| is_checked(&column.ty));
    let mut open = None;
    loop {
        let head = decoder.head(input, &mut rows.clustering)?;
        if head.is_end() {
            break;
        }
        if has_checked {
            check_clustering(decoder.table, &rows.clustering, input)?;
        }
        if head.is_marker() {
            let (before, after) = decoder.marker(&head, input)?;
            close_range(&mut open, &rows.clustering, head.side(), before, update, input)?;
            let bound = ClusteringBound::new(rows.clustering.clone(), head.side());
            open = (!after.is_live()).then_some((bound, after));
            continue;
        }
        if head.is_static() {
            return Err(input.damaged("a row that is not static", "a static row").into());
        }
        rows.read(decoder, &head, input)?;
        if !rows.blob.is_empty() {
            update.row(&rows.clustering, &rows.blob);
        }
    }
    match open {
        None => Ok(()),
        Some(_) => Err(input.damaged("the end of a deleted range", "the end of the partition").into()),
    }
}

/// Whether the type has byte strings of a valid length that are not values of it. The byte-comparable form of such
/// bytes cannot be read back. They are refused, because no read could get past them.
fn is_checked(ty: &CqlType) -> bool {
    use CqlType::{Ascii, Bigint, Blob, Boolean, Double, Float, Int, Text, Timestamp, Uuid, Varint};
    !matches!(ty, Ascii | Bigint | Blob | Boolean | Double | Float | Int | Text | Timestamp | Uuid | Varint)
}

fn check_clustering(table: &Table, clustering: &[u8], input: &Input<'_>) -> Decoded<()> {
    for (column, value) in table.clustering().iter().zip(Clusterings(clustering)) {
        let value = value.unwrap_or_default();
        // Cassandra stores an empty value of any type, though it does not take all of them from clients.
        if !value.is_empty() && is_checked(&column.ty) {
            let valid = column.ty.validate(value);
            valid.map_err(|error| input.damaged("a clustering value of its type", error.to_string()))?;
        }
    }
    Ok(())
}

/// Ends the range that is open, if a marker does so.
fn close_range(
    open: &mut Option<(ClusteringBound, DeletionTime)>,
    prefix: &[u8],
    side: Side,
    before: DeletionTime,
    update: &mut PartitionUpdateBuilder,
    input: &Input<'_>,
) -> Decoded<()> {
    match open.take() {
        None if before.is_live() => Ok(()),
        Some((start, deletion)) if deletion == before => {
            let end = ClusteringBound::new(prefix.to_vec(), side);
            update.delete_range(Slice { start, end }, deletion);
            Ok(())
        }
        _ => Err(input.damaged("a marker that ends the range which is open", "another one")),
    }
}

fn read_names<'b>(input: &mut Input<'b>) -> Decoded<Vec<&'b str>> {
    let count = input.uvint("column count")?;
    (0..input.checked_count(count, 1, "columns")?).map(|_| input.vstring("column name")).collect()
}

/// The buffers in which rows are decoded.
#[derive(Default)]
struct RowReader {
    clustering: Vec<u8>,
    builder: RowBuilder,
    /// The row that was read last; empty if it had nothing.
    blob: Vec<u8>,
}

impl RowReader {
    /// Reads the body of a row into `blob`.
    fn read(&mut self, decoder: &Decoder<'_>, head: &UnfilteredHead, input: &mut Input<'_>) -> Decoded<()> {
        let mut ahead = input.clone();
        if decoder.plain_row(head, &mut ahead, &mut self.blob)? {
            *input = ahead;
            return Ok(());
        }
        self.blob.clear();
        decoder.row(head, input, None, &mut self.builder)?;
        if !self.builder.is_empty() {
            self.builder.finish(&mut self.blob);
        }
        Ok(())
    }
}

/// Writes rows and markers as messages have them, relative to the default base and with all columns that the table has.
/// A clone shares what depends on the table alone.
#[derive(Clone, Debug)]
pub struct MessageEncoder {
    table: Arc<Table>,
    encoder: Encoder,
}

impl MessageEncoder {
    /// An encoder of the rows that are read under `table`.
    pub fn new(table: &Arc<Table>) -> MessageEncoder {
        let shown = |is_static: bool| -> Vec<usize> {
            let columns = table.columns(is_static).columns.iter().enumerate();
            columns.filter(|(_, column)| !column.is_dropped).map(|(index, _)| index).collect()
        };
        let base = EncodingBase::default();
        let encoder = Encoder::of_form(UnfilteredForm::Message, table, base, &shown(true), &shown(false));
        MessageEncoder { table: table.clone(), encoder }
    }

    /// Appends the static row of a partition, empty if there is none.
    ///
    /// Fails if the row has a value of a length that its type does not have.
    pub fn static_row(&mut self, row: Option<Row<'_>>, out: &mut Vec<u8>) -> Result<(), SSTableError> {
        self.encoder.static_row(&self.table, row, &mut NoStats, out)
    }

    /// Appends a row.
    ///
    /// Fails if the row has a value of a length that its type does not have, or not all clustering values.
    pub fn row(&mut self, row: RowRef<'_>, out: &mut Vec<u8>) -> Result<(), SSTableError> {
        self.encoder.row(&self.table, row.clustering, row.row, 0, &mut NoStats, out)
    }

    /// Appends a marker. In a reversed partition it is the same as in the others.
    ///
    /// Fails if the marker has too many clustering values.
    pub fn marker(&mut self, marker: &Marker<'_>, out: &mut Vec<u8>) -> Result<(), SSTableError> {
        self.encoder.marker(marker, 0, &mut NoStats, out)
    }

    /// Appends the end of a partition.
    pub fn end(&self, out: &mut Vec<u8>) {
        out.push(END_OF_PARTITION);
    }
}

#[cfg(test)]
mod tests {
    use model::{ColumnKind, TableBuilder};
    use testkit::{Random, seed};
    use types::CqlType;
    use uuid::Uuid;

    use super::*;

    const STATICS: usize = 3;
    const REGULARS: usize = 8;
    const ID_IN_MESSAGES: TableId = TableId(Uuid::from_bytes([7; 16]));

    fn table() -> Arc<Table> {
        let names = |name: char, count: usize| (0..count).map(move |i| format!("{name}{i}")).collect::<Vec<_>>();
        let (statics, regulars) = (names('s', STATICS), names('v', REGULARS));
        let statics = statics.iter().map(|name| (name.as_str(), CqlType::Int, ColumnKind::Static));
        let regulars = regulars.iter().map(|name| (name.as_str(), CqlType::Int, ColumnKind::Regular));
        let builder = TableBuilder::new("ks", "t", TableId(Uuid::from_bytes([1; 16])));
        let builder = builder.partition_key("k", CqlType::Int).clustering("c", CqlType::Int, false);
        Arc::new(builder.add_all(statics.chain(regulars)).build())
    }

    /// Some of the columns, at least one.
    fn some(random: &mut Random, name: char, count: usize) -> Vec<String> {
        let chosen: Vec<_> = (0..count).filter(|_| random.below(2) == 0).map(|i| format!("{name}{i}")).collect();
        if chosen.is_empty() { vec![format!("{name}0")] } else { chosen }
    }

    fn push_names(names: &[String], message: &mut Vec<u8>) {
        message.push(names.len() as u8);
        for name in names {
            message.push(name.len() as u8);
            message.extend_from_slice(name.as_bytes());
        }
    }

    /// A row that has all columns of the message, from the timestamp on.
    fn push_row(columns: usize, random: &mut Random, message: &mut Vec<u8>) {
        message.push(random.below(100) as u8);
        for _ in 0..columns {
            message.push(8);
            message.extend_from_slice(&(random.below(1000) as u32).to_be_bytes());
        }
    }

    /// An update of random columns, perhaps of static ones too.
    fn message(random: &mut Random) -> Vec<u8> {
        let has_static_row = random.below(2) == 0;
        let (statics, regulars) = (some(random, 's', STATICS), some(random, 'v', REGULARS));
        let mut message = ID_IN_MESSAGES.0.as_bytes().to_vec();
        message.extend_from_slice(&[4, 0, 0, 0, random.below(9) as u8]);
        message.push(if has_static_row { flag::HAS_STATIC_ROW } else { 0 });
        message.extend_from_slice(&[0, 0, 0]);
        if has_static_row {
            push_names(&statics, &mut message);
        }
        push_names(&regulars, &mut message);
        if has_static_row {
            message.extend_from_slice(&[0xa4, 1]);
            push_row(statics.len(), random, &mut message);
        }
        message.extend_from_slice(&[0x24, 0, 0, 0, 0, random.below(9) as u8]);
        push_row(regulars.len(), random, &mut message);
        message.push(END_OF_PARTITION);
        message
    }

    #[test]
    fn updates_are_read_alike_whatever_columns_the_updates_before_them_had() {
        let (table, mut random) = (table(), Random(seed(26)));
        let used = UpdateReader::new(&table, ID_IN_MESSAGES);
        for number in 0..2000 {
            let message = message(&mut random);
            let fresh = UpdateReader::new(&table, ID_IN_MESSAGES).read(&message).unwrap();
            let read = used.read(&message).unwrap();
            assert_eq!(read.as_bytes(), fresh.as_bytes(), "update {number}");
        }
        assert_eq!(used.related.load().len(), RELATED_MAX, "no more are kept");
    }

    #[test]
    fn columns_are_related_to_those_of_the_table_once() {
        let (table, mut random) = (table(), Random(seed(27)));
        let (reader, message) = (UpdateReader::new(&table, ID_IN_MESSAGES), message(&mut random));
        (0..3).for_each(|_| drop(reader.read(&message).unwrap()));
        assert_eq!(reader.related.load().len(), 1);
        assert!(UpdateReader::new(&table, table.id).read(&message).is_err(), "of another table");
    }
}
