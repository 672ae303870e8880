//! SSTables of the format `big`, versions `nb` and `oa`, which a stock Cassandra 4 or 5.0 node writes: found, read in file
//! order, and written again as BTI. Their indexes (Index.db, Summary.db) are not used.

use std::path::Path;
use std::sync::Arc;

use blockio::Disk;
use model::Table;
use uuid::Uuid;

use crate::cache::BlockCache;
use crate::descriptor::{Component, Descriptor, SSTableId};
use crate::error::SSTableError;
use crate::reader::{SSTableReader, read_statistics};
use crate::stats::CommitLogPosition;
use crate::verify::verify_digest;
use crate::writer::{SSTableWriter, WriterOptions};

/// A rewrite reads past the cache.
const CACHE_BYTES: u64 = 1 << 20;

/// The complete `big` tables of a directory (they have a TOC.txt), oldest id first. Versions other than `nb` and `oa` are an
/// error that names the file: there would be rows that nobody reads.
pub fn list_big_tables(disk: &dyn Disk, dir: &Path) -> Result<Vec<Descriptor>, SSTableError> {
    let mut tables = Vec::new();
    for entry in disk.list(dir)?.into_iter().filter(|entry| !entry.is_dir) {
        let Some((version, id)) = big_toc(&entry.name) else { continue };
        match Descriptor::big(dir, id, version) {
            Some(descriptor) => tables.push(descriptor),
            None => {
                let what = format!("version {version} of the format big");
                return Err(SSTableError::Unsupported { file: entry.name.clone(), what });
            }
        }
    }
    tables.sort();
    Ok(tables)
}

/// Version and id of the name of a TOC.txt.
fn big_toc(name: &str) -> Option<(&str, SSTableId)> {
    let mut parts = name.splitn(4, '-');
    let (version, id, format, component) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    (format == "big" && component == Component::Toc.name()).then_some((version, SSTableId::parse(id)?))
}

/// A `big` table, for reading in file order. Its first and last key are not known.
pub fn open_big(disk: &dyn Disk, descriptor: &Descriptor, table: &Arc<Table>) -> Result<SSTableReader, SSTableError> {
    let reader = SSTableReader::open_for_scan(disk, descriptor, table, &BlockCache::new(CACHE_BYTES))?;
    verify_digest(disk, &reader)?;
    Ok(reader)
}

/// Writes a `big` table again as the BTI table `target`, which belongs to the node `host_id`, covers nothing of its log, and
/// stands where that was at `position`. None if there is nothing in it.
pub fn rewrite_big(
    disk: &Arc<dyn Disk>,
    source: &Descriptor,
    table: &Arc<Table>,
    target: &Descriptor,
    host_id: Uuid,
    position: CommitLogPosition,
) -> Result<Option<Descriptor>, SSTableError> {
    let reader = open_big(&**disk, source, table)?;
    let statistics = read_statistics(&**disk, source)?;
    let mut options = WriterOptions::for_table(table)?;
    options.base = statistics.header.base;
    options.estimated_partitions = statistics.cardinality.estimate().max(1);
    options.commit_log_intervals = vec![(position, position)];
    options.originating_host_id = Some(host_id);
    options.has_legacy_counter_shards = statistics.stats.has_legacy_counter_shards;
    let mut writer = SSTableWriter::create(disk, target, table, options)?;
    writer.write_all(&mut reader.scan()?)?;
    writer.finish()
}
