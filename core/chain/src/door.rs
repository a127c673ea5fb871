//! The door: what comes in is genuine, what goes out is signed. `state-protocol.md`, "Tags".

use crate::Outputs;
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{KeyRing, NotGenuine};

/// The secrets, and the address that this server receives at and sends from.
pub struct Door {
    keys: KeyRing,
    address: Ipv4Addr,
}

impl Door {
    /// A door at `address`.
    pub fn new(keys: KeyRing, address: Ipv4Addr) -> Door {
        Door { keys, address }
    }

    /// The secrets.
    pub fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Other secrets from now on.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.keys = keys;
    }

    /// Whether a datagram from `from` is genuine.
    pub fn check(&self, from: SocketAddrV4, bytes: &[u8]) -> Result<(), NotGenuine> {
        self.keys.verify(bytes, *from.ip(), self.address)
    }

    /// Signs every datagram that is not signed yet.
    pub fn seal(&self, out: &mut Outputs) {
        out.seal(|to, datagram| {
            // As long as a header: it was encoded as a message.
            self.keys.sign(datagram, self.address, *to.ip());
        });
    }
}
