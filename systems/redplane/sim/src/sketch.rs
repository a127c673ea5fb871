//! Snapshots judged from the packet log: what a switch's slots were at each instant is computed
//! from the packets that it let out, and every snapshot, sent or stored, must be the state of the
//! instant at which it was taken. For tests/sketch.p4.

use crate::checks::number;
use crate::store::Store;
use crate::world::SHARDS;
use state_protocol::objects::{Merge, Overdue, SnapshotState};
use state_protocol::{Message, MessageType, SNAPSHOT_PART_BYTES, snapshot_parts};
use state_store::core::Replica;
use std::collections::{BTreeMap, HashMap};
use wire::shard_of;

/// Slots of a key.
type Slots = Vec<u64>;
/// Whose slots: a tenant's, and of which switch, if each has its own (0: a tenant is one switch's
/// at a time).
pub(crate) type Subject = (u16, u32);
/// Whose, epoch and number of a snapshot.
type Name = (Subject, u32, u64);

/// What a switch must hold of a tenant.
struct Held {
    epoch: u32,
    slots: Slots,
    /// The newest snapshot that it took.
    seq: u64,
    /// When, by its own clock, its first update came under this grant.
    since_grant_ns: Option<u64>,
}

impl Held {
    /// A time window begins: the last slot is its number, and the others count anew.
    fn begin(&mut self, window: u64) {
        self.slots.fill(0);
        if let Some(number) = self.slots.last_mut() {
            *number = window;
        }
    }
}

/// A snapshot as it must be.
struct Taken {
    slots: Slots,
    /// When, by the clock of the switch that took it, the first update came that it does not have.
    next_update_ns: Option<u64>,
}

/// Follows all switches.
pub struct SketchChecker {
    object: SnapshotState,
    epsilon_ns: u64,
    drops: bool,
    /// Packets are marked when they saw what may be lost, or behind: unmarked ones are as those of
    /// `Overdue.DROP`.
    marks: bool,
    held: BTreeMap<(usize, u16), Held>,
    /// What a grant gives.
    granted: HashMap<(Subject, u32), (u64, Slots)>,
    taken: BTreeMap<Name, Taken>,
    /// Of each tenant, the newest snapshot that was acknowledged whole. Numbers go on from grant to
    /// grant.
    acknowledged: BTreeMap<Subject, u64>,
    updates_by_tenant: BTreeMap<u16, u64>,
    /// Updates that packets carried out.
    pub updates: u64,
    /// Snapshots taken.
    pub snapshots: u64,
    /// Times that a switch went on from another one's snapshot.
    pub handed_over: u64,
    /// Updates that a take-over took back.
    pub lost: u64,
    /// Packets that went on without a lease.
    pub without_lease: u64,
    /// Times that a switch began a tenant's window.
    pub windows: u64,
}

/// A key's slots in wire form.
fn decode(bytes: &[u8], slot_bytes: usize) -> Slots {
    bytes.chunks_exact(slot_bytes).map(number).collect()
}

/// A frame of sketch.p4.
pub fn sketch_frame(tenant: u16, indices: [u32; 4]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 84, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    frame.extend([0x30, 0x39, 0, 80, 0, 64, 0, 0]);
    frame.extend(1u32.to_be_bytes());
    frame.extend(tenant.to_be_bytes());
    frame.extend([0, 0]);
    indices.iter().for_each(|index| frame.extend(index.to_be_bytes()));
    frame.extend([0; 32]);
    frame
}

/// Did the program mark the frame (sketch.p4 with ASK_OVERDUE)?
fn is_marked(frame: &[u8]) -> bool {
    frame.get(48..50) != Some(&[0, 0])
}

/// The tenant that a frame is of.
pub fn tenant_of(frame: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(46..48)?.try_into().ok()?))
}

impl SketchChecker {
    /// Knows of nothing yet.
    pub fn new(object: &SnapshotState) -> SketchChecker {
        SketchChecker {
            object: object.clone(),
            epsilon_ns: u64::from(object.settings.epsilon_us) * 1000,
            drops: object.settings.overdue == Overdue::Drop,
            marks: object.settings.overdue == Overdue::Mark,
            held: BTreeMap::new(),
            granted: HashMap::new(),
            taken: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            updates_by_tenant: BTreeMap::new(),
            updates: 0,
            snapshots: 0,
            handed_over: 0,
            lost: 0,
            without_lease: 0,
            windows: 0,
        }
    }

    /// Updates of one tenant that packets carried out.
    pub(crate) fn updates_of(&self, tenant: u16) -> u64 {
        self.updates_by_tenant.get(&tenant).copied().unwrap_or(0)
    }

    /// Slots of a tenant that count.
    pub fn slots(&self) -> u32 {
        self.object.slots - u32::from(self.object.settings.windows)
    }

    /// How the store merges the slots of several switches that count for a tenant at the same time,
    /// if they do.
    pub(crate) fn merge(&self) -> Option<Merge> {
        self.object.settings.merge
    }

    /// A tenant's slots in a switch.
    pub(crate) fn subject(&self, tenant: u16, switch_id: u32) -> Subject {
        (tenant, if self.merge().is_some() { switch_id } else { 0 })
    }

    /// Whose slots a record of the store has.
    fn subject_of(&self, record_key: &[u8]) -> Subject {
        let (tenant, switch) = record_key.split_at(2.min(record_key.len()));
        self.subject(number(tenant) as u16, number(switch) as u32)
    }

    /// The key of a subject's record.
    fn record_key(&self, (tenant, switch_id): Subject) -> Vec<u8> {
        match self.merge() {
            Some(_) => [&tenant.to_be_bytes()[..], &switch_id.to_be_bytes()].concat(),
            None => tenant.to_be_bytes().to_vec(),
        }
    }

    /// What all members of the subject's chain have: the oldest of theirs; nothing, if one has
    /// none.
    fn whole_of(&self, store: &Store, subject: Subject) -> Option<(u32, u64, Vec<u8>)> {
        let members = store.members(shard_of(&subject.0.to_be_bytes(), SHARDS));
        let (object, key) = (self.object.object.id, self.record_key(subject));
        let wholes: Option<Vec<_>> = members.map(|server| whole_at(server, object, &key)).collect();
        wholes?.into_iter().min_by_key(|(epoch, seq, _)| (*epoch, *seq))
    }

    /// A switch lost its state.
    pub fn crashed(&mut self, switch: usize) {
        self.held.retain(|(at, _), _| *at != switch);
    }

    /// A message reaches a switch. What it is granted is what the store's newest whole snapshot is
    /// now: nobody owns the key until it takes the grant.
    pub(crate) fn arrives(&mut self, bytes: &[u8], store: &Store) -> Result<(), String> {
        let Ok(message) = Message::decode(bytes) else { return Ok(()) };
        if message.message_type != MessageType::LeaseGrant {
            return Ok(());
        }
        let subject = self.subject(tenant(message.key), message.sender.switch_id);
        let granted = (subject, message.epoch);
        if self.granted.contains_key(&granted) {
            return Ok(());
        }
        // Of servers that were cut off too: theirs may be older, or one that was never
        // acknowledged.
        let key = self.record_key(subject);
        let all = store.replicas().filter_map(|replica| whole_at(replica, message.object_id, &key));
        let whole =
            all.filter(|(_, seq, _)| *seq == message.seq).max_by_key(|(epoch, _, _)| *epoch);
        let slots = match whole {
            Some((_, _, slots)) => decode(&slots, self.object.slot_bytes as usize),
            None if message.seq == 0 => vec![0; self.object.slots as usize],
            // An old grant, late: its switch has answered for that epoch.
            _ => return Ok(()),
        };
        self.granted.insert(granted, (message.seq, slots));
        Ok(())
    }

    /// The store says which parts of a snapshot are on all servers: if all are, then so is that
    /// snapshot, or a newer one.
    pub(crate) fn acknowledged(&mut self, ack: &Message<'_>, store: &Store) -> Result<(), String> {
        let parts = snapshot_parts(self.object.slots as usize, self.object.slot_bytes as usize);
        if number(ack.value).count_ones() as usize != parts {
            return Ok(());
        }
        let subject = self.subject(tenant(ack.key), ack.sender.switch_id);
        let newest = self.acknowledged.entry(subject).or_default();
        *newest = (*newest).max(ack.seq);
        match self.whole_of(store, subject) {
            Some((_, seq, _)) if seq >= ack.seq => Ok(()),
            found => {
                let found = found.map(|(epoch, seq, _)| (epoch, seq));
                Err(format!(
                    "{subject:?}: snapshot {} is acknowledged; a member has {found:?}",
                    ack.seq
                ))
            }
        }
    }

    /// What a grant leaves out of what was acknowledged, if anything.
    pub(crate) fn lost_by(&self, grant: &Message<'_>) -> Option<String> {
        let subject = self.subject(tenant(grant.key), grant.sender.switch_id);
        let newest = self.acknowledged.get(&subject).filter(|newest| grant.seq < **newest)?;
        Some(format!(
            "{subject:?} is granted with snapshot {}; {newest} was acknowledged",
            grant.seq
        ))
    }

    /// A packet left a switch, which has a lease on its tenant (`owns`) or not. Without one only
    /// what the program declared may leave (systems/redplane/docs/snapshots.md, "Without a lease").
    /// Returns whether ε is to be held against it.
    pub(crate) fn leaves(
        &mut self,
        switch: usize,
        frame: &[u8],
        epoch: u32,
        owns: bool,
    ) -> Result<bool, String> {
        let Some(tenant) = tenant_of(frame) else { return Ok(false) };
        let strict = self.drops || (self.marks && !is_marked(frame));
        if let Some(held) = self.held.get(&(switch, tenant)).filter(|held| held.epoch > epoch) {
            return Err(format!(
                "tenant {tenant} at switch {switch}: epoch {epoch} after {}",
                held.epoch
            ));
        }
        if !owns && strict {
            return Err(format!(
                "a packet of tenant {tenant} leaves switch {switch}, which has no lease, as if it had"
            ));
        }
        self.without_lease += u64::from(!owns);
        Ok(strict)
    }

    /// A packet left a switch, which holds its tenant under `epoch`, when its clock showed
    /// `now_ns`.
    pub fn output(
        &mut self,
        switch: usize,
        frame: &[u8],
        epoch: u32,
        now_ns: u64,
    ) -> Result<(), String> {
        let Some(tenant) = tenant_of(frame) else { return Ok(()) };
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap_or_default());
        let sum = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().unwrap_or_default());
        let counting = self.slots() as usize;
        let subject = self.subject(tenant, switch_id(switch));
        let fresh = self.held.get(&(switch, tenant)).is_none_or(|held| held.epoch != epoch);
        if fresh {
            let (seq, slots) = self.granted.get(&(subject, epoch)).ok_or_else(|| {
                format!("tenant {tenant} runs at switch {switch} under epoch {epoch}, which was not granted")
            })?;
            let before = self
                .held
                .iter()
                .filter(|((at, of), _)| self.subject(*of, switch_id(*at)) == subject)
                .max_by_key(|(_, held)| held.epoch);
            if let Some((_, before)) = before {
                self.handed_over += 1;
                let counts = |slots: &Slots| slots.iter().take(counting).sum::<u64>();
                self.lost += counts(&before.slots).saturating_sub(counts(slots));
            }
            let held = Held { epoch, slots: slots.clone(), seq: *seq, since_grant_ns: None };
            self.held.insert((switch, tenant), held);
        }
        let Some(held) = self.held.get_mut(&(switch, tenant)) else { return Ok(()) };
        // The packet says in which window its switch's clock was. One that is not newer than the
        // tenant's counts in the tenant's.
        if let Some(window) = held.slots.get(counting)
            && u64::from(word(42)) > *window
        {
            held.begin(u64::from(word(42)));
            self.windows += 1;
        }
        for at in 0..4 {
            let index = word(50 + 4 * at) as usize;
            let slot = &mut held.slots[index];
            *slot += 1;
            if *slot != sum(66 + 8 * at) {
                let found = sum(66 + 8 * at);
                return Err(format!(
                    "tenant {tenant} at switch {switch}, epoch {epoch}: slot {index} is {found}, not {slot}"
                ));
            }
        }
        self.updates += 1;
        *self.updates_by_tenant.entry(tenant).or_default() += 1;
        held.since_grant_ns.get_or_insert(now_ns);
        let newest = (subject, epoch, held.seq);
        if let Some(taken) = self.taken.get_mut(&newest) {
            taken.next_update_ns.get_or_insert(now_ns);
        }
        Ok(())
    }

    /// A switch sends a message: of a snapshot that it has just taken, this is the instant.
    ///
    /// `window` reads the number of a tenant's time window in the switch, by the object and the
    /// key. The packet log may lack a window's beginning: the packet that begins it may have to ask
    /// the store for a lease then (systems/redplane/docs/snapshots.md, "Windows").
    pub(crate) fn sent(
        &mut self,
        switch: usize,
        bytes: &[u8],
        window: impl Fn(&SnapshotState, &[u8]) -> Option<u64>,
    ) -> Result<(), String> {
        let Ok(message) = Message::decode(bytes) else { return Ok(()) };
        if message.message_type != MessageType::Snapshot {
            return Ok(());
        }
        let tenant = tenant(message.key);
        let name = (self.subject(tenant, switch_id(switch)), message.epoch, message.seq);
        if !self.taken.contains_key(&name) {
            let held =
                self.held.get_mut(&(switch, tenant)).filter(|held| held.epoch == message.epoch);
            let Some(held) = held else {
                return Err(format!("snapshot {name:?} of what switch {switch} has not"));
            };
            if message.seq != held.seq + 1 {
                return Err(format!("snapshot {name:?} behind number {}", held.seq));
            }
            held.seq = message.seq;
            if self.object.settings.windows
                && let Some(window) = window(&self.object, message.key)
                && held.slots.last().is_some_and(|held| *held < window)
            {
                held.begin(window);
                self.windows += 1;
            }
            self.taken.insert(name, Taken { slots: held.slots.clone(), next_update_ns: None });
            self.snapshots += 1;
        }
        let part = usize::from(u16::from_be_bytes([message.packet[0], message.packet[1]]));
        let slot_bytes = self.object.slot_bytes as usize;
        let slots = decode(&message.packet[16..], slot_bytes);
        let first = part * SNAPSHOT_PART_BYTES / slot_bytes;
        let expected =
            self.taken.get(&name).and_then(|taken| taken.slots.get(first..first + slots.len()));
        if expected != Some(&slots) {
            return Err(format!(
                "part {part} of snapshot {name:?} is not of the instant of its flip"
            ));
        }
        Ok(())
    }

    /// Every whole snapshot on every server is the state of one instant; and what a server has
    /// merged of several switches' is what these are together.
    pub(crate) fn stored(&self, store: &Store) -> Result<(), String> {
        let slot_bytes = self.object.slot_bytes as usize;
        for server in store.replicas() {
            let mut by_tenant: BTreeMap<u16, Vec<&Slots>> = BTreeMap::new();
            for record in server.records().iter() {
                let Some(whole) = record.snapshots.as_ref().and_then(|it| it.whole.as_ref()) else {
                    continue;
                };
                let subject = self.subject_of(record.key.as_slice());
                let name = (subject, whole.epoch, whole.seq);
                let taken = self
                    .taken
                    .get(&name)
                    .ok_or_else(|| format!("{name:?} is stored, but was never taken"))?;
                if decode(&whole.slots, slot_bytes) != taken.slots {
                    return Err(format!("{name:?} is stored as it never was"));
                }
                by_tenant.entry(subject.0).or_default().push(&taken.slots);
            }
            self.merged(server, &by_tenant)?;
        }
        Ok(())
    }

    /// What a server has merged of each tenant is what the packet log says of these snapshots.
    fn merged(&self, server: &Replica, tenants: &BTreeMap<u16, Vec<&Slots>>) -> Result<(), String> {
        let (Some(how), Some(object)) =
            (self.merge(), server.records().object(self.object.object.id))
        else {
            return Ok(());
        };
        for (tenant, contributions) in tenants {
            let merged = server.records().merged(object, &tenant.to_be_bytes());
            let slots = merged.map(|it| decode(&it.slots, self.object.slot_bytes as usize));
            let expected = self.together(how, contributions);
            if slots.as_ref() != Some(&expected) {
                return Err(format!(
                    "tenant {tenant}: {} switches' slots are merged to {slots:?}, not {expected:?}",
                    contributions.len()
                ));
            }
        }
        Ok(())
    }

    /// Switches' slots of the newest time window of any.
    fn together(&self, how: Merge, contributions: &[&Slots]) -> Slots {
        let counting = self.slots() as usize;
        let window = |slots: &Slots| slots.get(counting).copied();
        let newest = contributions.iter().copied().max_by_key(|slots| window(slots));
        let mut merged = vec![0; counting];
        for slots in contributions.iter().filter(|it| window(it) == newest.and_then(window)) {
            for (merged, slot) in merged.iter_mut().zip(slots.iter()) {
                *merged = match how {
                    Merge::Sum => *merged + slot,
                    Merge::Max => *slot.max(merged),
                    Merge::Or => *merged | slot,
                };
            }
        }
        merged.extend(newest.and_then(window));
        merged
    }

    /// In quiet: the newest state of each tenant is what is stored.
    pub(crate) fn all_stored(&self, store: &Store) -> Result<(), String> {
        let mut newest: BTreeMap<Subject, &Held> = BTreeMap::new();
        for ((switch, tenant), held) in &self.held {
            let subject = self.subject(*tenant, switch_id(*switch));
            let known = newest.entry(subject).or_insert(held);
            if held.epoch > known.epoch {
                *known = held;
            }
        }
        for (subject, held) in newest {
            let whole = self.whole_of(store, subject);
            let slots = whole.map(|(_, _, slots)| decode(&slots, self.object.slot_bytes as usize));
            if slots.as_ref() != Some(&held.slots) {
                return Err(format!("{subject:?}: the newest state is not stored"));
            }
        }
        Ok(())
    }

    /// Called when a packet came out of a switch, whose clock shows `now_ns`: by the newest
    /// snapshot of its tenant that is on all servers, is it within ε?
    ///
    /// The oldest update that would be lost now is the first one behind that snapshot, or, if none
    /// of this grant is stored, the first one under the grant. How old it is says the switch's own
    /// clock, which is the only one that it has: one that is 10 % slow lets packets out for 10 %
    /// longer.
    pub(crate) fn within_epsilon(
        &self,
        switch: usize,
        tenant: u16,
        epoch: u32,
        store: &Store,
        now_ns: u64,
    ) -> Result<(), String> {
        let subject = self.subject(tenant, switch_id(switch));
        let whole = self.whole_of(store, subject);
        let since_ns = match whole {
            Some((of, seq, _)) if of == epoch => {
                self.taken.get(&(subject, of, seq)).and_then(|it| it.next_update_ns)
            }
            _ => {
                let held = self.held.get(&(switch, tenant)).filter(|held| held.epoch == epoch);
                held.and_then(|held| held.since_grant_ns)
            }
        };
        match since_ns {
            Some(since_ns) if now_ns > since_ns + self.epsilon_ns => {
                let age_ms = (now_ns - since_ns) / 1_000_000;
                Err(format!(
                    "tenant {tenant}: an update of {age_ms} ms ago, by the switch's clock, is not stored"
                ))
            }
            _ => Ok(()),
        }
    }
}

/// The number of a switch in the state protocol.
fn switch_id(switch: usize) -> u32 {
    switch as u32 + 1 // there are two
}

fn tenant(key: &[u8]) -> u16 {
    number(key) as u16
}

/// A key's whole snapshot on a server: grant, number, slots.
fn whole_at(server: &Replica, object_id: u16, key: &[u8]) -> Option<(u32, u64, Vec<u8>)> {
    let records = server.records();
    let slot = records.find(records.object(object_id)?, key)?;
    let whole = records.get(slot).snapshots.as_ref()?.whole.as_ref()?;
    Some((whole.epoch, whole.seq, whole.slots.clone()))
}
