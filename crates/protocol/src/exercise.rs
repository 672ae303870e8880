//! The fuzzing door: bytes from a stranger, through every framing.

use crate::{Body, Compression, Decoder, Envelope, Version};

/// Feeds everything after the first byte to a decoder whose framing the first byte chooses, in pieces, and parses what
/// comes out, which is what was to be seen in the buffer before. Returns how many envelopes were well-formed. Never panics, and takes no more memory than the frame limit.
pub fn exercise(bytes: &[u8]) -> usize {
    const FRAME_SIZE_BYTES_MAX: usize = 64 * 1024;
    let Some((choice, bytes)) = bytes.split_first() else { return 0 };
    let mut decoder = Decoder::new(FRAME_SIZE_BYTES_MAX, 0);
    match choice % 7 {
        0 => {}
        1 => decoder.started(Version::V3, None),
        2 => decoder.started(Version::V3, Some(Compression::Snappy)),
        3 => decoder.started(Version::V4, Some(Compression::Lz4)),
        4 => decoder.started(Version::V4, None),
        5 => decoder.started(Version::V5, None),
        _ => decoder.started(Version::V5, Some(Compression::Lz4)),
    }
    let piece = usize::from(choice / 7).max(1) * 16;
    let mut parsed = 0;
    for piece in bytes.chunks(piece) {
        decoder.buffer().extend_from_slice(piece);
        loop {
            let peeked = decoder.peek().map(|(header, body)| (header, body.to_vec()));
            let next = decoder.next_envelope();
            if let Some((header, body)) = peeked {
                let is_same = |next: &Envelope| next.header == header && next.body == body;
                assert!(next.as_ref().is_ok_and(|next| next.as_ref().is_some_and(is_same)), "{header:?}: {next:?}");
            }
            match next {
                Ok(Some(envelope)) => {
                    let body = Body::parse(&envelope.header, &envelope.body);
                    parsed += usize::from(body.is_ok());
                }
                Ok(None) => break,
                Err(error) if error.fatal => return parsed,
                Err(_) => {}
            }
        }
    }
    parsed
}
