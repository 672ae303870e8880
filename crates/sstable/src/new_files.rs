//! The files of a table that is being written: under temporary names until all are durable, then under their final
//! names.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, File, OpenOptions};
use uuid::Uuid;

use crate::descriptor::{Component, Descriptor};
use crate::error::SSTableError;
use crate::lifecycle::remove_tables;
use crate::stats::{CommitLogPosition, Statistics};

/// Files under temporary names. They are removed if this is dropped before they got their final names.
pub(crate) struct NewFiles {
    disk: Arc<dyn Disk>,
    descriptor: Descriptor,
    written: Vec<Component>,
    kept: bool,
}

impl NewFiles {
    /// Starts without files, for the table `descriptor`.
    pub fn new(disk: &Arc<dyn Disk>, descriptor: &Descriptor) -> Self {
        NewFiles { disk: disk.clone(), descriptor: descriptor.clone(), written: Vec::new(), kept: false }
    }

    /// The table's descriptor.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Opens an empty file for a component.
    pub fn create(&mut self, component: Component) -> Result<Box<dyn File>, SSTableError> {
        self.create_as(component, OpenOptions::create())
    }

    /// Opens a component's file with the given options, which must leave it empty.
    pub fn create_as(&mut self, component: Component, options: OpenOptions) -> Result<Box<dyn File>, SSTableError> {
        let file = self.disk.open(&self.descriptor.temporary_path(component), options)?;
        if !self.written.contains(&component) {
            self.written.push(component);
        }
        Ok(file)
    }

    /// Writes a whole component durably.
    pub fn write(&mut self, component: Component, bytes: &[u8]) -> Result<(), SSTableError> {
        let file = self.create(component)?;
        file.write_at(bytes, 0)?;
        Ok(file.sync_data()?)
    }

    /// Adds a durable file of the same directory as a component, by a hard link.
    pub fn link(&mut self, component: Component, file: &Path) -> Result<(), SSTableError> {
        self.written.push(component);
        Ok(self.disk.hard_link(file, &self.descriptor.temporary_path(component))?)
    }

    /// Adds Statistics.db and TOC.txt to the other components, which are durable.
    pub fn prepare(mut self, statistics: Statistics) -> Result<PreparedSSTable, SSTableError> {
        self.write(Component::Statistics, &statistics.encode()?)?;
        let mut names: Vec<&str> = self.written.iter().map(|component| component.name()).collect();
        names.push(Component::Toc.name());
        names.sort_unstable();
        let toc: String = names.iter().flat_map(|name| [name, "\n"]).collect();
        self.write(Component::Toc, toc.as_bytes())?;
        Ok(PreparedSSTable { files: self, statistics })
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // An error is ignored: readers ignore leftover files, and the next start removes them.
        let _ = remove_tables(&*self.disk, &self.descriptor.dir, std::slice::from_ref(&self.descriptor));
    }
}

/// A table whose files are complete and durable under their temporary names. They are removed if it is dropped before
/// [`PreparedSSTable::commit`].
pub struct PreparedSSTable {
    files: NewFiles,
    statistics: Statistics,
}

impl PreparedSSTable {
    /// The contents of Statistics.db.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The descriptor of the future table.
    pub fn descriptor(&self) -> &Descriptor {
        &self.files.descriptor
    }

    /// Makes it a table of the node `host_id`, which covers nothing of that node's log, as of the log position
    /// `position`.
    pub fn belong_to(&mut self, host_id: Uuid, position: CommitLogPosition) -> Result<(), SSTableError> {
        let stats = &mut self.statistics.stats;
        stats.originating_host_id = Some(host_id);
        stats.commit_log_intervals = vec![(position, position)];
        self.files.write(Component::Statistics, &self.statistics.encode()?)
    }

    /// Leaves the files to a replacement that may already be decided.
    pub(crate) fn keep(mut self) {
        self.files.kept = true;
    }

    /// Gives the files their final names, TOC.txt last, and makes the names durable.
    pub fn commit(mut self) -> Result<Descriptor, SSTableError> {
        let NewFiles { disk, descriptor, written, .. } = &self.files;
        // If any of them is found under its final name, TOC.txt must be found as well.
        disk.sync_dir(&descriptor.dir)?;
        let rename = |component| disk.rename(&descriptor.temporary_path(component), &descriptor.path(component));
        for component in written.iter().filter(|component| **component != Component::Toc) {
            rename(*component)?;
        }
        disk.sync_dir(&descriptor.dir)?;
        rename(Component::Toc)?;
        disk.sync_dir(&descriptor.dir)?;
        self.files.kept = true;
        Ok(self.files.descriptor.clone())
    }
}
