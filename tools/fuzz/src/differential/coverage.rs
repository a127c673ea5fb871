//! Which constructs generated programs have: kinds of statements and expressions, where calls with
//! effects stand, parameters by direction and type, properties of tables.
//!
//! A campaign tells what none of its programs had; a test fails if one that constructs.rs lists
//! never occurs.

use super::constructs::expected;
use p4_check::hir::{
    ApplyPart, Block, BlockKind, Call, Callee, Expr, ExprKind, Hir, LocalKind, Match, ParamDef,
    RecordKind, Stmt, StmtKind, TableDef, Transition,
};
use p4_check::ty::Ty;
use std::collections::{BTreeMap, BTreeSet};

/// So many of the rarest constructs are told.
const RARE: usize = 8;

/// Prints what no program of a campaign had, and what few had.
pub(super) fn tell(name: &str, counts: &BTreeMap<String, u64>) {
    let mut expected: Vec<(u64, String)> = expected()
        .into_iter()
        .map(|kind| (counts.get(&kind).copied().unwrap_or(0), kind))
        .collect();
    expected.sort();
    let missing: Vec<&str> =
        expected.iter().filter(|one| one.0 == 0).map(|one| one.1.as_str()).collect();
    println!(
        "{name}: {} of {} constructs generated",
        expected.len() - missing.len(),
        expected.len()
    );
    if !missing.is_empty() {
        println!("{name}: never generated: {}", missing.join(", "));
    }
    let rare: Vec<String> = expected
        .iter()
        .skip(missing.len())
        .take(RARE)
        .map(|(count, kind)| format!("{kind} ({count})"))
        .collect();
    println!("{name}: in the fewest programs: {}", rare.join(", "));
}

/// What a program has.
pub(super) fn kinds(hir: &Hir) -> BTreeSet<String> {
    let mut walk = Walk { hir, found: BTreeSet::new(), inside: "function" };
    for function in &hir.functions {
        let Some(body) = &function.body else { continue };
        walk.parameters(&function.params, "function");
        walk.note_if(!function.type_params.is_empty(), "generic function");
        walk.inside = "function";
        walk.block(body);
    }
    for action in &hir.actions {
        walk.parameters(&action.params, "action");
        walk.inside = "action";
        walk.block(&action.body);
    }
    for block in &hir.blocks {
        walk.inside = block.kind.as_str();
        walk.parameters(&block.params, block.kind.as_str());
        walk.note_if(!block.constructor_params.is_empty(), "constructor parameter");
        walk.block(&block.locals);
        walk.block(&block.body);
        for (number, state) in block.states.iter().enumerate() {
            walk.block(&state.body);
            walk.transition(&state.transition, number);
        }
        walk.note_if(block.kind == BlockKind::Parser, "parser");
    }
    for table in hir.tables.iter().flatten() {
        walk.table(table);
    }
    walk.found
}

struct Walk<'h> {
    hir: &'h Hir,
    found: BTreeSet<String>,
    inside: &'static str,
}

impl Walk<'_> {
    fn note(&mut self, kind: impl Into<String>) {
        self.found.insert(kind.into());
    }

    fn note_if(&mut self, holds: bool, kind: &str) {
        if holds {
            self.note(kind);
        }
    }

    /// Notes a position, if the expression there has effects.
    fn effects(&mut self, e: &Expr, place: &str) {
        self.note_if(e.has_effects(), &format!("effects {place}"));
    }

    fn type_name(&self, ty: &Ty) -> &'static str {
        match ty {
            Ty::Record(id, _) => match self.hir.records[id.index()].kind {
                RecordKind::Struct => "struct",
                RecordKind::Header => "header",
                RecordKind::Union => "union",
            },
            Ty::Stack(..) => "stack",
            Ty::Varbit(_) => "varbit",
            Ty::Tuple(_) | Ty::List(_) => "tuple",
            _ => "scalar",
        }
    }

    fn parameters(&mut self, list: &[ParamDef], of: &str) {
        for parameter in list {
            let LocalKind::Parameter(direction) = self.hir.locals[parameter.local.index()].kind
            else {
                continue;
            };
            let direction = format!("{direction:?}").to_lowercase();
            self.note(format!("{direction} {} of {of}", self.type_name(&parameter.ty)));
        }
    }

    /// Whether it is a header type with a varbit field.
    fn has_varbit(&self, ty: &Ty) -> bool {
        let Ty::Record(id, _) = ty else { return false };
        let record = &self.hir.records[id.index()];
        record.kind == RecordKind::Header
            && record.fields.iter().any(|field| matches!(field.ty, Ty::Varbit(_)))
    }

    fn copied(&mut self, value: &Expr) {
        let is_copy = self.has_varbit(&value.ty) && !matches!(value.kind, ExprKind::InvalidHeader);
        self.note_if(is_copy, "varbit header copied");
    }

    /// A field of standard_metadata.
    fn standard_field(&self, e: &Expr) -> Option<&str> {
        let ExprKind::Field(base, index) = &e.kind else { return None };
        let Ty::Record(id, _) = &base.ty else { return None };
        let record = &self.hir.records[id.index()];
        (&*record.name == "standard_metadata_t").then(|| &*record.fields[*index as usize].name)
    }

    /// Notes what of standard_metadata is assigned, if anything.
    fn standard_target(&mut self, target: &Expr) -> bool {
        let whole = matches!(&target.ty, Ty::Record(id, _) if &*self.hir.records[id.index()].name == "standard_metadata_t");
        let name = if whole { Some("standard_metadata") } else { self.standard_field(target) };
        let Some(name) = name.map(|name| format!("{name} written in {}", self.inside)) else {
            return false;
        };
        self.note(name);
        true
    }

    fn block(&mut self, body: &Block) {
        body.iter().for_each(|statement| self.statement(statement));
    }

    fn statement(&mut self, statement: &Stmt) {
        let inside = self.inside;
        match &statement.kind {
            StmtKind::Variable(_, value) => {
                if let Some(value) = value {
                    self.effects(value, "in initializer");
                    self.copied(value);
                    self.expr(value);
                }
            }
            StmtKind::Object(..) | StmtKind::ValueSet(..) => {}
            StmtKind::Assign(target, value) => {
                self.note(format!("assign in {inside}"));
                self.target(target);
                self.effects(target, "in target");
                self.effects(value, "in value assigned");
                if !self.standard_target(target) {
                    self.expr(target);
                }
                self.copied(value);
                self.expr(value);
            }
            StmtKind::Call(call) => self.expr(call),
            StmtKind::If(condition, then, otherwise) => {
                self.note(format!("if in {inside}"));
                self.effects(condition, "in condition of if");
                self.expr(condition);
                self.block(then);
                self.block(otherwise);
            }
            StmtKind::Block(body, atomic) => {
                self.note(if *atomic {
                    "@atomic block".into()
                } else {
                    format!("block in {inside}")
                });
                self.block(body);
            }
            StmtKind::Switch { subject, cases, default } => {
                self.note(format!("switch in {inside}"));
                self.effects(subject, "in switch subject");
                self.expr(subject);
                cases.iter().for_each(|(_, body)| self.block(body));
                self.block(default);
            }
            StmtKind::ActionSwitch { cases, default, .. } => {
                self.note("switch on action_run");
                cases.iter().for_each(|(_, body)| self.block(body));
                self.block(default);
            }
            StmtKind::Return(value) => {
                self.note(format!("return in {inside}"));
                if let Some(value) = value {
                    self.effects(value, "in return");
                    self.expr(value);
                }
            }
            StmtKind::Exit => self.note(format!("exit in {inside}")),
        }
    }

    fn target(&mut self, target: &Expr) {
        let kind = match &target.kind {
            ExprKind::Slice(base, ..) if matches!(base.kind, ExprKind::Slice(..)) => {
                "slice of slice"
            }
            ExprKind::Slice(..) => "slice",
            _ => self.type_name(&target.ty),
        };
        self.note(format!("assign to {kind}"));
        let mut part = target;
        while let ExprKind::Slice(base, ..) | ExprKind::Field(base, _) = &part.kind {
            part = base;
        }
        match &part.kind {
            ExprKind::Index(..) => self.note("assign to element"),
            ExprKind::StackNext(_) => self.note("assign to next"),
            ExprKind::StackLast(_) => self.note("assign to last"),
            _ => {}
        }
    }

    fn expr(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Field(base, _) => {
                if let Some(name) = self.standard_field(e).map(|name| format!("{name} read")) {
                    self.note(name);
                }
                self.effects(base, "in field base");
                self.expr(base);
            }
            ExprKind::Index(base, index) => {
                self.effects(index, "in index");
                self.expr(base);
                self.expr(index);
            }
            ExprKind::StackNext(base) => self.expr(base),
            ExprKind::StackLast(base) => {
                self.note("last read");
                self.expr(base);
            }
            ExprKind::StackLastIndex(base) => {
                self.note("lastIndex");
                self.expr(base);
            }
            ExprKind::Slice(base, ..) => {
                self.note("slice");
                self.effects(base, "in slice base");
                self.expr(base);
            }
            ExprKind::Unary(_, inner) => self.expr(inner),
            ExprKind::Binary(..) => self.binary(e),
            ExprKind::Cast(inner) => {
                let to = match &e.ty {
                    Ty::New(_) => "cast to newtype",
                    Ty::Enum(_) => "cast to enum",
                    Ty::Bool => "cast to bool",
                    _ => "cast",
                };
                self.note(to);
                self.effects(inner, "in cast");
                self.expr(inner);
            }
            ExprKind::Conditional(condition, then, otherwise) => {
                self.note("?: of scalars");
                self.effects(condition, "in condition of ?:");
                for branch in [then, otherwise] {
                    self.effects(branch, "in branch of ?:");
                    self.expr(branch);
                }
                self.expr(condition);
            }
            ExprKind::Aggregate(parts, order) => {
                self.note(match self.type_name(&e.ty) {
                    "header" => "header literal",
                    "tuple" => "tuple",
                    _ => "struct literal",
                });
                self.order(order, parts.len());
                for part in parts {
                    self.effects(part, "in literal");
                    self.expr(part);
                }
            }
            ExprKind::InvalidHeader => self.note("invalid header"),
            ExprKind::Call(call) => self.call(call),
            ExprKind::Apply(_, part) => match part {
                ApplyPart::Hit => self.note("table hit"),
                ApplyPart::Miss => self.note("table miss"),
                ApplyPart::All | ApplyPart::ActionRun => {}
            },
            _ => {}
        }
    }

    fn order(&mut self, order: &p4_check::hir::Order, count: usize) {
        self.note_if(!order.places(count).is_sorted(), "named in another order");
    }

    fn binary(&mut self, e: &Expr) {
        use p4_check::hir::BinaryOp;
        let ExprKind::Binary(operator, left, right) = &e.kind else { return };
        let signed = matches!(left.ty, Ty::Signed(_));
        match operator {
            BinaryOp::And => self.effects(right, "right of &&"),
            BinaryOp::Or => self.effects(right, "right of ||"),
            BinaryOp::Eq | BinaryOp::Ne => self.note(format!("== of {}", self.type_name(&left.ty))),
            BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
                self.note_if(signed, "comparison of signed");
            }
            BinaryOp::SatAdd | BinaryOp::SatSub => {
                self.note(if signed { "saturating signed" } else { "saturating unsigned" });
            }
            BinaryOp::Concat => self.note("concatenation"),
            BinaryOp::Shl | BinaryOp::Shr => self.note("shift"),
            BinaryOp::Div | BinaryOp::Mod => self.note("division"),
            _ => {}
        }
        for operand in [left, right] {
            self.effects(operand, "in operand");
            self.expr(operand);
        }
    }

    fn call(&mut self, call: &Call) {
        let of = match &call.callee {
            Callee::Function(id) => {
                let function = &self.hir.functions[id.index()];
                if function.body.is_none() {
                    self.note(&*function.name);
                }
                if function.body.is_some() { "function" } else { "extern" }
            }
            Callee::Method(_, id) => {
                let name = &*self.hir.functions[id.index()].name;
                self.note(name);
                self.note_if(name == "extract" && call.args.len() > 1, "extract of varbit");
                "extern"
            }
            Callee::Action(_) => "action",
            Callee::Block(_) => {
                self.note("apply of an instance");
                if self.inside == "parser" { "parser" } else { "control" }
            }
            Callee::Direct(..) => {
                self.note("apply of a type");
                "control"
            }
            Callee::IsValid(header) => {
                self.note("isValid");
                return self.expr(header);
            }
            Callee::SetValid(header, valid) => {
                self.note(if *valid { "setValid" } else { "setInvalid" });
                return self.expr(header);
            }
            Callee::PushFront(stack) => {
                self.note("push_front");
                return self.expr(stack);
            }
            Callee::PopFront(stack) => {
                self.note("pop_front");
                return self.expr(stack);
            }
        };
        self.order(&call.order, call.args.len());
        let named = match &call.callee {
            Callee::Method(_, id) | Callee::Function(id) if of == "extern" => {
                format!("extern {}", self.hir.functions[id.index()].name)
            }
            _ => of.to_owned(),
        };
        for argument in call.args.iter().flatten() {
            self.effects(argument, &format!("in argument of {named}"));
            if of == "extern"
                && let ExprKind::Aggregate(parts, _) = &argument.kind
            {
                self.effects(argument, "in list of extern");
                self.listed(parts, named.trim_start_matches("extern "));
            }
            self.expr(argument);
        }
    }

    /// Headers as a whole in the list of a hash or checksum.
    fn listed(&mut self, parts: &[Expr], of: &str) {
        for part in parts {
            let varbit = if self.has_varbit(&part.ty) { "varbit " } else { "" };
            self.note_if(
                self.type_name(&part.ty) == "header",
                &format!("{varbit}header in list of {of}"),
            );
        }
    }

    fn transition(&mut self, transition: &Transition, number: usize) {
        use p4_check::hir::StateTarget;
        let mut targets = Vec::new();
        match transition {
            Transition::To(target) => targets.push(*target),
            Transition::Select { keys, cases } => {
                self.note_if(keys.len() > 1, "select of several keys");
                for key in keys {
                    self.effects(key, "in select key");
                    self.expr(key);
                }
                for (matches, target, _) in cases {
                    targets.push(*target);
                    matches.iter().for_each(|one| self.matching(one));
                }
            }
        }
        let back =
            targets.iter().any(|target| matches!(target, StateTarget::State(to) if *to <= number));
        self.note_if(back, "loop");
    }

    fn matching(&mut self, one: &Match) {
        match one {
            Match::Any => self.note("any"),
            Match::Mask(..) => self.note("mask"),
            Match::Range(..) => self.note("range"),
            Match::Value(_) | Match::ValueSet(_) => {}
        }
    }

    fn table(&mut self, table: &TableDef) {
        for key in &table.keys {
            self.note(format!("{} key", key.match_kind));
            self.effects(&key.expr, "in table key");
            self.expr(&key.expr);
        }
        for action in &table.actions {
            self.note_if(action.default_only, "defaultonly");
            self.note_if(action.table_only, "tableonly");
            for bound in action.bound.iter().flatten() {
                self.note("bound argument");
                self.effects(bound, "in bound argument");
                self.expr(bound);
            }
        }
        self.note_if(table.const_default, "const default");
        self.note_if(!table.attached.is_empty(), "direct counter");
        if !table.entries.is_empty() {
            self.note(if table.const_entries { "const entries" } else { "entries" });
            self.note_if(
                table.entries.iter().any(|entry| entry.priority.is_some()),
                "written priority",
            );
            self.note_if(!table.largest_priority_wins, "smallest priority wins");
            self.note_if(table.priority_delta.is_some(), "priority_delta");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::generate;
    use super::super::run::prelude;
    use super::*;

    /// Programs in which each construct must occur.
    const PROGRAMS: u64 = 800;

    #[test]
    fn every_construct_is_generated() {
        let seed = crate::fresh_seed();
        println!("seed {seed}");
        let prelude = prelude().expect("prelude");
        let mut counts: BTreeMap<String, u64> =
            expected().into_iter().map(|kind| (kind, 0)).collect();
        for number in 0..PROGRAMS {
            let text = generate(&[seed.wrapping_add(number)]).text;
            let outcome = p4_check::check_preprocessed("generated.p4", &format!("{prelude}{text}"));
            let Some(hir) = &outcome.checked else { continue };
            for kind in kinds(hir) {
                *counts.entry(kind).or_default() += 1;
            }
        }
        let missing: Vec<&String> =
            counts.iter().filter(|(_, count)| **count == 0).map(|(kind, _)| kind).collect();
        let mut rare: Vec<(u64, &String)> =
            counts.iter().map(|(kind, count)| (*count, kind)).collect();
        rare.sort();
        println!("{} constructs; the rarest: {:?}", counts.len(), &rare[..12]);
        assert!(missing.is_empty(), "never in {PROGRAMS} programs of seed {seed}: {missing:?}");
    }
}
