//! Tables and the actions they run.

use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_ir as ir;
use p4_ir::match_kind::is_ranked;
use p4_syntax::Span;

use crate::consts;
use crate::hir::{self, ApplyPart, Direction, TableDefId};
use crate::lower::{Binding, Lowerer, ReturnMode};
use crate::lower_args::Args;
use crate::mutations::{Mutation, planted};
use crate::names;

impl Lowerer<'_> {
    /// `table.apply()`; the variables that take the parts of the result that are used.
    pub fn apply_table(
        &mut self,
        id: TableDefId,
        part: ApplyPart,
        span: Span,
        out: &mut ir::Block,
    ) -> (Option<ir::VariableId>, Option<ir::VariableId>) {
        let hir = self.hir;
        let Some(def) = hir.tables[id.index()].as_ref() else { return (None, None) };
        let table = match self.table_ids.get(&(self.instance, id)) {
            Some(t) => *t,
            None => self.elaborate_table(id, def),
        };
        let stored = self.key_variables.get(&table).cloned().unwrap_or_default();
        for (k, v) in def.keys.iter().zip(stored) {
            if let Some(v) = v {
                let target = self.read(v, k.span);
                self.assign_hir(target, &k.expr, k.span, out);
            }
        }
        let (mut hit, mut action_run) = (None, None);
        match part {
            ApplyPart::All => {}
            ApplyPart::Hit | ApplyPart::Miss => {
                hit = Some(self.variable(&format!("{}_hit", def.name), ir::Type::Bool, span))
            }
            ApplyPart::ActionRun => {
                action_run = Some(self.variable(
                    &format!("{}_action_run", def.name),
                    ir::Type::bits(32),
                    span,
                ));
            }
        }
        let flag = self.table_exit.get(&table).copied();
        if let Some(flag) = flag {
            let (target, no) =
                (self.read(flag, span), self.constant(BigInt::ZERO, ir::Type::Bool, span));
            self.push(out, ir::StatementKind::Assign(target, no), span);
        }
        self.push(out, ir::StatementKind::Apply { table, hit, action_run }, span);
        if let Some(flag) = flag {
            let (condition, mut then) = (self.read(flag, span), Vec::new());
            self.exit_statement(span, &mut then);
            self.push(out, ir::StatementKind::If { condition, then, otherwise: Vec::new() }, span);
        }
        (hit, action_run)
    }

    fn elaborate_table(&mut self, id: TableDefId, def: &hir::TableDef) -> ir::TableId {
        let name = names::control_plane(&self.prefix, &def.name, &def.annotations);
        let c_name = self.names.unique(&name);
        let location = self.location(def.span);
        let mut keys = Vec::new();
        let mut stored = Vec::new();
        for (n, k) in def.keys.iter().enumerate() {
            // Keys are evaluated from left to right: one that a later key changes is kept aside, as
            // is one that takes statements to compute.
            let mut before = Vec::new();
            let mut pure = None;
            let behind = if planted(Mutation::UnsavedKeys) { n + 1 } else { def.keys.len() };
            if !def.keys[n..behind].iter().any(|k| k.expr.has_effects()) {
                pure = Some(self.expr(&k.expr, &mut before)).filter(|_| before.is_empty());
            }
            let mut variable = None;
            let expr = match pure {
                Some(e) => e,
                None => {
                    let ty = self.ty(&k.expr.ty);
                    let v = self.variable(&format!("{}_key", def.name), ty, k.span);
                    variable = Some(v);
                    self.read(v, k.span)
                }
            };
            stored.push(variable);
            let name =
                k.name.as_ref().map_or_else(|| self.key_name(k.expr.span), |n| n.to_string());
            let location = self.location(k.span);
            let enumeration = self.enumeration(&k.expr.ty);
            let match_kind = k.match_kind.to_string();
            keys.push(ir::Key { name, expr, enumeration, match_kind, location });
        }
        let mut actions: Vec<ir::TableAction> = Vec::new();
        for a in &def.actions {
            let action =
                self.table_action(a.action, Args { list: &a.bound, order: &a.order }, a.span);
            actions.push(ir::TableAction {
                action,
                default_only: a.default_only,
                table_only: a.table_only,
            });
        }
        let default_action = match &def.default_action {
            Some(call) => self.action_call(call),
            None => self.no_action(def, &mut actions),
        };
        let entries = self.entries(def);
        let size = def.size.as_ref().and_then(|s| self.const_eval(s)).and_then(|v| v.to_u64());
        let mut attached = Vec::new();
        for (property, e) in &def.attached {
            match self.object(e) {
                Some(Binding::Extern(x)) => attached.push((property.to_string(), x)),
                _ => self.error(
                    e.span,
                    format!("property `{property}` must name an instance declared before"),
                ),
            }
        }
        let annotations = self.annotations(&def.annotations);
        self.tables.push(ir::Table {
            name,
            c_name,
            keys,
            actions,
            default_action,
            const_default: def.const_default,
            entries,
            const_entries: def.const_entries,
            smallest_priority_wins: smallest_wins(def),
            exchange: def.exchange,
            per_incarnation: def.per_incarnation,
            size,
            attached,
            annotations,
            location,
        });
        let table = ir::TableId(self.tables.len() as u32 - 1);
        if def.actions.iter().any(|a| self.action_exits(a.action))
            && let Some(flag) = self.exit_flags.get(&self.instance)
        {
            self.table_exit.insert(table, *flag);
        }
        self.table_ids.insert((self.instance, id), table);
        self.key_variables.insert(table, stored);
        table
    }

    /// The key as written, without spaces; `isValid()` as P4Runtime has it.
    fn key_name(&self, span: Span) -> String {
        let text: String =
            self.sources.slice(span).chars().filter(|c| !c.is_whitespace()).collect();
        text.replace(".isValid()", ".$valid$")
    }

    fn no_action(
        &mut self,
        def: &hir::TableDef,
        actions: &mut Vec<ir::TableAction>,
    ) -> ir::ActionCall {
        let Some(id) = self.hir.no_action else {
            self.error(
                def.span,
                format!("table `{}` has no default_action and NoAction is not declared", def.name),
            );
            return ir::ActionCall { action: 0, arguments: Vec::new() };
        };
        if let Some(i) = def.actions.iter().position(|a| a.action == id) {
            if def.actions[i].table_only {
                let text =
                    "action `NoAction` is @tableonly, but this table has no other default action";
                let help = "name another `default_action`, or remove @tableonly";
                self.report(p4_syntax::Diagnostic::error(def.actions[i].span, text).help(help));
            }
            return ir::ActionCall { action: i as u32, arguments: Vec::new() };
        }
        let action =
            self.table_action(id, Args { list: &[], order: &hir::Order::default() }, def.span);
        actions.push(ir::TableAction { action, default_only: true, table_only: false });
        ir::ActionCall { action: actions.len() as u32 - 1, arguments: Vec::new() }
    }

    fn action_call(&mut self, call: &hir::ActionCallDef) -> ir::ActionCall {
        let mut arguments = Vec::new();
        for a in &call.args {
            match self.const_eval(a) {
                Some(v) => arguments.push(v),
                None => {
                    self.error(a.span, "this argument cannot be evaluated at compile time");
                    arguments.push(BigInt::ZERO);
                }
            }
        }
        ir::ActionCall { action: call.index as u32, arguments }
    }

    fn entries(&mut self, def: &hir::TableDef) -> Vec<ir::Entry> {
        let mut out = Vec::new();
        for e in &def.entries {
            let matches: Vec<ir::Match> =
                e.matches.iter().map(|m| self.matching(m, e.span)).collect();
            let action = self.action_call(&e.action);
            let priority = e.priority.as_ref().and_then(|p| self.const_eval(p));
            let location = self.location(e.span);
            out.push(ir::Entry { matches, action, priority, is_const: e.is_const, location });
        }
        self.priorities(def, &mut out);
        self.check_duplicates(def, &out);
        out
    }

    /// The priorities of entries that can be changed: those that are not written follow (spec
    /// §14.2.1.4).
    fn priorities(&mut self, def: &hir::TableDef, entries: &mut [ir::Entry]) {
        if !has_priorities(def) {
            return entries.iter_mut().for_each(|e| e.priority = None);
        }
        let delta = def.priority_delta.clone().unwrap_or_else(|| BigInt::from(1));
        let largest = def.largest_priority_wins;
        let mut next = BigInt::from(1);
        if largest {
            next += &delta * BigInt::from(entries.len().saturating_sub(1));
        }
        for (e, d) in entries.iter_mut().zip(&def.entries) {
            let given = e.priority.take().unwrap_or_else(|| next.clone());
            let most = BigInt::from(u32::MAX);
            if given < BigInt::ZERO || given > most {
                let text = format!("this entry's priority is {given}: it must be from 0 to {most}");
                let help =
                    "a missing priority follows from the previous entry's, by `priority_delta`";
                self.report(p4_syntax::Diagnostic::error(d.span, text).help(help));
            }
            next = if largest { &given - &delta } else { &given + &delta };
            e.priority = Some(given);
        }
    }

    fn check_duplicates(&mut self, def: &hir::TableDef, entries: &[ir::Entry]) {
        // Of equal prefixes neither is the longest (§14.2.1.1), and no priority decides.
        if def.keys.iter().any(|k| is_ranked(&k.match_kind)) {
            return;
        }
        let width = |key: &hir::KeyDef| {
            self.hir.underlying(&key.expr.ty).bits().map_or(1, |(width, _)| width)
        };
        let ones: Vec<BigInt> =
            def.keys.iter().map(|key| (BigInt::from(1) << width(key)) - 1).collect();
        let bits = |(matched, ones): (&ir::Match, &BigInt)| match matched {
            ir::Match::Value(value) => (value & ones, ones.clone()),
            ir::Match::Mask { value, mask } => (value & mask, mask.clone()),
            _ => (BigInt::ZERO, BigInt::ZERO),
        };
        let mut seen = std::collections::HashMap::new();
        for (e, d) in entries.iter().zip(&def.entries) {
            let key: Vec<(BigInt, BigInt)> = e.matches.iter().zip(&ones).map(bits).collect();
            if let Some(first) = seen.insert(key, d.span) {
                let text = "an entry before this one has the same key";
                let d = if def.const_entries {
                    p4_syntax::Diagnostic::error(d.span, text)
                        .help("remove one of the two: this one never matches")
                } else {
                    p4_syntax::Diagnostic::error(d.span, text).help("remove one of the two")
                };
                self.report(d.note_at(first, "first here"));
            }
        }
    }

    /// How a case or entry matches.
    pub fn matching(&mut self, m: &hir::Match, span: Span) -> ir::Match {
        let mut value = |e: &hir::Expr| match self.const_eval(e) {
            Some(v) => v,
            None => {
                self.error(e.span, "this value cannot be evaluated at compile time");
                BigInt::ZERO
            }
        };
        match m {
            hir::Match::Any => ir::Match::Any,
            hir::Match::Value(e) => ir::Match::Value(value(e)),
            hir::Match::Mask(v, m) => {
                let (x, y) = (value(v), value(m));
                let (w, _) = self.hir.underlying(&v.ty).bits().unwrap_or((1, false));
                // Masks compare bits: a signed key's value and mask are bit patterns.
                let (x, y) = (consts::wrap(&x, w, false), consts::wrap(&y, w, false));
                ir::Match::Mask { value: &x & &y, mask: y }
            }
            hir::Match::Range(l, h) => ir::Match::Range { low: value(l), high: value(h) },
            hir::Match::ValueSet(id) => match self.env.get(id) {
                Some(Binding::Extern(x)) => ir::Match::ValueSet(*x),
                _ => {
                    self.error(span, "this value set is not known here");
                    ir::Match::Any
                }
            },
        }
    }

    /// The variable that tells that an action of this instance's tables wants to exit.
    fn exit_flag(&mut self, span: Span) -> ir::Expr {
        let flag = match self.exit_flags.get(&self.instance) {
            Some(v) => *v,
            None => {
                let v = self.variable("exits", ir::Type::Bool, span);
                self.exit_flags.insert(self.instance, v);
                v
            }
        };
        self.read(flag, span)
    }

    /// Whether `exit` stands in the action, or in one that it calls.
    fn action_exits(&self, id: hir::ActionDefId) -> bool {
        fn exits(hir: &hir::Hir, block: &[hir::Stmt]) -> bool {
            block.iter().any(|s| match &s.kind {
                hir::StmtKind::Exit => true,
                hir::StmtKind::If(_, a, b) => exits(hir, a) || exits(hir, b),
                hir::StmtKind::Block(b, _) => exits(hir, b),
                hir::StmtKind::Switch { cases, default, .. } => {
                    exits(hir, default) || cases.iter().any(|(_, b)| exits(hir, b))
                }
                hir::StmtKind::Call(hir::Expr { kind: hir::ExprKind::Call(c), .. }) => {
                    match c.callee {
                        hir::Callee::Action(a) => exits(hir, &hir.actions[a.index()].body),
                        _ => false,
                    }
                }
                _ => false,
            })
        }
        exits(self.hir, &self.hir.actions[id.index()].body)
    }

    /// The action as tables run it; one for each instance of its control and list of bound
    /// arguments.
    fn table_action(&mut self, id: hir::ActionDefId, bound: Args<'_>, span: Span) -> ir::ActionId {
        let hir = self.hir;
        let def = &hir.actions[id.index()];
        // What `exit` has to do first depends on where the control is applied.
        let exits = self.action_exits(id);
        let instance = if def.global && !exits { 0 } else { self.instance };
        if bound.list.is_empty()
            && let Some(a) = self.action_ids.get(&(instance, id))
        {
            return *a;
        }
        let prefix = if def.global { "" } else { &self.prefix };
        let name = names::control_plane(prefix, &def.name, &def.annotations);
        let c_name = self.names.unique(&name);
        let mut parameters = Vec::new();
        let mut parameter_names = Vec::new();
        let mut parameter_enumerations = Vec::new();
        for p in def.params.iter().filter(|p| p.direction == Direction::None) {
            let l = &hir.locals[p.local.index()];
            let ty = self.ty(&p.ty);
            if !matches!(
                ty,
                ir::Type::Bits { .. } | ir::Type::Bool | ir::Type::Error | ir::Type::Enum(_)
            ) {
                self.error(
                    p.span,
                    format!("parameter `{}` of a table's action must be bit<N>, int<N>, bool or an enum", p.name),
                );
            }
            let v = self.variable(&format!("{name}_{}", p.name), ty, p.span);
            let place = self.read(v, p.span);
            self.env.insert(p.local, Binding::Place(place));
            parameters.push(v);
            parameter_enumerations.push(self.enumeration(&p.ty));
            parameter_names
                .push(names::annotated(&l.annotations).unwrap_or_else(|| p.name.to_string()));
        }
        let owed = std::mem::take(&mut self.copy_outs);
        let owes = owed.iter().any(|c| !c.is_empty());
        self.depth += 1;
        let mut body = Vec::new();
        if bound.list.is_empty() {
            self.returns.push(ReturnMode::Return);
            self.block(&def.body, &mut body);
            self.returns.pop();
        } else {
            let directed: Vec<hir::ParamDef> =
                def.params.iter().filter(|p| p.direction != Direction::None).cloned().collect();
            let mut inner = Vec::new();
            let copies = self.bind_parameters(
                &directed,
                bound,
                &[],
                &[],
                Some(&self.locals_of_action(id)),
                span,
                &mut inner,
            );
            self.inline_body(
                &def.body,
                None,
                copies,
                &format!("action {}", def.name),
                span,
                inner,
                &mut body,
            );
        }
        self.depth -= 1;
        self.copy_outs = owed;
        // Where arguments are owed to callers, the place that applies the table copies them out,
        // and exits.
        if exits && (owes || !self.in_single) {
            let flag = self.exit_flag(span);
            flag_exits(&mut body, &flag);
        }
        let location = self.location(def.span);
        let annotations = self.annotations(&def.annotations);
        self.actions.push(ir::Action {
            name,
            c_name,
            parameters,
            parameter_names,
            parameter_enumerations,
            body,
            annotations,
            location,
        });
        let action = ir::ActionId(self.actions.len() as u32 - 1);
        if bound.list.is_empty() {
            self.action_ids.insert((instance, id), action);
        }
        action
    }
}

/// Instead of `exit`: raises the flag and ends the action.
fn flag_exits(block: &mut ir::Block, flag: &ir::Expr) {
    let mut made = Vec::new();
    for mut s in std::mem::take(block) {
        match &mut s.kind {
            ir::StatementKind::Exit => {
                let kind = ir::ExprKind::Const(BigInt::from(1));
                let yes = ir::Expr { kind, ty: ir::Type::Bool, location: s.location };
                let kind = ir::StatementKind::Assign(flag.clone(), yes);
                made.push(ir::Statement { kind, location: s.location });
                s.kind = ir::StatementKind::Return;
            }
            ir::StatementKind::If { then, otherwise, .. } => {
                flag_exits(then, flag);
                flag_exits(otherwise, flag);
            }
            ir::StatementKind::Block { body, .. } => flag_exits(body, flag),
            ir::StatementKind::Switch { cases, default, .. } => {
                cases.iter_mut().for_each(|(_, body)| flag_exits(body, flag));
                flag_exits(default, flag);
            }
            _ => {}
        }
        made.push(s);
    }
    *block = made;
}

/// Whether the entries of a table have priorities: `const entries` are in the order of the source.
fn has_priorities(def: &hir::TableDef) -> bool {
    !def.const_entries && def.keys.iter().any(|k| is_ranked(&k.match_kind))
}

fn smallest_wins(def: &hir::TableDef) -> bool {
    has_priorities(def) && (!def.largest_priority_wins || planted(Mutation::SmallestPriority))
}
