//! What a sub-parser that rejects leaves in its caller's variables.
//!
//! Spec §13.10 has the sub-parser's `reject` be the caller's and does not say what becomes of its
//! parameters. In bmv2 a sub-parser works on the caller's variables, so that what it extracted and
//! wrote before stays; but on copies, which are lost, where arguments overlap. That is ours too.
//! Where bmv2's compiler leaves it open which of the two it is (an index that is a variable, an
//! overlap with a part of an expression), the outcome is undefined. So it is for a member of a
//! header union: whether it is valid is the other members' affair, too, and ours is a copy.

use p4_check::hir::{Call, Expr, ExprKind, LocalId, LocalKind, RecordKind};
use p4_check::ty::Ty;
use p4_check::walk;

use super::data::Data;
use super::place::Place;
use super::{Run, Tree, undefined};

/// A variable and the way to a part of it: fields, and indices that are constants.
struct Location {
    root: LocalId,
    path: Vec<u64>,
    /// It has an index that is not a constant; the path ends there.
    open: bool,
}

impl Location {
    fn of(expr: &Expr) -> Option<Location> {
        let step = |base: &Expr, step: Option<u64>| {
            let mut location = Location::of(base)?;
            match step {
                _ if location.open => {}
                Some(step) => location.path.push(step),
                None => location.open = true,
            }
            Some(location)
        };
        match &expr.kind {
            ExprKind::Local(root) => Some(Location { root: *root, path: Vec::new(), open: false }),
            ExprKind::Field(base, field) => step(base, Some(u64::from(*field))),
            ExprKind::Index(base, index) => {
                step(base, index.as_int().and_then(|index| u64::try_from(index).ok()))
            }
            ExprKind::Slice(base, ..) => Location::of(base),
            ExprKind::StackNext(base) | ExprKind::StackLast(base) => step(base, None),
            _ => None,
        }
    }

    fn overlaps(&self, other: &Location) -> bool {
        self.root == other.root && self.path.iter().zip(&other.path).all(|(a, b)| a == b)
    }
}

/// Whether a variable stands in an expression, in indices too.
fn mentions(expr: &Expr, root: LocalId) -> bool {
    let mut found = false;
    walk::expr(expr, &mut |part| {
        found |= matches!(part.kind, ExprKind::Local(local) if local == root)
    });
    found
}

impl<'h> Tree<'h> {
    /// Copies back those parameters of a parser that rejected in whose place it worked.
    pub(crate) fn copy_out_rejected(
        &mut self,
        call: &Call,
        places: &[(usize, Place)],
        values: &[Data],
    ) -> Run<()> {
        for (index, place) in places {
            let Some(Some(argument)) = call.args.get(*index) else { continue };
            let others = call.args.iter().enumerate().filter(|(other, _)| other != index);
            if self.works_in_place(argument, others.filter_map(|(_, other)| other.as_ref()))? {
                self.write(place, values[*index].clone())?;
            }
        }
        Ok(())
    }

    fn works_in_place<'e>(
        &self,
        argument: &Expr,
        others: impl Iterator<Item = &'e Expr>,
    ) -> Run<bool> {
        let open = "what a sub-parser that rejects leaves behind";
        let Some(location) = Location::of(argument) else { return undefined(open) };
        if self.is_member_of_union(argument) {
            return undefined(open);
        }
        let mut alone = true;
        for other in others {
            let plain = Location::of(other);
            if plain.as_ref().is_some_and(|other| other.open) && mentions(other, location.root) {
                return undefined(open);
            }
            if plain.as_ref().is_some_and(|other| other.overlaps(&location)) {
                alone = false;
            } else if plain.is_none() {
                let mut overlaps = other.has_effects();
                walk::expr(other, &mut |part| {
                    overlaps |= Location::of(part).is_some_and(|part| part.overlaps(&location));
                    // Two parameters may be parts of one variable of the caller's caller.
                    overlaps |= matches!(part.kind, ExprKind::Local(local) if local != location.root
                        && self.is_parameter(local) && self.is_parameter(location.root));
                });
                if overlaps {
                    return undefined(open);
                }
            }
        }
        if alone && location.open {
            return undefined(open);
        }
        Ok(alone)
    }

    fn is_parameter(&self, local: LocalId) -> bool {
        matches!(self.hir.locals[local.index()].kind, LocalKind::Parameter(_))
    }

    fn is_member_of_union(&self, argument: &Expr) -> bool {
        let ExprKind::Field(base, _) = &argument.kind else { return false };
        matches!(self.ty(&base.ty), Ty::Record(id, _) if self.hir.records[id.index()].kind == RecordKind::Union)
    }
}
