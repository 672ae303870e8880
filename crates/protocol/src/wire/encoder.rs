//! Response envelopes to bytes for the socket.

use std::convert::Infallible;

use crate::wire::compression::Compression;
use crate::wire::header::{HEADER_SIZE, flags};
use crate::wire::segment::{self, PAYLOAD_SIZE_MAX};
use crate::wire::writer::{put_short, put_string};
use crate::{Opcode, Version};

/// Everything of a response except its body.
#[derive(Clone, Debug)]
pub struct ResponseHead<'a> {
    /// The request's stream, or -1 for an event.
    pub stream: i16,
    /// The kind of body.
    pub opcode: Opcode,
    /// Id of the trace that the request asked for.
    pub tracing_id: Option<[u8; 16]>,
    /// Warnings for the client; not sent below v4.
    pub warnings: &'a [String],
}

impl<'a> ResponseHead<'a> {
    /// A head without tracing and warnings.
    pub fn new(stream: i16, opcode: Opcode) -> ResponseHead<'a> {
        ResponseHead { stream, opcode, tracing_id: None, warnings: &[] }
    }
}

/// Collects a connection's outgoing bytes: write envelopes, then [`Encoder::flush`], then send [`Encoder::output`] and
/// say with [`Encoder::sent`] how much of it has gone.
///
/// Envelopes of v5 wait in a payload until it is full or flushed, so that many small answers share one segment and
/// one checksum.
#[derive(Debug)]
pub struct Encoder {
    version: Version,
    framing: Framing,
    /// v5: envelopes that are not yet in a segment; all of them complete.
    payload: Vec<u8>,
    /// A buffer for compressing bodies.
    scratch: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    Envelopes { compression: Option<Compression> },
    Segments { lz4: bool },
}

/// Sent bytes that the output keeps at its start before the rest is moved over them.
const SENT_KEPT_BYTES: usize = 64 * 1024;

impl Encoder {
    /// An encoder of bare envelopes in this version.
    pub fn new(version: Version) -> Encoder {
        Encoder {
            version,
            framing: Framing::Envelopes { compression: None },
            payload: Vec::new(),
            scratch: Vec::new(),
            output: Vec::new(),
            sent: 0,
        }
    }

    /// The version that envelopes are written in.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Changes the version of what follows (before STARTUP each request has its own).
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Compresses bodies from here on (v3, v4: from the answer to STARTUP on).
    pub fn set_compression(&mut self, compression: Option<Compression>) {
        self.framing = Framing::Envelopes { compression };
    }

    /// Writes segments from here on (v5: after the answer to STARTUP).
    pub fn start_segments(&mut self, lz4: bool) {
        self.framing = Framing::Segments { lz4 };
    }

    /// Appends one envelope whose body is appended by `write_body` in this encoder's version.
    pub fn envelope(&mut self, head: &ResponseHead<'_>, write_body: impl FnOnce(&mut Vec<u8>)) {
        let Ok(()) = self.try_envelope(head, |out| {
            write_body(out);
            Ok::<(), Infallible>(())
        });
    }

    /// Like [`Encoder::envelope`], for a body that may turn out to be impossible while it is written: if `write_body`
    /// fails, nothing is appended. Returns its result.
    pub fn try_envelope<E>(
        &mut self,
        head: &ResponseHead<'_>,
        write_body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.framing {
            Framing::Envelopes { compression: None } => {
                let start = self.output.len();
                begin(&mut self.output, self.version, head, 0);
                write_prefix(&mut self.output, self.version, head);
                if let Err(error) = write_body(&mut self.output) {
                    self.output.truncate(start);
                    return Err(error);
                }
                finish(&mut self.output, start);
            }
            Framing::Envelopes { compression: Some(compression) } => {
                self.scratch.clear();
                write_prefix(&mut self.scratch, self.version, head);
                write_body(&mut self.scratch)?;
                let start = self.output.len();
                begin(&mut self.output, self.version, head, flags::COMPRESSION);
                compression.compress(&self.scratch, &mut self.output);
                finish(&mut self.output, start);
            }
            Framing::Segments { lz4 } => {
                let start = self.payload.len();
                begin(&mut self.payload, self.version, head, 0);
                write_prefix(&mut self.payload, self.version, head);
                if let Err(error) = write_body(&mut self.payload) {
                    self.payload.truncate(start);
                    return Err(error);
                }
                finish(&mut self.payload, start);
                self.fill_segments(start, lz4);
            }
        }
        Ok(())
    }

    /// Appends an ERROR to a client whose version (1 or 2) has the old header with a one-byte stream id.
    pub fn old_error(&mut self, version: u8, message: &str) {
        self.output.extend_from_slice(&[version | 0x80, 0, 0, Opcode::Error as u8]);
        let mut body = Vec::new();
        body.extend_from_slice(&0x000A_i32.to_be_bytes());
        put_string(&mut body, message);
        self.output.extend_from_slice(&(body.len() as u32).to_be_bytes());
        self.output.extend_from_slice(&body);
    }

    /// Appends an ERROR envelope with an arbitrary version number: the answer to an unsupported version.
    pub fn foreign_error(&mut self, version: u8, message: &str) {
        let start = self.output.len();
        self.envelope(&ResponseHead::new(0, Opcode::Error), |body| {
            body.extend_from_slice(&0x000A_i32.to_be_bytes());
            put_string(body, message);
        });
        if let Some(byte) = self.output.get_mut(start) {
            *byte = version | 0x80;
        }
    }

    /// Puts waiting envelopes into segments. Call it before taking the output.
    pub fn flush(&mut self) {
        if let Framing::Segments { lz4 } = self.framing
            && !self.payload.is_empty()
        {
            segment::encode(&self.payload, true, lz4, &mut self.output);
            self.payload.clear();
        }
    }

    /// The bytes that are ready to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Bytes written and not yet sent, including those that wait for a segment.
    pub fn pending_bytes(&self) -> usize {
        self.output.len() - self.sent + self.payload.len()
    }

    /// Bytes in the buffers, some of which may have been sent.
    pub fn held_bytes(&self) -> usize {
        self.output.len() + self.payload.len()
    }

    /// Drops the first `count` bytes of the output: they have been sent.
    pub fn sent(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.output.len());
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
            shrink(&mut self.output);
            shrink(&mut self.payload);
            shrink(&mut self.scratch);
        } else if self.sent >= SENT_KEPT_BYTES && self.sent >= self.output.len() - self.sent {
            // Otherwise the buffer would grow for as long as answers are added before all others are sent.
            self.output.drain(..self.sent);
            self.sent = 0;
            if self.output.capacity() > KEPT_BYTES {
                self.output.shrink_to(KEPT_BYTES);
            }
        }
    }

    /// Memory that the buffers take, bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.output.capacity() + self.payload.capacity() + self.scratch.capacity()
    }

    /// Gives back memory that larger answers made the buffers take, if nothing is in them.
    pub fn shrink(&mut self) {
        for buffer in [&mut self.output, &mut self.payload, &mut self.scratch] {
            if buffer.is_empty() {
                *buffer = Vec::new();
            }
        }
    }

    /// Called after an envelope was appended to the payload at `start`: closes segments so that what waits fits into
    /// one.
    fn fill_segments(&mut self, start: usize, lz4: bool) {
        if self.payload.len() <= PAYLOAD_SIZE_MAX {
            return;
        }
        if start > 0 {
            segment::encode(&self.payload[..start], true, lz4, &mut self.output);
        }
        let last = self.payload.len() - start;
        if last > PAYLOAD_SIZE_MAX {
            // A large answer is in memory twice, in the payload and as segments. The buffer must not grow beyond that.
            self.output.reserve_exact(last + last.div_ceil(PAYLOAD_SIZE_MAX) * SEGMENT_EXTRA_BYTES);
            for part in self.payload[start..].chunks(PAYLOAD_SIZE_MAX) {
                segment::encode(part, false, lz4, &mut self.output);
            }
            self.payload.clear();
            shrink(&mut self.payload);
        } else {
            self.payload.drain(..start);
        }
    }
}

/// The most bytes that a segment adds to its payload.
const SEGMENT_EXTRA_BYTES: usize = 32;

/// The capacity that a buffer keeps.
const KEPT_BYTES: usize = 256 * 1024;

/// Releases the memory of a buffer that one large answer grew.
fn shrink(buffer: &mut Vec<u8>) {
    if buffer.is_empty() && buffer.capacity() > KEPT_BYTES {
        *buffer = Vec::new();
    }
}

fn begin(out: &mut Vec<u8>, version: Version, head: &ResponseHead<'_>, more_flags: u8) {
    let mut bits = more_flags;
    if head.tracing_id.is_some() {
        bits |= flags::TRACING;
    }
    if has_warnings(version, head) {
        bits |= flags::WARNING;
    }
    let stream = head.stream.to_be_bytes();
    out.extend_from_slice(&[version.number() | 0x80, bits, stream[0], stream[1], head.opcode as u8, 0, 0, 0, 0]);
}

fn has_warnings(version: Version, head: &ResponseHead<'_>) -> bool {
    version >= Version::V4 && !head.warnings.is_empty()
}

fn write_prefix(out: &mut Vec<u8>, version: Version, head: &ResponseHead<'_>) {
    if let Some(id) = head.tracing_id {
        out.extend_from_slice(&id);
    }
    if has_warnings(version, head) {
        let warnings = &head.warnings[..head.warnings.len().min(usize::from(u16::MAX))];
        put_short(out, warnings.len() as u16);
        for warning in warnings {
            put_string(out, warning);
        }
    }
}

/// Writes the body's length into the header at `start`.
fn finish(out: &mut [u8], start: usize) {
    let size = (out.len() - start - HEADER_SIZE) as u32;
    out[start + HEADER_SIZE - 4..start + HEADER_SIZE].copy_from_slice(&size.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_answer_is_held_once_while_it_waits_for_its_client() {
        const BODY_BYTES: usize = 5 << 20;
        for lz4 in [false, true] {
            let mut encoder = Encoder::new(Version::V5);
            encoder.start_segments(lz4);
            let head = ResponseHead::new(1, Opcode::Result);
            encoder.envelope(&head, |out| out.extend_from_slice(&[7; BODY_BYTES]));
            let held = encoder.capacity_bytes();
            assert!(held < BODY_BYTES + BODY_BYTES / 100, "{held} bytes for an answer of {BODY_BYTES}");
            encoder.sent(encoder.pending_bytes());
            assert!(encoder.capacity_bytes() < 1 << 20);
        }
    }

    #[test]
    fn an_answer_that_is_sent_in_part_frees_and_counts_what_is_held() {
        const BODY_BYTES: usize = 1 << 20;
        let mut encoder = Encoder::new(Version::V5);
        encoder.start_segments(false);
        encoder.envelope(&ResponseHead::new(1, Opcode::Result), |out| out.extend_from_slice(&[7; BODY_BYTES]));
        encoder.sent(BODY_BYTES / 4);
        assert!(encoder.held_bytes() > BODY_BYTES, "{} bytes: nothing is freed yet", encoder.held_bytes());
        encoder.sent(BODY_BYTES / 2);
        let (held, capacity) = (encoder.held_bytes(), encoder.capacity_bytes());
        assert!(held < BODY_BYTES / 3 && capacity < BODY_BYTES / 2, "{held} bytes in buffers of {capacity}");
        assert_eq!(held, encoder.pending_bytes());
    }

    #[test]
    fn answers_that_are_added_before_all_others_are_sent_reuse_the_memory_of_those_sent() {
        const BODY_BYTES: usize = 300_000;
        let mut encoder = Encoder::new(Version::V5);
        encoder.start_segments(false);
        let head = ResponseHead::new(1, Opcode::Result);
        let (mut written, mut sent) = (Vec::new(), Vec::new());
        for number in 0..100 {
            encoder.envelope(&head, |out| out.extend_from_slice(&[number; BODY_BYTES]));
            encoder.flush();
            written.extend_from_slice(&encoder.output()[written.len() - sent.len()..]);
            let part = encoder.output().len().min(if number == 0 { 1000 } else { BODY_BYTES });
            sent.extend_from_slice(&encoder.output()[..part]);
            encoder.sent(part);
            let held = encoder.capacity_bytes();
            assert!(held < 6 * BODY_BYTES, "{held} bytes for {} that wait", encoder.pending_bytes());
        }
        sent.extend_from_slice(encoder.output());
        assert!(sent == written);
    }
}
