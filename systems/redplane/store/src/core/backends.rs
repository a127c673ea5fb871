//! The BACKENDS allocator: which backend a new conversation goes to, and how many each has.
//! `systems/redplane/docs/apps/load_balancer.md`.
//!
//! How many conversations a backend has is a function of the records, so every server of a chain
//! counts the same, and one that takes over goes on with it. Which backends there are is the
//! operator's, and may change while the store runs: what is in no list any more keeps its
//! conversations.

use super::nat::NatKey;
use super::rng::SplitMix64;
use super::settings::BackendPolicy;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::sync::Arc;

/// Entries of Maglev's lookup table: a prime, over a hundred times any number of backends that this
/// is meant for (NSDI '16, §3.4).
pub const MAGLEV_ENTRIES: usize = 65_537;
/// Backends of an object.
pub const MOST_BACKENDS: usize = 512;
/// The highest weight.
pub const MOST_WEIGHT: u32 = 1_000;

/// A server that conversations are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    /// Its address and port.
    pub address: SocketAddrV4,
    /// Its part of new conversations, against the others' weights; 1 to [`MOST_WEIGHT`].
    pub weight: u32,
    /// No new conversations; those that it has go on.
    pub drained: bool,
    /// What the checks of its health say.
    pub health: Health,
}

/// How a backend is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Health {
    /// It answers, or nobody checks.
    #[default]
    Up,
    /// No new conversations; those that it has stay.
    Down,
    /// No new conversations, and those that it has are taken away.
    Gone,
}

impl Backend {
    /// It, with so many conversations.
    pub(super) fn status(&self, conversations: usize) -> BackendStatus {
        let state = match self.health {
            Health::Up if self.drained => "drained",
            Health::Up => "active",
            Health::Down | Health::Gone => "down",
        }
        .to_owned();
        BackendStatus { address: self.address, state, weight: self.weight, conversations }
    }
}

/// A backend as a status says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendStatus {
    /// Its address and port.
    pub address: SocketAddrV4,
    /// `active`, `drained`, `down` (its health is checked, and bad), or `removed`: not in the list
    /// any more, but with conversations.
    pub state: String,
    /// Its weight; 0 when removed.
    pub weight: u32,
    /// Conversations that it has.
    pub conversations: usize,
}

/// The backends of an object, and what follows from how they are. Made once for each change and
/// shared by all shards: Maglev's table is long to make and large, and the thread that makes it has
/// packets waiting.
pub struct Backends {
    policy: BackendPolicy,
    list: Vec<Backend>,
    /// Positions in `list` of those that take new conversations.
    active: Vec<usize>,
    /// Those whose conversations are to be taken away, in order.
    gone: Vec<(u32, u16)>,
    /// Positions in `list`; empty unless the policy is Maglev's and there is a backend.
    maglev: Vec<u16>,
}

impl Backends {
    /// These backends, as they are now.
    pub fn new(policy: BackendPolicy, mut list: Vec<Backend>) -> Backends {
        list.truncate(MOST_BACKENDS);
        let takes = |at: &usize| !list[*at].drained && list[*at].weight > 0;
        let mut active: Vec<usize> = (0..list.len()).filter(takes).collect();
        // If none is up, it is rather this server that is cut off from them: they are chosen as if
        // nobody had checked.
        if active.iter().any(|at| list[*at].health == Health::Up) {
            active.retain(|at| list[*at].health == Health::Up);
        }
        // The same goes for what would be taken away.
        let any_up = list.iter().any(|backend| backend.health == Health::Up);
        let gone = list.iter().filter(|backend| any_up && backend.health == Health::Gone);
        let mut gone: Vec<_> =
            gone.map(|backend| (backend.address.ip().to_bits(), backend.address.port())).collect();
        gone.sort_unstable();
        let maglev = match policy {
            BackendPolicy::Maglev => maglev_table(&list, &active),
            _ => Vec::new(),
        };
        Backends { policy, list, active, gone, maglev }
    }

    /// How conversations are shared out.
    pub fn policy(&self) -> BackendPolicy {
        self.policy
    }

    /// The backends themselves.
    pub fn list(&self) -> &[Backend] {
        &self.list
    }

    fn is_gone(&self, end: &(u32, u16)) -> bool {
        self.gone.binary_search(end).is_ok()
    }
}

/// The backends of an object and the conversations that a shard has with them.
pub struct BackendPool {
    backends: Arc<Backends>,
    conversations: HashMap<(u32, u16), usize>,
}

/// A conversation's backend: the server of its reverse key.
fn end_of(reverse: &NatKey) -> (u32, u16) {
    (reverse.destination, reverse.destination_port)
}

impl BackendPool {
    /// No backends, no conversations.
    pub fn new(policy: BackendPolicy) -> BackendPool {
        BackendPool {
            backends: Arc::new(Backends::new(policy, Vec::new())),
            conversations: HashMap::new(),
        }
    }

    /// Which backends the operator wants.
    pub(super) fn backends(&self) -> &Arc<Backends> {
        &self.backends
    }

    /// Makes these the backends. Conversations are not touched; whether some are to be taken away
    /// now that were not before. (Not only when a backend fails: when the first one is up again,
    /// those that are still gone count.)
    pub fn set_backends(&mut self, backends: Arc<Backends>) -> bool {
        let more_gone = backends.gone.iter().any(|end| !self.backends.is_gone(end));
        self.backends = backends;
        more_gone
    }

    /// Where its backends are in memory: whether two shards share them.
    #[cfg(test)]
    pub fn backends_at(&self) -> usize {
        Arc::as_ptr(&self.backends).addr()
    }

    /// Whether conversations of any backend are to be taken away.
    pub fn has_gone(&self) -> bool {
        !self.backends.gone.is_empty()
    }

    /// Whether the conversation of a reverse key is to be taken away.
    pub fn is_gone(&self, reverse: &NatKey) -> bool {
        self.backends.is_gone(&end_of(reverse))
    }

    /// Conversations of all backends.
    pub fn in_use(&self) -> usize {
        self.conversations.values().sum()
    }

    /// Counts the conversation of a reverse key.
    pub fn insert(&mut self, reverse: &NatKey) {
        *self.conversations.entry(end_of(reverse)).or_default() += 1;
    }

    /// Counts it no more.
    pub fn remove(&mut self, reverse: &NatKey) {
        let Some(count) = self.conversations.get_mut(&end_of(reverse)) else { return };
        *count -= 1;
        if *count == 0 {
            self.conversations.remove(&end_of(reverse));
        }
    }

    /// The backend of a new conversation; `None` when none takes it.
    ///
    /// `unusable` says whether a reverse key cannot be had: another record has it (a client that
    /// uses one port towards two virtual addresses).
    pub fn choose(
        &self,
        key: &NatKey,
        rng: &mut SplitMix64,
        unusable: impl Fn(&NatKey) -> bool,
    ) -> Option<(u32, u16)> {
        let usable = |at: &usize| {
            let (address, port) = self.end(*at);
            !unusable(&reverse(key, address, port))
        };
        let chosen = match self.backends.policy {
            BackendPolicy::LeastConnections => self.least_connections(rng, &usable),
            BackendPolicy::Weighted => self.weighted(rng).filter(usable),
            BackendPolicy::Maglev => self
                .backends
                .maglev
                .get(self.maglev_entry(key))
                .map(|at| usize::from(*at))
                .filter(usable),
        };
        // The policy's choice cannot be had: any other will do, beginning anywhere.
        let from = rng.draw() as usize % self.backends.active.len().max(1);
        let mut others = self
            .backends
            .active
            .iter()
            .cycle()
            .skip(from)
            .take(self.backends.active.len())
            .copied();
        let chosen = chosen.or_else(|| others.find(usable))?;
        Some(self.end(chosen))
    }

    fn end(&self, at: usize) -> (u32, u16) {
        let address = self.backends.list[at].address;
        (address.ip().to_bits(), address.port())
    }

    fn count(&self, at: usize) -> u64 {
        self.conversations.get(&self.end(at)).map_or(0, |count| *count as u64)
    }

    fn weighted(&self, rng: &mut SplitMix64) -> Option<usize> {
        let weight = |at: &usize| u64::from(self.backends.list[*at].weight);
        let total: u64 = self.backends.active.iter().map(weight).sum();
        let mut left = rng.draw() % total.max(1);
        self.backends.active.iter().copied().find(|at| {
            let here = left < weight(at);
            left = left.saturating_sub(weight(at));
            here
        })
    }

    /// The fewest conversations for its weight; of equals one at random.
    fn least_connections(
        &self,
        rng: &mut SplitMix64,
        usable: &impl Fn(&usize) -> bool,
    ) -> Option<usize> {
        // (conversations + 1) / weight, compared without division; the new conversation counts, so
        // that weights matter from the first one on.
        let load = |at: usize| (self.count(at) + 1, u64::from(self.backends.list[at].weight));
        let mut best: Option<(usize, u64, u64)> = None;
        let mut equals = 0;
        for at in self.backends.active.iter().copied().filter(usable) {
            let (count, weight) = load(at);
            let order =
                best.map(|(_, least, its_weight)| (count * its_weight).cmp(&(least * weight)));
            match order {
                Some(std::cmp::Ordering::Greater) => {}
                Some(std::cmp::Ordering::Equal) => {
                    equals += 1;
                    if rng.draw().is_multiple_of(equals) {
                        best = Some((at, count, weight));
                    }
                }
                _ => {
                    equals = 1;
                    best = Some((at, count, weight));
                }
            }
        }
        best.map(|(at, ..)| at)
    }

    fn maglev_entry(&self, key: &NatKey) -> usize {
        let ends = u64::from(key.source) << 32 | u64::from(key.destination);
        let ports = u64::from(key.source_port) << 32
            | u64::from(key.destination_port) << 8
            | u64::from(key.protocol);
        (SplitMix64::mix(SplitMix64::mix(ends) ^ ports) % MAGLEV_ENTRIES as u64) as usize
    }

    /// Each backend of the list, and those that are not in it any more but have conversations.
    pub fn status(&self) -> Vec<BackendStatus> {
        let listed = self.backends.list.iter().enumerate();
        let listed = listed.map(|(at, backend)| backend.status(self.count(at) as usize));
        let mut removed: Vec<BackendStatus> = self
            .conversations
            .iter()
            .map(|((address, port), count)| (SocketAddrV4::new((*address).into(), *port), *count))
            .filter(|(address, _)| {
                self.backends.list.iter().all(|backend| backend.address != *address)
            })
            .map(|(address, conversations)| BackendStatus {
                address,
                state: "removed".to_owned(),
                weight: 0,
                conversations,
            })
            .collect();
        removed.sort_by_key(|backend| backend.address);
        listed.chain(removed).collect()
    }
}

/// The key of a backend's answers to `key`. Both directions' keys name the client first, so both
/// are in the client's shard ([`state_protocol::client_shard_of`]); they differ in the server
/// alone.
pub fn reverse(key: &NatKey, address: u32, port: u16) -> NatKey {
    NatKey { destination: address, destination_port: port, ..*key }
}

/// Maglev's lookup table (NSDI '16, §3.4, pseudocode 1): each backend in its turns takes the next
/// free entry of its own permutation of the table. Weights are turns: a backend has as many in a
/// round as its weight. A backend that comes or goes moves few other entries.
fn maglev_table(backends: &[Backend], active: &[usize]) -> Vec<u16> {
    const SIZE: u64 = MAGLEV_ENTRIES as u64;
    if active.is_empty() {
        return Vec::new();
    }
    // Of each: position, turns in a round, where its permutation is, and its step.
    let mut turns: Vec<(u16, u32, u64, u64)> = active
        .iter()
        .map(|at| {
            let backend = backends[*at];
            let name =
                u64::from(backend.address.ip().to_bits()) << 16 | u64::from(backend.address.port());
            let (offset, skip) =
                (SplitMix64::mix(name) % SIZE, SplitMix64::mix(!name) % (SIZE - 1) + 1);
            (*at as u16, backend.weight, offset, skip)
        })
        .collect();
    // The same table whatever the order of the list.
    turns.sort_by_key(|(at, ..)| backends[usize::from(*at)].address);
    let mut table: Vec<Option<u16>> = vec![None; MAGLEV_ENTRIES];
    let mut free = MAGLEV_ENTRIES;
    loop {
        for (at, weight, next, skip) in &mut turns {
            for _ in 0..*weight {
                // A step that is prime to the table's size visits every entry: a free one is found.
                while table[*next as usize].is_some() {
                    *next = (*next + *skip) % SIZE;
                }
                table[*next as usize] = Some(*at);
                free -= 1;
                if free == 0 {
                    return table.into_iter().flatten().collect();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn backend(last: u8, weight: u32) -> Backend {
        Backend {
            address: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 80),
            weight,
            drained: false,
            health: Health::Up,
        }
    }

    fn drained(last: u8) -> Backend {
        Backend { drained: true, ..backend(last, 1) }
    }

    fn key(client_port: u16) -> NatKey {
        NatKey {
            source: 0xc6336450,
            destination: 0xcb00710a,
            source_port: client_port,
            destination_port: 80,
            protocol: 6,
        }
    }

    /// Opens conversations and says how many each backend, by last byte of its address, has.
    fn open(pool: &mut BackendPool, ports: std::ops::Range<u16>) -> HashMap<u8, usize> {
        let mut rng = SplitMix64::new(5);
        let mut opened = HashMap::new();
        for port in ports {
            let (address, backend_port) = pool.choose(&key(port), &mut rng, |_| false).unwrap();
            pool.insert(&reverse(&key(port), address, backend_port));
            *opened.entry(address as u8).or_default() += 1;
        }
        opened
    }

    fn set(pool: &mut BackendPool, list: Vec<Backend>) -> bool {
        pool.set_backends(Arc::new(Backends::new(pool.backends.policy, list)))
    }

    const POLICIES: [BackendPolicy; 3] =
        [BackendPolicy::Weighted, BackendPolicy::LeastConnections, BackendPolicy::Maglev];

    #[test]
    fn conversations_follow_weights_and_drained_backends_get_none() {
        for policy in POLICIES {
            let mut pool = BackendPool::new(policy);
            set(&mut pool, vec![backend(1, 1), drained(2), backend(3, 3)]);
            let opened = open(&mut pool, 1000..5000);
            assert_eq!(opened.get(&2), None, "{policy:?}");
            assert!((900..1100).contains(&opened[&1]), "{policy:?}: {opened:?}");
            assert_eq!(pool.in_use(), 4000);
        }
    }

    #[test]
    fn who_is_down_gets_none_unless_all_are() {
        for policy in POLICIES {
            let mut pool = BackendPool::new(policy);
            let down = |last, health| Backend { health, ..backend(last, 1) };
            set(&mut pool, vec![backend(1, 1), down(2, Health::Down), down(3, Health::Gone)]);
            assert_eq!(open(&mut pool, 1000..1100), HashMap::from([(1, 100)]), "{policy:?}");
            let of = |address| reverse(&key(1), address, 80);
            let gone =
                [0x0a000001, 0x0a000002, 0x0a000003].map(|address| pool.is_gone(&of(address)));
            assert_eq!((pool.has_gone(), gone), (true, [false, false, true]));
            // Then it is rather the one who checks.
            set(&mut pool, vec![down(1, Health::Gone), down(2, Health::Down)]);
            assert_eq!(open(&mut pool, 2000..2200).len(), 2, "{policy:?}");
            assert!(!pool.has_gone());
        }
    }

    #[test]
    fn nobody_takes_conversations() {
        for policy in POLICIES {
            let mut pool = BackendPool::new(policy);
            let mut rng = SplitMix64::new(5);
            assert_eq!(pool.choose(&key(1), &mut rng, |_| false), None);
            set(&mut pool, vec![drained(1), Backend { weight: 0, ..backend(2, 1) }]);
            assert_eq!(pool.choose(&key(1), &mut rng, |_| false), None);
        }
    }

    #[test]
    fn a_reverse_key_that_is_taken_leads_to_another_backend() {
        for policy in POLICIES {
            let mut pool = BackendPool::new(policy);
            set(&mut pool, (1..=8).map(|last| backend(last, 1)).collect());
            let mut rng = SplitMix64::new(5);
            for port in 1000..1100 {
                let only = |reverse: &NatKey| reverse.destination as u8 != 6;
                assert_eq!(
                    pool.choose(&key(port), &mut rng, only),
                    Some((0x0a000006, 80)),
                    "{policy:?}"
                );
                assert_eq!(pool.choose(&key(port), &mut rng, |_| true), None);
            }
        }
    }

    #[test]
    fn least_connections_makes_up_for_what_ended() {
        let mut pool = BackendPool::new(BackendPolicy::LeastConnections);
        set(&mut pool, vec![backend(1, 2), backend(2, 1)]);
        assert_eq!(open(&mut pool, 0..300), HashMap::from([(1, 200), (2, 100)]));
        // All of the first one's end; the next ones go there.
        for port in 0..200 {
            pool.remove(&reverse(&key(port), 0x0a000001, 80));
        }
        assert_eq!(pool.in_use(), 100);
        assert_eq!(open(&mut pool, 1000..1150), HashMap::from([(1, 150)]));
    }

    #[test]
    fn what_is_removed_keeps_its_conversations() {
        let mut pool = BackendPool::new(BackendPolicy::LeastConnections);
        set(&mut pool, vec![backend(1, 1), backend(2, 1)]);
        open(&mut pool, 0..10);
        set(&mut pool, vec![backend(2, 1)]);
        let status = pool.status();
        let seen: Vec<_> = status
            .iter()
            .map(|b| (b.address.ip().octets()[3], b.state.as_str(), b.conversations))
            .collect();
        assert_eq!(seen, [(2, "active", 5), (1, "removed", 5)]);
        pool.remove(&reverse(&key(0), 0x0a000009, 80));
        assert_eq!(pool.in_use(), 10, "a conversation that was never counted");
    }

    /// Maglev's two promises: an even spread (NSDI '16 §5.3), and little disruption when a backend
    /// goes (§3.4).
    #[test]
    fn maglev_spreads_evenly_and_changes_little() {
        let backends: Vec<Backend> = (1..=50).map(|last| backend(last, 1)).collect();
        let all: Vec<usize> = (0..50).collect();
        let before = maglev_table(&backends, &all);
        assert_eq!(before.len(), MAGLEV_ENTRIES);
        for at in &all {
            let entries = before.iter().filter(|entry| usize::from(**entry) == *at).count();
            assert!(
                (MAGLEV_ENTRIES / 50..=MAGLEV_ENTRIES / 50 + 1).contains(&entries),
                "{at}: {entries}"
            );
        }
        let without: Vec<usize> = all.iter().copied().filter(|at| *at != 17).collect();
        let after = maglev_table(&backends, &without);
        let moved =
            before.iter().zip(&after).filter(|(old, new)| old != new && **old != 17).count();
        // The paper sees some percent of entries move beyond those that must.
        assert!(moved < MAGLEV_ENTRIES / 20, "{moved} entries of others moved");
        // Whoever computes it gets the same table, whatever the order of the list.
        let mut turned = backends.clone();
        turned.reverse();
        let named = |backends: &[Backend], table: &[u16]| -> Vec<SocketAddrV4> {
            table.iter().map(|at| backends[usize::from(*at)].address).collect()
        };
        let other = named(&turned, &maglev_table(&turned, &all));
        assert!(named(&backends, &before) == other, "another order gives another table");
    }
}
