//! What a SlotState means on one node.

use super::{answer, number, size_of};
use num_bigint::BigInt;
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Call, Datum, Declaration, Object, Shape};
use std::collections::BTreeMap;

/// SlotResult, by position.
const FOUND: u32 = 0;
const ABSENT: u32 = 1;
const DONE: u32 = 2;
const FULL: u32 = 3;

#[derive(Clone)]
pub(super) struct Slots {
    key: Shape,
    value: Shape,
    size: usize,
    held: BTreeMap<Vec<BigInt>, Datum>,
    /// By number: the view in which another switch has acknowledged the slot.
    copied: BTreeMap<u128, u128>,
}

impl Slots {
    pub(super) fn declare(declaration: &Declaration<'_>) -> Result<Slots, Stop> {
        let [key, value] = &declaration.types[..] else {
            return Err(Stop::Broken("a SlotState without two types".into()));
        };
        let size = size_of(declaration)?;
        Ok(Slots {
            key: key.clone(),
            value: value.clone(),
            size,
            held: BTreeMap::new(),
            copied: BTreeMap::new(),
        })
    }
}

impl Object for Slots {
    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop> {
        // (Which number a slot has is for who makes the generated packets to say.)
        match (call.method, &*call.arguments) {
            ("copied", [slot, view]) => {
                self.copied.insert(number(slot)?, number(view)?);
                return answer(0);
            }
            // Not the program's: who looks from outside asks.
            ("copied_view", [slot]) => {
                let view = self.copied.get(&number(slot)?).copied().unwrap_or_default();
                return answer(u32::try_from(view).unwrap_or_default());
            }
            _ => {}
        }
        // Nor this: the agent empties a slot.
        if let ("empty", [key]) = (call.method, &*call.arguments) {
            self.held.remove(&self.key.bits(key)?);
            return answer(0);
        }
        let [key, value, ..] = call.arguments else {
            return Err(Stop::Broken("a method of a SlotState without a value".into()));
        };
        let key = self.key.bits(key)?;
        match call.method {
            "read" => {
                let found = self.held.get(&key);
                *value = found.cloned().unwrap_or_else(|| self.value.zero());
                answer(if found.is_some() { FOUND } else { ABSENT })
            }
            "write" => {
                if !self.held.contains_key(&key) && self.held.len() >= self.size {
                    return answer(FULL);
                }
                self.held.insert(key, value.clone());
                answer(DONE)
            }
            other => Err(Stop::Unsupported(format!("SlotState.{other}"))),
        }
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}
