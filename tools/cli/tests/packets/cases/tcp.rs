//! TCP segments that begin nothing, and conversations' ends.

use super::super::packet::{TCP, TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use super::super::talk::Flow;
use super::*;

pub fn add(cases: &mut Cases) {
    for (name, flags) in [
        ("no flags", 0),
        ("ack", TCP_ACK),
        ("rst", TCP_RST),
        ("rst and ack", TCP_RST | TCP_ACK),
        ("fin", TCP_FIN),
        ("fin and ack", TCP_FIN | TCP_ACK),
        ("syn and ack", TCP_SYN | TCP_ACK),
        ("syn and fin", TCP_SYN | TCP_FIN),
        ("syn and rst", TCP_SYN | TCP_RST),
        ("all flags", 0x3f),
    ] {
        cases.add(format!("tcp first: {name}"), move |t| {
            let (place, packet) = t.open(tcp(flags));
            let sent = t.send(place, &packet);
            t.wait();
            t.tell("", &sent);
            t.tell_state(TCP, packet.source_port);
        });
    }
    cases.add("tcp first: syn", |t| {
        let (place, packet) = t.open(syn());
        let sent = t.send(place, &packet);
        t.wait();
        t.tell("", &sent);
        t.tell_state(TCP, packet.source_port);
    });
    cases.add("tcp: an answer without ack to a syn", |t| {
        // Both ends open at the same time (RFC 5382, REQ-2).
        let (place, packet) = t.open(syn());
        let sent = t.send(place, &packet);
        t.wait();
        let Some((at, view)) = t.came_out(&sent) else {
            t.say("no conversation");
            return;
        };
        let flow = Flow::begun(place, &packet, at, &view);
        let crossing = t.reply(&flow, syn());
        let crossing = t.send_in(&flow, at, &crossing, &as_is());
        t.wait();
        t.tell("", &crossing);
    });
    cases.add("tcp: closed by both", |t| {
        let place = t.system().client_place();
        let Some(flow) = t.establish(place, syn(), None) else { return };
        let fin = t.onward(&flow, tcp(TCP_FIN | TCP_ACK));
        let fin = t.send_in(&flow, place, &fin, &as_is());
        t.wait();
        let other = t.reply(&flow, tcp(TCP_FIN | TCP_ACK));
        let other = t.send_in(&flow, flow.server_place, &other, &as_is());
        t.wait();
        let last = t.onward(&flow, tcp(TCP_ACK));
        let last = t.send_in(&flow, place, &last, &as_is());
        t.wait();
        t.tell("fin", &fin);
        t.tell("fin back", &other);
        t.tell("last ack", &last);
    });
    cases.add("tcp: reset", |t| {
        let place = t.system().client_place();
        let Some(flow) = t.establish(place, syn(), None) else { return };
        let reset = t.reply(&flow, tcp(TCP_RST | TCP_ACK));
        let reset = t.send_in(&flow, flow.server_place, &reset, &as_is());
        t.wait();
        t.tell("", &reset);
    });
}
