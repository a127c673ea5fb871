//! Messages that a host makes of genuine ones, without the secret: random, truncated, with a bit
//! flipped, signed with another secret, from another address.

use super::PORT;
use super::fabric::Message5407;
use state_protocol::Message;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{KeyRing, Secret};

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Messages of all types that were seen, at most `most` of each.
pub fn some_of_each(messages: &[Message5407], most: usize) -> Vec<Message5407> {
    let mut taken: BTreeMap<u8, usize> = BTreeMap::new();
    let take = |message: &&Message5407| {
        let of_type = taken.entry(message.payload[3]).or_default();
        *of_type += 1;
        *of_type <= most
    };
    messages.iter().filter(take).cloned().collect()
}

pub fn random_messages(
    random: &mut Random,
    own: Ipv4Addr,
    targets: &[Ipv4Addr],
    count: usize,
) -> Vec<Message5407> {
    let one = |n: usize| Message5407 {
        source: SocketAddrV4::new(own, PORT),
        destination: SocketAddrV4::new(targets[n % targets.len()], PORT),
        payload: (0..random.below(300)).map(|_| random.next() as u8).collect(),
    };
    (0..count).map(one).collect()
}

pub fn truncated(random: &mut Random, genuine: &[Message5407]) -> Vec<Message5407> {
    let mut messages = genuine.to_vec();
    for message in &mut messages {
        let length = random.below(message.payload.len());
        message.payload.truncate(length);
    }
    messages
}

pub fn flipped(random: &mut Random, genuine: &[Message5407]) -> Vec<Message5407> {
    let mut messages = genuine.to_vec();
    for message in &mut messages {
        let bit = random.below(message.payload.len() * 8);
        message.payload[bit / 8] ^= 1 << (bit % 8);
    }
    messages
}

/// Fresh, well-formed messages of every type, by someone who knows everything but the secret.
pub fn of_another_secret(
    random: &mut Random,
    genuine: &[Message5407],
    known: &KeyRing,
) -> Vec<Message5407> {
    let mut messages: Vec<_> =
        genuine.iter().filter(|message| message.message_type().is_some()).cloned().collect();
    for (n, message) in messages.iter_mut().enumerate() {
        let id = (n % 4) as u8;
        let secret = Secret(std::array::from_fn(|_| random.next() as u8));
        assert_ne!(known.secret(id), Some(&secret));
        let ring = KeyRing::new(id, secret).expect("an id below 4");
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("clock");
        let request_ns = now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64;
        let forged = Message { request_ns, ..Message::decode(&message.payload).expect("genuine") };
        let mut payload = vec![];
        forged.append_to(&mut payload).expect("encodes");
        assert!(ring.sign(&mut payload, *message.source.ip(), *message.destination.ip()));
        message.payload = payload;
    }
    messages
}

pub fn from_address(messages: &[Message5407], own: Ipv4Addr) -> Vec<Message5407> {
    let from = |message: &Message5407| Message5407 {
        source: SocketAddrV4::new(own, PORT),
        ..message.clone()
    };
    messages.iter().map(from).collect()
}
