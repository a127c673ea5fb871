//! Frames that mean something to the NAT, mostly: conversations, answers, ICMP errors, with right
//! checksums or wrong ones; then mutated.

use crate::checksum;
use crate::nat::{Binding, Key, word16};
use fuzz_door::mutate;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ETHERNET: usize = 14;
/// The kernel hands XDP programs nothing shorter.
const LEAST: usize = ETHERNET;

const INSIDE_HOSTS: [[u8; 4]; 5] =
    [[10, 0, 0, 5], [10, 0, 0, 6], [10, 1, 0, 7], [10, 1, 200, 1], [10, 0, 0, 77]];
const REMOTES: [[u8; 4]; 9] = [
    [198, 51, 100, 1],
    [198, 51, 100, 2],
    [198, 51, 100, 201],
    [198, 51, 100, 202],
    [192, 0, 2, 1],
    [198, 51, 101, 1],
    [198, 51, 102, 1],
    [8, 8, 8, 8],
    [224, 0, 0, 1],
];

/// A conversation that was seen: its outbound key and binding.
pub type Conversation = (Key, Binding);

fn address(list: &[[u8; 4]], random: &mut StdRng) -> u32 {
    list.choose(random).map_or(0, |address| u32::from_be_bytes(*address))
}

/// Some port; mostly one of few, so that keys meet again.
fn port(random: &mut StdRng) -> u16 {
    match random.random_range(0..10) {
        0 => random.random(),
        1 => *[0, 1, 53, 80, 1023, 1024, 5407, 65535].choose(random).unwrap_or(&0),
        _ => 40_000 + random.random_range(0..64),
    }
}

fn fresh_key(random: &mut StdRng) -> Key {
    let protocol = *[TCP, UDP, ICMP].choose(random).unwrap_or(&TCP);
    Key {
        source: address(&INSIDE_HOSTS, random),
        // Mostly the first few, which have a way.
        destination: if random.random_bool(0.8) {
            address(&REMOTES[..4], random)
        } else {
            address(&REMOTES, random)
        },
        source_port: port(random),
        destination_port: if protocol == ICMP { 0 } else { port(random) },
        protocol,
    }
}

/// The transport header and payload of a packet with this key. `asks`: of the two kinds of ICMP
/// echo, the request.
fn transport(key: Key, asks: bool, random: &mut StdRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let payload: Vec<u8> = (0..random.random_range(0..24)).map(|_| random.random()).collect();
    match key.protocol {
        TCP => {
            bytes.extend(key.source_port.to_be_bytes());
            bytes.extend(key.destination_port.to_be_bytes());
            bytes.extend(random.random::<[u8; 8]>());
            // Many open a connection: of all flags, one in sixteen would.
            let flags = if random.random_bool(0.5) { 0x02 } else { random.random() };
            bytes.extend([0x50, flags, random.random(), random.random(), 0, 0, 0, 0]);
        }
        UDP => {
            bytes.extend(key.source_port.to_be_bytes());
            bytes.extend(key.destination_port.to_be_bytes());
            bytes.extend((8 + payload.len() as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
        _ => {
            let identifier = if asks { key.source_port } else { key.destination_port };
            bytes.extend([if asks { 8 } else { 0 }, 0, 0, 0]);
            bytes.extend(identifier.to_be_bytes());
            bytes.extend(random.random::<[u8; 2]>());
        }
    }
    bytes.extend(payload);
    bytes
}

/// An IPv4 packet, with the header's and the transport's checksums (or, rarely, without one, or
/// with wrong ones).
fn ip(
    source: u32,
    destination: u32,
    protocol: u8,
    mut body: Vec<u8>,
    random: &mut StdRng,
) -> Vec<u8> {
    let options = if random.random_bool(0.06) { random.random_range(1..=10) } else { 0usize };
    let header = 20 + 4 * options;
    let mut bytes = vec![0x40 + (header / 4) as u8, random.random()];
    bytes.extend(((header + body.len()) as u16).to_be_bytes());
    bytes.extend(random.random::<[u8; 2]>());
    bytes.extend([if random.random_bool(0.03) { 0x20 } else { 0x40 }, 0]);
    bytes.extend([
        if random.random_bool(0.02) {
            random.random_range(0..3)
        } else {
            random.random_range(2..=255)
        },
        protocol,
        0,
        0,
    ]);
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend((0..4 * options).map(|_| random.random::<u8>()));
    let sum = checksum::of(checksum::sum(&bytes));
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    let field = match protocol {
        TCP if body.len() >= 18 => Some(16),
        UDP if body.len() >= 8 && !random.random_bool(0.15) => Some(6),
        ICMP if body.len() >= 4 => Some(2),
        _ => None,
    };
    if let Some(field) = field {
        body[field..field + 2].fill(0);
        let pseudo = u64::from(protocol) + body.len() as u64 + checksum::sum(&bytes[12..20]);
        let pseudo = if protocol == ICMP { 0 } else { pseudo };
        let sum = checksum::of(pseudo + checksum::sum(&body));
        body[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend(body);
    bytes
}

/// A packet with this key.
fn packet(key: Key, asks: bool, random: &mut StdRng) -> Vec<u8> {
    let body = transport(key, asks, random);
    ip(key.source, key.destination, key.protocol, body, random)
}

/// An ICMP error, from `source` to the sender of the packet that it is about.
fn error(about: Key, asks: bool, source: u32, random: &mut StdRng) -> Vec<u8> {
    let mut embedded = packet(about, asks, random);
    // As little as RFC 792 asks for, or more, or too little.
    let header = usize::from(embedded[0] & 15) * 4;
    match random.random_range(0..6) {
        0 => embedded.truncate(header + 8),
        1 => embedded.truncate(random.random_range(0..=embedded.len())),
        _ => {}
    }
    let mut body =
        vec![*[3, 11, 12, 3, 5].choose(random).unwrap_or(&3), random.random_range(0..5), 0, 0];
    body.extend(random.random::<[u8; 4]>());
    body.extend(embedded);
    ip(source, about.source, ICMP, body, random)
}

fn turned(key: Key) -> Key {
    Key {
        source: key.destination,
        destination: key.source,
        source_port: key.destination_port,
        destination_port: key.source_port,
        protocol: key.protocol,
    }
}

/// A whole frame.
pub fn frame(conversations: &[Conversation], random: &mut StdRng) -> Vec<u8> {
    let mut frame: Vec<u8> = random.random::<[u8; 12]>().to_vec();
    let ether_type: [u8; 2] = if random.random_bool(0.01) { random.random() } else { [8, 0] };
    frame.extend(ether_type);
    if random.random_bool(0.02) {
        let length = random.random_range(0..200);
        frame.extend((0..length).map(|_| random.random::<u8>()));
        frame.truncate(random.random_range(LEAST..=frame.len()));
        return frame;
    }
    frame.extend(body(conversations, random));
    if random.random_bool(0.5) {
        mutate_frame(&mut frame, random);
    }
    frame
}

fn body(conversations: &[Conversation], random: &mut StdRng) -> Vec<u8> {
    let known = conversations.choose(random).copied().filter(|_| random.random_bool(0.85));
    let Some((key, binding)) = known else {
        let key = fresh_key(random);
        return match random.random_range(0..8) {
            // Unknown inbound, or hairpin.
            0 => {
                let external = Binding {
                    address: 0xcb00_7100 + random.random_range(0..9),
                    port: port(random),
                };
                packet(key.reverse(external), random.random(), random)
            }
            1 => packet(turned(key), random.random(), random),
            2 => error(key, true, address(&REMOTES, random), random),
            3 => {
                ip(key.source, key.destination, random.random(), vec![random.random(); 20], random)
            }
            _ => packet(key, random.random_bool(0.9), random),
        };
    };
    let back = key.reverse(binding);
    match random.random_range(0..8) {
        0..3 => packet(key, true, random),
        3..5 => packet(back, false, random),
        // About an answer that came in; from the host itself or from a router inside.
        5 => {
            let from = if random.random() { key.source } else { address(&INSIDE_HOSTS, random) };
            error(turned(key), false, from, random)
        }
        // About a packet that went out; from the remote end or from a router outside.
        6 => {
            let from = if random.random() { key.destination } else { address(&REMOTES, random) };
            error(turned(back), true, from, random)
        }
        // Nearly an answer.
        _ => {
            let mut wrong = back;
            match random.random_range(0..5) {
                0 => wrong.source = address(&REMOTES, random),
                1 => wrong.source_port = port(random),
                2 => wrong.destination_port = port(random),
                3 => wrong.destination ^= 1,
                _ => wrong.protocol = *[TCP, UDP, ICMP].choose(random).unwrap_or(&TCP),
            }
            packet(wrong, random.random(), random)
        }
    }
}

fn mutate_frame(frame: &mut Vec<u8>, random: &mut StdRng) {
    match random.random_range(0..10) {
        0 => {
            let length = random.random_range(LEAST..=frame.len());
            frame.truncate(length);
        }
        // As Ethernet pads, or more; sometimes more than fits any MTU.
        1 => {
            let most = if random.random_bool(0.05) { 2000 } else { 64 };
            let more = random.random_range(1..most);
            frame.extend((0..more).map(|_| random.random::<u8>()));
            if frame.len() > ETHERNET + 4 && random.random() {
                let total = ((frame.len() - ETHERNET) as u16).to_be_bytes();
                frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&total);
            }
        }
        2 => *frame = mutate::bytes(frame, LEAST, random),
        3 if frame.len() > ETHERNET + 20 => field(frame, random),
        // Mostly in the headers, where it matters.
        _ => {
            for _ in 0..random.random_range(1..=3) {
                let end = frame.len().min(if random.random() { 60 } else { 110 });
                if end > 12 {
                    let at = random.random_range(12..end);
                    frame[at] = if random.random() {
                        random.random()
                    } else {
                        frame[at] ^ 1 << random.random_range(0..8)
                    };
                }
            }
        }
    }
}

/// A field at one of its edges.
fn field(frame: &mut [u8], random: &mut StdRng) {
    let total = word16(frame, ETHERNET + 2);
    let (at, value) = match random.random_range(0..7) {
        0 => (2, total.wrapping_add_signed(random.random_range(-40..40))),
        1 => (2, *[0, 1, 19, 20, 21, 1500, 1501, 65535].choose(random).unwrap_or(&0)),
        2 => (
            6,
            *[0, 0x2000, 1, 0x2001, 0x1fff, 0x4000, 0x8000, 0xffff].choose(random).unwrap_or(&0),
        ),
        3 => (10, *[0, 0xffff, 1, 0xfffe].choose(random).unwrap_or(&0)),
        4 => (4, *[0, 0xffff].choose(random).unwrap_or(&0)),
        // The transport's checksum, without options: TCP's, UDP's.
        5 => (36, *[0, 0xffff, 1].choose(random).unwrap_or(&0)),
        _ => (26, *[0, 0xffff, 1].choose(random).unwrap_or(&0)),
    };
    if frame.len() >= ETHERNET + at + 2 {
        frame[ETHERNET + at..ETHERNET + at + 2].copy_from_slice(&u16::to_be_bytes(value));
    }
}

/// A frame that carries a state message.
pub fn carrier(payload: &[u8], destination: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0xa2, 2, 0, 0, 0, 0, 0x21, 8, 0, 0x45, 0xc0];
    let total = (payload.len() + 28) as u16;
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 2, 3, 10]);
    frame.extend(destination);
    let sum = checksum::of(checksum::sum(&frame[ETHERNET..]));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend(wire::PORT.to_be_bytes());
    frame.extend(wire::PORT.to_be_bytes());
    frame.extend((total - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}
