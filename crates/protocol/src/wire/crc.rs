//! The two checksums of v5 segments.

/// Polynomial of the header's CRC24, with its top bit.
const CRC24_POLYNOMIAL: u32 = 0x197_4F0B;
const CRC24_INITIAL: u32 = 0x87_5060;

const CRC24_TABLE: [u32; 256] = crc24_table();

const fn crc24_table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            crc <<= 1;
            if crc & 0x100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// CRC24 of a segment header.
pub(crate) fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(CRC24_INITIAL, |crc, &byte| {
        let index = (crc >> 16) as u8 ^ byte;
        ((crc << 8) & 0xFF_FFFF) ^ CRC24_TABLE[index as usize]
    })
}

/// CRC32 (zlib's) of the four bytes FA 2D 55 CA, with which every payload checksum starts.
const CRC32_INITIAL: u32 = 0x4477_7ED3;

/// CRC32 of a segment payload.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(CRC32_INITIAL);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc24_matches_cassandra() {
        let cases: [(&[u8], &str); 6] = [
            (&[0, 0, 0], "7de777"),
            (&[1, 0, 2], "ac5672"),
            (&[0x0d, 0, 2], "f707cf"),
            (&[0xff, 0xff, 1], "fe9138"),
            (&[1, 0, 0, 0, 0], "634837"),
            (&[1, 2, 3, 4, 5], "319669"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(format!("{:06x}", crc24(bytes)), expected, "{bytes:?}");
        }
    }

    #[test]
    fn crc32_matches_cassandra() {
        let seed = crc32fast::hash(&[0xFA, 0x2D, 0x55, 0xCA]);
        assert_eq!(seed, CRC32_INITIAL);
        for (bytes, expected) in
            [(&b""[..], "44777ed3"), (b"\0", "cd9c1b9d"), (b"abc", "c5367a08"), (b"123456789", "e2a261a7")]
        {
            assert_eq!(format!("{:08x}", crc32(bytes)), expected, "{bytes:?}");
        }
    }
}
