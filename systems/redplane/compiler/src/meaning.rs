//! What RedPlane's objects mean on one switch, for the interpreters (systems/redplane/docs/).

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, ToPrimitive, Zero};
use p4_interpreter::Stop;
use p4_interpreter::object::{Call, Datum, Declaration, Object, ObjectKinds, Shape};
use state_protocol::objects::{FLOW_STATE, SNAPSHOT_STATE};
use std::collections::BTreeMap;

/// `StateResult` in stateplane.p4, by position.
const HIT: u32 = 0;
const MISS: u32 = 1;

/// RedPlane's kinds of objects.
pub struct Meaning;

impl ObjectKinds for Meaning {
    fn extern_types(&self) -> &'static [&'static str] {
        &[FLOW_STATE, SNAPSHOT_STATE]
    }

    fn declare(&self, declaration: &Declaration<'_>) -> Result<Box<dyn Object>, Stop> {
        match declaration.kind {
            FLOW_STATE => Ok(Box::new(Flows::new(declaration)?)),
            _ => Ok(Box::new(Snapshots::new(declaration)?)),
        }
    }
}

/// `FlowState` with `Consistency.LOCAL` and `Allocator.ZERO`: a map of this switch alone.
#[derive(Clone)]
struct Flows {
    /// As many as this switch can hold.
    size: usize,
    /// By the fields of the key, as bits.
    values: BTreeMap<Vec<BigInt>, Datum>,
    key: Shape,
    value: Shape,
}

fn number(declaration: &Declaration<'_>, index: usize) -> Option<usize> {
    declaration.arguments.get(index)?.as_ref()?.to_usize()
}

fn result(result: u32) -> Datum {
    Datum::Number(BigInt::from(result))
}

impl Flows {
    fn new(declaration: &Declaration<'_>) -> Result<Flows, Stop> {
        let name = declaration.name;
        let number = |index: usize| number(declaration, index);
        // LOCAL and ZERO are the first of their enums.
        if (number(1), number(2)) != (Some(0), Some(0)) {
            return Err(Stop::Unsupported(format!("FlowState {name}, which is not LOCAL and ZERO")));
        }
        match declaration.types.as_slice() {
            [key, value @ Shape::Struct(_)] => Ok(Flows {
                size: number(0).unwrap_or(0),
                values: BTreeMap::new(),
                key: key.clone(),
                value: value.clone(),
            }),
            _ => Err(Stop::Broken(format!("FlowState {name} without a key and a struct as its value"))),
        }
    }

    fn get(&mut self, key: Vec<BigInt>, allocates: bool) -> Result<(Datum, u32), Stop> {
        if allocates && !self.values.contains_key(&key) {
            if self.values.len() >= self.size {
                return Err(Stop::Unsupported("a FlowState that is full".into()));
            }
            self.values.insert(key.clone(), self.value.zero());
        }
        // Of a miss, the value says nothing.
        Ok(match self.values.get(&key) {
            Some(value) => (value.clone(), HIT),
            None => (self.value.undefined(), MISS),
        })
    }
}

impl Object for Flows {
    fn call(&mut self, call: Call<'_>) -> Result<Datum, Stop> {
        let [key, second] = call.arguments else {
            return Err(Stop::Broken(format!("FlowState.{} without two arguments", call.method)));
        };
        let key = self.key.bits(key)?;
        let known = self.values.contains_key(&key);
        match call.method {
            "get" | "get_or_allocate" => {
                let (value, found) = self.get(key, call.method == "get_or_allocate")?;
                *second = value;
                Ok(result(found))
            }
            "set" if known => {
                self.values.insert(key, second.clone());
                Ok(Datum::Undefined)
            }
            other => Err(Stop::Unsupported(format!("FlowState.{other} (of a flow that is there: {known})"))),
        }
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}

/// `SnapshotState` without snapshots (a period of 0): slots of this switch alone.
#[derive(Clone)]
struct Snapshots {
    /// Keys that this switch can hold.
    instances: usize,
    slots: usize,
    key: Shape,
    /// Of a slot.
    width: u32,
    values: BTreeMap<Vec<BigInt>, Vec<BigInt>>,
}

impl Snapshots {
    fn new(declaration: &Declaration<'_>) -> Result<Snapshots, Stop> {
        let (name, number) = (declaration.name, |index: usize| number(declaration, index));
        if number(2) != Some(0) {
            return Err(Stop::Unsupported(format!("SnapshotState {name}, of which snapshots are taken")));
        }
        match (declaration.types.as_slice(), number(0), number(1)) {
            ([key, Shape::Scalar(width)], Some(instances), Some(slots)) => {
                let (key, width) = (key.clone(), *width);
                Ok(Snapshots { instances, slots, key, width, values: BTreeMap::new() })
            }
            _ => Err(Stop::Broken(format!("SnapshotState {name} without a key, slots and their type"))),
        }
    }

    fn wrapped(&self, value: &BigInt) -> BigInt {
        value.mod_floor(&(BigInt::one() << self.width))
    }

    /// What becomes of one slot; out of range, 0 is read and nothing written.
    fn access(&mut self, key: &[BigInt], index: &Datum, change: impl Fn(&BigInt) -> BigInt) -> Result<Datum, Stop> {
        let at = scalar(index)?.to_usize();
        let width = self.width;
        let slot = self.values.get_mut(key).zip(at).and_then(|(slots, at)| slots.get_mut(at));
        let Some(slot) = slot else { return Ok(Datum::Number(BigInt::zero())) };
        *slot = change(slot).mod_floor(&(BigInt::one() << width));
        Ok(Datum::Number(slot.clone()))
    }

    /// A window that is newer than the key's begins: the last slot is its number, the others are 0.
    fn begin(&mut self, key: &[BigInt], window: &BigInt) {
        let half = BigInt::one() << (self.width - 1);
        let last = self.slots - 1;
        let was = self.values.get(key).and_then(|slots| slots.get(last)).cloned().unwrap_or_default();
        let ahead = self.wrapped(&(window - &was));
        if ahead.is_zero() || (!was.is_zero() && ahead >= half) {
            return;
        }
        if let Some(slots) = self.values.get_mut(key) {
            slots.fill(BigInt::zero());
            slots[last] = window.clone();
        }
    }
}

fn scalar(datum: &Datum) -> Result<&BigInt, Stop> {
    match datum {
        Datum::Number(number) => Ok(number),
        Datum::Undefined => Err(Stop::Undefined("an index, delta or window that was never written".into())),
        Datum::Struct(_) => Err(Stop::Broken("a struct in place of a number".into())),
    }
}

impl Object for Snapshots {
    fn call(&mut self, call: Call<'_>) -> Result<Datum, Stop> {
        let Some((key, rest)) = call.arguments.split_first_mut() else {
            return Err(Stop::Broken(format!("SnapshotState.{} without a key", call.method)));
        };
        let key = self.key.bits(key)?;
        if call.method == "is_overdue" {
            return Ok(result(0));
        }
        if !self.values.contains_key(&key) {
            if self.values.len() >= self.instances {
                return Err(Stop::Unsupported("a SnapshotState that is full".into()));
            }
            self.values.insert(key.clone(), vec![BigInt::zero(); self.slots]);
        }
        match (call.method, rest) {
            ("read", [index, value]) => *value = self.access(&key, index, BigInt::clone)?,
            ("write", [index, value]) => {
                let value = scalar(value)?.clone();
                self.access(&key, index, |_| value.clone())?;
            }
            ("add", [index, delta, sum]) => {
                let delta = scalar(delta)?.clone();
                *sum = self.access(&key, index, |was| was + &delta)?;
            }
            ("add_each", [Datum::Struct(indices), delta, sums]) => {
                let delta = scalar(delta)?.clone();
                let added: Result<Vec<Datum>, Stop> =
                    indices.iter().map(|index| self.access(&key, index, |was| was + &delta)).collect();
                *sums = Datum::Struct(added?);
            }
            ("begin", [window]) => {
                let window = scalar(window)?.clone();
                self.begin(&key, &window);
            }
            (other, _) => return Err(Stop::Unsupported(format!("SnapshotState.{other}"))),
        }
        Ok(result(HIT))
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}
