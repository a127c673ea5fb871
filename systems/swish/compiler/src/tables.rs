//! What SharedTable, SharedRegister and SharedSet with SRO or EWO mean on a switch that shares with
//! nobody, for the interpreters: a packet's writes take effect at its end.

use crate::meaning::supply;
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Call, Datum, Declaration, Object, Shape};
use std::collections::BTreeMap;
use swish_protocol::objects::{REGISTER, SET};

/// A key's bits.
type Key = Vec<BigInt>;

/// A table, or a register as a table with numbers as keys.
#[derive(Clone)]
pub(crate) struct Table {
    is_register: bool,
    key: Shape,
    value: Shape,
    size: usize,
    held: BTreeMap<Key, Datum>,
    /// Of the packet that is under way; `None`: the key is removed.
    noted: Vec<(Key, Option<Datum>)>,
}

impl Table {
    pub(crate) fn declare(declaration: &Declaration<'_>) -> Result<Table, Stop> {
        let is_register = declaration.kind == REGISTER;
        let size = declaration.arguments.first().and_then(Option::as_ref);
        let size = size.and_then(ToPrimitive::to_usize);
        let size =
            size.ok_or_else(|| Stop::Broken(format!("a {} without a size", declaration.kind)))?;
        let (key, value) = match &declaration.types[..] {
            [key, value] if !is_register => (key.clone(), value.clone()),
            [value] if is_register => (Shape::Scalar(32), value.clone()),
            [key] if declaration.kind == SET => (key.clone(), Shape::Scalar(1)),
            _ => return Err(Stop::Broken(format!("other types of a {}", declaration.kind))),
        };
        Ok(Table { is_register, key, value, size, held: BTreeMap::new(), noted: vec![] })
    }

    fn settle(&mut self) {
        for (key, value) in std::mem::take(&mut self.noted) {
            match value {
                Some(value) => self.held.insert(key, value),
                None => self.held.remove(&key),
            };
        }
    }

    fn note_write(&mut self, key: Key, value: Datum, if_absent: bool) -> Result<(), Stop> {
        let has = self.held.contains_key(&key);
        let new = self.noted.iter().filter(|(key, _)| !self.held.contains_key(key)).count();
        if !has && self.held.len() + new >= self.size && self.is_in_range(&key) {
            return Err(Stop::Undefined("what a packet does to a full table".into()));
        }
        if self.is_in_range(&key) && !(if_absent && has) {
            self.noted.push((key, Some(value)));
        }
        Ok(())
    }

    fn is_in_range(&self, key: &Key) -> bool {
        !self.is_register || key.first().and_then(ToPrimitive::to_usize) < Some(self.size)
    }
}

impl Object for Table {
    fn begin_packet(&mut self, _: &[u8], _: u64) {
        self.settle();
    }

    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop> {
        let nothing = Ok(Answer::Value(Datum::Number(0.into())));
        let Some((first, rest)) = call.arguments.split_first_mut() else {
            return Err(Stop::Broken(format!("{} without a key", call.method)));
        };
        let key = self.key.bits(first)?;
        match (call.method, rest) {
            ("get" | "read", [value]) => {
                let held = self.held.get(&key);
                *value = held.cloned().unwrap_or_else(|| self.value.zero());
                Ok(Answer::Value(Datum::Number(u8::from(held.is_some()).into())))
            }
            ("has", []) => {
                let held = self.held.contains_key(&key);
                Ok(Answer::Value(Datum::Number(u8::from(held).into())))
            }
            ("add", []) => {
                self.note_write(key, Datum::Number(1.into()), false)?;
                nothing
            }
            // (Here no time passes.)
            ("insert" | "set" | "write", [value] | [value, _]) => {
                // (A field that was never written is an error where it is used as a key only.)
                self.value.bits(value)?;
                self.note_write(key, value.clone(), call.method == "insert")?;
                nothing
            }
            ("remove", []) => {
                self.noted.push((key, None));
                nothing
            }
            (other, _) => Err(Stop::Unsupported(format!("{other} of a shared table"))),
        }
    }

    fn abandon_packet(&mut self) {
        self.noted.clear();
    }

    fn supply(&mut self, what: &str, numbers: &[u64]) -> Result<(), Stop> {
        if what != supply::ENTRY {
            return Err(Stop::Unsupported(format!("{what} for a shared table")));
        }
        let fields = |shape: &Shape| match shape {
            Shape::Scalar(_) => 1,
            Shape::Struct(fields) => fields.len(),
        };
        let (key, value) = numbers.split_at(numbers.len().min(fields(&self.key)));
        let key: Key = key.iter().map(|it| BigInt::from(*it)).collect();
        let value: Vec<Datum> = value.iter().map(|it| Datum::Number((*it).into())).collect();
        let value = if self.value == Shape::Scalar(1) {
            Datum::Number(1.into())
        } else {
            Datum::Struct(value)
        };
        self.value.bits(&value)?;
        self.held.insert(key, value);
        Ok(())
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}
