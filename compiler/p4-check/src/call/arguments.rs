//! Arguments of a call: which parameter each is for, and in which form it is passed.

use std::rc::Rc;

use p4_syntax::{Diagnostic, Span, ast};

use crate::context::Checker;
use crate::hir::*;
use crate::ty::{Substitution, Ty};

impl Checker<'_> {
    /// A parameter without direction takes what is known when the program is compiled (spec §6.8);
    /// of actions alone it takes what the control plane, or a caller, gives.
    pub(super) fn check_directionless(
        &mut self,
        name: &str,
        params: &[ParamDef],
        args: &[Option<Expr>],
    ) {
        for (p, a) in params.iter().zip(args) {
            let Some(a) =
                a.as_ref().filter(|_| p.direction == Direction::None && !p.ty.is_object())
            else {
                continue;
            };
            let mut known = !a.has_effects();
            crate::walk::expr(a, &mut |e| match &e.kind {
                ExprKind::Local(id) => {
                    known &= matches!(
                        self.hir.locals[id.index()].kind,
                        LocalKind::Constructor
                            | LocalKind::Object
                            | LocalKind::Parameter(Direction::None)
                    );
                }
                ExprKind::Call(_) => known = false,
                _ => {}
            });
            if !known && !a.is_poison() {
                let text = format!(
                    "parameter `{}` of `{name}` has no direction: its argument must be a constant",
                    p.name
                );
                let d = Diagnostic::error(a.span, text)
                    .note_at(p.span, "declared here")
                    .help("give the parameter the direction `in`");
                self.report(d);
            }
        }
    }

    /// Arguments in the order of parameters, converted; None if something was reported.
    pub fn bind_args(
        &mut self,
        name: &str,
        params: &Rc<[ParamDef]>,
        args: &[ast::Argument],
        map: &Substitution,
        span: Span,
    ) -> Option<Bound> {
        let slots = self.match_args(name, params, args, span)?;
        let place =
            |a: &ast::Argument| slots.iter().position(|s| s.is_some_and(|s| std::ptr::eq(s, a)));
        let order = Order::written(args.iter().filter_map(place).collect());
        let mut bound: Vec<Option<Expr>> = vec![None; params.len()];
        let mut good = true;
        let mut deferred: Vec<usize> = Vec::new();
        for (i, p) in params.iter().enumerate() {
            let ty = p.ty.substitute(map);
            match slots[i].map(|a| (a, &a.value)) {
                Some((_, Some(value))) => {
                    let hint = self.solved(&ty);
                    let e = self.check_expr(value, Some(&hint));
                    if e.ty == Ty::Int && matches!(self.solved(&ty), Ty::Infer(_)) {
                        deferred.push(i);
                        bound[i] = Some(e);
                        continue;
                    }
                    let e = self.pass(e, p, &ty);
                    good &= !e.is_poison();
                    bound[i] = Some(e);
                }
                Some((a, None)) => {
                    if p.direction != Direction::Out {
                        self.error(
                            a.span,
                            format!(
                                "`_` can stand for an out parameter only; `{}` is not an out parameter",
                                p.name
                            ),
                        );
                        good = false;
                    }
                }
                None => bound[i] = p.default.as_ref().map(|d| (**d).clone()),
            }
        }
        for i in deferred {
            let ty = params[i].ty.substitute(map);
            if let Some(e) = bound[i].take() {
                let e = self.pass(e, &params[i], &ty);
                good &= !e.is_poison();
                bound[i] = Some(e);
            }
        }
        for e in bound.iter_mut().flatten() {
            e.ty = self.solved(&e.ty);
        }
        good.then_some(Bound { args: bound, order })
    }

    pub(super) fn match_args<'x>(
        &mut self,
        name: &str,
        params: &[ParamDef],
        args: &'x [ast::Argument],
        span: Span,
    ) -> Option<Vec<Option<&'x ast::Argument>>> {
        let mut slots: Vec<Option<&ast::Argument>> = vec![None; params.len()];
        let mut good = true;
        let mixed = args.iter().any(|a| a.name.is_some()) && args.iter().any(|a| a.name.is_none());
        if mixed {
            self.error(span, "either all arguments have names or none");
            self.check_args_only(args);
            return None;
        }
        for (i, a) in args.iter().enumerate() {
            let slot = match &a.name {
                None => i,
                Some(n) => match params.iter().position(|p| &*p.name == n.as_str()) {
                    Some(i) => i,
                    None => {
                        self.error(n.span, format!("`{name}` has no parameter `{n}`"));
                        good = false;
                        continue;
                    }
                },
            };
            match slots.get_mut(slot) {
                Some(s @ None) => *s = Some(a),
                Some(_) => {
                    self.error(a.span, format!("parameter `{}` is given twice", params[slot].name));
                    good = false;
                }
                None => {
                    self.error(
                        a.span,
                        format!("too many arguments: `{name}` takes {}", params.len()),
                    );
                    good = false;
                    break;
                }
            }
        }
        if good {
            let missing = slots
                .iter()
                .zip(params)
                .find(|(s, p)| s.is_none() && p.default.is_none() && !p.optional)
                .map(|(_, p)| (p.name.clone(), p.span));
            if let Some((param, at)) = missing {
                let text = format!(
                    "`{name}` takes {} argument(s), {} given: `{param}` is missing",
                    params.len(),
                    args.len()
                );
                self.report(Diagnostic::error(span, text).note_at(at, "declared here"));
                good = false;
            }
        }
        if !good {
            self.check_args_only(args);
            return None;
        }
        Some(slots)
    }

    /// Converts an argument to its parameter's type and checks the direction's rules.
    pub(super) fn pass(&mut self, e: Expr, p: &ParamDef, ty: &Ty) -> Expr {
        if e.is_poison() {
            return e;
        }
        match p.direction {
            Direction::Out | Direction::InOut => {
                let role = format!("passed to {} parameter `{}`", p.direction.as_str(), p.name);
                if !self.require_lvalue(&e, &role) {
                    return Expr::poison(e.span);
                }
                if !self.unify(ty, &e.ty.clone()) {
                    let (want, have) = (self.show(ty), self.show(&e.ty));
                    let d = Diagnostic::error(
                        e.span,
                        format!(
                            "{} parameter `{}` needs `{want}`, found `{have}`",
                            p.direction.as_str(),
                            p.name
                        ),
                    )
                    .note_at(p.span, "declared here");
                    self.report(d);
                    return Expr::poison(e.span);
                }
                e
            }
            _ => self.coerce(e, ty),
        }
    }
}

/// Arguments by parameter (None: `_` or left out), and the order in which they are written.
#[derive(Debug, Default)]
pub struct Bound {
    pub args: Vec<Option<Expr>>,
    pub order: Order,
}

/// Whether a call with these arguments could be meant.
pub(super) fn takes(params: &[ParamDef], args: &[ast::Argument]) -> bool {
    if args.len() > params.len() {
        return false;
    }
    if args.iter().all(|a| a.name.is_none()) {
        return params[args.len()..].iter().all(|p| p.default.is_some() || p.optional);
    }
    args.iter()
        .all(|a| a.name.as_ref().is_some_and(|n| params.iter().any(|p| &*p.name == n.as_str())))
        && params.iter().all(|p| {
            p.default.is_some()
                || p.optional
                || args.iter().any(|a| a.name.as_ref().is_some_and(|n| n.as_str() == &*p.name))
        })
}
