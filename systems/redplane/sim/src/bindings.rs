//! What a store's allocators give, as hosts see it: nat.p4's external ports and load_balancer.p4's
//! backends. No port is two flows' at a time, a flow keeps what it was given for as long as it is
//! used, and nothing stays taken that nobody uses.

use crate::program::Kind;
use crate::store::Store;
use crate::world::{MS, SHARDS};
use state_store::core::backends::{Backend, Health};
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;

/// The store takes a conversation back that was not used for so long.
pub(crate) const IDLE_NS: u64 = 500 * MS;
/// The switch knows to within so much when a flow was used last (`SP_FLOW_USE_GRAIN_NS`).
const USE_GRAIN_NS: u64 = 100 * MS;
/// A conversation that had no packet for so long may be gone: hosts outside do not answer any more.
const ANSWERS_NS: u64 = 200 * MS;
/// Few, so that flows get in each other's way.
pub(crate) const NAT_PORTS: RangeInclusive<u16> = 1024..=1055;
/// nat.p4's external address.
pub(crate) const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// Inside host of flow 0; the others follow.
const INSIDE: u32 = 0x0a00_0005;
/// All inside hosts use this one: at most one of them can keep it.
const INSIDE_PORT: u16 = 1030;
const REMOTE: (u32, u16) = (0xc633_6450, 53);
/// load_balancer.p4's virtual address, and its clients.
pub(crate) const SERVICE: (u32, u16) = (0xcb00_710a, 53);
const CLIENT: u32 = 0xc633_6450;
/// Its clients' first port: drawn by the seed, so that runs differ in what shards their
/// conversations are of.
fn client_port(seed: u64) -> u16 {
    40_000 + (seed % 10_007) as u16
}
/// Port of the backends.
pub(crate) const BACKEND_PORT: u16 = 8080;

/// The load balancer's backends.
pub(crate) fn backends() -> Vec<Backend> {
    let backend = |last: u8| Backend {
        address: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), BACKEND_PORT),
        weight: u32::from(last),
        drained: false,
        health: Health::Up,
    };
    (1..=3).map(backend).collect()
}

/// Address and port.
type End = (u32, u16);

/// As a record's value has it.
pub(crate) fn as_number((address, port): End) -> u64 {
    u64::from(address) << 16 | u64::from(port)
}

/// What a flow was seen to have.
#[derive(Clone, Copy)]
struct Use {
    end: End,
    last_ns: u64,
    /// How often it may have lost what it had before.
    term: u32,
}

/// How a packet was sent.
#[derive(Clone, Copy)]
struct Sent {
    flow: u32,
    /// Where to (NAT) or from where (balancer), if it was sent from the side that answers.
    to: Option<End>,
    /// The flow's term then.
    term: u32,
}

/// What a packet that left shows.
pub(crate) struct Shown {
    pub(crate) flow: u32,
    pub(crate) packet: u32,
    /// The flow's port or backend.
    pub(crate) end: End,
    /// What the switch found it by, and found.
    pub(crate) key: Vec<u8>,
    pub(crate) value: End,
}

/// Key of packets from this source to this destination.
fn key_of(source: End, destination: End) -> Vec<u8> {
    let mut key = source.0.to_be_bytes().to_vec();
    key.extend(destination.0.to_be_bytes());
    key.extend(source.1.to_be_bytes());
    key.extend(destination.1.to_be_bytes());
    key.push(17);
    key
}

/// Follows the packets that go in and come out.
pub(crate) struct BindingChecker {
    nat: bool,
    /// The least time without a packet after which a flow may have lost what it had, in ns.
    kept_ns: u64,
    uses: BTreeMap<u32, Use>,
    /// Of each packet that left, the term of its flow.
    terms: HashMap<u32, u32>,
    sent: HashMap<u32, Sent>,
    client_port: u16,
}

impl BindingChecker {
    /// `drift_ppm`: by how much clocks run fast or slow at most.
    pub(crate) fn new(kind: Kind, drift_ppm: i64, seed: u64) -> Option<BindingChecker> {
        let nat = match kind {
            Kind::Nat => true,
            Kind::Balancer => false,
            _ => return None,
        };
        // The switch tells how long a flow was idle by its clock, and the store counts on by its
        // own.
        let drift = u64::try_from(drift_ppm).unwrap_or(0);
        let kept_ns = (IDLE_NS - USE_GRAIN_NS) * (1_000_000 - drift) / (1_000_000 + drift);
        let client_port = client_port(seed);
        let (uses, sent, terms) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        Some(BindingChecker { nat, kept_ns, uses, sent, terms, client_port })
    }

    /// The flow's key in the switch: of the side that begins. Of a balancer it names the client
    /// first, as packets of that side do.
    pub(crate) fn key(&self, flow: u32) -> Vec<u8> {
        let (source, destination) = self.opening(flow);
        key_of(source, destination)
    }

    /// Where the store keeps a key.
    pub(crate) fn shard_of(&self, key: &[u8]) -> u16 {
        match self.nat {
            true => wire::shard_of(key, SHARDS),
            false => state_protocol::client_shard_of(key, SHARDS),
        }
    }

    /// Source and destination of the side that begins.
    fn opening(&self, flow: u32) -> (End, End) {
        match self.nat {
            true => ((INSIDE + flow, INSIDE_PORT), REMOTE),
            false => ((CLIENT, self.client_port + flow as u16), SERVICE),
        }
    }

    /// A packet of the flow. `answers`: from the other side, if it was asked lately.
    pub(crate) fn frame(&mut self, flow: u32, packet: u32, answers: bool, now_ns: u64) -> Vec<u8> {
        let (source, destination) = self.opening(flow);
        let recent = self.uses.get(&flow).filter(|it| answers && now_ns <= it.last_ns + ANSWERS_NS);
        let (source, destination, to) = match recent {
            None => (source, destination, None),
            Some(Use { end, .. }) if self.nat => (destination, *end, Some(*end)),
            Some(Use { end, .. }) => (*end, source, Some(*end)),
        };
        let term = self.uses.get(&flow).map_or(0, |it| it.term);
        self.sent.insert(packet, Sent { flow, to, term });
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend_from_slice(&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend_from_slice(&source.0.to_be_bytes());
        frame.extend_from_slice(&destination.0.to_be_bytes());
        seal(&mut frame[14..]);
        frame.extend_from_slice(&source.1.to_be_bytes());
        frame.extend_from_slice(&destination.1.to_be_bytes());
        frame.extend_from_slice(&[0, 20, 0, 0]);
        frame.extend_from_slice(&packet.to_be_bytes());
        frame.extend_from_slice(&[0; 8]);
        frame
    }

    /// A packet left a switch.
    pub(crate) fn output(&mut self, frame: &[u8], now_ns: u64) -> Result<Option<Shown>, String> {
        let word = |at: usize| {
            frame.get(at..at + 4).and_then(|it| it.try_into().ok()).map_or(0, u32::from_be_bytes)
        };
        let half = |at: usize| {
            frame.get(at..at + 2).and_then(|it| it.try_into().ok()).map_or(0, u16::from_be_bytes)
        };
        let (source, destination) = ((word(26), half(34)), (word(30), half(36)));
        let packet = word(42);
        let Some(Sent { flow, to, term }) = self.sent.get(&packet).copied() else {
            return Err(format!("packet {packet} comes out that never came in"));
        };
        let (opener, service) = self.opening(flow);
        let (shown, kept, expected) = match (to, self.nat) {
            // From the side that began: the NAT changes its source, the balancer its destination.
            (None, true) => (source, destination, service),
            (None, false) => (destination, source, opener),
            (Some(end), true) => (end, destination, opener),
            (Some(end), false) => (end, source, service),
        };
        if kept != expected {
            // It was sent to a port, or from a backend, that was the flow's until then. One that
            // straggled into a later term may have been looked up between the two.
            let end = |(address, port): End| SocketAddrV4::new(address.into(), port);
            let had_all_along =
                |it: &Use| it.end == shown && it.term == term && now_ns < it.last_ns + self.kept_ns;
            let recent = self.uses.get(&flow).is_some_and(had_all_along);
            let untranslated = !self.nat && to == Some(kept);
            if recent || !(untranslated || self.nat && to.is_some()) {
                let (kept, expected) = (end(kept), end(expected));
                return Err(format!("packet {packet} of flow {flow} shows {kept}, not {expected}"));
            }
            return Ok(None);
        }
        let term = self.used(flow, shown, now_ns)?;
        self.terms.insert(packet, term);
        let (key, value) = match to {
            None => (self.key(flow), shown),
            Some(end) if self.nat => (key_of(REMOTE, end), kept),
            Some(end) => (key_of(opener, end), kept),
        };
        Ok(Some(Shown { flow, packet, end: shown, key, value }))
    }

    /// The flow has this port or backend now. Between two of its terms it was not used for so long
    /// that it may have lost what it had.
    fn used(&mut self, flow: u32, end: End, now_ns: u64) -> Result<u32, String> {
        let fresh = |it: &Use| now_ns < it.last_ns + self.kept_ns;
        let age_ms = |it: &Use| (now_ns - it.last_ns) / MS;
        let show = |(address, port): End| SocketAddrV4::new(address.into(), port);
        if let Some(before) = self.uses.get(&flow).filter(|it| it.end != end && fresh(it)) {
            let (had, has, ms) = (show(before.end), show(end), age_ms(before));
            return Err(format!("flow {flow} had {had} {ms} ms ago, and now has {has}"));
        }
        let other = self
            .uses
            .iter()
            .find(|(other, it)| self.nat && **other != flow && it.end == end && fresh(it));
        if let Some((other, it)) = other {
            let (end, ms) = (show(end), age_ms(it));
            return Err(format!("{end} is flow {flow}'s, and was flow {other}'s {ms} ms ago"));
        }
        let term = self.uses.get(&flow).map_or(0, |it| it.term + u32::from(!fresh(it)));
        self.uses.insert(flow, Use { end, last_ns: now_ns, term });
        Ok(term)
    }

    /// In which term of its flow this packet left.
    pub(crate) fn term(&self, packet: u32) -> Option<u32> {
        self.terms.get(&packet).copied()
    }

    /// Each server's pool knows exactly of the pairs of records that there are; how many of these,
    /// at the most.
    pub(crate) fn taken(&self, store: &Store) -> Result<usize, String> {
        let mut most = 0;
        for server in (0..SHARDS).flat_map(|shard| store.members(shard)) {
            let records = server.records();
            let pairs = records.iter().filter(|record| record.pair.is_some()).count();
            let taken: usize =
                records.objects().filter_map(|(_, _, pool)| Some(pool?.in_use())).sum();
            if pairs != 2 * taken || records.len() != pairs {
                let len = records.len();
                return Err(format!(
                    "{taken} are taken, for {len} records, {pairs} of them in pairs"
                ));
            }
            // There are more ports than flows in every shard, and a backend takes any number of
            // conversations.
            let refused = server.counters().exhausted;
            if refused > 0 {
                return Err(format!("{refused} requests got no port or backend"));
            }
            most = most.max(taken);
        }
        Ok(most)
    }
}

/// Sets the checksum of an IPv4 header: gateways drop packets with a wrong one.
fn seal(header: &mut [u8]) {
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_has_more_ports_than_there_are_flows() {
        let checker = BindingChecker::new(Kind::Nat, 0, 1).expect("NAT");
        for flow in 0..4 {
            let shard = wire::shard_of(&checker.key(flow), SHARDS);
            let key =
                state_store::core::nat::NatKey::from_bytes(&checker.key(flow)).expect("a key");
            let fits = |port: &u16| {
                wire::shard_of(&key.reverse(EXTERNAL.to_bits(), *port).to_bytes(), SHARDS) == shard
            };
            assert!(NAT_PORTS.filter(fits).count() > 8);
        }
    }

    #[test]
    fn a_port_of_two_flows_and_one_that_changes_are_seen() {
        let mut checker = BindingChecker::new(Kind::Nat, 0, 1).expect("NAT");
        assert_eq!(checker.used(0, (1, 1024), MS), Ok(0));
        assert_eq!(checker.used(1, (1, 1025), MS), Ok(0));
        assert!(checker.used(1, (1, 1024), 2 * MS).is_err());
        assert!(checker.used(0, (1, 1026), 2 * MS).is_err());
        assert_eq!(checker.used(0, (1, 1026), 600 * MS), Ok(1));
        let mut balancer = BindingChecker::new(Kind::Balancer, 0, 1).expect("a balancer");
        assert_eq!(balancer.used(0, (1, 8080), MS), Ok(0));
        assert_eq!(balancer.used(1, (1, 8080), MS), Ok(0));
    }

    #[test]
    fn an_answer_leaves_untranslated_only_if_its_flow_was_without_a_backend_meanwhile() {
        let backend = (0x0a00_0002, BACKEND_PORT);
        let mut balancer = BindingChecker::new(Kind::Balancer, 0, 1).expect("a balancer");
        assert_eq!(balancer.used(1, backend, MS), Ok(0));
        let answer = balancer.frame(1, 2, true, 2 * MS);
        assert!(
            balancer.output(&answer, 3 * MS).is_err_and(|it| it.contains("packet 2 of flow 1"))
        );
        assert_eq!(balancer.output(&answer, 500 * MS).map(|it| it.is_none()), Ok(true));
        // The flow begins anew before the straggler is out: a store may have looked before that.
        assert_eq!(balancer.used(1, backend, 501 * MS), Ok(1));
        assert_eq!(balancer.output(&answer, 502 * MS).map(|it| it.is_none()), Ok(true));
        let answer = balancer.frame(1, 3, true, 503 * MS);
        assert!(balancer.output(&answer, 504 * MS).is_err());
    }
}
