//! Conversations as they should be, and the small things that a gateway must not break in them.

use super::super::packet::{ICMP, Packet, TCP, TCP_ACK, UDP};
use super::super::system::{App, REMOTE, ROUTER, SERVER_PORT};
use super::super::talk::Flow;
use super::super::wire::Place;
use super::*;
use std::net::IpAddr;

pub fn add(cases: &mut Cases) {
    cases.add("udp both ways", |t| exchange(t, Body::Udp, Body::Udp, |_| {}, as_is));
    cases.add("tcp both ways", |t| {
        let place = t.system().client_place();
        let Some(flow) = t.establish(place, syn(), None) else { return };
        both(t, &flow, tcp(TCP_ACK), tcp(TCP_ACK), |_| {}, as_is);
        t.tell_state(TCP, flow.client.1);
    });
    cases.add("echo both ways", |t| {
        if knows_echo(t) {
            exchange(t, Body::Echo { request: true }, Body::Echo { request: false }, |_| {}, as_is);
        }
    });
    cases.add("udp without checksum", |t| {
        exchange(t, Body::Udp, Body::Udp, |p| p.no_checksum = true, as_is)
    });
    cases.add("udp without payload", |t| {
        exchange(t, Body::Udp, Body::Udp, |p| p.payload = 0, as_is)
    });
    cases.add("padding behind the packet", |t| {
        exchange(
            t,
            Body::Udp,
            Body::Udp,
            |p| p.payload = 1,
            || How { padding: 17, ..How::default() },
        );
    });
    cases.add("ip options", |t| {
        exchange(t, Body::Udp, Body::Udp, |p| p.ip_options = vec![1, 1, 1, 0], as_is)
    });
    cases.add("tos", |t| exchange(t, Body::Udp, Body::Udp, |p| p.tos = 0xb8, as_is));
    cases.add("don't fragment", |t| {
        exchange(t, Body::Udp, Body::Udp, |p| p.dont_fragment = true, as_is)
    });
    cases.add("ttl 1", |t| exchange_end(t, 1));
    cases.add("ttl 0", |t| exchange_end(t, 0));
    cases.add("ttl 2", |t| exchange(t, Body::Udp, Body::Udp, |p| p.ttl = 2, as_is));
    cases.add("another protocol", |t| {
        let (place, mut packet) = t.open(Body::Other(253));
        packet.source_port = 0;
        let sent = t.send(place, &packet);
        t.wait();
        t.tell("", &sent);
    });
    cases.add("nobody asked for it", |t| {
        let target = t.system().inside_target();
        for (label, body) in
            [("udp", Body::Udp), ("syn", syn()), ("echo", Body::Echo { request: true })]
        {
            if t.system().app == App::Balancer {
                continue;
            }
            let packet = Packet::new((IpAddr::V4(REMOTE), t.port()), target, body);
            let sent = t.send(Place::Router, &packet);
            t.wait();
            t.tell(label, &sent);
        }
    });
    cases.add("icmp errors about udp", |t| errors(t, Body::Udp));
    cases.add("icmp errors about tcp", |t| errors(t, syn()));
    cases.add("icmp errors about echo", |t| {
        if knows_echo(t) {
            errors(t, Body::Echo { request: true });
        }
    });
    cases.add("icmp error about nothing known", |t| {
        let (place, packet) = t.open(Body::Udp);
        let error = Body::Error { kind: 3, code: 1, rest: 0, quoted: packet.bytes() };
        let flow = Flow {
            client_place: place,
            client: (packet.source, packet.source_port),
            service: (packet.destination, packet.destination_port),
            server_place: Place::Router,
            peer: t.system().inside_target(),
            server: (IpAddr::V4(REMOTE), SERVER_PORT),
        };
        let error = Packet::new((IpAddr::V4(ROUTER), 0), (flow.peer.0, 0), error);
        let sent = t.send_in(&flow, Place::Router, &error, &as_is());
        t.wait();
        t.tell("", &sent);
    });
    cases.add("an 802.1Q tag", |t| {
        let packet = t.opener(Place::In1, Body::Udp);
        let sent = t.send_so(Place::In1, &packet, &How { vlan: Some(5), ..How::default() });
        t.wait();
        t.tell("", &sent);
    });
    cases.add("an 802.1Q tag of vlan 0", |t| {
        let packet = t.opener(Place::In1, Body::Udp);
        let sent = t.send_so(Place::In1, &packet, &How { vlan: Some(0), ..How::default() });
        t.wait();
        t.tell("", &sent);
    });
}

/// A packet there and one back.
fn exchange(t: &mut Talk, body: Body, answer: Body, change: fn(&mut Packet), how: fn() -> How) {
    let place = t.system().client_place();
    let Some(flow) = t.establish(place, body.clone(), None) else { return };
    both(t, &flow, body.clone(), answer, change, how);
    let protocol = match body {
        Body::Udp => UDP,
        _ => ICMP,
    };
    t.tell_state(protocol, flow.client.1);
}

fn both(
    t: &mut Talk,
    flow: &Flow,
    body: Body,
    answer: Body,
    change: fn(&mut Packet),
    how: fn() -> How,
) {
    let (mut there, mut back) = (t.onward(flow, body), t.reply(flow, answer));
    change(&mut there);
    change(&mut back);
    let there = t.send_in(flow, flow.client_place, &there, &how());
    t.wait();
    let back = t.send_in(flow, flow.server_place, &back, &how());
    t.wait();
    t.tell("there", &there);
    t.tell("back", &back);
}

/// Packets whose way ends at the gateway, before and after a conversation has begun.
fn exchange_end(t: &mut Talk, ttl: u8) {
    let (place, mut packet) = t.open(Body::Udp);
    packet.ttl = ttl;
    let first = t.send(place, &packet);
    t.wait();
    t.tell("first", &first);
    t.tell_state(UDP, packet.source_port);
    let Some(flow) = t.establish(place, Body::Udp, None) else { return };
    let (mut there, mut back) = (t.onward(&flow, Body::Udp), t.reply(&flow, Body::Udp));
    there.ttl = ttl;
    back.ttl = ttl;
    let there = t.send_in(&flow, flow.client_place, &there, &as_is());
    let back = t.send_in(&flow, flow.server_place, &back, &as_is());
    t.wait();
    t.tell("there", &there);
    t.tell("back", &back);
}

/// ICMP errors about packets of a conversation, from its ends and from a router on the way, both
/// ways.
fn errors(t: &mut Talk, body: Body) {
    let place = t.system().client_place();
    let opener = t.opener(place, body.clone());
    let sent = t.send(place, &opener);
    t.wait();
    let Some((at, view)) = t.came_out(&sent) else {
        t.say("no conversation");
        return;
    };
    let mut arrived = view.header.clone();
    arrived.extend(&view.payload);
    let flow = Flow::begun(place, &opener, at, &view);
    let router = (IpAddr::V4(ROUTER), 0);
    let error = |kind, code, rest, bytes: usize| Body::Error {
        kind,
        code,
        rest,
        quoted: arrived[..bytes.min(arrived.len())].to_vec(),
    };
    let mut sent = vec![];
    let peer = (flow.peer.0, 0);
    let server = (flow.server.0, 0);
    let mut send = |t: &mut Talk, label: &'static str, from, body| {
        let packet = Packet::new(from, peer, body);
        sent.push((label, t.send_in(&flow, flow.server_place, &packet, &as_is())));
    };
    send(t, "port unreachable", server, error(3, 3, 0, usize::MAX));
    send(t, "with 8 bytes", server, error(3, 3, 0, view.header.len() + 8));
    if flow.server_place == Place::Router {
        send(t, "too big, router", router, error(3, 4, 1300, usize::MAX));
        send(t, "time exceeded, router", router, error(11, 0, 0, usize::MAX));
    }
    t.wait();
    let answer = match body {
        Body::Udp => Body::Udp,
        Body::Tcp { .. } => tcp(super::super::packet::TCP_SYN | TCP_ACK),
        _ => Body::Echo { request: false },
    };
    let back = t.reply(&flow, answer);
    let back = t.send_in(&flow, flow.server_place, &back, &as_is());
    t.wait();
    if let Some((_, view)) = t.came_out(&back) {
        let mut quoted = view.header.clone();
        quoted.extend(&view.payload);
        let body = Body::Error { kind: 3, code: 3, rest: 0, quoted };
        let packet = Packet::new((flow.client.0, 0), (flow.service.0, 0), body);
        sent.push(("from the client", t.send_in(&flow, flow.client_place, &packet, &as_is())));
        t.wait();
    }
    for (label, sent) in &sent {
        t.tell(label, sent);
    }
}
