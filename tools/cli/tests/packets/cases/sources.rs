//! Where packets come from and go to, and in which frames: what a gateway must not forward (RFC
//! 1812, 5.3.7, 5.3.8; RFC 2827).

use super::super::packet::{Packet, UDP};
use super::super::system::{App, REMOTE, REMOTE_IPV6, SERVER_PORT, host, host_ipv6};
use super::super::talk::Flow;
use super::super::wire::Place;
use super::*;
use std::net::IpAddr;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

pub fn add(cases: &mut Cases) {
    for (name, source) in [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("0.1.2.3", "0.1.2.3"),
        ("224.0.0.5", "224.0.0.5"),
        ("240.0.0.1", "240.0.0.1"),
        ("255.255.255.255", "255.255.255.255"),
        ("the gateway's own", "10.1.0.1"),
        ("the gateway's loopback", "10.255.0.1"),
        ("the subnet's broadcast", "10.1.0.255"),
        ("an address behind another inside port", "10.1.1.77"),
        ("an outside address", "198.51.100.77"),
        ("a neighbour's address", "10.1.0.77"),
    ] {
        cases.add(format!("from inside, source {name}"), move |t| {
            let port = t.port();
            let packet =
                Packet::new((ip(source), port), (IpAddr::V4(REMOTE), SERVER_PORT), Body::Udp);
            let sent = t.send(Place::In1, &packet);
            t.wait();
            t.tell("", &sent);
            t.tell_state_of_any(UDP, port);
        });
    }
    for (name, source) in [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("224.0.0.5", "224.0.0.5"),
        ("255.255.255.255", "255.255.255.255"),
        ("the gateway's own", "192.0.2.2"),
        ("inside", "10.1.0.77"),
    ] {
        cases.add(format!("from outside, source {name}"), move |t| {
            let port = t.port();
            let there = Packet::new((ip(source), port), t.system().inside_target(), Body::Udp);
            let there = t.send(Place::Router, &there);
            // To somebody else outside: an inside source would be translated.
            let around =
                Packet::new((ip(source), port), (ip("198.51.100.99"), SERVER_PORT), Body::Udp);
            let around = t.send(Place::Router, &around);
            t.wait();
            t.tell("to inside", &there);
            t.tell("to outside", &around);
            t.tell_state_of_any(UDP, port);
        });
    }
    for (name, destination) in [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("0.1.2.3", "0.1.2.3"),
        ("240.0.0.1", "240.0.0.1"),
        ("255.255.255.255", "255.255.255.255"),
        ("224.0.0.251", "224.0.0.251"),
        ("239.1.1.1", "239.1.1.1"),
        ("169.254.9.9", "169.254.9.9"),
        ("another subnet's broadcast", "10.1.1.255"),
        ("the gateway's outside address, a closed port", "192.0.2.2"),
        ("a network without route", "198.18.0.1"),
        ("a network that is prohibited", "198.19.0.1"),
        ("a network that is blackholed", "198.18.128.1"),
        ("a neighbour that is not there", "192.0.2.77"),
    ] {
        cases.add(format!("from inside, destination {name}"), move |t| {
            let port = t.port();
            let packet = Packet::new(
                (IpAddr::V4(host(Place::In1)), port),
                (ip(destination), SERVER_PORT),
                Body::Udp,
            );
            let sent = t.send(Place::In1, &packet);
            t.wait();
            t.tell("", &sent);
            // (What is for the gateway itself, conntrack has too.)
            if !["192.0.2.2", "255.255.255.255", "10.1.1.255"].contains(&destination) {
                t.tell_state_of_any(UDP, port);
            }
        });
    }
    for (name, mac) in [
        ("another mac", [2, 0, 0, 0, 0, 9]),
        ("the broadcast mac", [0xff; 6]),
        ("a multicast mac", [1, 0, 0x5e, 0, 0, 9]),
    ] {
        cases.add(format!("a frame to {name}"), move |t| {
            let how = || How { to_mac: Some(mac), ..How::default() };
            let (place, packet) = t.open(Body::Udp);
            let first = t.send_so(place, &packet, &how());
            t.wait();
            t.tell("first", &first);
            t.tell_state(UDP, packet.source_port);
            let Some(flow) = t.establish(place, Body::Udp, None) else { return };
            let back = t.reply(&flow, Body::Udp);
            let back = t.send_in(&flow, flow.server_place, &back, &how());
            t.wait();
            t.tell("back", &back);
        });
        cases.add(format!("an ipv6 frame to {name}"), move |t| {
            let to = (IpAddr::V6(REMOTE_IPV6), SERVER_PORT);
            let packet = Packet::new((IpAddr::V6(host_ipv6(Place::In1)), t.port()), to, Body::Udp);
            let sent = t.send_so(Place::In1, &packet, &How { to_mac: Some(mac), ..How::default() });
            t.wait();
            t.tell("", &sent);
        });
    }
    for (name, source) in [
        ("::1", "::1"),
        ("::", "::"),
        ("ff02::1", "ff02::1"),
        ("a mapped address", "::ffff:10.1.0.10"),
        ("the gateway's own", "2001:db8:1::1"),
        ("an address behind another inside port", "2001:db8:1:1::77"),
        ("an outside address", "2001:db8:2::77"),
    ] {
        cases.add(format!("from inside, ipv6 source {name}"), move |t| {
            let packet = Packet::new(
                (ip(source), t.port()),
                (IpAddr::V6(REMOTE_IPV6), SERVER_PORT),
                Body::Udp,
            );
            let sent = t.send(Place::In1, &packet);
            t.wait();
            t.tell("", &sent);
        });
    }
    for (name, destination) in [("::1", "::1"), ("ff0e::1", "ff0e::1"), ("::", "::")] {
        cases.add(format!("from inside, ipv6 destination {name}"), move |t| {
            let from = (IpAddr::V6(host_ipv6(Place::In1)), t.port());
            let sent =
                t.send(Place::In1, &Packet::new(from, (ip(destination), SERVER_PORT), Body::Udp));
            t.wait();
            t.tell("", &sent);
        });
    }
    cases.add("from outside, ipv6 source inside", |t| {
        let from = (IpAddr::V6(host_ipv6(Place::In1)), t.port());
        let sent = t.send(
            Place::Router,
            &Packet::new(from, (ip("2001:db8:2::77"), SERVER_PORT), Body::Udp),
        );
        t.wait();
        t.tell("", &sent);
    });
    cases.add("inside to inside", |t| {
        let from = (IpAddr::V4(host(Place::In1)), t.port());
        let sent =
            t.send(Place::In1, &Packet::new(from, (IpAddr::V4(host(Place::In2)), 7000), Body::Udp));
        t.wait();
        t.tell("", &sent);
    });
    cases.add("inside to inside by the external address", |t| {
        if t.system().app != App::Nat {
            return;
        }
        let Some(one) = t.establish(Place::In1, Body::Udp, None) else { return };
        let Some(two) = t.establish(Place::In2, Body::Udp, None) else { return };
        // Each to where the other's packets come from, as two peers behind one NAT do that a server
        // has told of each other; and once more, now that both have begun.
        let way = Flow { peer: two.peer, server: two.client, service: two.peer, ..one.clone() };
        let one_sends = Packet::new(one.client, two.peer, Body::Udp);
        let two_sends = Packet::new(two.client, one.peer, Body::Udp);
        let mut sent = vec![];
        for label in ["first", "then"] {
            sent.push((
                format!("{label} there"),
                t.send_in(&way, Place::In1, &one_sends, &as_is()),
            ));
            t.wait();
            sent.push((format!("{label} back"), t.send_in(&way, Place::In2, &two_sends, &as_is())));
            t.wait();
        }
        for (label, sent) in &sent {
            t.tell(label, sent);
        }
    });
}
