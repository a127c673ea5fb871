//! The chain: binding of links, entries in order, acknowledgements, and what happens when a server loses its state.
//!
//! A link binds two incarnations. It may bind anew only as long as nothing is lost by it: the successor is empty and the predecessor still has every
//! entry. Any other change of incarnation means that a server came back without its state: the chain is broken, every server that hears of it says
//! so to its neighbours and serves no more, until all were restarted. (Repair with state transfer is a matter of its own.)

use super::link::{Downstream, condition};
use super::{BrokenReason, EPOCH_TICK_NS, Event, Outputs, Server};
use state_protocol::{ChainFlags, ChainHeader, ChainType, Entries};
use std::net::SocketAddrV4;

const HELLO_UNBOUND_NS: u64 = 50_000_000;
const HELLO_BOUND_NS: u64 = 200_000_000;

impl Server {
    pub(super) fn chain_message(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        let header = match ChainHeader::decode(bytes) {
            Ok(header) => header,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        let expected = match header.chain_type {
            ChainType::Ack => self.down.as_ref().map(|down| down.address),
            ChainType::Hello | ChainType::Data => self.up.as_ref().map(|up| up.address),
        };
        if expected != Some(from) || header.sender == 0 {
            self.counters.chain_not_neighbour += 1;
            return;
        }
        match header.chain_type {
            ChainType::Hello => self.hello(&header, out),
            ChainType::Data => self.data(&header, bytes, out),
            ChainType::Ack => self.ack(now_ns, &header, out),
        }
    }

    fn hello(&mut self, header: &ChainHeader, out: &mut Outputs) {
        let Some(up) = &mut self.up else { return };
        up.ack_due = true;
        if header.config_digest != self.config_digest {
            if !up.mismatch {
                out.events.push(Event::ConfigMismatch(up.address));
            }
            up.mismatch = true;
            return;
        }
        up.mismatch = false;
        let address = up.address;
        let broken = header.flags.contains(ChainFlags::BROKEN);
        if up.peer == header.sender {
            if broken {
                self.break_chain(BrokenReason::ToldBy(address), out);
            }
        } else if self.index == 0 && header.receiver == 0 && header.committed == 0 && !broken && self.broken.is_none() {
            // Nothing was applied here, so whoever was bound before has answered nothing with our help: no state is lost.
            up.peer = header.sender;
            out.events.push(Event::PredecessorBound(address));
        } else if up.peer != 0 {
            self.break_chain(BrokenReason::PredecessorRestarted(address), out);
        }
        // Otherwise: empty here, and the predecessor is of an earlier chain. It learns from our acknowledgement that its successor is another.
    }

    fn data(&mut self, header: &ChainHeader, bytes: &[u8], out: &mut Outputs) {
        let entries = match Entries::decode(header, bytes) {
            Ok(entries) => entries,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        let backed_up = self.is_backed_up();
        let Some(up) = &mut self.up else { return };
        up.ack_due = true;
        if up.peer != header.sender || header.receiver != self.incarnation || self.broken.is_some() {
            self.counters.chain_other_incarnation += 1;
            return;
        }
        if header.index > self.index + 1 {
            up.gap = true;
            self.counters.chain_gaps += 1;
            return;
        }
        if backed_up {
            self.counters.dropped_back_pressure += 1;
            return;
        }
        let last = header.index + u64::from(header.count) - 1;
        self.committed = self.committed.max(header.committed.min(self.index.max(last)));
        for (index, (entry, own_bytes)) in (header.index..).zip(entries) {
            if index <= self.index {
                self.counters.chain_duplicates += 1;
            } else if self.records.apply(&entry.effect).is_err() {
                return self.break_chain(BrokenReason::EntryDoesNotApply, out);
            } else {
                self.take_entry(index, entry.client, entry.reply, own_bytes, out);
            }
        }
    }

    /// An applied entry goes on: down the chain, or, at the tail, its reply to the switch.
    fn take_entry(&mut self, index: u64, client: SocketAddrV4, reply: &[u8], bytes: &[u8], out: &mut Outputs) {
        self.index = index;
        self.counters.chain_applied += 1;
        match &mut self.down {
            Some(down) => {
                let mut buffer = down.buffer();
                buffer.extend_from_slice(bytes);
                down.push(buffer);
            }
            None => {
                self.committed = index;
                if !reply.is_empty() {
                    self.counters.replies += 1;
                    out.push(client, reply);
                }
            }
        }
    }

    fn ack(&mut self, now_ns: u64, header: &ChainHeader, out: &mut Outputs) {
        let resend_ns = self.settings.resend_ns;
        let Some(down) = &mut self.down else { return };
        if header.flags.contains(ChainFlags::MISMATCH) || header.config_digest != self.config_digest {
            out.events.push(Event::ConfigMismatch(down.address));
            return;
        }
        if header.receiver != self.incarnation {
            // Meant for an earlier life of this server, or its sender has not bound us: nothing to learn but that it is of an earlier chain.
            self.counters.chain_other_incarnation += 1;
            let old = header.flags.contains(ChainFlags::BROKEN) || header.index > 0;
            if old && down.peer == 0 {
                out.events.push(Event::NeighbourOfEarlierChain(down.address));
            }
            let lost = down.peer != 0 && header.sender != down.peer && header.receiver == 0 && !down.is_complete();
            if lost {
                let reason = BrokenReason::SuccessorRestarted(down.address);
                self.break_chain(reason, out);
            } else if down.peer != 0 && header.sender != down.peer && header.receiver == 0 {
                // An empty successor that awaits a HELLO as to a stranger.
                (down.peer, down.ready, down.hello_at_ns) = (0, false, now_ns);
            }
            return;
        }
        if down.peer != header.sender {
            return self.bind_successor(now_ns, header, out);
        }
        if header.flags.contains(ChainFlags::BROKEN) {
            let reason = BrokenReason::ToldBy(down.address);
            return self.break_chain(reason, out);
        }
        down.ready = header.flags.contains(ChainFlags::READY);
        if down.acknowledge(now_ns, header.index, header.committed, resend_ns) {
            self.committed = self.committed.max(header.committed.min(self.index));
            if let Some(up) = &mut self.up {
                up.ack_due = true;
            }
        }
        if header.flags.contains(ChainFlags::GAP) && down.rewind_on_gap(now_ns, resend_ns) {
            self.counters.chain_resends += 1;
        }
    }

    fn bind_successor(&mut self, now_ns: u64, header: &ChainHeader, out: &mut Outputs) {
        let Some(down) = &mut self.down else { return };
        let bindable = header.index == 0 && !header.flags.contains(ChainFlags::BROKEN) && down.is_complete();
        if self.broken.is_some() {
            return;
        }
        if bindable {
            down.peer = header.sender;
            down.ready = header.flags.contains(ChainFlags::READY);
            down.restart(now_ns);
            out.events.push(Event::SuccessorBound(down.address));
        } else if down.peer != 0 {
            let reason = BrokenReason::SuccessorRestarted(down.address);
            self.break_chain(reason, out);
        } else {
            out.events.push(Event::NeighbourOfEarlierChain(down.address));
        }
    }

    /// Stops serving, for good, and tells the neighbours.
    pub(super) fn break_chain(&mut self, reason: BrokenReason, out: &mut Outputs) {
        if self.broken.is_some() {
            return;
        }
        self.broken = Some(reason);
        out.events.push(Event::Broken(reason));
        if let Some(up) = &mut self.up {
            up.ack_due = true;
        }
        if let Some(down) = &mut self.down {
            down.hello_at_ns = 0;
        }
    }

    pub(super) fn notice_ready(&mut self, now_ns: u64, out: &mut Outputs) {
        let ready = self.is_ready();
        if ready == self.was_ready {
            return;
        }
        self.was_ready = ready;
        if let Some(up) = &mut self.up {
            up.ack_due = true;
        }
        if ready {
            out.events.push(Event::Ready);
            // Switches may hold leases that an earlier chain granted: wait until the last of them is over.
            self.serve_from_ns.get_or_insert(now_ns + self.store_lease_ns.max(EPOCH_TICK_NS));
        }
    }

    pub(super) fn chain_timer(&mut self, now_ns: u64) {
        if self.broken.is_none() && self.down.as_mut().is_some_and(|down| down.resend_if_due(now_ns)) {
            self.counters.chain_resends += 1;
        }
    }

    /// Sends what a batch of inputs left to send to the neighbours.
    pub(super) fn send_chain(&mut self, now_ns: u64, out: &mut Outputs) {
        let flags = condition(self.is_ready(), self.broken.is_some());
        let header = ChainHeader {
            chain_type: ChainType::Data,
            flags,
            count: 0,
            sender: self.incarnation,
            receiver: 0,
            index: self.index,
            committed: self.committed,
            config_digest: self.config_digest,
            shard: self.settings.shard,
        };
        if let Some(down) = &mut self.down {
            let header = ChainHeader { receiver: down.peer, ..header };
            if down.hello_at_ns <= now_ns {
                let hello = ChainHeader { chain_type: ChainType::Hello, ..header };
                out.push(down.address, &hello.encode());
                down.hello_at_ns = now_ns + if down.peer == 0 { HELLO_UNBOUND_NS } else { HELLO_BOUND_NS };
            }
            if down.peer != 0 && self.broken.is_none() {
                send_data(down, now_ns, header, &self.settings, out);
            }
        }
        if let Some(up) = self.up.as_mut().filter(|up| up.ack_due) {
            let gap = if up.gap { ChainFlags::GAP } else { ChainFlags::NONE };
            let mismatch = if up.mismatch { ChainFlags::MISMATCH } else { ChainFlags::NONE };
            let flags = flags.with(gap).with(mismatch);
            let ack = ChainHeader { chain_type: ChainType::Ack, flags, receiver: up.peer, ..header };
            out.push(up.address, &ack.encode());
            (up.ack_due, up.gap) = (false, false);
        }
    }
}

fn send_data(down: &mut Downstream, now_ns: u64, header: ChainHeader, settings: &super::Settings, out: &mut Outputs) {
    down.send(now_ns, header, settings.chain_datagram_bytes, settings.resend_ns, out);
}
