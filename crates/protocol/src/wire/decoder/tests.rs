use super::*;
use crate::wire::segment::tests::unhex;
use crate::{Body, Encoder, Request, ResponseHead};

fn request(version: u8, stream: i16, opcode: u8, body: &[u8]) -> Vec<u8> {
    let [s0, s1] = stream.to_be_bytes();
    let mut out = vec![version, 0, s0, s1, opcode];
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(body);
    out
}

fn feed(decoder: &mut Decoder, bytes: &[u8]) -> Result<Option<Envelope>, DecodeError> {
    decoder.buffer().extend_from_slice(bytes);
    decoder.next_envelope()
}

fn started(version: Version, compression: Option<Compression>) -> Decoder {
    let mut decoder = Decoder::default();
    decoder.started(version, compression);
    decoder
}

#[test]
fn a_segment_from_cassandras_client_is_its_query() {
    let frames = [
        (
            "3c0002286e650500000107000000330000002953454c454354206b65792c2063716c5f76657273696f6e2046524f4d2073797374656d2e\
             6c6f63616c000100000000b76bc4eb",
            None,
        ),
        (
            "3e007800047b66e8f02d0500000107000000330000002953454c454354206b65792c2063716c5f76657273696f6e2046524f4d20737973\
             74656d2e6c6f63616c0001000000005f8de4b6",
            Some(Compression::Lz4),
        ),
    ];
    for (hex, compression) in frames {
        let mut decoder = started(Version::V5, compression);
        let envelope = feed(&mut decoder, &unhex(hex)).unwrap().unwrap();
        let body = Body::parse(&envelope.header, &envelope.body).unwrap();
        let Request::Query { query, .. } = body.request else { panic!("{body:?}") };
        assert_eq!(query, "SELECT key, cql_version FROM system.local");
        assert!(decoder.next_envelope().unwrap().is_none());
    }
}

#[test]
fn two_envelopes_may_share_a_segment() {
    let mut decoder = started(Version::V5, None);
    let hex = "38000243a1530500000205000000000500000307000000260000001c53454c454354206b65792046524f4d2073797374656d2e6c6f63\
               616c00010000000003e86936";
    let first = feed(&mut decoder, &unhex(hex)).unwrap().unwrap();
    let second = decoder.next_envelope().unwrap().unwrap();
    assert_eq!((first.header.opcode, second.header.opcode), (Opcode::Options, Opcode::Query));
    assert_eq!((first.header.stream, second.header.stream), (2, 3));
}

#[test]
fn the_envelope_flag_of_compression_means_nothing_in_v5() {
    let hex = "31005e0004192df9f0200501000507000000260000001c53454c454354206b65792046524f4d2073797374656d2e6c6f63616c0001000\
               00000ea75078d";
    let mut decoder = started(Version::V5, Some(Compression::Lz4));
    let envelope = feed(&mut decoder, &unhex(hex)).unwrap().unwrap();
    assert!(Body::parse(&envelope.header, &envelope.body).is_ok());
}

#[test]
fn bytes_may_arrive_one_by_one() {
    let mut decoder = Decoder::default();
    let bytes = [request(4, 7, 5, b""), request(4, 8, 5, b"")].concat();
    let mut streams = Vec::new();
    for byte in bytes {
        if let Some(envelope) = feed(&mut decoder, &[byte]).unwrap() {
            streams.push(envelope.header.stream);
        }
    }
    assert_eq!(streams, [7, 8]);
}

#[test]
fn unspoken_versions_are_refused_in_words_that_drivers_know() {
    for (number, answer) in [(1, 1), (2, 2), (0, 5), (7, 5), (66, 5), (127, 5)] {
        let error = feed(&mut Decoder::default(), &[number]).unwrap_err();
        assert_eq!(
            error.message,
            format!(
                "Invalid or unsupported protocol version ({number}); supported versions are (3/v3, 4/v4, 5/v5, 6/v6-beta)"
            )
        );
        assert_eq!((error.version, error.stream, error.fatal), (answer, 0, true));
    }
    let error = feed(&mut Decoder::default(), &request(6, 9, 5, b"")).unwrap_err();
    assert_eq!(error.message, "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset");
    assert_eq!((error.version, error.stream), (6, 0));
}

#[test]
fn a_bad_opcode_is_answered_and_skipped() {
    for (opcode, message) in [
        (0x7F, "Unknown opcode 127"),
        (0x08, "Wrong protocol direction (expected RESPONSE, got REQUEST) for opcode 8 (RESULT)"),
    ] {
        let mut decoder = Decoder::default();
        let bytes = [request(4, 5, opcode, b"body"), request(4, 6, 5, b"")].concat();
        let error = feed(&mut decoder, &bytes).unwrap_err();
        assert_eq!((error.message.as_str(), error.stream, error.fatal), (message, 5, false));
        assert_eq!(decoder.next_envelope().unwrap().unwrap().header.stream, 6);
    }
}

#[test]
fn a_too_big_envelope_passes_by_without_being_kept() {
    let mut decoder = Decoder::new(100, 0);
    let bytes = request(4, 3, 7, &[0; 92]);
    for chunk in bytes[..100].chunks(30) {
        assert!(feed(&mut decoder, chunk).unwrap().is_none());
        assert!(decoder.buffer().len() < HEADER_SIZE || decoder.buffer().is_empty());
    }
    let error = feed(&mut decoder, &bytes[100..]).unwrap_err();
    assert_eq!(error.message, "Request is too big: length 101 exceeds maximum allowed length 100.");
    assert_eq!((error.kind, error.stream, error.fatal), (ErrorKind::Invalid, 3, false));
    assert_eq!(feed(&mut decoder, &request(4, 4, 5, b"")).unwrap().unwrap().header.stream, 4);
}

#[test]
fn a_large_envelope_is_put_together_from_its_segments() {
    let body = vec![7; 300_000];
    let bytes = request(5, 2, 7, &body);
    for lz4 in [false, true] {
        let mut wire = Vec::new();
        for part in bytes.chunks(131_071) {
            segment::encode(part, false, lz4, &mut wire);
        }
        segment::encode(&request(5, 3, 5, b""), true, lz4, &mut wire);
        let mut decoder = started(Version::V5, lz4.then_some(Compression::Lz4));
        let envelope = feed(&mut decoder, &wire).unwrap().unwrap();
        assert_eq!(&envelope.body[..], body);
        assert_eq!(decoder.next_envelope().unwrap().unwrap().header.stream, 3);
        // The same above the limit.
        let mut decoder = Decoder::new(200_000, 0);
        decoder.started(Version::V5, lz4.then_some(Compression::Lz4));
        let error = feed(&mut decoder, &wire).unwrap_err();
        assert_eq!(error.message, "CQL Message of size 300000 bytes exceeds allowed maximum of 200000 bytes");
        assert_eq!((error.stream, error.fatal), (2, false));
        assert_eq!(decoder.next_envelope().unwrap().unwrap().header.stream, 3);
    }
}

#[test]
fn damaged_segments_name_both_checksums() {
    let mut wire = Vec::new();
    segment::encode(&request(5, 1, 5, b""), true, false, &mut wire);
    let mut decoder = Decoder::new(1000, 0xD473_683D);
    decoder.started(Version::V5, None);
    let mut bad = wire.clone();
    bad[3] ^= 1;
    let error = feed(&mut decoder, &bad).unwrap_err();
    let start = "d473683d invalid, unrecoverable CRC mismatch detected in frame header. Read ";
    assert!(error.message.starts_with(start), "{}", error.message);
    assert!(error.fatal);
    wire[7] ^= 1;
    let error = feed(&mut started(Version::V5, None), &wire).unwrap_err();
    assert!(error.message.contains("detected in frame body. Read "), "{}", error.message);
}

#[test]
fn another_version_after_startup_is_refused() {
    let mut decoder = started(Version::V4, None);
    let error = feed(&mut decoder, &request(5, 1, 5, b"")).unwrap_err();
    assert_eq!(
        error.message,
        "Invalid message version. Got 5/v5 but previous messages on this connection had version 4/v4"
    );
}

#[test]
fn compressed_bodies_go_round() {
    for compression in [Compression::Lz4, Compression::Snappy] {
        for body in [&b""[..], &[1; 1000]] {
            let mut compressed = Vec::new();
            compression.compress(body, &mut compressed);
            let mut bytes = request(4, 1, 7, &compressed);
            bytes[1] = flags::COMPRESSION;
            let mut decoder = started(Version::V4, Some(compression));
            assert_eq!(&feed(&mut decoder, &bytes).unwrap().unwrap().body[..], body);
        }
    }
}

#[test]
fn a_body_that_expands_beyond_the_limit_is_refused_before_it_is_expanded() {
    let mut bytes = request(4, 1, 7, &[0x7F, 0xFF, 0xFF, 0xFF, 0]);
    bytes[1] = flags::COMPRESSION;
    assert!(feed(&mut started(Version::V4, Some(Compression::Lz4)), &bytes).is_err());
    let mut bytes = request(4, 1, 7, &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0]);
    bytes[1] = flags::COMPRESSION;
    assert!(feed(&mut started(Version::V4, Some(Compression::Snappy)), &bytes).is_err());
}

#[test]
fn answers_to_startup_are_cassandras_bytes() {
    for (compression, hex) in [
        (Some(Compression::Lz4), "8401000102000000050000000000"),
        (Some(Compression::Snappy), "84010001020000000100"),
        (None, "840000010200000000"),
    ] {
        let mut encoder = Encoder::new(Version::V4);
        encoder.set_compression(compression);
        encoder.envelope(&ResponseHead::new(1, Opcode::Ready), |_| {});
        assert_eq!(encoder.output(), unhex(hex), "{compression:?}");
    }
}

#[test]
fn responses_fill_segments_and_large_ones_are_cut() {
    let mut encoder = Encoder::new(Version::V5);
    encoder.start_segments(false);
    let sizes = [10, 20, 131_000, 131_062, 131_063, 300_000, 5, 7];
    for (stream, size) in sizes.iter().enumerate() {
        let head = ResponseHead::new(stream as i16, Opcode::Result);
        encoder.envelope(&head, |body| body.resize(body.len() + size, stream as u8));
    }
    encoder.flush();
    let mut input = BytesMut::from(encoder.output());
    let (mut payload, mut segments) = (Vec::new(), 0);
    while let Some(segment) = segment::decode(&mut input, false).unwrap().whole() {
        payload.extend_from_slice(&segment.payload);
        segments += 1;
    }
    assert!(input.is_empty());
    // The first three together; 131,062 fills one; two parts; three parts; the last pair.
    assert_eq!(segments, 1 + 1 + 2 + 3 + 1);
    let mut rest = &payload[..];
    for size in sizes {
        let raw = RawHeader::parse(rest).unwrap();
        assert_eq!(raw.body_size as usize, size);
        rest = &rest[HEADER_SIZE + size..];
    }
    assert!(rest.is_empty());
    let total = encoder.output().len();
    encoder.sent(total - 1);
    assert_eq!(encoder.output().len(), 1);
    encoder.sent(1);
    assert_eq!(encoder.pending_bytes(), 0);
}

/// Random bytes, and good streams with random damage: the decoder reports an error or needs more input, and never
/// panics or loops.
#[test]
fn garbage_never_panics() {
    let mut state = 0x5EED_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..3000 {
        let mut decoder = match round % 5 {
            0 => Decoder::new(4096, 1),
            1 => started(Version::V5, None),
            2 => started(Version::V5, Some(Compression::Lz4)),
            3 => started(Version::V4, Some(Compression::Lz4)),
            _ => started(Version::V3, Some(Compression::Snappy)),
        };
        let mut bytes: Vec<u8> = (0..random() % 300).map(|_| random() as u8).collect();
        let opcode = [1, 5, 7, 9, 10, 11, 13, 15][random() as usize % 8];
        let envelope = request(3 + (random() % 3) as u8, 1, opcode, &bytes);
        if round % 5 == 1 || round % 5 == 2 {
            let mut wire = Vec::new();
            segment::encode(&envelope, !random().is_multiple_of(4), round % 5 == 2, &mut wire);
            bytes = wire;
        } else if round % 2 == 0 {
            bytes = envelope;
            bytes[1] = random() as u8;
        }
        decoder.buffer().extend_from_slice(&bytes);
        for _ in 0..400 {
            match decoder.next_envelope() {
                Ok(Some(envelope)) => drop(Body::parse(&envelope.header, &envelope.body)),
                Ok(None) => break,
                Err(error) if error.fatal => break,
                Err(_) => {}
            }
        }
    }
}

/// `ahead` shows what will be decoded, as far as it is complete, and consumes nothing.
#[test]
fn the_preview_is_the_request_that_is_decoded_next() {
    let requests: Vec<Vec<u8>> = (1..4).map(|stream| request(4, stream, 5, &[stream as u8; 3])).collect();
    let mut compressed = request(4, 4, 5, b"");
    compressed[1] = flags::COMPRESSION;
    let wire = [requests.concat(), compressed, request(4, 5, 5, b"")].concat();
    for length in 0..=wire.len() {
        let mut decoder = started(Version::V4, Some(Compression::Lz4));
        decoder.buffer().extend_from_slice(&wire[..length]);
        let ahead: Vec<(i16, Vec<u8>)> = decoder.ahead().map(|(header, body)| (header.stream, body.to_vec())).collect();
        assert_eq!(ahead.len(), (length / requests[0].len()).min(3));
        for (stream, body) in ahead {
            let envelope = decoder.next_envelope().unwrap().unwrap();
            assert_eq!((envelope.header.stream, &envelope.body[..]), (stream, &body[..]));
        }
    }
}

/// A request of which a part has arrived says what is missing, and can be refused: the next one is read then.
#[test]
fn a_request_that_has_begun_to_arrive_can_be_refused() {
    let large = request(5, 7, 7, &[b'x'; 300_000]);
    let small = request(5, 8, 7, b"\0\0\0\x01x\0\x01\0\0\0\0");
    let mut wire = Vec::new();
    for part in large.chunks(100_000) {
        segment::encode(part, false, false, &mut wire);
    }
    segment::encode(&small, true, false, &mut wire);
    let bare =
        |version| [request(version, 7, 7, &[b'x'; 300_000]), request(version, 8, 7, b"\0\0\0\x01x\0\x01\0")].concat();
    for (version, wire) in [(Version::V5, wire), (Version::V4, bare(4))] {
        let mut decoder = started(version, None);
        assert!(!decoder.refuse_arriving(ErrorKind::Overloaded, "no"));
        decoder.buffer().extend_from_slice(&wire[..150_000]);
        assert!(decoder.next_envelope().unwrap().is_none());
        let missing = decoder.missing_bytes();
        assert!((150_000..=300_000).contains(&missing), "{missing}");
        assert!((100_000..=151_000).contains(&decoder.held_bytes()));
        assert!(decoder.refuse_arriving(ErrorKind::Overloaded, "no"));
        decoder.buffer().extend_from_slice(&wire[150_000..200_000]);
        assert!(decoder.next_envelope().unwrap().is_none());
        assert!(decoder.held_bytes() < 100_000, "what arrives of it is dropped");
        decoder.buffer().extend_from_slice(&wire[200_000..]);
        let error = decoder.next_envelope().unwrap_err();
        assert_eq!((error.stream, error.kind, error.fatal), (7, ErrorKind::Overloaded, false));
        assert_eq!(decoder.next_envelope().unwrap().unwrap().header.stream, 8);
        assert_eq!((decoder.missing_bytes(), decoder.held_bytes()), (0, 0));
    }
}
