//! Random tables, and what a client would see of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, SimulatedDisk};
use model::{
    BoxCursor, Cell, ColumnData, DeletionTime, Liveness, Marker, MergeCursor, PartitionHead, PartitionKey, Row,
    RowBuilder, RowRef, Side, Table, TableBuilder, TableId, TableOptions, Unfiltered, UnfilteredCursor, push_component,
};
use sstable::{BlockCache, CommitLogPosition, Descriptor, SSTableId, SSTableReader, SSTableWriter, WriterOptions};
use testkit::Random;
use types::CqlType;
use uuid::Uuid;

pub const DIR: &str = "/data/ks/t";
const PARTITIONS: usize = 6;
const ROWS: usize = 12;

pub fn schema(gc_grace_seconds: i32) -> Arc<Table> {
    let options = TableOptions { gc_grace_seconds, ..TableOptions::default() };
    let table = TableBuilder::new("ks", "t", TableId(Uuid::nil()))
        .partition_key("pk", CqlType::Int)
        .clustering("ck", CqlType::Int, false)
        .static_column("s", CqlType::Int)
        .regular("v", CqlType::Int)
        .regular("w", CqlType::Text)
        .regular("m", CqlType::map(CqlType::Int, CqlType::Int));
    Arc::new(table.options(options).build())
}

pub fn disk() -> Arc<dyn Disk> {
    let disk = SimulatedDisk::new();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    Arc::new(disk)
}

/// Writes tables in which all timestamps differ; the model tests cover ties.
pub struct Generator {
    pub random: Random,
    pub disk: Arc<dyn Disk>,
    pub table: Arc<Table>,
    pub next_id: u32,
    used: std::collections::HashSet<i64>,
}

impl Generator {
    pub fn new(seed: u64, gc_grace_seconds: i32) -> Self {
        let (random, table) = (Random(seed), schema(gc_grace_seconds));
        Generator { random, disk: disk(), table, next_id: 1, used: Default::default() }
    }

    fn timestamp(&mut self) -> i64 {
        loop {
            let timestamp = 1 + self.random.below(1_000_000) as i64;
            if self.used.insert(timestamp) {
                return timestamp;
            }
        }
    }

    fn deletion(&mut self) -> DeletionTime {
        DeletionTime::new(self.timestamp(), 1000 + self.random.below(100) as u32)
    }

    fn cell<'v>(&mut self, value: &'v [u8]) -> Cell<'v> {
        let timestamp = self.timestamp();
        match self.random.below(10) {
            0 => Cell::tombstone(timestamp, 1000 + self.random.below(100) as u32),
            1 | 2 => {
                let ttl = 1 + self.random.below(100) as i32;
                Cell::expiring(timestamp, ttl, 1000 + self.random.below(400) as u32, value)
            }
            _ => Cell::live(timestamp, value),
        }
    }

    fn row(&mut self, is_static: bool) -> Vec<u8> {
        let mut builder = RowBuilder::default();
        let table = self.table.clone();
        builder.start(table.columns(is_static), is_static);
        if !is_static {
            if self.random.chance(60) {
                let timestamp = self.timestamp();
                let mut liveness = Liveness::at(timestamp);
                if self.random.chance(25) {
                    liveness.ttl = 1 + self.random.below(100) as i32;
                    liveness.expiration = 1000 + self.random.below(400) as u32;
                }
                builder.liveness(liveness);
            }
            if self.random.chance(15) {
                builder.deletion(self.deletion());
            }
        }
        for (index, column) in table.columns(is_static).columns.iter().enumerate() {
            if self.random.chance(40) {
                continue;
            }
            if !column.is_complex() {
                let number = self.random.below(1000) as i32;
                let value = match column.ty {
                    CqlType::Text => format!("text {number}").into_bytes(),
                    _ => number.to_be_bytes().to_vec(),
                };
                builder.cell(index, &self.cell(&value));
                continue;
            }
            let deletion = if self.random.chance(30) { self.deletion() } else { DeletionTime::LIVE };
            builder.complex(index, deletion);
            for key in 0..3_i32 {
                if self.random.chance(50) {
                    let path = key.to_be_bytes();
                    let value = (self.random.below(1000) as i32).to_be_bytes();
                    builder.complex_cell(&self.cell(&value).with_path(&path));
                }
            }
        }
        let mut bytes = Vec::new();
        if !builder.is_empty() {
            builder.finish(&mut bytes);
        }
        bytes
    }

    /// A new table of random content.
    pub fn write(&mut self) -> Arc<SSTableReader> {
        self.write_of(None, Vec::new())
    }

    /// A table written by a node, from this part of its log.
    pub fn write_of(
        &mut self,
        originating_host_id: Option<Uuid>,
        commit_log_intervals: Vec<(CommitLogPosition, CommitLogPosition)>,
    ) -> Arc<SSTableReader> {
        let id = SSTableId::from_sequence(self.next_id);
        self.next_id += 1;
        let descriptor = Descriptor::new(DIR, id);
        let options = WriterOptions {
            estimated_partitions: PARTITIONS as u64,
            column_index_size_bytes: 64,
            originating_host_id,
            commit_log_intervals,
            ..WriterOptions::for_table(&self.table).unwrap()
        };
        let mut writer = SSTableWriter::create(&self.disk, &descriptor, &self.table, options).unwrap();
        let mut keys: Vec<_> = (0..PARTITIONS as i32).map(|key| PartitionKey::new(&key.to_be_bytes())).collect();
        keys.sort();
        let always = self.random.below(keys.len());
        for (index, key) in keys.iter().enumerate() {
            if index != always && self.random.chance(30) {
                continue;
            }
            let deletion = if self.random.chance(15) { self.deletion() } else { DeletionTime::LIVE };
            let static_row = self.row(true);
            let static_row = (!static_row.is_empty()).then(|| Row::new(&static_row));
            writer.begin_partition(&PartitionHead { key, deletion, static_row }).unwrap();
            self.write_rows(&mut writer);
            writer.end_partition().unwrap();
        }
        let descriptor = writer.finish().unwrap().unwrap();
        Arc::new(open(&self.disk, &descriptor, &self.table))
    }

    fn write_rows(&mut self, writer: &mut SSTableWriter) {
        let mut open = DeletionTime::LIVE;
        for ck in 0..ROWS as i32 {
            let mut clustering = Vec::new();
            push_component(Some(&ck.to_be_bytes()), &mut clustering);
            for side in [Side::Before, Side::After] {
                if self.random.chance(12) || side == Side::After && ck + 1 == ROWS as i32 && !open.is_live() {
                    let next = if open.is_live() || self.random.chance(30) && ck + 1 < ROWS as i32 {
                        self.deletion()
                    } else {
                        DeletionTime::LIVE
                    };
                    let is_last = ck + 1 == ROWS as i32 && side == Side::After;
                    let next = if is_last { DeletionTime::LIVE } else { next };
                    if next != open {
                        let marker = Marker { prefix: &clustering, side, before: open, after: next };
                        writer.add(&Unfiltered::Marker(marker)).unwrap();
                        open = next;
                    }
                }
                if side == Side::Before && self.random.chance(60) {
                    let row = self.row(false);
                    if !row.is_empty() {
                        let row = RowRef { clustering: &clustering, row: Row::new(&row) };
                        writer.add(&Unfiltered::Row(row)).unwrap();
                    }
                }
            }
        }
    }
}

pub fn open(disk: &Arc<dyn Disk>, descriptor: &Descriptor, table: &Arc<Table>) -> SSTableReader {
    SSTableReader::open(&**disk, descriptor, table, &BlockCache::new(1 << 20)).unwrap()
}

/// What a client sees at a given time: the live cells by partition key and clustering.
pub type Visible = BTreeMap<(Vec<u8>, Vec<u8>), BTreeMap<(usize, Vec<u8>), Vec<u8>>>;

pub fn merged(table: &Arc<Table>, tables: &[Arc<SSTableReader>]) -> MergeCursor<BoxCursor<'static>> {
    let sources = tables.iter().map(|reader| Box::new(reader.scan().unwrap()) as BoxCursor<'static>).collect();
    MergeCursor::new(table, false, sources)
}

pub fn visible(table: &Arc<Table>, tables: &[Arc<SSTableReader>], now_seconds: u32) -> Visible {
    let mut cursor = merged(table, tables);
    let mut all = Visible::new();
    while cursor.advance_partition().unwrap() {
        let key = cursor.partition().key.bytes().to_vec();
        if let Some(row) = cursor.partition().static_row {
            see(table, &key, b"static", row, now_seconds, &mut all);
        }
        while cursor.advance().unwrap() {
            if let Unfiltered::Row(row) = cursor.unfiltered() {
                see(table, &key, row.clustering, row.row, now_seconds, &mut all);
            }
        }
    }
    all
}

fn see(table: &Table, key: &[u8], clustering: &[u8], row: Row<'_>, now_seconds: u32, all: &mut Visible) {
    if !row.is_live(table, now_seconds) {
        return;
    }
    let seen = all.entry((key.to_vec(), clustering.to_vec())).or_default();
    for (index, data) in row.columns(table) {
        let cells: Vec<Cell<'_>> = match data {
            ColumnData::Simple(cell) => vec![cell],
            ColumnData::Complex(cells) => cells.collect(),
        };
        for cell in cells.iter().filter(|cell| cell.is_live(now_seconds)) {
            seen.insert((index, cell.path.to_vec()), cell.value.to_vec());
        }
    }
}
