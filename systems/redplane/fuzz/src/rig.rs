//! The compiled NAT in the kernel beside the model of it: every step runs through both, and the
//! first difference is an error.

mod store;

use crate::entries::{self, Entries, Entry, Received, SELF, Session};
use crate::frames::{Conversation, carrier};
use crate::nat::{
    Binding, Direction, EXTERNAL, Fate, INSIDE, KERNEL_PORT, Key, Memory, Verdict, judge,
    translated, was_hairpin, within,
};
use crate::network::{FABRIC_PORT, OUTSIDE_PORT, PROTOCOL_ADDRESS};
use anyhow::{Context, Result, bail, ensure};
use c_layout::{CStruct, Member};
use dataplane::{ActionSpec, Dataplane, EntrySpec, KeySpec, Object, Settings, Write};
use fuzz_door::hex;
use libbpf_rs::{MapCore, MapFlags};
use manifest::Manifest;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redplane_switch::FlowRuntime;
use redplane_switch::runtime::{FlowSettings, SecretSet, entry_flags};
use state_protocol::layouts::{EntryHead, value_offset};
use state_protocol::objects::flow_states;
use state_protocol::{Flags, Message, MessageType};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use wire::{KeyRing, Secret, shard_of};

/// Which of the two NATs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Bindings made by the switch.
    Local,
    /// Bindings leased from the store, which this crate plays.
    Linearizable,
}

/// What the bindings are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The first so many external addresses.
    pub addresses: u32,
    /// Lowest port.
    pub low: u16,
    /// Highest port.
    pub high: u16,
}

/// A frame coming in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// From its first byte.
    pub frame: Vec<u8>,
    /// P4 port.
    pub port: u32,
    /// The switch's clock.
    pub now_ns: u64,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Frames, those that the model's store sent included.
    pub frames: u64,
    /// Forwarded with a binding.
    pub translated: u64,
    /// Forwarded without.
    pub routed: u64,
    /// To the host.
    pub to_host: u64,
    /// Dropped.
    pub dropped: u64,
    /// Bindings made.
    pub bindings: u64,
    /// Packets that went to the store and came back.
    pub parked: u64,
    /// Heartbeats that the packet generator sent.
    pub renewed: u64,
    /// Messages that took effect.
    pub taken: u64,
    /// Messages that were counted and dropped.
    pub refused: u64,
}

/// The switch's ports are those below.
const PORTS: u16 = 3;
/// Where the model's requests go: all shards' head.
const STORE: Ipv4Addr = Ipv4Addr::new(10, 2, 1, 10);
/// Where its replies come from ([`carrier`]).
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 3, 10);
const SECRET: [u8; 16] = *b"a model's secret";
/// `struct sp_seen_set`.
const SEEN_SET_BYTES: usize = 64;
/// The lease that the model's store grants, in µs.
const LEASE_US: u32 = 250_000;
/// Where in an entry its key lies, and where its value begins.
const KEY_AT: usize = EntryHead::BYTES;
const VALUE_AT: usize = value_offset(13) as usize;

/// How a packet came into the program.
#[derive(Clone, Copy, Default)]
struct Origin {
    port: u16,
    attempts: u16,
    absent: Option<Key>,
    /// The address of the interface that the message came to.
    host_mac: [u8; 6],
}

impl Origin {
    /// A packet that came back from the store goes to the host with the address of the interface
    /// that it came to, or the kernel would not take it.
    fn host_sees(&self, fate: Fate) -> Fate {
        match fate {
            Fate::ToHost(mut frame) if self.attempts > 0 && frame[0] & 1 == 0 => {
                frame[..6].copy_from_slice(&self.host_mac);
                Fate::ToHost(frame)
            }
            fate => fate,
        }
    }
}

/// The two, side by side.
pub struct Rig {
    /// What the switch accepts, and the model's store signs with.
    pub ring: KeyRing,
    mode: Mode,
    pool: Pool,
    dataplane: Dataplane,
    map: String,
    /// Of both directions: the switch's own (local) or the store's.
    bindings: HashMap<Key, Binding>,
    /// Outbound keys, in the order of their making.
    pub conversations: Vec<Conversation>,
    /// Bindings by remote end, protocol and external address: how full a part of the pool is.
    used: HashMap<(u32, u16, u8, u32), u32>,
    paired: HashMap<u32, u32>,
    /// What the switch must hold.
    pub entries: Entries,
    /// What the NAT remembers beside its bindings.
    memory: Memory,
    /// Messages other than the model's store's come in: entries can hold anything.
    pub hostile: bool,
    /// Statistics of this rig.
    pub counts: Counts,
}

/// Compiles the NAT into a folder.
pub fn compile(folder: &Path, mode: Mode) -> Result<PathBuf> {
    let (name, defines) = match mode {
        Mode::Local => ("local.o", vec!["NAT_LOCAL".to_owned()]),
        Mode::Linearizable => ("linearizable.o", vec![]),
    };
    let object = folder.join(name);
    let nat = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/nat/nat.p4");
    let options = p4_syntax::Options { defines, ..Default::default() };
    let outcome = p4_check::check_file(&nat, &options);
    let program = outcome.program.as_ref().with_context(|| outcome.render(false))?;
    let options = xdp_backend::Options {
        program_name: "nat.p4".to_owned(),
        ..xdp_backend::Options::new(redplane_compiler::ALONE)
    };
    let compiled = xdp_backend::compile(program, &options, &object)?;
    std::fs::write(Manifest::path_for(&object), compiled.generated.manifest.to_json())?;
    Ok(object)
}

impl Rig {
    /// Loads an object; to be called in the network of [`crate::network`].
    pub fn load(object: &Path, mode: Mode, interfaces: [u32; 3]) -> Result<Rig> {
        let manifest = Manifest::read(&Manifest::path_for(object))?;
        let mut opened = Object::open(object, manifest)?;
        opened.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })?;
        let dataplane = opened.load()?;
        for (port, interface) in interfaces.into_iter().enumerate() {
            dataplane.set_port(port as u32, interface)?;
        }
        let prefix =
            |(address, length): ([u8; 4], u32)| format!("{}/{length}", Ipv4Addr::from(address));
        for (table, key, action) in [
            ("NatIngress.external", EXTERNAL, "mark_external"),
            ("NatIngress.external", INSIDE, "route_untranslated"),
            ("NatIngress.inside", INSIDE, "mark_inside"),
        ] {
            let table = dataplane.table(table)?;
            let entry = table.resolve(&EntrySpec {
                keys: vec![KeySpec { name: None, text: prefix(key) }],
                priority: None,
                action: ActionSpec { name: action.to_owned(), arguments: Vec::new() },
            })?;
            table.write(&entry, Write::Set)?;
        }
        if mode == Mode::Linearizable {
            dataplane.set_flow_settings(FlowSettings {
                switch_id: SELF.switch_id,
                incarnation: SELF.incarnation,
                protocol_address: Ipv4Addr::from(PROTOCOL_ADDRESS),
                shards: u32::from(entries::SHARDS),
                lease_margin_ns: entries::LEASE_MARGIN_NS,
                resend_least_ns: entries::RESEND_NS,
                // The model knows one time-out.
                resend_most_ns: entries::RESEND_NS,
                window: 0,
                look_ns: 0,
            })?;
            for shard in 0..u32::from(entries::SHARDS) {
                dataplane.set_shard_head(shard, Some(SocketAddrV4::new(STORE, wire::PORT)))?;
            }
            let mut secrets = SecretSet::default();
            secrets.secrets[0] = Some(SECRET);
            dataplane.set_secrets(&secrets)?;
            dataplane.set_fabric_port(FABRIC_PORT, true)?;
        }
        let state = flow_states(dataplane.manifest())?
            .into_iter()
            .next()
            .context("the NAT has no FlowState")?;
        ensure!(state.value_offset as usize == VALUE_AT, "the object is of another layout");
        let map = state.object.map;
        let ring = KeyRing::new(0, Secret(SECRET)).context("a secret's number")?;
        Ok(Rig {
            ring,
            mode,
            pool: Pool { addresses: 1, low: 1024, high: u16::MAX },
            dataplane,
            map,
            bindings: HashMap::new(),
            conversations: Vec::new(),
            used: HashMap::new(),
            paired: HashMap::new(),
            entries: Entries::default(),
            memory: Memory::default(),
            hostile: false,
            counts: Counts::default(),
        })
    }

    /// Empty state, and another pool.
    pub fn reset(&mut self, pool: Pool) -> Result<()> {
        let map = self.dataplane.map(&self.map).context("no map of flows")?;
        for key in map.keys() {
            map.delete(&key)?;
        }
        if self.mode == Mode::Linearizable {
            self.drain(u64::MAX)?;
            for shard in 0..u32::from(entries::SHARDS) {
                self.dataplane.clear_session(shard)?;
            }
            for set in self.entries.seen_replies.keys() {
                self.dataplane.write_array("sp_seen_replies", *set as u32, &[0; SEEN_SET_BYTES])?;
            }
        }
        let addresses: Vec<Ipv4Addr> =
            (0..pool.addresses).map(external).map(Ipv4Addr::from).collect();
        self.dataplane.set_nat_pool(&addresses, pool.low, pool.high)?;
        self.pool = pool;
        self.bindings.clear();
        self.conversations.clear();
        self.used.clear();
        self.paired.clear();
        self.entries = Entries::default();
        self.memory.fragments.clear();
        if let Some(map) = self.dataplane.map("sp_fragments") {
            for key in map.keys() {
                map.delete(&key)?;
            }
        }
        Ok(())
    }

    /// Runs a frame through both.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        let messages = self.mode == Mode::Linearizable;
        let before = if messages && self.hostile { self.statistics()? } else { Vec::new() };
        let got = self.run(&step.frame, step.port, step.now_ns)?;
        let received = match messages {
            true => {
                entries::receive(&mut self.entries, &self.ring, &step.frame, step.port, step.now_ns)
            }
            false => Received::Ordinary,
        };
        match received {
            Received::Ordinary => self.packet(
                &step.frame,
                Origin { port: step.port as u16, ..Origin::default() },
                step.now_ns,
                got,
            ),
            Received::Refused(statistics) => {
                self.counts.refused += 1;
                expect(&Fate::Drop, &got)?;
                self.counted(&before, statistics)
            }
            Received::Recalled { key, epoch, entry } => {
                self.counts.taken += 1;
                self.counted(&before, &[])?;
                let Fate::Forward(0xffff, message) = &got else {
                    bail!("expected the release of {key:?}, got {}", told(&got))
                };
                self.released(message, key, epoch, entry, step.now_ns)
            }
            Received::Taken { kind, key, port, packet } => {
                self.counts.taken += 1;
                self.counted(&before, &[])?;
                let mut host_mac = [0; 6];
                host_mac.copy_from_slice(&step.frame[..6]);
                let absent = (kind == MessageType::Absent).then_some(key);
                let origin = Origin { port: port & 0x1ff, attempts: port >> 9, absent, host_mac };
                self.let_go(kind, origin, &packet, step.now_ns, got)
            }
        }
    }

    /// The release of a flow that the switch sent, against the entry that it is about.
    fn released(
        &self,
        frame: &[u8],
        key: Key,
        epoch: u32,
        entry: Entry,
        now_ns: u64,
    ) -> Result<()> {
        let message = self.decode(frame)?;
        let known = Some(entry).filter(|entry| !entry.unknown);
        let (wire, value) = (key.to_bytes(), known.map(|entry| entry.value.to_bytes()));
        let shard = shard_of(&wire, entries::SHARDS);
        let expected = Message {
            message_type: MessageType::Release,
            object_id: entries::OBJECT,
            flags: if known.is_some() { Flags::NONE } else { Flags::UNKNOWN },
            sender: SELF,
            request_ns: now_ns,
            epoch,
            seq: entry.seq,
            lease_us: 0,
            port: 511,
            session: self.entries.sessions[usize::from(shard)].number,
            shard,
            key: &wire,
            value: value.as_ref().map_or(&[], |value| &value[..]),
            packet: &[],
        };
        // How long it was idle, and what the program said of it, the model does not know.
        let flags = message.flags.and(Flags::UNKNOWN);
        let got = Message { lease_us: 0, flags, ..message };
        ensure!(got == expected, "a release:\ngot  {message:x?}\nwant {expected:x?}");
        Ok(())
    }

    /// What must become of the packet in a message.
    fn let_go(
        &mut self,
        kind: MessageType,
        origin: Origin,
        packet: &[u8],
        now_ns: u64,
        got: Fate,
    ) -> Result<()> {
        // Less than an Ethernet header is no packet.
        if packet.len() < 14 {
            return expect(&Fate::Drop, &got);
        }
        if kind == MessageType::UpdateAck {
            return expect(&sent(u32::from(origin.port), packet.to_vec()), &got);
        }
        // Of a port that is gone there are no routes to ask, and no rules: the model says nothing.
        if origin.port >= PORTS {
            return Ok(());
        }
        self.packet(packet, origin, now_ns, got)
    }

    /// Exactly one of these statistics went up by one, and no other that says that something was
    /// refused.
    fn counted(&self, before: &[u64], one_of: &[usize]) -> Result<()> {
        if !self.hostile || self.mode == Mode::Local {
            return Ok(());
        }
        let now = self.statistics()?;
        let refusals = [
            entries::MALFORMED,
            entries::NOT_FABRIC,
            entries::UNKNOWN_OBJECT,
            entries::BAD_TAG,
            entries::LATE,
            entries::REPLAYED,
            entries::OTHER_INCARNATION,
        ];
        let more: Vec<usize> =
            refusals.into_iter().filter(|index| now[*index] != before[*index]).collect();
        match (&more[..], one_of) {
            ([], []) => Ok(()),
            ([index], _) if one_of.contains(index) && now[*index] == before[*index] + 1 => Ok(()),
            _ => bail!("counted as {more:?} of sp_flow_stats, expected one of {one_of:?}"),
        }
    }

    fn statistics(&self) -> Result<Vec<u64>> {
        let map = self.dataplane.map("sp_flow_stats").context("no map sp_flow_stats")?;
        let sum = |index: u32| -> Result<u64> {
            let values =
                map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)?.context("sp_flow_stats")?;
            Ok(values
                .iter()
                .filter_map(|bytes| bytes.get(..8)?.try_into().ok().map(u64::from_ne_bytes))
                .sum())
        };
        (0..=entries::OTHER_INCARNATION as u32).map(sum).collect()
    }

    fn run(&mut self, frame: &[u8], port: u32, now_ns: u64) -> Result<Fate> {
        self.counts.frames += 1;
        let outcome = self.dataplane.run(frame, port, now_ns)?;
        Ok(match outcome.verdict {
            dataplane::Verdict::Drop => Fate::Drop,
            dataplane::Verdict::ToHost => Fate::ToHost(outcome.frame),
            dataplane::Verdict::Forward { port } => sent(port, outcome.frame),
        })
    }

    /// An ordinary packet: what came out of the program, against what must.
    fn packet(&mut self, frame: &[u8], origin: Origin, now_ns: u64, got: Fate) -> Result<()> {
        let (direction, key, allocate) = match judge(frame, origin.port, &mut self.memory, now_ns) {
            Verdict::Certain(fate) => return self.fate(false, &origin.host_sees(fate), &got),
            Verdict::Bound { direction, key, allocate } => (direction, key, allocate),
        };
        let Some(first) = self.binding(&origin, key, allocate, now_ns)? else {
            return self.asked(frame, origin, key, allocate, now_ns, got);
        };
        if direction == Direction::Inbound && was_hairpin(frame, first) {
            self.memory.inside_ports.insert(origin.port);
        }
        let fate = match (direction, first) {
            (_, None) => Fate::Drop,
            (Direction::Outbound, outer) => translated(frame, outer, None),
            (Direction::Inbound, inner) => translated(frame, None, inner),
            (Direction::Hairpin, Some(outer)) => {
                let inward = Key { source: outer.address, source_port: outer.port, ..key };
                let Some(inner) = self.binding(&origin, inward, false, now_ns)? else {
                    return self.asked(frame, origin, inward, false, now_ns, got);
                };
                inner.map_or(Fate::Drop, |inner| translated(frame, Some(outer), Some(inner)))
            }
        };
        self.fate(true, &origin.host_sees(fate), &got)?;
        self.leaks(direction, &got)
    }

    /// What a look-up of a key finds; nothing at all: the packet must wait for the store's answer.
    fn binding(
        &mut self,
        origin: &Origin,
        key: Key,
        allocate: bool,
        now_ns: u64,
    ) -> Result<Option<Option<Binding>>> {
        Ok(match self.mode {
            Mode::Local => Some(match self.bindings.get(&key) {
                None if allocate => self.learn(key)?,
                known => known.copied(),
            }),
            Mode::Linearizable => match self.entries.owned(&key, now_ns) {
                Some(entry) => Some(Some(entry.value)),
                _ if origin.absent == Some(key) => Some(None),
                _ => None,
            },
        })
    }

    fn fate(&mut self, bound: bool, fate: &Fate, got: &Fate) -> Result<()> {
        let count = match (got, bound) {
            (Fate::Drop, _) => &mut self.counts.dropped,
            (Fate::ToHost(_), _) => &mut self.counts.to_host,
            (Fate::Forward(..), true) => &mut self.counts.translated,
            (Fate::Forward(..), false) => &mut self.counts.routed,
        };
        *count += 1;
        expect(fate, got)
    }

    /// No inside address ever leaves by the outside port as a source.
    fn leaks(&self, direction: Direction, got: &Fate) -> Result<()> {
        if let (Fate::Forward(OUTSIDE_PORT, frame), Direction::Outbound, false) =
            (got, direction, self.hostile)
        {
            let source = crate::nat::word32(frame, 26);
            ensure!(
                within(EXTERNAL, source),
                "leaves by the outside port with source {}",
                Ipv4Addr::from(source)
            );
        }
        Ok(())
    }

    /// The whole map of flows against the model.
    pub fn compare_entries(&self) -> Result<()> {
        let map = self.dataplane.map(&self.map).context("no map of flows")?;
        let mut seen = 0;
        for bytes in map.keys() {
            let key: &[u8; 13] =
                bytes.get(..13).and_then(|key| key.try_into().ok()).context("a short key")?;
            let Some(value) = map.lookup(&bytes, MapFlags::ANY)? else { continue };
            let EntryHead { seq, acked_seq, epoch, session, shard, flags, .. } =
                EntryHead::from_bytes(&value);
            let entry = Entry {
                seq,
                acked_seq,
                epoch,
                session,
                shard,
                released: flags & entry_flags::RELEASED != 0,
                release_acked: flags & entry_flags::RELEASE_ACKED != 0,
                unknown: flags & entry_flags::UNKNOWN != 0,
                value: Binding::from_bytes(&value[VALUE_AT..]),
            };
            let key = Key::from_bytes(key);
            let wanted = self.entries.flows.get(&key);
            ensure!(wanted == Some(&entry), "{key:x?} holds {entry:x?}, must hold {wanted:x?}");
            ensure!(
                value[KEY_AT..KEY_AT + 13] == bytes[..13] && bytes[13..] == [0; 3],
                "an entry with another key than its own"
            );
            seen += 1;
        }
        let wanted = self.entries.flows.len();
        ensure!(seen == wanted, "{seen} entries in the map, must be {wanted}");
        for (shard, wanted) in
            (0u32..).zip(self.entries.sessions).filter(|_| self.mode == Mode::Linearizable)
        {
            let session = self.dataplane.session(shard)?;
            let got = Session { number: session.number, lease_end_ns: session.lease_end_ns };
            ensure!(got == wanted, "the session with shard {shard} is {got:?}, must be {wanted:?}");
        }
        Ok(())
    }
}

fn external(number: u32) -> u32 {
    u32::from_be_bytes(EXTERNAL.0) + number
}

fn padded(key: Key) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..13].copy_from_slice(&key.to_bytes());
    bytes
}

fn told(fate: &Fate) -> String {
    match fate {
        Fate::Drop => "dropped".to_owned(),
        Fate::ToHost(frame) => format!("to the host: {}", hex(frame)),
        Fate::Forward(port, frame) => format!("out of port {port}: {}", hex(frame)),
    }
}

/// Out of a port; the kernel sees to the link addresses itself.
fn sent(port: u32, mut frame: Vec<u8>) -> Fate {
    if port == KERNEL_PORT {
        frame.iter_mut().take(12).for_each(|byte| *byte = 0);
    }
    Fate::Forward(port, frame)
}

fn expect(want: &Fate, got: &Fate) -> Result<()> {
    ensure!(want == got, "\ngot  {}\nwant {}", told(got), told(want));
    Ok(())
}
