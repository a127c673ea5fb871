//! What RedPlane's objects mean on one switch, for the interpreters (systems/redplane/docs/).

use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_interpreter::Stop;
use p4_interpreter::object::{Call, Datum, Declaration, Object, ObjectKinds, Shape};
use state_protocol::objects::FLOW_STATE;
use std::collections::BTreeMap;

/// `StateResult` in stateplane.p4, by position.
const HIT: u32 = 0;
const MISS: u32 = 1;

/// RedPlane's kinds of objects.
pub struct Meaning;

impl ObjectKinds for Meaning {
    fn extern_types(&self) -> &'static [&'static str] {
        &[FLOW_STATE]
    }

    fn declare(&self, declaration: &Declaration<'_>) -> Result<Box<dyn Object>, Stop> {
        Ok(Box::new(Flows::new(declaration)?))
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

impl Flows {
    fn new(declaration: &Declaration<'_>) -> Result<Flows, Stop> {
        let name = declaration.name;
        let number = |index: usize| declaration.arguments.get(index)?.as_ref()?.to_usize();
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
                let (value, result) = self.get(key, call.method == "get_or_allocate")?;
                *second = value;
                Ok(Datum::Number(BigInt::from(result)))
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
