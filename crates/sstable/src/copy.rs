//! Copies of tables under other names: import and export. The rows stay as they are; what a table knows about the node
//! that wrote it is not copied.

use std::sync::Arc;

use blockio::{Disk, OpenOptions};
use model::Table;

use crate::big::rewrite_big;
use crate::descriptor::{Component, Descriptor};
use crate::error::SSTableError;
use crate::new_files::{NewFiles, PreparedSSTable};
use crate::page_checksums::{PageChecksums, PageHasher};
use crate::reader::read_statistics;
use crate::stats::Statistics;
use crate::verify::verify;

/// Bytes copied at a time.
const COPY_BYTES: usize = 256 * 1024;

/// The components with rows and indexes. Statistics.db, Checksums.db and TOC.txt are not copied: the copy has its own.
const COPIED: [Component; 7] = [
    Component::Crc,
    Component::CompressionInfo,
    Component::Data,
    Component::Digest,
    Component::Filter,
    Component::Partitions,
    Component::Rows,
];

/// Verifies a foreign table to its last row and copies it to `target`; one of the format `big` is rewritten as BTI.
/// `None` if no row remains after that. The copy belongs to no node yet ([`PreparedSSTable::belong_to`]).
///
/// Fails if the table is damaged or does not fit `table`.
pub fn adopt_table(
    disk: &Arc<dyn Disk>,
    source: &Descriptor,
    table: &Arc<Table>,
    target: &Descriptor,
) -> Result<Option<PreparedSSTable>, SSTableError> {
    check_key_types(&**disk, source, table)?;
    verify(&**disk, source, table, true)?;
    match source.is_big() {
        true => rewrite_big(disk, source, table, target),
        false => Copy::of_rows(disk, source, target)?.with_checksums().map(Some),
    }
}

/// Copies a BTI table, which the caller has verified, to `target`, with Cassandra's components only and as a table of
/// no node.
pub fn export_table(
    disk: &Arc<dyn Disk>,
    source: &Descriptor,
    target: &Descriptor,
) -> Result<PreparedSSTable, SSTableError> {
    Copy::of_rows(disk, source, target)?.complete()
}

/// Gives a BTI table the id of `target` in the same directory by hard links: the same rows as a table of no node
/// ([`PreparedSSTable::belong_to`]).
pub fn link_table(
    disk: &Arc<dyn Disk>,
    source: &Descriptor,
    target: &Descriptor,
) -> Result<PreparedSSTable, SSTableError> {
    let mut files = NewFiles::new(disk, target);
    for component in COPIED.into_iter().chain([Component::Checksums]) {
        let path = source.path(component);
        if component == Component::Data || disk.exists(&path)? {
            files.link(component, &path)?;
        }
    }
    files.prepare(statistics_of_no_node(&**disk, source)?)
}

/// A table's statistics, without what it knows about the node that wrote it.
fn statistics_of_no_node(disk: &dyn Disk, source: &Descriptor) -> Result<Statistics, SSTableError> {
    let mut statistics = read_statistics(disk, source)?;
    statistics.stats.originating_host_id = None;
    statistics.stats.commit_log_intervals = Vec::new();
    statistics.stats.sstable_level = 0;
    Ok(statistics)
}

/// A copy of the components with rows and indexes.
struct Copy<'a> {
    disk: &'a dyn Disk,
    source: &'a Descriptor,
    files: NewFiles,
    checksums: PageChecksums,
}

impl<'a> Copy<'a> {
    fn of_rows(disk: &'a Arc<dyn Disk>, source: &'a Descriptor, target: &Descriptor) -> Result<Self, SSTableError> {
        let files = NewFiles::new(disk, target);
        let mut copy = Copy { disk: &**disk, source, files, checksums: PageChecksums::default() };
        for component in COPIED {
            if disk.exists(&source.path(component))? {
                copy.component(component)?;
            }
        }
        Ok(copy)
    }

    fn component(&mut self, component: Component) -> Result<(), SSTableError> {
        let from = self.disk.open(&self.source.path(component), OpenOptions::read())?;
        let to = self.files.create(component)?;
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

    fn with_checksums(mut self) -> Result<PreparedSSTable, SSTableError> {
        self.files.write(Component::Checksums, &self.checksums.encode())?;
        self.complete()
    }

    fn complete(self) -> Result<PreparedSSTable, SSTableError> {
        self.files.prepare(statistics_of_no_node(self.disk, self.source)?)
    }
}

/// Checks that a table was written with keys of the types that `table` has. The error names the first difference.
fn check_key_types(disk: &dyn Disk, descriptor: &Descriptor, table: &Table) -> Result<(), SSTableError> {
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
