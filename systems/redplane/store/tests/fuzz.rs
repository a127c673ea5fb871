//! Random, mutated, truncated, replayed and wrongly signed datagrams, and malformed ones that are
//! signed correctly: whatever is not a good message is counted, once, and changes nothing; and
//! nothing panics. The seed is printed; `FUZZ_SEED=n` replays it, `FUZZ_DATAGRAMS=n` does more or
//! fewer.

mod common;

use common::*;
use state_protocol::{Entries, Flags, Kind, Message, MessageType, Owner, kind};
use state_store::core::{Input, Outputs, SplitMix64};
use std::net::SocketAddrV4;
use wire::{
    Batch, BatchAck, BatchHead, BatchRecord, BatchType, ChainHeader, ChainType, Control, KeyRing,
    RecordFlags, SECRET_BYTES, Secret,
};

const DATAGRAMS: u64 = 300_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Whether a datagram is well formed by the protocol crate's decoders.
fn well_formed(bytes: &[u8]) -> bool {
    match kind(bytes) {
        Ok(Kind::Message(_)) => Message::decode(bytes).is_ok(),
        Ok(Kind::Chain(_)) => ChainHeader::decode(bytes).is_ok_and(|header| {
            header.chain_type != ChainType::Data || Entries::decode(&header, bytes).is_ok()
        }),
        Ok(Kind::Batch(BatchType::Batch)) => Batch::decode(bytes).is_ok(),
        Ok(Kind::Batch(BatchType::BatchAck)) => BatchAck::decode(bytes).is_ok(),
        Ok(Kind::Control(_)) => Control::decode(bytes).is_ok(),
        Err(_) => false,
    }
}

/// Everything that was ever dropped.
fn dropped(server: &Server) -> u64 {
    let counters = server.counters();
    // What is malformed may name a shard that is not here, or another view: it is dropped for that.
    let elsewhere =
        counters.chain_not_neighbour + counters.chain_other_view + counters.dropped_not_head;
    counters.malformed_total() + counters.bad_tag + elsewhere
}

/// A batch of a packet's two updates and another's one.
fn batch(chain: &mut Chain, sender: Owner) -> Vec<u8> {
    let head = BatchHead { request_ns: chain.now - 500, ..chain.batch_head(sender) };
    let mut records = Vec::new();
    for (seq, flags) in [(3, RecordFlags::GROUP), (4, RecordFlags::NONE), (5, RecordFlags(8))] {
        let object_id = COUNTER;
        let record = BatchRecord { object_id, flags, epoch: 1_002, place: 0, seq, content: &[] };
        record.append_to(b"flow", b"12345678", &mut records).unwrap();
    }
    let mut bytes = Vec::new();
    Batch::new(head, &records).unwrap().append_to(&mut bytes);
    assert!(keys().sign(&mut bytes, *switch_address(1).ip(), *server_address(0).ip()));
    bytes
}

/// Good messages, as they are on the wire: requests, what the head sends its successor, and the
/// like.
fn corpus(chain: &mut Chain) -> Vec<Datagram> {
    let nat = [10, 0, 0, 1, 8, 8, 8, 8, 7, 0xd0, 0, 53, 17];
    let one = owner(1, 1);
    let requests = [
        Message { packet: b"a packet that is parked", ..lease(COUNTER, one, b"flow") },
        lease(NAT, one, &nat),
        update(one, b"flow", 1_002, 1, b"12345678"),
        read_commit(one, b"flow", 1_002, 1),
        heartbeat(one),
        Message {
            flags: Flags::CLOSED,
            lease_us: 1_000,
            ..release(one, b"flow", 1_002, 9, b"released")
        },
        Message { flags: Flags::UNKNOWN, ..release(one, b"flow", 1_002, 9, b"") },
        message(MessageType::StatusRequest, 0, one, b""),
        Message { packet: br#"{"object":1}"#, ..message(MessageType::StateRequest, 0, one, b"") },
    ];
    let (from, to) = (switch_address(1), server_address(0));
    let mut requests: Vec<Vec<u8>> = (1..)
        .zip(requests)
        .map(|(at, request)| {
            signed(&Message { request_ns: chain.now - 1_000 + at, ..request }, from, to)
        })
        .collect();
    // Before the release.
    requests.insert(4, batch(chain, one));
    let mut corpus = Vec::new();
    for bytes in requests {
        corpus.push(Datagram { from, to, bytes: bytes.clone() });
        let mut out = Outputs::new();
        chain.servers[0].handle(chain.now, Input::Datagram { from, bytes: &bytes }, &mut out);
        chain.servers[0].flush(chain.now, &mut out);
        let sent = out.datagrams().map(|(to, bytes)| Datagram {
            from: server_address(0),
            to,
            bytes: bytes.to_vec(),
        });
        for datagram in sent.collect::<Vec<_>>() {
            corpus.push(datagram.clone());
            if datagram.to != server_address(1) {
                continue;
            }
            let mut out = Outputs::new();
            let (from, bytes) = (datagram.from, &datagram.bytes);
            chain.servers[1].handle(chain.now, Input::Datagram { from, bytes }, &mut out);
            chain.servers[1].flush(chain.now, &mut out);
            let from = server_address(1);
            corpus.extend(out.datagrams().map(|(to, bytes)| Datagram {
                from,
                to,
                bytes: bytes.to_vec(),
            }));
        }
    }
    corpus
}

fn mutate(rng: &mut SplitMix64, bytes: &mut Vec<u8>) {
    match rng.draw() % 6 {
        0 => *bytes = (0..rng.draw() as usize % 200).map(|_| rng.draw() as u8).collect(),
        1 => bytes.truncate(rng.draw() as usize % bytes.len()),
        2 => bytes.extend((0..rng.draw() % 8 + 1).map(|_| rng.draw() as u8).collect::<Vec<_>>()),
        3 => {
            // The fields that lengths and types are in.
            let at = [2, 3, 28, 29, 30, 31, 46, 47][rng.draw() as usize % 8];
            bytes[at] = rng.draw() as u8;
        }
        _ => {
            for _ in 0..rng.draw() % 4 + 1 {
                let at = rng.draw() as usize % bytes.len();
                bytes[at] = rng.draw() as u8;
            }
        }
    }
}

/// How a datagram is signed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signing {
    /// With the tag that it had before it was changed.
    Before,
    /// With another secret of the same number.
    Stranger,
    /// As it should be.
    Right,
}

#[derive(Default, Debug)]
struct Seen {
    not_genuine: u64,
    malformed: u64,
    good: u64,
}

#[test]
fn what_is_not_good_is_counted_once_and_changes_nothing() {
    let from_time = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = number("FUZZ_SEED").unwrap_or_else(from_time);
    let datagrams = number("FUZZ_DATAGRAMS").unwrap_or(DATAGRAMS);
    println!("FUZZ_SEED={seed}");
    let mut rng = SplitMix64::new(seed);
    let mut chain = Chain::new(3);
    let corpus = corpus(&mut chain);
    assert!(corpus.iter().all(|datagram| well_formed(&datagram.bytes)) && corpus.len() > 16);
    let strangers = KeyRing::new(1, Secret([9; SECRET_BYTES])).unwrap();
    let mut seen = Seen::default();
    for _ in 0..datagrams {
        let mut datagram = corpus[rng.draw() as usize % corpus.len()].clone();
        let at = rng.draw() as usize % 3;
        let to = server_address(at);
        let neighbours: Vec<SocketAddrV4> =
            (0..3).filter(|other| *other != at).map(server_address).collect();
        let from = if rng.draw().is_multiple_of(2) {
            neighbours[rng.draw() as usize % 2]
        } else {
            switch_address(1)
        };
        if !rng.draw().is_multiple_of(8) {
            mutate(&mut rng, &mut datagram.bytes);
        }
        let signing = [Signing::Before, Signing::Stranger, Signing::Right][rng.draw() as usize % 3];
        match signing {
            Signing::Before => {}
            Signing::Stranger => drop(strangers.sign(&mut datagram.bytes, *from.ip(), *to.ip())),
            Signing::Right => drop(keys().sign(&mut datagram.bytes, *from.ip(), *to.ip())),
        }
        check(&mut chain, at, from, &datagram.bytes, &mut seen);
    }
    println!("{seen:?}");
    assert!(
        seen.not_genuine > datagrams / 4
            && seen.malformed > datagrams / 16
            && seen.good > datagrams / 50,
        "{seen:?}"
    );
    // After all that, and once the sessions that were invented are forgotten, the chain does what
    // it is there for.
    chain.advance(12 * SECOND);
    assert_eq!(
        chain.ask_last(&lease(COUNTER, owner(5, 1), b"last")).kind(),
        MessageType::LeaseGrant
    );
}

fn check(chain: &mut Chain, at: usize, from: SocketAddrV4, bytes: &[u8], seen: &mut Seen) {
    let server = &mut chain.servers[at];
    let genuine = keys().verify(bytes, *from.ip(), *server_address(at).ip()).is_ok();
    let (digest, count) = (server.digest(), dropped(server));
    let mut out = Outputs::new();
    if genuine && well_formed(bytes) {
        seen.good += 1;
        // A genuine chain message of a neighbour is believed: who has a secret is one of us. One
        // from elsewhere is not.
        let is_request = matches!(kind(bytes), Ok(Kind::Message(_) | Kind::Batch(_)));
        if is_request || from == switch_address(1) {
            server.handle(chain.now, Input::Datagram { from, bytes }, &mut out);
            assert!(
                is_request || server.digest() == digest,
                "a chain message from elsewhere: {bytes:02x?}"
            );
        }
        return;
    }
    server.handle(chain.now, Input::Datagram { from, bytes }, &mut out);
    assert_eq!(server.digest(), digest, "{bytes:02x?}");
    assert!(out.is_empty(), "{bytes:02x?} was answered");
    assert_eq!(dropped(server), count + 1, "{bytes:02x?} is not counted once");
    if genuine {
        seen.malformed += 1;
    } else {
        seen.not_genuine += 1;
    }
}
