//! What of `switch.toml` is for gateways.

use super::Config;
use crate::error::Result;
use dataplane::ReversePath;
use serde::Deserialize;

/// Fragments that may be held at most.
const MOST_HELD: usize = 4_096;

/// What a gateway checks of what comes in (gateway_check() of stateplane.p4).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Ingress {
    /// Whether a packet's source must have a route, and which.
    pub reverse_path: ReversePath,
    /// Which frames are taken.
    pub destination_mac: DestinationMac,
}

impl Default for Ingress {
    fn default() -> Ingress {
        Ingress { reverse_path: ReversePath::Strict, destination_mac: DestinationMac::Own }
    }
}

/// Which frames are taken.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum DestinationMac {
    /// Those for the port's own MAC, beside broadcast and multicast.
    #[default]
    Own,
    /// All.
    Any,
}

/// Fragments that come before their first: the agent holds them.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Fragments {
    /// So many at most; 0: none.
    pub held: usize,
    /// For so long at most, in ms.
    pub held_ms: u64,
}

impl Default for Fragments {
    fn default() -> Fragments {
        Fragments { held: 256, held_ms: 2_000 }
    }
}

impl Config {
    /// Checks what can be checked without the object.
    pub(super) fn validate_gateway(&self) -> Result<()> {
        // Each takes up to 3,400 bytes of the agent's memory, and is looked at every millisecond.
        if self.fragments.held > MOST_HELD {
            let held = self.fragments.held;
            return self.fault(
                "fragments.held",
                format!("{held} is above {MOST_HELD}; write 0 to {MOST_HELD}"),
            );
        }
        if !(1..=60_000).contains(&self.fragments.held_ms) {
            let reason = "is out of range; write 1 to 60000 (1 ms to 60 s)";
            return self.fault("fragments.held_ms", format!("{} {reason}", self.fragments.held_ms));
        }
        match self.hosts_mtu {
            Some(mtu) if !(68..=65_535).contains(&mtu) => {
                self.fault("hosts_mtu", format!("{mtu} is out of range; write 68 to 65535 (bytes)"))
            }
            _ => Ok(()),
        }
    }
}
