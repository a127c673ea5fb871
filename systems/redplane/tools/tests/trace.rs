//! Captures made with the codec: what the decoder says of them, word by word where it matters.

use capture::{Frame, Link};
use etherparse::PacketBuilder;
use manifest::{Home, Layout, Settings, StateObject, WireField};
use proptest::prelude::*;
use redplane_tools::RedPlane;
use state_protocol::{Effect, Entry, Flags, Message, MessageType, Owner};
use std::net::{Ipv4Addr, SocketAddrV4};
use trace::{Body, Columns, Event, Filter, Objects, Repeat, Summary, Systems, Tag, decode};
use wire::{Batch, BatchAck, BatchHead, BatchRecord, RecordFlags};
use wire::{ChainFlags, ChainHeader, ChainType, Control, KeyRing, Report, Reporter, Secret, Views};

const SYSTEMS: Systems = Systems(&[&RedPlane]);
const SWITCH: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 255, 0, 1), 5407);
const STORE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 2, 1, 10), 5407);
/// 10.1.0.10:40000 → 198.51.100.10:80, TCP.
const KEY: &[u8] = &[10, 1, 0, 10, 198, 51, 100, 10, 0x9c, 0x40, 0, 80, 6];
const VALUE: &[u8] = &[203, 0, 113, 1, 0x9c, 0x40];

fn ring(byte: u8) -> KeyRing {
    KeyRing::new(1, Secret([byte; 16])).unwrap()
}

fn objects() -> Objects {
    let field = |name: &str, offset: u32, bytes: u32| WireField {
        name: name.to_owned(),
        width: bytes * 8,
        offset,
        bytes,
        enumeration: None,
    };
    let value = vec![field("address", 0, 4), field("port", 4, 2)];
    let state = StateObject {
        id: 1,
        name: "NatIngress.bindings".to_owned(),
        system: "redplane".to_owned(),
        kind: "FlowState".to_owned(),
        map: String::new(),
        slots_map: None,
        capacity: 65_536,
        home: Home::Store,
        key: vec![
            field("source_address", 0, 4),
            field("destination_address", 4, 4),
            field("source_port", 8, 2),
            field("destination_port", 10, 2),
            field("protocol", 12, 1),
        ],
        key_bytes: 13,
        value: Layout::Fields { fields: value, bytes: 6, offset: 0 },
        settings: Settings::new(),
    };
    Objects::from_states([state])
}

fn update() -> Message<'static> {
    Message {
        message_type: MessageType::Update,
        object_id: 1,
        flags: Flags::NONE,
        sender: Owner { switch_id: 1, incarnation: 0xabcd },
        request_ns: 5_000,
        epoch: 7,
        seq: 42,
        lease_us: 0,
        port: 2 | 3 << 9,
        session: 14,
        shard: 3,
        key: KEY,
        value: VALUE,
        packet: PACKET,
    }
}

/// TCP SYN+ACK, 10.1.0.10:40000 → 198.51.100.10:80.
const PACKET: &[u8] = &[
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 1, 0,
    10, 198, 51, 100, 10, 0x9c, 0x40, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0,
];

fn signed(message: &Message<'_>, ring: &KeyRing) -> Vec<u8> {
    let mut bytes = vec![];
    message.append_to(&mut bytes).unwrap();
    assert!(ring.sign(&mut bytes, *SWITCH.ip(), *STORE.ip()));
    bytes
}

/// In UDP, IPv4 and Ethernet.
fn framed(payload: &[u8], from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([0; 6], [0; 6])
        .ipv4(from.ip().octets(), to.ip().octets(), 64)
        .udp(from.port(), to.port());
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).unwrap();
    frame
}

fn event_of(payload: &[u8], ring: Option<&KeyRing>) -> Event {
    let bytes = framed(payload, SWITCH, STORE);
    let frame = Frame {
        time_ns: 3_661_000_002_000,
        link: Link::Ethernet,
        bytes: &bytes,
        original_bytes: bytes.len() as u32,
    };
    decode(&frame, SYSTEMS, &objects(), ring).unwrap()
}

#[test]
fn an_update_reads_as_it_was_meant() {
    let event = event_of(&signed(&update(), &ring(1)), Some(&ring(1)));
    assert_eq!((event.tag, event.key_id), (Tag::Good, Some(1)));
    assert_eq!(
        Columns::default().line(&event, None),
        "01:01:01.000002  10.255.0.1:5407 > 10.2.1.10:5407   UPDATE         NatIngress.bindings  \
         source_address=10.1.0.10 destination_address=198.51.100.10 source_port=40000 destination_port=80 protocol=6  \
         sw 1  epoch 7    seq 42   session 14   shard 3     = address=203.0.113.1 port=40000  \
         [port 2: TCP 10.1.0.10:40000 > 198.51.100.10:80 SYN+ACK, 54 bytes] parked 3 times"
    );
    let json = serde_json::to_value(&event).unwrap();
    for (pointer, expected) in [
        ("/kind", serde_json::json!("message")),
        ("/type", "UPDATE".into()),
        ("/from", "10.255.0.1:5407".into()),
        ("/object", "NatIngress.bindings".into()),
        ("/key_fields/2/value", "40000".into()),
        ("/seq", 42.into()),
        ("/parked", 3.into()),
        ("/tag", "good".into()),
    ] {
        assert_eq!(json.pointer(pointer), Some(&expected), "{pointer}: {json}");
    }
}

const BATCH: BatchHead = BatchHead {
    flags: 0,
    switch_id: 1,
    incarnation: 0xabcd,
    request_ns: 5_000,
    number: 9,
    view: 0,
    session: 14,
    stream: 1,
    client: *SWITCH.ip(),
    shard: 3,
};

/// A batch of records with these flags and numbers; the third one is of an unknown object.
fn batch(head: BatchHead, flags: &[u8]) -> Vec<u8> {
    let (mut records, mut bytes) = (vec![], vec![]);
    for (at, flags) in flags.iter().enumerate() {
        let object_id = if at == 2 { 9 } else { 1 };
        let seq = 42 + at as u64;
        let flags = RecordFlags(*flags);
        let record = BatchRecord { object_id, flags, epoch: 7, place: 0, seq, content: &[] };
        record.append_to(KEY, VALUE, &mut records).unwrap();
    }
    Batch::new(head, &records).unwrap().append_to(&mut bytes);
    assert!(ring(1).sign(&mut bytes, *SWITCH.ip(), *STORE.ip()));
    bytes
}

#[test]
fn batches_show_their_records() {
    let bytes = batch(BATCH, &[1 | 4, 0, 0]);
    let event = event_of(&bytes, Some(&ring(1)));
    assert_eq!((event.tag, event.type_name()), (Tag::Good, "BATCH"));
    let line = Columns::default().line(&event, None);
    let expected = "sw 1  batch 9 of stream 1  session 14  shard 3  3 records  \
                    [source_address=10.1.0.10 destination_address=198.51.100.10 source_port=40000 \
                    destination_port=80 protocol=6  epoch 7 seq 42 = address=203.0.113.1 \
                    port=40000 GROUP+HALF_CLOSED]  ";
    assert!(line.contains(expected) && line.ends_with("and 1 more"), "{line}");
    let json = serde_json::to_value(&event).unwrap();
    for (pointer, expected) in [
        ("/batch", serde_json::json!(9)),
        ("/client", "10.255.0.1".into()),
        ("/records/1/seq", 43.into()),
        ("/records/1/key_fields/2/value", "40000".into()),
        ("/records/2/object", serde_json::Value::Null),
        ("/records/2/value", "".into()),
    ] {
        assert_eq!(json.pointer(pointer), Some(&expected), "{pointer}: {json}");
    }
    let mut ack = vec![];
    BatchAck { head: BATCH, count: 3, refused: 0b101 }.append_to(&mut ack);
    let line = Columns::default().line(&event_of(&ack, None), None);
    assert!(line.contains("BATCH_ACK") && line.ends_with("3 records  refused 0,2"), "{line}");
    let mut summary = Summary::default();
    let mut add = |head, flags: &[u8]| summary.add(&event_of(&batch(head, flags), None));
    assert_eq!(add(BATCH, &[0, 0]), None);
    assert_eq!(add(BATCH, &[0, 0]), Some(Repeat::Duplicate));
    let later = BatchHead { request_ns: 6_000, ..BATCH };
    assert_eq!(add(later, &[0, 0]), Some(Repeat::Retransmission));
    assert_eq!(add(BatchHead { number: 10, ..later }, &[0, 0]), None);
    assert_eq!(add(BatchHead { stream: 2, ..later }, &[0, 0]), None, "another stream's");
}

#[test]
fn what_is_not_genuine_is_said_so() {
    let bytes = signed(&update(), &ring(1));
    assert_eq!(event_of(&bytes, None).tag, Tag::Unchecked);
    assert_eq!(event_of(&bytes, Some(&ring(2))).tag, Tag::Wrong);
    let other = KeyRing::new(0, Secret([1; 16])).unwrap();
    let event = event_of(&bytes, Some(&other));
    assert_eq!(event.tag, Tag::UnknownSecret);
    assert!(Columns::default().line(&event, None).ends_with("UNKNOWN SECRET 1"));
    // Replayed from another address.
    let moved = framed(&bytes, SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 66), 5407), STORE);
    let frame = Frame { time_ns: 0, link: Link::Ethernet, bytes: &moved, original_bytes: 0 };
    assert_eq!(decode(&frame, SYSTEMS, &objects(), Some(&ring(1))).unwrap().tag, Tag::Wrong);
}

#[test]
fn malformed_ones_have_their_reason() {
    let good = signed(&update(), &ring(1));
    let mut bad_type = good.clone();
    bad_type[3] = 99;
    for (payload, expected) in [
        (&good[..20], "too_short"),
        (&good[..good.len() - 1], "length_mismatch"),
        (&bad_type, "type"),
        (b"hello", "magic"),
    ] {
        match event_of(payload, None).body {
            Body::Malformed { reason, .. } => assert_eq!(reason, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    bad_type[3] = 60;
    assert_eq!(
        event_of(&bad_type, None).type_name(),
        "TYPE_60",
        "a server's message of a newer version"
    );
}

#[test]
fn what_the_capture_cut_is_no_malformed_message() {
    let bytes = framed(&signed(&update(), &ring(1)), SWITCH, STORE);
    let frame = Frame {
        time_ns: 0,
        link: Link::Ethernet,
        bytes: &bytes[..96],
        original_bytes: bytes.len() as u32,
    };
    let event = decode(&frame, SYSTEMS, &objects(), Some(&ring(1))).unwrap();
    assert_eq!((event.type_name(), event.tag), ("UPDATE", Tag::Unchecked));
    assert!(matches!(event.body, Body::Cut { captured: 54, .. }), "{event:?}");
}

#[test]
fn chains_say_what_they_carry() {
    let header = ChainHeader {
        chain_type: ChainType::Data,
        flags: ChainFlags::READY,
        count: 2,
        sender: 3,
        receiver: 4,
        index: 100,
        committed: 99,
        config_digest: 7,
        shard: 8,
        view: 6,
    };
    let mut bytes = header.encode().to_vec();
    let owner = Owner { switch_id: 1, incarnation: 2 };
    for effect in [
        Effect::SessionBegin { session: 14, owner, client: SWITCH },
        Effect::SessionEnd { session: 13 },
    ] {
        Entry { effect, client: SWITCH, reply: b"" }.append_to(&mut bytes).unwrap();
    }
    let event = event_of(&bytes, None);
    let line = Columns::default().line(&event, None);
    assert!(line.contains("CHAIN_DATA") && line.contains("shard 8"), "{line}");
    assert!(
        line.ends_with("view 6  index 100  committed 99  READY  1 session_begin  1 session_end"),
        "{line}"
    );
    let mut summary = Summary::default();
    let later = Event { time_ns: event.time_ns + 10_000_000, ..event.clone() };
    let repeats = [&event, &event, &later].map(|event| summary.add(event));
    assert_eq!(repeats, [None, Some(Repeat::Duplicate), Some(Repeat::Retransmission)]);
}

#[test]
fn controllers_say_what_they_know() {
    let report = Report {
        reporter: Reporter::Switch { switch_id: 7 },
        version: 4,
        shards: 8,
        heard_ms: 0,
        accepted: false,
        machine: String::new(),
        replicas: vec![],
        load: None,
    };
    let report = Control::Report { sent_ns: 1, incarnation: 2, report }.encode().unwrap();
    let line = Columns::default().line(&event_of(&report, None), None);
    assert!(
        line.contains("REPORT") && line.ends_with("sw 7  views 4  8 shards  0 replicas, 0 ready"),
        "{line}"
    );
    let views =
        Control::Views(Views { version: 5, shards: vec![Default::default(); 3] }).encode().unwrap();
    let line = Columns::default().line(&event_of(&views, None), None);
    assert!(line.ends_with("views 5  3 shards, 0 with a chain, 0 joining"), "{line}");
    assert_eq!(event_of(&views[..views.len() - 1], None).type_name(), "MALFORMED");
}

#[test]
fn what_was_sent_before_is_found() {
    let mut summary = Summary::default();
    let mut add = |message: Message<'_>| summary.add(&event_of(&signed(&message, &ring(1)), None));
    assert_eq!(add(update()), None);
    assert_eq!(add(update()), Some(Repeat::Duplicate));
    assert_eq!(
        add(Message { request_ns: 6_000, packet: b"", ..update() }),
        Some(Repeat::Retransmission)
    );
    assert_eq!(add(Message { request_ns: 7_000, seq: 43, ..update() }), None);
    assert_eq!(
        add(Message { request_ns: 5_500, ..update() }),
        Some(Repeat::Retransmission),
        "an older one, late"
    );
    assert_eq!(add(Message { epoch: 8, seq: 1, ..update() }), None, "another grant counts anew");
    let heartbeat = Message {
        message_type: MessageType::Heartbeat,
        object_id: 0,
        key: b"",
        value: b"",
        packet: b"",
        ..update()
    };
    assert_eq!(add(heartbeat), None);
    assert_eq!(add(Message { request_ns: 9_000, ..heartbeat }), None);
    assert_eq!(add(Message { request_ns: 9_000, ..heartbeat }), Some(Repeat::Duplicate));
    let text = summary.to_string();
    assert!(
        text.contains("9 messages")
            && text.contains("UPDATE")
            && text.contains("2 sent again   1 duplicates"),
        "{text}"
    );
}

#[test]
fn filters_choose() {
    let strings = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let event = event_of(&signed(&update(), &ring(1)), None);
    let filter = |types: &[&str], keys: &[&str], switches: &[u32], shards: &[u16]| {
        Filter::new(SYSTEMS, &strings(types), &strings(keys), switches, shards)
            .unwrap()
            .passes(&event)
    };
    assert!(filter(&[], &[], &[], &[]));
    assert!(filter(&["update"], &["10.1.0.10"], &[2, 1], &[3]));
    assert!(filter(&["recall", "UPDATE"], &["source_port=40000"], &[], &[]));
    assert!(filter(&[], &["0a01000a"], &[], &[]) && filter(&[], &["0x0A01"], &[], &[]));
    assert!(!filter(&["lease-grant"], &[], &[], &[]));
    assert!(!filter(&[], &["destination_port=40000"], &[], &[]) && !filter(&[], &["0b"], &[], &[]));
    assert!(!filter(&[], &[], &[2], &[]) && !filter(&[], &[], &[], &[4]));
    let fault =
        Filter::new(SYSTEMS, &strings(&["updates"]), &[], &[], &[]).unwrap_err().to_string();
    assert!(
        fault.contains("\"updates\"") && fault.contains("CHAIN_DATA") && fault.contains("RECALL"),
        "{fault}"
    );
}

proptest! {
    /// Any bytes, and any changes to good messages: an event or none, a line, and a count; never a
    /// panic.
    #[test]
    fn hostile_datagrams_become_lines(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        random in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = signed(&update(), &ring(1));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let mut summary = Summary::default();
        for payload in [&bytes, &random] {
            let event = event_of(payload, Some(&ring(1)));
            let repeat = summary.add(&event);
            let line = Columns::default().line(&event, repeat);
            prop_assert!(!line.contains('\n') && line.len() < 40_000);
            prop_assert!(serde_json::to_string(&event).is_ok());
        }
        prop_assert_eq!(summary.messages(), 2);
    }
}
