//! The texts of syntax errors, as Cassandra writes them.

use super::lexer::{Expecting, LexError, Token, tokenize_all};
use super::token::TokenKind;

/// Tokens shown before and after the one the parser stands at, white space counted.
const TOKENS_BEFORE: usize = 10;
const TOKENS_AFTER: usize = 2;

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
        Expecting::Character(c) => format!("mismatched character '{found}' expecting '{c}'"),
    };
    format!("line {line}:{column} {what}")
}

/// What the parser wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// One of several alternatives.
    Alternative,
    /// One of several tokens.
    Set,
    Token(TokenKind),
}

/// A message about a token that does not fit.
///
/// `found` does not fit; `current` is where the parser stood when it looked ahead to `found`, and `seen` is the last
/// token it has looked at.
pub(crate) fn parser_message(text: &str, found: &Token, current: &Token, seen: &Token, wanted: Wanted) -> String {
    let mut message = if found.kind == TokenKind::Eof {
        "line 0:-1".to_string()
    } else {
        let (line, column) = position(text, found.start);
        format!("line {line}:{column}")
    };
    let shown = if found.kind == TokenKind::Eof { "<EOF>".into() } else { found.text(text) };
    let shown = shown.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
    match wanted {
        Wanted::Alternative => message.push_str(&format!(" no viable alternative at input '{shown}'")),
        Wanted::Set => message.push_str(&format!(" mismatched input '{shown}' expecting set null")),
        Wanted::Token(kind) => message.push_str(&format!(" mismatched input '{shown}' expecting {}", kind.name())),
    }
    if let Some(context) = context(text, current, seen) {
        message.push_str(&context);
    }
    message
}

/// The part of the text around the current token, which is put in brackets. None at the end of the text.
fn context(text: &str, current: &Token, seen: &Token) -> Option<String> {
    let last = seen.number.min(current.number + TOKENS_AFTER);
    let all = tokenize_all(text, seen.end);
    let from = all.get(current.number.saturating_sub(TOKENS_BEFORE))?;
    let to = all.get(last).filter(|_| last < seen.number || seen.kind != TokenKind::Eof)?;
    let offending = all.get(current.number)?;

    // Token ends count the UTF-16 units between quotes, not the quotes: Cassandra's brackets show it.
    let shown_end =
        |token: &Token| token.start + unit_bytes(text, token.start, token.text(text).encode_utf16().count());
    let end = shown_end(to);
    let open = offending.start;
    let close = shown_end(offending).max(open);
    let end = end.max(close);
    let mut shown = String::new();
    shown.push_str(" (");
    if from.start > 0 {
        shown.push_str("...");
    }
    let mut part = String::new();
    part.push_str(text.get(from.start..open)?);
    part.push('[');
    part.push_str(text.get(open..close)?);
    part.push(']');
    part.push_str(text.get(close..end)?);
    shown.push_str(&part.replace('\n', ""));
    if end < text.trim_end_matches('\n').len() {
        shown.push_str("...");
    }
    shown.push(')');
    Some(shown)
}

/// Bytes of the characters that lie wholly in the next `count` UTF-16 units from `start` on.
fn unit_bytes(text: &str, start: usize, count: usize) -> usize {
    let mut left = count;
    let fits = |c: &char| left.checked_sub(c.len_utf16()).map(|rest| left = rest).is_some();
    text.get(start..).unwrap_or_default().chars().take_while(fits).map(char::len_utf8).sum()
}
