//! Types, and telling types from expressions.

use super::{Parser, Res};
use crate::ast::{Expr, Ident, Path, TypeKind, TypeRef};
use crate::diagnostic::Diagnostic;
use crate::lexer::Tok;

/// Most tokens looked at to tell `f<T>(x)` from `f < T`.
const MAX_LOOKAHEAD: usize = 512;

impl Parser<'_> {
    /// A keyword that begins a type and no declaration or expression.
    pub(super) fn is_type_keyword(tok: Tok) -> bool {
        use Tok::*;
        matches!(tok, Bool | Bit | IntType | Varbit | StringType | Tuple | Void | Error | MatchKind)
    }

    pub(super) fn type_ref(&mut self) -> Res<TypeRef> {
        self.nested(Self::type_ref_inner)
    }

    fn type_ref_inner(&mut self) -> Res<TypeRef> {
        let start = self.span();
        let kind = match self.peek() {
            Tok::Bool => self.simple_type(TypeKind::Bool),
            Tok::Error => self.simple_type(TypeKind::Error),
            Tok::MatchKind => self.simple_type(TypeKind::MatchKind),
            Tok::StringType => self.simple_type(TypeKind::String),
            Tok::Void => self.simple_type(TypeKind::Void),
            Tok::Bit => {
                self.bump();
                TypeKind::Bit(self.opt_width()?)
            }
            Tok::IntType => {
                self.bump();
                self.opt_width()?.map_or(TypeKind::Integer, TypeKind::Int)
            }
            Tok::Varbit => self.varbit()?,
            Tok::Tuple => {
                self.bump();
                TypeKind::Tuple(self.type_args()?)
            }
            Tok::List if self.nth(1) == Tok::Lt => {
                self.bump();
                self.list_type()?
            }
            _ => self.named_type()?,
        };
        let ty = TypeRef { kind, span: start.to(self.prev_span()) };
        if self.at(Tok::LBracket)
            && matches!(ty.kind, TypeKind::Named(_) | TypeKind::Specialized { .. })
        {
            return self.stack_of(ty);
        }
        Ok(ty)
    }

    fn simple_type(&mut self, kind: TypeKind) -> TypeKind {
        self.bump();
        kind
    }

    fn stack_of(&mut self, elem: TypeRef) -> Res<TypeRef> {
        self.expect(Tok::LBracket)?;
        let size = Box::new(self.expression()?);
        let end = self.expect(Tok::RBracket)?;
        let span = elem.span.to(end);
        Ok(TypeRef { kind: TypeKind::Stack { elem: Box::new(elem), size }, span })
    }

    fn varbit(&mut self) -> Res<TypeKind> {
        self.bump();
        if !self.at(Tok::Lt) {
            return Err(self.unexpected("`<` and a width after `varbit`"));
        }
        match self.opt_width()? {
            Some(w) => Ok(TypeKind::Varbit(w)),
            None => Err(self.unexpected("a width")),
        }
    }

    /// `<8>` or `<(expression)>`, if there is a `<`.
    fn opt_width(&mut self) -> Res<Option<Box<Expr>>> {
        if !self.eat(Tok::Lt) {
            return Ok(None);
        }
        let width = match self.peek() {
            Tok::Int => self.primary()?,
            Tok::LParen => {
                self.bump();
                let e = self.expression()?;
                self.expect(Tok::RParen)?;
                e
            }
            t if t.is_name() => {
                let text = self.token_text(self.span()).to_string();
                let d = Diagnostic::error(
                    self.span(),
                    "a width that is not a plain number must stand in parentheses",
                )
                .label(format!("write `({text})`"));
                self.report(d);
                self.primary()?
            }
            _ => return Err(self.unexpected("a width: a number, or an expression in parentheses")),
        };
        self.expect(Tok::Gt)?;
        Ok(Some(Box::new(width)))
    }

    fn list_type(&mut self) -> Res<TypeKind> {
        self.expect(Tok::Lt)?;
        let elem = self.type_arg()?;
        self.expect(Tok::Gt)?;
        Ok(TypeKind::List(Box::new(elem)))
    }

    fn named_type(&mut self) -> Res<TypeKind> {
        let path = self.path("a type")?;
        if self.at(Tok::Lt) {
            return Ok(TypeKind::Specialized { base: path, args: self.type_args()? });
        }
        Ok(TypeKind::Named(path))
    }

    /// `name` or `.name`
    pub(super) fn path(&mut self, what: &str) -> Res<Path> {
        let start = self.span();
        let absolute = self.eat(Tok::Dot);
        let name = self.name(what)?;
        let span = start.to(name.span);
        Ok(Path { absolute, name, span })
    }

    /// `<A, B>`
    pub(super) fn type_args(&mut self) -> Res<Vec<TypeRef>> {
        self.expect(Tok::Lt)?;
        let args = self.comma_list(Tok::Gt, false, Self::type_arg)?;
        self.expect(Tok::Gt)?;
        Ok(args)
    }

    fn type_arg(&mut self) -> Res<TypeRef> {
        if self.at(Tok::DontCare) {
            let span = self.bump();
            return Ok(TypeRef { kind: TypeKind::DontCare, span });
        }
        self.type_ref()
    }

    /// `<T, U>` after a declared name, if there is a `<`.
    pub(super) fn opt_type_params(&mut self) -> Res<Vec<Ident>> {
        if !self.eat(Tok::Lt) {
            return Ok(Vec::new());
        }
        let params = self.comma_list(Tok::Gt, false, |p| p.name("a type parameter's name"))?;
        self.expect(Tok::Gt)?;
        Ok(params)
    }

    /// Whether the name at the current token (or after its `.`) is a type; `None` if it is not
    /// declared.
    pub(super) fn name_is_type(&self, at: usize) -> Option<bool> {
        let absolute = self.nth(at) == Tok::Dot;
        let index = self.pos + at + usize::from(absolute);
        let token = self.tokens.get(index)?;
        if token.kind == Tok::List && self.tokens.get(index + 1).is_some_and(|t| t.kind == Tok::Lt)
        {
            return Some(true);
        }
        if !token.kind.is_name() {
            return None;
        }
        self.scopes.is_type(self.token_text(token.span), absolute)
    }

    /// If the tokens from offset `at`, which is a `<`, are type arguments: the offset behind their
    /// `>`.
    pub(super) fn type_args_end(&self, at: usize) -> Option<usize> {
        let first = self.nth(at + 1);
        // The grammar's realTypeArg: in an expression, an undeclared name is no type.
        let is_type = first == Tok::DontCare
            || first == Tok::Gt
            || (Self::is_type_keyword(first) && self.nth(at + 2) != Tok::Dot)
            || self.name_is_type(at + 1) == Some(true);
        if !is_type { None } else { self.angles_end(at) }
    }

    /// The offset behind the `>` that closes the `<` at offset `at`, if only what a type can hold
    /// lies between.
    pub(super) fn angles_end(&self, at: usize) -> Option<usize> {
        let mut depth = 0usize;
        let mut i = at;
        while i - at < MAX_LOOKAHEAD {
            match self.nth(i) {
                Tok::Lt => depth += 1,
                Tok::Gt if depth == 1 => return Some(i + 1),
                Tok::Gt => depth -= 1,
                Tok::LParen | Tok::LBracket => {
                    i = self.brackets_end(i)?;
                    continue;
                }
                // `.T`, but not `E.A`, which is a value.
                Tok::Dot if !matches!(self.nth(i - 1), Tok::Lt | Tok::Comma) => return None,
                Tok::Comma | Tok::Dot | Tok::Int | Tok::DontCare => {}
                t if t.is_name() || Self::is_type_keyword(t) => {}
                _ => return None,
            }
            i += 1;
        }
        None
    }

    /// The offset behind the bracket that closes the one at offset `at`.
    pub(super) fn brackets_end(&self, at: usize) -> Option<usize> {
        let mut depth = 0usize;
        for i in at..at + MAX_LOOKAHEAD {
            match self.nth(i) {
                Tok::LParen | Tok::LBracket => depth += 1,
                Tok::RParen | Tok::RBracket if depth == 1 => return Some(i + 1),
                Tok::RParen | Tok::RBracket => depth -= 1,
                Tok::Semi | Tok::LBrace | Tok::RBrace | Tok::Eof => return None,
                _ => {}
            }
        }
        None
    }

    /// Whether the `(` at the current token begins a cast.
    pub(super) fn at_cast(&self) -> bool {
        let first = self.nth(1);
        if Self::is_type_keyword(first) {
            return self.nth(2) != Tok::Dot;
        }
        let name_len = 1 + usize::from(first == Tok::Dot);
        let known = self.name_is_type(1);
        if known == Some(false) || !(first == Tok::Dot || first.is_name()) {
            return false;
        }
        let mut end = 1 + name_len;
        if self.nth(end) == Tok::Lt {
            match self.angles_end(end) {
                Some(e) => end = e,
                None => return false,
            }
        }
        if self.nth(end) == Tok::LBracket {
            match self.brackets_end(end) {
                Some(e) => end = e,
                None => return false,
            }
        }
        if self.nth(end) != Tok::RParen {
            return false;
        }
        // An undeclared name in front of an operand can only be meant as a type.
        known == Some(true)
            || matches!(
                self.nth(end + 1),
                Tok::Int | Tok::LBrace | Tok::Bang | Tok::Tilde | Tok::True | Tok::False
            )
            || self.nth(end + 1).is_name()
    }

    /// Height of the expressions inside a type, with the type's own levels.
    pub(super) fn type_depth(&self, ty: &TypeRef) -> u32 {
        let many =
            |p: &Self, types: &[TypeRef]| types.iter().map(|t| p.type_depth(t)).max().unwrap_or(0);
        1 + match &ty.kind {
            TypeKind::Bit(Some(w)) | TypeKind::Int(w) | TypeKind::Varbit(w) => self.depth(w),
            TypeKind::Specialized { args, .. } | TypeKind::Tuple(args) => many(self, args),
            TypeKind::List(elem) => self.type_depth(elem),
            TypeKind::Stack { elem, size } => self.type_depth(elem).max(self.depth(size)),
            _ => 0,
        }
    }
}
