//! One merge: reading the inputs through a merge cursor, and writing new SSTables without data that is deleted for
//! good.
//!
//! A merge does not change its inputs; the caller replaces them with the result. If it fails, nothing of its output
//! remains.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use blockio::Disk;
use model::{BoxCursor, LargeRowLimit, MergeCursor, Table, UnfilteredCursor};
use sstable::{
    Cardinality, CommitLogPosition, Descriptor, EncodingBase, PreparedSSTable, SSTableCursor, SSTableError, SSTableId,
    SSTableReader, SSTableWriter, SizeWatch, WriterOptions,
};
use types::{Token, TokenRanges};
use uuid::Uuid;

use crate::purge::{Overlaps, PurgeCursor};
use crate::tombstones::gc_before;

/// The caller is informed after this many bytes of written data, and once per finished table.
const REPORT_BYTES: u64 = 1 << 20;
/// The caller is also informed after this many partitions, so that a merge which writes nothing can be stopped.
const REPORT_PARTITIONS: u64 = 128;

/// Data that is in no table yet: a memtable's contents.
pub struct Newer {
    /// A cursor over all of it.
    pub cursor: BoxCursor<'static>,
    /// The options with which it would be written by itself.
    pub options: WriterOptions,
}

/// The SSTables to merge, and the settings of the merge.
pub struct CompactionInput<'a> {
    /// The disk of inputs and outputs.
    pub disk: &'a Arc<dyn Disk>,
    /// The directory of inputs and outputs.
    pub dir: &'a Path,
    /// The schema under which rows are read and written.
    pub table: &'a Arc<Table>,
    /// The tables to merge.
    pub tables: &'a [Arc<SSTableReader>],
    /// A memtable to flush together with them.
    pub newer: Option<Newer>,
    /// The tokens of the partitions that are written; `None` means all. Other partitions are left out with all their
    /// content, including their tombstones.
    pub kept: Option<&'a TokenRanges>,
    /// Everything else that may have data of the same partitions.
    pub overlaps: &'a dyn Overlaps,
    /// The time, seconds since the epoch.
    pub now_seconds: u32,
    /// Tokens at which the output is split, ascending ([`crate::Strategy::output_boundaries`]).
    pub boundaries: Vec<Token>,
    /// Uncompressed bytes per block of the row index.
    pub column_index_size_bytes: u64,
    /// Whether writes of the outputs bypass the kernel's page cache, and reads of the inputs too if they are not in it.
    pub past_page_cache: bool,
    /// This node's id: log intervals are kept from tables that it wrote, and dropped from others.
    pub host_id: Uuid,
    /// Reports partitions and collections of the outputs that are larger than they should be.
    pub size_watch: Option<SizeWatch>,
    /// The limit on copies of large rows of the inputs. `newer` has its own.
    pub large_rows: LargeRowLimit,
    /// Makes the id of each output.
    pub new_id: &'a mut dyn FnMut() -> SSTableId,
    /// Receives the progress. It may block to slow the merge down, or stop it.
    pub progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

/// The progress of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of data written, before compression.
    pub written_bytes: u64,
    /// Partitions written.
    pub partitions: u64,
    /// Rows and markers written.
    pub unfiltereds: u64,
}

/// The result of a merge: tables that are complete and durable but not visible yet ([`sstable::replace_tables`]).
pub struct Compacted {
    /// In token order; empty if nothing was left.
    pub tables: Vec<PreparedSSTable>,
    /// The amount written.
    pub written: Progress,
}

/// The reason why a merge did not finish. Its inputs are unchanged and nothing of the output remains.
#[derive(Debug)]
#[non_exhaustive]
pub enum CompactionError {
    /// An input could not be read or an output not be written.
    SSTable(SSTableError),
    /// The caller stopped it.
    Stopped,
}

impl fmt::Display for CompactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompactionError::SSTable(error) => error.fmt(f),
            CompactionError::Stopped => f.write_str("the compaction was stopped"),
        }
    }
}

impl std::error::Error for CompactionError {}

impl From<SSTableError> for CompactionError {
    fn from(error: SSTableError) -> Self {
        CompactionError::SSTable(error)
    }
}

impl From<model::ReadError> for CompactionError {
    fn from(error: model::ReadError) -> Self {
        CompactionError::SSTable(error.into())
    }
}

/// Merges tables into new ones, without what is deleted for good.
pub fn compact(mut input: CompactionInput<'_>) -> Result<Compacted, CompactionError> {
    let newer = input.newer.take();
    let options = writer_options(&input, newer.as_ref().map(|newer| &newer.options))?;
    let sources = sources(&input)?;
    let Some(newer) = newer else { return merge(input, options, sources) };
    let stored = sources.into_iter().map(|source| Box::new(source) as BoxCursor<'static>);
    merge(input, options, std::iter::once(newer.cursor).chain(stored).collect())
}

fn merge<C: UnfilteredCursor>(
    mut input: CompactionInput<'_>,
    options: WriterOptions,
    sources: Vec<C>,
) -> Result<Compacted, CompactionError> {
    let gc_before = gc_before(&input.table.options, input.now_seconds);
    let mut merged = MergeCursor::new(input.table, false, sources);
    merged.limit_large_rows(input.large_rows.clone());
    let mut cursor = PurgeCursor::new(merged, input.now_seconds, gc_before, input.overlaps);
    cursor.expect_stored();
    let kept = input.kept;
    let mut output = Output::new(&mut input, options);
    for partitions in 0_u64.. {
        if !cursor.advance_partition()? {
            break;
        }
        if partitions.is_multiple_of(REPORT_PARTITIONS) {
            output.report_progress()?;
        }
        let head = cursor.partition();
        let token = head.key.token();
        if kept.is_some_and(|kept| !kept.contains(token)) {
            continue;
        }
        output.go_to(token)?;
        let mut begun = !head.deletion.is_live() || head.static_row.is_some();
        if begun {
            output.writer()?.begin_partition(&head)?;
        }
        while cursor.advance()? {
            if !std::mem::replace(&mut begun, true) {
                output.writer()?.begin_partition(&cursor.partition())?;
            }
            match cursor.stored() {
                Some(row) => output.writer()?.add_stored(&row)?,
                None => output.writer()?.add(&cursor.unfiltered())?,
            }
            output.written.unfiltereds += 1;
            output.report()?;
        }
        if begun {
            output.writer()?.end_partition()?;
            output.written.partitions += 1;
            output.report()?;
        }
    }
    output.close()?;
    Ok(Compacted { tables: output.done, written: output.written })
}

fn sources(input: &CompactionInput<'_>) -> Result<Vec<SSTableCursor>, CompactionError> {
    let scan = |reader: &SSTableReader| match input.past_page_cache {
        true => reader.scan_for_merge(&**input.disk),
        false => reader.scan(),
    };
    let open = |reader: &Arc<SSTableReader>| -> Result<SSTableCursor, CompactionError> {
        let mut cursor = match Arc::ptr_eq(reader.table(), input.table) {
            true => scan(reader)?,
            false => scan(&reader.with_table(input.table)?)?,
        };
        cursor.limit_large_rows(input.large_rows.clone());
        Ok(cursor)
    };
    input.tables.iter().map(open).collect()
}

/// Writer options that fit the inputs.
fn writer_options(
    input: &CompactionInput<'_>,
    newer: Option<&WriterOptions>,
) -> Result<WriterOptions, CompactionError> {
    let mut options = WriterOptions::for_table(input.table)?;
    let statistics = || input.tables.iter().map(|reader| reader.statistics());
    let mut cardinality = Cardinality::default();
    statistics().for_each(|statistics| cardinality.merge(&statistics.cardinality));
    let partitions: u64 = input.tables.iter().map(|reader| reader.partition_count()).sum();
    let newer_partitions = newer.map_or(0, |newer| newer.estimated_partitions);
    options.estimated_partitions = (cardinality.estimate().min(partitions) + newer_partitions).max(1);
    options.column_index_size_bytes = input.column_index_size_bytes;
    options.past_page_cache = input.past_page_cache;
    options.size_watch.clone_from(&input.size_watch);
    options.large_rows = input.large_rows.clone();
    let bases = statistics().map(|statistics| statistics.header.base);
    options.base = encoding_base(bases.chain(newer.map(|newer| newer.base)));
    for (is_static, included) in [(true, &mut options.statics), (false, &mut options.regulars)] {
        let columns = &input.table.columns(is_static).columns;
        let of_newer = newer.map_or(&[] as &[usize], |newer| if is_static { &newer.statics } else { &newer.regulars });
        included.retain(|index| {
            of_newer.contains(index)
                || statistics().any(|statistics| {
                    let header = &statistics.header;
                    let listed = if is_static { &header.statics } else { &header.regulars };
                    columns.get(*index).is_some_and(|column| listed.iter().any(|other| *other.name == *column.name))
                })
        });
    }
    let own = statistics().map(|s| &s.stats).filter(|stats| stats.originating_host_id == Some(input.host_id));
    let stored = own.flat_map(|stats| stats.commit_log_intervals.iter().copied());
    let of_newer = newer.iter().flat_map(|newer| newer.commit_log_intervals.iter().copied());
    options.commit_log_intervals = join_intervals(stored.chain(of_newer));
    options.originating_host_id = Some(input.host_id);
    let repaired_at = statistics().map(|statistics| statistics.stats.repaired_at);
    options.repaired_at = repaired_at.chain(newer.map(|newer| newer.repaired_at)).min().unwrap_or(0);
    options.has_legacy_counter_shards = statistics().any(|statistics| statistics.stats.has_legacy_counter_shards);
    Ok(options)
}

fn encoding_base(bases: impl Iterator<Item = EncodingBase>) -> EncodingBase {
    let least = |a: EncodingBase, b: EncodingBase| EncodingBase {
        timestamp: a.timestamp.min(b.timestamp),
        local_deletion_time: a.local_deletion_time.min(b.local_deletion_time),
        ttl: a.ttl.min(b.ttl),
    };
    bases.reduce(least).unwrap_or_default()
}

/// The union of intervals, those that touch joined.
fn join_intervals(
    intervals: impl Iterator<Item = (CommitLogPosition, CommitLogPosition)>,
) -> Vec<(CommitLogPosition, CommitLogPosition)> {
    let mut sorted: Vec<_> = intervals.collect();
    sorted.sort_unstable();
    let mut joined: Vec<(CommitLogPosition, CommitLogPosition)> = Vec::with_capacity(sorted.len());
    for (start, end) in sorted {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// The tables being written, one after another.
struct Output<'i, 'a> {
    input: &'i mut CompactionInput<'a>,
    options: WriterOptions,
    writer: Option<SSTableWriter>,
    /// Boundaries passed.
    passed: usize,
    done: Vec<PreparedSSTable>,
    /// Bytes in finished tables.
    finished_bytes: u64,
    reported_bytes: u64,
    written: Progress,
}

impl<'i, 'a> Output<'i, 'a> {
    fn new(input: &'i mut CompactionInput<'a>, options: WriterOptions) -> Self {
        let shards = input.boundaries.len() as u64 + 1;
        let estimated_partitions = options.estimated_partitions.div_ceil(shards);
        Output {
            input,
            options: WriterOptions { estimated_partitions, ..options },
            writer: None,
            passed: 0,
            done: Vec::new(),
            finished_bytes: 0,
            reported_bytes: 0,
            written: Progress::default(),
        }
    }

    /// Ends the current table if the token lies after its boundary.
    fn go_to(&mut self, token: Token) -> Result<(), CompactionError> {
        let passed = self.input.boundaries.partition_point(|boundary| *boundary < token);
        if passed != self.passed {
            self.close()?;
            self.passed = passed;
        }
        Ok(())
    }

    #[inline]
    fn writer(&mut self) -> Result<&mut SSTableWriter, CompactionError> {
        if self.writer.is_none() {
            self.create_writer()?;
        }
        Ok(self.writer.as_mut().expect("created above"))
    }

    #[cold]
    #[inline(never)]
    fn create_writer(&mut self) -> Result<(), CompactionError> {
        let descriptor = Descriptor::new(self.input.dir, (self.input.new_id)());
        let writer = SSTableWriter::create(self.input.disk, &descriptor, self.input.table, self.options.clone())?;
        self.writer = Some(writer);
        Ok(())
    }

    fn close(&mut self) -> Result<(), CompactionError> {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        self.finished_bytes += writer.data_length_bytes();
        self.done.extend(writer.prepare()?);
        self.written.written_bytes = self.finished_bytes;
        self.report_progress()
    }

    /// Informs the caller at intervals.
    fn report(&mut self) -> Result<(), CompactionError> {
        let bytes = self.finished_bytes + self.writer.as_ref().map_or(0, SSTableWriter::data_length_bytes);
        self.written.written_bytes = bytes;
        if bytes - self.reported_bytes < REPORT_BYTES {
            return Ok(());
        }
        self.reported_bytes = bytes;
        self.report_progress()
    }

    fn report_progress(&mut self) -> Result<(), CompactionError> {
        match (self.input.progress)(self.written) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CompactionError::Stopped),
        }
    }
}
