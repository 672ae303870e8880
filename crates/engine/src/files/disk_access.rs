//! The accesses to SSTables that go past the kernel's page cache.

use std::path::Path;

use blockio::{AlignedBuffer, BLOCK_SIZE, BlockWrites, Disk, DiskError, Durability, OpenOptions};

/// The accesses that go past the kernel's page cache (`disk_access_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskAccess {
    /// All writes, and reads by merges of data that is not in the page cache (`auto`).
    #[default]
    DirectWrites,
    /// All reads and writes (`direct`).
    Direct,
    /// None (`standard`, and `mmap`, with which nothing is mapped).
    Buffered,
}

impl DiskAccess {
    /// Whether reads go past the page cache.
    pub(crate) fn reads_directly(self) -> bool {
        self == DiskAccess::Direct
    }

    /// How SSTables below `directory` are written.
    pub(crate) fn writes(self, disk: &dyn Disk, directory: &Path) -> BlockWrites {
        match self {
            DiskAccess::Buffered => BlockWrites::Buffered { reason: "disk_access_mode says so".into() },
            // A failure here may not occur when an SSTable is written, and each file uses the page cache by itself if
            // it must.
            _ => probe(disk, &directory.join(PROBE)).unwrap_or(BlockWrites::Direct),
        }
    }
}

/// The name of a file that exists briefly at each start.
const PROBE: &str = "direct-writes";

/// Returns how a block was written to a file.
fn probe(disk: &dyn Disk, path: &Path) -> Result<BlockWrites, DiskError> {
    let file = disk.open(path, OpenOptions::create().blocks())?;
    let written = file.write_blocks(AlignedBuffer::new(BLOCK_SIZE).all_blocks(), 0, Durability::AtNextSync);
    let writes = file.block_writes();
    disk.remove_file(path)?;
    written.map(|()| writes)
}
