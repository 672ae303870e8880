//! Writing whole blocks that bypass the page cache, however much the kernel accepts at a time.

use std::io;

use rustix::io::Errno;

use crate::BLOCK_SIZE;

/// How often a write is retried when less than one block reaches the device.
const SHORT_WRITES_MAX: u32 = 16;

/// Writes all of `bytes`. `write` begins at the given offset in them, and returns how many it wrote. The kernel accepts
/// only whole blocks here: a write that was cut short within a block is repeated from the block's start, a limited
/// number of times if not even one block was written.
pub(super) fn write_whole_blocks(bytes: &[u8], mut write: impl FnMut(usize) -> Result<usize, Errno>) -> io::Result<()> {
    let (mut written, mut attempts) = (0, 0);
    while written < bytes.len() {
        attempts += 1;
        match write(written) {
            Ok(n) if n == bytes.len() - written => return Ok(()),
            Ok(n) if n >= BLOCK_SIZE => (written, attempts) = (written + n - n % BLOCK_SIZE, 0),
            Ok(n) if n == 0 || attempts == SHORT_WRITES_MAX => {
                let text = format!("the device wrote {n} bytes of a block of {BLOCK_SIZE}, {attempts} times");
                return Err(io::Error::new(io::ErrorKind::WriteZero, text));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_BLOCKS: [u8; 2 * BLOCK_SIZE] = [7; 2 * BLOCK_SIZE];

    #[test]
    fn a_device_that_never_writes_a_whole_block_is_an_error() {
        let mut calls = 0;
        let written = write_whole_blocks(&TWO_BLOCKS, |_| {
            calls += 1;
            assert!(calls < 1000, "the write does not end");
            Ok(512)
        });
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::WriteZero);
        assert_eq!(calls, SHORT_WRITES_MAX);
    }

    #[test]
    fn a_write_that_is_cut_short_is_continued_at_a_block() {
        let mut begun = Vec::new();
        let mut answers = vec![Err(Errno::INTR), Ok(100), Ok(BLOCK_SIZE + 512), Ok(512), Ok(BLOCK_SIZE)].into_iter();
        let written = write_whole_blocks(&TWO_BLOCKS, |at| {
            begun.push(at);
            answers.next().unwrap()
        });
        written.unwrap();
        assert_eq!(begun, [0, 0, 0, BLOCK_SIZE, BLOCK_SIZE]);
    }
}
