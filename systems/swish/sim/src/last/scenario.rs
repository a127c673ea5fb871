//! What happens in a run, drawn from its seed.

use crate::eventual::Action;
use crate::program::LAST_KEYS;
use crate::scenario::{BUSY_NS, Step, conditions, fault};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::Conditions;

/// What packets do, as last.p4 numbers it.
pub(super) mod op {
    pub(in super::super) const READ: u8 = 0;
    pub(in super::super) const INSERT: u8 = 1;
    pub(in super::super) const SET: u8 = 2;
    pub(in super::super) const ADD: u8 = 3;
    pub(in super::super) const REMOVE: u8 = 4;
    pub(in super::super) const READ_NUMBER: u8 = 5;
    pub(in super::super) const WRITE_NUMBER: u8 = 6;
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What is drawn in the run follows from it.
    pub seed: u64,
    /// 2 to 6.
    pub switches: usize,
    /// Of all messages of a switch and group.
    pub bytes_per_s: u64,
    /// What the network does to every message.
    pub conditions: Conditions,
    /// In order of time. Packets have a key with `op` in its upper byte, and a value.
    pub steps: Vec<Step<Action>>,
}

impl Scenario {
    /// The run of this seed.
    pub fn of_seed(seed: u64) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed);
        let switches = *[2, 2, 3, 3, 4, 6].get(rng.random_range(0..6usize)).unwrap_or(&2);
        let conditions = conditions(&mut rng, 0.4);
        let count = rng.random_range(10..80);
        let mut steps: Vec<Step<Action>> = (0..count).map(|_| step(&mut rng, switches)).collect();
        steps.sort_by_key(|step| step.at_ns);
        let bytes_per_s = if rng.random_bool(0.3) { 20_000_000 } else { 1_000_000_000 };
        Scenario { seed, switches, bytes_per_s, conditions, steps }
    }
}

fn step(rng: &mut StdRng, switches: usize) -> Step<Action> {
    let switch = rng.random_range(0..switches);
    let for_ns = rng.random_range(50_000..3_000_000);
    let action = match rng.random_range(0..20) {
        0..15 => Action::Packets { switch, packets: packets(rng) },
        15 => Action::Restart { switch },
        16 => Action::Idle { switch, for_ns },
        _ => Action::Network { fault: fault(rng, switches), for_ns },
    };
    Step { at_ns: rng.random_range(0..BUSY_NS), action }
}

fn packets(rng: &mut StdRng) -> Vec<(u32, u32)> {
    let (count, keys) = match rng.random_range(0..6) {
        0 => (rng.random_range(20..80), LAST_KEYS),
        _ => (rng.random_range(1..6), 4),
    };
    (0..count).map(|_| packet(rng, keys)).collect()
}

/// A packet to one of so many keys.
pub(super) fn packet(rng: &mut StdRng, keys: u32) -> (u32, u32) {
    let op = match rng.random_range(0..20) {
        0..2 => op::READ,
        2..5 => op::INSERT,
        5..8 => op::SET,
        8..10 => op::ADD,
        10..15 => op::REMOVE,
        15 => op::READ_NUMBER,
        _ => op::WRITE_NUMBER,
    };
    (u32::from(op) << 24 | rng.random_range(0..keys), rng.random())
}
