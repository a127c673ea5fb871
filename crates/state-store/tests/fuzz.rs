//! Random, mutated and truncated datagrams: what is malformed is counted and changes nothing, and nothing panics. The seed is printed;
//! `FUZZ_SEED=n` replays it,
//! `FUZZ_DATAGRAMS=n` does more or fewer.

mod common;

use common::*;
use state_protocol::{ChainHeader, Entries, Kind, Message, MessageType, kind};
use state_store::core::{Input, Outputs, SplitMix64};
use std::net::SocketAddrV4;

const DATAGRAMS: u64 = 300_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Whether a datagram is well formed by the protocol crate's decoders.
fn well_formed(bytes: &[u8]) -> bool {
    match kind(bytes) {
        Ok(Kind::Message(_)) => Message::decode(bytes).is_ok(),
        Ok(Kind::Chain(_)) => ChainHeader::decode(bytes).is_ok_and(|header| {
            header.chain_type != state_protocol::ChainType::Data || Entries::decode(&header, bytes).is_ok()
        }),
        Err(_) => false,
    }
}

fn corpus(chain: &mut Chain) -> Vec<Vec<u8>> {
    let mut corpus = Vec::new();
    let mut add = |message: &Message<'_>| {
        let mut bytes = Vec::new();
        message.append_to(&mut bytes).unwrap();
        corpus.push(bytes);
    };
    let nat = [10, 0, 0, 1, 8, 8, 8, 8, 7, 0xd0, 0, 53, 17];
    add(&Message { packet: b"a packet that is parked", ..lease(COUNTER, owner(1, 1), b"flow") });
    add(&lease(NAT, owner(1, 1), &nat));
    add(&update(owner(1, 1), b"flow", 1_001, 1, b"12345678"));
    add(&Message { seq: 1, packet: b"out", ..message(MessageType::ReadCommit, COUNTER, owner(1, 1), b"flow") });
    add(&message(MessageType::LeaseRenew, COUNTER, owner(1, 1), b"flow"));
    add(&Message { key: b"", ..message(MessageType::StatusRequest, 0, owner(1, 1), b"") });
    // Chain messages as they are on the wire: what the head sends for those requests.
    let requests = corpus.clone();
    for bytes in &requests {
        let mut out = Outputs::new();
        let now = chain.now;
        chain.servers[0].handle(now, Input::Datagram { from: switch_address(1), bytes }, &mut out);
        chain.servers[0].flush(now, &mut out);
        let sent: Vec<_> = out.datagrams().map(|(to, bytes)| (to, bytes.to_vec())).collect();
        for (to, bytes) in sent {
            corpus.push(bytes.clone());
            if to == server_address(1) {
                let mut out = Outputs::new();
                chain.servers[1].handle(now, Input::Datagram { from: server_address(0), bytes: &bytes }, &mut out);
                chain.servers[1].flush(now, &mut out);
                corpus.extend(out.datagrams().map(|(_, bytes)| bytes.to_vec()));
            }
        }
    }
    corpus
}

fn draw(rng: &mut SplitMix64, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[rng.draw() as usize % corpus.len()].clone();
    match rng.draw() % 5 {
        0 => {
            let length = rng.draw() as usize % 200;
            return (0..length).map(|_| rng.draw() as u8).collect();
        }
        1 => bytes.truncate(rng.draw() as usize % bytes.len()),
        2 => bytes.extend((0..rng.draw() % 8 + 1).map(|_| rng.draw() as u8).collect::<Vec<_>>()),
        _ => {
            for _ in 0..rng.draw() % 4 + 1 {
                let at = rng.draw() as usize % bytes.len();
                bytes[at] = rng.draw() as u8;
            }
        }
    }
    bytes
}

#[test]
fn malformed_datagrams_are_counted_and_change_nothing() {
    let from_time = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = number("FUZZ_SEED").unwrap_or_else(from_time);
    let datagrams = number("FUZZ_DATAGRAMS").unwrap_or(DATAGRAMS);
    println!("FUZZ_SEED={seed}");
    let mut rng = SplitMix64::new(seed);
    let mut chain = Chain::new(3);
    let corpus = corpus(&mut chain);
    assert!(corpus.iter().all(|bytes| well_formed(bytes)) && corpus.len() > 12);
    let (mut malformed, mut valid) = (0, 0);
    for _ in 0..datagrams {
        let bytes = draw(&mut rng, &corpus);
        let at = rng.draw() as usize % 3;
        let neighbours: Vec<SocketAddrV4> = (0..3).filter(|other| *other != at).map(server_address).collect();
        let from = if rng.draw().is_multiple_of(2) { neighbours[rng.draw() as usize % 2] } else { switch_address(1) };
        let server = &mut chain.servers[at];
        let counters = server.counters();
        let (digest, counted) = (server.digest(), counters.malformed_total() + counters.chain_not_neighbour);
        let mut out = Outputs::new();
        if well_formed(&bytes) {
            valid += 1;
            // A well-formed chain message from a neighbour is believed: UDP's checksum and the fabric's boundary guard it, not its form.
            if matches!(kind(&bytes), Ok(Kind::Message(_))) || from == switch_address(1) {
                server.handle(chain.now, Input::Datagram { from, bytes: &bytes }, &mut out);
                if !matches!(kind(&bytes), Ok(Kind::Message(_))) {
                    assert_eq!(server.digest(), digest, "a chain message from elsewhere: {bytes:02x?}");
                }
            }
            continue;
        }
        malformed += 1;
        server.handle(chain.now, Input::Datagram { from, bytes: &bytes }, &mut out);
        assert_eq!(server.digest(), digest, "{bytes:02x?}");
        assert!(out.is_empty(), "{bytes:02x?} was answered");
        // Entries of no neighbour are counted as that, before their form is looked at.
        let counters = server.counters();
        let counted_now = counters.malformed_total() + counters.chain_not_neighbour;
        assert_eq!(counted_now, counted + 1, "{bytes:02x?} is not counted once");
    }
    println!("{malformed} malformed, {valid} well formed");
    assert!(malformed > datagrams / 2 && valid > datagrams / 20);
}
