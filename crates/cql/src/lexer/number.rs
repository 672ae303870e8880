//! Tokens that start with a digit or a sign: numbers, durations, uuids.

use super::{Expecting, LexError, Lexer};
use crate::token::TokenKind;

impl Lexer<'_> {
    pub(super) fn uuid(&mut self) -> Result<TokenKind, LexError> {
        for (i, group) in [8, 4, 4, 4, 12].into_iter().enumerate() {
            if i > 0 {
                self.expect('-')?;
            }
            for _ in 0..group {
                self.expect_any(|b| b.is_ascii_hexdigit())?;
            }
        }
        Ok(TokenKind::Uuid)
    }

    /// A duration that starts with `P` or `-P` and cannot be anything else.
    pub(super) fn iso_duration(&mut self) -> Result<TokenKind, LexError> {
        if self.peek(0) == Some(b'-') {
            self.at += 1;
        }
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if let [b'P', a, b, c, d, b'-', ..] = rest
            && [a, b, c, d].iter().all(|x| x.is_ascii_digit())
        {
            self.at += 5;
            for pattern in b"-dd-ddTdd:dd:dd" {
                match pattern {
                    b'd' => self.expect_any(|b| b.is_ascii_digit())?,
                    _ => self.expect(char::from(*pattern))?,
                }
            }
            return Ok(TokenKind::Duration);
        }
        let length = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        match (1..=length).rev().find(|n| rest.get(..*n).is_some_and(is_iso_duration)) {
            Some(length) => {
                self.at += length;
                Ok(TokenKind::Duration)
            }
            None => {
                self.at += 1;
                self.skip_while(|b| b.is_ascii_digit());
                Err(self.error(Expecting::NoAlternative))
            }
        }
    }

    /// A token that starts with a digit, or with a minus sign and a digit.
    pub(super) fn number(&mut self) -> Result<TokenKind, LexError> {
        let negative = self.peek(0) == Some(b'-');
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if !negative && starts_uuid(rest) && !is_float_of_eight(rest) {
            return self.uuid();
        }
        if negative {
            self.at += 1;
        }
        let digits_start = self.at;
        self.skip_while(|b| b.is_ascii_digit());
        let digits = self.at - digits_start;
        let may_be_hex = !negative && digits < 8;
        match self.peek(0) {
            Some(b'x' | b'X') if !negative && digits == 1 && self.bytes.get(digits_start) == Some(&b'0') => {
                self.at += 1;
                self.skip_while(|b| b.is_ascii_hexdigit());
                Ok(TokenKind::HexNumber)
            }
            Some(b'.') => self.fraction(),
            Some(b'e' | b'E') => self.exponent_or_uuid(may_be_hex, digits_start),
            Some(b'd' | b'D') if may_be_hex => self.days_or_uuid(digits_start),
            Some(b) if is_duration_unit(b) => self.duration(),
            Some(0xC2) if self.peek(1) == Some(0xB5) => self.duration(),
            Some(b) if may_be_hex && b.is_ascii_hexdigit() => {
                self.at = digits_start;
                self.uuid()
            }
            _ => Ok(TokenKind::Integer),
        }
    }

    /// The fraction of a number, from its point on. `1..2` is a range of integers.
    fn fraction(&mut self) -> Result<TokenKind, LexError> {
        if self.peek(1) == Some(b'.') {
            if self.peek(2) == Some(b'.') {
                self.at += 1;
                return Ok(TokenKind::Float);
            }
            return Ok(TokenKind::Integer);
        }
        self.at += 1;
        self.skip_while(|b| b.is_ascii_digit());
        if matches!(self.peek(0), Some(b'e' | b'E')) {
            self.exponent()?;
        }
        Ok(TokenKind::Float)
    }

    fn exponent(&mut self) -> Result<(), LexError> {
        self.at += 1;
        if matches!(self.peek(0), Some(b'+' | b'-')) {
            self.at += 1;
        }
        if !self.peek(0).is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.error(Expecting::Repetition));
        }
        self.skip_while(|b| b.is_ascii_digit());
        Ok(())
    }

    /// Digits and an `e`: a number, unless more letters make it (the start of) a uuid.
    fn exponent_or_uuid(&mut self, may_be_hex: bool, start: usize) -> Result<TokenKind, LexError> {
        if may_be_hex {
            match self.peek(1) {
                Some(b'+' | b'-') => {}
                Some(b'0'..=b'9') => {
                    let hex = self.bytes.get(start..).unwrap_or_default();
                    let exponent_end = hex.iter().skip(self.at - start + 1).take_while(|b| b.is_ascii_digit()).count();
                    let length = self.at - start + 1 + exponent_end;
                    if length < 8 && hex.get(length).is_some_and(|b| b.is_ascii_hexdigit()) {
                        self.at = start;
                        return self.uuid();
                    }
                }
                Some(b) if b.is_ascii_hexdigit() => {
                    self.at = start;
                    return self.uuid();
                }
                _ => {
                    self.at += 1;
                    return Err(self.error(Expecting::NoAlternative));
                }
            }
        }
        self.exponent()?;
        Ok(TokenKind::Float)
    }

    /// Digits and a `d`: a duration, unless more letters make it (the start of) a uuid.
    fn days_or_uuid(&mut self, start: usize) -> Result<TokenKind, LexError> {
        let hex = self.bytes.get(start..).unwrap_or_default();
        let mut letters = false;
        let mut length = self.at - start + 1;
        while length < 8 && hex.get(length).is_some_and(u8::is_ascii_digit) {
            length += 1;
            letters = true;
        }
        let next = hex.get(length).copied().unwrap_or_default();
        let uuid = length < 8 && next.is_ascii_hexdigit() && !(letters && matches!(next, b'd' | b'D'));
        if uuid {
            self.at = start;
            return self.uuid();
        }
        self.duration()
    }

    /// The units of a duration, from the first one on.
    fn duration(&mut self) -> Result<TokenKind, LexError> {
        loop {
            self.duration_unit()?;
            if !self.peek(0).is_some_and(|b| b.is_ascii_digit()) {
                return Ok(TokenKind::Duration);
            }
            self.skip_while(|b| b.is_ascii_digit());
        }
    }

    fn duration_unit(&mut self) -> Result<(), LexError> {
        let next = self.peek(1).map(|b| b.to_ascii_lowercase());
        match self.peek(0).map(|b| b.to_ascii_lowercase()) {
            Some(b'm') if matches!(next, Some(b'o' | b's')) => self.at += 2,
            Some(b'y' | b'm' | b'w' | b'd' | b'h' | b's') => self.at += 1,
            Some(b'u' | b'n') => {
                self.at += 1;
                self.expect_any(|b| b.eq_ignore_ascii_case(&b's'))?;
            }
            Some(0xC2) if next == Some(0xB5) => {
                self.at += 2;
                self.expect_any(|b| b.eq_ignore_ascii_case(&b's'))?;
            }
            _ => return Err(self.error(Expecting::NoAlternative)),
        }
        Ok(())
    }
}

/// Eight hexadecimal digits and a minus sign.
pub(super) fn starts_uuid(bytes: &[u8]) -> bool {
    bytes.get(..8).is_some_and(|head| head.iter().all(u8::is_ascii_hexdigit)) && bytes.get(8) == Some(&b'-')
}

/// `1234567e-1` is a number although it starts like a uuid.
fn is_float_of_eight(bytes: &[u8]) -> bool {
    let Some((digits, rest)) = bytes.split_at_checked(7) else {
        return false;
    };
    let exponent: usize = rest.get(2..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count();
    let uuid_like = rest.get(2..7).is_some_and(|b| {
        b.get(..4).is_some_and(|group| group.iter().all(u8::is_ascii_hexdigit)) && b.get(4) == Some(&b'-')
    });
    digits.iter().all(u8::is_ascii_digit) && matches!(rest.first(), Some(b'e' | b'E')) && exponent > 0 && !uuid_like
}

fn is_duration_unit(byte: u8) -> bool {
    matches!(byte.to_ascii_lowercase(), b'y' | b'm' | b'w' | b'd' | b'h' | b's' | b'u' | b'n')
}

/// Whether a word is a whole ISO 8601 duration such as `P1Y2M3DT4H5M6S` or `P3W`.
pub(super) fn is_iso_duration(word: &[u8]) -> bool {
    let Some(rest) = word.strip_prefix(b"P") else {
        return false;
    };
    let (date, time) = match rest.iter().position(|b| *b == b'T') {
        Some(t) => (rest.get(..t).unwrap_or_default(), rest.get(t + 1..)),
        None => (rest, None),
    };
    let date_valid =
        (time.is_some() && date.is_empty()) || designators(date, b"YMD") || (time.is_none() && designators(date, b"W"));
    date_valid && time.is_none_or(|time| designators(time, b"HMS"))
}

/// Whether the bytes are at least one number with a designator, designators in the order given. `Y` and `D` need
/// not have an `M` between them.
fn designators(bytes: &[u8], order: &[u8]) -> bool {
    let mut rest = bytes;
    let mut allowed = order;
    while !rest.is_empty() {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let Some(found) = rest.get(digits).and_then(|d| allowed.iter().position(|a| a == d)) else {
            return false;
        };
        if digits == 0 {
            return false;
        }
        allowed = allowed.get(found + 1..).unwrap_or_default();
        rest = rest.get(digits + 1..).unwrap_or_default();
    }
    !bytes.is_empty()
}
