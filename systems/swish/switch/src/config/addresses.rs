//! Addresses of switches and controllers in `[shared.GROUP]`.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::net::{Ipv4Addr, SocketAddrV4};
use swish_protocol::control::CONTROLLER_PORT;

/// An address, or all from a first one to a last one: `"10.0.0.1-10.0.3.254"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Addresses {
    first: Ipv4Addr,
    last: Ipv4Addr,
}

impl TryFrom<String> for Addresses {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Addresses, String> {
        let (first, last) = text.split_once('-').unwrap_or((text.as_str(), text.as_str()));
        let address = |text: &str| text.trim().parse::<Ipv4Addr>().ok();
        match (address(first), address(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Addresses { first, last }),
            (Some(_), Some(_)) => Err(format!("{text:?}: the last address is below the first one")),
            _ => Err(format!(
                "{text:?}: write an IPv4 address, or two with `-` between them for all from the \
                 first to the last"
            )),
        }
    }
}

impl Addresses {
    pub(super) fn count(self) -> u64 {
        u64::from(self.last.to_bits()) - u64::from(self.first.to_bits()) + 1
    }

    pub(super) fn all(self) -> impl Iterator<Item = Ipv4Addr> {
        (self.first.to_bits()..=self.last.to_bits()).map(Ipv4Addr::from_bits)
    }
}

/// Reads this switch's address.
pub(super) fn own<'de, D: Deserializer<'de>>(from: D) -> Result<Ipv4Addr, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| {
        D::Error::custom(format!(
            "{text:?}: write this switch's IPv4 address, such as \"10.9.0.1\""
        ))
    })
}

/// Reads controllers' addresses.
pub(super) fn controllers<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<SocketAddrV4>, D::Error> {
    let one = |text: String| {
        text.parse().map_err(|_| {
            D::Error::custom(format!(
                "{text:?}: write ADDRESS:PORT, such as \"10.0.0.9:{CONTROLLER_PORT}\""
            ))
        })
    };
    Vec::<String>::deserialize(from)?.into_iter().map(one).collect()
}

/// Why nobody can have this address as its own one, to which others send; with the remedy.
pub(super) fn no_switch(address: Ipv4Addr) -> Option<String> {
    let what = match address {
        it if it.is_unspecified() => "stands for all addresses",
        it if it.is_broadcast() => "is the broadcast address",
        it if it.is_multicast() => "is a multicast address",
        it if it.is_loopback() => "is a loopback address, which others do not reach",
        _ => return None,
    };
    Some(format!(
        "{address} is no switch's or controller's address: it {what}; write the machine's own \
         address, to which the others have a route"
    ))
}

/// Controllers must differ, and can be sent to.
///
/// # Errors
/// They do not; with the remedy.
pub(super) fn check_controllers(all: &[SocketAddrV4]) -> Result<(), String> {
    for (at, address) in all.iter().enumerate() {
        if all[..at].contains(address) {
            return Err(format!("{address} is given twice; write each controller once"));
        }
        if address.port() == 0 {
            return Err(format!(
                "{address}: no controller listens on port 0; write the port of its `listen`, such \
                 as {}:{CONTROLLER_PORT}",
                address.ip()
            ));
        }
        if let Some(why) = no_switch(*address.ip()) {
            return Err(why);
        }
    }
    Ok(())
}
