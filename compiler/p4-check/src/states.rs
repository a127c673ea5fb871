//! Parser states, transitions and key sets.

use std::collections::HashMap;
use std::rc::Rc;

use p4_syntax::{Diagnostic, Span, ast};

use crate::context::{Checker, Entity};
use crate::hir::*;
use crate::stmt::atomic;
use crate::ty::Ty;

impl Checker<'_> {
    /// All states, `start` first.
    pub fn check_states(&mut self, p: &ast::ParserDecl) -> Vec<StateDef> {
        let mut order: Vec<&ast::ParserState> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        let start = p.states.iter().position(|s| s.name.as_str() == "start");
        if start.is_none() {
            self.error(p.ty.name.span, format!("parser `{}` has no state `start`", p.ty.name));
        }
        let first = start.map(|i| &p.states[i]);
        let rest = p.states.iter().enumerate().filter(|(i, _)| Some(*i) != start).map(|(_, s)| s);
        for s in first.into_iter().chain(rest) {
            let name = s.name.as_str();
            if name == "accept" || name == "reject" {
                self.error(
                    s.name.span,
                    format!("state `{name}` cannot be declared: the language defines it"),
                );
                continue;
            }
            if let Some(&old) = index.get(name) {
                let d = Diagnostic::error(s.name.span, format!("state `{name}` is declared twice"))
                    .note_at(order[old].name.span, "first declared here");
                self.report(d);
                continue;
            }
            index.insert(name, order.len());
            order.push(s);
            if !self.scopes.last().is_some_and(|sc| sc.contains_key(name)) {
                self.declare(&s.name, Entity::State);
            }
        }
        let states: Vec<StateDef> = order.iter().map(|s| self.check_state(s, &index)).collect();
        self.warn_unreachable(&states, start.is_some());
        states
    }

    fn check_state(&mut self, s: &ast::ParserState, index: &HashMap<&str, usize>) -> StateDef {
        self.push_scope();
        let body = self.check_statements(&s.statements);
        let transition = match s.transition.as_ref().map(|t| &t.kind) {
            None => Transition::To(StateTarget::Reject),
            Some(ast::TransitionKind::Direct(name)) => {
                Transition::To(self.state_target(name, index))
            }
            Some(ast::TransitionKind::Select { exprs, cases }) => {
                self.check_select(exprs, cases, index)
            }
        };
        self.pop_scope();
        let body = atomic(&s.annotations, s.span, body);
        StateDef { name: Rc::from(s.name.as_str()), body, transition, span: s.name.span }
    }

    fn state_target(&mut self, name: &ast::Ident, index: &HashMap<&str, usize>) -> StateTarget {
        match name.as_str() {
            "accept" => StateTarget::Accept,
            "reject" => StateTarget::Reject,
            n => match index.get(n) {
                Some(i) => StateTarget::State(*i),
                None => {
                    self.error(name.span, format!("there is no state `{n}` in this parser"));
                    StateTarget::Reject
                }
            },
        }
    }

    fn check_select(
        &mut self,
        exprs: &[ast::Expr],
        cases: &[ast::SelectCase],
        index: &HashMap<&str, usize>,
    ) -> Transition {
        let mut keys = Vec::new();
        for e in exprs {
            let k = self.check_expr(e, None);
            let good = matches!(
                self.underlying(&k.ty),
                Ty::Bit(_) | Ty::Signed(_) | Ty::Bool | Ty::Error | Ty::Enum(_) | Ty::Poison
            );
            if good {
                keys.push(k);
            } else {
                let shown = self.show(&k.ty);
                keys.push(
                    self.fault(k.span, format!("select cannot match a value of type `{shown}`")),
                );
            }
        }
        let types: Vec<Ty> = keys.iter().map(|k| k.ty.clone()).collect();
        let mut out: Vec<(Vec<Match>, StateTarget, Span)> = Vec::new();
        let mut all: Option<Span> = None;
        for c in cases {
            let matches = self.check_keyset(&c.keyset, &types);
            let target = self.state_target(&c.state, index);
            if let Some(first) = all {
                let d = Diagnostic::warning(c.span, "this case is never reached")
                    .note_at(first, "this one matches all");
                self.report(d);
            }
            if let Some(m) = matches {
                if m.iter().all(|m| matches!(m, Match::Any)) {
                    all = all.or(Some(c.span));
                }
                out.push((m, target, c.span));
            }
        }
        Transition::Select { keys, cases: out }
    }

    /// One match for each type; None if something was reported.
    pub fn check_keyset(&mut self, k: &ast::Keyset, types: &[Ty]) -> Option<Vec<Match>> {
        match &k.kind {
            ast::KeysetKind::Default | ast::KeysetKind::DontCare => {
                Some(types.iter().map(|_| Match::Any).collect())
            }
            ast::KeysetKind::Tuple(list) => {
                if list.len() != types.len() {
                    self.error(
                        k.span,
                        format!(
                            "{} key(s) are matched, {} value(s) given",
                            types.len(),
                            list.len()
                        ),
                    );
                    return None;
                }
                let parts: Vec<Option<Match>> =
                    list.iter().zip(types).map(|(k, t)| self.check_match(k, t)).collect();
                parts.into_iter().collect()
            }
            ast::KeysetKind::Expr(ast::Expr { kind: ast::ExprKind::List(list), .. })
                if types.len() > 1 =>
            {
                if list.len() != types.len() {
                    self.error(
                        k.span,
                        format!(
                            "{} key(s) are matched, {} value(s) given",
                            types.len(),
                            list.len()
                        ),
                    );
                    return None;
                }
                let parts: Vec<Option<Match>> = list
                    .iter()
                    .zip(types)
                    .map(|(e, t)| self.match_value(e, t).map(Match::Value))
                    .collect();
                parts.into_iter().collect()
            }
            _ => match types {
                [one] => self.check_match(k, one).map(|m| vec![m]),
                _ => {
                    self.error(
                        k.span,
                        format!("{} key(s) are matched, 1 value given", types.len()),
                    );
                    None
                }
            },
        }
    }

    fn check_match(&mut self, k: &ast::Keyset, ty: &Ty) -> Option<Match> {
        match &k.kind {
            ast::KeysetKind::Default | ast::KeysetKind::DontCare => Some(Match::Any),
            ast::KeysetKind::Expr(e) => {
                if let ast::ExprKind::Path(path) = &e.kind
                    && let Some(Entity::Local(id)) = self.find(path).map(|e| e.entity)
                {
                    let def = &self.hir.locals[id.index()];
                    if def.kind == LocalKind::ValueSet {
                        let elem = def.ty.clone();
                        if !self.unify(&elem, ty) {
                            let (a, b) = (self.show(&elem), self.show(ty));
                            self.error(e.span, format!("a value set of `{a}` cannot match `{b}`"));
                            return None;
                        }
                        return Some(Match::ValueSet(id));
                    }
                }
                self.match_value(e, ty).map(Match::Value)
            }
            ast::KeysetKind::Mask { value, mask } => {
                let (v, m) = (self.match_value(value, ty), self.match_value(mask, ty));
                self.require_number(ty, k.span, "&&&");
                Some(Match::Mask(v?, m?))
            }
            ast::KeysetKind::Range { low, high } => {
                let (l, h) = (self.match_value(low, ty), self.match_value(high, ty));
                self.require_number(ty, k.span, "..");
                let (l, h) = (l?, h?);
                if let (Some(a), Some(b)) = (l.as_int(), h.as_int())
                    && a > b
                {
                    // Spec §8.15.4: the set is empty, which is no error.
                    self.warning(
                        k.span,
                        format!("empty range: {a} is above {b}, so nothing matches"),
                    );
                }
                Some(Match::Range(l, h))
            }
            ast::KeysetKind::Tuple(_) => {
                self.error(k.span, "key sets cannot be nested");
                None
            }
        }
    }

    fn require_number(&mut self, ty: &Ty, span: Span, op: &str) {
        if !matches!(self.underlying(ty), Ty::Bit(_) | Ty::Signed(_) | Ty::Poison) {
            let shown = self.show(ty);
            self.error(span, format!("`{op}` is for bit<N> and int<N>, not `{shown}`"));
        }
    }

    fn match_value(&mut self, e: &ast::Expr, ty: &Ty) -> Option<Expr> {
        let v = self.check_expr(e, Some(ty));
        let v = if matches!(ty, Ty::Enum(_)) { v } else { self.decay(v) };
        let v = match (&v.ty, ty) {
            // Spec §8.11.2: constants go to the type beneath an enum or new type in key sets, as
            // written in tables.
            (Ty::Int, Ty::Enum(_) | Ty::New(_)) => {
                let base = self.underlying(ty);
                let v = self.coerce(v, &base);
                if v.is_poison() { v } else { self.convert(v, ty) }
            }
            _ => self.coerce(v, ty),
        };
        if v.is_poison() {
            return None;
        }
        if !v.is_compile_time(&self.hir.locals) {
            self.error(v.span, "a value to match must be a constant");
            return None;
        }
        Some(v)
    }

    fn warn_unreachable(&mut self, states: &[StateDef], has_start: bool) {
        if !has_start || states.is_empty() {
            return;
        }
        let mut reached = vec![false; states.len()];
        let mut work = vec![0];
        while let Some(i) = work.pop() {
            if std::mem::replace(&mut reached[i], true) {
                continue;
            }
            let mut go = |t: &StateTarget| {
                if let StateTarget::State(n) = t {
                    work.push(*n);
                }
            };
            match &states[i].transition {
                Transition::To(t) => go(t),
                Transition::Select { cases, .. } => cases.iter().for_each(|(_, t, _)| go(t)),
            }
        }
        for (s, reached) in states.iter().zip(reached) {
            if !reached {
                self.warning(s.span, format!("state `{}` is never reached", s.name));
            }
        }
    }
}
