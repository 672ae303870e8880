//! The part of DER that keys need: reading a value, writing one, and completing keys that Java writes.

const INTEGER: u8 = 0x02;
/// The tag of bytes.
pub(super) const OCTET_STRING: u8 = 0x04;
/// The tag of values one after another.
pub(super) const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
/// The places of the curve and of the public key in an `ECPrivateKey`. Both may be left out.
const CURVE: u8 = 0xA0;
const PUBLIC_KEY: u8 = 0xA1;
/// The name of elliptic curve keys, 1.2.840.10045.2.1.
const EC_PUBLIC_KEY: [u8; 9] = [0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01];

/// Takes a value with this tag from the beginning of `input`; its content.
pub(super) fn take<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let ([found, length], rest) = input.split_first_chunk::<2>()?;
    let (length, rest) = match length {
        0..=0x7F => (usize::from(*length), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7F))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *input = rest;
    (*found == tag).then_some(content)
}

/// A value with this tag.
fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let digits = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut out = vec![tag];
    match digits {
        [] => out.push(0),
        [short] if *short < 0x80 => out.push(*short),
        digits => {
            out.push(0x80 | digits.len() as u8);
            out.extend_from_slice(digits);
        }
    }
    out.extend_from_slice(content);
    out
}

/// A private key (PKCS #8) with its public key, which is that of the certificate. Java leaves it out of keys on
/// elliptic curves, and the cryptography here needs it. Any other key is returned as it is.
pub(super) fn with_public_key(key: &[u8], certificate: &[u8]) -> Vec<u8> {
    completed(key, certificate).unwrap_or_else(|| key.to_vec())
}

fn completed(key: &[u8], certificate: &[u8]) -> Option<Vec<u8>> {
    let mut input = key;
    let mut info = take(&mut input, SEQUENCE)?;
    let version = take(&mut info, INTEGER)?;
    let algorithm = take(&mut info, SEQUENCE).filter(|algorithm| algorithm.starts_with(&EC_PUBLIC_KEY))?;
    let mut private = take(&mut info, OCTET_STRING)?;
    let curve_key = take(&mut private, SEQUENCE)?;
    let mut parts = curve_key;
    take(&mut parts, INTEGER)?;
    take(&mut parts, OCTET_STRING)?;
    let mut after_curve = parts;
    if take(&mut after_curve, CURVE).is_some() {
        parts = after_curve;
    }
    if parts.first() == Some(&PUBLIC_KEY) {
        return None;
    }
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let public = &certificate.public_key().subject_public_key.data;
    let public = value(PUBLIC_KEY, &value(BIT_STRING, &[&[0], &**public].concat()));
    let private = value(OCTET_STRING, &value(SEQUENCE, &[curve_key, &public].concat()));
    let info = [value(INTEGER, version), value(SEQUENCE, algorithm), private].concat();
    Some(value(SEQUENCE, &info))
}

/// How deeply values may be within others.
const DEPTH_MAX: u32 = 32;

/// The bit of a tag that says that other values are within the value.
const CONSTRUCTED: u8 = 0x20;

/// The sum of the iterations of all key derivations that are described in a store in clear. In each description the
/// number follows the salt.
pub(super) fn derivation_iterations(store: &[u8]) -> u64 {
    let mut sum = 0;
    add_iterations(store, DEPTH_MAX, &mut sum);
    sum
}

/// Adds the iterations in these values; whether the bytes are values at all.
fn add_iterations(mut input: &[u8], depth: u32, sum: &mut u64) -> bool {
    let mut is_after_salt = false;
    while let Some(tag) = input.first().copied() {
        let Some(content) = take(&mut input, tag) else { return false };
        if tag == INTEGER && is_after_salt {
            let number =
                content.iter().fold(0_u64, |number, byte| number.saturating_mul(256).saturating_add((*byte).into()));
            *sum = sum.saturating_add(number);
        } else if depth > 0 && (tag & CONSTRUCTED != 0 || (tag == OCTET_STRING && content.first() == Some(&SEQUENCE))) {
            // Bytes may contain further values. If they only look like values, their iterations do not count.
            let before = *sum;
            if !add_iterations(content, depth - 1, sum) && tag == OCTET_STRING {
                *sum = before;
            }
        }
        is_after_salt = tag == OCTET_STRING;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_iterations_after_salts_are_added_at_any_depth() {
        let parameters =
            |iterations: &[u8]| value(SEQUENCE, &[value(OCTET_STRING, &[7; 8]), value(INTEGER, iterations)].concat());
        let inner = value(OCTET_STRING, &value(SEQUENCE, &parameters(&[0x27, 0x10])));
        let store = value(SEQUENCE, &[value(INTEGER, &[3]), value(0xA0, &inner), parameters(&[1, 0])].concat());
        assert_eq!(derivation_iterations(&store), 10_256);
        assert_eq!(derivation_iterations(&parameters(&[0x7f; 20])), u64::MAX);
        // Iterations are found even if a salt begins like a value.
        let salt = [value(OCTET_STRING, &[SEQUENCE, 200, 1]), value(INTEGER, &[5])].concat();
        assert_eq!(derivation_iterations(&value(SEQUENCE, &salt)), 5);
        for end in 0..store.len() {
            assert!(derivation_iterations(&store[..end]) <= 10_256);
        }
        let deep = (0..100).fold(parameters(&[9]), |inner, _| value(SEQUENCE, &inner));
        assert_eq!(derivation_iterations(&deep), 0);
    }

    #[test]
    fn values_of_any_length_are_read_as_they_were_written() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; length];
            let mut written = value(OCTET_STRING, &content);
            written.push(9);
            let mut input = &written[..];
            assert_eq!(take(&mut input, OCTET_STRING).unwrap(), content);
            assert_eq!(input, [9]);
            assert!(take(&mut &written[..], SEQUENCE).is_none());
            assert!(take(&mut &written[..length], OCTET_STRING).is_none());
        }
    }
}
