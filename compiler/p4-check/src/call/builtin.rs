//! Methods that every header, stack and type has: sizes, validity, pushing and popping.

use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_syntax::{Span, ast};

use super::Bound;
use crate::context::Checker;
use crate::hir::*;
use crate::ty::Ty;

impl Checker<'_> {
    /// `minSizeInBits()` and its kin (spec §9): constants of the type.
    pub(super) fn size_method(&mut self, ty: &Ty, member: &ast::Ident, span: Span) -> Expr {
        if ty.is_poison() {
            return Expr::poison(span);
        }
        let size = match member.as_str() {
            "minSizeInBits" => self.size_in_bits(ty, false),
            "maxSizeInBits" => self.size_in_bits(ty, true),
            "minSizeInBytes" => self.size_in_bits(ty, false).map(|n| n.div_ceil(8)),
            "maxSizeInBytes" => self.size_in_bits(ty, true).map(|n| n.div_ceil(8)),
            _ => {
                let shown = self.show(ty);
                return self.fault(member.span, format!("type `{shown}` has no method `{member}`"));
            }
        };
        match size {
            Some(n) => Expr::int(BigInt::from(n), Ty::Int, span),
            None => {
                let shown = self.show(ty);
                self.fault(span, format!("type `{shown}` has no size in bits"))
            }
        }
    }

    pub fn size_in_bits(&self, ty: &Ty, max: bool) -> Option<u64> {
        match self.underlying(ty) {
            Ty::Bit(w) | Ty::Signed(w) => Some(w.into()),
            Ty::Bool => Some(1),
            Ty::Varbit(w) => Some(if max { w.into() } else { 0 }),
            Ty::Stack(elem, n) => self.size_in_bits(&elem, max).map(|s| s * u64::from(n)),
            Ty::Tuple(parts) => parts.iter().map(|t| self.size_in_bits(t, max)).sum(),
            Ty::Record(id, args) => {
                let sizes =
                    self.fields_of(id, &args).into_iter().map(|(_, t)| self.size_in_bits(&t, max));
                if self.hir.records[id.index()].kind == RecordKind::Union {
                    let all: Option<Vec<u64>> = sizes.collect();
                    let all = all?;
                    return if max { all.into_iter().max() } else { all.into_iter().min() };
                }
                sizes.sum()
            }
            _ => None,
        }
    }

    pub(super) fn builtin_method(
        &mut self,
        e: Expr,
        ty: &Ty,
        member: &ast::Ident,
        args: &[ast::Argument],
        span: Span,
    ) -> Expr {
        let kind = self.record_kind(ty);
        let name = member.as_str();
        let is_stack = matches!(ty, Ty::Stack(..));
        if matches!(name, "minSizeInBits" | "maxSizeInBits" | "minSizeInBytes" | "maxSizeInBytes") {
            return self.size_method(ty, member, span);
        }
        let callee = match name {
            "isValid" if matches!(kind, Some(RecordKind::Header | RecordKind::Union)) => {
                Callee::IsValid(e)
            }
            "setValid" | "setInvalid" if kind == Some(RecordKind::Header) => {
                self.require_lvalue(&e, "changed by this method");
                Callee::SetValid(e, name == "setValid")
            }
            "push_front" | "pop_front" if is_stack => {
                self.require_lvalue(&e, "changed by this method");
                let [arg] = args else {
                    self.check_args_only(args);
                    return self.fault(span, format!("`{name}` takes one argument"));
                };
                let Some(value) = &arg.value else {
                    return self.fault(arg.span, format!("`{name}` needs a count"));
                };
                let count = self.const_size(value, "the count").and_then(|n| n.to_u32());
                let Some(n) = count else { return Expr::poison(span) };
                let n = Expr::int(BigInt::from(n), Ty::Bit(32), arg.span);
                let callee =
                    if name == "push_front" { Callee::PushFront(e) } else { Callee::PopFront(e) };
                return self.finish_call(
                    callee,
                    Vec::new(),
                    Some(Bound { args: vec![Some(n)], order: Order::default() }),
                    Ty::Void,
                    span,
                );
            }
            _ => {
                self.check_args_only(args);
                let shown = self.show(ty);
                return self.fault(
                    member.span,
                    format!("a value of type `{shown}` has no method `{name}`"),
                );
            }
        };
        if let Some(a) = args.first() {
            return self.fault(a.span, format!("`{name}` takes no arguments"));
        }
        let ret = if matches!(callee, Callee::IsValid(_)) { Ty::Bool } else { Ty::Void };
        self.finish_call(callee, Vec::new(), Some(Bound::default()), ret, span)
    }
}
