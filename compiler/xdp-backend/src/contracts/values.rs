//! What a key is, so that two keys can be compared: the value of each of its fields, followed
//! through assignments.
//!
//! Only storage that some key is computed from is followed.

use super::{Call, Seen};
use crate::walk::{self, Visitor};
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_ir::{
    Argument, Block, Expr, ExprKind, Program, Statement, StatementKind, Transition, Type,
    VariableId,
};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// A scalar in storage: the variable's number, then fields and elements.
pub type Place = Vec<u32>;

/// In a place, behind that of a header or union: whether it is valid.
const VALIDITY: u32 = u32::MAX;
/// Larger expressions are not followed.
const MAX_OPERANDS: usize = 64;

/// What is known of a scalar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Known.
    Const(BigInt),
    /// What stands in this place when ingress begins.
    Initial(Place),
    /// An operator, by name, on values.
    Operator(String, Vec<Value>),
    /// Equal to itself only; nothing else is known.
    Unknown(u32),
}

/// The fields of a key.
pub type Key = Vec<Value>;

/// The values of places that are not what they were when ingress began.
pub(crate) type Values = Rc<HashMap<Place, Value>>;

/// How the storage of a program hangs together.
pub struct Storage<'a> {
    program: &'a Program,
    /// Extern types of the objects whose keys are compared.
    types: &'static [&'static str],
    /// Places that keys, conditions, table keys or parser transitions are computed from.
    followed: HashSet<Place>,
    /// Places that conditions, table keys or parser transitions are computed from.
    decisive: HashSet<Place>,
    /// Places that are written before ingress, other than by extraction.
    prepared: HashSet<Place>,
    unknowns: u32,
}

fn is_call(program: &Program, types: &[&str], statement: &Statement) -> bool {
    let StatementKind::Extern { instance: Some(id), .. } = &statement.kind else { return false };
    types.contains(&program.externs[id.index()].extern_type.as_str())
}

impl<'a> Storage<'a> {
    /// Of a program, and of the keys of objects of these extern types.
    pub fn new(program: &'a Program, types: &'static [&'static str]) -> Storage<'a> {
        let mut uses = Uses {
            program,
            types,
            sources: HashMap::new(),
            keys: Vec::new(),
            decisive: Vec::new(),
        };
        walk::program(program, &mut uses);
        for table in &program.tables {
            table.keys.iter().for_each(|key| uses.decide(&key.expr));
        }
        for state in &program.parser.states {
            if let Transition::Select { keys, .. } = &state.transition {
                keys.iter().for_each(|key| uses.decide(key));
            }
        }
        let mut written = Written { program, places: HashSet::new() };
        let bodies = program.parser.states.iter().map(|state| &state.body);
        for body in bodies.chain([&program.parser.prologue, &program.verify_checksum.body]) {
            walk::block(body as &Block, &mut written);
        }
        let decisive = closure(uses.decisive, &uses.sources);
        let mut followed = closure(uses.keys, &uses.sources);
        followed.extend(decisive.iter().cloned());
        Storage { program, types, followed, decisive, prepared: written.places, unknowns: 0 }
    }

    /// Is the statement a call of one of the objects?
    pub(crate) fn is_call(&self, statement: &Statement) -> bool {
        is_call(self.program, self.types, statement)
    }

    pub(crate) fn unknown(&mut self) -> Value {
        self.unknowns += 1;
        Value::Unknown(self.unknowns)
    }

    /// What the fields of a key are worth.
    pub(crate) fn key(&mut self, values: &Values, expr: &Expr) -> Key {
        match &expr.kind {
            ExprKind::StructValue(fields) => {
                fields.iter().flat_map(|field| self.key(values, field)).collect()
            }
            _ if matches!(expr.ty, Type::Struct(_)) => match places(self.program, expr) {
                Some(list) => list.into_iter().map(|place| current(values, place)).collect(),
                None => vec![self.unknown()],
            },
            _ => vec![self.value(values, expr)],
        }
    }

    pub(crate) fn value(&mut self, values: &Values, expr: &Expr) -> Value {
        let operator = match &expr.kind {
            ExprKind::Const(value) => return Value::Const(value.clone()),
            ExprKind::Var(_) | ExprKind::Field(..) | ExprKind::Index(..) => match place(expr) {
                Some(place) => return current(values, place),
                None => return self.unknown(),
            },
            ExprKind::IsValid(header) => match place(header) {
                Some(place) => return current(values, [place, vec![VALIDITY]].concat()),
                None => return self.unknown(),
            },
            ExprKind::Cast(inner) => (format!("cast to {:?}", expr.ty), vec![&**inner]),
            ExprKind::Slice { base, high, low } => (format!("[{high}:{low}]"), vec![&**base]),
            ExprKind::Unary(operator, inner) => (format!("{operator:?}"), vec![&**inner]),
            ExprKind::Binary(operator, left, right) => {
                (format!("{operator:?}"), vec![&**left, &**right])
            }
            ExprKind::Ternary(condition, then, otherwise) => {
                ("?:".into(), vec![&**condition, &**then, &**otherwise])
            }
            _ => return self.unknown(),
        };
        let operands: Vec<Value> =
            operator.1.into_iter().map(|operand| self.value(values, operand)).collect();
        if operands.iter().map(size).sum::<usize>() > MAX_OPERANDS {
            return self.unknown();
        }
        Value::Operator(operator.0, operands)
    }

    /// `target = value`
    pub(crate) fn assign(&mut self, values: &mut Values, target: &Expr, value: &Expr) {
        let Some(targets) = places(self.program, target) else { return };
        if !targets.iter().any(|place| self.followed.contains(place)) {
            return;
        }
        // A slice changes a part of what was there.
        let whole = place(target).is_some();
        let mut found = match whole {
            true => self.key(values, value),
            false => Vec::new(),
        };
        if found.len() != targets.len() {
            found = targets.iter().map(|_| self.unknown()).collect();
        }
        let values = Rc::make_mut(values);
        for (place, value) in targets.into_iter().zip(found) {
            if self.followed.contains(&place) {
                values.insert(place, value);
            }
        }
    }

    /// Something is written there that nobody follows.
    pub(crate) fn forget(&mut self, values: &mut Values, target: &Expr) {
        for place in places(self.program, target).unwrap_or_default() {
            if self.followed.contains(&place) {
                let value = self.unknown();
                Rc::make_mut(values).insert(place, value);
            }
        }
    }

    /// A variable has one of two values.
    pub(crate) fn know(values: &mut Values, variable: VariableId, is: bool) {
        Rc::make_mut(values).insert(vec![variable.0], Value::Const(u8::from(is).into()));
    }

    /// What is known on either of two ways.
    pub(crate) fn join(&mut self, one: &mut Values, other: &Values) {
        if Rc::ptr_eq(one, other) {
            return;
        }
        let places: HashSet<&Place> = one.keys().chain(other.keys()).collect();
        let differ =
            |place: &&&Place| current(one, (**place).clone()) != current(other, (**place).clone());
        let mut differing: Vec<Place> =
            places.iter().filter(differ).map(|place| (*place).clone()).collect();
        differing.sort_unstable();
        for place in differing {
            let value = self.unknown();
            Rc::make_mut(one).insert(place, value);
        }
    }

    /// Is the key of a call another one than what an earlier call had? It is if some of what it is
    /// computed from was written in between, unless the value is known to be the same.
    pub fn strays(&self, seen: &Seen, call: &Call) -> bool {
        let written = self.written_between(&seen.values, &call.values, call.expr);
        if seen.key.len() != call.key.len() || written.len() != call.key.len() {
            return true;
        }
        let pairs = seen.key.iter().zip(&call.key).zip(written);
        pairs.into_iter().any(|((one, other), written)| {
            one != other && (written || self.values_differ(one, other))
        })
    }

    /// The same of the first `count` fields of two keys, which may be of different objects.
    pub fn strays_within(&self, seen: &Seen, call: &Call, count: usize) -> bool {
        let written = self.written_between(&seen.values, &call.values, call.expr);
        if seen.key.len() < count || call.key.len() < count || written.len() < count {
            return true;
        }
        let pairs = seen.key.iter().zip(&call.key).zip(written).take(count);
        pairs.into_iter().any(|((one, other), written)| {
            one != other && (written || self.values_differ(one, other))
        })
    }

    /// Of each field of a key, in the order of [`Storage::key`].
    fn written_between(&self, before: &Values, now: &Values, expr: &Expr) -> Vec<bool> {
        let is_written =
            |place: &Place| current(before, place.clone()) != current(now, place.clone());
        match &expr.kind {
            ExprKind::StructValue(fields) => {
                fields.iter().flat_map(|field| self.written_between(before, now, field)).collect()
            }
            _ if matches!(expr.ty, Type::Struct(_)) => match places(self.program, expr) {
                Some(list) => list.iter().map(is_written).collect(),
                None => vec![reads(self.program, expr).iter().any(is_written)],
            },
            _ => vec![reads(self.program, expr).iter().any(is_written)],
        }
    }

    /// Do they differ, for some packet on any way on which both are used? False where that is not
    /// known.
    fn values_differ(&self, one: &Value, other: &Value) -> bool {
        match (one, other) {
            (Value::Const(one), Value::Const(other)) => one != other,
            (Value::Initial(place), Value::Const(_)) | (Value::Const(_), Value::Initial(place)) => {
                self.is_free(place) && !self.decisive.contains(place)
            }
            // What no decision depends on can be anything, whichever way the packet goes.
            (Value::Initial(one), Value::Initial(other)) => {
                one != other
                    && self.is_free(one)
                    && self.is_free(other)
                    && !(self.decisive.contains(one) && self.decisive.contains(other))
            }
            _ => false,
        }
    }

    /// Does the place hold what stood in the packet, and nothing else?
    fn is_free(&self, place: &Place) -> bool {
        place.first() == Some(&self.program.headers.0) && !self.prepared.contains(place)
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Operator(_, operands) => 1 + operands.iter().map(size).sum::<usize>(),
        _ => 1,
    }
}

fn current(values: &Values, place: Place) -> Value {
    values.get(&place).cloned().unwrap_or(Value::Initial(place))
}

/// All places that others are computed from, over any number of assignments.
fn closure(start: Vec<Place>, sources: &HashMap<Place, HashSet<Place>>) -> HashSet<Place> {
    let mut found: HashSet<Place> = start.iter().cloned().collect();
    let mut open = start;
    while let Some(place) = open.pop() {
        for source in sources.get(&place).into_iter().flatten() {
            if found.insert(source.clone()) {
                open.push(source.clone());
            }
        }
    }
    found
}

/// The storage that an l-value names, if it is always the same.
fn place(expr: &Expr) -> Option<Place> {
    match &expr.kind {
        ExprKind::Var(id) => Some(vec![id.0]),
        ExprKind::Field(base, index) => Some([place(base)?, vec![*index]].concat()),
        ExprKind::Index(base, index) => match &index.kind {
            ExprKind::Const(index) => Some([place(base)?, vec![index.to_u32()?]].concat()),
            _ => None,
        },
        _ => None,
    }
}

/// The scalars of an l-value; those of the whole stack if it is not known which element. None: no
/// l-value.
fn places(program: &Program, expr: &Expr) -> Option<Vec<Place>> {
    if let Some(place) = place(expr) {
        let mut found = Vec::new();
        scalars(program, &expr.ty, place, &mut found);
        return Some(found);
    }
    match &expr.kind {
        ExprKind::Field(base, _)
        | ExprKind::Index(base, _)
        | ExprKind::StackNext(base)
        | ExprKind::StackLast(base)
        | ExprKind::Slice { base, .. } => places(program, base),
        _ => None,
    }
}

fn scalars(program: &Program, ty: &Type, place: Place, found: &mut Vec<Place>) {
    if matches!(ty, Type::Header(_) | Type::Union(_)) {
        found.push([place.clone(), vec![VALIDITY]].concat());
    }
    let fields = match ty {
        Type::Header(id) => &program.header_types[id.index()].fields,
        Type::Struct(id) => &program.struct_types[id.index()].fields,
        Type::Union(id) => &program.union_types[id.index()].fields,
        Type::Stack { header, size } => {
            for index in 0..*size {
                scalars(
                    program,
                    &Type::Header(*header),
                    [place.clone(), vec![index]].concat(),
                    found,
                );
            }
            return;
        }
        _ => return found.push(place),
    };
    for (index, field) in fields.iter().enumerate() {
        scalars(program, &field.ty, [place.clone(), vec![index as u32]].concat(), found);
    }
}

/// All places that an expression reads.
fn reads(program: &Program, expr: &Expr) -> Vec<Place> {
    if let ExprKind::IsValid(header) = &expr.kind {
        return match place(header) {
            Some(place) => vec![[place, vec![VALIDITY]].concat()],
            None => places(program, header).unwrap_or_default(),
        };
    }
    if let Some(found) = places(program, expr) {
        return found;
    }
    let operands: Vec<&Expr> = match &expr.kind {
        ExprKind::Field(inner, _)
        | ExprKind::Unary(_, inner)
        | ExprKind::Cast(inner)
        | ExprKind::Slice { base: inner, .. } => vec![inner],
        ExprKind::Binary(_, left, right) => vec![left, right],
        ExprKind::Ternary(condition, then, otherwise) => vec![condition, then, otherwise],
        ExprKind::StructValue(fields) | ExprKind::HeaderValue(fields) => fields.iter().collect(),
        _ => Vec::new(),
    };
    operands.into_iter().flat_map(|operand| reads(program, operand)).collect()
}

fn is_scalar(ty: &Type) -> bool {
    !matches!(ty, Type::Header(_) | Type::Struct(_) | Type::Union(_) | Type::Stack { .. })
}

/// What is computed from what, and where it matters.
struct Uses<'a> {
    program: &'a Program,
    types: &'static [&'static str],
    sources: HashMap<Place, HashSet<Place>>,
    keys: Vec<Place>,
    decisive: Vec<Place>,
}

impl Uses<'_> {
    fn decide(&mut self, expr: &Expr) {
        self.decisive.extend(reads(self.program, expr));
    }

    fn flows(&mut self, target: &Expr, sources: &[Place]) {
        for place in places(self.program, target).unwrap_or_default() {
            self.sources.entry(place).or_default().extend(sources.iter().cloned());
        }
    }

    /// Field by field where both sides have the same.
    fn assigned(&mut self, target: &Expr, value: &Expr) {
        let fields: Vec<Vec<Place>> = match &value.kind {
            ExprKind::StructValue(list) | ExprKind::HeaderValue(list) => {
                list.iter().map(|field| reads(self.program, field)).collect()
            }
            _ => reads(self.program, value).into_iter().map(|place| vec![place]).collect(),
        };
        let targets = places(self.program, target).unwrap_or_default();
        if place(target).is_some() && !is_scalar(&target.ty) && targets.len() == fields.len() {
            for (place, sources) in targets.into_iter().zip(fields) {
                self.sources.entry(place).or_default().extend(sources);
            }
        } else {
            self.flows(target, &fields.concat());
        }
    }
}

impl Visitor for Uses<'_> {
    fn statement(&mut self, statement: &Statement) {
        match &statement.kind {
            StatementKind::Assign(target, value) => self.assigned(target, value),
            StatementKind::If { condition, .. } | StatementKind::Verify(condition, _) => {
                self.decide(condition)
            }
            StatementKind::Switch { on, .. } => self.decide(on),
            StatementKind::Extract { varbit_bits: Some(bits), .. }
            | StatementKind::Advance(bits) => self.decide(bits),
            StatementKind::Extern { arguments, .. }
                if is_call(self.program, self.types, statement) =>
            {
                if let Some(Argument::In(key)) = arguments.first() {
                    self.keys.extend(reads(self.program, key));
                }
            }
            StatementKind::Extern { arguments, result, .. } => {
                let inputs = arguments.iter().filter_map(|argument| match argument {
                    Argument::In(value) | Argument::InOut(value) => {
                        Some(reads(self.program, value))
                    }
                    _ => None,
                });
                let inputs: Vec<Place> = inputs.flatten().collect();
                for argument in arguments {
                    if let Argument::Out(target) | Argument::InOut(target) = argument {
                        self.flows(target, &inputs);
                    }
                }
                result.iter().for_each(|target| self.flows(target, &inputs));
            }
            _ => {}
        }
    }
}

/// What some block writes, other than by extraction.
struct Written<'a> {
    program: &'a Program,
    places: HashSet<Place>,
}

impl Visitor for Written<'_> {
    fn write(&mut self, target: &Expr, _value: Option<&Expr>) {
        self.places.extend(places(self.program, target).unwrap_or_default());
    }
}
