//! What a SlotState means on one node.

use super::{answer, number, size_of};
use num_bigint::BigInt;
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Call, Datum, Declaration, Object, Shape};
use std::collections::{BTreeMap, VecDeque};

/// SlotResult, by position.
const FOUND: u32 = 0;
const ABSENT: u32 = 1;
const DONE: u32 = 2;
const FULL: u32 = 3;

/// SP_SLOTS_SCAN and SP_SLOTS_END in bpf/netchain/stateplane_slots.h.
const SCAN: u128 = 128;
const END: u128 = 0xffff_ffff;

/// A slot in use.
#[derive(Clone)]
struct Held {
    key: Datum,
    part: u128,
}

#[derive(Clone)]
pub(super) struct Slots {
    key: Shape,
    value: Shape,
    size: usize,
    held: BTreeMap<Vec<BigInt>, Datum>,
    /// By number, and the numbers that were given back.
    numbered: BTreeMap<u128, Held>,
    free: VecDeque<u128>,
    used: u128,
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
            numbered: BTreeMap::new(),
            free: VecDeque::new(),
            used: 0,
            copied: BTreeMap::new(),
        })
    }
}

impl Slots {
    /// A key without a slot gets one.
    fn take(&mut self, key: &Datum, part: u128) {
        let number = self.free.pop_front().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        self.numbered.insert(number, Held { key: key.clone(), part });
    }

    /// The slot of a key is free again.
    fn give_back(&mut self, key: &[BigInt]) -> Result<(), Stop> {
        self.held.remove(key);
        for (&number, held) in &self.numbered {
            if self.key.bits(&held.key)? == key {
                self.numbered.remove(&number);
                self.free.push_back(number);
                return Ok(());
            }
        }
        Ok(())
    }

    /// A step of a walk: the key, and where to go on.
    fn next(&self, wanted: &Wanted, at: u128) -> Result<(Option<Datum>, u128), Stop> {
        for (&number, held) in self.numbered.range(at..at.saturating_add(SCAN)) {
            let key = self.key.bits(&held.key)?;
            let value = self.held.get(&key).map(|value| self.value.bits(value)).transpose()?;
            let last = value.and_then(|value| value.last().map(|last| last & BigInt::from(255)));
            let matches = key
                .iter()
                .zip(&wanted.prefix)
                .zip(&wanted.mask)
                .all(|((key, prefix), mask)| key & mask == prefix & mask);
            if held.part == wanted.part && matches && last != Some(wanted.hidden.into()) {
                return Ok((Some(held.key.clone()), number + 1));
            }
        }
        let next = at.saturating_add(SCAN);
        Ok((None, if next > self.used { END } else { next }))
    }
}

/// What a walk looks for.
struct Wanted {
    part: u128,
    prefix: Vec<BigInt>,
    mask: Vec<BigInt>,
    hidden: u128,
}

impl Object for Slots {
    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop> {
        // (Which number a slot has is for who makes the generated packets to say.)
        match (call.method, &*call.arguments) {
            ("copied", [slot, _, view]) => {
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
        // (The agent empties a slot, too.)
        if let ("free" | "empty", [key]) = (call.method, &*call.arguments) {
            let key = self.key.bits(key)?;
            self.give_back(&key)?;
            return answer(0);
        }
        if let ("next", [part, prefix, mask, hidden, at, key, next]) =
            (call.method, &mut *call.arguments)
        {
            let wanted = Wanted {
                part: number(part)?,
                prefix: self.key.bits(prefix)?,
                mask: self.key.bits(mask)?,
                hidden: number(hidden)?,
            };
            let (found, then) = self.next(&wanted, number(at)?)?;
            let result = if found.is_some() { FOUND } else { ABSENT };
            (*key, *next) = (found.unwrap_or_else(|| self.key.zero()), Datum::Number(then.into()));
            return answer(result);
        }
        let [named, value, rest @ ..] = call.arguments else {
            return Err(Stop::Broken("a method of a SlotState without a value".into()));
        };
        let key = self.key.bits(named)?;
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
                if self.held.insert(key, value.clone()).is_none() {
                    let part = rest.first().map(number).transpose()?;
                    self.take(named, part.unwrap_or_default());
                }
                answer(DONE)
            }
            other => Err(Stop::Unsupported(format!("SlotState.{other}"))),
        }
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}
