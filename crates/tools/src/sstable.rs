//! `espalier sstable dump|verify|metadata|salvage|export`: SSTables of a running or a stopped node, ours or
//! Cassandra's, also of the format `big` (except for `export`). The schema comes from the header of each file.
//! Nothing is locked; only `salvage` and `export` write, into a directory of their own.

mod metadata;

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use blockio::Disk;
use model::Table;
use serde_json::json;
use sstable::{
    BlockCache, Descriptor, DumpError, DumpLayout, DumpOptions, SSTableError, SSTableReader, dump_json, export_table,
    list_all_tables, open_big, read_statistics,
};

pub use metadata::metadata;

use crate::log::Output;

/// Memory for index pages and chunks.
const CACHE_BYTES: u64 = 16 << 20;

/// Why a tool did not complete its task.
#[derive(Debug)]
pub enum SSTableToolError {
    /// There is no SSTable at a path.
    NotASSTable(PathBuf),
    /// An SSTable could not be read or written.
    SSTable(SSTableError),
    /// The output could not be written.
    Output(io::Error),
}

impl fmt::Display for SSTableToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SSTableToolError::NotASSTable(path) => {
                let wanted =
                    "neither a file of a da-*-bti-*, oa-*-big-* or nb-*-big-* SSTable nor a directory with one";
                write!(f, "{}: {wanted}", path.display())
            }
            SSTableToolError::SSTable(error) => error.fmt(f),
            SSTableToolError::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

impl std::error::Error for SSTableToolError {}

impl From<SSTableError> for SSTableToolError {
    fn from(error: SSTableError) -> Self {
        SSTableToolError::SSTable(error)
    }
}

impl From<io::Error> for SSTableToolError {
    fn from(error: io::Error) -> Self {
        SSTableToolError::Output(error)
    }
}

impl From<DumpError> for SSTableToolError {
    fn from(error: DumpError) -> Self {
        match error {
            DumpError::SSTable(error) => error.into(),
            DumpError::Io(error) => error.into(),
        }
    }
}

/// The SSTables that the paths name: the SSTable of a component's file, or all complete ones of a directory.
pub fn find(disk: &dyn Disk, paths: &[PathBuf]) -> Result<Vec<Descriptor>, SSTableToolError> {
    let mut found = Vec::new();
    for path in paths {
        match Descriptor::of_path(path) {
            Some(descriptor) if disk.exists(path).map_err(SSTableError::from)? => found.push(descriptor),
            _ => {
                let tables = match list_all_tables(disk, path) {
                    // The path is not a directory.
                    Err(SSTableError::Disk(_)) => Vec::new(),
                    listed => listed?,
                };
                if tables.is_empty() {
                    return Err(SSTableToolError::NotASSTable(path.clone()));
                }
                found.extend(tables);
            }
        }
    }
    found.dedup();
    Ok(found)
}

/// The schema in the header of an SSTable.
fn schema_of(disk: &dyn Disk, descriptor: &Descriptor) -> Result<Arc<Table>, SSTableError> {
    let (keyspace, name) = names_of(&descriptor.dir);
    let file = descriptor.file_name(sstable::Component::Statistics);
    Ok(Arc::new(read_statistics(disk, descriptor)?.to_table(&file, &keyspace, &name, &[])?))
}

/// Keyspace and table, if the directory is a data directory: `.../<keyspace>/<table>-<id>`.
fn names_of(dir: &Path) -> (String, String) {
    let name = |path: Option<&Path>| path.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let table = name(Some(dir)).unwrap_or_else(|| "table".into());
    let table = table.split_once('-').map_or(table.as_str(), |(table, _)| table).to_owned();
    (name(dir.parent()).unwrap_or_else(|| "keyspace".into()), table)
}

fn now_seconds() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

/// Prints every row of an SSTable as `sstabledump` does, in the given layout.
pub fn dump(
    disk: &dyn Disk,
    descriptor: &Descriptor,
    layout: DumpLayout,
    raw_timestamps: bool,
    out: &mut dyn Write,
) -> Result<(), SSTableToolError> {
    let table = schema_of(disk, descriptor)?;
    let reader = match descriptor.is_big() {
        true => open_big(disk, descriptor, &table)?,
        false => SSTableReader::open(disk, descriptor, &table, &BlockCache::new(CACHE_BYTES))?,
    };
    let options = DumpOptions { now_seconds: now_seconds(), raw_timestamps, layout };
    Ok(dump_json(&reader, options, &mut |text| out.write_all(text.as_bytes()))?)
}

/// Verifies SSTables and prints a line for each. With `extended`, every row and index entry is checked. Returns whether
/// all SSTables are sound.
pub fn verify(
    disk: &dyn Disk,
    descriptors: &[Descriptor],
    extended: bool,
    output: Output,
    out: &mut dyn Write,
) -> Result<bool, SSTableToolError> {
    let mut all_sound = true;
    for descriptor in descriptors {
        let verified =
            schema_of(disk, descriptor).and_then(|table| sstable::verify(disk, descriptor, &table, extended));
        all_sound &= verified.is_ok();
        match (output, verified) {
            (Output::Text, Ok(verified)) if extended => writeln!(
                out,
                "{descriptor}: sound, {} partitions, {} rows, {} range tombstone markers",
                verified.partitions, verified.rows, verified.markers
            )?,
            (Output::Text, Ok(verified)) => writeln!(out, "{descriptor}: sound, {} partitions", verified.partitions)?,
            (Output::Text, Err(error)) => writeln!(out, "{descriptor}: {error}")?,
            (Output::Json, Ok(verified)) => writeln!(
                out,
                "{}",
                json!({
                    "sstable": descriptor.to_string(), "sound": true, "partitions": verified.partitions,
                    "rows": verified.rows, "markers": verified.markers,
                })
            )?,
            (Output::Json, Err(error)) => writeln!(
                out,
                "{}",
                json!({"sstable": descriptor.to_string(), "sound": false, "error": error.to_string()})
            )?,
        }
    }
    Ok(all_sound)
}

/// Writes the sound parts of SSTables into `target` under the same ids, and prints what is lost. Returns whether
/// nothing is lost.
pub fn salvage(
    disk: &Arc<dyn Disk>,
    descriptors: &[Descriptor],
    target: &Path,
    out: &mut dyn Write,
) -> Result<bool, SSTableToolError> {
    disk.create_dir_all(target).map_err(SSTableError::from)?;
    let mut all_saved = true;
    for descriptor in descriptors {
        let saved = Descriptor::new(target, descriptor.id.clone());
        if disk.exists(&saved.path(sstable::Component::Toc)).map_err(SSTableError::from)? {
            writeln!(out, "{saved} is there already: left as it is")?;
            all_saved = false;
            continue;
        }
        let table = schema_of(&**disk, descriptor)?;
        let salvaged = sstable::salvage(disk, descriptor, &table, &saved)?;
        for damage in &salvaged.damaged {
            writeln!(out, "{damage}")?;
        }
        for loss in &salvaged.losses {
            let key = loss.key.as_ref().map_or("unknown".to_owned(), |key| hex(key));
            let (start, end) = (loss.start, loss.end);
            writeln!(out, "lost: bytes {start} to {end} of the data, partition {key}: {}", loss.cause)?;
        }
        let (partitions, rows, lost) = (salvaged.partitions, salvaged.rows, salvaged.losses.len());
        match &salvaged.table {
            Some(table) => writeln!(out, "{table}: {partitions} partitions, {rows} rows saved, {lost} stretches lost")?,
            None => writeln!(out, "{descriptor}: nothing could be saved")?,
        }
        all_saved &= lost == 0 && salvaged.table.is_some();
    }
    Ok(all_saved)
}

/// Verifies SSTables to the last row and copies them into `target` with Cassandra's components only, under the same
/// ids.
pub fn export(
    disk: &Arc<dyn Disk>,
    descriptors: &[Descriptor],
    target: &Path,
    out: &mut dyn Write,
) -> Result<bool, SSTableToolError> {
    if let Some(big) = descriptors.iter().find(|descriptor| descriptor.is_big()) {
        let what = "export of the format big, which is Cassandra's as it is,".into();
        return Err(SSTableError::Unsupported { file: big.to_string(), what }.into());
    }
    disk.create_dir_all(target).map_err(SSTableError::from)?;
    for descriptor in descriptors {
        let table = schema_of(&**disk, descriptor)?;
        let verified = sstable::verify(&**disk, descriptor, &table, true)?;
        let copied = Descriptor::new(target, descriptor.id.clone());
        let copied = export_table(disk, descriptor, &copied)?.commit()?;
        writeln!(out, "{copied}: {} partitions, {} rows", verified.partitions, verified.rows)?;
    }
    Ok(true)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
