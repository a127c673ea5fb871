//! Expressions and key sets.

use super::operator::precedence;
use super::{Parser, Res};
use crate::ast::{
    Argument, Expr, ExprKind, IntLiteral, Keyset, KeysetKind, NamedValue, Path, TypeKind, TypeRef,
    UnaryOp,
};
use crate::diagnostic::Diagnostic;
use crate::lexer::{LiteralError, Tok, parse_int, string_value};
use crate::span::Span;

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Res<Expr> {
        self.nested(|p| {
            let first = p.unary()?;
            p.expression_from(first)
        })
    }

    /// The expression whose first operand, without its postfixes, is `primary`.
    fn expression_after(&mut self, primary: Expr) -> Res<Expr> {
        let first = self.postfix(primary)?;
        self.expression_from(first)
    }

    fn expression_from(&mut self, first: Expr) -> Res<Expr> {
        let condition = self.binary(first, 0)?;
        if !self.eat(Tok::Question) {
            return Ok(condition);
        }
        let then_value = self.expression()?;
        self.expect(Tok::Colon)?;
        let else_value = self.expression()?;
        let below = self.deepest([&condition, &then_value, &else_value]);
        let span = condition.span.to(else_value.span);
        let kind = ExprKind::Conditional {
            condition: Box::new(condition),
            then_value: Box::new(then_value),
            else_value: Box::new(else_value),
        };
        self.expr(kind, span, below)
    }

    /// Precedence climbing; all infix operators associate to the left.
    fn binary(&mut self, mut left: Expr, min: u8) -> Res<Expr> {
        while let Some((op, tokens)) = self.binary_op() {
            let strength = precedence(op);
            if strength <= min {
                break;
            }
            let mut op_span = self.bump();
            for _ in 1..tokens {
                op_span = op_span.to(self.bump());
            }
            let operand = self.nested(Self::unary)?;
            let right = self.nested(|p| p.binary(operand, strength))?;
            let below = self.deepest([&left, &right]);
            let span = left.span.to(right.span);
            let kind =
                ExprKind::Binary { op, op_span, left: Box::new(left), right: Box::new(right) };
            left = self.expr(kind, span, below)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Res<Expr> {
        let op = match self.peek() {
            Tok::Bang => UnaryOp::Not,
            Tok::Tilde => UnaryOp::BitNot,
            Tok::Minus => UnaryOp::Neg,
            Tok::Plus => UnaryOp::Plus,
            Tok::LParen if self.at_cast() => return self.cast(),
            _ => {
                let primary = self.primary()?;
                return self.postfix(primary);
            }
        };
        let op_span = self.bump();
        let operand = self.nested(Self::unary)?;
        let (below, span) = (self.depth(&operand), op_span.to(operand.span));
        self.expr(ExprKind::Unary { op, op_span, expr: Box::new(operand) }, span, below)
    }

    fn cast(&mut self) -> Res<Expr> {
        let open = self.expect(Tok::LParen)?;
        let ty = self.type_ref()?;
        self.expect(Tok::RParen)?;
        let operand = self.nested(Self::unary)?;
        let below = self.depth(&operand).max(self.type_depth(&ty));
        let span = open.to(operand.span);
        self.expr(ExprKind::Cast { ty: Box::new(ty), expr: Box::new(operand) }, span, below)
    }

    pub(super) fn postfix(&mut self, mut base: Expr) -> Res<Expr> {
        loop {
            base = match self.peek() {
                Tok::Dot => {
                    self.bump();
                    let member = self.name("a member's name after `.`")?;
                    let (below, span) = (self.depth(&base), base.span.to(member.span));
                    self.expr(ExprKind::Member { base: Box::new(base), member }, span, below)?
                }
                Tok::LBracket => self.bracket(base)?,
                Tok::LParen => self.call(base, Vec::new())?,
                Tok::Lt => match self.specialized(&base) {
                    Some(Tok::LParen) => {
                        let type_args = self.type_args()?;
                        self.call(base, type_args)?
                    }
                    Some(_) => self.specialized_type(base)?,
                    None => return Ok(base),
                },
                _ => return Ok(base),
            };
        }
    }

    /// If the `<` behind `base` begins type arguments: the token behind them.
    fn specialized(&self, base: &Expr) -> Option<Tok> {
        let after = self.nth(self.type_args_end(0)?);
        match (&base.kind, after) {
            (ExprKind::Path(_) | ExprKind::Member { .. }, Tok::LParen) => Some(after),
            (ExprKind::Path(_), Tok::Dot) => Some(after),
            _ => None,
        }
    }

    /// `T<A>` in front of `.apply`.
    fn specialized_type(&mut self, base: Expr) -> Res<Expr> {
        let args = self.type_args()?;
        let span = base.span.to(self.prev_span());
        let ExprKind::Path(path) = base.kind else { return Err(self.unexpected("a call")) };
        let ty = TypeRef { kind: TypeKind::Specialized { base: path, args }, span };
        let below = self.type_depth(&ty);
        self.expr(ExprKind::Type(ty), span, below)
    }

    /// `[index]`, `[high:low]` or `[low+:width]`
    fn bracket(&mut self, base: Expr) -> Res<Expr> {
        self.expect(Tok::LBracket)?;
        let first = self.expression()?;
        let part_select = self.at(Tok::Plus) && self.nth(1) == Tok::Colon;
        if part_select {
            self.bump();
        }
        if !self.eat(Tok::Colon) {
            let end = self.expect(Tok::RBracket)?;
            let (below, span) = (self.deepest([&base, &first]), base.span.to(end));
            return self.expr(
                ExprKind::Index { base: Box::new(base), index: Box::new(first) },
                span,
                below,
            );
        }
        let second = self.expression()?;
        let end = self.expect(Tok::RBracket)?;
        let (below, span) = (self.deepest([&base, &first, &second]), base.span.to(end));
        let (base, first, second) = (Box::new(base), Box::new(first), Box::new(second));
        let kind = if part_select {
            ExprKind::PartSelect { base, low: first, width: second }
        } else {
            ExprKind::Slice { base, high: first, low: second }
        };
        self.expr(kind, span, below)
    }

    fn call(&mut self, callee: Expr, type_args: Vec<TypeRef>) -> Res<Expr> {
        let args = self.arguments()?;
        let types = type_args.iter().map(|t| self.type_depth(t)).max().unwrap_or(0);
        let values = self.deepest(args.iter().filter_map(|a| a.value.as_ref()));
        let below = self.depth(&callee).max(types).max(values);
        let span = callee.span.to(self.prev_span());
        self.expr(ExprKind::Call { callee: Box::new(callee), type_args, args }, span, below)
    }

    /// `(a, name = b, _)`
    pub(super) fn arguments(&mut self) -> Res<Vec<Argument>> {
        self.expect(Tok::LParen)?;
        let args = self.comma_list(Tok::RParen, false, Self::argument)?;
        self.expect(Tok::RParen)?;
        Ok(args)
    }

    fn argument(&mut self) -> Res<Argument> {
        let start = self.span();
        let mut name = None;
        if self.peek().is_name() && self.nth(1) == Tok::Assign {
            name = Some(self.name("an argument's name")?);
            self.bump();
        }
        let value = if self.eat(Tok::DontCare) { None } else { Some(self.expression()?) };
        Ok(Argument { name, value, span: start.to(self.prev_span()) })
    }

    pub(super) fn primary(&mut self) -> Res<Expr> {
        let span = self.span();
        let kind = match self.peek() {
            Tok::Int => ExprKind::Int(self.int_literal(span)),
            Tok::Str => ExprKind::Str(string_value(self.token_text(span))),
            Tok::True => ExprKind::Bool(true),
            Tok::False => ExprKind::Bool(false),
            Tok::This => ExprKind::This,
            Tok::Dots => ExprKind::Dots,
            Tok::InvalidHeader => ExprKind::Invalid,
            Tok::LBrace => return self.braces_expr(),
            Tok::LParen => return self.parenthesized(),
            Tok::Error if self.nth(1) == Tok::Dot => return self.error_member(),
            t if t == Tok::Dot || t.is_name() => return self.path_expr(),
            Tok::DontCare => {
                let d = Diagnostic::error(span, "expected an expression, found `_`")
                    .label("`_` can be an argument, a type argument, or a key set in `select` or `entries`");
                return Err(self.fail(d));
            }
            _ => return Err(self.unexpected("an expression")),
        };
        self.bump();
        self.expr(kind, span, 0)
    }

    fn int_literal(&mut self, span: Span) -> IntLiteral {
        match parse_int(self.token_text(span)) {
            Ok(literal) => literal,
            Err(LiteralError::Overflow { literal, message }) => {
                self.report_always(Diagnostic::warning(span, message).label("too large"));
                literal
            }
            Err(LiteralError::Invalid(message)) => {
                self.report_always(Diagnostic::error(span, message));
                IntLiteral { value: 0.into(), width: None, signed: false }
            }
        }
    }

    fn path_expr(&mut self) -> Res<Expr> {
        let path: Path = self.path("a name")?;
        let span = path.span;
        self.expr(ExprKind::Path(path), span, 0)
    }

    fn error_member(&mut self) -> Res<Expr> {
        let start = self.bump();
        self.expect(Tok::Dot)?;
        let member = self.name("an error's name")?;
        let span = start.to(member.span);
        self.expr(ExprKind::ErrorMember(member), span, 0)
    }

    fn parenthesized(&mut self) -> Res<Expr> {
        self.expect(Tok::LParen)?;
        let inner = self.expression()?;
        self.expect(Tok::RParen)?;
        Ok(inner)
    }

    /// `{a, b}`, `{a, ...}`, `{x = a}` or `{x = a, ...}`
    fn braces_expr(&mut self) -> Res<Expr> {
        let depth = self.braces;
        let result = self.braces_expr_inner();
        if result.is_err() && !self.brace_closes_soon() {
            self.braces = depth;
        }
        result
    }

    /// After an error: whether a `}` comes before the statement's `;`. If not, it is the `}` that
    /// is missing.
    fn brace_closes_soon(&self) -> bool {
        let rest = self.tokens.get(self.pos..).unwrap_or(&[]);
        let end = rest.iter().find(|t| matches!(t.kind, Tok::Semi | Tok::LBrace | Tok::RBrace));
        end.is_some_and(|t| t.kind == Tok::RBrace)
    }

    fn braces_expr_inner(&mut self) -> Res<Expr> {
        let open = self.expect(Tok::LBrace)?;
        if self.peek().is_name() && self.nth(1) == Tok::Assign {
            return self.struct_expr(open);
        }
        let items = self.comma_list(Tok::RBrace, true, Self::expression)?;
        let mut inner = items.iter().rev().skip(1);
        if let Some(e) = inner.find(|e| matches!(e.kind, ExprKind::Dots)) {
            let d = Diagnostic::error(e.span, "`...` must be the last element");
            self.report_always(d);
        }
        let span = open.to(self.expect(Tok::RBrace)?);
        let below = self.deepest(&items);
        self.expr(ExprKind::List(items), span, below)
    }

    fn struct_expr(&mut self, open: Span) -> Res<Expr> {
        let mut fields: Vec<NamedValue> = Vec::new();
        let mut dots = None;
        while !self.at(Tok::RBrace) && dots.is_none() {
            if self.at(Tok::Dots) {
                dots = Some(self.bump());
            } else {
                fields.push(self.named_value()?);
            }
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        if !self.at(Tok::RBrace) {
            return Err(self.unexpected(if dots.is_some() {
                "`}` after `...`"
            } else {
                "`,` or `}`"
            }));
        }
        let span = open.to(self.bump());
        let below = self.deepest(fields.iter().map(|f| &f.value));
        self.expr(ExprKind::Struct { fields, dots }, span, below)
    }

    /// The key set of a select case or an entry, up to its `:`.
    pub(super) fn keyset(&mut self) -> Res<Keyset> {
        if !self.at(Tok::LParen) || self.at_cast() {
            return self.simple_keyset();
        }
        let open = self.expect(Tok::LParen)?;
        let mut items = vec![self.simple_keyset()?];
        while self.eat(Tok::Comma) {
            items.push(self.simple_keyset()?);
        }
        let span = open.to(self.expect(Tok::RParen)?);
        match items.pop() {
            // `(a)` may be the first operand of more: `(a) + 1`.
            Some(Keyset { kind: KeysetKind::Expr(e), .. }) if items.is_empty() => {
                let value = self.expression_after(e)?;
                self.keyset_from(value)
            }
            Some(only) if items.is_empty() => Ok(only),
            last => {
                items.extend(last);
                Ok(Keyset { kind: KeysetKind::Tuple(items), span })
            }
        }
    }

    fn simple_keyset(&mut self) -> Res<Keyset> {
        let kind = match self.peek() {
            Tok::Default => KeysetKind::Default,
            Tok::DontCare => KeysetKind::DontCare,
            _ => {
                let value = self.expression()?;
                return self.keyset_from(value);
            }
        };
        Ok(Keyset { kind, span: self.bump() })
    }

    /// `value`, `value &&& mask` or `value .. high`
    fn keyset_from(&mut self, value: Expr) -> Res<Keyset> {
        let start = value.span;
        let kind = if self.eat(Tok::Mask) {
            KeysetKind::Mask { value, mask: self.expression()? }
        } else if self.eat(Tok::Range) {
            KeysetKind::Range { low: value, high: self.expression()? }
        } else {
            KeysetKind::Expr(value)
        };
        Ok(Keyset { kind, span: start.to(self.prev_span()) })
    }
}
