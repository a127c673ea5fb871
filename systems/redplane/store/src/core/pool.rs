//! What an object gives to flows that are created: a NAT's ports, or a load balancer's backends.
//! Either makes pairs of records of the same form.

use super::backends::{self, BackendPool};
use super::nat::{self, NatKey, PortPool};
use super::rng::SplitMix64;
use super::settings::AllocatorSettings;

/// An object's pool: a function of its records, and so the same on every server of a chain.
pub enum Pool {
    /// NAT_PORTS
    Ports(PortPool),
    /// BACKENDS
    Backends(BackendPool),
}

/// A chosen binding with its reverse: values, and the reverse's key.
pub struct Binding {
    /// The value of the key that was asked for.
    pub value: [u8; nat::VALUE_BYTES],
    /// The key of the other direction.
    pub reverse_key: [u8; nat::KEY_BYTES],
    /// Its value.
    pub reverse_value: [u8; nat::VALUE_BYTES],
}

impl Pool {
    /// The empty pool of an allocator; `None`: it needs none.
    pub fn new(allocator: &AllocatorSettings) -> Option<Pool> {
        match allocator {
            AllocatorSettings::Zero { .. } | AllocatorSettings::Snapshot { .. } => None,
            AllocatorSettings::NatPorts(nat) => {
                let external = nat.external.iter().map(|address| address.to_bits()).collect();
                Some(Pool::Ports(PortPool::new(external, nat.ports.clone())))
            }
            AllocatorSettings::Backends(settings) => {
                Some(Pool::Backends(BackendPool::new(settings.policy)))
            }
        }
    }

    /// Pairs made from it.
    pub fn in_use(&self) -> usize {
        match self {
            Pool::Ports(ports) => ports.in_use(),
            Pool::Backends(backends) => backends.in_use(),
        }
    }

    /// A pair with this reverse key was made.
    pub fn insert(&mut self, reverse: &NatKey) {
        match self {
            Pool::Ports(ports) => ports.insert(reverse),
            Pool::Backends(backends) => backends.insert(reverse),
        }
    }

    /// A pair with this reverse key is no more.
    pub fn remove(&mut self, reverse: &NatKey) {
        match self {
            Pool::Ports(ports) => ports.remove(reverse),
            Pool::Backends(backends) => backends.remove(reverse),
        }
    }

    /// A binding for a key that has none; `None`: there is nothing left. `unusable` says whether a
    /// reverse key cannot be had.
    pub fn choose(
        &self,
        key: &NatKey,
        rng: &mut SplitMix64,
        unusable: impl Fn(&NatKey) -> bool,
    ) -> Option<Binding> {
        match self {
            Pool::Ports(ports) => {
                let (address, port) = ports.choose(key, rng, unusable)?;
                Some(Binding {
                    value: nat::value_bytes(address, port),
                    reverse_key: key.reverse(address, port).to_bytes(),
                    reverse_value: nat::value_bytes(key.source, key.source_port),
                })
            }
            Pool::Backends(pool) => {
                let (address, port) = pool.choose(key, rng, unusable)?;
                Some(Binding {
                    value: nat::value_bytes(address, port),
                    reverse_key: backends::reverse(key, address, port).to_bytes(),
                    reverse_value: nat::value_bytes(key.destination, key.destination_port),
                })
            }
        }
    }
}
