//! The only access to the disk.
//!
//! All code that reads or writes files takes a [`Disk`]; nothing else in the code base calls the kernel for data. Every
//! crash test is therefore reproducible from a seed: [`SystemDisk`] is the real disk, and [`SimulatedDisk`] tracks what
//! was not synced and can show what a machine would find after losing power.
//!
//! What is assumed of the medium: a 512-byte sector is written whole or not at all; a larger write may be torn at any
//! sector; nothing is durable before a sync returns; a failed sync may have lost the data it was to write, for good.

mod aligned;
mod background;
mod descriptors;
mod directories;
mod disk;
mod error;
mod overlay;
mod prefetch;
mod primitive;
mod queue;
mod read_ahead;
mod ring;
#[cfg(test)]
#[path = "ring/tests.rs"]
mod ring_tests;
mod simulated;
mod sleeper;
mod system;

pub use aligned::{AlignedBuffer, AlignedSlice, BLOCK_SIZE};
pub use background::{add_niceness, lower_priority, request_short_slices};
pub use descriptors::raise_descriptor_limit;
pub use disk::{BlockWrites, DirectoryEntry, DirectoryLock, Disk, Durability, File, OpenMode, OpenOptions, Space};
pub use error::{DiskError, DiskErrorKind};
pub use overlay::OverlayDisk;
pub use prefetch::prefetch;
pub use queue::{BlockQueue, CompletedWrite, QueueMeans, QueueWaker};
pub use read_ahead::{AsyncBlockRead, BlockRead, ReadAhead};
pub use ring::{BlockRing, FilledBatch, Frame, Reservation, ReserveError, Seal, SealedBatch};
pub use simulated::{Fault, Operation, SimulatedDisk, Stall, StalledReads};
pub use system::SystemDisk;
