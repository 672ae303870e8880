//! Reads by io_uring that bypass the page cache, one in flight at a time.
//!
//! Invariants on which the unsafe code rests:
//! 1. The memory given to the kernel is that of the buffer in `under_way`. No one touches it, it does not move with the
//!    buffer, and the buffer is taken out only when the kernel has answered.
//! 2. Dropping waits until the kernel has answered; if that is impossible, the memory is leaked.
//! 3. The file descriptor given to the kernel is open as long as the ring.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::io::Errno;

use super::ring_queue::Patience;
use super::{SystemFile, is_refusal, page_cache};
use crate::read_ahead::{AsyncBlockRead, BlockRead};
use crate::{BLOCK_SIZE, DiskError};

/// The reader that the module's text describes.
pub(super) struct RingRead {
    ring: IoUring,
    file: SystemFile,
    direct: OwnedFd,
    /// The buffer that the kernel reads into.
    under_way: Option<BlockRead>,
    /// A read through the page cache, done when its result is requested.
    put_off: Option<BlockRead>,
}

impl RingRead {
    /// `None` if the file's reads do not bypass the page cache, or there are no rings.
    pub fn new(file: &SystemFile) -> Option<RingRead> {
        let direct = OwnedFd::from(file.direct()?.try_clone().ok()?);
        // The kernel need not interrupt this thread, which enters the kernel anyway to wait. Older kernels do not know
        // the flag.
        let ring = IoUring::builder().setup_coop_taskrun().build(1).or_else(|_| IoUring::new(1)).ok()?;
        Some(RingRead { ring, file: file.try_clone().ok()?, direct, under_way: None, put_off: None })
    }

    /// Submits a read to the kernel; returns it if the kernel cannot take it.
    fn submit(&mut self, mut read: BlockRead) -> Option<BlockRead> {
        let whole = |number: usize| number.is_multiple_of(BLOCK_SIZE);
        if !whole(read.range.start) || !whole(read.range.end) || !read.offset.is_multiple_of(BLOCK_SIZE as u64) {
            return Some(read);
        }
        let (offset, piece) = (read.offset, read.piece());
        let Ok(length) = u32::try_from(piece.len()) else { return Some(read) };
        let entry = opcode::Read::new(Fd(self.direct.as_raw_fd()), piece.as_mut_ptr(), length).offset(offset).build();
        self.under_way = Some(read);
        // SAFETY: the memory and the descriptor that `entry` names stay as they are until it is answered, by 1 and 3.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            // The kernel never saw it.
            return self.under_way.take();
        }
        // If the kernel does not take the entry now, it takes it when `answer` waits.
        let _ = self.ring.submit();
        None
    }

    /// The kernel's answer to the read in flight.
    fn answer(&mut self) -> io::Result<i32> {
        let mut patience = Patience::default();
        loop {
            if let Some(entry) = self.ring.completion().next() {
                return Ok(entry.result());
            }
            let Err(error) = self.ring.submit_and_wait(1) else { continue };
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INTR) => {}
                // The kernel has no room for the request: it may have some soon.
                Some(Errno::BUSY | Errno::AGAIN) if !patience.is_over(Instant::now()) => {
                    thread::sleep(Duration::from_millis(1));
                }
                _ => return Err(error),
            }
        }
    }

    /// Completes a read that the kernel has answered. A read that the kernel refused or cut short is repeated through
    /// the page cache.
    fn complete(&self, read: &mut BlockRead, answer: i32) -> Result<usize, DiskError> {
        let got = match usize::try_from(answer) {
            Ok(got) => got,
            Err(_) => match io::Error::from_raw_os_error(answer.saturating_neg()) {
                error if is_refusal(&error) => {
                    self.file.refuse_direct("reads", &error);
                    0
                }
                error if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => 0,
                error => return Err(self.file.error("read", Some(read.offset), error)),
            },
        };
        let offset = read.offset + got as u64;
        Ok(got + self.file.read_once_buffered(&mut read.piece()[got..], offset)?)
    }
}

impl AsyncBlockRead for RingRead {
    fn begin(&mut self, read: BlockRead) {
        let is_direct = self.file.direct().is_some();
        self.put_off = match is_direct && !page_cache::has_all(&self.file.file, read.offset, read.range.len()) {
            true => self.submit(read),
            false => Some(read),
        };
    }

    fn finish(&mut self) -> Result<Option<(BlockRead, usize)>, DiskError> {
        if let Some(mut read) = self.put_off.take() {
            let offset = read.offset;
            let got = self.file.read_once_buffered(read.piece(), offset)?;
            return Ok(Some((read, got)));
        }
        let Some(offset) = self.under_way.as_ref().map(|read| read.offset) else { return Ok(None) };
        let answer = self.answer().map_err(|error| {
            // The kernel may still write to this memory.
            mem::forget(self.under_way.take());
            self.file.error("read", Some(offset), error)
        })?;
        let Some(mut read) = self.under_way.take() else { return Ok(None) };
        let got = self.complete(&mut read, answer)?;
        Ok(Some((read, got)))
    }
}

impl Drop for RingRead {
    fn drop(&mut self) {
        if self.under_way.is_some() && self.answer().is_err() {
            mem::forget(self.under_way.take());
        }
    }
}

impl std::fmt::Debug for RingRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingRead({:?})", self.file.path)
    }
}
