//! A switch's object with systems/redplane/sim/tests/counter.p4 in it, a packet generator and a
//! store made of the codec.
#![allow(dead_code, reason = "each test uses its part")]

#[path = "../common/messages.rs"]
mod messages;

use dataplane::{Dataplane, Object, Settings, Verdict};
use redplane_switch::FlowRuntime;
use redplane_switch::runtime::{FlowSettings, SecretSet, SweepBefore, Swept};
use state_protocol::objects::FlowState;
use state_protocol::{COUNTERS, Flags, Message, MessageType, Owner};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use wire::{KeyRing, Secret, shard_of};

pub const SELF: Owner = Owner { switch_id: 7, incarnation: 0x1234_5678 };
pub const PROTOCOL_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 7);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 3, 10);
pub const FABRIC_PORT: u32 = 1;
pub const HOST_PORT: u32 = 2;
pub const TO_STORE: u32 = 0xffff;
pub const SHARDS: u16 = 13;
pub const LEASE_US: u32 = 250_000;
pub const SECOND: u64 = 1_000_000_000;
/// No request is sent at 0.
pub const START: u64 = 10 * SECOND;

pub struct Rig {
    pub dataplane: Dataplane,
    pub ring: KeyRing,
    pub map: String,
    pub settings: FlowSettings,
    /// Of a key, that pick its shard.
    pub shard_bytes: Option<usize>,
}

pub fn secret(byte: u8) -> [u8; 16] {
    std::array::from_fn(|index| byte.wrapping_mul(7).wrapping_add(index as u8))
}

pub fn head(shard: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 2, 1, shard as u8 + 1), 5407 + shard)
}

/// The time-outs are fixed, and any number of packets may wait.
pub fn rig(defines: &[&str]) -> Rig {
    rig_with(defines, 3_000_000, 0)
}

/// Messages are sent again after 3 ms to `resend_most_ns`, and a shard has a window of so many
/// packets.
pub fn rig_with(defines: &[&str], resend_most_ns: u64, window: u64) -> Rig {
    rig_of(defines, resend_most_ns, window, |_| {})
}

/// Packets wait in the switch, and a batch has at most so many words of records.
pub fn waiting_rig(defines: &[&str], most_words: u32) -> Rig {
    full_rig(defines, most_words, false)
}

/// The same, and what finds no room there goes in messages if `wraps`.
pub fn full_rig(defines: &[&str], most_words: u32, wraps: bool) -> Rig {
    rig_of(defines, 3_000_000, 0, |object| {
        assert!(object.wait_in_switch(2).unwrap());
        assert!(object.set_constant("sp_commit_words_max", most_words).unwrap());
        assert!(object.set_constant("sp_commit_wraps", u32::from(wraps)).unwrap());
    })
}

fn rig_of(
    defines: &[&str],
    resend_most_ns: u64,
    window: u64,
    set: impl FnOnce(&mut Object),
) -> Rig {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/tests/counter.p4");
    let defines = defines.iter().map(ToString::to_string).collect();
    let outcome =
        p4_check::check_file(&source, &p4_syntax::Options { defines, ..Default::default() });
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("counter.o");
    let options = xdp_backend::Options {
        program_name: "counter.p4".to_owned(),
        ..xdp_backend::Options::new(redplane_compiler::ALONE)
    };
    let manifest = xdp_backend::compile(program, &options, &object).unwrap().generated.manifest;
    let mut opened = Object::open(&object, manifest).unwrap();
    opened.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true }).unwrap();
    set(&mut opened);
    let dataplane = opened.load().unwrap();
    let settings = FlowSettings {
        switch_id: SELF.switch_id,
        incarnation: SELF.incarnation,
        protocol_address: PROTOCOL_ADDRESS,
        shards: u32::from(SHARDS),
        lease_margin_ns: 10_000_000,
        resend_least_ns: 3_000_000,
        resend_most_ns,
        window,
        look_ns: 0,
    };
    Rig::around(dataplane, settings)
}

impl Rig {
    /// Of a loaded object with one FlowState.
    pub fn around(dataplane: Dataplane, settings: FlowSettings) -> Rig {
        dataplane.set_flow_settings(settings).unwrap();
        for shard in 0..SHARDS {
            dataplane.set_shard_head(u32::from(shard), Some(head(shard))).unwrap();
        }
        dataplane.set_fabric_port(FABRIC_PORT, true).unwrap();
        let object = &dataplane.manifest().state_objects[0];
        let flow = FlowState::of(object).unwrap().expect("a FlowState");
        let shard_bytes = flow.settings.shard_bytes.map(|bytes| bytes as usize);
        let (map, ring) = (object.map.clone(), KeyRing::new(1, Secret(secret(1))).unwrap());
        let rig = Rig { dataplane, ring, map, settings, shard_bytes };
        rig.secrets(&[(1, 1)], 1);
        rig
    }

    /// The virtual clock, for runs that do not set it.
    pub fn set_clock(&self, now_ns: u64) {
        let mut value = vec![0; 16];
        value.extend(now_ns.to_ne_bytes());
        value.resize(32, 0);
        self.dataplane.write_array("sp_test", 0, &value).unwrap();
    }

    /// The frame in which a server's message comes in, tagged.
    pub fn arriving(&self, message: &Message<'_>) -> Vec<u8> {
        messages::arriving(&self.signed(message), SERVER, PROTOCOL_ADDRESS)
    }

    pub fn secrets(&self, known: &[(usize, u8)], sends: u8) {
        let mut set = SecretSet { sends, ..Default::default() };
        for (number, byte) in known {
            set.secrets[*number] = Some(secret(*byte));
        }
        self.dataplane.set_secrets(&set).unwrap();
    }

    /// A packet of a flow with `extra` bytes of payload comes in.
    pub fn packet(&self, flow: u32, extra: usize, now_ns: u64) -> (Verdict, Vec<u8>) {
        self.packet_to(80, flow, extra, now_ns)
    }

    /// The same to a UDP port, which says how far the flow has come (counter.p4).
    pub fn packet_to(&self, port: u16, flow: u32, extra: usize, now_ns: u64) -> (Verdict, Vec<u8>) {
        let mut frame = frame(flow, extra);
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        let outcome = self.dataplane.run(&frame, HOST_PORT, now_ns).unwrap();
        (outcome.verdict, outcome.frame)
    }

    /// A packet that must leave inside a message; its datagram, found genuine.
    pub fn asks(&self, flow: u32, extra: usize, now_ns: u64) -> Vec<u8> {
        let (verdict, frame) = self.packet(flow, extra, now_ns);
        assert_eq!(verdict, Verdict::Forward { port: TO_STORE }, "{extra} bytes more");
        self.datagram(&frame)
    }

    /// The datagram of a frame that the switch sent, found genuine.
    pub fn genuine(&self, frame: &[u8]) -> Vec<u8> {
        messages::genuine(&self.ring, frame)
    }

    /// The datagram of a frame that the switch sent; checks all around it.
    pub fn datagram(&self, frame: &[u8]) -> Vec<u8> {
        let datagram = messages::genuine(&self.ring, frame);
        let message = Message::decode(&datagram).unwrap();
        if message.message_type != MessageType::Heartbeat {
            let picks = &message.key[..self.shard_bytes.unwrap_or(message.key.len())];
            assert_eq!(message.shard, shard_of(picks, SHARDS), "{:?}", message.key);
        }
        let port = u16::from_be_bytes([frame[36], frame[37]]);
        let to = head(message.shard);
        assert_eq!((messages::addresses(frame), port), ((PROTOCOL_ADDRESS, *to.ip()), to.port()));
        assert_eq!(message.sender, SELF);
        datagram
    }

    /// A message comes in from a server, tagged.
    pub fn reply(&self, message: &Message<'_>, now_ns: u64) -> (Verdict, Vec<u8>) {
        self.reply_from(SERVER, message, now_ns)
    }

    /// A server's message, tagged.
    pub fn signed(&self, message: &Message<'_>) -> Vec<u8> {
        messages::signed(&self.ring, message, SERVER, PROTOCOL_ADDRESS)
    }

    pub fn raw(&self, datagram: &[u8], now_ns: u64) -> (Verdict, Vec<u8>) {
        self.raw_from(SERVER, datagram, now_ns)
    }

    fn raw_from(&self, server: Ipv4Addr, datagram: &[u8], now_ns: u64) -> (Verdict, Vec<u8>) {
        let frame = messages::arriving(datagram, server, PROTOCOL_ADDRESS);
        let outcome = self.dataplane.run(&frame, FABRIC_PORT, now_ns).unwrap();
        (outcome.verdict, outcome.frame)
    }

    /// A message comes in from this server of the chain, tagged.
    pub fn reply_from(
        &self,
        server: Ipv4Addr,
        message: &Message<'_>,
        now_ns: u64,
    ) -> (Verdict, Vec<u8>) {
        let datagram = messages::signed(&self.ring, message, server, PROTOCOL_ADDRESS);
        self.raw_from(server, &datagram, now_ns)
    }

    /// The store's answer to a LEASE_REQUEST.
    pub fn grant(
        &self,
        request: &[u8],
        epoch: u32,
        session: u32,
        count: u64,
        now_ns: u64,
    ) -> (Verdict, Vec<u8>) {
        let value = count.to_be_bytes();
        let request = Message::decode(request).unwrap();
        assert_eq!(request.message_type, MessageType::LeaseRequest);
        self.reply(&granted(&request, epoch, session, &value), now_ns)
    }

    /// A flow that this switch owns under an epoch; its next count goes out inside this UPDATE.
    pub fn own(&self, flow: u32, epoch: u32, session: u32, now_ns: u64) -> Vec<u8> {
        let request = self.asks(flow, 0, now_ns);
        let (verdict, frame) = self.grant(&request, epoch, session, 0, now_ns + 1);
        assert_eq!(verdict, Verdict::Forward { port: TO_STORE });
        let update = self.datagram(&frame);
        assert_eq!(Message::decode(&update).unwrap().message_type, MessageType::Update);
        update
    }

    /// What the generator sends now, by kind.
    pub fn generate(&self, now_ns: u64) -> Vec<Vec<u8>> {
        let queued = self.dataplane.generator_work().unwrap();
        let frames = (0..queued + 1).filter_map(|_| self.dataplane.run_generator(now_ns).unwrap());
        frames.map(|frame| self.datagram(&frame)).collect()
    }

    pub fn count(&self, event: &str) -> u64 {
        use libbpf_rs::{MapCore, MapFlags};
        let index = COUNTERS.iter().position(|name| *name == event).unwrap() as u32;
        let map = self.dataplane.map("sp_flow_stats").unwrap();
        let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        values.iter().map(|bytes| u64::from_ne_bytes(bytes[..8].try_into().unwrap())).sum()
    }

    pub fn sweep(&self, before: SweepBefore) -> Vec<Swept> {
        use libbpf_rs::MapCore;
        let keys: Vec<Vec<u8>> = self.dataplane.map(&self.map).unwrap().keys().collect();
        keys.iter().map(|key| self.dataplane.sweep(1, key, before).unwrap()).collect()
    }
}

pub fn granted<'a>(
    request: &Message<'a>,
    epoch: u32,
    session: u32,
    value: &'a [u8],
) -> Message<'a> {
    Message {
        message_type: MessageType::LeaseGrant,
        flags: Flags::NONE,
        epoch,
        session,
        value,
        lease_us: LEASE_US,
        seq: 0,
        ..*request
    }
}

pub fn acknowledged<'a>(update: &Message<'a>) -> Message<'a> {
    Message { message_type: MessageType::UpdateAck, lease_us: LEASE_US, value: &[], ..*update }
}

pub fn recall<'a>(about: &Message<'a>, epoch: u32) -> Message<'a> {
    let empty: &[u8] = &[];
    Message {
        message_type: MessageType::Recall,
        epoch,
        value: empty,
        packet: empty,
        seq: 0,
        lease_us: 0,
        ..*about
    }
}

pub fn frame(flow: u32, extra: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1]);
    frame.extend(flow.to_be_bytes());
    frame.extend([0x30, 0x39, 0, 80, 0, 20, 0, 0]);
    frame.extend(1u32.to_be_bytes());
    frame.extend([0; 8]);
    frame.extend((0..extra).map(|index| (index * 31 + extra) as u8));
    frame
}

pub fn count_of(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[46..54].try_into().unwrap())
}
