//! Links of unequal MTUs: 1,500 (in1), 1,400 (router), 1,300 (in2).

use super::super::packet::{Packet, TCP, TCP_ACK, TCP_SYN, UDP};
use super::super::system::{App, REMOTE_IPV6, host_ipv6};
use super::super::talk::MANY;
use super::super::wire::Place;
use super::*;
use std::net::IpAddr;

/// The client of the way out that gets narrower, the place of the server, and the MTU there.
fn narrowing(app: App) -> (Place, Option<Place>, usize) {
    match app {
        App::Balancer => (Place::Router, Some(Place::In2), 1300),
        _ => (Place::In1, None, 1400),
    }
}

/// The same for the way back. A tunnel takes 36 bytes of it.
fn narrowing_back(app: App, tunnelled: bool) -> (Place, Option<Place>, usize) {
    match app {
        App::Balancer => (Place::Router, Some(Place::In1), 1400),
        _ if tunnelled => (Place::In2, None, 1300 - 36),
        _ => (Place::In2, None, 1300),
    }
}

pub fn add(cases: &mut Cases) {
    for (name, over, dont_fragment) in [
        ("as large as the mtu", 0, true),
        ("over the mtu, don't fragment", 1, true),
        ("over the mtu", 1, false),
        ("over the mtu by far", 60, false),
    ] {
        for (protocol, body) in [("udp", Body::Udp), ("tcp", tcp(TCP_ACK))] {
            if protocol == "tcp" && over != 1 {
                continue;
            }
            let body_back = body.clone();
            cases.add(format!("{protocol} {name}, there"), move |t| {
                let (place, server, mtu) = narrowing(t.system().app);
                let opener = if protocol == "tcp" { syn() } else { Body::Udp };
                let Some(flow) = t.establish(place, opener, server) else { return };
                let mut packet = t.onward(&flow, body.clone()).sized(mtu + over);
                packet.dont_fragment = dont_fragment;
                let sent = t.send_in(&flow, place, &packet, &as_is());
                t.wait();
                t.tell("", &sent);
            });
            cases.add(format!("{protocol} {name}, back"), move |t| {
                let tunnelled = !t.system().is_nftables() && t.system().app == App::Gateway;
                let (place, server, mtu) = narrowing_back(t.system().app, tunnelled);
                let opener = if protocol == "tcp" { syn() } else { Body::Udp };
                let Some(flow) = t.establish(place, opener, server) else { return };
                let mut packet = t.reply(&flow, body_back.clone()).sized(mtu + over);
                packet.dont_fragment = dont_fragment;
                let sent = t.send_in(&flow, flow.server_place, &packet, &as_is());
                t.wait();
                t.tell("", &sent);
            });
        }
    }
    cases.add("the first is over the mtu, don't fragment", |t| {
        let (place, server, mtu) = narrowing(t.system().app);
        // A balancer may take the wide way.
        let tries = if server.is_some() { MANY } else { 1 };
        let packets: Vec<Packet> = (0..tries)
            .map(|_| {
                let mut packet = t.opener(place, Body::Udp).sized(mtu + 1);
                packet.dont_fragment = true;
                packet
            })
            .collect();
        let sent: Vec<_> = packets.iter().map(|packet| t.send(place, packet)).collect();
        t.wait();
        for (packet, sent) in packets.iter().zip(&sent) {
            if t.came_out(sent).is_none() {
                t.tell("", sent);
                t.tell_state(UDP, packet.source_port);
                return;
            }
        }
        t.say("all forwarded");
    });
    cases.add("echo over the mtu, don't fragment", |t| {
        if knows_echo(t) {
            let mut packet = t.opener(Place::In1, Body::Echo { request: true }).sized(1401);
            packet.dont_fragment = true;
            let sent = t.send(Place::In1, &packet);
            t.wait();
            t.tell("", &sent);
        }
    });
    cases.add("over the mtu, don't fragment, ttl 1", |t| {
        let (place, server, mtu) = narrowing(t.system().app);
        let Some(flow) = t.establish(place, Body::Udp, server) else { return };
        let mut packet = t.onward(&flow, Body::Udp).sized(mtu + 1);
        packet.dont_fragment = true;
        packet.ttl = 1;
        let sent = t.send_in(&flow, place, &packet, &as_is());
        t.wait();
        t.tell("", &sent);
    });
    cases.add("over the mtu, ip options", |t| {
        let (place, server, mtu) = narrowing(t.system().app);
        let Some(flow) = t.establish(place, Body::Udp, server) else { return };
        let mut packet = t.onward(&flow, Body::Udp);
        packet.ip_options = vec![1, 1, 1, 0];
        let sent = t.send_in(&flow, place, &packet.sized(mtu + 1), &as_is());
        t.wait();
        t.tell("", &sent);
    });
    cases.add("over the mtu, without checksum", |t| {
        let (place, server, mtu) = narrowing(t.system().app);
        let Some(flow) = t.establish(place, Body::Udp, server) else { return };
        let mut packet = t.onward(&flow, Body::Udp).sized(mtu + 9);
        packet.no_checksum = true;
        let sent = t.send_in(&flow, place, &packet, &as_is());
        t.wait();
        t.tell("", &sent);
    });
    cases.add("mss of a syn", |t| {
        let (place, server, _) = narrowing(t.system().app);
        let body = Body::Tcp { flags: TCP_SYN, options: vec![2, 4, 0x05, 0xb4] };
        let packet = t.opener(place, body);
        let sent = t.send(place, &packet);
        t.wait();
        // Which way a balancer takes is not known before.
        if server.is_none() {
            t.tell("", &sent);
            t.tell_state(TCP, packet.source_port);
        }
    });
    for (name, over) in [("as large as the mtu", 0), ("over the mtu", 1)] {
        cases.add(format!("ipv6 udp {name}, there"), move |t| {
            let to = (IpAddr::V6(REMOTE_IPV6), 7000);
            let packet = Packet::new((IpAddr::V6(host_ipv6(Place::In1)), t.port()), to, Body::Udp)
                .sized(1400 + over);
            let sent = t.send(Place::In1, &packet);
            t.wait();
            t.tell("", &sent);
        });
        cases.add(format!("ipv6 udp {name}, back"), move |t| {
            let (from, to) =
                ((IpAddr::V6(host_ipv6(Place::In2)), t.port()), (IpAddr::V6(REMOTE_IPV6), 7000));
            t.send(Place::In2, &Packet::new(from, to, Body::Udp));
            t.wait();
            let sent = t.send(Place::Router, &Packet::new(to, from, Body::Udp).sized(1300 + over));
            t.wait();
            t.tell("", &sent);
        });
    }
}
