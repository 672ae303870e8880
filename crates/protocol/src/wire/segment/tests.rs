use super::*;

/// Segments as Cassandra 5.0.8 sent them.
const PLAIN_RESULT: &str = "50000260635d850000010800000047000000020000000100000002000673797374656d00056c6f63616c00036b6579\
     000d000b63716c5f76657273696f6e000d00000001000000056c6f63616c00000005332e342e37511094f6";
const LZ4_RESULT: &str = "4900a00004fdb3a0f10285000001080000004700000002000000010800f3150673797374656d00056c6f63616c00036b65\
     79000d000b63716c5f76657273696f6e000d2d0003230080000005332e342e37065b04d1";
const LZ4_STORED: &str = "0900000004c2b89505000004050000000006c4b9d6";

fn decode_hex(hex: &str, lz4: bool) -> Segment {
    decode(&mut BytesMut::from(&unhex(hex)[..]), lz4).unwrap().whole().unwrap()
}

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let text = |pair: &[u8]| std::str::from_utf8(pair).unwrap().to_owned();
    digits.chunks(2).map(|pair| u8::from_str_radix(&text(pair), 16).unwrap()).collect()
}

#[test]
fn cassandras_segments_are_read_and_written_alike() {
    let plain = decode_hex(PLAIN_RESULT, false);
    assert!(plain.self_contained);
    let mut out = Vec::new();
    encode(&plain.payload, true, false, &mut out);
    assert_eq!(out, unhex(PLAIN_RESULT));
    // The same answer compressed. Another compressor makes other blocks, so only reading is compared.
    assert_eq!(decode_hex(LZ4_RESULT, true).payload, plain.payload);
}

#[test]
fn a_payload_that_does_not_shrink_is_stored() {
    let stored = decode_hex(LZ4_STORED, true);
    assert_eq!(&stored.payload[..], unhex("050000040500000000"));
    let mut out = Vec::new();
    encode(&stored.payload, true, true, &mut out);
    assert_eq!(out, unhex(LZ4_STORED));
}

#[test]
fn every_size_goes_round_in_both_modes() {
    for size in [0, 1, 2, 3, 9, 255, 65535, 65536, PAYLOAD_SIZE_MAX - 1, PAYLOAD_SIZE_MAX] {
        for (lz4, self_contained) in [(false, true), (false, false), (true, true), (true, false)] {
            let payload: Vec<u8> = (0..size).map(|i| (i / 7) as u8).collect();
            let mut out = Vec::new();
            encode(&payload, self_contained, lz4, &mut out);
            let mut input = BytesMut::from(&out[..]);
            let segment = decode(&mut input, lz4).unwrap().whole().unwrap();
            assert_eq!(&segment.payload[..], payload);
            assert_eq!(segment.self_contained, self_contained);
            assert!(input.is_empty());
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for (hex, lz4) in [(PLAIN_RESULT, false), (LZ4_RESULT, true), (LZ4_STORED, true)] {
        let good = unhex(hex);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&mut BytesMut::from(&bad[..]), lz4), Err(SegmentError::Crc { .. })), "bit {bit}");
        }
    }
}

#[test]
fn a_segment_is_awaited_to_its_last_byte() {
    let whole = unhex(PLAIN_RESULT);
    for size in 0..whole.len() {
        assert!(decode(&mut BytesMut::from(&whole[..size]), false).unwrap().whole().is_none(), "{size}");
    }
}
