//! What must hold at every instant of a run, beside what its packets say (`history`): one owner,
//! nothing answered or let out that is not on every member of the chain.

use crate::frames::SOURCE;
use crate::world::{SHARDS, World};
use state_protocol::{Message, MessageType, Owner};
use state_store::core::Replica;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wire::shard_of;

/// The first thing that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which check says so.
    pub check: &'static str,
    /// What, where, when.
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.check, self.detail)
    }
}

/// What the checks remember.
#[derive(Default)]
pub(crate) struct Checks {
    granted: HashMap<(Vec<u8>, u32), Owner>,
    acknowledged: BTreeMap<Vec<u8>, (u32, u64)>,
    /// By key: the largest value whose update was acknowledged. (Values of the counters only grow;
    /// a grant's epoch says nothing of what was lost before.)
    kept: BTreeMap<Vec<u8>, u64>,
    /// By key: the largest value that a packet carried out.
    let_out: BTreeMap<Vec<u8>, u64>,
}

/// A number in wire form.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Grant and number of the newest update of a key's record, and its value.
fn recorded(replica: &Replica, key: &[u8]) -> Option<(u32, u64, u64)> {
    let records = replica.records();
    // Of two objects, the one with keys of this length.
    let object = usize::from(records.settings(0).record_key_bytes() != key.len());
    let record = records.get(records.find(object, key)?);
    Some((record.epoch, record.seq, number(record.value.as_slice())))
}

impl World {
    /// Remembers the first violation.
    pub(crate) fn violated(&mut self, check: &'static str, detail: String) {
        let at_ms = self.now_ns as f64 / 1e6;
        self.violation
            .get_or_insert(Violation { check, detail: format!("{detail} (at {at_ms:.3} ms)") });
    }

    /// What a server says, when it says it.
    pub(crate) fn check_reply(&mut self, at: usize, bytes: &[u8]) {
        let Ok(reply) = Message::decode(bytes) else { return };
        let key = reply.key.to_vec();
        match reply.message_type {
            MessageType::LeaseGrant => {
                // Switches that count for a key at the same time have grants of their own.
                let key = match self.is_shared() {
                    true => [key.as_slice(), &reply.sender.switch_id.to_be_bytes()].concat(),
                    false => key,
                };
                let before = self.checks.granted.insert((key, reply.epoch), reply.sender);
                if let Some(owner) = before.filter(|owner| *owner != reply.sender) {
                    let (epoch, sender) = (reply.epoch, reply.sender);
                    self.violated(
                        "one owner",
                        format!("epoch {epoch} is granted to {owner:?} and to {sender:?}"),
                    );
                }
                self.check_members(at, &reply);
                // Later ones may be a new tail's, which answers again what the old one had
                // answered.
                if before.is_none() {
                    self.check_granted(&reply);
                }
            }
            MessageType::UpdateAck => {
                // 0: a switch that was asked said that it has the flow. A binding that is idle
                // later goes.
                if reply.seq > 0 {
                    let newest = self.checks.acknowledged.entry(key).or_default();
                    *newest = (*newest).max((reply.epoch, reply.seq));
                }
                self.check_members(at, &reply);
                self.keep(&reply);
            }
            MessageType::SnapshotAck => {
                let acknowledged = self
                    .sketch
                    .as_mut()
                    .map_or(Ok(()), |sketch| sketch.acknowledged(&reply, &self.store));
                if let Err(detail) = acknowledged {
                    self.violated("output commit", detail);
                }
            }
            _ => {}
        }
    }

    /// Whether several switches have a key at the same time.
    fn is_shared(&self) -> bool {
        self.sketch.as_ref().is_some_and(|sketch| sketch.merge().is_some())
    }

    /// What is answered is on every server that the controller counts on. (Of snapshots their own
    /// checker knows.)
    fn check_members(&mut self, at: usize, reply: &Message<'_>) {
        if self.sketch.is_some() {
            return;
        }
        let answered = (reply.epoch, reply.seq);
        let lacks = self.store.members(reply.shard).find_map(|replica| {
            let found = recorded(replica, reply.key).map(|(epoch, seq, _)| (epoch, seq));
            let lacks = found < Some(answered)
                && !(found.is_none() && self.is_gone_again(at, replica, reply));
            lacks.then(|| format!("{:?} of view {}", found, replica.view().number))
        });
        if let Some(found) = lacks {
            let (what, shard) = (reply.message_type, reply.shard);
            self.violated(
                "output commit",
                format!("{what:?} of shard {shard} answers {answered:?}; a member has {found}"),
            );
        }
    }

    /// What a chain could not confirm for long it answers when it can: by then what was granted may
    /// have become idle, and be gone from servers that are further than those that still have it.
    /// (A head that is further yet may have given the flow anew, in a later epoch.) A server that
    /// has not come as far as the one that answers, `at`, has just not heard of it.
    fn is_gone_again(&self, at: usize, without: &Replica, reply: &Message<'_>) -> bool {
        let index = |replica: &Replica| replica.status(self.now_ns).index;
        let is_had = |replica: &&Replica| {
            recorded(replica, reply.key).is_some_and(|(epoch, ..)| epoch == reply.epoch)
        };
        let having = self.store.members(reply.shard).filter(is_had);
        let answering = self.store.nodes[at].iter().filter_map(|node| node.replica(reply.shard));
        self.bindings.is_some()
            && having.chain(answering).all(|replica| index(replica) <= index(without))
    }

    /// An update was acknowledged: its value outlives up to f servers of the chain. (Where every
    /// member is ahead of it already, which value that was is not known any more.)
    fn keep(&mut self, ack: &Message<'_>) {
        if self.sketch.is_some() || self.bindings.is_some() {
            return;
        }
        let acknowledged = self.store.members(ack.shard).find_map(|replica| {
            let (epoch, seq, value) = recorded(replica, ack.key)?;
            ((epoch, seq) == (ack.epoch, ack.seq)).then_some(value)
        });
        let kept = self.checks.kept.entry(ack.key.to_vec()).or_default();
        *kept = (*kept).max(acknowledged.unwrap_or(0));
    }

    /// Whoever is granted a key begins with no less than what was acknowledged of it.
    fn check_granted(&mut self, grant: &Message<'_>) {
        let lost = match (&self.sketch, self.checks.kept.get(grant.key)) {
            (Some(sketch), _) => sketch.lost_by(grant),
            (None, Some(kept)) => {
                let value = number(grant.value);
                (value < *kept).then(|| {
                    format!("{value} is granted of {:?}; {kept} was acknowledged", grant.key)
                })
            }
            (None, None) => None,
        };
        if let Some(detail) = lost {
            self.violated("durability", detail);
        }
    }

    /// Where the store keeps a key.
    fn shard_of(&self, key: &[u8]) -> u16 {
        if self.grouped.is_some() {
            return shard_of(&key[..SOURCE.len()], SHARDS);
        }
        self.bindings
            .as_ref()
            .map_or_else(|| shard_of(key, SHARDS), |bindings| bindings.shard_of(key))
    }

    /// Every member that the controller counts on has all that was acknowledged.
    pub(crate) fn check_kept(&mut self) {
        for shard in 0..SHARDS {
            let of_shard = |key: &&Vec<u8>| self.shard_of(key) == shard;
            let lost = self.store.members(shard).find_map(|replica| {
                self.checks.kept.keys().filter(of_shard).find_map(|key| {
                    let found = recorded(replica, key).map_or(0, |(_, _, value)| value);
                    let kept = self.checks.kept[key];
                    (found < kept).then(|| {
                        format!(
                            "{key:?}: {kept} was acknowledged, a member of the new view has {found}"
                        )
                    })
                })
            });
            if let Some(detail) = lost {
                self.violated("durability", detail);
            }
        }
    }

    /// A packet leaves a switch with a flow's value: every member has it.
    pub(crate) fn check_output(&mut self, key: &[u8], count: u64) {
        if !self.linearizable {
            return;
        }
        self.store.take_changes();
        let shard = self.shard_of(key);
        let lacks = self.store.members(shard).find_map(|replica| {
            let found = recorded(replica, key).map_or(0, |(_, _, value)| value);
            (found < count).then_some(found)
        });
        if let Some(found) = lacks {
            self.violated(
                "output commit",
                format!("a packet leaves with {count}; a member of shard {shard} has {found}"),
            );
        }
        let newest = self.checks.let_out.entry(key.to_vec()).or_default();
        *newest = (*newest).max(count);
    }

    /// A packet shows the port or backend that its flow has: every member has that. Beyond the
    /// declared drift a switch may go by a lease that is over.
    pub(crate) fn check_binding(&mut self, key: &[u8], value: u64) {
        if !self.clocks_are_sound {
            return;
        }
        let shard = self.shard_of(key);
        let lacks = self.store.members(shard).find_map(|replica| {
            let found = recorded(replica, key).map(|(_, _, value)| value);
            (found != Some(value)).then_some(found)
        });
        if let Some(found) = lacks {
            self.violated(
                "output commit",
                format!("a packet leaves by {value:#x}; a member of shard {shard} has {found:x?} for {key:?}"),
            );
        }
    }

    /// At most one switch would give a flow's value to its program now. Lives of switches that
    /// crashed are over. Beyond the declared drift nobody promises that.
    pub(crate) fn check_one_owner(&mut self, key: &[u8]) {
        if !self.clocks_are_sound || self.is_shared() {
            return;
        }
        let holders: Vec<(usize, u32)> = (0..self.switches.len())
            .filter_map(|at| Some((at, self.switches[at].holds(key, self.now_ns)?)))
            .collect();
        if holders.len() > 1 {
            self.violated("one owner", format!("switches and epochs {holders:?} hold {key:?}"));
        }
    }

    /// The same for every flow that was granted so far.
    pub(crate) fn check_one_owner_each(&mut self) {
        let keys: BTreeSet<Vec<u8>> =
            self.checks.granted.keys().map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.check_one_owner(key));
    }

    /// Each packet counts in its flow and in the total, or in none: at every member, at any time.
    pub(crate) fn check_groups(&mut self) {
        let Some(flows) = self.grouped else { return };
        self.store.take_changes();
        let of = |replica: &Replica, key: &[u8]| recorded(replica, key).map_or(0, |it| it.2);
        let wrong = self.store.members(self.shard_of(&SOURCE)).find_map(|replica| {
            let counted: u64 = (0..flows).map(|flow| of(replica, &self.key(flow))).sum();
            let total = of(replica, &SOURCE);
            (counted != total).then(|| format!("a member has {counted} counts, in all {total}"))
        });
        if let Some(detail) = wrong {
            self.violated("groups", detail);
        }
    }

    /// Have all members of each chain the same records?
    pub(crate) fn members_are_alike(&mut self) -> bool {
        self.store.take_changes();
        let digests =
            |shard| self.store.members(shard).map(|replica| replica.records().shared_digest());
        (0..SHARDS).all(|shard| digests(shard).collect::<BTreeSet<u64>>().len() <= 1)
    }

    /// When nothing waits to be sent at a switch, the store has the newest update of each flow that
    /// it owns, whether or not packets waited for it.
    pub(crate) fn check_sent(&mut self, switch: usize, flows: u32) {
        if self.sketch.is_some() || self.bindings.is_some() {
            return;
        }
        self.store.take_changes();
        for flow in 0..flows {
            let key = self.key(flow);
            let head = self.store.members(self.shard_of(&key)).next();
            let stored = head.and_then(|head| recorded(head, &key));
            let owned = self.switches[switch].owned(&key);
            if let (Some((epoch, seq)), Some((granted, known, _))) = (owned, stored)
                && (epoch, true) == (granted, seq > known)
            {
                let detail = format!("{key:?}: switch {switch} has {seq}, the store {known}");
                self.violated("liveness", detail);
            }
        }
    }

    /// In quiet: nothing that was acknowledged or let out is missing, and the servers of a chain
    /// are alike.
    pub(crate) fn check_durable(&mut self) {
        self.check_groups();
        if !self.members_are_alike() {
            self.violated("durability", "members of a chain differ".to_owned());
        }
        for shard in 0..SHARDS {
            let replicas: Vec<&Replica> = self.store.members(shard).collect();
            let mut wrong = None;
            for replica in &replicas {
                for (key, answered) in
                    self.checks.acknowledged.iter().filter(|(key, _)| self.shard_of(key) == shard)
                {
                    let found = recorded(replica, key).map(|(epoch, seq, _)| (epoch, seq));
                    if found < Some(*answered) && self.sketch.is_none() {
                        wrong = Some(format!(
                            "{key:?}: {answered:?} was acknowledged, {found:?} is there"
                        ));
                    }
                }
                for (key, count) in
                    self.checks.let_out.iter().filter(|(key, _)| self.shard_of(key) == shard)
                {
                    let found = recorded(replica, key).map_or(0, |(_, _, value)| value);
                    if found < *count {
                        wrong =
                            Some(format!("{key:?}: a packet left with {count}, {found} is there"));
                    }
                }
            }
            if let Some(detail) = wrong {
                self.violated("durability", detail);
            }
        }
    }
}
