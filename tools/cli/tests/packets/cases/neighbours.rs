//! Next hops that the gateway has to find out, and one that moves.

use super::super::wire::Place;
use super::*;

pub fn add(cases: &mut Cases) {
    cases.alone("a next hop that is not resolved", |t| {
        let (place, packet) = t.open(Body::Udp);
        forget(t);
        let first = t.send(place, &packet);
        t.wait();
        let second = t.send(place, &packet);
        t.wait();
        t.tell("first", &first);
        t.tell("second", &second);
    });
    cases.alone("a next hop that is not resolved, in a conversation", |t| {
        let place = t.system().client_place();
        let Some(flow) = t.establish(place, Body::Udp, None) else { return };
        forget(t);
        let (there, back) = (t.onward(&flow, Body::Udp), t.reply(&flow, Body::Udp));
        for round in ["first", "second"] {
            let there = t.send_in(&flow, place, &there, &as_is());
            let back = t.send_in(&flow, flow.server_place, &back, &as_is());
            t.wait();
            t.tell(&format!("{round} there"), &there);
            t.tell(&format!("{round} back"), &back);
        }
    });
    cases.alone("the router's address moves to another mac, announced", |t| {
        let place = t.system().client_place();
        let Some(flow) = t.establish(place, Body::Udp, None) else { return };
        let (old, _) = t.stage.wires.macs(Place::Router);
        let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        let mut new = old;
        new[5] ^= 0x55;
        let lab = t.stage.lab();
        // The kernel takes no announcement of a neighbour that it has heard of within the last
        // second.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        lab.must_run("router", "sysctl -q net.ipv4.conf.gw.arp_notify=1");
        lab.must_run("router", &format!("ip link set gw address {}", text(new)));
        drop(lab);
        t.stage.wires.moved(Place::Router, new);
        t.wait();
        // Whatever comes out there goes to the new address, or is said to go to a wrong one.
        let (there, back) = (t.onward(&flow, Body::Udp), t.reply(&flow, Body::Udp));
        let there = t.send_in(&flow, place, &there, &as_is());
        let back = t.send_in(&flow, flow.server_place, &back, &as_is());
        t.wait();
        t.tell("there", &there);
        t.tell("back", &back);
    });
}

/// The gateway forgets all its neighbours.
fn forget(t: &Talk) {
    for port in ["router", "in1", "in2"] {
        t.stage.lab().must_run("gw", &format!("ip neigh flush dev {port}"));
    }
}
