//! Partition positions: the token first, then the key's bytes.

use types::Token;

use crate::escape;
use crate::reader::{DecodeError, Reader};
use crate::separator::{GT_NEXT_COMPONENT, LT_NEXT_COMPONENT, NEXT_COMPONENT, TERMINATOR};

const SIGN: u64 = 1 << 63;

/// The side of a key or token on which a bound lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before it and everything equal to it.
    Before,
    /// After it and everything equal to it.
    After,
}

impl Side {
    fn terminator(self) -> u8 {
        match self {
            Side::Before => LT_NEXT_COMPONENT,
            Side::After => GT_NEXT_COMPONENT,
        }
    }
}

/// Appends the position of a partition.
#[inline]
pub fn encode_decorated_key(token: Token, key: &[u8], out: &mut Vec<u8>) {
    encode_with_terminator(token, key, TERMINATOR, out);
}

/// Appends the bound just before or after a partition.
pub fn encode_key_bound(token: Token, key: &[u8], side: Side, out: &mut Vec<u8>) {
    encode_with_terminator(token, key, side.terminator(), out);
}

/// Appends the bound before or after all partitions with this token. The minimum token means "before everything": both
/// of its bounds are the one before it.
pub fn encode_token_bound(token: Token, side: Side, out: &mut Vec<u8>) {
    let side = if token == Token::MINIMUM { Side::Before } else { side };
    encode_token(token, out);
    out.push(side.terminator());
}

/// Decodes the token and key of a complete encoded position.
pub fn decode_decorated_key(encoded: &[u8]) -> Result<(Token, Vec<u8>), DecodeError> {
    let mut key = Vec::with_capacity(encoded.len().saturating_sub(12));
    let token = decode_decorated_key_into(encoded, &mut key)?;
    Ok((token, key))
}

/// Like [`decode_decorated_key`]; appends the key to `out`.
pub fn decode_decorated_key_into(encoded: &[u8], out: &mut Vec<u8>) -> Result<Token, DecodeError> {
    let mut reader = Reader::new(encoded);
    let token = read_decorated_key(&mut reader, out)?;
    if reader.peek().is_some() { Err(reader.error("the end of a key")) } else { Ok(token) }
}

/// Decodes the token and key of the complete position at the start of `input`, and moves `input` past it. Appends the
/// key to `out`.
pub fn decode_leading_key(input: &mut &[u8], out: &mut Vec<u8>) -> Result<Token, DecodeError> {
    let mut reader = Reader::new(input);
    let token = read_decorated_key(&mut reader, out)?;
    *input = reader.rest();
    Ok(token)
}

fn read_decorated_key(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<Token, DecodeError> {
    expect(reader, NEXT_COMPONENT, "the separator before a token")?;
    let token = Token((u64::from_be_bytes(reader.array("a token")?) ^ SIGN) as i64);
    expect(reader, NEXT_COMPONENT, "the separator before a key")?;
    escape::decode(reader, out)?;
    expect(reader, TERMINATOR, "the terminator of a key")?;
    Ok(token)
}

#[inline]
fn encode_with_terminator(token: Token, key: &[u8], terminator: u8, out: &mut Vec<u8>) {
    // Every read and write encodes a position. Words are assembled in registers: bytes stored one by one can only be
    // loaded as a wider word once all earlier stores are done, and these may wait for memory.
    let token = u64::from_le_bytes(ordered_token(token));
    let separator = u64::from(NEXT_COMPONENT);
    let (head, rest_of_token) = (separator | token << 8, token >> 56 | separator << 8);
    match <&[u8; 16]>::try_from(key) {
        Ok(key) if !escape::has_zero(key) => {
            let key = u128::from_le_bytes(*key);
            let end = u128::from(u16::from_le_bytes([escape::END, terminator])) << 80;
            let first = u128::from(head) | u128::from(rest_of_token) << 64 | key << 80;
            out.extend_from_slice(&first.to_le_bytes());
            let last = (key >> 48 | end).to_le_bytes();
            out.extend_from_slice(last.first_chunk::<12>().expect("12 bytes of 16"));
        }
        _ => {
            out.reserve(key.len() + 12);
            out.extend_from_slice(&head.to_le_bytes());
            out.extend_from_slice(&(rest_of_token as u16).to_le_bytes());
            escape::encode(key, out);
            out.push(terminator);
        }
    }
}

fn encode_token(token: Token, out: &mut Vec<u8>) {
    out.push(NEXT_COMPONENT);
    out.extend_from_slice(&ordered_token(token));
}

#[inline]
fn ordered_token(token: Token) -> [u8; 8] {
    (token.0 as u64 ^ SIGN).to_be_bytes()
}

fn expect(reader: &mut Reader<'_>, byte: u8, expected: &'static str) -> Result<(), DecodeError> {
    if reader.byte(expected)? == byte { Ok(()) } else { Err(reader.error_before(expected)) }
}
