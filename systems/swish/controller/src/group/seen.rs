//! What the controller has heard of a switch, and whether it counts as alive.

use crate::controller::Settings;
use std::net::SocketAddrV4;
use swish_protocol::control::Report;

/// Its last report.
pub(super) struct Seen {
    pub from: SocketAddrV4,
    pub report: Report,
    pub heard_ns: u64,
    /// It was told that it is heard.
    pub told_ns: u64,
    /// An order went out that it has not followed yet.
    pub ordered_ns: u64,
    /// It was asked to seal, for a view without a member that died, and has not reported since.
    pub asked_ns: Option<u64>,
}

impl Seen {
    /// Whether it reports. A switch that was asked to seal reports at once, so its silence tells
    /// more; and all others stand still until it answers or is dead.
    pub fn is_alive(&self, settings: &Settings, now_ns: u64) -> bool {
        let silent_ns = now_ns.saturating_sub(self.heard_ns);
        let is_late = |asked_ns: u64| now_ns >= asked_ns + settings.again_ns;
        let owes_answer = self.asked_ns.is_some_and(is_late);
        let dead_ns = if owes_answer { settings.asked_dead_ns } else { settings.dead_ns };
        silent_ns < dead_ns
    }

    /// The controller itself stood still for so long, and heard no switch.
    pub fn stood_still(&mut self, now_ns: u64, still_ns: u64) {
        self.heard_ns = (self.heard_ns + still_ns).min(now_ns);
        self.asked_ns = self.asked_ns.map(|at_ns| (at_ns + still_ns).min(now_ns));
    }
}
