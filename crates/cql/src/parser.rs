//! Recursive descent over the tokens.
//!
//! Every function parses one construct of the grammar and leaves the parser after it. Where Cassandra chooses between
//! alternatives by lookahead, the function here reads the same tokens, so that it stops at the same one: the tokens
//! that were read decide what the message says and how much context it shows.

mod describe;
mod modification;
mod names;
mod property;
mod relation;
mod role;
mod schema;
mod select;
mod statement;
mod table;
mod term;
mod types;

use std::borrow::Cow;
use std::mem;
use std::ops::ControlFlow;

use super::ast::{BindMarker, Identifier, ParsedStatement};
use super::error::SyntaxError;
use super::lexer::{LexError, Token, tokenize};
use super::message::{ExpectedTokens, lexer_message, parser_message};
use super::sets;
use super::token::{TokenKind, TokenSet};

/// The deepest tree that a statement may have. Nested constructs (parentheses, collections, calls, types) and operators
/// in a row count together, because a chain of operators is a tree that leans to one side. The parser, every walk over
/// the tree and its drop are recursive, so this bounds the stack that a statement takes.
const DEPTH_MAX: usize = 256;

/// Parses one statement.
///
/// # Errors
/// The message is Cassandra's. Of several mistakes the first is reported.
pub fn parse(text: &str) -> Result<ParsedStatement, SyntaxError> {
    parse_counting(text).0
}

/// Parses one statement, and also returns the number of steps: how often the parser went past a token, some of them
/// more than once. It is linear in the length of the text.
pub fn parse_counting(text: &str) -> (Result<ParsedStatement, SyntaxError>, u64) {
    let tokens = tokenize(text);
    let mut parser = Parser {
        text,
        tokens: tokens.tokens,
        lex_error: tokens.error,
        at: 0,
        seen: 0,
        markers: Vec::new(),
        complaint: None,
        nesting: 0,
        deepest: 0,
        steps: 0,
    };
    let result = parser.statement();
    let markers = mem::take(&mut parser.markers);
    let tokens = parser.tokens.len();
    let parsed = match result {
        Ok(statement) => match parser.complaint.take() {
            None => Ok(ParsedStatement { statement, markers, tokens }),
            Some(message) => Err(SyntaxError { message }),
        },
        Err(stop) => Err(SyntaxError { message: parser.stop_message(stop) }),
    };
    (parsed, parser.steps)
}

fn too_deep() -> Stop {
    Stop::Thrown(format!("Statement is nested too deeply: more than {DEPTH_MAX} levels").into())
}

/// The reason why parsing cannot continue.
enum Stop {
    /// A token does not fit.
    Mismatch { found: usize, expected: ExpectedTokens },
    /// Any other error, with its complete message.
    Thrown(Box<str>),
}

type Parsed<T> = Result<T, Stop>;

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    lex_error: Option<LexError>,
    /// Index of the current token.
    at: usize,
    /// The index of the last token that was read.
    seen: usize,
    /// Names of the bind markers so far.
    markers: Vec<Option<Identifier>>,
    /// The first mistake that does not stop the parser.
    complaint: Option<String>,
    /// How many constructs the parser is inside of.
    nesting: usize,
    /// The deepest level of the expression that is being parsed, or was parsed last.
    deepest: usize,
    steps: u64,
}

impl<'a> Parser<'a> {
    /// The `k`th token from here (1 is the current one), or the last one.
    fn peek(&mut self, k: usize) -> Token {
        let index = (self.at + k - 1).min(self.tokens.len() - 1);
        self.seen = self.seen.max(index);
        self.tokens[index]
    }

    fn kind(&mut self) -> TokenKind {
        self.peek(1).kind
    }

    /// The kind of the `k`th token from here (1 is the current one).
    fn kind_at(&mut self, k: usize) -> TokenKind {
        self.peek(k).kind
    }

    fn is(&mut self, set: TokenSet) -> bool {
        set.contains(self.kind())
    }

    fn advance(&mut self) {
        self.steps += 1;
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        self.seen = self.seen.max(self.at);
    }

    /// Goes past the current token if it is of this kind.
    fn accept(&mut self, kind: TokenKind) -> bool {
        let found = self.kind() == kind;
        if found {
            self.advance();
        }
        found
    }

    /// Goes past the current token, which must be of this kind.
    fn expect(&mut self, kind: TokenKind) -> Parsed<()> {
        if self.accept(kind) {
            return Ok(());
        }
        Err(Stop::Mismatch { found: self.at, expected: ExpectedTokens::Token(kind) })
    }

    fn expect_all(&mut self, kinds: &[TokenKind]) -> Parsed<()> {
        kinds.iter().try_for_each(|kind| self.expect(*kind))
    }

    /// The text of the current token, which must be of this kind.
    fn expect_text(&mut self, kind: TokenKind) -> Parsed<String> {
        let token = self.peek(1);
        self.expect(kind)?;
        Ok(token.text(self.text).into_owned())
    }

    /// The text of the current token, whatever it is; goes past it.
    fn take_text(&mut self) -> Cow<'a, str> {
        let token = self.peek(1);
        self.advance();
        token.text(self.text)
    }

    /// Fails because no alternative fits the `k`th token from here.
    fn no_alternative<T>(&mut self, k: usize) -> Parsed<T> {
        let found = (self.at + k - 1).min(self.tokens.len() - 1);
        self.seen = self.seen.max(found);
        Err(Stop::Mismatch { found, expected: ExpectedTokens::Alternative })
    }

    /// Also reads the token after the deciding one, as Cassandra's larger decision tables do.
    fn decided(&mut self, k: usize) {
        self.peek(k + 1);
    }

    /// Like [`Self::require`], for a final decision by a table.
    fn decide(&mut self, k: usize, set: TokenSet) -> Parsed<TokenKind> {
        let kind = self.require(k, set)?;
        self.decided(k);
        Ok(kind)
    }

    /// Checks that the `k`th token from here is in a set of fitting tokens.
    fn require(&mut self, k: usize, set: TokenSet) -> Parsed<TokenKind> {
        let kind = self.kind_at(k);
        if set.contains(kind) { Ok(kind) } else { self.no_alternative(k) }
    }

    /// `element (',' element)*`
    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut elements = vec![element(self)?];
        while self.accept(TokenKind::Comma) {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// A list that may be empty: it starts if the current token is in `first`.
    fn optional_list<T>(&mut self, first: TokenSet, element: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        if self.is(first) { self.list(element) } else { Ok(Vec::new()) }
    }

    /// Parses something if it can be parsed as a whole. Otherwise nothing is consumed, but the tokens count as read.
    fn attempt<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<Option<T>> {
        let (at, markers, complained) = (self.at, self.markers.len(), self.complaint.is_some());
        let deepest = self.deepest;
        match parse(self) {
            Ok(value) => Ok(Some(value)),
            Err(Stop::Mismatch { .. }) => {
                (self.at, self.deepest) = (at, deepest);
                self.markers.truncate(markers);
                if !complained {
                    self.complaint = None;
                }
                Ok(None)
            }
            Err(thrown) => Err(thrown),
        }
    }

    /// Parses a nested construct, unless the nesting is too deep already.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting == DEPTH_MAX {
            return Err(too_deep());
        }
        self.nesting += 1;
        self.deepest = self.deepest.max(self.nesting);
        let result = parse(self);
        self.nesting -= 1;
        result
    }

    /// Parses an operand and what follows it, while `more` returns something. Each time the tree so far becomes part of
    /// a new one, and so one level deeper.
    fn chain<T>(
        &mut self,
        first: impl FnOnce(&mut Self) -> Parsed<T>,
        mut more: impl FnMut(&mut Self, T) -> Parsed<ControlFlow<T, T>>,
    ) -> Parsed<T> {
        let around = mem::replace(&mut self.deepest, self.nesting);
        let mut tree = first(self)?;
        loop {
            let of_tree = mem::replace(&mut self.deepest, self.nesting);
            match more(self, tree)? {
                ControlFlow::Break(whole) => {
                    self.deepest = around.max(of_tree).max(self.deepest);
                    return Ok(whole);
                }
                ControlFlow::Continue(larger) => tree = larger,
            }
            self.deepest = of_tree.max(self.deepest);
            self.check_depth(1)?;
            self.deepest += 1;
        }
    }

    /// Refuses an expression that would be too deep with this many levels around it.
    fn check_depth(&self, levels: usize) -> Parsed<()> {
        if self.deepest + levels > DEPTH_MAX { Err(too_deep()) } else { Ok(()) }
    }

    /// Records a mistake that does not stop the parser; the first one counts.
    fn complain(&mut self, message: impl Into<String>) {
        if self.complaint.is_none() {
            self.complaint = Some(self.seen_lex_error().unwrap_or_else(|| message.into()));
        }
    }

    /// The lexer's error, if the parser has reached it.
    fn seen_lex_error(&self) -> Option<String> {
        let error = self.lex_error.filter(|_| self.seen + 1 == self.tokens.len())?;
        Some(lexer_message(self.text, error))
    }

    fn stop_message(&mut self, stop: Stop) -> String {
        let (found, expected) = match stop {
            Stop::Thrown(message) => return message.into(),
            Stop::Mismatch { found, expected } => (found, expected),
        };
        if let Some(complaint) = self.complaint.take() {
            return complaint;
        }
        if let Some(message) = self.seen_lex_error() {
            return message;
        }
        let [found, current, seen] = [found, self.at, self.seen].map(|i| self.tokens[i]);
        parser_message(self.text, &found, &current, &seen, expected)
    }

    /// Numbers a new bind marker.
    fn new_marker(&mut self, name: Option<Identifier>) -> BindMarker {
        let index = self.markers.len();
        self.markers.push(name);
        BindMarker { index }
    }

    /// `IF NOT EXISTS`, if present.
    fn if_not_exists(&mut self) -> Parsed<bool> {
        use TokenKind::*;
        if !self.accept(KIf) {
            return Ok(false);
        }
        self.expect_all(&[KNot, KExists])?;
        Ok(true)
    }

    /// `IF EXISTS`, if present.
    fn if_exists(&mut self) -> Parsed<bool> {
        if !self.accept(TokenKind::KIf) {
            return Ok(false);
        }
        self.expect(TokenKind::KExists)?;
        Ok(true)
    }
}
