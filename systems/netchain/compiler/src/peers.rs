//! A PeerLeases in C.

use crate::PEER_LEASES;
use crate::single::{Kind, Single};
use netchain_protocol::layouts::PEERS;
use p4_ir::Argument;
use xdp_backend::system::{Generator, ObjectCall, Writer};

/// The manifest says that the program has leases. The map has the peers.
pub(crate) const KIND: Kind = Kind {
    name: PEER_LEASES,
    map: "sp_peers",
    capacity: PEERS,
    help: "use one object for all leases: peers belong to the switch",
};

/// A program's PeerLeases, if it has one.
#[derive(Default)]
pub(crate) struct Peers {
    pub object: Single,
}

impl Peers {
    pub(crate) fn call(&self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { method, arguments, result, location, .. } = *call;
        let mut inputs = vec![];
        for argument in arguments {
            if let Argument::In(expr) = argument {
                inputs.push(generator.expr(expr));
            }
        }
        let answer = match method {
            "hold" => format!("sp_peers_hold({})", inputs.join(", ")),
            "answered" => format!("sp_peers_answered({})", inputs.join(", ")),
            _ => generator.internal(location, "an unknown method of a PeerLeases"),
        };
        match result {
            Some(target) => generator.store(target, &answer),
            None => generator.out.line(format!("{answer};")),
        }
    }

    pub(crate) fn includes(&self, text: &mut Writer) {
        if !self.object.is_empty() {
            text.line("#include \"stateplane_peers.h\"");
        }
    }
}
