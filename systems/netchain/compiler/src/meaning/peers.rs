//! What a PeerLeases means: stateplane_peers.h, for one CPU with an exact clock. The packet
//! generator is not interpreted: its frames are packets from GENERATOR_PORT.

use super::{answer, number};
use netchain_protocol::layouts::NO_PEER;
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Call, Datum, Object};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// What a PeerLeases draws from.
pub mod supply {
    /// How long a lease holds, in nanoseconds; and the number of this life of the agent's.
    pub const LEASES: &str = "leases";
    /// A peer: its number, its address as a number, and since when it is one, in nanoseconds.
    pub const PEER: &str = "peer";
}

#[derive(Clone)]
struct Peer {
    address: Ipv4Addr,
    since_ns: u64,
    heard_ns: u64,
    lease_until_ns: u64,
}

#[derive(Clone, Default)]
pub(super) struct Peers {
    lease_ns: u64,
    life: u64,
    peers: BTreeMap<u8, Peer>,
    now_ns: u64,
}

impl Peers {
    fn answered(&mut self, number: u32, address: Ipv4Addr, life: u64, clock_ns: u64, lease: bool) {
        let Some(peer) = u8::try_from(number).ok().and_then(|it| self.peers.get_mut(&it)) else {
            return;
        };
        if peer.address != address || self.life != life || clock_ns < peer.since_ns {
            return;
        }
        peer.heard_ns = peer.heard_ns.max(clock_ns);
        if lease {
            peer.lease_until_ns = peer.lease_until_ns.max(clock_ns.saturating_add(self.lease_ns));
        }
    }

    /// The newest clock that a peer has returned.
    fn heard(&self, number: u32) -> u64 {
        let peer = u8::try_from(number).ok().and_then(|it| self.peers.get(&it));
        peer.map_or(0, |peer| peer.heard_ns)
    }

    fn hold(&self, peers: u32) -> bool {
        peers.to_be_bytes().into_iter().filter(|number| *number != NO_PEER).all(|number| {
            self.peers.get(&number).is_some_and(|peer| peer.lease_until_ns > self.now_ns)
        })
    }
}

impl Object for Peers {
    fn begin_packet(&mut self, _: &[u8], now_us: u64) {
        self.now_ns = now_us * 1000;
    }

    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop> {
        let numbers: Vec<u128> = call.arguments.iter().map(number).collect::<Result<_, _>>()?;
        match (call.method, &numbers[..]) {
            ("hold", [peers]) => answer(self.hold(*peers as u32).into()),
            ("answered", [peer, address, life, clock, lease]) => {
                let address = Ipv4Addr::from(*address as u32);
                self.answered(*peer as u32, address, *life as u64, *clock as u64, *lease != 0);
                answer(0)
            }
            // Not the program's: who looks from outside asks.
            ("heard", [peer]) => Ok(Answer::Value(Datum::Number(self.heard(*peer as u32).into()))),
            (other, _) => Err(Stop::Unsupported(format!("PeerLeases.{other}"))),
        }
    }

    fn supply(&mut self, what: &str, numbers: &[u64]) -> Result<(), Stop> {
        match (what, numbers) {
            (supply::LEASES, [lease_ns, life]) => {
                (self.lease_ns, self.life) = (*lease_ns, *life);
            }
            (supply::PEER, [number, address, since_ns]) => {
                let address = Ipv4Addr::from(*address as u32);
                let peer = Peer { address, since_ns: *since_ns, heard_ns: 0, lease_until_ns: 0 };
                self.peers.insert(*number as u8, peer);
            }
            _ => return Err(Stop::Unsupported(format!("{what} for a PeerLeases"))),
        }
        Ok(())
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}
