//! Peers of a switch: whom its packet generator probes, and what came back
//! (`bpf/netchain/stateplane_peers.h`).
//!
//! Each peer has a number, by which roles name the other members of a chain. A peer keeps its
//! number as long as it is one. A number that [`Peers::set`] frees goes to nobody in that call, so
//! the caller can take it out of the roles before the next one.

use c_layout::CStruct;
use dataplane::{Dataplane, wait_for_packets};
use libbpf_rs::{MapCore, MapFlags};
use netchain_protocol::Operation;
use netchain_protocol::layouts::{
    LEASE_CLOCK_MARGIN_MS, NO_PEER, PEERS, PEERS_DUE, PeerClockValue, PeerSettingsValue, PeerValue,
    PeersDueValue,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use switch_agent::system::now_ns;
use switch_agent::{Error, Result};

/// The runtime's maps.
const MAP: &str = "sp_peers";
const CLOCKS: &str = "sp_peer_clocks";
const SETTINGS: &str = "sp_peer_settings";
const DUE: &str = "sp_peers_due";
/// Its counters.
pub(crate) const COUNTERS: &str = "sp_peers_stats";

/// How often peers are probed, and how long a lease holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time from one probe of a peer to the next, in milliseconds.
    pub probe_ms: u64,
    /// How long the controller waits for leases to end, in milliseconds. The data plane's are
    /// shorter, by [`LEASE_CLOCK_MARGIN_MS`] and 1 % for the clocks.
    pub lease_ms: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { probe_ms: 10, lease_ms: 100 }
    }
}

impl Pace {
    /// The least `lease_ms`: the margin, and some probes.
    pub const LEAST_LEASE_MS: u64 = 2 * LEASE_CLOCK_MARGIN_MS;

    /// Of a lease in the data plane.
    pub fn lease_ns(self) -> u64 {
        (self.lease_ms * 990_000).saturating_sub(LEASE_CLOCK_MARGIN_MS * 1_000_000)
    }
}

/// What `stateplane status` is told of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerLoad {
    /// Its address.
    pub address: Ipv4Addr,
    /// For so many milliseconds it has answered no probe.
    pub silent_ms: u64,
    /// It has answered one.
    #[serde(default)]
    pub heard: bool,
    /// This switch has a lease of it.
    pub lease: bool,
}

/// The peers of a loaded object.
pub struct Peers {
    dataplane: Arc<Dataplane>,
    pace: Pace,
    /// A number of this life of the agent's.
    life: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The switch's NetChain address, once it is known.
    own: Option<Ipv4Addr>,
    peers: BTreeMap<Ipv4Addr, Peer>,
    /// When the newest probes were asked for, and when the next ones are due.
    asked_ns: u64,
    next_ns: u64,
    /// A lease in the data plane is no longer, for the controller waits no longer.
    most_lease_ns: Option<u64>,
}

#[derive(Clone, Copy)]
struct Peer {
    number: u8,
    since_ns: u64,
}

impl State {
    /// The peers to probe.
    fn others(&self) -> impl Iterator<Item = (Ipv4Addr, Peer)> {
        let own = self.own;
        let all = self.peers.iter().map(|(address, peer)| (*address, *peer));
        all.filter(move |(address, _)| own.is_some_and(|own| own != *address))
    }
}

/// For how long a peer is silent whose newest sign came at `heard_ns`, if it was last asked at
/// `asked_ns`. While this switch asks nobody, as its agent stands still, nobody is silent.
fn silent_ns(asked_ns: u64, heard_ns: u64) -> u64 {
    asked_ns.saturating_sub(heard_ns)
}

/// A peer in the data plane.
fn write(dataplane: &Dataplane, number: u8, address: Ipv4Addr, since_ns: u64) -> Result<()> {
    let value = PeerValue { since_ns, address, padding: 0 };
    Ok(dataplane.write_array(MAP, number.into(), &value.to_bytes())?)
}

/// Hands the data plane what probes carry, and how long a lease holds.
///
/// # Errors
/// The kernel refuses.
pub fn write_settings(
    dataplane: &Dataplane,
    own: Ipv4Addr,
    ring: u32,
    lease_ns: u64,
    life: u64,
) -> Result<()> {
    let value = PeerSettingsValue { lease_ns, life, own, ring };
    Ok(dataplane.write_array(SETTINGS, 0, &value.to_bytes())?)
}

/// Makes a switch a peer with this number, from which nothing came yet.
///
/// # Errors
/// The kernel refuses.
pub fn write_peer(
    dataplane: &Dataplane,
    number: u8,
    address: Ipv4Addr,
    since_ns: u64,
) -> Result<()> {
    dataplane.write_array(CLOCKS, number.into(), &PeerClockValue::default().to_bytes())?;
    write(dataplane, number, address, since_ns)
}

impl Peers {
    /// With the peers that an earlier agent has left in the maps.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(dataplane: Arc<Dataplane>, pace: Pace) -> Result<Peers> {
        let random = secrets::random_secret().map_err(|error| Error::Other(error.to_string()))?;
        let [life, _] = random.words();
        let mut state = State::default();
        for number in 0..PEERS {
            let value = PeerValue::from_bytes(&dataplane.read_array(MAP, number)?);
            if value.address != Ipv4Addr::UNSPECIFIED {
                let peer = Peer { number: number as u8, since_ns: value.since_ns };
                state.peers.insert(value.address, peer);
            }
        }
        Ok(Peers { dataplane, pace, life, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often, how long.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// From the next [`Peers::set`] on, leases are no longer than the controller waits for.
    ///
    /// # Errors
    /// It waits for less time than a lease needs.
    pub fn lease_no_longer_than(&self, lease_ms: u64) -> Result<()> {
        if lease_ms < Pace::LEAST_LEASE_MS {
            return Err(Error::Other(format!(
                "the controller's lease_ms is {lease_ms}, but must be at least {}",
                Pace::LEAST_LEASE_MS
            )));
        }
        self.state().most_lease_ns = Some(Pace { lease_ms, ..self.pace }.lease_ns());
        Ok(())
    }

    /// From the next [`Peers::set`] on, leases are no longer than those of an earlier agent, until
    /// [`Peers::lease_no_longer_than`] says something else.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn keep_lease(&self) -> Result<()> {
        let settings = PeerSettingsValue::from_bytes(&self.dataplane.read_array(SETTINGS, 0)?);
        self.state().most_lease_ns = Some(settings.lease_ns).filter(|ns| *ns > 0);
        Ok(())
    }

    /// The switch's own address, the fingerprint of its ring, and all peers; the switch itself may
    /// be among them, and is not probed. When it returns, peers that are none any more give no
    /// lease.
    ///
    /// # Errors
    /// There are too many, or the kernel refuses.
    pub fn set(&self, own: Ipv4Addr, ring: u32, peers: &[Ipv4Addr]) -> Result<()> {
        let mut state = self.state();
        let usual_ns = self.pace.lease_ns();
        let lease_ns = state.most_lease_ns.map_or(usual_ns, |most_ns| most_ns.min(usual_ns));
        write_settings(&self.dataplane, own, ring, lease_ns, self.life)?;
        state.own = Some(own);
        let gone = |it: &Ipv4Addr| !peers.contains(it);
        let left: Vec<Ipv4Addr> = state.peers.keys().copied().filter(gone).collect();
        let mut taken: Vec<u8> = state.peers.values().map(|peer| peer.number).collect();
        for address in &left {
            if let Some(peer) = state.peers.remove(address) {
                write(&self.dataplane, peer.number, Ipv4Addr::UNSPECIFIED, 0)?;
            }
        }
        if !left.is_empty() {
            // No packet notes an answer of one of these any more.
            wait_for_packets()?;
        }
        for address in &left {
            tracing::debug!("{address} is not a peer any more");
        }
        let zero = PeerClockValue::default().to_bytes();
        let current: Vec<u8> = state.peers.values().map(|peer| peer.number).collect();
        for number in taken.iter().filter(|number| !current.contains(number)) {
            self.dataplane.write_array(CLOCKS, u32::from(*number), &zero)?;
        }
        for address in peers {
            if state.peers.contains_key(address) {
                continue;
            }
            let Some(number) = (0..NO_PEER).find(|number| !taken.contains(number)) else {
                return Err(Error::Other(format!("more than {PEERS} peers, old ones included")));
            };
            taken.push(number);
            let since_ns = now_ns();
            write_peer(&self.dataplane, number, *address, since_ns)?;
            state.peers.insert(*address, Peer { number, since_ns });
        }
        Ok(())
    }

    /// A peer's number; 255: it is none.
    pub fn number(&self, address: Ipv4Addr) -> u8 {
        self.state().peers.get(&address).map_or(NO_PEER, |peer| peer.number)
    }

    /// `peers` of a role: the numbers of these members but for the switch itself. None: one of them
    /// is no peer, or there are too many.
    pub fn members(&self, members: &[Ipv4Addr]) -> Option<u32> {
        let state = self.state();
        let mut numbers = [NO_PEER; 4];
        let others = members.iter().filter(|it| state.own != Some(**it));
        for (at, address) in others.enumerate() {
            *numbers.get_mut(at)? = state.peers.get(address)?.number;
        }
        Some(u32::from_be_bytes(numbers))
    }

    /// Queues the probes that are due, for generated frames; how many frames they need.
    pub fn due(&self, now_ns: u64) -> u64 {
        let mut state = self.state();
        if now_ns < state.next_ns {
            return 0;
        }
        (state.asked_ns, state.next_ns) = (now_ns, now_ns + self.pace.probe_ms * 1_000_000);
        let Some(queue) = self.dataplane.map(DUE) else { return 0 };
        let mut queued = 0;
        for (to, Peer { number, .. }) in state.others() {
            let operation = Operation::Probe as u32;
            let number = number.into();
            let due = PeersDueValue { operation, number, to, part: 0, object: 0 };
            if queue.update(&[], &due.to_bytes(), MapFlags::ANY).is_err() {
                // Full, as no frame was made for long: let them all be made.
                return PEERS_DUE.into();
            }
            queued += 1;
        }
        queued
    }

    fn clock(&self, number: u8) -> PeerClockValue {
        let bytes = self.dataplane.read_array(CLOCKS, number.into());
        bytes.map_or(PeerClockValue::default(), |bytes| PeerClockValue::from_bytes(&bytes))
    }

    /// The peers but for the switch itself.
    pub fn load(&self) -> Vec<PeerLoad> {
        let (state, now) = (self.state(), now_ns());
        let load = |(address, Peer { number, since_ns }): (Ipv4Addr, Peer)| {
            let PeerClockValue { heard_ns, lease_until_ns } = self.clock(number);
            let silent_ms = silent_ns(state.asked_ns, heard_ns.max(since_ns)) / 1_000_000;
            PeerLoad { address, silent_ms, heard: heard_ns > 0, lease: lease_until_ns > now }
        };
        state.others().map(load).collect()
    }

    /// For how long peers have answered no probe, in milliseconds: from the newest probe that a
    /// peer answered (or from when it became a peer) to the newest probe. Peers that are silent for
    /// less than `least_ms` are left out; peers that never answered are not.
    pub fn silent_ms(&self, least_ms: u64) -> Vec<(Ipv4Addr, u64)> {
        let silent = |peer: &PeerLoad| peer.silent_ms >= least_ms || !peer.heard;
        let all = self.load().into_iter().filter(silent);
        all.map(|peer| (peer.address, peer.silent_ms)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a switch whose agent gets no CPU for 100 ms takes all others for dead.
    #[test]
    fn a_peer_that_was_not_asked_is_not_silent() {
        let asked_ns = 50_000_000;
        assert_eq!(silent_ns(asked_ns, asked_ns), 0);
        assert_eq!(silent_ns(asked_ns, 20_000_000), 30_000_000);
        assert_eq!(silent_ns(asked_ns, 60_000_000), 0, "it became a peer since");
    }

    #[test]
    fn a_lease_is_shorter_than_what_the_controller_waits_for() {
        let pace = Pace { probe_ms: 10, lease_ms: 100 };
        assert_eq!(pace.lease_ns(), 79_000_000);
    }
}
