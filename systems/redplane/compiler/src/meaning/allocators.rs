//! What gives a flow its first value, by the rules of a switch alone
//! (bpf/redplane/stateplane_flow_access.h).
//!
//! A store chooses by rules of its own: of a FlowState that is not LOCAL, the ports and backends
//! here are a choice that it might make. There is no clock or random number in a choice: outputs
//! can be compared byte by byte.

use super::flows::{Key, Room};
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_interpreter::Stop;
use p4_interpreter::object::{Datum, Shape};

/// `SP_BACKEND_SLOTS`.
const PLACES: u64 = 1024;
/// Choices before it is given up.
const TRIES: u32 = 32;

/// IPv4 address and port.
type Endpoint = (u32, u16);

/// A FlowState's allocator, with what it draws from.
#[derive(Clone)]
pub(super) enum Allocator {
    Zero,
    NatPorts {
        addresses: Vec<u32>,
        low: u16,
        high: u16,
    },
    /// By place; None: no backend.
    Backends(Vec<Option<Endpoint>>),
}

/// A key of NAT_PORTS and BACKENDS.
#[derive(Clone, Copy)]
struct Conversation {
    source: u32,
    destination: u32,
    source_port: u16,
    destination_port: u16,
    protocol: u8,
}

impl Conversation {
    fn of(key: &Key) -> Option<Conversation> {
        let [source, destination, source_port, destination_port, protocol] = key.as_slice() else {
            return None;
        };
        Some(Conversation {
            source: source.to_u32()?,
            destination: destination.to_u32()?,
            source_port: source_port.to_u16()?,
            destination_port: destination_port.to_u16()?,
            protocol: protocol.to_u8()?,
        })
    }

    fn key(self) -> Key {
        vec![
            BigInt::from(self.source),
            BigInt::from(self.destination),
            BigInt::from(self.source_port),
            BigInt::from(self.destination_port),
            BigInt::from(self.protocol),
        ]
    }

    /// Source, destination and ports as a little-endian machine reads them where they lie in
    /// network order.
    fn words(self) -> [u32; 3] {
        let ports = u32::from(self.source_port) << 16 | u32::from(self.destination_port);
        [self.source, self.destination, ports].map(u32::swap_bytes)
    }
}

fn value((address, port): Endpoint) -> Datum {
    Datum::Struct(vec![Datum::Number(BigInt::from(address)), Datum::Number(BigInt::from(port))])
}

/// The next hash: a linear congruence.
fn next(hash: u32) -> u32 {
    hash.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
}

impl Allocator {
    /// By its place in `Allocator` of stateplane/redplane.p4, for keys and values that it can work
    /// with.
    pub fn new(number: Option<usize>, key: &Shape, value: &Shape) -> Option<Allocator> {
        let shape = |widths: &[u32]| {
            Shape::Struct(widths.iter().map(|width| Shape::Scalar(*width)).collect())
        };
        let fits = *key == shape(&[32, 32, 16, 16, 8]) && *value == shape(&[32, 16]);
        match number? {
            0 => Some(Allocator::Zero),
            1 if fits => Some(Allocator::NatPorts { addresses: Vec::new(), low: 0, high: 0 }),
            2 if fits => Some(Allocator::Backends(Vec::new())),
            _ => None,
        }
    }

    pub fn is_zero(&self) -> bool {
        matches!(self, Allocator::Zero)
    }

    /// `nat_pool`: the lowest and the highest port, and addresses. `backends`: of each its address,
    /// port and weight.
    pub fn supply(&mut self, what: &str, numbers: &[u64]) -> Result<(), Stop> {
        let wrong = || Stop::Broken(format!("{what} of {numbers:?}"));
        let small = |number: &u64| u16::try_from(*number).map_err(|_| wrong());
        let address = |number: &u64| u32::try_from(*number).map_err(|_| wrong());
        match (self, what) {
            (Allocator::NatPorts { addresses, low, high }, "nat_pool") => {
                let [lowest, highest, rest @ ..] = numbers else { return Err(wrong()) };
                (*low, *high) = (small(lowest)?, small(highest)?);
                *addresses = rest.iter().map(address).collect::<Result<_, Stop>>()?;
                Ok(())
            }
            (Allocator::Backends(places), "backends") => {
                let mut weighed = Vec::new();
                for backend in numbers.chunks(3) {
                    let [to, port, weight] = backend else { return Err(wrong()) };
                    weighed.push(((address(to)?, small(port)?), *weight));
                }
                *places = shared_out(&weighed);
                Ok(())
            }
            _ => {
                Err(Stop::Unsupported(format!("{what} for a FlowState that does not draw from it")))
            }
        }
    }

    /// A value for a flow that has none. None: there is none to be had.
    pub fn allocate(&self, room: &mut Room, key: &Key, zero: Datum) -> Result<Option<Datum>, Stop> {
        let chosen: Vec<(Conversation, Endpoint, Endpoint)> = match (self, Conversation::of(key)) {
            (Allocator::Zero, _) => return Ok(room.add(key, zero.clone()).then_some(zero)),
            (Allocator::NatPorts { addresses, low, high }, Some(inner)) => {
                let choices = external(inner, addresses, *low, *high);
                choices
                    .into_iter()
                    .map(|chosen| (reverse_nat(inner, chosen), chosen, inner_end(inner)))
                    .collect()
            }
            (Allocator::Backends(places), Some(client)) => {
                let virtual_end = (client.destination, client.destination_port);
                let choices =
                    backends(client, places).into_iter().filter(|chosen| *chosen != virtual_end);
                choices
                    .map(|chosen| (reverse_backend(client, chosen), chosen, virtual_end))
                    .collect()
            }
            (_, None) => {
                return Err(Stop::Broken("a key of an allocator with other fields".into()));
            }
        };
        for (reverse, chosen, back) in chosen {
            let reverse = reverse.key();
            if reverse == *key {
                return Err(Stop::Unsupported("a conversation that is its own reverse".into()));
            }
            // The way back first; its key is taken, or there is no room: the next choice.
            if room.add(&reverse, value(back)) {
                let made = room.add(key, value(chosen));
                if !made {
                    room.values.remove(&reverse);
                }
                return Ok(made.then(|| value(chosen)));
            }
        }
        Ok(None)
    }
}

/// A place belongs to the backend in whose part of the summed weights its middle lies.
fn shared_out(weighed: &[(Endpoint, u64)]) -> Vec<Option<Endpoint>> {
    let total: u64 = weighed.iter().map(|(_, weight)| weight).sum();
    let place = |index: u64| {
        let mut end = 0;
        weighed.iter().find_map(|(backend, weight)| {
            end += weight * 2 * PLACES;
            ((2 * index + 1) * total < end).then_some(*backend)
        })
    };
    (0..PLACES).map(place).collect()
}

fn inner_end(inner: Conversation) -> Endpoint {
    (inner.source, inner.source_port)
}

/// As a returning packet looks.
fn reverse_nat(inner: Conversation, (address, port): Endpoint) -> Conversation {
    Conversation {
        source: inner.destination,
        destination: address,
        source_port: inner.destination_port,
        destination_port: port,
        protocol: inner.protocol,
    }
}

/// That of the backend's answers: the same client, another server.
fn reverse_backend(client: Conversation, (address, port): Endpoint) -> Conversation {
    Conversation { destination: address, destination_port: port, ..client }
}

/// External ends, in the order in which they are tried: an inside address keeps its external one
/// (RFC 4787, REQ-2), and its port if that is in the pool and free.
fn external(inner: Conversation, addresses: &[u32], low: u16, high: u16) -> Vec<Endpoint> {
    if addresses.is_empty() || high < low {
        return Vec::new();
    }
    let [source, destination, ports] = inner.words();
    let mut hash = source.wrapping_mul(0x9e37_79b1);
    let address = addresses[(hash >> 16) as usize % addresses.len()];
    hash ^= destination ^ ports.wrapping_mul(0x85eb_ca6b);
    let (mut choices, ports) = (Vec::new(), u32::from(high - low) + 1);
    for attempt in 0..TRIES {
        if attempt == 0 && (low..=high).contains(&inner.source_port) {
            choices.push((address, inner.source_port));
            continue;
        }
        hash = next(hash);
        choices.push((address, low + ((hash >> 8) % ports) as u16));
    }
    choices
}

/// Backends in the order in which they are tried, from the key's hash on.
fn backends(client: Conversation, places: &[Option<Endpoint>]) -> Vec<Endpoint> {
    let [source, destination, ports] = client.words();
    let mut hash = source.wrapping_mul(0x9e37_79b1);
    hash = (hash ^ destination).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ ports ^ (hash >> 15)).wrapping_mul(0xc2b2_ae35);
    hash = (hash ^ u32::from(client.protocol) ^ (hash >> 13)).wrapping_mul(0x27d4_eb2f);
    let mut choices = Vec::new();
    for _ in 0..TRIES {
        choices.extend(places.get((hash >> 22) as usize).copied().flatten());
        hash = next(hash);
    }
    choices
}
