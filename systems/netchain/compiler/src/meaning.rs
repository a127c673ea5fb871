//! What a SlotState means on one node, for the interpreters.

mod tags;

use num_bigint::BigInt;
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Call, Datum, Declaration, Object, ObjectKinds, Shape};
use std::collections::BTreeMap;
use tags::Tags;
pub use tags::supply;

/// SlotResult, by position.
const FOUND: u32 = 0;
const ABSENT: u32 = 1;
const DONE: u32 = 2;
const FULL: u32 = 3;

/// NetChain's kinds of objects.
pub struct Meaning;

impl ObjectKinds for Meaning {
    fn extern_types(&self) -> &'static [&'static str] {
        &[crate::SLOT_STATE, crate::MESSAGE_TAG]
    }

    fn declare(&self, declaration: &Declaration<'_>) -> Result<Box<dyn Object>, Stop> {
        if declaration.kind == crate::MESSAGE_TAG {
            return Ok(Box::new(Tags::default()));
        }
        let [key, value] = &declaration.types[..] else {
            return Err(Stop::Broken("a SlotState without two types".into()));
        };
        let size = match declaration.arguments.first() {
            Some(Some(size)) => usize::try_from(size).unwrap_or(usize::MAX),
            _ => return Err(Stop::Broken("a SlotState without a size".into())),
        };
        Ok(Box::new(Slots { key: key.clone(), value: value.clone(), size, held: BTreeMap::new() }))
    }
}

#[derive(Clone)]
struct Slots {
    key: Shape,
    value: Shape,
    size: usize,
    held: BTreeMap<Vec<BigInt>, Datum>,
}

fn answer(result: u32) -> Result<Answer, Stop> {
    Ok(Answer::Value(Datum::Number(result.into())))
}

impl Object for Slots {
    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop> {
        let [key, value] = call.arguments else {
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
