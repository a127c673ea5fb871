//! Registers that one packet reads, changes and writes: which of these updates are plain enough
//! to become one atomic step, so that two CPUs lose none.
//!
//! Plain is a read, then a write of the same index with the value read, `+`, `-`, `&`, `|` or `^`
//! what was known before the read; between them no jump and nothing else with that register. The
//! whole step is taken where the read stands: the packet goes on with the value fetched, so what
//! it computes from it is what was written, and the write emits nothing.

use crate::facts::key;
use crate::layout::scalar_width;
use crate::mutations::{Mutation, planted};
use crate::walk::{self, Visitor};
use p4_ir::effects::{self, Then};
use p4_ir::{
    Argument, BinaryOp, Block, Expr, ExprKind, ExternId, LabelId, Location, Program, Statement,
    StatementKind, Type, VariableId,
};
use std::collections::{HashMap, HashSet};

/// Stands for the value that was read.
const OLD: VariableId = VariableId(u32::MAX);
/// Larger values are not followed: putting them into each other can double their size each time.
const MAX_NODES: usize = 64;

/// The element becomes `old op operand`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Update {
    /// `Add`, `Sub`, `BitAnd`, `BitOr` or `BitXor`.
    pub op: BinaryOp,
    /// In the terms of the place where the read stands.
    pub operand: Expr,
}

/// All plain updates of a program. Statements are known by their addresses.
#[derive(Default, Debug)]
pub(crate) struct Updates {
    reads: HashMap<usize, Update>,
    writes: HashSet<usize>,
    registers: HashSet<ExternId>,
}

impl Updates {
    pub(crate) fn new(program: &Program) -> Updates {
        let mut updates = Updates::default();
        if planted(Mutation::SplitUpdates) {
            return updates;
        }
        let states = program.parser.states.iter().map(|state| &state.body);
        let actions = program.actions.iter().map(|action| &action.body);
        let controls = [
            &program.verify_checksum,
            &program.ingress,
            &program.egress,
            &program.compute_checksum,
            &program.deparser,
        ]
        .map(|control| &control.body);
        for body in
            std::iter::once(&program.parser.prologue).chain(states).chain(actions).chain(controls)
        {
            updates.find(program, body);
        }
        updates
    }

    /// What the read that stands here does to the element.
    pub(crate) fn at_read(&self, statement: &Statement) -> Option<&Update> {
        self.reads.get(&address(statement))
    }

    /// Has the read before it done this write?
    pub(crate) fn is_done(&self, statement: &Statement) -> bool {
        self.writes.contains(&address(statement))
    }

    /// Is some plain update about this register?
    pub(crate) fn has(&self, register: ExternId) -> bool {
        self.registers.contains(&register)
    }

    fn find(&mut self, program: &Program, body: &Block) {
        let mut line = Vec::new();
        flatten(body, &mut line);
        for (at, step) in line.iter().enumerate() {
            let Step::Statement(statement) = step else { continue };
            match &statement.kind {
                StatementKind::If { then, otherwise, .. } => {
                    self.find(program, then);
                    self.find(program, otherwise);
                }
                StatementKind::Switch { cases, default, .. } => {
                    cases.iter().for_each(|(_, body)| self.find(program, body));
                    self.find(program, default);
                }
                _ => {}
            }
            if let Some((write, update)) = follow(program, statement, &line[at + 1..]) {
                self.writes.insert(address(write));
                if let Some(update) = update {
                    self.reads.insert(address(statement), update);
                    self.registers.extend(register_of(program, statement));
                }
            }
        }
    }
}

fn address(statement: &Statement) -> usize {
    std::ptr::from_ref(statement) as usize
}

/// A straight line of statements, through nested blocks.
enum Step<'a> {
    Statement(&'a Statement),
    Open(LabelId),
    Close(LabelId),
    /// Where what is `@atomic` begins or ends: nothing is moved into it or out of it.
    Border,
}

fn flatten<'a>(body: &'a Block, line: &mut Vec<Step<'a>>) {
    for statement in body {
        let StatementKind::Block { label, body, atomic, .. } = &statement.kind else {
            line.push(Step::Statement(statement));
            continue;
        };
        let border = || atomic.then_some(Step::Border);
        line.extend(label.map(Step::Open).into_iter().chain(border()));
        flatten(body, line);
        line.extend(border().into_iter().chain(label.map(Step::Close)));
    }
}

/// The register whose method a statement calls.
pub(crate) fn register_of(program: &Program, statement: &Statement) -> Option<ExternId> {
    match &statement.kind {
        StatementKind::Extern { instance: Some(id), .. }
            if program.externs[id.index()].extern_type == "register" =>
        {
            Some(*id)
        }
        _ => None,
    }
}

/// From a read to the write that goes with it, and what becomes of the element: None if it stays.
fn follow<'a>(
    program: &Program,
    read: &Statement,
    rest: &[Step<'a>],
) -> Option<(&'a Statement, Option<Update>)> {
    let register = register_of(program, read)?;
    let StatementKind::Extern { name, arguments, .. } = &read.kind else { return None };
    let ("read", [Argument::Out(target), Argument::In(index)]) =
        (name.as_str(), arguments.as_slice())
    else {
        return None;
    };
    let mut values = Values::new(program, Some(register));
    // The index first: what is read may go where it came from.
    let index = values.at_start(index)?;
    let old = Expr { kind: ExprKind::Var(OLD), ty: target.ty.clone(), location: target.location };
    values.set(target, Some(old))?;
    values.known.values().any(Option::is_some).then_some(())?;
    let mut opened = HashSet::new();
    for step in rest {
        match step {
            Step::Open(label) => {
                opened.insert(*label);
            }
            // Who leaves a block that the read stands in gets here without the read.
            Step::Close(label) if !opened.contains(label) => return None,
            Step::Close(_) => {}
            Step::Border => return None,
            Step::Statement(statement) => {
                if register_of(program, statement) != Some(register) {
                    values.run(statement, true)?;
                    continue;
                }
                let StatementKind::Extern { name, arguments, .. } = &statement.kind else {
                    return None;
                };
                let ("write", [Argument::In(at), Argument::In(value)]) =
                    (name.as_str(), arguments.as_slice())
                else {
                    return None;
                };
                if !same(&values.at_start(at)?, &index) {
                    return None;
                }
                return Some((statement, update_of(&values.at_start(value)?)?));
            }
        }
    }
    None
}

/// What storage holds, in terms of what it held at the start: where the read stands.
pub(crate) struct Values<'a> {
    program: &'a Program,
    /// No other access to it is let pass.
    register: Option<ExternId>,
    /// By key; None: not followed. What is not here is as it was.
    known: HashMap<String, Option<Expr>>,
}

impl<'a> Values<'a> {
    pub(crate) fn new(program: &'a Program, register: Option<ExternId>) -> Values<'a> {
        Values { program, register, known: HashMap::new() }
    }

    pub(crate) fn program(&self) -> &'a Program {
        self.program
    }

    /// Notes an assignment of what is not known.
    pub(crate) fn forget(&mut self, target: &Expr) {
        // What has no key can't be read by one.
        let _ = self.set(target, None);
    }

    /// What a statement does to storage; None if it may jump, or touches the register. `always`:
    /// it stands in the line itself, not under a condition.
    pub(crate) fn run(&mut self, statement: &Statement, always: bool) -> Option<()> {
        if may_reject(statement) {
            return None;
        }
        match &statement.kind {
            StatementKind::Assign(target, value) => {
                let value = if always { self.at_start(value) } else { None };
                self.set(target, value)
            }
            StatementKind::If { then, otherwise, .. } => {
                then.iter().chain(otherwise).try_for_each(|inner| self.run(inner, false))
            }
            StatementKind::Switch { cases, default, .. } => {
                let bodies = cases.iter().map(|(_, body)| body).chain([default]);
                bodies.flatten().try_for_each(|inner| self.run(inner, false))
            }
            // In the line they are flat.
            StatementKind::Block { body, .. } => {
                body.iter().try_for_each(|inner| self.run(inner, false))
            }
            StatementKind::SetValid(target, _)
            | StatementKind::PushFront(target, _)
            | StatementKind::PopFront(target, _) => self.set(target, None),
            StatementKind::Extern { instance, name, arguments, result, .. } => {
                if !self.goes_on(*instance, name) {
                    return None;
                }
                let outputs = arguments.iter().filter_map(|argument| match argument {
                    Argument::Out(target) | Argument::InOut(target) => Some(target),
                    Argument::In(_) | Argument::DontCare => None,
                });
                outputs.chain(result).try_for_each(|target| self.set(target, None))
            }
            _ => None,
        }
    }

    /// Does a call come back, and leave the register alone?
    fn goes_on(&self, instance: Option<ExternId>, name: &str) -> bool {
        match instance {
            Some(id) => {
                let of = self.program.externs[id.index()].extern_type.as_str();
                Some(id) != self.register && effects::is_plain_object(of)
            }
            None => effects::function(name).is_some_and(|function| function.then == Then::GoesOn),
        }
    }

    /// Notes an assignment. None if it is not known to what.
    fn set(&mut self, target: &Expr, value: Option<Expr>) -> Option<()> {
        let mut place = target;
        let mut value = value.filter(|value| nodes(value) <= MAX_NODES);
        // A change of a part, an element that is not known, or one of a union's members: all of it.
        while let ExprKind::Slice { base, .. } = &place.kind {
            place = base;
            value = None;
        }
        let mut inner = place;
        loop {
            match &inner.kind {
                ExprKind::Field(base, _) => inner = base,
                ExprKind::Index(base, _)
                | ExprKind::StackNext(base)
                | ExprKind::StackLast(base) => {
                    value = None;
                    inner = base;
                }
                _ => break,
            }
            if matches!(inner.ty, Type::Union(_)) {
                value = None;
                place = inner;
            }
        }
        let whole = scalar_width(&place.ty).is_some();
        let key = key(place)?;
        self.known.retain(|known, _| !contains(&key, known));
        self.known.insert(key, value.filter(|_| whole));
        Some(())
    }

    /// The same value from what storage held at the start.
    pub(crate) fn at_start(&self, expr: &Expr) -> Option<Expr> {
        let again = |inner: &Expr| self.at_start(inner).map(Box::new);
        let kind = match &expr.kind {
            ExprKind::Const(_) => return Some(expr.clone()),
            ExprKind::Var(_) | ExprKind::Field(..) | ExprKind::Index(..) => {
                let key = key(expr)?;
                if let Some(value) = self.known.get(&key) {
                    return value.clone();
                }
                if self.known.keys().any(|known| contains(known, &key) || contains(&key, known)) {
                    return None;
                }
                return self.indices_stay(expr).then(|| expr.clone());
            }
            ExprKind::IsValid(header) => {
                let key = key(header)?;
                // Fields that were assigned leave validity alone.
                if self.known.keys().any(|known| *known == key || contains(known, &key)) {
                    return None;
                }
                return self.indices_stay(header).then(|| expr.clone());
            }
            ExprKind::Slice { base, high, low } => {
                ExprKind::Slice { base: again(base)?, high: *high, low: *low }
            }
            ExprKind::Unary(op, inner) => ExprKind::Unary(*op, again(inner)?),
            ExprKind::Binary(op, left, right) => ExprKind::Binary(*op, again(left)?, again(right)?),
            ExprKind::Cast(inner) => ExprKind::Cast(again(inner)?),
            ExprKind::Ternary(condition, then, otherwise) => {
                ExprKind::Ternary(again(condition)?, again(then)?, again(otherwise)?)
            }
            _ => return None,
        };
        Some(Expr { kind, ty: expr.ty.clone(), location: expr.location })
    }

    /// Are the indices in an l-value what they were?
    fn indices_stay(&self, place: &Expr) -> bool {
        match &place.kind {
            ExprKind::Var(_) => true,
            ExprKind::Field(base, _) => self.indices_stay(base),
            ExprKind::Index(base, index) => {
                self.indices_stay(base) && self.at_start(index).is_some_and(|then| then == **index)
            }
            _ => false,
        }
    }
}

/// Is the storage of key `inner` a part of that of `outer`?
fn contains(outer: &str, inner: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'))
}

/// Parsers: may evaluating the statement's expressions reject the packet?
pub(crate) fn may_reject(statement: &Statement) -> bool {
    struct Rejects(bool);
    impl Rejects {
        fn look(&mut self, expr: &Expr) {
            self.0 |= matches!(
                expr.kind,
                ExprKind::StackNext(_) | ExprKind::StackLast(_) | ExprKind::Lookahead
            );
            if let ExprKind::Field(base, _) | ExprKind::Slice { base, .. } = &expr.kind {
                self.look(base);
            }
        }
    }
    impl Visitor for Rejects {
        fn statement(&mut self, statement: &Statement) {
            if let StatementKind::SetValid(target, _) = &statement.kind {
                self.look(target);
            }
        }
        fn read(&mut self, expr: &Expr) {
            self.look(expr);
        }
        fn write(&mut self, target: &Expr, _value: Option<&Expr>) {
            self.look(target);
        }
    }
    let mut rejects = Rejects(false);
    walk::statement(statement, &mut rejects);
    rejects.0
}

fn nodes(expr: &Expr) -> usize {
    struct Count(usize);
    impl Visitor for Count {
        fn read(&mut self, _expr: &Expr) {
            self.0 += 1;
        }
    }
    let mut count = Count(0);
    walk::expr(expr, &mut count);
    count.0
}

fn reads_old(expr: &Expr) -> bool {
    struct Find(bool);
    impl Visitor for Find {
        fn read(&mut self, expr: &Expr) {
            self.0 |= matches!(expr.kind, ExprKind::Var(OLD));
        }
    }
    let mut find = Find(false);
    walk::expr(expr, &mut find);
    find.0
}

/// Are two expressions the same but for where they stand?
pub(crate) fn same(left: &Expr, right: &Expr) -> bool {
    fn nowhere(expr: &Expr) -> Expr {
        let again = |inner: &Expr| Box::new(nowhere(inner));
        let kind = match &expr.kind {
            ExprKind::Field(base, index) => ExprKind::Field(again(base), *index),
            ExprKind::Index(base, index) => ExprKind::Index(again(base), again(index)),
            ExprKind::IsValid(base) => ExprKind::IsValid(again(base)),
            ExprKind::Slice { base, high, low } => {
                ExprKind::Slice { base: again(base), high: *high, low: *low }
            }
            ExprKind::Unary(op, inner) => ExprKind::Unary(*op, again(inner)),
            ExprKind::Binary(op, left, right) => ExprKind::Binary(*op, again(left), again(right)),
            ExprKind::Cast(inner) => ExprKind::Cast(again(inner)),
            ExprKind::Ternary(a, b, c) => ExprKind::Ternary(again(a), again(b), again(c)),
            other => other.clone(),
        };
        Expr { kind, ty: expr.ty.clone(), location: Location::default() }
    }
    nowhere(left) == nowhere(right)
}

/// Takes `value` apart into the value read and what is done to it; `Some(None)` if nothing is.
fn update_of(value: &Expr) -> Option<Option<Update>> {
    use BinaryOp::{Add, BitAnd, BitOr, BitXor, Sub};
    match &value.kind {
        ExprKind::Var(OLD) => Some(None),
        // Between signed and unsigned.
        ExprKind::Cast(inner) if is_bits(&value.ty) && is_bits(&inner.ty) => {
            (scalar_width(&inner.ty) == scalar_width(&value.ty)).then(|| update_of(inner))?
        }
        ExprKind::Binary(op @ (Add | Sub | BitAnd | BitOr | BitXor), left, right) => {
            let (before, operand) = match (reads_old(left), reads_old(right)) {
                (true, false) => (left, right),
                (false, true) if *op != Sub => (right, left),
                _ => return None,
            };
            let Some(before) = update_of(before)? else {
                return Some(Some(Update { op: *op, operand: (**operand).clone() }));
            };
            // (old + a) - b is old + (a - b).
            let (op, joined) = match (before.op, *op) {
                (Add, Add) | (Sub, Sub) => (before.op, Add),
                (Add, Sub) | (Sub, Add) => (before.op, Sub),
                (first, second) if first == second => (first, first),
                _ => return None,
            };
            let kind = ExprKind::Binary(joined, Box::new(before.operand), operand.clone());
            Some(Some(Update {
                op,
                operand: Expr { kind, ty: operand.ty.clone(), location: operand.location },
            }))
        }
        _ => None,
    }
}

fn is_bits(ty: &Type) -> bool {
    matches!(ty, Type::Bits { .. })
}
