//! `SnapshotState` on one switch: snapshots, if any are taken, come in time.

use super::{HIT, MISS, number, result};
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, ToPrimitive, Zero};
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Call, Datum, Declaration, Object, Shape};
use std::collections::BTreeMap;

/// Slots. Of snapshots a program sees nothing while no update is overdue.
#[derive(Clone)]
pub(super) struct Snapshots {
    /// A key without room is the program's affair: without snapshots. Else its packets are dropped.
    is_local: bool,
    /// Keys that this switch can hold.
    instances: usize,
    slots: usize,
    key: Shape,
    /// Of a slot.
    width: u32,
    values: BTreeMap<Vec<BigInt>, Vec<BigInt>>,
}

impl Snapshots {
    pub(super) fn new(declaration: &Declaration<'_>) -> Result<Snapshots, Stop> {
        let (name, number) = (declaration.name, |index: usize| number(declaration, index));
        let is_local = number(2) == Some(0);
        match (declaration.types.as_slice(), number(0), number(1)) {
            ([key, Shape::Scalar(width)], Some(instances), Some(slots)) => {
                let (key, width) = (key.clone(), *width);
                Ok(Snapshots { is_local, instances, slots, key, width, values: BTreeMap::new() })
            }
            _ => Err(Stop::Broken(format!(
                "SnapshotState {name} without a key, slots and their type"
            ))),
        }
    }

    /// There is no room for the key (`flows_full`).
    fn full(&self, method: &str, rest: &mut [Datum]) -> Result<Answer, Stop> {
        if !self.is_local {
            return Ok(Answer::Drop);
        }
        // Of a miss, the value says nothing.
        match (method, rest) {
            ("read", [_, out]) | ("add", [_, _, out]) => *out = Datum::Undefined,
            ("add_each", [Datum::Struct(indices), _, out]) => {
                *out = Datum::Struct(vec![Datum::Undefined; indices.len()]);
            }
            _ => {}
        }
        Ok(Answer::Value(result(MISS)))
    }

    fn wrapped(&self, value: &BigInt) -> BigInt {
        value.mod_floor(&(BigInt::one() << self.width))
    }

    /// What becomes of one slot; out of range, 0 is read and nothing written.
    fn access(
        &mut self,
        key: &[BigInt],
        index: &Datum,
        change: impl Fn(&BigInt) -> BigInt,
    ) -> Result<Datum, Stop> {
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
        let was =
            self.values.get(key).and_then(|slots| slots.get(last)).cloned().unwrap_or_default();
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
        Datum::Undefined => {
            Err(Stop::Undefined("an index, delta or window that was never written".into()))
        }
        Datum::Struct(_) => Err(Stop::Broken("a struct in place of a number".into())),
    }
}

impl Object for Snapshots {
    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop> {
        let Some((key, rest)) = call.arguments.split_first_mut() else {
            return Err(Stop::Broken(format!("SnapshotState.{} without a key", call.method)));
        };
        let key = self.key.bits(key)?;
        if call.method == "is_overdue" {
            return Ok(Answer::Value(result(0)));
        }
        if !self.values.contains_key(&key) {
            if self.values.len() >= self.instances {
                return self.full(call.method, rest);
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
                let added: Result<Vec<Datum>, Stop> = indices
                    .iter()
                    .map(|index| self.access(&key, index, |was| was + &delta))
                    .collect();
                *sums = Datum::Struct(added?);
            }
            ("begin", [window]) => {
                let window = scalar(window)?.clone();
                self.begin(&key, &window);
            }
            (other, _) => return Err(Stop::Unsupported(format!("SnapshotState.{other}"))),
        }
        Ok(Answer::Value(result(HIT)))
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}
