//! Operators with two operands: their types, and their value where it is known.

use num_bigint::BigInt;
use num_traits::{Signed, Zero};
use p4_syntax::Span;

use crate::consts;
use crate::context::Checker;
use crate::hir::*;
use crate::ty::Ty;

impl Checker<'_> {
    /// A binary operator on checked operands.
    pub fn binary(&mut self, op: BinaryOp, op_span: Span, l: Expr, r: Expr, span: Span) -> Expr {
        if l.is_poison() || r.is_poison() {
            return Expr::poison(span);
        }
        match self.binary_types(op, l, r) {
            Ok((l, r, ty)) => self.fold_binary(op, l, r, ty, span),
            Err(Some(why)) => self.fault(op_span, why),
            Err(None) => Expr::poison(span),
        }
    }

    pub(super) fn binary_types(
        &mut self,
        op: BinaryOp,
        l: Expr,
        r: Expr,
    ) -> Result<(Expr, Expr, Ty), Option<String>> {
        use BinaryOp::*;
        let mismatch = |c: &Self, l: &Expr, r: &Expr| {
            Err(Some(format!(
                "`{op}` cannot be applied to `{}` and `{}`",
                c.show(&l.ty),
                c.show(&r.ty)
            )))
        };
        match op {
            And | Or => {
                if l.ty != Ty::Bool || r.ty != Ty::Bool {
                    return mismatch(self, &l, &r);
                }
                Ok((l, r, Ty::Bool))
            }
            Shl | Shr => {
                let (l, r) = (self.decay(l), self.decay(r));
                if !l.ty.is_number() || !matches!(r.ty, Ty::Int | Ty::Bit(_)) {
                    return mismatch(self, &l, &r);
                }
                if l.ty == Ty::Int && !r.is_compile_time(&self.hir.locals) {
                    return Err(Some(
                        "a constant of type `int` cannot be shifted at run time: give it a width"
                            .into(),
                    ));
                }
                if r.as_int().is_some_and(BigInt::is_negative) {
                    return Err(Some("negative shift amount".into()));
                }
                let ty = l.ty.clone();
                Ok((l, r, ty))
            }
            Concat => {
                let (l, r) = (self.decay(l), self.decay(r));
                let (Some((a, s)), Some((b, _))) = (l.ty.bits(), r.ty.bits()) else {
                    return mismatch(self, &l, &r);
                };
                if a + b > consts::MAX_WIDTH {
                    return Err(Some(format!(
                        "`++` makes {} bits; at most {} are supported",
                        a + b,
                        consts::MAX_WIDTH
                    )));
                }
                Ok((l, r, if s { Ty::Signed(a + b) } else { Ty::Bit(a + b) }))
            }
            Eq | Ne => {
                let (l, r) = self.balance(l, r);
                if l.is_poison() || r.is_poison() {
                    return Err(None);
                }
                let comparable =
                    !matches!(l.ty, Ty::Void | Ty::ApplyResult(_) | Ty::ActionRun(_) | Ty::Invalid)
                        && !l.ty.is_object();
                if !comparable || !self.unify(&l.ty.clone(), &r.ty.clone()) {
                    return mismatch(self, &l, &r);
                }
                Ok((l, r, Ty::Bool))
            }
            _ => {
                let (l, r) = (self.decay(l), self.decay(r));
                let (l, r) = self.balance(l, r);
                if !l.ty.is_number() || l.ty != r.ty {
                    return mismatch(self, &l, &r);
                }
                if matches!(op, SatAdd | SatSub) && l.ty == Ty::Int {
                    return mismatch(self, &l, &r);
                }
                if matches!(op, Div | Mod) {
                    self.check_division(&l, &r)?;
                }
                let ty = if matches!(op, Lt | Le | Gt | Ge) { Ty::Bool } else { l.ty.clone() };
                Ok((l, r, ty))
            }
        }
    }

    /// Spec §8.6: no division of signed values, and by constants only.
    pub(super) fn check_division(&self, l: &Expr, r: &Expr) -> Result<(), Option<String>> {
        if matches!(l.ty, Ty::Signed(_)) {
            return Err(Some("`/` and `%` are not defined on int<N>".into()));
        }
        if !r.is_compile_time(&self.hir.locals) {
            return Err(Some("`/` and `%` need a constant on the right".into()));
        }
        if r.as_int().is_some_and(BigInt::is_zero) {
            return Err(Some("division by zero".into()));
        }
        Ok(())
    }

    pub(super) fn balance(&mut self, l: Expr, r: Expr) -> (Expr, Expr) {
        match (&l.ty, &r.ty) {
            (a, b) if a == b => (l, r),
            (Ty::Int, b) if b.is_fixed_bits() => {
                let to = b.clone();
                (self.coerce(l, &to), r)
            }
            (a, Ty::Int) if a.is_fixed_bits() => {
                let to = a.clone();
                (l, self.coerce(r, &to))
            }
            (Ty::Tuple(_) | Ty::Invalid, Ty::Record(..)) => {
                let to = r.ty.clone();
                (self.coerce(l, &to), r)
            }
            (Ty::Record(..), Ty::Tuple(_) | Ty::Invalid) => {
                let to = l.ty.clone();
                (l, self.coerce(r, &to))
            }
            (Ty::Enum(_), _) | (_, Ty::Enum(_)) => {
                let (a, b) = (self.decay(l), self.decay(r));
                if matches!(a.ty, Ty::Enum(_)) || matches!(b.ty, Ty::Enum(_)) {
                    (a, b)
                } else {
                    self.balance(a, b)
                }
            }
            _ => (l, r),
        }
    }

    pub(super) fn fold_binary(
        &mut self,
        op: BinaryOp,
        l: Expr,
        r: Expr,
        ty: Ty,
        span: Span,
    ) -> Expr {
        if let (Some(a), Some(b)) = (l.as_int(), r.as_int()) {
            return match consts::binary(op, a, b, &l.ty, &r.ty) {
                Ok(v) => Expr::int(v, ty, span),
                Err(why) => self.fault(span, why),
            };
        }
        Expr { kind: ExprKind::Binary(op, Box::new(l), Box::new(r)), ty, span }
    }
}
