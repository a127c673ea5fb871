//! The first value of a flow: zeros, or a NAT's or load balancer's binding with its reverse.
//! `systems/redplane/docs/state-protocol.md`, "NAT_PORTS".

use super::mutation::{self, Mutation};
use super::nat::NatKey;
use super::pool::Binding;
use super::request::Request;
use super::settings::AllocatorSettings;
use super::{Outputs, Replica};
use state_protocol::{Effect, Flags, MAX_VALUE_BYTES, Owner, RecordWrite};

impl Replica {
    /// Creates the state that a `LEASE_REQUEST` asks for and grants it; or answers that there is
    /// none.
    pub(super) fn create(&mut self, request: &Request<'_>, out: &mut Outputs) {
        let message = &request.message;
        if !message.flags.contains(Flags::ALLOCATE) {
            self.counters.absent += 1;
            return self.answer_absent(request, Flags::NONE, out);
        }
        let Some(epoch) = self.chain.state().floor().checked_add(1) else {
            self.counters.dropped_epochs_used_up += 1;
            return;
        };
        let settings = self.chain.state().settings(request.object);
        let full = self.chain.state().len() + 2 > self.settings.limits.records
            || !self.snapshots_fit(request.object)
            || !self.contribution_fits(request);
        let zeros = [0; MAX_VALUE_BYTES];
        let (value_bytes, phase) = (settings.value_bytes, settings.first_phase(message.key));
        let binding = match &settings.allocator {
            _ if full => return self.answer_exhausted(request, out),
            AllocatorSettings::Zero { .. } | AllocatorSettings::Snapshot { .. } => None,
            AllocatorSettings::NatPorts(_) | AllocatorSettings::Backends(_) => {
                match self.choose_binding(request) {
                    Some(binding) => Some(binding),
                    None => return self.answer_exhausted(request, out),
                }
            }
        };
        let value = binding.as_ref().map_or(&zeros[..value_bytes], |binding| &binding.value);
        let first = RecordWrite {
            object_id: message.object_id,
            epoch,
            seq: 0,
            owner: Some(message.sender),
            session: request.session,
            phase,
            key: request.record_key,
            value,
        };
        let with_snapshot = self.snapshot_shape(request.object).is_some();
        let with_reverse = binding.is_some() && self.returns_here(request);
        if with_snapshot {
            self.reply.clear();
        } else if !with_reverse {
            self.encode_first_grant(request, epoch, value);
        }
        let slot = match &binding {
            None => self.commit(&Effect::Write(first), request.client, out),
            Some(Binding { reverse_key, reverse_value, .. }) => {
                let owned = RecordWrite { key: reverse_key, value: reverse_value, ..first };
                // One epoch lower, so that both first grants have the same.
                let nobodys = RecordWrite { owner: None, session: 0, epoch: epoch - 1, ..owned };
                if with_reverse {
                    self.encode_reverse_grant(request, &owned);
                }
                // Until its release only the switch knows whether the connection was answered. If
                // the switch dies first, the connection counts as answered.
                let answered = RecordWrite { phase: Flags::NONE, ..owned };
                let second = if with_reverse { answered } else { nobodys };
                self.commit(&Effect::Pair { first, second }, request.client, out)
            }
        };
        let Some(slot) = slot else { return };
        self.counters.grants += 1 + u64::from(with_reverse);
        self.counters.allocated += 1;
        self.chain.state_mut().get_mut(slot).granted_ns = request.now_ns;
        if let Some(pair) = self.chain.state().get(slot).pair.filter(|_| !with_reverse) {
            self.chain.state_mut().get_mut(pair).unused_since_ns = request.now_ns.max(1);
        }
        self.watch_idle(request.now_ns, slot);
        if with_snapshot {
            self.send_snapshot(request, slot, out);
        }
        // The grant with the packet is the last: its answer finds everything there.
        if with_snapshot || with_reverse {
            self.encode_first_grant(request, epoch, value);
            self.commit(&Effect::None, request.client, out);
        }
    }

    /// Whether the sender is granted the reverse of its new binding too: it takes that, and the
    /// answers of its bindings come by it, as far as is known. Then each is expected to.
    fn returns_here(&mut self, request: &Request<'_>) -> bool {
        let asked = request.message.flags.contains(Flags::REVERSE);
        let session = self.chain.state_mut().sessions.of_mut(&request.message.sender);
        session.filter(|session| asked && session.returns.are_expected()).is_some_and(|session| {
            session.returns.came_here();
            true
        })
    }

    /// Learns where answers come from the first request for the reverse of a binding.
    pub(super) fn learn_returns(&mut self, sender: Owner, slot: u32) {
        let record = self.chain.state().get(slot);
        // One that was granted along with the binding has no time of its own.
        let first = !record.primary && record.granted_ns == 0;
        let Some(pair) = record.pair.filter(|_| first) else { return };
        let granted = record.owner.is_some();
        let Some(owner) = self.chain.state().get(pair).owner else { return };
        // The next request is not the first.
        self.chain.state_mut().get_mut(slot).granted_ns = 1;
        let Some(session) = self.chain.state_mut().sessions.of_mut(&owner) else { return };
        if owner != sender {
            session.returns.came_elsewhere(granted);
        } else if !granted {
            session.returns.came_here();
        }
    }

    fn choose_binding(&mut self, request: &Request<'_>) -> Option<Binding> {
        let key = NatKey::from_bytes(request.message.key)?;
        let (records, object) = (self.chain.state(), request.object);
        let (shard, shards) = (self.settings.shard, self.settings.shards);
        let settings = records.settings(object);
        // A reverse key that equals the key itself would make a packet that maps onto itself.
        let unusable = |reverse: &NatKey| {
            let bytes = reverse.to_bytes();
            (shards > 1 && settings.shard_of(&bytes, shards) != shard)
                || *reverse == key
                || (records.find(object, &bytes).is_some()
                    && !mutation::planted(Mutation::TakenPortsGiven))
        };
        records.pool(object)?.choose(&key, &mut self.rng, unusable)
    }

    fn answer_exhausted(&mut self, request: &Request<'_>, out: &mut Outputs) {
        self.counters.exhausted += 1;
        self.answer_absent(request, Flags::EXHAUSTED, out);
    }
}
