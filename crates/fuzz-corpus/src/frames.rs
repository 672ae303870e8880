//! The bytes of a connection, through every framing of the native protocol.

use protocol::{Body, Compression, Decoder, Envelope, Version};

/// Decodes everything behind the first byte in pieces, with the framing that the first byte chooses, and parses the
/// requests that it contains. Each request must equal what the decoder showed before it was taken. Returns how many
/// requests were well-formed.
pub fn frames(bytes: &[u8]) -> usize {
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

#[cfg(test)]
mod tests {
    use super::frames;

    #[test]
    fn the_corpus_reaches_every_kind_of_request() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/protocol");
        let files = std::fs::read_dir(directory).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        assert_eq!(files.map(|bytes| frames(&bytes)).sum::<usize>(), 15, "well-formed requests in the corpus");
    }
}
