//! The files of a table that is being made: under temporary names until all are durable, then under their own.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, File, OpenOptions};
use uuid::Uuid;

use crate::descriptor::{Component, Descriptor};
use crate::error::SSTableError;
use crate::lifecycle::remove_tables;
use crate::stats::{CommitLogPosition, Statistics};

/// Files under temporary names. Dropped before they have their own, they are removed.
pub(crate) struct NewFiles {
    disk: Arc<dyn Disk>,
    descriptor: Descriptor,
    written: Vec<Component>,
    kept: bool,
}

impl NewFiles {
    /// No file yet of the table `descriptor`.
    pub fn new(disk: &Arc<dyn Disk>, descriptor: &Descriptor) -> Self {
        NewFiles { disk: disk.clone(), descriptor: descriptor.clone(), written: Vec::new(), kept: false }
    }

    /// The table's descriptor.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Opens a component's file, empty.
    pub fn create(&mut self, component: Component) -> Result<Box<dyn File>, SSTableError> {
        self.create_as(component, OpenOptions::create())
    }

    /// Opens a component's file in a way that leaves it empty.
    pub fn create_as(&mut self, component: Component, options: OpenOptions) -> Result<Box<dyn File>, SSTableError> {
        let file = self.disk.open(&self.descriptor.temporary_path(component), options)?;
        if !self.written.contains(&component) {
            self.written.push(component);
        }
        Ok(file)
    }

    /// Writes the whole of a component, durably.
    pub fn write(&mut self, component: Component, bytes: &[u8]) -> Result<(), SSTableError> {
        let file = self.create(component)?;
        file.write_at(bytes, 0)?;
        Ok(file.sync_data()?)
    }

    /// Takes a file that is durable elsewhere in the directory for a component, by another name of it.
    pub fn link(&mut self, component: Component, file: &Path) -> Result<(), SSTableError> {
        self.written.push(component);
        Ok(self.disk.hard_link(file, &self.descriptor.temporary_path(component))?)
    }

    /// Adds Statistics.db and TOC.txt to all other components, which are durable.
    pub fn prepare(mut self, statistics: Statistics, size_on_disk_bytes: u64) -> Result<PreparedSSTable, SSTableError> {
        self.write(Component::Statistics, &statistics.encode()?)?;
        let mut names: Vec<&str> = self.written.iter().map(|component| component.name()).collect();
        names.push(Component::Toc.name());
        names.sort_unstable();
        let toc: String = names.iter().flat_map(|name| [name, "\n"]).collect();
        self.write(Component::Toc, toc.as_bytes())?;
        Ok(PreparedSSTable { files: self, statistics, size_on_disk_bytes })
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // Best effort: what stays behind is ignored by readers and removed at the next start.
        let _ = remove_tables(&*self.disk, &self.descriptor.dir, std::slice::from_ref(&self.descriptor));
    }
}

/// A table whose files are complete and durable under their temporary names. Dropped before [`PreparedSSTable::commit`]
/// it removes them.
pub struct PreparedSSTable {
    files: NewFiles,
    statistics: Statistics,
    size_on_disk_bytes: u64,
}

impl PreparedSSTable {
    /// What Statistics.db says.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Which table this will be.
    pub fn descriptor(&self) -> &Descriptor {
        &self.files.descriptor
    }

    /// Bytes of Data.db.
    pub fn data_size_on_disk_bytes(&self) -> u64 {
        self.size_on_disk_bytes
    }

    /// Makes it a table of the node `host_id`, which covers nothing of that node's log and stands where the log was at
    /// `position`.
    pub fn belong_to(&mut self, host_id: Uuid, position: CommitLogPosition) -> Result<(), SSTableError> {
        let stats = &mut self.statistics.stats;
        stats.originating_host_id = Some(host_id);
        stats.commit_log_intervals = vec![(position, position)];
        self.files.write(Component::Statistics, &self.statistics.encode()?)
    }

    /// Leaves the files to a replacement that may have been decided.
    pub(crate) fn keep(mut self) {
        self.files.kept = true;
    }

    /// Gives the files their names, TOC.txt last, and makes the names durable.
    pub fn commit(mut self) -> Result<Descriptor, SSTableError> {
        let NewFiles { disk, descriptor, written, .. } = &self.files;
        // Whoever finds one of them under its own name must find TOC.txt as well.
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
