//! Consistent hashing: which servers a shard belongs on (Karger et al., STOC '97). What is on the
//! ring are machines, so that no chain has two servers that die together; of a machine's servers
//! another hash picks one. A machine that comes or goes moves only the shards that are its own.

use std::collections::HashMap;
use std::net::SocketAddrV4;

/// Places of a machine on the ring: with so many, the machines' parts differ little.
const PLACES: u64 = 128;

/// A server, as the ring sees it.
#[derive(Debug, Clone, Copy)]
pub struct Server<'a> {
    /// Where it listens.
    pub address: SocketAddrV4,
    /// What it dies with.
    pub machine: &'a str,
    /// Whether it can be given anything.
    pub live: bool,
}

/// The ring of a set of servers.
#[derive(Default)]
pub struct Ring {
    /// The servers it was made of: address, machine, whether live.
    servers: Vec<(SocketAddrV4, String, bool)>,
    /// Machines by their numbers, those with a live server only.
    places: Vec<(u64, usize)>,
    /// The live servers of each machine.
    machines: Vec<Vec<SocketAddrV4>>,
    /// Of all servers.
    machine_of: HashMap<SocketAddrV4, usize>,
}

impl Ring {
    /// A ring of `servers`.
    pub fn new<'a>(servers: impl Iterator<Item = Server<'a>>) -> Ring {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut ring = Ring::default();
        for server in servers {
            ring.servers.push((server.address, server.machine.to_owned(), server.live));
            let machine = *numbers.entry(server.machine).or_insert_with(|| {
                ring.machines.push(Vec::new());
                ring.machines.len() - 1
            });
            ring.machine_of.insert(server.address, machine);
            if server.live {
                ring.machines[machine].push(server.address);
            }
        }
        for (name, machine) in
            numbers.into_iter().filter(|(_, machine)| !ring.machines[*machine].is_empty())
        {
            let seed = mix(number_of_machine(name));
            let place = |at: u64| (mix(seed ^ at.wrapping_mul(0xd6e8_feb8_6659_fd93)), machine);
            ring.places.extend((0..PLACES).map(place));
        }
        ring.places.sort_unstable();
        ring
    }

    /// Whether this is the ring of these servers, in this order: making one anew costs thousands of
    /// times as much.
    pub fn is_of<'a>(&self, servers: impl Iterator<Item = Server<'a>>) -> bool {
        self.servers
            .iter()
            .map(|(address, machine, live)| (*address, machine.as_str(), *live))
            .eq(servers.map(|server| (server.address, server.machine, server.live)))
    }

    /// Machines with a live server.
    pub fn machines(&self) -> usize {
        self.machines.iter().filter(|servers| !servers.is_empty()).count()
    }

    /// One server of each of the first `count` machines at or after the shard's place: the one that
    /// is among `members` already, so that a shard does not move from one server of a machine to
    /// another.
    pub fn servers_of(
        &self,
        shard: u16,
        count: usize,
        members: &[SocketAddrV4],
    ) -> Vec<SocketAddrV4> {
        let at = mix(u64::from(shard).wrapping_add(0x5350) << 20);
        let start = self.places.partition_point(|(place, _)| *place < at);
        let (before, from) = self.places.split_at(start);
        let count = count.min(self.machines());
        let mut found: Vec<usize> = Vec::new();
        for (_, machine) in from.iter().chain(before) {
            if found.len() == count {
                break;
            }
            if !found.contains(machine) {
                found.push(*machine);
            }
        }
        let server = |machine: usize| {
            let member = members
                .iter()
                .find(|member| self.machine_of.get(member) == Some(&machine))
                .copied();
            member.or_else(|| {
                self.machines[machine]
                    .iter()
                    .copied()
                    .min_by_key(|server| mix(mix(number(server)) ^ at))
            })
        };
        found.into_iter().filter_map(server).collect()
    }
}

fn number(server: &SocketAddrV4) -> u64 {
    u64::from(server.ip().to_bits()) << 16 | u64::from(server.port())
}

/// A machine that is named by an address has that address's number; another name's is hashed
/// (FNV-1a).
fn number_of_machine(name: &str) -> u64 {
    let hashed = || {
        name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    name.parse().map_or_else(|_| hashed(), |address| number(&address))
}

/// Spreads the bits (the finalizer of SplitMix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn server(at: u8) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 2, at, 10), 5407)
    }

    /// A ring of servers that are alone.
    fn alone(servers: impl Iterator<Item = u8>) -> Ring {
        let servers: Vec<_> = servers.map(|at| (server(at), server(at).to_string())).collect();
        Ring::new(servers.iter().map(|(address, machine)| Server {
            address: *address,
            machine,
            live: true,
        }))
    }

    #[test]
    fn servers_have_similar_parts_and_a_new_one_takes_only_its_own() {
        let (before, after) = (alone(0..8), alone(0..9));
        let mut heads: HashMap<_, u32> = HashMap::new();
        for shard in 0..256 {
            let (old, new) = (before.servers_of(shard, 3, &[]), after.servers_of(shard, 3, &[]));
            assert_eq!(old.len(), 3);
            *heads.entry(old[0]).or_default() += 1;
            let others = |servers: &[SocketAddrV4]| {
                servers.iter().copied().filter(|s| *s != server(8)).collect::<Vec<_>>()
            };
            assert!(old.starts_with(&others(&new)), "{old:?} {new:?}");
        }
        assert_eq!(heads.len(), 8);
        assert!(heads.values().all(|count| (12..=56).contains(count)), "{heads:?}");
    }

    #[test]
    fn few_servers_are_all_taken() {
        assert_eq!(alone([1].into_iter()).servers_of(3, 3, &[]), [server(1)]);
        assert!(alone(std::iter::empty()).servers_of(3, 3, &[]).is_empty());
    }

    #[test]
    fn no_chain_has_two_servers_of_a_machine() {
        let worker =
            |machine: u8, at: u16| SocketAddrV4::new(Ipv4Addr::new(10, 2, machine, 10), 5407 + at);
        let named: Vec<_> =
            (0..4).flat_map(|machine| (0..3).map(move |at| (machine, at))).collect();
        let names: Vec<_> = named.iter().map(|(machine, _)| format!("rack {machine}")).collect();
        let ring = |without: Option<SocketAddrV4>| {
            Ring::new(named.iter().zip(&names).map(|((machine, at), name)| {
                let address = worker(*machine, *at);
                Server { address, machine: name, live: Some(address) != without }
            }))
        };
        let whole = ring(None);
        assert_eq!(whole.machines(), 4);
        let mut used: HashMap<SocketAddrV4, u32> = HashMap::new();
        for shard in 0..256 {
            let chain = whole.servers_of(shard, 3, &[]);
            let mut machines: Vec<_> = chain.iter().map(|server| server.ip().octets()[2]).collect();
            machines.sort_unstable();
            machines.dedup();
            assert_eq!(machines.len(), 3, "{chain:?}");
            chain.iter().for_each(|server| *used.entry(*server).or_default() += 1);
            // A server that is not fit keeps its machine's place where it is a member, and gets no
            // new one.
            let limping = ring(Some(chain[0]));
            assert_eq!(limping.servers_of(shard, 3, &chain), chain);
            let others = limping.servers_of(shard, 3, &[]);
            assert!(others[0] != chain[0] && others[0].ip() == chain[0].ip(), "{others:?}");
            assert_eq!(whole.servers_of(shard, 9, &[]).len(), 4, "as many as there are machines");
        }
        assert_eq!(used.len(), 12, "all servers have shards: {used:?}");
    }
}
