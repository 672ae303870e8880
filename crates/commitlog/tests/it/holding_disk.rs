//! A disk that holds the log's frames until the test releases them by number, in order of arrival, and counts them.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use blockio::{
    AlignedSlice, BLOCK_SIZE, BlockQueue, BlockWrites, CompletedWrite, Disk, DiskError, Durability, Fault, File, Frame,
    OpenOptions, QueueMeans, QueueWaker, SimulatedDisk,
};

/// The time after which a waiting test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct HoldingDisk {
    inner: SimulatedDisk,
    frames: Arc<(Mutex<Frames>, Condvar)>,
}

/// Frames with records; prewriting passes through.
#[derive(Debug, Default)]
struct Frames {
    holds: bool,
    /// How many frames came since it began to hold.
    came: usize,
    let_go: Vec<usize>,
    under_way: usize,
    under_way_most: usize,
    sent: usize,
    /// How many of the reported frames the log has processed; it waits for others since.
    looked_at: usize,
    waker: Option<QueueWaker>,
}

impl HoldingDisk {
    pub fn new() -> HoldingDisk {
        HoldingDisk { inner: SimulatedDisk::new(), frames: Arc::default() }
    }

    /// Holds the frames that come from now on.
    pub fn hold(&self) {
        *self.frames.0.lock().unwrap() = Frames { holds: true, ..Frames::default() };
    }

    /// Releases the frame with this number, counted from 0 in order of arrival.
    pub fn let_go(&self, number: usize) {
        self.change(|frames| frames.let_go.push(number));
    }

    /// Releases all frames, now and from now on.
    pub fn let_all_go(&self) {
        self.change(|frames| frames.holds = false);
    }

    fn change(&self, change: impl FnOnce(&mut Frames)) {
        let mut frames = self.frames.0.lock().unwrap();
        change(&mut frames);
        frames.waker.iter().for_each(QueueWaker::wake);
    }

    /// Waits until this many frames have come.
    pub fn wait_for(&self, count: usize) {
        self.wait_until(|frames| frames.came >= count);
    }

    /// Waits until the log has processed the completion of this many frames.
    pub fn wait_until_looked_at(&self, count: usize) {
        self.wait_until(|frames| frames.looked_at >= count);
    }

    fn wait_until(&self, is_so: impl Fn(&Frames) -> bool) {
        let frames = self.frames.0.lock().unwrap();
        let (frames, _) = self.frames.1.wait_timeout_while(frames, GIVE_UP, |frames| !is_so(frames)).unwrap();
        assert!(is_so(&frames), "{frames:?}");
    }

    /// How many frames came since it began to hold.
    pub fn came(&self) -> u64 {
        self.frames.0.lock().unwrap().came as u64
    }

    /// Injects a fault into the next operation of the disk itself.
    pub fn inject(&self, fault: Fault) {
        self.inner.inject(fault, 0);
    }

    /// The most frames in flight at a time since it began to hold.
    pub fn under_way_most(&self) -> usize {
        self.frames.0.lock().unwrap().under_way_most
    }
}

#[derive(Debug)]
struct HoldingFile {
    inner: Box<dyn File>,
    frames: Arc<(Mutex<Frames>, Condvar)>,
}

#[derive(Debug)]
struct HoldingQueue {
    inner: Box<dyn BlockQueue>,
    frames: Arc<(Mutex<Frames>, Condvar)>,
    held: Vec<(usize, Frame, u64, Durability)>,
}

/// Prewritten blocks are zeros; a block of records begins with its checksum.
fn has_records(frame: &Frame) -> bool {
    frame.blocks()[..BLOCK_SIZE].iter().any(|byte| *byte != 0)
}

impl HoldingQueue {
    /// Passes on the released frames.
    fn hand_on(&mut self) {
        let frames = self.frames.0.lock().unwrap();
        let is_let_go = |number: usize| !frames.holds || frames.let_go.contains(&number);
        for (_, frame, offset, durability) in self.held.extract_if(.., |(number, ..)| is_let_go(*number)) {
            self.inner.submit(frame, offset, durability);
        }
    }
}

impl BlockQueue for HoldingQueue {
    fn submit(&mut self, frame: Frame, offset: u64, durability: Durability) {
        if !has_records(&frame) {
            return self.inner.submit(frame, offset, durability);
        }
        let mut frames = self.frames.0.lock().unwrap();
        self.held.push((frames.came, frame, offset, durability));
        frames.came += 1;
        frames.under_way += 1;
        frames.under_way_most = frames.under_way_most.max(frames.under_way);
        drop(frames);
        self.frames.1.notify_all();
        self.hand_on();
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.held.len()
    }

    fn next_written(&mut self) -> Option<CompletedWrite> {
        let written = self.inner.next_written()?;
        if has_records(&written.frame) {
            let mut frames = self.frames.0.lock().unwrap();
            frames.under_way = frames.under_way.saturating_sub(1);
            frames.sent += 1;
        }
        Some(written)
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), DiskError> {
        let mut frames = self.frames.0.lock().unwrap();
        frames.looked_at = frames.sent;
        frames.waker = Some(self.inner.waker());
        drop(frames);
        self.frames.1.notify_all();
        self.hand_on();
        self.inner.wait(until)
    }

    fn waker(&self) -> QueueWaker {
        self.inner.waker()
    }

    fn means(&self) -> QueueMeans {
        self.inner.means()
    }
}

impl File for HoldingFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<(), DiskError> {
        self.inner.write_at(data, offset)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.inner.sync_data()
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.inner.len()
    }

    fn set_len(&self, length: u64) -> Result<(), DiskError> {
        self.inner.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<(), DiskError> {
        self.inner.allocate(offset, length)
    }

    fn write_blocks(&self, blocks: AlignedSlice<'_>, offset: u64, durability: Durability) -> Result<(), DiskError> {
        self.inner.write_blocks(blocks, offset, durability)
    }

    fn block_queue(&self) -> Result<Box<dyn BlockQueue>, DiskError> {
        let (inner, frames) = (self.inner.block_queue()?, Arc::clone(&self.frames));
        Ok(Box::new(HoldingQueue { inner, frames, held: Vec::new() }))
    }

    fn block_writes(&self) -> BlockWrites {
        self.inner.block_writes()
    }
}

impl Disk for HoldingDisk {
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Box<dyn File>, DiskError> {
        let inner = self.inner.open(path, options)?;
        Ok(Box::new(HoldingFile { inner, frames: Arc::clone(&self.frames) }))
    }

    testkit::pass_to_inner_disk!(inner);

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.inner.sync_dir(dir)
    }
}
