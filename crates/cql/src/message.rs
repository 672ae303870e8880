//! The texts of syntax errors, as Cassandra writes them.

use super::lexer::{Expecting, LexError, TOKENS_MAX, Token, all_tokens};
use super::token::TokenKind;

/// The number of tokens that are shown before and after the current one, white space included.
const TOKENS_BEFORE: usize = 10;
const TOKENS_AFTER: usize = 2;

/// The bytes of a token from which its text is shown. A message is cut to 65,535 bytes when it is sent, and a quoted
/// token is at least half as long as its form in the text.
const TOKEN_BYTES_MAX: usize = 256 << 10;

/// The UTF-16 units of a part of the text that are shown, for the same reason.
const UNITS_MAX: usize = 128 << 10;

/// Line (from 1) and column (from 0, in UTF-16 units) of a byte offset.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    let column = before.get(line_start..).unwrap_or_default().encode_utf16().count();
    (line, column)
}

/// A message about a place where there is no token.
pub(crate) fn lexer_message(text: &str, error: LexError) -> String {
    let (line, column) = position(text, error.at);
    let found = match text.get(error.at..).and_then(|rest| rest.chars().next()) {
        None => "<EOF>".to_string(),
        Some('\n') => "\\n".to_string(),
        Some('\t') => "\\t".to_string(),
        Some('\r') => "\\r".to_string(),
        Some(c) => c.to_string(),
    };
    let what = match error.expecting {
        Expecting::NoAlternative => format!("no viable alternative at character '{found}'"),
        Expecting::Repetition => format!("required (...)+ loop did not match anything at character '{found}'"),
        Expecting::Set => format!("mismatched character '{found}' expecting set null"),
        Expecting::End => return format!("Statement is too long: more than {TOKENS_MAX} tokens"),
        Expecting::Character(c) => format!("mismatched character '{found}' expecting '{c}'"),
    };
    format!("line {line}:{column} {what}")
}

/// What the parser expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedTokens {
    /// One of several alternatives.
    Alternative,
    /// One of several tokens.
    Set,
    Token(TokenKind),
}

/// A message about a token that does not fit.
///
/// `found` does not fit. `current` was the parser's current token when it looked ahead to `found`, and `seen` is the
/// last token that it has looked at.
pub(crate) fn parser_message(
    text: &str,
    found: &Token,
    current: &Token,
    seen: &Token,
    expected: ExpectedTokens,
) -> String {
    let mut message = if found.kind == TokenKind::Eof {
        "line 0:-1".to_string()
    } else {
        let (line, column) = position(text, found.start);
        format!("line {line}:{column}")
    };
    let shown = if found.kind == TokenKind::Eof { "<EOF>".into() } else { shortened(found, text).text(text) };
    let shown = shown.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
    match expected {
        ExpectedTokens::Alternative => message.push_str(&format!(" no viable alternative at input '{shown}'")),
        ExpectedTokens::Set => message.push_str(&format!(" mismatched input '{shown}' expecting set null")),
        ExpectedTokens::Token(kind) => {
            message.push_str(&format!(" mismatched input '{shown}' expecting {}", kind.name()))
        }
    }
    // Behind a message of this length, the context would be cut off when the message is sent.
    if message.len() < UNITS_MAX
        && let Some(context) = context(text, current, seen)
    {
        message.push_str(&context);
    }
    message
}

/// The token, without what is never shown of a long one.
fn shortened(token: &Token, text: &str) -> Token {
    let end = token.end.min(token.start + TOKEN_BYTES_MAX);
    Token { end: (end..=token.end).find(|end| text.is_char_boundary(*end)).unwrap_or(token.end), ..*token }
}

/// The part of the text around the current token, which is put in brackets. `None` at the end of the text.
fn context(text: &str, current: &Token, seen: &Token) -> Option<String> {
    let last = seen.number.min(current.number + TOKENS_AFTER);
    let first = current.number.saturating_sub(TOKENS_BEFORE);
    let near: Vec<Token> = all_tokens(text, seen.end).skip(first).take((last + 1).saturating_sub(first)).collect();
    let from = near.first()?;
    let to = near.get(last.checked_sub(first)?).filter(|_| last < seen.number || seen.kind != TokenKind::Eof)?;
    let offending = near.get(current.number - first)?;

    // Everything from here on is in UTF-16 units, as Cassandra counts. A string token's end counts the characters
    // between the quotes, without the quotes, which shows in the brackets.
    let units: Vec<u16> = text.get(from.start..to.end)?.encode_utf16().take(UNITS_MAX).collect();
    let unit = |offset: usize| text.get(from.start..offset).map_or(0, |part| part.encode_utf16().count());
    let shown_end =
        |token: &Token| (unit(token.start) + shortened(token, text).text(text).encode_utf16().count()).min(units.len());
    let open = unit(offending.start).min(units.len());
    let close = shown_end(offending).max(open);
    let end = shown_end(to).max(close);
    let part =
        format!("{}[{}]{}", shown(units.get(..open)?), shown(units.get(open..close)?), shown(units.get(close..end)?));
    let before = if from.start > 0 { "..." } else { "" };
    let behind = if end < unit(text.trim_end_matches('\n').len()) { "..." } else { "" };
    Some(format!(" ({before}{}{behind})", part.replace('\n', "")))
}

/// A surrogate pair that is cut in two is shown as question marks.
fn shown(units: &[u16]) -> String {
    char::decode_utf16(units.iter().copied()).map(|unit| unit.unwrap_or('?')).collect()
}
