//! Whether SSTables go past the kernel's page cache.

use std::path::Path;

use blockio::{AlignedBuffer, BLOCK_SIZE, BlockWrites, Disk, DiskError, Durability, OpenOptions};

/// What of SSTables goes past the kernel's page cache (`disk_access_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskAccess {
    /// What is written, and what a merge reads that the page cache lacks (`auto`).
    #[default]
    DirectWrites,
    /// All (`direct`).
    Direct,
    /// Nothing (`standard`, and `mmap`, where nothing is mapped).
    Buffered,
}

impl DiskAccess {
    /// Whether reads go past it.
    pub(crate) fn reads_directly(self) -> bool {
        self == DiskAccess::Direct
    }

    /// How SSTables below `directory` are to be written.
    pub(crate) fn writes(self, disk: &dyn Disk, directory: &Path) -> BlockWrites {
        match self {
            DiskAccess::Buffered => BlockWrites::Buffered { reason: "disk_access_mode says so".into() },
            // What fails here need not fail where it counts, and each file goes through the page cache by itself where
            // it has to.
            _ => probe(disk, &directory.join(PROBE)).unwrap_or(BlockWrites::Direct),
        }
    }
}

/// A file that is there for a moment at each start.
const PROBE: &str = "direct-writes";

/// How a block written to a file goes.
fn probe(disk: &dyn Disk, path: &Path) -> Result<BlockWrites, DiskError> {
    let file = disk.open(path, OpenOptions::create().blocks())?;
    let written = file.write_blocks(AlignedBuffer::new(BLOCK_SIZE).all_blocks(), 0, Durability::AtNextSync);
    let writes = file.block_writes();
    disk.remove_file(path)?;
    written.map(|()| writes)
}
