//! `==` of headers, structs and tuples: of their scalars, one by one.

use super::*;

impl Lowerer<'_> {
    pub(super) fn check_comparable(&mut self, ty: &ir::Type, span: Span) {
        if matches!(ty, ir::Type::Varbit { .. } | ir::Type::String) {
            self.error(span, "comparing varbit fields is not supported yet");
        }
    }

    /// A form whose fields can be compared one by one, until two differ: its errors are raised
    /// before.
    pub(super) fn comparable(&mut self, v: ir::Expr, span: Span, out: &mut ir::Block) -> ir::Expr {
        if raises(&v) { self.keep(v, span, out) } else { self.decomposable(v, span, out) }
    }

    /// `a == b`, taken apart down to scalars (spec §8.16: headers are equal if both are invalid, or
    /// both are valid with equal fields).
    pub(super) fn equal(
        &mut self,
        a: ir::Expr,
        b: ir::Expr,
        span: Span,
        out: &mut ir::Block,
    ) -> ir::Expr {
        match &a.ty {
            ir::Type::Header(_) => {
                let (a, b) = (self.comparable(a, span, out), self.comparable(b, span, out));
                let (va, vb) = (self.is_valid(a.clone(), span), self.is_valid(b.clone(), span));
                let same =
                    self.ir_binary(ir::BinaryOp::Eq, va.clone(), vb.clone(), ir::Type::Bool, span);
                if matches!(a.kind, ir::ExprKind::InvalidHeader)
                    || matches!(b.kind, ir::ExprKind::InvalidHeader)
                {
                    return same;
                }
                let fields = self.equal_fields(a, b, span, out);
                let not = ir::Expr {
                    location: va.location,
                    ty: ir::Type::Bool,
                    kind: ir::ExprKind::Unary(ir::UnaryOp::Not, Box::new(va)),
                };
                let either = self.ir_binary(ir::BinaryOp::Or, not, fields, ir::Type::Bool, span);
                self.ir_binary(ir::BinaryOp::And, same, either, ir::Type::Bool, span)
            }
            ir::Type::Struct(_) | ir::Type::Union(_) => {
                let (a, b) = (self.comparable(a, span, out), self.comparable(b, span, out));
                self.equal_fields(a, b, span, out)
            }
            ir::Type::Stack { header, size } => {
                let (header, size) = (*header, *size);
                let mut all = None;
                for i in 0..size {
                    let x = self.element(&a, i, header, span);
                    let y = self.element(&b, i, header, span);
                    let e = self.equal(x, y, span, out);
                    all = Some(self.conjunction(all, e, span));
                }
                all.unwrap_or_else(|| self.constant(BigInt::from(1), ir::Type::Bool, span))
            }
            _ => {
                self.check_comparable(&a.ty.clone(), span);
                self.ir_binary(ir::BinaryOp::Eq, a, b, ir::Type::Bool, span)
            }
        }
    }

    pub(super) fn conjunction(
        &mut self,
        all: Option<ir::Expr>,
        e: ir::Expr,
        span: Span,
    ) -> ir::Expr {
        match all {
            Some(a) => self.ir_binary(ir::BinaryOp::And, a, e, ir::Type::Bool, span),
            None => e,
        }
    }

    pub(super) fn equal_fields(
        &mut self,
        a: ir::Expr,
        b: ir::Expr,
        span: Span,
        out: &mut ir::Block,
    ) -> ir::Expr {
        let mut all = None;
        let count = self.ir_fields(&a.ty).len() as u32;
        if count > MAX_COMPARED_FIELDS {
            self.error(
                span,
                format!("comparing {count} fields at once is not supported: at most {MAX_COMPARED_FIELDS}"),
            );
            return self.nothing(span);
        }
        for i in 0..count {
            let x = self.ir_field(a.clone(), i, span);
            let y = self.ir_field(b.clone(), i, span);
            let e = self.equal(x, y, span, out);
            all = Some(self.conjunction(all, e, span));
        }
        all.unwrap_or_else(|| self.constant(BigInt::from(1), ir::Type::Bool, span))
    }
}
