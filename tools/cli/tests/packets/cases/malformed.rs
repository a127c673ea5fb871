//! Packets whose lengths, versions and checksums are wrong.

use super::super::packet::{Packet, TCP, UDP, checksum_at, set_header_checksum, transport_sum};
use super::super::system::{REMOTE_IPV6, SERVER_PORT, host_ipv6};
use super::super::wire::Place;
use super::*;
use std::net::IpAddr;

type Change = fn(&mut Vec<u8>);

/// Good for what the packet then is.
fn set_checksum(bytes: &mut [u8], protocol: u8) {
    let at = 20 + checksum_at(protocol).expect("a protocol with a checksum");
    put(bytes, at, 0);
    let (header, transport) = bytes.split_at(20);
    let sum = transport_sum(header, protocol, transport);
    put(bytes, at, sum);
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// So many bytes of the packet are all there is of it.
fn cut(bytes: &mut Vec<u8>, length: u16) {
    bytes.truncate(length.into());
    put(bytes, 2, length);
    set_header_checksum(bytes);
}

/// Over the whole packet, with the header's checksum made good again.
const IPV4: [(&str, Change); 14] = [
    ("total length over the frame", |b| {
        let length = b.len() as u16 + 1;
        put(b, 2, length);
        set_header_checksum(b);
    }),
    ("total length under the header's", |b| {
        put(b, 2, 16);
        set_header_checksum(b);
    }),
    ("total length without the transport's header", |b| {
        put(b, 2, 24);
        set_header_checksum(b);
    }),
    ("header length under 20", |b| {
        b[0] = 0x44;
        set_header_checksum(b);
    }),
    ("header length over the packet", |b| {
        b[0] = 0x4f;
        b.truncate(40);
        put(b, 2, 40);
        b[10..12].copy_from_slice(&[0, 0]);
    }),
    ("version 5", |b| {
        b[0] = 0x55;
        set_header_checksum(b);
    }),
    ("wrong header checksum", |b| b[10] ^= 0x40),
    ("half a header", |b| b.truncate(12)),
    ("udp length under 8", |b| {
        put(b, 24, 7);
        put(b, 26, 0);
    }),
    ("udp length over the packet", |b| {
        let length = b.len() as u16 - 20 + 1;
        put(b, 24, length);
        put(b, 26, 0);
    }),
    ("udp length under the packet's", |b| {
        let length = b.len() as u16 - 20 - 4;
        put(b, 24, length);
        put(b, 26, 0);
    }),
    ("wrong udp checksum", |b| b[26] ^= 0x40),
    ("half a udp header", |b| cut(b, 24)),
    ("no transport header", |b| cut(b, 20)),
];

const OF_TCP: [(&str, Change); 5] = [
    ("tcp data offset under 5", |b| {
        b[32] = 0x40;
        set_checksum(b, TCP);
    }),
    ("tcp data offset over the packet", |b| {
        cut(b, 40);
        b[32] = 0x60;
        set_checksum(b, TCP);
    }),
    ("half a tcp header", |b| cut(b, 32)),
    ("wrong tcp checksum", |b| b[36] ^= 0x40),
    ("tcp option longer than the header", |b| {
        b.truncate(40);
        b[32] = 0x60;
        b.extend([2, 40, 0, 0]);
        put(b, 2, 44);
        set_header_checksum(b);
        set_checksum(b, TCP);
    }),
];

const IPV6: [(&str, Change); 6] = [
    ("payload length over the frame", |b| {
        let length = b.len() as u16 - 40 + 1;
        put(b, 4, length);
    }),
    ("half a header", |b| b.truncate(20)),
    ("udp length over the packet", |b| {
        let length = b.len() as u16 - 40 + 1;
        put(b, 44, length);
    }),
    ("udp length under 8", |b| put(b, 44, 7)),
    ("udp without checksum", |b| put(b, 46, 0)),
    ("wrong udp checksum", |b| b[46] ^= 0x40),
];

pub fn add(cases: &mut Cases) {
    for (name, change) in IPV4 {
        cases.add(name, move |t| bad(t, Body::Udp, UDP, change));
    }
    for (name, change) in OF_TCP {
        cases.add(name, move |t| bad(t, syn(), TCP, change));
    }
    cases.add("wrong icmp checksum", |t| {
        if knows_echo(t) {
            bad(t, Body::Echo { request: true }, 1, |b| b[22] ^= 0x40);
        }
    });
    cases.add("half an icmp header", |t| {
        if knows_echo(t) {
            bad(t, Body::Echo { request: true }, 1, |b| cut(b, 24));
        }
    });
    for (name, change) in IPV6 {
        cases.add(format!("ipv6 {name}"), move |t| {
            let to = (IpAddr::V6(REMOTE_IPV6), SERVER_PORT);
            let packet = Packet::new((IpAddr::V6(host_ipv6(Place::In1)), t.port()), to, Body::Udp);
            let sent = t.send_so(Place::In1, &packet, &changed(change));
            t.wait();
            t.tell("", &sent);
        });
    }
    cases.add("ipv6 hop limit 1", |t| {
        let to = (IpAddr::V6(REMOTE_IPV6), SERVER_PORT);
        let mut packet = Packet::new((IpAddr::V6(host_ipv6(Place::In1)), t.port()), to, Body::Udp);
        packet.ttl = 1;
        let sent = t.send(Place::In1, &packet);
        t.wait();
        t.tell("", &sent);
    });
}

/// A bad packet as the first of a conversation, and as an answer in one.
fn bad(t: &mut Talk, body: Body, protocol: u8, change: Change) {
    let (place, packet) = t.open(body.clone());
    let first = t.send_so(place, &packet, &changed(change));
    t.wait();
    t.tell("first", &first);
    t.tell_state(protocol, packet.source_port);
    let Some(flow) = t.establish(place, body.clone(), None) else { return };
    let answer = match body {
        Body::Tcp { .. } => tcp(super::super::packet::TCP_ACK),
        Body::Echo { .. } => Body::Echo { request: false },
        other => other,
    };
    let back = t.reply(&flow, answer);
    let back = t.send_in(&flow, flow.server_place, &back, &changed(change));
    t.wait();
    t.tell("back", &back);
}
