//! A call's arguments: their order, and which of them share storage.

use num_bigint::BigInt;
use p4_ir as ir;

use crate::hir;
use crate::mutations::{Mutation, planted};

/// A call's arguments, by parameter, and in which order they are evaluated.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    pub list: &'a [Option<hir::Expr>],
    pub order: &'a hir::Order,
}

impl<'a> Args<'a> {
    pub fn of(call: &'a hir::Call) -> Args<'a> {
        Args { list: &call.args, order: &call.order }
    }

    /// As they are evaluated: which parameter's, the argument, and whether one after it has
    /// effects.
    pub fn in_order(self) -> impl Iterator<Item = (usize, &'a hir::Expr, bool)> {
        let places = self.order.places(self.list.len());
        let given: Vec<(usize, &hir::Expr)> =
            places.into_iter().filter_map(|i| self.list[i].as_ref().map(|a| (i, a))).collect();
        let later: Vec<bool> =
            (0..given.len()).map(|n| given[n + 1..].iter().any(|(_, a)| a.has_effects())).collect();
        given.into_iter().zip(later).map(|((i, a), later)| (i, a, later))
    }
}

/// Copies out in the order of the arguments as written, from left to right (spec §6.8); each begins
/// with its place in the list of parameters.
pub fn as_written(
    mut copies: Vec<(usize, ir::Expr, ir::Expr)>,
    args: Args<'_>,
) -> Vec<(ir::Expr, ir::Expr)> {
    if !planted(Mutation::CopyOutAsDeclared) {
        let places = args.order.places(args.list.len());
        copies.sort_by_key(|(at, ..)| places.iter().position(|place| place == at));
    }
    copies.into_iter().map(|(_, to, from)| (to, from)).collect()
}

/// A variable, or a part of one at a fixed place.
pub fn is_plain(e: &ir::Expr) -> bool {
    match &e.kind {
        ir::ExprKind::Var(_) => true,
        ir::ExprKind::Field(b, _) => is_plain(b),
        ir::ExprKind::Index(b, i) => is_plain(b) && matches!(i.kind, ir::ExprKind::Const(_)),
        _ => false,
    }
}

/// Whether the place is a header union, or lies in a member of one.
pub fn in_union(e: &ir::Expr) -> bool {
    match &e.kind {
        ir::ExprKind::Field(b, _) | ir::ExprKind::Index(b, _) => {
            matches!(e.ty, ir::Type::Union(_)) || in_union(b)
        }
        _ => matches!(e.ty, ir::Type::Union(_)),
    }
}

/// Whether two plain places share nothing. Members of one union do: which of them is valid.
pub fn disjoint(a: &ir::Expr, b: &ir::Expr) -> bool {
    if !is_plain(a) || !is_plain(b) {
        return false;
    }
    let (mut x, mut y) = (Vec::new(), Vec::new());
    path(a, &mut x);
    path(b, &mut y);
    x.iter().zip(&y).any(|(p, q)| p != q)
}

/// Steps from the variable to a place; none beyond a union, whose members are not apart.
fn path(e: &ir::Expr, out: &mut Vec<BigInt>) {
    match &e.kind {
        ir::ExprKind::Var(v) => out.push(BigInt::from(v.0)),
        ir::ExprKind::Field(b, i) => {
            path(b, out);
            if !in_union(b) {
                out.push(BigInt::from(*i));
            }
        }
        ir::ExprKind::Index(b, i) => {
            path(b, out);
            if let ir::ExprKind::Const(v) = &i.kind {
                out.push(v.clone());
            }
        }
        _ => {}
    }
}
