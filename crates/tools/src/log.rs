//! `espalier log describe|verify|dump`: the commit log of a running or a stopped node. Nothing is locked or changed.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use blockio::{BLOCK_SIZE, Disk};
use commitlog::{Corruption, Inspected, LogError, LogInspector, Walked};
use serde_json::{Value, json};

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Text for people.
    Text,
    /// One JSON value per line.
    Json,
}

/// Why the output is missing or incomplete.
#[derive(Debug)]
pub enum ToolError {
    /// The log could not be read.
    Log(LogError),
    /// The output could not be written.
    Output(io::Error),
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolError::Log(error) => error.fmt(f),
            ToolError::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

impl std::error::Error for ToolError {}

impl From<LogError> for ToolError {
    fn from(error: LogError) -> ToolError {
        ToolError::Log(error)
    }
}

impl From<io::Error> for ToolError {
    fn from(error: io::Error) -> ToolError {
        ToolError::Output(error)
    }
}

/// The content of a segment.
#[derive(Default)]
struct Contents {
    records: u64,
    data_bytes: u64,
    cut_records: u64,
    /// Records by table.
    tables: BTreeMap<String, u64>,
    damage: Vec<Corruption>,
}

fn contents(log: &LogInspector, segment: &Inspected) -> Contents {
    let mut contents = Contents::default();
    let slot = segment.entry.index;
    for range in &segment.verdict.damaged {
        let expected = format!("block {} of segment {}", range.start, segment.entry.id);
        let got = segment.image.state(range.start).to_string();
        contents.damage.push(log.corruption(slot, range.start * BLOCK_SIZE as u32, expected, got));
    }
    let walked: Result<(), std::convert::Infallible> = segment.walk(|step| {
        match step {
            Walked::Record(record) => {
                contents.records += 1;
                contents.data_bytes += record.data.len() as u64;
                for table in record.tables {
                    *contents.tables.entry(table.to_string()).or_default() += 1;
                }
            }
            Walked::Cut(_) => contents.cut_records += 1,
            Walked::Fault(start, fault) => {
                contents.damage.push(log.corruption(slot, start, "a record", fault.to_string()))
            }
        }
        Ok(())
    });
    let Ok(()) = walked;
    contents
}

/// The blocks of a segment that recovery would replay.
fn sound_blocks(segment: &Inspected) -> u32 {
    segment.verdict.runs.iter().map(|run| run.blocks.end - run.blocks.start).sum()
}

/// Prints the identity of the log in the file or device `path`, and the content of each segment in use.
pub fn describe(disk: &dyn Disk, path: &Path, output: Output, out: &mut dyn Write) -> Result<(), ToolError> {
    let log = LogInspector::open(disk, path)?;
    let superblock = log.superblock();
    let geometry = log.geometry();
    let live = log.live().len();
    let length_bytes = log.length_bytes()?;
    match output {
        Output::Text => {
            writeln!(out, "{}", log.path().display())?;
            writeln!(out, "log {}, host {}", superblock.log_id, superblock.host_id)?;
            writeln!(
                out,
                "{} segments of {} bytes, {live} in use; the file has {length_bytes} bytes",
                geometry.segments, geometry.segment_size_bytes
            )?;
        }
        Output::Json => print(
            out,
            json!({
                "path": log.path().display().to_string(), "log_id": superblock.log_id.to_string(), "host_id": superblock.host_id.to_string(),
                "segments": geometry.segments, "segment_size_bytes": geometry.segment_size_bytes, "segments_in_use": live,
                "length_bytes": length_bytes,
            }),
        )?,
    }
    for segment in log.segments() {
        let segment = segment?;
        let contents = contents(&log, &segment);
        describe_segment(&segment, &contents, output, out)?;
    }
    Ok(())
}

fn describe_segment(
    segment: &Inspected,
    contents: &Contents,
    output: Output,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let entry = segment.entry;
    let blocks = sound_blocks(segment);
    match output {
        Output::Text => {
            let Contents { records, data_bytes, cut_records, damage, .. } = contents;
            let horizon = segment.horizon_blocks;
            writeln!(out, "segment {} (slot {}): {blocks} blocks, {horizon} below the horizon", entry.id, entry.index)?;
            writeln!(
                out,
                "  {records} records, {data_bytes} bytes of data, {cut_records} cut, {} damaged places",
                damage.len()
            )?;
            for (table, records) in &contents.tables {
                writeln!(out, "  table {table}: {records} records")?;
            }
            Ok(())
        }
        Output::Json => print(
            out,
            json!({
                "segment": entry.id, "slot": entry.index, "blocks": blocks, "horizon_blocks": segment.horizon_blocks,
                "records": contents.records, "data_bytes": contents.data_bytes, "cut_records": contents.cut_records,
                "damaged": contents.damage.len(), "tables": contents.tables,
            }),
        ),
    }
}

/// Prints all damage of the log `path`. Returns whether there was none.
pub fn verify(disk: &dyn Disk, path: &Path, output: Output, out: &mut dyn Write) -> Result<bool, ToolError> {
    let log = LogInspector::open(disk, path)?;
    let mut damage = log.damage()?;
    let mut records = 0;
    let mut segments = 0;
    for segment in log.segments() {
        let contents = contents(&log, &segment?);
        damage.extend(contents.damage);
        records += contents.records;
        segments += 1;
    }
    for damage in &damage {
        match output {
            Output::Text => writeln!(out, "{damage}")?,
            Output::Json => print(
                out,
                json!({
                    "path": damage.path.display().to_string(), "offset": damage.offset, "expected": damage.expected, "got": damage.got,
                }),
            )?,
        }
    }
    match output {
        Output::Text => {
            writeln!(out, "{segments} segments in use, {records} sound records, {} damaged places", damage.len())?
        }
        Output::Json => print(out, json!({"segments": segments, "records": records, "damaged": damage.len()}))?,
    }
    Ok(damage.is_empty())
}

/// Prints every sound record of the log `path`: position, tables, and data in hexadecimal.
pub fn dump(disk: &dyn Disk, path: &Path, output: Output, out: &mut dyn Write) -> Result<(), ToolError> {
    let log = LogInspector::open(disk, path)?;
    for segment in log.segments() {
        segment?.walk(|step| match step {
            Walked::Record(record) => dump_record(&record, output, out),
            Walked::Cut(_) | Walked::Fault(..) => Ok(()),
        })?;
    }
    Ok(())
}

fn dump_record(record: &commitlog::Record<'_>, output: Output, out: &mut dyn Write) -> Result<(), ToolError> {
    let tables: Vec<String> = record.tables.iter().map(ToString::to_string).collect();
    let data: String = record.data.iter().map(|byte| format!("{byte:02x}")).collect();
    match output {
        Output::Text => Ok(writeln!(
            out,
            "{} tables [{}] {} bytes 0x{data}",
            record.position,
            tables.join(", "),
            record.data.len()
        )?),
        Output::Json => {
            let position = json!({"segment": record.position.segment, "offset": record.position.offset});
            print(out, json!({"position": position, "tables": tables, "data": format!("0x{data}")}))
        }
    }
}

fn print(out: &mut dyn Write, value: Value) -> Result<(), ToolError> {
    Ok(writeln!(out, "{value}")?)
}
