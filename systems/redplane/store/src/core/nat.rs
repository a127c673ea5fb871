//! The NAT port pool: which external ports are taken towards which remote end.
//!
//! Mapping is endpoint-dependent (RFC 4787 §4.1): one external port serves many flows as long as
//! their remote ends differ, so the pool is kept per remote end. It is a function of the records:
//! every server of a chain keeps the same one.

use super::mutation::{self, Mutation};
use super::rng::SplitMix64;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Bytes of a NAT key: source address, destination address, source port, destination port,
/// protocol.
pub const KEY_BYTES: usize = 13;
/// Bytes of a NAT value: address, port.
pub const VALUE_BYTES: usize = 6;
const RANDOM_PROBES: usize = 8;
const FEW_PORTS: usize = 32;

/// A NAT key, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatKey {
    /// Source address.
    pub source: u32,
    /// Destination address.
    pub destination: u32,
    /// Source port; ICMP echo from the inside: the identifier; from the outside: 0.
    pub source_port: u16,
    /// Destination port; ICMP echo from the inside: 0; from the outside: the identifier.
    pub destination_port: u16,
    /// IP protocol.
    pub protocol: u8,
}

impl NatKey {
    /// From a key's bytes; `None` when they are not 13.
    pub fn from_bytes(bytes: &[u8]) -> Option<NatKey> {
        let bytes: &[u8; KEY_BYTES] = bytes.try_into().ok()?;
        let [s0, s1, s2, s3, d0, d1, d2, d3, sp0, sp1, dp0, dp1, protocol] = *bytes;
        Some(NatKey {
            source: u32::from_be_bytes([s0, s1, s2, s3]),
            destination: u32::from_be_bytes([d0, d1, d2, d3]),
            source_port: u16::from_be_bytes([sp0, sp1]),
            destination_port: u16::from_be_bytes([dp0, dp1]),
            protocol,
        })
    }

    /// The key's bytes.
    pub fn to_bytes(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[0..4].copy_from_slice(&self.source.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.destination.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.destination_port.to_be_bytes());
        bytes[12] = self.protocol;
        bytes
    }

    /// The key of packets that come back to `address` and `port`.
    pub fn reverse(self, address: u32, port: u16) -> NatKey {
        NatKey {
            source: self.destination,
            destination: address,
            source_port: self.destination_port,
            destination_port: port,
            protocol: self.protocol,
        }
    }
}

/// A NAT value's bytes.
pub fn value_bytes(address: u32, port: u16) -> [u8; VALUE_BYTES] {
    let [a, b, c, d] = address.to_be_bytes();
    let [e, f] = port.to_be_bytes();
    [a, b, c, d, e, f]
}

/// One external address as one remote end sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Remote {
    external: u32,
    address: u32,
    port: u16,
    protocol: u8,
}

impl Remote {
    fn of(reverse: &NatKey) -> Remote {
        Remote {
            external: reverse.destination,
            address: reverse.source,
            port: reverse.source_port,
            protocol: reverse.protocol,
        }
    }
}

/// The ports taken towards one remote end.
enum PortSet {
    Few(Vec<u16>),
    Many { words: Box<[u64; 1024]>, count: u32 },
}

impl Default for PortSet {
    fn default() -> PortSet {
        PortSet::Few(Vec::new())
    }
}

impl PortSet {
    fn count(&self) -> usize {
        match self {
            PortSet::Few(ports) => ports.len(),
            PortSet::Many { count, .. } => *count as usize,
        }
    }

    fn contains(&self, port: u16) -> bool {
        match self {
            PortSet::Few(ports) => ports.contains(&port),
            PortSet::Many { words, .. } => words[usize::from(port / 64)] >> (port % 64) & 1 == 1,
        }
    }

    fn insert(&mut self, port: u16) {
        if self.contains(port) {
            return;
        }
        if let PortSet::Few(ports) = self {
            if ports.len() < FEW_PORTS {
                ports.push(port);
                return;
            }
            let mut words = Box::new([0; 1024]);
            for port in ports.iter() {
                words[usize::from(port / 64)] |= 1u64 << (port % 64);
            }
            *self = PortSet::Many { words, count: FEW_PORTS as u32 };
        }
        if let PortSet::Many { words, count } = self {
            words[usize::from(port / 64)] |= 1 << (port % 64);
            *count += 1;
        }
    }

    fn remove(&mut self, port: u16) {
        match self {
            PortSet::Few(ports) => ports.retain(|own| *own != port),
            PortSet::Many { words, count } => {
                let word = &mut words[usize::from(port / 64)];
                *count -= (*word >> (port % 64) & 1) as u32;
                *word &= !(1 << (port % 64));
            }
        }
    }

    /// The lowest port of `range` that is not taken.
    fn next_free(&self, range: RangeInclusive<u16>) -> Option<u16> {
        let PortSet::Many { words, .. } = self else {
            return range.into_iter().find(|port| !self.contains(*port));
        };
        let (mut port, end) = (u32::from(*range.start()), u32::from(*range.end()));
        while port <= end {
            let free = !words[(port / 64) as usize] >> (port % 64);
            if free != 0 {
                let found = port + free.trailing_zeros();
                return (found <= end).then_some(found as u16);
            }
            port = (port / 64 + 1) * 64;
        }
        None
    }
}

/// The ports of an external address that are taken towards a remote end.
#[derive(Default)]
struct Taken {
    ports: PortSet,
    /// All were looked at and none is to be had, since the last was given back. Most of them are
    /// other shards', so their number does not tell, and a host whose packets find none asks with
    /// each of them: looking again would cost a walk over the whole range each time.
    exhausted: Cell<bool>,
}

/// Which external ports are taken, per remote end.
pub struct PortPool {
    external: Vec<u32>,
    ports: RangeInclusive<u16>,
    taken: HashMap<Remote, Taken>,
    in_use: usize,
}

impl PortPool {
    /// An empty pool over `external` addresses and `ports`.
    pub fn new(external: Vec<u32>, ports: RangeInclusive<u16>) -> PortPool {
        PortPool { external, ports, taken: HashMap::new(), in_use: 0 }
    }

    /// Reverse bindings in use.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Marks the external end of a reverse key as taken.
    pub fn insert(&mut self, reverse: &NatKey) {
        self.taken.entry(Remote::of(reverse)).or_default().ports.insert(reverse.destination_port);
        self.in_use += 1;
    }

    /// Gives the external end of a reverse key back.
    pub fn remove(&mut self, reverse: &NatKey) {
        let remote = Remote::of(reverse);
        let Some(taken) = self.taken.get_mut(&remote) else { return };
        taken.ports.remove(reverse.destination_port);
        taken.exhausted.set(false);
        self.in_use -= 1;
        if taken.ports.count() == 0 {
            self.taken.remove(&remote);
        }
    }

    /// An external address and port for `key`, such that the reverse key is free; `None` only when
    /// there was none at all, and none was given back since.
    ///
    /// `unusable` says whether a reverse key cannot be had: another record has it (a flow from a
    /// host towards an external address may), or it is of another shard.
    pub fn choose(
        &self,
        key: &NatKey,
        rng: &mut SplitMix64,
        unusable: impl Fn(&NatKey) -> bool,
    ) -> Option<(u32, u16)> {
        // RFC 4787 REQ-2, "paired" pooling: an inside address keeps its external one as long as
        // that has a port towards this remote end.
        let preferred = SplitMix64::mix(u64::from(key.source)) as usize % self.external.len();
        let (before, from) = self.external.split_at(preferred);
        from.iter().chain(before).find_map(|&external| {
            let port = self.choose_port(key, external, rng, &unusable)?;
            Some((external, port))
        })
    }

    fn choose_port(
        &self,
        key: &NatKey,
        external: u32,
        rng: &mut SplitMix64,
        unusable: &impl Fn(&NatKey) -> bool,
    ) -> Option<u16> {
        let (low, high) = (*self.ports.start(), *self.ports.end());
        let size = usize::from(high - low) + 1;
        let empty = Taken::default();
        let known = self.taken.get(&Remote::of(&key.reverse(external, 0))).unwrap_or(&empty);
        let set = &known.ports;
        if set.count() >= size || known.exhausted.get() {
            return None;
        }
        let taken = |port: u16| set.contains(port) && !mutation::planted(Mutation::TakenPortsGiven);
        let free = |port: &u16| !taken(*port) && !unusable(&key.reverse(external, *port));
        if self.ports.contains(&key.source_port) && free(&key.source_port) {
            return Some(key.source_port);
        }
        // RFC 6056 §3.3: random ports are harder to guess; a few draws find one in all but nearly
        // full pools.
        let mut draw = || low + (rng.draw() % size as u64) as u16;
        if let Some(port) = (0..RANDOM_PROBES).map(|_| draw()).find(free) {
            return Some(port);
        }
        let start = draw();
        let search = |mut from: u16, to: u16| {
            while let Some(port) = set.next_free(from..=to) {
                if free(&port) {
                    return Some(port);
                }
                if port == to {
                    break;
                }
                from = port + 1;
            }
            None
        };
        let found =
            search(start, high).or_else(|| if start > low { search(low, start - 1) } else { None });
        known.exhausted.set(found.is_none());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source_port: u16) -> NatKey {
        NatKey {
            source: 0x0a000001,
            destination: 0x08080808,
            source_port,
            destination_port: 53,
            protocol: 17,
        }
    }

    fn pool(ports: RangeInclusive<u16>) -> PortPool {
        PortPool::new(vec![0xcb007101, 0xcb007102], ports)
    }

    #[test]
    fn key_bytes_come_back() {
        let bytes: Vec<u8> = (1..14).collect();
        assert_eq!(NatKey::from_bytes(&bytes).unwrap().to_bytes(), bytes[..]);
        assert!(NatKey::from_bytes(&bytes[1..]).is_none());
    }

    #[test]
    fn keeps_the_port_when_it_is_free() {
        let mut pool = pool(1024..=65535);
        let mut rng = SplitMix64::new(1);
        let (address, port) = pool.choose(&key(4000), &mut rng, |_| false).unwrap();
        assert_eq!(port, 4000);
        pool.insert(&key(4000).reverse(address, port));
        let (again, other) =
            pool.choose(&NatKey { source: 0x0a000001, ..key(4000) }, &mut rng, |_| false).unwrap();
        assert_eq!(again, address, "paired pooling");
        assert_ne!(other, 4000);
        let elsewhere = NatKey { destination: 0x09090909, ..key(4000) };
        assert_eq!(
            pool.choose(&elsewhere, &mut rng, |_| false).unwrap().1,
            4000,
            "other remote, same port"
        );
    }

    #[test]
    fn finds_every_port_and_then_none() {
        for range in [1024..=1024, 1024..=1150, 60_000..=65_535] {
            let mut pool = pool(range.clone());
            let mut rng = SplitMix64::new(7);
            let mut seen = std::collections::HashSet::new();
            while let Some((address, port)) = pool.choose(&key(80), &mut rng, |_| false) {
                assert!(range.contains(&port));
                assert!(seen.insert((address, port)), "{port} given twice");
                pool.insert(&key(80).reverse(address, port));
            }
            assert_eq!(seen.len(), 2 * range.len());
            assert_eq!(pool.in_use(), seen.len());
            for &(address, port) in &seen {
                pool.remove(&key(80).reverse(address, port));
            }
            assert_eq!(pool.in_use(), 0);
            assert!(pool.taken.is_empty());
            assert!(pool.choose(&key(80), &mut rng, |_| false).is_some());
        }
    }

    #[test]
    fn what_was_exhausted_is_not_looked_through_again_until_a_port_is_given_back() {
        let mut pool = pool(1024..=65_535);
        let mut rng = SplitMix64::new(5);
        // This shard has one port in a hundred.
        let looks = Cell::new(0);
        let others = |reverse: &NatKey| {
            looks.set(looks.get() + 1);
            !reverse.destination_port.is_multiple_of(100)
        };
        let mut given = vec![];
        while let Some((address, port)) = pool.choose(&key(80), &mut rng, others) {
            given.push((address, port));
            pool.insert(&key(80).reverse(address, port));
        }
        assert_eq!(given.len(), 2 * 645);
        looks.set(0);
        assert_eq!(pool.choose(&key(81), &mut rng, others), None);
        assert_eq!(looks.get(), 0);
        pool.remove(&key(80).reverse(given[7].0, given[7].1));
        assert_eq!(pool.choose(&key(81), &mut rng, others), Some(given[7]));
    }

    #[test]
    fn skips_reverse_keys_that_other_records_hold() {
        let pool = pool(1024..=1027);
        let mut rng = SplitMix64::new(3);
        let exists = |reverse: &NatKey| {
            reverse.destination != 0xcb007102 || reverse.destination_port != 1026
        };
        assert_eq!(pool.choose(&key(80), &mut rng, exists), Some((0xcb007102, 1026)));
        assert_eq!(pool.choose(&key(80), &mut rng, |_| true), None);
    }
}
