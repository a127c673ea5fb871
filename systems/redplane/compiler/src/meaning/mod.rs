//! What RedPlane's objects mean on one switch, for the interpreters (systems/redplane/docs/).
//!
//! The store is always there, its leases last and no other switch has any, so consistency modes mean the same. Of
//! consistency there is left what becomes of flows for which this switch has no room.

mod flows;
mod snapshots;

use flows::Flows;
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_interpreter::Stop;
use p4_interpreter::object::{Datum, Declaration, Object, ObjectKinds};
use snapshots::Snapshots;
use state_protocol::objects::{FLOW_STATE, SNAPSHOT_STATE};

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

fn number(declaration: &Declaration<'_>, index: usize) -> Option<usize> {
    declaration.arguments.get(index)?.as_ref()?.to_usize()
}

fn result(result: u32) -> Datum {
    Datum::Number(BigInt::from(result))
}
