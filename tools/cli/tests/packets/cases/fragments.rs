//! Packets in fragments.

use super::super::packet::{Packet, UDP, fragments};
use super::super::system::{App, REMOTE_IPV6, SERVER_PORT, host_ipv6};
use super::super::wire::Place;
use super::*;
use std::net::IpAddr;

const PAYLOAD: usize = 992;

const PIECES: [(&str, &[(usize, usize)]); 8] = [
    ("in order", &[(0, 400), (400, 800), (800, 1000)]),
    ("in disorder", &[(800, 1000), (400, 800), (0, 400)]),
    ("the first last but one", &[(400, 800), (0, 400), (800, 1000)]),
    ("overlapping", &[(0, 400), (200, 800), (800, 1000)]),
    ("twice the same", &[(0, 400), (400, 1000), (400, 1000)]),
    ("the first only", &[(0, 400)]),
    ("without the first", &[(400, 800), (800, 1000)]),
    ("tiny", &[(0, 8), (8, 1000)]),
];

/// The first packet of a conversation, in these pieces.
fn in_pieces(t: &mut Talk, body: Body, payload: usize, pieces: &[(usize, usize)]) {
    let how = How { pieces: pieces.to_vec(), ..How::default() };
    let (place, mut packet) = t.open(body);
    packet.payload = payload;
    let sent = t.send_so(place, &packet, &how);
    t.wait();
    t.tell("", &sent);
}

pub fn add(cases: &mut Cases) {
    for (name, pieces) in PIECES {
        cases.add(format!("fragments {name}"), move |t| {
            let how = || How { pieces: pieces.to_vec(), ..How::default() };
            let (place, mut packet) = t.open(Body::Udp);
            packet.payload = PAYLOAD;
            let first = t.send_so(place, &packet, &how());
            t.wait();
            t.tell("first", &first);
            t.tell_state(UDP, packet.source_port);
            let Some(flow) = t.establish(place, Body::Udp, None) else { return };
            let mut back = t.reply(&flow, Body::Udp);
            back.payload = PAYLOAD;
            let back = t.send_in(&flow, flow.server_place, &back, &how());
            t.wait();
            t.tell("back", &back);
        });
    }
    cases.add("fragments of an echo", |t| {
        if !knows_echo(t) {
            return;
        }
        in_pieces(t, Body::Echo { request: true }, PAYLOAD, &[(0, 400), (400, 1000)]);
    });
    cases.add("fragments of a syn", |t| in_pieces(t, syn(), 380, &[(0, 24), (24, 400)]));
    cases.add("fragments, the second over the tcp header", |t| {
        // The receiver would get other flags than the gateway has seen (RFC 3128).
        in_pieces(t, syn(), 380, &[(0, 24), (8, 400)]);
    });
    cases.add("fragments over the mtu", |t| {
        let how = How { pieces: vec![(0, 1400), (1400, 2000)], ..How::default() };
        let place = t.system().client_place();
        if place != Place::In1 || t.system().app == App::Gateway {
            return; // no room for tunnels
        }
        let mut packet = t.opener(place, Body::Udp);
        packet.payload = 1992;
        let sent = t.send_so(place, &packet, &how);
        t.wait();
        t.tell("", &sent);
    });
    for (name, pieces) in [
        ("in order", vec![(0, 400), (400, 1000)]),
        ("in disorder", vec![(400, 1000), (0, 400)]),
        ("without the first", vec![(400, 1000)]),
    ] {
        cases.add(format!("ipv6 fragments {name}"), move |t| {
            let how = || How { pieces: pieces.clone(), ..How::default() };
            let from = (IpAddr::V6(host_ipv6(Place::In1)), t.port());
            let to = (IpAddr::V6(REMOTE_IPV6), SERVER_PORT);
            let mut packet = Packet::new(from, to, Body::Udp);
            packet.payload = PAYLOAD;
            let there = t.send_so(Place::In1, &packet, &how());
            t.wait();
            t.send(Place::In1, &Packet::new(from, to, Body::Udp));
            t.wait();
            let mut back = Packet::new(to, from, Body::Udp);
            back.payload = PAYLOAD;
            let back = t.send_so(Place::Router, &back, &how());
            t.wait();
            t.tell("there", &there);
            t.tell("back", &back);
        });
    }
    cases.alone("a flood of later fragments", |t| {
        let (place, mut packet) = t.open(Body::Udp);
        packet.payload = PAYLOAD;
        // Far more than any gateway keeps of one sender, each of another packet; none is ever
        // whole.
        for _ in 0..2000 {
            packet.id = t.id();
            for piece in fragments(&packet.bytes(), &[(400, 1000)], packet.id) {
                let (own, far) = t.stage.wires.macs(place);
                let piece = match t.system().tunnel(place, packet.source) {
                    Some((station, gateway, teid)) => {
                        super::super::packet::in_tunnel(&piece, station, gateway, teid)
                    }
                    None => piece,
                };
                let frame = [&far[..], &own[..], &[0x08, 0x00], &piece[..]].concat();
                t.stage.wires.send(place, &frame);
            }
        }
        t.wait();
        let Some(flow) = t.establish(place, Body::Udp, None) else { return };
        let back = t.reply(&flow, Body::Udp);
        let back = t.send_in(&flow, flow.server_place, &back, &as_is());
        t.wait();
        t.tell("a conversation after it", &back);
    });
}
