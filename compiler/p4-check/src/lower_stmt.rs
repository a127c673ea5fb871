//! Statements.

use num_bigint::BigInt;
use p4_ir as ir;
use p4_syntax::Span;

use crate::hir::{self, ApplyPart, Callee, StmtKind};
use crate::lower::{Binding, Lowerer, ReturnMode};
use crate::lower_expr::raises;
use crate::mutations::{Mutation, planted};

impl Lowerer<'_> {
    pub fn block(&mut self, block: &[hir::Stmt], out: &mut ir::Block) {
        for s in block {
            if self.stopped {
                return;
            }
            self.statement(s, out);
        }
    }

    fn sub_block(&mut self, block: &[hir::Stmt]) -> ir::Block {
        let mut out = Vec::new();
        self.block(block, &mut out);
        out
    }

    pub fn statement(&mut self, s: &hir::Stmt, out: &mut ir::Block) {
        let span = s.span;
        match &s.kind {
            StmtKind::Variable(id, init) => {
                let fresh = self.declare_variable(*id);
                match init {
                    Some(e) => self.assign_hir(fresh, e, span, out),
                    None => self.invalidate(&fresh, span, out),
                }
            }
            StmtKind::Object(id, e) => self.declare_object(*id, e, true),
            StmtKind::ValueSet(id, size) => self.declare_value_set(*id, size),
            StmtKind::Assign(target, value) => {
                let t = self.place(target, out);
                // The left side comes first, also with its error (§11.1).
                let both_fail = raises(&t) && value.looks_ahead();
                let t = if (value.has_effects() || both_fail) && !planted(Mutation::LateIndex) {
                    self.pin(t, span, out)
                } else {
                    t
                };
                self.assign_hir(t, value, span, out);
            }
            StmtKind::Call(e) => self.call_statement(e, out),
            StmtKind::If(c, a, b) => {
                let condition = self.expr(c, out);
                if let ir::ExprKind::Const(v) = &condition.kind {
                    let taken = if *v == BigInt::ZERO { b } else { a };
                    return self.block(taken, out);
                }
                let then = self.sub_block(a);
                let otherwise = self.sub_block(b);
                self.push(out, ir::StatementKind::If { condition, then, otherwise }, span);
            }
            StmtKind::Block(b, true) => {
                let mut body = self.sub_block(b);
                // What is the packet's own nobody else sees.
                if !uses_objects(&body) {
                    out.append(&mut body);
                    return;
                }
                self.push(
                    out,
                    ir::StatementKind::Block { label: None, body, comment: None, atomic: true },
                    span,
                );
            }
            StmtKind::Block(b, false) => self.block(b, out),
            StmtKind::Switch { subject, cases, default } => {
                let on = self.expr(subject, out);
                let mut lowered = Vec::new();
                for (labels, body) in cases {
                    let mut values = Vec::new();
                    for l in labels {
                        match self.const_eval(l) {
                            Some(v) => values.push(v),
                            None => self.error(l.span, "this label cannot be evaluated"),
                        }
                    }
                    let body = self.sub_block(body);
                    lowered.push((values, body));
                }
                let default = self.sub_block(default);
                self.push(out, ir::StatementKind::Switch { on, cases: lowered, default }, span);
            }
            StmtKind::ActionSwitch { table, cases, default } => {
                let (_, run) = self.apply_table(*table, ApplyPart::ActionRun, span, out);
                let Some(run) = run else { return };
                let on = self.read(run, span);
                let mut lowered = Vec::new();
                for (labels, body) in cases {
                    let body = self.sub_block(body);
                    lowered.push((labels.iter().map(|l| BigInt::from(*l)).collect(), body));
                }
                let default = self.sub_block(default);
                self.push(out, ir::StatementKind::Switch { on, cases: lowered, default }, span);
            }
            StmtKind::Return(value) => self.return_statement(value.as_ref(), span, out),
            StmtKind::Exit => self.exit_statement(span, out),
        }
    }

    /// Spec §12.5: what is owed to the callers is copied out before everything ends.
    pub fn exit_statement(&mut self, span: Span, out: &mut ir::Block) {
        let mut owed: Vec<(ir::Expr, ir::Expr)> =
            self.copy_outs.iter().rev().flatten().cloned().collect();
        if planted(Mutation::LostCopiesAtExit) {
            owed.clear();
        }
        for (target, from) in owed {
            self.assign(target, from, span, out);
        }
        self.push(out, ir::StatementKind::Exit, span);
    }

    fn return_statement(&mut self, value: Option<&hir::Expr>, span: Span, out: &mut ir::Block) {
        match self.returns.last().cloned() {
            Some(ReturnMode::Leave(label, result)) => {
                match (value, result) {
                    (Some(v), Some(place)) => self.assign_hir(place, v, span, out),
                    (Some(v), None) => {
                        self.expr(v, out);
                    }
                    _ => {}
                }
                self.push(out, ir::StatementKind::Leave(label), span);
            }
            _ => self.push(out, ir::StatementKind::Return, span),
        }
    }

    /// Storage for a local variable; its name stands for it from now on.
    pub fn declare_variable(&mut self, id: hir::LocalId) -> ir::Expr {
        let def = &self.hir.locals[id.index()];
        let ty = self.ty(&def.ty);
        let v = self.temporary(&def.name, ty, def.span);
        self.env.insert(id, Binding::Place(v.clone()));
        v
    }

    /// An extern, parser or control instance.
    pub fn declare_object(&mut self, id: hir::LocalId, e: &hir::Expr, single_site: bool) {
        let hir::ExprKind::Construct(c) = &e.kind else { return };
        let def = &self.hir.locals[id.index()];
        let binding = match &c.what {
            hir::Constructed::Extern(ext, targs) => {
                Binding::Extern(self.make_extern(c, *ext, targs, id))
            }
            hir::Constructed::Block(block) => Binding::Instance(self.make_instance(
                c,
                *block,
                &def.name,
                &def.annotations,
                single_site,
            )),
            hir::Constructed::Package(_) => return,
        };
        self.env.insert(id, binding);
    }

    pub fn declare_value_set(&mut self, id: hir::LocalId, size: &hir::Expr) {
        let def = &self.hir.locals[id.index()];
        let name = crate::names::control_plane(&self.prefix, &def.name, &def.annotations);
        let c_name = self.names.unique(&name);
        let ty = self.ty(&def.ty);
        let enumeration = self.enumeration(&def.ty);
        let location = self.location(def.span);
        let arguments = match self.const_eval(size) {
            Some(v) => vec![ir::ConstArgument::Value(v, ir::Type::bits(32))],
            None => Vec::new(),
        };
        self.externs.push(ir::ExternInstance {
            extern_type: "value_set".into(),
            name,
            c_name,
            type_arguments: vec![ty],
            type_enumerations: vec![enumeration],
            arguments,
            annotations: self.annotations(&def.annotations),
            merge: None,
            location,
        });
        self.env.insert(id, Binding::Extern(ir::ExternId(self.externs.len() as u32 - 1)));
    }

    fn call_statement(&mut self, e: &hir::Expr, out: &mut ir::Block) {
        match &e.kind {
            // The value is dropped; what computing it changes, or the error that it raises, stays.
            hir::ExprKind::Call(c) if c.lookahead || matches!(c.callee, Callee::IsValid(_)) => {
                let v = self.expr(e, out);
                self.keep(v, e.span, out);
            }
            hir::ExprKind::Call(c) => {
                self.call(c, None, e.span, out);
            }
            hir::ExprKind::Apply(table, _) => {
                self.apply_table(*table, ApplyPart::All, e.span, out);
            }
            _ => {}
        }
    }

    /// `target = value`, where a call of an extern can write the target itself.
    pub fn assign_hir(
        &mut self,
        target: ir::Expr,
        value: &hir::Expr,
        span: Span,
        out: &mut ir::Block,
    ) {
        if let hir::ExprKind::Call(c) = &value.kind {
            let direct = matches!(&target.kind, ir::ExprKind::Var(_) | ir::ExprKind::Field(..))
                && !matches!(c.callee, Callee::IsValid(_));
            if direct {
                if let Some(v) = self.call(c, Some(target.clone()), value.span, out)
                    && v != target
                {
                    self.assign(target, v, span, out);
                }
                return;
            }
        }
        let v = self.expr(value, out);
        self.assign(target, v, span, out);
    }

    /// `target = value`; structs inside of headers are taken apart.
    pub fn assign(&mut self, target: ir::Expr, value: ir::Expr, span: Span, out: &mut ir::Block) {
        if let ir::ExprKind::StructValue(parts) = &target.kind {
            let parts = parts.clone();
            let value = self.keep(value, span, out);
            for (i, p) in parts.into_iter().enumerate() {
                let v = self.ir_field(value.clone(), i as u32, span);
                self.assign(p, v, span, out);
            }
            return;
        }
        let parts = match &value.kind {
            ir::ExprKind::StructValue(p) | ir::ExprKind::HeaderValue(p) => p.as_slice(),
            _ => &[],
        };
        let root = root_of(&target);
        let overlaps = root.is_some_and(|r| parts.iter().any(|p| mentions(p, r)));
        let value = if overlaps { self.keep(value, span, out) } else { value };
        self.push(out, ir::StatementKind::Assign(target, value), span);
    }

    /// An l-value: its indices are evaluated, nothing else of it is read, so it stays the place
    /// itself.
    pub fn place(&mut self, e: &hir::Expr, out: &mut ir::Block) -> ir::Expr {
        let kind = match &e.kind {
            hir::ExprKind::Index(_, index)
                if index.has_effects() && planted(Mutation::IndexedCopy) =>
            {
                let element = self.expr(e, out);
                return self.keep(element, e.span, out);
            }
            hir::ExprKind::Field(base, i) => {
                let b = self.place(base, out);
                return self.project(b, &base.ty, *i, out, e.span);
            }
            hir::ExprKind::Index(base, index) => {
                let b = self.place(base, out);
                let i = self.expr(index, out);
                ir::ExprKind::Index(Box::new(b), Box::new(i))
            }
            hir::ExprKind::Slice(base, high, low) => ir::ExprKind::Slice {
                base: Box::new(self.place(base, out)),
                high: *high,
                low: *low,
            },
            hir::ExprKind::StackNext(base) => {
                ir::ExprKind::StackNext(Box::new(self.place(base, out)))
            }
            hir::ExprKind::StackLast(base) => {
                ir::ExprKind::StackLast(Box::new(self.place(base, out)))
            }
            _ => return self.expr(e, out),
        };
        ir::Expr { kind, ty: self.ty(&e.ty), location: self.location(e.span) }
    }

    /// Keeps the indices of an l-value aside, also those of `next` and `last`, so that it means the
    /// same place afterwards.
    pub fn pin(&mut self, e: ir::Expr, span: Span, out: &mut ir::Block) -> ir::Expr {
        let ir::Expr { kind, ty, location } = e;
        let kind = match kind {
            ir::ExprKind::Field(b, i) => ir::ExprKind::Field(Box::new(self.pin(*b, span, out)), i),
            ir::ExprKind::Index(b, i) => {
                let b = self.pin(*b, span, out);
                let i = self.keep(*i, span, out);
                ir::ExprKind::Index(Box::new(b), Box::new(i))
            }
            ir::ExprKind::Slice { base, high, low } => {
                ir::ExprKind::Slice { base: Box::new(self.pin(*base, span, out)), high, low }
            }
            ir::ExprKind::StackNext(b) => return self.pin_element(*b, 1, span, out),
            ir::ExprKind::StackLast(b) => return self.pin_element(*b, 0, span, out),
            ir::ExprKind::StructValue(parts) => ir::ExprKind::StructValue(
                parts.into_iter().map(|p| self.pin(p, span, out)).collect(),
            ),
            other => other,
        };
        ir::Expr { kind, ty, location }
    }

    /// The element of a stack that is `beyond` its last one now: an error of the parser if there is
    /// none.
    fn pin_element(
        &mut self,
        stack: ir::Expr,
        beyond: u32,
        span: Span,
        out: &mut ir::Block,
    ) -> ir::Expr {
        let stack = self.pin(stack, span, out);
        let ir::Type::Stack { header, size } = stack.ty else { return stack };
        let location = self.location(span);
        let number = ir::Type::bits(32);
        let last = ir::ExprKind::StackLastIndex(Box::new(stack.clone()));
        let mut index = ir::Expr { kind: last, ty: number.clone(), location };
        if beyond > 0 {
            let more = self.constant(BigInt::from(beyond), number.clone(), span);
            let kind = ir::ExprKind::Binary(ir::BinaryOp::Add, Box::new(index), Box::new(more));
            index = ir::Expr { kind, ty: number.clone(), location };
        }
        let index = self.keep(index, span, out);
        let size = self.constant(BigInt::from(size), number, span);
        let kind = ir::ExprKind::Binary(ir::BinaryOp::Lt, Box::new(index.clone()), Box::new(size));
        let inside = ir::Expr { kind, ty: ir::Type::Bool, location };
        let error =
            self.hir.errors.iter().position(|e| &**e == "StackOutOfBounds").unwrap_or_default();
        let error = self.constant(BigInt::from(error), ir::Type::Error, span);
        self.push(out, ir::StatementKind::Verify(inside, error), span);
        let kind = ir::ExprKind::Index(Box::new(stack), Box::new(index));
        ir::Expr { kind, ty: ir::Type::Header(header), location }
    }

    /// Makes all headers in a place invalid.
    pub fn invalidate(&mut self, place: &ir::Expr, span: Span, out: &mut ir::Block) {
        match &place.ty {
            ir::Type::Header(_) => {
                self.push(out, ir::StatementKind::SetValid(place.clone(), false), span)
            }
            // All elements out: the next index is 0 again, too.
            ir::Type::Stack { size, .. } => {
                self.push(out, ir::StatementKind::PopFront(place.clone(), *size), span);
            }
            ir::Type::Struct(_) | ir::Type::Union(_) => {
                for i in 0..self.ir_fields(&place.ty).len() {
                    let f = self.ir_field(place.clone(), i as u32, span);
                    self.invalidate(&f, span, out);
                }
            }
            _ => {}
        }
    }
}

/// Whether statements use what packets share: tables and extern objects.
pub fn uses_objects(block: &[ir::Statement]) -> bool {
    block.iter().any(|s| match &s.kind {
        ir::StatementKind::Apply { .. } | ir::StatementKind::Extern { instance: Some(_), .. } => {
            true
        }
        ir::StatementKind::If { then, otherwise, .. } => {
            uses_objects(then) || uses_objects(otherwise)
        }
        ir::StatementKind::Block { body, .. } => uses_objects(body),
        ir::StatementKind::Switch { cases, default, .. } => {
            uses_objects(default) || cases.iter().any(|(_, b)| uses_objects(b))
        }
        _ => false,
    })
}

/// The variable that a place is a part of.
pub fn root_of(e: &ir::Expr) -> Option<ir::VariableId> {
    match &e.kind {
        ir::ExprKind::Var(v) => Some(*v),
        ir::ExprKind::Field(b, _)
        | ir::ExprKind::Index(b, _)
        | ir::ExprKind::StackNext(b)
        | ir::ExprKind::StackLast(b)
        | ir::ExprKind::Slice { base: b, .. } => root_of(b),
        ir::ExprKind::StructValue(parts) => parts.first().and_then(root_of),
        _ => None,
    }
}

/// Whether an expression reads the variable.
pub fn mentions(e: &ir::Expr, v: ir::VariableId) -> bool {
    match &e.kind {
        ir::ExprKind::Var(x) => *x == v,
        ir::ExprKind::Const(_)
        | ir::ExprKind::Str(_)
        | ir::ExprKind::InvalidHeader
        | ir::ExprKind::Lookahead => false,
        ir::ExprKind::Field(b, _)
        | ir::ExprKind::StackNext(b)
        | ir::ExprKind::StackLast(b)
        | ir::ExprKind::StackLastIndex(b)
        | ir::ExprKind::IsValid(b)
        | ir::ExprKind::Slice { base: b, .. }
        | ir::ExprKind::Unary(_, b)
        | ir::ExprKind::Cast(b) => mentions(b, v),
        ir::ExprKind::Index(a, b) | ir::ExprKind::Binary(_, a, b) => {
            mentions(a, v) || mentions(b, v)
        }
        ir::ExprKind::Ternary(a, b, c) => mentions(a, v) || mentions(b, v) || mentions(c, v),
        ir::ExprKind::StructValue(p) | ir::ExprKind::HeaderValue(p) => {
            p.iter().any(|e| mentions(e, v))
        }
    }
}
