//! `FlowState` with `Consistency.LOCAL` and `Allocator.ZERO` (stateplane.p4): a map of this switch alone.

use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_check::ty::Ty;
use std::collections::BTreeMap;

use super::data::{Data, initial, scalar_bits};
use super::externs::External;
use super::number::pattern;
use super::{Run, Tree, broken, undefined, unsupported};

/// Ordinals of stateplane.p4's `StateResult`.
const HIT: u32 = 0;
const MISS: u32 = 1;

/// The flows of one object.
#[derive(Clone)]
pub(crate) struct Flows {
    /// As many as this switch can hold.
    size: usize,
    /// By the fields of the key, as bits.
    values: BTreeMap<Vec<BigInt>, Data>,
    key: Ty,
    value: Ty,
}

impl Flows {
    pub fn new(name: &str, types: &[Ty], arguments: &[Data]) -> Run<Flows> {
        let ordinal = |index: usize| match arguments.get(index) {
            Some(Data::Number(value)) => value.to_usize(),
            _ => None,
        };
        // LOCAL and ZERO are the first of their enums.
        if (ordinal(1), ordinal(2)) != (Some(0), Some(0)) {
            return unsupported(format!("FlowState {name}, which is not LOCAL and ZERO"));
        }
        match types {
            [key, value] => Ok(Flows {
                size: ordinal(0).unwrap_or(0),
                values: BTreeMap::new(),
                key: key.clone(),
                value: value.clone(),
            }),
            _ => broken(format!("FlowState {name} without types")),
        }
    }
}

impl Tree<'_> {
    /// `get`, `get_or_allocate`, `set`: the result, and the parameters as they are then.
    pub(crate) fn flow(&mut self, index: usize, name: &str, arguments: &mut [Data]) -> Run<Data> {
        let hir = self.hir;
        let External::Flow(flows) = &mut self.externals[index] else { return broken("a FlowState that is none") };
        let mut key = Vec::new();
        fields(hir, &arguments[0], &flows.key, &mut key)?;
        let known = flows.values.contains_key(&key);
        match name {
            "get" | "get_or_allocate" => {
                if name == "get_or_allocate" && !known {
                    if flows.values.len() >= flows.size {
                        return unsupported("a FlowState that is full");
                    }
                    flows.values.insert(key.clone(), initial(hir, &flows.value, true));
                }
                let found = flows.values.get(&key).cloned();
                let result = if found.is_some() { HIT } else { MISS };
                // Of a miss, the value says nothing.
                arguments[1] = found.unwrap_or_else(|| initial(hir, &flows.value, false));
                Ok(Data::Number(BigInt::from(result)))
            }
            "set" if known => {
                flows.values.insert(key, arguments[1].clone());
                Ok(Data::Undefined)
            }
            other => unsupported(format!("FlowState.{other} (of a flow that is there: {known})")),
        }
    }
}

fn fields(hir: &p4_check::hir::Hir, data: &Data, ty: &Ty, out: &mut Vec<BigInt>) -> Run<()> {
    match (data, ty) {
        (Data::Struct(parts), Ty::Record(id, args)) => {
            let types = hir.fields_of(*id, args);
            parts.iter().zip(&types).try_for_each(|(part, (_, ty))| fields(hir, part, ty, out))
        }
        (Data::Number(value), ty) => {
            out.push(scalar_bits(hir, ty).map_or(value.clone(), |(width, _)| pattern(value, width)));
            Ok(())
        }
        (Data::Undefined, _) => undefined("a key with a field that was never written"),
        _ => broken("a key with something else than scalars"),
    }
}
