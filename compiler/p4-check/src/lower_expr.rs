//! Expressions: effects go before, what is left is pure.

mod equal;

use num_bigint::BigInt;
use num_traits::Zero;
use p4_ir as ir;
use p4_syntax::Span;

use crate::hir::{self, ApplyPart, BinaryOp, Callee, RecordKind, UnaryOp};
use crate::lower::{Binding, Lowerer};
use crate::lower_args::is_plain;
use crate::mutations::{Mutation, planted};
use crate::ty::Ty;

/// Most fields of a struct or header that `==` compares.
const MAX_COMPARED_FIELDS: u32 = 256;

impl Lowerer<'_> {
    /// Lowers an expression; what has effects goes to `out`.
    pub fn expr(&mut self, e: &hir::Expr, out: &mut ir::Block) -> ir::Expr {
        let span = e.span;
        if matches!(
            e.kind,
            hir::ExprKind::Local(_)
                | hir::ExprKind::Unary(..)
                | hir::ExprKind::Binary(..)
                | hir::ExprKind::Cast(_)
                | hir::ExprKind::Slice(..)
                | hir::ExprKind::Conditional(..)
        ) && let Some(v) = self.const_eval(e)
        {
            let ty = self.ty(&e.ty);
            return self.constant(v, ty, span);
        }
        let ty = self.ty(&e.ty);
        let kind = match &e.kind {
            hir::ExprKind::Poison => ir::ExprKind::Const(BigInt::zero()),
            // What is left of type `int` is a shift amount: beyond 32 bits all are the same.
            hir::ExprKind::Const(hir::Value::Int(v)) if e.ty == Ty::Int => {
                ir::ExprKind::Const(v.clone().clamp(BigInt::zero(), BigInt::from(u32::MAX)))
            }
            hir::ExprKind::Const(hir::Value::Int(v)) => ir::ExprKind::Const(v.clone()),
            hir::ExprKind::Const(hir::Value::Str(s)) => ir::ExprKind::Str(s.to_string()),
            hir::ExprKind::Local(id) => return self.local(*id, span, out),
            hir::ExprKind::Field(base, i) => {
                let b = self.expr(base, out);
                return self.project(b, &base.ty, *i, out, span);
            }
            hir::ExprKind::Index(base, index) => {
                let mut b = self.expr(base, out);
                // Of a variable's stack the element is read when the index is known, as in bmv2's
                // compiler.
                if index.has_effects() && !is_plain(&b) {
                    b = self.keep(b, base.span, out);
                }
                let i = self.expr(index, out);
                ir::ExprKind::Index(Box::new(b), Box::new(i))
            }
            hir::ExprKind::StackNext(b) => ir::ExprKind::StackNext(Box::new(self.expr(b, out))),
            hir::ExprKind::StackLast(b) => ir::ExprKind::StackLast(Box::new(self.expr(b, out))),
            hir::ExprKind::StackLastIndex(b) => {
                ir::ExprKind::StackLastIndex(Box::new(self.expr(b, out)))
            }
            hir::ExprKind::Slice(b, high, low) => {
                ir::ExprKind::Slice { base: Box::new(self.expr(b, out)), high: *high, low: *low }
            }
            hir::ExprKind::Unary(op, a) => {
                let op = match op {
                    UnaryOp::Not => ir::UnaryOp::Not,
                    UnaryOp::BitNot => ir::UnaryOp::Complement,
                    UnaryOp::Neg => ir::UnaryOp::Negate,
                    UnaryOp::Plus => return self.expr(a, out),
                };
                ir::ExprKind::Unary(op, Box::new(self.expr(a, out)))
            }
            hir::ExprKind::Binary(op, a, b) => return self.binary(*op, a, b, ty, span, out),
            hir::ExprKind::Cast(a) => {
                let inner = self.expr(a, out);
                if inner.ty == ty {
                    return inner;
                }
                ir::ExprKind::Cast(Box::new(inner))
            }
            hir::ExprKind::Conditional(c, a, b) => return self.conditional(c, a, b, ty, span, out),
            hir::ExprKind::Aggregate(parts, order) => {
                return self.aggregate(parts, order, &e.ty, span, out);
            }
            hir::ExprKind::InvalidHeader => ir::ExprKind::InvalidHeader,
            hir::ExprKind::Call(call) => {
                if let Callee::IsValid(h) = &call.callee {
                    let h = self.expr(h, out);
                    return self.is_valid(h, span);
                }
                return self.call(call, None, span, out).unwrap_or_else(|| self.nothing(span));
            }
            hir::ExprKind::Apply(table, part) => return self.apply_part(*table, *part, span, out),
            hir::ExprKind::Construct(_) => {
                self.error(span, "an instance cannot be made here");
                ir::ExprKind::Const(BigInt::zero())
            }
        };
        ir::Expr { kind, ty, location: self.location(span) }
    }

    /// Stands for what was reported.
    pub fn nothing(&mut self, span: Span) -> ir::Expr {
        self.constant(BigInt::zero(), ir::Type::bits(1), span)
    }

    fn local(&mut self, id: hir::LocalId, span: Span, out: &mut ir::Block) -> ir::Expr {
        match self.env.get(&id).cloned() {
            Some(Binding::Place(mut e)) => {
                e.location = self.location(span);
                e
            }
            Some(Binding::Const(e)) => self.expr(&e, out),
            _ => {
                let name = self.hir.locals[id.index()].name.clone();
                self.error(span, format!("`{name}` cannot be used as a value here"));
                self.nothing(span)
            }
        }
    }

    /// Several operands from left to right: a value is kept aside if what follows could change it.
    pub fn operands(&mut self, list: &[&hir::Expr], out: &mut ir::Block) -> Vec<ir::Expr> {
        let mut values = Vec::new();
        for (i, e) in list.iter().enumerate() {
            let v = self.expr(e, out);
            let v = if self.in_field_list { self.listed(e, v, out) } else { v };
            let later = list[i + 1..].iter().any(|l| l.has_effects());
            values.push(if later { self.keep(v, e.span, out) } else { v });
        }
        values
    }

    /// An element of a field list. What stands for a field of a header, but is not written as one
    /// (a parameter), is a value like any other: valid, whatever the header is.
    fn listed(&mut self, written: &hir::Expr, v: ir::Expr, out: &mut ir::Block) -> ir::Expr {
        let is_header = |ty: &ir::Type| matches!(ty, ir::Type::Header(_));
        let is_field = matches!(&v.kind, ir::ExprKind::Field(base, _) if is_header(&base.ty));
        let as_field =
            matches!(&written.kind, hir::ExprKind::Field(base, _) if is_header(&self.ty(&base.ty)));
        if is_field && !as_field { self.save(v, written.span, out) } else { v }
    }

    /// The same for a list that is evaluated in an order of its own; the values as in the list.
    pub fn operands_in(
        &mut self,
        list: &[&hir::Expr],
        order: &hir::Order,
        out: &mut ir::Block,
    ) -> Vec<ir::Expr> {
        let order =
            if planted(Mutation::DeclarationOrder) { &hir::Order::default() } else { order };
        let places = order.places(list.len());
        let written: Vec<&hir::Expr> = places.iter().map(|i| list[*i]).collect();
        let mut values: Vec<(usize, ir::Expr)> =
            places.into_iter().zip(self.operands(&written, out)).collect();
        values.sort_by_key(|(place, _)| *place);
        values.into_iter().map(|(_, v)| v).collect()
    }

    /// The value as it is now, whatever happens afterwards.
    pub fn keep(&mut self, v: ir::Expr, span: Span, out: &mut ir::Block) -> ir::Expr {
        match &v.kind {
            ir::ExprKind::Const(_) | ir::ExprKind::Str(_) | ir::ExprKind::InvalidHeader => v,
            ir::ExprKind::StructValue(parts) | ir::ExprKind::HeaderValue(parts) => {
                let kept = parts.clone().into_iter().map(|p| self.keep(p, span, out)).collect();
                let kind = if matches!(v.kind, ir::ExprKind::StructValue(_)) {
                    ir::ExprKind::StructValue(kept)
                } else {
                    ir::ExprKind::HeaderValue(kept)
                };
                ir::Expr { kind, ..v }
            }
            // A field of an invalid header adds nothing to a hash: it is kept with its header.
            ir::ExprKind::Field(header, i)
                if self.in_field_list && matches!(header.ty, ir::Type::Header(_)) =>
            {
                let header = self.keep((**header).clone(), span, out);
                let kind = ir::ExprKind::Field(Box::new(header), *i);
                ir::Expr { kind, ..v }
            }
            _ => self.save(v, span, out),
        }
    }

    /// A variable of its own for the value.
    fn save(&mut self, v: ir::Expr, span: Span, out: &mut ir::Block) -> ir::Expr {
        let t = self.temporary("tmp", v.ty.clone(), span);
        self.push(out, ir::StatementKind::Assign(t.clone(), v), span);
        t
    }

    /// A form whose parts can be taken without evaluating anything twice.
    fn decomposable(&mut self, v: ir::Expr, span: Span, out: &mut ir::Block) -> ir::Expr {
        match &v.kind {
            ir::ExprKind::Var(_)
            | ir::ExprKind::Field(..)
            | ir::ExprKind::Index(..)
            | ir::ExprKind::StackNext(_)
            | ir::ExprKind::StackLast(_)
            | ir::ExprKind::StructValue(_)
            | ir::ExprKind::HeaderValue(_)
            | ir::ExprKind::InvalidHeader => v,
            _ => self.keep(v, span, out),
        }
    }

    /// Field `i` (as declared) of a value whose checked type is `ty`.
    pub fn project(
        &mut self,
        base: ir::Expr,
        ty: &Ty,
        i: u32,
        out: &mut ir::Block,
        span: Span,
    ) -> ir::Expr {
        let base = self.decomposable(base, span, out);
        let ty = ty.substitute(&self.generics);
        let Ty::Record(id, args) = &ty else {
            return self.ir_field(base, i, span);
        };
        if self.hir.records[id.index()].kind != RecordKind::Header {
            return self.ir_field(base, i, span);
        }
        let fields = self.hir.fields_of(*id, args);
        let mut at: u32 = fields.iter().take(i as usize).map(|(_, t)| self.leaves(t)).sum();
        self.header_part(&base, &fields[i as usize].1, &mut at, span)
    }

    /// A field of a header; a struct in it as the value of its flattened fields.
    fn header_part(&mut self, base: &ir::Expr, ty: &Ty, at: &mut u32, span: Span) -> ir::Expr {
        if let Ty::Record(id, args) = ty {
            let parts = self.hir.fields_of(*id, args);
            let values = parts.iter().map(|(_, t)| self.header_part(base, t, at, span)).collect();
            let ty = self.ty(ty);
            return ir::Expr {
                kind: ir::ExprKind::StructValue(values),
                ty,
                location: self.location(span),
            };
        }
        *at += 1;
        self.ir_field(base.clone(), *at - 1, span)
    }

    /// Field `i` of an IR value.
    pub fn ir_field(&mut self, base: ir::Expr, i: u32, span: Span) -> ir::Expr {
        if let ir::ExprKind::StructValue(parts) | ir::ExprKind::HeaderValue(parts) = &base.kind
            && let Some(p) = parts.get(i as usize)
        {
            return p.clone();
        }
        let Some(ty) = self.ir_fields(&base.ty).get(i as usize).cloned() else {
            return self.nothing(span);
        };
        ir::Expr { kind: ir::ExprKind::Field(Box::new(base), i), ty, location: self.location(span) }
    }

    fn is_valid(&mut self, h: ir::Expr, span: Span) -> ir::Expr {
        let kind = match h.kind {
            ir::ExprKind::InvalidHeader => ir::ExprKind::Const(BigInt::zero()),
            ir::ExprKind::HeaderValue(_) => ir::ExprKind::Const(BigInt::from(1)),
            _ => ir::ExprKind::IsValid(Box::new(h)),
        };
        ir::Expr { kind, ty: ir::Type::Bool, location: self.location(span) }
    }

    fn aggregate(
        &mut self,
        parts: &[hir::Expr],
        order: &hir::Order,
        ty: &Ty,
        span: Span,
        out: &mut ir::Block,
    ) -> ir::Expr {
        let refs: Vec<&hir::Expr> = parts.iter().collect();
        let values = self.operands_in(&refs, order, out);
        let ir_ty = self.ty(ty);
        let kind = match &ir_ty {
            ir::Type::Header(_) => {
                let mut flat = Vec::new();
                for v in values {
                    self.flatten_value(v, span, out, &mut flat);
                }
                ir::ExprKind::HeaderValue(flat)
            }
            ir::Type::Stack { .. } => {
                let t = self.temporary("stack", ir_ty.clone(), span);
                for (i, v) in values.into_iter().enumerate() {
                    let i = self.constant(BigInt::from(i), ir::Type::bits(32), span);
                    let kind = ir::ExprKind::Index(Box::new(t.clone()), Box::new(i));
                    let place = ir::Expr { kind, ty: v.ty.clone(), location: t.location };
                    self.push(out, ir::StatementKind::Assign(place, v), span);
                }
                return t;
            }
            ir::Type::Struct(_) => ir::ExprKind::StructValue(values),
            _ => {
                self.error(span, "this list cannot be used as a value of the program");
                ir::ExprKind::Const(BigInt::zero())
            }
        };
        ir::Expr { kind, ty: ir_ty, location: self.location(span) }
    }

    fn flatten_value(
        &mut self,
        v: ir::Expr,
        span: Span,
        out: &mut ir::Block,
        flat: &mut Vec<ir::Expr>,
    ) {
        if !matches!(v.ty, ir::Type::Struct(_)) {
            return flat.push(v);
        }
        let v = self.decomposable(v, span, out);
        for i in 0..self.ir_fields(&v.ty).len() {
            let f = self.ir_field(v.clone(), i as u32, span);
            self.flatten_value(f, span, out, flat);
        }
    }

    fn conditional(
        &mut self,
        c: &hir::Expr,
        a: &hir::Expr,
        b: &hir::Expr,
        ty: ir::Type,
        span: Span,
        out: &mut ir::Block,
    ) -> ir::Expr {
        let condition = self.expr(c, out);
        let (mut then, mut otherwise) = (Vec::new(), Vec::new());
        let x = self.expr(a, &mut then);
        let y = self.expr(b, &mut otherwise);
        if planted(Mutation::EagerBranches) {
            out.append(&mut then);
            out.append(&mut otherwise);
        }
        let scalar = matches!(
            ty,
            ir::Type::Bits { .. } | ir::Type::Bool | ir::Type::Error | ir::Type::Enum(_)
        );
        let location = self.location(span);
        // What can end the parser does so only in the branch that is taken.
        if then.is_empty() && otherwise.is_empty() && scalar && !raises(&x) && !raises(&y) {
            let kind = ir::ExprKind::Ternary(Box::new(condition), Box::new(x), Box::new(y));
            return ir::Expr { kind, ty, location };
        }
        let t = self.temporary("tmp", ty, span);
        self.assign(t.clone(), x, span, &mut then);
        self.assign(t.clone(), y, span, &mut otherwise);
        self.push(out, ir::StatementKind::If { condition, then, otherwise }, span);
        t
    }

    fn binary(
        &mut self,
        op: BinaryOp,
        a: &hir::Expr,
        b: &hir::Expr,
        ty: ir::Type,
        span: Span,
        out: &mut ir::Block,
    ) -> ir::Expr {
        if matches!(op, BinaryOp::And | BinaryOp::Or) {
            let x = self.expr(a, out);
            let mut right = Vec::new();
            let y = self.expr(b, &mut right);
            if planted(Mutation::EagerBranches) {
                out.append(&mut right);
            }
            if !right.is_empty() || raises(&y) {
                return self.short_circuit(op, x, y, right, span, out);
            }
            let op = if op == BinaryOp::And { ir::BinaryOp::And } else { ir::BinaryOp::Or };
            return self.ir_binary(op, x, y, ty, span);
        }
        let mut both = self.operands(&[a, b], out);
        let (Some(y), Some(x)) = (both.pop(), both.pop()) else { return self.nothing(span) };
        match op {
            BinaryOp::Eq => self.equal(x, y, span, out),
            BinaryOp::Ne => {
                let scalar =
                    self.ir_fields(&x.ty).is_empty() && !matches!(x.ty, ir::Type::Stack { .. });
                if scalar {
                    self.check_comparable(&x.ty, span);
                    return self.ir_binary(ir::BinaryOp::Ne, x, y, ir::Type::Bool, span);
                }
                let e = self.equal(x, y, span, out);
                ir::Expr {
                    location: e.location,
                    kind: ir::ExprKind::Unary(ir::UnaryOp::Not, Box::new(e)),
                    ty,
                }
            }
            _ => {
                if matches!(op, BinaryOp::Div | BinaryOp::Mod) {
                    match self.const_eval(b) {
                        Some(v) if !v.is_zero() => {}
                        Some(_) => self.error(span, "division by zero"),
                        None => self.error(span, "`/` and `%` need a constant on the right"),
                    }
                }
                self.ir_binary(ir_operator(op), x, y, ty, span)
            }
        }
    }

    fn ir_binary(
        &mut self,
        op: ir::BinaryOp,
        a: ir::Expr,
        b: ir::Expr,
        ty: ir::Type,
        span: Span,
    ) -> ir::Expr {
        ir::Expr {
            kind: ir::ExprKind::Binary(op, Box::new(a), Box::new(b)),
            ty,
            location: self.location(span),
        }
    }

    fn short_circuit(
        &mut self,
        op: BinaryOp,
        x: ir::Expr,
        y: ir::Expr,
        mut right: ir::Block,
        span: Span,
        out: &mut ir::Block,
    ) -> ir::Expr {
        let t = self.temporary("tmp", ir::Type::Bool, span);
        self.push(out, ir::StatementKind::Assign(t.clone(), x), span);
        self.push(&mut right, ir::StatementKind::Assign(t.clone(), y), span);
        let (then, otherwise) =
            if op == BinaryOp::And { (right, Vec::new()) } else { (Vec::new(), right) };
        self.push(out, ir::StatementKind::If { condition: t.clone(), then, otherwise }, span);
        t
    }

    /// Element `i` of a stack.
    pub fn element(
        &mut self,
        stack: &ir::Expr,
        i: u32,
        header: ir::HeaderTypeId,
        span: Span,
    ) -> ir::Expr {
        let i = self.constant(BigInt::from(i), ir::Type::bits(32), span);
        ir::Expr {
            kind: ir::ExprKind::Index(Box::new(stack.clone()), Box::new(i)),
            ty: ir::Type::Header(header),
            location: self.location(span),
        }
    }

    fn apply_part(
        &mut self,
        table: hir::TableDefId,
        part: ApplyPart,
        span: Span,
        out: &mut ir::Block,
    ) -> ir::Expr {
        let (hit, action_run) = self.apply_table(table, part, span, out);
        let used = hit.or(action_run);
        let Some(v) = used else { return self.nothing(span) };
        let e = self.read(v, span);
        match part {
            ApplyPart::Miss => ir::Expr {
                location: e.location,
                ty: ir::Type::Bool,
                kind: ir::ExprKind::Unary(ir::UnaryOp::Not, Box::new(e)),
            },
            _ => e,
        }
    }
}

/// Whether reading it can end the parser with an error.
pub(crate) fn raises(e: &ir::Expr) -> bool {
    match &e.kind {
        ir::ExprKind::Lookahead | ir::ExprKind::StackNext(_) | ir::ExprKind::StackLast(_) => true,
        ir::ExprKind::Var(_)
        | ir::ExprKind::Const(_)
        | ir::ExprKind::Str(_)
        | ir::ExprKind::InvalidHeader => false,
        ir::ExprKind::Field(b, _)
        | ir::ExprKind::StackLastIndex(b)
        | ir::ExprKind::IsValid(b)
        | ir::ExprKind::Slice { base: b, .. }
        | ir::ExprKind::Unary(_, b)
        | ir::ExprKind::Cast(b) => raises(b),
        ir::ExprKind::Index(a, b) | ir::ExprKind::Binary(_, a, b) => raises(a) || raises(b),
        ir::ExprKind::Ternary(a, b, c) => raises(a) || raises(b) || raises(c),
        ir::ExprKind::StructValue(p) | ir::ExprKind::HeaderValue(p) => p.iter().any(raises),
    }
}

fn ir_operator(op: BinaryOp) -> ir::BinaryOp {
    match op {
        BinaryOp::Mul => ir::BinaryOp::Mul,
        BinaryOp::Div => ir::BinaryOp::Div,
        BinaryOp::Mod => ir::BinaryOp::Mod,
        BinaryOp::Add => ir::BinaryOp::Add,
        BinaryOp::Sub => ir::BinaryOp::Sub,
        BinaryOp::SatAdd => ir::BinaryOp::SaturatingAdd,
        BinaryOp::SatSub => ir::BinaryOp::SaturatingSub,
        BinaryOp::Concat => ir::BinaryOp::Concat,
        BinaryOp::Shl => ir::BinaryOp::ShiftLeft,
        BinaryOp::Shr => ir::BinaryOp::ShiftRight,
        BinaryOp::Lt => ir::BinaryOp::Lt,
        BinaryOp::Le => ir::BinaryOp::Le,
        BinaryOp::Gt => ir::BinaryOp::Gt,
        BinaryOp::Ge => ir::BinaryOp::Ge,
        BinaryOp::Eq => ir::BinaryOp::Eq,
        BinaryOp::Ne => ir::BinaryOp::Ne,
        BinaryOp::BitAnd => ir::BinaryOp::BitAnd,
        BinaryOp::BitXor => ir::BinaryOp::BitXor,
        BinaryOp::BitOr => ir::BinaryOp::BitOr,
        BinaryOp::And => ir::BinaryOp::And,
        BinaryOp::Or => ir::BinaryOp::Or,
    }
}
