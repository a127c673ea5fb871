//! Servers are added while all flows are updated: shards move to them, heads too, and nothing is
//! lost.

use crate::PATIENCE;
use crate::chain::{Chain, Plan};
use crate::etcd::Etcd;
use crate::switch::Switch;
use controller::core::{Ring, Server};
use state_protocol::{Message, MessageType};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use wire::shard_of;

const SHARDS: u16 = 16;
const FLOWS: u32 = 64;

#[derive(Default, Clone, Copy)]
struct Flow {
    epoch: u32,
    sent: u64,
    acked: u64,
}

/// All flows of a switch: each has one update under way all the time.
struct Flows {
    switch: Switch,
    flows: BTreeMap<[u8; 4], Flow>,
    /// The chains, as the controller last said.
    chains: Vec<Vec<SocketAddrV4>>,
    asked: Instant,
}

impl Flows {
    fn new(chain: &Chain) -> Flows {
        let switch = Switch::new(chain, 1);
        switch.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        switch.clock.set(1);
        let keys = (0..FLOWS).map(|flow| (flow.to_be_bytes(), Flow::default()));
        let mut flows =
            Flows { switch, flows: keys.collect(), chains: Vec::new(), asked: Instant::now() };
        flows.look(chain);
        flows
    }

    fn look(&mut self, chain: &Chain) {
        self.chains = chain.control().shards.into_iter().map(|shard| shard.chain).collect();
        self.asked = Instant::now();
    }

    /// Sends what is not acknowledged, and takes what comes within a few milliseconds.
    fn step(&mut self, chain: &Chain) {
        if self.asked.elapsed() > Duration::from_millis(20) {
            self.look(chain);
        }
        for (key, flow) in &mut self.flows {
            let shard = shard_of(key, SHARDS);
            if flow.sent == flow.acked {
                flow.sent += 1;
            }
            let value = flow.sent.to_be_bytes();
            let kind =
                if flow.epoch == 0 { MessageType::LeaseRequest } else { MessageType::Update };
            let mut message = Message { shard, ..self.switch.request(kind, 1, key) };
            if flow.epoch != 0 {
                message = Message { epoch: flow.epoch, seq: flow.sent, value: &value, ..message };
            }
            self.switch.head = self.chains[usize::from(shard)][0];
            self.switch.send(&message);
        }
        let mut buffer = [0; 2048];
        while let Ok((count, _)) = self.switch.socket.recv_from(&mut buffer) {
            let reply = Message::decode(&buffer[..count]).unwrap();
            assert_ne!(reply.message_type, MessageType::Refused, "the owner is refused");
            let Some(flow) = self.flows.get_mut(reply.key) else { continue };
            match reply.message_type {
                MessageType::LeaseGrant if flow.epoch == 0 => {
                    (flow.epoch, flow.sent) = (reply.epoch, 0)
                }
                MessageType::UpdateAck => flow.acked = flow.acked.max(reply.seq),
                _ => {}
            }
        }
    }

    fn until(&mut self, chain: &Chain, what: &str, done: impl Fn(&Flows) -> bool) -> Duration {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < 6 * PATIENCE, "{what}: {:?}", self.chains);
            self.step(chain);
        }
        start.elapsed()
    }

    fn acked(&self) -> u64 {
        self.flows.values().map(|flow| flow.acked).sum()
    }

    /// Whether each shard is where it belongs among so many servers.
    fn placed(&self, servers: &[SocketAddrV4]) -> bool {
        let named: Vec<_> = servers.iter().map(|server| (*server, server.to_string())).collect();
        let servers = named.iter().map(|(address, machine)| Server {
            address: *address,
            machine,
            live: true,
        });
        let ring = Ring::new(servers);
        let sorted = |mut servers: Vec<SocketAddrV4>| {
            servers.sort_unstable();
            servers
        };
        let place = |(shard, chain): (u16, &Vec<_>)| {
            sorted(chain.clone()) == sorted(ring.servers_of(shard, 3, chain))
        };
        (0..SHARDS).zip(&self.chains).all(place)
    }

    /// How many shards each server is in, and how many it heads.
    fn shares(&self, servers: &[SocketAddrV4]) -> Vec<(usize, usize)> {
        let share = |server: &SocketAddrV4| {
            let member = self.chains.iter().filter(|chain| chain.contains(server)).count();
            (member, self.chains.iter().filter(|chain| chain.first() == Some(server)).count())
        };
        servers.iter().map(share).collect()
    }

    /// No head heads two shards more than another member of its chain.
    fn heads_are_spread(&self) -> bool {
        let heads = |server: &SocketAddrV4| {
            self.chains.iter().filter(|chain| chain.first() == Some(server)).count()
        };
        let spread =
            |chain: &Vec<_>| chain.iter().all(|member| heads(&chain[0]) <= heads(member) + 1);
        self.chains.iter().all(spread)
    }
}

pub fn servers_are_added() {
    let mut chain = Chain::start_as(&Plan {
        servers: 5,
        running: 3,
        shards: SHARDS,
        etcd: Etcd::None,
        logs: false,
        workers: 1,
    });
    let mut flows = Flows::new(&chain);
    flows.until(&chain, "all flows have been updated", |flows| {
        flows.flows.values().all(|flow| flow.acked >= 10)
    });
    for count in [4, 5] {
        let server = chain.spawn(count - 1);
        chain.servers.push(server);
        let servers = chain.addresses[..count].to_vec();
        let before = flows.acked();
        let moved = flows.until(&chain, "shards move", |flows| flows.placed(&servers));
        let updates = flows.acked() - before;
        let spread = flows.until(&chain, "heads are spread", Flows::heads_are_spread);
        let shares = flows.shares(&servers);
        println!(
            "{count} servers: moved within {} ms under {updates} updates, heads spread after {} ms more; each is in (heads) {shares:?} shards",
            moved.as_millis(),
            spread.as_millis()
        );
        assert!(shares.iter().all(|(member, head)| *member > 0 && *head > 0), "{shares:?}");
    }
    // All that was acknowledged is there, in its shard's new place.
    flows.until(&chain, "all is acknowledged", |flows| {
        flows.flows.values().all(|flow| flow.sent == flow.acked)
    });
    for (key, flow) in flows.flows.clone() {
        let shard = shard_of(&key, SHARDS);
        let lease = Message { shard, ..flows.switch.request(MessageType::LeaseRequest, 1, &key) };
        (flows.switch.head, flows.switch.tail) = (
            flows.chains[usize::from(shard)][0],
            *flows.chains[usize::from(shard)].last().unwrap(),
        );
        let answer = flows.switch.ask(&lease);
        let grant = answer.message();
        assert_eq!(
            (grant.message_type, grant.epoch),
            (MessageType::LeaseGrant, flow.epoch),
            "{key:?}"
        );
        assert_eq!(
            (grant.seq, grant.value),
            (flow.acked, &flow.acked.to_be_bytes()[..]),
            "{key:?}"
        );
    }
    chain.stop();
}
