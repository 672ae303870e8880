//! Splits a text into tokens.
//!
//! Token boundaries, and the errors where there is no token, are Cassandra's. It chooses the kind of a token from its
//! first characters and does not reconsider, so `12345678-5` is half a uuid and `1a` is no token at all.

mod number;

use std::borrow::Cow;

use self::number::{is_iso_duration, starts_uuid};
use super::token::{TokenKind, word_kind};

/// A token of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub kind: TokenKind,
    /// Byte offsets in the text.
    pub start: usize,
    pub end: usize,
    /// The number of tokens before this one, including white space and comments.
    pub number: usize,
}

impl Token {
    /// The text of the token; for a quoted token, what is between the quotes.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let raw = text.get(self.start..self.end).unwrap_or_default();
        match self.kind {
            TokenKind::StringLiteral if raw.starts_with('$') => {
                Cow::Borrowed(raw.get(2..raw.len().saturating_sub(2)).unwrap_or_default())
            }
            TokenKind::StringLiteral => unquote(raw, "''", "'"),
            TokenKind::QuotedName => unquote(raw, "\"\"", "\""),
            _ => Cow::Borrowed(raw),
        }
    }
}

fn unquote<'a>(raw: &'a str, escaped: &str, plain: &str) -> Cow<'a, str> {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    if inner.contains(plain) { Cow::Owned(inner.replace(escaped, plain)) } else { Cow::Borrowed(inner) }
}

/// The place where there is no token, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LexError {
    /// Byte offset of the character.
    pub at: usize,
    pub expecting: Expecting,
}

/// What was expected there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expecting {
    /// No token continues like this.
    NoAlternative,
    /// At least one more digit.
    Repetition,
    /// One of several characters.
    Set,
    Character(char),
    /// The end of the statement, which has reached the token limit.
    End,
}

/// The tokens of a text. The last one is `Eof`, or `LexerError` where the lexer stopped.
pub(crate) struct Tokens {
    /// Without white space and comments.
    pub tokens: Vec<Token>,
    pub error: Option<LexError>,
}

/// The most tokens of a statement. Everything made from a text takes memory in proportion to its tokens, and much more
/// than the text itself.
pub(crate) const TOKENS_MAX: usize = 1 << 19;

/// The initial capacity for tokens.
const TOKENS_EXPECTED_MAX: usize = 1 << 10;

/// How many tokens a text has, up to its first mistake or the limit; parsing it takes memory in proportion. Counting
/// takes none.
pub fn token_count(text: &str) -> usize {
    let mut count = 0;
    visit_tokens(text, |_| {
        count += 1;
        count
    });
    count
}

/// Splits a text into tokens, up to its end, the first mistake or the limit.
pub(crate) fn tokenize(text: &str) -> Tokens {
    let mut tokens = Vec::with_capacity((text.len() / 5 + 2).min(TOKENS_EXPECTED_MAX));
    let error = visit_tokens(text, |token| {
        tokens.push(token);
        tokens.len()
    });
    Tokens { tokens, error }
}

/// Passes the tokens of a text to `visit`, which returns how many it has seen. Returns the error where it ends at one.
fn visit_tokens(text: &str, mut visit: impl FnMut(Token) -> usize) -> Option<LexError> {
    let (mut seen, mut number, mut start) = (0, 0, 0);
    loop {
        let mut lexer = Lexer { text, bytes: text.as_bytes(), at: start };
        let (kind, error) = match lexer.next() {
            Ok(Some(kind)) => (kind, None),
            Ok(None) => {
                number += 1;
                start = lexer.at;
                continue;
            }
            Err(error) => (TokenKind::LexerError, Some(error)),
        };
        let (kind, error) = match seen < TOKENS_MAX || kind == TokenKind::Eof {
            true => (kind, error),
            false => (TokenKind::LexerError, Some(LexError { at: start, expecting: Expecting::End })),
        };
        seen = visit(Token { kind, start, end: lexer.at, number });
        if error.is_some() || kind == TokenKind::Eof {
            return error;
        }
        number += 1;
        start = lexer.at;
    }
}

/// All tokens up to `end` (a byte offset). White space and comments are tokens of the kind `LexerError`.
pub(crate) fn all_tokens(text: &str, end: usize) -> impl Iterator<Item = Token> {
    let (mut start, mut number) = (0, 0);
    std::iter::from_fn(move || {
        if start >= end {
            return None;
        }
        let mut lexer = Lexer { text, bytes: text.as_bytes(), at: start };
        let kind = lexer.next().ok()?.unwrap_or(TokenKind::LexerError);
        let token = Token { kind, start, end: lexer.at, number };
        (start, number) = (lexer.at, number + 1);
        Some(token)
    })
}

/// The text with each comment replaced by a space, even a comment that does not end.
pub fn without_comments(text: &str) -> String {
    let (mut shown, mut start) = (String::with_capacity(text.len()), 0);
    while let Some(first) = text.get(start..).and_then(|rest| rest.chars().next()) {
        let mut lexer = Lexer { text, bytes: text.as_bytes(), at: start };
        let is_comment = matches!((first, lexer.peek(1)), ('/', Some(b'/' | b'*')) | ('-', Some(b'-')));
        let end = match lexer.next() {
            Ok(_) => lexer.at,
            Err(_) if is_comment => text.len(),
            Err(_) => start + first.len_utf8(),
        };
        shown.push_str(if is_comment { " " } else { text.get(start..end).unwrap_or_default() });
        start = end;
    }
    shown
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Lexer<'_> {
    /// Reads the next token and returns its kind; `None` for white space and comments. `at` ends up after it.
    fn next(&mut self) -> Result<Option<TokenKind>, LexError> {
        use TokenKind::*;
        let Some(first) = self.peek(0) else {
            return Ok(Some(Eof));
        };
        let kind = match first {
            b' ' | b'\t' | b'\n' | b'\r' => {
                self.skip_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'));
                return Ok(None);
            }
            b'/' if self.peek(1) == Some(b'/') => return self.comment(),
            b'/' if self.peek(1) == Some(b'*') => return self.multiline_comment(),
            b'-' if self.peek(1) == Some(b'-') => return self.comment(),
            b'\'' => self.string()?,
            b'$' => self.dollar_string()?,
            b'"' => self.quoted_name()?,
            b'0'..=b'9' => self.number()?,
            b'-' => self.minus()?,
            b'a'..=b'z' | b'A'..=b'Z' => self.word()?,
            b'!' => {
                self.at += 1;
                self.expect('=')?;
                NotEqual
            }
            b'+' => self.one_or_two(b'=', Plus, PlusEq),
            b'<' => self.one_or_two(b'=', Less, LessEq),
            b'>' => self.one_or_two(b'=', Greater, GreaterEq),
            b'.' => self.one_or_two(b'.', Dot, Range),
            _ => {
                let kind = match first {
                    b'%' => Percent,
                    b'(' => OpenParen,
                    b')' => CloseParen,
                    b',' => Comma,
                    b'/' => Slash,
                    b':' => Colon,
                    b';' => Semicolon,
                    b'=' => Equal,
                    b'?' => QMark,
                    b'[' => OpenBracket,
                    b']' => CloseBracket,
                    b'{' => OpenBrace,
                    b'}' => CloseBrace,
                    b'*' => Star,
                    _ => return Err(self.error(Expecting::NoAlternative)),
                };
                self.at += 1;
                kind
            }
        };
        Ok(Some(kind))
    }

    fn peek(&self, offset: usize) -> Option<u8> {
        self.bytes.get(self.at + offset).copied()
    }

    fn error(&self, expecting: Expecting) -> LexError {
        LexError { at: self.at, expecting }
    }

    fn skip_while(&mut self, mut wanted: impl FnMut(u8) -> bool) {
        while self.peek(0).is_some_and(&mut wanted) {
            self.at += 1;
        }
    }

    fn expect(&mut self, character: char) -> Result<(), LexError> {
        if self.peek(0) == Some(character as u8) {
            self.at += 1;
            return Ok(());
        }
        Err(self.error(Expecting::Character(character)))
    }

    /// Reads one of several characters.
    fn expect_any(&mut self, wanted: impl Fn(u8) -> bool) -> Result<(), LexError> {
        if self.peek(0).is_some_and(wanted) {
            self.at += 1;
            return Ok(());
        }
        Err(self.error(Expecting::Set))
    }

    fn one_or_two(&mut self, second: u8, one: TokenKind, two: TokenKind) -> TokenKind {
        self.at += 1;
        if self.peek(0) != Some(second) {
            return one;
        }
        self.at += 1;
        two
    }

    /// `--` or `//` up to the end of the line, which is required.
    fn comment(&mut self) -> Result<Option<TokenKind>, LexError> {
        self.skip_while(|b| !matches!(b, b'\n' | b'\r'));
        self.expect_any(|_| true)?;
        Ok(None)
    }

    fn multiline_comment(&mut self) -> Result<Option<TokenKind>, LexError> {
        let rest = self.bytes.get(self.at + 2..).unwrap_or_default();
        match rest.windows(2).position(|pair| pair == b"*/") {
            Some(length) => {
                self.at += 2 + length + 2;
                Ok(None)
            }
            None => {
                self.at = self.bytes.len();
                Err(self.error(Expecting::Character('*')))
            }
        }
    }

    /// `'...'` with `''` for a quote.
    fn string(&mut self) -> Result<TokenKind, LexError> {
        self.quoted(b'\'')?;
        Ok(TokenKind::StringLiteral)
    }

    fn quoted(&mut self, quote: u8) -> Result<(), LexError> {
        self.at += 1;
        loop {
            self.skip_while(|b| b != quote);
            self.expect(char::from(quote))?;
            if self.peek(0) != Some(quote) {
                return Ok(());
            }
            self.at += 1;
        }
    }

    /// `"..."` with `""` for a quote. An empty name has its own token kind.
    fn quoted_name(&mut self) -> Result<TokenKind, LexError> {
        if self.peek(1) == Some(b'"') && self.peek(2) != Some(b'"') {
            self.at += 2;
            return Ok(TokenKind::EmptyQuotedName);
        }
        if self.peek(1).is_none() {
            self.at += 1;
            return Err(self.error(Expecting::NoAlternative));
        }
        self.quoted(b'"')?;
        Ok(TokenKind::QuotedName)
    }

    /// `$$...$$`, without any escapes.
    fn dollar_string(&mut self) -> Result<TokenKind, LexError> {
        self.at += 1;
        self.expect('$')?;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if let Some(length) = rest.windows(2).position(|pair| pair == b"$$") {
            self.at += length + 2;
            return Ok(TokenKind::StringLiteral);
        }
        // Cassandra reports the last character of the text, whatever it is.
        self.at += self.text.get(self.at..).and_then(|t| t.char_indices().last()).map_or(0, |(i, _)| i);
        self.expect('$')?;
        Err(self.error(Expecting::Character('$')))
    }

    /// A token that starts with a minus sign.
    fn minus(&mut self) -> Result<TokenKind, LexError> {
        match self.peek(1) {
            Some(b'0'..=b'9') => self.number(),
            Some(b'P') => self.iso_duration(),
            Some(b'n' | b'N') => self.negative_word("nan", TokenKind::KNegativeNan),
            Some(b'i' | b'I') => self.negative_word("infinity", TokenKind::KNegativeInfinity),
            _ => Ok(self.one_or_two(b'=', TokenKind::Minus, TokenKind::MinusEq)),
        }
    }

    fn negative_word(&mut self, word: &str, kind: TokenKind) -> Result<TokenKind, LexError> {
        self.at += 1;
        for letter in word.bytes() {
            self.expect_any(|b| b.eq_ignore_ascii_case(&letter))?;
        }
        Ok(kind)
    }

    /// A keyword, identifier, or a uuid or duration that starts with a letter.
    fn word(&mut self) -> Result<TokenKind, LexError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if starts_uuid(rest) {
            return self.uuid();
        }
        let length = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        let word = rest.get(..length).unwrap_or_default();
        if word.first() == Some(&b'P') {
            if let [b'P', a, b, c, d, b'-', ..] = rest
                && [a, b, c, d].iter().all(|x| x.is_ascii_digit())
            {
                return self.iso_duration();
            }
            if is_iso_duration(word) {
                self.at += length;
                return Ok(TokenKind::Duration);
            }
        }
        self.at += length;
        if word == b"expr" && self.peek(0) == Some(b'(') {
            self.at += 1;
            return Ok(TokenKind::Expr);
        }
        Ok(word_kind(word))
    }
}
