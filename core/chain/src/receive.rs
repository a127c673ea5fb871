//! Messages of neighbours: entries in order, acknowledgements. The README names the page with the
//! rules, and why they hold.
//!
//! A replica takes chain messages of its own view only, and from the neighbour that the view names,
//! incarnation included. So a server that was taken out of the chain can order nothing and answer
//! nothing any more, whatever it believes to be.

use crate::mutation::{self, Mutation};
use crate::{BrokenReason, Entries, Entry, Event, Outputs, Replica, StateMachine};
use std::net::SocketAddrV4;
use wire::{ChainFlags, ChainHeader, ChainType};

impl<S: StateMachine> Replica<S> {
    /// Takes a genuine chain message of the shard. What it causes is in `out`, complete after the
    /// next `flush`.
    pub fn message(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        self.take_message(now_ns, from, bytes, out);
        self.notice_ready(out);
    }

    fn take_message(&mut self, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
        let header = match ChainHeader::decode(bytes) {
            Ok(header) => header,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        let from_successor = matches!(header.chain_type, ChainType::Ack | ChainType::CopyAck);
        let peer = if from_successor {
            let down = self.down.as_ref().map(|down| down.peer);
            down.or(self.copy_out.as_ref().map(|copy| copy.peer))
        } else {
            self.up.as_ref().map(|up| up.peer)
        };
        let neighbour =
            peer.is_some_and(|peer| peer.address == from && peer.incarnation == header.sender);
        if !neighbour || header.receiver != self.me.incarnation {
            self.counters.chain_not_neighbour += 1;
            return;
        }
        if let Some(down) = self.down.as_mut().filter(|_| from_successor) {
            down.heard_ns = now_ns;
        }
        if header.view != self.view.number && !mutation::planted(Mutation::AnyView) {
            self.counters.chain_other_view += 1;
            // So that the predecessor knows that we can be reached; of another view it learns no
            // more than that.
            if let Some(up) = self.up.as_mut().filter(|_| !from_successor) {
                up.ack_due = true;
            }
            return;
        }
        if self.broken.is_some() {
            return;
        }
        match header.chain_type {
            ChainType::Hello => self.hello(&header, out),
            ChainType::Data => self.data(now_ns, &header, bytes, out),
            ChainType::Ack => self.ack(now_ns, &header, out),
            ChainType::Copy => self.copy_message(&header, bytes),
            ChainType::CopyAck => self.copy_ack(now_ns, &header),
        }
    }

    fn hello(&mut self, header: &ChainHeader, out: &mut Outputs) {
        let Some(up) = &mut self.up else { return };
        up.ack_due = true;
        let mismatch = header.config_digest != self.settings.config_digest;
        if mismatch && !up.mismatch {
            out.events.push(Event::ConfigMismatch(up.peer.address));
        }
        up.mismatch = mismatch;
        up.bound = !mismatch;
        // What was not durable when power was lost was applied here, and the predecessor may know
        // it.
        up.gap |= header.index > self.index
            && self.durability.as_ref().is_some_and(|durability| durability.resumed);
    }

    fn data(&mut self, now_ns: u64, header: &ChainHeader, bytes: &[u8], out: &mut Outputs) {
        let entries = match Entries::<S>::decode(header, bytes) {
            Ok(entries) => entries,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        let Some(up) = self.up.as_mut().filter(|up| self.synced && !up.mismatch) else {
            self.counters.chain_gaps += 1;
            return;
        };
        let next = self.index + 1;
        if header.index == next && up.out_of_order.is_empty() {
            up.owe_ack(now_ns, self.settings.resend_ns);
        } else {
            // Something is missing, is there at last, or was sent again for want of an
            // acknowledgement.
            up.ack_due = true;
        }
        if header.index > next && !mutation::planted(Mutation::GapInChain) {
            up.gap = true;
            up.out_of_order.keep(header.index, bytes);
            self.counters.chain_gaps += 1;
            return;
        }
        self.take_entries(header.index, entries, out);
        self.take_what_came_before(out);
    }

    /// Takes what came before its turn, as far as its turn is now.
    fn take_what_came_before(&mut self, out: &mut Outputs) {
        let Some(up) = self.up.as_ref().filter(|up| !up.out_of_order.is_empty()) else { return };
        debug_assert!(up.ack_due || up.ack_by_ns.is_some());
        while let Some(datagram) =
            self.up.as_mut().and_then(|up| up.out_of_order.take(self.index + 1))
        {
            // It was read when it came.
            if let Ok(header) = ChainHeader::decode(&datagram)
                && let Ok(entries) = Entries::<S>::decode(&header, &datagram)
            {
                self.take_entries(header.index, entries, out);
            }
        }
        if let Some(up) = self.up.as_mut() {
            up.gap = !up.out_of_order.is_empty();
            up.ack_due |= up.gap;
        }
    }

    /// Takes the entries, of which the first has this index, that are not here yet: that is no
    /// later than the next.
    fn take_entries(&mut self, first: u64, entries: Entries<'_, S>, out: &mut Outputs) {
        if self.is_backed_up() {
            self.counters.dropped_back_pressure += 1;
            return;
        }
        if self.broken.is_some() {
            return;
        }
        for (index, (entry, own_bytes)) in (first..).zip(entries) {
            if index <= self.index && mutation::planted(Mutation::EntriesAgain) {
                let _ = self.state.apply(&entry.effect);
            }
            if index <= self.index {
                self.counters.chain_duplicates += 1;
                continue;
            }
            if let Some(copy) = &mut self.copy_out {
                copy.note(&self.state, &entry.effect);
            }
            if self.state.apply(&entry.effect).is_err() {
                return self.break_chain(BrokenReason::EntryDoesNotApply, out);
            }
            self.take_entry(index, &entry, own_bytes, out);
        }
    }

    /// An applied entry goes on: down the chain, or, at the tail, its reply to the client.
    fn take_entry(&mut self, index: u64, entry: &Entry<'_, S>, bytes: &[u8], out: &mut Outputs) {
        self.index = index;
        self.counters.chain_applied += 1;
        self.journal_entry(entry.effect);
        if let Some(durability) = &mut self.durability {
            durability.resumed = false;
        }
        if self.answers() && self.durability.is_none() {
            self.committed = index;
            self.log.forget(index);
            self.send_reply(entry.client, entry.reply, out);
        } else {
            let mut buffer = self.log.buffer();
            buffer.extend_from_slice(bytes);
            self.log.push(buffer);
        }
    }

    fn ack(&mut self, now_ns: u64, header: &ChainHeader, out: &mut Outputs) {
        let resend_ns = self.settings.resend_ns;
        let joining_copies = self.copy_out.as_ref().is_some_and(|copy| !copy.is_complete());
        let Some(down) = self.down.as_mut().filter(|_| !joining_copies) else { return };
        if header.flags.contains(ChainFlags::MISMATCH)
            || header.config_digest != self.settings.config_digest
        {
            out.events.push(Event::ConfigMismatch(down.peer.address));
            return;
        }
        if !down.bound {
            if !header.flags.contains(ChainFlags::SYNCED) {
                return; // from before its copy was done
            }
            if header.index > self.index {
                let reason = BrokenReason::SuccessorAhead(down.peer.address);
                return self.break_chain(reason, out);
            }
            if header.index + 1 < self.log.first() {
                // It lacks what every member has. It stays unbound, is reported as unreachable, and
                // loses its place.
                (down.heard_ns, self.counters.chain_gaps) = (0, self.counters.chain_gaps + 1);
                return;
            }
            down.bind(now_ns, header.index);
            out.events.push(Event::SuccessorBound(down.peer.address));
        }
        down.ready = header.flags.contains(ChainFlags::READY);
        if let Some(committed) =
            down.acknowledge(now_ns, header.index, header.committed, &self.log, resend_ns)
        {
            self.log.forget(committed);
            self.committed = self.committed.max(committed);
            if let Some(up) = &mut self.up {
                up.owe_ack(now_ns, resend_ns);
            }
        }
        let gap = header.flags.contains(ChainFlags::GAP);
        let durable = self.durability.is_some();
        let stepped_back =
            gap && durable && down.step_back(now_ns, header.index, self.log.first(), resend_ns);
        if gap && (stepped_back || down.rewind_on_gap(now_ns, header.index, resend_ns)) {
            self.counters.chain_resends += 1;
        }
    }
}
