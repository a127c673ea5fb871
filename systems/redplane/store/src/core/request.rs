//! The head's answers to a switch's requests: `systems/redplane/docs/state-protocol.md`, "Rules of
//! the store".

use super::blob::Blob;
use super::sessions::{NoSession, REPLAY_WINDOW_NS};
use super::settings::AllocatorSettings;
use super::{Mutation, Outputs, Replica, Role, mutation};
use chain::NOBODY;
use state_protocol::{Effect, Flags, Message, MessageType, Owner, RecordWrite};
use std::net::SocketAddrV4;

const NS_PER_MS: u64 = 1_000_000;

/// What is known of a request that was held here.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub received_ns: u64,
}

/// From whom something was heard, and when.
#[derive(Clone, Copy)]
pub(super) struct Heard {
    /// By the head's clock.
    pub received_ns: u64,
    pub client: SocketAddrV4,
    pub sender: Owner,
    /// By the sender's clock.
    pub request_ns: u64,
}

/// A decoded request with what every step needs to know of it.
pub(super) struct Request<'a> {
    pub message: Message<'a>,
    pub object: usize,
    /// Of the record that it is about: the message's key, or the sender's contribution to it.
    pub record_key: &'a [u8],
    pub client: SocketAddrV4,
    pub datagram: &'a [u8],
    pub held: Option<Held>,
    pub now_ns: u64,
    /// Its sender's session.
    pub session: u32,
    /// The lease that the answer may promise, counted from `request_ns`.
    pub lease_us: u32,
}

impl Request<'_> {
    pub fn received_ns(&self) -> u64 {
        self.held.map_or(self.now_ns, |held| held.received_ns)
    }

    /// The answer, but for its type and what is special to that.
    pub fn reply(&self, message_type: MessageType) -> Message<'_> {
        let (session, lease_us) = (self.session, self.lease_us);
        Message {
            message_type,
            flags: Flags::NONE,
            epoch: 0,
            seq: 0,
            lease_us,
            session,
            value: &[],
            ..self.message
        }
    }
}

impl Replica {
    /// Takes a genuine request from a switch; `held` is set when it was held here before.
    pub(super) fn request(
        &mut self,
        now_ns: u64,
        client: SocketAddrV4,
        datagram: &[u8],
        held: Option<Held>,
        out: &mut Outputs,
    ) {
        let message = match Message::decode(datagram) {
            Ok(message) => message,
            Err(reason) => return self.counters.count_malformed(reason),
        };
        let Some(object) = self.acceptable(now_ns, &message) else { return };
        self.counters.requests += u64::from(held.is_none());
        let received_ns = held.map_or(now_ns, |held| held.received_ns);
        let fresh_tag = held.is_none().then(|| wire::tag_of(datagram));
        let (sender, request_ns) = (message.sender, message.request_ns);
        let heard = Heard { received_ns, client, sender, request_ns };
        let Some((session, lease_us)) = self.hear(heard, fresh_tag, out) else { return };
        let settings = self.chain.state().settings(object);
        let contribution = settings.contribution_key(message.key, sender);
        let record_key = contribution.as_ref().map_or(message.key, Blob::as_slice);
        let request = Request {
            message,
            object,
            record_key,
            client,
            datagram,
            held,
            now_ns,
            session,
            lease_us,
        };
        match message.message_type {
            MessageType::LeaseRequest => self.lease_request(&request, out),
            MessageType::Update => self.update(&request, out),
            MessageType::ReadCommit => self.read_commit(&request, out),
            MessageType::Heartbeat => self.heartbeat(&request, out),
            MessageType::Release => self.release(&request, out),
            MessageType::Snapshot => self.snapshot(&request, out),
            _ => self.counters.dropped_wrong_direction += 1,
        }
    }

    /// Whether this server takes the request: position of its object (0 when it names none). Counts
    /// the reason if not.
    fn acceptable(&mut self, now_ns: u64, message: &Message<'_>) -> Option<usize> {
        use MessageType::{Heartbeat, LeaseRequest, ReadCommit, Release, Snapshot, Update};
        if !matches!(
            message.message_type,
            LeaseRequest | Update | ReadCommit | Heartbeat | Release | Snapshot
        ) {
            self.counters.dropped_wrong_direction += 1;
            return None;
        }
        let (shard, shards) = (self.settings.shard, self.settings.shards);
        let keyless = message.message_type == Heartbeat;
        let mut object = 0;
        if !keyless {
            let Some(found) = self.chain.state().object(message.object_id) else {
                self.counters.dropped_unknown_object += 1;
                return None;
            };
            let settings = self.chain.state().settings(found);
            if shards > 1 && settings.shard_of(message.key, shards) != shard {
                self.counters.dropped_not_head += 1;
                return None;
            }
            let updates = matches!(message.message_type, Update | ReadCommit);
            let takes_updates =
                !updates || !matches!(settings.allocator, AllocatorSettings::Snapshot { .. });
            let value_fits = takes_updates
                && (message.value.is_empty() || message.value.len() == settings.value_bytes);
            if message.key.len() != settings.key_bytes || !value_fits {
                self.counters.dropped_wrong_size += 1;
                return None;
            }
            object = found;
        }
        self.takes_requests(now_ns, message.shard).then_some(object)
    }

    /// Whether this server takes requests for a shard. Counts the reason if not.
    pub(super) fn takes_requests(&mut self, now_ns: u64, shard: u16) -> bool {
        if self.role() != Role::Head || shard != self.settings.shard {
            self.counters.dropped_not_head += 1;
        } else if !self.is_serving(now_ns) {
            self.counters.dropped_not_serving += 1;
        } else if self.chain.is_backed_up() {
            self.counters.dropped_back_pressure += 1;
        } else {
            return true;
        }
        false
    }

    /// Hears of a switch: its session, begun if it has none and prolonged if nothing speaks against
    /// it, and the lease that an answer may promise. `fresh_tag`: of a request that was not held
    /// here before.
    pub(super) fn hear(
        &mut self,
        heard: Heard,
        fresh_tag: Option<u64>,
        out: &mut Outputs,
    ) -> Option<(u32, u32)> {
        let Heard { received_ns, client, sender, request_ns } = heard;
        if self.chain.state().sessions.of(&sender).is_none() && !self.begin_session(heard, out) {
            return None;
        }
        let until_ns = received_ns + self.store_lease_ns;
        let session = self.chain.state_mut().sessions.of_mut(&sender)?;
        let old = request_ns.saturating_add(REPLAY_WINDOW_NS) < session.newest_request_ns;
        if fresh_tag.is_some() && (old || request_ns <= session.floor_request_ns) {
            self.counters.replayed += 1;
            return None;
        }
        if request_ns > session.newest_request_ns {
            (session.newest_request_ns, session.client) = (request_ns, client);
            if session.overdue > 0 {
                self.counters.leases_withheld += 1;
            } else {
                session.lease_until_ns = session.lease_until_ns.max(until_ns);
                session.prolonged_request_ns = request_ns;
            }
        }
        let fresh_tag = fresh_tag.filter(|_| !mutation::planted(Mutation::ReplaysTaken));
        if fresh_tag.is_some_and(|tag| !session.seen.insert(tag, session.newest_request_ns)) {
            self.counters.replayed += 1;
            return None;
        }
        // What was sent no later than a request that prolonged the session was received no later
        // either: its lease is over before the session's.
        let promised = request_ns <= session.prolonged_request_ns;
        Some((session.number, if promised { self.settings.lease_us } else { 0 }))
    }

    /// Begins a session for the sender; false, counted: it may have none.
    fn begin_session(&mut self, heard: Heard, out: &mut Outputs) -> bool {
        let Heard { received_ns, client, sender: owner, request_ns } = heard;
        match self.chain.state().sessions.may_begin(&owner, request_ns) {
            Ok(()) if self.chain.state().sessions.len() < self.settings.limits.sessions => {}
            Ok(()) => {
                self.counters.dropped_sessions_full += 1;
                return false;
            }
            Err(NoSession::OldIncarnation) => {
                self.counters.old_incarnation += 1;
                return false;
            }
            Err(NoSession::Replayed) => {
                self.counters.replayed += 1;
                return false;
            }
        }
        let Some(session) = self.chain.state().floor().checked_add(1) else {
            self.counters.dropped_epochs_used_up += 1;
            return false;
        };
        self.reply.clear();
        self.commit(&Effect::SessionBegin { session, owner, client }, NOBODY, out);
        self.counters.sessions_begun += 1;
        let until_ns = received_ns + self.store_lease_ns;
        if let Some(session) = self.chain.state_mut().sessions.of_mut(&owner) {
            session.lease_until_ns = until_ns;
            (session.newest_request_ns, session.prolonged_request_ns) = (request_ns, request_ns);
        }
        self.watch_sessions(received_ns);
        true
    }

    /// Ends a session: its flows are nobody's from here on.
    pub(super) fn end_session(&mut self, number: u32, out: &mut Outputs) {
        self.reply.clear();
        self.commit(&Effect::SessionEnd { session: number }, NOBODY, out);
        self.counters.sessions_ended += 1;
    }

    fn heartbeat(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let Some(session) = self.chain.state_mut().sessions.of_mut(&request.message.sender) else {
            return;
        };
        if request.message.request_ns <= session.heartbeat_ns {
            self.counters.heartbeats_stale += 1;
            return;
        }
        session.heartbeat_ns = request.message.request_ns;
        self.counters.heartbeats += 1;
        self.encode_reply(&request.reply(MessageType::HeartbeatAck));
        self.commit(&Effect::None, request.client, out);
    }

    fn lease_request(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let Some(slot) = self.chain.state().find(request.object, request.record_key) else {
            return self.create(request, out);
        };
        if request.held.is_none() && self.waiting.concerns(slot) {
            // Those that came before first, should the flow be free by now.
            self.look_again(request.now_ns, slot, out);
        }
        if self.is_free_and_gone(slot) {
            self.counters.conversations_dropped += 1;
            self.free(slot, out);
            return self.create(request, out);
        }
        self.learn_returns(request.message.sender, slot);
        let record = self.chain.state().get(slot);
        let owned = self.chain.state().is_owned(record);
        if self.chain.state().is_gone(record)
            && !(owned && record.owner == Some(request.message.sender))
        {
            // It is on its way out: whoever asks again finds it gone.
            self.counters.held_expired += 1;
            return;
        }
        match record.owner {
            Some(owner) if owner == request.message.sender => {
                // What it has may be on its way back already: who waited longer is first.
                if owned && self.waiting.is_recalled(slot) {
                    return self.hold(request, slot, out);
                }
                self.grant_again(request, slot, out);
            }
            Some(owner) if owned && !mutation::planted(Mutation::GrantOverOwner) => {
                let session = self.chain.state().sessions.of(&owner);
                let early_ns = self.early_ns();
                let over =
                    session.filter(|session| session.lease_until_ns <= request.now_ns + early_ns);
                let Some(number) = over.map(|session| session.number) else {
                    return self.hold(request, slot, out);
                };
                self.end_session(number, out);
                self.grant(request, slot, out);
            }
            _ => self.grant(request, slot, out),
        }
    }

    /// Whether the record is of a conversation whose backend is gone, and nobody has either half of
    /// it.
    fn is_free_and_gone(&self, slot: u32) -> bool {
        let record = self.chain.state().get(slot);
        let free = |slot: u32| {
            !self.chain.state().is_owned(self.chain.state().get(slot))
                && !self.waiting.concerns(slot)
        };
        self.chain.state().is_gone(record) && free(slot) && record.pair.is_none_or(free)
    }

    /// How much too early a seeded bug ends sessions.
    pub(super) fn early_ns(&self) -> u64 {
        if mutation::planted(Mutation::SessionEndsEarly) {
            u64::from(self.settings.lease_us) * 500
        } else {
            0
        }
    }

    /// A grant to another owner than the last, or after a release: a new epoch.
    fn grant(&mut self, request: &Request<'_>, slot: u32, out: &mut Outputs) {
        let record = self.chain.state().get(slot);
        let more = u32::from(!mutation::planted(Mutation::EpochNotRaised));
        let Some(epoch) = record.epoch.checked_add(more) else {
            self.counters.dropped_epochs_used_up += 1;
            return;
        };
        self.counters.grants += 1;
        self.end_recall(slot);
        self.grant_with(request, slot, epoch, out);
        self.chain.state_mut().get_mut(slot).granted_ns = request.now_ns;
    }

    /// Rule 3: its own state, with updates still on their way, is the newest; the epoch stays.
    fn grant_again(&mut self, request: &Request<'_>, slot: u32, out: &mut Outputs) {
        self.counters.regrants += 1;
        let record = self.chain.state().get(slot);
        let epoch = record.epoch;
        if record.session != request.session {
            self.end_recall(slot);
        }
        // The effect has the value, as that may have come by the fast path, and to no other member.
        self.grant_with(request, slot, epoch, out);
    }

    fn grant_with(&mut self, request: &Request<'_>, slot: u32, epoch: u32, out: &mut Outputs) {
        let record = self.chain.state().get(slot);
        // The copy frees the record for the effect that overwrites it.
        let (seq, value) = (record.seq, record.value.clone());
        // Of the grant that it has already, it said how far the flow's life has come.
        let phase = if epoch == record.epoch { record.phase } else { Flags::NONE };
        let write = RecordWrite {
            object_id: request.message.object_id,
            epoch,
            seq,
            owner: Some(request.message.sender),
            session: request.session,
            phase,
            key: request.record_key,
            value: value.as_slice(),
        };
        let grant = Message {
            epoch,
            seq,
            value: value.as_slice(),
            ..request.reply(MessageType::LeaseGrant)
        };
        if self.snapshot_shape(request.object).is_some() {
            self.reply.clear();
            self.commit(&Effect::Write(write), request.client, out);
            self.send_snapshot(request, slot, out);
            self.encode_reply(&grant);
            self.commit(&Effect::None, request.client, out);
        } else {
            self.encode_reply(&grant);
            self.commit(&Effect::Write(write), request.client, out);
        }
        self.chain.state_mut().get_mut(slot).unused_since_ns = 0;
    }

    fn update(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let Some(slot) = self.owned(request, out) else { return };
        let message = &request.message;
        if message.seq <= self.chain.state().get(slot).seq
            && !mutation::planted(Mutation::OldUpdateOverwrites)
        {
            // Rule 4: what the packet depends on is recorded, here; the entry orders the answer
            // behind it everywhere.
            self.counters.updates_stale += 1;
            return self.acknowledge(request, slot, out);
        }
        self.counters.updates += 1;
        let record = self.chain.state_mut().get_mut(slot);
        record.unused_since_ns = 0;
        let write = RecordWrite {
            object_id: message.object_id,
            epoch: record.epoch,
            seq: message.seq,
            owner: Some(message.sender),
            session: request.session,
            phase: message.flags.and(Flags::PHASES),
            key: request.record_key,
            value: message.value,
        };
        let ack = request.reply(MessageType::UpdateAck);
        self.encode_reply(&Message { epoch: write.epoch, seq: write.seq, ..ack });
        self.commit(&Effect::Write(write), request.client, out);
        if self.waiting.len() > 0 && self.waiting.len_of(slot) > self.waiting.wanted(slot) {
            self.take_up_again(request.now_ns, slot, out); // READ_COMMITs
        }
    }

    fn read_commit(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let Some(slot) = self.owned(request, out) else { return };
        if self.chain.state().get(slot).seq < request.message.seq
            && !mutation::planted(Mutation::ReadCommitNotHeld)
        {
            return self.hold(request, slot, out);
        }
        // Without a packet it is the answer to a probe.
        let asked = request.message.packet.is_empty();
        self.counters.probes_held += u64::from(asked);
        self.counters.read_commits += u64::from(!asked);
        self.acknowledge(request, slot, out);
    }

    /// Acknowledges what is recorded. The effect has it, too: it may have come by the fast path,
    /// and to no other member. And the answer says that the flow is owned in the sender's session,
    /// so if it was another one's that changes.
    fn acknowledge(&mut self, request: &Request<'_>, slot: u32, out: &mut Outputs) {
        let record = self.chain.state_mut().get_mut(slot);
        record.unused_since_ns = 0;
        let (epoch, seq, phase, value) =
            (record.epoch, record.seq, record.phase, record.value.clone());
        let ack = request.reply(MessageType::UpdateAck);
        self.encode_reply(&Message { epoch, seq, ..ack });
        let write = RecordWrite {
            object_id: request.message.object_id,
            epoch,
            seq,
            owner: Some(request.message.sender),
            session: request.session,
            phase,
            key: request.record_key,
            value: value.as_slice(),
        };
        self.commit(&Effect::Write(write), request.client, out);
    }

    /// Rule 7: the flow is nobody's, with its newest state.
    fn release(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let message = &request.message;
        if request.now_ns < self.knows_age_from_ns && message.flags.contains(Flags::UNKNOWN) {
            // The switch remembers for some seconds only that it does not have this epoch, and how
            // old the message is cannot be told yet.
            self.counters.releases_of_unknown_age += 1;
            return;
        }
        let ack = request.reply(MessageType::ReleaseAck);
        self.encode_reply(&Message { epoch: message.epoch, ..ack });
        let slot = self.chain.state().find(request.object, request.record_key);
        let current = |slot: &u32| {
            let record = self.chain.state().get(*slot);
            let epoch =
                record.epoch == message.epoch || mutation::planted(Mutation::ReleaseOfAnyEpoch);
            epoch && record.owner == Some(message.sender)
        };
        let Some(slot) = slot.filter(current) else {
            if slot.is_some_and(|slot| self.chain.state().get(slot).epoch < message.epoch) {
                self.counters.releases_unknown += 1;
                return;
            }
            self.counters.releases_stale += 1;
            self.commit(&Effect::None, request.client, out);
            return;
        };
        self.counters.releases += 1;
        let record = self.chain.state().get(slot);
        let records = !mutation::planted(Mutation::ReleaseWithoutValue);
        let newer = !message.value.is_empty() && message.seq > record.seq && records;
        let value = record.value.clone();
        let write = RecordWrite {
            object_id: message.object_id,
            epoch: record.epoch,
            seq: if newer { message.seq } else { record.seq },
            owner: None,
            session: 0,
            phase: message.flags.and(Flags::PHASES),
            key: request.record_key,
            value: if newer { message.value } else { value.as_slice() },
        };
        let released = (write.epoch, write.seq);
        self.commit(&Effect::Write(write), request.client, out);
        let idle_ns = u64::from(message.lease_us) * NS_PER_MS;
        let record = self.chain.state_mut().get_mut(slot);
        record.released = released;
        // 0 stands for "nobody looked yet".
        record.unused_since_ns = request.now_ns.saturating_sub(idle_ns).max(1);
        self.end_recall(slot);
        if self.waiting.concerns(slot) {
            self.take_up_again(request.now_ns, slot, out);
        }
    }

    /// The slot of the request's record, if its sender is the owner under the current epoch;
    /// refuses it otherwise. This is the fence: a delayed update of an earlier owner ends here. The
    /// owner's session may be over: nobody else was given the flow.
    pub(super) fn owned(&mut self, request: &Request<'_>, out: &mut Outputs) -> Option<u32> {
        let message = &request.message;
        let slot = self.chain.state().find(request.object, request.record_key);
        let owned = |slot: &u32| {
            let record = self.chain.state().get(*slot);
            let epoch = record.epoch == message.epoch || mutation::planted(Mutation::NoEpochCheck);
            record.owner == Some(message.sender) && epoch || mutation::planted(Mutation::NoFence)
        };
        if let Some(slot) = slot.filter(owned) {
            self.chain.state_mut().get_mut(slot).held_epoch = message.epoch;
            return Some(slot);
        }
        self.counters.refused += 1;
        let refusal = request.reply(MessageType::Refused);
        self.encode_reply(&Message { epoch: message.epoch, packet: &[], ..refusal });
        // Down the chain, like any answer: a head that was deposed would refuse in the name of a
        // grant that never was.
        self.commit(&Effect::None, request.client, out);
        None
    }

    pub(super) fn answer_absent(&mut self, request: &Request<'_>, flags: Flags, out: &mut Outputs) {
        let absent = request.reply(MessageType::Absent);
        self.encode_reply(&Message { flags, ..absent });
        self.commit(&Effect::None, request.client, out);
    }

    /// The first grant of a record that is about to be created.
    pub(super) fn encode_first_grant(&mut self, request: &Request<'_>, epoch: u32, value: &[u8]) {
        let grant = request.reply(MessageType::LeaseGrant);
        self.encode_reply(&Message { epoch, value, ..grant });
    }

    /// The grant of the reverse of a binding that is about to be created.
    pub(super) fn encode_reverse_grant(
        &mut self,
        request: &Request<'_>,
        reverse: &RecordWrite<'_>,
    ) {
        let &RecordWrite { epoch, phase, key, value, .. } = reverse;
        let flags = phase.with(Flags::REVERSE);
        let grant = request.reply(MessageType::LeaseGrant);
        self.encode_reply(&Message { flags, epoch, key, value, packet: &[], ..grant });
    }

    pub(super) fn encode_reply(&mut self, message: &Message<'_>) {
        self.reply.clear();
        // Cannot fail: its parts come from a message that was decoded, and from records of the same
        // sizes. Were it to, nothing is sent.
        let _ = message.append_to(&mut self.reply);
    }
}
