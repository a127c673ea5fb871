//! Inference of type arguments, and the conversions that P4 makes by itself (spec §8.11.2).

use std::rc::Rc;

use p4_syntax::{Diagnostic, Span};

use crate::consts;
use crate::context::Checker;
use crate::hir::*;
use crate::ty::{Substitution, Ty};

impl Checker<'_> {
    /// Makes two types equal by solving what is to be inferred; false if they cannot be.
    pub fn unify(&mut self, a: &Ty, b: &Ty) -> bool {
        let (a, b) = (self.solved(a), self.solved(b));
        match (&a, &b) {
            (Ty::Poison, _) | (_, Ty::Poison) => true,
            (Ty::Infer(i), Ty::Infer(j)) if i == j => true,
            (Ty::Infer(i), t) | (t, Ty::Infer(i)) => {
                let own = Ty::Infer(*i);
                if t.any(&|p| *p == own) {
                    return false;
                }
                self.solutions[*i as usize] = Some(t.clone());
                true
            }
            (Ty::Record(x, p), Ty::Record(y, q)) if x == y => self.unify_all(p, q),
            (Ty::Extern(x, p), Ty::Extern(y, q)) if x == y => self.unify_all(p, q),
            (Ty::Package(x, p), Ty::Package(y, q)) if x == y => self.unify_all(p, q),
            (Ty::BlockType(x, p), Ty::BlockType(y, q)) if x == y => self.unify_all(p, q),
            (Ty::Tuple(p), Ty::Tuple(q)) => self.unify_all(p, q),
            (Ty::Stack(x, n), Ty::Stack(y, m)) => n == m && self.unify(x, y),
            (Ty::List(x), Ty::List(y)) => self.unify(x, y),
            _ => a == b,
        }
    }

    fn unify_all(&mut self, a: &Rc<[Ty]>, b: &Rc<[Ty]>) -> bool {
        a.len() == b.len() && a.iter().zip(b.iter()).all(|(x, y)| self.unify(x, y))
    }

    /// Checks that a parser or control has the signature of a parser or control type; says why not.
    pub fn match_signature(
        &mut self,
        block: BlockId,
        of: BlockTypeId,
        args: &[Ty],
    ) -> Result<(), (Span, String)> {
        let want = &self.hir.block_types[of.index()];
        let have = &self.hir.blocks[block.index()];
        let map: Substitution =
            want.type_params.iter().copied().zip(args.iter().cloned()).collect();
        if want.kind != have.kind {
            return Err((
                have.span,
                format!("it is a {}, not a {}", have.kind.as_str(), want.kind.as_str()),
            ));
        }
        let (wanted, had, span) = (want.params.clone(), have.params.clone(), have.span);
        if wanted.len() != had.len() {
            return Err((span, format!("it has {} parameter(s), not {}", had.len(), wanted.len())));
        }
        for (w, h) in wanted.iter().zip(had.iter()) {
            if w.direction != h.direction {
                let shown =
                    |d: Direction| if d == Direction::None { "no direction" } else { d.as_str() };
                let text = format!(
                    "parameter `{}` has {}, it must have {}",
                    h.name,
                    shown(h.direction),
                    shown(w.direction)
                );
                return Err((h.span, text));
            }
            let ty = w.ty.substitute(&map);
            if !self.unify(&ty, &h.ty) {
                let text = format!(
                    "parameter `{}` has type `{}`, it must be `{}`",
                    h.name,
                    self.show(&h.ty),
                    self.show(&ty)
                );
                return Err((h.span, text));
            }
        }
        Ok(())
    }

    /// Converts to the type as P4 does by itself; reports when it does not.
    pub fn coerce(&mut self, e: Expr, to: &Ty) -> Expr {
        match self.try_coerce(e, to) {
            Ok(e) => e,
            Err(e) => {
                let (want, have) = (self.show(to), self.show(&e.ty));
                let mut d = Diagnostic::error(e.span, format!("expected `{want}`, found `{have}`"));
                d = self.conversion_help(d, &e.ty, to);
                self.report(d);
                Expr::poison(e.span)
            }
        }
    }

    fn conversion_help(&self, d: Diagnostic, from: &Ty, to: &Ty) -> Diagnostic {
        let to = self.solved(to);
        match (self.underlying(from), self.underlying(&to)) {
            (Ty::Bit(1), Ty::Bool) => d.help("compare with 1, or cast: `(bool)x`"),
            (Ty::Bool, Ty::Bit(1)) => d.help("cast: `(bit<1>)x`"),
            (Ty::Bool, Ty::Bit(w)) => d.help(format!("cast twice: `(bit<{w}>)(bit<1>)x`")),
            (a, b) if a.is_fixed_bits() && b.is_fixed_bits() => d.help(format!(
                "P4 does not convert widths or signs; cast: `({})x`",
                self.show(&to)
            )),
            _ => d,
        }
    }

    /// Converts to the type as P4 does by itself, or gives the expression back.
    pub fn try_coerce(&mut self, e: Expr, to: &Ty) -> Result<Expr, Expr> {
        let to = self.solved(to);
        let from = self.solved(&e.ty);
        if from == to && !matches!(to, Ty::Infer(_)) {
            return Ok(e);
        }
        if from.is_poison() || to.is_poison() {
            return Ok(Expr::poison(e.span));
        }
        match (&from, &to) {
            (Ty::Int, Ty::Bit(_) | Ty::Signed(_)) => Ok(self.int_to_bits(e, &to)),
            (Ty::Enum(id), _) if self.hir.enums[id.index()].underlying.as_ref() == Some(&to) => {
                Ok(self.convert(e, &to))
            }
            (Ty::Invalid, Ty::Record(id, _))
                if self.hir.records[id.index()].kind != RecordKind::Struct =>
            {
                Ok(Expr { ty: to, ..e })
            }
            (Ty::Tuple(_), Ty::Record(..) | Ty::Tuple(_) | Ty::Stack(..) | Ty::List(_)) => {
                self.coerce_tuple(e, &to)
            }
            (Ty::Block(id), Ty::BlockType(of, args)) => {
                let (id, of, args) = (*id, *of, args.clone());
                match self.match_signature(id, of, &args) {
                    Ok(()) => Ok(e),
                    Err((at, why)) => {
                        let name = self.hir.blocks[id.index()].name.clone();
                        let want = self.show(&to);
                        self.report(
                            Diagnostic::error(
                                e.span,
                                format!("`{name}` does not have the signature of `{want}`"),
                            )
                            .note_at(at, why),
                        );
                        Ok(Expr::poison(e.span))
                    }
                }
            }
            _ => {
                if self.unify(&from, &to) {
                    let ty = self.solved(&to);
                    return Ok(Expr { ty, ..e });
                }
                Err(e)
            }
        }
    }

    fn coerce_tuple(&mut self, e: Expr, to: &Ty) -> Result<Expr, Expr> {
        let targets: Vec<Ty> = match to {
            Ty::Record(id, args) if self.hir.records[id.index()].kind != RecordKind::Union => {
                self.fields_of(*id, args).into_iter().map(|(_, t)| t).collect()
            }
            Ty::Tuple(parts) => parts.to_vec(),
            Ty::Stack(elem, n) => vec![(**elem).clone(); *n as usize],
            Ty::List(elem) => match &e.ty {
                Ty::Tuple(parts) => vec![(**elem).clone(); parts.len()],
                _ => return Err(e),
            },
            _ => return Err(e),
        };
        let ExprKind::Aggregate(parts, order) = &e.kind else {
            return if self.unify(&e.ty, to) { Ok(e) } else { Err(e) };
        };
        if parts.len() != targets.len() {
            return Err(e);
        }
        let order = order.clone();
        let parts: Vec<Expr> =
            parts.clone().into_iter().zip(&targets).map(|(p, t)| self.coerce(p, t)).collect();
        Ok(Expr { kind: ExprKind::Aggregate(parts, order), ty: self.solved(to), span: e.span })
    }

    fn int_to_bits(&mut self, e: Expr, to: &Ty) -> Expr {
        if let (Some(v), Some((w, s))) = (e.as_int(), to.bits())
            && !consts::fits(v, w, s)
        {
            let cut = consts::wrap(v, w, s);
            let shown = self.show(to);
            self.warning(e.span, format!("{v} does not fit in `{shown}`: it becomes {cut}"));
        }
        self.convert(e, to)
    }

    /// A cast that is known to be allowed.
    pub fn convert(&mut self, e: Expr, to: &Ty) -> Expr {
        let base = self.underlying(to);
        if let Some(v) = e.as_int() {
            let value = match base.bits() {
                Some((w, s)) => consts::wrap(v, w, s),
                None => v.clone(),
            };
            return Expr::int(value, to.clone(), e.span);
        }
        let span = e.span;
        Expr { kind: ExprKind::Cast(Box::new(e)), ty: to.clone(), span }
    }
}
