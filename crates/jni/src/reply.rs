//! Replies, which are written into a buffer of Java's. Integers are big-endian.
//!
//! ```text
//! reply := i64 handle of what continues the reply (0: nothing), i32 status, i32 length, length bytes
//! ```

/// The bytes of a reply before its content.
const HEAD_BYTES: usize = 16;

/// What a reply is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// There is no such partition.
    Absent = 0,
    /// The content is what was asked for, or a part of it.
    Content = 1,
    /// The content does not fit: the buffer must have `length` bytes for the next call.
    TooSmall = 2,
    /// The content is the text of an error.
    Failed = 3,
    /// The content is the text of an error: the memtable has no room, and the update was not applied.
    Full = 4,
}

/// A reply that is being written.
#[derive(Debug)]
pub struct Reply<'b> {
    buffer: &'b mut [u8],
    length: usize,
}

impl<'b> Reply<'b> {
    /// An empty reply in a buffer. One that is too short for any reply stays as it is.
    pub fn new(buffer: &'b mut [u8]) -> Reply<'b> {
        Reply { buffer, length: 0 }
    }

    fn free_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(HEAD_BYTES + self.length)
    }

    /// Appends as much of the content as there is room for. Returns how many bytes that is.
    pub fn append(&mut self, content: &[u8]) -> usize {
        let length = content.len().min(self.free_bytes());
        let start = HEAD_BYTES + self.length;
        if let Some(place) = self.buffer.get_mut(start..start + length) {
            place.copy_from_slice(&content[..length]);
        }
        self.length += length;
        length
    }

    /// Appends content, if there is room for all of it.
    pub fn push(&mut self, content: &[u8]) -> bool {
        content.len() <= self.free_bytes() && self.append(content) == content.len()
    }

    fn head(&mut self, handle: i64, status: Status, length: usize) {
        if let Some(head) = self.buffer.first_chunk_mut::<HEAD_BYTES>() {
            head[..8].copy_from_slice(&handle.to_be_bytes());
            head[8..12].copy_from_slice(&(status as i32).to_be_bytes());
            head[12..].copy_from_slice(&(length as i32).to_be_bytes());
        }
    }

    /// Ends the reply. `handle` continues it, if it is not 0.
    pub fn finish(&mut self, handle: i64, status: Status) {
        self.head(handle, status, self.length);
    }

    /// Ends a reply whose content needs a buffer for `length` bytes, which the call with `handle` writes.
    pub fn too_small(&mut self, handle: i64, length: usize) {
        self.head(handle, Status::TooSmall, HEAD_BYTES + length);
    }

    /// Ends the reply with an error in place of its content. The text is cut if there is no room.
    pub fn fail(&mut self, status: Status, error: &str) {
        self.length = 0;
        let mut end = error.len().min(self.free_bytes());
        while !error.is_char_boundary(end) {
            end -= 1;
        }
        self.push(&error.as_bytes()[..end]);
        self.head(0, status, self.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_say_what_they_are_and_never_pass_the_end_of_the_buffer() {
        for size in 0..40 {
            let mut buffer = vec![0xee; size];
            let mut reply = Reply::new(&mut buffer);
            let fits = reply.push(&[7; 8]);
            assert_eq!(fits, size >= 24);
            let appended = reply.append(&[8; 3]);
            assert_eq!(appended, size.saturating_sub(if fits { 24 } else { 16 }).min(3));
            reply.finish(5, Status::Content);
            if let Some((head, content)) = buffer.split_first_chunk::<16>() {
                let length = if fits { 8 + appended } else { appended };
                assert_eq!(head, &[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, length as u8]);
                let expected: Vec<u8> = [&[7; 8][..if fits { 8 } else { 0 }], &[8; 3][..appended]].concat();
                assert_eq!(content[..length], expected);
                assert!(content[length..].iter().all(|byte| *byte == 0xee));
            }
            Reply::new(&mut buffer).fail(Status::Failed, "gr\u{fc}n \u{2190} und blau");
            if size >= 16 {
                let length = usize::from(buffer[15]);
                let text = std::str::from_utf8(&buffer[16..16 + length]).unwrap();
                assert!("gr\u{fc}n \u{2190} und blau".starts_with(text) && (size < 34 || text.ends_with("blau")));
            }
            Reply::new(&mut buffer).too_small(9, 100);
            assert!(size < 16 || (buffer[11], buffer[15]) == (Status::TooSmall as u8, 116));
        }
    }
}
