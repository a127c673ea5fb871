//! A server process that keeps counters: what a system builds on the crate.

use super::{Counters, MS};
use chain::{Event, Node, NodeSettings, Outputs, Replica, Restored, Role, Settings, Shard, System};
use simnet::{Clock, Disk};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{KeyRing, Member, SECRET_BYTES, Secret, ShardView, Views};

const SHARD: u16 = 0;

/// One shard's counters. Its head has no rules: the world orders what clients ask.
pub struct Counting(Replica<Counters>);

impl Shard for Counting {
    type State = Counters;

    fn chain(&self) -> &Replica<Counters> {
        &self.0
    }

    fn chain_mut(&mut self) -> &mut Replica<Counters> {
        &mut self.0
    }

    fn adopt(&mut self, now_ns: u64, view: &ShardView, out: &mut Outputs) {
        self.0.adopt(now_ns, view, out);
    }

    fn request(&mut self, _: u64, _: SocketAddrV4, _: &[u8], _: &mut Outputs) {
        unreachable!("clients ask without messages");
    }

    fn timer(&mut self, now_ns: u64, out: &mut Outputs) {
        self.0.timer(now_ns, out);
    }

    fn next_deadline(&self) -> Option<u64> {
        self.0.next_deadline()
    }
}

pub struct Server {
    pub me: Member,
    pub alive: bool,
    pub clock: Clock,
    node: Node<Maker>,
    /// Of a server that keeps a journal.
    pub disk: Option<Disk>,
}

/// What makes them.
struct Maker(Member);

impl System for Maker {
    type Shard = Counting;

    fn begin(&mut self, _: u64, shard: u16) -> Counting {
        let settings = Settings {
            shard,
            config_digest: 7,
            resend_ns: 10 * MS,
            datagram_bytes: Server::DATAGRAM_BYTES,
            unacked: 256,
            unacked_bytes: 1 << 16,
        };
        Counting(Replica::new(settings, self.0, Counters::default()))
    }

    fn end(&mut self, _: Counting) {}
}

fn node(me: Member, now_ns: u64) -> Node<Maker> {
    let keys = KeyRing::new(1, Secret([1; SECRET_BYTES])).unwrap();
    Node::new(Maker(me), NodeSettings { shards: 1, me, now_ns }, keys, Vec::new())
}

impl Server {
    /// Small, so that a copy has many messages.
    pub const DATAGRAM_BYTES: usize = 160;

    pub fn address(at: usize) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, at as u8 + 1), 5407)
    }

    pub fn new(at: usize, incarnation: u64, clock: Clock, disk: Option<Disk>) -> Server {
        let me = Member { address: Server::address(at), incarnation };
        let now_ns = clock.local(0);
        let mut server = Server { me, alive: true, clock, node: node(me, now_ns), disk };
        if server.disk.is_some() {
            server.node.keep_journal(now_ns, None, &mut Outputs::new());
        }
        server
    }

    /// Its replica, if it lives and is in the chain.
    pub fn replica(&self) -> Option<&Replica<Counters>> {
        self.node.replica(SHARD).filter(|_| self.alive).map(|shard| &shard.0)
    }

    pub fn role(&self) -> Role {
        self.replica().map_or(Role::Outside, Replica::role)
    }

    /// Takes a view, if it is newer.
    pub fn adopt(&mut self, now_ns: u64, view: &ShardView, out: &mut Outputs) {
        let views = Views { version: view.number, shards: vec![view.clone()] };
        self.node.adopt(now_ns, &views, out);
    }

    pub fn datagram(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        self.node.admit(now_ns, from, bytes).expect("genuine");
        self.node.datagram(now_ns, from, bytes, out);
    }

    pub fn timer(&mut self, now_ns: u64, out: &mut Outputs) {
        self.node.timer(now_ns, out);
    }

    pub fn next_deadline(&self) -> Option<u64> {
        self.node.next_deadline().filter(|_| self.alive)
    }

    /// What the system does with its replica.
    pub fn act(&mut self, act: impl FnOnce(&mut Replica<Counters>)) {
        if let Some(shard) = self.node.replica_mut(SHARD) {
            act(&mut shard.0);
            self.node.touch(SHARD);
        }
    }

    /// Begins again: with what its disk has, or empty.
    pub fn restart(&mut self, now_ns: u64, out: &mut Outputs) {
        (self.alive, self.node) = (true, node(self.me, now_ns));
        let Some(disk) = &self.disk else { return };
        let mut restored = Restored::new(Counters::default(), 1);
        restored.read(&disk.durable).expect("what was written");
        self.node.keep_journal(now_ns, Some(restored), out);
    }

    /// Ends a batch of inputs. What `out` has then may be sent. The ticket of what was written and
    /// is not durable yet.
    pub fn flush(&mut self, now_ns: u64, out: &mut Outputs) -> Option<u64> {
        for event in out.events.drain(..) {
            if let Event::Broken(reason) = event {
                panic!("{}: {}", self.me.address, reason.describe());
            }
        }
        let mut not_durable = None;
        loop {
            self.node.flush(now_ns, out);
            if out.journal.is_empty() {
                return not_durable;
            }
            let disk = self.disk.as_mut().expect("who keeps no journal writes nothing");
            disk.write(out.ticket, std::mem::take(&mut out.journal));
            not_durable = Some(out.ticket);
            if std::mem::take(&mut out.barrier) {
                // A server waits for its disk; here that is an instant.
                self.durable(out.ticket, out);
                not_durable = None;
            }
        }
    }

    /// Its disk has everything up to this ticket.
    pub fn durable(&mut self, ticket: u64, out: &mut Outputs) {
        if let Some(disk) = &mut self.disk {
            disk.sync(ticket);
        }
        self.node.durable(ticket, out);
    }

    /// Describes its replica anew in its journal.
    pub fn checkpoint(&mut self) {
        self.node.checkpoint(SHARD);
    }
}
