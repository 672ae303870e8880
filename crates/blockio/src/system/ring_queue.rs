//! Block writes by io_uring.
//!
//! Invariants on which the unsafe code rests:
//! 1. The memory of a write in the kernel is a [`Frame`] kept in `writes` under the number that the kernel was given;
//!    it is taken out only when the kernel has answered that number. No one changes a frame's memory, and it does not
//!    move.
//! 2. `counter` is boxed, so that it does not move with the queue; the kernel has its address while `listening`.
//! 3. Dropping the queue waits until the kernel has answered everything; if that is impossible, the memory is leaked.
//! 4. File descriptors given to the kernel are open as long as the queue.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{mem, thread};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::event::EventfdFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::SystemFile;
use crate::queue::{BlockQueue, CompletedWrite, QueueMeans, QueueWaker};
use crate::sleeper::Sleeper;
use crate::{BLOCK_SIZE, DiskError, Durability, File, Frame};

/// The most writes in the kernel at a time; further ones wait in `submit`.
const DEPTH: u32 = 64;
/// The number under which the wake-up counter is read.
const WAKE_UP: u64 = u64::MAX;
/// How long to wait for a kernel that is short of memory and returns no answer meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// The queue that the module's text describes.
pub(super) struct RingQueue {
    ring: IoUring,
    file: SystemFile,
    direct: OwnedFd,
    writes: Vec<Option<Write>>,
    in_flight: usize,
    done: Vec<CompletedWrite>,
    sleeper: Arc<Sleeper>,
    counter: Box<[u8; 8]>,
    listening: bool,
    patience: Patience,
}

/// Limits how long requests are retried while the kernel has no room for them. It may have room soon.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// When it was first refused, with no answer since.
    refused_since: Option<Instant>,
}

impl Patience {
    /// Records a refusal at `now`. Returns true if refusals have gone on for too long.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        now.saturating_duration_since(*self.refused_since.get_or_insert(now)) > PATIENCE
    }

    /// Records that the kernel answered something.
    fn answered(&mut self) {
        self.refused_since = None;
    }
}

#[derive(Debug)]
struct Write {
    frame: Frame,
    offset: u64,
    durability: Durability,
}

impl RingQueue {
    /// A queue on `file`; the error says why there can be none.
    pub fn new(file: SystemFile) -> Result<RingQueue, (SystemFile, String)> {
        let Some(direct) = file.direct() else { return Err((file, "writes go through the page cache".into())) };
        let direct = match direct.try_clone() {
            Ok(direct) => OwnedFd::from(direct),
            Err(error) => return Err((file, error.to_string())),
        };
        let made = ring().and_then(|ring| Ok((ring, rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?)));
        match made {
            Ok((ring, event)) => Ok(RingQueue {
                ring,
                file,
                direct,
                writes: (0..DEPTH).map(|_| None).collect(),
                in_flight: 0,
                done: Vec::new(),
                sleeper: Arc::new(Sleeper::new(event)),
                counter: Box::new([0; 8]),
                listening: false,
                patience: Patience::default(),
            }),
            Err(error) => Err((file, format!("io_uring is refused here: {error}"))),
        }
    }

    /// Takes the kernel's answers, without a system call.
    fn reap(&mut self) {
        loop {
            let entry = self.ring.completion().next();
            let Some(entry) = entry else { return };
            self.patience.answered();
            if entry.user_data() == WAKE_UP {
                self.listening = false;
                continue;
            }
            let number = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            if let Some(write) = self.writes.get_mut(number).and_then(Option::take) {
                let result = self.complete(&write, entry.result());
                self.done.push(CompletedWrite { frame: write.frame, offset: write.offset, result });
            }
        }
    }

    /// Completes a write that the kernel has answered. A write that the kernel refused or cut short is repeated as a
    /// whole by plain system calls, which handle these cases. The count of a short write says nothing about its bytes:
    /// the kernel has then continued the write itself, and where a file system has cut its buffered rest short too
    /// (FUSE), the kernel has left bytes out and has written those after them too early in the file.
    fn complete(&self, write: &Write, answer: i32) -> Result<(), DiskError> {
        let blocks = write.frame.blocks();
        match usize::try_from(answer) {
            Ok(written) if written == blocks.len() => return Ok(()),
            Ok(_) => {}
            Err(_) => match Errno::from_raw_os_error(answer.saturating_neg()) {
                Errno::INVAL | Errno::OPNOTSUPP | Errno::INTR | Errno::AGAIN => {}
                errno => return Err(self.file.error("write blocks", Some(write.offset), errno.into())),
            },
        }
        self.file.write_blocks(blocks, write.offset, write.durability)
    }

    /// Puts an entry into the kernel's queue, making room if there is none.
    fn push(&mut self, entry: &squeue::Entry) -> Result<(), std::io::Error> {
        loop {
            // SAFETY: the memory and descriptors that `entry` names stay as they are until it is answered: by 1 and 4
            // for writes, by 2 and 4 for the counter.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    fn listen(&mut self) {
        if self.listening {
            return;
        }
        let read = opcode::Read::new(Fd(self.sleeper.event().as_raw_fd()), self.counter.as_mut_ptr(), 8);
        self.listening = self.push(&read.build().user_data(WAKE_UP)).is_ok();
    }

    /// Waits for at least one answer.
    fn enter(&mut self, until: Option<Instant>) -> Result<(), std::io::Error> {
        let submitter = self.ring.submitter();
        let entered = match until {
            None => submitter.submit_and_wait(1),
            Some(until) => {
                let time = Timespec::from(until.saturating_duration_since(Instant::now()));
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        let Err(error) = entered else {
            self.patience.answered();
            return Ok(());
        };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::TIME | Errno::INTR) => {
                self.patience.answered();
                Ok(())
            }
            Some(Errno::BUSY | Errno::AGAIN) => self.refused(error),
            _ => Err(error),
        }
    }

    /// Handles a kernel that has no room for a request: it may have some soon.
    fn refused(&mut self, error: std::io::Error) -> Result<(), std::io::Error> {
        if self.patience.is_over(Instant::now()) {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    /// Writes without the ring.
    fn write_now(&mut self, write: Write) {
        let result = self.file.write_blocks(write.frame.blocks(), write.offset, write.durability);
        self.done.push(CompletedWrite { frame: write.frame, offset: write.offset, result });
    }
}

/// A ring for this thread alone; older kernels only have the ordinary kind.
fn ring() -> std::io::Result<IoUring> {
    let own = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(DEPTH + 1);
    own.or_else(|_| IoUring::new(DEPTH + 1))
}

impl BlockQueue for RingQueue {
    fn submit(&mut self, frame: Frame, offset: u64, durability: Durability) {
        let write = Write { frame, offset, durability };
        self.in_flight += 1;
        let length = u32::try_from(write.frame.blocks().len());
        let (Ok(length), true) = (length, offset.is_multiple_of(BLOCK_SIZE as u64) && self.file.is_direct()) else {
            return self.write_now(write);
        };
        while self.writes.iter().all(Option::is_some) && self.enter(None).is_ok() {
            self.reap();
        }
        let Some(number) = self.writes.iter().position(Option::is_none) else { return self.write_now(write) };
        let flags = match durability {
            Durability::Durable => ReadWriteFlags::DSYNC.bits() as i32,
            Durability::AtNextSync => 0,
        };
        let entry = opcode::Write::new(Fd(self.direct.as_raw_fd()), write.frame.blocks().bytes().as_ptr(), length);
        let entry = entry.offset(offset).rw_flags(flags).build().user_data(number as u64);
        if let Some(slot) = self.writes.get_mut(number) {
            *slot = Some(write);
        }
        if self.push(&entry).is_err() {
            // The kernel never saw it.
            if let Some(write) = self.writes.get_mut(number).and_then(Option::take) {
                self.write_now(write);
            }
        }
    }

    /// Writes by a plain system call: one sleep instead of several, and no kernel thread in between.
    fn submit_alone(&mut self, frame: Frame, offset: u64, durability: Durability) {
        if self.in_flight > 0 || !self.file.is_direct() {
            return self.submit(frame, offset, durability);
        }
        self.in_flight += 1;
        self.write_now(Write { frame, offset, durability });
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn next_written(&mut self) -> Option<CompletedWrite> {
        self.reap();
        let written = self.done.pop()?;
        self.in_flight -= 1;
        Some(written)
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), DiskError> {
        self.reap();
        let sleeper = Arc::clone(&self.sleeper);
        if self.in_flight == 0 {
            sleeper.park(until);
            return Ok(());
        }
        if self.done.is_empty() {
            let entered = sleeper.in_ring(|| {
                self.listen();
                self.enter(until)
            });
            self.reap();
            if let (Some(Err(error)), true) = (entered, self.done.is_empty()) {
                // The ring itself does not work: the outcome of its writes cannot be learnt.
                return Err(self.file.error("wait for writes of", None, error));
            }
        }
        // Submitted writes must not wait for the next call, whose error is reported.
        if !self.ring.submission().is_empty() {
            let _ = self.ring.submit();
        }
        self.reap();
        Ok(())
    }

    fn waker(&self) -> QueueWaker {
        QueueWaker::sleeper(Arc::clone(&self.sleeper))
    }

    fn means(&self) -> QueueMeans {
        QueueMeans::Ring
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        self.sleeper.wake_ring();
        while self.listening || self.writes.iter().any(Option::is_some) {
            if self.enter(None).is_err() {
                // The kernel may still read this memory, or write to it.
                mem::forget(mem::take(&mut self.writes));
                mem::forget(mem::take(&mut self.counter));
                return;
            }
            self.reap();
        }
    }
}

impl std::fmt::Debug for RingQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingQueue({} in flight on {:?})", self.in_flight, self.file.path())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::FromRawFd;

    use super::*;
    use crate::system::SystemDisk;
    use crate::{BlockRing, Disk, FilledBatch, OpenOptions};

    #[test]
    fn a_full_kernel_queue_fails_after_ten_seconds_without_a_completion() {
        let (start, mut patience) = (Instant::now(), Patience::default());
        let at = |millis| start + Duration::from_millis(millis);
        assert!(!patience.is_over(at(0)) && !patience.is_over(at(5_000)) && !patience.is_over(at(10_000)));
        assert!(patience.is_over(at(10_001)));
        patience.answered();
        assert!(!patience.is_over(at(20_000)), "an answer came meanwhile");
        assert!(!patience.is_over(at(30_000)) && patience.is_over(at(30_001)));
    }

    /// A filled batch of this many blocks, whose bytes are 7.
    fn batch(blocks: usize) -> Arc<FilledBatch> {
        let memory = Arc::new(BlockRing::new(blocks * BLOCK_SIZE));
        let mut reservation = memory.reserve(|at| Some(at..at + (blocks * BLOCK_SIZE) as u64)).unwrap();
        let range = reservation.range();
        reservation.bytes(range).fill(7);
        drop(reservation);
        memory.seal(|at| at);
        Arc::new(memory.take_sealed().unwrap().filled().unwrap())
    }

    /// As on FUSE, where the second half of a frame of three blocks came 1,024 bytes before its place: the direct write
    /// ended after 6,144 bytes, and the kernel's own buffered one of the rest after 1,024 more.
    #[test]
    fn a_frame_that_was_cut_short_is_written_again_from_its_start() {
        let path = std::env::temp_dir().join(format!("espalier-blockio-short-{}", std::process::id()));
        SystemDisk::new().open(&path, OpenOptions::create()).unwrap();
        let file = SystemDisk::new().open_file(&path, OpenOptions::write().blocks()).unwrap();
        let batch = batch(3);
        let length = 3 * BLOCK_SIZE;
        if let Ok(queue) = RingQueue::new(file) {
            for answer in [1024, 2 * BLOCK_SIZE, length - 1024] {
                fs::write(&path, vec![1; length]).unwrap();
                let write =
                    Write { frame: batch.frame(0..length as u64), offset: 0, durability: Durability::AtNextSync };
                queue.complete(&write, answer as i32).unwrap();
                assert!(fs::read(&path).unwrap() == [7; 3 * BLOCK_SIZE], "after {answer} bytes");
            }
        }
        fs::remove_file(path).unwrap();
    }

    /// The kernel refuses the ring's descriptor: another file has taken its number.
    #[test]
    fn a_broken_ring_is_an_error_and_not_an_endless_wait() {
        let path = std::env::temp_dir().join(format!("espalier-blockio-ring-{}", std::process::id()));
        SystemDisk::new().open(&path, OpenOptions::create()).unwrap();
        let file = SystemDisk::new().open_file(&path, OpenOptions::write().blocks()).unwrap();
        let mut queue = match RingQueue::new(file) {
            Ok(queue) => queue,
            // The ring could not be made, so there is nothing to lose.
            Err(_) => return fs::remove_file(path).unwrap(),
        };
        let batch = batch(1);
        queue.submit(batch.frame(0..BLOCK_SIZE as u64), 0, Durability::Durable);

        // SAFETY: the number is the queue's, which closes it when it is dropped: this owner never does.
        let mut ring = mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(queue.ring.as_raw_fd()) });
        rustix::io::dup2(fs::File::open("/dev/null").unwrap(), &mut ring).unwrap();
        let error = queue.wait(None).unwrap_err();
        assert!(error.to_string().starts_with(&format!("wait for writes of {}: ", path.display())), "{error}");
        assert!(queue.next_written().is_none());
        drop(queue);
        // As far as is known, the kernel may still have the frame.
        assert_eq!(Arc::strong_count(&batch), 2);
        fs::remove_file(path).unwrap();
    }
}
