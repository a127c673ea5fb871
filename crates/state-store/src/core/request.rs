//! The head's answers to a switch's requests: `docs/state-protocol.md`, "Rules of the store".

use super::nat::{self, NatKey};
use super::settings::AllocatorSettings;
use super::waiting::Waiter;
use super::{Outputs, Server};
use state_protocol::{Effect, Flags, MAX_VALUE_BYTES, Message, MessageType, RecordWrite};
use std::net::SocketAddrV4;

/// A decoded request with what every step needs to know of it.
struct Request<'a> {
    message: Message<'a>,
    object: usize,
    client: SocketAddrV4,
    datagram: &'a [u8],
    /// Set when it was held before: when it is to be dropped.
    expires_ns: Option<u64>,
    now_ns: u64,
}

impl Server {
    /// Takes a request from a switch; `expires_ns` is set when it was held here before.
    pub(super) fn request(
        &mut self,
        now_ns: u64,
        client: SocketAddrV4,
        datagram: &[u8],
        expires_ns: Option<u64>,
        out: &mut Outputs,
    ) {
        let message = match Message::decode(datagram) {
            Ok(message) => message,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        if message.message_type as u8 > MessageType::ReadCommit as u8 {
            self.counters.dropped_wrong_direction += 1;
            return;
        }
        let Some(object) = self.records.object(message.object_id) else {
            self.counters.dropped_unknown_object += 1;
            return;
        };
        let settings = self.records.settings(object);
        let carries_value = message.message_type == MessageType::Update;
        if message.key.len() != settings.key_bytes || (carries_value && message.value.len() != settings.value_bytes) {
            self.counters.dropped_wrong_size += 1;
            return;
        }
        if self.up.is_some() {
            self.counters.dropped_not_head += 1;
            return;
        }
        if !self.is_serving(now_ns) {
            self.counters.dropped_not_serving += 1;
            return;
        }
        if self.is_backed_up() {
            self.counters.dropped_back_pressure += 1;
            return;
        }
        self.counters.requests += u64::from(expires_ns.is_none());
        let request = Request { message, object, client, datagram, expires_ns, now_ns };
        match message.message_type {
            MessageType::LeaseRequest => self.lease_request(&request, out),
            MessageType::LeaseRenew => self.lease_renew(&request, out),
            MessageType::Update => self.update(&request, out),
            MessageType::ReadCommit => self.read_commit(&request, out),
            _ => self.counters.dropped_wrong_direction += 1,
        }
    }

    fn lease_request(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let Some(slot) = self.records.find(request.object, request.message.key) else {
            return self.create(request, out);
        };
        let record = self.records.get(slot);
        let sender = request.message.sender;
        if record.owner == Some(sender) {
            // Rule 3: its own state, with updates still on their way, is the newest; the epoch stays.
            self.counters.regrants += 1;
            return self.grant_again(request, slot, out);
        }
        // Also another incarnation of the same switch: while an upgrade goes from port to port, both run.
        let owned_by_another = record.owner.is_some_and(|owner| owner != sender);
        if owned_by_another && record.lease_until_ns > request.now_ns {
            return self.hold(request, slot, record.lease_until_ns);
        }
        let Some(epoch) = record.epoch.checked_add(1) else {
            self.counters.dropped_epochs_used_up += 1;
            return;
        };
        // The copy frees the record for the effect that overwrites it.
        let value = record.value.clone();
        let write = RecordWrite {
            object_id: request.message.object_id,
            epoch,
            seq: record.seq,
            owner: Some(sender),
            key: request.message.key,
            value: value.as_slice(),
        };
        self.counters.grants += 1;
        self.encode_grant(request, epoch, write.seq, value.as_slice());
        self.commit(&Effect::Write(write), request.client, out);
        self.start_lease(request.now_ns, slot);
    }

    /// A grant that changes nothing but the lease: to the owner that has it.
    fn grant_again(&mut self, request: &Request<'_>, slot: u32, out: &mut Outputs) {
        let record = self.records.get(slot);
        let (epoch, seq, value) = (record.epoch, record.seq, record.value.clone());
        self.encode_grant(request, epoch, seq, value.as_slice());
        self.start_lease(request.now_ns, slot);
        self.commit(&Effect::None, request.client, out);
    }

    fn create(&mut self, request: &Request<'_>, out: &mut Outputs) {
        if !request.message.flags.contains(Flags::ALLOCATE) {
            self.counters.absent += 1;
            return self.answer_absent(request, Flags::NONE, out);
        }
        let Some(epoch) = self.records.epoch_floor().checked_add(1) else {
            self.counters.dropped_epochs_used_up += 1;
            return;
        };
        let message = &request.message;
        let full = self.records.len() + 2 > self.settings.limits.records;
        let settings = self.records.settings(request.object);
        let zeros = [0; MAX_VALUE_BYTES];
        let (value, reverse) = match &settings.allocator {
            _ if full => return self.answer_exhausted(request, out),
            AllocatorSettings::Zero { .. } => (zeros, None),
            AllocatorSettings::NatPorts(_) => match self.choose_binding(request) {
                Some((address, port, reverse)) => {
                    let mut value = zeros;
                    value[..nat::VALUE_BYTES].copy_from_slice(&nat::value_bytes(address, port));
                    (value, Some(reverse))
                }
                None => return self.answer_exhausted(request, out),
            },
        };
        let value = &value[..self.records.settings(request.object).value_bytes];
        let first = RecordWrite {
            object_id: message.object_id,
            epoch,
            seq: 0,
            owner: Some(message.sender),
            key: message.key,
            value,
        };
        self.encode_grant(request, epoch, 0, value);
        let slot = match reverse {
            None => self.commit(&Effect::Write(first), request.client, out),
            Some((key, value)) => {
                let pair = Effect::Pair { first, second_key: &key, second_value: &value };
                self.commit(&pair, request.client, out)
            }
        };
        let Some(slot) = slot else { return };
        self.counters.grants += 1;
        self.counters.allocated += 1;
        self.start_lease(request.now_ns, slot);
        if let Some(pair) = self.records.get(slot).pair {
            self.records.get_mut(pair).last_used_ns = request.now_ns;
        }
        self.watch_idle(request.now_ns, slot);
    }

    /// An external address and port, with key and value of the reverse binding.
    #[allow(clippy::type_complexity)]
    fn choose_binding(
        &mut self,
        request: &Request<'_>,
    ) -> Option<(u32, u16, ([u8; nat::KEY_BYTES], [u8; nat::VALUE_BYTES]))> {
        let key = NatKey::from_bytes(request.message.key)?;
        let (records, object) = (&self.records, request.object);
        // A reverse key that equals the key itself would make a packet that maps onto itself.
        let exists = |reverse: &NatKey| *reverse == key || records.find(object, &reverse.to_bytes()).is_some();
        let (address, port) = records.pool(object)?.choose(&key, &mut self.rng, exists)?;
        let reverse = (key.reverse(address, port).to_bytes(), nat::value_bytes(key.source, key.source_port));
        Some((address, port, reverse))
    }

    fn lease_renew(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let Some(slot) = self.owned(request, out) else { return };
        if self.waiting.wanted_by_another(slot) {
            // Another switch has packets of this flow, this one only a timer: the lease is to end.
            self.counters.renewals_withheld += 1;
            return;
        }
        self.counters.renewals += 1;
        self.grant_again(request, slot, out);
    }

    fn update(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let Some(slot) = self.owned(request, out) else { return };
        let message = &request.message;
        let record = self.records.get(slot);
        let (epoch, recorded) = (record.epoch, record.seq);
        let lease_us = self.prolong(request.now_ns, slot);
        if message.seq <= recorded {
            // Rule 4: what the packet depends on is recorded, here; the entry orders the answer behind it everywhere.
            self.counters.updates_stale += 1;
            self.encode_ack(request, epoch, recorded, lease_us);
            self.commit(&Effect::None, request.client, out);
            return;
        }
        self.counters.updates += 1;
        let write = RecordWrite {
            object_id: message.object_id,
            epoch,
            seq: message.seq,
            owner: Some(message.sender),
            key: message.key,
            value: message.value,
        };
        self.encode_ack(request, epoch, message.seq, lease_us);
        self.commit(&Effect::Write(write), request.client, out);
        if self.waiting.len_of(slot) > 0 {
            self.wake(request.now_ns, slot, out);
        }
    }

    fn read_commit(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let Some(slot) = self.owned(request, out) else { return };
        let record = self.records.get(slot);
        let (epoch, recorded) = (record.epoch, record.seq);
        if recorded < request.message.seq {
            return self.hold(request, slot, u64::MAX);
        }
        self.counters.read_commits += 1;
        let lease_us = self.prolong(request.now_ns, slot);
        self.encode_ack(request, epoch, recorded, lease_us);
        self.commit(&Effect::None, request.client, out);
    }

    /// The slot of the request's record, if its sender is the owner under the current epoch; refuses it otherwise. This is the fence: a delayed
    /// update of an earlier owner ends here.
    fn owned(&mut self, request: &Request<'_>, out: &mut Outputs) -> Option<u32> {
        let message = &request.message;
        let slot = self.records.find(request.object, message.key);
        let owned = |slot: &u32| {
            let record = self.records.get(*slot);
            record.owner == Some(message.sender) && record.epoch == message.epoch
        };
        if let Some(slot) = slot.filter(owned) {
            return Some(slot);
        }
        self.counters.refused += 1;
        let refusal = reply(message, MessageType::Refused);
        self.encode_reply(&Message { epoch: message.epoch, packet: &[], ..refusal });
        self.send_reply(request.client, out);
        None
    }

    /// Holds a request until `wake_ns` or its time is over, if there is room.
    fn hold(&mut self, request: &Request<'_>, slot: u32, wake_ns: u64) {
        let limits = &self.settings.limits;
        let room = self.waiting.len() < limits.held
            && self.waiting.len_of(slot) < limits.held_per_flow
            && self.waiting.bytes() + request.datagram.len() <= limits.held_bytes;
        if !room {
            self.counters.held_overflow += 1;
            return;
        }
        self.counters.held += u64::from(request.expires_ns.is_none());
        let expires_ns = request.expires_ns.unwrap_or(request.now_ns + self.settings.hold_ns);
        let waiter = Waiter {
            expires_ns,
            client: request.client,
            datagram: request.datagram.to_vec(),
            for_lease: request.message.message_type == MessageType::LeaseRequest,
        };
        self.waiting.hold(slot, wake_ns.min(expires_ns), waiter);
    }

    /// Starts the lease anew: it ends, here, one lease and the margins from now. Never makes it shorter.
    fn start_lease(&mut self, now_ns: u64, slot: u32) {
        let until = now_ns + self.store_lease_ns;
        let record = self.records.get_mut(slot);
        record.lease_until_ns = record.lease_until_ns.max(until);
        record.last_used_ns = now_ns;
    }

    /// RedPlane §5.3: updates renew the lease; but not while another switch waits for the flow. Returns the reply's `lease_us`.
    fn prolong(&mut self, now_ns: u64, slot: u32) -> u32 {
        if self.waiting.wanted_by_another(slot) {
            self.records.get_mut(slot).last_used_ns = now_ns;
            return 0;
        }
        self.start_lease(now_ns, slot);
        self.settings.lease_us
    }

    fn answer_absent(&mut self, request: &Request<'_>, flags: Flags, out: &mut Outputs) {
        let absent = reply(&request.message, MessageType::Absent);
        self.encode_reply(&Message { flags, ..absent });
        self.commit(&Effect::None, request.client, out);
    }

    fn answer_exhausted(&mut self, request: &Request<'_>, out: &mut Outputs) {
        self.counters.exhausted += 1;
        self.answer_absent(request, Flags::EXHAUSTED, out);
    }

    fn encode_grant(&mut self, request: &Request<'_>, epoch: u32, seq: u64, value: &[u8]) {
        let lease_us = self.settings.lease_us;
        let grant = reply(&request.message, MessageType::LeaseGrant);
        self.encode_reply(&Message { epoch, seq, lease_us, value, ..grant });
    }

    fn encode_ack(&mut self, request: &Request<'_>, epoch: u32, seq: u64, lease_us: u32) {
        let ack = reply(&request.message, MessageType::UpdateAck);
        self.encode_reply(&Message { epoch, seq, lease_us, ..ack });
    }

    pub(super) fn encode_reply(&mut self, message: &Message<'_>) {
        self.reply.clear();
        // Cannot fail: its parts come from a message that was decoded, and from records of the same sizes. Were it to, nothing is sent.
        let _ = message.append_to(&mut self.reply);
    }
}

/// A reply that echoes what replies echo.
fn reply<'a>(request: &Message<'a>, message_type: MessageType) -> Message<'a> {
    Message { message_type, flags: Flags::NONE, epoch: 0, seq: 0, lease_us: 0, value: &[], ..*request }
}
