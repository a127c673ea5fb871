//! Text to tokens (spec §6.4).
//!
//! The lexer never gives up: what it cannot read becomes a diagnostic and a token that lets the
//! parser go on.

mod literal;
mod token;

pub use literal::{LiteralError, MAX_WIDTH, parse_int, string_value};
pub use token::{Tok, Token};

use crate::diagnostic::Diagnostic;
use crate::source::parse_marker;
use crate::span::Span;

/// The tokens of `text`, ending with one [`Tok::Eof`], and what was wrong.
pub fn lex(text: &str) -> (Vec<Token>, Vec<Diagnostic>) {
    let mut lexer = Lexer {
        text,
        pos: 0,
        tokens: Vec::new(),
        diagnostics: Vec::new(),
        in_pragma: false,
        multi_line: None,
    };
    lexer.run();
    (lexer.tokens, lexer.diagnostics)
}

struct Lexer<'a> {
    text: &'a str,
    pos: usize,
    tokens: Vec<Token>,
    diagnostics: Vec<Diagnostic>,
    /// Inside `@pragma`: the end of the line ends it.
    in_pragma: bool,
    /// The first string literal that runs over a line's end.
    multi_line: Option<Span>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        self.directives();
        while let Some(&b) = self.text.as_bytes().get(self.pos) {
            self.step(b);
        }
        self.end_pragma();
        let end = self.text.len() as u32;
        self.tokens.push(Token { kind: Tok::Eof, span: Span::new(end, end) });
    }

    fn step(&mut self, b: u8) {
        match b {
            b'\n' => {
                self.end_pragma();
                self.pos += 1;
                self.directives();
            }
            b if b.is_ascii_whitespace() => self.pos += 1,
            b'\\' if self.rest().starts_with("\\\n") => self.pos += 2,
            b'\\' if self.rest().starts_with("\\\r\n") => self.pos += 3,
            b'/' if self.rest().starts_with("//") => self.pos += self.to_line_end(),
            b'/' if self.rest().starts_with("/*") => self.block_comment(),
            b'"' => self.string(),
            b if b.is_ascii_digit() => self.number(),
            b if b.is_ascii_alphabetic() || b == b'_' => self.word(),
            _ => match Tok::punct(&self.text.as_bytes()[self.pos..]) {
                Some((kind, len)) => self.push(kind, len),
                None => {
                    let len = self.rest().chars().next().map_or(1, char::len_utf8);
                    self.push(Tok::Unknown, len);
                }
            },
        }
    }

    fn rest(&self) -> &str {
        &self.text[self.pos..]
    }

    fn to_line_end(&self) -> usize {
        self.rest().find('\n').unwrap_or(self.rest().len())
    }

    fn push(&mut self, kind: Tok, len: usize) {
        let span = Span::new(self.pos as u32, (self.pos + len) as u32);
        self.tokens.push(Token { kind, span });
        self.pos += len;
    }

    fn end_pragma(&mut self) {
        if std::mem::take(&mut self.in_pragma) {
            let at = self.pos as u32;
            self.tokens.push(Token { kind: Tok::EndPragma, span: Span::new(at, at) });
        }
    }

    /// At the start of a line: skips the preprocessor's line markers and the `#pragma`s that it
    /// leaves.
    fn directives(&mut self) {
        while self.rest().starts_with('#') {
            let len = self.to_line_end();
            let line = &self.rest()[..len];
            if line.starts_with("#pragma") {
                let span = Span::new(self.pos as u32, (self.pos + len) as u32);
                let warning = Diagnostic::warning(span, "`#pragma` has no effect in P4")
                    .help("annotations begin with `@`");
                self.diagnostics.push(warning);
            } else if parse_marker(line).is_none() {
                return;
            }
            self.pos = (self.pos + len + 1).min(self.text.len());
        }
    }

    fn block_comment(&mut self) {
        match self.rest()[2..].find("*/") {
            Some(n) => self.pos += n + 4,
            None => {
                let at = Span::new(self.pos as u32, self.pos as u32 + 2);
                self.diagnostics.push(
                    Diagnostic::error(at, "this comment is never closed").label("no `*/` follows"),
                );
                self.pos = self.text.len();
            }
        }
    }

    fn word(&mut self) {
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let len = self.rest().bytes().take_while(is_part).count();
        let text = &self.rest()[..len];
        let is_pragma = text == "pragma" && self.tokens.last().is_some_and(|t| t.kind == Tok::At);
        let kind = Tok::keyword(text).unwrap_or(Tok::Ident);
        self.push(kind, len);
        if is_pragma {
            self.in_pragma = true;
        }
    }

    fn number(&mut self) {
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let len = self.rest().bytes().take_while(is_part).count();
        self.push(Tok::Int, len);
    }

    /// A string ends at the first quote that no odd number of backslashes precedes (spec §6.4.3.3).
    fn string(&mut self) {
        let bytes = self.text.as_bytes();
        let mut i = self.pos + 1;
        while i < bytes.len() && bytes[i] != b'"' {
            i += if bytes[i] == b'\\' { 2 } else { 1 };
        }
        let closed = i < bytes.len();
        let start = self.pos;
        // A backslash before a character of several bytes must not end inside it.
        let end = if closed { i + 1 } else { bytes.len() };
        let first_line_end = self.text[start..end].find('\n').map(|n| start + n);
        if let (Some(n), None) = (first_line_end, self.multi_line) {
            self.multi_line = Some(Span::new(start as u32, n as u32));
        }
        if !closed {
            self.unclosed_string(start, first_line_end.unwrap_or(end));
        }
        self.push(Tok::Str, end - start);
    }

    fn unclosed_string(&mut self, start: usize, line_end: usize) {
        let here = Span::new(start as u32, line_end as u32);
        let first = self.multi_line.unwrap_or(here);
        let mut d = Diagnostic::error(
            Span::new(first.start, first.start + 1),
            "this string is never closed",
        )
        .label("no closing `\"` follows");
        if first.start != here.start {
            d.message = "this string has no closing `\"` on its line".into();
            d.label = Some("it swallows the lines that follow".into());
        }
        self.diagnostics.push(d);
    }
}
