//! Consistent hashing: which servers a shard belongs on (Karger et al., STOC '97). A server that comes or goes moves only the shards that are its own.

use std::net::SocketAddrV4;

/// Places of a server on the ring: with so many, the servers' parts differ little.
const PLACES: u64 = 128;

/// The ring of a set of servers.
pub struct Ring {
    places: Vec<(u64, SocketAddrV4)>,
    servers: usize,
}

impl Ring {
    /// A ring of `servers`.
    pub fn new(servers: impl Iterator<Item = SocketAddrV4>) -> Ring {
        let servers: Vec<_> = servers.collect();
        let number = |server: &SocketAddrV4| u64::from(server.ip().to_bits()) << 16 | u64::from(server.port());
        let place = |server: SocketAddrV4| {
            move |at: u64| (mix(mix(number(&server)) ^ at.wrapping_mul(0xd6e8_feb8_6659_fd93)), server)
        };
        let mut places: Vec<_> = servers.iter().flat_map(|server| (0..PLACES).map(place(*server))).collect();
        places.sort_unstable();
        Ring { places, servers: servers.len() }
    }

    /// The first `count` servers at or after the shard's place, each once.
    pub fn servers_of(&self, shard: u16, count: usize) -> Vec<SocketAddrV4> {
        let at = mix(u64::from(shard).wrapping_add(0x5350) << 20);
        let start = self.places.partition_point(|(place, _)| *place < at);
        let (before, from) = self.places.split_at(start);
        let mut found: Vec<SocketAddrV4> = Vec::new();
        for (_, server) in from.iter().chain(before) {
            if found.len() == count.min(self.servers) {
                break;
            }
            if !found.contains(server) {
                found.push(*server);
            }
        }
        found
    }
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
    use std::collections::HashMap;
    use std::net::Ipv4Addr;

    fn server(at: u8) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 2, at, 10), 5407)
    }

    #[test]
    fn servers_have_similar_parts_and_a_new_one_takes_only_its_own() {
        let (before, after) = (Ring::new((0..8).map(server)), Ring::new((0..9).map(server)));
        let mut heads: HashMap<_, u32> = HashMap::new();
        for shard in 0..256 {
            let (old, new) = (before.servers_of(shard, 3), after.servers_of(shard, 3));
            assert_eq!(old.len(), 3);
            *heads.entry(old[0]).or_default() += 1;
            let others =
                |servers: &[SocketAddrV4]| servers.iter().copied().filter(|s| *s != server(8)).collect::<Vec<_>>();
            assert!(old.starts_with(&others(&new)), "{old:?} {new:?}");
        }
        assert_eq!(heads.len(), 8);
        assert!(heads.values().all(|count| (12..=56).contains(count)), "{heads:?}");
    }

    #[test]
    fn few_servers_are_all_taken() {
        assert_eq!(Ring::new([server(1)].into_iter()).servers_of(3, 3), [server(1)]);
        assert!(Ring::new(std::iter::empty()).servers_of(3, 3).is_empty());
    }
}
