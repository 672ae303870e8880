//! Encoded data to be written to a file.

use blockio::BLOCK_SIZE;

/// Data that was not written yet. Encoders append it to a vector, whose memory may start anywhere, while a device needs
/// memory that starts at a block: a few bytes in front of the data are left unused.
pub(super) struct PendingData {
    bytes: Vec<u8>,
    unused: usize,
    /// The capacity for data.
    room: usize,
    /// The capacity of `bytes`, as long as it did not grow.
    capacity: usize,
}

impl PendingData {
    /// Starts empty. Up to `room` bytes start at a block; if more are appended at a time, they are moved and may start
    /// anywhere.
    pub fn with_room(room: usize) -> Self {
        let mut bytes: Vec<u8> = Vec::with_capacity(room + BLOCK_SIZE);
        let unused = bytes.as_ptr().align_offset(BLOCK_SIZE).min(BLOCK_SIZE);
        bytes.resize(unused, 0);
        PendingData { unused, room, capacity: bytes.capacity(), bytes }
    }

    /// The number of bytes of data.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.unused
    }

    /// The data.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.unused..]
    }

    /// The vector to append data to.
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Removes the first bytes.
    pub fn remove_first(&mut self, count: usize) {
        let rest = self.unused + count..self.bytes.len();
        if self.bytes.capacity() != self.capacity && rest.len() <= self.room {
            let mut anew = PendingData::with_room(self.room);
            anew.bytes.extend_from_slice(&self.bytes[rest]);
            *self = anew;
            return;
        }
        let left = rest.len();
        self.bytes.copy_within(rest, self.unused);
        self.bytes.truncate(self.unused + left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockio::AlignedSlice;

    #[test]
    fn data_starts_at_a_block_again_after_the_buffer_grew() {
        let mut pending = PendingData::with_room(2 * BLOCK_SIZE);
        let mut data = Vec::new();
        for length in [10, BLOCK_SIZE, 3 * BLOCK_SIZE, 5, 40 * BLOCK_SIZE, 2 * BLOCK_SIZE, 1, 0] {
            pending.end().extend((0..length).map(|i| (i * 7 + length) as u8));
            data.extend((0..length).map(|i| (i * 7 + length) as u8));
            assert_eq!((pending.as_slice(), pending.len()), (&data[..], data.len()));
            let whole = data.len() / BLOCK_SIZE * BLOCK_SIZE;
            pending.remove_first(whole);
            data.drain(..whole);
            assert_eq!(pending.as_slice(), data);
            let start = pending.as_slice().as_ptr();
            assert!(start.addr().is_multiple_of(BLOCK_SIZE), "{length}");
            assert!(pending.bytes.capacity() < 4 * BLOCK_SIZE, "memory for large rows is given back");
        }
        assert!(AlignedSlice::new(&pending.as_slice()[..0]).is_some());
    }
}
