//! Flows that one switch owns and another has packets of: holding its requests, recalling the flow,
//! giving it on. `systems/redplane/docs/state-protocol.md`, "Rules of the store", 6, and
//! "Sessions", 6.

use super::blob::Blob;
use super::request::{Held, Request};
use super::waiting::{Recall, Waiter};
use super::{Mutation, Outputs, Replica, mutation};
use state_protocol::{Effect, Flags, Message, MessageType, Owner};

/// A recall is sent again after up to so many times its first interval.
const MOST_BACK_OFF: u64 = 8;
/// A grant is in doubt no sooner than this, in ns: nearly all were taken by then, and show it.
const PROBED_AFTER_NS: u64 = 2_000_000_000;
/// A shard sends a probe in this time, in ns, on the average: however many flows a switch has that
/// never answers.
const PROBE_EVERY_NS: u64 = 1_000_000;
/// So many can be ahead of that.
const PROBES_AT_ONCE: u64 = 32;

impl Replica {
    /// Holds a request behind those that came before, if there is room, and sees to the flow that
    /// it waits for.
    pub(super) fn hold(&mut self, request: &Request<'_>, slot: u32, out: &mut Outputs) {
        let limits = &self.settings.limits;
        let room = self.waiting.len() < limits.held
            && self.waiting.len_of(slot) < limits.held_per_flow
            && self.waiting.bytes() + request.datagram.len() <= limits.held_bytes;
        if !room {
            self.counters.held_overflow += 1;
            return;
        }
        self.counters.held += u64::from(request.held.is_none());
        let received_ns = request.received_ns();
        let waiter = Waiter {
            received_ns,
            expires_ns: received_ns + self.settings.hold_ns,
            client: request.client,
            datagram: request.datagram.to_vec(),
            for_lease: request.message.message_type == MessageType::LeaseRequest,
        };
        self.waiting.hold(slot, waiter);
        self.chain.state_mut().note(slot);
        self.attend(request.now_ns, slot, out);
    }

    /// Examines a flow with held requests or a pending recall again, after a timer or a change of
    /// the flow.
    pub(super) fn look_again(&mut self, now_ns: u64, slot: u32, out: &mut Outputs) {
        self.counters.held_expired += self.waiting.expire(slot, now_ns);
        self.chain.state_mut().note(slot);
        let record = self.chain.state().get(slot);
        if self.chain.state().is_owned(record) {
            let session = record.owner.and_then(|owner| self.chain.state().sessions.of(&owner));
            let early_ns = self.early_ns();
            let over = session
                .filter(|session| session.lease_until_ns <= now_ns + early_ns)
                .map(|session| session.number);
            let Some(number) = over else { return self.attend(now_ns, slot, out) };
            self.end_recall(slot);
            if self.waiting.wanted(slot) == 0 {
                // Nobody takes anything from the session, so it goes on if its switch comes back.
                return self.attend(now_ns, slot, out);
            }
            self.end_session(number, out);
        }
        self.end_recall(slot);
        self.take_up_again(now_ns, slot, out);
    }

    /// Takes up all requests held for a flow, in order of arrival; what must still wait is held
    /// again, in the same order.
    pub(super) fn take_up_again(&mut self, now_ns: u64, slot: u32, out: &mut Outputs) {
        self.chain.state_mut().note(slot);
        for waiter in self.waiting.take(slot) {
            if waiter.expires_ns <= now_ns {
                self.counters.held_expired += 1;
            } else {
                let held = Held { received_ns: waiter.received_ns };
                self.request(now_ns, waiter.client, &waiter.datagram, Some(held), out);
            }
        }
        self.attend(now_ns, slot, out);
    }

    /// Recalls a flow that is wanted, and sets the time to look again.
    fn attend(&mut self, now_ns: u64, slot: u32, out: &mut Outputs) {
        if !self.waiting.concerns(slot) {
            return;
        }
        let record = self.chain.state().get(slot);
        let (granted_ns, epoch) = (record.granted_ns, record.epoch);
        let owner = record.owner.filter(|_| self.chain.state().is_owned(record));
        let session = owner.and_then(|owner| self.chain.state().sessions.of(&owner));
        let mut wake_ns = self.waiting.first_expiry(slot).unwrap_or(u64::MAX);
        if let (Some(owner), Some(session)) = (owner, session) {
            let (number, lease_until_ns) = (session.number, session.lease_until_ns);
            // A switch that lost its session goes on in another ("Sessions", 4): what it did not
            // answer in the first is not held against the second.
            if self.waiting.recall(slot).is_some_and(|recall| recall.session != number) {
                self.end_recall(slot);
            }
            let wanted = self.waiting.wanted(slot) > 0;
            let recall_from_ns = granted_ns + self.settings.tenure_ns;
            if wanted && !self.waiting.is_recalled(slot) {
                if now_ns < recall_from_ns {
                    wake_ns = wake_ns.min(recall_from_ns);
                } else {
                    let resend_ns = self.settings.recall_resend_ns;
                    let (since_ns, next_ns) = (now_ns, now_ns);
                    let recall = Recall {
                        owner,
                        session: number,
                        epoch,
                        since_ns,
                        next_ns,
                        resend_ns,
                        overdue: false,
                    };
                    self.waiting.set_recall(slot, recall);
                }
            }
            self.send_recall(now_ns, slot, out);
            if let Some(recall) = self.waiting.recall(slot) {
                wake_ns = wake_ns.min(recall.next_ns).min(lease_until_ns.max(now_ns + 1));
            } else if wanted {
                wake_ns = wake_ns.min(lease_until_ns.max(now_ns + 1));
            }
        }
        self.waiting.wake_at(slot, wake_ns);
    }

    /// Asks the owner of a flow for it, so that it can be removed.
    pub(super) fn recall_for_removal(&mut self, now_ns: u64, slot: u32, out: &mut Outputs) {
        let record = self.chain.state().get(slot);
        let (granted_ns, epoch) = (record.granted_ns, record.epoch);
        let Some(owner) = record.owner.filter(|_| self.chain.state().is_owned(record)) else {
            return;
        };
        let Some(session) = self.chain.state().sessions.of(&owner) else { return };
        // Of a switch that is dead the session ends, and with it that it is the owner.
        let alive =
            session.lease_until_ns > now_ns && now_ns >= granted_ns + self.settings.tenure_ns;
        if !alive || self.waiting.is_recalled(slot) {
            return;
        }
        let resend_ns = self.settings.recall_resend_ns;
        let (session, since_ns, next_ns) = (session.number, now_ns, now_ns);
        self.waiting.set_recall(
            slot,
            Recall { owner, session, epoch, since_ns, next_ns, resend_ns, overdue: false },
        );
        self.attend(now_ns, slot, out);
    }

    /// Whether a record's owner may not have it: it was granted, and nothing that followed shows
    /// that the grant was taken. (An instance that snapshots are taken of would have to be recalled
    /// for good.)
    pub(super) fn is_doubtful(&self, now_ns: u64, slot: u32) -> bool {
        let record = self.chain.state().get(slot);
        let old = now_ns >= record.granted_ns.saturating_add(PROBED_AFTER_NS);
        let flow = self.snapshot_shape(record.object).is_none();
        let none_out = !self.waiting.is_recalled(slot);
        self.chain.state().is_owned(record)
            && record.held_epoch != record.epoch
            && old
            && flow
            && none_out
    }

    /// Asks the owner whether it has a flow. It does not say so of itself, as flows that are only
    /// read need no message after their grant; and a grant that was lost, with no packet behind it,
    /// would leave the flow, and what was allocated with it, the switch's for as long as that
    /// lives. Not held against the session, and not sent again but at the next look: nobody waits.
    pub(super) fn probe(&mut self, now_ns: u64, slot: u32, out: &mut Outputs) {
        let record = self.chain.state().get(slot);
        let session =
            record.owner.and_then(|owner| Some((owner, self.chain.state().sessions.of(&owner)?)));
        let Some((owner, session)) = session else { return };
        let (epoch, number, client, request_ns) =
            (record.epoch, session.number, session.client, session.newest_request_ns);
        let dead = session.lease_until_ns <= now_ns;
        // Probes leave room for what somebody waits for.
        let room =
            self.chain.unacked() < self.settings.limits.unacked / 4 && !self.chain.is_backed_up();
        let too_soon = now_ns + PROBES_AT_ONCE * PROBE_EVERY_NS < self.next_probe_ns;
        if dead || request_ns == 0 || !room || too_soon || mutation::planted(Mutation::NoProbe) {
            return;
        }
        self.next_probe_ns = self.next_probe_ns.max(now_ns) + PROBE_EVERY_NS;
        self.counters.probes += 1;
        self.encode_recall(now_ns, slot, Flags::PROBE, (owner, number), epoch, request_ns);
        self.commit(&Effect::None, client, out);
    }

    /// A recall that carries the time of the owner's newest request, so that a switch takes no old
    /// one.
    fn encode_recall(
        &mut self,
        now_ns: u64,
        slot: u32,
        flags: Flags,
        (owner, session): (Owner, u32),
        epoch: u32,
        request_ns: u64,
    ) {
        let record = self.chain.state().get(slot);
        let settings = self.chain.state().settings(record.object);
        let (object_id, key) =
            (settings.id, Blob::new(settings.message_key(record.key.as_slice())));
        let message = Message {
            message_type: MessageType::Recall,
            object_id,
            flags,
            sender: owner,
            request_ns,
            epoch,
            // No two are the same, or the second would be taken for a replay.
            seq: now_ns,
            lease_us: 0,
            port: 0,
            session,
            shard: self.settings.shard,
            key: key.as_slice(),
            value: &[],
            packet: &[],
        };
        self.encode_reply(&message);
    }

    /// Sends the recall that is out for a record, if its time has come. It goes down the chain like
    /// an answer: so it names no grant that is not on all servers, and a head that was deposed
    /// recalls nothing.
    fn send_recall(&mut self, now_ns: u64, slot: u32, out: &mut Outputs) {
        let half_lease_ns = u64::from(self.settings.lease_us) * 500;
        let most_resend_ns = self.settings.recall_resend_ns * MOST_BACK_OFF;
        let backed_up = self.chain.is_backed_up();
        let Some(recall) = self.waiting.recall(slot).filter(|recall| recall.next_ns <= now_ns)
        else {
            return;
        };
        let again = recall.since_ns < now_ns;
        recall.next_ns = now_ns + recall.resend_ns;
        recall.resend_ns = (recall.resend_ns * 2).min(most_resend_ns);
        let newly_overdue = !recall.overdue && now_ns >= recall.since_ns + half_lease_ns;
        recall.overdue |= newly_overdue;
        let recall = *recall;
        let Some(session) = self.chain.state_mut().sessions.of_mut(&recall.owner) else { return };
        debug_assert_eq!(
            session.number, recall.session,
            "a recall counts in the session that it was sent in, or no rule removes it again"
        );
        session.overdue += u32::from(newly_overdue);
        let (client, request_ns) = (session.client, session.newest_request_ns);
        // A new head that has heard nothing of the switch has no time that the switch would take
        // for fresh.
        if backed_up || request_ns == 0 || mutation::planted(Mutation::NoRecall) {
            return;
        }
        self.counters.recalls += u64::from(!again);
        self.counters.recalls_resent += u64::from(again);
        self.encode_recall(
            now_ns,
            slot,
            Flags::NONE,
            (recall.owner, recall.session),
            recall.epoch,
            request_ns,
        );
        self.commit(&Effect::None, client, out);
    }

    /// No recall is out for this record any more: it was answered, or has nobody to ask.
    pub(super) fn end_recall(&mut self, slot: u32) {
        let Some(recall) = self.waiting.end_recall(slot).filter(|recall| recall.overdue) else {
            return;
        };
        let session = self
            .chain
            .state_mut()
            .sessions
            .of_mut(&recall.owner)
            .filter(|session| session.number == recall.session);
        if let Some(session) = session {
            session.overdue = session.overdue.saturating_sub(1);
        }
    }

    /// Forgets all requests that are held, and all recalls: who waits here asks again, and no
    /// session is held to answer what nobody remembers.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.slots().for_each(|slot| self.chain.state_mut().note(slot));
        self.waiting.clear();
        for (_, session) in self.chain.state_mut().sessions.iter_mut() {
            session.overdue = 0;
        }
    }
}
