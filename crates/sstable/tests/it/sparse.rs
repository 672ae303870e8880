//! A disk whose files keep holes for blocks of zeros, so that a file of gigabytes only takes the space of its other
//! data.

use std::path::Path;

use blockio::{AlignedSlice, BlockQueue, BlockWrites, Disk, DiskError, Durability, File, OpenOptions, SystemDisk};

const BLOCK: usize = 4096;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The file systems of this machine, without the writes of zeros. Nothing is made durable.
#[derive(Debug)]
pub struct SparseDisk(SystemDisk);

impl SparseDisk {
    pub fn new() -> SparseDisk {
        SparseDisk(SystemDisk::new())
    }
}

impl Disk for SparseDisk {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Box<dyn File>, DiskError> {
        Ok(Box::new(SparseFile(self.0.open(path, options)?)))
    }

    testkit::pass_to_inner_disk!(0);

    fn sync_dir(&self, _: &Path) -> Result<(), DiskError> {
        Ok(())
    }
}

#[derive(Debug)]
struct SparseFile(Box<dyn File>);

impl File for SparseFile {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        self.0.read_at(buffer, offset)
    }

    /// Files are written front to back and once, so what is left out is a hole.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), DiskError> {
        let end = offset + data.len() as u64;
        let mut run = offset..offset;
        let bytes = |run: &std::ops::Range<u64>| &data[(run.start - offset) as usize..(run.end - offset) as usize];
        while run.end < end {
            let block_end = (run.end / BLOCK as u64 + 1) * BLOCK as u64;
            let block = run.end..block_end.min(end);
            let length = (block.end - block.start) as usize;
            if bytes(&block) == &ZEROS[..length] {
                self.0.write_at(bytes(&run), run.start)?;
                run = block.end..block.end;
            } else {
                run.end = block.end;
            }
        }
        match run.is_empty() {
            true => self.0.set_len(end),
            false => self.0.write_at(bytes(&run), run.start),
        }
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.0.len()
    }

    fn set_len(&self, length: u64) -> Result<(), DiskError> {
        self.0.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<(), DiskError> {
        self.0.allocate(offset, length)
    }

    fn write_blocks(&self, blocks: AlignedSlice<'_>, offset: u64, durability: Durability) -> Result<(), DiskError> {
        self.0.write_blocks(blocks, offset, durability)
    }

    fn block_queue(&self) -> Result<Box<dyn BlockQueue>, DiskError> {
        self.0.block_queue()
    }

    fn block_writes(&self) -> BlockWrites {
        self.0.block_writes()
    }
}
