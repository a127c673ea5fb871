//! A server process with one shard: what a system builds around a `Replica`.

use super::{Counters, MS};
use chain::{Event, Item, Outputs, Replica, Restored, Role, Settings};
use simnet::{Clock, Disk};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{Control, Member, ShardView, Views};

const SHARD: u16 = 0;

pub struct Server {
    pub me: Member,
    pub alive: bool,
    pub clock: Clock,
    pub replica: Option<Replica<Counters>>,
    /// The newest view that it has heard of.
    pub view: u64,
    /// Of a server that keeps a journal.
    pub disk: Option<Disk>,
    ticket: u64,
}

fn settings() -> Settings {
    Settings {
        shard: SHARD,
        config_digest: 7,
        resend_ns: 10 * MS,
        datagram_bytes: Server::DATAGRAM_BYTES,
        unacked: 256,
        unacked_bytes: 1 << 16,
    }
}

impl Server {
    /// Small, so that a copy has many messages.
    pub const DATAGRAM_BYTES: usize = 160;

    pub fn address(at: usize) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, at as u8 + 1), 5407)
    }

    pub fn new(at: usize, incarnation: u64, clock: Clock, disk: Option<Disk>) -> Server {
        let me = Member { address: Server::address(at), incarnation };
        Server { me, alive: true, clock, replica: None, view: 0, disk, ticket: 0 }
    }

    pub fn role(&self) -> Role {
        self.replica.as_ref().map_or(Role::Outside, Replica::role)
    }

    /// Takes a newer view: begins a replica, changes its place, or drops it.
    pub fn adopt(&mut self, now_ns: u64, view: &ShardView, out: &mut Outputs) {
        if view.number <= self.view {
            return;
        }
        self.view = view.number;
        if self.disk.is_some() {
            let views = Views { version: view.number, shards: vec![view.clone()] };
            let bytes = Control::Views(views).encode().unwrap();
            Item::Views(&bytes).append_to(&mut out.journal);
            out.barrier = true;
        }
        let joins = view.joining.is_some_and(|joining| joining.member == self.me);
        if !view.members.contains(&self.me) && !joins {
            if self.replica.take().is_some() && self.disk.is_some() {
                Item::Left { shard: SHARD }.append_to(&mut out.journal);
            }
            return;
        }
        let (me, journals) = (self.me, self.disk.is_some());
        let replica = self.replica.get_or_insert_with(|| {
            let mut replica = Replica::new(settings(), me, Counters::default());
            if journals {
                replica.keep_journal();
            }
            replica
        });
        replica.adopt(now_ns, view, out);
    }

    /// Begins again after a power cut, with what its disk has.
    pub fn restart(&mut self, now_ns: u64, out: &mut Outputs) {
        (self.alive, self.view, self.replica) = (true, 0, None);
        let Some(disk) = &self.disk else { return };
        let mut restored = Restored::new(Counters::default(), 1);
        restored.read(&disk.durable).expect("what was written");
        let (views, mut replicas) = restored.into_parts();
        let Some(view) = views.shards.first() else { return };
        let restored = replicas.pop().flatten().filter(|it| it.founded == view.founded);
        let joins = view.joining.filter(|joining| joining.member == self.me);
        let cut_short = restored
            .as_ref()
            .is_some_and(|it| !it.whole && joins.is_some_and(|joining| joining.since == it.since));
        if let Some(restored) = restored.filter(|restored| restored.whole) {
            let mut replica = Replica::new(settings(), self.me, Counters::default());
            replica.restore(restored);
            self.replica = Some(replica);
        }
        self.adopt(now_ns, view, out);
        if let Some(replica) = self.replica.as_mut().filter(|_| cut_short) {
            replica.give_up_joining();
        }
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
            if let Some(replica) = &mut self.replica {
                replica.flush(now_ns, out);
                replica.drain_journal(self.ticket + 1, out);
            }
            let Some(disk) = self.disk.as_mut().filter(|_| !out.journal.is_empty()) else {
                return not_durable;
            };
            self.ticket += 1;
            disk.write(self.ticket, std::mem::take(&mut out.journal));
            not_durable = Some(self.ticket);
            if std::mem::take(&mut out.barrier) {
                // A server waits for its disk; here that is an instant.
                self.durable(self.ticket, out);
                not_durable = None;
            }
        }
    }

    /// Its disk has everything up to this ticket.
    pub fn durable(&mut self, ticket: u64, out: &mut Outputs) {
        if let Some(disk) = &mut self.disk {
            disk.sync(ticket);
        }
        if let Some(replica) = &mut self.replica {
            replica.became_durable(ticket, out);
        }
    }
}
