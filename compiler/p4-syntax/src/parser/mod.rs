//! Tokens to syntax tree: recursive descent, with precedence climbing for expressions.
//!
//! The grammar needs to know which names are types (`(T)(x)`, `f<T>(x)`), so the parser keeps
//! scopes with exactly that much. Nesting is bounded ([`MAX_DEPTH`]), so that no input overflows
//! the stack here or in a later pass. After an error it goes on behind the next `;` or `}`
//! (`recover.rs`), so that one run reports all of them.

mod annotation;
mod decl;
mod expr;
mod operator;
mod recover;
mod scope;
mod state;
mod stmt;
mod table;
mod types;

use std::collections::HashSet;
use std::sync::Arc;

use crate::ast::{Declaration, Expr, ExprId, ExprKind, Ident, Program};
use crate::diagnostic::{Diagnostic, Severity};
use crate::lexer::{Tok, Token};
use crate::span::Span;
use scope::Scopes;

/// Deepest nesting of what is parsed by recursion: statements (`else if` too), parentheses, types.
pub const MAX_NESTING: u32 = 260;
/// Deepest nesting of blocks, types and expressions, and longest chain of operators.
pub const MAX_DEPTH: u32 = 500;

/// Errors after which the parser gives up: more would not help anyone.
pub const MAX_ERRORS: usize = 50;

/// Parses `tokens`, which [`lex`](crate::lexer::lex) made from `text`. The diagnostics come in the
/// order of the text; if one is an error the program is incomplete.
pub fn parse(text: &str, tokens: Vec<Token>) -> (Program, Vec<Diagnostic>) {
    let mut parser = Parser {
        text,
        tokens,
        pos: 0,
        diagnostics: Vec::new(),
        errors: 0,
        last_error: None,
        gave_up: false,
        nesting: 0,
        braces: 0,
        expr_depths: Vec::new(),
        scopes: Scopes::new(),
        in_state: false,
        names: HashSet::new(),
    };
    let declarations = parser.program();
    let program =
        Program { declarations, expr_count: parser.expr_depths.len() as u32, warnings: Vec::new() };
    (program, parser.diagnostics)
}

/// The error is already reported; whoever can go on behind it does.
#[derive(Debug)]
struct Failed;

type Res<T> = Result<T, Failed>;

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    pos: usize,
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    /// Index of the token at which the last error was reported: no second one there.
    last_error: Option<usize>,
    gave_up: bool,
    /// Recursion of the parser's own functions.
    nesting: u32,
    /// Open `{`s.
    braces: i32,
    /// Height of each expression's tree, by its id.
    expr_depths: Vec<u32>,
    scopes: Scopes,
    /// Inside a parser state, where some statements are not allowed.
    in_state: bool,
    names: HashSet<Arc<str>>,
}

impl Parser<'_> {
    fn program(&mut self) -> Vec<Declaration> {
        let mut out = Vec::new();
        while self.peek() != Tok::Eof {
            let start = self.pos;
            if self.eat(Tok::Semi) {
                continue;
            }
            match self.top_level_declaration() {
                Ok(d) => out.push(d),
                Err(Failed) => self.recover(0, start, Parser::starts_declaration),
            }
            // A stray `}` was consumed above; what follows is at the top level again.
            self.braces = 0;
        }
        out
    }

    fn peek(&self) -> Tok {
        self.nth(0)
    }

    fn nth(&self, n: usize) -> Tok {
        self.tokens.get(self.pos + n).map_or(Tok::Eof, |t| t.kind)
    }

    fn span(&self) -> Span {
        self.span_of(self.pos)
    }

    fn span_of(&self, index: usize) -> Span {
        let end = self.text.len() as u32;
        self.tokens.get(index).or(self.tokens.last()).map_or(Span::new(end, end), |t| t.span)
    }

    /// Span of the token before the current one.
    fn prev_span(&self) -> Span {
        match self.pos.checked_sub(1) {
            Some(i) => self.span_of(i),
            None => self.span().at_start(),
        }
    }

    fn token_text(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    fn bump(&mut self) -> Span {
        let span = self.span();
        match self.peek() {
            Tok::LBrace => self.braces += 1,
            Tok::RBrace => self.braces -= 1,
            _ => {}
        }
        self.bump_raw();
        span
    }

    /// Without counting braces, which mean nothing in an annotation.
    fn bump_raw(&mut self) {
        if self.pos + 1 < self.tokens.len() {
            self.pos += 1;
        }
    }

    fn at(&self, kind: Tok) -> bool {
        self.peek() == kind
    }

    fn eat(&mut self, kind: Tok) -> bool {
        let found = self.at(kind);
        if found {
            self.bump();
        }
        found
    }

    /// Consumes `kind` or reports that it is missing.
    fn expect(&mut self, kind: Tok) -> Res<Span> {
        if self.at(kind) {
            return Ok(self.bump());
        }
        Err(self.unexpected(&kind.describe()))
    }

    /// Consumes the `;` after `what`. One that is missing at a line's end is reported and taken as
    /// read.
    fn expect_semi(&mut self, what: &str) -> Res<Span> {
        if self.at(Tok::Semi) {
            return Ok(self.bump());
        }
        let prev = self.prev_span();
        let message = format!("expected `;` after {what}, found {}", self.found());
        self.report(Diagnostic::error(prev.at_end(), message).label("`;` is missing here"));
        let between = Span::new(prev.end, self.span().start);
        if self.token_text(between).contains('\n') || self.at(Tok::RBrace) {
            Ok(prev.at_end())
        } else {
            Err(Failed)
        }
    }

    /// A name; `what` says of what, with its article.
    fn name(&mut self, what: &str) -> Res<Ident> {
        if self.peek().is_name() {
            let span = self.bump();
            return Ok(Ident { name: self.intern(span), span });
        }
        if self.peek().is_keyword() && self.peek() != Tok::DontCare {
            let message = format!("expected {what}, found {}", self.found());
            let d = Diagnostic::error(self.span(), message).label("this word is reserved");
            return Err(self.fail(d));
        }
        Err(self.unexpected(what))
    }

    fn intern(&mut self, span: Span) -> Arc<str> {
        let text = self.text.get(span.start as usize..span.end as usize).unwrap_or("");
        if let Some(name) = self.names.get(text) {
            return name.clone();
        }
        let name: Arc<str> = Arc::from(text);
        self.names.insert(name.clone());
        name
    }

    /// How the current token is called in a message.
    fn found(&self) -> String {
        let text = self.token_text(self.span());
        let short: String = text.chars().take(24).collect();
        match self.peek() {
            Tok::Ident | Tok::Int => format!("`{short}`"),
            Tok::Unknown => format!("the character `{short}`, which P4 does not use"),
            kind => kind.describe(),
        }
    }

    fn unexpected(&mut self, expected: &str) -> Failed {
        let message = format!("expected {expected}, found {}", self.found());
        let d = Diagnostic::error(self.span(), message);
        self.fail(d)
    }

    fn fail(&mut self, diagnostic: Diagnostic) -> Failed {
        self.report(diagnostic);
        Failed
    }

    /// Reports an error, unless one was reported at this very token.
    fn report(&mut self, diagnostic: Diagnostic) {
        if self.gave_up || self.last_error == Some(self.pos) {
            return;
        }
        self.last_error = Some(self.pos);
        self.report_always(diagnostic);
    }

    fn report_always(&mut self, diagnostic: Diagnostic) {
        if self.gave_up {
            return;
        }
        self.errors += usize::from(diagnostic.is_error());
        self.diagnostics.push(diagnostic);
        if self.errors >= MAX_ERRORS {
            let message = format!("stopped after {MAX_ERRORS} syntax errors: there may be more");
            self.diagnostics
                .push(Diagnostic { severity: Severity::Warning, ..Diagnostic::global(message) });
            self.give_up();
        }
    }

    /// Goes to the end, without further errors.
    fn give_up(&mut self) {
        self.gave_up = true;
        self.pos = self.tokens.len().saturating_sub(1);
    }

    /// Runs `inner` one level deeper, or fails at the limit.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        if self.nesting >= MAX_NESTING {
            return Err(self.too_deep(self.span(), MAX_NESTING));
        }
        self.nesting += 1;
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    fn too_deep(&mut self, span: Span, most: u32) -> Failed {
        let message = format!("nested too deeply: at most {most} levels are supported");
        let d = Diagnostic::error(span, message)
            .help("name parts of it with constants, variables or functions");
        let failed = self.fail(d);
        // What closes the levels that were left would be errors, too.
        self.give_up();
        failed
    }

    /// A new expression whose deepest operand has height `below`.
    fn expr(&mut self, kind: ExprKind, span: Span, below: u32) -> Res<Expr> {
        let depth = below + 1;
        if depth > MAX_DEPTH {
            return Err(self.too_deep(span, MAX_DEPTH));
        }
        let id = ExprId(self.expr_depths.len() as u32);
        self.expr_depths.push(depth);
        Ok(Expr { id, kind, span })
    }

    fn depth(&self, expr: &Expr) -> u32 {
        self.expr_depths.get(expr.id.index()).copied().unwrap_or(0)
    }

    fn deepest<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> u32 {
        exprs.into_iter().map(|e| self.depth(e)).max().unwrap_or(0)
    }
}
