//! Where a system plugs in: what its messages are called, and what they say.

use crate::PORTS;
use crate::event::Field;
use crate::objects::Objects;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use wire::{ChainHeader, Malformed};

/// A system's messages. Numbers of types that two systems use cannot be told apart: each system
/// has its own.
pub trait Messages: Sync {
    /// The names of all its types, as filters ask for them.
    fn names(&self) -> Vec<&'static str>;

    /// The name of the type with this number. `None`: the type is not this system's.
    fn name(&self, number: u8) -> Option<&'static str>;

    /// Reads a datagram whose type is this system's.
    ///
    /// # Errors
    /// How the bytes fail to follow the layout.
    fn decode(&self, datagram: &[u8], objects: &Objects) -> Result<MessageBody, Malformed>;

    /// Further UDP ports of its messages that begin with the frame of `core/wire`. No two systems
    /// have the same.
    fn framed_ports(&self) -> &'static [u16] {
        &[]
    }

    /// The UDP ports of its messages that do not begin with the frame of `core/wire`. No two
    /// systems have the same.
    fn ports(&self) -> &'static [u16] {
        &[]
    }

    /// Reads a datagram from or to one of these ports.
    ///
    /// # Errors
    /// How the bytes fail to follow the layout, in words.
    fn decode_unframed(&self, _datagram: &[u8]) -> Result<MessageBody, String> {
        Err(Malformed::Type.to_string())
    }

    /// What the entries of a chain's datagram do, one word each. A system without chains refuses.
    ///
    /// # Errors
    /// The entries are not this system's.
    fn entries(
        &self,
        _header: &ChainHeader,
        _datagram: &[u8],
    ) -> Result<Vec<&'static str>, Malformed> {
        Err(Malformed::Type)
    }
}

/// A system's message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MessageBody {
    /// Its type, as the system's page calls it.
    #[serde(rename = "type")]
    pub name: &'static str,
    /// All that JSON shows, in order.
    #[serde(flatten)]
    pub fields: Fields,
    /// What the column `object` shows; empty: it is about no object.
    #[serde(skip)]
    pub object: String,
    /// The key in hexadecimal digits; empty: none.
    #[serde(skip)]
    pub key: String,
    /// The key's fields, if the manifest has the object.
    #[serde(skip)]
    pub key_fields: Option<Vec<Field>>,
    /// Which switch sent it, or is meant.
    #[serde(skip)]
    pub switch_id: Option<u32>,
    /// Which shard it is about.
    #[serde(skip)]
    pub shard: Option<u16>,
    /// The rest of the line.
    #[serde(skip)]
    pub rest: String,
    /// What tells a repeated message from a new one. `None`: all are new.
    #[serde(skip)]
    pub follows: Option<Follows>,
}

/// Messages of one type and one sender about one thing carry a number that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follows {
    /// A hash of the thing.
    pub about: u64,
    /// Grows from one message to the next.
    pub number: u64,
    /// The sender's clock; 0: the message does not have it. The same number at the same time is a
    /// copy.
    pub sent_ns: u64,
    /// A number that does not grow means: sent again.
    pub resent: bool,
}

/// Names and values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(&'static str, Value)>);

impl Fields {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// All systems whose messages are known.
#[derive(Clone, Copy)]
pub struct Systems(pub &'static [&'static dyn Messages]);

impl Systems {
    /// All UDP ports whose datagrams are looked at.
    pub fn ports(self) -> Vec<u16> {
        let own =
            self.0.iter().flat_map(|system| system.framed_ports().iter().chain(system.ports()));
        PORTS.iter().chain(own).copied().collect()
    }

    /// Whether messages with the frame of `core/wire` go over one of these ports.
    pub(crate) fn framed(self, ports: [u16; 2]) -> bool {
        let own = self.0.iter().flat_map(|system| system.framed_ports());
        PORTS.iter().chain(own).any(|known| ports.contains(known))
    }

    /// The system whose messages, without the frame of `core/wire`, go over one of these ports.
    pub(crate) fn unframed(self, ports: [u16; 2]) -> Option<&'static dyn Messages> {
        let has = |system: &&&dyn Messages| ports.iter().any(|it| system.ports().contains(it));
        self.0.iter().find(has).copied()
    }

    /// The system that has a type of this number, and the type's name.
    pub(crate) fn of(self, number: u8) -> Option<(&'static dyn Messages, &'static str)> {
        self.0.iter().find_map(|system| Some((*system, system.name(number)?)))
    }

    /// What the entries of a chain's datagram do: as the first system says that can read them.
    pub(crate) fn entries(
        self,
        header: &ChainHeader,
        datagram: &[u8],
    ) -> Result<Vec<&'static str>, Malformed> {
        let mut failed = Malformed::Type;
        for system in self.0 {
            match system.entries(header, datagram) {
                Ok(entries) => return Ok(entries),
                Err(reason) => failed = reason,
            }
        }
        Err(failed)
    }
}
