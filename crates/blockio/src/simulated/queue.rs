//! Block writes in flight: the device completes them in an order that the seed selects, and a power cut finds each in
//! any state.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::{Choices, SimulatedDisk};
use crate::queue::{BlockQueue, CompletedWrite, QueueMeans, QueueWaker, park};
use crate::{BLOCK_SIZE, DiskError, Durability, Frame};

#[derive(Debug)]
pub(super) struct SimulatedQueue {
    disk: SimulatedDisk,
    inode: usize,
    path: Arc<Path>,
    pending: Vec<PendingWrite>,
    done: Vec<CompletedWrite>,
}

#[derive(Debug)]
struct PendingWrite {
    frame: Frame,
    offset: u64,
    durability: Durability,
    result: Result<(), DiskError>,
}

impl SimulatedQueue {
    pub fn new(disk: SimulatedDisk, inode: usize, path: Arc<Path>) -> SimulatedQueue {
        SimulatedQueue { disk, inode, path, pending: Vec::new(), done: Vec::new() }
    }

    /// One write reaches the device.
    fn finish_one(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let mut state = self.disk.lock();
        let at =
            Choices(state.faults.trace().len() as u64 ^ self.pending.len() as u64).below(self.pending.len() as u64);
        let PendingWrite { frame, offset, durability, mut result } = self.pending.swap_remove(at as usize);
        if state.faults.is_dead() {
            result =
                result.and(Err(DiskError::new("write", &self.path, Some(offset), std::io::ErrorKind::Other.into())));
        } else if result.is_ok() && durability == Durability::Durable {
            state.inodes[self.inode].make_durable(offset, frame.blocks().len());
        }
        self.done.push(CompletedWrite { frame, offset, result });
    }
}

impl BlockQueue for SimulatedQueue {
    fn submit(&mut self, frame: Frame, offset: u64, durability: Durability) {
        // Until it is complete it may be there, or not, or in part.
        let result = if offset.is_multiple_of(BLOCK_SIZE as u64) {
            self.disk.lock().write(self.inode, &self.path, &frame.blocks(), offset, Durability::AtNextSync)
        } else {
            Err(DiskError::new("write blocks", &self.path, Some(offset), std::io::ErrorKind::InvalidInput.into()))
        };
        self.pending.push(PendingWrite { frame, offset, durability, result });
    }

    fn in_flight(&self) -> usize {
        self.pending.len() + self.done.len()
    }

    fn next_written(&mut self) -> Option<CompletedWrite> {
        self.done.pop()
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), DiskError> {
        if self.pending.is_empty() && self.done.is_empty() {
            park(until);
            return Ok(());
        }
        if !self.pending.is_empty() && self.disk.lock().faults.loses_queue() {
            return Err(DiskError::new("wait for writes of", &self.path, None, std::io::ErrorKind::Other.into()));
        }
        self.finish_one();
        Ok(())
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::current_thread()
    }

    fn means(&self) -> QueueMeans {
        QueueMeans::Simulated
    }
}
