//! What RedPlane's objects mean on one switch, for the interpreters (systems/redplane/docs/).
//!
//! The store is always there, its leases last and no other switch has any, so consistency modes
//! mean the same. Of consistency there is left what becomes of flows for which this switch has no
//! room.

mod allocators;
mod flows;
mod snapshots;

use flows::Flows;
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_interpreter::Stop;
use p4_interpreter::object::{Datum, Declaration, Object, ObjectKinds};
use snapshots::Snapshots;
use state_protocol::objects::{FLOW_STATE, SNAPSHOT_STATE};
use std::net::{Ipv4Addr, SocketAddrV4};

/// `StateResult` in stateplane/redplane.p4, by position.
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

/// What `Object::supply` takes as `nat_pool`: addresses, and ports with both ends included.
pub fn nat_pool(addresses: &[Ipv4Addr], low: u16, high: u16) -> Vec<u64> {
    let addresses = addresses.iter().map(|address| u64::from(address.to_bits()));
    [low, high].into_iter().map(u64::from).chain(addresses).collect()
}

/// What `Object::supply` takes as `backends`: each with its weight.
pub fn backends(backends: &[(SocketAddrV4, u32)]) -> Vec<u64> {
    let numbers = |(to, weight): &(SocketAddrV4, u32)| {
        [u64::from(to.ip().to_bits()), u64::from(to.port()), u64::from(*weight)]
    };
    backends.iter().flat_map(numbers).collect()
}

fn number(declaration: &Declaration<'_>, index: usize) -> Option<usize> {
    declaration.arguments.get(index)?.as_ref()?.to_usize()
}

fn result(result: u32) -> Datum {
    Datum::Number(BigInt::from(result))
}
