//! The chain: views, links, entries in order, acknowledgements.
//! `systems/redplane/docs/state-protocol.md`, "The chain", has the rules and why they hold.
//!
//! A server takes chain messages of its own view only, and from the neighbour that the view names,
//! incarnation included. So a server that was taken out of the chain can order nothing and answer
//! nothing any more, whatever it believes to be.

use super::copy::{CopyIn, CopyOut};
use super::link::{Downstream, Upstream};
use super::log::Log;
use super::{BrokenReason, EPOCH_TICK_NS, Event, Mutation, Outputs, Replica, Role, mutation};
use state_protocol::{Entries, Entry};
use std::net::SocketAddrV4;
use wire::{ChainFlags, ChainHeader, ChainType, ShardView};

impl Replica {
    /// Takes a newer view of the shard. The caller has seen that this server is in it.
    pub fn adopt(&mut self, now_ns: u64, view: &ShardView, out: &mut Outputs) {
        if view.number <= self.view.number {
            return;
        }
        let before = self.role();
        let place = view.members.iter().position(|member| *member == self.me);
        let restored = self
            .durability
            .as_mut()
            .is_some_and(|durability| std::mem::take(&mut durability.restored));
        if self.view.number == 0 && !restored {
            // A member that has no replica saw no view of this founding, and nothing was
            // acknowledged without it: to be empty is to be whole.
            self.whole = place.is_some();
            // Switches may hold leases that an earlier chain granted: wait until the last of them
            // is over.
            self.serve_from_ns = now_ns + self.store_lease_ns.max(EPOCH_TICK_NS);
            if self.whole {
                self.journal_begin(view.founded, 0);
            }
        }
        self.view = view.clone();
        match place {
            Some(place) => self.adopt_as_member(now_ns, place, restored),
            None => self.adopt_as_joining(),
        }
        out.events.push(Event::View {
            shard: self.settings.shard,
            number: view.number,
            role: self.role(),
        });
        if place.is_some() && !self.whole {
            return self.break_chain(BrokenReason::MemberWithoutState, out);
        }
        if self.role() != Role::Head || view.draining {
            // Who waits here asks again, the new head or this one.
            self.forget_waiting();
        }
        if self.role() == Role::Head && before != Role::Head {
            self.take_over(now_ns, out);
        }
        self.answer_what_nobody_follows(out);
    }

    fn adopt_as_member(&mut self, now_ns: u64, place: usize, restored: bool) {
        let members = &self.view.members;
        self.copy_in = None;
        self.up = place.checked_sub(1).map(|before| Upstream::new(members[before]));
        self.down = members.get(place + 1).map(|peer| Downstream::new(*peer, now_ns));
        let joining = self.view.joining.filter(|_| place + 1 == members.len());
        // A copy goes on through changes farther up the chain.
        let same = |copy: &CopyOut| {
            joining.is_some_and(|j| j.member == copy.peer && j.since == copy.since)
        };
        self.copy_out = self.copy_out.take().filter(same);
        if let Some(joining) = joining.filter(|_| restored) {
            // It may have handed over before it lost power. If it had not, the joining server never
            // is whole, and is given up.
            self.copy_out = Some(CopyOut::handed_over_to(joining.member, joining.since));
        }
        match (&self.copy_out, joining) {
            (Some(copy), _) if copy.handed_over => {
                self.down = Some(Downstream::new(copy.peer, now_ns))
            }
            (None, Some(joining)) => {
                self.copy_out = Some(CopyOut::new(joining.member, joining.since))
            }
            _ => {}
        }
    }

    fn adopt_as_joining(&mut self) {
        let (Some(joining), Some(tail)) = (self.view.joining, self.view.members.last()) else {
            return;
        };
        (self.up, self.down, self.copy_out) = (Some(Upstream::new(*tail)), None, None);
        if self.copy_in.as_ref().is_none_or(|copy| copy.since != joining.since) {
            self.copy_in = Some(CopyIn::new(joining.since));
            self.clear_records();
            self.journal_begin(self.view.founded, joining.since);
            (self.index, self.committed, self.whole, self.log) = (0, 0, false, Log::new(1));
        }
    }

    /// Whether entries are answered here: no successor, and none that joins has taken over the
    /// answering.
    pub(super) fn answers(&self) -> bool {
        self.down.is_none()
    }

    /// Answers what no successor will answer, and what was not durable so far. When the tail's
    /// successor is gone, whatever it did not confirm is answered from here. It may have answered
    /// some of it: then the switch gets that twice, as from any network; not at all would be a flow
    /// that hangs.
    pub(super) fn answer_what_nobody_follows(&mut self, out: &mut Outputs) {
        if !self.answers() || !self.whole {
            return;
        }
        let last = self.durable();
        for index in self.log.first()..=last.min(self.log.last()) {
            let Some(entry) = self.log.at(index).and_then(|bytes| Entries::one(bytes).ok()) else {
                continue;
            };
            if !entry.reply.is_empty() {
                self.counters.replies += 1;
                out.push(entry.client, entry.reply);
            }
        }
        self.committed = last;
        self.log.forget(last);
        if let Some(up) = &mut self.up {
            up.ack_due = true;
        }
    }

    pub(super) fn chain_message(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        bytes: &[u8],
        out: &mut Outputs,
    ) {
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
        if header.view != self.view.number && !mutation::is(Mutation::AnyView) {
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
            ChainType::Data => self.data(&header, bytes, out),
            ChainType::Ack => self.ack(now_ns, &header, out),
            ChainType::Copy => self.copy_message(&header, bytes),
            ChainType::CopyAck => self.copy_ack(now_ns, &header),
        }
    }

    fn hello(&mut self, header: &ChainHeader, out: &mut Outputs) {
        let Some(up) = &mut self.up else { return };
        up.ack_due = true;
        let mismatch = header.config_digest != self.config_digest;
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

    fn data(&mut self, header: &ChainHeader, bytes: &[u8], out: &mut Outputs) {
        let entries = match Entries::decode(header, bytes) {
            Ok(entries) => entries,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        let Some(up) = self.up.as_mut().filter(|up| self.whole && !up.mismatch) else {
            self.counters.chain_gaps += 1;
            return;
        };
        up.ack_due = true;
        if header.index > self.index + 1 && !mutation::is(Mutation::GapInChain) {
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
        debug_assert!(up.ack_due);
        while let Some(datagram) =
            self.up.as_mut().and_then(|up| up.out_of_order.take(self.index + 1))
        {
            // It was read when it came.
            if let Ok(header) = ChainHeader::decode(&datagram)
                && let Ok(entries) = Entries::decode(&header, &datagram)
            {
                self.take_entries(header.index, entries, out);
            }
        }
        if let Some(up) = self.up.as_mut() {
            up.gap = !up.out_of_order.is_empty();
        }
    }

    /// Takes the entries, of which the first has this index, that are not here yet: that is no
    /// later than the next.
    fn take_entries(&mut self, first: u64, entries: Entries<'_>, out: &mut Outputs) {
        if self.is_backed_up() {
            self.counters.dropped_back_pressure += 1;
            return;
        }
        if self.broken.is_some() {
            return;
        }
        for (index, (entry, own_bytes)) in (first..).zip(entries) {
            if index <= self.index && mutation::is(Mutation::EntriesAgain) {
                let _ = self.records.apply(&entry.effect);
            }
            if index <= self.index {
                self.counters.chain_duplicates += 1;
                continue;
            }
            if let Some(copy) = &mut self.copy_out {
                copy.note(&self.records, &entry.effect);
            }
            if self.records.apply(&entry.effect).is_err() {
                return self.break_chain(BrokenReason::EntryDoesNotApply, out);
            }
            self.take_entry(index, &entry, own_bytes, out);
        }
    }

    /// An applied entry goes on: down the chain, or, at the tail, its reply to the switch.
    fn take_entry(&mut self, index: u64, entry: &Entry<'_>, bytes: &[u8], out: &mut Outputs) {
        self.index = index;
        self.counters.chain_applied += 1;
        self.journal_entry(&entry.effect);
        if let Some(durability) = &mut self.durability {
            durability.resumed = false;
        }
        if self.answers() && self.durability.is_none() {
            self.committed = index;
            self.log.forget(index);
            if !entry.reply.is_empty() {
                self.counters.replies += 1;
                out.push(entry.client, entry.reply);
            }
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
        if header.flags.contains(ChainFlags::MISMATCH) || header.config_digest != self.config_digest
        {
            out.events.push(Event::ConfigMismatch(down.peer.address));
            return;
        }
        if !down.bound {
            if !header.flags.contains(ChainFlags::WHOLE) {
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
                up.ack_due = true;
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

    /// Stops, for good: the controller takes this server out of the chain.
    pub(super) fn break_chain(&mut self, reason: BrokenReason, out: &mut Outputs) {
        if self.broken.is_none() {
            self.broken = Some(reason);
            out.events.push(Event::Broken(reason));
        }
    }

    pub(super) fn notice_ready(&mut self, out: &mut Outputs) {
        let ready = self.is_ready();
        if ready == self.was_ready {
            return;
        }
        self.was_ready = ready;
        if let Some(up) = &mut self.up {
            up.ack_due = true;
        }
        if ready {
            out.events.push(Event::Ready { shard: self.settings.shard });
        }
    }

    pub(super) fn chain_timer(&mut self, now_ns: u64) {
        if self.broken.is_none()
            && self.down.as_mut().is_some_and(|down| down.resend_if_due(now_ns))
        {
            self.counters.chain_resends += 1;
        }
        self.copy_timer(now_ns);
    }

    /// Sends what a batch of inputs left to send to the neighbours.
    pub(super) fn send_chain(&mut self, now_ns: u64, out: &mut Outputs) {
        if self.broken.is_some() {
            return;
        }
        let ready = if self.is_ready() { ChainFlags::READY } else { ChainFlags::NONE };
        let flags = if self.whole { ready.with(ChainFlags::WHOLE) } else { ready };
        let header = ChainHeader {
            chain_type: ChainType::Data,
            flags,
            count: 0,
            shard: self.settings.shard,
            view: self.view.number,
            sender: self.me.incarnation,
            receiver: 0,
            index: self.index,
            committed: self.committed,
            config_digest: self.config_digest,
        };
        let durable = self.durable();
        self.send_copy(now_ns, header, out);
        if let Some(down) = &mut self.down {
            let header = ChainHeader { receiver: down.peer.incarnation, ..header };
            if down.hello_due(now_ns) {
                let hello = ChainHeader { chain_type: ChainType::Hello, ..header };
                out.push(down.peer.address, &hello.encode());
            }
            if down.bound {
                down.send(now_ns, header, &self.log, durable, &self.settings, out);
            }
        }
        if let Some(up) = self.up.as_mut().filter(|up| up.ack_due) {
            let gap = if up.gap { ChainFlags::GAP } else { ChainFlags::NONE };
            let mismatch = if up.mismatch { ChainFlags::MISMATCH } else { ChainFlags::NONE };
            let flags = flags.with(gap).with(mismatch);
            let receiver = up.peer.incarnation;
            let ack = ChainHeader { chain_type: ChainType::Ack, flags, receiver, ..header };
            out.push(up.peer.address, &ack.encode());
            (up.ack_due, up.gap) = (false, false);
        }
    }
}
