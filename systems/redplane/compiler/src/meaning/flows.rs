//! `FlowState` on one switch.

use super::allocators::Allocator;
use super::{HIT, MISS, number, result};
use num_bigint::BigInt;
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Call, Datum, Declaration, Object, Shape};
use std::collections::BTreeMap;

/// The fields of a key, as bits.
pub(super) type Key = Vec<BigInt>;

/// Flows and their values: what this switch has room for.
#[derive(Clone)]
pub(super) struct Room {
    size: usize,
    pub values: BTreeMap<Key, Datum>,
}

impl Room {
    /// A flow that is new; false: it is not, or there is no room.
    pub fn add(&mut self, key: &Key, value: Datum) -> bool {
        let has_room = self.values.len() < self.size && !self.values.contains_key(key);
        if has_room {
            self.values.insert(key.clone(), value);
        }
        has_room
    }
}

/// A map.
#[derive(Clone)]
pub(super) struct Flows {
    /// `Consistency.LOCAL`: the program sees that there is no room.
    is_local: bool,
    allocator: Allocator,
    room: Room,
    key: Shape,
    value: Shape,
    /// The key of this packet's last lookup.
    last: Option<Key>,
    /// What this packet has set, and the value before: `set`s take effect at the packet's end.
    before: Option<(Key, Datum)>,
    /// A flow of which this packet has learnt that there is none.
    missed: Option<Key>,
}

impl Flows {
    pub(super) fn new(declaration: &Declaration<'_>) -> Result<Flows, Stop> {
        let name = declaration.name;
        let [key, value @ Shape::Struct(_)] = declaration.types.as_slice() else {
            return Err(Stop::Broken(format!(
                "FlowState {name} without a key and a struct as its value"
            )));
        };
        let Some(allocator) = Allocator::new(number(declaration, 2), key, value) else {
            return Err(Stop::Broken(format!(
                "FlowState {name}, whose allocator cannot make its values"
            )));
        };
        Ok(Flows {
            allocator,
            // LOCAL too.
            is_local: number(declaration, 1) == Some(0),
            room: Room { size: number(declaration, 0).unwrap_or(0), values: BTreeMap::new() },
            key: key.clone(),
            value: value.clone(),
            last: None,
            before: None,
            missed: None,
        })
    }

    fn get(&mut self, key: Key, allocates: bool, value: &mut Datum) -> Result<Answer, Stop> {
        let known = self.room.values.get(&key).cloned();
        if known.is_none()
            && !self.is_local
            && self.missed.as_ref().is_some_and(|missed| *missed != key)
        {
            return Err(Stop::Undefined("a second flow without a record, on one packet".into()));
        }
        let found = match known {
            None if allocates => {
                self.allocator.allocate(&mut self.room, &key, self.value.zero())?
            }
            known => known,
        };
        if found.is_none() {
            self.missed = Some(key.clone());
        }
        self.last = Some(key);
        let answer = match &found {
            Some(_) => Answer::Value(result(HIT)),
            // Of a pair of flows, a store that has nothing left says so.
            None if allocates && !self.is_local && self.allocator.is_zero() => Answer::Abandon,
            None => Answer::Value(result(MISS)),
        };
        // Of a miss, the value says nothing.
        *value = found.unwrap_or_else(|| self.value.undefined());
        Ok(answer)
    }
}

impl Flows {
    fn set(&mut self, key: Key, value: &Datum) -> Answer {
        let follows = match &self.before {
            // A packet sets one flow.
            Some((first, _)) => *first == key,
            // Else there is no value that this one could follow from.
            None => self.last.as_ref() == Some(&key),
        };
        if !follows {
            return Answer::Abandon; // `commit_conflicts`
        }
        if let Some(before) = self.room.values.insert(key.clone(), value.clone()) {
            self.before.get_or_insert((key, before));
        }
        Answer::Value(Datum::Undefined)
    }
}

impl Object for Flows {
    fn begin_packet(&mut self, _: &[u8], _: u64) {
        (self.last, self.missed, self.before) = (None, None, None);
    }

    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop> {
        let [key, second] = call.arguments else {
            return Err(Stop::Broken(format!("FlowState.{} without two arguments", call.method)));
        };
        let key = self.key.bits(key)?;
        let known = self.room.values.contains_key(&key);
        match call.method {
            "get" | "get_or_allocate" => self.get(key, call.method == "get_or_allocate", second),
            "set" if known || self.before.is_some() => Ok(self.set(key, second)),
            // No program sees it before a sweep, and there is none here.
            "phase" => Ok(Answer::Value(Datum::Undefined)),
            other => Err(Stop::Unsupported(format!(
                "FlowState.{other} (of a flow that is there: {known})"
            ))),
        }
    }

    fn abandon_packet(&mut self) {
        if let Some((key, before)) = self.before.take() {
            self.room.values.insert(key, before);
        }
    }

    fn supply(&mut self, what: &str, numbers: &[u64]) -> Result<(), Stop> {
        self.allocator.supply(what, numbers)
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}
