//! `FlowState` with `Consistency.LOCAL` and `Allocator.ZERO` (stateplane.p4): a map of this switch alone.

use crate::externs::operand;
use crate::value::{Value, pattern, width};
use crate::{Interpreter, Run, Stop, broken};
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_ir::{Argument, ConstArgument, Expr, ExternId, ExternInstance, Program, Type};
use std::collections::BTreeMap;

/// Ordinals of stateplane.p4's `StateResult`.
const HIT: u32 = 0;
const MISS: u32 = 1;

/// The flows of one object.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    /// As many as this switch can hold.
    size: usize,
    /// By the fields of the key, as bits.
    values: BTreeMap<Vec<BigInt>, Value>,
    /// The type of a value.
    value_type: Type,
}

impl Flows {
    /// The error says what of the object is not interpreted.
    pub fn new(program: &Program, instance: &ExternInstance) -> Result<Flows, Stop> {
        let ordinal = |index: usize| match instance.arguments.get(index) {
            Some(ConstArgument::Value(value, _)) => value.to_usize(),
            _ => None,
        };
        // LOCAL and ZERO are the first of their enums.
        if (ordinal(1), ordinal(2)) != (Some(0), Some(0)) {
            return Err(Stop::Unsupported(format!("FlowState {}, which is not LOCAL and ZERO", instance.name)));
        }
        let Some(value_type @ Type::Struct(_)) = instance.type_arguments.get(1) else {
            return Err(Stop::Broken(format!("FlowState {} without a struct as its value", instance.name)));
        };
        // Made here, so that nothing can be amiss later.
        crate::value::initial(program, value_type, true)?;
        Ok(Flows { size: ordinal(0).unwrap_or(0), values: BTreeMap::new(), value_type: value_type.clone() })
    }
}

impl Interpreter<'_> {
    /// `get`, `get_or_allocate`, `set`
    pub(crate) fn flow(&mut self, id: ExternId, name: &str, arguments: &[Argument], result: Option<&Expr>) -> Run<()> {
        let key = self.flow_key(operand(arguments, 0)?)?;
        let Some(flows) = self.flows.get(&id) else { return broken("a FlowState that is none") };
        let known = flows.values.contains_key(&key);
        match name {
            "get" | "get_or_allocate" => {
                if name == "get_or_allocate" && !known {
                    if flows.values.len() >= flows.size {
                        return Err(Stop::Unsupported("a FlowState that is full".into()).into());
                    }
                    let zero = crate::value::initial(self.program, &flows.value_type, true)?;
                    self.flows.get_mut(&id).and_then(|flows| flows.values.insert(key.clone(), zero));
                }
                let found = self.flows.get(&id).and_then(|flows| flows.values.get(&key)).cloned();
                let hit = found.is_some();
                if !matches!(arguments.get(1), Some(Argument::DontCare)) {
                    let target = operand(arguments, 1)?;
                    // Of a miss, the value says nothing.
                    let value = match found {
                        Some(value) => value,
                        None => crate::value::initial(self.program, &target.ty, false)?,
                    };
                    let place = self.place(target)?;
                    self.store(&place, value)?;
                }
                match result {
                    Some(target) => self.store_number(target, &BigInt::from(if hit { HIT } else { MISS })),
                    None => Ok(()),
                }
            }
            "set" if known => {
                let value = self.eval(operand(arguments, 1)?)?;
                self.flows.get_mut(&id).and_then(|flows| flows.values.insert(key, value));
                Ok(())
            }
            other => Err(Stop::Unsupported(format!("FlowState.{other} (of a flow that is there: {known})")).into()),
        }
    }

    fn flow_key(&mut self, expr: &Expr) -> Run<Vec<BigInt>> {
        let Type::Struct(id) = expr.ty else { return broken("a key that is no struct") };
        let fields = &self.program.struct_types[id.index()].fields;
        let Value::Struct(values) = self.eval(expr)? else { return broken("a key that is no struct") };
        let bits = |(value, field): (&Value, &p4_ir::Field)| match (value, width(&field.ty)) {
            (Value::Scalar(number), Some(width)) => Ok(pattern(number, width)),
            (Value::Undefined, _) => crate::undefined("a key with a field that was never written"),
            _ => broken("a key with something else than scalars"),
        };
        values.iter().zip(fields).map(bits).collect()
    }
}
