//! Expressions: types, operators, constant folding.

mod binary;

use std::rc::Rc;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use p4_syntax::{Diagnostic, Span, ast};

use crate::consts;
use crate::context::{Body, Checker, Entity};
use crate::hir::*;
use crate::ty::Ty;

impl Checker<'_> {
    /// Checks an expression. `expected` helps `{...}` and constructors to their types; it is not
    /// enforced.
    pub fn check_expr(&mut self, e: &ast::Expr, expected: Option<&Ty>) -> Expr {
        let span = e.span;
        match &e.kind {
            ast::ExprKind::Int(lit) => {
                let ty = match lit.width {
                    None => Ty::Int,
                    Some(w) if w == 0 || w > consts::MAX_WIDTH => {
                        return self.fault(
                            span,
                            format!("width {w} is not supported: 1 to {} bits", consts::MAX_WIDTH),
                        );
                    }
                    Some(w) if lit.signed => Ty::Signed(w),
                    Some(w) => Ty::Bit(w),
                };
                if lit.value.bits() > consts::MAX_CONST_BITS {
                    return self.fault(
                        span,
                        format!("the constant needs more than {} bits", consts::MAX_CONST_BITS),
                    );
                }
                let value = match ty.bits() {
                    Some((w, s)) => consts::wrap(&lit.value, w, s),
                    None => lit.value.clone(),
                };
                Expr::int(value, ty, span)
            }
            ast::ExprKind::Bool(b) => Expr::bool(*b, span),
            ast::ExprKind::Str(s) => {
                Expr { kind: ExprKind::Const(Value::Str(Rc::from(s.as_str()))), ty: Ty::Str, span }
            }
            ast::ExprKind::Path(path) => self.check_path(path),
            ast::ExprKind::Type(_) => self.fault(span, "expected a value, found a type"),
            ast::ExprKind::ErrorMember(name) => self.check_error_member(name, span),
            ast::ExprKind::This => self.fault(span, "`this` is not supported yet"),
            ast::ExprKind::Dots => match expected.map(|t| self.solved(t)) {
                Some(t) if !matches!(t, Ty::Infer(_)) => self.default_value(&t, span),
                _ => self.fault(span, "the type of `...` is not known here"),
            },
            ast::ExprKind::Member { base, member } => self.check_member(base, member, span),
            ast::ExprKind::Index { base, index } => self.check_index(base, index, span),
            ast::ExprKind::Slice { base, high, low } => self.check_slice(base, high, low, span),
            ast::ExprKind::PartSelect { base, low, width } => {
                self.check_part_select(base, low, width, span)
            }
            ast::ExprKind::Call { callee, type_args, args } => {
                self.check_call(callee, type_args, args, expected, span)
            }
            ast::ExprKind::Cast { ty, expr } => {
                let to = self.resolve_type(ty);
                let inner = self.check_expr(expr, Some(&to));
                self.cast(inner, &to, span)
            }
            ast::ExprKind::Unary { op, op_span, expr } => {
                self.check_unary(*op, *op_span, expr, span)
            }
            ast::ExprKind::Binary { op, op_span, left, right } => {
                let list = |e: &ast::Expr| {
                    matches!(
                        e.kind,
                        ast::ExprKind::List(_)
                            | ast::ExprKind::Struct { .. }
                            | ast::ExprKind::Invalid
                    )
                };
                let (l, r);
                if list(left) && !list(right) {
                    r = self.check_expr(right, None);
                    l = self.check_expr(left, Some(&r.ty.clone()));
                } else {
                    l = self.check_expr(left, None);
                    r = self.check_expr(right, list(right).then(|| l.ty.clone()).as_ref());
                }
                self.binary(*op, *op_span, l, r, span)
            }
            ast::ExprKind::Conditional { condition, then_value, else_value } => {
                self.check_conditional(condition, then_value, else_value, expected, span)
            }
            ast::ExprKind::List(list) => self.check_list(list, expected, span),
            ast::ExprKind::Struct { fields, dots } => {
                self.check_struct(fields, *dots, expected, span)
            }
            ast::ExprKind::Invalid => {
                let e = Expr { kind: ExprKind::InvalidHeader, ty: Ty::Invalid, span };
                match expected.map(|t| self.solved(t)) {
                    Some(t) if !matches!(t, Ty::Infer(_)) => self.coerce(e, &t),
                    _ => e,
                }
            }
        }
    }

    /// Checks an expression and converts it to the type.
    pub fn check_as(&mut self, e: &ast::Expr, ty: &Ty) -> Expr {
        let checked = self.check_expr(e, Some(ty));
        self.coerce(checked, ty)
    }

    fn check_path(&mut self, path: &ast::Path) -> Expr {
        let span = path.span;
        let Some(entry) = self.lookup(path) else { return Expr::poison(span) };
        match entry.entity {
            Entity::Const(e) => Expr { span, ..(*e).clone() },
            Entity::Local(id) => {
                let ty = self.hir.locals[id.index()].ty.clone();
                if ty.is_poison() {
                    return Expr::poison(span);
                }
                Expr { kind: ExprKind::Local(id), ty, span }
            }
            Entity::Poison => Expr::poison(span),
            other => {
                let mut d = Diagnostic::error(
                    span,
                    format!("`{}` is {}, not a value", path.name, other.describe()),
                )
                .note_at(entry.span, "declared here");
                if matches!(other, Entity::Functions(_) | Entity::Action(_) | Entity::Block(_)) {
                    d = d.help(format!("call it: `{}(...)`", path.name));
                }
                self.report(d);
                Expr::poison(span)
            }
        }
    }

    fn check_error_member(&mut self, name: &ast::Ident, span: Span) -> Expr {
        match self.hir.errors.iter().position(|e| &**e == name.as_str()) {
            Some(i) => Expr::int(BigInt::from(i), Ty::Error, span),
            None => self.fault(name.span, format!("`error.{name}` is not declared")),
        }
    }

    fn check_member(&mut self, base: &ast::Expr, member: &ast::Ident, span: Span) -> Expr {
        if let ast::ExprKind::Path(path) = &base.kind
            && let Some(entry) = self.find(path)
            && let Entity::Type(Ty::Enum(id)) = entry.entity
        {
            let def = &self.hir.enums[id.index()];
            if let Some((_, v)) = def.members.iter().find(|(n, _)| &**n == member.as_str()) {
                return Expr::int(v.clone(), Ty::Enum(id), span);
            }
            let (text, at) = (format!("enum `{}` has no member `{member}`", def.name), def.span);
            self.report(Diagnostic::error(member.span, text).note_at(at, "declared here"));
            return Expr::poison(span);
        }
        let b = self.check_expr(base, None);
        self.member_of(b, member, span)
    }

    fn member_of(&mut self, base: Expr, member: &ast::Ident, span: Span) -> Expr {
        let name = member.as_str();
        match self.solved(&base.ty) {
            Ty::Poison => Expr::poison(span),
            Ty::Record(id, args) => {
                let fields = self.fields_of(id, &args);
                let Some(i) = fields.iter().position(|(n, _)| &**n == name) else {
                    let def = &self.hir.records[id.index()];
                    let mut text = format!("`{}` has no field `{name}`", def.name);
                    if matches!(name, "isValid" | "setValid" | "setInvalid")
                        && def.kind != RecordKind::Struct
                    {
                        text = format!("`{name}` is a method: write `{name}()`");
                    }
                    let at = def.span;
                    self.report(Diagnostic::error(member.span, text).note_at(at, "declared here"));
                    return Expr::poison(span);
                };
                let ty = fields[i].1.clone();
                if ty.is_poison() {
                    return Expr::poison(span);
                }
                if let ExprKind::Aggregate(parts, _) = &base.kind
                    && !base.has_effects()
                    && let Some(p) = parts.get(i)
                {
                    return Expr { span, ..p.clone() };
                }
                Expr { kind: ExprKind::Field(Box::new(base), i as u32), ty, span }
            }
            Ty::Stack(elem, n) => self.stack_member(base, &elem, n, member, span),
            Ty::ApplyResult(table) => {
                let (part, ty) = match name {
                    "hit" => (ApplyPart::Hit, Ty::Bool),
                    "miss" => (ApplyPart::Miss, Ty::Bool),
                    "action_run" => (ApplyPart::ActionRun, Ty::ActionRun(table)),
                    _ => {
                        let text =
                            format!("apply() gives `hit`, `miss` and `action_run`, not `{name}`");
                        return self.fault(member.span, text);
                    }
                };
                Expr { kind: ExprKind::Apply(table, part), ty, span }
            }
            other => {
                let shown = self.show(&other);
                self.fault(member.span, format!("a value of type `{shown}` has no member `{name}`"))
            }
        }
    }

    fn stack_member(
        &mut self,
        base: Expr,
        elem: &Ty,
        n: u32,
        member: &ast::Ident,
        span: Span,
    ) -> Expr {
        let name = member.as_str();
        let b = Box::new(base);
        let kind = match name {
            "size" => return Expr::int(BigInt::from(n), Ty::Bit(32), span),
            "next" => ExprKind::StackNext(b),
            "last" => ExprKind::StackLast(b),
            "lastIndex" => ExprKind::StackLastIndex(b),
            _ => {
                let text = format!(
                    "a header stack has `next`, `last`, `lastIndex` and `size`, not `{name}`"
                );
                return self.fault(member.span, text);
            }
        };
        if self.body != Body::ParserState {
            return self.fault(
                member.span,
                format!("`{name}` of a header stack can be used in parsers only"),
            );
        }
        let ty = if name == "lastIndex" { Ty::Bit(32) } else { elem.clone() };
        Expr { kind, ty, span }
    }

    fn check_index(&mut self, base: &ast::Expr, index: &ast::Expr, span: Span) -> Expr {
        let b = self.check_expr(base, None);
        let i = self.check_expr(index, None);
        if b.is_poison() || i.is_poison() {
            return Expr::poison(span);
        }
        let known = i.as_int().cloned();
        let in_range =
            |n: usize| known.as_ref().is_none_or(|v| !v.is_negative() && *v < BigInt::from(n));
        match self.solved(&b.ty) {
            Ty::Stack(elem, n) => {
                let i = self.decay(i);
                if !i.ty.is_number() {
                    let shown = self.show(&i.ty);
                    return self.fault(i.span, format!("an index must be a number, not `{shown}`"));
                }
                if !in_range(n as usize) {
                    return self
                        .fault(i.span, format!("index out of bounds: the stack has {n} elements"));
                }
                let i = if i.ty == Ty::Int { self.convert(i, &Ty::Bit(32)) } else { i };
                Expr { kind: ExprKind::Index(Box::new(b), Box::new(i)), ty: (*elem).clone(), span }
            }
            Ty::Tuple(parts) => {
                let Some(v) =
                    known.as_ref().and_then(BigInt::to_usize).filter(|v| *v < parts.len())
                else {
                    let text = format!(
                        "a tuple's index must be a constant from 0 to {}",
                        parts.len().saturating_sub(1)
                    );
                    return self.fault(i.span, text);
                };
                if let ExprKind::Aggregate(list, _) = &b.kind
                    && !b.has_effects()
                {
                    return Expr { span, ..list[v].clone() };
                }
                Expr { kind: ExprKind::Field(Box::new(b), v as u32), ty: parts[v].clone(), span }
            }
            other => {
                let shown = self.show(&other);
                self.fault(b.span, format!("a value of type `{shown}` cannot be indexed"))
            }
        }
    }

    fn check_slice(
        &mut self,
        base: &ast::Expr,
        high: &ast::Expr,
        low: &ast::Expr,
        span: Span,
    ) -> Expr {
        let b = self.check_expr(base, None);
        let h = self.const_size(high, "the high bit of a slice");
        let l = self.const_size(low, "the low bit of a slice");
        let (Some(h), Some(l)) = (h, l) else { return Expr::poison(span) };
        self.slice(b, h, l, high.span, span)
    }

    fn check_part_select(
        &mut self,
        base: &ast::Expr,
        low: &ast::Expr,
        width: &ast::Expr,
        span: Span,
    ) -> Expr {
        let b = self.check_expr(base, None);
        let l = self.const_size(low, "the low bit of a slice");
        let w = self.const_size(width, "the width of a slice");
        let (Some(l), Some(w)) = (l, w) else { return Expr::poison(span) };
        if w == 0 {
            return self.fault(width.span, "the width of a slice must be at least 1");
        }
        self.slice(b, l.saturating_add(w - 1), l, width.span, span)
    }

    fn slice(&mut self, base: Expr, high: u64, low: u64, at: Span, span: Span) -> Expr {
        let b = self.decay(base);
        if b.is_poison() {
            return b;
        }
        let limit = match &b.ty {
            Ty::Bit(w) | Ty::Signed(w) => u64::from(*w),
            Ty::Int => u64::from(consts::MAX_WIDTH),
            other => {
                let shown = self.show(other);
                return self
                    .fault(b.span, format!("slices are for bit<N> and int<N>, not `{shown}`"));
            }
        };
        if low > high {
            return self
                .fault(at, format!("slice [{high}:{low}]: the high bit is below the low bit"));
        }
        if high >= limit {
            let shown = self.show(&b.ty);
            return self.fault(at, format!("slice [{high}:{low}] goes beyond `{shown}`"));
        }
        let (h, l) = (high as u32, low as u32);
        let ty = Ty::Bit(h - l + 1);
        if let Some(v) = b.as_int() {
            return Expr::int(consts::slice(v, h, l), ty, span);
        }
        Expr { kind: ExprKind::Slice(Box::new(b), h, l), ty, span }
    }

    /// A serializable enum as its underlying type, as operators take it.
    pub fn decay(&mut self, e: Expr) -> Expr {
        match &e.ty {
            Ty::Enum(id) => match self.hir.enums[id.index()].underlying.clone() {
                Some(t) => self.convert(e, &t),
                None => e,
            },
            _ => e,
        }
    }

    fn check_unary(&mut self, op: UnaryOp, op_span: Span, operand: &ast::Expr, span: Span) -> Expr {
        let e = self.check_expr(operand, None);
        let e = self.decay(e);
        if e.is_poison() {
            return e;
        }
        let good = match op {
            UnaryOp::Not => e.ty == Ty::Bool,
            UnaryOp::BitNot => e.ty.is_fixed_bits(),
            UnaryOp::Neg | UnaryOp::Plus => e.ty.is_number(),
        };
        if !good {
            let shown = self.show(&e.ty);
            return self.fault(op_span, format!("`{op}` cannot be applied to `{shown}`"));
        }
        if let Some(v) = e.as_int() {
            return match consts::unary(op, v, &e.ty) {
                Ok(v) => Expr::int(v, e.ty.clone(), span),
                Err(why) => self.fault(span, why),
            };
        }
        if op == UnaryOp::Plus {
            return e;
        }
        let ty = e.ty.clone();
        Expr { kind: ExprKind::Unary(op, Box::new(e)), ty, span }
    }

    fn check_conditional(
        &mut self,
        condition: &ast::Expr,
        a: &ast::Expr,
        b: &ast::Expr,
        expected: Option<&Ty>,
        span: Span,
    ) -> Expr {
        let c = self.check_as(condition, &Ty::Bool);
        let a = self.check_expr(a, expected);
        let b = self.check_expr(b, expected);
        let (a, b) = match expected.map(|t| self.solved(t)) {
            Some(t)
                if a.ty == Ty::Int
                    && b.ty == Ty::Int
                    && t.is_fixed_bits()
                    && c.is_compile_time(&self.hir.locals) =>
            {
                (self.coerce(a, &t), self.coerce(b, &t))
            }
            _ => self.balance(a, b),
        };
        if c.is_poison() || a.is_poison() || b.is_poison() {
            return Expr::poison(span);
        }
        if !self.unify(&a.ty.clone(), &b.ty.clone()) {
            let (x, y) = (self.show(&a.ty), self.show(&b.ty));
            return self.fault(
                span,
                format!("the two values of `?:` have different types, `{x}` and `{y}`"),
            );
        }
        if let Some(v) = c.as_int() {
            return if v.is_zero() { b } else { a };
        }
        if a.ty == Ty::Int && !c.is_compile_time(&self.hir.locals) {
            return self.fault(
                span,
                "the width of this value is not known: write one of the constants with a width",
            );
        }
        let ty = a.ty.clone();
        Expr { kind: ExprKind::Conditional(Box::new(c), Box::new(a), Box::new(b)), ty, span }
    }

    /// Explicit casts (spec §8.11.1).
    fn cast(&mut self, e: Expr, to: &Ty, span: Span) -> Expr {
        if e.is_poison() || to.is_poison() {
            return Expr::poison(span);
        }
        let e = Expr { span, ..e };
        if e.ty == *to {
            // Still a cast: what it is of cannot be assigned by it.
            let place = matches!(
                e.kind,
                ExprKind::Local(_)
                    | ExprKind::Field(..)
                    | ExprKind::Index(..)
                    | ExprKind::StackNext(_)
                    | ExprKind::StackLast(_)
                    | ExprKind::Slice(..)
            );
            return if place { self.convert(e, to) } else { e };
        }
        if let (Ty::New(a), Ty::New(b)) = (&e.ty, to)
            && self.hir.new_types[a.index()].target != *to
            && self.hir.new_types[b.index()].target != e.ty
        {
            // Spec §8.11.1: a type made by `type` casts to and from the type that it is made of.
            let (have, want) = (self.show(&e.ty), self.show(to));
            let middle = self.show(&self.underlying(to));
            let d = Diagnostic::error(
                span,
                format!("cannot cast `{have}` to `{want}`: both are made by `type`"),
            )
            .help(format!("go through the type below: `({want})({middle})x`"));
            self.report(d);
            return Expr::poison(span);
        }
        let (from, target) = (self.underlying(&e.ty), self.underlying(to));
        let constant = e.as_int().cloned();
        // Spec §8.11.1: to and from the type that it is made of, no other.
        let made = matches!(e.ty, Ty::New(_)) || matches!(to, Ty::New(_) | Ty::Enum(_));
        if made && from != target && from.is_fixed_bits() && target.is_fixed_bits() {
            let (have, want) = (self.show(&e.ty), self.show(to));
            let (inner, outer) = (self.show(&from), self.show(&target));
            let steps = match (matches!(e.ty, Ty::New(_)), matches!(to, Ty::New(_) | Ty::Enum(_))) {
                (true, true) => format!("({want})({outer})({inner})x"),
                (true, false) => format!("({want})({inner})x"),
                _ => format!("({want})({outer})x"),
            };
            let d = Diagnostic::error(
                span,
                format!("cannot cast `{have}` to `{want}`: neither is made from the other"),
            );
            self.report(d.help(format!("go through the type below: `{steps}`")));
            return Expr::poison(span);
        }
        let ok = match (&from, &target) {
            (Ty::Int, Ty::Bool) => {
                constant.as_ref().is_some_and(|v| *v == BigInt::zero() || *v == BigInt::from(1))
            }
            (Ty::Bit(1), Ty::Bool) | (Ty::Bool, Ty::Bit(1)) => true,
            (Ty::Bit(_), Ty::Bit(_)) | (Ty::Signed(_), Ty::Signed(_)) => true,
            (Ty::Bit(a), Ty::Signed(b)) | (Ty::Signed(a), Ty::Bit(b)) => a == b,
            (Ty::Int, Ty::Bit(_) | Ty::Signed(_)) => true,
            (Ty::Bit(_) | Ty::Signed(_), Ty::Int) => e.is_compile_time(&self.hir.locals),
            (a, b) => a == b && matches!(a, Ty::Bool),
        };
        if ok {
            return self.convert(e, to);
        }
        match self.try_coerce(e, to) {
            Ok(e) => e,
            Err(e) => {
                let (have, want) = (self.show(&e.ty), self.show(to));
                let mut d = Diagnostic::error(span, format!("cannot cast `{have}` to `{want}`"));
                if let (Ty::Bit(_), Ty::Signed(w)) | (Ty::Signed(_), Ty::Bit(w)) = (&from, &target)
                {
                    let step = if from == Ty::Bit(*w) || matches!(from, Ty::Bit(_)) {
                        "bit"
                    } else {
                        "int"
                    };
                    d = d.help(format!("change the width first: `({want})({step}<{w}>)x`"));
                }
                self.report(d);
                Expr::poison(span)
            }
        }
    }
}
