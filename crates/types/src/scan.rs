//! Scanning a text from left to right.

/// The rest of a text. Reading advances it; a failed match leaves it unchanged.
#[derive(Clone, Copy)]
pub(crate) struct Scanner<'a>(pub(crate) &'a str);

impl<'a> Scanner<'a> {
    pub(crate) fn is_at_end(self) -> bool {
        self.0.is_empty()
    }

    /// Skips this text if it comes next.
    pub(crate) fn accept(&mut self, text: &str) -> bool {
        let rest = self.0.strip_prefix(text);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// The ASCII digits that come next, possibly none, and at most `max`.
    pub(crate) fn digits(&mut self, max: usize) -> &'a str {
        let length = self.0.bytes().take(max).take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at(length);
        self.0 = rest;
        digits
    }

    /// The number that the next `min` to `max` digits form.
    pub(crate) fn number(&mut self, min: usize, max: usize) -> Option<i64> {
        let mut ahead = *self;
        let digits = ahead.digits(max);
        if digits.len() < min {
            return None;
        }
        let number = digits.parse().ok()?;
        *self = ahead;
        Some(number)
    }
}
