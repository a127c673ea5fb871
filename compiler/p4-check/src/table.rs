//! Tables: keys, actions, entries and other properties (spec §14.2).

use std::rc::Rc;

use p4_ir::match_kind::{Form, MatchKind, is_ranked, match_kind};
use p4_syntax::{Diagnostic, Span, ast};

use crate::context::{Body, Checker, Entity};
use crate::hir::*;
use crate::ty::{Substitution, Ty};

/// Most entries in the source.
const MAX_ENTRIES: usize = 65_536;

/// What an action is named for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ActionRole {
    Entry,
    Default,
}

impl Checker<'_> {
    pub fn check_table(&mut self, t: &ast::TableDecl) {
        let id = TableDefId(self.hir.tables.len() as u32);
        self.hir.tables.push(None);
        let mut def = TableDef {
            name: Rc::from(t.name.as_str()),
            keys: Vec::new(),
            actions: Vec::new(),
            default_action: None,
            const_default: false,
            entries: Vec::new(),
            const_entries: false,
            largest_priority_wins: true,
            priority_delta: None,
            exchange: false,
            per_incarnation: false,
            size: None,
            attached: Vec::new(),
            annotations: t.annotations.clone(),
            span: t.name.span,
        };
        self.body = Body::Control;
        let mut seen: Vec<&ast::Ident> = Vec::new();
        for p in &t.properties {
            if let Some(old) = seen.iter().find(|o| o.as_str() == p.name.as_str()) {
                let d =
                    Diagnostic::error(p.name.span, format!("property `{}` is given twice", p.name))
                        .note_at(old.span, "first here");
                self.report(d);
            }
            seen.push(&p.name);
        }
        for p in &t.properties {
            match &p.value {
                ast::TablePropertyValue::Key(keys) => self.check_keys(keys, &mut def),
                ast::TablePropertyValue::Actions(list) => self.check_action_list(list, &mut def),
                _ => {}
            }
        }
        if !seen.iter().any(|n| n.as_str() == "actions") {
            self.error(t.name.span, format!("table `{}` has no `actions`", t.name));
        }
        for p in &t.properties {
            match &p.value {
                ast::TablePropertyValue::Entries(list) => {
                    def.const_entries = p.is_const;
                    self.check_entries(list, &mut def, p.name.span);
                }
                ast::TablePropertyValue::Expr(e) => self.check_property(p, e, &mut def),
                _ => {}
            }
        }
        self.body = Body::None;
        self.hir.tables[id.index()] = Some(def);
        self.declare(&t.name, Entity::Table(id));
    }

    fn check_keys(&mut self, keys: &[ast::KeyElement], def: &mut TableDef) {
        let mut lpm: Option<Span> = None;
        for k in keys {
            let e = self.check_expr(&k.expr, None);
            let kind = k.match_kind.as_str();
            if !self.hir.match_kinds.iter().any(|m| &**m == kind) {
                let known: Vec<String> =
                    self.hir.match_kinds.iter().map(|m| m.to_string()).collect();
                let d = Diagnostic::error(
                    k.match_kind.span,
                    format!("match_kind `{kind}` is not declared"),
                )
                .help(format!("declared are: {}", known.join(", ")));
                self.report(d);
            }
            if kind == "lpm"
                && let Some(first) = lpm.replace(k.span)
            {
                let d = Diagnostic::error(k.span, "a table can have one lpm key only")
                    .note_at(first, "first here");
                self.report(d);
            }
            let base = self.underlying(&e.ty);
            let numeric = matches!(base, Ty::Bit(_) | Ty::Signed(_));
            if !numeric && !matches!(base, Ty::Bool | Ty::Error | Ty::Enum(_) | Ty::Poison) {
                let shown = self.show(&e.ty);
                self.error(
                    e.span,
                    format!("a key cannot have type `{shown}`: it must be bit<N>, int<N>, bool, error or an enum"),
                );
            } else if !numeric
                && !base.is_poison()
                && match_kind(kind).is_some_and(MatchKind::is_for_numbers)
            {
                let shown = self.show(&e.ty);
                self.error(e.span, format!("`{kind}` is for bit<N> and int<N>, not `{shown}`"));
            }
            let name =
                k.annotations.iter().find(|a| a.name.as_str() == "name").map(crate::names::text);
            def.keys.push(KeyDef {
                name: name.map(|n| Rc::from(n.as_str())),
                expr: e,
                match_kind: Rc::from(kind),
                span: k.span,
            });
        }
    }

    fn action_of(&mut self, path: &ast::Path) -> Option<ActionDefId> {
        let entry = self.lookup(path)?;
        match entry.entity {
            Entity::Action(id) => Some(id),
            Entity::Poison => None,
            other => {
                let text = format!("`{}` is {}, not an action", path.name, other.describe());
                self.report(
                    Diagnostic::error(path.span, text).note_at(entry.span, "declared here"),
                );
                None
            }
        }
    }

    fn check_action_list(&mut self, list: &[ast::ActionRef], def: &mut TableDef) {
        for a in list {
            let Some(id) = self.action_of(&a.path) else { continue };
            if let Some(old) = def.actions.iter().find(|o| o.action == id) {
                let d = Diagnostic::error(
                    a.span,
                    format!("action `{}` is in the list twice", a.path.name),
                )
                .note_at(old.span, "first here");
                self.report(d);
                continue;
            }
            let params = self.hir.actions[id.index()].params.clone();
            let bound: Rc<[ParamDef]> =
                params.iter().filter(|p| p.direction != Direction::None).cloned().collect();
            let none = Vec::new();
            let args = a.args.as_ref().unwrap_or(&none);
            let name = a.path.name.as_str();
            if args.len() > bound.len() {
                let text = format!(
                    "`{name}` takes {} argument(s) here: parameters without direction come from the control plane",
                    bound.len()
                );
                self.error(a.span, text);
                continue;
            }
            let annotation = |n: &str| a.annotations.iter().find(|x| x.name.as_str() == n);
            let (default_only, table_only) = (annotation("defaultonly"), annotation("tableonly"));
            if let (Some(first), Some(second)) = (default_only, table_only) {
                let (first, second) = if first.span.start < second.span.start {
                    (first, second)
                } else {
                    (second, first)
                };
                let text =
                    format!("action `{name}` is @defaultonly and @tableonly: nothing could run it");
                let d = Diagnostic::error(second.span, text)
                    .note_at(first.span, "annotated here first")
                    .help("remove one of the two, or take the action off the list");
                self.report(d);
            }
            if let Some(bound) = self.bind_args(name, &bound, args, &Substitution::new(), a.span) {
                def.actions.push(TableActionDef {
                    action: id,
                    bound: bound.args,
                    order: bound.order,
                    default_only: default_only.is_some(),
                    table_only: table_only.is_some(),
                    span: a.span,
                });
            }
        }
    }

    /// A call of an action of the list with the control plane's arguments.
    fn check_action_call(
        &mut self,
        path: &ast::Path,
        args: &[ast::Argument],
        span: Span,
        def: &TableDef,
        role: ActionRole,
    ) -> Option<ActionCallDef> {
        let id = self.action_of(path)?;
        let Some(index) = def.actions.iter().position(|a| a.action == id) else {
            let d = Diagnostic::error(
                span,
                format!("action `{}` is not in the actions of table `{}`", path.name, def.name),
            )
            .note_at(def.span, "declared here");
            self.report(d);
            return None;
        };
        let listed = &def.actions[index];
        let misuse = match role {
            ActionRole::Entry if listed.default_only => {
                Some(("@defaultonly", "an entry cannot run it"))
            }
            ActionRole::Default if listed.table_only => {
                Some(("@tableonly", "it cannot be the default action"))
            }
            _ => None,
        };
        if let Some((annotation, why)) = misuse {
            let d =
                Diagnostic::error(span, format!("action `{}` is {annotation}: {why}", path.name))
                    .note_at(listed.span, "annotated here")
                    .help(format!("use another action of the list, or remove {annotation}"));
            self.report(d);
            return None;
        }
        let params = self.hir.actions[id.index()].params.clone();
        let data: Rc<[ParamDef]> =
            params.iter().filter(|p| p.direction == Direction::None).cloned().collect();
        // The bound arguments of the list may be repeated: `a(hdr.x, 5)` for an action that the
        // list has as `a(hdr.x)`.
        let args = if data.len() < params.len()
            && args.len() == params.len()
            && args.iter().all(|a| a.name.is_none())
        {
            let (again, rest) = args.split_at(params.len() - data.len());
            self.check_repeated(path.name.as_str(), &params, again, listed, span)?;
            rest
        } else {
            args
        };
        let bound = self.bind_args(path.name.as_str(), &data, args, &Substitution::new(), span)?;
        let mut values = Vec::new();
        for e in bound.args.into_iter().flatten() {
            if !e.is_compile_time(&self.hir.locals) {
                self.error(e.span, "arguments of actions in a table must be constants");
                return None;
            }
            values.push(e);
        }
        (values.len() == data.len()).then_some(ActionCallDef { index, args: values })
    }

    /// Arguments that the list of actions has already must be the same (spec §14.2.1.3).
    fn check_repeated(
        &mut self,
        name: &str,
        params: &[ParamDef],
        args: &[ast::Argument],
        listed: &TableActionDef,
        span: Span,
    ) -> Option<()> {
        let directed: Rc<[ParamDef]> =
            params.iter().filter(|p| p.direction != Direction::None).cloned().collect();
        let again = self.bind_args(name, &directed, args, &Substitution::new(), span)?;
        let mut both = again.args.iter().flatten().zip(listed.bound.iter().flatten());
        if let Some((a, _)) = both.find(|(a, b)| !a.same_as(b)) {
            let d = Diagnostic::error(
                a.span,
                "this argument differs from the one in the table's list of actions",
            )
            .note_at(listed.span, "listed here")
            .help("write only the control plane's arguments; the list has the others");
            self.report(d);
            return None;
        }
        Some(())
    }

    fn check_entries(&mut self, list: &[ast::TableEntry], def: &mut TableDef, at: Span) {
        if def.keys.is_empty() {
            self.error(at, format!("table `{}` has entries but no key", def.name));
            return;
        }
        if list.len() > MAX_ENTRIES {
            self.error(at, format!("{} entries; at most {MAX_ENTRIES} are supported", list.len()));
            return;
        }
        let types: Vec<Ty> = def.keys.iter().map(|k| k.expr.ty.clone()).collect();
        let kinds: Vec<Rc<str>> = def.keys.iter().map(|k| k.match_kind.clone()).collect();
        for e in list {
            let matches = self.check_keyset(&e.keyset, &types);
            if let Some(m) = &matches {
                self.check_match_forms(m, &kinds, e.keyset.span);
            }
            let none = Vec::new();
            let args = e.action.args.as_ref().unwrap_or(&none);
            let action =
                self.check_action_call(&e.action.path, args, e.action.span, def, ActionRole::Entry);
            let priority = e.priority.as_ref().map(|p| self.check_expr(p, None));
            if let Some(p) = &priority
                && !p.is_poison()
                && (!p.ty.is_number() || !p.is_compile_time(&self.hir.locals))
            {
                self.error(p.span, "a priority must be a constant number");
            }
            if let (Some(matches), Some(action)) = (matches, action) {
                let is_const = e.is_const || def.const_entries;
                def.entries.push(EntryDef { matches, action, priority, is_const, span: e.span });
            }
        }
        let ranked = kinds.iter().any(|kind| is_ranked(kind));
        self.check_priorities(list, def.const_entries, ranked);
    }

    /// Which entries may have a priority, and which must (spec §14.2.1.4); `ranked`: several can
    /// match one packet.
    fn check_priorities(&mut self, list: &[ast::TableEntry], const_entries: bool, ranked: bool) {
        let Some(numbered) = list.iter().find(|e| e.priority.is_some()) else { return };
        let at = numbered.priority.as_ref().map_or(numbered.keyset.span, |p| p.span);
        if !ranked {
            let text = "an entry cannot have a priority in a table whose keys are all exact or lpm: \
                        one entry at most has the packet's exact keys, and the longest prefix wins";
            let help = "leave the priorities out, or match a key as `ternary`";
            self.report(Diagnostic::error(at, text).help(help));
        } else if const_entries {
            let d = Diagnostic::error(
                at,
                "`const entries` cannot have priorities: the first entry that matches wins",
            )
            .help("leave the priorities out, or write `entries` without `const`");
            self.report(d);
        } else if let Some(first) = list.first().filter(|e| e.priority.is_none()) {
            let d = Diagnostic::error(
                first.keyset.span,
                "the first entry needs a priority, as later entries have one",
            )
            .note_at(at, "the first priority is here")
            .help("write `priority = N :` before it");
            self.report(d);
        }
    }

    fn check_match_forms(&mut self, matches: &[Match], kinds: &[Rc<str>], span: Span) {
        for (m, kind) in matches.iter().zip(kinds) {
            let form = match m {
                Match::Any => Some(Form::Any),
                Match::Value(_) => Some(Form::Value),
                Match::Mask(..) => Some(Form::Mask),
                Match::Range(..) => Some(Form::Range),
                Match::ValueSet(_) => None,
            };
            let good = form.is_some_and(|form| {
                match_kind(kind).is_none_or(|known| known.forms.contains(&form))
            });
            let at = match m {
                Match::Value(e) => e.span,
                Match::Mask(a, b) | Match::Range(a, b) => a.span.to(b.span),
                _ => span,
            };
            if !good {
                self.error(at, format!("an entry cannot match a key of kind `{kind}` like this"));
                continue;
            }
            if let ("lpm", Match::Mask(_, mask)) = (&**kind, m)
                && let (Some(v), Some((w, _))) = (mask.as_int(), self.underlying(&mask.ty).bits())
            {
                let inverse = crate::consts::all_ones(w) - crate::consts::wrap(v, w, false);
                let next = &inverse + 1;
                if inverse & next != num_bigint::BigInt::ZERO {
                    self.error(at, "the mask of an lpm key must be a prefix: ones, then zeros");
                }
            }
        }
    }

    fn check_property(&mut self, p: &ast::TableProperty, e: &ast::Expr, def: &mut TableDef) {
        match p.name.as_str() {
            "default_action" => {
                def.const_default = p.is_const;
                let (path, args): (&ast::Path, &[ast::Argument]) = match &e.kind {
                    ast::ExprKind::Path(path) => (path, &[]),
                    ast::ExprKind::Call { callee, args, .. } => match &callee.kind {
                        ast::ExprKind::Path(path) => (path, args),
                        _ => return self.error(e.span, "default_action must name an action"),
                    },
                    _ => return self.error(e.span, "default_action must name an action"),
                };
                def.default_action =
                    self.check_action_call(path, args, e.span, def, ActionRole::Default);
            }
            "size" => {
                let v = self.check_expr(e, None);
                if v.is_poison() {
                    return;
                }
                if !v.ty.is_number() || !v.is_compile_time(&self.hir.locals) {
                    return self.error(e.span, "the size of a table must be a constant number");
                }
                if v.as_int().is_some_and(|n| *n < num_bigint::BigInt::ZERO) {
                    return self.error(e.span, "the size of a table cannot be negative");
                }
                def.size = Some(v);
            }
            "largest_priority_wins" => {
                if let Some(largest) = self.check_flag(p, e) {
                    def.largest_priority_wins = largest;
                }
            }
            "stateplane_exchange" => def.exchange = self.check_flag(p, e) == Some(true),
            "stateplane_per_incarnation" => {
                def.per_incarnation = self.check_flag(p, e) == Some(true);
            }
            "priority_delta" => {
                let v = self.check_expr(e, None);
                match v.as_int() {
                    Some(n) if v.ty.is_number() && *n > num_bigint::BigInt::ZERO => {
                        def.priority_delta = Some(n.clone())
                    }
                    _ if v.is_poison() => {}
                    _ => self.error(e.span, "`priority_delta` must be a positive constant number"),
                }
            }
            "support_timeout" => {
                let v = self.check_expr(e, Some(&Ty::Bool));
                if !v.is_poison() && v.as_int() != Some(&num_bigint::BigInt::ZERO) {
                    let d = Diagnostic::error(
                        e.span,
                        "this target has no idle timeouts for entries of tables",
                    )
                    .help("leave `support_timeout` out");
                    self.report(d);
                }
            }
            _ => {
                let v = self.check_expr(e, None);
                let known = matches!(p.name.as_str(), "counters" | "meters" | "implementation");
                if known && matches!(v.ty, Ty::Extern(..)) {
                    def.attached.push((Rc::from(p.name.as_str()), v));
                } else if !v.is_poison() {
                    let d = Diagnostic::error(p.name.span, format!("this target has no table property `{}`", p.name))
                        .help(
                            "it has: key, actions, default_action, entries, size, largest_priority_wins, \
                             priority_delta, stateplane_exchange, stateplane_per_incarnation, and `counters` \
                             with a direct counter",
                        );
                    self.report(d);
                }
            }
        }
    }

    /// The value of a property that is `true` or `false`; none if it is neither.
    fn check_flag(&mut self, p: &ast::TableProperty, e: &ast::Expr) -> Option<bool> {
        let v = self.check_expr(e, Some(&Ty::Bool));
        if let Some(n) = v.as_int().filter(|_| v.ty == Ty::Bool) {
            return Some(*n != num_bigint::BigInt::ZERO);
        }
        if !v.is_poison() {
            self.error(e.span, format!("`{}` must be `true` or `false`", p.name));
        }
        None
    }
}
