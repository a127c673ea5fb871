//! The toy's only message: a switch tells its peers how far it has counted.

use crate::Toy;
use capture::{Frame, Link};
use manifest::{Home, Layout, StateObject, WireField};
use serde_json::{Value, json};
use trace::{Columns, Event, Fields, Filter, Follows, MessageBody, Messages, Objects};
use trace::{Repeat, Summary, Systems};
use wire::{MAGIC, Malformed, Reader, VERSION};

/// No other system has this type.
const GOSSIP: u8 = 20;
/// Over this port it whispers, in a form of its own: a count and nothing else.
const WHISPERS: u16 = 5999;
const OBJECT: u16 = 3;

impl Messages for Toy {
    fn names(&self) -> Vec<&'static str> {
        vec!["GOSSIP", "WHISPER"]
    }

    fn ports(&self) -> &'static [u16] {
        &[WHISPERS]
    }

    fn decode_unframed(&self, datagram: &[u8]) -> Result<MessageBody, String> {
        let count: [u8; 8] = datagram.try_into().map_err(|_| "no whisper".to_owned())?;
        Ok(MessageBody {
            name: "WHISPER",
            fields: Fields(vec![("count", json!(u64::from_be_bytes(count)))]),
            object: String::new(),
            key: String::new(),
            key_fields: None,
            switch_id: None,
            shard: None,
            rest: format!("counted {}", u64::from_be_bytes(count)),
            follows: None,
        })
    }

    fn name(&self, number: u8) -> Option<&'static str> {
        (number == GOSSIP).then_some("GOSSIP")
    }

    fn decode(&self, datagram: &[u8], objects: &Objects) -> Result<MessageBody, Malformed> {
        let mut reader = Reader::new(datagram);
        reader.u32().ok_or(Malformed::TooShort)?;
        let switch_id = reader.u32().ok_or(Malformed::TooShort)?;
        let key = reader.take(2).ok_or(Malformed::TooShort)?;
        let count = reader.u64().ok_or(Malformed::TooShort)?;
        Ok(MessageBody {
            name: "GOSSIP",
            fields: Fields(vec![("switch_id", json!(switch_id)), ("count", json!(count))]),
            object: objects.name(OBJECT).unwrap_or_default().to_owned(),
            key: trace::hex(key),
            key_fields: objects.key(OBJECT, key),
            switch_id: Some(switch_id),
            shard: None,
            rest: format!("sw {switch_id} counted {count}"),
            follows: Some(Follows {
                about: u64::from(switch_id),
                number: count,
                sent_ns: 0,
                resent: true,
            }),
        })
    }
}

/// The registry's systems and the toy.
fn with_others() -> Systems {
    let all: Vec<&'static dyn Messages> =
        systems::messages().0.iter().copied().chain([&Toy as &dyn Messages]).collect();
    Systems(Vec::leak(all))
}

fn objects() -> Objects {
    let vlan =
        WireField { name: "vlan".to_owned(), width: 12, offset: 0, bytes: 2, enumeration: None };
    Objects::from_states([StateObject {
        id: OBJECT,
        name: "ingress.toy".to_owned(),
        system: "toy".to_owned(),
        kind: "GossipCounter".to_owned(),
        map: "i_toy".to_owned(),
        slots_map: None,
        capacity: 8,
        home: Home::Peers,
        key: vec![vlan],
        key_bytes: 2,
        value: Layout::Slots { count: 1, width: 64, slot_bytes: 8, map_slot_bytes: 8, offset: 0 },
        settings: Default::default(),
    }])
}

/// In UDP, IPv4 and Ethernet, from 10.0.0.1 to 10.0.0.2.
fn framed(payload: &[u8], port: u16) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((28 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    for half in [40_000, port, 8 + payload.len() as u16, 0] {
        frame.extend(half.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

fn gossip(count: u64) -> Vec<u8> {
    let [high, low] = MAGIC.to_be_bytes();
    let mut bytes = vec![high, low, VERSION, GOSSIP];
    bytes.extend(7u32.to_be_bytes());
    bytes.extend([0, 42]);
    bytes.extend(count.to_be_bytes());
    bytes
}

fn event(payload: &[u8], systems: Systems, time_ns: u64) -> Event {
    event_over(wire::PORT, payload, systems, time_ns).expect("a datagram of the protocol's port")
}

fn event_over(port: u16, payload: &[u8], systems: Systems, time_ns: u64) -> Option<Event> {
    let bytes = framed(payload, port);
    let frame = Frame { time_ns, link: Link::Ethernet, bytes: &bytes, original_bytes: 0 };
    trace::decode(&frame, systems, &objects(), None)
}

/// A system with another frame is told by its port.
#[test]
fn a_system_reads_the_datagrams_of_its_own_ports() {
    let over = |port, payload: &[u8], systems| event_over(port, payload, systems, 0);
    let whisper = over(WHISPERS, &7u64.to_be_bytes(), with_others()).expect("a whisper");
    assert_eq!((whisper.type_name(), whisper.key_id), ("WHISPER", None));
    assert!(Columns::default().line(&whisper, None).ends_with("counted 7"));
    let short = over(WHISPERS, &[7], with_others()).expect("a datagram of its port");
    assert_eq!(short.type_name(), "MALFORMED");
    assert!(Columns::default().line(&short, None).contains("no whisper"));
    // The frame of all others is nothing there, and without the system nobody looks at the port.
    assert_eq!(over(WHISPERS, &gossip(5), with_others()).expect("one").type_name(), "MALFORMED");
    assert_eq!(over(WHISPERS, &7u64.to_be_bytes(), systems::messages()), None);
    assert_eq!(over(WHISPERS + 1, &7u64.to_be_bytes(), with_others()), None);
}

#[test]
fn its_messages_are_shown_counted_and_filtered() {
    let first = event(&gossip(5), with_others(), 0);
    let line = Columns::default().line(&first, None);
    let columns: Vec<&str> = line.split_whitespace().collect();
    let shown = ["10.0.0.1:40000", ">", "10.0.0.2:5407", "GOSSIP", "ingress.toy", "vlan=42"];
    assert_eq!(columns[1..7], shown, "{line}");
    assert!(line.ends_with("sw 7 counted 5"), "{line}");
    let json = serde_json::to_value(&first).expect("plain data");
    let expected: [(&str, Value); 3] =
        [("/type", "GOSSIP".into()), ("/count", 5.into()), ("/switch_id", 7.into())];
    for (pointer, expected) in expected {
        assert_eq!(json.pointer(pointer), Some(&expected), "{json}");
    }

    let mut summary = Summary::default();
    let seen = [(5, 0), (6, 10_000_000), (6, 20_000_000)]
        .map(|(count, ns)| summary.add(&event(&gossip(count), with_others(), ns)));
    assert_eq!(seen, [None, None, Some(Repeat::Retransmission)]);

    let filter = |name: &str, key: &str| {
        Filter::new(with_others(), &[name.to_owned()], &[key.to_owned()], &[7], &[])
            .map(|filter| filter.passes(&first))
            .map_err(|fault| fault.to_string())
    };
    assert_eq!(filter("gossip", "vlan=42"), Ok(true));
    assert_eq!(filter("gossip", "vlan=43"), Ok(false));
    assert_eq!(filter("update", "vlan=42"), Ok(false), "the others' types are known beside it");
    assert!(filter("gossips", "002a").is_err_and(|fault| fault.contains("GOSSIP")));
}

#[test]
fn without_it_its_messages_are_of_no_type_and_cut_ones_are_malformed() {
    assert_eq!(event(&gossip(5), systems::messages(), 0).type_name(), "MALFORMED");
    assert_eq!(event(&gossip(5)[..9], with_others(), 0).type_name(), "MALFORMED");
}

/// A number tells to whom a message belongs.
#[test]
fn no_two_systems_have_a_type_of_one_number_or_name() {
    let all = with_others().0;
    for number in 0..=u8::MAX {
        let owners = all.iter().filter(|system| system.name(number).is_some()).count();
        assert!(owners <= 1, "type {number}");
    }
    let mut names: Vec<_> = all.iter().flat_map(|system| system.names()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == count && names.contains(&"GOSSIP"), "{names:?}");
    let mut ports = with_others().ports();
    let count = ports.len();
    ports.sort_unstable();
    ports.dedup();
    assert!(ports.len() == count && ports.contains(&WHISPERS), "{ports:?}");
}
