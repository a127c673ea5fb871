//! Which constructs generated programs have: kinds of statements and expressions, where calls with
//! effects stand, parameters by direction and type, properties of tables.
//!
//! A campaign tells what none of its programs had; a test fails if something in [`EXPECTED`] never
//! occurs.

use p4_check::hir::{
    ApplyPart, Block, BlockKind, Call, Callee, Expr, ExprKind, Hir, LocalKind, Match, ParamDef, RecordKind, Stmt,
    StmtKind, TableDef, Transition,
};
use p4_check::ty::Ty;
use std::collections::{BTreeMap, BTreeSet};

/// What some program of a campaign must have.
pub(super) const EXPECTED: &[&str] = &[
    // statements, by what they stand in
    "assign in function",
    "assign in action",
    "assign in control",
    "assign in parser",
    "if in function",
    "if in action",
    "if in control",
    "if in parser",
    "switch in function",
    "switch in action",
    "switch in control",
    "switch on action_run",
    "block in function",
    "block in control",
    "@atomic block",
    "return in function",
    "return in action",
    "return in control",
    "exit in action",
    "exit in control",
    // targets
    "assign to slice",
    "assign to slice of slice",
    "assign to element",
    "assign to next",
    "assign to last",
    "assign to header",
    "assign to stack",
    "assign to union",
    "assign to struct",
    "assign to varbit",
    // expressions
    "lastIndex",
    "last read",
    "lookahead",
    "invalid header",
    "?: of scalars",
    "slice",
    "concatenation",
    "saturating unsigned",
    "saturating signed",
    "shift",
    "division",
    "comparison of signed",
    "== of header",
    "== of struct",
    "== of stack",
    "== of union",
    "== of scalar",
    "cast to newtype",
    "cast to enum",
    "cast to bool",
    "tuple",
    "named in another order",
    "struct literal",
    "header literal",
    // calls
    "isValid",
    "setValid",
    "setInvalid",
    "push_front",
    "pop_front",
    "apply of a type",
    "apply of an instance",
    "generic function",
    "constructor parameter",
    "table hit",
    "table miss",
    "extract",
    "extract of varbit",
    "advance",
    "verify",
    "emit",
    "read",
    "write",
    "count",
    "hash",
    "verify_checksum",
    "update_checksum",
    "get_or_allocate",
    // calls with effects
    "effects in index",
    "effects in slice base",
    "effects in operand",
    "effects in condition of if",
    "effects in condition of ?:",
    "effects in branch of ?:",
    "effects right of &&",
    "effects right of ||",
    "effects in argument of function",
    "effects in argument of action",
    "effects in argument of control",
    "effects in argument of parser",
    "effects in argument of extern extract",
    "effects in argument of extern advance",
    "effects in argument of extern verify",
    "effects in argument of extern emit",
    "effects in argument of extern read",
    "effects in argument of extern write",
    "effects in argument of extern count",
    "effects in argument of extern hash",
    "effects in argument of extern verify_checksum",
    "effects in argument of extern update_checksum",
    "effects in list of extern",
    "effects in select key",
    "effects in table key",
    "effects in switch subject",
    "effects in value assigned",
    "effects in target",
    "effects in return",
    "effects in initializer",
    "effects in literal",
    "effects in bound argument",
    "effects in cast",
    "effects in field base",
    // tables
    "exact key",
    "lpm key",
    "ternary key",
    "range key",
    "optional key",
    "const entries",
    "entries",
    "written priority",
    "smallest priority wins",
    "priority_delta",
    "defaultonly",
    "tableonly",
    "const default",
    "direct counter",
    "bound argument",
    // parsers
    "select of several keys",
    "mask",
    "range",
    "any",
    "loop",
];

/// So many of the rarest constructs are told.
const RARE: usize = 8;

/// What holds for each of these: `inout stack of parser`.
const DIRECTIONS: [&str; 3] = ["in", "inout", "out"];
const TYPES: [&str; 5] = ["scalar", "header", "stack", "union", "struct"];
const CALLABLES: [&str; 4] = ["function", "action", "control", "parser"];

/// All that some program of a campaign must have.
pub(super) fn expected() -> BTreeSet<String> {
    let mut all: BTreeSet<String> = EXPECTED.iter().map(|kind| (*kind).to_owned()).collect();
    for direction in DIRECTIONS {
        for ty in TYPES {
            all.extend(CALLABLES.map(|callable| format!("{direction} {ty} of {callable}")));
        }
    }
    all
}

/// Prints what no program of a campaign had, and what few had.
pub(super) fn tell(name: &str, counts: &BTreeMap<String, u64>) {
    let mut expected: Vec<(u64, String)> =
        expected().into_iter().map(|kind| (counts.get(&kind).copied().unwrap_or(0), kind)).collect();
    expected.sort();
    let missing: Vec<&str> = expected.iter().filter(|one| one.0 == 0).map(|one| one.1.as_str()).collect();
    println!("{name}: {} of {} constructs generated", expected.len() - missing.len(), expected.len());
    if !missing.is_empty() {
        println!("{name}: never generated: {}", missing.join(", "));
    }
    let rare: Vec<String> =
        expected.iter().skip(missing.len()).take(RARE).map(|(count, kind)| format!("{kind} ({count})")).collect();
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
            let LocalKind::Parameter(direction) = self.hir.locals[parameter.local.index()].kind else { continue };
            let direction = format!("{direction:?}").to_lowercase();
            self.note(format!("{direction} {} of {of}", self.type_name(&parameter.ty)));
        }
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
                    self.expr(value);
                }
            }
            StmtKind::Object(..) | StmtKind::ValueSet(..) => {}
            StmtKind::Assign(target, value) => {
                self.note(format!("assign in {inside}"));
                self.target(target);
                self.effects(target, "in target");
                self.effects(value, "in value assigned");
                self.expr(target);
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
                self.note(if *atomic { "@atomic block".into() } else { format!("block in {inside}") });
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
            ExprKind::Slice(base, ..) if matches!(base.kind, ExprKind::Slice(..)) => "slice of slice",
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
            if of == "extern" && matches!(argument.kind, ExprKind::Aggregate(..)) {
                self.effects(argument, "in list of extern");
            }
            self.expr(argument);
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
        let back = targets.iter().any(|target| matches!(target, StateTarget::State(to) if *to <= number));
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
            self.note_if(table.entries.iter().any(|entry| entry.priority.is_some()), "written priority");
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
        let mut counts: BTreeMap<String, u64> = expected().into_iter().map(|kind| (kind, 0)).collect();
        for number in 0..PROGRAMS {
            let text = generate(&[seed.wrapping_add(number)]).text;
            let outcome = p4_check::check_preprocessed("generated.p4", &format!("{prelude}{text}"));
            let Some(hir) = &outcome.checked else { continue };
            for kind in kinds(hir) {
                *counts.entry(kind).or_default() += 1;
            }
        }
        let missing: Vec<&String> = counts.iter().filter(|(_, count)| **count == 0).map(|(kind, _)| kind).collect();
        let mut rare: Vec<(u64, &String)> = counts.iter().map(|(kind, count)| (*count, kind)).collect();
        rare.sort();
        println!("{} constructs; the rarest: {:?}", counts.len(), &rare[..12]);
        assert!(missing.is_empty(), "never in {PROGRAMS} programs of seed {seed}: {missing:?}");
    }
}
