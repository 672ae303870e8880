//! Bytes as lower-case hexadecimal text.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Appends two digits for each byte.
pub fn write(bytes: &[u8], out: &mut String) {
    out.reserve(2 * bytes.len());
    for &byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)] as char);
        out.push(DIGITS[usize::from(byte & 15)] as char);
    }
}

/// Two digits for each byte.
pub fn to_string(bytes: &[u8]) -> String {
    let mut out = String::new();
    write(bytes, &mut out);
    out
}

/// The bytes of an even number of digits in either case; `None` for anything else.
pub fn parse(text: &str) -> Option<Vec<u8>> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}
