//! What controllers of these tests are told.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use swish_controller::{GroupSettings, Settings};

pub const MS: u64 = 1_000_000;
pub const LEASE_MS: u64 = 200;

pub fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number as u8)
}

/// For the group `main` of so many switches.
pub fn settings(count: u32) -> Settings {
    let switches = (0..count).map(address).collect();
    Settings {
        groups: BTreeMap::from([("main".to_owned(), GroupSettings { switches })]),
        dead_ns: 100 * MS,
        asked_dead_ns: 50 * MS,
        slow_ns: 1000 * MS,
        join_ns: 50 * MS,
        lost_ns: 1000 * MS,
        again_ns: 20 * MS,
        seal_ns: 500 * MS,
        lease_ns: LEASE_MS * MS,
        begin_ns: 200 * MS,
    }
}
