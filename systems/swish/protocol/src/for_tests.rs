//! Messages for the tests of several crates (feature `for-tests`).

use crate::control::{Load, Report};
use std::net::Ipv4Addr;

/// A report on the group `main`, of a switch that has no state of it. Tests fill in what they are
/// about: `Report { view: 6, ..report(switch, 7) }`.
pub fn report(switch: Ipv4Addr, incarnation: u32) -> Report {
    Report {
        group: "main".to_owned(),
        switch,
        incarnation,
        sent_ns: 0,
        layout: 5,
        sums: false,
        view: 0,
        window: 0,
        phase: 0,
        sealed: 0,
        known: 0,
        asks: false,
        whole: 0,
        lacks: 0,
        still_ms: 0,
        leaves: false,
        empty: false,
        load: Load::default(),
        chain: None,
        eventual: None,
    }
}
