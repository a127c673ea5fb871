//! A loaded sketch.p4 whose store is played by a test.
#![allow(dead_code)] // each test file uses some of it

#[path = "../common/messages.rs"]
mod messages;

use dataplane::{Dataplane, Object, Settings, Verdict};
use libbpf_rs::{MapCore, MapFlags};
use redplane_switch::FlowRuntime;
use redplane_switch::runtime::{FlowSettings, SecretSet};
use state_protocol::objects::SnapshotState;
use state_protocol::{Message, MessageType, Owner};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use wire::{KeyRing, Secret};

pub const SELF: Owner = Owner { switch_id: 7, incarnation: 0x1234_5678 };
pub const PROTOCOL_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 7);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 3, 10);
pub const FABRIC_PORT: u32 = 1;
pub const HOST_PORT: u32 = 2;
pub const TO_STORE: u32 = 0xffff;
pub const OUT: Verdict = Verdict::Forward { port: 3 };
pub const SECRET: [u8; 16] = [9; 16];
pub const MILLISECOND: u64 = 1_000_000;
pub const START: u64 = 10_000 * MILLISECOND;
pub const EPOCH: u32 = 5;
/// Long enough for a whole test.
pub const LEASE_US: u32 = u32::MAX;
/// Head of a part: part, parts, slots, flip_ns.
pub const PART_HEAD: usize = 16;

pub struct Rig {
    pub dataplane: Dataplane,
    pub ring: KeyRing,
}

/// A part of a snapshot that the switch sent.
#[derive(Clone, Debug)]
pub struct Part {
    pub tenant: u16,
    pub seq: u64,
    pub part: usize,
    pub parts: usize,
    pub slots: Vec<u64>,
    pub datagram: Vec<u8>,
}

pub fn rig(defines: &[&str], virtual_clock: bool) -> Rig {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/tests/sketch.p4");
    let defines = defines.iter().map(ToString::to_string).collect();
    let outcome =
        p4_check::check_file(&source, &p4_syntax::Options { defines, ..Default::default() });
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("sketch.o");
    let options = xdp_backend::Options {
        program_name: "sketch.p4".to_owned(),
        ..xdp_backend::Options::new(redplane_compiler::ALONE)
    };
    let manifest = xdp_backend::compile(program, &options, &object).unwrap().generated.manifest;
    let mut opened = Object::open(&object, manifest).unwrap();
    opened.set(Settings { test_mode: true, host_traffic: false, virtual_clock }).unwrap();
    let dataplane = opened.load().unwrap();
    let ring = KeyRing::new(1, Secret(SECRET)).unwrap();
    if !dataplane.has_flow_runtime() {
        return Rig { dataplane, ring };
    }
    let rig = Rig { dataplane, ring };
    rig.look_every(0);
    let Rig { dataplane, ring } = rig;
    dataplane.set_shard_head(0, Some(SocketAddrV4::new(Ipv4Addr::new(10, 2, 1, 1), 5407))).unwrap();
    let mut set = SecretSet { sends: 1, ..Default::default() };
    set.secrets[1] = Some(SECRET);
    dataplane.set_secrets(&set).unwrap();
    dataplane.set_fabric_port(FABRIC_PORT, true).unwrap();
    Rig { dataplane, ring }
}

pub fn frame(tenant: u16, indices: [u32; 4]) -> Vec<u8> {
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

/// What a packet carried out: the sums of its four slots, and whether it was marked.
pub fn carried(frame: &[u8]) -> ([u64; 4], bool) {
    let sum = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().unwrap());
    ([sum(66), sum(74), sum(82), sum(90)], frame[49] == 1)
}

impl Rig {
    /// The generator looks at its work this often; 0: whenever it likes.
    pub fn look_every(&self, look_ns: u64) {
        let settings = FlowSettings {
            switch_id: SELF.switch_id,
            incarnation: SELF.incarnation,
            protocol_address: PROTOCOL_ADDRESS,
            shards: 1,
            lease_margin_ns: 10_000_000,
            resend_least_ns: 3 * MILLISECOND,
            resend_most_ns: 3 * MILLISECOND,
            window: 0,
            look_ns,
        };
        self.dataplane.set_flow_settings(settings).unwrap();
    }

    pub fn packet(&self, tenant: u16, indices: [u32; 4], now_ns: u64) -> (Verdict, Vec<u8>) {
        let outcome = self.dataplane.run(&frame(tenant, indices), HOST_PORT, now_ns).unwrap();
        (outcome.verdict, outcome.frame)
    }

    pub fn reply(&self, message: &Message<'_>, now_ns: u64) -> (Verdict, Vec<u8>) {
        let datagram = messages::signed(&self.ring, message, SERVER, PROTOCOL_ADDRESS);
        let frame = messages::arriving(&datagram, SERVER, PROTOCOL_ADDRESS);
        let outcome = self.dataplane.run(&frame, FABRIC_PORT, now_ns).unwrap();
        (outcome.verdict, outcome.frame)
    }

    pub fn datagram(&self, frame: &[u8]) -> Vec<u8> {
        messages::genuine(&self.ring, frame)
    }

    pub fn object(&self) -> SnapshotState {
        SnapshotState::of(&self.dataplane.manifest().state_objects[0])
            .unwrap()
            .expect("a SnapshotState")
    }

    pub fn per_part(&self) -> usize {
        1280 / self.object().slot_bytes as usize
    }

    /// The bytes of one part of a state.
    pub fn part_bytes(&self, state: &[u64], part: usize) -> Vec<u8> {
        let parts = state.len().div_ceil(self.per_part());
        let mut bytes = (part as u16).to_be_bytes().to_vec();
        bytes.extend((parts as u16).to_be_bytes());
        bytes.extend((state.len() as u32).to_be_bytes());
        bytes.extend(0u64.to_be_bytes());
        for value in state.iter().skip(part * self.per_part()).take(self.per_part()) {
            let all = value.to_be_bytes();
            bytes.extend(&all[8 - self.object().slot_bytes as usize..]);
        }
        bytes
    }

    /// Asks for the tenant with a packet; the LEASE_REQUEST.
    pub fn ask(&self, tenant: u16, indices: [u32; 4], now_ns: u64) -> Vec<u8> {
        let (verdict, frame) = self.packet(tenant, indices, now_ns);
        assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
        self.datagram(&frame)
    }

    pub fn state_part(
        &self,
        request: &[u8],
        epoch: u32,
        seq: u64,
        state: &[u64],
        part: usize,
        now_ns: u64,
    ) {
        let request = Message::decode(request).unwrap();
        let bytes = self.part_bytes(state, part);
        let message = Message {
            message_type: MessageType::SnapshotState,
            epoch,
            seq,
            session: 1,
            lease_us: 0,
            packet: &bytes,
            ..request
        };
        assert_eq!(self.reply(&message, now_ns).0, Verdict::Drop);
    }

    /// The grant that comes behind the parts; what becomes of the packet in it.
    pub fn grant(&self, request: &[u8], epoch: u32, seq: u64, now_ns: u64) -> (Verdict, Vec<u8>) {
        self.grant_for(LEASE_US, request, epoch, seq, now_ns)
    }

    /// The same, with a lease of this length.
    pub fn grant_for(
        &self,
        lease_us: u32,
        request: &[u8],
        epoch: u32,
        seq: u64,
        now_ns: u64,
    ) -> (Verdict, Vec<u8>) {
        let request = Message::decode(request).unwrap();
        let message = Message {
            message_type: MessageType::LeaseGrant,
            epoch,
            seq,
            session: 1,
            lease_us,
            value: &[0; 4],
            ..request
        };
        self.reply(&message, now_ns)
    }

    /// Makes the tenant this switch's, with a state.
    pub fn own(
        &self,
        tenant: u16,
        indices: [u32; 4],
        epoch: u32,
        seq: u64,
        state: &[u64],
        now_ns: u64,
    ) {
        self.own_for(LEASE_US, tenant, indices, (epoch, seq), state, now_ns);
    }

    /// The same, with a lease of this length; `snapshot`: the grant's epoch and number.
    pub fn own_for(
        &self,
        lease_us: u32,
        tenant: u16,
        indices: [u32; 4],
        snapshot: (u32, u64),
        state: &[u64],
        now_ns: u64,
    ) {
        let (epoch, seq) = snapshot;
        let request = self.ask(tenant, indices, now_ns);
        for part in 0..state.len().div_ceil(self.per_part()) {
            self.state_part(&request, epoch, seq, state, part, now_ns);
        }
        assert_eq!(self.grant_for(lease_us, &request, epoch, seq, now_ns).0, OUT);
    }

    pub fn queued(&self) -> u64 {
        self.dataplane.generator_work().unwrap()
    }

    /// One run of the generator: what it sent.
    pub fn generate(&self, now_ns: u64) -> Option<Vec<u8>> {
        self.dataplane.run_generator(now_ns).unwrap().map(|frame| self.datagram(&frame))
    }

    pub fn part(&self, datagram: Vec<u8>) -> Part {
        let message = Message::decode(&datagram).unwrap();
        assert_eq!(message.message_type, MessageType::Snapshot);
        let number = |range: std::ops::Range<usize>| {
            message.packet[range].iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        assert_eq!(number(4..8), u64::from(self.object().slots));
        let slot_bytes = self.object().slot_bytes as usize;
        let slots = (PART_HEAD..message.packet.len())
            .step_by(slot_bytes)
            .map(|at| number(at..at + slot_bytes));
        Part {
            tenant: u16::from_be_bytes([message.key[0], message.key[1]]),
            seq: message.seq,
            part: number(0..2) as usize,
            parts: number(2..4) as usize,
            slots: slots.collect(),
            datagram: datagram.clone(),
        }
    }

    /// SNAPSHOT_ACK of some parts (a set of bits).
    pub fn acknowledge(&self, part: &Part, seq: u64, parts: u64, now_ns: u64) {
        let about = Message::decode(&part.datagram).unwrap();
        let value = parts.to_be_bytes();
        let message = Message {
            message_type: MessageType::SnapshotAck,
            seq,
            value: &value,
            packet: &[],
            session: 1,
            ..about
        };
        assert_eq!(self.reply(&message, now_ns).0, Verdict::Drop);
    }

    pub fn event(&self, index: u32) -> u64 {
        let map = self.dataplane.map("sp_flow_stats").unwrap();
        let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        values.iter().map(|bytes| u64::from_ne_bytes(bytes[..8].try_into().unwrap())).sum()
    }
}
