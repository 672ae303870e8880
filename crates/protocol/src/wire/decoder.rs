//! Bytes from a client to complete request envelopes.

use crate::wire::compression::Compression;
use crate::wire::header::{HEADER_SIZE, RawHeader, flags};
use crate::wire::segment::Decoded::{Lacks, Whole};
use crate::wire::segment::{self, SegmentError};
use crate::wire::version::{BETA_WITHOUT_FLAG, unsupported};
use crate::{ErrorKind, Header, MAX_FRAME_SIZE_BYTES, Opcode, ProtocolError, Version};
use bytes::{Buf, Bytes, BytesMut};
use std::iter;

/// The beta version that Cassandra 5.0 lists, which is never used here.
const BETA_VERSION: u8 = 6;

/// One complete request.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// Its header.
    pub header: Header,
    /// Its body, uncompressed.
    pub body: Bytes,
}

/// A violation of the protocol by the peer, and how to answer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Stream of the ERROR message.
    pub stream: i16,
    /// The version byte of the answer without its direction bit. Below 3 the answer has the old eight-byte header.
    pub version: u8,
    /// `Protocol`, or `Invalid` for a request that is too big.
    pub kind: ErrorKind,
    /// Cassandra's text.
    pub message: String,
    /// Nothing sensible can follow: answer, then close. Otherwise decoding can continue after the bad envelope.
    pub fatal: bool,
}

/// Splits a connection's incoming bytes into envelopes. Feed it with [`Decoder::buffer`], drain it with
/// [`Decoder::next_envelope`] until that returns `None`.
#[derive(Debug)]
pub struct Decoder {
    input: BytesMut,
    framing: Framing,
    /// The version of STARTUP: later envelopes must have it.
    version: Option<Version>,
    /// The unread envelopes of the current self-contained segment.
    contained: Bytes,
    large: Option<Large>,
    /// A refused bare envelope whose body is still arriving.
    skipping: Option<Skip>,
    /// The missing bytes of a bare envelope or a segment that has begun to arrive and is not refused; otherwise 0.
    lacks_bytes: usize,
    size_bytes_max: usize,
    /// Printed in checksum errors, where Cassandra prints its channel's id.
    connection_id: u32,
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    Envelopes { compression: Option<Compression> },
    Segments { lz4: bool },
}

/// An envelope that arrives in several segments.
#[derive(Debug)]
struct Large {
    raw: RawHeaderCopy,
    total: usize,
    received: usize,
    /// Empty when the envelope is refused: then its parts are only counted.
    parts: BytesMut,
}

/// The fields of a large envelope's header that its refusal needs.
#[derive(Clone, Debug)]
struct RawHeaderCopy {
    stream: i16,
    version: u8,
    /// The reason why it is refused, if it is.
    refusal: Option<(ErrorKind, String)>,
}

#[derive(Debug)]
struct Skip {
    remaining: u64,
    error: DecodeError,
}

impl Decoder {
    /// A decoder that refuses envelopes longer than `size_bytes_max`. `connection_id` appears in the
    /// text of checksum errors.
    pub fn new(size_bytes_max: usize, connection_id: u32) -> Decoder {
        Decoder {
            input: BytesMut::new(),
            framing: Framing::Envelopes { compression: None },
            version: None,
            contained: Bytes::new(),
            large: None,
            skipping: None,
            lacks_bytes: 0,
            size_bytes_max,
            connection_id,
        }
    }

    /// Refuses envelopes longer than `size_bytes_max` from here on.
    pub fn set_limit(&mut self, size_bytes_max: usize) {
        self.size_bytes_max = size_bytes_max;
    }

    /// The number of bytes that have arrived and were not taken out yet.
    pub fn held_bytes(&self) -> usize {
        self.input.len() + self.contained.len() + self.large.as_ref().map_or(0, |large| large.parts.len())
    }

    /// The missing bytes of an envelope that has begun to arrive; 0 if it is refused, or if their number is not known
    /// yet. Valid after [`Decoder::next_envelope`] has returned `None`. The caller makes room for them.
    pub fn missing_bytes(&self) -> usize {
        let of_large = self.large.as_ref().filter(|large| large.raw.refusal.is_none());
        self.lacks_bytes + of_large.map_or(0, |large| large.total.saturating_sub(large.received))
    }

    /// Makes room for what [`Decoder::missing_bytes`] says.
    pub fn make_room(&mut self) {
        self.input.reserve(self.lacks_bytes);
        if let Some(large) = self.large.as_mut().filter(|large| large.raw.refusal.is_none()) {
            large.parts.reserve(large.total - large.received);
        }
    }

    /// Refuses the envelope that has begun to arrive. All its bytes are dropped, and this error is returned at its end.
    /// Returns false, without any effect, if no envelope has begun to arrive.
    pub fn refuse_arriving(&mut self, kind: ErrorKind, message: &str) -> bool {
        if let Some(large) = &mut self.large {
            large.parts = BytesMut::new();
            large.raw.refusal.get_or_insert_with(|| (kind, message.to_owned()));
            return true;
        }
        let (Framing::Envelopes { .. }, Some(raw)) = (self.framing, RawHeader::parse(&self.input)) else {
            return false;
        };
        if self.lacks_bytes == 0 {
            return false;
        }
        let (stream, version) = (raw.stream, raw.version & 0x7F);
        let error = DecodeError { stream, version, kind, message: message.to_owned(), fatal: false };
        self.lacks_bytes = 0;
        self.skipping = Some(Skip { remaining: u64::from(raw.body_size) + HEADER_SIZE as u64, error });
        true
    }

    /// Gives back memory that larger requests made the buffers take, if nothing is in them.
    pub fn shrink(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
    }

    /// The buffer to append received bytes to.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Fixes version and compression once STARTUP is accepted; later envelopes must have this version. In v5 all
    /// bytes from here on are segments, so call this before decoding anything that follows STARTUP.
    pub fn started(&mut self, version: Version, compression: Option<Compression>) {
        self.version = Some(version);
        self.framing = match version {
            Version::V5 => Framing::Segments { lz4: compression == Some(Compression::Lz4) },
            _ => Framing::Envelopes { compression },
        };
    }

    /// The next complete envelope; none when more bytes are needed. After a fatal error the decoder must not be used.
    pub fn next_envelope(&mut self) -> Result<Option<Envelope>, DecodeError> {
        match self.framing {
            Framing::Envelopes { compression } => self.next_bare(compression),
            Framing::Segments { lz4 } => self.next_in_segments(lz4),
        }
    }

    /// Shows the next envelope in place, if it is complete, sound, uncompressed and small enough: header and body. The
    /// caller then takes it with [`Decoder::next_envelope`], which returns the same with an owned body, or skips it
    /// with [`Decoder::pass`].
    pub fn peek(&self) -> Option<(Header, &[u8])> {
        self.ahead().next()
    }

    /// Whether bytes follow the first envelope in the buffer. Only then can `ahead` show more than `peek`.
    #[inline]
    pub fn holds_several(&self) -> bool {
        let bytes = self.unread();
        RawHeader::parse(bytes).is_some_and(|raw| bytes.len() - HEADER_SIZE > raw.body_size as usize)
    }

    /// The envelopes that lie in one piece in the buffer, whether complete or not.
    #[inline]
    fn unread(&self) -> &[u8] {
        match self.framing {
            Framing::Envelopes { .. } => &self.input,
            Framing::Segments { .. } => &self.contained,
        }
    }

    /// This envelope and the following ones, as long as `peek` could show them.
    pub fn ahead(&self) -> impl Iterator<Item = (Header, &[u8])> {
        let mut bytes = self.unread();
        iter::from_fn(move || {
            let (header, body) = self.whole_envelope(bytes)?;
            bytes = &bytes[HEADER_SIZE + body.len()..];
            Some((header, body))
        })
    }

    #[inline]
    fn whole_envelope<'b>(&self, bytes: &'b [u8]) -> Option<(Header, &'b [u8])> {
        if self.skipping.is_some() {
            return None;
        }
        let raw = RawHeader::parse(bytes)?;
        let body_size = raw.body_size as usize;
        let body = bytes.get(HEADER_SIZE..)?.get(..body_size)?;
        if raw.flags & flags::COMPRESSION != 0 || body_size + HEADER_SIZE > self.size_bytes_max {
            return None;
        }
        Some((self.check_header(&raw).ok()?, body))
    }

    /// Skips the envelope that [`Decoder::peek`] showed.
    pub fn pass(&mut self, header: &Header) {
        let size = HEADER_SIZE + header.body_size as usize;
        match self.framing {
            Framing::Envelopes { .. } => self.input.advance(size.min(self.input.len())),
            Framing::Segments { .. } => self.contained.advance(size.min(self.contained.len())),
        }
    }

    fn next_bare(&mut self, compression: Option<Compression>) -> Result<Option<Envelope>, DecodeError> {
        self.lacks_bytes = 0;
        if self.skipping.is_some() && !self.skip()? {
            return Ok(None);
        }
        let Some(&first) = self.input.first() else { return Ok(None) };
        self.check_number(first & 0x7F)?;
        let Some(raw) = RawHeader::parse(&self.input) else { return Ok(None) };
        let total = u64::from(raw.body_size) + HEADER_SIZE as u64;
        match self.check_header(&raw) {
            Ok(header) if total <= self.size_bytes_max as u64 => {
                // Bounded by the limit, so this is a size in memory.
                let total = total as usize;
                if self.input.len() < total {
                    self.lacks_bytes = total - self.input.len();
                    return Ok(None);
                }
                self.input.advance(HEADER_SIZE);
                let body = self.input.split_to(total - HEADER_SIZE).freeze();
                self.uncompress(header, body, compression).map(Some)
            }
            checked => {
                let error = checked.err().unwrap_or_else(|| self.too_big(&raw, total));
                if error.fatal {
                    return Err(error);
                }
                self.skipping = Some(Skip { remaining: total, error });
                self.skip().map(|_| None)
            }
        }
    }

    /// Drops the received part of a refused envelope; returns the error at its end. True if there is nothing to skip.
    fn skip(&mut self) -> Result<bool, DecodeError> {
        let Some(skip) = &mut self.skipping else { return Ok(true) };
        let now = skip.remaining.min(self.input.len() as u64);
        skip.remaining -= now;
        self.input.advance(now as usize);
        if skip.remaining > 0 {
            return Ok(false);
        }
        match self.skipping.take() {
            Some(skip) => Err(skip.error),
            None => Ok(true),
        }
    }

    fn uncompress(
        &self,
        header: Header,
        body: Bytes,
        compression: Option<Compression>,
    ) -> Result<Envelope, DecodeError> {
        match compression {
            Some(compression) if header.flags & flags::COMPRESSION != 0 => {
                let body = compression.decompress(&body, self.size_bytes_max).map_err(|error| DecodeError {
                    stream: header.stream,
                    version: header.version.number(),
                    kind: ErrorKind::Protocol,
                    message: error.message,
                    fatal: false,
                })?;
                Ok(Envelope { header, body: Bytes::from(body) })
            }
            _ => Ok(Envelope { header, body }),
        }
    }

    fn next_in_segments(&mut self, lz4: bool) -> Result<Option<Envelope>, DecodeError> {
        loop {
            if !self.contained.is_empty() {
                return self.next_contained().map(Some);
            }
            let segment = segment::decode(&mut self.input, lz4).map_err(|error| self.damaged(error))?;
            let segment = match segment {
                Whole(segment) => segment,
                Lacks(bytes) => {
                    self.lacks_bytes = bytes;
                    return Ok(None);
                }
            };
            self.lacks_bytes = 0;
            if segment.self_contained {
                self.contained = segment.payload;
            } else if let Some(envelope) = self.part(segment.payload)? {
                return Ok(Some(envelope));
            }
        }
    }

    /// The next envelope of a self-contained segment.
    fn next_contained(&mut self) -> Result<Envelope, DecodeError> {
        let raw = RawHeader::parse(&self.contained)
            .ok_or_else(|| self.fatal(undersized(HEADER_SIZE, self.contained.len())))?;
        let body_size = raw.body_size as usize;
        let after_header = self.contained.len() - HEADER_SIZE;
        if body_size > after_header {
            return Err(self.fatal(undersized(body_size, after_header)));
        }
        self.contained.advance(HEADER_SIZE);
        let body = self.contained.split_to(body_size);
        let header = self.check_number(raw.version & 0x7F).and_then(|()| self.check_header(&raw))?;
        Ok(Envelope { header, body })
    }

    /// One part of a large envelope; the envelope when it is the last.
    fn part(&mut self, payload: Bytes) -> Result<Option<Envelope>, DecodeError> {
        let mut large = match self.large.take() {
            Some(large) => large,
            None => self.first_part(&payload)?,
        };
        large.received += payload.len();
        if large.received > large.total {
            return Err(self.fatal(undersized(large.total, large.received)));
        }
        if large.raw.refusal.is_none() {
            large.parts.extend_from_slice(&payload);
        }
        if large.received < large.total {
            self.large = Some(large);
            return Ok(None);
        }
        if let Some((kind, message)) = large.raw.refusal {
            let (stream, version) = (large.raw.stream, large.raw.version);
            return Err(DecodeError { stream, version, kind, message, fatal: false });
        }
        self.contained = large.parts.freeze();
        self.next_contained().map(Some)
    }

    fn first_part(&self, payload: &[u8]) -> Result<Large, DecodeError> {
        let raw = RawHeader::parse(payload).ok_or_else(|| self.fatal(undersized(HEADER_SIZE, payload.len())))?;
        self.check_number(raw.version & 0x7F).map_err(|error| DecodeError { fatal: true, ..error })?;
        let total = HEADER_SIZE + raw.body_size as usize;
        // Unlike for a bare envelope, Cassandra counts only the body here.
        let (size, limit) = (raw.body_size as usize, self.size_bytes_max);
        let refusal = (size > limit).then(|| {
            let message = format!("CQL Message of size {size} bytes exceeds allowed maximum of {limit} bytes");
            (ErrorKind::Invalid, message)
        });
        let raw = RawHeaderCopy { stream: raw.stream, version: raw.version & 0x7F, refusal };
        Ok(Large { raw, total, received: 0, parts: BytesMut::new() })
    }

    /// Refuses unsupported versions. Their framing is unknown, so nothing can follow.
    fn check_number(&self, number: u8) -> Result<(), DecodeError> {
        if Version::from_number(number).is_some() || number == BETA_VERSION {
            return Ok(());
        }
        // The two oldest versions get an answer that they can read; newer ones get the newest supported version.
        let version = if matches!(number, 1 | 2) { number } else { Version::V5.number() };
        Err(DecodeError { version, ..self.fatal(unsupported(number)) })
    }

    #[inline]
    fn check_header(&self, raw: &RawHeader) -> Result<Header, DecodeError> {
        let &RawHeader { flags, stream, body_size, .. } = raw;
        let (version, opcode) = (Version::from_number(raw.version & 0x7F), Opcode::from_number(raw.opcode));
        match (version, opcode) {
            (Some(version), Some(opcode))
                if raw.version & 0x80 == 0
                    && opcode.is_request()
                    && self.version.is_none_or(|expected| expected == version) =>
            {
                Ok(Header { version, flags, stream, opcode, body_size })
            }
            _ => Err(self.refuse_header(raw)),
        }
    }

    /// The error about a header with the wrong version, opcode or direction.
    #[cold]
    fn refuse_header(&self, raw: &RawHeader) -> DecodeError {
        let number = raw.version & 0x7F;
        let error = |message: String| DecodeError {
            stream: raw.stream,
            version: number,
            kind: ErrorKind::Protocol,
            message,
            fatal: false,
        };
        let Some(version) = Version::from_number(number) else {
            let beta = raw.flags & flags::USE_BETA != 0;
            let message = if beta { unsupported(number) } else { BETA_WITHOUT_FLAG.to_owned() };
            return DecodeError { version: number, ..self.fatal(message) };
        };
        if let Some(wrong) = Opcode::no_request(raw.opcode, raw.version & 0x80 != 0) {
            return error(wrong.message);
        }
        let expected = self.version.unwrap_or(version);
        debug_assert!(expected != version, "something is wrong with the header");
        // Cassandra's two texts differ by a space.
        let space = if expected == Version::V5 { "" } else { " " };
        error(format!(
            "Invalid message version. Got {version} but previous{space}messages on this connection had version \
             {expected}"
        ))
    }

    fn too_big(&self, raw: &RawHeader, total: u64) -> DecodeError {
        DecodeError {
            stream: raw.stream,
            version: raw.version & 0x7F,
            kind: ErrorKind::Invalid,
            message: format!(
                "Request is too big: length {total} exceeds maximum allowed length {}.",
                self.size_bytes_max
            ),
            fatal: false,
        }
    }

    fn fatal(&self, message: String) -> DecodeError {
        let version = self.version.unwrap_or(Version::V5).number();
        DecodeError { stream: 0, version, kind: ErrorKind::Protocol, message, fatal: true }
    }

    fn damaged(&self, error: SegmentError) -> DecodeError {
        let message = match error {
            // Cassandra prints both as signed.
            SegmentError::Crc { part, read, computed } => format!(
                "{:08x} invalid, unrecoverable CRC mismatch detected in frame {part}. Read {}, Computed {}",
                self.connection_id, read as i32, computed as i32
            ),
            SegmentError::Block => {
                format!("{:08x} invalid, unrecoverable LZ4 block in frame body", self.connection_id)
            }
        };
        self.fatal(message)
    }
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new(MAX_FRAME_SIZE_BYTES, 0)
    }
}

impl From<DecodeError> for ProtocolError {
    fn from(error: DecodeError) -> ProtocolError {
        ProtocolError { message: error.message }
    }
}

fn undersized(expected: usize, actual: usize) -> String {
    format!("Undersized buffer supplied. Expected {expected}, actual {actual}")
}

#[cfg(test)]
mod tests;
