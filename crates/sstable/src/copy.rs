//! Copies of tables under other names: what comes from elsewhere and what goes there. The rows stay as they are; what a
//! table knows of the node that wrote it does not come along.

use std::sync::Arc;

use blockio::{Disk, OpenOptions};
use uuid::Uuid;

use crate::descriptor::{Component, Descriptor};
use crate::error::SSTableError;
use crate::page_checksums::{PageChecksums, PageHasher};
use crate::reader::read_statistics;
use crate::stats::CommitLogPosition;

/// Bytes copied at a time.
const COPY_BYTES: usize = 256 * 1024;

/// What holds rows and indexes; Statistics.db, Checksums.db and TOC.txt are made anew.
const COPIED: [Component; 7] = [
    Component::Crc,
    Component::CompressionInfo,
    Component::Data,
    Component::Digest,
    Component::Filter,
    Component::Partitions,
    Component::Rows,
];

/// A copy whose files are durable under temporary names. Dropped before [`TableCopy::finish`], it removes them.
pub struct TableCopy {
    disk: Arc<dyn Disk>,
    source: Descriptor,
    target: Descriptor,
    written: Vec<Component>,
    checksums: PageChecksums,
    finished: bool,
}

impl TableCopy {
    /// Copies the table `source`, which the caller has verified, to `target`.
    pub fn new(disk: &Arc<dyn Disk>, source: &Descriptor, target: &Descriptor) -> Result<Self, SSTableError> {
        let mut copy = TableCopy {
            disk: disk.clone(),
            source: source.clone(),
            target: target.clone(),
            written: Vec::new(),
            checksums: PageChecksums::default(),
            finished: false,
        };
        for component in COPIED {
            if disk.exists(&source.path(component))? {
                copy.component(component)?;
            }
        }
        Ok(copy)
    }

    fn component(&mut self, component: Component) -> Result<(), SSTableError> {
        let from = self.disk.open(&self.source.path(component), OpenOptions::read())?;
        let to = self.disk.open(&self.target.temporary_path(component), OpenOptions::create())?;
        self.written.push(component);
        let mut hasher = PageHasher::default();
        let mut buffer = vec![0; COPY_BYTES];
        let mut position = 0;
        loop {
            let read = from.read_at(&mut buffer, position)?;
            if read == 0 {
                break;
            }
            to.write_at(&buffer[..read], position)?;
            hasher.update(&buffer[..read]);
            position += read as u64;
        }
        to.sync_data()?;
        let mut checksums = hasher.finish();
        match component {
            Component::Digest => return Ok(()),
            Component::Data => checksums.crcs.clear(),
            _ => {}
        }
        self.checksums.add(component, checksums);
        Ok(())
    }

    fn write_file(&mut self, component: Component, bytes: &[u8]) -> Result<(), SSTableError> {
        let file = self.disk.open(&self.target.temporary_path(component), OpenOptions::create())?;
        self.written.push(component);
        file.write_at(bytes, 0)?;
        Ok(file.sync_data()?)
    }

    /// Makes the copy a table of the node `host_id`: it covers nothing of that node's log, and stands where the log was at
    /// `position`. Visible when this returns.
    pub fn finish(mut self, host_id: Uuid, position: CommitLogPosition) -> Result<Descriptor, SSTableError> {
        let checksums = self.checksums.encode();
        self.write_file(Component::Checksums, &checksums)?;
        self.complete(Some(host_id), vec![(position, position)])
    }

    /// Makes the copy a table of no node, with Cassandra's components only. Visible when this returns.
    pub fn finish_for_cassandra(self) -> Result<Descriptor, SSTableError> {
        self.complete(None, Vec::new())
    }

    fn complete(
        mut self,
        host_id: Option<Uuid>,
        intervals: Vec<(CommitLogPosition, CommitLogPosition)>,
    ) -> Result<Descriptor, SSTableError> {
        let mut statistics = read_statistics(&*self.disk, &self.source)?;
        statistics.stats.originating_host_id = host_id;
        statistics.stats.commit_log_intervals = intervals;
        statistics.stats.sstable_level = 0;
        self.write_file(Component::Statistics, &statistics.encode()?)?;
        let mut names: Vec<&str> = self.written.iter().map(|component| component.name()).collect();
        names.push(Component::Toc.name());
        names.sort_unstable();
        let toc: String = names.iter().flat_map(|name| [name, "\n"]).collect();
        self.write_file(Component::Toc, toc.as_bytes())?;
        self.rename()?;
        self.finished = true;
        Ok(self.target.clone())
    }

    /// TOC.txt last: with it the table exists.
    fn rename(&self) -> Result<(), SSTableError> {
        let rename = |component| self.disk.rename(&self.target.temporary_path(component), &self.target.path(component));
        for component in self.written.iter().filter(|component| **component != Component::Toc) {
            rename(*component)?;
        }
        self.disk.sync_dir(&self.target.dir)?;
        rename(Component::Toc)?;
        Ok(self.disk.sync_dir(&self.target.dir)?)
    }
}

impl Drop for TableCopy {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // Best effort: without a TOC.txt what stays behind is a leftover, which the next start removes.
        for component in self.written.iter().rev() {
            let _ = self.disk.remove_file(&self.target.path(*component));
            let _ = self.disk.remove_file(&self.target.temporary_path(*component));
        }
    }
}

/// Whether a table was written with keys of the types that `table` has; the error names the first difference.
pub fn check_key_types(disk: &dyn Disk, descriptor: &Descriptor, table: &model::Table) -> Result<(), SSTableError> {
    let header = read_statistics(disk, descriptor)?.header;
    let expected = crate::writer::WriterOptions::for_table(table)?.header(table);
    let pairs = std::iter::once((&header.key_class, &expected.key_class))
        .chain(header.clustering_classes.iter().zip(&expected.clustering_classes));
    let differing = pairs.into_iter().find(|(theirs, ours)| theirs != ours);
    if differing.is_none() && header.clustering_classes.len() == expected.clustering_classes.len() {
        return Ok(());
    }
    let what = match differing {
        Some((theirs, ours)) => format!("a key of type {theirs}, where table {} has {ours},", table.name),
        None => format!("{} clustering columns, unlike table {},", header.clustering_classes.len(), table.name),
    };
    Err(SSTableError::Unsupported { file: descriptor.file_name(Component::Statistics), what })
}
