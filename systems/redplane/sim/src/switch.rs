//! A simulated switch: a loaded object in test mode, with its own settings and clock.

use crate::envelope::{STORE_PORT, frame_of, message_of};
use crate::program::Kind;
use crate::world::TICK_NS;
use c_layout::CStruct;
use dataplane::{
    ActionSpec, Dataplane, EntrySpec, Error, KeySpec, Object, Outcome, Result, Settings, Verdict,
    Write, copies_by_loop,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use manifest::{Layout, Manifest, StateObject};
use redplane_switch::FlowRuntime;
use redplane_switch::runtime::{FlowSettings, SweepBefore, Swept, entry_flags};
use state_protocol::layouts::{
    EntryHead, SEEN_SETS, SeenSet, Slot4, Slot8, map_slot_bytes, slots_offset,
};
use state_protocol::objects::{SnapshotState, flow_states};
use state_protocol::{Message, snapshot_parts};
use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use wire::KeyRing;

/// The port that protocol messages come in on.
const FABRIC_PORT: u32 = 1;
const RESEND_LEAST_NS: u64 = 3_000_000;
const RESEND_MOST_NS: u64 = 60_000_000;
/// So few that it is full now and then.
const WINDOW: u64 = 6;
/// The agent looks for idle flows this often, and this is when they are.
const SWEEP_EVERY_NS: u64 = 40_000_000;
const IDLE_NS: u64 = 150_000_000;
const REMOVED_AFTER_NS: u64 = 2_000_000_000;

/// What a frame given to a switch became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Became {
    /// Dropped, or taken up by the runtime.
    Nothing,
    /// A frame out of a port.
    Output(u32, Vec<u8>),
    /// A message (UDP payload) to the store's server with this address.
    Message(SocketAddrV4, Vec<u8>),
}

impl Became {
    /// A frame to the store.
    fn of(frame: &[u8]) -> Became {
        message_of(frame).map_or(Became::Nothing, |(to, payload)| Became::Message(to, payload))
    }
}

/// Which switch of the world a loaded object is to be.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Its number in the protocol, 1 to 250.
    pub switch_id: u32,
    /// Which life of it.
    pub incarnation: u32,
    /// Parts per million by which its clock runs faster than the world's.
    pub drift_ppm: i64,
    /// What it takes off a lease.
    pub lease_margin_ns: u64,
}

/// The replies that the runtime remembers, in sets by the low bits of their tags.
const SEEN_REPLIES: &str = "sp_seen_replies";
/// What a new life does not begin without: the replies (emptied by themselves), the ports, and what
/// no agent of the simulation writes.
const KEPT: [&str; 8] = [
    SEEN_REPLIES,
    "sp_ports",
    "sp_port_by_ifindex",
    "sp_fabric_port",
    "sp_backends",
    // What is in a slot or batch counts only once it is written anew.
    "sp_commit_slots",
    "sp_commit_tails",
    "sp_commit_batches",
];
/// Arrays with a place for each shard that a cluster may have; only those of this cluster's are
/// ever written.
const BY_SHARD: [&str; 2] = ["sp_shards", "sp_sessions"];
/// Arrays up to this size are zeroed whole. In larger ones (the replies seen, the backends) only
/// what was written is.
const ZEROED_ENTRIES: u32 = 4096;

/// CPUs that the program believes to run on, where packets wait in the switch.
const CPUS: u32 = 2;
/// Words of a record's header.
const HEADER_WORDS: u32 = (wire::RECORD_HEADER_BYTES / 8) as u32;
/// One of so many copies that go by the loop is lost.
const LOST_COPY: u32 = 16;
/// A frame becomes no more than this: if it does, copies go round for ever.
const MOST_COPIES: usize = 4_096;

/// Words of a record of this object.
fn record_words(object: &StateObject) -> u32 {
    let value_bytes = match object.value {
        Layout::Fields { bytes, .. } => bytes,
        Layout::Slots { .. } => 0,
    };
    HEADER_WORDS + object.key_bytes.div_ceil(8) + value_bytes.div_ceil(8)
}

/// A switch that runs the real program, on a clock of its own.
pub struct Switch {
    dataplane: Dataplane,
    manifest: Manifest,
    address: Ipv4Addr,
    drift_ppm: i64,
    next_heartbeat_ns: u64,
    next_sweep_ns: u64,
    /// Sets of `sp_seen_replies` with anything in them.
    seen: HashSet<u32>,
    /// How many flows stood in the pending ring when somebody looked last; `None`: the program ran
    /// since.
    queued: Cell<Option<u64>>,
    /// Packets wait in the switch.
    waits: bool,
    /// Packets set several objects.
    grouped: bool,
    /// Draws the CPU of each frame, and the copies that are lost.
    draw: Cell<u32>,
}

impl Switch {
    /// Loads an object: a switch with empty state, as `reset` leaves it.
    /// `kind` says where its packets wait: in it, or in messages.
    pub fn load(object: &Path, manifest: &Manifest, kind: Kind) -> Result<Switch> {
        let mut open = Object::open(object, manifest.clone())?;
        open.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })?;
        let waits = kind.batches();
        if waits {
            open.wait_in_switch(CPUS)?;
        }
        if matches!(kind, Kind::Overflowing | Kind::Gathered) {
            open.set_constant("sp_commit_wraps", 1)?;
            // Of one record: the next flow's update finds no room.
            open.set_constant(
                "sp_commit_words_max",
                manifest.state_objects.first().map_or(0, record_words),
            )?;
        }
        let dataplane = open.load()?;
        equip(&dataplane)?;
        let manifest = manifest.clone();
        let grouped = flow_states(&manifest)
            .is_ok_and(|flows| flows.iter().any(|flow| flow.settings.grouped));
        let address = Ipv4Addr::UNSPECIFIED;
        let seen = HashSet::new();
        let queued = Cell::new(None);
        Ok(Switch {
            dataplane,
            manifest,
            address,
            drift_ppm: 0,
            next_heartbeat_ns: 0,
            next_sweep_ns: 0,
            seen,
            queued,
            waits,
            grouped,
            draw: Cell::new(0),
        })
    }

    /// Starts another life with empty state: every map is as when the object was loaded. (Loading
    /// costs a hundred times as much.) `heads`: of the shards' chains; `None`: not known yet.
    pub fn reset(&mut self, identity: Identity, heads: &[Option<SocketAddrV4>]) -> Result<()> {
        for (name, map) in self.dataplane.maps() {
            let objects = &self.manifest.state_objects;
            let state = name.starts_with("sp_") && !KEPT.contains(&name)
                || objects.iter().any(|object| name == object.map);
            if state && !name.contains('.') {
                let used = if BY_SHARD.contains(&name) { heads.len() as u32 } else { u32::MAX };
                empty(name, map, used)?;
            }
        }
        for index in self.seen.drain() {
            self.dataplane.write_array(SEEN_REPLIES, index, &SeenSet::default().to_bytes())?;
        }
        self.address = Ipv4Addr::new(10, 255, 0, identity.switch_id as u8);
        self.drift_ppm = identity.drift_ppm;
        (self.next_heartbeat_ns, self.next_sweep_ns) = (0, 0);
        self.queued.set(None);
        self.draw.set(identity.incarnation ^ identity.switch_id << 16);
        self.dataplane.set_flow_settings(FlowSettings {
            switch_id: identity.switch_id,
            incarnation: identity.incarnation,
            protocol_address: self.address,
            shards: heads.len() as u32,
            lease_margin_ns: identity.lease_margin_ns,
            resend_least_ns: RESEND_LEAST_NS,
            resend_most_ns: RESEND_MOST_NS,
            window: WINDOW,
            look_ns: TICK_NS,
        })?;
        self.set_heads(heads, 0)?;
        self.dataplane.set_fabric_port(FABRIC_PORT, true)
    }

    /// Where the shards' requests go from now on.
    pub fn set_heads(&self, heads: &[Option<SocketAddrV4>], now_ns: u64) -> Result<()> {
        let since_ns = self.clock(now_ns);
        for (shard, head) in (0..).zip(heads) {
            if self.dataplane.shard_head(shard)? != *head {
                self.dataplane.change_shard_head(shard, *head, since_ns)?;
            }
        }
        Ok(())
    }

    /// Where the store's replies go.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Takes these secrets.
    pub fn set_keys(&self, keys: &KeyRing) -> Result<()> {
        self.dataplane.set_secrets(&keys.into())
    }

    /// Its own clock, at a time of the world's.
    pub(crate) fn clock(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add_signed(
            (i128::from(now_ns) * i128::from(self.drift_ppm) / 1_000_000) as i64,
        )
    }

    /// A number below `most`, the same in every run of a life.
    fn draw(&self, most: u32) -> u32 {
        // Numerical Recipes' generator: the upper bits are good enough for this.
        let next = self.draw.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.draw.set(next);
        (next >> 16) % most
    }

    /// The next frame may be on another CPU.
    fn on_some_cpu(&self) {
        if self.waits {
            self.dataplane.set_test_cpu(self.draw(CPUS));
        }
    }

    /// A packet comes in on a port: what it became, and packets that waited and leave now.
    pub fn packet(&self, frame: &[u8], port: u32, now_ns: u64) -> Result<Vec<Became>> {
        self.queued.set(None);
        self.on_some_cpu();
        let outcome = self.dataplane.run(frame, port, self.clock(now_ns))?;
        self.follow(outcome, now_ns)
    }

    /// Copies that go by the loop come in again, until nothing does.
    fn follow(&self, outcome: Outcome, now_ns: u64) -> Result<Vec<Became>> {
        let (mut all, mut copies) = (Vec::new(), 0);
        let mut next = VecDeque::from([outcome]);
        while let Some(outcome) = next.pop_front() {
            let port = match outcome.verdict {
                Verdict::Forward { port } => port,
                Verdict::Drop | Verdict::ToHost => continue,
            };
            if port == STORE_PORT {
                all.push(Became::of(&outcome.frame));
                continue;
            }
            let Some(more) = copies_by_loop(port) else {
                all.push(Became::Output(port, outcome.frame));
                continue;
            };
            copies += more as usize;
            if copies > MOST_COPIES {
                return Err(Error::Kernel {
                    action: "run copies".to_owned(),
                    source: std::io::Error::other("they go round by the loop for ever"),
                });
            }
            for _ in 0..more {
                if self.draw(LOST_COPY) != 0 {
                    self.on_some_cpu();
                    next.push_back(self.dataplane.run_looped(&outcome.frame, self.clock(now_ns))?);
                }
            }
        }
        Ok(all)
    }

    /// A message from a server of the store comes in.
    pub fn message(&mut self, from: Ipv4Addr, payload: &[u8], now_ns: u64) -> Result<Vec<Became>> {
        self.seen.extend(set_of(payload));
        let frame = frame_of(from, self.address, payload);
        self.packet(&frame, FABRIC_PORT, now_ns)
    }

    /// What its agent does in between: heartbeats and idle flows; then the packet generator runs
    /// once over what is queued. The messages that come of it.
    pub fn tick(&mut self, lease_ns: u64, now_ns: u64) -> Result<Vec<Became>> {
        let mut frames = self.queued()?;
        if now_ns >= self.next_heartbeat_ns {
            self.next_heartbeat_ns = now_ns + lease_ns / 3;
            for shard in 0..self.dataplane.shards()? {
                self.dataplane.push_heartbeat(shard)?;
                frames += 1;
            }
        }
        if now_ns >= self.next_sweep_ns {
            self.next_sweep_ns = now_ns + SWEEP_EVERY_NS;
            self.sweep(IDLE_NS, now_ns)?;
        }
        let mut messages = Vec::new();
        if frames > 0 {
            self.queued.set(None);
        }
        for _ in 0..frames {
            self.on_some_cpu();
            let outcome = self.dataplane.run_generated(self.clock(now_ns))?;
            messages.extend(self.follow(outcome, now_ns)?);
        }
        Ok(messages)
    }

    /// Offers every flow to the runtime's sweep, as the agent does with idle ones; how many it
    /// released and removed.
    pub fn sweep(&self, idle_ns: u64, now_ns: u64) -> Result<(usize, usize)> {
        let now_ns = self.clock(now_ns);
        let idle_before_ns = now_ns.saturating_sub(idle_ns);
        let before = SweepBefore {
            idle_ns: idle_before_ns,
            half_closed_ns: idle_before_ns,
            closed_ns: idle_before_ns,
            released_ns: now_ns.saturating_sub(REMOVED_AFTER_NS),
        };
        let (mut released, mut removed) = (0, 0);
        let keys_of = |object: &manifest::StateObject| {
            let of_map = self.dataplane.map(&object.map).into_iter().flat_map(|map| map.keys());
            of_map.map(|key| (object.id, key)).collect::<Vec<_>>()
        };
        // In one order: the kernel's hash tables have another each time.
        let mut keys: Vec<(u16, Vec<u8>)> =
            self.manifest.state_objects.iter().flat_map(keys_of).collect();
        keys.sort_unstable();
        if !keys.is_empty() {
            self.queued.set(None);
        }
        for (object_id, key) in keys {
            match self.dataplane.sweep(object_id, &key, before)? {
                Swept::Released => released += 1,
                Swept::Removed => removed += 1,
                Swept::Kept => {}
            }
        }
        Ok((released, removed))
    }

    /// How many flows stand in the pending ring.
    pub fn queued(&self) -> Result<u64> {
        if let Some(queued) = self.queued.get() {
            return Ok(queued);
        }
        let queued = self.dataplane.generator_work()?;
        self.queued.set(Some(queued));
        Ok(queued)
    }

    /// How many flows it knows of, its own or not.
    pub fn flows(&self) -> usize {
        self.dataplane.map(self.map_of(&[])).map_or(0, |map| map.keys().count())
    }

    /// The map of the object with keys of this length, if there are several.
    fn map_of(&self, key: &[u8]) -> &str {
        let objects = &self.manifest.state_objects;
        let fits = |object: &&manifest::StateObject| object.key_bytes as usize == key.len();
        let object = objects.iter().find(fits).or(objects.first());
        object.map_or("", |object| &object.map)
    }

    /// The grant under which it has a key; 0: none.
    pub fn epoch_of(&self, key: &[u8]) -> u32 {
        self.entry(key).map_or(0, |entry| EntryHead::from_bytes(&entry).epoch)
    }

    fn entry(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut padded = key.to_vec();
        padded.resize(key.len().next_multiple_of(8), 0);
        self.dataplane.map(self.map_of(key))?.lookup(&padded, MapFlags::ANY).ok()?
    }

    /// Epoch and number of the newest update of a flow that the switch did not release.
    pub(crate) fn owned(&self, key: &[u8]) -> Option<(u32, u64)> {
        let head = EntryHead::from_bytes(&self.entry(key)?);
        (head.flags & entry_flags::RELEASED == 0).then_some((head.epoch, head.seq))
    }

    /// The number of the time window that a key's slots are of: the last of them.
    pub(crate) fn window_of(&self, object: &SnapshotState, key: &[u8]) -> Option<u64> {
        let entry = self.entry(key)?;
        let parts = snapshot_parts(object.slots as usize, object.slot_bytes as usize) as u32;
        let slot_bytes = map_slot_bytes(object.slot_bytes);
        let at = slots_offset(key.len() as u32, parts) + (object.slots - 1) * slot_bytes;
        let slot = entry.get(at as usize..(at + slot_bytes) as usize)?;
        Some(if object.slot_bytes == 4 {
            let Slot4 { tag, copy } = Slot4::from_bytes(slot);
            u64::from(copy[tag as usize & 1])
        } else {
            let Slot8 { tag, copy, .. } = Slot8::from_bytes(slot);
            copy[tag as usize & 1]
        })
    }

    /// Would the program be given this flow's value now? The epoch, if so. This is `sp_flow_owned`,
    /// asked from outside.
    pub fn holds(&self, key: &[u8], now_ns: u64) -> Option<u32> {
        let entry = self.entry(key)?;
        let head = EntryHead::from_bytes(&entry);
        let EntryHead { epoch, session, shard, flags, .. } = head;
        let lease = self.dataplane.session(u32::from(shard)).ok()?;
        let gone = flags & (entry_flags::RELEASED | entry_flags::DYING) != 0;
        let lives =
            session != 0 && session == lease.number && self.clock(now_ns) < lease.lease_end_ns;
        (!gone && lives && !self.is_in_doubt(&head)).then_some(epoch)
    }

    /// The head may have ended the grant of a flow that is set with others (groups.md, decision 6).
    /// Until the switch hears of it, the batch keeps all packets that get such a value.
    fn is_in_doubt(&self, head: &EntryHead) -> bool {
        let place = (head.name, u32::from(head.shard));
        self.grouped
            && head.seq > head.acked_seq
            && self.dataplane.is_durable(place.0, place.1).is_ok_and(|durable| !durable)
    }

    /// What the runtime knows of a flow, for people: epoch, seq, acknowledged seq, flags, session.
    pub fn describe(&self, key: &[u8]) -> String {
        let Some(entry) = self.entry(key) else { return "no entry".to_owned() };
        let EntryHead { epoch, seq, acked_seq, flags, session, .. } = EntryHead::from_bytes(&entry);
        format!(
            "epoch {epoch} seq {seq} acknowledged {acked_seq} flags {flags:#x} session {session}"
        )
    }
}

/// The set of `sp_seen_replies` that a reply comes into.
fn set_of(payload: &[u8]) -> Option<u32> {
    let name = Message::decode(payload).ok()?.reply_name(wire::tag_of(payload));
    Some((name & u64::from(SEEN_SETS - 1)) as u32)
}

/// The entries and the port that nat.p4 and load_balancer.p4 need. Other programs have no such
/// tables.
fn equip(dataplane: &Dataplane) -> Result<()> {
    let add = |table: &str, keys: &[&str], action: &str| {
        let table = dataplane.table(table)?;
        let keys =
            keys.iter().map(|text| KeySpec { name: None, text: (*text).to_owned() }).collect();
        let action = ActionSpec { name: action.to_owned(), arguments: Vec::new() };
        table.write(&table.resolve(&EntrySpec { keys, priority: None, action })?, Write::Add)
    };
    let has = |name: &str| dataplane.manifest().tables.iter().any(|table| table.name == name);
    if has("NatIngress.inside") {
        add("NatIngress.inside", &["0x0a000000/8"], "NatIngress.mark_inside")?;
        add("NatIngress.external", &["0xcb007101/32"], "NatIngress.mark_external")?;
    } else if has("BalancerIngress.services") {
        add(
            "BalancerIngress.services",
            &["0xcb00710a", "53", "17"],
            "BalancerIngress.mark_virtual",
        )?;
        add(
            "BalancerIngress.servers",
            &["0x0a000000/24", "8080", "17"],
            "BalancerIngress.mark_backend",
        )?;
    } else {
        return Ok(());
    }
    let failed = |reason: String| Error::Kernel {
        action: "routes".to_owned(),
        source: std::io::Error::other(reason),
    };
    let index = crate::namespace::enter().map_err(failed)?;
    dataplane.set_port(3, index)
}

/// Makes a map as it was when it was created; of an array that is no longer than it may be, the
/// first `used` places.
fn empty(name: &str, map: &MapHandle, used: u32) -> Result<()> {
    let failed = |error| Error::libbpf(format!("empty map {name}"), error);
    match map.map_type() {
        MapType::Hash | MapType::LruHash | MapType::PercpuHash => {
            for key in map.keys().collect::<Vec<_>>() {
                map.delete(&key).map_err(failed)?;
            }
        }
        MapType::Queue => while map.lookup_and_delete(&[]).map_err(failed)?.is_some() {},
        MapType::Array if map.max_entries() <= ZEROED_ENTRIES => {
            let used = used.min(map.max_entries());
            let keys: Vec<u8> = (0..used).flat_map(u32::to_ne_bytes).collect();
            let zeros = vec![0; map.value_size() as usize * used as usize];
            map.update_batch(&keys, &zeros, used, MapFlags::ANY, MapFlags::ANY).map_err(failed)?;
        }
        // What is counted per CPU, and what the object's programs and ports are.
        _ => {}
    }
    Ok(())
}
