//! Statements and local declarations.

use super::{Parser, Res};
use crate::ast::{
    Annotations, Block, Declaration, Expr, ExprKind, ForCollection, Instantiation, Statement,
    StatementKind, SwitchCase, SwitchLabel, TypeKind, TypeRef, VariableDecl,
};
use crate::diagnostic::Diagnostic;
use crate::lexer::Tok;
use crate::span::Span;

impl Parser<'_> {
    pub(super) fn block(&mut self, annotations: Annotations) -> Res<Block> {
        let open = self.expect(Tok::LBrace)?;
        let (statements, close) = self.scoped(|p| {
            Ok(p.list(open, Self::ends_block, Self::starts_statement, Self::statement))
        })?;
        Ok(Block { annotations, statements, span: open.to(close) })
    }

    /// A block with the annotations before it.
    pub(super) fn body(&mut self) -> Res<Block> {
        let annotations = self.annotations()?;
        self.block(annotations)
    }

    pub(super) fn statement(&mut self) -> Res<Statement> {
        self.nested(|p| {
            let start = p.span();
            let annotations = p.annotations()?;
            let kind = p.statement_kind(annotations, start)?;
            Ok(Statement { kind, span: start.to(p.prev_span()) })
        })
    }

    fn statement_kind(&mut self, annotations: Annotations, start: Span) -> Res<StatementKind> {
        match self.peek() {
            Tok::LBrace => return Ok(StatementKind::Block(self.block(annotations)?)),
            Tok::For => return self.for_statement(annotations),
            Tok::Const => {
                let d = self.constant(annotations, start)?;
                return Ok(StatementKind::Declaration(Box::new(Declaration::Constant(d))));
            }
            _ if self.at_local_type() => return self.local_declaration(annotations, start),
            _ => {}
        }
        if !annotations.is_empty() && !self.peek().is_name() {
            return Err(self.unexpected("a declaration, a block or a loop after the annotation"));
        }
        match self.peek() {
            Tok::Semi => {
                self.bump();
                Ok(StatementKind::Empty)
            }
            Tok::If => self.if_statement(),
            Tok::Switch => self.switch_statement(),
            Tok::Return => self.return_statement(),
            Tok::Exit => self.jump("exit", StatementKind::Exit),
            Tok::Break => self.jump("break", StatementKind::Break),
            Tok::Continue => self.jump("continue", StatementKind::Continue),
            Tok::Else => {
                let d = Diagnostic::error(self.span(), "`else` without an `if` before it");
                Err(self.fail(d))
            }
            _ => self.expression_statement(annotations, start),
        }
    }

    fn jump(&mut self, what: &str, kind: StatementKind) -> Res<StatementKind> {
        self.not_in_state(what);
        self.bump();
        self.expect_semi(&format!("`{what}`"))?;
        Ok(kind)
    }

    /// Spec §13.4: a parser state holds assignments, calls, declarations, blocks and `if` only.
    fn not_in_state(&mut self, what: &str) {
        if self.in_state {
            let d = Diagnostic::error(
                self.span(),
                format!("`{what}` is not allowed in a parser state"),
            );
            self.report_always(d);
        }
    }

    fn return_statement(&mut self) -> Res<StatementKind> {
        self.not_in_state("return");
        self.bump();
        let value = if self.at(Tok::Semi) { None } else { Some(self.expression()?) };
        self.expect_semi("`return`")?;
        Ok(StatementKind::Return(value))
    }

    fn if_statement(&mut self) -> Res<StatementKind> {
        self.bump();
        let condition = self.condition()?;
        let then_branch = self.branch()?;
        let else_branch = if self.eat(Tok::Else) { Some(self.branch()?) } else { None };
        Ok(StatementKind::If { condition, then_branch, else_branch })
    }

    /// What `if`, `else` or a loop governs: its scope is its own, so a declaration there would be
    /// of no use.
    fn branch(&mut self) -> Res<Box<Statement>> {
        let statement = self.scoped(Self::statement)?;
        if matches!(statement.kind, StatementKind::Declaration(_)) {
            let d =
                Diagnostic::error(statement.span, "a declaration is not allowed here by itself")
                    .help("put it into a block: `{ ... }`");
            self.report_always(d);
        }
        Ok(Box::new(statement))
    }

    /// `(expression)`. A missing parenthesis is reported and taken as read if a block follows.
    fn condition(&mut self) -> Res<Expr> {
        let open = self.eat(Tok::LParen);
        if !open {
            self.unexpected("`(`");
        }
        let condition = self.expression()?;
        if self.at(Tok::Assign) {
            let d =
                Diagnostic::error(self.span(), "expected `)`, found `=`").label("`==` compares");
            return Err(self.fail(d));
        }
        if !self.eat(Tok::RParen) && open {
            let failed = self.unexpected("`)`");
            if !self.at(Tok::LBrace) {
                return Err(failed);
            }
        }
        Ok(condition)
    }

    fn switch_statement(&mut self) -> Res<StatementKind> {
        self.not_in_state("switch");
        self.bump();
        let subject = self.condition()?;
        let open = self.expect(Tok::LBrace)?;
        let starts_case = |p: &Self| p.at(Tok::Default);
        let (cases, _) = self.list(open, Self::ends_block, starts_case, Self::switch_case);
        Ok(StatementKind::Switch { subject, cases })
    }

    fn switch_case(&mut self) -> Res<SwitchCase> {
        let start = self.span();
        let label = if self.at(Tok::Default) {
            SwitchLabel::Default(self.bump())
        } else if self.at(Tok::LBrace) {
            return Err(self.unexpected("a label: an action's name, a value or `default`"));
        } else {
            SwitchLabel::Expr(self.expression()?)
        };
        self.expect(Tok::Colon)?;
        let block =
            if self.at(Tok::LBrace) || self.at(Tok::At) { Some(self.body()?) } else { None };
        Ok(SwitchCase { label, block, span: start.to(self.prev_span()) })
    }

    fn for_statement(&mut self, annotations: Annotations) -> Res<StatementKind> {
        self.not_in_state("for");
        self.bump();
        self.expect(Tok::LParen)?;
        self.scoped(|p| {
            let start = p.span();
            let own = p.annotations()?;
            if p.at_local_type() {
                let ty = p.type_ref()?;
                let name = p.name("the loop variable's name")?;
                p.declare_value(&name);
                if p.at(Tok::In) {
                    let span = start.to(name.span);
                    let variable = VariableDecl { annotations: own, ty, name, init: None, span };
                    return p.for_in(annotations, variable);
                }
                let first = p.loop_variable(own, ty, name, start)?;
                return p.for_counting(annotations, vec![first]);
            }
            p.for_counting(annotations, Vec::new())
        })
    }

    fn for_in(&mut self, annotations: Annotations, variable: VariableDecl) -> Res<StatementKind> {
        self.expect(Tok::In)?;
        let first = self.expression()?;
        let collection = if self.eat(Tok::Range) {
            ForCollection::Range { low: first, high: self.expression()? }
        } else {
            ForCollection::Expr(first)
        };
        self.expect(Tok::RParen)?;
        let body = self.branch()?;
        Ok(StatementKind::ForIn { annotations, variable: Box::new(variable), collection, body })
    }

    fn loop_variable(
        &mut self,
        annotations: Annotations,
        ty: TypeRef,
        name: crate::ast::Ident,
        start: Span,
    ) -> Res<Statement> {
        let init = if self.eat(Tok::Assign) { Some(self.expression()?) } else { None };
        let span = start.to(self.prev_span());
        let d = Declaration::Variable(VariableDecl { annotations, ty, name, init, span });
        Ok(Statement { kind: StatementKind::Declaration(Box::new(d)), span })
    }

    /// The rest of `for (init; condition; update) body`; `init` may already hold the first
    /// declaration.
    fn for_counting(
        &mut self,
        annotations: Annotations,
        mut init: Vec<Statement>,
    ) -> Res<StatementKind> {
        let mut more =
            init.is_empty() && !self.at(Tok::Semi) || !init.is_empty() && self.eat(Tok::Comma);
        while more {
            init.push(self.for_init()?);
            more = self.eat(Tok::Comma);
        }
        self.expect(Tok::Semi)?;
        let condition = self.expression()?;
        self.expect(Tok::Semi)?;
        let update = self.comma_list(Tok::RParen, false, Self::simple_statement)?;
        self.expect(Tok::RParen)?;
        let body = self.branch()?;
        Ok(StatementKind::For { annotations, init, condition, update, body })
    }

    fn for_init(&mut self) -> Res<Statement> {
        let start = self.span();
        let annotations = self.annotations()?;
        if !self.at_local_type() {
            return self.simple_statement();
        }
        let ty = self.type_ref()?;
        let name = self.name("a variable's name")?;
        self.declare_value(&name);
        self.loop_variable(annotations, ty, name, start)
    }

    /// An assignment or a call without its `;`.
    fn simple_statement(&mut self) -> Res<Statement> {
        let expr = self.expression()?;
        let start = expr.span;
        let kind = self.assignment_or_call(expr)?;
        Ok(Statement { kind, span: start.to(self.prev_span()) })
    }

    fn assignment_or_call(&mut self, target: Expr) -> Res<StatementKind> {
        if let Some((op, tokens)) = self.assign_op() {
            let mut op_span = self.bump();
            for _ in 1..tokens {
                op_span = op_span.to(self.bump());
            }
            let value = self.expression()?;
            return Ok(StatementKind::Assign { target, op, op_span, value });
        }
        if matches!(target.kind, ExprKind::Call { .. }) {
            return Ok(StatementKind::Call(target));
        }
        if !matches!(self.peek(), Tok::Semi | Tok::RBrace | Tok::RParen | Tok::Comma) {
            return Err(self.unexpected("`=` or `(`"));
        }
        let mut d = Diagnostic::error(target.span, "a value alone is not a statement")
            .label("neither assigned nor called");
        if matches!(target.kind, ExprKind::Binary { op: crate::ast::BinaryOp::Eq, .. }) {
            d = d.help("`==` compares; `=` assigns");
        }
        self.report(d);
        Ok(StatementKind::Empty)
    }

    fn expression_statement(
        &mut self,
        annotations: Annotations,
        start: Span,
    ) -> Res<StatementKind> {
        if !self.starts_expression() {
            return Err(self.unexpected("a statement"));
        }
        let expr = self.expression()?;
        if self.peek().is_name() && self.constructs(&expr) {
            return self.local_instance(annotations, expr, start);
        }
        if !annotations.is_empty() {
            let message = "annotations can stand before declarations, blocks and loops, not before this statement";
            let d = Diagnostic::error(start, message);
            self.report_always(d);
        }
        let what = if self.assign_op().is_some() { "the assignment" } else { "the call" };
        let kind = self.assignment_or_call(expr)?;
        self.expect_semi(what)?;
        Ok(kind)
    }

    fn starts_expression(&self) -> bool {
        use Tok::*;
        self.peek().is_name()
            || matches!(
                self.peek(),
                Int | Str
                    | True
                    | False
                    | This
                    | LParen
                    | Dot
                    | Minus
                    | Plus
                    | Bang
                    | Tilde
                    | Error
                    | InvalidHeader
            )
    }

    /// Whether `expr` can be the constructor of an instance whose name follows.
    fn constructs(&self, expr: &Expr) -> bool {
        let ExprKind::Call { callee, .. } = &expr.kind else { return false };
        let ExprKind::Path(path) = &callee.kind else { return false };
        self.scopes.is_type(path.name.as_str(), path.absolute) != Some(false)
    }

    /// `T(args) name;` in a block, read as a call so far.
    fn local_instance(
        &mut self,
        annotations: Annotations,
        call: Expr,
        start: Span,
    ) -> Res<StatementKind> {
        let ExprKind::Call { callee, type_args, args } = call.kind else {
            return Err(self.unexpected("`;`"));
        };
        let ExprKind::Path(path) = callee.kind else { return Err(self.unexpected("`;`")) };
        let kind = if type_args.is_empty() {
            TypeKind::Named(path)
        } else {
            TypeKind::Specialized { base: path, args: type_args }
        };
        let ty = TypeRef { kind, span: callee.span };
        let instance = self.instance_rest(annotations, ty, args, start)?;
        Ok(StatementKind::Declaration(Box::new(Declaration::Instantiation(instance))))
    }

    /// The rest of an instantiation, from the name on.
    pub(super) fn instance_rest(
        &mut self,
        annotations: Annotations,
        ty: TypeRef,
        args: Vec<crate::ast::Argument>,
        start: Span,
    ) -> Res<Instantiation> {
        let name = self.name("the instance's name")?;
        self.declare_value(&name);
        let initializer =
            if self.eat(Tok::Assign) { Some(self.object_initializer()?) } else { None };
        self.expect_semi("the instance")?;
        Ok(Instantiation {
            annotations,
            ty,
            args,
            name,
            initializer,
            span: start.to(self.prev_span()),
        })
    }

    /// Whether a type and then a name follow: a variable's declaration.
    pub(super) fn at_local_type(&self) -> bool {
        let first = self.peek();
        if Self::is_type_keyword(first) {
            return self.nth(1) != Tok::Dot;
        }
        let dot = usize::from(first == Tok::Dot);
        if !self.nth(dot).is_name() {
            return false;
        }
        let mut end = dot + 1;
        if self.nth(end) == Tok::Lt {
            // `list<T> x` and `T<A> x`; a comparison is no statement, so no knowledge of names is
            // needed.
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
        self.nth(end).is_name()
    }

    fn local_declaration(&mut self, annotations: Annotations, start: Span) -> Res<StatementKind> {
        let ty = self.type_ref()?;
        let variable = self.variable_rest(annotations, ty, start)?;
        Ok(StatementKind::Declaration(Box::new(Declaration::Variable(variable))))
    }

    /// The rest of a variable's declaration, from the name on.
    pub(super) fn variable_rest(
        &mut self,
        annotations: Annotations,
        ty: TypeRef,
        start: Span,
    ) -> Res<VariableDecl> {
        let name = self.name("a variable's name")?;
        if self.at(Tok::LParen) {
            let d = Diagnostic::error(name.span, "a function cannot be declared here")
                .help("functions stand at the top level; in a control, declare an action");
            return Err(self.fail(d));
        }
        let init = if self.eat(Tok::Assign) { Some(self.expression()?) } else { None };
        // The name is not yet known in its own initial value.
        self.declare_value(&name);
        self.expect_semi("the declaration")?;
        Ok(VariableDecl { annotations, ty, name, init, span: start.to(self.prev_span()) })
    }
}
