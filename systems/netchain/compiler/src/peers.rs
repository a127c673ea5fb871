//! A PeerLeases in C.

use crate::{PEER_LEASES, SYSTEM};
use manifest::{Home, Layout, Settings, StateObject};
use netchain_protocol::layouts::PEERS;
use p4_ir::{Argument, ExternInstance};
use xdp_backend::system::{Generator, ObjectCall, Writer};

/// The runtime's map with the peers.
const MAP: &str = "sp_peers";

/// A program's PeerLeases, if it has one.
#[derive(Default)]
pub(crate) struct Peers {
    object: Option<String>,
}

impl Peers {
    pub(crate) fn is_empty(&self) -> bool {
        self.object.is_none()
    }

    pub(crate) fn is(&self, c_name: &str) -> bool {
        self.object.as_deref() == Some(c_name)
    }

    /// The manifest says that the program has leases; there are no entries of it.
    pub(crate) fn declare(
        &mut self,
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        id: u16,
    ) {
        generator.manifest.state_objects.push(StateObject {
            id,
            name: instance.name.clone(),
            system: SYSTEM.into(),
            kind: PEER_LEASES.into(),
            map: MAP.into(),
            slots_map: None,
            capacity: PEERS,
            home: Home::ThisSwitch,
            key: vec![],
            key_bytes: 0,
            value: Layout::Fields { fields: vec![], bytes: 0, offset: 0 },
            settings: Settings::new(),
        });
        if let Some(first) = self.object.replace(instance.c_name.clone()) {
            let message = format!("a second {PEER_LEASES}, {}, beside {first}", instance.name);
            let help = "use one object for all leases: peers belong to the switch";
            generator.error(instance.location, &message, Some(help));
        }
    }

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
        if !self.is_empty() {
            text.line("#include \"stateplane_peers.h\"");
        }
    }
}
