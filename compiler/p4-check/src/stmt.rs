//! Statements and the rules of l-values.

use p4_syntax::{Diagnostic, Span, ast};

use crate::context::{Body, Checker, Entity};
use crate::hir::*;
use crate::ty::Ty;

impl Checker<'_> {
    /// Reports, and gives false, if the expression cannot be written.
    pub fn require_lvalue(&mut self, e: &Expr, role: &str) -> bool {
        let local = match &e.kind {
            ExprKind::Poison => return true,
            ExprKind::Local(id) => *id,
            ExprKind::Field(b, _) if matches!(self.solved(&b.ty), Ty::Tuple(_)) => {
                let text = format!("a field of a tuple cannot be {role} (§8.12)");
                self.report(
                    Diagnostic::error(e.span, text).help("assign the whole tuple, or use a struct"),
                );
                return false;
            }
            ExprKind::Field(b, _)
            | ExprKind::Index(b, _)
            | ExprKind::StackNext(b)
            | ExprKind::StackLast(b)
            | ExprKind::Slice(b, ..) => return self.require_lvalue(b, role),
            _ => {
                self.error(
                    e.span,
                    format!("this cannot be {role}: it is not a variable or a part of one"),
                );
                return false;
            }
        };
        let def = &self.hir.locals[local.index()];
        let what = match def.kind {
            LocalKind::Variable | LocalKind::Parameter(Direction::Out | Direction::InOut) => {
                return true;
            }
            LocalKind::Parameter(Direction::In) => "an `in` parameter",
            LocalKind::Parameter(_) | LocalKind::ActionData => "a parameter without direction",
            LocalKind::Constructor => "a constructor parameter",
            LocalKind::Object | LocalKind::ValueSet => "an instance",
        };
        let (text, at) =
            (format!("`{}` cannot be {role}: it is {what}, read-only", def.name), def.span);
        self.report(Diagnostic::error(e.span, text).note_at(at, "declared here"));
        false
    }

    pub fn check_block(&mut self, block: &ast::Block) -> Block {
        self.push_scope();
        let out = self.check_statements(&block.statements);
        self.pop_scope();
        atomic(&block.annotations, block.span, out)
    }

    pub fn check_statements(&mut self, list: &[ast::Statement]) -> Block {
        let mut out = Vec::new();
        for s in list {
            self.check_statement(s, &mut out);
        }
        out
    }

    fn branch(&mut self, s: &ast::Statement) -> Block {
        self.push_scope();
        let mut out = Vec::new();
        self.check_statement(s, &mut out);
        self.pop_scope();
        out
    }

    fn check_statement(&mut self, s: &ast::Statement, out: &mut Block) {
        let span = s.span;
        let mut push = |kind| out.push(Stmt { kind, span });
        match &s.kind {
            ast::StatementKind::Empty => {}
            // Spec §10.3: instances are made when the program is loaded, not when a packet comes.
            ast::StatementKind::Declaration(d)
                if matches!(**d, ast::Declaration::Instantiation(_)) =>
            {
                let d = p4_syntax::Diagnostic::error(
                    span,
                    "an instance cannot be declared among statements",
                )
                .help("declare it before `apply` or the first state of its control or parser");
                self.report(d);
                if let ast::StatementKind::Declaration(d) = &s.kind {
                    self.check_local_declaration(d);
                }
            }
            ast::StatementKind::Declaration(d) => {
                if let Some(kind) = self.check_local_declaration(d) {
                    push(kind);
                }
            }
            ast::StatementKind::Assign { target, op, op_span, value } => {
                if let Some(kind) = self.check_assign(target, *op, *op_span, value, span) {
                    push(kind);
                }
            }
            ast::StatementKind::Call(e) => {
                let e = self.check_expr(e, None);
                match &e.kind {
                    ExprKind::Construct(_) => {
                        self.error(span, "an instance needs a name: `T(...) name;`")
                    }
                    ExprKind::Call(_) | ExprKind::Apply(..) => push(StmtKind::Call(e)),
                    // A method that is a constant (`minSizeInBits()`): nothing to do.
                    _ => {}
                }
            }
            ast::StatementKind::If { condition, then_branch, else_branch } => {
                if self.body == Body::None {
                    self.error(span, "`if` is not allowed here");
                }
                let c = self.check_as(condition, &Ty::Bool);
                let then = self.branch(then_branch);
                let otherwise = else_branch.as_ref().map(|b| self.branch(b)).unwrap_or_default();
                push(StmtKind::If(c, then, otherwise));
            }
            ast::StatementKind::Block(b) => {
                let b = self.check_block(b);
                push(StmtKind::Block(b, false));
            }
            ast::StatementKind::Switch { subject, cases } => {
                if let Some(kind) = self.check_switch(subject, cases, span) {
                    push(kind);
                }
            }
            ast::StatementKind::For { .. } | ast::StatementKind::ForIn { .. } => {
                self.error(span, "`for` loops are not supported yet");
            }
            ast::StatementKind::Break | ast::StatementKind::Continue => {
                self.error(span, "`break` and `continue` are allowed in loops only");
            }
            ast::StatementKind::Return(value) => {
                let kind = self.check_return(value.as_ref(), span);
                push(kind);
            }
            ast::StatementKind::Exit => {
                if matches!(self.body, Body::Function | Body::ParserState) {
                    self.error(span, "`exit` is allowed in controls and actions only");
                }
                push(StmtKind::Exit);
            }
        }
    }

    fn check_assign(
        &mut self,
        target: &ast::Expr,
        op: Option<BinaryOp>,
        op_span: Span,
        value: &ast::Expr,
        span: Span,
    ) -> Option<StmtKind> {
        let t = self.check_expr(target, None);
        let target_ty = t.ty.clone();
        if !t.is_poison()
            && (target_ty.is_object() || matches!(target_ty, Ty::ApplyResult(_) | Ty::Void))
        {
            let shown = self.show(&target_ty);
            self.error(t.span, format!("`{shown}` cannot be assigned"));
            self.check_expr(value, None);
            return None;
        }
        let writable = self.require_lvalue(&t, "assigned");
        let v = match op {
            None => self.check_as(value, &target_ty),
            Some(op) => {
                let r = self.check_expr(value, None);
                if t.has_effects() {
                    self.error(t.span, "the target of a compound assignment cannot contain calls");
                    return None;
                }
                let whole = self.binary(op, op_span, t.clone(), r, span);
                self.coerce(whole, &target_ty)
            }
        };
        (writable && !t.is_poison() && !v.is_poison()).then_some(StmtKind::Assign(t, v))
    }

    fn check_return(&mut self, value: Option<&ast::Expr>, span: Span) -> StmtKind {
        match (self.body, value) {
            (Body::ParserState | Body::None, _) => {
                self.error(span, "`return` is allowed in controls, actions and functions only");
                StmtKind::Return(None)
            }
            (Body::Function, Some(v)) if self.returns != Ty::Void => {
                let ty = self.returns.clone();
                let v = self.check_as(v, &ty);
                StmtKind::Return(Some(v))
            }
            (Body::Function, None) if self.returns != Ty::Void => {
                let shown = self.show(&self.returns.clone());
                self.error(span, format!("this function must return a value of type `{shown}`"));
                StmtKind::Return(None)
            }
            (_, Some(v)) => {
                self.check_expr(v, None);
                self.error(v.span, "controls, actions and void functions return no value");
                StmtKind::Return(None)
            }
            (_, None) => StmtKind::Return(None),
        }
    }

    /// Declarations inside of blocks, parsers and controls that are values or instances.
    pub fn check_local_declaration(&mut self, d: &ast::Declaration) -> Option<StmtKind> {
        match d {
            ast::Declaration::Variable(v) => {
                let ty = self.resolve_data_type(&v.ty);
                let constant =
                    ty.any(&|t| matches!(t, Ty::Int | Ty::Str | Ty::MatchKind | Ty::List(_)));
                let ty = match ty {
                    _ if constant => {
                        let shown = self.show(&ty);
                        self.error(
                            v.ty.span,
                            format!("a variable cannot have type `{shown}`: values of this type exist at compile time only"),
                        );
                        Ty::Poison
                    }
                    t => t,
                };
                let init = v.init.as_ref().map(|e| self.check_as(e, &ty));
                let id = self.new_local(&v.name, ty, LocalKind::Variable, &v.annotations);
                self.declare(&v.name, Entity::Local(id));
                Some(StmtKind::Variable(id, init))
            }
            ast::Declaration::Constant(c) => {
                self.declare_constant(c);
                None
            }
            ast::Declaration::Instantiation(i) => {
                self.declare_instance(i).map(|(id, e)| StmtKind::Object(id, e))
            }
            other => {
                self.error(other.span(), "this declaration is not allowed here");
                None
            }
        }
    }

    pub fn declare_constant(&mut self, c: &ast::ConstantDecl) {
        let ty = self.resolve_data_type(&c.ty);
        let outer = std::mem::replace(&mut self.body, Body::None);
        let e = self.check_as(&c.value, &ty);
        self.body = outer;
        if !e.is_poison() && !e.is_compile_time(&self.hir.locals) {
            self.error(
                c.value.span,
                format!("the value of `{}` is not known at compile time", c.name),
            );
            return self.declare(&c.name, Entity::Poison);
        }
        if !e.is_modest(&mut 20_000, 100) {
            self.error(
                c.value.span,
                format!("the value of `{}` is too large an expression", c.name),
            );
            return self.declare(&c.name, Entity::Poison);
        }
        let entity =
            if e.is_poison() || ty.is_poison() { Entity::Poison } else { Entity::Const(e.into()) };
        self.declare(&c.name, entity);
    }

    pub fn declare_instance(&mut self, i: &ast::Instantiation) -> Option<(LocalId, Expr)> {
        if i.initializer.is_some() {
            self.error(i.span, "instances with abstract methods are not supported yet");
        }
        let ty = match &i.ty.kind {
            ast::TypeKind::Named(path) => match self.find(path).map(|e| e.entity) {
                Some(Entity::Extern(id)) => {
                    let n = self.hir.externs[id.index()].type_params.len();
                    let args: Vec<Ty> = (0..n).map(|_| self.fresh_type()).collect();
                    Ty::Extern(id, args.into())
                }
                Some(Entity::Package(id)) => {
                    let n = self.hir.packages[id.index()].type_params.len();
                    let args: Vec<Ty> = (0..n).map(|_| self.fresh_type()).collect();
                    Ty::Package(id, args.into())
                }
                _ => self.resolve_type(&i.ty),
            },
            _ => self.resolve_type(&i.ty),
        };
        let e = if !ty.is_poison() && !ty.is_object() {
            let shown = self.show(&ty);
            self.fault(
                i.ty.span,
                format!("`{shown}` cannot be instantiated: it is not an extern, parser, control or package"),
            )
        } else {
            self.construct_type(&ty, &i.args, None, i.span)
        };
        self.check_instance_place(&e.ty, i.ty.span);
        let id = self.new_local(&i.name, e.ty.clone(), LocalKind::Object, &i.annotations);
        self.declare(&i.name, if e.is_poison() { Entity::Poison } else { Entity::Local(id) });
        (!e.is_poison()).then_some((id, e))
    }

    /// Controls have no parsers, and parsers no controls (P4-16, appendix F).
    fn check_instance_place(&mut self, ty: &Ty, span: Span) {
        let Ty::Block(id) = ty else { return };
        let text = match (self.body, self.hir.blocks[id.index()].kind) {
            (Body::Control, BlockKind::Parser) => "a parser cannot be instantiated in a control",
            (Body::ParserState, BlockKind::Control) => {
                "a control cannot be instantiated in a parser"
            }
            _ => return,
        };
        self.error(span, text);
    }

    fn check_switch(
        &mut self,
        subject: &ast::Expr,
        cases: &[ast::SwitchCase],
        span: Span,
    ) -> Option<StmtKind> {
        if self.body == Body::ParserState {
            self.error(span, "`switch` is not allowed in parser states; use `transition select`");
        }
        let s = self.check_expr(subject, None);
        if let Ty::ActionRun(table) = s.ty {
            return Some(self.check_action_switch(table, cases));
        }
        let ty = match self.underlying(&s.ty) {
            Ty::Bit(_) | Ty::Signed(_) | Ty::Error | Ty::Enum(_) => s.ty.clone(),
            Ty::Poison => Ty::Poison,
            other => {
                let shown = self.show(&other);
                let text = format!(
                    "a switch on `{shown}` is not possible: it needs bit<N>, int<N>, error or an enum"
                );
                let mut d = p4_syntax::Diagnostic::error(s.span, text);
                if other == Ty::Bool {
                    d = d.help("use `if`");
                }
                self.report(d);
                Ty::Poison
            }
        };
        let mut seen: Vec<(Value, Span)> = Vec::new();
        let mut out: Vec<(Vec<Expr>, Block)> = Vec::new();
        let mut default = Vec::new();
        let mut labels = Vec::new();
        let mut has_default: Option<Span> = None;
        let mut with_default = false;
        for c in cases {
            match &c.label {
                ast::SwitchLabel::Default(at) => {
                    with_default = true;
                    self.check_default_label(&mut has_default, *at);
                }
                ast::SwitchLabel::Expr(e) => {
                    let v = self.check_as(e, &ty);
                    if !v.is_poison() {
                        self.check_label_after_default(has_default, e.span);
                        match &v.kind {
                            ExprKind::Const(value) => {
                                if let Some((_, first)) = seen.iter().find(|(o, _)| o == value) {
                                    let d = Diagnostic::error(e.span, "this label occurs twice")
                                        .note_at(*first, "first here");
                                    self.report(d);
                                }
                                seen.push((value.clone(), e.span));
                            }
                            _ if v.is_compile_time(&self.hir.locals) => {}
                            _ => self.error(e.span, "a switch label must be a constant"),
                        }
                        labels.push(v);
                    }
                }
            }
            if let Some(b) = &c.block {
                let b = self.check_block(b);
                if std::mem::take(&mut with_default) {
                    default = b;
                    labels.clear();
                } else {
                    out.push((std::mem::take(&mut labels), b));
                }
            }
        }
        (!s.is_poison()).then_some(StmtKind::Switch { subject: s, cases: out, default })
    }

    fn check_default_label(&mut self, seen: &mut Option<Span>, at: Span) {
        if let Some(first) = seen.replace(at) {
            self.report(
                Diagnostic::error(at, "`default` occurs twice").note_at(first, "first here"),
            );
        }
    }

    fn check_label_after_default(&mut self, default: Option<Span>, at: Span) {
        if default.is_some() {
            self.error(at, "`default` must be the last label of a switch");
        }
    }

    fn check_action_switch(&mut self, table: TableDefId, cases: &[ast::SwitchCase]) -> StmtKind {
        let mut out = Vec::new();
        let mut default = Vec::new();
        let mut labels: Vec<usize> = Vec::new();
        let mut seen: Vec<(usize, Span)> = Vec::new();
        let mut has_default = None;
        let mut with_default = false;
        for c in cases {
            match &c.label {
                ast::SwitchLabel::Default(at) => {
                    with_default = true;
                    self.check_default_label(&mut has_default, *at);
                }
                ast::SwitchLabel::Expr(e) => {
                    self.check_label_after_default(has_default, e.span);
                    if let Some(i) = self.action_label(table, e) {
                        if let Some((_, first)) = seen.iter().find(|(o, _)| *o == i) {
                            let d = Diagnostic::error(e.span, "this label occurs twice")
                                .note_at(*first, "first here");
                            self.report(d);
                        }
                        seen.push((i, e.span));
                        labels.push(i);
                    }
                }
            }
            if let Some(b) = &c.block {
                let b = self.check_block(b);
                if std::mem::take(&mut with_default) {
                    default = b;
                    labels.clear();
                } else {
                    out.push((std::mem::take(&mut labels), b));
                }
            }
        }
        StmtKind::ActionSwitch { table, cases: out, default }
    }

    fn action_label(&mut self, table: TableDefId, e: &ast::Expr) -> Option<usize> {
        let ast::ExprKind::Path(path) = &e.kind else {
            self.error(e.span, "a label of a switch on action_run must be the name of an action");
            return None;
        };
        let entry = self.lookup(path)?;
        let def = self.hir.tables[table.index()].as_ref()?;
        let Entity::Action(id) = entry.entity else {
            self.error(
                e.span,
                format!("`{}` is {}, not an action", path.name, entry.entity.describe()),
            );
            return None;
        };
        let found = def.actions.iter().position(|a| a.action == id);
        if found.is_none() {
            let (text, at) =
                (format!("table `{}` has no action `{}`", def.name, path.name), def.span);
            self.report(Diagnostic::error(e.span, text).note_at(at, "declared here"));
        }
        found
    }
}

/// Statements that the annotations may say are one step (spec §18.4.1).
pub fn atomic(annotations: &[ast::Annotation], span: Span, body: Block) -> Block {
    if is_atomic(annotations) {
        vec![Stmt { kind: StmtKind::Block(body, true), span }]
    } else {
        body
    }
}

pub fn is_atomic(annotations: &[ast::Annotation]) -> bool {
    annotations.iter().any(|annotation| annotation.name.as_str() == "atomic")
}

/// Whether every path through the block ends in `return` (or `exit`).
pub fn always_returns(block: &[Stmt]) -> bool {
    block.iter().any(|s| match &s.kind {
        StmtKind::Return(_) | StmtKind::Exit => true,
        StmtKind::If(_, a, b) => always_returns(a) && always_returns(b),
        StmtKind::Block(b, _) => always_returns(b),
        StmtKind::Switch { cases, default, .. } => {
            always_returns(default) && cases.iter().all(|(_, b)| always_returns(b))
        }
        StmtKind::ActionSwitch { cases, default, .. } => {
            always_returns(default) && cases.iter().all(|(_, b)| always_returns(b))
        }
        _ => false,
    })
}
