//! What is persistent: the decision, and what it is good for.

use controller::shell::Decision;
use netchain_controller::State;
use serde::{Deserialize, Serialize};

/// A decision as databases keep it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Founded {
    /// Fingerprint of the cluster's founding.
    pub ring: u32,
    /// The longest lease that a switch may still have been told of, in ms.
    pub lease_ms: u32,
    pub state: State,
}

/// [`Founded`], or nothing yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Decided(pub Option<Founded>);

impl Decision for Decided {
    const NAME: &'static str = "groups";
    const LOST: &'static str = "Stop all controllers and give them its newest backup; without a \
                                backup the cluster must be founded anew, empty";

    fn version(&self) -> u64 {
        self.0.as_ref().map_or(0, |founded| founded.state.version)
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).unwrap_or_default()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Decided> {
        serde_json::from_slice(bytes).ok().map(Decided)
    }
}
