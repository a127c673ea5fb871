//! `{...}` and default values.

use num_bigint::BigInt;
use num_traits::Zero;
use p4_syntax::{Diagnostic, Span, ast};

use crate::context::Checker;
use crate::hir::*;
use crate::ty::Ty;

impl Checker<'_> {
    /// `{a, b}`: by the expected type, else a tuple.
    pub fn check_list(&mut self, list: &[ast::Expr], expected: Option<&Ty>, span: Span) -> Expr {
        let expected = expected.map(|t| self.solved(t)).filter(|t| !matches!(t, Ty::Infer(_)));
        let targets: Vec<Ty> = match &expected {
            Some(Ty::Poison) => {
                for e in list {
                    self.check_expr(e, Some(&Ty::Poison));
                }
                return Expr::poison(span);
            }
            Some(Ty::Record(id, args))
                if self.hir.records[id.index()].kind != RecordKind::Union =>
            {
                self.fields_of(*id, args).into_iter().map(|(_, t)| t).collect()
            }
            Some(Ty::Tuple(parts)) => parts.to_vec(),
            Some(Ty::Stack(elem, n)) => vec![(**elem).clone(); *n as usize],
            Some(Ty::List(elem)) => vec![(**elem).clone(); list.len()],
            Some(other) => {
                let shown = self.show(other);
                return self.fault(span, format!("expected `{shown}`, found a list of values"));
            }
            None => return self.check_tuple(list, span),
        };
        let (list, dots) = match list.split_last() {
            Some((last, rest)) if matches!(last.kind, ast::ExprKind::Dots) => {
                (rest, Some(last.span))
            }
            _ => (list, None),
        };
        let mut parts: Vec<Expr> = Vec::new();
        for (i, e) in list.iter().enumerate() {
            match targets.get(i) {
                Some(t) => parts.push(self.check_as(e, t)),
                None => {
                    self.check_expr(e, None);
                }
            }
        }
        let ty = expected.unwrap_or(Ty::Poison);
        if list.len() > targets.len() || (dots.is_none() && list.len() < targets.len()) {
            let shown = self.show(&ty);
            return self.fault(
                span,
                format!("`{shown}` has {} value(s), {} given", targets.len(), list.len()),
            );
        }
        if let Some(at) = dots {
            for t in &targets[parts.len()..] {
                parts.push(self.default_value(t, at));
            }
        }
        if parts.iter().any(Expr::is_poison) {
            return Expr::poison(span);
        }
        let ty = self.solved(&ty);
        Expr { kind: ExprKind::Aggregate(parts, Order::default()), ty, span }
    }

    fn check_tuple(&mut self, list: &[ast::Expr], span: Span) -> Expr {
        let parts: Vec<Expr> = list.iter().map(|e| self.check_expr(e, None)).collect();
        if parts.iter().any(Expr::is_poison) {
            return Expr::poison(span);
        }
        let ty = Ty::Tuple(parts.iter().map(|p| p.ty.clone()).collect());
        Expr { kind: ExprKind::Aggregate(parts, Order::default()), ty, span }
    }

    /// `{x = a, y = b}`
    pub fn check_struct(
        &mut self,
        fields: &[ast::NamedValue],
        dots: Option<Span>,
        expected: Option<&Ty>,
        span: Span,
    ) -> Expr {
        let expected = expected.map(|t| self.solved(t));
        let (id, args) = match &expected {
            Some(Ty::Record(id, args))
                if self.hir.records[id.index()].kind != RecordKind::Union =>
            {
                (*id, args.clone())
            }
            other => {
                for f in fields {
                    self.check_expr(&f.value, None);
                }
                return match other {
                    Some(Ty::Poison) => Expr::poison(span),
                    None | Some(Ty::Infer(_)) => {
                        let d = Diagnostic::error(
                            span,
                            "the type of this struct expression is not known here",
                        )
                        .help("write it as a cast: `(T){field = value, ...}`");
                        self.report(d);
                        Expr::poison(span)
                    }
                    Some(t) => {
                        let shown = self.show(t);
                        self.fault(span, format!("expected `{shown}`, found a struct expression"))
                    }
                };
            }
        };
        let known = self.fields_of(id, &args);
        let mut values: Vec<Option<Expr>> = known.iter().map(|_| None).collect();
        let mut written = Vec::new();
        let name = self.hir.records[id.index()].name.clone();
        let mut bad = false;
        for f in fields {
            let Some(i) = known.iter().position(|(n, _)| &**n == f.name.as_str()) else {
                self.error(f.name.span, format!("`{name}` has no field `{}`", f.name));
                self.check_expr(&f.value, None);
                bad = true;
                continue;
            };
            if values[i].is_some() {
                self.error(f.name.span, format!("field `{}` is given twice", f.name));
                bad = true;
            }
            written.push(i);
            values[i] = Some(self.check_as(&f.value, &known[i].1));
        }
        let mut parts = Vec::new();
        for (v, (field, ty)) in values.into_iter().zip(&known) {
            match (v, dots) {
                (Some(v), _) => parts.push(v),
                (None, Some(at)) => parts.push(self.default_value(ty, at)),
                (None, None) => {
                    if !bad {
                        self.error(span, format!("field `{field}` of `{name}` has no value"));
                    }
                    bad = true;
                }
            }
        }
        if bad || parts.iter().any(Expr::is_poison) {
            return Expr::poison(span);
        }
        let ty = self.solved(&Ty::Record(id, args));
        Expr { kind: ExprKind::Aggregate(parts, Order::written(written)), ty, span }
    }

    /// What `...` stands for (spec §7.3).
    pub fn default_value(&mut self, ty: &Ty, span: Span) -> Expr {
        let ty = self.solved(ty);
        let all = |parts: Vec<Expr>| ExprKind::Aggregate(parts, Order::default());
        let kind = match &ty {
            Ty::Poison => return Expr::poison(span),
            Ty::Bit(_) | Ty::Signed(_) | Ty::Bool | Ty::Int | Ty::Error | Ty::New(_) => {
                ExprKind::Const(Value::Int(BigInt::zero()))
            }
            Ty::Enum(id) => {
                let def = &self.hir.enums[id.index()];
                let first = def.members.first().map_or(BigInt::zero(), |(_, v)| v.clone());
                ExprKind::Const(Value::Int(if def.underlying.is_some() {
                    BigInt::zero()
                } else {
                    first
                }))
            }
            Ty::Record(id, args) => match self.hir.records[id.index()].kind {
                RecordKind::Struct => {
                    let fields = self.fields_of(*id, args);
                    all(fields.iter().map(|(_, t)| self.default_value(t, span)).collect())
                }
                _ => ExprKind::InvalidHeader,
            },
            Ty::Tuple(parts) => all(parts.iter().map(|t| self.default_value(t, span)).collect()),
            Ty::Stack(elem, n) => all((0..*n).map(|_| self.default_value(elem, span)).collect()),
            other => {
                let shown = self.show(other);
                return self.fault(span, format!("type `{shown}` has no default value"));
            }
        };
        Expr { kind, ty, span }
    }
}
